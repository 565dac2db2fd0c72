"""Logs that take long to make, kept on disk one episode to a file, so that nothing is ever played twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from adaptive_td import adapters
from adaptive_td.episodes import Episodes
from adaptive_td.errors import DataError, UsageError

from .cache import FOLDER

CHUNK = 16
"""Episodes that are played together by one process."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The episodes 0, 1, 2, ... of one stream, in a folder that only they have.

    A file is there whole or not at all. Processes that want the same episodes at once share the work: each
    plays chunks that no other is playing.
    """

    folder: Path
    play: Callable[[int, int], Episodes]
    """Episodes `first`, ..., `first + count - 1` of the stream, which must not depend on how it is cut."""

    def episodes(self, count: int) -> Episodes:
        """The first `count` episodes; those that are not there yet are played."""
        with _writable(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            while todo := self._missing(count):
                played = [self._play_chunk(chunk, count, wait=False) for chunk in todo]
                if not any(played):
                    self._play_chunk(todo[0], count, wait=True)
        return joined([self._path(k) for k in range(count)])

    def _path(self, episode: int) -> Path:
        return self.folder / f"{episode:06d}.npz"

    def _missing(self, count: int) -> list[int]:
        """The chunks of which an episode is missing."""
        return sorted({k // CHUNK for k in range(count) if not self._path(k).exists()})

    def _play_chunk(self, chunk: int, count: int, *, wait: bool) -> bool:
        """Play what is missing of a chunk; False if another process is at it."""
        lock = FileLock(self.folder / f".chunk-{chunk}.lock")
        try:
            lock.acquire(timeout=-1 if wait else 0)
        except Timeout:
            return False
        try:
            whole = range(chunk * CHUNK, min((chunk + 1) * CHUNK, count))
            missing = [k for k in whole if not self._path(k).exists()]
            if missing:
                first, stop = missing[0], missing[-1] + 1
                log = self.play(first, stop - first)
                for k in missing:
                    adapters.save(log.select([k - first]), self._path(k))
        finally:
            lock.release()
        return True


def joined(files: Sequence[Path]) -> Episodes:
    """The episodes of several files, read one after the other into arrays that are made once."""
    lengths = np.concatenate([_lengths(file) for file in files])
    first = adapters.load(files[0])
    states = np.empty((int(lengths.sum()) + len(lengths), *first.states.shape[1:]), first.states.dtype)
    parts, row = [], 0
    for file in files:
        part = adapters.load(file)
        states[row : row + len(part.states)] = part.states
        row += len(part.states)
        parts.append(replace(part, states=np.broadcast_to(part.states[:1], part.states.shape)))
        del part
    return replace(
        first,
        states=states,
        rewards=np.concatenate([part.rewards for part in parts]),
        lengths=np.concatenate([part.lengths for part in parts]),
        ended=np.concatenate([part.ended for part in parts]),
        durations=None
        if first.durations is None
        else np.concatenate([part.durations for part in parts if part.durations is not None]),
        keys={name: np.concatenate([part.keys[name] for part in parts]) for name in first.keys},
    )


def _lengths(file: Path) -> np.ndarray:
    """How long the episodes of a file are, without reading its states."""
    try:
        with np.load(file, allow_pickle=False) as stored:
            return stored["lengths"]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{file} is not a log: {error}; remove it, and it is made again") from None


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """A folder that cannot be written is a mistake that its user can mend."""
    try:
        yield
    except PermissionError as error:
        raise UsageError(
            f"{folder} cannot be written ({error.strerror}): episodes are kept there; name another folder "
            f"with the environment variable {FOLDER}"
        ) from None
