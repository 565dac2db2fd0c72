"""A log as it was found: rows laid end to end, read but not yet judged.

Every reader ends in a `Log`. `Log.episodes` judges it, and refuses what cannot be used; `check` looks at the
same rows and reports instead of refusing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Int

from adaptive_td.episodes import Episodes, NonFinite
from adaptive_td.errors import DataError

Ends = Literal["terminated", "truncated"]

KEY = "key:"
"""What the name of a key column begins with in the files that we write."""
EXTRA = "extra:"
"""The same for further columns."""

ENDS_NOT_STATED = (
    "does not say how episodes end: give a column for `terminated` (the process stopped, nothing follows) or "
    "`truncated` (only the log stops), or settle it for all with ends='terminated' or ends='truncated'"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Log:
    """Rows laid end to end; episode i has `lengths[i]` rewards and `lengths[i] + has_final[i]` states."""

    states: np.ndarray
    rewards: np.ndarray
    lengths: np.ndarray
    ended: np.ndarray
    has_final: Bool[np.ndarray, " episodes"] | None = None
    """Whether an episode's final state is among the rows; None: always."""
    durations: np.ndarray | None = None
    keys: Mapping[str, np.ndarray] = field(default_factory=dict)
    stack: int = 1
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    mismatched: Int[np.ndarray, " found"] = field(default_factory=lambda: np.zeros(0, np.int64))
    """Transitions whose recorded next observation is not the observation of the row that follows."""
    notes: tuple[str, ...] = ()
    """What was guessed on the way in."""

    def episodes(self, *, nonfinite: NonFinite = "refuse") -> Episodes:
        """The log as episodes, or an error that names what is wrong with it."""
        if len(self.mismatched):
            raise DataError(
                f"next_observations: {len(self.mismatched)} rows differ from the observation that follows in "
                f"their episode (first: {self.place(int(self.mismatched[0]))}); the end of an episode is not "
                "marked, or the rows are shifted"
            )
        return Episodes.from_rows(
            self.states,
            self.rewards,
            self.lengths,
            self.ended,
            has_final=self.has_final,
            durations=self.durations,
            keys=self.keys,
            stack=self.stack,
            extras=self.extras,
            info=self.info,
            nonfinite=nonfinite,
        )

    def place(self, transition: int) -> str:
        """A transition by its episode and step."""
        ends = np.cumsum(self.lengths)
        episode = int(np.searchsorted(ends, transition, side="right"))
        return f"episode {episode}, step {transition - int(ends[episode] - self.lengths[episode])}"

    def with_successors(self, successors: np.ndarray) -> Log:
        """Add the final states that a log keeps as the next observation of each transition.

        Inside an episode the next observation must be what the next row observes; where it is not, the
        transition is noted in `mismatched`.
        """
        has_final = np.ones(len(self.lengths), bool) if self.has_final is None else self.has_final
        if successors.shape != (len(self.rewards), *self.states.shape[1:]):
            raise DataError(
                f"next_observations: shape {successors.shape} where {len(self.rewards)} observations have "
                f"shape {self.states.shape[1:]}"
            )
        finals_before = np.cumsum(has_final) - has_final
        row = np.arange(len(self.rewards)) + np.repeat(finals_before, self.lengths)
        last = np.cumsum(self.lengths) - 1
        lacking = ~has_final & (self.lengths > 0)
        followed = np.ones(len(self.rewards), bool)
        followed[last[lacking]] = False
        ends = np.cumsum(self.lengths + has_final)[lacking]
        return replace(
            self,
            states=np.insert(self.states, ends, successors[last[lacking]], axis=0),
            has_final=has_final | lacking,
            mismatched=_differing(successors, self.states, np.flatnonzero(followed), row[followed] + 1),
        )


def _differing(
    left: np.ndarray, right: np.ndarray, rows: Int[np.ndarray, " n"], others: Int[np.ndarray, " n"]
) -> Int[np.ndarray, " found"]:
    """Those of `rows` in which `left[rows]` and `right[others]` are not the same up to rounding."""
    block = max(1, 2**22 // max(1, left[:1].size))
    found = [np.zeros(0, np.int64)]
    for i in range(0, len(rows), block):
        part = rows[i : i + block]
        close = np.isclose(left[part], right[others[i : i + block]], rtol=1e-4, atol=1e-6, equal_nan=True)
        found.append(part[~close.all(axis=tuple(range(1, close.ndim)))])
    return np.concatenate(found)


def cut_at_flags(
    terminated: Bool[np.ndarray, " steps"], truncated: Bool[np.ndarray, " steps"]
) -> tuple[Int[np.ndarray, " episodes"], Bool[np.ndarray, " episodes"]]:
    """Lengths and kinds of end of episodes that stop where a flag is set; the log's own end truncates."""
    last = terminated | truncated
    last[-1:] = True
    ends = np.flatnonzero(last)
    return np.diff(ends, prepend=-1), terminated[ends]


def refuse_bomb(field_name: str, *, packed: int, unpacked: int, max_bytes: int) -> None:
    """Refuse what would unpack to more than `max_bytes` and to more than a hundred times its own size."""
    if unpacked > max(max_bytes, 100 * packed):
        raise DataError(
            f"{field_name}: {packed} bytes that would unpack to {unpacked}; if you trust the file, pass "
            f"max_bytes={unpacked}"
        )
