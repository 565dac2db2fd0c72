"""Problems with known true values, on which methods are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from adaptive_td.errors import unknown_name

from .chain import Chain
from .labyrinth import Labyrinth
from .mountain_car import MountainCar
from .true_values import Problem, TrueValues

PROBLEMS: Mapping[str, Callable[[], Problem]] = {
    "chain": Chain,
    **{f"labyrinth-{number}": partial(Labyrinth.map, number) for number in range(6)},
    "mountain-car": MountainCar,
}
"""Every problem that comes with the package, by name; call an entry to make it."""


def named(name: str) -> Problem:
    """The problem of that name."""
    if name not in PROBLEMS:
        raise unknown_name("problem", name, PROBLEMS)
    return PROBLEMS[name]()


__all__ = ["PROBLEMS", "Chain", "Labyrinth", "MountainCar", "Problem", "TrueValues", "named"]
