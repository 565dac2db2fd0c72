"""Train any number of networks side by side: progress, interruption, divergence and refreshes.

On a CPU every network is a run of its own and as many run at once as there are cores: measured, that is
as fast as stacking networks and leaves each one's bits independent of its neighbours. On an accelerator
networks of the same shape and log are stacked and one program trains them all.

An engine takes the steps: the native kernel where it applies (MLP and NatureCNN on a CPU), else XLA. The same
choice is made where trained networks look at every state of a log (`values_over`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from . import native
from .checkpoints import Checkpoints
from .errors import UsageError, unknown_name
from .jobs import HISTORY, History, Job, Run, Trained, Training, options, over_states
from .rows import Data, Rows, View
from .xla import XlaRun

Progress = Callable[[int, int], None]
"""Called with network updates done and network updates in all."""

Engine = Literal["auto", "xla", "native"]
_CHUNK_SECONDS = 0.25


class _Stopped(Exception):
    """Training was told to stop."""


class _Group(NamedTuple):
    """Jobs that train together, and what starts an engine on them."""

    jobs: list[Job]
    begin: Callable[[list[Job], Training], Run]


class _Crew:
    """What the groups of one call share: progress, the order to stop, and the cores."""

    def __init__(self, groups: int, updates: int, progress: Progress | None, checkpoints: Checkpoints | None):
        self.stop, self.checkpoints = threading.Event(), checkpoints
        self._lock = threading.Lock()
        self._left, self._done, self._total, self._progress = groups, 0, updates, progress

    def report(self, updates: int) -> None:
        """Updates were made; nobody is told of those that end after the order to stop."""
        with self._lock:
            self._done += updates
            if self._progress is not None and not self.stop.is_set():
                self._progress(self._done, self._total)

    def halt(self) -> None:
        """Order all to stop; whoever is being told of progress has been told once this returns."""
        with self._lock:
            self.stop.set()

    def finished(self) -> None:
        """A group is done, so that others may have its core."""
        with self._lock:
            self._left -= 1

    def threads(self) -> int:
        """The threads that each group may use now."""
        return max(1, cores() // max(1, self._left))


def _train_group(group: _Group, training: Training, crew: _Crew) -> list[Trained]:
    """Train one network, or several stacked, in chunks between which they can be stopped."""
    jobs, refresh = group.jobs, group.jobs[0].refresh
    run = group.begin(jobs, training)
    checkpoint = None if crew.checkpoints is None else crew.checkpoints.of(jobs, training)
    step, chunk = 0 if checkpoint is None else checkpoint.restore(run), 16
    crew.report(step * len(jobs))
    while step < training.steps and np.any(run.diverged_at() < 0):
        if crew.stop.is_set():
            if checkpoint is not None:
                checkpoint.keep(run, step, now=True)
            raise _Stopped
        until = training.steps
        if refresh is not None:
            if step % refresh.every == 0:
                run.replace_rows(_refreshed(jobs, run, crew.threads()))
            until = (step // refresh.every + 1) * refresh.every
        ahead = min(step + chunk, until, training.steps)
        began = time.perf_counter()
        run.advance(step, ahead, crew.threads())
        crew.report((ahead - step) * len(jobs))
        if ahead - step == chunk:
            faster = _CHUNK_SECONDS / max(time.perf_counter() - began, 1e-6)
            chunk = max(16, round(chunk * min(4, faster)))
        step = ahead
        if checkpoint is not None:
            checkpoint.keep(run, step, now=step == training.steps)
    crew.report((training.steps - step) * len(jobs))
    crew.finished()
    results = zip(run.networks(), run.history(), run.rows(), run.diverged_at(), strict=True)
    return [
        Trained(network, _history(sums), rows, int(at) if at >= 0 else None)
        for network, sums, rows, at in results
    ]


def _refreshed(jobs: Sequence[Job], run: Run, threads: int) -> list[Rows]:
    """Rows recomputed from V as it is now."""
    return [
        job.refresh.update(job.data, rows, values)
        for job, rows, values in zip(jobs, run.rows(), run.values(threads), strict=True)
        if job.refresh is not None
    ]


def _history(sums: Float[np.ndarray, "100 4"]) -> History:
    """Means from sums; a hundredth in which no step falls (fewer than 100 steps) repeats the one before."""
    filled = np.maximum.accumulate(np.where(sums[:, 3] > 0, np.arange(HISTORY), 0))
    means = sums[filled, :3] / np.maximum(sums[filled, 3:], 1)
    return History(*means.T)


def _groups(jobs: Sequence[Job], training: Training, engine: Engine, width: int) -> list[_Group]:
    """Each native job by itself; others that one program can stack, at most `width` of them together."""
    groups: list[_Group] = []
    alike: dict[Any, list[Job]] = {}
    for job in jobs:
        if engine != "xla" and _is_native(job, forced=engine == "native"):
            groups.append(_Group([job], lambda jobs, training: native.NativeRun(jobs[0], training)))
            continue
        params, static = eqx.partition(job.network, eqx.is_inexact_array)
        shapes = jax.tree.map(jnp.shape, (params, job.rows))
        every = None if job.refresh is None else job.refresh.every
        signature = (id(job.data), str(static), str(shapes), options(job, training), every)
        alike.setdefault(signature, []).append(job)
    stacks = [same[k : k + width] for same in alike.values() for k in range(0, len(same), width)]
    return groups + [_Group(stack, XlaRun) for stack in stacks]


def _is_native(job: Job, *, forced: bool) -> bool:
    reason = native.obstacle(job)
    if forced and reason is not None:
        raise UsageError(f"engine='native' cannot train this: {reason}")
    return reason is None


def train(
    jobs: Sequence[Job],
    training: Training,
    *,
    progress: Progress | None = None,
    width: int | None = None,
    engine: Engine = "auto",
    checkpoints: Checkpoints | None = None,
) -> list[Trained]:
    """Train all networks; a Ctrl-C stops them between chunks and is raised again.

    `width` is how many networks one XLA program may stack: by default 1 on a CPU, 64 on an accelerator.
    `engine` is "native" or "xla" to insist on one; "auto" takes the native kernel where it applies.
    With `checkpoints` a run that was killed goes on where it was, and its result is the same.
    """
    if engine not in get_args(Engine):
        raise unknown_name("engine", engine, get_args(Engine))
    distinct = {(id(job.data), job.name): job for job in reversed(jobs)}
    on_cpu = jax.default_backend() == "cpu"
    groups = _groups(list(distinct.values())[::-1], training, engine, width or (1 if on_cpu else 64))
    crew = _Crew(len(groups), training.steps * len(distinct), progress, checkpoints)
    with ThreadPoolExecutor(min(len(groups), cores() if on_cpu else 1) or 1) as pool:
        futures: list[Future[list[Trained]]] = []
        try:
            for group in groups:
                futures.append(pool.submit(_train_group, group, training, crew))
            while wait(futures, timeout=0.5, return_when=FIRST_EXCEPTION).not_done:
                if any(future.done() and future.exception() for future in futures):
                    break
        finally:
            crew.halt()
            for future in futures:
                future.cancel()
    failed = [
        e for f in futures if not f.cancelled() and (e := f.exception()) and not isinstance(e, _Stopped)
    ]
    if failed:
        raise failed[0]
    results = {
        (id(job.data), job.name): trained
        for group, future in zip(groups, futures, strict=True)
        for job, trained in zip(group.jobs, future.result(), strict=True)
    }
    return [results[id(job.data), job.name] for job in jobs]


def values_over(networks: Sequence[eqx.Module], data: Data) -> Float[Array, "networks rows"]:
    """V of each network at every state of a log, in the units of training."""
    seen = seen_by_kernel(networks, data)
    return jnp.stack([over_states(network, data) for network in networks]) if seen is None else seen


def seen_by_kernel(networks: Sequence[eqx.Module], log: Data | View) -> Float[Array, "networks rows"] | None:
    """What `values_over` gives, by the native kernel; None where that cannot look with all of them."""
    if not networks or any(native.unseen(network, log) for network in networks):
        return None
    return jnp.stack([native.Sight(network, log).values(cores())[0] for network in networks])


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class EngineReport(NamedTuple):
    """The engine that MLP and NatureCNN train with here, and why that one."""

    engine: Literal["native", "xla"]
    reason: str


def engine_report() -> EngineReport:
    """Which engine serves MLP and NatureCNN on this machine; all other models train with XLA."""
    problem = native.unavailable()
    if problem is not None:
        return EngineReport("xla", f"the native kernel does not serve: {problem}")
    return EngineReport("native", f"{native.kernel().instructions} instructions, {cores()} cores")
