"""Regression targets for episodes laid end to end, as pure functions.

All take one flat stream of transitions. `discounts` holds γ_t, which is 0 where the process stopped
(terminated); `last` marks the last transition of each episode, however it ended; `next_values` holds
v_{t+1}, the value of the state that transition t reaches. Termination needs no flag of its own: a zero
discount multiplies away whatever value follows, while a truncated end keeps its discount and bootstraps.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .intervals import Interval

Fallback = Literal["midpoint", "endpoint", "return"]

Steps = Float[Array | np.ndarray, " steps"]
Flags = Bool[Array | np.ndarray, " steps"]
Scalar = float | Float[Array | np.ndarray, ""]


def monte_carlo_returns(rewards: Steps, discounts: Steps, last: Flags) -> Float[Array, " steps"]:
    """Discounted sums of the rewards that the log holds.

    G_t = r_t + γ_t G_{t+1}, and G_{t+1} = 0 where the log stops.
    """
    return lambda_returns(rewards, discounts, jnp.zeros_like(jnp.asarray(rewards)), last, 1.0)


def lambda_returns(
    rewards: Steps, discounts: Steps, next_values: Steps, last: Flags, lam: Scalar | Steps
) -> Float[Array, " steps"]:
    """λ-returns of episodes laid end to end.

    G_t = r_t + γ_t [(1 - λ) v_{t+1} + λ G_{t+1}], and G_{t+1} = v_{t+1} where a log stops.
    λ may vary by step: entry t belongs to the state that transition t reaches.
    """
    rewards, discounts, next_values = map(jnp.asarray, (rewards, discounts, next_values))
    lam = jnp.where(jnp.asarray(last), 0.0, jnp.asarray(lam, rewards.dtype))
    offset = rewards + discounts * (1 - lam) * jnp.where(discounts == 0, 0.0, next_values)
    slope = discounts * lam

    return jax.lax.platform_dependent(offset, slope, cpu=_one_by_one, default=_in_parallel)


def _one_by_one(offset: Float[Array, " steps"], slope: Float[Array, " steps"]) -> Float[Array, " steps"]:
    """G_t = a_t + b_t G_{t+1}, step by step: on a CPU the fastest to run (10 ns a step) and to compile."""

    def back(after: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        here = row[0] + row[1] * after
        return here, here

    return jax.lax.scan(back, jnp.zeros((), offset.dtype), (offset, slope), reverse=True)[1]


def _in_parallel(offset: Float[Array, " steps"], slope: Float[Array, " steps"]) -> Float[Array, " steps"]:
    """The same by composing affine maps in pairs: log2(steps) passes, for accelerators."""

    def compose(later: tuple[Array, Array], earlier: tuple[Array, Array]) -> tuple[Array, Array]:
        return earlier[0] + earlier[1] * later[0], earlier[1] * later[1]

    return jax.lax.associative_scan(compose, (offset, slope), reverse=True)[0]


def lambda_window(
    rewards: Float[Array, "batch window"],
    discounts: Float[Array, "batch window"],
    next_values: Float[Array, "batch window"],
    last: Bool[Array, "batch window"],
    lam: Scalar,
) -> Float[Array, " batch"]:
    """λ-returns of the first steps of windows that end after H steps, or with the episode.

    G_t is the λ-return of a log that stops after the window, so it lacks (γλ)^H (G_{t+H} - v_{t+H}).
    """
    _, window = rewards.shape
    stops = last | (jnp.arange(window) == window - 1)
    returns = next_values[:, -1]
    for k in reversed(range(window)):
        after = jnp.where(stops[:, k], next_values[:, k], returns)
        returns = rewards[:, k] + discounts[:, k] * ((1 - lam) * next_values[:, k] + lam * after)
    return returns


def window_size(discount: float, lam: float, *, leave: float = 0.01) -> int:
    """H = ⌈ln(leave) / ln(γλ)⌉: the steps after which a λ-return's tail has at most this weight."""
    weight = discount * lam
    return 1 if weight <= leave else math.ceil(math.log(leave) / math.log(weight) - 1e-9)


class Window(NamedTuple):
    """What n steps collect: G_t = rewards_t + discounts_t · v(state `steps_t` ahead)."""

    rewards: Float[Array, " steps"]
    discounts: Float[Array, " steps"]
    steps: Int[Array, " steps"]


def n_step_window(rewards: Steps, discounts: Steps, last: Flags, n: int) -> Window:
    """Partial returns over n steps, or up to the end of the episode where that comes first.

    R_t = Σ_{k<n} (Π_{j<k} γ_{t+j}) r_{t+k},  C_t = Π_{j<n} γ_{t+j}. A window of n steps is a window of a
    steps followed by one of n - a, so doubling builds it in log2(n) passes over the data.
    """
    rewards, discounts, last = jnp.asarray(rewards), jnp.asarray(discounts), jnp.asarray(last)
    count = len(rewards)
    here = jnp.arange(count)
    single: tuple[Array, ...] = (rewards, discounts, jnp.ones(count, jnp.int32), last)
    nothing = jnp.zeros_like(rewards), jnp.ones_like(discounts), jnp.zeros(count, jnp.int32), last & False
    window: tuple[Array, ...] = nothing

    def then(first: tuple[Array, ...], second: tuple[Array, ...]) -> tuple[Array, ...]:
        r, c, k, done = first
        r2, c2, k2, done2 = (x[jnp.minimum(here + k, count - 1)] for x in second)
        joined = (r + c * r2, c * c2, k + k2, done2)
        return tuple(jnp.where(done, old, new) for old, new in zip(first, joined, strict=True))

    n = min(n, count)
    while n:
        if n & 1:
            window = then(window, single)
        single = then(single, single)
        n >>= 1
    return Window(*window[:3])


def n_step_returns(
    rewards: Steps, discounts: Steps, next_values: Steps, last: Flags, n: int
) -> Float[Array, " steps"]:
    """n-step returns of episodes laid end to end.

    G_t = r_t + γ_t r_{t+1} + ... + (γ_t ··· γ_{t+n-1}) v_{t+n}, with n capped at the end of the episode.
    """
    window = n_step_window(rewards, discounts, last, n)
    reached = jnp.asarray(next_values)[jnp.arange(len(window.steps)) + window.steps - 1]
    return window.rewards + window.discounts * jnp.where(window.discounts == 0, 0.0, reached)


def adaptive_targets(
    targets: Float[Array | np.ndarray, " *states"],
    interval: Interval | tuple[Array | np.ndarray, Array | np.ndarray],
    *,
    fallback: Fallback = "midpoint",
    returns: Float[Array | np.ndarray, " *states"] | None = None,
    tested: Float[Array | np.ndarray, " *states"] | None = None,
) -> Float[Array, " *states"]:
    """Targets kept inside the interval, replaced outside it.

    y = T if L < T < U, else (L + U)/2 (midpoint), the nearer of L and U (endpoint), or that visit's own
    Monte Carlo return (return). `tested` is compared with the interval in place of T where given.
    """
    lower, upper = map(jnp.asarray, interval)
    targets = jnp.asarray(targets)
    inside = Interval(lower, upper).contains(targets if tested is None else jnp.asarray(tested))
    if fallback == "midpoint":
        other = Interval(lower, upper).midpoint
    elif fallback == "endpoint":
        other = jnp.clip(targets, lower, upper)
    else:
        other = jnp.asarray(returns)
    return jnp.where(inside, targets, other)


class AdaptiveReturns(NamedTuple):
    """Targets y, and the return G that each step hands to the one before it."""

    targets: Float[Array, " steps"]
    returns: Float[Array, " steps"]


def adaptive_lambda_returns(
    rewards: Steps,
    discounts: Steps,
    next_values: Steps,
    last: Flags,
    lam: Scalar,
    interval: Interval,
    *,
    fallback: Fallback = "midpoint",
) -> AdaptiveReturns:
    """λ-returns that stop bootstrapping where their target leaves the interval.

    u_t = r_t + γ_t [(1 - λ) v_{t+1} + λ G_{t+1}];  κ_t = λ if L_t < u_t < U_t else 1;
    G_t = r_t + γ_t [(1 - κ_t) v_{t+1} + κ_t G_{t+1}], carried on unclipped;  y_t = G_t inside, else fallback.
    Infinite intervals give TD(λ); empty ones give G = the Monte Carlo return. Ours: no paper backs it.
    """
    rewards, discounts, next_values = map(jnp.asarray, (rewards, discounts, next_values))
    lower, upper = map(jnp.asarray, interval)
    follow = jnp.where(discounts == 0, 0.0, next_values)

    def back(carry: Array, row: tuple[Array, ...]) -> tuple[Array, Array]:
        r, c, v, end, low, high = row
        after = jnp.where(end, v, carry)
        mixed = r + c * ((1 - lam) * v + lam * after)
        returned = jnp.where((low < mixed) & (mixed < high), mixed, r + c * after)
        return returned, returned

    rows = (rewards, discounts, follow, jnp.asarray(last), lower, upper)
    _, carried = jax.lax.scan(back, jnp.zeros((), rewards.dtype), rows, reverse=True)
    own = monte_carlo_returns(rewards, discounts, last) if fallback == "return" else None
    return AdaptiveReturns(adaptive_targets(carried, (lower, upper), fallback=fallback, returns=own), carried)


def adaptive_n_step_returns(
    rewards: Steps,
    discounts: Steps,
    next_values: Steps,
    last: Flags,
    interval: Interval,
    *,
    n_max: int,
    fallback: Fallback = "midpoint",
) -> tuple[Float[Array, " steps"], Int[Array, " steps"]]:
    """The shortest n-step return, n ≤ n_max, that lies inside the interval; the fallback where none does.

    Also returns that n for each step (0 where the fallback was used). Ours: no paper backs it.
    """
    lower, upper = map(jnp.asarray, interval)
    rewards = jnp.asarray(rewards)
    own = monte_carlo_returns(rewards, discounts, last) if fallback == "return" else None
    chosen = jnp.zeros_like(rewards)
    taken = jnp.zeros(len(rewards), jnp.int32)
    candidate = rewards
    for n in range(1, n_max + 1):
        candidate = n_step_returns(rewards, discounts, next_values, last, n)
        accept = (taken == 0) & (lower < candidate) & (candidate < upper)
        chosen = jnp.where(accept, candidate, chosen)
        taken = jnp.where(accept, n, taken)
    other = adaptive_targets(candidate, (lower, upper), fallback=fallback, returns=own)
    return jnp.where(taken > 0, chosen, other), taken
