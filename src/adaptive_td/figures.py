"""Figures (Matplotlib), in colours that people with colour-blindness can tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

DIVERGING = "PuOr_r"
SEQUENTIAL = "viridis"

Plane = Float[np.ndarray, "rows columns"]
Wall = tuple[float, float, float, float]
Disc = tuple[float, float, float]
Extent = tuple[float, float, float, float]


def plane(
    axes: Axes,
    values: Plane,
    *,
    extent: Extent,
    title: str,
    walls: Sequence[Wall] = (),
    discs: Sequence[Disc] = (),
    limit: float | None = None,
    **image_options: Any,
) -> Any:
    """One heat map of the plane with its walls and discs; a `limit` makes the scale diverge around zero."""
    scale: dict[str, Any] = (
        {"cmap": SEQUENTIAL} if limit is None else {"cmap": DIVERGING, "vmin": -limit, "vmax": limit}
    )
    image = axes.imshow(
        values, origin="lower", extent=extent, interpolation="nearest", **{**scale, **image_options}
    )
    for x, y, radius in discs:
        for colour, style in (("white", "-"), ("black", (0, (3, 3)))):
            axes.add_patch(Circle((x, y), radius, fill=False, color=colour, linestyle=style))
    for x1, y1, x2, y2 in walls:
        axes.plot([x1, x2], [y1, y2], color="black", linewidth=2)
    axes.set_title(title, fontsize=10)
    axes.set(xticks=[], yticks=[], xlim=extent[:2], ylim=extent[2:])
    return image


def error_maps(
    truth: Plane,
    errors: Sequence[tuple[str, Plane]],
    overruled: Plane,
    *,
    extent: Extent,
    walls: Sequence[Wall],
    unit: str,
) -> Figure:
    """True values, where TD was overruled, and the error of four methods on one scale."""
    figure = Figure(figsize=(11.5, 5), layout="constrained")
    parts: Any = figure.subfigures(1, 2, width_ratios=[1, 1.75])
    left, right = parts
    top, bottom = left.subplots(2, 1)
    place: dict[str, Any] = {"extent": extent, "walls": walls}
    value = plane(top, truth, title="true value v(s)", **place)
    left.colorbar(value, ax=top, label=unit)
    share = plane(bottom, overruled, title="Adaptive TD: TD target overruled", limit=1, **place)
    left.colorbar(share, ax=bottom, label="share above (+)\nor below (−) the interval")
    limit = float(np.quantile(np.abs(np.stack([e for _, e in errors])), 0.99))
    axes = right.subplots(2, 2)
    for ax, (title, error) in zip(axes.flat, errors, strict=True):
        image = plane(ax, error, title=title, limit=limit, **place)
    right.colorbar(image, ax=axes, label=f"error V(s) − v(s), {unit}", extend="both")
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write PNG and SVG beside each other; the same figure gives the same bytes."""
    figure.savefig(path.with_suffix(".png"), dpi=150)
    with rc_context({"svg.hashsalt": "adaptive-td"}):
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
