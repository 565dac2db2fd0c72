"""The report of one or more runs: one self-contained page."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl

from adaptive_td.experiments.results import Results
from adaptive_td.metrics import (
    Estimate,
    by_worst,
    interquartile_mean,
    mean_over_seeds,
    resampled_means,
)
from adaptive_td.problems import Tested
from adaptive_td.report import Page

from .claims import Case, check
from .explorer import explorer
from .figures import figures
from .points import over_test_episodes
from .styles import style

SYMBOLS = {
    **{"o": "circle", "s": "square", "^": "triangle-up", "v": "triangle-down"},
    **{"D": "diamond", "d": "diamond-tall", "P": "cross", "X": "x"},
}
"""Plotly's names of Matplotlib's markers."""


def page(results: Sequence[Results]) -> Page:
    """What was run, the claims, curves and tables with intervals, maps, and every figure of the paper."""
    report = Page("adaptive-td: " + ", ".join(one.experiment for one in results))
    for one in results:
        _what_was_run(report, one)
    _claims(report, results)
    for one in results:
        _errors(report, one)
        maps = explorer(one)
        if maps is not None:
            report.heading(f"{one.experiment}: maps of the first seed")
            report.html(maps)
    report.heading("Figures")
    for name, figure in figures(results).items():
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=110)
        report.picture(buffer.getvalue(), name)
    return report


def _what_was_run(report: Page, results: Results) -> None:
    settings, table = results.settings, results.table
    counts = Counter(table["status"].to_list())
    report.heading(f"{results.experiment}: what was run")
    told = ", ".join(f"{counts[status]:,} {status}" for status in counts)
    report.text(f"{len(table):,} cells: {told}. A cell is one method and model on one log.")
    report.table(
        ["setting", "value"],
        [[name.replace("_", " "), _listed(value)] for name, value in settings.items()],
        folded="settings",
    )
    report.table(["machine", ""], [[k, str(v)] for k, v in results.facts.items()], folded="machine, versions")
    for status in ("failed", "diverged", "pending"):
        lost = table.filter(pl.col("status") == status)
        if len(lost):
            names = ["problem", "model", "method", "episodes", "seed", "diverged_step"]
            rows = [list(row) for row in lost.select(names).iter_rows()]
            report.table(names, rows[:1000], folded=f"{len(lost)} cells {status}")
    if results.events:
        report.table(["warnings"], [[line] for line in results.events], folded="warnings of the run")


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _claims(report: Page, results: Sequence[Results]) -> None:
    rows = check(results)
    if not rows:
        return
    report.heading("Claims of the paper, checked")
    report.text(
        "M is the mean squared value error, averaged over seeds; brackets are 95% bootstrap intervals over "
        "seeds. A ratio is shown to be on one side of a bound when its whole interval is. Step size, "
        "discount, scaling and maps are choices of this project where the paper does not state them."
    )
    header = ["", "about", "claim", "deciding statistic", "what was run", "verdict"]
    report.table(header, rows, words=True)


def _errors(report: Page, results: Results) -> None:
    settings = results.settings
    report.heading(f"{results.experiment}: error against the size of the log")
    menu = [(problem, model) for problem in results.problems for model in settings["models"]]
    shown = [pair for pair in menu if len(results.cells(problem=pair[0], model=pair[1]))]
    if not shown:
        report.text("No cell is done yet.")
        return
    tested = all(isinstance(results.problems[problem], Tested) for problem, _ in shown)
    report.figure(
        _curves(results, shown),
        f"{_OVER_TEST if tested else _OVER_GRID}, mean over seeds with 95% intervals; choose a problem, "
        "hover for numbers, click a method to hide it.",
    )
    if tested:
        report.text(_NOISE, note=True)
    for problem, model in shown:
        rows = []
        for size in settings["sizes"]:
            scores = results.scores(problem=problem, model=model, episodes=size)
            cells = [_with_interval(scores.get(method, {})) for method in settings["methods"]]
            rows.append([size, max((len(s) for s in scores.values()), default=0), *cells])
        header = ["episodes", "seeds", *(style(method).label for method in settings["methods"])]
        what = "mean (G − V)²" if tested else "MSVE"
        report.table(header, rows, folded=f"{problem}, {model}: {what} [95% over seeds]")
        if tested:
            _against_returns(report, results, problem, model)
    _aggregate(report, results)


def _against_returns(report: Page, results: Results, problem: str, model: str) -> None:
    """What is known beside the mean of (G - V)²: paired differences, start states, and noise."""
    methods, rows = results.settings["methods"], []
    for size in results.settings["sizes"]:
        case: Case = {"problem": problem, "model": model, "episodes": size}
        found = over_test_episodes(results, case)
        for method in methods:
            scores = {n: results.scores(number=n, **case).get(method, {}) for n in _BESIDE}
            if any(scores.values()):
                told = [_with_interval(scores[name]) for name in _BESIDE]
                rows.append([size, style(method).label, _difference(found.get(method)), *told])
    header = ["episodes", "method", "less that of the best [95% over test episodes]", *_BESIDE.values()]
    report.table(header, rows, folded=f"{problem}, {model}: paired differences, start states and noise")


_OVER_GRID = "Mean squared value error over the grid"
_OVER_TEST = "Mean squared difference to the returns of test episodes"
_NOISE = (
    "Nobody knows the true values of these problems: values V are held against the returns G of test "
    "episodes, at every visit whose return is known. The mean of (G − V)² is the value error and the noise "
    "of returns, which is the same for every method and cancels in differences between methods."
)
_BESIDE = {
    "start_error": "squared error of the mean start value, without noise",
    "corrected": "MSVE without noise, at states that several test episodes visit",
    "floor": "noise there",
    "floor_share": "share of visits there",
}


def _difference(one: Estimate | None) -> str:
    if one is None:
        return "–"
    return "best" if one == Estimate(0.0, 0.0, 0.0) else f"{one.value:,.4g} [{one.low:,.3g}, {one.high:,.3g}]"


def _with_interval(by_seed: dict[int, float]) -> str:
    if not by_seed:
        return "–"
    one = _mean(by_seed)
    return f"{one.value:,.4g}" + (f" [{one.low:,.3g}, {one.high:,.3g}]" if len(by_seed) > 1 else "")


def _mean(by_seed: dict[int, float]) -> Estimate:
    return mean_over_seeds(np.array(list(by_seed.values())))


def _curves(results: Results, shown: Sequence[tuple[str, str]]) -> go.Figure:
    """One line per method; a menu chooses problem and model."""
    figure, owner = go.Figure(), []
    for problem, model in shown:
        for method in results.settings["methods"]:
            points = {
                size: _mean(scores[method])
                for size in results.settings["sizes"]
                if method in (scores := results.scores(problem=problem, model=model, episodes=size))
            }
            if not points:
                continue
            look, ends = style(method), list(points.values())
            figure.add_scatter(
                x=list(points),
                y=[one.value for one in ends],
                error_y={
                    "array": [one.high - one.value for one in ends],
                    "arrayminus": [one.value - one.low for one in ends],
                },
                name=look.label,
                mode="lines+markers",
                visible=(problem, model) == shown[0],
                line={"color": look.colour},
                marker={"symbol": SYMBOLS.get(look.marker, "circle"), "size": 9},
            )
            owner.append((problem, model))
    buttons = [
        {"label": f"{p}, {m}", "method": "update", "args": [{"visible": [o == (p, m) for o in owner]}]}
        for p, m in shown
    ]
    figure.update_layout(
        height=480,
        xaxis={"title": "training episodes", "type": "log", "tickvals": results.settings["sizes"]},
        yaxis={"title": "MSVE (squared discounted reward)", "type": "log"},
        updatemenus=[{"buttons": buttons, "x": 0, "xanchor": "left", "y": 1.15}] if len(shown) > 1 else [],
        margin={"t": 60},
    )
    return figure


def _aggregate(report: Page, results: Results) -> None:
    """Each method's error over the worst of its case, summarised over problems and sizes."""
    settings = results.settings
    for model in settings["models"]:
        cases: list[Case] = [
            {"problem": problem, "model": model, "episodes": size}
            for problem in results.problems
            for size in settings["sizes"]
        ]
        scores = results.paired(settings["methods"], cases)
        if len(scores) < 2:
            continue

        values, draws = by_worst(scores.mean(axis=0)), by_worst(resampled_means(scores))
        rows = []
        for k, method in enumerate(settings["methods"]):
            row = [style(method).label]
            for statistic in (np.mean, interquartile_mean):
                ends = np.quantile([statistic(draw) for draw in draws[:, :, k]], [0.025, 0.975])
                row.append(f"{statistic(values[:, k]):.3f} [{ends[0]:.3f}, {ends[1]:.3f}]")
            rows.append(row)
        report.table(
            ["method", "mean over cases", "interquartile mean"],
            rows,
            folded=f"{model}: MSVE over the worst method's, all problems and sizes "
            f"({len(scores)} seeds, stratified bootstrap)",
        )
