"""The XLA engine: the one update of `rows.py` for any network on any device, as a compiled loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Shaped, UInt32

from .checkpoints import RefreshedRows, flatten, unflatten
from .jobs import HISTORY, Job, Options, Training, evaluate, options, over_states
from .rows import Data, Rows, counter_bits
from .targets import adaptive_targets, lambda_window


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
    options: Options,
    stacked: bool,
) -> _State:
    """Take steps start, ..., stop - 1 of the one update."""
    adam = optax.adam(settings.learning_rate, eps=settings.epsilon)
    lanes = jnp.arange(options.batch, dtype=jnp.uint32)

    def update(step: Array, state: _State, rows: Rows, seed: Array) -> _State:
        slots = lanes if options.whole else counter_bits(seed, step, lanes) % rows.drawable.astype(jnp.uint32)
        i = slots.astype(jnp.int32) if rows.draws is None else rows.draws[slots]
        target = rows.rewards[i]
        network = eqx.combine(state.params, static)
        if options.window:
            target = _windowed(network, data, rows, i, options.window)
        elif options.bootstraps:
            target += rows.discounts[i] * evaluate(network, data, rows.next_index[i])

        def loss_and_shares(params: Any) -> tuple[Array, tuple[Array, Array]]:
            value = evaluate(eqx.combine(params, static), data, data.index[i])
            tested = jax.lax.stop_gradient(value) if options.tests == "value" else target
            y, below, above = target, jnp.zeros(()), jnp.zeros(())
            if rows.bounds is not None:
                lower, upper = rows.bounds.lower[i], rows.bounds.upper[i]
                y = adaptive_targets(
                    target,
                    (lower, upper),
                    fallback=options.fallback,
                    returns=rows.fallback[i],
                    tested=tested,
                )
                below, above = jnp.mean(tested <= lower), jnp.mean(tested >= upper)
            return jnp.mean(jnp.square(jax.lax.stop_gradient(y) - value)), (below, above)

        (loss, outside), gradient = jax.value_and_grad(loss_and_shares, has_aux=True)(state.params)
        change, optimiser = adam.update(gradient, state.optimiser)
        params = optax.apply_updates(state.params, change)
        entry = jnp.stack([loss, *outside, jnp.ones(())])
        history = state.history.at[step * HISTORY // settings.steps].add(entry)
        failed = (state.diverged_at < 0) & ~jnp.isfinite(loss)
        return _State(params, optimiser, history, jnp.where(failed, step, state.diverged_at))

    def run(state: _State, rows: Rows, seed: Array) -> Any:
        return jax.lax.fori_loop(start, stop, lambda step, state: update(step, state, rows, seed), state)

    after: _State = jax.vmap(run)(state, rows, seed) if stacked else run(state, rows, seed)
    return after


def _windowed(
    network: Any, data: Data, rows: Rows, i: Int[Array, " batch"], window: int
) -> Float[Array, " batch"]:
    """λ-returns of these transitions from V as it is now, each over its own window."""
    at = jnp.minimum(i[:, None] + jnp.arange(window), len(data.index) - 1)
    values = evaluate(network, data, rows.next_index[at].reshape(-1)).reshape(at.shape)
    columns = (rows.rewards[at], rows.discounts[at], values, data.last[at])
    return lambda_window(*columns, jnp.asarray(rows.lam))


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


class XlaRun:
    """One network, or several stacked."""

    def __init__(self, jobs: Sequence[Job], training: Training):
        self._stacked, self._data = len(jobs) > 1, jobs[0].data
        self._refreshes = jobs[0].refresh is not None
        params, self._statics = zip(
            *(eqx.partition(job.network, eqx.is_inexact_array) for job in jobs), strict=True
        )
        adam = optax.adam(training.learning_rate, eps=training.epsilon)
        states = [
            _State(p, adam.init(p), jnp.zeros((HISTORY, 4)), jnp.asarray(-1, jnp.int32)) for p in params
        ]
        self._state: _State = self._join(states)
        self._rows: Rows = self._join([job.rows for job in jobs])
        self._seed = self._join([job.seed for job in jobs])
        self._options = options(jobs[0], training)
        self._settings = _Settings(
            jnp.asarray(training.learning_rate, jnp.float32),
            jnp.asarray(training.epsilon, jnp.float32),
            jnp.asarray(training.steps, jnp.int32),
        )

    def advance(self, start: int, stop: int, threads: int) -> None:
        """Run the compiled loop; XLA shares out its threads itself."""
        span = jnp.asarray(start, jnp.int32), jnp.asarray(stop, jnp.int32)
        self._state = _advance(
            self._state,
            self._statics[0],
            self._data,
            self._rows,
            self._seed,
            *span,
            self._settings,
            self._options,
            self._stacked,
        )
        self._state.diverged_at.block_until_ready()

    def values(self, threads: int) -> list[Float[Array, " rows"]]:
        """V at every state of the log."""
        return [over_states(network, self._data) for network in self.networks()]

    def networks(self) -> list[eqx.Module]:
        """The networks as they are now."""
        params = self._split(self._state.params)
        return [eqx.combine(p, static) for p, static in zip(params, self._statics, strict=True)]

    def rows(self) -> list[Rows]:
        """What each is fitted to."""
        return self._split(self._rows)

    def replace_rows(self, rows: list[Rows]) -> None:
        """Fit them to these rows from now on."""
        self._rows = self._join(rows)

    def history(self) -> Float[np.ndarray, "networks 100 4"]:
        """Sums over each hundredth of training."""
        return np.asarray(self._state.history).reshape(-1, HISTORY, 4)

    def diverged_at(self) -> Int[np.ndarray, " networks"]:
        """The first step whose loss was not finite, or -1."""
        return np.asarray(self._state.diverged_at).reshape(-1)

    def state(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        """Parameters, moments, history and divergence; and rows, where they follow V."""
        return flatten(self._saved())

    def restore(self, state: Mapping[str, Shaped[np.ndarray, "..."]]) -> None:
        """Go on from what `state` gave."""
        self._state, refreshed = unflatten(self._saved(), state)
        if refreshed is not None:
            self._rows = refreshed.within(self._rows)

    def _saved(self) -> tuple[_State, RefreshedRows | None]:
        return self._state, RefreshedRows.of(self._rows) if self._refreshes else None

    def _join(self, trees: Sequence[Any]) -> Any:
        return _stack(trees) if self._stacked else trees[0]

    def _split(self, tree: Any) -> list[Any]:
        if not self._stacked:
            return [tree]
        return [jax.tree.map(lambda x, k=k: x[k], tree) for k in range(len(self._statics))]
