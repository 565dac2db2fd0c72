"""Rows as the kernel reads them: all columns of a transition side by side, two transitions to a cache line.

A batch is drawn at random, so every column that lies by itself costs a miss of the cache per transition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from jaxtyping import Shaped

from adaptive_td.episodes import aligned_empty
from adaptive_td.errors import UsageError
from adaptive_td.rows import Data, Rows

ROW = np.dtype(
    [
        *((name, np.int32) for name in ("state", "next_state")),
        *((name, np.float32) for name in ("reward", "discount", "lower", "upper", "fallback")),
        ("last", np.int32),
    ]
)
"""The same structure as `Row` in problem.h."""

_NONE = (-np.inf, np.inf)


@dataclass(frozen=True, eq=False)
class Packed:
    """Packed rows, and the columns they were packed from."""

    rows: Shaped[np.ndarray, " padded"]
    columns: tuple[Any, ...]


_shared: WeakValueDictionary[tuple[int, ...], Packed] = WeakValueDictionary()


def pack(data: Data, rows: Rows) -> Packed:
    """Rows for the kernel; networks that are fitted to the same columns share them."""
    columns = _columns(data, rows)
    name = tuple(map(id, columns))  # of arrays that live as long as what was packed from them
    found = _shared.get(name)
    if found is None:
        found = Packed(aligned_empty((len(data.index),), ROW), columns)
        repack(found, data, rows)
        _shared[name] = found  # only now: other threads may take it at once
    return found


def repack(packed: Packed, data: Data, rows: Rows) -> None:
    """Write these rows in place of others."""
    for name, column in zip(ROW.names or (), _columns(data, rows), strict=True):
        packed.rows[name] = column
    size = len(data.states)
    for name in ("state", "next_state"):  # the kernel trusts its indices
        index = packed.rows[name]
        if index.min() < 0 or index.max() >= size:
            raise UsageError(f"rows must refer to states 0, ..., {size - 1}")
    if not packed.rows["last"][-1]:  # nor does it look for the end of the log
        raise UsageError("the last row of a log must be the last of an episode")


def _columns(data: Data, rows: Rows) -> tuple[Any, ...]:
    """What becomes the fields of `ROW`, in their order."""
    given = (data.index, rows.next_index, rows.rewards, rows.discounts)
    return (*given, *(rows.bounds or _NONE), rows.fallback, data.last)
