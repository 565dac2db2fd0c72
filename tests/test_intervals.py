"""The Student-t interval against a worked example, its limits, and its promise."""

import jax
import numpy as np
import pytest
from scipy import stats

from adaptive_td.errors import UsageError
from adaptive_td.intervals import student_t_interval, student_t_multiplier

pytestmark = pytest.mark.usefixtures("float64")


def test_interval_of_three_members() -> None:
    interval = student_t_interval(np.array([1.0, 2.0, 4.0]), 0.95)
    assert float(interval.lower) == pytest.approx(-5.255833, abs=1e-6)
    assert float(interval.upper) == pytest.approx(9.922499, abs=1e-6)
    assert float(interval.midpoint) == pytest.approx(2.333333, abs=1e-6)


def test_the_percentile_as_printed_in_the_paper_is_not_the_one_used() -> None:
    half = float(np.diff(student_t_interval(np.array([1.0, 2.0, 4.0]), 0.95)).item()) / 2
    assert half > 60 * 0.124878


@pytest.mark.parametrize(("members", "expected"), [(2, 15.56), (3, 4.968), (5, 3.041), (10, 2.373)])
def test_multiplier_shrinks_with_members(members: int, expected: float) -> None:
    assert student_t_multiplier(members, 0.95) == pytest.approx(expected, rel=3e-4)


def test_level_zero_is_empty_and_level_one_is_everything_even_where_members_agree() -> None:
    agreeing = np.array([[1.0, 1.0], [1.0, 3.0]])
    empty, whole = student_t_interval(agreeing, 0.0), student_t_interval(agreeing, 1.0)
    assert np.array_equal(empty.lower, [1, 2])
    assert np.array_equal(empty.upper, [1, 2])
    assert not np.any(empty.contains(empty.midpoint))
    assert np.all(np.isneginf(whole.lower) & np.isposinf(whole.upper))


@pytest.mark.parametrize("members", [3, 5, 10])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_interval_holds_the_next_draw_at_its_level(members: int, level: float) -> None:
    """Over 200 data sets, each with 50 states whose members are truly exchangeable."""
    draws = jax.random.normal(jax.random.key(0), (members + 1, 200, 50)) * 3 + 1
    interval = student_t_interval(draws[:-1], level)
    covered = np.asarray(interval.contains(draws[-1]))
    standard_error = np.sqrt(level * (1 - level) / covered.size)
    assert abs(covered.mean() - level) < 2 * standard_error


def test_bootstrap_members_cover_the_mean_of_a_gaussian() -> None:
    """The ensemble's interval taken for the truth itself: about 0.945 at level 0.95 with three members."""
    rng = np.random.default_rng(0)
    repeats, n = 4000, 50
    data = rng.normal(size=(repeats, n))
    members = np.stack(
        [np.take_along_axis(data, rng.integers(n, size=(repeats, n)), axis=1).mean(axis=1) for _ in range(3)]
    )
    assert np.mean(student_t_interval(members, 0.95).contains(np.zeros(repeats))) == pytest.approx(
        0.945, abs=0.015
    )


def test_one_member_has_no_interval() -> None:
    with pytest.raises(UsageError, match="at least 2 members"):
        student_t_interval(np.array([[1.0]]), 0.95)
    with pytest.raises(UsageError, match="level"):
        student_t_interval(np.array([1.0, 2.0]), 1.5)


def test_multiplier_is_students_quantile() -> None:
    assert student_t_multiplier(3, 0.95) == pytest.approx(stats.t.ppf(0.975, 2) * np.sqrt(4 / 3))
