"""Intervals for a value, made from several estimates of it."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped
from scipy import stats

from .errors import UsageError


class Interval(NamedTuple):
    """An open interval (lower, upper) for each of any number of states."""

    lower: Float[Array | np.ndarray, " *states"]
    upper: Float[Array | np.ndarray, " *states"]

    @property
    def midpoint(self) -> Float[Array | np.ndarray, " *states"]:
        """(L + U) / 2: for a symmetric interval, the estimate it was built around."""
        return (self.lower + self.upper) / 2

    def contains(
        self, values: Shaped[Array | np.ndarray, " *states"]
    ) -> Bool[Array | np.ndarray, " *states"]:
        """Whether L < v < U; both ends are open."""
        return (self.lower < values) & (values < self.upper)


@lru_cache
def student_t_multiplier(members: int, level: float) -> float:
    """t_{(1 + α)/2, m - 1} · sqrt(1 + 1/m): how many sample deviations reach one further draw.

    The paper prints the percentile as 100(1 - α/2), which at α = 0.95 would give an interval sixty times
    too narrow and contradict its own limit α → 1; (1 + α)/2 is the two-sided quantile it means.
    """
    if members < 2:
        raise UsageError(f"an interval needs at least 2 members, got {members}")
    if not 0 <= level <= 1:
        raise UsageError(f"level must lie in [0, 1], got {level}")
    return float(stats.t.ppf((1 + level) / 2, members - 1) * np.sqrt(1 + 1 / members))


def student_t_interval(
    samples: Float[Array | np.ndarray, "members *states"], level: float = 0.95
) -> Interval:
    """The interval that holds one further draw with probability `level`.

    v̄ ± t_{(1 + α)/2, m - 1} · σ̂ · sqrt(1 + 1/m), with v̄ and σ̂² = Σ (v_j - v̄)² / (m - 1) over the m
    members along the first axis, assumed independent and Gaussian. Level 0 is empty (both ends at v̄),
    level 1 is the whole line, also where the members agree.
    """
    samples = jnp.asarray(samples)
    multiplier = student_t_multiplier(len(samples), level)
    mean = samples.mean(axis=0)
    if np.isinf(multiplier):
        return Interval(jnp.full_like(mean, -jnp.inf), jnp.full_like(mean, jnp.inf))
    half = multiplier * samples.std(axis=0, ddof=1)
    return Interval(mean - half, mean + half)
