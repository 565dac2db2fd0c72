"""What can go wrong, each kind with the exit code the command line gives it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AdaptiveTDError(Exception):
    """A mistake that a person can mend; the command line prints it in one line, without a traceback."""

    exit_code = 1


class UsageError(AdaptiveTDError):
    """A mistyped name, an option that does not fit."""

    exit_code = 2


class DataError(AdaptiveTDError):
    """The data or model offered cannot be used; the message names the field, the episode and the step."""

    exit_code = 3


class Diverged(AdaptiveTDError):
    """A network's loss became infinite or NaN at `step`."""

    exit_code = 4

    def __init__(self, message: str, step: int):
        super().__init__(message)
        self.step = step


class CellsFailed(AdaptiveTDError):
    """Some cells of an experiment raised; the others are stored."""

    exit_code = 4


class RunInUse(AdaptiveTDError):
    """Another process drives this run."""

    exit_code = 5


class NoRoom(AdaptiveTDError):
    """The disk is full; what was stored before is intact."""

    exit_code = 6


class Interrupted(AdaptiveTDError):
    """A run was stopped by its user, and can be resumed."""

    exit_code = 130


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """An error for a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    known_names = f"Known: {', '.join(names)}." if names else "There is none."
    return UsageError(f"unknown {kind} {name!r}{hint} {known_names}")
