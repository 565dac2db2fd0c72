"""Statistics that decide claims: ratios of errors with intervals over seeds, and what they show.

A claim about methods is put as ratios of mean squared value errors, M(a)/M(b), averaged over seeds first,
with a bootstrap interval over seeds (drawn within each problem, the same for both methods). A ratio *shows*
a bound when its whole interval is on the right side of it, and *contradicts* it when its whole interval is on
the other. "Close" means a ratio below 1.25, "dramatic" below 0.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float64

from adaptive_td.experiments.results import Arrays, Results
from adaptive_td.metrics import Estimate, mean_over_seeds, stratified_bootstrap

Verdict = Literal["holds", "does not hold", "not enough data"]
Case = dict[str, Any]
Means = dict[str, Float64[np.ndarray, " cases"]]
"""The mean MSVE over seeds of each method, by case."""

CLOSE, DRAMATIC = 1.25, 0.5
FEWEST_SEEDS = 3
MC, ENSEMBLE, TD, ATD = "mc", "mc-ensemble", "td", "adaptive-td"
LAMBDAS = ("td-lambda:0.25", "td-lambda:0.5", "td-lambda:0.75")


class Finding(NamedTuple):
    """A statistic in words, and what it decides."""

    statistic: str
    verdict: Verdict


class Bound(NamedTuple):
    """What a statistic has to be: below or above a number."""

    number: float
    side: Literal["below", "above"]

    def shown(self, estimate: Estimate) -> bool:
        """Whether the whole interval is on the right side."""
        return estimate.high < self.number if self.side == "below" else estimate.low > self.number

    def contradicted(self, estimate: Estimate) -> bool:
        """Whether the whole interval is on the wrong side."""
        return estimate.low > self.number if self.side == "below" else estimate.high < self.number


BELOW_ONE, ABOVE_ONE = Bound(1, "below"), Bound(1, "above")


class Claim(NamedTuple):
    """A claim of the paper in our words, and how it is decided."""

    number: str
    about: str
    claim: str
    decide: Callable[[Results], Finding]


def estimate(
    results: Results, cases: Sequence[Case], methods: Sequence[str], statistic: Callable[[Means], float]
) -> Estimate | None:
    """A statistic of mean errors with its interval over seeds; None where no seed has all of them.

    With too few seeds the interval is infinite: the number is told, and decides nothing.
    """
    scores = results.paired(methods, cases)
    if not len(scores):
        return None

    def of_means(drawn: Float64[np.ndarray, "seeds cases methods"]) -> float:
        return statistic(dict(zip(methods, np.moveaxis(drawn.mean(axis=0), -1, 0), strict=True)))

    if len(scores) < FEWEST_SEEDS:
        return Estimate(of_means(scores), -np.inf, np.inf)
    return stratified_bootstrap(scores, of_means)


def ratio(results: Results, cases: Sequence[Case], above: str, *below: str) -> Estimate | None:
    """M(above)/M(below), the geometric mean over cases; with several below, their least."""

    def statistic(means: Means) -> float:
        least = np.min([means[method] for method in below], axis=0)
        return float(np.exp(np.mean(np.log(means[above] / least))))

    return estimate(results, cases, [above, *below], statistic)


def all_of(
    what: str, found: Sequence[Estimate | None], bound: Bound, *, names: Sequence[str], exceptions: int = 0
) -> Finding:
    """A statistic that must be on its side in all cases, or all but some."""
    known = [one for one in found if one is not None]
    if len(known) < len(found) or not known:
        return Finding(f"{what}: fewer than {FEWEST_SEEDS} seeds", "not enough data")
    shown = sum(bound.shown(one) for one in known)
    against = [name for one, name in zip(known, names, strict=True) if bound.contradicted(one)]
    told = "; ".join(f"{name} {text(one)}" for name, one in zip(names, known, strict=True))
    verdict: Verdict = "not enough data"
    if shown >= len(known) - exceptions:
        verdict = "holds"
    elif len(against) > exceptions:
        verdict = "does not hold"
    wanted = f"{bound.side} {bound.number:g}"
    return Finding(f"{what}, to be {wanted}: {told} ({shown} of {len(known)} shown)", verdict)


def both(*findings: Finding) -> Finding:
    """A claim of several parts."""
    verdicts = [finding.verdict for finding in findings]
    worst: Verdict = "holds"
    for verdict in ("not enough data", "does not hold"):
        if verdict in verdicts:
            worst = verdict
    return Finding(" · ".join(f"{f.statistic}: {f.verdict}" for f in findings), worst)


def text(one: Estimate) -> str:
    """A number with its interval, if there are seeds enough for one."""
    if not np.isfinite(one.high - one.low):
        return f"{one.value:.2f} [fewer than {FEWEST_SEEDS} seeds]"
    return f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"


def over_seeds(numbers: Sequence[float]) -> Estimate | None:
    """The mean of one number per seed."""
    if len(numbers) < FEWEST_SEEDS:
        return None
    return mean_over_seeds(np.array(numbers))


def names_of(cases: Sequence[Case]) -> list[str]:
    """What tells cases apart: episodes, or the number of the map."""
    if len({case["problem"] for case in cases}) > 1:
        return [case["problem"].replace("labyrinth-", "map ") for case in cases]
    return [f"n = {case['episodes']}" for case in cases]


def each(results: Results, cases: Sequence[Case], above: str, *below: str) -> list[Estimate | None]:
    """The ratio in each case."""
    return [ratio(results, [case], above, *below) for case in cases]


def fewest(results: Results) -> int:
    """The least number of episodes."""
    return min(results.settings["sizes"])


def most(results: Results) -> int:
    """The largest number of episodes."""
    return max(results.settings["sizes"])


def outside(arrays: Arrays) -> Float64[np.ndarray, " states"]:
    """1 where V(s) lies above its interval, -1 where it lies below, 0 inside."""
    values, lower, upper = (arrays[name] for name in ("values", "lower", "upper"))
    return (values > upper).astype(float) - (values < lower)
