"""Our two engines, with any number of networks on all cores, as the driver of training runs them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from adaptive_td.jobs import Job, Run, Training
from adaptive_td.native import NativeRun
from adaptive_td.training import cores
from adaptive_td.xla import XlaRun


class Ours:
    """Networks in training by the native kernel or by XLA."""

    def __init__(self, jobs: Sequence[Job], training: Training, engine: Literal["native", "xla"]):
        self.networks = len(jobs)
        self._runs: list[Run] = [
            NativeRun(job, training) if engine == "native" else XlaRun([job], training) for job in jobs
        ]
        self._threads = max(1, cores() // len(jobs))
        self._pool = ThreadPoolExecutor(min(cores(), len(jobs)))
        self._at = 0

    def run(self, steps: int) -> None:
        """Take so many updates of every network, as many networks at once as there are cores."""
        start, self._at = self._at, self._at + steps
        list(self._pool.map(lambda run: run.advance(start, start + steps, self._threads), self._runs))

    def values(self, states: np.ndarray) -> np.ndarray:
        """V of the first network."""
        network = self._runs[0].networks()[0]
        return np.asarray(jax.vmap(network)(jnp.asarray(states, jnp.float32)))  # type: ignore[arg-type]
