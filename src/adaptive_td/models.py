"""Function classes for V: what maps one state to one number.

A model is a frozen description with `build(shape, *, key)`, which makes an Equinox module that maps one
observation to a scalar. Anything that makes such a module from a key also works as a model: a function
`key -> module`, or a module itself (then every network starts from the same weights).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from .errors import DataError, UsageError, unknown_name


@runtime_checkable
class Model(Protocol):
    """A description of a function class."""

    @property
    def scales_inputs(self) -> bool:
        """Whether its networks want states scaled to [-1, 1]."""
        ...

    def build(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> eqx.Module:
        """A freshly initialised network for observations of this shape."""
        ...


class Dense(eqx.Module):
    """Affine layers with ReLU between them: x ← max(0, W x + b), the last one without the ReLU."""

    weights: list[Float[Array, "_ _"]]
    biases: list[Float[Array, " _"]]

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, ""]:
        """The value of one state."""
        for i, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ w + b
            if i < len(self.weights) - 1:
                x = jax.nn.relu(x)
        return x[0]


def _dense(sizes: Sequence[int], key: PRNGKeyArray) -> Dense:
    """Weights uniform in ±sqrt(6 / (inputs + outputs)) (Glorot), biases zero."""
    keys = jax.random.split(key, len(sizes) - 1)
    weights = [
        jax.random.uniform(k, (a, b), minval=-1, maxval=1) * math.sqrt(6 / (a + b))
        for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]
    return Dense(weights, [jnp.zeros(b) for b in sizes[1:]])


@dataclass(frozen=True)
class MLP:
    """A dense ReLU network on the flattened state; `MLP((50, 50))` is the paper's for two dimensions."""

    hidden: tuple[int, ...] = (50, 50)
    scales_inputs = True

    def build(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> eqx.Module:
        """Dense layers from the state's size through `hidden` to 1."""
        network = _dense((math.prod(shape), *self.hidden, 1), key)
        return network if len(shape) == 1 else Flattened(network)


class Flattened(eqx.Module):
    """A network on vectors, applied to states of any shape."""

    network: Dense

    def __call__(self, x: Float[Array, "*obs"]) -> Float[Array, ""]:
        """The value of one state."""
        return self.network(x.reshape(-1))


def convolution(
    x: Float[Array, "height width channels"], weight: Float[Array, "out channels kernel kernel"], stride: int
) -> Float[Array, "rows columns out"]:
    """y[i, j] = Σ_uv W[:, :, u, v] x[stride i + u, stride j + v], without padding.

    On a CPU it is a sum of matrix products: cells of stride x stride pixels become the channels of a coarser
    picture, on which the kernel moves by one, and each offset of the kernel is one product. Measured, an
    update of the Nature CNN takes a tenth of the time that XLA's own convolutions and their gradients take.
    """
    outputs, channels, kernel, _ = weight.shape
    if jax.default_backend() != "cpu" or kernel % stride:
        return _plain_convolution(x, weight, stride)
    span = kernel // stride
    rows, columns = ((size - kernel) // stride + 1 for size in x.shape[:2])
    cells = (rows + span - 1, columns + span - 1)
    coarse = x[: cells[0] * stride, : cells[1] * stride].reshape(cells[0], stride, cells[1], stride, channels)
    coarse = coarse.transpose(0, 2, 1, 3, 4).reshape(*cells, stride * stride * channels)
    offsets = weight.reshape(outputs, channels, span, stride, span, stride).transpose(2, 4, 0, 3, 5, 1)
    offsets = offsets.reshape(span, span, outputs, -1)
    return sum(  # type: ignore[return-value]
        coarse[u : u + rows, v : v + columns] @ offsets[u, v].T for u in range(span) for v in range(span)
    )


def _plain_convolution(x: Array, weight: Array, stride: int) -> Array:
    return jax.lax.conv_general_dilated(
        x[None], weight, (stride, stride), "VALID", dimension_numbers=("NHWC", "OIHW", "NHWC")
    )[0]


class Convolutional(eqx.Module):
    """Convolutions with ReLU, then dense layers on the last picture, channel by channel."""

    layers: list[eqx.nn.Conv2d]
    head: Dense

    def __call__(self, x: Float[Array, "channels height width"]) -> Float[Array, ""]:
        """The value of one state."""
        x = x.transpose(1, 2, 0)
        for layer in self.layers:
            bias = jnp.zeros(()) if layer.bias is None else layer.bias.reshape(-1)
            x = jax.nn.relu(convolution(x, layer.weight, layer.stride[0]) + bias)
        return self.head(x.transpose(2, 0, 1).reshape(-1))


@dataclass(frozen=True)
class NatureCNN:
    """Convolutions 32/64/64 with kernels 8/4/3 and strides 4/2/1, then a dense layer of 512.

    States are (channels, height, width), for Atari four stacked 84 x 84 frames.
    """

    dense: int = 512
    scales_inputs = True

    def build(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> eqx.Module:
        """The network of Mnih et al. (2015) with one output."""
        if len(shape) != 3 or min(shape[1:]) < 36:
            raise UsageError(f"NatureCNN needs states (channels, height >= 36, width >= 36), got {shape}")
        keys = jax.random.split(key, 4)
        layers, channels, size = [], shape[0], np.array(shape[1:])
        for k, (out, kernel, stride) in zip(keys, ((32, 8, 4), (64, 4, 2), (64, 3, 1)), strict=False):
            layers.append(eqx.nn.Conv2d(channels, out, kernel, stride, key=k))
            channels, size = out, (size - kernel) // stride + 1
        return Convolutional(layers, _dense((channels * int(size.prod()), self.dense, 1), keys[3]))


class _Cells(eqx.Module):
    """One free number per cell; the model tells which cell a state is in."""

    values: Float[Array, " cells"]
    model: Grid | Table = eqx.field(static=True)

    def __call__(self, x: Shaped[Array, "*obs"]) -> Float[Array, ""]:
        return self.values[self.model.index(x)]


@dataclass(frozen=True)
class Grid:
    """Piecewise constant: one number for each cell of side `cell` in the box from `low` to `high`.

    Cells are counted up from `low`; the last in each direction may stick out over `high` (19 x 19 cells on
    400 x 300 make 22 x 16 of them). States outside the box belong to the nearest cell.
    """

    cell: float | tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    scales_inputs = False

    @property
    def sides(self) -> tuple[float, ...]:
        """The side of a cell in each direction."""
        return self.cell if isinstance(self.cell, tuple) else (self.cell,) * len(self.low)

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of cells in each direction."""
        box = zip(self.sides, self.low, self.high, strict=True)
        return tuple(max(1, math.ceil((h - lo) / c - 1e-9)) for c, lo, h in box)

    @property
    def cells(self) -> int:
        """The number of cells in all."""
        return math.prod(self.counts)

    def index(self, x: Shaped[Array, " dims"]) -> Array:
        """The cell of a state."""
        counts = self.counts
        at = jnp.floor((x - jnp.asarray(self.low)) / jnp.asarray(self.sides)).astype(jnp.int32)
        at = jnp.clip(at, 0, jnp.asarray(counts) - 1)
        strides = np.concatenate([np.cumprod(counts[:0:-1])[::-1], [1]]).astype(np.int32)
        return (at * jnp.asarray(strides)).sum()

    def build(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> eqx.Module:
        """All cells start at zero, whatever the key."""
        if not shape == (len(self.low),) == (len(self.high),) == (len(self.sides),):
            raise UsageError(f"Grid has {len(self.low)} dimensions, states have shape {shape}")
        return _Cells(jnp.zeros(self.cells), self)


@dataclass(frozen=True)
class Table:
    """One number per state, for states that are integers 0, ..., states - 1."""

    states: int
    scales_inputs = False

    @property
    def cells(self) -> int:
        """The number of states."""
        return self.states

    def index(self, x: Shaped[Array, "*obs"]) -> Array:
        """The state's own number."""
        return jnp.clip(x.reshape(()).astype(jnp.int32), 0, self.states - 1)

    def build(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> eqx.Module:
        """All states start at zero, whatever the key."""
        if math.prod(shape) != 1:
            raise UsageError(f"Table needs states that are one integer each, got shape {shape}")
        return _Cells(jnp.zeros(self.states), self)


class _Features(eqx.Module):
    weights: Float[Array, " features"]
    features: Callable[[Array], Array] = eqx.field(static=True)

    def __call__(self, x: Shaped[Array, "*obs"]) -> Float[Array, ""]:
        return self.features(x) @ self.weights


def with_intercept(x: Shaped[Array, "*obs"]) -> Float[Array, " features"]:
    """The state itself and a constant 1."""
    return jnp.append(x.reshape(-1).astype(jnp.result_type(float)), 1.0)


@dataclass(frozen=True)
class Linear:
    """V(s) = w · φ(s) for a feature map φ of one state (by default the scaled state and a constant)."""

    features: Callable[[Array], Array] = with_intercept
    scales_inputs: bool = True

    def build(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> eqx.Module:
        """Weights start at zero, whatever the key."""
        size = jax.eval_shape(self.features, jax.ShapeDtypeStruct(shape, jnp.float32)).shape
        if len(size) != 1:
            raise UsageError(f"Linear: features must map one state to a vector, got shape {size}")
        return _Features(jnp.zeros(size), self.features)


@dataclass(frozen=True)
class Custom:
    """A user's own Equinox module, or a function that makes one from a key."""

    make: Callable[..., Any]
    scales_inputs = True

    def build(self, shape: tuple[int, ...], *, key: PRNGKeyArray) -> eqx.Module:
        """The module itself, or what the function makes of the key."""
        network = self.make if isinstance(self.make, eqx.Module) else self.make(key)
        out = jax.eval_shape(network, jax.ShapeDtypeStruct(shape, jnp.float32))
        if getattr(out, "shape", None) not in ((), (1,)):
            raise UsageError(f"a model must map one state of shape {shape} to one number, got {out}")
        return Scalar(network) if out.shape == (1,) else network


class Scalar(eqx.Module):
    """A network with one output unit, read as a number."""

    network: Any

    def __call__(self, x: Shaped[Array, "*obs"]) -> Float[Array, ""]:
        """The value of one state."""
        return self.network(x).reshape(())


MODELS: dict[str, Callable[..., Model]] = {
    "MLP": MLP,
    "NatureCNN": NatureCNN,
    "Grid": Grid,
    "Table": Table,
    "Linear": Linear,
}


def as_model(model: Any) -> Model:
    """A model description, from itself, an Equinox module, or a function `key -> module`."""
    if isinstance(model, type) and model in MODELS.values():
        raise UsageError(f"model: {model.__name__} is a class; call it, as in {model.__name__}(...)")
    if isinstance(model, Model) and not isinstance(model, type):
        return model
    if callable(model):
        return Custom(model)
    raise UsageError(f"model: {model!r} is neither a model, an Equinox module, nor a function of a key")


def describe(model: Model) -> dict[str, Any] | None:
    """The model as JSON, or None if it holds code of the user's."""
    name = type(model).__name__
    if name not in MODELS or (isinstance(model, Linear) and model.features is not with_intercept):
        return None
    fields = {k: v for k, v in asdict(model).items() if k != "features"}  # type: ignore[call-overload]
    return {"name": name, **fields}


def from_description(description: dict[str, Any]) -> Model:
    """The model that `describe` described."""
    fields = {k: tuple(v) if isinstance(v, list) else v for k, v in description.items() if k != "name"}
    if description["name"] not in MODELS:
        raise unknown_name("model", description["name"], MODELS)
    try:
        return MODELS[description["name"]](**fields)
    except TypeError as error:
        raise DataError(f"model {description['name']}: {error}") from None
