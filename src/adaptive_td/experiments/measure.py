"""What is measured: a group of cells in, numbers and arrays for each out."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import numpy as np
from jaxtyping import Float

from adaptive_td import specs
from adaptive_td.episodes import Episodes
from adaptive_td.errors import Diverged
from adaptive_td.fitting import Fit, fit_many
from adaptive_td.jobs import Training
from adaptive_td.methods import AdaptiveTD, Method, MonteCarloEnsemble
from adaptive_td.models import Grid, Model
from adaptive_td.problems import Known, Problem, Tested
from adaptive_td.tasks import Recipe, Task
from adaptive_td.uncertainty import Ensemble
from adaptive_td.value import ValueFunction

from .cells import Cell, Group, sha256
from .judging import digest, judge_of

Status = Literal["done", "diverged", "failed"]
Told = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""
MONTE_CARLO = ("mc", "mc-ensemble", "adaptive-td")
"""Methods that learn from whole returns, for which it matters how cut ones are treated."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """What came of one cell."""

    cell: str
    status: Status
    numbers: Mapping[str, float] = field(default_factory=dict)
    """msve, and coverage, width, overruled, loss where the method has them; never NaN."""
    arrays: Mapping[str, Float[np.ndarray, "..."]] = field(default_factory=dict)
    """On the problem's grid or along test episodes; over each hundredth of training: loss, below, above."""
    step: int | None = None
    """The step at which it diverged."""
    error: str = ""
    """The traceback of a cell that failed."""
    log: str = ""
    """The digest of the episodes that were in fact drawn."""
    truth: str = ""
    """The digest of the true values or test episodes it was judged by."""
    seconds: float = 0.0
    """Its share of the time that its group took."""


def _nobody(what: str, done: int, total: int) -> None:
    """Told, and does nothing about it."""


def measure(group: Group, checkpoints: Path | None = None, told: Told = _nobody) -> list[Outcome]:
    """Measure the cells of a group together; where that raises, each by itself, so that only one fails.

    In the folder of checkpoints a group has one of its own, `checkpoint_folder(group)`, for fits that take
    long; whoever stores the outcomes removes it.
    """
    began = time.perf_counter()
    outcomes = _measure(group, checkpoints, told)
    if len(group.cells) > 1 and outcomes[0].status == "failed":
        outcomes = [one for id_ in group.cells for one in _measure(group.only([id_]), checkpoints, told)]
    share = (time.perf_counter() - began) / len(group.cells)
    return [replace(outcome, seconds=share) for outcome in outcomes]


def checkpoint_folder(group: Group) -> str:
    """The name of the folder in which the fits of a group may leave how far they are."""
    return sha256("\n".join(sorted(group.cells)))[:32]


def _measure(group: Group, checkpoints: Path | None, told: Told) -> list[Outcome]:
    """The outcome of every cell; where anything raises, all of them have failed."""
    first = next(iter(group.cells.values()))
    folder = None if checkpoints is None else checkpoints / checkpoint_folder(group)
    try:
        return list(MEASURES.get(first.model, partial(_train, checkpoint=folder, told=told))(group))
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        return [Outcome(cell=id_, status="failed", error=text) for id_ in group.cells]


def _train(group: Group, *, checkpoint: Path | None, told: Told) -> Iterator[Outcome]:
    """Fit all cells of a group side by side and judge each as its problem is judged."""
    problem, cells = group.problem, group.cells
    first = next(iter(cells.values()))
    told("episodes", 0, first.episodes)
    log = problem.episodes(first.episodes, seed=first.seed)
    results = fit_cells(list(cells.values()), problem, log, checkpoint=checkpoint, told=told)
    drawn = digest(log.states, log.rewards, log.lengths, log.ended)
    del log  # frames of games are large, and those of the test episodes are yet to come
    truth, judge = judge_of(problem)
    outcome = partial(Outcome, log=drawn, truth=truth)
    for k, (id_, result) in enumerate(zip(cells, results, strict=True)):
        told("judging", k, len(cells))
        if isinstance(result, Diverged):
            yield outcome(cell=id_, status="diverged", step=result.step)
            continue
        numbers, arrays = judge(result, cells[id_].level)
        if not math.isfinite(numbers["msve"]):
            yield outcome(cell=id_, status="diverged", step=cells[id_].after or cells[id_].steps)
            continue
        yield outcome(cell=id_, status="done", numbers=numbers, arrays=arrays)


def fit_cells(
    cells: Sequence[Cell],
    problem: Problem,
    log: Episodes,
    *,
    checkpoint: Path | None = None,
    told: Told = _nobody,
) -> list[ValueFunction | Diverged]:
    """The value function of each cell.

    A snapshot is a fit of its own that stops early, within intervals whose networks were trained to the end:
    they are the members of the ensemble that other cells of the group use, and cost nothing more.
    """
    first = cells[0]
    training = Training(
        steps=first.steps or 0, batch_size=first.batch_size or 0, learning_rate=first.learning_rate or 0.0
    )
    if first.epsilon is not None:
        training = replace(training, epsilon=first.epsilon)
    model = build_model(first.model, problem, log)

    def fit_of(method: Method) -> Fit:
        return Fit(method, log, model, discount=problem.discount, key=first.seed)

    results = fit_many(
        [fit_of(_ensemble(cell) if cell.after else build_method(cell)) for cell in cells],
        training=training,
        progress=partial(told, "training"),
        checkpoints=checkpoint if isinstance(problem, Tested) else None,  # those of others take a minute
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


def _truncation(cell: Cell) -> dict[str, Any]:
    return {} if cell.truncation is None else {"truncation": cell.truncation}


def _ensemble(cell: Cell) -> MonteCarloEnsemble:
    return MonteCarloEnsemble(members=cell.members or 3, **_truncation(cell))


def build_method(cell: Cell) -> Method:
    """The method of a cell, with the settings that apply to it."""
    if cell.method == "mc-ensemble":
        return _ensemble(cell)
    if cell.method == "adaptive-td":
        level = 0.95 if cell.level is None else cell.level
        return AdaptiveTD(uncertainty=Ensemble(cell.members or 3, **_truncation(cell)), level=level)
    return specs.method(cell.method, **_truncation(cell))


def build_model(spec: str, problem: Problem, log: Episodes) -> Model:
    """The model of a cell; a grid covers the problem's whole box, if it has one, not only a log's states."""
    model = specs.model(spec, log)
    if isinstance(model, Grid) and isinstance(problem, Known):
        return replace(model, low=problem.low, high=problem.high)
    return model


def log_of_nothing(problem: Problem) -> Episodes:
    """One step of a problem's shape, to see whether a model can be built for it."""
    if isinstance(problem, Known):
        states = np.array([problem.low, problem.high], np.float32)
    else:
        assert isinstance(problem, Tested), f"{problem.name} cannot be judged"
        states = np.zeros((2, *problem.observation_shape), np.float32)
    return Episodes(
        states=states, rewards=np.zeros(1, np.float32), lengths=np.array([1]), ended=np.array([True])
    )


MEASURES: dict[str, Callable[[Group], Iterator[Outcome]]] = {}
"""Models that are not trained but computed, by name."""
