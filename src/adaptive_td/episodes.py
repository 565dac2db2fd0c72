"""Logged episodes laid end to end: the one form in which data enters."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from .errors import DataError

NonFinite = Literal["refuse", "drop-episode"]
ALIGNMENT = 64
"""Of memory that devices and vector instructions like, in bytes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Episodes:
    """Logged episodes laid end to end; row t of every per-step field is one transition.

    An episode of T transitions has T + 1 states, and each state is stored once: `states` holds
    `steps + episodes` rows, and transition t leads from `states[index[t]]` to `states[index[t] + 1]`.
    `ended[i]` tells the two ways an episode can stop apart: True, the process itself stopped and nothing
    follows (terminated); False, only the log stops there and value may follow (truncated).
    """

    states: Shaped[np.ndarray, "rows *obs"]
    rewards: Float[np.ndarray, " steps"]
    lengths: Int[np.ndarray, " episodes"]
    ended: Bool[np.ndarray, " episodes"]
    durations: Float[np.ndarray, " steps"] | None = None
    """Time that passes in each transition: its discount is `discount ** duration`. None: always 1."""
    keys: Mapping[str, Shaped[np.ndarray, " steps"]] = field(default_factory=dict)
    """The columns by which the log itself names its rows (episode id, step or time)."""
    stack: int = 1
    """How many rows of its episode make one state, newest last: frames are stored once and stacked when they
    are looked at. Rows before an episode's start count as zeros. 1: a row is a state."""
    extras: Mapping[str, Shaped[np.ndarray, " steps"]] = field(default_factory=dict)
    """Further columns that travel with the log (actions, rewards as they were before clipping)."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Where the log comes from, as plain data: the policy, its temperature, a seed."""

    @staticmethod
    def from_lists(
        observations: Sequence[Any] | np.ndarray,
        rewards: Sequence[Any] | np.ndarray,
        terminated: Sequence[Any] | np.ndarray,
        *,
        durations: Sequence[Any] | np.ndarray | None = None,
        keys: Mapping[str, Sequence[Any]] | None = None,
        nonfinite: NonFinite = "refuse",
    ) -> Episodes:
        """Episodes from one list per episode: T + 1 (or T) states, T rewards, and one flag.

        The flag is True where the process stopped. With T states the final one is missing: a terminated
        episode does not need it, a truncated one gives up its last reward, because a return cannot be
        continued from a state that nobody recorded. `keys` holds, per column, one list per episode.
        """
        if not len(observations) == len(rewards) == len(terminated):
            raise DataError(
                f"observations, rewards and terminated must have one entry per episode; got "
                f"{len(observations)}, {len(rewards)} and {len(terminated)}"
            )
        states = [_numeric("observations", part, i) for i, part in enumerate(observations)]
        paid = [_numeric("rewards", part, i) for i, part in enumerate(rewards)]
        for i, (state, reward) in enumerate(zip(states, paid, strict=True)):
            _check_episode(i, state, reward, states[0].shape[1:])
        return Episodes.from_rows(
            _joined(states),
            _joined(paid),
            np.array([len(part) for part in paid], np.int64),
            np.array([_end_flag(i, flag, len(paid[i])) for i, flag in enumerate(terminated)], bool),
            has_final=np.array([len(s) > len(r) for s, r in zip(states, paid, strict=True)], bool),
            durations=None if durations is None else _joined(durations),
            keys={name: _joined(column) for name, column in (keys or {}).items()},
            nonfinite=nonfinite,
        )

    @staticmethod
    def from_rows(
        states: np.ndarray,
        rewards: np.ndarray,
        lengths: np.ndarray,
        ended: np.ndarray,
        *,
        has_final: Bool[np.ndarray, " episodes"] | None = None,
        durations: np.ndarray | None = None,
        keys: Mapping[str, np.ndarray] | None = None,
        stack: int = 1,
        extras: Mapping[str, np.ndarray] | None = None,
        info: Mapping[str, Any] | None = None,
        nonfinite: NonFinite = "refuse",
    ) -> Episodes:
        """Episodes from rows laid end to end: `lengths[i]` rewards and, with the final one, one more state.

        Where `has_final[i]` is False the final state is not among the rows: nobody recorded it. A terminated
        episode does not need it, and its last state stands in. A truncated one gives up its last reward,
        because a return cannot be continued from an unknown state. An episode left without a transition is
        left out, and so is one that holds NaN or infinity if `nonfinite` is "drop-episode".
        """
        states, rewards = _numeric("observations", states), _numeric("rewards", rewards).astype(np.float32)
        durations = None if durations is None else _numeric("durations", durations).astype(np.float32)
        ended, keys, extras = as_flags("terminated", ended), dict(keys or {}), dict(extras or {})
        has_final = np.ones(lengths.shape, bool) if has_final is None else has_final
        _check_rows(states, rewards, lengths, ended, has_final)
        _check_columns(len(rewards), durations, keys | extras)
        lengths = lengths.astype(np.int64)
        if not has_final.all():
            cut = ~ended & ~has_final & (lengths > 0)
            kept = np.ones(len(rewards), bool)
            kept[np.cumsum(lengths)[cut] - 1] = False
            counts, lengths = lengths + has_final, lengths - cut
            first = np.cumsum(counts) - counts
            states = states[
                np.minimum(ranges(first, lengths + 1), np.repeat(first + counts - 1, lengths + 1))
            ]
            rewards, durations = rewards[kept], None if durations is None else durations[kept]
            keys, extras = ({name: x[kept] for name, x in columns.items()} for columns in (keys, extras))
            if cut.any():
                warnings.warn(
                    f"{cut.sum()} truncated episodes have no final state (first: episode {np.argmax(cut)}): "
                    "their last reward is left out, since there is no state to bootstrap from",
                    stacklevel=2,
                )
        episodes = Episodes(
            states=states,
            rewards=rewards,
            lengths=lengths,
            ended=ended,
            durations=durations,
            keys=keys,
            stack=stack,
            extras=extras,
            info=dict(info or {}),
        )
        return _without_unusable(episodes, nonfinite)

    def __post_init__(self) -> None:
        """Refuse fields that do not fit each other (shapes only; nothing is computed)."""
        steps, count = len(self.rewards), len(self.lengths)
        if len(self.states) != steps + count or len(self.ended) != count or self.lengths.sum() != steps:
            raise DataError(
                f"fields do not fit each other: {len(self.states)} states, {steps} rewards, "
                f"{count} lengths that sum to {self.lengths.sum()}, {len(self.ended)} end flags"
            )
        _check_columns(steps, self.durations, {**self.keys, **self.extras})
        if self.stack < 1:
            raise DataError(f"stack: a state is made of at least one row, got {self.stack}")

    def __len__(self) -> int:
        """The number of episodes."""
        return len(self.lengths)

    def __repr__(self) -> str:
        """Count episodes, transitions and the two kinds of end."""
        return (
            f"Episodes({len(self)} episodes, {self.steps} transitions, observations "
            f"{self.observation_shape} {self.states.dtype}, {int(self.ended.sum())} terminated, "
            f"{int((~self.ended).sum())} truncated)"
        )

    @property
    def steps(self) -> int:
        """The number of transitions."""
        return len(self.rewards)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one state."""
        rows = () if self.stack == 1 else (self.stack,)
        return rows + self.states.shape[1:]

    @cached_property
    def offsets(self) -> Int[np.ndarray, " episodes_and_one"]:
        """Where each episode's transitions start; the last entry is the number of transitions."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    @property
    def episode(self) -> Int[np.ndarray, " steps"]:
        """The episode, counted from 0, to which each transition belongs."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.lengths)

    @property
    def step(self) -> Int[np.ndarray, " steps"]:
        """The place of each transition in its episode, counted from 0."""
        return np.arange(self.steps) - np.repeat(self.offsets[:-1], self.lengths)

    @property
    def index(self) -> Int[np.ndarray, " steps"]:
        """The row of `states` from which each transition leaves; it arrives in the next row."""
        return np.arange(self.steps, dtype=np.int32) + self.episode

    @cached_property
    def age(self) -> Int[np.ndarray, " rows"]:
        """The place of each row of `states` in its episode, counted from 0."""
        return ranges(np.zeros(len(self), np.int64), self.lengths + 1)

    def observe(self, rows: Int[np.ndarray, " chosen"]) -> Shaped[np.ndarray, "chosen *obs"]:
        """The states at these rows of `states`; a stack holds rows r - stack + 1, ..., r of one episode."""
        if self.stack == 1:
            return self.states[rows]
        back = np.arange(self.stack)[::-1]
        frames = self.states[np.maximum(rows[:, None] - back, 0)]
        frames[back > self.age[rows][:, None]] = 0
        return frames

    @property
    def observations(self) -> Shaped[np.ndarray, "steps *obs"]:
        """The state each transition leaves."""
        return self.observe(self.index)

    @property
    def next_observations(self) -> Shaped[np.ndarray, "steps *obs"]:
        """The state each transition reaches (meaningless where the process stopped)."""
        return self.observe(self.index + 1)

    @property
    def last(self) -> Bool[np.ndarray, " steps"]:
        """Whether a transition is the last of its episode, however that ended."""
        last = np.zeros(self.steps, bool)
        last[self.offsets[1:] - 1] = True
        return last

    @property
    def terminated(self) -> Bool[np.ndarray, " steps"]:
        """Whether the process itself stopped after a transition."""
        terminated = np.zeros(self.steps, bool)
        terminated[self.offsets[1:] - 1] = self.ended
        return terminated

    @property
    def truncated(self) -> Bool[np.ndarray, " steps"]:
        """Whether only the log stops after a transition."""
        return self.last & ~self.terminated

    def discounts(self, discount: float | Float[np.ndarray, " steps"]) -> Float[np.ndarray, " steps"]:
        """The discount of each transition: γ_t = γ^Δt, and 0 where the process stopped."""
        durations = 1.0 if self.durations is None else self.durations
        per_step = np.asarray(discount, np.float32) ** np.asarray(durations, np.float32)
        return np.where(self.terminated, np.float32(0), per_step)

    def row_keys(self) -> dict[str, Shaped[np.ndarray, " steps"]]:
        """The log's own keys of each transition, or its episode and step where it has none."""
        return dict(self.keys) or {"episode": self.episode, "step": self.step}

    def select(self, episodes: Int[np.ndarray, " chosen"] | Sequence[int]) -> Episodes:
        """The chosen episodes, in the given order; one may be chosen more than once."""
        chosen = np.asarray(episodes, np.int64)
        if len(chosen) and not (chosen.min() >= 0 and chosen.max() < len(self)):
            raise DataError(f"episodes to select must lie in [0, {len(self)})")
        lengths = self.lengths[chosen]
        transitions = ranges(self.offsets[chosen], lengths)
        rows = ranges(self.offsets[chosen] + chosen, lengths + 1)
        return replace(
            self,
            states=aligned_copy(self.states, rows),
            rewards=self.rewards[transitions],
            lengths=lengths,
            ended=self.ended[chosen],
            durations=None if self.durations is None else self.durations[transitions],
            keys={name: column[transitions] for name, column in self.keys.items()},
            extras={name: column[transitions] for name, column in self.extras.items()},
        )

    def split(self, fraction: float, *, seed: int) -> tuple[Episodes, Episodes]:
        """Two parts by whole episodes: about `fraction` of them chosen at random, and the rest."""
        if not 0 < fraction < 1 or len(self) < 2:
            raise DataError(f"cannot split {len(self)} episodes at fraction {fraction}: both parts need one")
        count = min(max(round(fraction * len(self)), 1), len(self) - 1)
        order = np.random.default_rng(seed).permutation(len(self))
        return self.select(np.sort(order[:count])), self.select(np.sort(order[count:]))

    def resample(self, *, seed: int) -> Episodes:
        """As many episodes, drawn with replacement: a bootstrap replicate of the log."""
        return self.select(np.random.default_rng(seed).integers(len(self), size=len(self)))


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
    """An array that starts where a device can use it as it is: JAX then shares its memory."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def aligned_copy(array: Shaped[np.ndarray, "n *rest"], rows: Int[np.ndarray, " chosen"]) -> np.ndarray:
    """Some rows of an array, in memory that a device can share."""
    out = aligned_empty((len(rows), *array.shape[1:]), array.dtype)
    return np.take(array, rows, axis=0, out=out, mode="clip")  # with another mode it copies once more


def ranges(starts: Int[np.ndarray, " n"], counts: Int[np.ndarray, " n"]) -> Int[np.ndarray, " total"]:
    """The integers start, ..., start + count - 1 of every pair, laid end to end."""
    before = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(counts) else counts
    return np.arange(counts.sum()) + np.repeat(starts - before, counts)


def _numeric(name: str, value: Any, episode: int | None = None) -> np.ndarray:
    """An array of numbers; any float becomes float32, anything that is not a number is refused."""
    where = "" if episode is None else f"episode {episode} "
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DataError(f"{name}: {where}is ragged: {error}") from None
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name}: {where}has dtype {array.dtype}, which is not numeric")
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as such
        return array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array


def _joined(parts: Sequence[Any] | np.ndarray) -> np.ndarray:
    return np.concatenate([np.asarray(part) for part in parts]) if len(parts) else np.zeros(0)


def as_flags(name: str, value: Any) -> Bool[np.ndarray, "..."]:
    """True and False, also as 1 and 0; anything else is refused."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name}: expected True or False, got dtype {array.dtype}")
    strange = (array != 0) & (array != 1)
    if strange.any():
        raise DataError(f"{name}: {array[strange][0]} in row {np.argmax(strange)} is neither True nor False")
    return array.astype(bool)


def _end_flag(i: int, value: Any, steps: int) -> bool:
    """How an episode ended, from one flag, or from one per step of which only the last may be True."""
    flags = np.atleast_1d(as_flags(f"terminated: episode {i}", value))
    if len(flags) not in (1, steps) or flags[:-1].any():
        raise DataError(f"terminated: episode {i} needs one True or False, for its end")
    return bool(flags[-1])


def _check_episode(i: int, states: np.ndarray, rewards: np.ndarray, shape: tuple[int, ...]) -> None:
    if rewards.ndim != 1 or states.ndim < 1:
        raise DataError(f"rewards: episode {i} must be a flat list of numbers, got shape {rewards.shape}")
    if states.shape[1:] != shape:
        raise DataError(
            f"observations: episode {i} has shape {states.shape[1:]} per step, episode 0 has {shape}"
        )
    if len(states) not in (len(rewards), len(rewards) + 1):
        raise DataError(
            f"observations: episode {i} has {len(states)} states for {len(rewards)} rewards; "
            f"expected {len(rewards) + 1} (or {len(rewards)}, without the final one)"
        )


def _check_columns(steps: int, durations: np.ndarray | None, keys: Mapping[str, np.ndarray]) -> None:
    for name, column in {"durations": durations, **keys}.items():
        if column is not None and column.shape != (steps,):
            raise DataError(f"{name}: shape {column.shape} where there are {steps} transitions")
    if durations is not None and (durations < 0).any():
        raise DataError(f"durations: negative at transition {np.argmax(durations < 0)}")


def _check_rows(
    states: np.ndarray, rewards: np.ndarray, lengths: np.ndarray, ended: np.ndarray, has_final: np.ndarray
) -> None:
    """Refuse lengths that do not divide the rows, and name the first that does not fit."""
    if rewards.ndim != 1 or states.ndim < 1 or not len(rewards):
        raise DataError(f"rewards: expected at least one, one per transition, got shape {rewards.shape}")
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu":
        raise DataError(f"lengths: expected a list of whole numbers, got {lengths.dtype} {lengths.shape}")
    misfit = (lengths < 0) | (np.cumsum(lengths) > len(rewards))
    misfit[-1:] |= lengths.sum() != len(rewards)
    if misfit.any():
        i = int(np.argmax(misfit))
        raise DataError(f"lengths: {lengths[i]} of episode {i} does not fit the {len(rewards)} rewards")
    if not ended.shape == has_final.shape == lengths.shape:
        raise DataError(f"terminated: {len(ended)} flags for {len(lengths)} episodes")
    if len(states) != (lengths + has_final).sum():
        raise DataError(
            f"observations: {len(states)} states for {len(rewards)} rewards in {len(lengths)} episodes; "
            f"expected {(lengths + has_final).sum()}"
        )


def _without_unusable(episodes: Episodes, nonfinite: NonFinite) -> Episodes:
    """Leave out episodes without a transition; refuse or leave out those with NaN or infinity.

    The final state of a terminated episode does not count: nothing is ever read from it, and logs fill it
    with whatever they like; the state before it stands in for a broken one.
    """
    states, last = episodes.states, np.cumsum(episodes.lengths + 1) - 1
    spoilt = last[episodes.ended & (episodes.lengths > 0) & ~_finite(states[last])]
    if len(spoilt):
        states = states.copy()
        states[spoilt] = states[spoilt - 1]
        episodes = replace(episodes, states=states)
    usable, bad = episodes.lengths > 0, []
    transitions = episodes.offsets[:-1]
    for name, array, first in (
        ("observations", states, transitions + np.arange(len(episodes))),
        ("rewards", episodes.rewards, transitions),
        ("durations", episodes.durations, transitions),
    ):
        rows = np.flatnonzero(~_finite(array)) if array is not None else np.zeros(0, np.int64)
        which = np.searchsorted(first, rows, side="right") - 1
        usable[which] = False
        bad += [(int(i), name, int(row - first[i])) for i, row in zip(which[:1], rows[:1], strict=True)]
    if bad and nonfinite == "refuse":
        i, name, step = min(bad)
        raise DataError(f"{name}: non-finite value in episode {i}, step {step}")
    if not usable.any():
        raise DataError("no episode with at least one usable transition")
    return episodes if usable.all() else episodes.select(np.flatnonzero(usable))


def _finite(array: np.ndarray) -> Bool[np.ndarray, " rows"]:
    """Whether a row is free of NaN and infinity."""
    if array.dtype.kind != "f":
        return np.ones(len(array), bool)
    return np.isfinite(array).all(axis=tuple(range(1, array.ndim)))
