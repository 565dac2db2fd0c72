"""The numbers behind the curves: methods compared at each size, on the seeds that all of them have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from adaptive_td.experiments.results import Results
from adaptive_td.metrics import (
    Estimate,
    by_worst,
    mean_over_seeds,
    min_max,
    ratio_bootstrap,
    resampled_means,
)
from adaptive_td.problems import Chain


class Point(NamedTuple):
    """Some methods at one size of one problem."""

    episodes: int
    methods: tuple[str, ...]
    scores: Float64[np.ndarray, "seeds methods"]
    """MSVE on the seeds that all of the methods have."""

    def estimates(self) -> dict[str, Estimate]:
        """The mean of each method, with a 95% interval over seeds."""
        return dict(zip(self.methods, map(mean_over_seeds, self.scores.T), strict=True))

    def normalised(self) -> dict[str, float]:
        """Means over seeds, each divided by that of the worst method."""
        return dict(zip(self.methods, by_worst(self.scores.mean(axis=0)).tolist(), strict=True))


def is_chain(results: Results) -> bool:
    """Whether they are of the chain, whose estimators are computed rather than trained."""
    return any(isinstance(problem, Chain) for problem in results.problems.values())


def methods_of(results: Results, model: str) -> list[str]:
    """The methods that have a result with this model anywhere."""
    found = set(results.cells(model=model)["method"].to_list())
    return [method for method in results.settings["methods"] if method in found]


def problems_of(results: Results, model: str) -> list[str]:
    """The problems that have a result with this model."""
    found = set(results.cells(model=model)["problem"].to_list())
    return [name for name in results.problems if name in found]


def point(
    results: Results, methods: Sequence[str], *, problem: str, model: str, episodes: int
) -> Point | None:
    """The methods at one size; None where one of them has no seed that the others have too."""
    scores = results.paired(methods, [{"problem": problem, "model": model, "episodes": episodes}])
    return Point(episodes, tuple(methods), scores[:, 0]) if len(scores) else None


def points(results: Results, methods: Sequence[str], *, problem: str, model: str) -> list[Point]:
    """The sizes at which all of the methods can be compared, smallest first."""
    sizes = sorted(results.settings["sizes"])
    found = (point(results, methods, problem=problem, model=model, episodes=size) for size in sizes)
    return [one for one in found if one is not None]


def over_test_episodes(results: Results, case: Mapping[str, Any]) -> dict[str, Estimate]:
    """M(method) - M(best) on the same test visits, with an interval by drawing whole test episodes.

    The mean over the seeds that all of the methods have; the noise of returns cancels. Negative never: the
    best has the least mean. Empty where the sums over test episodes were not kept.
    """
    found = {
        method: {seed: one for seed, one in by_seed.items() if "squared" in one}
        for method in results.settings["methods"]
        if (by_seed := results.arrays_of(method=method, **case))
    }
    seeds = set.intersection(*map(set, found.values())) if found else set()
    if not seeds:
        return {}
    sums = {
        m: np.mean([by_seed[k]["squared"] for k in sorted(seeds)], axis=0) for m, by_seed in found.items()
    }
    visits = next(iter(found.values()))[min(seeds)]["visits"]
    least = min(sums, key=lambda method: float(sums[method].sum()))
    return {m: ratio_bootstrap(sums[m] - sums[least], visits) for m in sums}


class Scenario(NamedTuple):
    """A problem with a model, of some results."""

    results: Results
    problem: str
    model: str


class Summary(NamedTuple):
    """The average over scenarios of errors normalised to 0 for the best method and 1 for the worst."""

    scenarios: tuple[Scenario, ...]
    methods: tuple[str, ...]
    episodes: tuple[int, ...]
    seeds: tuple[int, ...]
    """How many of each scenario have every method and size."""
    values: Float64[np.ndarray, "sizes methods"]
    low: Float64[np.ndarray, "sizes methods"]
    high: Float64[np.ndarray, "sizes methods"]


def summary(scenarios: Sequence[Scenario], methods: Sequence[str]) -> Summary | None:
    """Min-max normalised means, averaged over the scenarios that are complete, by size.

    Sizes are those that all of the scenarios share. Seeds are averaged first, then (M - min) / (max - min)
    over the methods, then the mean over scenarios; the 95% interval is a bootstrap that draws seeds within
    each scenario, the same for all methods. What is the same for all methods, such as the noise of the
    returns that games are judged by, cancels.
    """
    if not scenarios or not methods:
        return None
    sizes = sorted(set.intersection(*(set(one.results.settings["sizes"]) for one in scenarios)))
    found = {one: _by_seed(one, methods, sizes) for one in scenarios}
    complete = {one: by_seed for one, by_seed in found.items() if by_seed}
    if not complete or not sizes:
        return None
    blocks = [np.array(list(by_seed.values()), float) for by_seed in complete.values()]
    values = np.mean([min_max(block.mean(axis=0)) for block in blocks], axis=0)
    draws = np.mean([min_max(resampled_means(b, seed=k)) for k, b in enumerate(blocks)], axis=0)
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    seeds = tuple(len(block) for block in blocks)
    return Summary(tuple(complete), tuple(methods), tuple(sizes), seeds, values, low, high)


def _by_seed(
    scenario: Scenario, methods: Sequence[str], sizes: Sequence[int]
) -> dict[int, list[list[float]]]:
    """The scores by size and method, of the seeds that have all of them."""
    results, problem, model = scenario
    found = [results.scores(problem=problem, model=model, episodes=size) for size in sizes]
    all_of_them = [by_method.get(method, {}) for by_method in found for method in methods]
    seeds = set.intersection(*map(set, all_of_them)) if all_of_them else set()
    return {seed: [[by_method[m][seed] for m in methods] for by_method in found] for seed in seeds}
