"""Figures (Matplotlib), in colours that people with colour-blindness can tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

DIVERGING = "PuOr_r"
SEQUENTIAL = "viridis"

Plane = Float[np.ndarray, "rows columns"]


def plane(
    axes: Axes,
    values: Plane,
    *,
    extent: tuple[float, float, float, float],
    title: str,
    walls: Sequence[tuple[float, ...]] = (),
    limit: float | None = None,
) -> Any:
    """One heat map of the plane with its walls; a `limit` makes the scale diverge around zero."""
    scale = {"cmap": SEQUENTIAL} if limit is None else {"cmap": DIVERGING, "vmin": -limit, "vmax": limit}
    image = axes.imshow(values, origin="lower", extent=extent, interpolation="nearest", **scale)  # type: ignore[arg-type]
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
    extent: tuple[float, float, float, float],
    walls: Sequence[tuple[float, ...]],
    unit: str,
) -> Figure:
    """True values, the error of each method on one scale, and where TD was overruled."""
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    axes = figure.subplots(2, 3).ravel()
    value = plane(axes[0], truth, extent=extent, title="true value", walls=walls)
    figure.colorbar(value, ax=axes[0], label=unit, shrink=0.8)
    limit = float(np.quantile(np.abs(np.stack([e for _, e in errors])), 0.99))
    image = None
    for ax, (title, error) in zip(axes[1:5], errors, strict=True):
        image = plane(ax, error, extent=extent, title=title, walls=walls, limit=limit)
    figure.colorbar(image, ax=list(axes[1:5]), label=f"error V(s) − v(s), {unit}", shrink=0.8)
    share = plane(
        axes[5], overruled, extent=extent, title="Adaptive TD: where TD was overruled", walls=walls, limit=1
    )
    figure.colorbar(share, ax=axes[5], label="above (+) or below (−)\nthe interval, share", shrink=0.8)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write PNG and SVG beside each other."""
    figure.savefig(path.with_suffix(".png"), dpi=150)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
