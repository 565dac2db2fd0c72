"""How methods, models and problems look and are called, the same in every figure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from adaptive_td.experiments.results import Results
from adaptive_td.problems import Atari, Labyrinth, MountainCar

WIDTH = 8.0
"""Of every figure, in inches: at 150 dots per inch, text of 8 points can be read in a README."""
SMALL, NORMAL, LARGE = 8, 9, 10
MSVE = "MSVE\n(squared discounted reward)"
TEST_MSVE = "mean of (G − V)²\n(squared discounted reward)"
"""Against realised returns: the value error and the noise of returns."""
VALUE = "value (discounted reward)"
EPISODES = "training episodes"


class Style(NamedTuple):
    """Colour, marker and line of a method, and its name in legends."""

    label: str
    colour: str
    marker: str
    line: Any


STYLES: dict[str, Style] = {
    "mc": Style("MC", "#0072B2", "o", "--"),
    "mc-ensemble": Style("MC ensemble", "#56B4E9", "s", ":"),
    "td": Style("TD", "#D55E00", "^", "-."),
    "adaptive-td": Style("Adaptive TD", "#000000", "D", "-"),
    "adaptive-td:endpoint": Style("Adaptive TD (endpoint)", "#CC79A7", "d", (0, (5, 1))),
    "td-lambda:0.25": Style("TD(λ=0.25)", "#E69F00", "v", (0, (1, 1))),
    "td-lambda:0.5": Style("TD(λ=0.5)", "#009E73", "P", (0, (4, 1, 1, 1))),
    "td-lambda:0.75": Style("TD(λ=0.75)", "#882255", "X", (0, (6, 2))),
}
"""By method, in the order of legends. Colours can be told apart with deuteranopia and protanopia."""
_OTHERS = [("#7F7F7F", "<"), ("#7F7F7F", ">"), ("#B0B0B0", "p"), ("#B0B0B0", "h"), ("#555555", "*")]


def style(method: str) -> Style:
    """The style of a method; one that the table does not have is grey and called what it is called."""
    if method in STYLES:
        return STYLES[method]
    name, _, number = method.partition(":")
    colour, marker = _OTHERS[sum(map(ord, method)) % len(_OTHERS)]
    return Style(f"TD(λ={number})" if name == "td-lambda" else method, colour, marker, (0, (2, 2)))


def line_options(method: str) -> dict[str, Any]:
    """How a method's line is drawn."""
    label, colour, marker, line = style(method)
    white = {"markeredgecolor": "white", "markeredgewidth": 0.5}
    shape = {"marker": marker, "linestyle": line, "markersize": 5.5, "linewidth": 1.4}
    return {"label": label, "color": colour, **shape, **white}


def handles(methods: Sequence[str], *, markers: bool = True) -> list[Line2D]:
    """The lines of a legend."""
    plain = {} if markers else {"marker": ""}
    return [Line2D([], [], **{**line_options(method), **plain}) for method in methods]


def in_order(methods: Sequence[str]) -> list[str]:
    """Methods in the order of the table, those it does not have last."""
    known = [method for method in STYLES if method in methods]
    return known + [method for method in methods if method not in STYLES]


def model_label(model: str) -> str:
    """A model in words: `mlp:50,50` is MLP 50-50."""
    name, _, numbers = model.partition(":")
    if name == "cnn":
        return "Nature CNN"
    if name == "mlp":
        return f"MLP {numbers.replace(',', '-') or '50-50'}"
    return f"grid (cells of {' × '.join((numbers.split(',') * 2)[:2])})" if name == "grid" else model


def model_slug(model: str, models: Sequence[str]) -> str:
    """A model in a file's name: its kind, with its numbers where another model is of the same kind."""
    kind = model.partition(":")[0]
    alike = [other for other in models if other.partition(":")[0] == kind]
    return kind if len(alike) == 1 else model.replace(":", "-").replace(",", "-")


def problem_label(results: Results, name: str) -> str:
    """A problem in words: `labyrinth-2` is map 2."""
    problem = results.problems[name]
    if isinstance(problem, Labyrinth):
        return f"map {name.removeprefix('labyrinth-')}"
    if isinstance(problem, Atari):
        return problem.title
    return "Mountain Car" if isinstance(problem, MountainCar) else name


def title_of(results: Results) -> str:
    """An experiment in words."""
    named = {Labyrinth: "Labyrinth-2D", MountainCar: "Mountain Car", Atari: "Atari"}
    kinds = {type(problem) for problem in results.problems.values()}
    return next((title for kind, title in named.items() if kind in kinds), results.experiment)


def listing(words: Sequence[str]) -> str:
    """Words with commas, and an `and` before the last."""
    return " and ".join([*([", ".join(words[:-1])] if words[:-1] else []), *words[-1:]])


def seeds_label(counts: Sequence[int]) -> str:
    """How many seeds: `5 seeds`, or `1 to 5 seeds` where points have different numbers."""
    low, high = min(counts), max(counts)
    return f"{low} to {high} seeds" if low < high else f"{high} seed{'s' * (high != 1)}"


def seeds_text(seeds: Sequence[int]) -> str:
    """Which seeds: `seed 0`, or `seeds 0 and 1`."""
    each = sorted(set(seeds))
    return f"seed{'s' * (len(each) != 1)} {listing(list(map(str, each)))}"


def training_label(results: Results, model: str) -> str:
    """How its networks were trained, for footers."""
    settings = results.settings
    return f"{model_label(model)}, {settings['steps']:,} steps of {settings['batch_size']} transitions"


def columns_for(panels: int) -> int:
    """How many panels stand side by side: three, but four are two and two."""
    return 2 if panels == 4 else min(3, panels)


def canvas(height: float, *, width: float = WIDTH, maps: bool = False) -> Figure:
    """An empty figure whose parts make room for each other; maps, of a fixed shape, also draw together."""
    return Figure(figsize=(width, height), layout="compressed" if maps else "constrained")


def finish(
    figure: Figure, title: str, footer: str, *, handles: Sequence[Any] = (), columns: int = 4
) -> Figure:
    """Give a figure its title, a legend below that, its small print, and text the size it has everywhere."""
    if handles:
        by_row = [handle for k in range(columns) for handle in handles[k::columns]]
        figure.legend(
            handles=by_row,
            ncols=columns,
            loc="outside upper left",
            title=title,
            title_fontsize=LARGE,
            fontsize=SMALL,
            alignment="left",
            frameon=False,
            handlelength=3.2,
        )
    else:
        figure.suptitle(title, fontsize=LARGE, x=0.01, ha="left")
    wrapped = textwrap.fill(footer, int(figure.get_figwidth() * 15.5))
    figure.supxlabel(wrapped, fontsize=SMALL, x=0.01, ha="left", color="#444444")
    for axes in figure.axes:
        axes.title.set_fontsize(NORMAL)
        axes.xaxis.label.set_fontsize(NORMAL)
        axes.yaxis.label.set_fontsize(NORMAL)
        axes.tick_params(labelsize=SMALL, which="both")
    return figure
