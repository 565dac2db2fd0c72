"""How good values and intervals are. Rows in, numbers out; nothing here knows of plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float64, Int

from .errors import UsageError
from .intervals import Interval

Values = Float[np.ndarray, " states"]
Scores = Float64[np.ndarray, "*scenarios methods"]


def msve(values: Values, truth: Values, weights: Values | None = None) -> float:
    """Mean squared value error Σ_s w(s) (v(s) - V(s))²; weights are normalised, and uniform by default.

    Always say which states and weights: an even grid, the visits of a test log, or start states.
    """
    return float(np.average((np.asarray(values, float) - truth) ** 2, weights=weights))


def msve_from_rollouts(values: Values, returns: Float[np.ndarray, "states rollouts"]) -> float:
    """MSVE against the unknown mean of R ≥ 2 rollouts per state, without the rollouts' own noise.

    With X = G - V, the mean of X̄² - s²_X / R is unbiased for (v - V)²; it can be negative.
    """
    errors = returns - np.asarray(values, float)[:, None]
    count = errors.shape[1]
    if count < 2:
        raise UsageError("correcting for noise needs at least two rollouts per state")
    return float(np.mean(errors.mean(axis=1) ** 2 - errors.var(axis=1, ddof=1) / count))


def return_noise(
    returns: Float[np.ndarray, " visits"],
    state: Int[np.ndarray, " visits"],
    episode: Int[np.ndarray, " visits"],
) -> tuple[float | None, Bool[np.ndarray, " visits"]]:
    """E Var(G | s) over the visits whose state several episodes visit, and which visits these are.

    Returns from one state in different episodes are independent, so half the mean squared difference of such
    pairs is unbiased for Var(G | s). With n visits, ΣG and ΣG² over a state, and the same over each of its
    episodes e, the pairs add up to (n ΣG² - (ΣG)²) - Σ_e (n_e ΣG_e² - (ΣG_e)²), and there are n² - Σ_e n_e².
    None where no state is visited by two episodes.
    """
    centred = np.asarray(returns, float) - np.mean(returns)
    _, state = np.unique(state, return_inverse=True)
    _, part = np.unique(np.stack([state, episode], axis=1), axis=0, return_inverse=True)
    owner = np.zeros(part.max() + 1, np.int64)
    owner[part] = state

    def pairs(group: Int[np.ndarray, " visits"]) -> tuple[np.ndarray, np.ndarray]:
        count = np.bincount(group).astype(float)
        total, square = np.bincount(group, centred), np.bincount(group, centred**2)
        return count * square - total**2, count**2

    whole, within = pairs(state), pairs(part.reshape(-1))
    spread, number = (a - np.bincount(owner, b) for a, b in zip(whole, within, strict=True))
    repeated = (number > 0)[state]
    if not repeated.any():
        return None, repeated
    variance = np.divide(spread, number, out=np.zeros_like(spread), where=number > 0)
    return float(variance[state][repeated].mean()), repeated


def coverage(interval: Interval, truth: Values) -> float:
    """The share of states whose true value lies inside their interval."""
    return float(np.mean(interval.contains(truth)))


def normalise_by_worst(scores: Mapping[str, float]) -> dict[str, float]:
    """M / max over the methods compared; 0/0 is 0."""
    return dict(zip(scores, by_worst(np.array(list(scores.values()), float)).tolist(), strict=True))


def normalise_min_max(scores: Mapping[str, float]) -> dict[str, float]:
    """(M - min) / (max - min) over the methods compared; 0/0 is 0."""
    return dict(zip(scores, min_max(np.array(list(scores.values()), float)).tolist(), strict=True))


def by_worst(scores: Scores) -> Scores:
    """M / max over the last axis, which is that of the methods compared; 0/0 is 0."""
    worst = scores.max(axis=-1, keepdims=True)
    return np.divide(scores, worst, out=np.zeros_like(scores), where=worst != 0)


def min_max(scores: Scores) -> Scores:
    """(M - min) / (max - min) over the last axis, which is that of the methods compared; 0/0 is 0."""
    above = scores - scores.min(axis=-1, keepdims=True)
    span = above.max(axis=-1, keepdims=True)
    return np.divide(above, span, out=np.zeros_like(above), where=span > 0)


def regret(scores: Mapping[str, float]) -> dict[str, float]:
    """Log(M / min): how far each method is from the one that was best in hindsight."""
    best = min(scores.values())
    if best <= 0:
        raise UsageError("regret compares positive errors")
    return {name: float(np.log(score / best)) for name, score in scores.items()}


def interquartile_mean(scores: Float[np.ndarray, " *any"]) -> float:
    """The mean of the middle half: 25% trimmed at each end."""
    ordered = np.sort(np.ravel(scores))
    trim = len(ordered) // 4
    return float(ordered[trim : len(ordered) - trim].mean())


class Estimate(NamedTuple):
    """A statistic and the ends of its confidence interval."""

    value: float
    low: float
    high: float


def cluster_bootstrap(
    rows: Float[np.ndarray, " rows"],
    cluster: Int[np.ndarray, " rows"],
    *,
    level: float = 0.95,
    repeats: int = 10_000,
    seed: int = 0,
) -> Estimate:
    """The mean of rows that come in dependent clusters (visits of an episode), with a percentile interval.

    Whole clusters are drawn with replacement; a draw's mean is Σ sums / Σ counts over its clusters.
    """
    _, cluster = np.unique(cluster, return_inverse=True)
    counts = np.bincount(cluster).astype(float)
    sums = np.bincount(cluster, weights=np.asarray(rows, float))
    return ratio_bootstrap(sums, counts, level=level, repeats=repeats, seed=seed)


def ratio_bootstrap(
    sums: Float[np.ndarray, " clusters"],
    counts: Float[np.ndarray, " clusters"],
    *,
    level: float = 0.95,
    repeats: int = 10_000,
    seed: int = 0,
) -> Estimate:
    """Σ sums / Σ counts over clusters, with a percentile interval by drawing clusters with replacement.

    Clusters without a row are left out.
    """
    sums, counts = (np.asarray(x, float)[np.asarray(counts) > 0] for x in (sums, counts))
    rng = np.random.default_rng(seed)
    draws = np.empty(repeats)
    for k in range(0, repeats, 1000):
        chosen = rng.integers(len(counts), size=(min(1000, repeats - k), len(counts)))
        draws[k : k + 1000] = sums[chosen].sum(axis=1) / counts[chosen].sum(axis=1)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(sums.sum() / counts.sum()), float(low), float(high))


def mean_over_seeds(
    scores: Float[np.ndarray, " seeds"], *, level: float = 0.95, repeats: int = 2000
) -> Estimate:
    """The mean with a percentile interval over seeds; with one seed both ends are the mean itself."""
    return cluster_bootstrap(scores, np.arange(len(scores)), level=level, repeats=repeats)


def resampled_means(
    scores: Float64[np.ndarray, "seeds scenarios methods"], *, repeats: int = 2000, seed: int = 0
) -> Float64[np.ndarray, "repeats scenarios methods"]:
    """Means over seeds that are drawn with replacement within each scenario, the same for all methods.

    So what is paired stays paired, and any statistic of the means has its stratified bootstrap.
    """
    count, scenarios, _ = scores.shape
    chosen = np.random.default_rng(seed).integers(count, size=(repeats, count, scenarios))
    return np.asarray(scores[chosen, np.arange(scenarios)].mean(axis=1))


def paired_difference(
    values_a: Values,
    values_b: Values,
    returns: Values,
    episode: Int[np.ndarray, " states"],
    *,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """MSVE(A) - MSVE(B) on held-out visits whose true value is unknown, with an interval by episodes.

    (V_A - G)² - (V_B - G)² = (V_A - V_B)(V_A + V_B - 2G): the noise of the return G, which is in both
    squared errors and usually dwarfs them, cancels. Negative: A is better.
    """
    a, b, g = (np.asarray(x, float) for x in (values_a, values_b, returns))
    return cluster_bootstrap((a - b) * (a + b - 2 * g), episode, level=level, seed=seed)


def stratified_bootstrap(
    scores: Float[np.ndarray, "seeds scenarios *rest"],
    statistic: Callable[[Float[np.ndarray, "seeds scenarios *rest"]], float],
    *,
    level: float = 0.95,
    repeats: int = 2000,
    seed: int = 0,
) -> Estimate:
    """A statistic over seeds and scenarios; seeds are drawn with replacement within each scenario.

    What lies behind the first two axes (methods, say) is drawn together, so that its pairing is kept.
    """
    rng = np.random.default_rng(seed)
    seeds, scenarios = scores.shape[:2]
    draws = [
        statistic(scores[rng.integers(seeds, size=(seeds, scenarios)), np.arange(scenarios)])
        for _ in range(repeats)
    ]
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(statistic(scores)), float(low), float(high))
