"""Logs that people already hold, in and out: one reader per format, all of which give `Episodes`."""

from __future__ import annotations

import os
from pathlib import Path

from adaptive_td.episodes import Episodes, NonFinite
from adaptive_td.errors import DataError, UsageError, unknown_name
from adaptive_td.files import whole_file

from . import minari_data, npz, tables
from .columns import Columns
from .log import Ends, Log
from .npz import UNPICKLING

__all__ = ["load", "read", "save"]

MINARI = "minari:"
READABLE = (".npz", ".parquet", ".csv")
PICKLED = (".pkl", ".pickle", ".pt", ".pth", ".joblib")
_WRITERS = {".npz": npz.write, ".parquet": tables.write}


def load(
    source: str | os.PathLike[str],
    *,
    columns: Columns | None = None,
    ends: Ends | None = None,
    time_unit: float = 1.0,
    nonfinite: NonFinite = "refuse",
    max_bytes: int = 2**30,
) -> Episodes:
    """Episodes from a file, a Minari folder, or `minari:<dataset id>`.

    `columns` names the columns of a table (see `columns.resolve_columns`) and `time_unit` the time over
    which the discount applies once: in seconds where its time column holds dates, else in that column's own
    unit. `ends` settles how episodes end where the log leaves that open. Episodes with NaN or infinity are
    refused, or left out with `nonfinite="drop-episode"`. A file that would unpack to more than `max_bytes`
    and a hundred times its own size is refused.
    """
    log = read(source, columns=columns, ends=ends, time_unit=time_unit, max_bytes=max_bytes)
    return log.episodes(nonfinite=nonfinite)


def read(
    source: str | os.PathLike[str],
    *,
    columns: Columns | None = None,
    ends: Ends | None = None,
    time_unit: float = 1.0,
    max_bytes: int = 2**30,
) -> Log:
    """The rows of a log, not yet judged; the options are those of `load`."""
    name, path = os.fspath(source), Path(source)
    tabular = path.suffix in (".parquet", ".csv")
    if not tabular and (columns is not None or time_unit != 1.0):
        raise UsageError(f"columns and time_unit are for tables (.parquet, .csv), not for {name}")
    if name.startswith(MINARI) or path.is_dir():
        if ends is not None:
            raise UsageError("ends: a Minari data set states how each episode ended")
        return minari_data.read(
            name.removeprefix(MINARI) if name.startswith(MINARI) else path, max_bytes=max_bytes
        )
    if path.suffix not in READABLE:
        raise _unreadable(path)
    if not path.exists():
        raise _missing(path)
    if not path.stat().st_size:
        raise DataError(f"{path.name}: empty, 0 bytes")
    if tabular:
        return tables.read(path, columns=columns, ends=ends, time_unit=time_unit, max_bytes=max_bytes)
    return npz.read(path, ends=ends, max_bytes=max_bytes)


def save(episodes: Episodes, path: str | os.PathLike[str]) -> None:
    """Write episodes to an .npz or .parquet file, from which `load` gives them back exactly.

    An existing file is never overwritten, and a file is there whole or not at all.
    """
    path = Path(path)
    if path.suffix not in _WRITERS:
        raise unknown_name("file ending", path.suffix, _WRITERS)
    if path.exists():
        raise UsageError(f"{path}: exists already, and is not overwritten")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent}: no such folder")
    with whole_file(path) as stream:
        _WRITERS[path.suffix](stream, episodes)


def _unreadable(path: Path) -> DataError | UsageError:
    if path.suffix in PICKLED:
        return DataError(f"{path.name}: {path.suffix} files {UNPICKLING}")
    return unknown_name("file ending", path.suffix, (*READABLE, MINARI))


def _missing(path: Path) -> UsageError:
    folder = path.parent
    if not folder.is_dir():
        return UsageError(f"{path}: no such file, and no folder {folder}")
    near = [p.name for p in folder.iterdir() if p.suffix in READABLE]
    return unknown_name(f"file in {folder}", path.name, near)
