"""Metrics against worked examples and their own promises."""

import numpy as np
import pytest

from adaptive_td import metrics
from adaptive_td.errors import UsageError
from adaptive_td.intervals import Interval


def test_msve_weights_states_as_told() -> None:
    values, truth = np.array([1.0, 2.0]), np.array([0.0, 0.0])
    assert metrics.msve(values, truth) == 2.5
    assert metrics.msve(values, truth, np.array([3.0, 1.0])) == 1.75


def test_two_rollouts_give_an_unbiased_squared_error() -> None:
    """X = 1, 3: the mean product of independent pairs is 3."""
    assert metrics.msve_from_rollouts(np.array([0.0]), np.array([[1.0, 3.0]])) == pytest.approx(3)
    with pytest.raises(UsageError, match="at least two"):
        metrics.msve_from_rollouts(np.array([0.0]), np.array([[1.0]]))


def test_rollout_noise_does_not_bias_the_squared_error() -> None:
    rng = np.random.default_rng(0)
    truth, values = rng.normal(size=20_000), np.zeros(20_000)
    returns = truth[:, None] + 5 * rng.normal(size=(20_000, 4))
    assert metrics.msve_from_rollouts(values, returns) == pytest.approx(1, abs=0.15)


def test_normalisations_of_one_two_four() -> None:
    scores = {"a": 1.0, "b": 2.0, "c": 4.0}
    assert metrics.normalise_by_worst(scores) == {"a": 0.25, "b": 0.5, "c": 1.0}
    assert metrics.normalise_min_max(scores) == pytest.approx({"a": 0.0, "b": 1 / 3, "c": 1.0})
    assert metrics.normalise_min_max({"a": 0.0, "b": 0.0}) == {"a": 0.0, "b": 0.0}
    assert metrics.regret(scores)["c"] == pytest.approx(np.log(4))


def test_interquartile_mean_of_one_to_eight() -> None:
    assert metrics.interquartile_mean(np.arange(1.0, 9.0)) == 4.5


def test_paired_difference_of_one_visit() -> None:
    one = np.array([1.0])
    difference = metrics.paired_difference(2 * one, 5 * one, 3 * one, np.array([0]))
    assert difference == (-3, -3, -3)


def test_paired_differences_see_through_noise_that_drowns_the_errors() -> None:
    """Errors of 1 and 1.5 under returns with a standard deviation of 10, in dependent episodes."""
    rng = np.random.default_rng(0)
    episode = np.repeat(np.arange(400), 25)
    truth = rng.normal(size=len(episode))
    returns = truth + 10 * np.repeat(rng.normal(size=400), 25)
    a, b = truth + rng.normal(size=len(episode)), truth + 1.5 * rng.normal(size=len(episode))
    difference = metrics.paired_difference(a, b, returns, episode)
    assert difference.low < 1 - 2.25 < difference.high < 0


def test_cluster_bootstrap_covers_at_its_level() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for k in range(200):
        shared = np.repeat(rng.normal(size=60), 5)
        estimate = metrics.cluster_bootstrap(shared, np.repeat(np.arange(60), 5), repeats=500, seed=k)
        hits += estimate.low < 0 < estimate.high
    assert 0.89 < hits / 200 < 0.985


def test_stratified_bootstrap_keeps_scenarios_apart() -> None:
    """Scenarios of very different scale but no spread within: the interval is a point."""
    scores = np.tile([1.0, 1000.0], (5, 1))
    assert metrics.stratified_bootstrap(scores, lambda s: float(s.mean()), repeats=50) == (
        500.5,
        500.5,
        500.5,
    )


def test_coverage_counts_open_intervals() -> None:
    interval = Interval(np.zeros(3), np.ones(3))
    assert metrics.coverage(interval, np.array([0.0, 0.5, 2.0])) == pytest.approx(1 / 3)


def test_the_noise_of_returns_is_found_where_episodes_share_states() -> None:
    """States differ in their means, returns scatter by 2 around them: Var(G | s) = 4 whatever the means."""
    rng = np.random.default_rng(0)
    state, episode = np.tile(np.arange(50), 40), np.repeat(np.arange(40), 50)
    returns = 100 * state + 2 * rng.normal(size=2000)
    noise, repeated = metrics.return_noise(returns, state, episode)
    assert repeated.all()
    assert noise == pytest.approx(4, rel=0.1)


def test_visits_within_one_episode_say_nothing_about_noise() -> None:
    """Two episodes, one of which sees state 0 twice: the pairs are (1, 3) and (2, 3), state 1 has none."""
    returns, state, episode = np.array([1.0, 2.0, 3.0, 9.0]), np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])
    noise, repeated = metrics.return_noise(returns, state, episode)
    assert repeated.tolist() == [True, True, True, False]
    assert noise == pytest.approx((4 / 2 + 1 / 2) / 2)
    assert metrics.return_noise(returns, np.arange(4), episode)[0] is None


def test_a_bootstrap_of_sums_is_that_of_their_rows() -> None:
    rng = np.random.default_rng(0)
    rows, cluster = rng.normal(size=60), rng.integers(7, size=60)
    sums = np.bincount(cluster, weights=rows, minlength=9)
    counts = np.bincount(cluster, minlength=9).astype(float)
    assert metrics.ratio_bootstrap(sums, counts) == metrics.cluster_bootstrap(rows, cluster)
