"""One loop that regresses any number of networks on their rows, side by side.

On a CPU every network is a program of its own and as many run at once as there are cores: measured, that is
as fast as stacking networks and leaves each one's bits independent of its neighbours. On an accelerator
networks of the same shape and log are stacked and one program trains them all.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Shaped, UInt32

from .errors import UsageError
from .rows import Data, Rows, counter_bits
from .targets import Fallback, adaptive_targets

Progress = Callable[[int, int], None]
"""Called with network updates done and network updates in all."""

HISTORY = 100
_CHUNK_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class Training:
    """How long and how fast to train each network (Adam; the defaults are the paper's for two dimensions)."""

    steps: int = 50_000
    batch_size: int = 512
    learning_rate: float = 1e-3
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        """Refuse settings that cannot train."""
        for name in ("steps", "batch_size", "learning_rate"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} must be positive, got {getattr(self, name)}")


class Refresh(NamedTuple):
    """Rows that depend on V itself and are recomputed every `every` steps from V at all states."""

    every: int
    update: Callable[[Data, Rows, Float[Array, " rows"]], Rows]


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """One network to train: its start, its rows, and how a target outside its bounds is replaced.

    Jobs with the same `name` on the same data are the same work, and are done once.
    """

    name: tuple[Any, ...]
    data: Data
    network: eqx.Module
    rows: Rows
    seed: UInt32[Array, "2"]
    bootstraps: bool
    fallback: Fallback = "midpoint"
    tests: Literal["target", "value"] = "target"
    refresh: Refresh | None = None


class History(NamedTuple):
    """Means over each hundredth of training: loss, share of targets below and above their bounds."""

    loss: Float[np.ndarray, "100"]
    below: Float[np.ndarray, "100"]
    above: Float[np.ndarray, "100"]


class Trained(NamedTuple):
    """A trained network, how training went, and the step at which it diverged, if it did."""

    network: eqx.Module
    history: History
    rows: Rows
    diverged_at: int | None


class _State(NamedTuple):
    """What the loop carries."""

    params: Any
    optimiser: optax.OptState
    history: Float[Array, "100 4"]
    diverged_at: Int[Array, ""]


class _Settings(NamedTuple):
    """What may change without compiling again."""

    learning_rate: Float[Array, ""]
    epsilon: Float[Array, ""]
    steps: Int[Array, ""]


class _Options(NamedTuple):
    """What is fixed when the program is compiled."""

    batch: int
    whole: bool
    bootstraps: bool
    fallback: Fallback
    tests: str
    stacked: bool


def evaluate(network: Any, data: Data, states: Shaped[Array, "batch *obs"]) -> Float[Array, " batch"]:
    """V at raw states, in the units of training."""
    return jax.vmap(network)(data.scaling(states))


@eqx.filter_jit
def _advance(
    state: _State,
    static: Any,
    data: Data,
    rows: Rows,
    seed: UInt32[Array, "*stack 2"],
    start: Int[Array, ""],
    stop: Int[Array, ""],
    settings: _Settings,
    options: _Options,
) -> _State:
    """Take steps start, ..., stop - 1 of the one update."""
    adam = optax.adam(settings.learning_rate, eps=settings.epsilon)
    lanes = jnp.arange(options.batch, dtype=jnp.uint32)

    def update(step: Array, state: _State, rows: Rows, seed: Array) -> _State:
        slots = lanes if options.whole else counter_bits(seed, step, lanes) % rows.count.astype(jnp.uint32)
        i = rows.draws[slots]
        lower, upper = rows.bounds.lower[i], rows.bounds.upper[i]
        target = rows.rewards[i]
        if options.bootstraps:
            network = eqx.combine(state.params, static)
            target += rows.discounts[i] * evaluate(network, data, data.states[rows.next_index[i]])

        def loss_and_tested(params: Any) -> tuple[Array, Array]:
            value = evaluate(eqx.combine(params, static), data, data.states[data.index[i]])
            tested = jax.lax.stop_gradient(value) if options.tests == "value" else target
            y = adaptive_targets(
                target,
                (lower, upper),
                fallback=options.fallback,
                returns=rows.fallback[i],
                tested=tested,
            )
            return jnp.mean(jnp.square(jax.lax.stop_gradient(y) - value)), tested

        (loss, tested), gradient = jax.value_and_grad(loss_and_tested, has_aux=True)(state.params)
        change, optimiser = adam.update(gradient, state.optimiser)
        params = optax.apply_updates(state.params, change)
        entry = jnp.stack([loss, jnp.mean(tested <= lower), jnp.mean(tested >= upper), jnp.ones(())])
        history = state.history.at[step * HISTORY // settings.steps].add(entry)
        failed = (state.diverged_at < 0) & ~jnp.isfinite(loss)
        return _State(params, optimiser, history, jnp.where(failed, step, state.diverged_at))

    def run(state: _State, rows: Rows, seed: Array) -> _State:
        return jax.lax.fori_loop(start, stop, lambda step, state: update(step, state, rows, seed), state)

    return jax.vmap(run)(state, rows, seed) if options.stacked else run(state, rows, seed)


_BLOCK = 4096


@eqx.filter_jit
def over_states(function: Callable[[Array], Any], data: Data) -> Any:
    """A function of one scaled state, at every state of a log; block by block, to bound the memory."""
    return jax.lax.map(lambda s: function(data.scaling(s)), data.states, batch_size=_BLOCK)


class _Stopped(Exception):
    """Training was told to stop."""


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _train_group(
    jobs: Sequence[Job], training: Training, report: Callable[[int], None], stop: threading.Event
) -> list[Trained]:
    """Train one network, or several stacked, in chunks between which they can be stopped."""
    stacked, data, refresh = len(jobs) > 1, jobs[0].data, jobs[0].refresh
    params, statics = zip(*(eqx.partition(job.network, eqx.is_inexact_array) for job in jobs), strict=True)
    adam = optax.adam(training.learning_rate, eps=training.epsilon)
    states = [_State(p, adam.init(p), jnp.zeros((HISTORY, 4)), jnp.asarray(-1, jnp.int32)) for p in params]
    join = _stack if stacked else lambda trees: trees[0]
    lane = (lambda tree, k: jax.tree.map(lambda x: x[k], tree)) if stacked else lambda tree, k: tree
    state, rows, seed = join(states), join([job.rows for job in jobs]), join([job.seed for job in jobs])
    settings = _Settings(
        jnp.asarray(training.learning_rate, jnp.float32),
        jnp.asarray(training.epsilon, jnp.float32),
        jnp.asarray(training.steps, jnp.int32),
    )
    options = _options(jobs[0], training, stacked)
    step, chunk = 0, 16
    while step < training.steps and np.any(np.asarray(state.diverged_at) < 0):
        if stop.is_set():
            raise _Stopped
        until = training.steps
        if refresh is not None:
            if step % refresh.every == 0:
                rows = join(
                    [_refreshed(job, lane(rows, k), lane(state.params, k)) for k, job in enumerate(jobs)]
                )
            until = (step // refresh.every + 1) * refresh.every
        ahead = min(step + chunk, until, training.steps)
        began = time.perf_counter()
        span = jnp.asarray(step, jnp.int32), jnp.asarray(ahead, jnp.int32)
        state = _advance(state, statics[0], data, rows, seed, *span, settings, options)
        jax.block_until_ready(state)
        report((ahead - step) * len(jobs))
        if ahead - step == chunk:
            faster = _CHUNK_SECONDS / max(time.perf_counter() - began, 1e-6)
            chunk = max(16, round(chunk * min(4, faster)))
        step = ahead
    report((training.steps - step) * len(jobs))
    return [
        Trained(
            eqx.combine(lane(state.params, k), statics[k]),
            _history(np.asarray(lane(state.history, k))),
            lane(rows, k),
            int(at) if (at := lane(state.diverged_at, k)) >= 0 else None,
        )
        for k in range(len(jobs))
    ]


def _refreshed(job: Job, rows: Rows, params: Any) -> Rows:
    assert job.refresh is not None
    _, static = eqx.partition(job.network, eqx.is_inexact_array)
    return job.refresh.update(job.data, rows, over_states(eqx.combine(params, static), job.data))


def _options(job: Job, training: Training, stacked: bool) -> _Options:
    """A log no larger than one batch is used whole in every step, which leaves no sampling noise."""
    count = int(job.rows.count)
    whole = count <= training.batch_size
    return _Options(min(count, training.batch_size), whole, job.bootstraps, job.fallback, job.tests, stacked)


def _history(sums: Float[np.ndarray, "100 4"]) -> History:
    """Means from sums; a hundredth in which no step falls (fewer than 100 steps) repeats the one before."""
    filled = np.maximum.accumulate(np.where(sums[:, 3] > 0, np.arange(HISTORY), 0))
    means = sums[filled, :3] / np.maximum(sums[filled, 3:], 1)
    return History(*means.T)


def _groups(jobs: Sequence[Job], training: Training, width: int) -> list[list[Job]]:
    """Jobs that one program can train stacked, at most `width` of them together."""
    alike: dict[Any, list[Job]] = {}
    for job in jobs:
        params, static = eqx.partition(job.network, eqx.is_inexact_array)
        shapes = jax.tree.map(jnp.shape, (params, job.rows))
        every = None if job.refresh is None else job.refresh.every
        signature = (id(job.data), str(static), str(shapes), _options(job, training, True), every)
        alike.setdefault(signature, []).append(job)
    return [same[k : k + width] for same in alike.values() for k in range(0, len(same), width)]


def train(
    jobs: Sequence[Job],
    training: Training,
    *,
    progress: Progress | None = None,
    width: int | None = None,
) -> list[Trained]:
    """Train all networks; a Ctrl-C stops them between chunks and is raised again.

    `width` is how many networks one program may stack: by default 1 on a CPU, 64 on an accelerator.
    """
    distinct = {(id(job.data), job.name): job for job in reversed(jobs)}
    on_cpu = jax.default_backend() == "cpu"
    groups = _groups(list(distinct.values())[::-1], training, width or (1 if on_cpu else 64))
    total, done = training.steps * len(distinct), 0
    lock, stop = threading.Lock(), threading.Event()

    def report(steps: int) -> None:
        nonlocal done
        with lock:
            done += steps
            if progress is not None:
                progress(done, total)

    with ThreadPoolExecutor(min(len(groups), cores() if on_cpu else 1) or 1) as pool:
        futures = [pool.submit(_train_group, group, training, report, stop) for group in groups]
        try:
            while wait(futures, timeout=0.5, return_when=FIRST_EXCEPTION).not_done:
                if any(future.done() and future.exception() for future in futures):
                    break
        finally:
            stop.set()
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
        for job, trained in zip(group, future.result(), strict=True)
    }
    return [results[id(job.data), job.name] for job in jobs]


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
