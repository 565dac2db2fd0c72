"""Every method against theory: exact values, limits, and the identities between methods."""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
import pytest

import adaptive_td as atd
from adaptive_td.methods import METHODS, Check, Method, refresh_interval, refresh_is_dear
from adaptive_td.rows import prepare
from adaptive_td.tasks import Task, bootstrap_visits, monte_carlo_rows

NEEDED: dict[str, dict[str, object]] = {"n-step": {"n": 3}, "td-lambda": {"lam": 0.5}}
OURS = {name: make for name, make in METHODS.items() if make.__module__.startswith("adaptive_td.")}
"""Without what test plugins register: some of those are broken on purpose."""
EVERY_METHOD = [make(**NEEDED.get(name, {})) for name, make in OURS.items()]
KEY = jax.random.key(0)
QUICK = atd.Training(steps=4000, learning_rate=5e-3)


def corridor() -> tuple[atd.Episodes, np.ndarray]:
    """Five states passed in order with reward 1 each, ten times from every start: v = 1 + γ v(next)."""
    starts = [*range(5)] * 10
    episodes = atd.Episodes.from_lists(
        [np.arange(s, 6) for s in starts], [np.ones(5 - s) for s in starts], [True] * 50
    )
    return episodes, np.array([sum(0.9**k for k in range(5 - s)) for s in range(5)])


@pytest.mark.parametrize("method", EVERY_METHOD, ids=repr)
def test_every_method_recovers_a_deterministic_chain(method: Method) -> None:
    episodes, truth = corridor()
    value = atd.fit(method, episodes, atd.Table(6), discount=0.9, key=KEY, training=QUICK)
    assert np.allclose(value(np.arange(5)), truth, atol=1e-3)


@pytest.mark.parametrize("method", EVERY_METHOD, ids=repr)
def test_every_method_fits_a_network_to_it_too(method: Method) -> None:
    """With Adam's usual step: larger ones let it jump now and then, long after the loss is 0."""
    training = atd.Training(steps=8000)
    episodes, truth = corridor()
    vectors = dataclasses.replace(episodes, states=episodes.states[:, None])
    value = atd.fit(method, vectors, atd.MLP((32,)), discount=0.9, key=KEY, training=training)
    assert np.allclose(value(np.arange(5)[:, None]), truth, atol=0.02)


def a_and_b() -> atd.Episodes:
    """The eight episodes by which Sutton and Barto tell Monte Carlo from TD: A0B0, six times B1, B0."""
    return atd.Episodes.from_lists(
        [[0, 1, 1]] + [[1, 1]] * 7, [[0.0, 0.0]] + [[1.0]] * 6 + [[0.0]], [True] * 8
    )


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_on_a_and_b_the_value_of_a_shrinks_with_lambda(lam: float) -> None:
    training = atd.Training(steps=6000, learning_rate=2e-3)
    value = atd.fit(atd.TDLambda(lam), a_and_b(), atd.Table(2), discount=1.0, key=KEY, training=training)
    assert np.allclose(value([0, 1]), [0.75 * (1 - lam), 0.75], atol=2e-3)


def test_on_a_and_b_td_and_monte_carlo_give_the_textbook_answers() -> None:
    fits = [atd.Fit(m, a_and_b(), atd.Table(2), discount=1.0, key=KEY) for m in (atd.TD(), atd.MonteCarlo())]
    td, mc = atd.fit_many(fits, training=atd.Training(steps=6000, learning_rate=2e-3))
    assert np.allclose(td([0, 1]), [0.75, 0.75], atol=2e-3)  # type: ignore[operator]
    assert np.allclose(mc([0, 1]), [0.0, 0.75], atol=2e-3)  # type: ignore[operator]


def noisy(episodes: int = 40, steps: int = 30, seed: int = 0) -> atd.Episodes:
    rng = np.random.default_rng(seed)
    walks = [np.cumsum(rng.normal(size=(steps + 1, 2)), axis=0) for _ in range(episodes)]
    return atd.Episodes.from_lists(walks, [np.sin(w[:-1, 0]) for w in walks], [True] * episodes)


STATES = np.random.default_rng(1).normal(size=(50, 2)) * 3


def fitted(method: Method, *, steps: int = 300, **options: object) -> atd.ValueFunction:
    training = atd.Training(steps=steps)
    return atd.fit(method, noisy(), atd.MLP((16, 16)), discount=0.95, key=KEY, training=training, **options)  # type: ignore[arg-type]


def test_level_one_takes_the_very_steps_of_td() -> None:
    adaptive, td = fitted(atd.AdaptiveTD(level=1.0)), fitted(atd.TD())
    assert np.array_equal(adaptive(STATES), td(STATES))
    assert adaptive.diagnostics.share_overruled == 0


def test_lambda_zero_takes_the_very_steps_of_td() -> None:
    assert np.array_equal(fitted(atd.TDLambda(0.0))(STATES), fitted(atd.TD())(STATES))


def test_one_step_td_takes_the_very_steps_of_td() -> None:
    assert np.array_equal(fitted(atd.NStepTD(1))(STATES), fitted(atd.TD())(STATES))


def test_lambda_one_and_an_endless_window_regress_on_monte_carlo_returns() -> None:
    """Over 100 steps: the returns differ in their last bits, which a ReLU near 0 may later make large."""
    mc = fitted(atd.MonteCarlo(), steps=100)(STATES)
    assert np.allclose(fitted(atd.TDLambda(1.0), steps=100)(STATES), mc, atol=1e-4)
    assert np.allclose(fitted(atd.NStepTD(1000), steps=100)(STATES), mc, atol=1e-4)


def test_level_zero_overrules_every_target_and_distils_the_ensemble() -> None:
    adaptive = fitted(atd.AdaptiveTD(level=0.0))
    assert adaptive.diagnostics.share_overruled == 1.0
    mean = fitted(atd.MonteCarloEnsemble())
    assert np.sqrt(np.mean((adaptive(STATES) - mean(STATES)) ** 2)) < 0.5 * np.std(mean(STATES))


def test_adaptive_td_and_the_ensemble_share_their_members() -> None:
    adaptive, mean = fitted(atd.AdaptiveTD()), fitted(atd.MonteCarloEnsemble())
    assert np.array_equal(adaptive.interval(STATES).lower, mean.interval(STATES).lower)
    assert np.allclose(adaptive.interval(STATES).midpoint, mean(STATES), atol=1e-4)


def test_without_bootstrap_table_members_coincide_and_adaptive_td_becomes_monte_carlo() -> None:
    method = atd.AdaptiveTD(uncertainty=atd.Ensemble(3, bootstrap=False))
    training = atd.Training(steps=6000, learning_rate=2e-3)
    value = atd.fit(method, a_and_b(), atd.Table(2), discount=1.0, key=KEY, training=training)
    assert np.allclose(value([0, 1]), [0.0, 0.75], atol=5e-3)


@pytest.mark.parametrize("check", ["sample", "mean", "value"])
@pytest.mark.parametrize("fallback", ["midpoint", "endpoint", "return"])
def test_every_check_with_every_fallback_trains_a_grid(check: str, fallback: str) -> None:
    method = atd.AdaptiveTD(check=check, fallback=fallback)  # type: ignore[arg-type]
    grid = atd.Grid(2.0, (-10.0, -10.0), (10.0, 10.0))
    value = atd.fit(method, noisy(), grid, discount=0.95, key=KEY, training=atd.Training(steps=500))
    overruled = value.diagnostics.overruled
    assert overruled is not None
    assert set(np.unique(overruled)) <= {-1, 0, 1}
    assert np.isfinite(value(STATES)).all()


def rare_rewards() -> atd.Episodes:
    """One state, reward 10 once in ten and else 0, then the end: v = 1."""
    return atd.Episodes.from_lists(
        [[0, 0]] * 20, [[10.0 if i % 10 == 0 else 0.0] for i in range(20)], [True] * 20
    )


def test_checking_each_sample_is_biased_where_checking_the_mean_is_not() -> None:
    """Targets of 10 fall outside an interval around 1 and are replaced by its midpoint; zeros stay."""
    uncertainty = atd.Ensemble(10)
    values = {}
    checks: tuple[Check, ...] = ("sample", "mean", "value")
    for check in checks:
        method = atd.AdaptiveTD(check=check, uncertainty=uncertainty)
        value = atd.fit(method, rare_rewards(), atd.Table(1), discount=0.9, key=KEY, training=QUICK)
        values[check] = float(value([0])[0])
        low, high = value.interval([0])
        assert low < 1 < high < 10
    assert values["sample"] < 0.3
    assert values["mean"] == pytest.approx(1, abs=0.02)
    assert values["value"] == pytest.approx(1, abs=0.02)


def test_the_mean_check_needs_states_that_recur() -> None:
    with pytest.raises(atd.UsageError, match="Grid or Table"):
        fitted(atd.AdaptiveTD(check="mean"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: atd.AdaptiveTD(level=1.2), "level"),
        (lambda: atd.AdaptiveTD(fallback="middle"), "fallback"),  # type: ignore[arg-type]
        (lambda: atd.NStepTD(0), "n must"),
        (lambda: atd.TDLambda(1.5), "lam"),
        (lambda: atd.Ensemble(1), "members"),
        (lambda: atd.Training(steps=0), "steps"),
        (lambda: atd.Training(steps=10**9), "at most"),
    ],
)
def test_settings_that_make_no_sense_are_refused_at_once(make: Callable[[], object], message: str) -> None:
    with pytest.raises((atd.UsageError, TypeError), match=message):
        make()


# Truncation: a ring of ten states whose log is cut after 20 steps, γ = 0.99.


def ring(limit: int, episodes: int) -> tuple[atd.Episodes, np.ndarray]:
    """A lazy random walk on a ring; the reward is 1 + cos of the angle of the state that is left."""
    rng = np.random.default_rng(0)
    reward = 1 + np.cos(2 * np.pi * np.arange(10) / 10)
    paths = [(rng.integers(10) + np.cumsum(rng.integers(-1, 2, limit + 1))) % 10 for _ in range(episodes)]
    log = atd.Episodes.from_lists(paths, [reward[p[:-1]] for p in paths], [False] * episodes)
    step = sum(np.roll(np.eye(10), k, axis=1) for k in (-1, 0, 1)) / 3
    return log, np.linalg.solve(np.eye(10) - 0.99 * step, reward)


RING = atd.Training(steps=20_000, batch_size=256, learning_rate=5e-3)


def worst_error(value: atd.ValueFunction, truth: np.ndarray) -> float:
    return float(np.max(np.abs(value(np.arange(10)) / truth - 1)))


def test_td_recovers_infinite_horizon_values_from_a_log_cut_after_twenty_steps() -> None:
    log, truth = ring(20, 500)
    value = atd.fit(atd.TD(), log, atd.Table(10), discount=0.99, key=KEY, training=RING)
    assert worst_error(value, truth) < 0.05


def test_adaptive_td_without_one_whole_return_says_so_and_recovers_them_too() -> None:
    log, truth = ring(20, 500)
    with pytest.warns(UserWarning, match="cut short"):
        value = atd.fit(atd.AdaptiveTD(), log, atd.Table(10), discount=0.99, key=KEY, training=RING)
    assert worst_error(value, truth) < 0.05
    assert np.isinf(value.interval(np.arange(10)).upper).all()


def test_taking_the_limit_for_an_end_is_off_by_far_more() -> None:
    log, truth = ring(20, 500)
    method = atd.MonteCarlo(truncation="zero")
    value = atd.fit(method, log, atd.Table(10), discount=0.99, key=KEY, training=RING)
    assert np.max(value(np.arange(10)) / truth) < 0.9


def test_monte_carlo_that_bootstraps_the_cut_end_recovers_them() -> None:
    log, truth = ring(20, 500)
    method = atd.MonteCarlo(truncation="bootstrap")
    value = atd.fit(method, log, atd.Table(10), discount=0.99, key=KEY, training=RING)
    assert worst_error(value, truth) < 0.1


def test_monte_carlo_with_nothing_to_learn_from_is_refused() -> None:
    log, _ = ring(20, 5)
    with pytest.raises(atd.DataError, match="cut short"):
        atd.fit(atd.MonteCarlo(), log, atd.Table(10), discount=0.99, key=KEY)


def test_discount_one_with_a_cut_log_needs_a_choice() -> None:
    log, _ = ring(20, 5)
    with pytest.raises(atd.UsageError, match="no safe default"):
        atd.fit(atd.MonteCarlo(), log, atd.Table(10), discount=1.0, key=KEY)


def task(log: atd.Episodes, discount: float, **training: int) -> Task:
    return Task(
        episodes=log,
        data=prepare(log, discount, normalize=False, scales_inputs=False),
        model=atd.Table(60),
        key=KEY,
        training=atd.Training(**training),
        identity=(),
    )


def test_the_mask_keeps_returns_that_miss_less_than_a_hundredth() -> None:
    """T = 50, γ = 0.9: visits 0 to 6 have at least 44 steps before the cut."""
    log = atd.Episodes.from_lists([np.arange(51)], [np.ones(50)], [False])
    assert monte_carlo_rows(task(log, 0.9), None).kept.tolist() == list(range(7))


def test_dropping_truncated_episodes_warns() -> None:
    log = atd.Episodes.from_lists([[0, 1], [0, 1]], [[1.0], [1.0]], [True, False])
    with pytest.warns(UserWarning, match="short ones"):
        assert monte_carlo_rows(task(log, 0.9), "drop").kept.tolist() == [0]


def test_bootstrap_draws_whole_episodes_with_replacement() -> None:
    log = atd.Episodes.from_lists(
        [np.arange(n + 1) for n in (3, 1, 2)], [np.ones(n) for n in (3, 1, 2)], [True] * 3
    )
    drawn = bootstrap_visits(log, np.arange(6), key=jax.random.key(1))
    whole = [[0, 1, 2], [3], [4, 5]]
    rest, count = drawn.tolist(), 0
    while rest:
        episode = next(e for e in whole if rest[: len(e)] == e)
        rest, count = rest[len(episode) :], count + 1
    assert count == 3


@pytest.mark.parametrize(("lam", "expected"), [(0.0, 109), (0.25, 145), (0.5, 217), (0.75, 430), (0.9, 1045)])
def test_lambda_returns_are_refreshed_often_enough_to_forget_an_offset(lam: float, expected: int) -> None:
    """F such that β^(50,000/F) ≤ 0.01, for a log so long that its own length does not decide."""
    steps = 3_000_000
    log = atd.Episodes(
        states=np.zeros(steps + 1, np.int8),
        rewards=np.zeros(steps, np.float32),
        lengths=np.array([steps]),
        ended=np.array([False]),
    )
    assert refresh_interval(task(log, 0.99), lam) == pytest.approx(expected, abs=1)


def test_where_refreshing_is_dear_lambda_returns_come_from_windows_and_lead_to_the_same_values() -> None:
    """A long log and few, small batches: windows of λ-returns fit the same table as refreshed ones."""
    rng = np.random.default_rng(0)
    states = [rng.integers(0, 5, 41) for _ in range(100)]
    log = atd.Episodes.from_lists(states, [np.sin(s[:-1]) for s in states], [True] * 100)
    method = atd.TDLambda(0.5)
    assert refresh_is_dear(task(log, 0.9, steps=600, batch_size=16), 0.5)
    assert not refresh_is_dear(task(log, 0.9, steps=600, batch_size=512), 0.5)
    values = [
        atd.fit(
            method,
            log,
            atd.Table(5),
            discount=0.9,
            key=0,
            training=atd.Training(steps=600, batch_size=batch, learning_rate=1e-2),
        )(np.arange(5))
        for batch in (16, 512)
    ]
    assert np.allclose(values[0], values[1], atol=0.25)
    assert np.ptp(values[1]) > 1


def test_irregular_time_discounts_by_what_has_passed() -> None:
    """One transition of three units of time is worth three of one unit."""
    log = atd.Episodes.from_lists([[0, 1, 1]], [[0.0, 1.0]], [True], durations=[[3.0, 1.0]])
    value = atd.fit(atd.TD(), log, atd.Table(2), discount=0.9, key=KEY, training=QUICK)
    assert np.allclose(value([0, 1]), [0.9**3, 1.0], atol=2e-3)
    per_step = atd.Episodes.from_lists([[0, 1, 1]], [[0.0, 1.0]], [True])
    same = atd.fit(atd.TD(), per_step, atd.Table(2), discount=np.array([0.729, 0.9]), key=KEY, training=QUICK)
    assert np.allclose(same([0, 1]), value([0, 1]), atol=1e-3)
