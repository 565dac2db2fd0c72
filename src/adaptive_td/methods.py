"""Ways to a value function. Each supplies rows to regress on; the loop that does so is shared.

A method is a frozen description with `fit(task)`, a generator that yields the networks it needs trained and
returns a `Fitted`. A new one is a new class here or elsewhere, added to `METHODS` to have a name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int8

from .errors import UsageError
from .intervals import Interval
from .jobs import History, Refresh
from .models import Grid, Table
from .rows import Data, Rows
from .targets import Fallback, adaptive_targets, lambda_returns, n_step_window, window_size
from .tasks import (
    Recipe,
    Task,
    Truncation,
    last_states,
    monte_carlo_rows,
    nothing_to_learn,
    weight_beyond,
)
from .training import values_over
from .uncertainty import Ensemble, Mean, Uncertainty, interval_at_transitions

Check = Literal["sample", "mean", "value"]


class Fitted(NamedTuple):
    """What a method found: a function of one scaled state, its uncertainty if any, and how it went."""

    function: Any
    estimate: Any | None = None
    history: History | None = None
    overruled: Int8[np.ndarray, " steps"] | None = None


@runtime_checkable
class Method(Protocol):
    """A way to a value function."""

    def fit(self, task: Task) -> Recipe[Fitted]:
        """Yield the networks to train and return what they amount to."""
        ...


@dataclass(frozen=True, kw_only=True)
class MonteCarlo:
    """Regression on the returns of the log: G_t = r_t + γ_t G_{t+1}. Unbiased, and noisy."""

    truncation: Truncation | None = None

    def fit(self, task: Task) -> Recipe[Fitted]:
        """One network on every visit."""
        returns = monte_carlo_rows(task, self.truncation)
        name = ("monte carlo", returns.mode, False)
        trained = yield [task.job(0, name, returns.rows, bootstraps=returns.bootstraps)]
        return Fitted(trained[0].network, history=trained[0].history)


@dataclass(frozen=True, kw_only=True)
class MonteCarloEnsemble:
    """The mean of Monte Carlo networks, with the Student-t interval of their spread."""

    members: int = 3
    bootstrap: bool = True
    truncation: Truncation | None = None

    @property
    def uncertainty(self) -> Ensemble:
        """The ensemble itself; Adaptive TD on the same log and key shares its networks."""
        return Ensemble(self.members, self.bootstrap, self.truncation)

    def fit(self, task: Task) -> Recipe[Fitted]:
        """Train the members."""
        members = yield from self.uncertainty.fit(task)
        if not members.networks:
            raise nothing_to_learn()
        return Fitted(Mean(members), members)


@dataclass(frozen=True, kw_only=True)
class TD:
    """TD(0): regression on T = r + γ V(s'), V being the network itself. Quiet, and spreads its errors."""

    def fit(self, task: Task) -> Recipe[Fitted]:
        """One network, targets from its own current values."""
        trained = yield [task.job(0, ("td",), td_rows(task), bootstraps=True)]
        return Fitted(trained[0].network, history=trained[0].history)


def td_rows(task: Task) -> Rows:
    """r + γ V(s') for every transition, without bounds."""
    data = task.data
    return Rows(data.next_index, data.rewards, data.discounts, None, data.rewards, *task.everything())


@dataclass(frozen=True)
class NStepTD:
    """TD with n rewards before it bootstraps; n = 1 is TD(0)."""

    n: int

    def __post_init__(self) -> None:
        """Refuse windows without a step."""
        if self.n < 1:
            raise UsageError(f"n must be at least 1, got {self.n}")

    def fit(self, task: Task) -> Recipe[Fitted]:
        """The partial return is the reward of the row, the state n ahead its successor."""
        data = task.data
        window = jax.jit(n_step_window, static_argnums=3)(data.rewards, data.discounts, data.last, self.n)
        rows = td_rows(task)._replace(
            next_index=data.index + window.steps, rewards=window.rewards, discounts=window.discounts
        )
        trained = yield [task.job(0, ("n-step", self.n), rows, bootstraps=True)]
        return Fitted(trained[0].network, history=trained[0].history)


@dataclass(frozen=True)
class TDLambda:
    """TD(λ): the geometric mixture of all n-step returns. λ = 0 is TD(0), λ = 1 Monte Carlo.

    In between the λ-returns of the whole log are recomputed at intervals (`refresh_interval`), or, where that
    is dearer, each batch's own over windows of `targets.window_size` steps.
    """

    lam: float

    def __post_init__(self) -> None:
        """Refuse a mixture that is none."""
        if not 0 <= self.lam <= 1:
            raise UsageError(f"lam must lie in [0, 1], got {self.lam}")

    def fit(self, task: Task) -> Recipe[Fitted]:
        """At the two ends the rows never change; in between they are refreshed from V."""
        rows, data = td_rows(task), task.data
        bootstraps, refresh, window = True, None, 0
        if self.lam == 1:
            rows = rows._replace(
                next_index=last_states(task), rewards=data.returns(), discounts=weight_beyond(data)
            )
        elif self.lam > 0:
            lam = jnp.asarray(self.lam, jnp.float32)
            if refresh_is_dear(task, self.lam):
                rows, window = rows._replace(lam=lam), window_size(_discount(task), self.lam)
            else:
                bootstraps = False
                refresh = Refresh(refresh_interval(task, self.lam), eqx.Partial(_lambda_rows, lam))
        name = ("lambda", self.lam)
        trained = yield [task.job(0, name, rows, bootstraps=bootstraps, refresh=refresh, window=window)]
        return Fitted(trained[0].network, history=trained[0].history)


@eqx.filter_jit
def _lambda_rows(lam: Array, data: Data, rows: Rows, values: Float[Array, " rows"]) -> Rows:
    """λ-returns from the current V, as rewards with nothing left to bootstrap."""
    returns = lambda_returns(data.rewards, data.discounts, values[data.next_index], data.last, lam)
    return rows._replace(rewards=returns)


def refresh_interval(task: Task, lam: float) -> int:
    """How many steps stale λ-returns may serve: as many as `contracting_interval` allows.

    But no fewer than the steps that cost as much as a refresh, if the bound allows those: measured, one for
    each batch in the log, and at least 64 however short it is.
    """
    cheap = max(64, math.ceil(task.episodes.steps / task.training.batch_size))
    return max(1, min(int(contracting_interval(task, lam)), cheap))


def contracting_interval(task: Task, lam: float, *, leave: float = 0.01) -> float:
    """The longest interval F between refreshes that leaves at most `leave` of an initial offset of V.

    Between refreshes V acts as a target network, and an offset of V shrinks by β = γ(1 - λ)/(1 - γλ) at each:
    β^(steps/F) ≤ `leave`.
    """
    discount = _discount(task)
    beta = discount * (1 - lam) / (1 - discount * lam)
    return task.training.steps * (math.log(1 / beta) / math.log(1 / leave) if beta > 0 else 1)


def refresh_is_dear(task: Task, lam: float) -> bool:
    """Whether refreshing looks at more states in each step than windows do."""
    looks = task.episodes.steps / contracting_interval(task, lam)
    in_windows = task.training.batch_size * window_size(_discount(task), lam)
    return looks > in_windows


def _discount(task: Task) -> float:
    """The mean discount of the log's transitions, below 1."""
    discounts = np.asarray(task.data.discounts)[: task.episodes.steps]
    return min(float(discounts.mean()), 1 - 1e-6)


@dataclass(frozen=True, kw_only=True)
class AdaptiveTD:
    """TD(0) where the Monte Carlo interval contains its target, the midpoint of the interval elsewhere.

    T = r + γ V(s');  y = T if L(s) < T < U(s) else (L(s) + U(s))/2. Level 1 is TD(0); level 0 regresses on
    the ensemble's mean. `fallback` may also be the nearer `endpoint`, or that visit's own `return`.
    `check` says what is held against the interval: each `sample` of the target (the paper; noisy targets are
    then censored towards the midpoint), their `mean` over the visits of a state (for Grid and Table), or the
    current `value` V(s).
    """

    uncertainty: Uncertainty = field(default_factory=Ensemble)
    level: float = 0.95
    fallback: Fallback = "midpoint"
    check: Check = "sample"

    def __post_init__(self) -> None:
        """Refuse names that do not exist."""
        if not 0 <= self.level <= 1:
            raise UsageError(f"level must lie in [0, 1], got {self.level}")
        if self.fallback not in ("midpoint", "endpoint", "return"):
            raise UsageError(f"fallback must be 'midpoint', 'endpoint' or 'return', got {self.fallback!r}")
        if self.check not in ("sample", "mean", "value"):
            raise UsageError(f"check must be 'sample', 'mean' or 'value', got {self.check!r}")

    def fit(self, task: Task) -> Recipe[Fitted]:
        """First the interval, then TD within it."""
        cells = _cells(task) if self.check == "mean" else None
        estimate = yield from self.uncertainty.fit(task)
        data = task.data
        interval = interval_at_transitions(estimate, data, self.level)
        returns = data.returns() if self.fallback == "return" else data.rewards
        rows = td_rows(task)._replace(bounds=interval, fallback=returns)
        refresh = None
        if cells is not None:
            update = eqx.Partial(_mean_checked, cells, interval, self.fallback)
            refresh = Refresh(refresh_interval(task, 0.0), update)
        job = task.job(
            0,
            ("adaptive", repr(self)),
            rows,
            bootstraps=True,
            fallback=self.fallback,
            tests="value" if self.check == "value" else "target",
            refresh=refresh,
        )
        trained = yield [job]
        values = values_over([trained[0].network], data)[0]
        tested = values[data.index] if self.check == "value" else _targets(data, values)
        if cells is not None:
            tested = cells.mean(tested)
        sign = _side(tested, interval)[: task.episodes.steps]
        return Fitted(trained[0].network, estimate, trained[0].history, np.asarray(sign))


@jax.jit
def _targets(data: Data, values: Float[Array, " rows"]) -> Float[Array, " padded"]:
    """r + γ V(s') at every transition."""
    return data.rewards + data.discounts * values[data.next_index]


@jax.jit
def _side(tested: Float[Array, " padded"], interval: Interval) -> Int8[Array, " padded"]:
    """-1 below the interval, 1 above it, 0 inside."""
    above, below = tested >= interval.upper, tested <= interval.lower
    return above.astype(jnp.int8) - below.astype(jnp.int8)


class _Cells(NamedTuple):
    """The cell of the state that each transition leaves (padding has one of its own), and their number."""

    cell: Int[Array, " padded"]
    cells: int

    def mean(self, x: Float[Array, " padded"]) -> Float[Array, " padded"]:
        """The mean of x over all transitions of the same cell."""
        sums = jax.ops.segment_sum(jnp.stack([x, jnp.ones_like(x)], axis=1), self.cell, self.cells)
        return (sums[:, 0] / sums[:, 1])[self.cell]


def _cells(task: Task) -> _Cells:
    model = task.model
    if not isinstance(model, Grid | Table):
        raise UsageError(
            "check='mean' averages over the visits of a state, so it needs a Grid or Table model"
        )
    index = jax.jit(jax.vmap(model.index))(task.data.states)[task.data.index]
    real = jnp.arange(len(index)) < task.episodes.steps
    return _Cells(jnp.where(real, index, model.cells), model.cells + 1)


@eqx.filter_jit
def _mean_checked(
    cells: _Cells,
    interval: Interval,
    fallback: Fallback,
    data: Data,
    rows: Rows,
    values: Float[Array, " rows"],
) -> Rows:
    """Decide per cell: no bounds where the mean target is inside, elsewhere none but the fallback fits."""
    mean = cells.mean(_targets(data, values))
    inside = interval.contains(mean)
    other = adaptive_targets(mean, interval, fallback="endpoint" if fallback == "endpoint" else "midpoint")
    bounds = Interval(jnp.where(inside, -jnp.inf, other), jnp.where(inside, jnp.inf, other))
    return rows._replace(bounds=bounds)


METHODS: dict[str, Callable[..., Method]] = {
    "mc": MonteCarlo,
    "mc-ensemble": MonteCarloEnsemble,
    "td": TD,
    "n-step": NStepTD,
    "td-lambda": TDLambda,
    "adaptive-td": AdaptiveTD,
}
