"""How the SQLite file of a run is opened: damage found first, older files migrated, newer ones refused."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from adaptive_td.errors import DataError
from adaptive_td.files import no_room, sync_folder

SCHEMA = 1
MIGRATIONS: dict[int, str] = {}
"""For each older schema, the SQL that leads to the next."""

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, seal TEXT NOT NULL) STRICT;
CREATE TABLE cells (
    id TEXT PRIMARY KEY,
    place INTEGER NOT NULL,
    config TEXT NOT NULL,
    seal TEXT NOT NULL
) STRICT;
CREATE TABLE outcomes (
    cell TEXT PRIMARY KEY REFERENCES cells (id),
    status TEXT NOT NULL CHECK (status IN ('done', 'diverged', 'failed')),
    step INTEGER NOT NULL,  -- at which it diverged, or -1
    error TEXT NOT NULL,
    log TEXT NOT NULL,
    truth TEXT NOT NULL,
    seconds REAL NOT NULL,
    finished REAL NOT NULL,
    seal TEXT NOT NULL
) STRICT;
CREATE TABLE numbers (
    cell TEXT NOT NULL REFERENCES outcomes (cell) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value REAL NOT NULL,
    PRIMARY KEY (cell, name)
) STRICT;
CREATE TABLE artefacts (
    cell TEXT PRIMARY KEY REFERENCES outcomes (cell) ON DELETE CASCADE,
    file TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    digest TEXT NOT NULL
) STRICT;
CREATE TABLE events (at REAL NOT NULL, kind TEXT NOT NULL, message TEXT NOT NULL) STRICT;
"""


@contextmanager
def fresh(path: Path) -> Iterator[sqlite3.Connection]:
    """A new file with empty tables, to be filled in a `with` block, after which it appears whole."""
    new = path.with_name(path.name + ".new")
    for leftover in path.parent.glob(new.name + "*"):
        leftover.unlink()
    with explained(path, 100_000):
        new.touch()
        with closing(connect(new)) as sql:
            sql.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;")
            yield sql
        new.rename(path)
        sync_folder(path.parent)


def bring_up_to_date(path: Path) -> None:
    """Migrate an older file, after a backup."""
    with explained(path):
        if _usable_version(path) < SCHEMA:
            _migrate(path)


def open_to_write(path: Path) -> sqlite3.Connection:
    """For the one process that writes."""
    with explained(path):
        sql = connect(path)
        sql.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;")
        return sql


def open_to_read(path: Path) -> sqlite3.Connection:
    """For any other process, also while one writes."""
    with explained(path):
        version = _usable_version(path)
        if version < SCHEMA:
            raise DataError(f"{path} has the older schema {version}; resume the run once to migrate it")
        return connect(path, read_only=True)


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection; a file that nobody writes may lie in a folder where nothing can be written."""
    uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
    sql = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=30)
    if read_only:
        try:
            sql.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            sql.close()
            if path.with_name(path.name + "-wal").exists():
                raise
            sql = sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None)
    return sql


def _usable_version(path: Path) -> int:
    """The schema of a file that is whole as far as SQLite can tell, and not newer than this code."""
    if not path.is_file():
        raise DataError(f"{path.parent} is not a run: {path.name} is missing")
    with closing(connect(path, read_only=True)) as sql:
        found = [row[0] for row in sql.execute("PRAGMA quick_check")]
        version = int(sql.execute("PRAGMA user_version").fetchone()[0])
        page = int(sql.execute("PRAGMA page_size").fetchone()[0])
    if found != ["ok"]:
        raise damaged(path, found[0])
    if version < 1 or path.stat().st_size % page:
        raise damaged(path, "it is cut short")
    if version > SCHEMA:
        raise DataError(
            f"{path} has schema {version}, and this version of adaptive-td knows {SCHEMA}: "
            "a newer one wrote it; use that"
        )
    return version


def _migrate(path: Path) -> None:
    """Bring an older file up to date, after a copy was put beside it."""
    with closing(connect(path)) as sql:
        version = int(sql.execute("PRAGMA user_version").fetchone()[0])
        if any(step not in MIGRATIONS for step in range(version, SCHEMA)):
            raise damaged(path, f"schema {version} was never written")
        backup = path.with_name(f"{path.stem}-schema-{version}{path.suffix}")
        with closing(sqlite3.connect(backup)) as copy:
            sql.backup(copy)
        for step in range(version, SCHEMA):
            sql.executescript(f"BEGIN; {MIGRATIONS[step]}; PRAGMA user_version = {step + 1}; COMMIT;")
        message = f"from schema {version} to {SCHEMA}; the older store is {backup.name}"
        sql.execute("INSERT INTO events VALUES (?, 'migrated', ?)", (time.time(), message))


@contextmanager
def explained(path: Path, needed: int = 0) -> Iterator[None]:
    """SQLite's errors in words: a full disk, a folder that cannot be written, or damage."""
    try:
        yield
    except UnicodeDecodeError as error:  # in a message of SQLite about a broken schema
        raise damaged(path, str(error)) from None
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", "")
        if code in ("SQLITE_FULL", "SQLITE_IOERR_WRITE"):
            raise no_room(path, needed) from None
        if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            raise DataError(f"{path} cannot be opened: {error}") from None
        raise damaged(path, str(error)) from None


def damaged(path: Path, why: str) -> DataError:
    """The error for a file that cannot be trusted."""
    return DataError(
        f"{path} is damaged ({why}) and is left as it is. Put back a backup; or recover what can be read "
        f"with `sqlite3 {path} .recover`; or move the run aside and start a new one"
    )
