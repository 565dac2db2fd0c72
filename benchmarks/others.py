"""The same update as a user would write it: PyTorch eager, PyTorch stacked and compiled, a plain JAX loop.

Batches are drawn with each library's own generator, or are those given (to check that the updates agree).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import rlax
import torch

from .work import Work


class TorchEager:
    """(a) One network, `nn.Sequential` and `torch.optim.Adam`."""

    networks = 1

    def __init__(self, work: Work, indices: np.ndarray | None = None):
        self._work, self._indices = work, indices
        self._data = {k: torch.from_numpy(v) for k, v in work.columns.items()}
        layers: list[torch.nn.Module] = []
        for w, b in zip(*work.start(), strict=True):
            linear = torch.nn.Linear(*w.shape)
            with torch.no_grad():
                linear.weight.copy_(torch.from_numpy(w.T.copy()))
                linear.bias.copy_(torch.from_numpy(b))
            layers += [linear, torch.nn.ReLU()]
        self._network = torch.nn.Sequential(*layers[:-1])
        self._adam = torch.optim.Adam(self._network.parameters(), lr=1e-3)

    def run(self, steps: int) -> None:
        """Take so many updates."""
        data, network = self._data, self._network
        for k in range(steps):
            if self._indices is None:
                i = torch.randint(len(data["r"]), (self._work.batch,))
            else:
                i = torch.from_numpy(self._indices[k])
            target = data["r"][i]
            if self._work.update == "TD":
                with torch.no_grad():
                    target = target + data["c"][i] * network(data["next"][i]).squeeze(1)
            loss = ((target - network(data["s"][i]).squeeze(1)) ** 2).mean()
            self._adam.zero_grad()
            loss.backward()
            self._adam.step()

    def values(self, states: np.ndarray) -> np.ndarray:
        """V of the network."""
        with torch.no_grad():
            return np.asarray(self._network(torch.from_numpy(states)).squeeze(1))


class TorchStacked:
    """(b) Networks stacked with bmm, forward and backward compiled, one fused Adam for all."""

    def __init__(self, work: Work, networks: int, indices: np.ndarray | None = None):
        self.networks, self._work, self._indices = networks, work, indices
        self._data = {k: torch.from_numpy(v) for k, v in work.columns.items()}
        weights, biases = work.start()
        self._w = [torch.from_numpy(np.stack([w] * networks)).requires_grad_() for w in weights]
        self._b = [torch.from_numpy(np.stack([b[None]] * networks)).requires_grad_() for b in biases]
        self._adam = torch.optim.Adam([*self._w, *self._b], lr=1e-3, fused=True)
        self._loss = torch.compile(self._plain_loss)

    def _forward(self, x: torch.Tensor) -> torch.Tensor:
        for k, (w, b) in enumerate(zip(self._w, self._b, strict=True)):
            x = torch.baddbmm(b, x, w)
            if k < len(self._w) - 1:
                x = torch.relu(x)
        return x.squeeze(2)

    def _plain_loss(
        self, s: torch.Tensor, after: torch.Tensor, r: torch.Tensor, c: torch.Tensor
    ) -> torch.Tensor:
        target = r
        if self._work.update == "TD":
            with torch.no_grad():
                target = r + c * self._forward(after)
        return ((target - self._forward(s)) ** 2).mean(1).sum()

    def run(self, steps: int) -> None:
        """Take so many updates of every network."""
        data, shape = self._data, (self.networks, self._work.batch)
        for k in range(steps):
            if self._indices is None:
                i = torch.randint(len(data["r"]), shape)
            else:
                i = torch.from_numpy(self._indices[k]).expand(shape)
            loss = self._loss(data["s"][i], data["next"][i], data["r"][i], data["c"][i])
            self._adam.zero_grad()
            loss.backward()
            self._adam.step()

    def values(self, states: np.ndarray) -> np.ndarray:
        """V of the first network."""
        with torch.no_grad():
            x = torch.from_numpy(states).expand(self.networks, *states.shape)
            return np.asarray(self._forward(x)[0])


class PlainJax:
    """(c) One network in a jitted loop, with rlax for the TD error and Optax for Adam."""

    networks = 1

    def __init__(self, work: Work, indices: np.ndarray | None = None):
        self._adam = optax.adam(1e-3)
        self._params: Any = [(jnp.asarray(w), jnp.asarray(b)) for w, b in zip(*work.start(), strict=True)]
        self._state = self._adam.init(self._params)
        self._key = jax.random.key(0)
        data = {k: jnp.asarray(v) for k, v in work.columns.items()}
        given = None if indices is None else jnp.asarray(indices)

        def loss(params: Any, batch: Any) -> jax.Array:
            value = self.forward(params, batch["s"])
            if work.update == "TD":
                after = self.forward(params, batch["next"])
                error = jax.vmap(rlax.td_learning)(value, batch["r"], batch["c"], after)
            else:
                error = batch["r"] - value
            return jnp.mean(error**2)

        def update(k: jax.Array, carry: Any) -> Any:
            params, state, key = carry
            key, own = jax.random.split(key)
            i = jax.random.randint(own, (work.batch,), 0, len(data["r"])) if given is None else given[k]
            gradient = jax.grad(loss)(params, {name: column[i] for name, column in data.items()})
            change, state = self._adam.update(gradient, state)
            return optax.apply_updates(params, change), state, key

        self._loop = jax.jit(lambda steps, carry: jax.lax.fori_loop(0, steps, update, carry))

    @staticmethod
    def forward(params: Any, x: jax.Array) -> jax.Array:
        """V at a batch of states."""
        for w, b in params[:-1]:
            x = jax.nn.relu(x @ w + b)
        w, b = params[-1]
        return (x @ w + b)[:, 0]

    def run(self, steps: int) -> None:
        """Take so many updates."""
        carry = self._loop(steps, (self._params, self._state, self._key))
        self._params, self._state, self._key = jax.block_until_ready(carry)

    def values(self, states: np.ndarray) -> np.ndarray:
        """V of the network."""
        return np.asarray(self.forward(self._params, jnp.asarray(states)))
