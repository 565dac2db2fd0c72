"""Arrays as content-named files that appear whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Float

from adaptive_td.errors import DataError, NoRoom

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a system says where a file cannot grow."""


class Artefact(NamedTuple):
    """A file of arrays: its name in the folder, its size and its digest."""

    file: str
    bytes: int
    digest: str


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


def write_whole(path: Path, content: bytes) -> None:
    """Write a file: a unique temporary name beside it, fsync, rename, fsync of the folder."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    with room_for(path, len(content)):
        try:
            with part.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
            sync_folder(path.parent)
        except OSError:
            part.unlink(missing_ok=True)
            raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def save(folder: Path, arrays: Mapping[str, Float[np.ndarray, "..."]]) -> Artefact:
    """Write arrays to a file that is named by what it holds; the same arrays are the same file."""
    content = safetensors.numpy.save({name: np.ascontiguousarray(a) for name, a in sorted(arrays.items())})
    digest = hashlib.sha256(content).hexdigest()
    artefact = Artefact(f"{digest}.safetensors", len(content), digest)
    if not intact(folder, artefact):
        write_whole(folder / artefact.file, content)
    return artefact


def intact(folder: Path, artefact: Artefact) -> bool:
    """Whether the file is there and is what it was."""
    try:
        content = (folder / artefact.file).read_bytes()
    except OSError:
        return False
    return len(content) == artefact.bytes and hashlib.sha256(content).hexdigest() == artefact.digest


def load(folder: Path, artefact: Artefact) -> dict[str, Float[np.ndarray, "..."]]:
    """The arrays of a file, after its digest was checked."""
    path = folder / artefact.file
    if not intact(folder, artefact):
        raise DataError(f"{path} is missing or altered; `reproduce` measures its cell again")
    return safetensors.numpy.load(path.read_bytes())


def sweep(folder: Path) -> None:
    """Remove what an interrupted write left behind."""
    for part in folder.glob(".*.part"):
        part.unlink(missing_ok=True)
