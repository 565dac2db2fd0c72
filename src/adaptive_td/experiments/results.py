"""What a run found: read from its folder, finished or not, or from the files that were published of it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float, Float64

from adaptive_td import problems
from adaptive_td.errors import DataError, UsageError
from adaptive_td.files import write_whole
from adaptive_td.problems import Known, Problem

from . import artefacts
from .folder import RunFolder
from .measure import Outcome
from .store import Store, stored
from .table import number_columns, table

ARRAYS = "arrays.parquet"
SMALL_GRID = 100
"""Arrays over so few states are published for every cell."""

Arrays = dict[str, Float[np.ndarray, "..."]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Results:
    """The table of a run, the arrays behind it, and what was run where."""

    config: dict[str, Any]
    facts: dict[str, Any]
    problems: dict[str, Problem]
    table: pl.DataFrame
    """One row per cell: its settings, status and numbers."""
    arrays: Callable[[str], Arrays]
    """By cell, what `judging` describes: over a grid or along test episodes, and curves of training; empty
    where not kept."""
    events: tuple[str, ...] = ()
    """Warnings of the run."""

    @property
    def experiment(self) -> str:
        """Its name."""
        return str(self.config["experiment"])

    @property
    def settings(self) -> dict[str, Any]:
        """Every number it was run with."""
        return dict(self.config["settings"])

    def cells(self, **where: Any) -> pl.DataFrame:
        """The cells that are done and have these settings; snapshots only where `after` is asked for."""
        chosen = self.table.filter(pl.col("status") == "done")
        for name, value in {"after": None, **where}.items():
            column = pl.col(name)
            chosen = chosen.filter(column.is_null() if value is None else column == value)
        return chosen

    def scores(self, *, number: str = "msve", **where: Any) -> dict[str, dict[int, float]]:
        """A number by method and seed; what diverged or is not done is not there."""
        found: dict[str, dict[int, float]] = {method: {} for method in self.settings["methods"]}
        for row in self.cells(**where).iter_rows(named=True):
            found[row["method"]][row["seed"]] = row[number]
        return {method: by_seed for method, by_seed in found.items() if by_seed}

    def paired(
        self, methods: Sequence[str], cases: Sequence[Mapping[str, Any]]
    ) -> Float64[np.ndarray, "seeds cases methods"]:
        """MSVE of the seeds that have all of them; a case is a problem, a model and a number of episodes."""
        scores = [self.scores(**case) for case in cases]
        found = [by_method.get(method, {}) for by_method in scores for method in methods]
        seeds = sorted(set.intersection(*(set(by_seed) for by_seed in found))) if found else []
        rows = [[by_seed[seed] for by_seed in found] for seed in seeds]
        return np.array(rows, float).reshape(len(seeds), len(cases), len(methods))

    def arrays_of(self, **where: Any) -> dict[int, Arrays]:
        """The arrays of the cells with these settings, by seed; without those that were not kept."""
        rows = self.cells(**where).sort("seed").iter_rows(named=True)
        found = {row["seed"]: self.arrays(row["id"]) for row in rows}
        return {seed: arrays for seed, arrays in found.items() if arrays}


def read(folder: Path) -> Results:
    """Of a run, also one that is under way, or of what was published."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such run")
    where = RunFolder(folder)
    if where.store.exists():
        return _of_run(where)
    if where.results.exists():
        return _published(where)
    raise DataError(f"{folder} is not a run: it has neither {where.store.name} nor {where.results.name}")


def _of_run(where: RunFolder) -> Results:
    with Store.read(where.store) as store:
        frame, config = table(store), store.config
        files = {id_: one.artefact for id_, one in store.outcomes().items()}
        kinds = ("warning", "pending again", "worker lost")
        events = tuple(message for kind in kinds for _, message in store.events(kind))

    def arrays(id_: str) -> Arrays:
        file = files.get(id_)
        return artefacts.load(where.artefacts, file) if file else {}

    return _results(where, config, frame, arrays, events)


def _published(where: RunFolder) -> Results:
    frame = _read_parquet(where.results, {"id", "status", "msve", "diverged_step", "log"})
    kept: dict[str, Arrays] = {}
    arrays = _read_parquet(where.path / ARRAYS, {"id", "name", "values"})
    for id_, name, values in arrays.select("id", "name", "values").iter_rows():
        kept.setdefault(id_, {})[name] = np.array(values, np.float32)
    return _results(where, where.read_json("config.json"), frame, lambda id_: kept.get(id_, {}), ())


def _results(
    where: RunFolder,
    config: dict[str, Any],
    frame: pl.DataFrame,
    arrays: Callable[[str], Arrays],
    events: tuple[str, ...],
) -> Results:
    described = where.read_json("problems.json")
    return Results(
        config=config,
        facts=where.read_json("facts.json"),
        problems={name: problems.from_description(name, one) for name, one in described.items()},
        table=frame,
        arrays=arrays,
        events=events,
    )


def publish(run: Path, folder: Path, *, partial: bool = False) -> Results:
    """Write the table of a run and the arrays that figures need, small enough for a repository.

    An unfinished run only with `partial`; its table says which cells are pending. What was published before
    is replaced only by a run that has all of its cells with the same results.
    """
    results, to = read(run), RunFolder(folder)
    pending = results.table.filter(~pl.col("status").is_in(["done", "diverged"]))
    if len(pending) and not partial:
        raise UsageError(f"{run}: {len(pending)} cells have no result; finish the run, or say --partial")
    if to.store.exists():
        raise UsageError(f"{folder} is a run itself; publish to another folder")
    if to.results.exists():
        before = (
            _read_parquet(to.results, {"id", "status", "msve"})
            .filter(pl.col("status") != "pending")
            .select("id", "msve")
        )
        both = before.join(results.table.select("id", now="msve"), on="id", how="left")
        lost = both.filter(~pl.col("msve").eq_missing(pl.col("now")))
        if len(lost):
            raise UsageError(f"{folder} has {len(lost)} results that {run} does not have; it is left alone")
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        (row["id"], name, array.tolist())
        for row in _kept(results).iter_rows(named=True)
        for name, array in sorted(results.arrays(row["id"]).items())
        if _worth_keeping(results, row, name)
    ]
    schema: Any = {"id": pl.String, "name": pl.String, "values": pl.List(pl.Float32)}
    _write_parquet(pl.DataFrame(rows, schema=schema, orient="row"), to.path / ARRAYS)
    _write_parquet(results.table, to.results)
    for name in ("config.json", "facts.json", "problems.json"):
        to.write_json(name, json.loads((run / name).read_text()))
    return results


def adopt(store: Store, where: RunFolder, known: Path) -> int:
    """Store what was found before for cells that are pending; returns for how many.

    A cell is known by its id, which names its settings, its data and the version of the numerics. Of arrays
    there is what was published.
    """
    results, pending = read(known), set(store.pending())
    numbers = number_columns(results.table)
    found = []
    for row in results.table.filter(pl.col("status").is_in(["done", "diverged"])).iter_rows(named=True):
        if row["id"] not in pending:
            continue
        outcome = Outcome(
            cell=row["id"],
            status=row["status"],
            numbers={name: row[name] for name in numbers if row[name] is not None},
            step=row["diverged_step"],
            log=row["log"],
            truth=row["truth"],
        )
        arrays = results.arrays(row["id"])
        found.append(stored(outcome, artefacts.save(where.artefacts, arrays) if arrays else None))
    store.add(found)
    if found:
        store.record("adopted", f"{len(found)} results from {known}")
    return len(found)


def _kept(results: Results) -> pl.DataFrame:
    """Cells whose arrays are published: the first seed of all; of each seed those that claims look into."""
    settings = results.settings
    small = [
        name
        for name, problem in results.problems.items()
        if not isinstance(problem, Known) or len(problem.grid()) <= SMALL_GRID
    ]
    looked_into = (pl.col("method") == "adaptive-td") & (pl.col("episodes") == settings["snapshot_episodes"])
    looked_into |= pl.col("method").is_in(["mc", "td"]) & (pl.col("episodes") == max(settings["sizes"]))
    looked_into &= pl.col("model") == settings["models"][0]
    return results.table.filter((pl.col("seed") == 0) | pl.col("problem").is_in(small) | looked_into)


def _worth_keeping(results: Results, row: Mapping[str, Any], name: str) -> bool:
    """Of a test episode, what figures show: that of the first seed at the largest size."""
    shown = row["seed"] == 0 and row["episodes"] == max(results.settings["sizes"])
    return shown or not name.startswith(("episode_", "frame"))


def _read_parquet(path: Path, columns: Set[str]) -> pl.DataFrame:
    """A table that has these columns at least."""
    try:
        frame = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    if missing := columns - set(frame.columns):
        raise DataError(f"{path} has no column {', '.join(sorted(missing))}")
    return frame


def _write_parquet(frame: pl.DataFrame, path: Path) -> None:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", compression_level=19)
    write_whole(path, buffer.getvalue())
