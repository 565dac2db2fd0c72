"""The Nature CNN on Atari frames, batch 32, TD update: PyTorch in two layouts, and our XLA engine."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import adaptive_td as atd
from adaptive_td.fitting import Fit, _task
from adaptive_td.jobs import Job, Training
from adaptive_td.rows import counter_bits

BATCH, TRANSITIONS = 32, 2000
TRAINING = Training(steps=1_000_000, batch_size=BATCH)


@cache
def episodes() -> atd.Episodes:
    """Frames of noise; the time of a convolution does not depend on what it sees."""
    rng = np.random.default_rng(0)
    states = rng.integers(0, 255, (TRANSITIONS + 1, 4, 84, 84), np.uint8)
    rewards = rng.random(TRANSITIONS, np.float32) - 0.5
    lengths, ended = np.array([TRANSITIONS]), np.array([True])
    return atd.Episodes(states=states, rewards=rewards, lengths=lengths, ended=ended)


def jobs(networks: int) -> list[Job]:
    """The networks as our engine takes them."""
    shared: dict[Any, Any] = {}
    made = []
    for key in range(networks):
        one = Fit(atd.TD(), episodes(), atd.NatureCNN(), discount=0.99, key=key)
        made += next(atd.TD().fit(_task(one, TRAINING, shared)))
    return made


def indices(steps: int) -> np.ndarray:
    """The batches that our engine draws for the first network."""
    seed, lanes = jobs(1)[0].seed, jnp.arange(BATCH, dtype=jnp.uint32)
    bits = [np.asarray(counter_bits(seed, jnp.asarray(k), lanes)) for k in range(steps)]
    return (np.stack(bits) % np.uint32(TRANSITIONS)).astype(np.int64)


class TorchCNN:
    """One network, the way a user would write it; five are trained one after the other."""

    networks = 1

    def __init__(self, *, channels_last: bool, indices: np.ndarray | None = None):
        job = jobs(1)[0]
        network: Any = job.network
        self._indices, self._format = indices, torch.preserve_format
        if channels_last:
            self._format = torch.channels_last
        self._states = torch.from_numpy(np.asarray(job.data.states).copy())
        self._rewards = torch.from_numpy(np.asarray(job.rows.rewards).copy())
        self._discounts = torch.from_numpy(np.asarray(job.rows.discounts).copy())
        layers: list[torch.nn.Module] = []
        for conv, (kernel, stride) in zip(network.layers, ((8, 4), (4, 2), (3, 1)), strict=True):
            layer = torch.nn.Conv2d(conv.weight.shape[1], conv.weight.shape[0], kernel, stride)
            self._copy(layer, conv.weight, conv.bias.reshape(-1))
            layers += [layer, torch.nn.ReLU()]
        layers.append(torch.nn.Flatten())
        for w, b in zip(network.head.weights, network.head.biases, strict=True):
            linear = torch.nn.Linear(*w.shape)
            self._copy(linear, w.T, b)
            layers += [linear, torch.nn.ReLU()]
        self._network = torch.nn.Sequential(*layers[:-1]).to(memory_format=self._format)
        self._adam = torch.optim.Adam(self._network.parameters(), lr=1e-3)

    @staticmethod
    def _copy(layer: Any, weight: jax.Array, bias: jax.Array) -> None:
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(np.array(weight)))
            layer.bias.copy_(torch.from_numpy(np.array(bias)))

    def _value(self, rows: torch.Tensor) -> torch.Tensor:
        frames = (self._states[rows].float() / 255).contiguous(memory_format=self._contiguous)
        return self._network(frames).squeeze(1)  # type: ignore[no-any-return]

    @property
    def _contiguous(self) -> torch.memory_format:
        return torch.channels_last if self._format == torch.channels_last else torch.contiguous_format

    def run(self, steps: int) -> None:
        """Take so many updates."""
        for k in range(steps):
            if self._indices is None:
                i = torch.randint(TRANSITIONS, (BATCH,))
            else:
                i = torch.from_numpy(self._indices[k])
            with torch.no_grad():
                target = self._rewards[i] + self._discounts[i] * self._value(i + 1)
            loss = ((target - self._value(i)) ** 2).mean()
            self._adam.zero_grad()
            loss.backward()
            self._adam.step()

    def values(self, count: int) -> np.ndarray:
        """V at the first states of the log."""
        with torch.no_grad():
            return np.asarray(self._value(torch.arange(count)))
