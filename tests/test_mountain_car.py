"""Mountain Car: Gymnasium's own environment is the reference."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from adaptive_td.errors import DataError
from adaptive_td.problems import MountainCar
from adaptive_td.problems.mountain_car import step


def test_dynamics_are_those_of_gymnasium_step_for_step() -> None:
    env = gymnasium.make("MountainCar-v0").unwrapped
    random = np.random.default_rng(0)
    goals = 0
    for episode in range(30):
        env.reset(seed=episode)
        start = random.uniform([-1.2, -0.07], [0.6, 0.07])
        env.state = start  # type: ignore[attr-defined]
        states = start[None]
        for _ in range(200):
            action = int(random.integers(3)) if episode % 2 else (2 if states[0, 1] >= 0 else 0)
            observation, reward, terminated, truncated, _ = env.step(action)
            states, arrived = step(states, np.array([action]))
            assert states[0] == pytest.approx(env.state, rel=1e-12, abs=1e-14)  # type: ignore[attr-defined]
            assert states[0].astype(np.float32) == pytest.approx(observation, rel=2e-7, abs=1e-9)
            assert (reward, terminated, truncated) == (-1.0, arrived[0], False)
            if terminated:
                goals += 1
                break
    assert goals > 10


def test_ends_of_the_track_are_those_of_gymnasium() -> None:
    env = gymnasium.make("MountainCar-v0").unwrapped
    env.reset(seed=0)
    starts = [[-1.19, -0.06], [-1.2, 0.0], [0.59, 0.05], [0.55, -0.001], [0.49, 0.07], [0.5, -0.07]]
    for start in starts:
        for action in range(3):
            env.state = tuple(start)  # type: ignore[attr-defined]
            _, _, terminated, _, _ = env.step(action)
            reached, arrived = step(np.array([start]), np.array([action]))
            assert reached[0] == pytest.approx(env.state, rel=1e-12, abs=1e-15)  # type: ignore[attr-defined]
            assert arrived[0] == terminated


@pytest.mark.parametrize("gym_start", [False, True])
def test_the_first_episodes_of_any_number_are_the_same(gym_start: bool) -> None:
    problem = MountainCar(gym_start=gym_start)
    many, few = problem.episodes(80, seed=1), problem.episodes(5, seed=1)
    first = many.select(range(5))
    assert np.array_equal(first.states, few.states)
    assert np.array_equal(first.lengths, few.lengths)


def test_every_step_costs_one_and_every_episode_ends_at_the_goal() -> None:
    episodes = MountainCar().episodes(200, seed=0)
    assert np.all(episodes.rewards == -1)
    assert episodes.ended.all()
    last = episodes.next_observations[episodes.last]
    assert np.all((last[:, 0] >= 0.5) & (last[:, 1] >= 0))
    before = episodes.next_observations[~episodes.last]
    assert not np.any((before[:, 0] >= 0.5) & (before[:, 1] >= 0))


def test_logged_states_follow_the_dynamics_of_one_of_the_actions() -> None:
    episodes = MountainCar().episodes(20, seed=2)
    here = episodes.observations.astype(np.float64)
    gaps = np.stack(
        [
            np.abs(step(here, np.full(len(here), action))[0] - episodes.next_observations)
            for action in range(3)
        ]
    )
    taken = gaps.max(axis=2).argmin(axis=0)
    assert gaps.max(axis=2).min(axis=0).max() < 1e-6
    greedy = np.where(here[:, 1] >= 0, 2, 0)
    free = np.abs(here[:, 1]) < 0.065  # where the limit of speed does not make actions look alike
    assert np.mean((taken == greedy)[free]) == pytest.approx(0.8 + 0.2 / 3, abs=0.03)


def test_the_policy_pushes_with_the_velocity_and_explores_one_time_in_five() -> None:
    uniforms = (np.arange(3000) + 0.5) / 3000
    for velocity, push in ((0.01, 2), (0.0, 2), (-0.01, 0)):
        states = np.tile([-0.5, velocity], (3000, 1))
        shares = np.bincount(MountainCar().actions(states, uniforms), minlength=3) / 3000
        expected = np.full(3, 0.2 / 3)
        expected[push] += 0.8
        assert shares == pytest.approx(expected, abs=1e-3)
        assert np.all(MountainCar(epsilon=0.0).actions(states, uniforms) == push)


def test_starts_fill_the_box_or_are_those_of_gymnasium() -> None:
    episodes = MountainCar().episodes(2000, seed=3)
    starts = episodes.states[episodes.offsets[:-1] + np.arange(2000)]
    share = (starts - np.array([-1.2, -0.07])) / np.array([1.8, 0.14])
    assert share.mean(axis=0) == pytest.approx([0.5, 0.5], abs=4 * 0.289 / np.sqrt(2000))
    assert share.var(axis=0) == pytest.approx([1 / 12, 1 / 12], rel=0.1)
    episodes = MountainCar(gym_start=True).episodes(200, seed=3)
    starts = episodes.states[episodes.offsets[:-1] + np.arange(200)]
    assert np.all((starts[:, 0] >= -0.6) & (starts[:, 0] <= -0.4) & (starts[:, 1] == 0))


def test_a_car_that_never_arrives_is_truncated_and_not_terminated() -> None:
    episodes = MountainCar(gym_start=True, longest=300, epsilon=1.0).episodes(20, seed=0)
    assert np.all(episodes.lengths[~episodes.ended] == 300)
    assert not episodes.ended.all()


def test_true_values_lie_where_they_must_and_are_exact_next_to_the_goal() -> None:
    problem = MountainCar()
    truth = problem.true_values()
    x, v = problem.grid().T
    assert np.all((truth.values <= -1) & (truth.values > -100))
    sure = (x + v > 0.52) & (v > 0.004)
    assert sure.sum() > 20
    assert np.all(truth.values[sure] == -1)
    assert np.all(truth.standard_errors[sure] == 0)


def test_true_values_are_those_of_gymnasium_itself() -> None:
    problem = MountainCar()
    truth = problem.true_values()
    env = gymnasium.make("MountainCar-v0").unwrapped
    env.reset(seed=0)
    random = np.random.default_rng(1)
    scores = []
    for row in random.choice(len(truth.values), 12, replace=False):
        returns = []
        for _ in range(40):
            env.state = problem.grid()[row].astype(np.float64)  # type: ignore[attr-defined]
            total, weight, terminated = 0.0, 1.0, False
            while not terminated:
                greedy = 2 if env.state[1] >= 0 else 0  # type: ignore[attr-defined]
                action = int(random.integers(3)) if random.random() < 0.2 else greedy
                _, reward, terminated, _, _ = env.step(action)
                total += weight * float(reward)
                weight *= 0.99
            returns.append(total)
        error = np.hypot(np.std(returns, ddof=1) / np.sqrt(40), truth.standard_errors[row])
        scores.append((np.mean(returns) - truth.values[row]) / max(error, 1e-3))
    assert np.abs(scores).max() < 4
    assert np.sqrt(np.mean(np.square(scores))) < 1.8


def test_returns_are_discounted_counts_of_steps() -> None:
    problem = MountainCar(epsilon=0.0)
    episodes = problem.episodes(1, seed=0)
    start = episodes.states[:1].astype(np.float32)
    expected = -(1 - 0.99 ** int(episodes.lengths[0])) / 0.01
    assert problem.returns(start, seed=0)[0] == pytest.approx(expected, rel=1e-12)


def test_the_start_does_not_change_what_states_are_worth() -> None:
    assert MountainCar(gym_start=True).digest() == MountainCar().digest()
    assert MountainCar(epsilon=0.1).digest() != MountainCar().digest()


def test_settings_out_of_range_are_refused_by_name() -> None:
    with pytest.raises(DataError, match="epsilon"):
        MountainCar(epsilon=1.5)
    with pytest.raises(DataError, match="discount"):
        MountainCar(discount=1.0)
