"""What is in a log, and which of the known traps it walks into.

A finding is plain data. Level "error": `load` refuses the log. Level "warning": the log loads, but what it
says is perhaps not what was meant, and values learnt from it would be wrong without a sign. Level "info":
what is there.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Shaped

from .adapters import read
from .adapters.columns import Columns
from .adapters.log import Ends, Log
from .episodes import Episodes, NonFinite
from .errors import DataError


@dataclass(frozen=True)
class Finding:
    """One thing that `check` found."""

    level: Literal["info", "warning", "error"]
    code: str
    message: str
    where: str = ""
    """The first place that shows it, such as "episode 3"; empty where it concerns all."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What is in a log, in plain numbers."""

    episodes: int
    transitions: int
    terminated: int
    truncated: int
    lengths: tuple[int, float, int]
    """The least, the median and the greatest number of transitions of an episode."""
    observation_shape: tuple[int, ...]
    observation_dtype: str
    ranges: tuple[tuple[float, float], ...]
    """The least and the greatest value of each feature; of all together where there are more than 64."""
    rewards: tuple[float, float, float]
    """The least, the mean and the greatest reward."""
    paid: float
    """The share of transitions whose reward is not 0."""


def summarise(episodes: Episodes) -> Summary:
    """Count and measure."""
    states = episodes.states.reshape(len(episodes.states), -1)
    axis = 0 if states.shape[1] <= 64 else None
    low, high = np.atleast_1d(states.min(axis=axis)), np.atleast_1d(states.max(axis=axis))
    lengths, rewards = episodes.lengths, episodes.rewards
    return Summary(
        episodes=len(episodes),
        transitions=episodes.steps,
        terminated=int(episodes.ended.sum()),
        truncated=int((~episodes.ended).sum()),
        lengths=(int(lengths.min()), float(np.median(lengths)), int(lengths.max())),
        observation_shape=episodes.observation_shape,
        observation_dtype=str(states.dtype),
        ranges=tuple((float(a), float(b)) for a, b in zip(low, high, strict=True)),
        rewards=(float(rewards.min()), float(rewards.mean(dtype=np.float64)), float(rewards.max())),
        paid=float(np.mean(rewards != 0)),
    )


def check(
    source: Episodes | str | os.PathLike[str],
    *,
    columns: Columns | None = None,
    ends: Ends | None = None,
    time_unit: float = 1.0,
    max_bytes: int = 2**30,
) -> list[Finding]:
    """Everything there is to say about episodes, or about a log that `load` takes, or that it refuses.

    The options are those of `load`. A mistyped name is an error here too; a log that cannot be used is a
    finding.
    """
    if isinstance(source, Episodes):
        return [*_contents(source), *_traps(source)]
    try:
        log = read(source, columns=columns, ends=ends, time_unit=time_unit, max_bytes=max_bytes)
    except DataError as error:
        return [Finding("error", "refused", str(error), os.fspath(source))]
    episodes, refusals = _relaxed(log)
    found = [Finding("info", "note", note) for note in log.notes] + refusals
    if episodes is None:
        return found
    return [*_contents(episodes), *found, *_traps_of_rows(log), *_traps(episodes)]


def _relaxed(log: Log) -> tuple[Episodes | None, list[Finding]]:
    """The episodes that are left when more and more is forgiven, and what had to be."""
    refusals: dict[str, Finding] = {}
    aligned = replace(log, mismatched=log.mismatched[:0])
    attempts: list[tuple[Log, NonFinite]] = [(log, "refuse"), (aligned, "refuse"), (aligned, "drop-episode")]
    with warnings.catch_warnings(action="ignore"):  # what the rows lack is reported by `_traps_of_rows`
        for rows, nonfinite in attempts:
            try:
                return rows.episodes(nonfinite=nonfinite), list(refusals.values())
            except DataError as error:
                refusals[str(error)] = Finding("error", "refused", str(error))
    return None, list(refusals.values())


def _contents(episodes: Episodes) -> Iterator[Finding]:
    found = summarise(episodes)
    shortest, median, longest = found.lengths
    yield Finding(
        "info",
        "contents",
        f"{found.episodes} episodes, {found.transitions} transitions; {found.terminated} terminated, "
        f"{found.truncated} truncated; {shortest} to {longest} transitions each, median {median:g}",
    )
    shown = ", ".join(f"[{low:.4g}, {high:.4g}]" for low, high in found.ranges[:8])
    more = ", ..." if len(found.ranges) > 8 else ""
    shape = f"shape {found.observation_shape}, {found.observation_dtype}"
    yield Finding("info", "observations", f"{shape}, between {shown}{more}")
    least, mean, greatest = found.rewards
    spread = f"between {least:.4g} and {greatest:.4g}, mean {mean:.4g}"
    yield Finding("info", "rewards", f"{spread}, {found.paid:.1%} of them not 0")
    constant = [str(i) for i, (low, high) in enumerate(found.ranges) if low == high]
    if constant:
        yield Finding("info", "constant-features", f"features that never change: {', '.join(constant)}")


def _traps_of_rows(log: Log) -> Iterator[Finding]:
    """What only the rows show, before they are episodes."""
    lacking = np.zeros(len(log.lengths), bool) if log.has_final is None else ~log.has_final
    lacking &= ~log.ended.astype(bool) & (log.lengths > 0)
    if lacking.any():
        yield Finding(
            "warning",
            "missing-final",
            f"{lacking.sum()} truncated episodes have no final observation: their last reward is left out",
            _episode(lacking),
        )
    empty = log.lengths == 0
    if empty.any():
        yield Finding("warning", "empty", f"{empty.sum()} episodes have no transition", _episode(empty))


def _traps(episodes: Episodes) -> Iterator[Finding]:
    yield from _traps_of_ends(episodes)
    yield from _traps_of_final_states(episodes)
    yield from _traps_of_repetition(episodes)
    yield from _traps_of_rewards(episodes)
    if episodes.durations is not None:
        typical = float(np.median(episodes.durations))
        if not 0.01 <= typical <= 100:
            message = f"a step lasts {typical:g} units of time (median), so discounting is all or nothing"
            yield Finding("warning", "time-unit", f"{message}; set time_unit to about {typical:g} of them")


def _traps_of_ends(episodes: Episodes) -> Iterator[Finding]:
    lengths, ended = episodes.lengths, episodes.ended
    if not ended.any():
        yield Finding("info", "none-terminated", "no episode terminated: what follows is all bootstrapped")
    if len(lengths) > 1 and lengths.max() == 1:
        yield Finding("warning", "one-step", "every episode has one transition: does the id name rows?")
        return
    if ended.sum() >= 3:
        longest = lengths[ended].max()
        at_limit = ended & (lengths == longest)
        share = at_limit.sum() / ended.sum()
        if share == 1 or (share >= 0.2 and longest >= 10):
            yield Finding(
                "warning",
                "time-limit-as-end",
                f"{at_limit.sum()} of {ended.sum()} terminated episodes have the same, longest length "
                f"{longest}: a time limit recorded as an end?",
                _episode(at_limit),
            )
    cut = ~ended
    cut[-1:] = False  # the log's own end cuts the last one anywhere
    if len(set(lengths[cut].tolist())) > 1:
        yield Finding(
            "warning",
            "no-time-limit",
            f"{cut.sum()} truncated episodes differ in length, so no time limit cut them: if the cut depends "
            "on what would have followed, values are biased",
            _episode(cut & (lengths != lengths[np.argmax(cut)])),
        )


def _traps_of_final_states(episodes: Episodes) -> Iterator[Finding]:
    """A truncated episode bootstraps from its final state; these are ways in which that is a wrong one."""
    cut = ~episodes.ended
    if not cut.any():
        return
    last = np.cumsum(episodes.lengths + 1) - 1
    first = last - episodes.lengths
    zero, final = _rows(episodes.states == 0), np.zeros(len(episodes.states), bool)
    final[last] = True
    zeroed = cut & zero[last]
    if zeroed.any() and zero[~final].mean() < 0.01:
        yield Finding(
            "warning",
            "zeroed-final",
            f"{zeroed.sum()} truncated episodes end in a state of zeros: a loader that clears the next "
            "observation at time-outs makes TD bootstrap from V(0)",
            _episode(zeroed),
        )
    repeated = cut & _rows(episodes.states[last] == episodes.states[last - 1])
    if repeated.sum() > cut.sum() / 2 and _stuck(episodes).mean() < 0.1:
        yield Finding(
            "warning",
            "repeated-final",
            f"{repeated.sum()} of {cut.sum()} truncated episodes repeat their last state as the final one: "
            "was the final observation not recorded?",
            _episode(repeated),
        )
    begin = episodes.states[first]
    jumped = np.append(_rows(episodes.states[last[:-1]] == begin[1:]), False) & cut
    if jumped.sum() > cut.sum() / 2 and not (begin == begin[0]).all():
        yield Finding(
            "warning",
            "final-of-the-next",
            f"{jumped.sum()} of {cut.sum()} truncated episodes end in the first state of the next episode: "
            "the observation after a reset was recorded as the final one",
            _episode(jumped),
        )


def _traps_of_repetition(episodes: Episodes) -> Iterator[Finding]:
    stuck = _stuck(episodes)
    if stuck.mean() > 0.5:
        yield Finding("warning", "stuck", f"{stuck.mean():.0%} of transitions leave the state as it was")
    seen: set[int] = set()
    ends = np.cumsum(episodes.lengths + 1)
    twice = np.zeros(len(episodes), bool)
    for i, (start, end) in enumerate(zip(ends - episodes.lengths - 1, ends, strict=True)):
        mark = hash(episodes.states[start:end].tobytes())
        twice[i] = mark in seen
        seen.add(mark)
    if twice.any():
        message = f"{twice.sum()} episodes are the same, state by state, as an earlier one"
        yield Finding("warning", "repeated-episodes", message, _episode(twice))


def _traps_of_rewards(episodes: Episodes) -> Iterator[Finding]:
    paid = episodes.rewards != 0
    if not paid.any():
        yield Finding("warning", "no-reward", "every reward is 0, and so is every value")
    elif not paid[~episodes.last].any() and not episodes.last.all():
        yield Finding("info", "reward-at-end", "only the last transition of an episode is ever rewarded")


def _stuck(episodes: Episodes) -> Bool[np.ndarray, " steps"]:
    """Whether a transition leaves the state as it was."""
    return _rows(episodes.states[1:] == episodes.states[:-1])[episodes.index]


def _rows(equal: Shaped[np.ndarray, "rows *obs"]) -> Bool[np.ndarray, " rows"]:
    """Whether all of a row is True."""
    return np.asarray(equal.all(axis=tuple(range(1, equal.ndim))))


def _episode(which: Bool[np.ndarray, " episodes"]) -> str:
    return f"episode {np.argmax(which)}"
