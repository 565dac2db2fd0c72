"""Where groups of cells are measured. An engine takes groups and reports on each; the runner does the rest.

A new engine is one file with one class like `Serial`, and its name in `ENGINES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from .cells import Group
from .measure import Outcome, measure

Told = Callable[[Group, str, int, int], None]
"""Told of a group under way: what is being done, how much of it is done, and how much there is."""


class Report(NamedTuple):
    """What came of a group: its outcomes, or nothing because the process that had it died or hung."""

    group: Group
    outcomes: Sequence[Outcome] = ()
    lost: Literal["", "died", "timed out"] = ""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What an engine may be told."""

    workers: int | None = None
    """How many groups at once; by default as many as there are cores for."""
    threads: int = 1
    """Cores for each worker."""
    timeout: float | None = None
    """Seconds that a cell may take; a group has as many times that as it has cells."""
    plugins: tuple[Path, ...] = ()
    checkpoints: Path | None = None
    """Where fits that take long may leave how far they are; each group has a folder of its own in it."""


@runtime_checkable
class Engine(Protocol):
    """Measures groups, several at once if it can; at least once each, never silently not at all."""

    slots: int

    def submit(self, group: Group) -> None:
        """Take a group, while fewer than `slots` are under way."""
        ...

    def wait(self, seconds: float) -> list[Report]:
        """Reports on groups, in the order in which they ended; after so many seconds perhaps none."""
        ...

    def close(self) -> None:
        """Stop now, whatever is under way."""
        ...


class Serial:
    """One group after the other, in this process, on all cores. It cannot time out or survive a crash."""

    slots = 1

    def __init__(self, options: Options, told: Told):
        """Nothing to set up."""
        self._checkpoints, self._told = options.checkpoints, told
        self._waiting: list[Group] = []

    def submit(self, group: Group) -> None:
        """Keep it until somebody waits."""
        self._waiting.append(group)

    def wait(self, seconds: float) -> list[Report]:
        """Measure what was submitted; this takes as long as it takes."""
        reports = [
            Report(group, measure(group, self._checkpoints, partial(self._told, group)))
            for group in self._waiting
        ]
        self._waiting.clear()
        return reports

    def close(self) -> None:
        """Nothing is under way."""


def processes(options: Options, told: Told) -> Engine:
    """Worker processes on this machine."""
    from .processes import Processes

    return Processes(options, told)


ENGINES: dict[str, Callable[[Options, Told], Engine]] = {"serial": Serial, "processes": processes}
