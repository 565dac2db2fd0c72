"""The native engine: the one update of `rows.py` for dense and convolutional networks on a CPU, in C++.

The kernel (kernel.cpp) reads states where they lie; parameters (layouts.py) and the columns of the rows
(packing.py) are laid out for it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from adaptive_td.checkpoints import RefreshedRows, flatten, unflatten
from adaptive_td.episodes import ALIGNMENT, aligned_empty
from adaptive_td.errors import UsageError
from adaptive_td.jobs import HISTORY, Job, Training, options
from adaptive_td.rows import Data, Rows, View

from .layouts import DenseLayout, layout, split
from .library import Library, Problem, Unavailable, best
from .packing import ROW, Packed, pack, repack

_FALLBACKS = {"midpoint": 0, "endpoint": 1, "return": 2}
_FLOATS = ALIGNMENT // 4


def unavailable() -> str | None:
    """Why the kernel serves nothing here, or None."""
    if jax.default_backend() != "cpu":
        return f"JAX runs on {jax.default_backend()}, and the kernel on CPUs"
    found = best()
    return str(found) if isinstance(found, Unavailable) else None


def describe() -> str:
    """The kernel that was built and fits this machine, or why there is none; JAX is not asked."""
    found = best()
    return str(found) if isinstance(found, Unavailable) else f"{found.instructions} instructions"


def kernel() -> Library:
    """The kernel for this machine; raises `UsageError` where there is none."""
    found = best()
    if isinstance(found, Unavailable):
        raise UsageError(f"the native kernel does not serve: {found}")
    return found


def obstacle(job: Job) -> str | None:
    """Why the kernel cannot train this job, or None."""
    rows = job.rows
    columns = (rows.rewards, rows.discounts, *(rows.bounds or ()), rows.fallback)
    return unseen(job.network, job.data) or _not_single(columns)


def unseen(network: Any, log: Data | View) -> str | None:
    """Why the kernel cannot look at the states of this log with this network, or None."""
    found = layout(network)
    if isinstance(found, str):
        return found
    if found.dense.weights[-1].shape[1] != 1:
        return f"the network has {found.dense.weights[-1].shape[1]} outputs"
    if log.stack > 1 and isinstance(found, DenseLayout):
        return f"a state is a stack of {log.stack} rows, and dense networks read one row"
    return _not_single(found.parts()) or unavailable()


def _not_single(arrays: Iterable[Any]) -> str | None:
    wider = next((x.dtype for x in arrays if x.dtype != jnp.float32), None)
    return None if wider is None else f"numbers are {wider}, and the kernel works in float32"


def _zeros(size: int) -> Float[np.ndarray, " size"]:
    """Zeros that start where the kernel's vectors may."""
    zeros = aligned_empty((size,), np.float32)
    zeros[:] = 0
    return zeros


def _states(data: Data | View) -> Shaped[np.ndarray, "rows *obs"]:
    """The states as the kernel can read them: bytes or float32."""
    states = np.asarray(data.states)
    return states if states.dtype in (np.uint8, np.float32) else states.astype(np.float32)


class Sight:
    """A network and the states of a log, as the kernel sees them."""

    def __init__(self, network: eqx.Module, log: Data | View, using: Library | None = None):
        self._kernel = using or kernel()
        found = layout(network)
        assert not isinstance(found, str), found
        self._layout, self._parts = found, found.parts()
        vector = np.concatenate([part.ravel() for part in self._parts])
        padded = -(-len(vector) // _FLOATS) * _FLOATS
        self._parameters = _zeros(padded)
        self._parameters[: len(vector)] = vector
        states, scaling = _states(log), log.scaling
        self._rows_of_log = len(states)
        convolutions = found.convolutions(scaling.center.shape)
        self._problem = Problem(
            convolution_count=len(convolutions),
            layers=len(found.dense.weights),
            padded=padded,
            states_are_bytes=states.dtype == np.uint8,
            stack=log.stack,
        )
        self._keep: dict[str, np.ndarray] = {}
        self._point(
            convolutions=np.array(convolutions, np.int32) if convolutions else None,
            sizes=np.array([len(found.dense.weights[0]), *map(len, found.dense.biases)], np.int32),
            parameters=self._parameters,
            states=states,
            center=np.ravel(scaling.center).astype(np.float32),
            half=np.ravel(scaling.half).astype(np.float32),
            ages=None if log.ages is None else np.asarray(log.ages, np.int32),
        )

    def _point(self, **arrays: np.ndarray | None) -> None:
        """Let the kernel see these arrays, and keep them alive."""
        for name, array in arrays.items():
            if array is None:
                setattr(self._problem, name, None)
                continue
            assert array.flags.c_contiguous
            self._keep[name] = array
            setattr(self._problem, name, array.ctypes.data)

    def values(self, threads: int) -> list[Float[Array, " rows"]]:
        """V at every state of the log, in the units of training."""
        return [jnp.asarray(self._kernel.values(self._problem, self._rows_of_log, threads))]

    def networks(self) -> list[eqx.Module]:
        """The network as it is now."""
        return [self._layout.rebuilt(split(self._parameters, self._parts))]


class NativeRun(Sight):
    """One network in training by the kernel."""

    def __init__(self, job: Job, training: Training, using: Library | None = None):
        super().__init__(job.network, job.data, using)
        self._data, self._refreshes = job.data, job.refresh is not None
        self._moments = _zeros(len(self._parameters)), _zeros(len(self._parameters))
        self._history = np.zeros((1, HISTORY, 4), np.float32)
        form, problem = options(job, training), self._problem
        problem.seed = (ctypes.c_uint32 * 2)(*np.asarray(job.seed, np.uint32).tolist())
        problem.batch, problem.whole = form.batch, form.whole
        problem.window = form.window or int(form.bootstraps)
        problem.lam = 0.0 if job.rows.lam is None else float(job.rows.lam)
        problem.tests_value, problem.fallback = form.tests == "value", _FALLBACKS[form.fallback]
        problem.learning_rate, problem.epsilon = training.learning_rate, training.epsilon
        problem.steps, problem.diverged_at = training.steps, -1
        self._point(first_moment=self._moments[0], second_moment=self._moments[1], history=self._history)
        self._own: Packed | None = None
        self._fit_to(job.rows, pack(job.data, job.rows))

    def advance(self, start: int, stop: int, threads: int) -> None:
        """Take steps start, ..., stop - 1; the same bits for any number of threads."""
        self._kernel.advance(self._problem, start, stop, threads)

    def rows(self) -> list[Rows]:
        """What it is fitted to."""
        return [self._rows]

    def replace_rows(self, rows: list[Rows]) -> None:
        """Fit it to these rows from now on."""
        if self._own is None:
            self._own = Packed(aligned_empty((len(self._data.index),), ROW), ())
        repack(self._own, self._data, rows[0])
        self._fit_to(rows[0], self._own)

    def _fit_to(self, rows: Rows, packed: Packed) -> None:
        self._rows, self._packed = rows, packed
        draws = None if rows.draws is None else np.asarray(rows.draws)
        size = len(packed.rows)
        drawn = np.array([0, int(rows.drawable) - 1]) if draws is None else draws
        if drawn.min() < 0 or drawn.max() >= size:
            raise UsageError(f"draws must refer to rows 0, ..., {size - 1}")
        self._problem.count = int(rows.drawable)
        self._point(rows=packed.rows, draws=draws)

    def history(self) -> Float[np.ndarray, "networks 100 4"]:
        """Sums over each hundredth of training."""
        return self._history

    def diverged_at(self) -> Int[np.ndarray, " networks"]:
        """The first step whose loss was not finite, or -1."""
        return np.array([self._problem.diverged_at])

    def state(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        """Parameters, moments, history and divergence; and rows, where they follow V."""
        state = {**self._own_state(), "diverged_at": np.array(self._problem.diverged_at)}
        return state | (flatten(RefreshedRows.of(self._rows)) if self._refreshes else {})

    def restore(self, state: Mapping[str, Shaped[np.ndarray, "..."]]) -> None:
        """Go on from what `state` gave."""
        given = dict(state)
        self._problem.diverged_at = int(given.pop("diverged_at"))
        for name, array in self._own_state().items():
            array[...] = given.pop(name)
        if self._refreshes:
            self.replace_rows([unflatten(RefreshedRows.of(self._rows), given).within(self._rows)])

    def _own_state(self) -> dict[str, Shaped[np.ndarray, "..."]]:
        first, second = self._moments
        return {"parameters": self._parameters, "m": first, "v": second, "history": self._history}
