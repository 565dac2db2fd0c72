"""The paper's simple example: a chain on which every estimator can be computed exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Float64, Int
from scipy import stats

from adaptive_td.episodes import Episodes
from adaptive_td.errors import DataError, UsageError
from adaptive_td.intervals import Interval
from adaptive_td.targets import adaptive_targets

from .true_values import TrueValues

Check = Literal["mean", "sample"]


class Log(NamedTuple):
    """`repeats` independent logs of `episodes` episodes each: which s_i each passed, and its final reward."""

    branches: Int[np.ndarray, "repeats episodes"]
    """0 for s_1, ..., k - 1 for s_k."""
    rewards: Float64[np.ndarray, "repeats episodes"]


class Estimates(NamedTuple):
    """Estimated values of every state, for each repeat."""

    s0: Float64[np.ndarray, " repeats"]
    s: Float64[np.ndarray, "repeats k"]
    b: Float64[np.ndarray, "repeats 2"]
    q: Float64[np.ndarray, " repeats"]


class _Visits(NamedTuple):
    """The returns of the visits to a group of states: their number, mean and sample variance."""

    counts: Int[np.ndarray, "repeats states"]
    means: Float64[np.ndarray, "repeats states"]
    variances: Float64[np.ndarray, "repeats states"]

    def interval(self, level: float) -> Interval:
        """Student's interval for the mean: ḡ ± t_{(1 + α)/2, N - 1} s / √N; infinite for N < 2 or α = 1."""
        counts = np.maximum(self.counts, 2)
        quantile = stats.t.ppf((1 + level) / 2, counts - 1) if level < 1 else 0.0
        half = quantile * np.sqrt(self.variances / counts)
        half = np.where((self.counts < 2) | (level == 1), np.inf, half)
        return Interval(self.means - half, self.means + half)


@dataclass(frozen=True, kw_only=True)
class Chain:
    """s_0 leads to one of s_1 ... s_k at random, s_1 ... s_p to b_1, the others to b_2, both to q.

    Only the last step is rewarded, by a Normal(μ, σ²) draw, and γ = 1, so every state is worth μ. Every
    episode passes q but only one in k passes a given s_i: TD, which reads V(s_i) off V(q), has 1/k of the
    variance of Monte Carlo. `bias` is added to whatever is fitted at b_1, as by a function approximator that
    cannot represent it, and TD hands it on to s_1 ... s_p.

    States are numbered 0 for s_0, i for s_i, k + 1 and k + 2 for b_1 and b_2, k + 3 for q. Estimates of a
    state that no episode visits are 0.
    """

    k: int = 10
    p: int = 5
    mu: float = 0.0
    sigma: float = 1.0
    bias: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a chain that does not exist (nothing is computed)."""
        if self.k < 1 or not 0 <= self.p <= self.k:
            raise DataError(f"p: a chain needs k ≥ 1 and 0 ≤ p ≤ k, got k = {self.k} and p = {self.p}")
        if self.sigma < 0:
            raise DataError(f"sigma: must not be negative, got {self.sigma}")

    @property
    def name(self) -> str:
        """Its name in tables."""
        return "chain"

    @property
    def discount(self) -> float:
        """No discounting."""
        return 1.0

    @property
    def low(self) -> tuple[float]:
        """The number of s_0."""
        return (0.0,)

    @property
    def high(self) -> tuple[float]:
        """The number of q."""
        return (float(self.k + 3),)

    @property
    def grid_shape(self) -> tuple[int]:
        """s_1 ... s_k in a row."""
        return (self.k,)

    def grid(self) -> Float32[np.ndarray, "states 1"]:
        """s_1 ... s_k, on which the estimators differ."""
        return np.arange(1, self.k + 1, dtype=np.float32)[:, None]

    def true_values(self) -> TrueValues:
        """μ everywhere, exactly."""
        return TrueValues(
            values=np.full(self.k, float(self.mu)),
            standard_errors=np.zeros(self.k),
            rollouts=np.zeros(self.k, np.int64),
            seed=0,
            digest="",
        )

    def log(self, episodes: int, *, repeats: int = 1, seed: int) -> Log:
        """Independent logs; the first k episodes of a log of any length are the same k if `repeats` is 1."""
        if episodes < 1 or repeats < 1:
            raise UsageError(f"episodes and repeats must be at least 1, got {episodes} and {repeats}")
        which, reward = np.random.default_rng(seed).spawn(2)
        return Log(
            which.integers(self.k, size=(repeats, episodes)),
            reward.normal(self.mu, self.sigma, (repeats, episodes)),
        )

    def episodes(self, count: int, *, seed: int) -> Episodes:
        """Episodes of four steps: s_0, s_i, b_j, q and the end; the first k of any number are the same k."""
        branches, rewards = (column[0] for column in self.log(count, seed=seed))
        q = np.full(count, self.k + 3)
        states = np.stack([0 * q, branches + 1, self.k + 1 + (branches >= self.p), q, q], axis=1)
        paid = np.zeros((count, 4), np.float32)
        paid[:, 3] = rewards
        return Episodes(
            states=states.reshape(-1, 1).astype(np.float32),
            rewards=paid.ravel(),
            lengths=np.full(count, 4),
            ended=np.ones(count, bool),
        )

    def monte_carlo(self, log: Log) -> Estimates:
        """Every state has the mean of the returns that followed it."""
        means = self._every_visit(log).means
        biased = means[:, self.k : -1] + np.array([self.bias, 0.0])
        return Estimates(log.rewards.mean(axis=1), means[:, : self.k], biased, means[:, -1])

    def td(self, log: Log) -> Estimates:
        """The fixed point of TD(0): V(q) = x̄, V(b) = V(q) (and bias), V(s_i) = V(b), V(s_0) their mean."""
        return self._sweep(log, level=1.0, fallback="midpoint", check="mean")

    def adaptive_td(
        self,
        log: Log,
        *,
        level: float = 0.95,
        fallback: Literal["midpoint", "endpoint"] = "midpoint",
        check: Check = "mean",
    ) -> Estimates:
        """TD with targets replaced where they leave Student's interval for the mean return of their state.

        States are visited once, backwards: q, b, s, s_0. V(s) is the mean over its visits of y, the target T
        or its replacement. `sample` tests the target of each visit, `mean` tests their mean.
        """
        return self._sweep(log, level=level, fallback=fallback, check=check)

    def msve(self, estimates: Estimates) -> Float64[np.ndarray, " repeats"]:
        """The mean over s_1 ... s_k of (V(s) - μ)², for each repeat."""
        squared: Float64[np.ndarray, "repeats k"] = (estimates.s - self.mu) ** 2
        return np.asarray(squared.mean(axis=1))

    def intervals(self, log: Log, *, level: float = 0.95) -> Interval:
        """Student's interval for the mean return of s_1 ... s_k, b_1, b_2 and q (or s_0: the same)."""
        return self._every_visit(log).interval(level)

    def _every_visit(self, log: Log) -> _Visits:
        """The visits to s_1 ... s_k, b_1, b_2, q, in that order; s_0 has the same returns as q."""
        branch = _visits(log.branches, log.rewards, self.k)
        middle = _visits((log.branches >= self.p).astype(np.int64), log.rewards, 2)
        final = _visits(np.zeros_like(log.branches), log.rewards, 1)
        columns = zip(branch, middle, final, strict=True)
        return _Visits(*(np.concatenate(column, axis=1) for column in columns))

    def _sweep(
        self, log: Log, *, level: float, fallback: Literal["midpoint", "endpoint"], check: Check
    ) -> Estimates:
        visits = self._every_visit(log)
        lower, upper = visits.interval(level)
        k = self.k

        def adapt(targets: Float[np.ndarray, "repeats n"], at: slice) -> Float64[np.ndarray, "repeats n"]:
            ends = Interval(*(np.broadcast_to(end[:, at], targets.shape) for end in (lower, upper)))
            return np.asarray(adaptive_targets(targets, ends, fallback=fallback), np.float64)

        def mean_of(targets: Float[np.ndarray, "repeats n"]) -> Float64[np.ndarray, "repeats 1"]:
            """The estimate of a state that every episode visits, from the target of each episode."""
            at = slice(k + 2, k + 3)
            if check == "sample":
                return np.asarray(adapt(targets, at).mean(axis=1, keepdims=True))
            return adapt(targets.mean(axis=1, keepdims=True), at)

        q = mean_of(log.rewards)
        b = adapt(np.repeat(q, 2, axis=1), slice(k, k + 2))
        b = np.where(visits.counts[:, k : k + 2] > 0, b, 0.0) + np.array([self.bias, 0.0])
        s = adapt(b[:, (np.arange(k) >= self.p).astype(np.int64)], slice(0, k))
        s = np.where(visits.counts[:, :k] > 0, s, 0.0)
        s0 = mean_of(np.take_along_axis(s, log.branches, axis=1))
        return Estimates(s0[:, 0], s, b, q[:, 0])


def _visits(
    states: Int[np.ndarray, "repeats episodes"], returns: Float64[np.ndarray, "repeats episodes"], count: int
) -> _Visits:
    """Number, mean and sample variance (0 for N < 2) of the returns of each of `count` states."""
    repeats = len(states)
    cells = (np.arange(repeats)[:, None] * count + states).ravel()
    size = repeats * count
    counts = np.bincount(cells, minlength=size)
    means = np.bincount(cells, returns.ravel(), minlength=size) / np.maximum(counts, 1)
    squares = np.bincount(cells, (returns.ravel() - means[cells]) ** 2, minlength=size)
    shape = (repeats, count)
    variances = squares / np.maximum(counts - 1, 1)
    return _Visits(counts.reshape(shape), means.reshape(shape), variances.reshape(shape))
