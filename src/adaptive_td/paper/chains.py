"""The chain: measured errors over their closed forms, and estimates against intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adaptive_td.experiments.results import Arrays, Results
from adaptive_td.problems import Chain
from adaptive_td.problems.chain_theory import adaptive_td_msve, crossing, monte_carlo_msve, td_msve

from .curves import draw_estimates, episodes_axis
from .points import methods_of, points, problems_of
from .styles import (
    EPISODES,
    SMALL,
    canvas,
    finish,
    handles,
    in_order,
    line_options,
    listing,
    seeds_label,
    style,
)

MODEL = "tabular"
NEAR = 100
"""The size whose estimates are shown beside those of the largest."""
CLOSED_FORMS: dict[str, Callable[[Chain, int], float]] = {
    "mc": monte_carlo_msve,
    "td": td_msve,
    "adaptive-td": adaptive_td_msve,
    "adaptive-td:endpoint": partial(adaptive_td_msve, fallback="endpoint"),
}


def chains(results: Results) -> Iterator[tuple[str, Figure]]:
    """Both figures of the chain, as far as there are results."""
    found = {name: results.problems[name] for name in problems_of(results, MODEL)}
    of_type = {name: chain for name, chain in found.items() if isinstance(chain, Chain)}
    if of_type:
        yield from _errors(results, of_type)
        yield from _intervals(results, of_type)


def _describe(chain: Chain) -> str:
    return f"biased: {chain.bias:g} is added at b₁" if chain.bias else "tabular"


def _errors(results: Results, of_type: dict[str, Chain]) -> Iterator[tuple[str, Figure]]:
    methods = in_order(methods_of(results, MODEL))
    found = {name: points(results, methods, problem=name, model=MODEL) for name in of_type}
    panels = {name: some for name, some in found.items() if some}
    if not panels:
        return
    figure = canvas(4.4)
    row: Any = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)
    for axes, (name, some) in zip(row.flat, panels.items(), strict=True):
        sizes = [one.episodes for one in some]
        axes.set_yscale("log")
        for method in methods:
            options = line_options(method)
            estimates = [one.estimates()[method] for one in some]
            draw_estimates(axes, sizes, estimates, **{**options, "linestyle": "none"})
            if method in CLOSED_FORMS:
                curve = closed_form(of_type[name], method, sizes)
                axes.plot(*curve, color=options["color"], linestyle=options["linestyle"], linewidth=1.3)
        episodes_axis(axes, sizes)
        _mark_crossing(axes, of_type[name], sizes, methods)
        axes.set_title(_describe(of_type[name]))
        axes.set_xlabel(f"n, {EPISODES}")
    row[0, 0].set_ylabel("MSVE (squared reward)")
    seeds = seeds_label([len(one.scores) for some in panels.values() for one in some])
    one = next(iter(of_type.values()))
    lines = listing([style(method).label for method in methods if method in CLOSED_FORMS])
    footer = (
        f"Points: means over {seeds} of {results.settings['repeats']} logs each, 95% bootstrap intervals "
        f"over seeds. Lines: closed forms of {lines}, which take the targets at b to stay inside their "
        f"intervals. MSVE over s₁ to s_k; k = {one.k}, p = {one.p}, μ = {one.mu:g}, σ = {one.sigma:g}; "
        f"intervals at level {results.settings['level']:g}."
    )
    title = "The chain: mean squared value error, measured and in closed form"
    yield "chain-msve", finish(figure, title, footer, handles=handles(methods))


def closed_form(chain: Chain, method: str, sizes: Sequence[int]) -> tuple[list[int], list[float]]:
    """Expected MSVE at whole numbers of episodes between the least and the largest size, and at all sizes."""
    between = np.geomspace(min(sizes), max(sizes), 25).round().astype(int).tolist()
    episodes = sorted({*between, *sizes})
    return episodes, [CLOSED_FORMS[method](chain, n) for n in episodes]


def overtaken(chain: Chain, most: int) -> int | None:
    """The least number of episodes at which Monte Carlo has a smaller error than TD, by the closed forms."""
    numbers = range(2, most + 1)
    return next((n for n in numbers if monte_carlo_msve(chain, n) < td_msve(chain, n)), None)


def _mark_crossing(axes: Axes, chain: Chain, sizes: Sequence[int], methods: Sequence[str]) -> None:
    at = overtaken(chain, max(sizes)) if {"mc", "td"} <= set(methods) else None
    if at is None:
        return
    level = td_msve(chain, at)
    axes.plot([at], [level], marker="o", markersize=13, markerfacecolor="none", color="#444444")
    axes.annotate(
        f"MC overtakes TD at n = {at}\n(rule of thumb: {crossing(chain):.0f})",
        (at, level),
        xytext=(0.97, 0.95),
        textcoords="axes fraction",
        ha="right",
        va="top",
        fontsize=SMALL,
        color="#444444",
        arrowprops={"arrowstyle": "-", "color": "#888888", "shrinkB": 7},
    )


def _intervals(results: Results, of_type: dict[str, Chain]) -> Iterator[tuple[str, Figure]]:
    """Of the biased chain: one log near 100 episodes, and one at the largest size."""
    biased = [name for name, chain in of_type.items() if chain.bias]
    if not biased:
        return
    methods = [method for method in ("mc", "td", "adaptive-td") if method in methods_of(results, MODEL)]
    seen: dict[int, dict[str, Arrays]] = {}
    for episodes in sorted(results.settings["sizes"]):
        found = {
            method: results.arrays_of(problem=biased[0], model=MODEL, method=method, episodes=episodes)
            for method in methods
        }
        seeds = set.intersection(*map(set, found.values())) if found else set()
        if seeds:
            seen[episodes] = {method: arrays[min(seeds)] for method, arrays in found.items()}
    if not seen:
        return
    shown = sorted({min(seen, key=lambda n: (abs(n - NEAR), n)), max(seen)})
    yield "chain-intervals", _estimates(results, of_type[biased[0]], {n: seen[n] for n in shown}, methods)


def _estimates(
    results: Results, chain: Chain, shown: dict[int, dict[str, Arrays]], methods: Sequence[str]
) -> Figure:
    figure = canvas(1.6 + 2.3 * len(shown))
    rows: Any = figure.subplots(len(shown), 1, sharex=True, squeeze=False)
    states = [f"$s_{{{i}}}$" for i in range(1, chain.k + 1)] + ["$b_1$", "$b_2$", "$q$"]
    x = np.arange(len(states))
    for axes, (episodes, found) in zip(rows.flat, shown.items(), strict=True):
        first = found[methods[0]]
        _draw_intervals(axes, x, first, f"{results.settings['level']:.0%} interval")
        axes.axhline(chain.mu, color="#888888", linewidth=0.8, label="true value")
        for k, method in enumerate(methods):
            options = line_options(method) | {"linestyle": "none", "markersize": 6}
            axes.plot(x + 0.17 * (k - (len(methods) - 1) / 2), found[method]["values"], **options)
        axes.axvspan(-0.5, chain.p - 0.5, color="#F3EEE2", zorder=0)
        outside = _outside(first, found["td"]["values"], chain) if "td" in found else ""
        axes.set_title(f"n = {episodes} episodes{outside}")
        axes.set(xticks=x, xticklabels=states, xlim=(-0.5, len(states) - 0.5), ylabel="value (reward)")
    rows[-1, 0].set_xlabel("state (shaded: those that lead to the biased b₁)")
    footer = (
        "One log (the first of the first seed) at each n. Bars: Student's intervals for the mean return at "
        f"level {results.settings['level']:g}, without the bias; none where a state was seen once or never. "
        f"{chain.bias:g} is added to whatever is fitted at b₁. k = {chain.k}, p = {chain.p}, "
        f"σ = {chain.sigma:g}."
    )
    title = "The biased chain: estimates against Monte Carlo intervals"
    return finish(figure, title, footer, handles=rows[0, 0].get_legend_handles_labels()[0], columns=5)


def _draw_intervals(axes: Axes, x: Any, found: Arrays, label: str) -> None:
    centre, half = (found["lower"] + found["upper"]) / 2, (found["upper"] - found["lower"]) / 2
    finite = np.isfinite(half)
    bar: dict[str, Any] = {"fmt": "none", "ecolor": "#999999", "elinewidth": 9, "alpha": 0.45}
    axes.errorbar(x[finite], centre[finite], half[finite], label=label, **bar)


def _outside(found: Arrays, values: Any, chain: Chain) -> str:
    """How many of the states behind b_1 have their TD estimate outside the interval."""
    behind = slice(0, chain.p)
    inside = (found["lower"][behind] < values[behind]) & (values[behind] < found["upper"][behind])
    return f": TD lies outside at {int((~inside).sum())} of {chain.p} states behind b₁"
