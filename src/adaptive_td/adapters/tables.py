"""Episodes in tables, Parquet or CSV: one row per step, and perhaps one for the final observation.

Rows may come in any order: they are sorted by episode and by step or time. A last row whose reward is null
is the final observation of its episode. With a `time` column steps last as long as their times are apart,
measured in `time_unit`: that many seconds where the column holds dates, that many of its own units where it
holds numbers. A last transition without a successor gets the median duration: if its episode terminated
that is never used, and if it was cut off there is nothing better to go by.

`write` makes a table with one row per state: `episode`, `step`, `observation` (or `observation_0`, ...),
`reward` (null in the final row), `terminated`, and where there are such `duration` and `key:<name>`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from adaptive_td.episodes import Episodes
from adaptive_td.errors import DataError, UsageError

from .columns import Columns, TableColumns, resolve_columns
from .frames import log_of_frame
from .log import KEY, Ends, Log, refuse_bomb

SCALAR = "observation"
"""Our column for observations that are one number; those that are vectors have one for each entry."""
_TAG = "adaptive_td"


def read(
    path: Path,
    *,
    columns: Columns | None = None,
    ends: Ends | None = None,
    time_unit: float = 1.0,
    max_bytes: int = 2**30,
) -> Log:
    """The rows of a table, sorted; `columns` says what is what (see `resolve_columns`)."""
    if time_unit <= 0:
        raise UsageError(f"time_unit: must be positive, got {time_unit}")
    frame, named = (
        _read_csv(path, columns) if path.suffix == ".csv" else _read_parquet(path, columns, max_bytes)
    )
    log = log_of_frame(frame, named, ends=ends, time_unit=time_unit)
    return replace(log, states=log.states[:, 0]) if named.scalar else log


def _read_csv(path: Path, columns: Columns | None) -> tuple[pl.DataFrame, TableColumns]:
    with _naming(path):
        lazy = pl.scan_csv(path, infer_schema_length=None)
        named = resolve_columns(lazy.collect_schema(), columns)
        return lazy.select(named.used).collect(), named


def _read_parquet(path: Path, columns: Columns | None, max_bytes: int) -> tuple[pl.DataFrame, TableColumns]:
    with _naming(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        names = file.schema_arrow.names
        if len(set(names)) < len(names):
            raise DataError(f"{max(names, key=names.count)}: two columns have this name")
        schema = _frame({field.name: pa.array([], field.type) for field in file.schema_arrow}).schema
        ours = columns is None and _TAG.encode() in (file.metadata.metadata or {})
        named = _our_columns(schema) if ours else resolve_columns(schema, columns)
        unpacked = 8 * file.metadata.num_rows * len(named.used)
        refuse_bomb(path.name, packed=path.stat().st_size, unpacked=unpacked, max_bytes=max_bytes)
        table = file.read(columns=named.used)
        return _frame({name: table[name] for name in named.used}), named


def _frame(columns: dict[str, Any]) -> pl.DataFrame:
    """Arrow columns in Polars, without their metadata, at which it may panic."""
    return pl.DataFrame({name: pl.Series(name, column) for name, column in columns.items()})


def write(stream: IO[bytes], episodes: Episodes) -> None:
    """Write our layout as Parquet; `read` gives back the same episodes."""
    shape = episodes.observation_shape
    if episodes.extras or episodes.info:
        raise UsageError("a table has no place for the extras and info of these episodes; save them as .npz")
    if len(shape) > 1:
        raise UsageError(
            f"observations of shape {shape} do not fit the columns of a table; save them as .npz"
        )
    names = [f"{SCALAR}_{i}" for i in range(shape[0])] if shape else [SCALAR]
    counts = episodes.lengths + 1
    step = np.arange(len(episodes.states)) - np.repeat(np.cumsum(counts) - counts, counts)
    final = step == np.repeat(episodes.lengths, counts)
    row = pl.Series(np.arange(len(step)) - np.cumsum(final)).set(pl.Series(final), None)
    per_step = {"reward": episodes.rewards, "terminated": episodes.terminated}
    if episodes.durations is not None:
        per_step["duration"] = episodes.durations
    frame = pl.DataFrame(
        {"episode": np.repeat(np.arange(len(episodes)), counts), "step": step}
        | dict(zip(names, episodes.states.reshape(len(step), -1).T, strict=True))
        | {name: pl.Series(column).gather(row) for name, column in per_step.items()}
        | {KEY + name: pl.Series(column).gather(row) for name, column in episodes.keys.items()}
    )
    table = frame.to_arrow().replace_schema_metadata({_TAG: "1"})
    pq.write_table(table, stream, write_page_checksum=True)  # unlike Polars, it says when the disk is full


def _our_columns(schema: Mapping[str, object]) -> TableColumns:
    roles = {role: role for role in ("episode", "step", "reward", "terminated", "duration") if role in schema}
    keys = {name.removeprefix(KEY): name for name in schema if name.startswith(KEY)}
    named = resolve_columns(schema, roles | {"features": f"{SCALAR}*"})
    return replace(named, keys=keys, scalar=SCALAR in schema)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Give the errors of an unreadable table one form, with the file and its size."""
    try:
        yield
    except (pl.exceptions.PolarsError, pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{path.name}: cannot be read from its {path.stat().st_size} bytes: {reason}"
        ) from None
