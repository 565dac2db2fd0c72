"""The store of a run: nothing is lost, nothing is silently wrong, nothing is overwritten."""

import os
import resource
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adaptive_td.errors import DataError, NoRoom
from adaptive_td.experiments import Cell, Store, artefacts, database
from adaptive_td.experiments.artefacts import Artefact
from adaptive_td.experiments.measure import Outcome
from adaptive_td.experiments.store import Stored, stored
from adaptive_td.experiments.table import export, table

CELLS = {
    cell.id("data"): cell
    for seed in range(4)
    for cell in [Cell(problem="line", method="td", model="linear", episodes=5, seed=seed, steps=10)]
}
IDS = list(CELLS)
CONFIG = {"experiment": "test", "settings": {"steps": 10}}


def done(cell: str, msve: float = 0.5, artefact: Artefact | None = None) -> Stored:
    return stored(Outcome(cell=cell, status="done", numbers={"msve": msve}, seconds=0.25), artefact)


def filled(folder: Path) -> Path:
    """A store with two outcomes, one of them with an artefact, and two pending cells."""
    path = folder / "store.sqlite"
    artefact = artefacts.save(folder, {"values": np.arange(3, dtype=np.float32)})
    with Store.create(path, CONFIG, CELLS) as store:
        store.add([done(IDS[0], artefact=artefact)])
        store.add([stored(Outcome(cell=IDS[1], status="diverged", step=3), None)])
    return path


def contents(store: Store) -> tuple[object, ...]:
    return store.config, store.cells(), store.outcomes(), store.pending()


def test_what_is_stored_is_read_again(tmp_path: Path) -> None:
    with Store.read(filled(tmp_path)) as store:
        assert store.config == CONFIG
        assert store.cells() == CELLS
        assert store.pending() == IDS[2:]
        first, second = store.outcomes().values()
        assert (first.status, dict(first.numbers), first.step) == ("done", {"msve": 0.5}, None)
        assert (second.status, second.step) == ("diverged", 3)
        assert first.artefact is not None
        assert artefacts.load(tmp_path, first.artefact)["values"].tolist() == [0, 1, 2]


def test_a_result_stored_while_another_process_looks_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two looks of one check a run stores a result; both looks are of the moment before."""
    path, look = filled(tmp_path), Store._outcomes
    with Store.write(path) as writer:

        def look_after_a_result(self: Store) -> dict[str, Stored]:
            if self._sql is not writer._sql:
                writer.add([done(IDS[2])])
            return look(self)

        monkeypatch.setattr(Store, "_outcomes", look_after_a_result)
        with Store.read(path) as reader:
            assert len(reader.outcomes()) == 3


def test_the_file_is_durable_and_strict(tmp_path: Path) -> None:
    with Store.write(filled(tmp_path)) as store:
        assert store._sql.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert store._sql.execute("PRAGMA synchronous").fetchone() == (2,)
        for row in (f"('{IDS[0]}', 'loss', NULL)", f"('{IDS[0]}', 'loss', 'much')"):
            with pytest.raises(sqlite3.IntegrityError):
                store._sql.execute(f"INSERT INTO numbers VALUES {row}")


def test_not_a_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="msve is not a number"):
        done(IDS[0], float("nan"))


def test_an_infinite_width_is_kept(tmp_path: Path) -> None:
    path = filled(tmp_path)
    with Store.write(path) as store:
        store.add([stored(Outcome(cell=IDS[2], status="done", numbers={"width": float("inf")}), None)])
    with Store.read(path) as store:
        assert store.outcomes()[IDS[2]].numbers["width"] == float("inf")


def test_the_first_outcome_wins_and_a_different_one_is_a_recorded_warning(tmp_path: Path) -> None:
    with Store.write(filled(tmp_path)) as store:
        same = store.outcomes()[IDS[0]]._replace(seconds=9.0, finished=1.0)
        assert store.add([same]) == []
        (warning,) = store.add([done(IDS[0], 0.75)])
        assert "measured twice" in warning
        assert [message for _, message in store.events("warning")] == [warning]
        assert store.outcomes()[IDS[0]].numbers == {"msve": 0.5}


def test_outcomes_are_stored_together_or_not_at_all(tmp_path: Path) -> None:
    with Store.write(filled(tmp_path)) as store:
        wrong = done(IDS[3])._replace(status="finished")  # type: ignore[arg-type]
        with pytest.raises(DataError, match="CHECK"):
            store.add([done(IDS[2]), wrong])
        assert store.pending() == IDS[2:]


def test_a_forgotten_cell_is_pending_and_that_is_recorded(tmp_path: Path) -> None:
    with Store.write(filled(tmp_path)) as store:
        store.forget([IDS[0]], "its artefact is missing")
        assert store.pending() == [IDS[0], *IDS[2:]]
        assert "its artefact is missing" in store.events("pending again")[0][1]
        assert store.add([done(IDS[0], 0.75)]) == []


def test_readers_read_while_one_writes_and_cannot_write(tmp_path: Path) -> None:
    path = filled(tmp_path)
    with Store.write(path) as writer:
        writer.add([done(IDS[2])])
        with Store.read(path) as reader:
            assert reader.pending() == IDS[3:]
            with pytest.raises(DataError, match="cannot be opened"):
                reader.record("note", "this is not mine to write")


def test_a_newer_store_is_refused(tmp_path: Path) -> None:
    path = filled(tmp_path)
    with sqlite3.connect(path) as sql:
        sql.execute("PRAGMA user_version = 99")
    sql.close()
    for opened in (Store.read, Store.write):
        with pytest.raises(DataError, match=r"schema 99.*a newer one wrote it"):
            opened(path)


def test_an_older_store_is_migrated_after_a_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the next version of the schema would do it."""
    path = filled(tmp_path)
    with Store.read(path) as store:
        before = contents(store)
    monkeypatch.setattr(database, "SCHEMA", 2)
    monkeypatch.setattr(database, "MIGRATIONS", {1: "CREATE TABLE notes (text TEXT NOT NULL) STRICT"})
    with pytest.raises(DataError, match="resume the run once to migrate it"):
        Store.read(path)
    with Store.write(path) as store:
        assert contents(store) == before
        assert "store-schema-1.sqlite" in store.events("migrated")[0][1]
    monkeypatch.setattr(database, "SCHEMA", 1)
    with Store.read(tmp_path / "store-schema-1.sqlite") as backup:
        assert contents(backup) == before


def test_a_store_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a run"):
        Store.read(tmp_path / "store.sqlite")


def test_a_store_that_was_cut_short_while_it_was_made_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite.new").write_bytes(b"half a store")
    with Store.read(filled(tmp_path)) as store:
        assert store.pending() == IDS[2:]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.99])
def test_a_truncated_store_is_refused_and_left_as_it_is(tmp_path: Path, share: float) -> None:
    path = filled(tmp_path)
    whole = path.read_bytes()
    torn = whole[: int(len(whole) * share)]
    path.write_bytes(torn)
    for opened in (Store.read, Store.write):
        with pytest.raises(DataError, match=r"is damaged .* \.recover"):
            opened(path)
        assert path.read_bytes() == torn


class Pristine:
    """A store, its bytes, and what it says; no dataclass, because Hypothesis would print all of it."""

    def __init__(self, path: Path):
        self.path, self.whole = path, path.read_bytes()
        with Store.read(path) as store:
            self.says = contents(store)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Pristine:
    return Pristine(filled(tmp_path_factory.mktemp("pristine")))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(place=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255))
def test_a_flipped_byte_is_found_or_harmless(pristine: Pristine, place: float, bits: int) -> None:
    """Either the store is refused and not touched, or what it says is what it said."""
    path, whole = pristine.path, pristine.whole
    flipped = bytearray(whole)
    flipped[int(place * len(whole))] ^= bits
    path.write_bytes(flipped)
    for opened in (Store.read, Store.write):
        try:
            with opened(path) as store:
                assert contents(store) == pristine.says
        except DataError:
            assert path.read_bytes() == bytes(flipped)
        path.write_bytes(flipped)
    for left in path.parent.glob("store*-*"):
        left.unlink()
    path.write_bytes(whole)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE numbers SET value = value * 1.0000001",
        "UPDATE outcomes SET status = 'done', step = -1 WHERE status = 'diverged'",
        "UPDATE outcomes SET seconds = seconds + 1",
        "UPDATE artefacts SET digest = 'other'",
        "DELETE FROM numbers",
        "DELETE FROM cells WHERE place = 3",
        "UPDATE cells SET config = replace(config, 'td', 'mc')",
        "UPDATE meta SET value = replace(value, '10', '11')",
    ],
)
def test_a_row_that_was_altered_is_found(tmp_path: Path, change: str) -> None:
    path = filled(tmp_path)
    with sqlite3.connect(path) as sql:
        sql.execute(change)
    sql.close()
    with pytest.raises(DataError, match="is damaged"):
        Store.read(path)


def test_an_artefact_is_named_by_what_it_holds(tmp_path: Path) -> None:
    arrays = {"b": np.ones(2, np.float32), "a": np.zeros(3, np.float32)}
    first = artefacts.save(tmp_path, arrays)
    assert artefacts.save(tmp_path, dict(reversed(arrays.items()))) == first
    assert [path.name for path in tmp_path.iterdir()] == [first.file]
    assert first.bytes == (tmp_path / first.file).stat().st_size


def test_an_altered_or_missing_artefact_is_found_and_written_again(tmp_path: Path) -> None:
    arrays = {"a": np.zeros(3, np.float32)}
    artefact = artefacts.save(tmp_path, arrays)
    path = tmp_path / artefact.file
    whole = path.read_bytes()
    for content in (whole[:-1], whole[:-1] + b"x", None):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        assert not artefacts.intact(tmp_path, artefact)
        with pytest.raises(DataError, match="missing or altered"):
            artefacts.load(tmp_path, artefact)
        artefacts.save(tmp_path, arrays)
        assert path.read_bytes() == whole


def test_an_artefact_without_room_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, before[1]))
    try:
        with pytest.raises(NoRoom, match=r"no room for .*safetensors: 400,\d+ bytes needed, [\d,]+ free"):
            artefacts.save(tmp_path, {"a": np.zeros(100_000, np.float32)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_the_table_is_the_same_bytes_whatever_the_order_and_the_times(tmp_path: Path) -> None:
    tables = []
    for number, order in enumerate((IDS, IDS[::-1])):
        folder = tmp_path / str(number)
        folder.mkdir()
        with Store.create(folder / "store.sqlite", CONFIG, CELLS) as store:
            for cell in order:
                store.add([replace_seconds(done(cell), number)])
            export(store, folder / "results.parquet")
        tables.append((folder / "results.parquet").read_bytes())
    assert tables[0] == tables[1]


def replace_seconds(one: Stored, seconds: int) -> Stored:
    return one._replace(seconds=float(seconds))


def test_the_table_has_a_row_for_every_cell(tmp_path: Path) -> None:
    with Store.read(filled(tmp_path)) as store:
        frame = table(store)
    assert frame["status"].to_list() == ["done", "diverged", "pending", "pending"]
    assert frame["msve"].to_list() == [0.5, None, None, None]
    assert frame["diverged_step"].to_list() == [None, 3, None, None]
    assert frame.schema["level"] == pl.Float64


def test_a_store_on_a_medium_that_cannot_be_written_can_be_read(tmp_path: Path) -> None:
    path = filled(tmp_path)
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    tmp_path.chmod(0o555)
    try:
        with Store.read(path) as store:
            assert store.pending() == IDS[2:]
    finally:
        tmp_path.chmod(0o755)


def test_cells_of_an_extended_plan_keep_their_outcomes(tmp_path: Path) -> None:
    path = filled(tmp_path)
    more = replace(CELLS[IDS[0]], seed=9)
    with Store.write(path) as store:
        store.set_plan(CONFIG, {more.id("data"): more, **CELLS})
        assert store.pending() == [more.id("data"), *IDS[2:]]
    with Store.read(path) as store:
        assert len(store.outcomes()) == 2
