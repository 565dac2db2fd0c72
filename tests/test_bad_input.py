"""Files that are broken, hostile or mistaken: each gets one line that says what is wrong, and a code."""

import io
import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adaptive_td import DataError, Episodes, UsageError
from adaptive_td.adapters import load, read, save
from logs import assert_same, quick, some_episodes

OURS: dict[str, Any] = {
    "states": np.zeros((5, 2), np.float32),
    "rewards": np.ones(3, np.float32),
    "lengths": np.array([2, 1]),
    "ended": np.array([True, False]),
}


def header(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    """The 128 bytes that begin a .npy file."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def archive(path: Path, members: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> Path:
    """A zip file with the given members, whatever their names."""
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members:
            file.writestr(name, content)
    return path


def refused(path: Path, match: str) -> None:
    """`load` says one line about the data, and its exit code is 3."""
    with pytest.raises(DataError, match=match) as caught:
        load(path)
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)


# 19: pickles


class Bomb:
    """Unpickling it fails the test."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        """Run when unpickled."""
        return pytest.fail, ("a pickle was loaded",)


def test_an_array_of_objects_is_refused_and_not_unpickled(tmp_path: Path) -> None:
    rewards = np.array([Bomb(), Bomb(), Bomb()], object)
    np.savez(tmp_path / "log.npz", **(OURS | {"rewards": rewards}))
    refused(tmp_path / "log.npz", "^rewards: an array of Python objects, .* unpickling, .* numpy.savez")


def test_objects_in_a_field_that_is_not_needed_do_no_harm(tmp_path: Path) -> None:
    flat = {"observations": np.arange(2.0), "rewards": np.ones(2), "terminated": np.array([False, True])}
    np.savez(tmp_path / "log.npz", **flat, truncated=np.zeros(2, bool), infos=np.array([Bomb(), 1], object))  # type: ignore[arg-type]
    assert load(tmp_path / "log.npz").rewards.tolist() == [1, 1]


@pytest.mark.parametrize("name", ["log.pkl", "log.pt", "log.npz"])
def test_a_pickle_is_refused_and_the_safe_way_suggested(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    refused(tmp_path / name, f"^{name}: .* unpickling, .* numpy.savez or as Parquet")


def test_python_objects_are_not_written_either(tmp_path: Path) -> None:
    episodes = Episodes.from_lists([[0, 1]], [[1]], [True], keys={"id": [np.array([None], object)]})
    with pytest.raises(DataError, match=r"^key:id: holds Python objects"):
        save(episodes, tmp_path / "log.npz")
    assert not list(tmp_path.iterdir())


# 20: what declares more than it holds


def test_a_small_array_that_declares_gigabytes_is_refused_before_it_is_allocated(tmp_path: Path) -> None:
    content = header((2**32,))
    assert len(content) == 128
    path = archive(tmp_path / "log.npz", [("states.npy", content)])
    refused(path, "^states: declares 34359738368 bytes of data and holds 0$")


def test_a_zip_bomb_is_refused_unless_it_is_trusted(tmp_path: Path) -> None:
    bomb = header((2**21,), "<f8") + bytes(2**24)
    path = archive(tmp_path / "log.npz", [("observations.npy", bomb)], zipfile.ZIP_DEFLATED)
    with pytest.raises(DataError, match=r"^archive: .* would unpack to 16777344; .* max_bytes=16777344$"):
        read(path, max_bytes=2**20)
    with pytest.raises(DataError, match=r"^rewards: missing"):
        read(path, max_bytes=2**25)


def test_a_small_table_of_fifty_million_equal_rows_is_refused(tmp_path: Path) -> None:
    rows = pl.LazyFrame({"episode": [0]}).select(
        pl.repeat(0, 50_000_000, dtype=pl.Int8).alias(name) for name in ("episode", "step", "reward", "x")
    )
    rows.sink_parquet(tmp_path / "log.parquet")
    refused(tmp_path / "log.parquet", r"^log.parquet: \d+ bytes that would unpack to 1600000000")


def test_a_member_that_appears_twice_is_refused(tmp_path: Path) -> None:
    member = ("rewards.npy", header((0,)))
    refused(archive(tmp_path / "log.npz", [member, member]), "^rewards: appears twice in the archive$")


# 21: truncated and empty files


@pytest.mark.parametrize("name", ["log.npz", "log.parquet", "log.csv"])
def test_an_empty_file_is_called_empty(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    refused(tmp_path / name, f"^{name}: empty, 0 bytes$")


@pytest.mark.parametrize("name", ["log.npz", "log.parquet"])
def test_a_truncated_file_is_refused_with_its_size(tmp_path: Path, name: str) -> None:
    save(some_episodes(), tmp_path / name)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    refused(tmp_path / name, f"^{name}: cannot be read from its {len(content) // 2} bytes: ")


def test_an_array_that_is_cut_short_is_named(tmp_path: Path) -> None:
    path = archive(tmp_path / "log.npz", [("rewards.npy", header((4,)) + bytes(20))])
    refused(path, "^rewards: declares 32 bytes of data and holds 20$")


@pytest.mark.parametrize(
    "content", [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00v\x00{", header((2,))[:100], b"text", header((-1,))]
)
def test_an_array_without_a_proper_header_is_named(tmp_path: Path, content: bytes) -> None:
    refused(archive(tmp_path / "log.npz", [("rewards.npy", content)]), "^rewards: ")


@settings(max_examples=150, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_flipped_byte_is_found_or_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, place: float, flip: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "log.npz"
    save(some_episodes(), path)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= flip
    path.write_bytes(content)
    try:
        episodes = load(path)
    except DataError:
        return
    assert_same(episodes, some_episodes())


@quick
@given(st.binary(max_size=200), st.sampled_from([".npz", ".parquet", ".csv"]))
@example(b"PK\x05\x06" + bytes(18), ".npz")
@example(b"\x80\x04N.", ".csv")
@example(b"episode,reward,x,terminated\n0,1,2,3\n", ".csv")
def test_arbitrary_bytes_are_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, ending: str
) -> None:
    path = tmp_path_factory.mktemp("log") / f"log{ending}"
    path.write_bytes(content)
    with pytest.raises(DataError):
        load(path)


# 22: fields that do not fit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": np.array(["a", "b", "c"])}, "^rewards: has dtype <U1, which is not numeric$"),
        ({"rewards": np.ones((3, 1))}, r"^rewards: expected .* got shape \(3, 1\)$"),
        ({"states": np.zeros((4, 2))}, "^observations: 4 states for 3 rewards in 2 episodes; expected 5$"),
        ({"states": np.float32(0)}, "^rewards: expected"),
        ({"lengths": np.array([2, -1])}, "^lengths: -1 of episode 1 does not fit the 3 rewards$"),
        ({"lengths": np.array([9, 1])}, "^lengths: 9 of episode 0 does not fit the 3 rewards$"),
        ({"lengths": np.array([1, 1])}, "^lengths: 1 of episode 1 does not fit the 3 rewards$"),
        ({"lengths": np.array([2.0, 1.0])}, "^lengths: expected a list of whole numbers, got float64"),
        ({"lengths": np.array(3)}, "^lengths: expected a list of whole numbers"),
        ({"ended": np.array([True])}, "^terminated: 1 flags for 2 episodes$"),
        ({"ended": np.array([0, 7])}, "^terminated: 7 in row 1 is neither True nor False$"),
        ({"durations": np.ones(2)}, r"^durations: shape \(2,\) where there are 3 transitions$"),
        ({"key:id": np.arange(4)}, r"^id: shape \(4,\) where there are 3 transitions$"),
        ({"reward": np.ones(3)}, "^reward: unknown field beside `states`"),
    ],
)
def test_fields_that_do_not_fit_are_refused_by_name(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "log.npz", **(OURS | change))
    refused(tmp_path / "log.npz", message)


@pytest.mark.parametrize("missing", ["rewards", "lengths", "ended"])
def test_a_missing_field_is_named(tmp_path: Path, missing: str) -> None:
    np.savez(tmp_path / "log.npz", **{name: array for name, array in OURS.items() if name != missing})
    refused(tmp_path / "log.npz", f"^{missing}: missing; found ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": np.ones(2)}, r"^rewards: shape \(2,\) where observations has \(3,\)$"),
        ({"terminals": np.zeros(4, bool)}, r"^terminals: shape \(4,\) where there are 3 rewards$"),
        ({"terminals": np.array([0, 5, 0])}, "^terminals: 5 in row 1 is neither True nor False$"),
        ({"next_observations": np.zeros((3, 2))}, r"^next_observations: shape \(3, 2\) where 3 observations"),
    ],
)
def test_flat_fields_that_do_not_fit_are_refused_by_name(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    flat: dict[str, Any] = {"observations": np.zeros(3), "rewards": np.ones(3), "terminals": np.ones(3, bool)}
    np.savez(tmp_path / "log.npz", **(flat | change))
    refused(tmp_path / "log.npz", message)


# 23: NaN and infinity


def test_nan_is_refused_with_its_place_or_left_out_with_its_episode(tmp_path: Path) -> None:
    rewards = np.array([1, np.nan, 1], np.float32)
    np.savez(tmp_path / "log.npz", **(OURS | {"rewards": rewards}))
    refused(tmp_path / "log.npz", "^rewards: non-finite value in episode 0, step 1$")
    assert load(tmp_path / "log.npz", nonfinite="drop-episode").lengths.tolist() == [1]


# 24: ways out of a file


@pytest.mark.parametrize("name", ["../states.npy", "/states.npy", "a/../states.npy", "..\\states.npy"])
def test_a_name_that_leads_out_of_the_archive_is_refused(tmp_path: Path, name: str) -> None:
    refused(archive(tmp_path / "log.npz", [(name, header((0,)))]), "must not lead out of the archive$")


def test_an_encrypted_or_strangely_compressed_archive_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "log.npz", [("rewards.npy", header((0,)))], zipfile.ZIP_LZMA)
    refused(path, "^rewards: compressed in a way that NumPy does not use$")
    path = archive(tmp_path / "log.npz", [("rewards.npy", header((0,)))])
    content = bytearray(path.read_bytes())
    place = content.index(b"PK\x01\x02")
    struct.pack_into("<H", content, place + 8, 1)
    path.write_bytes(content)
    refused(path, "^rewards: cannot be read from its 128 bytes: .*encrypted")


# 25: mistyped names


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"episod": "id"}, "unknown role in columns 'episod'; did you mean 'episode'?"),
        ({"episode": "idd"}, "unknown column for episode 'idd'; did you mean 'id'?"),
        ({"features": ["x", "why"]}, "unknown column for features 'why'"),
    ],
)
def test_a_mistyped_name_gets_the_nearest_match(
    tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    pl.DataFrame({"id": [1], "x": [1.0], "reward": [1.0], "terminated": [True]}).write_csv(
        tmp_path / "log.csv"
    )
    with pytest.raises(UsageError) as caught:
        load(tmp_path / "log.csv", columns=columns)
    assert str(caught.value).startswith(message)
    assert caught.value.exit_code == 2
