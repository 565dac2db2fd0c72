"""The rows of a data frame, put in order and laid end to end.

Nothing here loops over rows or episodes: a log of ten million rows takes seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int, Shaped

from adaptive_td.episodes import as_flags
from adaptive_td.errors import DataError, UsageError

from .columns import TableColumns, is_numeric
from .log import ENDS_NOT_STATED, Ends, Log


def log_of_frame(frame: pl.DataFrame, named: TableColumns, *, ends: Ends | None, time_unit: float) -> Log:
    """The rows of a frame as a log; `tables` says what the columns mean."""
    table = _sort(frame, named)
    unpaid = table.sorted(frame[named.reward].is_null())
    table.refuse(named.reward, unpaid & ~table.marked(table.ends), "null before the last row")
    has_final, steps = unpaid[table.ends], np.flatnonzero(~unpaid)
    log = Log(
        states=_numbers(table, named.features),
        rewards=_numbers(table, (named.reward,), nullable=True)[steps, 0],
        lengths=table.counts - has_final,
        ended=_ended(table, has_final, ends),
        has_final=has_final,
        durations=_durations(table, steps, time_unit),
        keys={name: _key(frame[column].gather(table.order[steps])) for name, column in named.keys.items()},
        notes=named.notes,
    )
    if not named.next_features:
        return log
    return log.with_successors(_numbers(table, named.next_features, nullable=True)[steps])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Table:
    """A table and the order of its rows; episode i takes `counts[i]` of them, from `starts[i]` on."""

    frame: pl.DataFrame
    named: TableColumns
    order: Int[np.ndarray, " rows"]
    starts: Int[np.ndarray, " episodes"]
    counts: Int[np.ndarray, " episodes"]

    @property
    def ends(self) -> Int[np.ndarray, " episodes"]:
        """The last row of each episode."""
        return self.starts + self.counts - 1

    def sorted(self, series: pl.Series) -> Shaped[np.ndarray, " rows"]:
        """A column in the order of episodes and steps."""
        return series.to_numpy()[self.order]

    def refuse(self, name: str, bad: Bool[np.ndarray, " rows"], what: str) -> None:
        """Refuse the first bad row of the sorted ones, by its episode and its place in the file."""
        if bad.any():
            row = int(self.order[np.argmax(bad)])
            raise DataError(f"{name}: {what} in episode {self.frame[self.named.episode][row]!r}, row {row}")

    def marked(self, rows: Int[np.ndarray, " some"]) -> Bool[np.ndarray, " rows"]:
        """True in the given rows."""
        mask = np.zeros(len(self.order), bool)
        mask[rows] = True
        return mask


def _sort(frame: pl.DataFrame, named: TableColumns) -> _Table:
    """Put rows in the order of episode and step or time; refuse two rows in the same place."""
    if not len(frame):
        raise DataError("table: it has no rows")
    unordered = np.arange(len(frame))
    table = _Table(frame=frame, named=named, order=unordered, starts=unordered[:1], counts=unordered[:1])
    _refuse_nulls(table, named.episode)
    clock = named.step or named.time
    ids = _codes(frame[named.episode])
    times = _clock(table, clock).to_physical().to_numpy() if clock else unordered
    order = np.lexsort((times, ids))
    ids, times = ids[order], times[order]
    starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    table = replace(table, order=order, starts=starts, counts=np.diff(starts, append=len(frame)))
    if clock:
        same = np.append(False, times[1:] == times[:-1]) & ~table.marked(starts)
        table.refuse(clock, same, "a value that another row has too")
    return table


def _codes(ids: pl.Series) -> Shaped[np.ndarray, " rows"]:
    """Episode ids as numbers of the same order."""
    if isinstance(ids.dtype, pl.String | pl.Categorical | pl.Enum):
        text = ids.cast(pl.String)
        return text.cast(pl.Enum(text.unique().sort())).to_physical().to_numpy()
    if ids.dtype.is_numeric() or ids.dtype.is_temporal() or isinstance(ids.dtype, pl.Boolean):
        return ids.to_physical().to_numpy()
    raise DataError(f"{ids.name}: holds {ids.dtype}, which cannot name an episode")


def _numbers(
    table: _Table, names: tuple[str, ...], *, nullable: bool = False
) -> Shaped[np.ndarray, "rows width"]:
    """Columns side by side, sorted; a list takes several. Floats become float32, integers stay."""
    parts = []
    for name in names:
        series = table.frame[name]
        if not is_numeric(series.dtype):
            raise DataError(f"{name}: holds {series.dtype}, not numbers; encode it, or leave the column out")
        if not nullable or isinstance(series.dtype, pl.List | pl.Array):
            _refuse_nulls(table, name)
        parts.append(_as_matrix(table, series))
    widths = np.cumsum([0] + [part.shape[1] for part in parts])
    dtype = np.result_type(*parts)
    out = np.empty((len(table.order), widths[-1]), np.float32 if dtype.kind == "f" else dtype)
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as such
        for part, left, right in zip(parts, widths[:-1], widths[1:], strict=True):
            out[:, left:right] = part[table.order]
    return out


def _as_matrix(table: _Table, series: pl.Series) -> Shaped[np.ndarray, "rows width"]:
    if isinstance(series.dtype, pl.List):
        width = series.list.len().to_numpy()
        table.refuse(series.name, (width != width[0])[table.order], f"not {width[0]} numbers as in row 0")
        series = series.list.to_array(int(width[0]))
    if isinstance(series.dtype, pl.Array):
        if series.explode().null_count():
            raise DataError(f"{series.name}: null inside a list")
        return series.to_numpy()
    if series.null_count() or isinstance(series.dtype, pl.Decimal):
        series = series.cast(pl.Float64)
    return series.to_numpy()[:, None]


def _ended(
    table: _Table, has_final: Bool[np.ndarray, " episodes"], ends: Ends | None
) -> Bool[np.ndarray, " episodes"]:
    """Whether each episode terminated, from whichever columns say so."""
    named = table.named
    stated = named.terminated or named.truncated
    if ends is not None and stated:
        raise UsageError(f"ends: column {stated!r} already says how episodes end")
    flags = {
        name: _end_flag(table, has_final, name) for name in (stated, named.truncated, named.done) if name
    }
    if named.terminated:
        return flags[named.terminated]
    done = flags[named.done] if named.done else np.ones(len(has_final), bool)
    if named.truncated:
        return done & ~flags[named.truncated]
    if ends is None:
        raise DataError(f"{named.done or 'table'}: {ENDS_NOT_STATED}")
    return done & (ends == "terminated")


def _end_flag(
    table: _Table, has_final: Bool[np.ndarray, " episodes"], name: str
) -> Bool[np.ndarray, " episodes"]:
    """Whether a flag is set at the end of each episode, in its last transition or its final row."""
    series = table.frame[name]
    if not is_numeric(series.dtype):
        raise DataError(f"{name}: holds {series.dtype}, not True or False")
    missing = table.sorted(series.is_null()) & ~table.marked(table.ends[has_final])
    table.refuse(name, missing, "null")
    flag = as_flags(name, table.sorted(series.fill_null(strategy="zero")))
    last_step = np.maximum(table.ends - has_final, table.starts)
    early = flag & ~table.marked(table.ends) & ~table.marked(last_step)
    table.refuse(name, early, "set before the last row")
    return flag[table.ends] | flag[last_step]


def _durations(
    table: _Table, steps: Int[np.ndarray, " steps"], time_unit: float
) -> Float[np.ndarray, " steps"] | None:
    """The time from the row of each transition to the next, in `time_unit`."""
    named = table.named
    if named.duration is not None:
        return np.asarray(_numbers(table, (named.duration,), nullable=True)[steps, 0], np.float32)
    if named.time is None:
        return None
    clock = _clock(table, named.time)
    per_unit = time_unit if clock.dtype.is_numeric() else 1e6 * time_unit
    passed = np.append(np.diff(table.sorted(clock.to_physical())) / per_unit, np.nan)
    passed[table.ends] = np.nan
    table.refuse(named.time, passed < 0, "later than the next row")
    known = passed[~np.isnan(passed)]
    typical = np.median(known) if len(known) else 1.0
    return np.asarray(np.nan_to_num(passed[steps], nan=typical), np.float32)


def _clock(table: _Table, name: str) -> pl.Series:
    """A step or time column as what can be ordered and subtracted: numbers, or microseconds."""
    _refuse_nulls(table, name)
    series = table.frame[name]
    if isinstance(series.dtype, pl.String):
        try:
            series = series.str.to_datetime()
        except pl.exceptions.PolarsError:
            raise DataError(f"{name}: holds text that is neither a number nor a date") from None
    if isinstance(series.dtype, pl.Date | pl.Datetime):
        return series.cast(pl.Datetime("us"))
    if isinstance(series.dtype, pl.Duration):
        return series.cast(pl.Duration("us"))
    if not series.dtype.is_numeric():
        raise DataError(f"{name}: holds {series.dtype}, neither numbers nor dates")
    if series.dtype.is_float() and not series.is_finite().all():
        raise DataError(f"{name}: non-finite value in row {series.is_finite().arg_min()}")
    return series.cast(pl.Int64) if series.dtype.is_unsigned_integer() else series


def _key(series: pl.Series) -> Shaped[np.ndarray, " steps"]:
    text = isinstance(series.dtype, pl.Categorical | pl.Enum | pl.String)
    return series.to_numpy().astype(str) if text else series.to_numpy()


def _refuse_nulls(table: _Table, name: str) -> None:
    if table.frame[name].null_count():
        table.refuse(name, table.sorted(table.frame[name].is_null()), "null")
