"""True values: identities they must satisfy, and a second method."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from adaptive_td.errors import DataError
from adaptive_td.problems import PROBLEMS, Labyrinth, named, true_values
from adaptive_td.problems.fine_grid import solve
from adaptive_td.problems.true_values import PACKAGED, Simulated, TrueValues, estimate, packaged_path

MAPS = [Labyrinth.map(number) for number in range(6)]
every_map = pytest.mark.parametrize("labyrinth", MAPS, ids=lambda labyrinth: labyrinth.name)


def test_every_packaged_file_of_true_values_is_up_to_date_and_precise_enough() -> None:
    problems = [problem for problem in map(named, PROBLEMS) if isinstance(problem, Simulated)]
    paths = {packaged_path(problem) for problem in problems}
    assert paths == set(PACKAGED.iterdir())
    for problem in problems:
        truth = problem.true_values()
        assert len(truth.values) == len(problem.grid())
        assert truth.relative_error < 0.005


@every_map
def test_true_values_add_up_to_the_reward_of_the_whole_map(labyrinth: Labyrinth) -> None:
    # A step from s to s' is as likely as one back, so the uniform distribution is stationary, and the mean of
    # v = r + γ' E[v(s')] over the map is that of r / (1 - γ').
    area = sum(np.pi * radius**2 for _, _, radius in labyrinth.discs)
    expected = 30 * area / (400 * 300) / (1 - labyrinth.effective_discount)
    assert labyrinth.true_values().values.mean() == pytest.approx(expected, rel=0.005)


def test_what_can_never_reach_a_disc_is_worth_exactly_nothing() -> None:
    x, y = MAPS[2].grid().T
    truth = MAPS[2].true_values()
    assert np.all(truth.values[y > 150] == 0)
    assert np.all(truth.standard_errors[y > 150] == 0)
    assert np.all(truth.values[(y < 150) & (abs(x - 200) < 100)] > 0)
    x, y = MAPS[3].grid().T
    locked = (abs(x - 200) < 50) & (abs(y - 150) < 50)
    assert np.all(MAPS[3].true_values().values[locked] == 0)
    assert np.all(MAPS[3].true_values().values[~locked] > 0)


@pytest.mark.parametrize(
    ("number", "turn"), [(0, "x"), (0, "y"), (2, "x"), (3, "y"), (4, "xy"), (5, "x")], ids=str
)
def test_symmetric_maps_have_symmetric_values(number: int, turn: str) -> None:
    labyrinth = MAPS[number]
    truth = labyrinth.true_values()
    axes = tuple({"x": 1, "y": 0}[axis] for axis in turn)
    values, errors = (a.reshape(labyrinth.grid_shape) for a in (truth.values, truth.standard_errors))
    gap = values - np.flip(values, axes)
    error = np.hypot(errors, np.flip(errors, axes))
    z = gap[error > 0] / error[error > 0]
    assert np.abs(z).max() < 5
    assert 0.9 < np.sqrt(np.mean(z**2)) < 1.1


@every_map
def test_rollouts_and_the_fine_grid_agree_away_from_walls(labyrinth: Labyrinth) -> None:
    truth = labyrinth.true_values()
    away = labyrinth.wall_distance(labyrinth.grid()) > 15
    gap = np.abs(truth.values - solve(labyrinth, cells=(1, 3), angles=120))[away]
    assert np.all(gap < 0.005 * truth.values.max() + 4 * truth.standard_errors[away])


def test_true_values_of_a_new_map_are_estimated_once_and_then_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(true_values, "PILOT", 64)
    labyrinth = Labyrinth(((200, 0, 200, 300),), ((100, 150, 60),), discount=0.5)
    estimated = labyrinth.true_values()
    assert np.all(estimated.values[labyrinth.grid()[:, 0] > 200] == 0)
    assert estimated.values.max() == pytest.approx(30 / (1 - labyrinth.effective_discount), rel=1e-3)
    monkeypatch.setattr(true_values, "estimate", None)
    again = Labyrinth(labyrinth.walls, labyrinth.discs, "another name", discount=0.5).true_values()
    assert np.array_equal(again.values, estimated.values)
    assert np.array_equal(again.rollouts, estimated.rollouts)
    assert (again.seed, again.digest) == (estimated.seed, labyrinth.digest())


def test_a_changed_map_has_another_digest() -> None:
    changed = Labyrinth(((200.0, 0.0, 200.0, 221.0),), MAPS[1].discs)
    assert changed.digest() != MAPS[1].digest()
    assert Labyrinth(((200.0, 0.0, 200.0, 220.0),), MAPS[1].discs).digest() == MAPS[1].digest()


def test_a_damaged_file_of_true_values_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken.npz"
    for damaged in (packaged_path(MAPS[0]).read_bytes()[:500], b"", b"something else"):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="not a file of true values"):
            TrueValues.load(path)


def test_estimates_are_unbiased_and_as_precise_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(true_values, "PILOT", 128)
    labyrinth = Labyrinth(MAPS[1].walls, MAPS[1].discs, discount=0.8)
    one, two = (estimate(labyrinth, relative_error=0.01, seed=seed) for seed in (0, 1))
    error = np.hypot(one.standard_errors, two.standard_errors)
    z = (one.values - two.values)[error > 0] / error[error > 0]
    assert 0.85 < np.sqrt(np.mean(z**2)) < 1.15
    assert max(one.relative_error, two.relative_error) < 0.015
    assert not np.array_equal(one.values, two.values)
    assert np.array_equal(one.values, estimate(labyrinth, relative_error=0.01, seed=0).values)


def test_a_returned_sum_without_ends_has_the_mean_of_one_with_ends() -> None:
    labyrinth = Labyrinth((), ((200, 150, 40),), discount=0.99, end_probability=0.05)
    episodes = labyrinth.episodes(4000, seed=0)
    weights = 0.99**episodes.step * episodes.rewards
    returns = np.add.reduceat(weights, episodes.offsets[:-1])
    starts = episodes.states[episodes.offsets[:-1] + np.arange(len(episodes))]
    folded = labyrinth.returns(starts, seed=0)
    assert folded.var() < returns.var()
    gap = folded - returns
    assert abs(gap.mean()) < 4 * gap.std() / np.sqrt(len(gap))
