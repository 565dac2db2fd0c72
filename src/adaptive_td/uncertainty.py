"""Uncertainty of a value at any state: data in, an interval for any states out.

An uncertainty is a frozen description with `fit(task)`, a generator that yields the networks it needs
trained and returns an `Estimate`. A new one is a new file with two classes; nothing else has to change.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .errors import UsageError
from .intervals import Interval, student_t_interval
from .jobs import over_states
from .rows import Data
from .tasks import Recipe, Task, Truncation, bootstrap_visits, monte_carlo_rows
from .training import values_over


@runtime_checkable
class Estimate(Protocol):
    """A fitted uncertainty (an Equinox module), in the units of training: scaled states, scaled values."""

    def mean(self, state: Float[Array, "*obs"]) -> Float[Array, ""]:
        """The estimate at one state."""
        ...

    def interval(self, state: Float[Array, "*obs"], level: float) -> Interval:
        """The interval at one state."""
        ...


@runtime_checkable
class Uncertainty(Protocol):
    """A way to an interval for the value of any state."""

    def fit(self, task: Task) -> Recipe[Any]:
        """Yield the networks to train and return the fitted `Estimate`."""
        ...

    def empty(self, network: eqx.Module) -> Any:
        """An `Estimate` of the same structure, built from any one network; loading fills in its weights."""
        ...


class Members(eqx.Module):
    """Networks that estimate the same value, and the Student-t interval of their predictions."""

    networks: list[Any]

    def predictions(self, state: Float[Array, "*obs"]) -> Float[Array, " members"]:
        """v_1, ..., v_m at one state."""
        return jnp.stack([network(state) for network in self.networks])

    def mean(self, state: Float[Array, "*obs"]) -> Float[Array, ""]:
        """v̄, or NaN without members."""
        return self.predictions(state).mean() if self.networks else jnp.full((), jnp.nan)

    def interval(self, state: Float[Array, "*obs"], level: float) -> Interval:
        """v̄ ± t · σ̂ · sqrt(1 + 1/m); without members, the whole line."""
        if not self.networks:
            return Interval(jnp.full((), -jnp.inf), jnp.full((), jnp.inf))
        return student_t_interval(self.predictions(state), level)


class Mean(eqx.Module):
    """The estimate at the centre of an uncertainty, as a value function."""

    estimate: Any

    def __call__(self, state: Float[Array, "*obs"]) -> Float[Array, ""]:
        """The value of one state."""
        return self.estimate.mean(state)


@dataclass(frozen=True)
class Ensemble:
    """Monte Carlo networks, each on as many episodes drawn with replacement (or on all, without)."""

    members: int = 3
    bootstrap: bool = True
    truncation: Truncation | None = None

    def __post_init__(self) -> None:
        """Refuse an ensemble that has no spread."""
        if self.members < 2:
            raise UsageError(f"members must be at least 2, got {self.members}")

    def fit(self, task: Task) -> Recipe[Members]:
        """Train the members side by side."""
        returns = monte_carlo_rows(task, self.truncation, or_nothing=True)
        if not len(returns.kept):
            warnings.warn(
                "every return of this log is cut short by truncation and says nothing about value: "
                "intervals are infinite, and Adaptive TD is plain TD",
                stacklevel=2,
            )
            return Members([])
        jobs = []
        for j in range(1, self.members + 1):
            visits = returns.kept
            if self.bootstrap:
                visits = bootstrap_visits(task.episodes, visits, key=task.keys(j)[2])
            name = ("monte carlo", returns.mode, self.bootstrap)
            jobs.append(task.job(j, name, returns.drawing(visits), bootstraps=returns.bootstraps))
        trained = yield jobs
        return Members([t.network for t in trained])

    def empty(self, network: eqx.Module) -> Members:
        """As many times the one network."""
        return Members([network] * self.members)


def interval_at_transitions(estimate: Estimate, data: Data, level: float) -> Interval:
    """The interval at the state that each transition leaves, computed once for the whole log."""
    if isinstance(estimate, Members) and estimate.networks:
        lower, upper = student_t_interval(values_over(estimate.networks, data), level)
    else:
        lower, upper = over_states(eqx.Partial(type(estimate).interval, estimate, level=level), data)
    return Interval(lower[data.index], upper[data.index])
