"""The unit of an experiment: a cell is one value function to measure, described by data alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from adaptive_td.errors import DataError
from adaptive_td.problems import Problem

NUMERICS = 1
"""Raised when a change of the code changes results by more than rounding; cells from before have other ids.

Rounding (another kernel, another processor) gives other networks too, but none better or worse on average."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method and model, on so many episodes of a problem, with one seed for data and weights.

    What does not apply to a cell is None and no part of its id: a setting of the ensemble does not rename the
    cells of plain TD.
    """

    problem: str
    method: str
    model: str
    episodes: int
    seed: int
    steps: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    members: int | None = None
    level: float | None = None
    after: int | None = None
    """Look at V after so many steps (the intervals are trained to the end): a snapshot."""
    repeats: int | None = None
    """Independent logs that a tabular estimate is averaged over."""
    epsilon: float | None = None
    """Adam's ε, where it is not the default."""
    truncation: str | None = None
    """How Monte Carlo treats a log that stops before the process does, where it is not the default."""

    def config(self) -> dict[str, Any]:
        """What applies to this cell, as plain data; floats are floats however they were written."""
        config = {name: value for name, value in asdict(self).items() if value is not None}
        for name in ("learning_rate", "level", "epsilon"):
            if name in config:
                config[name] = float(config[name])
        return {**config, "method": tidy(self.method), "model": tidy(self.model)}

    @staticmethod
    def from_config(config: Mapping[str, Any]) -> Cell:
        """The cell that `config()` describes."""
        unknown = set(config) - {field.name for field in fields(Cell)}
        if unknown:
            raise DataError(f"a cell has no setting {sorted(unknown)[0]!r}")
        return Cell(**config)

    def id(self, data: str) -> str:
        """SHA-256 of the canonical config, the digest of where the data come from, and the numerics."""
        return sha256(canonical({"numerics": NUMERICS, "data": data, **self.config()}))

    def __str__(self) -> str:
        """For messages: what tells the cell from its neighbours."""
        snapshot = f" after {self.after} steps" if self.after else ""
        return f"{self.method}{snapshot}, {self.model}, {self.case}"

    @property
    def case(self) -> str:
        """For messages: what cells of one group share."""
        return f"{self.problem}, {self.episodes} episodes, seed {self.seed}"


class Group(NamedTuple):
    """Cells that train together: one log, whose Monte Carlo members and intervals they share."""

    number: int
    problem: Problem
    cells: Mapping[str, Cell]
    """By id, in the order of the plan."""

    def only(self, ids: Iterable[str]) -> Group:
        """The cells of this group that are among these."""
        kept = set(ids)
        return self._replace(cells={id_: cell for id_, cell in self.cells.items() if id_ in kept})


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces; equal data give equal text, NaN and infinity are refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sha256(text: str) -> str:
    """The digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def tidy(spec: str) -> str:
    """A short name of a method or model with its numbers in one spelling: `td-lambda:.50` is `:0.5`."""
    name, colon, numbers = spec.strip().partition(":")
    return name + colon + ",".join(_tidy_number(number) for number in numbers.split(","))


def _tidy_number(text: str) -> str:
    try:
        return repr(float(text)).removesuffix(".0")
    except ValueError:
        return text


def problem_digest(problem: Problem) -> str:
    """Names everything that a problem's episodes and true values follow from.

    With a size and a seed it names the log itself, because logs are a function of these; so ids are known
    before anything is simulated. The log that was in fact drawn is recorded with each result.
    """
    own: Callable[[], str] = getattr(problem, "digest", str)
    settings = dict(vars(problem))
    settings.pop("name", None)
    described = {"type": type(problem).__name__, "settings": settings, "values": own()}
    return sha256(canonical({**described, "discount": float(problem.discount)}))
