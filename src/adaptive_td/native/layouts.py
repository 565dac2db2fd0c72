"""How the parameters of a network lie in the kernel's flat vector: layer by layer, weights and then biases.

Weights of dense networks are [input][output]. Those of convolutional networks lie in panels of 32 units,
[panel][k][32], with k in the order in which kernel.cpp meets what a unit sees: (channel, line, column) in the
first layer, (line, column, channel) in all later ones, dense ones included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from adaptive_td.models import Convolutional, Dense, Flattened

PANEL, RUN = 32, 8
"""As in convolutional.h."""

Parameters = list[Float[np.ndarray, "..."]]


class Convolution(NamedTuple):
    """As in problem.h."""

    channels: int
    height: int
    width: int
    units: int
    kernel: int
    stride: int


@dataclass(frozen=True, eq=False)
class DenseLayout:
    """A dense network."""

    network: Dense | Flattened

    @property
    def dense(self) -> Dense:
        """The layers, all of which are dense."""
        return self.network.network if isinstance(self.network, Flattened) else self.network

    def convolutions(self, shape: tuple[int, ...]) -> list[Convolution]:
        """None."""
        return []

    def parts(self) -> Parameters:
        """The parameters in the kernel's order."""
        return [
            np.asarray(x) for pair in zip(self.dense.weights, self.dense.biases, strict=True) for x in pair
        ]

    def rebuilt(self, parts: Parameters) -> eqx.Module:
        """The network with these in place of its parameters."""
        trained = Dense([jnp.asarray(w) for w in parts[::2]], [jnp.asarray(b) for b in parts[1::2]])
        return Flattened(trained) if isinstance(self.network, Flattened) else trained


@dataclass(frozen=True, eq=False)
class ConvolutionalLayout:
    """Convolutions and a dense head."""

    network: Convolutional

    @property
    def dense(self) -> Dense:
        """The head."""
        return self.network.head

    def convolutions(self, shape: tuple[int, ...]) -> list[Convolution]:
        """What each convolution sees, for states of this shape."""
        found, (channels, height, width) = [], shape
        for layer in self.network.layers:
            units, _, kernel, _ = layer.weight.shape
            found.append(Convolution(channels, height, width, units, kernel, layer.stride[0]))
            channels = units
            height, width = ((size - kernel) // layer.stride[0] + 1 for size in (height, width))
        return found

    def parts(self) -> Parameters:
        """The parameters in the kernel's order."""
        found: Parameters = []
        for number, layer in enumerate(self.network.layers):
            weight = np.asarray(layer.weight)
            order = (1, 2, 3, 0) if number == 0 else (2, 3, 1, 0)
            found += [
                _panels(weight.transpose(order).reshape(-1, len(weight))),
                np.asarray(layer.bias).ravel(),
            ]
        weights = [np.asarray(w) for w in self.dense.weights]
        weights[0] = _regrouped(weights[0], self._channels)
        for weight, bias in zip(weights[:-1], self.dense.biases, strict=False):
            found += [_panels(weight), np.asarray(bias)]
        return [*found, weights[-1], np.asarray(self.dense.biases[-1])]

    def rebuilt(self, parts: Parameters) -> eqx.Module:
        """The network with these in place of its parameters."""
        layers = []
        for number, layer in enumerate(self.network.layers):
            units, channels, kernel, _ = layer.weight.shape
            seen = (channels, kernel, kernel) if number == 0 else (kernel, kernel, channels)
            order = (3, 0, 1, 2) if number == 0 else (3, 2, 0, 1)
            weight = _columns(parts[2 * number]).reshape(*seen, units).transpose(order)
            changed = (jnp.asarray(weight), jnp.asarray(parts[2 * number + 1].reshape(units, 1, 1)))
            layers.append(eqx.tree_at(lambda one: (one.weight, one.bias), layer, changed))
        rest = parts[2 * len(layers) :]
        weights = [*map(_columns, rest[:-2:2]), rest[-2]]
        weights[0] = _regrouped(weights[0], len(weights[0]) // self._channels)
        head = Dense([jnp.asarray(w) for w in weights], [jnp.asarray(b) for b in rest[1::2]])
        return Convolutional(layers, head)

    @property
    def _channels(self) -> int:
        """Of the last picture, whose numbers the head sees channel by channel."""
        return self.network.layers[-1].weight.shape[0]


Layout = DenseLayout | ConvolutionalLayout


def layout(network: Any) -> Layout | str:
    """How a network lies in the kernel's vector, or why it cannot be trained there."""
    if type(network) is Dense or type(network) is Flattened:
        return DenseLayout(network)
    if type(network) is not Convolutional:
        return f"it trains dense ReLU networks (MLP) and NatureCNN, not {type(network).__name__}"
    units = [layer.weight.shape[0] for layer in network.layers]
    units += [weight.shape[1] for weight in network.head.weights[:-1]]
    if len(network.head.weights) < 2 or any(count % PANEL for count in units):
        return f"layers of convolutional networks must have multiples of {PANEL} units, got {units}"
    if network.layers[0].weight.shape[3] % RUN:
        return f"the first convolution's kernel must be a multiple of {RUN} wide"
    return ConvolutionalLayout(network)


def _regrouped(weight: Float[np.ndarray, "inputs units"], groups: int) -> Float[np.ndarray, "inputs units"]:
    """Inputs that lie group by group, member by member instead."""
    return weight.reshape(groups, -1, weight.shape[1]).transpose(1, 0, 2).reshape(weight.shape)


def _panels(weight: Float[np.ndarray, "depth units"]) -> Float[np.ndarray, "panels depth 32"]:
    return weight.reshape(len(weight), -1, PANEL).transpose(1, 0, 2)


def _columns(panels: Float[np.ndarray, "panels depth 32"]) -> Float[np.ndarray, "depth units"]:
    return panels.transpose(1, 0, 2).reshape(panels.shape[1], -1)


def split(vector: Float[np.ndarray, " padded"], like: Sequence[np.ndarray]) -> Parameters:
    """Copies of the parts of a flat vector, in the shapes of others."""
    parts, at = [], 0
    for one in like:
        size = math.prod(one.shape)
        parts.append(vector[at : at + size].reshape(one.shape).copy())
        at += size
    return parts
