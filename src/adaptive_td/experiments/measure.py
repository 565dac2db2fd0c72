"""What is measured: a group of cells in, numbers and arrays for each out."""

from __future__ import annotations

import hashlib
import math
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import equinox as eqx
import numpy as np
from jaxtyping import Float, Shaped

from adaptive_td import specs
from adaptive_td.episodes import Episodes
from adaptive_td.errors import Diverged
from adaptive_td.fitting import Fit, fit_many
from adaptive_td.jobs import Training
from adaptive_td.methods import AdaptiveTD, Method, MonteCarloEnsemble
from adaptive_td.metrics import coverage, msve
from adaptive_td.models import Grid, Model
from adaptive_td.problems import Problem, TrueValues
from adaptive_td.tasks import Recipe, Task
from adaptive_td.uncertainty import Ensemble
from adaptive_td.value import ValueFunction

from .cells import Cell, Group

Status = Literal["done", "diverged", "failed"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """What came of one cell."""

    cell: str
    status: Status
    numbers: Mapping[str, float] = field(default_factory=dict)
    """msve, and coverage, width, overruled, loss where the method has them; never NaN."""
    arrays: Mapping[str, Float[np.ndarray, "..."]] = field(default_factory=dict)
    """On the problem's grid: values, lower, upper; over each hundredth of training: loss, below, above."""
    step: int | None = None
    """The step at which it diverged."""
    error: str = ""
    """The traceback of a cell that failed."""
    log: str = ""
    """The digest of the episodes that were in fact drawn."""
    truth: str = ""
    """The digest of the true values it was judged by."""
    seconds: float = 0.0
    """Its share of the time that its group took."""


def measure(group: Group) -> list[Outcome]:
    """Measure the cells of a group together; where that raises, each by itself, so that only one fails."""
    began = time.perf_counter()
    outcomes = _measure(group)
    if len(group.cells) > 1 and outcomes[0].status == "failed":
        outcomes = [outcome for id_ in group.cells for outcome in _measure(group.only([id_]))]
    share = (time.perf_counter() - began) / len(group.cells)
    return [replace(outcome, seconds=share) for outcome in outcomes]


def _measure(group: Group) -> list[Outcome]:
    """The outcome of every cell; where anything raises, all of them have failed."""
    first = next(iter(group.cells.values()))
    try:
        return list(MEASURES.get(first.model, _train)(group))
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        return [Outcome(cell=id_, status="failed", error=text) for id_ in group.cells]


def _train(group: Group) -> Iterator[Outcome]:
    """Fit all cells of a group side by side and judge each against the true values."""
    problem, cells = group.problem, group.cells
    first = next(iter(cells.values()))
    log = problem.episodes(first.episodes, seed=first.seed)
    truth = problem.true_values()
    outcome = partial(
        Outcome,
        log=digest(log.states, log.rewards, log.lengths, log.ended),
        truth=digest(truth.values, truth.standard_errors),
    )
    for id_, result in zip(cells, fit_cells(list(cells.values()), problem, log), strict=True):
        if isinstance(result, Diverged):
            yield outcome(cell=id_, status="diverged", step=result.step)
            continue
        numbers, arrays = judge(result, problem, truth, level=cells[id_].level)
        if not math.isfinite(numbers["msve"]):
            yield outcome(cell=id_, status="diverged", step=cells[id_].after or cells[id_].steps)
            continue
        yield outcome(cell=id_, status="done", numbers=numbers, arrays=arrays)


def fit_cells(cells: Sequence[Cell], problem: Problem, log: Episodes) -> list[ValueFunction | Diverged]:
    """The value function of each cell.

    A snapshot is a fit of its own that stops early, within intervals whose networks were trained to the end:
    they are the members of the ensemble that other cells of the group use, and cost nothing more.
    """
    first = cells[0]
    training = Training(
        steps=first.steps or 0, batch_size=first.batch_size or 0, learning_rate=first.learning_rate or 0.0
    )
    model = build_model(first.model, problem, log)

    def fit_of(method: Method) -> Fit:
        return Fit(method, log, model, discount=problem.discount, key=first.seed)

    results = fit_many(
        [fit_of(_ensemble(cell) if cell.after else build_method(cell)) for cell in cells],
        training=training,
        progress=False,
    )
    for k, (cell, result) in enumerate(zip(cells, results, strict=True)):
        if cell.after and isinstance(result, ValueFunction):
            method = build_method(cell)
            assert isinstance(method, AdaptiveTD)
            early = fit_of(replace(method, uncertainty=_Given(result.estimate)))
            results[k] = fit_many([early], training=replace(training, steps=cell.after), progress=False)[0]
    return results


@dataclass(frozen=True, eq=False)
class _Given:
    """An uncertainty that was fitted before, on the same log."""

    estimate: Any

    def fit(self, task: Task) -> Recipe[Any]:
        """Nothing is left to train."""
        yield from ()
        return self.estimate

    def empty(self, network: eqx.Module) -> Any:
        """The same again; such fits are not saved."""
        return self.estimate


def _ensemble(cell: Cell) -> MonteCarloEnsemble:
    return MonteCarloEnsemble(members=cell.members or 3)


def build_method(cell: Cell) -> Method:
    """The method of a cell, with the settings that apply to it."""
    if cell.method == "mc-ensemble":
        return _ensemble(cell)
    if cell.method == "adaptive-td":
        level = 0.95 if cell.level is None else cell.level
        return AdaptiveTD(uncertainty=Ensemble(cell.members or 3), level=level)
    return specs.method(cell.method)


def build_model(spec: str, problem: Problem, log: Episodes) -> Model:
    """The model of a cell; a grid covers the problem's whole box, not only the states of one log."""
    model = specs.model(spec, log)
    if isinstance(model, Grid):
        return replace(model, low=problem.low, high=problem.high)
    return model


def log_of_nothing(problem: Problem) -> Episodes:
    """One step of a problem's shape, to see whether a model can be built for it."""
    states = np.array([problem.low, problem.high], np.float32)
    return Episodes(
        states=states, rewards=np.zeros(1, np.float32), lengths=np.array([1]), ended=np.array([True])
    )


def judge(
    value: ValueFunction, problem: Problem, truth: TrueValues, *, level: float | None = None
) -> tuple[dict[str, float], dict[str, Float[np.ndarray, "..."]]]:
    """Numbers and arrays of a value function on the problem's grid, every state with the same weight.

    Truths that are means of rollouts have errors of their own, whose mean square is subtracted:
    E(V - v̂)² = (V - v)² + se². The difference may be negative, and is not clipped.
    """
    grid = problem.grid()
    values = np.asarray(value(grid), np.float64)
    numbers = {"msve": msve(values, truth.values) - float(np.mean(truth.standard_errors**2))}
    arrays: dict[str, Any] = {"values": values}
    if value.estimate is not None:
        interval = value.interval(grid, level)
        numbers["coverage"] = coverage(interval, truth.values)
        numbers["width"] = float(np.mean(np.asarray(interval.upper) - np.asarray(interval.lower)))
        arrays |= {"lower": interval.lower, "upper": interval.upper}
    if (share := value.diagnostics.share_overruled) is not None:
        numbers["overruled"] = share
    if (history := value.diagnostics.history) is not None:
        numbers["loss"] = float(history.loss[-1])
        arrays |= history._asdict()
    return numbers, {name: np.asarray(array, np.float32) for name, array in arrays.items()}


def digest(*arrays: Shaped[np.ndarray, "..."]) -> str:
    """SHA-256 of some arrays: of a log, or of true values."""
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(f"{array.dtype}{array.shape}".encode())
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()


MEASURES: dict[str, Callable[[Group], Iterator[Outcome]]] = {}
"""Models that are not trained but computed, by name."""
