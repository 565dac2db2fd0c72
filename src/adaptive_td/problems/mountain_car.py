"""Mountain Car, with Gymnasium's dynamics and a policy that pumps energy."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int

from adaptive_td.episodes import Episodes
from adaptive_td.errors import DataError, UsageError

from .cells import cell_centres
from .true_values import TrueValues, find_or_estimate

POSITIONS = (-1.2, 0.6)
MAX_SPEED = 0.07
GOAL = 0.5
FORCE = 0.001
GRAVITY = 0.0025
BLOCK = 256
"""Steps simulated between two looks at which episodes have ended."""


def step(
    states: Float64[np.ndarray, "rows 2"], actions: Int[np.ndarray, " rows"]
) -> tuple[Float64[np.ndarray, "rows 2"], Bool[np.ndarray, " rows"]]:
    """The states that follow, and whether the goal is reached, as in Gymnasium's MountainCar-v0.

    v' = v + (a - 1) · 0.001 - 0.0025 cos(3x) within ±0.07, x' = x + v' within [-1.2, 0.6], and v' = 0 at the
    left end. The goal is x' ≥ 0.5 with v' ≥ 0.
    """
    position, velocity = states[:, 0], states[:, 1]
    velocity = velocity + ((actions - 1) * FORCE + np.cos(3 * position) * (-GRAVITY))
    velocity = np.clip(velocity, -MAX_SPEED, MAX_SPEED)
    position = np.clip(position + velocity, *POSITIONS)
    velocity = np.where((position == POSITIONS[0]) & (velocity < 0), 0.0, velocity)
    return np.stack([position, velocity], axis=1), (position >= GOAL) & (velocity >= 0)


@dataclass(frozen=True, kw_only=True)
class MountainCar:
    """A car too weak to climb a hill at once, driven back and forth until it does.

    The policy pushes in the direction of the velocity (right where it is 0); with probability `epsilon` it
    takes one of the three actions at random instead. Each step costs 1 (reward -1) until the goal, and there
    is no time limit. Starts are uniform over the whole box of states, or with `gym_start` where Gymnasium
    starts: at rest, the position uniform in [-0.6, -0.4].
    """

    epsilon: float = 0.2
    discount: float = 0.99
    gym_start: bool = False
    longest: int = 100_000
    """An episode still on its way after so many steps is cut there: truncated, not terminated."""

    def __post_init__(self) -> None:
        """Refuse settings outside their range (nothing is computed)."""
        if not 0 <= self.epsilon <= 1:
            raise DataError(f"epsilon: must lie in [0, 1], got {self.epsilon}")
        if not 0 <= self.discount < 1:
            raise DataError(f"discount: must lie in [0, 1), got {self.discount}")
        if self.longest < 1:
            raise DataError(f"longest: must be at least 1, got {self.longest}")

    @property
    def name(self) -> str:
        """Its name in tables."""
        return "mountain-car"

    @property
    def low(self) -> tuple[float, float]:
        """The least position and velocity."""
        return POSITIONS[0], -MAX_SPEED

    @property
    def high(self) -> tuple[float, float]:
        """The greatest position and velocity."""
        return POSITIONS[1], MAX_SPEED

    def actions(
        self, states: Float[np.ndarray, "rows 2"], uniforms: Float[np.ndarray, " rows"]
    ) -> Int[np.ndarray, " rows"]:
        """The policy's actions (0 left, 1 none, 2 right), given a uniform number in [0, 1) for each state."""
        greedy = np.where(states[:, 1] >= 0, 2, 0)
        explore = np.minimum(3 * uniforms / max(self.epsilon, 1e-12), 2).astype(np.int64)
        return np.where(uniforms < self.epsilon, explore, greedy)

    def episodes(self, count: int, *, seed: int) -> Episodes:
        """Episodes of the policy; the first k of any number are the same k.

        Episode i draws from a stream of its own, that of (seed, i), and all advance side by side.
        """
        if count < 1:
            raise UsageError(f"count must be at least 1, got {count}")
        streams = [np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(i,))) for i in range(count)]
        at = np.array([self._start(stream.random(2)) for stream in streams])
        paths = [[start[None].copy()] for start in at]
        ended = np.zeros(count, bool)
        going = np.arange(count)
        made = 0
        while len(going) and made < self.longest:
            uniforms = np.stack([streams[i].random(BLOCK) for i in going])[:, : self.longest - made]
            visited, lengths = self._drive(at[going], uniforms)
            for i, path, length in zip(going, visited, lengths, strict=True):
                paths[i].append(path[:length])
            finished = lengths <= uniforms.shape[1]
            lengths = np.minimum(lengths, uniforms.shape[1])
            at[going] = visited[np.arange(len(going)), lengths - 1]
            ended[going[finished]] = True
            going = going[~finished]
            made += uniforms.shape[1]
        states = [np.concatenate(path) for path in paths]
        lengths = np.array([len(path) - 1 for path in states])
        return Episodes(
            states=np.concatenate(states).astype(np.float32),
            rewards=np.full(lengths.sum(), -1, np.float32),
            lengths=lengths,
            ended=ended,
        )

    @property
    def grid_shape(self) -> tuple[int, int]:
        """30 rows of 40 cells: `grid()` runs along the position first."""
        return 30, 40

    def grid(self) -> Float32[np.ndarray, "states 2"]:
        """The centres of 40 x 30 equal cells of the box of states."""
        return cell_centres(self.low, self.high, self.grid_shape).astype(np.float32)

    def true_values(self) -> TrueValues:
        """The values of the states of `grid()`: those of the default settings come with the package."""
        return find_or_estimate(self)

    def returns(self, states: Float32[np.ndarray, "rows 2"], *, seed: int) -> Float64[np.ndarray, " rows"]:
        """One return from each state: -(1 + γ + ... + γ^(T-1)) = -(1 - γ^T) / (1 - γ) of T steps to the goal.

        A car still on its way when γ^t falls below 1e-6 counts as never arriving, which costs no more than
        that share of the lowest value.
        """
        random = np.random.default_rng(seed)
        horizon = math.ceil(math.log(1e-6) / math.log(self.discount)) if self.discount else 1
        lengths = np.full(len(states), np.inf)
        going, at = np.arange(len(states)), states.astype(np.float64)
        for made in range(horizon):
            at, arrived = step(at, self.actions(at, random.random(len(at))))
            lengths[going[arrived]] = made + 1
            going, at = going[~arrived], at[~arrived]
        return -(1 - self.discount**lengths) / (1 - self.discount)

    def digest(self) -> str:
        """Names the dynamics and the policy: everything that the true values depend on."""
        described = {"epsilon": float(self.epsilon), "discount": float(self.discount)}
        text = json.dumps({"rules": "mountain car 1", "grid": self.grid_shape, **described}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _start(self, uniforms: Float64[np.ndarray, "2"]) -> Float64[np.ndarray, "2"]:
        if self.gym_start:
            return np.array([-0.6 + 0.2 * uniforms[0], 0.0])
        low, high = np.array(self.low), np.array(self.high)
        return np.asarray(low + uniforms * (high - low))

    def _drive(
        self, states: Float64[np.ndarray, "rows 2"], uniforms: Float64[np.ndarray, "rows steps"]
    ) -> tuple[Float64[np.ndarray, "rows steps 2"], Int[np.ndarray, " rows"]]:
        """The states visited, and after how many steps the goal is reached (steps + 1 where it is not)."""
        rows, steps = uniforms.shape
        visited = np.empty((rows, steps, 2))
        lengths = np.full(rows, steps + 1)
        for t in range(steps):
            states, arrived = step(states, self.actions(states, uniforms[:, t]))
            visited[:, t] = states
            lengths = np.where(arrived & (lengths > steps), t + 1, lengths)
            if (lengths <= steps).all():
                break
        return visited, lengths
