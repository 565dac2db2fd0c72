"""A progress bar on standard error."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class Bar:
    """A bar that is a function of (done, total) inside a `with` block; parts have bars of their own below."""

    def __init__(self, what: str):
        """Name what is being done."""
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(what, total=None)
        self._parts: dict[int, TaskID] = {}

    def __enter__(self) -> Bar:
        """Show it."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take it away."""
        self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        """Move it."""
        self._bar.update(self._task, completed=done, total=total)

    def part(self, number: int, what: str, done: int, total: int) -> None:
        """Show how far one part is that is under way."""
        if number not in self._parts:
            self._parts[number] = self._bar.add_task(what)
        self._bar.update(self._parts[number], description=f"  {what}", completed=done, total=total)

    def end(self, number: int) -> None:
        """Take the bar of a part away, if it has one."""
        if number in self._parts:
            self._bar.remove_task(self._parts.pop(number))
