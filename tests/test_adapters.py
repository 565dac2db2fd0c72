"""Files in and out: what is saved is loaded again, and the flat logs that people hold are read right."""

import os
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from adaptive_td import DataError, Episodes, UsageError
from adaptive_td.adapters import load, save
from logs import any_episodes, assert_same, quick, some_episodes

FLAT: dict[str, Any] = {
    "observations": np.arange(6.0),
    "rewards": np.ones(6),
    "terminals": np.array([0, 1, 0, 0, 0, 0], bool),
    "timeouts": np.array([0, 0, 0, 0, 1, 0], bool),
}
SUCCESSORS = np.array([1.0, 50, 3, 4, 51, 52])


@quick
@given(any_episodes())
def test_an_npz_gives_back_the_same_episodes(
    tmp_path_factory: pytest.TempPathFactory, episodes: Episodes
) -> None:
    path = tmp_path_factory.mktemp("log") / "log.npz"
    save(episodes, path)
    assert_same(load(path), episodes)


@quick
@given(any_episodes(max_dims=1))
def test_a_parquet_table_gives_back_the_same_episodes(
    tmp_path_factory: pytest.TempPathFactory, episodes: Episodes
) -> None:
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    save(episodes, path)
    assert_same(load(path), episodes)


def test_images_are_for_npz(tmp_path: Path) -> None:
    images = Episodes.from_lists([np.zeros((3, 4, 4), np.uint8)], [[1, 1]], [True])
    with pytest.raises(UsageError, match=r"observations of shape \(4, 4\) .* save them as .npz"):
        save(images, tmp_path / "log.parquet")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", [".npz", ".parquet"])
def test_a_file_is_never_overwritten(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"log{ending}"
    path.write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        save(some_episodes(), path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("ending", [".npz", ".parquet"])
def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, ending: str) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            save(some_episodes(), tmp_path / f"log{ending}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert not list(tmp_path.iterdir())


def test_a_saved_file_can_be_read_by_whom_the_umask_allows(tmp_path: Path) -> None:
    save(some_episodes(), tmp_path / "log.npz")
    (tmp_path / "plain").touch()
    assert os.stat(tmp_path / "log.npz").st_mode == os.stat(tmp_path / "plain").st_mode


def test_an_unknown_ending_or_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown file ending '.npy'; did you mean '.npz'\?"):
        save(some_episodes(), tmp_path / "log.npy")
    with pytest.raises(UsageError, match=r"unknown file ending '.parqet'; did you mean '.parquet'\?"):
        load(tmp_path / "log.parqet")
    with pytest.raises(UsageError, match="no such folder"):
        save(some_episodes(), tmp_path / "missing" / "log.npz")
    with pytest.raises(UsageError, match="no such file, and no folder"):
        load(tmp_path / "missing" / "log.npz")


def test_a_missing_file_suggests_the_nearest(tmp_path: Path) -> None:
    save(some_episodes(), tmp_path / "walks.npz")
    with pytest.raises(
        UsageError, match=r"unknown file in .* 'walk.npz'; did you mean 'walks.npz'\?"
    ) as caught:
        load(tmp_path / "walk.npz")
    assert caught.value.exit_code == 2


def test_options_of_tables_are_refused_elsewhere(tmp_path: Path) -> None:
    save(some_episodes(), tmp_path / "log.npz")
    with pytest.raises(UsageError, match="are for tables"):
        load(tmp_path / "log.npz", columns={"episode": "id"})
    with pytest.raises(UsageError, match="ends: this file states how each episode ended"):
        load(tmp_path / "log.npz", ends="terminated")


def test_a_flat_log_with_next_observations_keeps_the_final_states(tmp_path: Path) -> None:
    np.savez(tmp_path / "log.npz", **FLAT, next_observations=SUCCESSORS)
    episodes = load(tmp_path / "log.npz")
    assert episodes.lengths.tolist() == [2, 3, 1]
    assert episodes.ended.tolist() == [True, False, False]
    assert episodes.states.tolist() == [0, 1, 50, 2, 3, 4, 51, 5, 52]
    assert episodes.next_observations.tolist() == SUCCESSORS.tolist()


def test_a_flat_log_without_final_states_gives_up_the_rewards_that_need_them(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "log.npz", **FLAT, actions=np.zeros((6, 2)))
    with pytest.warns(UserWarning, match="2 truncated episodes have no final state"):
        episodes = load(tmp_path / "log.npz")
    assert episodes.lengths.tolist() == [2, 2]
    assert episodes.states.tolist() == [0, 1, 1, 2, 3, 4]


def test_a_boundary_that_is_not_marked_is_found(tmp_path: Path) -> None:
    unmarked = FLAT | {"timeouts": np.zeros(6, bool)}
    np.savez(tmp_path / "log.npz", **unmarked, next_observations=SUCCESSORS)
    with pytest.raises(DataError, match=r"next_observations: 1 rows differ .*\(first: episode 1, step 2\)"):
        load(tmp_path / "log.npz")


def test_a_done_flag_has_to_be_explained(tmp_path: Path) -> None:
    log: dict[str, Any] = {"obs": FLAT["observations"], "rewards": FLAT["rewards"], "next_obs": SUCCESSORS}
    log["dones"] = np.array([0, 1, 0, 0, 1, 0], np.float32)
    np.savez(tmp_path / "log.npz", **log)
    with pytest.raises(DataError, match="dones: does not say how episodes end") as caught:
        load(tmp_path / "log.npz")
    assert caught.value.exit_code == 3
    assert load(tmp_path / "log.npz", ends="terminated").ended.tolist() == [True, True, False]
    assert load(tmp_path / "log.npz", ends="truncated").ended.tolist() == [False, False, False]
    np.savez(tmp_path / "both.npz", **log, timeouts=FLAT["timeouts"])
    assert load(tmp_path / "both.npz").ended.tolist() == [True, False, False]
    with pytest.raises(UsageError, match="ends: only settles"):
        load(tmp_path / "both.npz", ends="terminated")


def test_a_flat_log_may_call_its_observations_states(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"states": np.arange(2.0), "rewards": np.ones(2), "terminals": np.array([0, 1])}
    np.savez(tmp_path / "log.npz", **fields)
    assert load(tmp_path / "log.npz").observations.tolist() == [0, 1]
