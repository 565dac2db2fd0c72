"""Experiments as data: ids, plans, groups, and what is measured for a cell."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_td.errors import AdaptiveTDError, UsageError
from adaptive_td.experiments import EXPERIMENTS, Cell, Plan, Settings, plan, plugins
from adaptive_td.experiments.cells import canonical, tidy
from adaptive_td.experiments.measure import Outcome, measure
from adaptive_td.problems import Chain
from adaptive_td.problems.chain_theory import adaptive_td_msve, monte_carlo_msve, td_msve

plugins.load([Path(__file__).with_name("tiny.py")])
CELL = Cell(
    problem="line",
    method="adaptive-td",
    model="mlp:50,50",
    episodes=5,
    seed=0,
    steps=100,
    batch_size=8,
    learning_rate=1e-3,
    members=3,
    level=0.95,
)


def planned(name: str, **overrides: Any) -> Plan:
    preset = overrides.pop("preset", "quick")
    return plan(name, EXPERIMENTS[name].settings(preset, **overrides))


@given(order=st.permutations(list(CELL.config())), spaces=st.integers(0, 4))
def test_the_id_of_a_cell_does_not_depend_on_how_its_config_is_written(order: list[str], spaces: int) -> None:
    text = json.dumps({key: CELL.config()[key] for key in order}, indent=spaces)
    assert Cell.from_config(json.loads(text)).id("data") == CELL.id("data")


@given(rate=st.floats(1e-8, 1, allow_nan=False), form=st.sampled_from(["{!r}", "{:.17e}", "{:.20g}"]))
def test_the_id_of_a_cell_does_not_depend_on_how_a_float_is_spelled(rate: float, form: str) -> None:
    again = replace(CELL, learning_rate=float(form.format(rate)))
    assert again.id("data") == replace(CELL, learning_rate=rate).id("data")


@given(lam=st.floats(0, 1), zeros=st.integers(0, 3))
def test_the_id_of_a_cell_does_not_depend_on_how_a_spec_is_spelled(lam: float, zeros: int) -> None:
    spelled = replace(CELL, method=f"td-lambda:{lam:.17f}" + "0" * zeros)
    assert spelled.id("data") == replace(CELL, method=f"td-lambda:{float(f'{lam:.17f}')!r}").id("data")
    assert tidy("grid:19.0") == tidy(" grid:19") == "grid:19"
    assert tidy("td-lambda:.50") == "td-lambda:0.5"


def test_integers_and_floats_that_are_equal_name_the_same_cell() -> None:
    assert replace(CELL, level=1).id("data") == replace(CELL, level=1.0).id("data")


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"steps": 99}, {"level": 0.9}, {"after": 300}, {"model": "linear"}]
)
def test_every_setting_has_a_part_in_the_id(change: dict[str, Any]) -> None:
    assert replace(CELL, **change).id("data") != CELL.id("data")
    assert CELL.id("other data") != CELL.id("data")


def test_the_id_of_a_cell_is_what_it_was() -> None:
    """Stored runs are found by these ids: a change here needs a new NUMERICS or a migration."""
    assert CELL.id("data") == "3f11af7c3f710d48b1e5788bcb46c55d95891a2e135987ba8f447cbce178c3ef"


def test_settings_spell_names_as_cells_do() -> None:
    settings = planned("labyrinth", methods=("td", "td-lambda:.50"), models=(" mlp:50,50",)).settings
    assert (settings.methods, settings.models) == (("td", "td-lambda:0.5"), ("mlp:50,50",))


def test_not_a_number_has_no_canonical_form() -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical({"level": float("nan")})


def test_the_papers_labyrinth_has_every_cell() -> None:
    whole = planned("labyrinth", preset="paper")
    assert len(whole.cells) == 6 * 2 * 6 * 20 * 7 + 6 * 2 * 20
    assert len(whole.groups) == 6 * 2 * 6 * 20
    assert {cell.steps for cell in whole.cells.values()} == {50_000}
    assert sum(cell.after == 300 for cell in whole.cells.values()) == 6 * 2 * 20


def test_a_group_holds_all_methods_on_one_log() -> None:
    for group in planned("labyrinth", maps=None, sizes=(5, 50)).groups:
        logs = {(cell.problem, cell.model, cell.episodes, cell.seed) for cell in group.cells.values()}
        assert len(logs) == 1
        assert len({(cell.method, cell.after) for cell in group.cells.values()}) == len(group.cells)
        assert len(group.cells) in (7, 8)


def test_whole_seeds_come_first() -> None:
    seeds = [next(iter(group.cells.values())).seed for group in planned("labyrinth").groups]
    assert seeds == sorted(seeds)


def test_a_setting_of_the_ensemble_renames_only_cells_that_have_one() -> None:
    three, ten = planned("mountain-car"), planned("mountain-car", members=10)
    same = {three.cells[id_].method for id_ in three.cells.keys() & ten.cells.keys()}
    assert same == {"mc", "td", "td-lambda:0.25", "td-lambda:0.5", "td-lambda:0.75"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"methods": ("adaptve-td",)}, "did you mean 'adaptive-td'"),
        ({"problems": ("labyrint-2",)}, "did you mean 'labyrinth-"),
        ({"models": ("mpl:50",)}, "did you mean 'mlp'"),
        ({"sizes": (0, 5)}, "at least one episode"),
        ({"seeds": 0}, "seeds must be positive"),
        ({"methods": ()}, "methods: none given"),
        ({"methods": ("td", "td")}, "named twice"),
    ],
)
def test_a_mistyped_name_is_refused_with_the_nearest_one(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        planned("labyrinth", **overrides)


def test_an_unknown_experiment_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'labyrinth'"):
        plan("labirynth", Settings(problems=("labyrinth-0",)))


def test_a_map_of_the_users_own_is_a_problem_and_a_changed_map_another(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("discs = [[150, 80, 40]]")
    before = planned("labyrinth", problems=(str(file),))
    assert {cell.problem for cell in before.cells.values()} == {"mine"}
    file.write_text("discs = [[150, 81, 40]]")
    assert before.cells.keys().isdisjoint(planned("labyrinth", problems=(str(file),)).cells)


@pytest.fixture(scope="module")
def trained() -> dict[str, Outcome]:
    """The cells of a trained group with four episodes, by method (snapshots apart)."""
    group = planned("tiny-trained", methods=("mc-ensemble", "adaptive-td", "half-td", "explosive")).groups[1]
    return {
        f"{group.cells[outcome.cell].method}{' early' if group.cells[outcome.cell].after else ''}": outcome
        for outcome in measure(group)
    }


def test_a_method_and_a_problem_from_one_new_file_are_measured(trained: dict[str, Outcome]) -> None:
    outcome = trained["half-td"]
    assert outcome.status == "done"
    assert set(outcome.numbers) == {"msve", "loss"}
    truth = np.array([sum(0.5**j for j in range(5 - i)) for i in range(5)])
    values = outcome.arrays["values"]
    assert outcome.numbers["msve"] == pytest.approx(np.mean((values - truth) ** 2), rel=1e-5)


def test_intervals_are_judged_where_there_are_some(trained: dict[str, Outcome]) -> None:
    for method in ("mc-ensemble", "adaptive-td", "adaptive-td early"):
        outcome = trained[method]
        width = np.mean(outcome.arrays["upper"] - outcome.arrays["lower"])
        assert outcome.numbers["width"] == pytest.approx(width, rel=1e-5)
        assert 0 <= outcome.numbers["coverage"] <= 1
    assert "overruled" in trained["adaptive-td"].numbers


def test_a_snapshot_is_early_within_intervals_trained_to_the_end(trained: dict[str, Outcome]) -> None:
    late, early = trained["adaptive-td"].arrays, trained["adaptive-td early"].arrays
    np.testing.assert_array_equal(early["lower"], late["lower"])
    np.testing.assert_array_equal(early["upper"], late["upper"])
    assert not np.array_equal(early["values"], late["values"])


def test_a_cell_that_diverges_leaves_its_neighbours_alone(trained: dict[str, Outcome]) -> None:
    assert trained["explosive"].status == "diverged"
    assert trained["explosive"].step == 0
    alone = planned("tiny-trained", methods=("half-td",)).groups[1]
    np.testing.assert_array_equal(measure(alone)[0].arrays["values"], trained["half-td"].arrays["values"])


def test_a_cell_that_raises_leaves_its_neighbours_alone(trained: dict[str, Outcome]) -> None:
    group = planned("tiny-trained", methods=("broken", "half-td")).groups[1]
    broken, fine = measure(group)
    assert broken.status == "failed"
    assert "this method is broken" in broken.error
    np.testing.assert_array_equal(fine.arrays["values"], trained["half-td"].arrays["values"])


def test_cells_of_one_log_say_that_they_are(trained: dict[str, Outcome]) -> None:
    assert len({(outcome.log, outcome.truth) for outcome in trained.values()}) == 1


def test_the_chain_agrees_with_its_closed_forms() -> None:
    """4,000 repeats; the tolerance is above three standard errors of each mean."""
    group = planned("chain", sizes=(100,), seeds=1, repeats=4000, problems=("chain-biased",)).groups[0]
    chain = Chain(bias=0.5)
    expected = {
        "mc": monte_carlo_msve(chain, 100),
        "td": td_msve(chain, 100),
        "adaptive-td": adaptive_td_msve(chain, 100),
    }
    for outcome in measure(group):
        method = group.cells[outcome.cell].method
        if method in expected:
            assert outcome.numbers["msve"] == pytest.approx(expected[method], rel=0.04), method


def test_the_chain_refuses_methods_that_it_has_not() -> None:
    with pytest.raises(AdaptiveTDError, match="method of the chain"):
        planned("chain", methods=("td-lambda:0.5",))
