"""Logs that take long to make, kept on disk one episode to a file, so that nothing is ever played twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from adaptive_td import adapters
from adaptive_td.episodes import Episodes, aligned_empty
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
    rows = int(lengths.sum()) + len(lengths)
    first = adapters.load(files[0])
    states = aligned_empty((rows, *first.states.shape[1:]), first.states.dtype)
    columns: dict[str, list[np.ndarray]] = {}
    at = 0
    for file in files:
        part = adapters.load(file)
        states[at : at + len(part.states)] = part.states
        at += len(part.states)
        for name, column in _columns(part).items():
            columns.setdefault(name, []).append(column)
    whole = {name: np.concatenate(parts) for name, parts in columns.items()}
    return replace(
        first,
        states=states,
        lengths=lengths,
        ended=whole["ended"],
        rewards=whole["rewards"],
        durations=whole.get("durations"),
        keys={name: whole[f"key {name}"] for name in first.keys},
        extras={name: whole[f"extra {name}"] for name in first.extras},
    )


def _columns(part: Episodes) -> dict[str, np.ndarray]:
    """Everything but the states, by name."""
    columns = {"rewards": part.rewards, "ended": part.ended}
    if part.durations is not None:
        columns["durations"] = part.durations
    columns |= {f"key {name}": column for name, column in part.keys.items()}
    return columns | {f"extra {name}": column for name, column in part.extras.items()}


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
