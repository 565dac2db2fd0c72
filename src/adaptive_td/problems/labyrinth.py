"""Labyrinth-2D: a random walk among walls that is paid inside discs."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from dataclasses import KW_ONLY, asdict, dataclass, fields
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Float32, Float64

from adaptive_td.episodes import Episodes
from adaptive_td.errors import DataError, UsageError, unknown_name

from .cells import cell_centres
from .true_values import TrueValues, find_or_estimate
from .walk import Arena, discounted_returns, walk

MAPS = Path(__file__).parent / "maps"
Number = int | float
Wall = tuple[Number, Number, Number, Number]
Disc = tuple[Number, Number, Number]


@dataclass(frozen=True)
class Labyrinth:
    """A walk over a map: each step has a fixed length and a uniformly random angle.

    From state s = (x, y): the reward is r(s) = 30 inside a disc, 0 elsewhere. The step then leads to s', or
    nowhere (s' = s) if it would touch a wall or leave the map. Then the episode ends with probability 0.0005,
    a true end after which nothing follows. Starts are uniform over the map. With γ = 0.99,

        v(s) = r(s) + γ (1 - 0.0005) E[v(s')],

    an effective discount of 0.989505. These lengths, rewards and maps are choices of this project: the paper
    that introduced the problem does not state them.
    """

    walls: tuple[Wall, ...]
    """Segments x1, y1, x2, y2."""
    discs: tuple[Disc, ...]
    """Circles x, y, radius; where two overlap the reward is still paid once."""
    name: str = "labyrinth"
    _: KW_ONLY
    width: Number = 400.0
    height: Number = 300.0
    step: Number = 10.0
    reward: Number = 30.0
    end_probability: float = 0.0005
    discount: float = 0.99
    longest: int = 100_000
    """An episode that has not ended after so many steps is cut there: truncated, not terminated."""

    @staticmethod
    def map(number: int) -> Labyrinth:
        """One of the six maps that come with the package, 0 to 5."""
        if number not in range(6):
            raise UsageError(f"map {number!r} does not exist; the maps are 0 to 5")
        return Labyrinth.from_toml(MAPS / f"{number}.toml")

    @staticmethod
    def from_toml(path: str | Path) -> Labyrinth:
        """A map from a TOML file such as

            name = "one wall"
            walls = [[200, 0, 200, 220]]    # x1, y1, x2, y2 of each; [] for none
            discs = [[150, 80, 40]]         # x, y, radius of each

        The origin is the lower left corner. `discs` is required, `walls` is empty and `name` is the file's
        own where they are left out. `width`, `height`, `step`, `reward`, `end_probability`, `discount` and
        `longest` may also be given, and are otherwise those of the six maps.
        """
        path = Path(path)
        try:
            given: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: not TOML: {error}") from None
        known = [field.name for field in fields(Labyrinth)]
        for key in given:
            if key not in known:
                raise unknown_name(f"key in {path}", key, known)
        if "discs" not in given:
            raise DataError(f"{path}: discs: missing; without one every value is 0")
        try:
            return Labyrinth(
                _rows("walls", given.pop("walls", []), 4),
                _rows("discs", given.pop("discs"), 3),
                **{"name": path.stem, **_typed(given)},
            )
        except DataError as error:
            raise DataError(f"{path}: {error}") from None

    def __post_init__(self) -> None:
        """Refuse a map on which nothing could walk (checks only; nothing is computed)."""
        for name in ("width", "height", "step"):
            if not 0 < getattr(self, name) < math.inf:
                raise DataError(f"{name}: must be positive, got {getattr(self, name)}")
        if not math.isfinite(self.reward):
            raise DataError(f"reward: must be finite, got {self.reward}")
        if not 0 < self.end_probability <= 1:
            raise DataError(f"end_probability: must lie in (0, 1], got {self.end_probability}")
        if not 0 <= self.discount <= 1:
            raise DataError(f"discount: must lie in [0, 1], got {self.discount}")
        if self.longest < 1:
            raise DataError(f"longest: must be at least 1, got {self.longest}")
        self._check_walls_and_discs()

    def _check_walls_and_discs(self) -> None:
        if not self.discs:
            raise DataError("discs: a map needs at least one; without it every value is 0")
        for i, (x1, y1, x2, y2) in enumerate(self.walls):
            if not all(0 <= x <= self.width for x in (x1, x2)):
                raise DataError(f"walls[{i}]: x must lie in [0, {self.width}], got {x1} and {x2}")
            if not all(0 <= y <= self.height for y in (y1, y2)):
                raise DataError(f"walls[{i}]: y must lie in [0, {self.height}], got {y1} and {y2}")
            if (x1, y1) == (x2, y2):
                raise DataError(f"walls[{i}]: has no length: both ends are {(x1, y1)}")
        for i, (x, y, radius) in enumerate(self.discs):
            if not (0 <= x <= self.width and 0 <= y <= self.height):
                raise DataError(f"discs[{i}]: its centre {(x, y)} lies outside the map")
            if not 0 < radius < math.inf:
                raise DataError(f"discs[{i}]: radius must be positive, got {radius}")

    @property
    def low(self) -> tuple[float, float]:
        """The lower left corner."""
        return 0.0, 0.0

    @property
    def high(self) -> tuple[float, float]:
        """The upper right corner."""
        return float(self.width), float(self.height)

    @property
    def effective_discount(self) -> float:
        """γ (1 - p): what a value one step ahead is worth, given that the walk may end before it."""
        return self.discount * (1 - self.end_probability)

    def episodes(self, count: int, *, seed: int) -> Episodes:
        """Episodes from uniform starts; the first k of any number are the same k.

        Whether a step is the last does not depend on where it leads, so the lengths are drawn first:
        P(T > t) = (1 - p)^t, that is T = 1 + floor(log U / log(1 - p)).
        """
        if count < 1:
            raise UsageError(f"count must be at least 1, got {count}")
        drawn = np.random.default_rng(seed).random((count, 3))
        starts = (drawn[:, :2] * self.high).astype(np.float32)
        with np.errstate(divide="ignore"):
            full = 1 + np.floor(np.log1p(-drawn[:, 2]) / np.log1p(-self.end_probability))
        lengths = np.minimum(full, self.longest).astype(np.int64)
        states, rewards = walk(self._arena(), starts, lengths, seed=seed)
        return Episodes(states=states, rewards=rewards, lengths=lengths, ended=full <= self.longest)

    @property
    def grid_shape(self) -> tuple[int, int]:
        """30 rows of 40 cells: `grid()` runs along x first."""
        return 30, 40

    def grid(self) -> Float32[np.ndarray, "states 2"]:
        """The centres of 40 x 30 equal cells.

        A centre that lies on a wall, where no step can be made, is moved aside by an eighth of its cell.
        """
        rows, columns = self.grid_shape
        cell = np.array([self.width / columns, self.height / rows])
        centres = cell_centres(self.low, self.high, self.grid_shape)
        states = centres.astype(np.float32)
        for aside in ((1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)):
            stuck = self.wall_distance(states) < cell.min() / 1000
            states[stuck] = centres[stuck] + np.array(aside) * cell / 8
        return states

    def true_values(self) -> TrueValues:
        """The values of the states of `grid()`: those of the six maps come with the package.

        Those of another map are estimated from rollouts, which takes a minute or two, and then kept.
        """
        return find_or_estimate(self)

    def returns(self, states: Float32[np.ndarray, "rows 2"], *, seed: int) -> Float[np.ndarray, " rows"]:
        """One return from each state, averaged over when its episode ends.

        The end does not depend on the path, so E[Σ_{t<T} γ^t r_t | path] = Σ_t (γ (1 - p))^t r_t: no end is
        drawn, the discount takes its place, and the variance that the ends would add is gone. The sum stops
        once the weight falls below 1e-4; what is left out is at most that share of the largest value.
        """
        weight = self.effective_discount
        steps = math.ceil(math.log(1e-4) / math.log(weight)) if weight else 1
        discount = jnp.asarray(weight, jnp.float32)
        key = jax.random.key(seed)
        return np.asarray(discounted_returns(self._arena(), states, discount, jnp.asarray(steps), key))

    def digest(self) -> str:
        """Names the map and the rules: everything that the true values depend on, but not the name."""
        described = {k: v for k, v in asdict(self).items() if k not in ("name", "longest")}
        described = {k: np.asarray(v, float).tolist() for k, v in described.items()}
        text = json.dumps({"rules": "labyrinth 1", "grid": self.grid_shape, **described}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def wall_distance(self, states: Float[np.ndarray, "rows 2"]) -> Float64[np.ndarray, " rows"]:
        """The distance of each state to the nearest wall (infinite where there is none).

        The nearest point of a wall from a to b is a + τ (b - a), τ = (s - a)·(b - a) / |b - a|² in [0, 1].
        """
        nearest = np.full(len(states), np.inf)
        for x1, y1, x2, y2 in self.walls:
            start, along = np.array([x1, y1], float), np.array([x2 - x1, y2 - y1], float)
            place = np.clip((states - start) @ along / (along @ along), 0, 1)
            apart = states - start - place[:, None] * along
            nearest = np.minimum(nearest, np.hypot(apart[:, 0], apart[:, 1]))
        return nearest

    def _arena(self) -> Arena:
        return Arena.build(
            size=self.high,
            walls=np.asarray(self.walls, float).reshape(-1, 4),
            discs=np.asarray(self.discs, float).reshape(-1, 3),
            step=float(self.step),
            reward=float(self.reward),
        )


def _rows(field: str, given: Any, width: int) -> tuple[Any, ...]:
    """Rows of so many numbers each, from what a file holds."""
    if not isinstance(given, list):
        raise DataError(f"{field}: must be a list of lists of {width} numbers, got {given!r}")
    for i, row in enumerate(given):
        if not isinstance(row, list) or len(row) != width or not all(map(_is_number, row)):
            raise DataError(f"{field}[{i}]: must be {width} numbers, got {row!r}")
    return tuple(tuple(row) for row in given)


def _typed(given: dict[str, Any]) -> dict[str, Any]:
    """The other keys of a file, refused where they have the wrong type."""
    for key, value in given.items():
        if key == "name" and not isinstance(value, str):
            raise DataError(f"name: must be text, got {value!r}")
        if key == "longest" and not (isinstance(value, int) and _is_number(value)):
            raise DataError(f"longest: must be a whole number, got {value!r}")
        if key != "name" and not _is_number(value):
            raise DataError(f"{key}: must be a number, got {value!r}")
    return {key: float(v) if key in ("end_probability", "discount") else v for key, v in given.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
