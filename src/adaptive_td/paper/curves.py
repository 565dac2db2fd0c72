"""Errors against the amount of data: absolute, normalised by the worst, and summed up over scenarios."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from adaptive_td.experiments.results import Results
from adaptive_td.problems import Atari, Labyrinth, MountainCar, Tested

from .points import Point, Scenario, Summary, is_chain, methods_of, points, problems_of, summary
from .styles import (
    EPISODES,
    MSVE,
    TEST_MSVE,
    canvas,
    columns_for,
    finish,
    handles,
    in_order,
    line_options,
    listing,
    model_label,
    model_slug,
    problem_label,
    seeds_label,
    style,
    title_of,
    training_label,
)

Named = Iterator[tuple[str, Figure]]
_NOISE = (
    "Over all visits of the test episodes whose return G is known, each with the same weight: the value "
    "error and the noise of returns, which is the same for every method."
)
BASIS = ("mc", "td", "adaptive-td")
"""Methods that are in every comparison."""


def curves(results: Results) -> Named:
    """Absolute and normalised errors of a trained experiment, without and with TD(λ), for each model."""
    models = results.settings["models"]
    for model in models:
        methods = in_order(methods_of(results, model))
        lambdas = [method for method in methods if method.startswith("td-lambda")]
        name = _name(results, model)
        baselines = [method for method in methods if method not in lambdas]
        for infix, chosen in (("", baselines), ("-lambda", [m for m in methods if m in (*BASIS, *lambdas)])):
            if infix and not lambdas:
                continue
            yield from _pair(results, model, chosen, f"{name}{infix}")


def _name(results: Results, model: str) -> str:
    """What the files are called; the Labyrinth's name their model, because it is run with two."""
    many = any(isinstance(problem, Labyrinth) for problem in results.problems.values())
    slug = f"-{model_slug(model, results.settings['models'])}" if many else ""
    return f"{results.experiment}{slug}"


def _pair(results: Results, model: str, methods: Sequence[str], name: str) -> Named:
    """Normalised by the worst, and absolute; nothing where no size has all of the methods."""
    found = {
        problem: points(results, methods, problem=problem, model=model)
        for problem in problems_of(results, model)
    }
    panels = {problem_label(results, problem): some for problem, some in found.items() if some}
    if not panels:
        return
    seeds = seeds_label([len(one.scores) for some in panels.values() for one in some])
    where = f"{title_of(results)}, {model_label(model)}"
    small_print = f"Model: {training_label(results, model)}; {seeds}{_missing(results, model)}."
    names = listing([style(method).label for method in methods])
    tested = all(isinstance(results.problems[name], Tested) for name in found)
    if len(methods) > 1:
        what = "mean (G − V)² / worst" if tested else "MSVE / worst MSVE"
        figure = _panels(panels, _draw_normalised, what)
        noise = f"{_NOISE} The noise moves every method towards 1. " if tested else ""
        footer = f"Means over seeds, divided by the largest of {names}. {noise}{small_print}"
        title = f"{where}: error relative to the worst method"
        yield f"{name}-normalised", finish(figure, title, footer, handles=handles(methods))
    figure = _panels(panels, _draw_absolute, TEST_MSVE if tested else MSVE, shared=not tested)
    several = max(len(one.scores) for some in panels.values() for one in some) > 1
    bars = "Bars: 95% percentile bootstrap over seeds. " if several else ""
    weights = _NOISE if tested else "Every state of an even grid has the same weight."
    footer = f"{weights} {bars}{small_print}"
    title = f"{where}: mean squared {'difference to realised returns' if tested else 'value error'}"
    yield f"{name}-msve", finish(figure, title, footer, handles=handles(methods))


def _missing(results: Results, model: str) -> str:
    """What is not in the figure: fits that diverged, and cells that are still to come."""
    status = results.table.filter(results.table["model"] == model)["status"].to_list()
    lost = status.count("diverged")
    open_ = len(status) - lost - status.count("done")
    told = f"; {lost} fit{'s' * (lost != 1)} diverged and left out" if lost else ""
    return told + (f"; {open_:,} of {len(status):,} cells without a result yet" if open_ else "")


def _panels(
    panels: dict[str, list[Point]],
    draw: Callable[[Axes, Sequence[Point]], None],
    label: str,
    *,
    shared: bool = True,
) -> Figure:
    """One panel for each problem, on axes they share; else each has a linear one of its own."""
    columns = columns_for(len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = canvas(1.5 + 2.1 * rows if len(panels) > 1 else 4.0)
    grid: Any = figure.subplots(rows, columns, sharex=True, sharey=shared, squeeze=False)
    sizes = sorted({one.episodes for some in panels.values() for one in some})
    for k, axes in enumerate(grid.flat):
        if k >= len(panels):
            axes.remove()
            continue
        title, some = list(panels.items())[k]
        draw(axes, some)
        if not shared:
            axes.set_yscale("linear")
        axes.set_title(title)
        episodes_axis(axes, sizes)
        below = k + columns >= len(panels)
        axes.tick_params(labelbottom=below)
        axes.set_xlabel(EPISODES if below else "")
        axes.set_ylabel(label if k % columns == 0 else "")
    return figure


def episodes_axis(axes: Axes, sizes: Sequence[int]) -> None:
    """A logarithmic axis with a tick at every size, and a number where there is room for one."""
    axes.set_xscale("log")
    numbered = sizes[-1:]
    span = math.log(sizes[-1] / sizes[0]) or 1.0
    for size in sizes[-2::-1]:
        if math.log(numbered[0] / size) > 0.11 * span:
            numbered = [size, *numbered]
    axes.xaxis.set_major_locator(FixedLocator(numbered))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_locator(FixedLocator([size for size in sizes if size not in numbered]))
    axes.xaxis.set_minor_formatter(NullFormatter())
    if len(sizes) == 1:
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(0.8 * sizes[0], 1.25 * sizes[0])  # points that stand side by side belong to one size
    axes.grid(True, which="major", color="#E5E5E5", linewidth=0.6)
    axes.set_axisbelow(True)


def _draw_normalised(axes: Axes, some: Sequence[Point]) -> None:
    for method in some[0].methods:
        shares = [one.normalised()[method] for one in some]
        axes.plot([one.episodes for one in some], shares, **line_options(method))
    axes.set_ylim(0, 1.06)


def _draw_absolute(axes: Axes, some: Sequence[Point]) -> None:
    """Points side by side rather than on top of each other, so that every bar is seen."""
    axes.set_yscale("log", nonpositive="clip")
    methods = some[0].methods
    estimates = [one.estimates() for one in some]
    for k, method in enumerate(methods):
        aside = 1.02 ** (k - (len(methods) - 1) / 2)
        x = [one.episodes * aside for one in some]
        draw_estimates(axes, x, [one[method] for one in estimates], **line_options(method))


def draw_estimates(axes: Axes, x: Sequence[float], estimates: Sequence[Any], **options: Any) -> None:
    """Means with bars for their intervals; without bars where each is of one seed."""
    y = [one.value for one in estimates]
    bars: Any = [[one.value - one.low for one in estimates], [one.high - one.value for one in estimates]]
    if not any(bars[0] + bars[1]):
        bars = None
    axes.errorbar(x, y, bars, elinewidth=1.2, capsize=2, capthick=1, **options)


def overall(every: Sequence[Results]) -> Named:
    """Min-max normalised errors averaged over scenarios: maps, maps and games (the paper's), and the car."""
    scenarios = [
        Scenario(results, problem, results.settings["models"][0])
        for results in every
        if not is_chain(results)
        for problem in problems_of(results, results.settings["models"][0])
    ]
    cars = [one for one in scenarios if isinstance(one.results.problems[one.problem], MountainCar)]
    games = [one for one in scenarios if isinstance(one.results.problems[one.problem], Atari)]
    rest = [one for one in scenarios if one not in (*cars, *games)]
    together = [*rest, *games]
    if games and rest and summary(together, _common(together)):
        sets = {"maps": rest, "maps and games": together, "with Mountain Car": scenarios if cars else []}
    else:  # without games, or with games at other sizes, the maps stand alone
        sets = {"without Mountain Car": rest or games, "with Mountain Car": [*rest, *cars] if cars else []}
    found = {title: summary(some, _common(some)) for title, some in sets.items()}
    panels = {title: some for title, some in found.items() if some and len(some.methods) > 1}
    if panels:
        yield "overall", _overall(panels)


def _common(scenarios: Sequence[Scenario]) -> list[str]:
    """The methods that all of them have."""
    each = [set(methods_of(results, model)) for results, _, model in scenarios]
    return in_order(sorted(set.intersection(*each))) if each else []


def _overall(panels: dict[str, Summary]) -> Figure:
    figure = canvas(4.6)
    row: Any = figure.subplots(1, len(panels), sharey=True, squeeze=False)
    for axes, (title, some) in zip(row.flat, panels.items(), strict=True):
        _draw_summary(axes, some)
        axes.set_title(f"{title} ({len(some.scenarios)} scenario{'s' * (len(some.scenarios) != 1)})")
        axes.set_xlabel(EPISODES)
    row[0, 0].set_ylabel("normalised MSVE (best 0, worst 1)")
    last = list(panels.values())[-1]
    drawn = in_order(sorted({method for some in panels.values() for method in some.methods}))
    where = listing([problem_label(one.results, one.problem) for one in last.scenarios])
    trained = sorted({training_label(one.results, one.model) for one in last.scenarios})
    counts = [count for some in panels.values() for count in some.seeds]
    bands = ""
    if max(counts) > 1:
        single = "; scenarios with one seed add no width" if min(counts) == 1 else ""
        bands = f"Bars: 95% bootstrap, seeds drawn within scenarios{single}. "
    noise = (
        "Games are judged by returns whose noise is the same for every method and cancels here. "
        if any(isinstance(one.results.problems[one.problem], Atari) for one in last.scenarios)
        else ""
    )
    footer = (
        f"Scenarios: {where}. For each scenario and size, (MSVE − min) / (max − min) of means over seeds, "
        f"among the methods of the panel ({listing([style(method).label for method in drawn])} as far as all "
        "of its scenarios have them); then the mean over scenarios, at the sizes that all of them share (in "
        f"the paper: the six maps and four games). {noise}{bands}Model: {listing(trained)}; "
        f"{seeds_label(counts)}."
    )
    title = "Overall: normalised error, averaged over scenarios"
    return finish(figure, title, footer, handles=handles(drawn))


def _draw_summary(axes: Axes, some: Summary) -> None:
    for k, method in enumerate(some.methods):
        aside = 1.02 ** (k - (len(some.methods) - 1) / 2)
        x = [size * aside for size in some.episodes]
        options = line_options(method)
        axes.plot(x, some.values[:, k], **options)
        if max(some.seeds) > 1:
            axes.vlines(x, some.low[:, k], some.high[:, k], color=options["color"], linewidth=1.0, alpha=0.8)
    axes.set_ylim(-0.03, 1.03)
    episodes_axis(axes, some.episodes)
