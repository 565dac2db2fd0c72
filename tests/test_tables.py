"""Tables as people keep them: any order of rows, irregular time, and every way to say how episodes end."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_td import DataError, Episodes, UsageError
from adaptive_td.adapters import load
from adaptive_td.adapters.columns import resolve_columns
from adaptive_td.adapters.log import Ends
from logs import any_episodes, assert_same, quick

TABLE = pl.DataFrame(
    {
        "id": ["a", "a", "a", "b", "b"],
        "t": [0, 1, 2, 0, 1],
        "x": [0.0, 1.0, 2.0, 10.0, 11.0],
        "y": [5, 6, 7, 8, 9],
        "r": [1.0, 2.0, None, 3.0, 4.0],
        "terminated": [False, False, None, False, True],
    }
)
COLUMNS = {"episode": "id", "step": "t", "features": ["x", "y"], "reward": "r"}


def load_table(table: pl.DataFrame, folder: Path, **options: Any) -> Episodes:
    """Load it as Parquet and as CSV, which must give the same."""
    table.write_parquet(folder / "log.parquet")
    episodes = load(folder / "log.parquet", **options)
    if not any(isinstance(dtype, pl.List | pl.Array) for dtype in table.dtypes):
        table.write_csv(folder / "log.csv")
        again = load(folder / "log.csv", **options)
        assert np.array_equal(again.states, episodes.states)
        assert np.array_equal(again.rewards, episodes.rewards)
        assert np.array_equal(again.ended, episodes.ended)
    return episodes


def refused(table: pl.DataFrame, folder: Path, message: str, **options: Any) -> None:
    """The error, in one line, with the exit code of bad data."""
    table.write_parquet(folder / "log.parquet")
    with pytest.raises(DataError, match=message) as caught:
        load(folder / "log.parquet", **options)
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)


def test_a_last_row_without_reward_is_the_final_observation(tmp_path: Path) -> None:
    episodes = load_table(TABLE, tmp_path, columns=COLUMNS)
    assert episodes.states.tolist() == [[0, 5], [1, 6], [2, 7], [10, 8], [11, 9], [11, 9]]
    assert episodes.rewards.tolist() == [1, 2, 3, 4]
    assert episodes.ended.tolist() == [False, True]
    assert episodes.keys["id"].tolist() == ["a", "a", "b", "b"]
    assert episodes.keys["t"].tolist() == [0, 1, 0, 1]


@quick
@given(seed=st.integers(0, 2**32))
def test_the_order_of_rows_does_not_matter(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    folder = tmp_path_factory.mktemp("log")
    TABLE.sample(fraction=1, shuffle=True, seed=seed).write_parquet(folder / "shuffled.parquet")
    TABLE.write_parquet(folder / "log.parquet")
    shuffled, ordered = (load(folder / f"{n}.parquet", columns=COLUMNS) for n in ("shuffled", "log"))
    assert_same(shuffled, ordered)


@quick
@given(any_episodes(max_dims=1))
def test_any_episodes_can_be_written_as_a_plain_table(
    tmp_path_factory: pytest.TempPathFactory, episodes: Episodes
) -> None:
    folder = tmp_path_factory.mktemp("log")
    states = episodes.states.reshape(len(episodes.states), -1)
    rows, ends = np.repeat(episodes.lengths + 1, episodes.lengths + 1), np.cumsum(episodes.lengths + 1) - 1
    rewards: list[float | None] = np.insert(episodes.rewards, ends - np.arange(len(ends)), np.nan).tolist()
    terminated = np.insert(episodes.terminated, ends - np.arange(len(ends)), False)
    for end in ends:
        rewards[end] = None
    columns: dict[str, Any] = {f"x{i}": column for i, column in enumerate(states.T)}
    columns |= {"episode": np.repeat(np.arange(len(ends)), episodes.lengths + 1), "reward": rewards}
    columns |= {"step": np.arange(len(rows)), "terminated": terminated}
    pl.DataFrame(columns).write_parquet(folder / "log.parquet")
    again = load(folder / "log.parquet")
    assert np.array_equal(again.states, states)
    assert np.array_equal(again.rewards, episodes.rewards)
    assert np.array_equal(again.ended, episodes.ended)


def test_durations_are_the_time_between_rows(tmp_path: Path) -> None:
    table = TABLE.with_columns(ts=pl.Series([0.0, 0.5, 2.5, 7.0, 10.0]))
    episodes = load_table(table, tmp_path, columns={**COLUMNS, "time": "ts"})
    assert episodes.durations is not None
    assert episodes.durations.tolist() == [0.5, 2.0, 3.0, 2.0]  # the last, which is never used, by the median
    assert list(episodes.keys) == ["id", "t", "ts"]
    halves = load(tmp_path / "log.parquet", columns={**COLUMNS, "time": "ts"}, time_unit=0.5)
    assert halves.durations is not None
    assert halves.durations.tolist() == [1.0, 4.0, 6.0, 4.0]


def test_dates_are_counted_in_seconds_or_in_the_given_unit(tmp_path: Path) -> None:
    start = datetime(2024, 2, 28, 22)
    hours = [0, 4, 12, 100, 104]
    table = TABLE.drop("t").with_columns(when=pl.Series([start + timedelta(hours=h) for h in hours]))
    columns = {"episode": "id", "time": "when", "features": "x", "reward": "r"}
    episodes = load_table(table, tmp_path, columns=columns, time_unit=4 * 3600.0)
    assert episodes.durations is not None
    assert episodes.durations.tolist() == [1, 2, 1, 1]
    assert episodes.keys["when"][0] == np.datetime64("2024-02-28T22:00")
    seconds = load(tmp_path / "log.csv", columns=columns)
    assert seconds.durations is not None
    assert seconds.durations[0] == 4 * 3600
    assert seconds.keys["when"][0].startswith("2024-02-28T22:00")


def test_a_duration_column_is_taken_as_it_is(tmp_path: Path) -> None:
    table = TABLE.with_columns(dt=pl.Series([2.0, 3.0, None, 4.0, 5.0]))
    episodes = load_table(table, tmp_path, columns={**COLUMNS, "duration": "dt"})
    assert episodes.durations is not None
    assert episodes.durations.tolist() == [2, 3, 4, 5]
    with pytest.raises(UsageError, match="give one of them"):
        load(tmp_path / "log.parquet", columns={**COLUMNS, "duration": "dt", "time": "t"})


@pytest.mark.parametrize(
    ("flags", "ends", "ended"),
    [
        ({"terminated": [0, 0, 0, 1]}, None, [False, True]),
        ({"truncated": [0, 1, 0, 0]}, None, [False, True]),
        ({"terminals": [0, 0, 0, 1], "timeouts": [0, 1, 0, 0]}, None, [False, True]),
        ({"done": [0, 1, 0, 1], "timeout": [0, 1, 0, 0]}, None, [False, True]),
        ({"done": [0, 0, 0, 1]}, "terminated", [False, True]),
        ({"done": [0, 1, 0, 1]}, "truncated", [False, False]),
        ({}, "terminated", [True, True]),
        ({}, "truncated", [False, False]),
    ],
)
def test_every_way_to_say_how_an_episode_ended(
    tmp_path: Path, flags: dict[str, list[int]], ends: Ends | None, ended: list[bool]
) -> None:
    table = pl.DataFrame(
        {"episode": [0, 0, 1, 1], "step": [0, 1, 0, 1], "x": [1.0, 2, 3, 4], "reward": [1, 1, 1, 1]}
    )
    successors = {"next_x": [2.0, 9.0, 4.0, 9.0]}
    table = table.with_columns(pl.Series(name, column) for name, column in (flags | successors).items())
    assert load_table(table, tmp_path, ends=ends).ended.tolist() == ended


@pytest.mark.parametrize("flags", [{}, {"done": [False, True]}])
def test_an_end_that_is_not_stated_is_refused(tmp_path: Path, flags: dict[str, list[bool]]) -> None:
    table = pl.DataFrame({"episode": [0, 0], "x": [1.0, 2.0], "reward": [1, 1], **flags})
    message = f"^{'done' if flags else 'table'}: does not say how episodes end: .* ends='truncated'$"
    refused(table, tmp_path, message)


def test_ends_cannot_overrule_a_column(tmp_path: Path) -> None:
    TABLE.write_parquet(tmp_path / "log.parquet")
    with pytest.raises(UsageError, match="ends: column 'terminated' already says"):
        load(tmp_path / "log.parquet", columns=COLUMNS, ends="terminated")


def test_next_features_supply_the_final_state_and_are_checked(tmp_path: Path) -> None:
    table = pl.DataFrame(
        {"episode": [0, 0, 1], "t": [0, 1, 0], "x": [1, 2, 3], "next_x": [2, 7, 8], "reward": [1, 1, 1]}
    )
    episodes = load_table(table, tmp_path, ends="truncated")
    assert episodes.states.tolist() == [[1], [2], [7], [3], [8]]
    assert episodes.states.dtype == np.int64
    shifted = table.with_columns(next_x=pl.Series([1, 2, 3]))
    message = r"^next_observations: 1 rows differ .*\(first: episode 0, step 0\)"
    refused(shifted, tmp_path, message, ends="truncated")


def test_list_columns_and_patterns_are_features(tmp_path: Path) -> None:
    table = TABLE.with_columns(z=pl.Series([[0.5, 1.5]] * 5))
    episodes = load_table(table, tmp_path, columns=COLUMNS | {"features": ["z", "[xy]"]})
    assert episodes.states[0].tolist() == [0.5, 1.5, 0, 5]


def test_a_lerobot_table_is_understood_without_a_map() -> None:
    row = {"observation.state": [[0.5, 0.5]], "action": [[0.0]], "timestamp": [0.0], "frame_index": [0]}
    row |= {"episode_index": [0], "index": [0], "next.reward": [1.0], "next.done": [True]}
    found = resolve_columns(pl.DataFrame(row).schema)
    assert (found.episode, found.step, found.time) == ("episode_index", "frame_index", None)
    assert (found.features, found.reward, found.done) == (("observation.state",), "next.reward", "next.done")
    assert "features: guessed to be observation.state" in found.notes


def test_what_the_user_says_is_not_guessed() -> None:
    found = resolve_columns(
        pl.DataFrame({**TABLE.to_dict(), "time": [0.0] * 5}).schema, {**COLUMNS, "terminated": "terminated"}
    )
    assert found.notes == ()
    assert found.time is None


def spoilt(**columns: list[object]) -> pl.DataFrame:
    """The table with some columns replaced."""
    return TABLE.with_columns(pl.Series(name, values, strict=False) for name, values in columns.items())


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (spoilt(t=[0, 1, 1, 0, 1]), "^t: a value that another row has too in episode 'a', row 2$"),
        (spoilt(x=[0.0, None, 2.0, 3.0, 4.0]), "^x: null in episode 'a', row 1$"),
        (spoilt(id=["a", None, "a", "b", "b"]), "^id: null in episode None, row 1$"),
        (spoilt(t=[0, 1, None, 0, 1]), "^t: null in episode 'a', row 2$"),
        (spoilt(r=[1, None, None, 1, 1]), "^r: null before the last row in episode 'a', row 1$"),
        (spoilt(x=["p", "q", "r", "s", "t"]), "^x: holds String, not numbers; encode it"),
        (spoilt(r=["p", "q", "r", "s", "t"]), "^r: holds String, not numbers"),
        (spoilt(t=["p", "q", "r", "s", "t"]), "^t: holds text that is neither a number nor a date$"),
        (spoilt(terminated=["no", "no", "no", "no", "yes"]), "^terminated: holds String, not True or False$"),
        (
            spoilt(terminated=[True, False, False, False, False]),
            "^terminated: set before the last row in episode 'a', row 0$",
        ),
        (spoilt(terminated=[False, None, None, False, True]), "^terminated: null in episode 'a', row 1$"),
        (spoilt(terminated=[0, 0, 0, 0, 2]), "^terminated: 2 in row 4 is neither True nor False$"),
        (spoilt(x=[0.0, np.nan, 2.0, 3.0, 4.0]), "^observations: non-finite value in episode 0, step 1$"),
        (spoilt(x=[0.0, 1e300, 2.0, 3.0, 4.0]), "^observations: non-finite value in episode 0, step 1$"),
        (spoilt(t=[0.0, np.nan, 2.0, 0.0, 1.0]), "^t: non-finite value in row 1$"),
        (spoilt(x=[[1], [1, 2], [1], [1], [1]]), "^x: not 1 numbers as in row 0 in episode 'a', row 1$"),
        (TABLE.clear(), "^table: it has no rows$"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path: Path, table: pl.DataFrame, message: str) -> None:
    refused(table, tmp_path, message, columns=COLUMNS)


@pytest.mark.parametrize("missing", ["episode", "reward"])
def test_a_role_that_no_column_plays_is_named(tmp_path: Path, missing: str) -> None:
    table = TABLE.rename({"id": "episode", "r": "reward"}).rename({missing: "q"})
    refused(table, tmp_path, f"^{missing}: no column has a name known for it; say which it is with columns=")


def test_time_that_goes_backwards_between_steps_is_named(tmp_path: Path) -> None:
    table = TABLE.with_columns(ts=pl.Series([0, 5, 4, 0, 1], dtype=pl.UInt64))
    refused(
        table,
        tmp_path,
        "^ts: later than the next row in episode 'a', row 1$",
        columns={**COLUMNS, "time": "ts"},
    )


def test_a_csv_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("episode,reward,x\n1,2,3\n1,2,3,4\n")
    with pytest.raises(DataError, match=r"^log.csv: cannot be read from its 31 bytes: "):
        load(tmp_path / "log.csv")


def test_two_million_rows_take_seconds(tmp_path: Path) -> None:
    count, length = 2_000_000, 20
    rng = np.random.default_rng(0)
    table = pl.DataFrame(
        {
            "episode": np.repeat(np.arange(count // length), length),
            "step": np.tile(np.arange(length), count // length),
            "x": rng.normal(size=count),
            "reward": rng.normal(size=count),
        }
    )
    table.write_parquet(tmp_path / "log.parquet")
    started = datetime.now()
    assert len(load(tmp_path / "log.parquet", ends="terminated")) == count // length
    assert datetime.now() - started < timedelta(seconds=30)
