"""A progress bar on standard error."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Bar:
    """A bar that is a function of (done, total) inside a `with` block."""

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
