"""True values of a problem: how they are estimated, and where they are kept."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32, Float64, Int
from rich.console import Console
from rich.progress import Progress

from adaptive_td.errors import DataError

from .cache import cache_folder
from .problem import Problem

PACKAGED = Path(__file__).parent / "values"
"""The true values that come with the package."""
ROWS = 38_400
"""Rollouts simulated at once."""
PILOT = 512
"""Rollouts of each state that only decide how many it needs."""


@runtime_checkable
class Known(Problem, Protocol):
    """A problem whose values are known on a grid of states."""

    @property
    def low(self) -> tuple[float, ...]:
        """The least value of each coordinate of a state."""

    @property
    def high(self) -> tuple[float, ...]:
        """The greatest value of each coordinate of a state."""

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """How the rows of `grid()` are laid out in a picture (rows, columns)."""

    def grid(self) -> Float32[np.ndarray, "states dims"]:
        """The states on which estimates are judged."""

    def true_values(self) -> TrueValues:
        """The values of the states of `grid()`, with their standard errors."""


@runtime_checkable
class Simulated(Known, Protocol):
    """A problem whose true values are averages of simulated returns."""

    def returns(self, states: Float32[np.ndarray, "rows dims"], *, seed: int) -> Float[np.ndarray, " rows"]:
        """One return from each state, independent of each other and between seeds."""

    def digest(self) -> str:
        """Names everything the true values depend on."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrueValues:
    """True values of the states of a problem's grid, as well as they are known."""

    values: Float64[np.ndarray, " states"]
    standard_errors: Float64[np.ndarray, " states"]
    rollouts: Int[np.ndarray, " states"]
    """How many returns each value is the mean of; 0 where it is known exactly."""
    seed: int
    digest: str
    """What the values belong to: `digest()` of the problem when they were made."""

    @property
    def relative_error(self) -> float:
        """The worst standard error, as a share of the largest value."""
        return float(self.standard_errors.max() / np.abs(self.values).max())

    def save(self, path: Path) -> None:
        """Write to a file of NumPy arrays, which appears whole or not at all."""
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            values=self.values,
            standard_errors=self.standard_errors,
            rollouts=self.rollouts,
            seed=np.array(self.seed),
            digest=np.array(self.digest),
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as part:
            part.write(buffer.getvalue())
        os.chmod(part.name, 0o644)
        os.replace(part.name, path)

    @staticmethod
    def load(path: Path) -> TrueValues:
        """Read what `save` wrote."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                return TrueValues(
                    values=stored["values"],
                    standard_errors=stored["standard_errors"],
                    rollouts=stored["rollouts"],
                    seed=int(stored["seed"]),
                    digest=str(stored["digest"]),
                )
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise DataError(f"{path}: not a file of true values: {error}") from None


def estimate(
    problem: Simulated,
    *,
    relative_error: float = 0.003,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> TrueValues:
    """True values by Monte Carlo: v(s) = E[G | s] is the mean of independent returns from s.

    The standard error of n returns with deviation σ is σ/√n, and σ differs widely between states, so a pilot
    of 512 returns per state decides how many each one gets: n = (σ / target)², at least 512, where the target
    is `relative_error` of the largest value. The pilot's returns are not used again, so n does not depend on
    the returns that are averaged and the mean stays unbiased.

    Where a state is worth far less than the target, because almost all its returns are 0, few of the others
    are seen: its standard error is rough and more often too small than too large.
    """
    states = problem.grid()
    streams = _Streams(problem, seed)
    pilot = np.full(len(states), PILOT)
    planned = len(states) * PILOT
    first = _mean_of_returns(states, pilot, streams, lambda done: progress(done, 10 * planned))
    deviation = first[1] * np.sqrt(PILOT)
    target = relative_error * np.abs(first[0]).max()
    counts = np.maximum(PILOT, np.ceil((deviation / target) ** 2) if target > 0 else 0).astype(np.int64)
    total = planned + int(counts.sum())
    values, errors = _mean_of_returns(states, counts, streams, lambda done: progress(planned + done, total))
    return TrueValues(
        values=values, standard_errors=errors, rollouts=counts, seed=seed, digest=problem.digest()
    )


@dataclass
class _Streams:
    """Returns in batches of one size, each batch from a stream of its own."""

    problem: Simulated
    seed: int
    used: int = 0

    def returns(self, states: Float32[np.ndarray, "rows dims"]) -> Float[np.ndarray, " rows"]:
        padded = np.concatenate([states, np.repeat(states[-1:], ROWS - len(states), axis=0)])
        seed = np.random.SeedSequence(self.seed, spawn_key=(self.used,)).generate_state(1)[0]
        self.used += 1
        return self.problem.returns(padded, seed=int(seed))[: len(states)]


def _mean_of_returns(
    states: Float32[np.ndarray, "states dims"],
    counts: Int[np.ndarray, " states"],
    streams: _Streams,
    progress: Callable[[int], None],
) -> tuple[Float64[np.ndarray, " states"], Float64[np.ndarray, " states"]]:
    """The mean of `counts` returns from each state, and its standard error."""
    total, squares = np.zeros(len(states)), np.zeros(len(states))
    owner = np.repeat(np.arange(len(states)), counts)
    for at in range(0, len(owner), ROWS):
        rows = owner[at : at + ROWS]
        returns = streams.returns(states[rows]).astype(np.float64)
        total += np.bincount(rows, returns, minlength=len(states))
        squares += np.bincount(rows, returns**2, minlength=len(states))
        progress(min(at + ROWS, len(owner)))
    mean = total / counts
    variance = np.maximum(squares - counts * mean**2, 0) / (counts - 1)
    return mean, np.sqrt(variance / counts)


def packaged_path(problem: Simulated) -> Path:
    """Where the package keeps a problem's true values: a changed problem has another path."""
    return PACKAGED / f"{problem.name}-{problem.digest()[:12]}.npz"


def find(problem: Simulated) -> TrueValues | None:
    """The values that came with the package or were estimated before.

    Files are found by digest, so values of another map, or of the same map before it was changed, are never
    mistaken for these.
    """
    digest = problem.digest()
    for folder in (PACKAGED, _cache()):
        for path in folder.glob(f"*-{digest[:12]}.npz"):
            found = TrueValues.load(path)
            if found.digest == digest:
                return found
    return None


def find_or_estimate(problem: Simulated) -> TrueValues:
    """The values that are known, else an estimate, kept for next time.

    New ones go to the user's cache folder (see `cache_folder`); if that cannot be written they are only
    returned. A bar on a terminal's standard error shows how far it is.
    """
    known = find(problem)
    if known is not None:
        return known
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"true values of {problem.name}")
        estimated = estimate(
            problem, progress=lambda done, total: bar.update(task, completed=done, total=total)
        )
    with contextlib.suppress(OSError):
        estimated.save(_cache() / f"values-{problem.digest()[:12]}.npz")
    return estimated


def _cache() -> Path:
    return cache_folder("true-values")
