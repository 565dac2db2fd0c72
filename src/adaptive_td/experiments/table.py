"""The final table of a run: one row per cell, sorted, the same bytes however the run went."""

from __future__ import annotations

import io
from dataclasses import fields
from pathlib import Path

import polars as pl

from adaptive_td.files import write_whole

from .cells import Cell
from .store import Store

NUMBERS = ("msve", "coverage", "width", "overruled", "loss")
"""Columns that every table has; numbers that only some cells have come after them."""
_TYPES = {"str": pl.String, "int": pl.Int64, "float": pl.Float64}


def table(store: Store) -> pl.DataFrame:
    """Settings and results of all cells. Times are not among them: they differ from run to run."""
    outcomes = store.outcomes()
    names = sorted({name for one in outcomes.values() for name in one.numbers} - set(NUMBERS))
    settings = {field.name: _TYPES[str(field.type).split(" ")[0]] for field in fields(Cell)}
    schema = {
        "id": pl.String,
        **settings,
        "status": pl.String,
        "diverged_step": pl.Int64,
        **dict.fromkeys((*NUMBERS, *names), pl.Float64),
        "log": pl.String,
        "truth": pl.String,
        "artefact": pl.String,
    }
    rows = []
    for id_, cell in store.cells().items():
        row = {"id": id_, "status": "pending", **cell.config()}
        if id_ in outcomes:
            one = outcomes[id_]
            row |= {"status": one.status, "diverged_step": one.step, "log": one.log, "truth": one.truth}
            row |= {**one.numbers, "artefact": one.artefact and one.artefact.file}
        rows.append(row)
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return frame.sort(*settings, nulls_last=True)


def number_columns(frame: pl.DataFrame) -> list[str]:
    """The columns of a table that are measured numbers."""
    names = frame.columns
    return names[names.index("diverged_step") + 1 : names.index("log")]


def export(store: Store, path: Path) -> None:
    """Write the table as Parquet."""
    buffer = io.BytesIO()
    table(store).write_parquet(buffer, compression="zstd", statistics=False)
    write_whole(path, buffer.getvalue())
