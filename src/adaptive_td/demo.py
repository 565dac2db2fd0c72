"""The demonstration: four methods on a walk among walls, judged against its true values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from . import figures, metrics
from .errors import Diverged
from .fitting import Fit, fit_many
from .jobs import Training
from .methods import TD, AdaptiveTD, Method, MonteCarlo, MonteCarloEnsemble
from .models import MLP
from .problems import Labyrinth
from .report import Page, maps
from .training import Progress
from .value import ValueFunction

METHODS: dict[str, Method] = {
    "Monte Carlo": MonteCarlo(),
    "MC ensemble": MonteCarloEnsemble(),
    "TD(0)": TD(),
    "Adaptive TD": AdaptiveTD(),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Demo:
    """What the demonstration found."""

    problem: Labyrinth
    values: dict[str, ValueFunction]
    errors: dict[str, Float[np.ndarray, " states"]]
    overruled: Float[np.ndarray, " states"]
    settings: dict[str, Any]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per method: its error over an even grid, and what its interval covers."""
        truth, states = self.problem.true_values().values, self.problem.grid()
        rows = []
        for name, value in self.values.items():
            row: dict[str, Any] = {
                "method": name,
                "msve": float(np.mean(self.errors[name] ** 2)),
                "rmse": float(np.sqrt(np.mean(self.errors[name] ** 2))),
                "coverage": None,
                "overruled": value.diagnostics.share_overruled,
            }
            if value.estimate is not None:
                row["coverage"] = metrics.coverage(value.interval(states), truth)
            rows.append(row)
        return rows


def run(
    *,
    labyrinth: Labyrinth,
    episodes: int = 50,
    steps: int = 30_000,
    seed: int = 0,
    progress: Progress | bool | None = None,
) -> Demo:
    """Log episodes, fit the four methods side by side, and take their errors over the grid."""
    log = labyrinth.episodes(episodes, seed=seed)
    key = jax.random.key(seed)
    fits = [Fit(m, log, MLP((50, 50)), discount=labyrinth.discount, key=key) for m in METHODS.values()]
    results = fit_many(fits, training=Training(steps=steps), progress=progress)
    values: dict[str, ValueFunction] = {}
    for name, result in zip(METHODS, results, strict=True):
        if isinstance(result, Diverged):
            raise result
        values[name] = result
    truth, states = labyrinth.true_values().values, labyrinth.grid()
    return Demo(
        problem=labyrinth,
        values=values,
        errors={name: value(states) - truth for name, value in values.items()},
        overruled=_overruled_by_cell(labyrinth, log.observations, values["Adaptive TD"]),
        settings={
            "map": labyrinth.name,
            "episodes": episodes,
            "transitions": log.steps,
            "steps": steps,
            "seed": seed,
        },
    )


def _overruled_by_cell(
    labyrinth: Labyrinth, states: Float[np.ndarray, "steps 2"], value: ValueFunction
) -> Float[np.ndarray, " states"]:
    """The mean of -1 (below), 0 and 1 (above) over the visits of each cell of the grid; 0 where none."""
    rows, columns = labyrinth.grid_shape
    size = np.array(labyrinth.high)
    at = np.minimum((states / size * (columns, rows)).astype(int), (columns - 1, rows - 1))
    cell = at[:, 1] * columns + at[:, 0]
    visits = np.bincount(cell, minlength=rows * columns)
    sums = np.bincount(cell, weights=value.diagnostics.overruled, minlength=rows * columns)
    return sums / np.maximum(visits, 1)


def write(demo: Demo, folder: Path) -> None:
    """Write figure, page and table into a new folder."""
    folder.mkdir(parents=True)
    shape, problem = demo.problem.grid_shape, demo.problem
    truth = problem.true_values().values.reshape(shape)
    errors = [(name, error.reshape(shape)) for name, error in demo.errors.items()]
    overruled = demo.overruled.reshape(shape)
    rmse = {row["method"]: row["rmse"] for row in demo.rows}
    figure = figures.error_maps(
        truth,
        [(f"{name}: RMSE {rmse[name]:.1f}", error) for name, error in errors],
        overruled,
        extent=(0.0, problem.high[0], 0.0, problem.high[1]),
        walls=problem.walls,
        unit="discounted reward",
    )
    figures.save(figure, folder / "demo")
    _page(demo, truth, errors, overruled).write(folder / "report.html")


def _page(demo: Demo, truth: Any, errors: list[tuple[str, Any]], overruled: Any) -> Page:
    settings, problem = demo.settings, demo.problem
    page = Page("adaptive-td: a demonstration")
    page.text(
        f"A random walk on the map {settings['map']!r}: {settings['episodes']} logged episodes "
        f"({settings['transitions']:,} transitions), reward inside a disc, discount {problem.discount}. Each "
        f"method trains networks of 50-50 units for {settings['steps']:,} steps (seed {settings['seed']}); "
        "errors are against true values known from long simulation."
    )
    page.table(
        [
            "method",
            "MSVE over an even grid",
            "RMSE",
            "interval covers the truth",
            "targets overruled at the end",
        ],
        [
            [r["method"], r["msve"], r["rmse"], _percent(r["coverage"]), _percent(r["overruled"])]
            for r in demo.rows
        ],
    )
    page.text(
        "One log and one seed: a picture of the mechanism, not a measurement of which method is better.",
        note=True,
    )
    x = (np.arange(truth.shape[1]) + 0.5) * problem.high[0] / truth.shape[1]
    y = (np.arange(truth.shape[0]) + 0.5) * problem.high[1] / truth.shape[0]
    plane = {"x": x, "y": y, "walls": problem.walls}
    page.heading("Where each method errs")
    page.figure(
        maps(errors, **plane, label="V(s) − v(s)", diverging=True),
        "Error of the estimated value at each state. Approximation errors near walls stay put under Monte "
        "Carlo; TD bootstraps from them and carries them on.",
    )
    page.heading("The truth, and where TD was overruled")
    page.figure(
        maps([("true value", truth)], **plane, label="value", diverging=False, columns=1), "The true values."
    )
    page.figure(
        maps([("overruled", overruled)], **plane, label="share", diverging=True, columns=1),
        "Share of visits whose TD target lay above (+) or below (−) the interval at the end of training.",
    )
    page.heading("Over training")
    page.figure(
        _curves(demo), "Share of targets outside the interval in each hundredth of Adaptive TD's training."
    )
    return page


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _curves(demo: Demo) -> Any:
    import plotly.graph_objects as go

    history = demo.values["Adaptive TD"].diagnostics.history
    assert history is not None
    done = np.linspace(0, demo.settings["steps"], len(history.above), endpoint=False)
    figure = go.Figure()
    for name, share, colour in (("above", history.above, "#E66101"), ("below", history.below, "#5E3C99")):
        figure.add_scatter(x=done, y=share, name=f"{name} the interval", line={"color": colour})
    figure.update_layout(
        height=320,
        xaxis_title="training step",
        yaxis_title="share of targets",
        yaxis_tickformat=".0%",
        margin={"t": 20},
    )
    return figure
