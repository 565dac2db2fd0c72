"""Q-networks for Atari games, and their files: safetensors with a model card beside them.

Four stacked frames divided by 255 pass three convolutions, a dense layer of 512 and a linear one:

    x ← relu(n1(c1 x))   4 -> 32 channels, 8 x 8, stride 4
    x ← relu(n2(c2 x))  32 -> 64 channels, 4 x 4, stride 2
    x ← relu(n3(c3 x))  64 -> 64 channels, 3 x 3, stride 1
    x ← relu(n4(f x))   3136 (channel, row, column) -> 512
    q = o x             one number for each action

n1, n2 and n3 normalise each state over all channels and pixels together and then scale and shift each
channel; n4 does so over the 512 units. Weights are laid out as PyTorch's: (output, input, height, width).
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from jaxtyping import Array, Float, PRNGKeyArray, UInt8
from safetensors import SafetensorError

from adaptive_td.errors import DataError, UsageError
from adaptive_td.files import write_whole
from adaptive_td.models import convolution

from .games import game_name

EPSILON = 1e-5
LAYERS = {"c1": (32, 4, 8, 8), "c2": (64, 32, 4, 4), "c3": (64, 64, 3, 3), "f": (512, 3136)}
"""The shapes of the layers before the last, whose outputs are the actions."""
STRIDES = {"c1": 4, "c2": 2, "c3": 1}
NORMS = {"c1": "n1", "c2": "n2", "c3": "n3", "f": "n4"}


_convolutions = jax.vmap(convolution, in_axes=(0, None, None))


class QNetwork(eqx.Module):
    """Q(s, ·) of a batch of states; `layers` maps names such as `c1.weight` to arrays."""

    layers: dict[str, Float[Array, "..."]]

    def __call__(self, states: UInt8[Array, "batch 4 84 84"]) -> Float[Array, "batch actions"]:
        """The values of all actions in each state."""
        p = self.layers
        x = jnp.moveaxis(states, 1, -1).astype(jnp.float32) / 255
        for name, stride in STRIDES.items():
            x = _convolutions(x, p[f"{name}.weight"], stride) + p[f"{name}.bias"]
            x = jax.nn.relu(self._normalised(NORMS[name], x))
        x = jnp.moveaxis(x, -1, 1).reshape(len(x), -1)
        x = jax.nn.relu(self._normalised("n4", x @ p["f.weight"].T + p["f.bias"]))
        return x @ p["o.weight"].T + p["o.bias"]

    def _normalised(self, name: str, x: Float[Array, "batch *inner channels"]) -> Float[Array, "..."]:
        """(x - mean) / sqrt(variance + ε), then a scale and shift for each channel."""
        axes = tuple(range(1, x.ndim))
        x = x - x.mean(axes, keepdims=True)
        x = x * jax.lax.rsqrt(jnp.square(x).mean(axes, keepdims=True) + EPSILON)
        return x * self.layers[f"{name}.weight"] + self.layers[f"{name}.bias"]

    @property
    def actions(self) -> int:
        """How many actions there are."""
        return len(self.layers["o.bias"])

    @property
    def digest(self) -> str:
        """What tells this network from others: a SHA-256 of its weights as they are stored."""
        return hashlib.sha256(_packed(self)).hexdigest()


def init(actions: int, *, key: PRNGKeyArray) -> QNetwork:
    """He's initial weights: normal with variance 2 / inputs; biases zero; the last layer with 1 / inputs."""
    shapes = {**LAYERS, "o": (actions, 512)}
    layers: dict[str, Array] = {}
    for k, (name, shape) in zip(jax.random.split(key, len(shapes)), shapes.items(), strict=True):
        gain = 1 if name == "o" else 2
        layers[f"{name}.weight"] = jax.random.normal(k, shape) * math.sqrt(gain / math.prod(shape[1:]))
        layers[f"{name}.bias"] = jnp.zeros(shape[0])
        if name in NORMS:
            layers[f"{NORMS[name]}.weight"] = jnp.ones(shape[0])
            layers[f"{NORMS[name]}.bias"] = jnp.zeros(shape[0])
    return QNetwork(layers)


@dataclass(frozen=True)
class Packaged:
    """A network with its model card."""

    network: QNetwork
    card: dict[str, Any]


def save(path: Path, network: QNetwork, card: dict[str, Any]) -> None:
    """Write the weights as float16 safetensors and, beside them, the card as JSON."""
    write_whole(path, _packed(network))
    write_card(path, card)


def write_card(path: Path, card: dict[str, Any]) -> None:
    """Write the card of the network at `path`."""
    write_whole(path.with_suffix(".json"), (json.dumps(card, indent=2, ensure_ascii=False) + "\n").encode())


def load(path: Path) -> Packaged:
    """A network and its card (empty if there is none); shapes and finiteness are checked."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    try:
        arrays = safetensors.numpy.load(path.read_bytes())
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise DataError(f"{path.name}: cannot be read as safetensors: {error}") from None
    card = path.with_suffix(".json")
    return Packaged(_checked(path.name, arrays), json.loads(card.read_text()) if card.is_file() else {})


def packaged(game: str) -> Packaged:
    """The network that comes with this package."""
    return load(packaged_path(game_name(game)))


def has_packaged(game: str) -> bool:
    """Whether a network for this game comes with the package."""
    return packaged_path(game).is_file()


def packaged_path(game: str) -> Path:
    """Where the package keeps its network for a game."""
    return Path(__file__).parent / "policies" / f"{game}.safetensors"


def _checked(name: str, arrays: dict[str, np.ndarray]) -> QNetwork:
    actions = arrays["o.bias"].shape if "o.bias" in arrays else (1,)
    expected = jax.eval_shape(lambda: init(int(np.prod(actions)), key=jax.random.key(0))).layers
    for key in sorted({*expected, *arrays}):
        if key not in arrays or key not in expected:
            raise DataError(f"{name}: {key}: {'missing' if key in expected else 'no layer of a Q-network'}")
        if arrays[key].shape != expected[key].shape:
            raise DataError(f"{name}: {key}: shape {arrays[key].shape}, expected {expected[key].shape}")
        if not np.isfinite(arrays[key]).all():
            raise DataError(f"{name}: {key}: holds NaN or infinity")
    return QNetwork({key: jnp.asarray(arrays[key], jnp.float32) for key in expected})


def _packed(network: QNetwork) -> bytes:
    return safetensors.numpy.save(
        {key: np.asarray(layer, np.float16) for key, layer in sorted(network.layers.items())}
    )
