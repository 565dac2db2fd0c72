"""Claims are decided by what the data show: made-up results in, verdicts out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

from adaptive_td.experiments import EXPERIMENTS
from adaptive_td.experiments.results import Results
from adaptive_td.metrics import Estimate
from adaptive_td.paper.claims import ABOVE_ONE, BELOW_ONE, CLAIMS, Bound, all_of, both, check, ratio
from adaptive_td.problems import named

MAPS = tuple(f"labyrinth-{k}" for k in range(6))
METHODS = ("mc", "mc-ensemble", "td", "adaptive-td", "td-lambda:0.25", "td-lambda:0.5", "td-lambda:0.75")
Error = Callable[[str, str, int], float]
"""The mean error of a method on a problem with so many episodes."""


def made_up(
    error: Error,
    *,
    seeds: int = 8,
    models: tuple[str, ...] = ("mlp:50,50",),
    problems: tuple[str, ...] = MAPS,
) -> Results:
    """Results of the Labyrinth, or of other problems, whose errors scatter by 5% around given ones."""
    rng = np.random.default_rng(0)
    rows = [
        {
            "id": f"{problem}{model}{method}{episodes}{seed}",
            "problem": problem,
            "model": model,
            "method": method,
            "episodes": episodes,
            "seed": seed,
            "after": None,
            "status": "done",
            "msve": error(problem, method, episodes) * float(np.exp(0.05 * rng.normal())),
        }
        for problem in problems
        for model in models
        for method in METHODS
        for episodes in (5, 100)
        for seed in range(seeds)
    ]
    settings = {
        "problems": problems,
        "methods": METHODS,
        "models": models,
        "sizes": (5, 100),
        "seeds": seeds,
        "steps": 50_000,
        "batch_size": 512,
        "snapshot_episodes": 50,
        "snapshot_steps": 300,
    }
    return Results(
        config={"experiment": "labyrinth", "settings": settings},
        facts={},
        problems={name: named(name) for name in problems},
        table=pl.DataFrame(rows, schema_overrides={"after": pl.Int64}),
        arrays=lambda id_: {},
    )


def as_the_paper_says(problem: str, method: str, episodes: int) -> float:
    """MC is bad with few episodes; TD with many, but on the open map; Adaptive TD never."""
    few = {"mc": 100.0, "mc-ensemble": 80.0, "td": 30.0, "adaptive-td": 35.0}
    many = {"mc": 10.0, "mc-ensemble": 9.5, "td": 40.0, "adaptive-td": 10.0}
    if problem == "labyrinth-0":
        many["td"] = 8.0
    lambdas = {
        "td-lambda:0.25": 60.0,
        "td-lambda:0.5": 50.0,
        "td-lambda:0.75": 38.0 if episodes == 5 else 12.0,
    }
    return {**(few if episodes == 5 else many), **lambdas}[method]


def verdicts(results: Results) -> dict[str, str]:
    return {row.number: row.verdict for row in check([results])}


def test_data_as_the_paper_describes_them_uphold_its_claims() -> None:
    found = verdicts(made_up(as_the_paper_says))
    for number in ("L1", "L2", "L3", "L4", "L5", "L6", "L7", "O1", "O2"):
        assert found[number] == "holds", number


@pytest.mark.parametrize(
    ("number", "method", "episodes"),
    [("L1", "mc", 5), ("L2", "td", 100), ("L5", "td", 100), ("L3", "mc", 5), ("L7", "mc", 100)],
)
def test_a_claim_falls_when_the_method_it_blames_is_good(number: str, method: str, episodes: int) -> None:
    def error(problem: str, other: str, n: int) -> float:
        return 1.0 if (other, n) == (method, episodes) else as_the_paper_says(problem, other, n)

    assert verdicts(made_up(error))[number] == "does not hold"


def test_an_adaptive_td_worse_than_both_is_named() -> None:
    def error(problem: str, method: str, n: int) -> float:
        return (
            500.0
            if (problem, method, n) == ("labyrinth-4", "adaptive-td", 5)
            else as_the_paper_says(problem, method, n)
        )

    row = next(row for row in check([made_up(error)]) if row.number == "O2")
    assert row.verdict == "does not hold"
    assert "worse than both in 1 of 12 cases: labyrinth-4 at 5" in row.statistic


def test_two_seeds_decide_nothing() -> None:
    assert set(verdicts(made_up(as_the_paper_says, seeds=2)).values()) == {"not enough data"}


def test_a_difference_within_the_noise_decides_nothing() -> None:
    found = verdicts(made_up(lambda problem, method, n: 10.0, seeds=5))
    assert found["L1"] == "not enough data"
    assert found["L4"] == "holds"


def test_the_grid_is_held_against_the_network() -> None:
    models = ("mlp:50,50", "grid:19")
    assert verdicts(made_up(as_the_paper_says, models=models))["L10"] == "holds"
    assert verdicts(made_up(as_the_paper_says))["L10"] == "not enough data"


def test_a_method_is_as_good_as_itself() -> None:
    results = made_up(as_the_paper_says)
    case = {"problem": "labyrinth-1", "model": "mlp:50,50", "episodes": 5}
    assert ratio(results, [case], "td", "td") == Estimate(1.0, 1.0, 1.0)


def test_ratios_pair_seeds_also_where_one_is_missing() -> None:
    """A seed in which one method diverged is left out for all."""
    results = made_up(lambda problem, method, n: {"mc": 20.0}.get(method, 10.0))
    lost = (pl.col("method") == "mc") & (pl.col("seed") == 0)
    table = results.table.with_columns(status=pl.when(lost).then(pl.lit("diverged")).otherwise("status"))
    case = {"problem": "labyrinth-1", "model": "mlp:50,50", "episodes": 5}
    holed = Results(
        config=results.config, facts={}, problems=results.problems, table=table, arrays=results.arrays
    )
    scores = holed.paired(("mc", "td"), [case])
    assert scores.shape == (7, 1, 2)
    assert np.array_equal(scores, results.paired(("mc", "td"), [case])[1:])


@pytest.mark.parametrize(
    ("interval", "shown", "contradicted"),
    [((0.8, 0.9), True, False), ((1.1, 1.2), False, True), ((0.9, 1.1), False, False)],
)
def test_a_bound_is_shown_contradicted_or_open(
    interval: tuple[float, float], shown: bool, contradicted: bool
) -> None:
    estimate = Estimate(sum(interval) / 2, *interval)
    assert (BELOW_ONE.shown(estimate), BELOW_ONE.contradicted(estimate)) == (shown, contradicted)
    assert (ABOVE_ONE.shown(estimate), ABOVE_ONE.contradicted(estimate)) == (contradicted, shown)


def test_one_case_against_is_too_many_unless_exceptions_are_allowed() -> None:
    good, bad = Estimate(0.5, 0.4, 0.6), Estimate(2.0, 1.9, 2.1)
    options: dict[str, Any] = {"names": ["a", "b", "c"]}
    bound = Bound(1, "below")
    assert all_of("x", [good, good, bad], bound, **options).verdict == "does not hold"
    assert all_of("x", [good, good, bad], bound, exceptions=1, **options).verdict == "holds"
    assert all_of("x", [good, good, None], bound, **options).verdict == "not enough data"


def test_a_claim_of_parts_is_as_good_as_its_worst() -> None:
    good, bad = Estimate(0.5, 0.4, 0.6), Estimate(2.0, 1.9, 2.1)
    open_, bound = Estimate(1.0, 0.9, 1.1), Bound(1, "below")
    parts = [all_of("x", [one], bound, names=["a"]) for one in (good, open_, bad)]
    assert both(*parts[:1]).verdict == "holds"
    assert both(*parts[:2]).verdict == "not enough data"
    assert both(*parts).verdict == "does not hold"


def test_every_claim_about_these_problems_is_there() -> None:
    numbers = [claim.number for claims in CLAIMS.values() for claim in claims]
    assert numbers == [
        *(f"C{k}" for k in range(1, 5)),
        *(f"L{k}" for k in range(1, 11)),
        *(f"M{k}" for k in range(1, 4)),
        *(f"A{k}" for k in range(1, 5)),
    ]
    assert CLAIMS.keys() <= EXPERIMENTS.keys()
