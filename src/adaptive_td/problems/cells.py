"""A box cut into equal cells."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64


def cell_centres(
    low: tuple[float, float], high: tuple[float, float], shape: tuple[int, int]
) -> Float64[np.ndarray, "cells 2"]:
    """The centres (x, y) of `shape` = (rows, columns) equal cells, along x first, from the lower left."""
    rows, columns = shape
    x = low[0] + (np.arange(columns) + 0.5) * (high[0] - low[0]) / columns
    y = low[1] + (np.arange(rows) + 0.5) * (high[1] - low[1]) / rows
    return np.stack([np.tile(x, rows), np.repeat(y, columns)], axis=1)
