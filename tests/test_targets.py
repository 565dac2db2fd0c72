"""Returns and adaptive targets against worked examples, identities and limits."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from adaptive_td import targets
from adaptive_td.intervals import Interval

pytestmark = pytest.mark.usefixtures("float64")

# The worked episode: three rewards, values of its three states, γ = 0.9.
REWARDS = np.array([1.0, 2.0, 3.0])
NEXT_VALUES = np.array([1.5, 2.5, 0.0])
TERMINAL = np.array([0.9, 0.9, 0.0])
TRUNCATED = np.array([0.9, 0.9, 0.9])
LAST = np.array([False, False, True])
CUT_VALUES = np.array([1.5, 2.5, 4.0])
INTERVALS = Interval(np.array([4.0, 4.0, 2.5]), np.array([6.0, 5.0, 3.5]))


def close(actual: object, expected: list[float]) -> bool:
    return bool(np.allclose(np.asarray(actual), expected, atol=1e-6, rtol=0))


def test_monte_carlo_returns_sum_the_rewards_that_follow() -> None:
    assert close(targets.monte_carlo_returns(REWARDS, TERMINAL, LAST), [5.23, 4.7, 3])


def test_one_step_returns_are_td_targets() -> None:
    expected = [2.35, 4.25, 3]
    assert close(targets.n_step_returns(REWARDS, TERMINAL, NEXT_VALUES, LAST, 1), expected)
    assert close(targets.lambda_returns(REWARDS, TERMINAL, NEXT_VALUES, LAST, 0.0), expected)


def test_two_step_return_of_the_first_state() -> None:
    assert close(targets.n_step_returns(REWARDS, TERMINAL, NEXT_VALUES, LAST, 2)[0], [4.825])


def test_lambda_returns_mix_all_horizons() -> None:
    assert close(targets.lambda_returns(REWARDS, TERMINAL, NEXT_VALUES, LAST, 0.5), [3.68875, 4.475, 3])


@pytest.mark.parametrize(("lam", "expected"), [(0.5, [4.41775, 6.095, 6.6]), (1.0, [8.146, 7.94, 6.6])])
def test_a_truncated_end_bootstraps(lam: float, expected: list[float]) -> None:
    assert close(targets.lambda_returns(REWARDS, TRUNCATED, CUT_VALUES, LAST, lam), expected)


def test_a_terminal_step_ignores_the_value_that_follows_even_if_it_is_nan() -> None:
    unknown = np.array([1.5, 2.5, np.nan])
    assert close(targets.lambda_returns(REWARDS, TERMINAL, unknown, LAST, 0.5), [3.68875, 4.475, 3])
    assert close(targets.n_step_returns(REWARDS, TERMINAL, unknown, LAST, 9), [5.23, 4.7, 3])


@pytest.mark.parametrize(("fallback", "first"), [("midpoint", 5.0), ("endpoint", 4.0), ("return", 5.23)])
def test_targets_outside_the_interval_are_replaced(fallback: targets.Fallback, first: float) -> None:
    td = targets.n_step_returns(REWARDS, TERMINAL, NEXT_VALUES, LAST, 1)
    own = targets.monte_carlo_returns(REWARDS, TERMINAL, LAST)
    assert close(targets.adaptive_targets(td, INTERVALS, fallback=fallback, returns=own), [first, 4.25, 3])


def test_the_interval_is_open_so_a_target_on_its_end_is_replaced() -> None:
    assert close(
        targets.adaptive_targets(jnp.array([4.0]), Interval(jnp.array([4.0]), jnp.array([8.0]))), [6]
    )


def test_midpoint_replacement_cycles_where_endpoint_replacement_settles() -> None:
    """A self-loop with r = 1, γ = 0.9 (v = 10) and the interval (4, 8)."""
    loop = Interval(jnp.asarray(4.0), jnp.asarray(8.0))
    expected = [6, 6.4, 6.76, 7.084, 7.3756, 7.63804, 7.874236]
    value, seen = jnp.asarray(6.0), []
    for _ in range(14):
        seen.append(float(value))
        value = targets.adaptive_targets(1 + 0.9 * value, loop)
    assert close(seen, expected * 2)
    for _ in range(200):
        value = targets.adaptive_targets(1 + 0.9 * value, loop, fallback="endpoint")
    assert close(value, [8])


def test_checking_each_sample_censors_rare_rewards_and_checking_the_mean_does_not() -> None:
    """Reward 10 once in ten, else 0, then the end: v = 1, and both interval and midpoint are right."""
    rewards = np.array([10.0] + [0.0] * 9)
    bounds = Interval(np.full(10, -0.5), np.full(10, 2.5))
    assert close(targets.adaptive_targets(rewards, bounds).mean(), [0.1])
    mean = np.full(10, rewards.mean())
    assert close(targets.adaptive_targets(rewards, bounds, tested=mean).mean(), [1])
    value = np.ones(10)
    assert close(targets.adaptive_targets(rewards, bounds, tested=value).mean(), [1])


def test_adaptive_n_step_extends_until_the_target_is_accepted() -> None:
    chosen, n = targets.adaptive_n_step_returns(REWARDS, TERMINAL, NEXT_VALUES, LAST, INTERVALS, n_max=3)
    assert close(chosen, [4.825, 4.25, 3])
    assert np.asarray(n).tolist() == [2, 1, 1]


@pytest.mark.parametrize(("lam", "expected"), [(0.0, [4.825, 4.25, 3]), (0.5, [5.0275, 4.475, 3])])
def test_adaptive_lambda_returns_stop_bootstrapping_where_overruled(
    lam: float, expected: list[float]
) -> None:
    result = targets.adaptive_lambda_returns(REWARDS, TERMINAL, NEXT_VALUES, LAST, lam, INTERVALS)
    assert close(result.targets, expected)


def test_adaptive_advantages_are_adaptive_returns_less_the_value() -> None:
    values = np.array([0.5, 1.5, 2.5])
    everything = Interval(np.full(3, -np.inf), np.full(3, np.inf))
    for interval, expected in ((INTERVALS, [4.5275, 2.975, 0.5]), (everything, [3.18875, 2.975, 0.5])):
        result = targets.adaptive_lambda_returns(REWARDS, TERMINAL, NEXT_VALUES, LAST, 0.5, interval)
        assert close(result.returns - values, expected)


# Properties over arbitrary logs.


Log = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Any log of twelve transitions: one shape, so that nothing is compiled twice."""
    steps = 12
    cuts = draw(st.sets(st.integers(1, steps - 1), max_size=4))
    lengths = np.diff([0, *sorted(cuts), steps])
    number = st.floats(-10, 10, allow_nan=False, width=32)
    rewards = np.array(draw(st.lists(number, min_size=steps, max_size=steps)), float)
    values = np.array(draw(st.lists(number, min_size=steps, max_size=steps)), float)
    discounts = np.array(draw(st.lists(st.floats(0.1, 1), min_size=steps, max_size=steps)))
    last = np.zeros(steps, bool)
    last[np.cumsum(lengths) - 1] = True
    ended = np.array(draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths))))
    discounts[np.cumsum(lengths)[ended] - 1] = 0
    return rewards, discounts, values, last


def by_hand(
    rewards: np.ndarray, discounts: np.ndarray, values: np.ndarray, last: np.ndarray, n: int
) -> list[float]:
    """The n-step return written out as a sum."""
    out = []
    for t in range(len(rewards)):
        total, weight, k = 0.0, 1.0, t
        for _ in range(n):
            total += weight * rewards[k]
            weight *= discounts[k]
            if last[k]:
                break
            k += 1
        else:
            k -= 1
        out.append(total + weight * values[k])
    return out


@settings(deadline=None, max_examples=40)
@given(logs(), st.integers(1, 9))
def test_n_step_returns_equal_the_sum_written_out(log: Log, n: int) -> None:
    assert np.allclose(targets.n_step_returns(*log, n), by_hand(*log, n))


@settings(deadline=None, max_examples=40)
@given(logs(), st.floats(0, 0.99))
def test_lambda_returns_are_the_geometric_mixture_of_n_step_returns(log: Log, lam: float) -> None:
    horizon = len(log[0])
    mixture = lam ** (horizon - 1) * np.array(by_hand(*log, horizon))
    for n in range(1, horizon):
        mixture += (1 - lam) * lam ** (n - 1) * np.array(by_hand(*log, n))
    assert np.allclose(targets.lambda_returns(*log, lam), mixture)


@settings(deadline=None, max_examples=20)
@given(logs(), st.floats(0, 1))
def test_the_sequential_and_the_parallel_recursion_agree(log: Log, lam: float) -> None:
    rewards, discounts, _, last = map(jnp.asarray, log)
    slope = jnp.where(last, 0.0, discounts * lam)
    assert np.allclose(targets._one_by_one(rewards, slope), targets._in_parallel(rewards, slope))


@settings(deadline=None, max_examples=20)
@given(logs(), st.floats(0, 1))
def test_adaptive_lambda_returns_have_td_lambda_and_monte_carlo_as_limits(log: Log, lam: float) -> None:
    infinite, nowhere = np.full(len(log[0]), np.inf), np.zeros(len(log[0]))
    free = targets.adaptive_lambda_returns(*log, lam, Interval(-infinite, infinite))
    assert np.allclose(free.targets, targets.lambda_returns(*log, lam))
    bound = targets.adaptive_lambda_returns(*log, lam, Interval(nowhere, nowhere))
    assert np.allclose(bound.returns, targets.lambda_returns(*log, 1.0))
    assert np.all(bound.targets == 0)


def test_targets_can_be_compiled() -> None:
    compiled = jax.jit(targets.lambda_returns)(REWARDS, TERMINAL, NEXT_VALUES, LAST, 0.5)
    assert close(compiled, [3.68875, 4.475, 3])


def test_a_window_of_one_step_is_td_and_one_beyond_the_end_is_the_whole_lambda_return() -> None:
    whole = targets.lambda_returns(REWARDS, TRUNCATED, CUT_VALUES, LAST, 0.5)
    for window, expected in ((1, REWARDS + TRUNCATED * CUT_VALUES), (3, whole), (7, whole)):
        at = np.minimum(np.arange(3)[:, None] + np.arange(window), 2)
        rewards, discounts, values = (jnp.asarray(x)[at] for x in (REWARDS, TRUNCATED, CUT_VALUES))
        found = targets.lambda_window(rewards, discounts, values, jnp.asarray(LAST)[at], 0.5)
        assert close(found, list(np.asarray(expected)))


@pytest.mark.parametrize(("lam", "expected"), [(0.25, 4), (0.5, 7), (0.75, 16), (0.9, 40), (0.0, 1)])
def test_windows_end_where_the_tail_has_a_hundredth_of_the_weight(lam: float, expected: int) -> None:
    assert targets.window_size(0.99, lam) == expected
    assert targets.window_size(0.0, lam) == 1
