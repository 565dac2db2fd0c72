"""The folder of a run: who may write it, what it was told, what it holds."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from adaptive_td.errors import DataError, RunInUse, UsageError
from adaptive_td.files import write_whole

from .artefacts import sweep


class RunFolder(NamedTuple):
    """Where everything of a run lies."""

    path: Path

    @property
    def store(self) -> Path:
        """Cells and results."""
        return self.path / "store.sqlite"

    @property
    def artefacts(self) -> Path:
        """Arrays, by content."""
        return self.path / "artefacts"

    @property
    def checkpoints(self) -> Path:
        """How far the fits that are under way have come, a folder for each group."""
        return self.path / "checkpoints"

    @property
    def results(self) -> Path:
        """The final table."""
        return self.path / "results.parquet"

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """A file that people may read."""
        write_whole(self.path / name, (json.dumps(content, indent=2) + "\n").encode())

    def read_json(self, name: str) -> dict[str, Any]:
        """Such a file."""
        path = self.path / name
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read: {error}") from None
        if not isinstance(content, dict):
            raise DataError(f"{path} is no JSON object")
        return content

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and hold it against other processes.

        The lock is the system's and falls with its process; the file that names the holder only informs.
        """
        try:
            self.artefacts.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / ".lock")
            lock.acquire(timeout=1)
        except Timeout:
            raise RunInUse(f"{self.path} is being written by {self.holder() or 'another process'}") from None
        except OSError as error:
            raise UsageError(
                f"{self.path} cannot be written ({error.strerror}); choose another folder with --out"
            ) from None
        try:
            self.write_json("holder.json", {"host": socket.gethostname(), "pid": os.getpid()})
            sweep(self.path)
            sweep(self.artefacts)
            yield
        finally:
            lock.release()

    def holder(self) -> str | None:
        """Who drives the run, if the file that says so can be read."""
        try:
            holder = json.loads((self.path / "holder.json").read_text())
            return f"process {holder['pid']} on {holder['host']}"
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def in_use(self) -> bool:
        """Whether somebody drives the run now; a folder that nobody has ever driven is left as it is."""
        lock = self.path / ".lock"
        if not lock.exists():
            return False
        try:
            with FileLock(lock, timeout=0):
                return False
        except Timeout:
            return True
        except OSError:
            return False
