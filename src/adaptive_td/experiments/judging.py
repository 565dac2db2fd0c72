"""How good a value function is: against true values on a grid, or against the returns of test episodes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from adaptive_td.episodes import Episodes
from adaptive_td.errors import DataError, UsageError
from adaptive_td.metrics import coverage, msve, msve_from_rollouts, return_noise
from adaptive_td.problems import Known, Problem, Tested
from adaptive_td.scoring import whole_returns
from adaptive_td.value import ValueFunction


class Judgement(NamedTuple):
    """Numbers, which are never NaN, and arrays."""

    numbers: dict[str, float]
    arrays: dict[str, Float[np.ndarray, "..."]]


class Judge(NamedTuple):
    """What value functions on a problem are held against."""

    digest: str
    """Of the true values, or of the test episodes."""
    judge: Callable[[ValueFunction, float | None], Judgement]
    """A value function and the level of its intervals (None: that of its method)."""


def judge_of(problem: Problem) -> Judge:
    """The judge for a problem of this kind; it may have to play test episodes first."""
    if isinstance(problem, Tested):
        return by_test(problem)
    if isinstance(problem, Known):
        return by_truth(problem)
    raise UsageError(f"{problem.name} has neither true values nor test episodes: nothing to judge by")


def by_truth(problem: Known) -> Judge:
    """Values on the problem's grid, every state with the same weight.

    Truths that are means of rollouts have errors of their own, whose mean square is subtracted:
    E(V - v̂)² = (V - v)² + se². The difference may be negative, and is not clipped.
    """
    truth, grid = problem.true_values(), problem.grid()
    noise = float(np.mean(truth.standard_errors**2))

    def judge(value: ValueFunction, level: float | None) -> Judgement:
        values = np.asarray(value(grid), np.float64)
        numbers = {"msve": msve(values, truth.values) - noise}
        arrays: dict[str, Any] = {"values": values}
        if value.estimate is not None:
            interval = value.interval(grid, level)
            numbers["coverage"] = coverage(interval, truth.values)
            numbers["width"] = float(np.mean(np.asarray(interval.upper) - np.asarray(interval.lower)))
            arrays |= {"lower": interval.lower, "upper": interval.upper}
        return _with_training(value, numbers, arrays)

    return Judge(digest(truth.values, truth.standard_errors), judge)


def by_test(problem: Tested) -> Judge:
    """Values at the visits of test episodes against the returns G that were realised there.

    Numbers, over the visits whose return is whole (at most 1% of its weight lies beyond a truncated end):

    - `msve`, the mean of (G - V)²: every visit has the same weight. It is the value error plus the noise of
      returns, E Var(G | s), which is the same for every method and cancels in paired differences.
    - `start_error`, the squared error of the mean value at the start: with X = G - V at the first states of
      n episodes, X̄² - s²_X / n, whose noise is removed. Where all episodes start in one state it is the
      error there; where they do not, it is at most the mean squared error over them.
    - `corrected` and `floor`: MSVE and noise, apart, at visits whose state several episodes visit, where
      they can be told apart; `floor_share` is the share of such visits. `corrected` may be negative.
    - `width` of the intervals. Nobody knows the truth, so there is no coverage.

    Arrays: for each test episode the sum of (G - V)² (`squared`) and the number of its visits (`visits`),
    from which paired differences follow; of the test episode with the most visits V (`episode_values`), its
    interval and G along the way; one frame of it, where states are pictures.
    """
    test = problem.test()
    returns, visits = whole_returns(test, problem.discount)
    if not len(visits):
        raise DataError(
            f"{problem.name}: every test episode is cut by truncation before its discounted rewards have "
            "come in, so there is nothing to judge values by; let episodes be longer"
        )
    realised, episode, rows = returns[visits].astype(float), test.episode[visits], test.index[visits]
    counts = np.bincount(episode, minlength=len(test)).astype(float)
    starts = np.flatnonzero(test.step[visits] == 0)
    shown = episode == np.argmax(counts)
    noise, repeated = return_noise(realised, state_numbers(test, rows), episode)
    same = {"floor_share": float(repeated.mean())} | ({} if noise is None else {"floor": noise})

    def judge(value: ValueFunction, level: float | None) -> Judgement:
        values = np.asarray(value.over(test), np.float64)[rows]
        errors = (realised - values) ** 2
        numbers = {"msve": float(errors.mean()), **same}
        if noise is not None:
            numbers["corrected"] = float(errors[repeated].mean()) - noise
        if len(starts) > 1:
            numbers["start_error"] = msve_from_rollouts(np.zeros(1), (realised - values)[None, starts])
        squared = np.bincount(episode, weights=errors, minlength=len(test))
        arrays: dict[str, Any] = {"squared": squared, "visits": counts}
        arrays |= {"episode_values": values[shown], "episode_returns": realised[shown]}
        arrays |= _frame(test, rows[shown])
        if value.estimate is not None:
            interval = value.interval_over(test, level)
            lower, upper = (np.asarray(bound, np.float64)[rows] for bound in interval)
            numbers["width"] = float(np.mean(upper - lower))
            arrays |= {"episode_lower": lower[shown], "episode_upper": upper[shown]}
        return _with_training(value, numbers, arrays)

    return Judge(digest(test.states, test.rewards, test.lengths, test.ended), judge)


def _with_training(value: ValueFunction, numbers: dict[str, float], arrays: dict[str, Any]) -> Judgement:
    """Add how training went: share of targets overruled, the last loss, and curves over training."""
    if (share := value.diagnostics.share_overruled) is not None:
        numbers["overruled"] = share
    if (history := value.diagnostics.history) is not None:
        numbers["loss"] = float(history.loss[-1])
        arrays |= history._asdict()
    return Judgement(numbers, {name: np.asarray(array, np.float32) for name, array in arrays.items()})


def state_numbers(test: Episodes, rows: Int[np.ndarray, " visits"]) -> Int[np.ndarray, " visits"]:
    """A number for the state of each visit, the same where states are the same to the last bit."""
    known: dict[bytes, int] = {}
    frames = np.empty(len(test.states), np.int64)
    for row, state in enumerate(test.states):
        name = hashlib.blake2b(np.ascontiguousarray(state).data, digest_size=16).digest()
        frames[row] = known.setdefault(name, len(known))
    back = [
        np.where(test.age >= k, frames[np.maximum(np.arange(len(frames)) - k, 0)], -1)
        for k in range(test.stack)
    ]
    _, numbers = np.unique(np.stack(back, axis=1)[rows], axis=0, return_inverse=True)
    return numbers.reshape(-1)


def _frame(test: Episodes, rows: Int[np.ndarray, " visits"]) -> dict[str, Any]:
    """The picture in the middle of these visits, flat, and its height and width; nothing of vectors."""
    picture = test.states[rows[len(rows) // 2]]
    if picture.ndim < 2:
        return {}
    height, width = picture.shape[-2:]
    return {"frame": picture.reshape(-1, height, width)[-1].ravel(), "frame_shape": [height, width]}


def digest(*arrays: Shaped[np.ndarray, "..."]) -> str:
    """SHA-256 of some arrays: of a log, or of true values."""
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(f"{array.dtype}{array.shape}".encode())
        hashed.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return hashed.hexdigest()
