"""Results: the same from the folder of a run and from what was published of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from adaptive_td.errors import DataError, UsageError
from adaptive_td.experiments import EXPERIMENTS, Plan, Store, Ways, plan, run
from adaptive_td.experiments.folder import RunFolder
from adaptive_td.experiments.results import publish, read
from adaptive_td.problems import PROBLEMS, Chain, Labyrinth, describe, from_description, named


def planned(seeds: int = 2) -> Plan:
    """A small experiment on a map: one network to train, and the grid."""
    settings = EXPERIMENTS["labyrinth"].settings(
        "quick",
        problems=("labyrinth-2",),
        methods=("mc", "td", "adaptive-td"),
        models=("mlp:4", "grid:100"),
        sizes=(1, 2),
        seeds=seeds,
        steps=5,
        batch_size=8,
        snapshot_episodes=2,
        snapshot_steps=2,
    )
    return plan("labyrinth", settings)


def quiet() -> Ways:
    return Ways(engine="serial", tell=lambda message: None, complain=lambda message: None)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    run(planned(), folder, quiet())
    return folder


def test_what_is_published_says_what_the_run_says(finished: Path, tmp_path: Path) -> None:
    publish(finished, tmp_path / "results")
    of_run, published = read(finished), read(tmp_path / "results")
    assert published.table.equals(of_run.table)
    assert published.config == of_run.config
    assert published.facts == of_run.facts
    assert published.problems == of_run.problems
    case = {"problem": "labyrinth-2", "model": "mlp:4", "episodes": 2, "method": "adaptive-td"}
    for after in (None, 2):
        mine, theirs = (one.arrays_of(**case, after=after)[1] for one in (published, of_run))
        assert mine.keys() == theirs.keys()
        for name, array in mine.items():
            np.testing.assert_array_equal(array, theirs[name])


def test_only_arrays_that_figures_or_claims_look_into_are_published(finished: Path, tmp_path: Path) -> None:
    """All of the first seed; of the others none of the grid's."""
    publish(finished, tmp_path / "results")
    published = read(tmp_path / "results")
    kept = {
        (row["model"], row["seed"])
        for row in published.table.iter_rows(named=True)
        if published.arrays(row["id"])
    }
    assert kept == {("mlp:4", 0), ("grid:100", 0), ("mlp:4", 1)}


def test_a_run_goes_on_from_published_results(finished: Path, tmp_path: Path) -> None:
    """Their cells are not measured again; numbers are those of a run that measured all."""
    publish(finished, tmp_path / "results")
    known = replace(quiet(), known=(tmp_path / "results",))
    run(planned(seeds=3), tmp_path / "known", known)
    run(planned(seeds=3), tmp_path / "whole", quiet())
    mine, theirs = (read(tmp_path / name).table.drop("artefact") for name in ("known", "whole"))
    assert mine.equals(theirs)
    with Store.read(RunFolder(tmp_path / "known").store) as store:
        measured = {store.cells()[id_].seed for id_, one in store.outcomes().items() if one.seconds > 0}
        assert [message for _, message in store.events("adopted")] == [
            f"28 results from {tmp_path / 'results'}"
        ]
    assert measured == {2}
    publish(tmp_path / "known", tmp_path / "results")
    run(planned(seeds=3), tmp_path / "known", known)
    with Store.read(RunFolder(tmp_path / "known").store) as store:
        assert len(store.events("adopted")) == 1


@pytest.mark.parametrize("name", ["results.parquet", "arrays.parquet"])
def test_damaged_results_are_named(name: str, finished: Path, tmp_path: Path) -> None:
    publish(finished, tmp_path / "results")
    path = tmp_path / "results" / name
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match=f"{name} cannot be read"):
        read(tmp_path / "results")
    pl.DataFrame({"id": ["a"]}).write_parquet(path)
    with pytest.raises(DataError, match=f"{name} has no column"):
        read(tmp_path / "results")
    path.unlink()
    with pytest.raises(DataError):
        read(tmp_path / "results")


def test_results_of_other_settings_are_not_adopted(finished: Path, tmp_path: Path) -> None:
    publish(finished, tmp_path / "results")
    settings = replace(planned().settings, steps=6)
    known = replace(quiet(), known=(tmp_path / "results",))
    run(plan("labyrinth", settings), tmp_path / "run", known)
    with Store.read(RunFolder(tmp_path / "run").store) as store:
        assert not store.events("adopted")
        assert all(one.seconds > 0 for one in store.outcomes().values())


def test_what_was_published_may_grow_but_not_change(finished: Path, tmp_path: Path) -> None:
    publish(finished, tmp_path / "results")
    run(planned(seeds=3), tmp_path / "larger", quiet())
    publish(tmp_path / "larger", tmp_path / "results")
    assert read(tmp_path / "results").table["seed"].n_unique() == 3
    with pytest.raises(UsageError, match=r"has 14 results that .* does not have; it is left alone"):
        publish(finished, tmp_path / "results")
    assert read(tmp_path / "results").table["seed"].n_unique() == 3


def test_an_unfinished_run_is_published_only_on_demand(finished: Path, tmp_path: Path) -> None:
    run(planned(), tmp_path / "run", quiet())
    with Store.write(RunFolder(tmp_path / "run").store) as store:
        store.forget(list(store.cells())[:3], "to be unfinished")
    with pytest.raises(UsageError, match="3 cells have no result; finish the run, or say --partial"):
        publish(tmp_path / "run", tmp_path / "results")
    assert not (tmp_path / "results").exists()
    publish(tmp_path / "run", tmp_path / "results", partial=True)
    assert read(tmp_path / "results").table["status"].to_list().count("pending") == 3
    publish(finished, tmp_path / "results")
    assert read(tmp_path / "results").table["status"].unique().to_list() == ["done"]


def test_a_run_is_not_published_over_a_run(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a run itself"):
        publish(finished, finished)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such run"):
        read(tmp_path / "nothing")
    with pytest.raises(DataError, match="is not a run: it has neither"):
        read(tmp_path)


def test_cells_are_chosen_by_their_settings_and_snapshots_only_when_asked_for(finished: Path) -> None:
    results = read(finished)
    case: dict[str, Any] = {"problem": "labyrinth-2", "model": "mlp:4", "episodes": 2}
    assert len(results.cells(**case, method="adaptive-td")) == 2
    assert len(results.cells(**case, method="adaptive-td", after=2)) == 2
    assert set(results.scores(**case)) == {"mc", "td", "adaptive-td"}
    scores = results.paired(("td", "mc"), [case])
    assert scores.shape == (2, 1, 2)
    td = results.cells(**case, method="td").sort("seed")["msve"].to_numpy()
    np.testing.assert_array_equal(scores[:, 0, 0], td)


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_can_be_made_again_from_its_description(name: str) -> None:
    problem = named(name)
    assert from_description(name, describe(problem)) == problem


def test_a_problem_of_ones_own_is_made_again_with_its_settings() -> None:
    mine = Labyrinth(((0, 10, 50, 10),), ((200, 100, 30),), "mine", step=5)
    as_stored = json.loads(json.dumps(describe(mine)))
    assert from_description("mine", as_stored) == mine
    assert from_description("chain-biased", describe(Chain(bias=0.5))) == Chain(bias=0.5)
