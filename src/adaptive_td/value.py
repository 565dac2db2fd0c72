"""The value function that a fit returns: callable, with intervals, diagnostics, and a file form."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Array, Float, Int8, Shaped

from .checkpoints import flatten, unflatten
from .episodes import Episodes
from .errors import DataError, UsageError
from .intervals import Interval, student_t_interval
from .jobs import History, block_rows
from .methods import METHODS, Method
from .models import Model, as_model, describe, from_description
from .rows import Scaling, View, padded_size
from .training import seen_by_kernel
from .uncertainty import Ensemble, Mean, Members

FORMAT = 1
_UNCERTAINTIES = {"Ensemble": Ensemble}


@dataclass(frozen=True, kw_only=True, eq=False)
class Diagnostics:
    """How a fit went.

    `overruled` holds for each transition of the log whether TD was overruled there in the end: 1 where its
    target was above the interval, -1 below, 0 inside. `history` holds means over each hundredth of training.
    """

    history: History | None = None
    overruled: Int8[np.ndarray, " steps"] | None = None

    @property
    def share_overruled(self) -> float | None:
        """The share of the log's transitions whose target was outside the interval in the end."""
        return None if self.overruled is None else float(np.mean(self.overruled != 0))


@dataclass(frozen=True, kw_only=True, eq=False)
class ValueFunction:
    """V, and an interval around it where the method has one."""

    function: Any
    estimate: Any | None
    scaling: Scaling
    method: Method
    model: Model
    discount: float
    observation_shape: tuple[int, ...]
    level: float = 0.95
    diagnostics: Diagnostics = Diagnostics()

    def __call__(self, states: Any) -> Float[np.ndarray, " *batch"]:
        """V at one state or at many: any leading axes, then the shape of a state."""
        values: Float[np.ndarray, " *batch"] = self._at(_value, self.function, states)
        return values

    def interval(self, states: Any, level: float | None = None) -> Interval:
        """The interval of the uncertainty estimate at one state or many; `level` defaults to the method's."""
        if self.estimate is None:
            raise UsageError(
                f"{type(self.method).__name__} has no interval; AdaptiveTD and MonteCarloEnsemble have"
            )
        bounds = eqx.Partial(_interval, level=self.level if level is None else level)
        lower, upper = self._at(bounds, self.estimate, states)
        return Interval(lower, upper)

    def over(self, episodes: Episodes) -> Float[np.ndarray, " rows"]:
        """V at every row of a log's `states`, without building all its stacks of frames at once.

        `over(log)[log.index]` is V at the state each transition leaves, `[log.index + 1]` at the next.
        """
        function = self.function
        seen = self._seen(function.estimate if isinstance(function, Mean) else Members([function]), episodes)
        if seen is not None:
            return seen.mean(axis=0)
        return np.concatenate([self(block) for block in self._blocks(episodes)])

    def interval_over(self, episodes: Episodes, level: float | None = None) -> Interval:
        """The interval at every row of a log's `states`."""
        seen = self._seen(self.estimate, episodes)
        if seen is not None:
            bounds = student_t_interval(seen, self.level if level is None else level)
            return Interval(*map(np.asarray, bounds))
        parts = [self.interval(block, level) for block in self._blocks(episodes)]
        lower, upper = zip(*parts, strict=True)
        return Interval(np.concatenate(lower), np.concatenate(upper))

    def _seen(self, estimate: Any, episodes: Episodes) -> Float[np.ndarray, "members rows"] | None:
        """What each member says of every row of a log, if the native kernel can look at it."""
        if not isinstance(estimate, Members):
            return None
        states = episodes.states
        if episodes.observation_shape != self.observation_shape or states.dtype not in (np.uint8, np.float32):
            return None
        ages = episodes.age if episodes.stack > 1 else None
        view = View(np.ascontiguousarray(states), self.scaling, ages, episodes.stack)
        seen = seen_by_kernel(estimate.networks, view)
        return None if seen is None else np.asarray(seen) * np.float32(self.scaling.reward)

    def _blocks(self, episodes: Episodes) -> Iterator[Shaped[np.ndarray, "block *obs"]]:
        size = block_rows(episodes.observation_shape, _BLOCK)
        rows = np.arange(len(episodes.states))
        return (episodes.observe(rows[k : k + size]) for k in range(0, len(rows), size))

    def __repr__(self) -> str:
        """The method, the model and the shape of a state."""
        return f"ValueFunction({self.method!r}, {self.model!r}, states {self.observation_shape})"

    def _at(self, apply: Any, module: Any, states: Any) -> Any:
        """Apply a function to states in padded blocks, so that few sizes are ever compiled."""
        array = np.asarray(states)
        dims = len(self.observation_shape)
        lead = array.shape[: array.ndim - dims]
        if array.shape[array.ndim - dims :] != self.observation_shape or array.dtype.kind not in "fiub":
            raise DataError(
                f"states: expected numbers of shape (..., {', '.join(map(str, self.observation_shape))}), "
                f"got {array.dtype} of shape {array.shape}"
            )
        flat = array.reshape(-1, *self.observation_shape)
        pieces = []
        size = block_rows(self.observation_shape, _BLOCK)
        for k in range(0, max(len(flat), 1), size):
            block = flat[k : k + size]
            padded = np.zeros((padded_size(len(block)), *self.observation_shape), block.dtype)
            padded[: len(block)] = block
            out = _apply(apply, module, self.scaling, jnp.asarray(padded))
            pieces.append(jax.tree.map(np.asarray, out))
        return jax.tree.map(lambda *parts: np.concatenate(parts)[: len(flat)].reshape(lead), *pieces)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a new folder with `weights.safetensors` and `value.json`; an existing path is refused."""
        model = describe(self.model)
        header = {
            "format": FORMAT,
            "method": _method_description(self.method),
            "model": model,
            "discount": self.discount,
            "level": self.level,
            "observation_shape": list(self.observation_shape),
            "members": None if self.estimate is None else len(getattr(self.estimate, "networks", [])),
        }
        folder = Path(path)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            raise UsageError(f"{folder} exists; a saved value function is never overwritten") from None
        safetensors.numpy.save_file(self._tensors(), folder / "weights.safetensors")
        (folder / "value.json").write_text(json.dumps(header, indent=2) + "\n")

    def _tensors(self) -> dict[str, np.ndarray]:
        tensors = flatten(self._pytree())
        if self.diagnostics.overruled is not None:
            tensors["diagnostics.overruled"] = self.diagnostics.overruled
        if self.diagnostics.history is not None:
            tensors["diagnostics.history"] = np.stack(self.diagnostics.history).astype(np.float32)
        return tensors

    def _pytree(self) -> dict[str, Any]:
        """The arrays that make up the function; an ensemble's mean is its members and nothing more."""
        own = None if isinstance(self.function, Mean) else self.function
        return {"function": own, "estimate": self.estimate, "scaling": self.scaling}

    @staticmethod
    def load(path: str | os.PathLike[str], *, model: Any = None) -> ValueFunction:
        """Read what `save` wrote. A model of the user's own code is not in the file: pass it again."""
        folder = Path(path)
        header = _read_header(folder)
        described = as_model(model) if model is not None else None
        if described is None:
            if header["model"] is None:
                raise UsageError(f"{folder} holds a model of your own code: pass it again as `model`")
            described = from_description(header["model"])
        shape = tuple(header["observation_shape"])
        method = _method_from(header["method"])
        network = described.build(shape, key=jax.random.key(0))
        estimate = None
        if header["members"] is not None:
            estimate = method.uncertainty.empty(network)  # type: ignore[attr-defined]
            if header["members"] == 0:
                estimate = type(estimate)([])
        ensemble_mean = header["method"]["name"] == "mc-ensemble"
        zeros = jnp.zeros(shape)
        skeleton = {
            "function": None if ensemble_mean else network,
            "estimate": estimate,
            "scaling": Scaling(zeros, zeros, jnp.zeros(())),
        }
        tensors = _read_tensors(folder / "weights.safetensors")
        history, overruled = (
            tensors.pop("diagnostics.history", None),
            tensors.pop("diagnostics.overruled", None),
        )
        filled = _fill(skeleton, tensors, folder)
        return ValueFunction(
            function=Mean(filled["estimate"]) if ensemble_mean else filled["function"],
            estimate=filled["estimate"],
            scaling=filled["scaling"],
            method=method,
            model=described,
            discount=header["discount"],
            level=header["level"],
            observation_shape=shape,
            diagnostics=Diagnostics(
                history=None if history is None else History(*history), overruled=overruled
            ),
        )


_BLOCK = 1 << 16


@eqx.filter_jit
def _apply(apply: Any, module: Any, scaling: Scaling, states: Shaped[Array, "batch *obs"]) -> Any:
    """`apply` at each state, in the units of the log."""
    out = jax.vmap(lambda s: apply(module, s))(scaling(states))
    return jax.tree.map(lambda x: x * scaling.reward, out)


def _value(function: Any, state: Array) -> Array:
    return function(state)


def _interval(estimate: Any, state: Array, *, level: float) -> tuple[Array, Array]:
    lower, upper = estimate.interval(state, level)
    return lower, upper


def _fill(skeleton: Any, tensors: dict[str, np.ndarray], folder: Path) -> Any:
    """The skeleton with its arrays replaced, after names, shapes, types and finiteness have been checked."""
    bad = next((name for name, array in tensors.items() if not np.isfinite(array).all()), None)
    if bad is not None:
        raise DataError(f"{folder}: {bad} holds a non-finite value")
    try:
        return unflatten(skeleton, tensors)
    except DataError as error:
        raise DataError(f"{folder}: weights do not fit the model: {error}") from None


def _read_tensors(path: Path) -> dict[str, np.ndarray]:
    try:
        return safetensors.numpy.load_file(path)
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except safetensors.SafetensorError as error:
        size = path.stat().st_size
        raise DataError(f"{path} ({size} bytes) is not a whole safetensors file: {error}") from None


def _read_header(folder: Path) -> dict[str, Any]:
    if folder.is_file():
        raise DataError(
            f"{folder} is a file; a saved value function is a folder with value.json and weights.safetensors "
            "(pickles are never read)"
        )
    path = folder / "value.json"
    try:
        header = json.loads(path.read_text())
    except FileNotFoundError:
        raise DataError(f"{path} is missing: {folder} is not a saved value function") from None
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {error}") from None
    needed = {"format", "method", "model", "discount", "level", "observation_shape", "members"}
    missing = needed - header.keys() if isinstance(header, dict) else needed
    if missing:
        raise DataError(f"{path}: {sorted(missing)[0]!r} is missing")
    if header["format"] != FORMAT:
        raise DataError(f"{path}: format {header['format']} is not {FORMAT}; another version wrote it")
    return header


def _method_description(method: Method) -> dict[str, Any]:
    """A method as JSON: its registered name and its settings."""
    name = next((n for n, cls in METHODS.items() if type(method) is cls), type(method).__name__)
    settings = {f.name: getattr(method, f.name) for f in fields(method)}  # type: ignore[arg-type]
    for key, setting in settings.items():
        if is_dataclass(setting):
            inner = {f.name: getattr(setting, f.name) for f in fields(setting)}
            settings[key] = {"name": type(setting).__name__, **inner}
    return {"name": name, **settings}


def _method_from(description: dict[str, Any]) -> Method:
    settings = dict(description)
    name = settings.pop("name")
    if name not in METHODS:
        raise DataError(f"method {name!r} is not one of {', '.join(METHODS)}")
    for key, setting in settings.items():
        if isinstance(setting, dict):
            inner = dict(setting)
            settings[key] = _UNCERTAINTIES[inner.pop("name")](**inner)
    return METHODS[name](**settings)
