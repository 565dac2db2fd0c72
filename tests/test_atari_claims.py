"""Claims about the games, and about maps and games together: made-up results in, verdicts out."""

import dataclasses

import polars as pl
import pytest

from adaptive_td.atari.games import GAMES
from adaptive_td.experiments.results import Results
from adaptive_td.paper.claims import check
from adaptive_td.problems import Atari
from test_claims import Error, as_the_paper_says, made_up, verdicts

FLOOR = 50.0
"""The noise of returns, the same for every method."""


def games(error: Error, *, seeds: int = 8) -> Results:
    """Results of the games whose errors scatter by 5% around given ones, above a floor."""
    results = made_up(error, seeds=seeds, problems=tuple(f"atari-{game}" for game in GAMES), models=("cnn",))
    table = results.table.with_columns(msve=pl.col("msve") + FLOOR)
    config = {**results.config, "experiment": "atari"}
    return dataclasses.replace(results, config=config, table=table)


def as_the_paper_has_it(problem: str, method: str, episodes: int) -> float:
    """TD is best, Adaptive TD next, then the ensemble, MC; λ = 0.75 is far behind the other λ."""
    return {
        **{"mc": 100.0, "mc-ensemble": 70.0, "td": 30.0, "adaptive-td": 34.0},
        **{"td-lambda:0.25": 35.0, "td-lambda:0.5": 40.0, "td-lambda:0.75": 120.0},
    }[method]


def test_games_as_the_paper_describes_them_uphold_its_claims() -> None:
    found = verdicts(games(as_the_paper_has_it))
    assert {number: found[number] for number in ("A1", "A2", "A3", "A4")} == dict.fromkeys(
        ("A1", "A2", "A3", "A4"), "holds"
    )


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

    assert verdicts(games(changed))[number] == "does not hold"


def test_the_noise_of_returns_does_not_make_methods_close() -> None:
    """Half way between TD and MC is not close, however much noise is in both errors."""

    def half_way(problem: str, method: str, n: int) -> float:
        return 1000 + (65.0 if method == "adaptive-td" else as_the_paper_has_it(problem, method, n))

    row = next(row for row in check([quieter(games(half_way, seeds=20))]) if row.number == "A3")
    assert row.verdict == "does not hold"


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
    assert {row.ran.removeprefix("atari: ") for row in rows} == {
        "4 games; 5, 100 episodes; cnn; 50,000 steps of 512, 2 seeds"
    }


def test_maps_and_games_are_judged_together_where_both_have_seeds() -> None:
    rows = {row.number: row for row in check([made_up(as_the_paper_says), games(as_the_paper_has_it)])}
    assert rows["O1"].about == rows["O2"].about == "10 of the ten scenarios"
    assert "of 20 cases" in rows["O2"].statistic
    assert rows["O1"].verdict == rows["O2"].verdict == "holds"
    assert "labyrinth: 6 maps" in rows["O1"].ran
    assert "atari: 4 games" in rows["O1"].ran


def test_games_have_a_say_in_the_ranking() -> None:
    """Adaptive TD far behind TD in every game: what holds on the maps alone does not hold on all ten."""

    def error(problem: str, method: str, n: int) -> float:
        return 300.0 if method == "adaptive-td" else as_the_paper_has_it(problem, method, n)

    rows = {row.number: row for row in check([made_up(as_the_paper_says), games(error)])}
    assert rows["O1"].verdict == rows["O2"].verdict == "does not hold"
    assert "worse than both in 8 of 20 cases: atari-breakout at 5" in rows["O2"].statistic


def test_games_with_too_few_seeds_do_not_spoil_what_the_maps_show() -> None:
    few = games(as_the_paper_has_it, seeds=2)
    rows = {row.number: row for row in check([made_up(as_the_paper_says), few])}
    assert rows["O1"].verdict == "holds"
    assert rows["O1"].about == "6 of the ten scenarios"
    assert "left out, with fewer than 3 seeds of every method: atari-breakout" in rows["O1"].statistic


def test_games_without_td_lambda_are_left_out_of_the_ranking_but_not_of_the_rest() -> None:
    results = games(as_the_paper_has_it)
    without = dataclasses.replace(
        results, table=results.table.filter(~pl.col("method").str.starts_with("td-lambda"))
    )
    rows = {row.number: row for row in check([without])}
    assert rows["O1"].about == "0 of the ten scenarios"
    assert rows["O2"].about == "4 of the ten scenarios"
    assert rows["A4"].verdict == "not enough data"


def test_a_game_that_was_not_run_is_named() -> None:
    results = games(as_the_paper_has_it)
    pong = dataclasses.replace(
        results,
        problems={"atari-pong": Atari("pong")},
        table=results.table.filter(pl.col("problem") == "atari-pong"),
    )
    rows = {row.number: row for row in check([pong])}
    assert "space_invaders was not run" in rows["A4"].statistic
    assert rows["A1"].verdict == "holds"
