"""Problems that are judged by test episodes: what they look like, and values along one such episode."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from adaptive_td.experiments.results import Arrays, Results
from adaptive_td.problems import Tested

from .points import problems_of
from .styles import (
    VALUE,
    canvas,
    columns_for,
    finish,
    handles,
    in_order,
    line_options,
    problem_label,
    seeds_text,
    title_of,
    training_label,
)

SHOWN = ("mc", "td", "adaptive-td")
"""The methods whose values are drawn along an episode; the interval is Adaptive TD's, or its ensemble's."""
WITH_INTERVAL = ("adaptive-td", "mc-ensemble")


def games(results: Results) -> Iterator[tuple[str, Figure]]:
    """Frames, and values against returns along one test episode, as far as there are results."""
    for model in results.settings["models"][:1]:
        seen = [one for name in problems_of(results, model) if (one := _seen(results, name, model))]
        pictured = [one for one in seen if "frame" in next(iter(one.arrays.values()))]
        if pictured:
            yield f"{results.experiment}-frames", _frames(results, pictured)
        if seen:
            yield f"{results.experiment}-episode", _episode(results, model, seen)


class Seen(NamedTuple):
    """What methods made of one test episode of a problem."""

    problem: str
    episodes: int
    """How many they had learned from."""
    seed: int
    arrays: dict[str, Arrays]
    """By method."""


def _seen(results: Results, problem: str, model: str) -> Seen | None:
    """The first seed at the largest size with values along an episode; as many of the methods as it has."""
    if not isinstance(results.problems[problem], Tested):
        return None
    for size in sorted(results.settings["sizes"], reverse=True):
        case = {"problem": problem, "model": model, "episodes": size}
        found = {
            method: by_seed
            for method in results.settings["methods"]
            if (by_seed := _along_episode(results.arrays_of(method=method, **case)))
        }
        if found:
            seed = min(min(by_seed) for by_seed in found.values())
            return Seen(
                problem, size, seed, {m: by_seed[seed] for m, by_seed in found.items() if seed in by_seed}
            )
    return None


def _along_episode(by_seed: dict[int, Arrays]) -> dict[int, Arrays]:
    return {seed: arrays for seed, arrays in by_seed.items() if "episode_values" in arrays}


def _frames(results: Results, seen: list[Seen]) -> Figure:
    columns = min(4, len(seen))
    rows = math.ceil(len(seen) / columns)
    figure = canvas(1.0 + 2.2 * rows, maps=True)
    grid: Any = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(seen) :]:
        axes.remove()
    for axes, one in zip(grid.flat, seen, strict=False):
        arrays = next(iter(one.arrays.values()))
        height, width = arrays["frame_shape"].astype(int)
        axes.imshow(arrays["frame"].reshape(height, width), cmap="gray", vmin=0, vmax=255)
        axes.set_title(problem_label(results, one.problem))
        axes.set(xticks=[0, width - 1], yticks=[0, height - 1])
    for row in grid:
        row[0].set_ylabel("y (pixels)")
    for axes in grid.flat[max(len(seen) - columns, 0) : len(seen)]:
        axes.set_xlabel("x (pixels)")
    footer = (
        "The newest of the frames that make a state, half way through the test episode with the most visits."
    )
    return finish(figure, f"{title_of(results)}: what the methods see", footer)


def _episode(results: Results, model: str, seen: list[Seen]) -> Figure:
    columns = columns_for(len(seen)) if len(seen) != 3 else 1
    rows = math.ceil(len(seen) / columns)
    figure = canvas(1.7 + 2.1 * rows if len(seen) > 1 else 4.2)
    grid: Any = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(seen) :]:
        axes.remove()
    drawn: set[str] = set()
    level = results.settings["level"]
    for k, (axes, one) in enumerate(zip(grid.flat, seen, strict=False)):
        first = next(iter(one.arrays.values()))
        steps = np.arange(len(first["episode_returns"]))
        bounds = next(
            (one.arrays[m] for m in WITH_INTERVAL if "episode_lower" in one.arrays.get(m, {})), None
        )
        if bounds is not None:
            lower, upper = bounds["episode_lower"], bounds["episode_upper"]
            axes.fill_between(steps, lower, upper, color=INTERVAL, linewidth=0)
        axes.plot(steps, first["episode_returns"], color=RETURN, linewidth=1.8)
        methods = in_order([m for m in SHOWN if m in one.arrays]) or in_order(list(one.arrays))[:1]
        for method in reversed(methods):  # others stay visible over Adaptive TD
            options = line_options(method) | {"marker": "", "linewidth": 1.1}
            axes.plot(steps, one.arrays[method]["episode_values"], **options)
        drawn |= set(methods)
        axes.set_title(f"{problem_label(results, one.problem)} ({one.episodes} training episodes)")
        axes.grid(True, color="#E5E5E5", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_xlabel("step of the test episode" if k + columns >= len(seen) else "")
        axes.set_ylabel(VALUE if k % columns == 0 else "")
    legend = [
        Patch(facecolor=RETURN, label="realised return G"),
        Patch(facecolor=INTERVAL, label=f"{level:.0%} interval"),
        *handles(in_order(sorted(drawn)), markers=False),
    ]
    footer = (
        "The test episode with the most visits whose return is known: no more than 1% of its weight lies "
        "beyond a cut. The interval is that of the ensemble behind Adaptive TD, for the value rather than "
        f"for one return. Model: {training_label(results, model)}; {seeds_text([one.seed for one in seen])}."
    )
    title = f"{title_of(results)}: predicted value against realised return along one test episode"
    return finish(figure, title, footer, handles=legend, columns=5)


RETURN, INTERVAL = "#9A9A9A", "#D9E6F2"
"""Of the realised return, and of the band behind all lines."""
