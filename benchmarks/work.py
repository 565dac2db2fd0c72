"""The work that every way is given: a log, networks with the same start, one update.

y = r + γ V(s') (TD) or the return (MC);  loss = mean (y - V(s))²;  Adam
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

import adaptive_td as atd
from adaptive_td.fitting import Fit, _task
from adaptive_td.jobs import Job, Training
from adaptive_td.rows import counter_bits

Update = Literal["MC", "TD"]
STEPS = 1_000_000
"""Far more than are ever timed; only the history's resolution depends on it."""


class Way(Protocol):
    """Networks in training by one way of writing it."""

    networks: int

    def run(self, steps: int) -> None:
        """Take so many updates of every network."""
        ...

    def values(self, states: np.ndarray) -> np.ndarray:
        """V of the first network at scaled states."""
        ...


@dataclass(frozen=True)
class Work:
    """A shape of network, a size of log, and which update."""

    update: Update = "TD"
    sizes: tuple[int, ...] = (2, 50, 50, 1)
    batch: int = 512
    transitions: int = 200_000
    discount: float = 0.99

    @property
    def name(self) -> str:
        """For tables and result files."""
        return f"{self.update} {'-'.join(map(str, self.sizes))} batch {self.batch} of {self.transitions}"

    @property
    def training(self) -> Training:
        """How our engines are told to train."""
        return Training(steps=STEPS, batch_size=self.batch)

    @cached_property
    def episodes(self) -> atd.Episodes:
        """Episodes of 1,000 uniform states in [-1, 1] with noisy rewards."""
        rng = np.random.default_rng(0)
        length = 1000
        count = max(1, self.transitions // length)
        states = rng.random((count * (length + 1), self.sizes[0]), np.float32) * 2 - 1
        rewards = (rng.random(count * length, np.float32) - 0.5) / 10
        return atd.Episodes(
            states=states,
            rewards=rewards,
            lengths=np.full(count, length),
            ended=np.ones(count, bool),
        )

    def jobs(self, networks: int) -> list[Job]:
        """The networks as our engines take them; they share the log."""
        shared, made = self._made
        method = atd.TD() if self.update == "TD" else atd.MonteCarlo()
        for key in range(len(made), networks):
            model = atd.MLP(self.sizes[1:-1])
            one = Fit(method, self.episodes, model, discount=self.discount, key=key, normalize=False)
            made += next(method.fit(_task(one, self.training, shared)))
        return made[:networks]

    @cached_property
    def _made(self) -> tuple[dict[Any, Any], list[Job]]:
        """The log on the device and the networks made so far; nothing changes them."""
        return {}, []

    @cached_property
    def columns(self) -> dict[str, np.ndarray]:
        """States, next states, rewards (or returns) and discounts by transition, as others take them."""
        job = self.jobs(1)[0]
        n, states = self.episodes.steps, np.asarray(job.data.states)
        return {
            "s": states[np.asarray(job.data.index)[:n]],
            "next": states[np.asarray(job.rows.next_index)[:n]],
            "r": np.asarray(job.rows.rewards)[:n],
            "c": np.asarray(job.rows.discounts)[:n],
        }

    def start(self, network: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The weights [inputs, outputs] and biases that network number `network` starts from."""
        dense: Any = self.jobs(network + 1)[network].network
        return [np.array(w) for w in dense.weights], [np.array(b) for b in dense.biases]

    def indices(self, steps: int) -> np.ndarray:
        """The batches that our engines draw for the first network, so that others can be given the same."""
        seed, lanes = self.jobs(1)[0].seed, jnp.arange(self.batch, dtype=jnp.uint32)
        n = np.uint32(self.episodes.steps)
        return np.stack(
            [np.asarray(counter_bits(seed, jnp.asarray(k), lanes)) % n for k in range(steps)]
        ).astype(np.int64)

    @property
    def flop(self) -> int:
        """Floating-point operations of one update: multiply and add in every product of matrices.

        V(s'), V(s), the gradient of the weights, and that of the inputs but for the first layer's.
        """
        layers = [a * b for a, b in zip(self.sizes[:-1], self.sizes[1:], strict=True)]
        passes = 3 + (self.update == "TD")
        return 2 * self.batch * (passes * sum(layers) - layers[0])


def scaled_states(work: Work, count: int = 1000) -> Float[np.ndarray, "count features"]:
    """States to compare value functions at."""
    return work.columns["s"][:count]


def cnn_flop(batch: int = 32) -> int:
    """As `Work.flop`, for one TD update of the Nature CNN on 84 x 84 frames."""
    layers = [
        math.prod(x) for x in ((20, 20, 32, 8, 8, 4), (9, 9, 64, 4, 4, 32), (7, 7, 64, 3, 3, 64), (3136, 512))
    ]
    return 2 * batch * (4 * (sum(layers) + 512) - layers[0])
