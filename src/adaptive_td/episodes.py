"""Logged episodes laid end to end: the one form in which data enters."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from .errors import DataError

NonFinite = Literal["refuse", "drop-episode"]


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
    """Time that passes in each transition; the discount of a step is `discount ** duration`. None: always 1."""
    keys: Mapping[str, Shaped[np.ndarray, " steps"]] = field(default_factory=dict)
    """The columns by which the log itself names its rows (episode id, step or time)."""

    @staticmethod
    def from_lists(
        observations: Sequence[Any],
        rewards: Sequence[Any],
        terminated: Sequence[Any],
        *,
        durations: Sequence[Any] | None = None,
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
        keys = keys or {}
        pieces: list[_Episode] = []
        shape: tuple[int, ...] | None = None
        for i in range(len(rewards)):
            piece = _read_episode(
                i,
                observations[i],
                rewards[i],
                terminated[i],
                None if durations is None else durations[i],
                {name: np.asarray(column[i]) for name, column in keys.items()},
            )
            if shape is None:
                shape = piece.states.shape[1:]
            if piece.states.shape[1:] != shape:
                raise DataError(
                    f"observations: episode {i} has shape {piece.states.shape[1:]} per step, "
                    f"episode 0 has {shape}"
                )
            bad = piece.first_nonfinite()
            if bad is not None and nonfinite == "refuse":
                raise DataError(f"{bad[0]}: non-finite value in episode {i}, step {bad[1]}")
            if len(piece.rewards) and bad is None:
                pieces.append(piece)
        return _concatenate(pieces)

    def __post_init__(self) -> None:
        """Refuse fields that do not fit each other (shapes only; nothing is computed)."""
        steps, count = len(self.rewards), len(self.lengths)
        if len(self.states) != steps + count or len(self.ended) != count or self.lengths.sum() != steps:
            raise DataError(
                f"fields do not fit each other: {len(self.states)} states, {steps} rewards, "
                f"{count} lengths that sum to {self.lengths.sum()}, {len(self.ended)} end flags"
            )
        for name, column in {"durations": self.durations, **self.keys}.items():
            if column is not None and len(column) != steps:
                raise DataError(f"{name}: {len(column)} rows where there are {steps} transitions")

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
        return self.states.shape[1:]

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

    @property
    def observations(self) -> Shaped[np.ndarray, "steps *obs"]:
        """The state each transition leaves."""
        return self.states[self.index]

    @property
    def next_observations(self) -> Shaped[np.ndarray, "steps *obs"]:
        """The state each transition reaches (meaningless where the process stopped)."""
        return self.states[self.index + 1]

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
        if len(chosen) and not (0 <= chosen.min() and chosen.max() < len(self)):
            raise DataError(f"episodes to select must lie in [0, {len(self)})")
        lengths = self.lengths[chosen]
        transitions = _ranges(self.offsets[chosen], lengths)
        rows = _ranges(self.offsets[chosen] + chosen, lengths + 1)
        return Episodes(
            states=self.states[rows],
            rewards=self.rewards[transitions],
            lengths=lengths,
            ended=self.ended[chosen],
            durations=None if self.durations is None else self.durations[transitions],
            keys={name: column[transitions] for name, column in self.keys.items()},
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


def _ranges(starts: Int[np.ndarray, " n"], counts: Int[np.ndarray, " n"]) -> Int[np.ndarray, " total"]:
    """The integers start, ..., start + count - 1 of every pair, laid end to end."""
    before = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(counts) else counts
    return np.arange(counts.sum()) + np.repeat(starts - before, counts)


@dataclass(frozen=True)
class _Episode:
    states: np.ndarray
    rewards: np.ndarray
    ended: bool
    durations: np.ndarray | None
    keys: dict[str, np.ndarray]

    def first_nonfinite(self) -> tuple[str, int] | None:
        """The field and step of the first NaN or infinity."""
        for name, array in (
            ("observations", self.states),
            ("rewards", self.rewards),
            ("durations", self.durations),
        ):
            if array is not None and array.dtype.kind == "f":
                finite = np.isfinite(array.reshape(len(array), -1)).all(axis=1)
                if not finite.all():
                    return name, int(np.argmin(finite))
        return None


def _numeric(name: str, i: int, value: Any) -> np.ndarray:
    """An array of numbers; float64 becomes float32, anything that is not a number is refused."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DataError(f"{name}: episode {i} is ragged: {error}") from None
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name}: episode {i} has dtype {array.dtype}, which is not numeric")
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _read_episode(
    i: int, observations: Any, rewards: Any, terminated: Any, durations: Any, keys: dict[str, np.ndarray]
) -> _Episode:
    states = _numeric("observations", i, observations)
    reward = _numeric("rewards", i, rewards).astype(np.float32)
    passed = None if durations is None else _numeric("durations", i, durations).astype(np.float32)
    flags = np.atleast_1d(np.asarray(terminated))
    if reward.ndim != 1 or states.ndim < 1:
        raise DataError(f"rewards: episode {i} must be a flat list of numbers, got shape {reward.shape}")
    if flags.dtype.kind not in "biu" or len(flags) not in (1, len(reward)) or flags[:-1].any():
        raise DataError(f"terminated: episode {i} needs one True or False, for its end")
    ended = bool(flags[-1])
    steps = len(reward)
    if len(states) not in (steps, steps + 1):
        raise DataError(
            f"observations: episode {i} has {len(states)} states for {steps} rewards; "
            f"expected {steps + 1} (or {steps}, without the final one)"
        )
    if len(states) == steps and steps:
        if ended:
            states = np.concatenate([states, states[-1:]])
        else:
            warnings.warn(
                f"episode {i} is truncated and its final state is missing: its last reward is left out, "
                "since there is no state to bootstrap from",
                stacklevel=3,
            )
            steps -= 1
            reward = reward[:steps]
            passed = None if passed is None else passed[:steps]
            keys = {name: column[:steps] for name, column in keys.items()}
    elif ended and steps:
        states = np.concatenate([states[:-1], states[-2:-1]]) if _is_nonfinite(states[-1]) else states
    return _Episode(states, reward, ended, passed, keys)


def _is_nonfinite(state: np.ndarray) -> bool:
    return state.dtype.kind == "f" and not np.isfinite(state).all()


def _concatenate(pieces: Iterable[_Episode]) -> Episodes:
    parts = list(pieces)
    if not parts:
        raise DataError("no episode with at least one usable transition")
    timed = parts[0].durations is not None
    return Episodes(
        states=np.concatenate([p.states for p in parts]),
        rewards=np.concatenate([p.rewards for p in parts]),
        lengths=np.array([len(p.rewards) for p in parts], np.int64),
        ended=np.array([p.ended for p in parts]),
        durations=np.concatenate([p.durations for p in parts if p.durations is not None]) if timed else None,
        keys={name: np.concatenate([p.keys[name] for p in parts]) for name in parts[0].keys},
    )
