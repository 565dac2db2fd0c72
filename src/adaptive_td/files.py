"""Files that are there whole or not at all, and what to say where the disk is full."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .errors import NoRoom

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a system says where a file cannot grow."""


@contextmanager
def room_for(path: Path, needed: int) -> Iterator[None]:
    """Turn a full disk into an error that names the path and the bytes needed."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise no_room(path, needed) from None


def no_room(path: Path, needed: int) -> NoRoom:
    """The error for a disk that is full."""
    free = shutil.disk_usage(path if path.is_dir() else path.parent).free
    return NoRoom(
        f"no room for {path}: {needed:,} bytes needed, {free:,} free on the disk; "
        "what was stored is intact, and the same command resumes once there is room"
    )


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to: a unique temporary name beside it, fsync, rename, fsync of the folder."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file as `whole_file` does; a full disk is an error that says how much is needed."""
    with room_for(path, len(content)), whole_file(path) as file:
        file.write(content)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
