"""A plugin as a user would write it: a problem, a method, and experiments of them, in one file.

The cells of `tiny` are not trained but made up at once, so that faults can be tested in little time; those of
`tiny-trained` are trained.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from adaptive_td import DataError, Episodes
from adaptive_td.experiments import EXPERIMENTS, Cell, Experiment, Group, Settings
from adaptive_td.experiments.measure import MEASURES, Outcome
from adaptive_td.methods import METHODS, TD, Fitted
from adaptive_td.problems import PROBLEMS, TrueValues
from adaptive_td.tasks import Recipe, Task


@dataclass(frozen=True)
class Line:
    """Walks of five steps along a line, each paid about 1, γ = 0.5."""

    name: str = "line"
    discount: float = 0.5
    low: tuple[float, ...] = (0.0,)
    high: tuple[float, ...] = (5.0,)
    grid_shape: tuple[int, ...] = (5,)

    def episodes(self, count: int, *, seed: int) -> Episodes:
        states = np.tile(np.arange(6, dtype=np.float32), count)[:, None]
        rewards = 0.5 + np.random.default_rng(seed).random((count, 5), dtype=np.float32).ravel()
        lengths = np.full(count, 5)
        return Episodes(states=states, rewards=rewards, lengths=lengths, ended=np.ones(count, bool))

    def grid(self) -> np.ndarray:
        return np.arange(5, dtype=np.float32)[:, None]

    def true_values(self) -> TrueValues:
        values = np.array([sum(0.5**j for j in range(5 - i)) for i in range(5)])
        none = np.zeros(5)
        return TrueValues(values=values, standard_errors=none, rollouts=none.astype(int), seed=0, digest="")


@dataclass(frozen=True)
class HalfTD:
    """TD, named otherwise."""

    def fit(self, task: Task) -> Recipe[Fitted]:
        return (yield from TD().fit(task))


@dataclass(frozen=True)
class Explosive:
    """Diverges: its rewards are infinite."""

    def fit(self, task: Task) -> Recipe[Fitted]:
        job = next(TD().fit(task))[0]
        rows = job.rows._replace(rewards=job.rows.rewards * float("inf"))
        trained = yield [task.job(0, ("explosive",), rows, bootstraps=True)]
        return Fitted(trained[0].network)


@dataclass(frozen=True)
class Broken:
    """Raises."""

    def fit(self, task: Task) -> Recipe[Fitted]:
        yield from ()
        raise DataError("this method is broken")


def made_up(group: Group) -> Iterator[Outcome]:
    """Outcomes that follow from the cell alone, after some mischief that depends on the method."""
    for id_, cell in group.cells.items():
        if "TINY_LEDGER" in os.environ:
            with open(os.environ["TINY_LEDGER"], "a") as ledger:
                ledger.write(id_ + "\n")
        if cell.method in MISCHIEF:
            MISCHIEF[cell.method]()
        if cell.method == "diverges":
            yield Outcome(cell=id_, status="diverged", step=7)
            continue
        rng = np.random.default_rng([cell.seed, cell.episodes, len(cell.method)])
        values = rng.random(2000 if cell.method == "large" else 50).astype(np.float32)
        yield Outcome(
            cell=id_, status="done", numbers={"msve": float(values.mean())}, arrays={"values": values}
        )


def _once() -> bool:
    """Whether this is the first time, for which a file stands."""
    flag = Path(os.environ["TINY_FLAG"])
    first = not flag.exists()
    flag.touch()
    return first


def _raise() -> None:
    raise DataError("this cell is broken")


MISCHIEF: dict[str, Callable[[], None]] = {
    "slow": lambda: time.sleep(0.05),
    "very-slow": lambda: time.sleep(1),
    "broken": _raise,
    "broken-once": lambda: _raise() if _once() else None,
    "hangs": lambda: time.sleep(600),
    "hangs-once": lambda: time.sleep(600) if _once() else None,
    "dies": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "dies-once": lambda: os.kill(os.getpid(), signal.SIGKILL) if _once() else None,
}


def made_up_cells(settings: Settings) -> Iterator[Cell]:
    for seed in range(settings.seeds):
        for episodes in settings.sizes:
            for method in settings.methods:
                yield Cell(
                    problem="line",
                    method=method,
                    model="made-up",
                    episodes=episodes,
                    seed=seed,
                    repeats=settings.repeats,
                )


METHODS.update({"half-td": HalfTD, "explosive": Explosive, "broken": Broken})
PROBLEMS["line"] = Line  # type: ignore[index]
MEASURES["made-up"] = made_up
EXPERIMENTS["tiny"] = Experiment(
    about="made-up cells, to test the runner with",
    presets={"quick": Settings(problems=("line",), methods=("slow", "diverges"), sizes=(1, 2), seeds=10)},
    cells=made_up_cells,
)
EXPERIMENTS["tiny-trained"] = Experiment(
    about="a line, trained in no time",
    presets={
        "quick": Settings(
            problems=("line",),
            methods=("mc-ensemble", "adaptive-td", "half-td"),
            models=("linear",),
            sizes=(2, 4),
            seeds=1,
            steps=20,
            batch_size=8,
            snapshot_episodes=4,
            snapshot_steps=5,
        ),
    },
)
