"""Observations of a Gymnasium space as one array.

Numbers, images and integers keep their form: a Box its shape, a Discrete its integers. Dict and Tuple
observations become vectors, in the order of `gymnasium.spaces.flatten`: the parts in the order in which the
space lists them, each Box row by row, each Discrete as one 0 or 1 per value. `feature_names` gives the name
of every entry.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Shaped

from adaptive_td.errors import DataError

PLAIN = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def as_array(space: spaces.Space[Any], batch: Any) -> Shaped[np.ndarray, "rows *obs"]:
    """A batch of observations, as the space's own batches are made: arrays, or dicts or tuples of arrays."""
    return np.asarray(batch) if isinstance(space, PLAIN) else _flatten(space, batch)


def _flatten(space: spaces.Space[Any], batch: Any) -> Shaped[np.ndarray, "rows width"]:
    if isinstance(space, spaces.Dict):
        return np.concatenate([_flatten(part, batch[name]) for name, part in space.spaces.items()], axis=1)
    if isinstance(space, spaces.Tuple):
        parts = zip(space.spaces, batch, strict=True)
        return np.concatenate([_flatten(part, values) for part, values in parts], axis=1)
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return np.asarray(batch, space.dtype).reshape(len(batch), spaces.flatdim(space))
    if isinstance(space, spaces.Discrete):
        return _one_hot(np.asarray(batch) - space.start, int(space.n)).astype(space.dtype)
    if isinstance(space, spaces.MultiDiscrete):
        digits = (np.asarray(batch) - space.start).reshape(len(batch), -1)
        columns = zip(digits.T, space.nvec.ravel(), strict=True)
        return np.concatenate([_one_hot(digit, int(n)) for digit, n in columns], axis=1).astype(space.dtype)
    raise DataError(f"observations: a {type(space).__name__} space cannot be laid out as numbers")


def _one_hot(values: Shaped[np.ndarray, " rows"], count: int) -> Shaped[np.ndarray, "rows count"]:
    if count > 2**16:
        raise DataError(f"observations: one feature for each of {count} values is too many")
    if len(values) and not (values.min() >= 0 and values.max() < count):
        raise DataError(f"observations: a value lies outside the {count} that its space allows")
    return values[:, None] == np.arange(count)


def feature_names(space: spaces.Space[Any], prefix: str = "") -> list[str]:
    """The name of each entry of a flattened observation, such as `arm.angle[2]` or `gear=1`."""
    if isinstance(space, spaces.Dict):
        parts = [(f"{prefix}.{name}" if prefix else str(name), part) for name, part in space.spaces.items()]
    elif isinstance(space, spaces.Tuple):
        parts = [(f"{prefix}.{i}" if prefix else str(i), part) for i, part in enumerate(space.spaces)]
    elif isinstance(space, spaces.Discrete):
        return [f"{prefix}={int(space.start) + i}" for i in range(int(space.n))]
    else:
        return [prefix] if space.shape == () else [f"{prefix}[{i}]" for i in range(spaces.flatdim(space))]
    return [name for label, part in parts for name in feature_names(part, label)]
