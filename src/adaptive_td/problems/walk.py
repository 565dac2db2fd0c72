"""A random walk among walls, compiled once for every map."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int

LANES = 128
"""Episodes simulated side by side."""
BLOCK = 512
"""Steps simulated between two looks at which episodes have ended."""


class Arena(NamedTuple):
    """A map in the form in which it is compiled: walls and discs are padded to multiples of four.

    Each wall is its first end, its unit direction and its length. A padding wall lies far outside the map, a
    padding disc holds nothing.
    """

    width: Float[Array, ""]
    height: Float[Array, ""]
    ends: Float[Array, "walls 2"]
    directions: Float[Array, "walls 2"]
    lengths: Float[Array, " walls"]
    centres: Float[Array, "discs 2"]
    squared_radii: Float[Array, " discs"]
    step: Float[Array, ""]
    reward: Float[Array, ""]

    @staticmethod
    def build(
        *,
        size: tuple[float, float],
        walls: Float[np.ndarray, "walls 4"],
        discs: Float[np.ndarray, "discs 3"],
        step: float,
        reward: float,
    ) -> Arena:
        """The arena of walls (x1, y1, x2, y2) and discs (x, y, radius)."""
        far = -1000.0 * max(*size, step)
        walls = _pad(walls, [far, far, far + 1, far])
        discs = _pad(discs, [0.0, 0.0, 0.0])
        along = walls[:, 2:] - walls[:, :2]
        lengths = np.hypot(along[:, 0], along[:, 1])
        squared_radii = np.where(discs[:, 2] > 0, discs[:, 2] ** 2, -1.0)
        fields = (
            *size,
            walls[:, :2],
            along / lengths[:, None],
            lengths,
            discs[:, :2],
            squared_radii,
            step,
            reward,
        )
        return Arena(*(jnp.asarray(value, jnp.float32) for value in fields))

    @property
    def tolerance(self) -> Float[Array, ""]:
        """How near counts as touching: twenty times the rounding of single precision on this map.

        On a map of 400 x 300 that is 0.001. Distances below are computed within a tenth of it, so that a move
        that touches a wall is never made.
        """
        return 2.5e-6 * jnp.maximum(self.width, self.height)


def _pad(rows: Float[np.ndarray, "rows width"], filler: list[float]) -> Float[np.ndarray, "padded width"]:
    """Rows filled up to a multiple of four, at least four."""
    missing = 4 if len(rows) == 0 else -len(rows) % 4
    return np.concatenate([rows, np.tile(filler, (missing, 1))])


Lanes = Float[Array, " lanes"]


def touches_wall(arena: Arena, x: Lanes, y: Lanes, cosine: Lanes, sine: Lanes) -> Bool[Array, " lanes"]:
    """Whether a step from (x, y) at an angle, given by its cosine and sine, touches or crosses a wall.

    Two segments are apart exactly if one of these lines has them strictly on its two sides: a parallel of
    the wall, a perpendicular of the wall, a parallel of the step. In the wall's own frame (t along it from
    its first end, d across) the step leads from (t0, d0) to (t1, d1) and the wall from (0, 0) to (length, 0);
    e is the distance of the wall's ends from the line of the step. Whatever is not clearly apart touches.
    """
    near = arena.tolerance
    touched = jnp.zeros(x.shape, bool)
    for wall in range(len(arena.lengths)):
        (end_x, end_y), (along_x, along_y) = arena.ends[wall], arena.directions[wall]
        length = arena.lengths[wall]
        t0 = (x - end_x) * along_x + (y - end_y) * along_y
        d0 = (y - end_y) * along_x - (x - end_x) * along_y
        step_t = cosine * along_x + sine * along_y
        step_d = sine * along_x - cosine * along_y
        t1 = t0 + arena.step * step_t
        d1 = d0 + arena.step * step_d
        e0 = step_d * t0 - step_t * d0
        e1 = e0 - step_d * length
        apart = (
            (jnp.minimum(d0, d1) > near)
            | (jnp.maximum(d0, d1) < -near)
            | (jnp.minimum(t0, t1) > length + near)
            | (jnp.maximum(t0, t1) < -near)
            | (jnp.minimum(e0, e1) > near)
            | (jnp.maximum(e0, e1) < -near)
        )
        touched |= ~apart
    return touched


def move(arena: Arena, x: Lanes, y: Lanes, angle: Lanes) -> tuple[Lanes, Lanes]:
    """The state after a step at an angle: where it leads, or unchanged if it may not be made."""
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    next_x, next_y = x + arena.step * cosine, y + arena.step * sine
    inside = (next_x >= 0) & (next_x <= arena.width) & (next_y >= 0) & (next_y <= arena.height)
    made = inside & ~touches_wall(arena, x, y, cosine, sine)
    return jnp.where(made, next_x, x), jnp.where(made, next_y, y)


def reward(arena: Arena, x: Lanes, y: Lanes) -> Lanes:
    """The reward for leaving (x, y): that of a disc inside any of them (their edges included), else 0."""
    inside = jnp.zeros(x.shape, bool)
    for disc in range(len(arena.squared_radii)):
        centre_x, centre_y = arena.centres[disc]
        inside |= (x - centre_x) ** 2 + (y - centre_y) ** 2 <= arena.squared_radii[disc]
    return jnp.where(inside, arena.reward, 0.0)


@jax.jit
def walk_block(
    arena: Arena, states: Float[Array, "lanes 2"], angles: Float[Array, "steps lanes"]
) -> tuple[Float[Array, "lanes steps 2"], Float[Array, "lanes steps"]]:
    """The states that follow each state along its angles, and the reward of each step."""

    def advance(at: tuple[Array, Array], angle: Array) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
        reached = move(arena, *at, angle)
        return reached, (*reached, reward(arena, *at))

    _, (x, y, rewards) = jax.lax.scan(advance, (states[:, 0], states[:, 1]), angles, unroll=4)
    return jnp.stack([x.T, y.T], axis=-1), rewards.T


def walk(
    arena: Arena,
    starts: Float32[np.ndarray, "episodes 2"],
    lengths: Int[np.ndarray, " episodes"],
    *,
    seed: int,
) -> tuple[Float32[np.ndarray, "rows 2"], Float32[np.ndarray, " steps"]]:
    """Walks of the given lengths, laid end to end: length + 1 states and length rewards of each.

    Episode i draws its angles from a stream of its own, that of (seed, i), so its path does not depend on
    which others there are. LANES episodes advance side by side; a lane whose episode has ended takes the
    longest one that waits, so lanes idle only at the very end.
    """
    row = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    states = np.empty((lengths.sum() + len(lengths), 2), np.float32)
    rewards = np.empty(lengths.sum(), np.float32)
    states[row + np.arange(len(lengths))] = starts

    waiting = list(np.argsort(lengths, kind="stable"))
    lanes: list[tuple[int, int, np.random.Generator]] = []  # episode, steps made, its angles
    while lanes or waiting:
        while waiting and len(lanes) < LANES:
            episode = int(waiting.pop())
            stream = np.random.SeedSequence(seed, spawn_key=(episode,))
            lanes.append((episode, 0, np.random.default_rng(stream)))
        at = np.zeros((LANES, 2), np.float32)
        angles = np.zeros((LANES, BLOCK), np.float32)
        for lane, (episode, made, turns) in enumerate(lanes):
            at[lane] = states[row[episode] + episode + made]
            angles[lane] = turns.uniform(0, 2 * np.pi, BLOCK)
        path, gained = map(np.asarray, walk_block(arena, at, angles.T))
        going = []
        for lane, (episode, made, turns) in enumerate(lanes):
            taken = min(BLOCK, int(lengths[episode]) - made)
            first = row[episode] + made
            rewards[first : first + taken] = gained[lane, :taken]
            states[first + episode + 1 : first + episode + 1 + taken] = path[lane, :taken]
            if made + taken < lengths[episode]:
                going.append((episode, made + taken, turns))
        lanes = going
    return states, rewards


@jax.jit
def discounted_returns(
    arena: Arena,
    states: Float[Array, "lanes 2"],
    discount: Float[Array, ""],
    horizon: Int[Array, ""],
    key: Array,
) -> Float[Array, " lanes"]:
    """The discounted sum of the rewards of `horizon` steps from each state, Σ_{t<H} γ^t r(s_t)."""

    def advance(t: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        x, y, total, weight = carry
        total += weight * reward(arena, x, y)
        angle = 2 * np.pi * jax.random.uniform(jax.random.fold_in(key, t), x.shape)
        return (*move(arena, x, y, angle), total, weight * discount)

    first = (states[:, 0], states[:, 1], jnp.zeros(len(states)), jnp.ones(()))
    _, _, total, _ = jax.lax.fori_loop(0, horizon, advance, first)
    return jnp.asarray(total)
