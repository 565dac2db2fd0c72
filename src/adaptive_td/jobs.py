"""What there is to train: networks, the rows each is regressed on, and what an engine does with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped, UInt32

from .errors import UsageError
from .rows import Data, Rows
from .targets import Fallback

HISTORY = 100
MOST_STEPS = 2**31 // HISTORY
"""Step numbers times `HISTORY` stay within 32 bits."""


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
        if self.steps > MOST_STEPS:
            raise UsageError(f"steps must be at most {MOST_STEPS:,}, got {self.steps:,}")


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
    window: int = 0
    """Where it is not 0, the target is the λ-return over so many steps, λ being in the rows."""


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


class Options(NamedTuple):
    """The form of a job's update; the XLA engine compiles one program for each."""

    batch: int
    whole: bool
    bootstraps: bool
    fallback: Fallback
    tests: Literal["target", "value"]
    window: int


def options(job: Job, training: Training) -> Options:
    """A log no larger than one batch is used whole in every step, which leaves no sampling noise."""
    count = int(job.rows.drawable)
    whole = count <= training.batch_size
    size = min(count, training.batch_size)
    return Options(size, whole, job.bootstraps, job.fallback, job.tests, job.window)


@runtime_checkable
class Run(Protocol):
    """One network, or several of the same shape on the same data, in training by an engine."""

    def advance(self, start: int, stop: int, threads: int) -> None:
        """Take steps start, ..., stop - 1 of the one update; the result is the same for any `threads`."""
        ...

    def values(self, threads: int) -> list[Float[Array, " rows"]]:
        """V of each network at every state of the log, in the units of training."""
        ...

    def networks(self) -> list[eqx.Module]:
        """The networks as they are now."""
        ...

    def rows(self) -> list[Rows]:
        """What each is fitted to."""
        ...

    def replace_rows(self, rows: list[Rows]) -> None:
        """Fit them to these rows from now on."""
        ...

    def history(self) -> Float[np.ndarray, "networks 100 4"]:
        """Sums over each hundredth of training: loss, share below, share above, number of steps."""
        ...

    def diverged_at(self) -> Int[np.ndarray, " networks"]:
        """The first step whose loss was not finite, or -1."""
        ...

    def state(self) -> Mapping[str, Shaped[np.ndarray, "..."]]:
        """All that the steps so far have changed, by name."""
        ...

    def restore(self, state: Mapping[str, Shaped[np.ndarray, "..."]]) -> None:
        """Go on from what `state` gave."""
        ...


def evaluate(network: Any, data: Data, rows: Int[Array, " batch"]) -> Float[Array, " batch"]:
    """V at the states of these rows of the log, in the units of training."""
    values: Float[Array, " batch"] = jax.vmap(network)(data.scaling(data.observe(rows)))
    return values


BLOCK_NUMBERS = 2**21
"""Numbers in the states that a network looks at in one go, where it looks at a whole log.

Measured, the Nature CNN takes half as long for each of 64 states as for each of 256."""


def block_rows(shape: tuple[int, ...], most: int = 4096) -> int:
    """How many states of this shape are looked at in one go: a power of two, as blocks are padded to one."""
    fitting = max(1, min(most, BLOCK_NUMBERS // math.prod(shape)))
    return 1 << (fitting.bit_length() - 1)


@eqx.filter_jit
def over_states(function: Any, data: Data) -> Any:
    """A function of one scaled state, at every state of a log; block by block, to bound the memory."""
    rows = jnp.arange(len(data.states))
    size = block_rows(data.scaling.center.shape)
    return jax.lax.map(lambda row: function(data.scaling(data.observe(row))), rows, batch_size=size)
