"""Results of a run in one SQLite file, written by one process and read by any.

A row is written once: the first outcome of a cell wins. Every row carries a seal, the digest of all it holds,
which is checked when the file is opened, so a flipped bit is found even where SQLite cannot see it.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from adaptive_td.errors import DataError

from . import database
from .artefacts import Artefact
from .cells import Cell, canonical, sha256
from .measure import Outcome, Status


class Stored(NamedTuple):
    """An outcome as it is stored; its arrays are in the artefact."""

    cell: str
    status: Status
    step: int | None
    error: str
    log: str
    truth: str
    seconds: float
    finished: float
    numbers: Mapping[str, float]
    artefact: Artefact | None

    def content(self) -> str:
        """What must be the same whenever and wherever the cell is measured."""
        numbers = {name: float(value).hex() for name, value in self.numbers.items()}
        file = self.artefact and self.artefact.digest
        return canonical([self.cell, self.status, self.step, self.error, self.log, self.truth, numbers, file])

    def seal(self) -> str:
        """The digest of everything."""
        return sha256(canonical([self.content(), self.artefact, self.seconds, self.finished]))


def stored(outcome: Outcome, artefact: Artefact | None) -> Stored:
    """An outcome that has just been made, ready to be stored; NaN is refused."""
    for name, value in outcome.numbers.items():
        if value != value:
            raise DataError(f"cell {outcome.cell}: {name} is not a number")
    return Stored(
        outcome.cell,
        outcome.status,
        outcome.step,
        outcome.error,
        outcome.log,
        outcome.truth,
        outcome.seconds,
        time.time(),
        outcome.numbers,
        artefact,
    )


class Store:
    """The file of a run: cells, their outcomes, and what happened. Used in a `with` block."""

    def __init__(self, path: Path, connection: sqlite3.Connection):
        """Take over a connection."""
        self.path = path
        self._sql = connection

    @staticmethod
    def create(path: Path, config: Mapping[str, Any], cells: Mapping[str, Cell]) -> Store:
        """A new store for these cells, which appears whole or not at all."""
        with database.fresh(path) as sql:
            Store(path, sql).set_plan(config, cells)
        return Store.write(path)

    @staticmethod
    def write(path: Path) -> Store:
        """Open for the one process that writes; everything is checked before anything can change."""
        database.bring_up_to_date(path)
        with Store.read(path):
            return Store(path, database.open_to_write(path))

    @staticmethod
    def read(path: Path) -> Store:
        """Open to look only."""
        sql = database.open_to_read(path)
        try:
            with database.explained(path):
                Store(path, sql)._check()
        except BaseException:
            sql.close()
            raise
        return Store(path, sql)

    def __enter__(self) -> Store:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self._sql.close()

    @property
    def config(self) -> dict[str, Any]:
        """The config that the run was started with."""
        return json.loads(self._meta("config"))

    def set_plan(self, config: Mapping[str, Any], cells: Mapping[str, Cell]) -> None:
        """Write down what is to be done; outcomes of cells that are there already stay."""
        with self._transaction(1000 * (len(cells) + 1)) as sql:
            for key, value in (("config", canonical(config)), ("plan", _plan_digest(cells))):
                sql.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", (key, value, sha256(key + value)))
            for place, (id_, cell) in enumerate(cells.items()):
                row = (id_, place, canonical(cell.config()))
                sql.execute(
                    "INSERT INTO cells VALUES (?, ?, ?, ?) "
                    "ON CONFLICT DO UPDATE SET place = excluded.place, seal = excluded.seal",
                    (*row, sha256(canonical(row))),
                )

    def cells(self) -> dict[str, Cell]:
        """All cells by id, in the order of the plan."""
        rows = self._sql.execute("SELECT id, config FROM cells ORDER BY place")
        return {id_: Cell.from_config(json.loads(config)) for id_, config in rows}

    def pending(self) -> list[str]:
        """The cells without an outcome, in the order of the plan."""
        query = "SELECT id FROM cells WHERE id NOT IN (SELECT cell FROM outcomes) ORDER BY place"
        return [id_ for (id_,) in self._sql.execute(query)]

    def outcomes(self) -> dict[str, Stored]:
        """Every outcome by cell, in the order of the plan."""
        with self._snapshot():
            return self._outcomes()

    def _outcomes(self) -> dict[str, Stored]:
        numbers: dict[str, dict[str, float]] = {}
        for cell, name, value in self._sql.execute("SELECT cell, name, value FROM numbers ORDER BY name"):
            numbers.setdefault(cell, {})[name] = value
        files = {row[0]: Artefact(*row[1:]) for row in self._sql.execute("SELECT * FROM artefacts")}
        query = (
            "SELECT cell, status, nullif(step, -1), error, log, truth, seconds, finished "
            "FROM outcomes JOIN cells ON cell = id ORDER BY place"
        )
        return {
            row[0]: Stored._make((*row, numbers.get(row[0], {}), files.get(row[0])))
            for row in self._sql.execute(query)
        }

    def add(self, outcomes: Iterable[Stored]) -> list[str]:
        """Store outcomes, all or none; the first of a cell wins. Returns warnings, which are recorded too."""
        batch = list(outcomes)
        warnings = []
        with self._transaction(sum(2000 + len(one.error) for one in batch)) as sql:
            for one in batch:
                if not self._insert(one) and self.outcomes()[one.cell].content() != one.content():
                    warnings.append(f"cell {one.cell} was measured twice with other results; the first stays")
            for message in warnings:
                sql.execute("INSERT INTO events VALUES (?, 'warning', ?)", (time.time(), message))
        return warnings

    def _insert(self, one: Stored) -> bool:
        step = -1 if one.step is None else one.step
        row = (one.cell, one.status, step, *one[3:8], one.seal())
        insert = "INSERT INTO outcomes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
        if not self._sql.execute(insert, row).rowcount:
            return False
        numbers = [(one.cell, name, float(value)) for name, value in one.numbers.items()]
        self._sql.executemany("INSERT INTO numbers VALUES (?, ?, ?)", numbers)
        if one.artefact is not None:
            self._sql.execute("INSERT INTO artefacts VALUES (?, ?, ?, ?)", (one.cell, *one.artefact))
        return True

    def forget(self, cells: Iterable[str], why: str) -> None:
        """Make cells pending again, and record why."""
        gone = list(cells)
        with self._transaction(1000 * len(gone)) as sql:
            for cell in gone:
                sql.execute("DELETE FROM outcomes WHERE cell = ?", (cell,))
                event = (time.time(), f"cell {cell}: {why}")
                sql.execute("INSERT INTO events VALUES (?, 'pending again', ?)", event)

    def record(self, kind: str, message: str) -> None:
        """Note an event."""
        with self._transaction(len(message)) as sql:
            sql.execute("INSERT INTO events VALUES (?, ?, ?)", (time.time(), kind, message))

    def events(self, kind: str) -> list[tuple[float, str]]:
        """What happened of this kind, in order: when, and a message."""
        query = "SELECT at, message FROM events WHERE kind = ? ORDER BY rowid"
        return self._sql.execute(query, (kind,)).fetchall()

    def _meta(self, key: str) -> str:
        row = self._sql.execute("SELECT value, seal FROM meta WHERE key = ?", (key,)).fetchone()
        if row is None or sha256(key + row[0]) != row[1]:
            raise database.damaged(self.path, f"its {key} is altered")
        return row[0]

    def _check(self) -> None:
        """Hold every row against its seal, all as of one moment: a run may be storing results meanwhile."""
        with self._snapshot():
            self._check_rows()

    def _check_rows(self) -> None:
        try:
            rows = self._sql.execute("SELECT * FROM cells ORDER BY place").fetchall()
            if any(sha256(canonical(row[:3])) != row[3] for row in rows):
                raise database.damaged(self.path, "a cell is altered")
            if _plan_digest(row[0] for row in rows) != self._meta("plan"):
                raise database.damaged(self.path, "cells are missing")
            self._meta("config")
            seals = dict(self._sql.execute("SELECT cell, seal FROM outcomes").fetchall())
            loose = (
                "SELECT cell FROM numbers UNION SELECT cell FROM artefacts EXCEPT SELECT cell FROM outcomes"
            )
            found = {cell: one.seal() for cell, one in self.outcomes().items()}
            if found != seals or self._sql.execute(loose).fetchall():
                raise database.damaged(self.path, "a result is altered")
        except (ValueError, TypeError) as error:
            raise database.damaged(self.path, str(error)) from None

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """What is read within is of one moment, whatever others store."""
        if self._sql.in_transaction:
            yield
            return
        self._sql.execute("BEGIN")
        try:
            yield
        finally:
            self._sql.execute("ROLLBACK")

    @contextmanager
    def _transaction(self, needed: int) -> Iterator[sqlite3.Connection]:
        """All of it is stored, or nothing; a full disk is named as such."""
        with database.explained(self.path, needed):
            self._sql.execute("BEGIN IMMEDIATE")
            try:
                yield self._sql
                self._sql.execute("COMMIT")
            finally:
                if self._sql.in_transaction:
                    self._sql.execute("ROLLBACK")


def _plan_digest(ids: Iterable[str]) -> str:
    return sha256("\n".join(ids))
