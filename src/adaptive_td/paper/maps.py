"""The plane: true values, errors, and where values and truths leave their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from adaptive_td.experiments.results import Arrays, Results
from adaptive_td.figures import Plane, plane
from adaptive_td.intervals import Interval
from adaptive_td.problems import Known, Labyrinth, MountainCar

from .styles import VALUE, canvas, columns_for, finish, problem_label, seeds_text, style, training_label

BELOW, INSIDE, ABOVE = "#5E3C99", "#EFEFEF", "#E66101"
"""Purple and orange, the ends of the scale of errors."""
LEAKY = "labyrinth-2"
Named = Iterator[tuple[str, Figure]]
Values = Float[np.ndarray, " states"]


def maps(results: Results) -> Named:
    """Every picture of the plane that these results can make."""
    labyrinths = {name: one for name, one in results.problems.items() if isinstance(one, Labyrinth)}
    if labyrinths:
        yield "labyrinth-maps", _true_values(results, labyrinths)
    for name, problem in results.problems.items():
        if isinstance(problem, MountainCar):
            yield f"{name}-values", _car(problem)
    done = set(results.cells()["model"].to_list())
    for model in [model for model in results.settings["models"] if model in done][:1]:
        yield from _leakage(results, model)
        yield from _quality(results, model, labyrinths)
        yield from _violations(results, model, labyrinths)


def _place(problem: Known) -> dict[str, Any]:
    """Where the plane lies, and what stands in it."""
    low, high = problem.low, problem.high
    place: dict[str, Any] = {"extent": (low[0], high[0], low[1], high[1])}
    if isinstance(problem, Labyrinth):
        place |= {"walls": problem.walls, "discs": problem.discs}
    return place


def _on_plane(problem: Known, values: Float[np.ndarray, " states"]) -> Plane:
    rows, columns = problem.grid_shape
    return values.reshape(rows, columns)


def _sheet(count: int, *, height: float = 2.05, extra: float = 1.0) -> tuple[Figure, list[Axes]]:
    """A figure with so many maps, at most three in a row, each row of three so high."""
    columns = columns_for(count)
    rows = math.ceil(count / columns)
    figure = canvas(extra + rows * {1: 4.2, 2: 2.6, 3: height}[columns], maps=True)
    grid: Any = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[count:]:
        axes.remove()
    return figure, list(grid.flat[:count])


def _label(axes: Sequence[Axes], problems: Sequence[Known]) -> None:
    """Coordinates at the left and at the bottom of a sheet."""
    columns = columns_for(len(axes))
    for k, (one, problem) in enumerate(zip(axes, problems, strict=True)):
        (x, y), bottom, left = problem.high, k + columns >= len(axes), k % columns == 0
        one.set(xticks=[0, x / 2, x], yticks=[0, y / 2, y])
        one.tick_params(labelbottom=bottom, labelleft=left)
        one.set_xlabel("x" if bottom else "")
        one.set_ylabel("y" if left else "")


def _true_values(results: Results, labyrinths: Mapping[str, Labyrinth]) -> Figure:
    truths = {name: problem.true_values().values for name, problem in labyrinths.items()}
    figure, sheet = _sheet(len(labyrinths), height=1.8)
    most = max(values.max() for values in truths.values())
    for axes, (name, problem) in zip(sheet, labyrinths.items(), strict=True):
        values, title = _on_plane(problem, truths[name]), problem_label(results, name)
        image = plane(axes, values, title=title, vmin=0, vmax=most, **_place(problem))
    _label(sheet, list(labyrinths.values()))
    figure.colorbar(image, ax=sheet, label=VALUE)
    one = next(iter(labyrinths.values()))
    footer = (
        f"A walk with steps of {one.step:g} at random angles; walls black, reward {one.reward:g} inside the "
        f"dashed discs, γ = {one.discount:g}, end with probability {one.end_probability:g} at each step. "
        f"Means of simulated returns from every cell of a grid of {one.grid_shape[1]} × {one.grid_shape[0]}."
    )
    return finish(figure, "Labyrinth-2D: maps and true values", footer)


def _car(problem: MountainCar) -> Figure:
    figure = canvas(4.2, width=6.4)
    axes = figure.subplots()
    values = _on_plane(problem, problem.true_values().values)
    image = plane(axes, values, title="", aspect="auto", **_place(problem))
    axes.set(xlabel="position", ylabel="velocity (per step)")
    axes.locator_params(nbins=7)
    axes.set(xticks=np.arange(-1.2, 0.61, 0.3), yticks=np.arange(-0.06, 0.061, 0.03))
    figure.colorbar(image, ax=axes, label=VALUE)
    footer = (
        f"Energy pumping with a random action in {problem.epsilon:.0%} of the steps; reward −1 per step, "
        f"γ = {problem.discount:g}, no time limit. Means of simulated returns from every cell of a grid of "
        f"{problem.grid_shape[1]} × {problem.grid_shape[0]}."
    )
    return finish(figure, "Mountain Car: true values", footer)


def _leakage(results: Results, model: str) -> Named:
    """Errors of Monte Carlo and TD on the map with a closed wall, at the largest size that both have."""
    problem = results.problems.get(LEAKY)
    if not isinstance(problem, Labyrinth):
        return
    for episodes in sorted(results.settings["sizes"], reverse=True):
        case = {"problem": LEAKY, "model": model, "episodes": episodes}
        found = {method: results.arrays_of(method=method, **case) for method in ("mc", "td")}
        seeds = sorted(set(found["mc"]) & set(found["td"]))
        if seeds:
            break
    else:
        return
    truth = problem.true_values().values
    errors = {
        method: np.mean([arrays[seed]["values"] for seed in seeds], axis=0) - truth
        for method, arrays in found.items()
    }
    figure, sheet = _sheet(2)
    limit = float(np.quantile(np.abs(np.stack(list(errors.values()))), 0.99))
    for axes, (method, error) in zip(sheet, errors.items(), strict=True):
        title = f"{style(method).label}: root mean square {np.sqrt(np.mean(error**2)):.0f}"
        image = plane(axes, _on_plane(problem, error), title=title, limit=limit, **_place(problem))
    _label(sheet, [problem, problem])
    figure.colorbar(image, ax=sheet, label="V(s) − v(s)\n(discounted reward)", extend="both", shrink=0.85)
    count = f"Mean over {len(seeds)} seeds" if len(seeds) > 1 else f"Seed {seeds[0]}"
    footer = (
        f"{count} at {episodes} episodes; model: {training_label(results, model)}. Above the wall the true "
        "value is 0. The scale ends at the 99% quantile of the absolute errors."
    )
    yield (
        f"{LEAKY}-leakage",
        finish(figure, "Leakage through a closed wall: error of MC and TD on map 2", footer),
    )


def sides(interval: Interval, values: Values) -> Int[np.ndarray, " states"]:
    """1 where the interval lies above the value, -1 where it lies below, 0 where it holds it (L < v < U)."""
    lower, upper = np.asarray(interval.lower), np.asarray(interval.upper)
    inside = np.asarray(interval.contains(values))
    return np.where(inside, 0, np.where(values <= lower, 1, np.where(values >= upper, -1, 0)))


def _quality(results: Results, model: str, labyrinths: Mapping[str, Labyrinth]) -> Named:
    """Where the truth leaves the intervals."""
    found, episodes = _with_intervals(results, model, labyrinths, after=None)

    def judge(problem: Known, arrays: Arrays) -> Int[np.ndarray, " states"]:
        return sides(Interval(arrays["lower"], arrays["upper"]), problem.true_values().values)

    if found:
        names = ("interval too high (L ≥ v)", "true value inside", "interval too low (U ≤ v)")
        footer = f"Intervals of the ensemble of Adaptive TD. {_small_print(results, model, found)}"
        title = f"Labyrinth-2D: do the intervals hold the true value? ({episodes} episodes)"
        figure = _categories(results, labyrinths, found, judge, title, footer, names)
        yield "labyrinth-interval-quality", figure


def _violations(results: Results, model: str, labyrinths: Mapping[str, Labyrinth]) -> Named:
    """Where V leaves its interval, early on and at the end."""

    def judge(problem: Known, arrays: Arrays) -> Int[np.ndarray, " states"]:
        return -sides(Interval(arrays["lower"], arrays["upper"]), arrays["values"])

    names = ("V above its interval", "V inside", "V below its interval")
    early = int(results.settings["snapshot_steps"])
    for after, suffix in ((early, str(early)), (None, "end")):
        found, episodes = _with_intervals(results, model, labyrinths, after=after)
        if not found:
            continue
        when = f"after {after:,} steps" if after else "at the end of training"
        footer = f"V of Adaptive TD {when}, within intervals trained to the end. "
        footer += _small_print(results, model, found)
        title = f"Labyrinth-2D: where Adaptive TD's V(s) leaves its interval {when} ({episodes} episodes)"
        figure = _categories(results, labyrinths, found, judge, title, footer, names)
        yield f"labyrinth-violations-{suffix}", figure


Found = dict[str, tuple[int, Arrays]]


def _with_intervals(
    results: Results, model: str, labyrinths: Mapping[str, Labyrinth], *, after: int | None
) -> tuple[Found, int]:
    """The first seed of Adaptive TD on each map that has intervals, at the size of the snapshots.

    Where a run has no such size, at the nearest that it has.
    """
    wanted = results.settings["snapshot_episodes"]
    for episodes in sorted(results.settings["sizes"], key=lambda size: (abs(size - wanted), size)):
        found: Found = {}
        for name in labyrinths:
            case = {"problem": name, "model": model, "method": "adaptive-td", "episodes": episodes}
            by_seed = results.arrays_of(**case, after=after)
            with_ends = {seed: one for seed, one in by_seed.items() if "lower" in one}
            if with_ends:
                found[name] = min(with_ends), with_ends[min(with_ends)]
        if found:
            return found, episodes
    return {}, 0


def _small_print(results: Results, model: str, found: Found) -> str:
    settings = results.settings
    which = seeds_text([seed for seed, _ in found.values()])
    members = f"{settings['members']} members, level {settings['level']:g}"
    return f"{members}; model: {training_label(results, model)}; {which}."


def _categories(
    results: Results,
    labyrinths: Mapping[str, Labyrinth],
    found: Found,
    judge: Callable[[Known, Arrays], Int[np.ndarray, " states"]],
    title: str,
    footer: str,
    names: tuple[str, str, str],
) -> Figure:
    """Maps in three colours: 1 (the first name), 0 and -1; the share of each above the map."""
    figure, sheet = _sheet(len(found), extra=1.3)
    colours = ListedColormap([BELOW, INSIDE, ABOVE])
    for axes, (name, (_, arrays)) in zip(sheet, found.items(), strict=True):
        problem = labyrinths[name]
        side = judge(problem, arrays)
        shares = " / ".join(f"{np.mean(side == one):.0%}" for one in (1, 0, -1))
        values, label = _on_plane(problem, side.astype(float)), f"{problem_label(results, name)}: {shares}"
        plane(axes, values, title=label, cmap=colours, vmin=-1.5, vmax=1.5, **_place(problem))
    _label(sheet, [labyrinths[name] for name in found])
    patches = [
        Patch(facecolor=colour, edgecolor="#888888", label=name)
        for colour, name in zip((ABOVE, INSIDE, BELOW), names, strict=True)
    ]
    return finish(
        figure, title, f"{footer} Above each map: shares in the order of the legend.", handles=patches
    )
