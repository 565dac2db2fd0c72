"""Problems without true values: judged by the returns of test episodes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adaptive_td import Episodes, Training, fit, problems
from adaptive_td.errors import DataError, UsageError
from adaptive_td.experiments import EXPERIMENTS, Cell, Plan, Settings, Ways, plan, plugins, run
from adaptive_td.experiments.judging import by_test, judge_of, state_numbers
from adaptive_td.experiments.measure import Outcome, build_method, checkpoint_folder, measure
from adaptive_td.experiments.results import publish, read
from adaptive_td.methods import TD, AdaptiveTD, MonteCarlo
from adaptive_td.metrics import paired_difference, ratio_bootstrap
from adaptive_td.models import MLP
from adaptive_td.paper.points import over_test_episodes
from adaptive_td.problems import PROBLEMS, Known, named
from adaptive_td.scoring import whole_returns
from adaptive_td.uncertainty import Ensemble
from walks import Walks

plugins.load([Path(__file__).with_name("walks.py")])
RESULTS = Path(__file__).parent.parent / "results"


def planned(**overrides: Any) -> Plan:
    return plan("walks", EXPERIMENTS["walks"].settings("quick", **overrides))


def quiet() -> Ways:
    return Ways(engine="serial", tell=lambda message: None, complain=lambda message: None)


@pytest.fixture(scope="module")
def measured() -> dict[str, Outcome]:
    """The cells of one log of six episodes, by method."""
    group = planned().groups[1]
    return {group.cells[outcome.cell].method: outcome for outcome in measure(group)}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    run(planned(), folder, quiet())
    return folder


def test_every_problem_is_of_one_kind() -> None:
    for name in PROBLEMS:
        assert isinstance(named(name), Known) != isinstance(named(name), problems.Tested), name


def test_a_problem_that_cannot_be_judged_is_refused() -> None:
    class Nothing:
        name, discount = "nothing", 0.9

        def episodes(self, count: int, *, seed: int) -> Episodes:
            raise AssertionError

    with pytest.raises(UsageError, match="neither true values nor test episodes"):
        judge_of(Nothing())


def test_the_error_is_the_mean_squared_difference_to_whole_returns(measured: dict[str, Outcome]) -> None:
    problem = named("walks")
    assert isinstance(problem, problems.Tested)
    test = problem.test()
    _, visits = whole_returns(test, problem.discount)
    assert 0 < len(visits) < test.steps
    for method, outcome in measured.items():
        assert outcome.status == "done", method
        squared, counts = outcome.arrays["squared"], outcome.arrays["visits"]
        assert counts.sum() == len(visits)
        assert outcome.numbers["msve"] == pytest.approx(squared.sum() / counts.sum(), rel=1e-5)
        assert outcome.numbers["msve"] >= outcome.numbers["floor"] + outcome.numbers["corrected"] - 1e-6
        assert "coverage" not in outcome.numbers


def test_what_is_shown_of_an_episode_are_values_and_returns_along_it(measured: dict[str, Outcome]) -> None:
    problem = named("walks")
    assert isinstance(problem, problems.Tested)
    test = problem.test()
    returns, visits = whole_returns(test, problem.discount)
    longest = int(np.argmax(np.bincount(test.episode[visits])))
    expected = returns[visits[test.episode[visits] == longest]]
    for method, outcome in measured.items():
        np.testing.assert_allclose(outcome.arrays["episode_returns"], expected, rtol=1e-6)
        gaps = (outcome.arrays["episode_values"] - expected) ** 2
        assert gaps.sum() == pytest.approx(outcome.arrays["squared"][longest], rel=1e-4), method
        assert ("episode_lower" in outcome.arrays) == (method in ("mc-ensemble", "adaptive-td"))
        assert "frame" not in outcome.arrays


def test_intervals_have_a_width(measured: dict[str, Outcome]) -> None:
    for method in ("mc-ensemble", "adaptive-td"):
        outcome = measured[method]
        width = outcome.arrays["episode_upper"] - outcome.arrays["episode_lower"]
        assert (width >= 0).all()
        assert outcome.numbers["width"] > 0
    assert "overruled" in measured["adaptive-td"].numbers


def test_a_perfect_value_function_is_left_with_the_noise() -> None:
    """Every place of the walk has a value of its own; with many test episodes what is left is Var(G | s)."""
    problem = Walks(test_episodes=3000)
    log = problem.episodes(3000, seed=5)
    training = Training(steps=4000, batch_size=256, learning_rate=3e-3)
    value = fit(
        MonteCarlo(), log, MLP((32,)), discount=problem.discount, key=0, training=training, progress=False
    )
    numbers, _ = by_test(problem).judge(value, None)
    assert numbers["floor_share"] > 0.99
    assert numbers["msve"] == pytest.approx(numbers["floor"], rel=0.05)
    assert abs(numbers["corrected"]) < 0.05 * numbers["floor"]
    assert abs(numbers["start_error"]) < 0.02 * numbers["floor"]


class Constant(eqx.Module):
    """The same everywhere."""

    value: float

    def __call__(self, state: jax.Array) -> jax.Array:
        return jnp.asarray(self.value)


def test_the_start_error_is_that_of_the_mean_start_value() -> None:
    """A value that is off by 3 everywhere has a start error of about 9, without the noise of returns."""
    problem = Walks(test_episodes=2000)
    test = problem.test()
    returns, _ = whole_returns(test, problem.discount)
    starts = test.step == 0

    training = Training(steps=1, batch_size=8)
    some = fit(TD(), problem.episodes(2, seed=0), MLP((8,)), discount=0.5, key=0, training=training)
    wrong = Constant(float((returns[starts].mean() - 3) / some.scaling.reward))
    numbers, _ = by_test(problem).judge(replace(some, function=wrong), None)
    assert numbers["start_error"] == pytest.approx(9, abs=0.02)


def test_test_episodes_without_a_whole_return_are_refused() -> None:

    with pytest.raises(DataError, match="nothing to judge values by"):
        by_test(replace(Walks(test_episodes=1), max_steps=1))


def test_states_are_the_same_where_their_whole_stacks_are() -> None:
    frames = np.zeros((8, 2, 2), np.uint8)
    frames[[1, 5]] = 1
    frames[6] = 2
    log = Episodes(
        states=frames,
        rewards=np.zeros(6, np.float32),
        lengths=np.array([3, 3]),
        ended=np.ones(2, bool),
        stack=2,
    )
    numbers = state_numbers(log, log.index)
    same = numbers[:, None] == numbers
    stacks = log.observations.reshape(6, -1)
    np.testing.assert_array_equal(same, (stacks[:, None] == stacks).all(axis=-1))


def test_paired_differences_of_a_run_are_those_of_its_values(finished: Path) -> None:
    results = read(finished)
    case: dict[str, Any] = {"problem": "walks", "model": "mlp:8", "episodes": 6}
    found = over_test_episodes(results, case)
    means = {m: np.mean(list(s.values())) for m, s in results.scores(**case).items()}
    best = min(means, key=lambda method: means[method])
    assert found[best] == (0, 0, 0)
    for method, one in found.items():
        assert one.value == pytest.approx(means[method] - means[best], abs=1e-3)
        assert one.low <= one.value <= one.high


def test_paired_differences_of_one_seed_have_the_interval_of_their_visits() -> None:
    """From sums over episodes as from the visits themselves."""
    problem = named("walks")
    assert isinstance(problem, problems.Tested)
    test = problem.test()
    log, training = problem.episodes(6, seed=0), Training(steps=30, batch_size=8)
    a, b = (
        fit(m, log, MLP((8,)), discount=0.5, key=0, training=training, progress=False)
        for m in (MonteCarlo(), TD())
    )
    judge = by_test(problem).judge
    (_, one), (_, two) = judge(a, None), judge(b, None)

    returns, visits = whole_returns(test, 0.5)
    rows = test.index[visits]
    expected = paired_difference(
        a.over(test)[rows], b.over(test)[rows], returns[visits], test.episode[visits]
    )
    found = ratio_bootstrap(one["squared"].astype(float) - two["squared"], one["visits"])
    assert found == pytest.approx(expected, abs=1e-3)


def test_what_is_published_is_enough_for_differences_and_one_episode(finished: Path, tmp_path: Path) -> None:
    publish(finished, tmp_path / "results")
    of_run, published = read(finished), read(tmp_path / "results")
    case = {"problem": "walks", "model": "mlp:8", "episodes": 3}
    assert over_test_episodes(published, case) == over_test_episodes(of_run, case)
    along = {
        (row["episodes"], row["seed"])
        for row in published.table.iter_rows(named=True)
        if "episode_values" in published.arrays(row["id"])
    }
    assert along == {(6, 0)}


def test_a_problem_that_lacks_an_extra_is_refused_before_anything_is_written(tmp_path: Path) -> None:

    whole = planned()
    lacking = replace(whole, problems={"walks": Walks(installed=False)})
    with pytest.raises(UsageError, match="extra `shoes`"):
        run(lacking, tmp_path / "run", quiet())
    assert not (tmp_path / "run").exists()


def test_settings_of_a_problem_make_it_another() -> None:
    usual, fewer = planned(), planned(test_episodes=7, max_steps=20)
    assert usual.cells.keys().isdisjoint(fewer.cells)
    assert vars(fewer.problems["walks"]) == {"test_episodes": 7, "max_steps": 20, "installed": True}
    with pytest.raises(UsageError, match="mountain-car has no test episodes to set"):
        plan("mountain-car", EXPERIMENTS["mountain-car"].settings("quick", test_episodes=5))
    with pytest.raises(UsageError, match="max_steps must be positive"):
        planned(max_steps=0)


def test_the_optimisers_epsilon_and_truncation_are_part_of_a_cell_only_where_they_are_set() -> None:
    cell = Cell(problem="walks", method="mc", model="mlp:8", episodes=2, seed=0, steps=3)
    assert not {"epsilon", "truncation"} & cell.config().keys()
    others = [replace(cell, epsilon=1e-4), replace(cell, epsilon=1e-8), replace(cell, truncation="zero")]
    assert len({one.id("data") for one in (cell, *others)}) == 4
    truncations = {c.method: c.truncation for c in planned(truncation="zero").cells.values()}
    assert truncations == {
        **{"mc": "zero", "mc-ensemble": "zero", "adaptive-td": "zero"},
        **{"td": None, "td-lambda:0.5": None},
    }
    with pytest.raises(UsageError, match="did you mean 'mask'"):
        planned(truncation="masks")


def test_truncation_reaches_the_method() -> None:
    cell = Cell(problem="walks", method="mc", model="mlp:8", episodes=2, seed=0, truncation="zero")
    assert build_method(cell) == MonteCarlo(truncation="zero")
    adaptive = build_method(replace(cell, method="adaptive-td", members=3, level=0.9))
    assert adaptive == AdaptiveTD(uncertainty=Ensemble(3, truncation="zero"), level=0.9)


def test_epsilon_changes_what_is_learned() -> None:
    group = planned(methods=("td",), epsilon=1e-4).groups[0]
    other = planned(methods=("td",), epsilon=10.0).groups[0]
    (one,), (two,) = measure(group), measure(other)
    assert one.log == two.log
    assert one.numbers["msve"] != two.numbers["msve"]


@pytest.mark.parametrize("name", ["chain", "labyrinth", "mountain-car"])
def test_results_that_were_published_before_have_the_same_cells(name: str) -> None:
    """New settings must not rename what was measured without them."""
    results = read(RESULTS / name)
    settings: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in results.settings.items()
    }
    again = plan(name, Settings(**settings))
    assert set(again.cells) == set(results.table["id"].to_list())
    assert again.config() == {**results.config, "settings": settings}


def test_a_fit_that_was_cut_short_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """What a group that was not stored has left behind is used, to the same end."""
    group = planned(methods=("mc", "td")).groups[0]
    measure(group, tmp_path)
    folder = tmp_path / checkpoint_folder(group)
    states = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert len(states) == 2
    again = measure(group, tmp_path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == states
    for one, other in zip(measure(group), again, strict=True):
        assert one.numbers == other.numbers


def test_checkpoints_are_removed_when_a_group_is_stored(finished: Path) -> None:
    assert list((finished / "checkpoints").iterdir()) == []


def test_a_group_has_a_folder_of_its_own_for_checkpoints() -> None:
    groups = planned().groups
    assert len({checkpoint_folder(group) for group in groups}) == len(groups)
    assert checkpoint_folder(groups[0]) == checkpoint_folder(planned().groups[0])
