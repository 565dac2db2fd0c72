"""Training that survives being killed: the state of a run on disk, from which it goes on bit for bit.

A folder holds one file of safetensors for each network (or stack of them), named by everything that its
training depends on: the log, the rows, the start, the seed, the settings.
"""

from __future__ import annotations

import hashlib
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Shaped

from .errors import DataError
from .files import write_whole
from .jobs import Job, Run, Training
from .rows import Data, Rows

STEP = "step"
State = Mapping[str, Shaped[np.ndarray, "..."]]


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Where training keeps its state, and how often it writes it."""

    folder: Path
    seconds: float = 60.0
    """Between two writings of one network's state."""

    def of(self, jobs: Sequence[Job], training: Training) -> Checkpoint:
        """The file of these jobs, which train together."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return Checkpoint(self.folder / f"{_digest(jobs, training)}.safetensors", self.seconds)


@dataclass
class Checkpoint:
    """The state of one run on disk."""

    path: Path
    seconds: float
    _written: float = field(default_factory=time.monotonic)

    def restore(self, run: Run) -> int:
        """Put the run where it was, and return the step it was at; 0 where nothing was written."""
        try:
            state = dict(safetensors.numpy.load_file(self.path))
            step = int(state.pop(STEP))
        except FileNotFoundError:
            return 0
        except (safetensors.SafetensorError, KeyError) as error:
            size = self.path.stat().st_size
            raise DataError(
                f"{self.path} ({size} bytes) is not a whole checkpoint: {error}; remove it to start again"
            ) from None
        run.restore(state)
        return step

    def keep(self, run: Run, step: int, *, now: bool = False) -> None:
        """Write the state, if it is time to or if it must be."""
        if not now and time.monotonic() - self._written < self.seconds:
            return
        state = {name: np.asarray(array, order="C") for name, array in run.state().items()}
        write_whole(self.path, safetensors.numpy.save({**state, STEP: np.array(step)}))
        self._written = time.monotonic()


def flatten(tree: Any) -> dict[str, Shaped[np.ndarray, "..."]]:
    """The arrays of a pytree by the path to each."""
    paths, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_array))
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(x) for path, x in paths}


def unflatten(tree: Any, arrays: State) -> Any:
    """A pytree like this one with the arrays that `flatten` gave, if their names, types and shapes fit."""
    expected = flatten(tree)
    for name in sorted(expected.keys() | arrays.keys()):
        if name not in expected or name not in arrays:
            raise DataError(f"{name!r} is only in one of the two")
        if (found := _form(arrays[name])) != (wanted := _form(expected[name])):
            raise DataError(f"{name} is {found}, expected {wanted}")
    filled, rest = eqx.partition(tree, eqx.is_array)
    paths, structure = jax.tree_util.tree_flatten_with_path(filled)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths]
    leaves = [jnp.asarray(arrays[name]) for name in names]
    return eqx.combine(jax.tree_util.tree_unflatten(structure, leaves), rest)


def _form(array: Shaped[np.ndarray, "..."]) -> str:
    return f"{array.dtype}{list(array.shape)}"


class RefreshedRows(NamedTuple):
    """The columns of rows that depend on V, and so on the steps taken so far."""

    rewards: Any
    bounds: Any

    @staticmethod
    def of(rows: Rows) -> RefreshedRows:
        """Those columns."""
        return RefreshedRows(rows.rewards, rows.bounds)

    def within(self, rows: Rows) -> Rows:
        """The rows with these columns."""
        return rows._replace(rewards=self.rewards, bounds=self.bounds)


def _digest(jobs: Sequence[Job], training: Training) -> str:
    """Names all that the result of training depends on."""
    hashed = hashlib.blake2b(digest_size=20)
    hashed.update(repr(training).encode())
    for job in jobs:
        params, static = eqx.partition(job.network, eqx.is_inexact_array)
        every = None if job.refresh is None else job.refresh.every
        form = (job.name[1:], str(static), job.fallback, job.tests, job.window, every)
        hashed.update(repr(form).encode())
        hashed.update(_log_digest(job.data))
        for name, array in flatten((params, job.rows, job.seed)).items():
            hashed.update(f"{name}{array.dtype}{array.shape}".encode())
            hashed.update(np.ascontiguousarray(array).data)
    return hashed.hexdigest()


_LOGS: weakref.WeakValueDictionary[int, Data] = weakref.WeakValueDictionary()
_LOG_DIGESTS: dict[int, bytes] = {}


def _log_digest(data: Data) -> bytes:
    """The digest of a log's states, made once for all networks that learn from it."""
    if _LOGS.get(id(data)) is not data:
        hashed = hashlib.blake2b(digest_size=20)
        for array in (data.states, data.index, *jax.tree.leaves(data.scaling)):
            hashed.update(np.ascontiguousarray(np.asarray(array)).data)
        _LOGS[id(data)], _LOG_DIGESTS[id(data)] = data, hashed.digest()
    return _LOG_DIGESTS[id(data)]
