"""Short names for methods and models, as the command line and experiment files write them."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from .episodes import Episodes
from .errors import UsageError, unknown_name
from .methods import METHODS, Method, NStepTD, TDLambda
from .models import MLP, Grid, Linear, Model, NatureCNN, Table

EVERY_METHOD = ("mc", "mc-ensemble", "td", "n-step:5", "td-lambda:0.75", "adaptive-td")


def method(spec: str, **options: object) -> Method:
    """A method from its name: `mc`, `mc-ensemble`, `td`, `n-step:5`, `td-lambda:0.75`, `adaptive-td`."""
    name, _, number = spec.partition(":")
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    if name == "n-step":
        return NStepTD(int(_number(spec, number or "5", whole=True)))
    if name == "td-lambda":
        return TDLambda(_number(spec, number or "0.75"))
    if number:
        raise UsageError(f"method {name!r} takes no number, got {spec!r}")
    return METHODS[name](**options)


def model(spec: str, episodes: Episodes) -> Model:
    """A model from its name: `mlp:50,50`, `cnn`, `linear`, `table`, `grid:19` (cells of side 19).

    A table gets as many states as the log names, a grid spans the box of the log's states.
    """
    name, _, numbers = spec.partition(":")
    makers: dict[str, Callable[[], Model]] = {
        "mlp": lambda: MLP(tuple(int(_number(spec, n, whole=True)) for n in (numbers or "50,50").split(","))),
        "cnn": NatureCNN,
        "linear": Linear,
        "table": lambda: _table(episodes),
        "grid": lambda: _grid(spec, numbers, episodes),
    }
    if name not in makers:
        raise unknown_name("model", name, makers)
    return makers[name]()


def _table(episodes: Episodes) -> Table:
    if episodes.states.dtype.kind not in "iu" or episodes.states.min() < 0:
        raise UsageError("a table needs states that are integers from 0 up")
    return Table(int(episodes.states.max()) + 1)


def _grid(spec: str, numbers: str, episodes: Episodes) -> Grid:
    if not numbers:
        raise UsageError("grid needs the side of its cells, such as grid:19 or grid:0.1,0.05")
    if len(episodes.observation_shape) != 1:
        raise UsageError(f"a grid needs vector states, got shape {episodes.observation_shape}")
    low, high = episodes.states.min(axis=0), episodes.states.max(axis=0)
    sides = tuple(_number(spec, n) for n in numbers.split(","))
    if len(sides) == 1:
        sides *= len(low)
    return Grid(sides, tuple(map(float, low)), tuple(map(float, np.maximum(high, low + 1e-6))))


def _number(spec: str, text: str, *, whole: bool = False) -> float:
    pattern = r"\d+" if whole else r"\d*\.?\d+"
    if not re.fullmatch(pattern, text.strip()) or float(text) < 0:
        kind = "a whole number" if whole else "a number"
        raise UsageError(f"{spec!r}: {text!r} is not {kind}")
    return float(text)
