"""Make the true values that come with the package, and compare them with a second method.

`python -m adaptive_td.problems.truth` makes those that are missing or belong to a problem that has changed;
`--compare` also prints how far they lie from the fine-grid solve; names of problems with `--again` make these
anew.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from adaptive_td.errors import AdaptiveTDError, UsageError

from . import PROBLEMS, named
from .fine_grid import solve
from .labyrinth import Labyrinth
from .true_values import PACKAGED, Simulated, TrueValues, estimate, packaged_path

AWAY = 15.0
"""How far from walls a state must lie to be compared between the two methods."""


def make(problem: Simulated, *, relative_error: float, seed: int) -> TrueValues:
    """Estimate a problem's true values and keep them in the package, in place of older ones."""
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(problem.name)
        truth = estimate(
            problem,
            relative_error=relative_error,
            seed=seed,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    for old in PACKAGED.glob(f"{problem.name}-*.npz"):
        old.unlink()
    truth.save(packaged_path(problem))
    return truth


def compare(labyrinth: Labyrinth, truth: TrueValues) -> tuple[float, float, float]:
    """How the rollouts and the fine-grid solve differ at states away from walls.

    The largest difference and the root mean square, both as a share of the largest value; and the share of
    states that lie within three standard errors, of those worth at least 1% of the largest value. (Further
    down returns are too rare for a standard error to be more than rough.)
    """
    away = labyrinth.wall_distance(labyrinth.grid()) > AWAY
    gap = (truth.values - solve(labyrinth))[away]
    largest = np.abs(truth.values).max()
    within = np.abs(gap) <= 3 * truth.standard_errors[away]
    sizeable = truth.values[away] >= 0.01 * largest
    return (
        float(np.abs(gap).max() / largest),
        float(np.sqrt(np.mean(gap**2)) / largest),
        float(within[sizeable].mean()),
    )


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Problems; all where none is named.")] = None,
    relative_error: Annotated[
        float, typer.Option(help="Standard error aimed at, as a share of the largest value.")
    ] = 0.002,
    seed: int = 0,
    again: Annotated[bool, typer.Option(help="Make values that are up to date again.")] = False,
    compare_methods: Annotated[
        bool, typer.Option("--compare", help="Compare labyrinths with a fine-grid solve.")
    ] = False,
) -> None:
    """Make the true values that come with the package."""
    columns = ("problem", "largest", "worst s.e.", "rollouts")
    table = Table(*columns, "differ at most", "differ (r.m.s.)", "within 3 s.e.")
    for name in names or [name for name in PROBLEMS if isinstance(named(name), Simulated)]:
        problem = named(name)
        if not isinstance(problem, Simulated):
            raise UsageError(f"{name}: its values are not means of simulated returns")
        path = packaged_path(problem)
        if again or not path.exists():
            make(problem, relative_error=relative_error, seed=seed)
        truth = TrueValues.load(path)
        row = [
            name,
            f"{np.abs(truth.values).max():.2f}",
            f"{truth.relative_error:.3%}",
            f"{truth.rollouts.sum():,}",
        ]
        if compare_methods and isinstance(problem, Labyrinth):
            worst, typical, within = compare(problem, truth)
            row += [f"{worst:.3%}", f"{typical:.3%}", f"{within:.1%}"]
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    try:
        typer.run(main)
    except AdaptiveTDError as error:
        Console(stderr=True).print(str(error), style="red")
        raise SystemExit(error.exit_code) from None
