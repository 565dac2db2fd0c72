"""The chain: estimators against worked examples, and against their expected errors in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from adaptive_td.errors import DataError
from adaptive_td.problems import Chain
from adaptive_td.problems import chain_theory as theory
from adaptive_td.problems.chain import Estimates, Log

SMALL = Chain(k=2, p=1)
THREE = Log(np.array([[0, 0, 1]]), np.array([[1.0, 3.0, 8.0]]))


def flat(estimates: Estimates) -> list[float]:
    """q, b1, b2, s1, s2, s0 of the only repeat."""
    return [estimates.q[0], *estimates.b[0], *estimates.s[0], estimates.s0[0]]


# Three episodes, (s1, 1), (s1, 3), (s2, 8), worked out by hand


def test_monte_carlo_averages_what_followed_and_td_reads_everything_off_q() -> None:
    assert flat(SMALL.monte_carlo(THREE)) == pytest.approx([4, 2, 8, 2, 8, 4])
    assert flat(SMALL.td(THREE)) == pytest.approx([4] * 6)


@pytest.mark.parametrize(
    ("level", "fallback", "check", "expected"),
    [
        (0.5, "midpoint", "mean", [4, 2, 4, 2, 4, 8 / 3]),
        (0.95, "midpoint", "mean", [4, 4, 4, 4, 4, 4]),
        (0.5, "endpoint", "mean", [4, 3, 4, 3, 4, 10 / 3]),
        (0.5, "midpoint", "sample", [11 / 3, 2, 11 / 3, 2, 11 / 3, 35 / 9]),
    ],
)
def test_adaptive_td_replaces_targets_that_leave_their_interval(
    level: float, fallback: str, check: str, expected: list[float]
) -> None:
    estimates = SMALL.adaptive_td(THREE, level=level, fallback=fallback, check=check)  # type: ignore[arg-type]
    assert flat(estimates) == pytest.approx(expected, abs=1e-6)


def test_intervals_are_students_and_infinite_for_a_single_visit() -> None:
    lower, upper = SMALL.intervals(THREE, level=0.5)
    assert lower[0] == pytest.approx([1, -np.inf, 1, -np.inf, 4 - 0.8164966 * np.sqrt(13 / 3)], rel=1e-6)
    assert upper[0] == pytest.approx([3, np.inf, 3, np.inf, 4 + 0.8164966 * np.sqrt(13 / 3)], rel=1e-6)


def test_bias_is_added_at_b1_and_td_hands_it_to_what_lies_behind() -> None:
    biased = Chain(k=2, p=1, bias=0.5)
    assert flat(biased.monte_carlo(THREE)) == pytest.approx([4, 2.5, 8, 2, 8, 4])
    assert flat(biased.td(THREE)) == pytest.approx([4, 4.5, 4, 4.5, 4, 13 / 3])


@pytest.mark.parametrize("check", ["mean", "sample"])
def test_adaptive_td_is_td_at_level_one_and_monte_carlo_at_level_zero(check: str) -> None:
    chain = Chain(k=4, p=2, mu=1.0)
    log = chain.log(40, repeats=50, seed=0)
    whole = chain.adaptive_td(log, level=1.0, check=check)  # type: ignore[arg-type]
    empty = chain.adaptive_td(log, level=0.0, check=check)  # type: ignore[arg-type]
    mean = chain.monte_carlo(log)
    assert whole.s == pytest.approx(chain.td(log).s, abs=1e-6)
    several = np.stack([np.bincount(row, minlength=4) for row in log.branches]) > 1
    assert empty.s[several] == pytest.approx(mean.s[several], abs=1e-5)
    assert empty.q == pytest.approx(mean.q, abs=1e-5)


def test_states_that_no_episode_visits_stay_at_zero() -> None:
    chain = Chain(k=3, p=1, mu=5.0)
    log = Log(np.array([[1, 1, 1]]), np.array([[4.0, 5.0, 6.0]]))
    for estimates in (chain.monte_carlo(log), chain.td(log), chain.adaptive_td(log)):
        assert estimates.s[0] == pytest.approx([0, 5, 0])
        assert chain.msve(estimates) == pytest.approx(50 / 3)


# As a problem


def test_episodes_run_from_s0_to_q_and_the_first_of_any_number_are_the_same() -> None:
    chain = Chain(k=4, p=1, mu=2.0)
    many, few = chain.episodes(100, seed=0), chain.episodes(7, seed=0)
    first = many.select(range(7))
    assert np.array_equal(first.states, few.states)
    assert np.array_equal(first.rewards, few.rewards)
    paths = many.states.reshape(100, 5)
    assert np.all(paths[:, 0] == 0)
    assert np.array_equal(np.unique(paths[:, 1]), [1, 2, 3, 4])
    assert np.array_equal(paths[:, 2], np.where(paths[:, 1] == 1, 5, 6))
    assert np.all(paths[:, 3] == 7)
    rewards = many.rewards.reshape(100, 4)
    assert np.all(rewards[:, :3] == 0)
    assert np.array_equal(rewards[:, 3], chain.log(100, seed=0).rewards[0].astype(np.float32))
    assert many.ended.all()


def test_true_values_are_mu_and_known_exactly() -> None:
    truth = Chain(k=3, p=1, mu=2.5).true_values()
    assert np.array_equal(truth.values, [2.5] * 3)
    assert np.array_equal(truth.standard_errors, [0] * 3)
    assert len(Chain(k=3, p=1).grid()) == 3


def test_a_chain_that_does_not_exist_is_refused() -> None:
    with pytest.raises(DataError, match="p: "):
        Chain(k=3, p=4)
    with pytest.raises(DataError, match="sigma"):
        Chain(sigma=-1.0)


# Closed forms

TABLE = [  # episodes, bias, MC, TD, Adaptive TD midpoint, endpoint (by simulation, ± 2e-4)
    (20, 0.0, 0.506773, 0.043921, 0.065917, 0.0495),
    (100, 0.0, 0.111524, 0.010000, 0.029575, 0.0114),
    (20, 0.5, 0.506773, 0.153724, 0.17166, 0.1548),
    (84, 0.5, 0.13632, 0.13689, 0.13986, 0.1217),
    (100, 0.5, 0.111524, 0.134996, 0.12891, 0.1163),
    (1000, 0.5, 0.010092, 0.126000, 0.00669, 0.0254),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"n{row[0]}-bias{row[1]}")
def test_closed_forms_have_the_tabulated_values(row: tuple[int, float, float, float, float, float]) -> None:
    episodes, bias, mc, td, midpoint, endpoint = row
    chain = Chain(bias=bias)
    assert theory.monte_carlo_msve(chain, episodes) == pytest.approx(mc, abs=6e-6)
    assert theory.td_msve(chain, episodes) == pytest.approx(td, abs=6e-6)
    assert theory.adaptive_td_msve(chain, episodes) == pytest.approx(midpoint, abs=1e-5)
    assert theory.adaptive_td_msve(chain, episodes, fallback="endpoint") == pytest.approx(
        endpoint, abs=2.5e-4
    )


def test_single_terms_have_their_known_values() -> None:
    assert theory.mean_inverse_visits(100, 10) == pytest.approx(0.111524, abs=5e-7)
    assert theory.false_switch_probability(10, 100) == pytest.approx(0.040923, abs=5e-7)
    ten = np.array([10])
    assert theory.adaptive_td_error(ten, 100)[0] == pytest.approx(0.028079, abs=5e-7)
    assert theory.adaptive_td_error(ten, 100, bias=0.5)[0] == pytest.approx(0.22774, abs=5e-6)


def test_quadrature_equals_the_beta_function_where_there_is_no_bias() -> None:
    visits, episodes = np.arange(2, 60), 100
    quantile = stats.t.ppf(0.975, visits - 1)
    squared = quantile**2 / (1 - visits / episodes)
    kept = special.betainc(1.5, (visits - 1) / 2, squared / (squared + visits - 1))
    expected = 1 / episodes + (1 / visits - 1 / episodes) * (1 - kept)
    assert theory.adaptive_td_error(visits, episodes) == pytest.approx(expected, abs=1e-7)


def test_closed_forms_reach_their_limits() -> None:
    chain = Chain(bias=0.5, mu=2.0)
    for fallback in ("midpoint", "endpoint"):
        whole = theory.adaptive_td_msve(chain, 50, level=1 - 1e-13, fallback=fallback)  # type: ignore[arg-type]
        assert whole == pytest.approx(theory.td_msve(chain, 50), rel=1e-6)
        everything = theory.adaptive_td_error(np.array([50]), 50, fallback=fallback)  # type: ignore[arg-type]
        assert everything == pytest.approx([1 / 50])
    several = theory.adaptive_td_error(np.array([7]), 50, bias=0.5, level=0.0)
    assert several == pytest.approx([1 / 7])
    assert theory.crossing(Chain(bias=0.5)) == pytest.approx(72)
    assert theory.crossing(Chain()) == np.inf


def test_monte_carlo_overtakes_td_at_84_episodes_and_adaptive_td_then_loses_to_both() -> None:
    chain = Chain(bias=0.5)
    assert theory.monte_carlo_msve(chain, 83) > theory.td_msve(chain, 83)
    assert theory.monte_carlo_msve(chain, 84) < theory.td_msve(chain, 84) < theory.adaptive_td_msve(chain, 84)
    both = min(theory.monte_carlo_msve(chain, 1000), theory.td_msve(chain, 1000))
    assert theory.adaptive_td_msve(chain, 1000) < both


# Theory against simulation


@pytest.mark.parametrize("bias", [0.0, 0.5])
@pytest.mark.parametrize("episodes", [20, 100, 1000])
def test_measured_errors_are_within_three_standard_errors_of_theory(episodes: int, bias: float) -> None:
    chain = Chain(bias=bias)
    log = chain.log(episodes, repeats=4000, seed=7)
    measured = {
        "MC": (chain.monte_carlo(log), theory.monte_carlo_msve(chain, episodes)),
        "TD": (chain.td(log), theory.td_msve(chain, episodes)),
        "midpoint": (chain.adaptive_td(log), theory.adaptive_td_msve(chain, episodes)),
        "endpoint": (
            chain.adaptive_td(log, fallback="endpoint"),
            theory.adaptive_td_msve(chain, episodes, fallback="endpoint"),
        ),
    }
    for name, (estimates, expected) in measured.items():
        errors = chain.msve(estimates)
        assert abs(errors.mean() - expected) < 3 * errors.std(ddof=1) / np.sqrt(len(errors)), name


def test_unvisited_states_err_by_mu_squared_in_theory_and_in_simulation() -> None:
    chain = Chain(k=10, p=5, mu=3.0)
    log = chain.log(12, repeats=4000, seed=1)
    for estimates, expected in (
        (chain.monte_carlo(log), theory.monte_carlo_msve(chain, 12)),
        (chain.td(log), theory.td_msve(chain, 12)),
    ):
        errors = chain.msve(estimates)
        assert abs(errors.mean() - expected) < 3 * errors.std(ddof=1) / np.sqrt(len(errors))


def test_an_unbiased_target_is_replaced_as_often_as_theory_says() -> None:
    chain = Chain(k=10, p=5)
    random = np.random.default_rng(0)
    branches = np.tile(np.repeat(np.arange(10), 10), (4000, 1))
    log = Log(branches, random.normal(size=branches.shape))
    lower, upper = chain.intervals(log)
    target = chain.td(log).q[:, None]
    outside = (target <= lower[:, :10]) | (target >= upper[:, :10])
    expected = theory.false_switch_probability(10, 100)
    share = outside.mean(axis=1)
    assert abs(share.mean() - expected) < 3 * share.std() / np.sqrt(len(share))
