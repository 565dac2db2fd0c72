"""The regression contract: every method becomes rows (s, s', r, c, lower, upper), and one update fits them.

T = r + c V(s'), kept where lower < T < upper and replaced by the fallback elsewhere; V(s) moves towards it.
Monte Carlo has c = 0; an n-step return carries its partial sum in r and the state n ahead as s'; λ-returns
are refreshed into r with c = 0; plain TD has infinite bounds; Adaptive TD has those of its interval.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt32

from .episodes import Episodes
from .errors import UsageError
from .intervals import Interval
from .targets import monte_carlo_returns


class Scaling(eqx.Module):
    """Affine map of states to [-1, 1] per feature, and the constant by which rewards are divided."""

    center: Float[Array, "*obs"]
    half: Float[Array, "*obs"]
    reward: Float[Array, ""]

    def __call__(self, states: Shaped[Array, "*batch_and_obs"]) -> Float[Array, "*batch_and_obs"]:
        """Scaled states."""
        return (states.astype(jnp.float32) - self.center) / self.half


class View(NamedTuple):
    """The states of a log and how a network sees them, as `Data` has them too."""

    states: Shaped[np.ndarray, "rows *obs"]
    scaling: Scaling
    ages: Int[np.ndarray, " rows"] | None
    stack: int


class Data(eqx.Module):
    """One log on the device, in the units of training, shared by all networks that learn from it.

    Arrays are padded to a size that many logs share, so that one compiled program serves them; padding is
    never drawn, and is inert in every recursion (γ = 0, last).
    """

    states: Shaped[Array, "rows *obs"]
    index: Int[Array, " padded"]
    next_index: Int[Array, " padded"]
    rewards: Float[Array, " padded"]
    discounts: Float[Array, " padded"]
    last: Bool[Array, " padded"]
    scaling: Scaling
    ages: Int[Array, " rows"] | None = None
    """The place of each row in its episode, where several rows make one state."""
    stack: int = eqx.field(static=True, default=1)

    def observe(self, rows: Int[Array, "*batch"]) -> Shaped[Array, "*batch *obs"]:
        """The states at these rows, as `Episodes.observe` gives them."""
        if self.ages is None:
            return self.states[rows]
        back = jnp.arange(self.stack)[::-1]
        frames = self.states[rows[..., None] - back]
        seen = back <= self.ages[rows][..., None]
        return jnp.where(jnp.expand_dims(seen, tuple(range(seen.ndim, frames.ndim))), frames, 0)

    def returns(self) -> Float[Array, " padded"]:
        """Monte Carlo returns, scaled."""
        return _returns(self.rewards, self.discounts, self.last)


_returns = jax.jit(monte_carlo_returns)


class Rows(NamedTuple):
    """What one network is fitted to.

    Columns are indexed by transition; batches are drawn from the first `drawable` entries of `draws`, or of
    the transitions themselves where there are no draws. Without bounds every target is kept.
    """

    next_index: Int[Array, " padded"]
    rewards: Float[Array, " padded"]
    discounts: Float[Array, " padded"]
    bounds: Interval | None
    fallback: Float[Array, " padded"]
    draws: Int[Array, " slots"] | None
    drawable: Int[Array, ""]
    lam: Float[Array, ""] | None = None
    """λ, where targets are λ-returns over windows."""


def padded_size(count: int) -> int:
    """The next power of two, or above a million the next multiple of a quarter million."""
    return 1 << max(count - 1, 1).bit_length() if count <= 1 << 20 else -(-count >> 18) << 18


SHARED_BYTES = 2**26
"""States that take more memory than this are not padded: another copy costs more than a compilation."""


def _pad_states(states: Shaped[np.ndarray, "rows *obs"]) -> Array:
    """States on the device; on a CPU a large log's are shared with it and not copied."""
    if states.nbytes > SHARED_BYTES:
        return jax.device_put(states)
    return _pad(states, padded_size(len(states)))


def _pad(array: Shaped[np.ndarray, "n *rest"], size: int, fill: Any = 0) -> Array:
    out = np.full((size, *array.shape[1:]), fill, array.dtype)
    out[: len(array)] = array
    return jax.device_put(out)


def prepare(
    episodes: Episodes,
    discount: float | Float[np.ndarray, " steps"],
    *,
    normalize: bool,
    scales_inputs: bool,
) -> Data:
    """Put a log on the device, with its scaling: rewards by the root mean square of its returns."""
    if np.min(discount) < 0 or np.max(discount) > 1:
        raise UsageError(f"discount must lie in [0, 1], got {discount}")
    size = padded_size(episodes.steps)
    discounts = _pad(episodes.discounts(discount), size)
    index, last = _pad(episodes.index, size), _pad(episodes.last, size, True)
    rewards = _pad(episodes.rewards, size)
    scale = 1.0
    if normalize:
        returns = np.asarray(_returns(rewards, discounts, last))[: episodes.steps]
        scale = float(np.sqrt(np.mean(np.square(returns, dtype=np.float64)))) or 1.0
    states = _pad_states(episodes.states)
    return Data(
        states=states,
        index=index,
        next_index=index + 1,
        rewards=rewards / scale if normalize else rewards,
        discounts=discounts,
        last=last,
        scaling=_scaling(episodes, scale, normalize and scales_inputs),
        ages=_pad(episodes.age.astype(np.int32), len(states)) if episodes.stack > 1 else None,
        stack=episodes.stack,
    )


def _scaling(episodes: Episodes, reward: float, inputs: bool) -> Scaling:
    shape = episodes.observation_shape
    center, half = np.zeros(shape, np.float32), np.ones(shape, np.float32)
    if inputs and episodes.states.dtype == np.uint8:
        half = np.full(shape, 255, np.float32)
    elif inputs:
        low, high = episodes.states.min(axis=0), episodes.states.max(axis=0)
        center[...], half[...] = low / 2 + high / 2, np.where(high > low, high / 2 - low / 2, 1)
    return Scaling(*(jnp.asarray(x, jnp.float32) for x in (center, half, reward)))


def make_draws(transitions: Int[np.ndarray, " slots"]) -> tuple[Array, Array]:
    """A padded list of the transitions a network may draw, and how many they are."""
    padded = _pad(transitions.astype(np.int32), padded_size(len(transitions)))
    return padded, jnp.asarray(len(transitions), jnp.int32)


_MIX = (0x7FEB352D, 0x846CA68B)


def _mix(x: UInt32[Array, "*lanes"]) -> UInt32[Array, "*lanes"]:
    """Scramble 32 bits: shifts, exclusive ors and two odd multipliers, a bijection."""
    x = (x ^ (x >> 16)) * jnp.uint32(_MIX[0])
    x = (x ^ (x >> 15)) * jnp.uint32(_MIX[1])
    return x ^ (x >> 16)


def counter_bits(
    seed: UInt32[Array, "2"], step: Int[Array, ""], lanes: UInt32[Array, " batch"]
) -> UInt32[Array, " batch"]:
    """Random bits as a function of (seed, step, lane) alone, so that any engine draws the same batches."""
    stream = _mix(seed[0] ^ _mix(seed[1] + _mix(step.astype(jnp.uint32))))
    return _mix(lanes ^ stream) + _mix(lanes * jnp.uint32(0x9E3779B9) + seed[1])
