"""Problems on which methods are compared: with known true values, or judged by test episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from adaptive_td.atari.games import GAMES
from adaptive_td.errors import unknown_name

from .atari import Atari
from .chain import Chain
from .labyrinth import Labyrinth
from .mountain_car import MountainCar
from .problem import Problem, Tested
from .true_values import Known, TrueValues

PROBLEMS: Mapping[str, Callable[[], Problem]] = {
    "chain": Chain,
    **{f"labyrinth-{number}": partial(Labyrinth.map, number) for number in range(6)},
    "mountain-car": MountainCar,
    **{f"atari-{game}": partial(Atari, game) for game in GAMES},
}
"""Every problem that comes with the package, by name; call an entry to make it."""


_TYPES: dict[str, Callable[..., Problem]] = {
    kind.__name__: kind for kind in (Atari, Chain, Labyrinth, MountainCar)
}


def describe(problem: Problem) -> dict[str, Any]:
    """A problem as plain data."""
    return {"type": type(problem).__name__, "settings": dict(vars(problem))}


def from_description(name: str, described: Mapping[str, Any]) -> Problem:
    """The problem that `describe` described; one of another type is looked up by its name."""
    if described["type"] not in _TYPES:
        return named(name)
    settings = {
        key: tuple(map(tuple, value)) if isinstance(value, list) else value
        for key, value in described["settings"].items()
    }
    return _TYPES[described["type"]](**settings)


def named(name: str) -> Problem:
    """The problem of that name."""
    if name not in PROBLEMS:
        raise unknown_name("problem", name, PROBLEMS)
    return PROBLEMS[name]()


__all__ = [
    "PROBLEMS",
    "Atari",
    "Chain",
    "Known",
    "Labyrinth",
    "MountainCar",
    "Problem",
    "Tested",
    "TrueValues",
    "describe",
    "from_description",
    "named",
]
