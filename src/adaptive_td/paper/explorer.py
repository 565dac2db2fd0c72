"""Maps of values, errors and intervals to choose from, inside a page."""

from __future__ import annotations

import base64
import html
import json
from importlib.resources import files
from typing import Any

import numpy as np
import plotly.colors
from jaxtyping import Float

from adaptive_td.experiments.results import Results
from adaptive_td.figures import DIVERGING
from adaptive_td.problems import Known, Labyrinth

from .styles import style

_SELECTS = ("problem", "model", "method", "episodes", "show")


def explorer(results: Results, *, seed: int = 0) -> str | None:
    """HTML that lets people look at every map of one seed; None where there is no plane to look at."""
    planes = {
        name: one
        for name, one in results.problems.items()
        if isinstance(one, Known) and len(one.grid_shape) == 2
    }
    cells: dict[str, dict[str, str]] = {}
    for row in results.cells(seed=seed).iter_rows(named=True):
        arrays = results.arrays(row["id"]) if row["problem"] in planes else {}
        if arrays:
            key = "|".join(str(row[name]) for name in _SELECTS[:4])
            ends = [name for name in ("values", "lower", "upper") if name in arrays]
            cells[key] = {"told": _told(row), **{name: _encoded(arrays[name]) for name in ends}}
    if not cells:
        return None
    data = {
        "cells": cells,
        "problems": {name: _plane(problem) for name, problem in planes.items()},
        "labels": {method: style(method).label for method in results.settings["methods"]},
        "diverging": [[at, colour] for at, colour in plotly.colors.get_colorscale(DIVERGING)],
    }
    menus = "".join(f"<label>{name} <select name={name}></select></label> " for name in _SELECTS)
    script = files("adaptive_td.paper").joinpath("explorer.js").read_text()
    return (
        f'<div class=explorer data-maps="{html.escape(json.dumps(data))}"><p>{menus}</p>'
        f"<div class=map></div><p class=msve></p><script>{script}</script></div>"
    )


def _told(row: dict[str, Any]) -> str:
    parts = [f"MSVE {row['msve']:,.4g}"]
    if row["coverage"] is not None:
        parts.append(f"intervals hold the truth in {row['coverage']:.0%} of the grid")
    if row["overruled"] is not None:
        parts.append(f"{row['overruled']:.0%} of the log's targets overruled at the end")
    return f"seed {row['seed']}: " + ", ".join(parts)


def _plane(problem: Known) -> dict[str, Any]:
    grid, (rows, columns) = problem.grid(), problem.grid_shape
    labyrinth = isinstance(problem, Labyrinth)
    return {
        "x": grid[:columns, 0].astype(float).tolist(),
        "y": grid[::columns, 1].astype(float).tolist()[:rows],
        "truth": _encoded(problem.true_values().values),
        "walls": problem.walls if isinstance(problem, Labyrinth) else [],
        "discs": problem.discs if isinstance(problem, Labyrinth) else [],
        "labels": ["x", "y"] if labyrinth else ["position", "velocity"],
        "square": labyrinth,
        "unit": "discounted reward",
    }


def _encoded(array: Float[np.ndarray, " states"]) -> str:
    return base64.b64encode(np.asarray(array, "<f4").tobytes()).decode()
