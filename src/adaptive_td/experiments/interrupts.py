"""Ctrl-C and SIGTERM while cells are measured: the first asks to stop, the second stops."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

GRACE = 20.0
"""Seconds that work under way has after SIGTERM."""


class Interrupts:
    """In its `with` block one Ctrl-C or SIGTERM sets `asked`; a second, or 20 s after SIGTERM, raises."""

    def __init__(self, tell: Callable[[str], None]):
        """`tell` says on the terminal what happens next."""
        self.asked = False
        self._tell = tell
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        """Take over the signals."""
        handlers = {signal.SIGINT: self._ask, signal.SIGTERM: self._ask, signal.SIGALRM: self._stop}
        self._before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give them back."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            self._stop(number, frame)
        self.asked = True
        if number == signal.SIGTERM:
            signal.setitimer(signal.ITIMER_REAL, GRACE)
            self._tell(f"asked to stop: saving what finishes within {GRACE:.0f} s")
        else:
            self._tell("stopping: what is under way is finished and saved; press Ctrl-C again to stop now")

    def _stop(self, number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt
