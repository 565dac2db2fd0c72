"""Claims about the games, and about maps and games together: made-up results in, verdicts out."""

import dataclasses

import polars as pl
import pytest

from adaptive_td.experiments.results import Results
from adaptive_td.paper.claims import atari, check, overall
from test_claims import MAPS, Error, as_the_paper_says, made_up

FLOOR = 50.0
"""The noise of returns, the same for every method."""


def games(error: Error, *, seeds: int = 8, names: tuple[str, ...] = ("pong", "space_invaders")) -> Results:
    """Results of games whose errors scatter by 5% around given ones, above a floor."""
    results = made_up(error, seeds=seeds, problems=tuple(f"atari-{game}" for game in names), models=("cnn",))
    table = results.table.with_columns(msve=pl.col("msve") + FLOOR)
    config = {**results.config, "experiment": "atari"}
    return dataclasses.replace(results, config=config, table=table)


CLAIMS = {claim.number: claim for claim in atari.CLAIMS}


def verdict(results: Results, number: str) -> str:
    return CLAIMS[number].decide(results).verdict


def as_the_paper_has_it(problem: str, method: str, episodes: int) -> float:
    """TD is best, Adaptive TD next, then the ensemble, MC; λ = 0.75 is far behind the other λ."""
    return {
        **{"mc": 100.0, "mc-ensemble": 70.0, "td": 30.0, "adaptive-td": 34.0},
        **{"td-lambda:0.25": 35.0, "td-lambda:0.5": 40.0, "td-lambda:0.75": 120.0},
    }[method]


def test_games_as_the_paper_describes_them_uphold_its_claims() -> None:
    results = games(as_the_paper_has_it)
    assert {number: verdict(results, number) for number in CLAIMS} == dict.fromkeys(CLAIMS, "holds")


@pytest.mark.parametrize(
    ("number", "method", "error"),
    [
        ("A1", "td", 200.0),
        ("A2", "mc", 20.0),
        ("A2", "mc-ensemble", 150.0),
        ("A3", "adaptive-td", 90.0),
        ("A4", "td-lambda:0.75", 10.0),
    ],
)
def test_a_claim_about_games_falls_when_a_method_is_otherwise(number: str, method: str, error: float) -> None:
    def changed(problem: str, other: str, n: int) -> float:
        return error if other == method else as_the_paper_has_it(problem, other, n)

    assert verdict(games(changed), number) == "does not hold"


def test_the_noise_of_returns_does_not_make_methods_close() -> None:
    """Half way between TD and MC is not close, however much noise is in both errors."""

    def half_way(problem: str, method: str, n: int) -> float:
        return 1000 + (65.0 if method == "adaptive-td" else as_the_paper_has_it(problem, method, n))

    assert verdict(quieter(games(half_way)), "A3") == "does not hold"


def quieter(results: Results) -> Results:
    """The same with the scatter of the errors divided by a hundred."""
    keys = ["problem", "model", "method", "episodes"]
    mean = pl.col("msve").mean().over(keys)
    return dataclasses.replace(
        results, table=results.table.with_columns(msve=mean + (pl.col("msve") - mean) / 100)
    )


def test_two_seeds_of_games_decide_nothing_but_say_what_was_run() -> None:
    rows = check([games(as_the_paper_has_it, seeds=2)])
    assert {row.verdict for row in rows} == {"not enough data"}
    assert "Pong 0.54 [fewer than 3 seeds]" in rows[2].statistic
    assert {row.ran.removeprefix("atari: ") for row in rows} == {
        "2 games; 5, 100 episodes; cnn; 50,000 steps of 512, 2 seeds"
    }


def together(*results: Results) -> dict[str, tuple[str, str, str]]:
    """What each claim about all scenarios is about, its statistic and its verdict."""
    return {number: (about, *finding) for number, about, _, finding in overall.claims(results)}


def test_maps_and_games_are_judged_together_where_both_have_seeds() -> None:
    found = together(made_up(as_the_paper_says, problems=MAPS[:2]), games(as_the_paper_has_it))
    for about, _, verdict_ in found.values():
        assert (about, verdict_) == ("4 of the ten scenarios", "holds")
    assert "in 0 of 8 cases" in found["O2"][1]


def test_games_have_a_say_in_the_ranking() -> None:
    """Adaptive TD far behind TD in every game: what holds on the maps alone does not hold on all."""

    def error(problem: str, method: str, n: int) -> float:
        return 300.0 if method == "adaptive-td" else as_the_paper_has_it(problem, method, n)

    found = together(made_up(as_the_paper_says, problems=MAPS[:2]), games(error))
    assert found["O1"][2] == found["O2"][2] == "does not hold"
    assert "worse than both in 4 of 8 cases: atari-pong at 5" in found["O2"][1]


def test_games_with_too_few_seeds_do_not_spoil_what_the_maps_show() -> None:
    few = games(as_the_paper_has_it, seeds=2)
    about, statistic, verdict_ = together(made_up(as_the_paper_says, problems=MAPS[:2]), few)["O1"]
    assert (about, verdict_) == ("2 of the ten scenarios", "holds")
    assert "left out, with fewer than 3 seeds of every method: atari-pong, atari-space_inv" in statistic


def test_games_without_td_lambda_are_left_out_of_the_ranking_but_not_of_the_rest() -> None:
    results = games(as_the_paper_has_it)
    without = dataclasses.replace(
        results, table=results.table.filter(~pl.col("method").str.starts_with("td-lambda"))
    )
    found = together(without)
    assert (found["O1"][0], found["O2"][0]) == ("0 of the ten scenarios", "2 of the ten scenarios")
    assert found["O1"][2] == verdict(without, "A4") == "not enough data"


def test_a_game_that_was_not_run_is_named() -> None:
    pong = games(as_the_paper_has_it, names=("pong",))
    assert "space_invaders was not run" in CLAIMS["A4"].decide(pong).statistic
    assert verdict(pong, "A1") == "holds"
