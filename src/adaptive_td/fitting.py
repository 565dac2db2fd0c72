"""The one verb: fit a method's value function to logged episodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Hashable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from .checkpoints import Checkpoints
from .episodes import Episodes
from .errors import Diverged
from .jobs import Job, Trained, Training
from .methods import Fitted, Method
from .models import Custom, as_model
from .progress import Bar
from .rows import Data, prepare
from .tasks import Recipe, Task
from .training import Engine, Progress, train
from .value import Diagnostics, ValueFunction


@dataclass(frozen=True, eq=False)
class Fit:
    """One value function to fit; `fit_many` takes any number of them."""

    method: Method
    episodes: Episodes
    model: Any
    discount: float | Float[np.ndarray, " steps"] = 0.99
    key: PRNGKeyArray | int = 0
    normalize: bool = True


def fit(
    method: Method,
    episodes: Episodes,
    model: Any,
    *,
    discount: float | Float[np.ndarray, " steps"],
    key: PRNGKeyArray | int,
    training: Training | None = None,
    normalize: bool = True,
    progress: Progress | bool | None = None,
    engine: Engine = "auto",
    checkpoints: Checkpoints | str | os.PathLike[str] | None = None,
) -> ValueFunction:
    """Estimate the value function of the policy that logged these episodes.

    `discount` is γ per unit of time (or one per transition). States are scaled to [-1, 1] and rewards divided
    by a constant while training, and the value function undoes it; `normalize=False` trains on raw numbers.
    `progress` is True or False for a bar on standard error or none (default: a bar on a terminal), or a
    function of (updates done, updates in all). `engine` insists on "native" or "xla"; by default the native
    kernel trains MLP and NatureCNN on a CPU. `checkpoints` is a folder: training keeps its state there every
    minute, and the same call goes on from it, to the same weights bit for bit. Raises `Diverged` if the loss
    does not stay finite.
    """
    one = Fit(method, episodes, model, discount=discount, key=key, normalize=normalize)
    result = fit_many([one], training=training, progress=progress, engine=engine, checkpoints=checkpoints)[0]
    if isinstance(result, Diverged):
        raise result
    return result


def fit_many(
    fits: Sequence[Fit],
    *,
    training: Training | None = None,
    progress: Progress | bool | None = None,
    engine: Engine = "auto",
    checkpoints: Checkpoints | str | os.PathLike[str] | None = None,
) -> list[ValueFunction | Diverged]:
    """Fit value functions side by side; logs, members and intervals that several share are computed once.

    The result of each is the same as of `fit` alone. One that diverges leaves a `Diverged` in its place and
    does not touch the others.
    """
    training = training or Training()
    if checkpoints is not None and not isinstance(checkpoints, Checkpoints):
        checkpoints = Checkpoints(folder=Path(checkpoints))
    data: dict[Hashable, Data] = {}
    tasks = [_task(one, training, data) for one in fits]
    recipes = [one.method.fit(task) for one, task in zip(fits, tasks, strict=True)]
    results: list[ValueFunction | Diverged | None] = [None] * len(fits)
    waiting: dict[int, list[Job]] = {}

    def advance(k: int, trained: list[Trained] | None) -> None:
        """Send a recipe its networks; keep what it asks for next, or what it returns."""
        bad = next((t.diverged_at for t in trained or [] if t.diverged_at is not None), None)
        if bad is not None:
            recipes[k].close()
            results[k] = Diverged(
                f"{fits[k].method!r} diverged: its loss became non-finite at step {bad}", bad
            )
            return
        fitted = _step(recipes[k], trained, waiting, k)
        if fitted is not None:
            results[k] = _value_function(fits[k], tasks[k], fitted)

    for k in range(len(fits)):
        advance(k, None)
    while waiting:
        stage, waiting = waiting, {}
        jobs = [job for wanted in stage.values() for job in wanted]
        with _bar(progress, len(stage)) as report:
            trained = iter(train(jobs, training, progress=report, engine=engine, checkpoints=checkpoints))
        for k, wanted in stage.items():
            advance(k, [next(trained) for _ in wanted])
    return [result for result in results if result is not None]


def _step(
    recipe: Recipe[Fitted], trained: list[Trained] | None, waiting: dict[int, list[Job]], k: int
) -> Fitted | None:
    try:
        waiting[k] = next(recipe) if trained is None else recipe.send(trained)
    except StopIteration as stop:
        return stop.value
    return None


def _task(one: Fit, training: Training, data: dict[Hashable, Data]) -> Task:
    """What a method is given; fits on the same log share its arrays."""
    model = as_model(one.model)
    steady = float(one.discount) if np.ndim(one.discount) == 0 else id(one.discount)
    where = (id(one.episodes), steady, one.normalize, model.scales_inputs)
    if where not in data:
        data[where] = prepare(
            one.episodes, one.discount, normalize=one.normalize, scales_inputs=model.scales_inputs
        )
    key = jax.random.key(one.key) if isinstance(one.key, int) else one.key
    bits = tuple(np.asarray(jax.random.key_data(key)).ravel().tolist())
    identity = (bits, id(one.model) if isinstance(model, Custom) else model)
    return Task(
        episodes=one.episodes, data=data[where], model=model, key=key, training=training, identity=identity
    )


def _value_function(one: Fit, task: Task, fitted: Fitted) -> ValueFunction:
    return ValueFunction(
        function=fitted.function,
        estimate=fitted.estimate,
        scaling=task.data.scaling,
        method=one.method,
        model=task.model,
        discount=float(np.mean(one.discount)),
        observation_shape=one.episodes.observation_shape,
        level=getattr(one.method, "level", 0.95),
        diagnostics=Diagnostics(history=fitted.history, overruled=fitted.overruled),
    )


def _bar(progress: Progress | bool | None, fits: int) -> Any:
    """A context that gives the function to report to."""
    if callable(progress):
        return nullcontext(progress)
    if progress is False or (progress is None and not sys.stderr.isatty()):
        return nullcontext(None)
    return Bar(f"training for {fits} value function{'s' if fits > 1 else ''}")
