"""What `check` says: the contents of a log, each trap that it falls into, and none that it does not."""

import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from adaptive_td import Episodes, UsageError
from adaptive_td.adapters import save
from adaptive_td.adapters.gym import collect, load_policy
from adaptive_td.check import Finding, check, summarise
from logs import some_episodes


def walks(count: int = 20, *, length: int | None = None, ended: bool = True, seed: int = 0) -> list[Any]:
    """Lists for `Episodes.from_lists`: random walks of varying length that are nowhere near a trap."""
    rng = np.random.default_rng(seed)
    lengths = [length or 3 + 2 * i for i in range(count)]
    states = [np.cumsum(rng.normal(size=(n + 1, 2)), axis=0) + 1 for n in lengths]
    return [states, [rng.normal(size=n) for n in lengths], [ended] * count]


def codes(found: list[Finding], *levels: str) -> set[str]:
    """The codes of findings of the given levels."""
    return {finding.code for finding in found if finding.level in (levels or ("warning", "error"))}


def test_a_sound_log_is_described_and_not_warned_about() -> None:
    found = check(Episodes.from_lists(*walks()))
    assert codes(found) == set()
    assert codes(found, "info") == {"contents", "observations", "rewards"}
    assert found[0].message == (
        "20 episodes, 440 transitions; 20 terminated, 0 truncated; 3 to 41 transitions each, median 22"
    )


@pytest.mark.parametrize("name", ["CartPole-v1", "MountainCar-v0", "FrozenLake-v1"])
def test_rollouts_of_a_real_environment_raise_no_alarm(name: str) -> None:
    episodes = collect(name, load_policy("random"), episodes=20)
    assert codes(check(episodes)) <= {"stuck", "no-reward", "repeated-episodes"}


def test_a_summary_is_plain_data() -> None:
    found = summarise(Episodes.from_lists([[[0, 1], [2, 1], [4, 1]]], [[0, 5]], [False]))
    assert found.ranges == ((0.0, 4.0), (1.0, 1.0))
    assert found.lengths == (2, 2.0, 2)
    assert found.rewards == (0.0, 2.5, 5.0)
    assert found.paid == 0.5
    assert json.loads(json.dumps(asdict(found)))["observation_dtype"] == "int64"


def test_findings_are_plain_data() -> None:
    found = check(some_episodes())
    assert all(set(asdict(finding)) == {"level", "code", "message", "where"} for finding in found)
    json.dumps([asdict(finding) for finding in found])


def expect(episodes: Episodes, code: str, where: str = "") -> None:
    """One finding, in its place."""
    found = [finding for finding in check(episodes) if finding.code == code]
    assert [finding.where for finding in found] == [where]


def test_a_time_limit_recorded_as_an_end_is_suspected() -> None:
    expect(Episodes.from_lists(*walks(length=25)), "time-limit-as-end", "episode 0")
    states, rewards, ended = (a + b for a, b in zip(walks(10), walks(5, length=50), strict=True))
    expect(Episodes.from_lists(states, rewards, ended), "time-limit-as-end", "episode 10")


def test_truncation_at_many_lengths_is_no_time_limit() -> None:
    expect(Episodes.from_lists(*walks(ended=False)), "no-time-limit", "episode 1")
    assert "no-time-limit" not in codes(check(Episodes.from_lists(*walks(length=30, ended=False))))


def test_an_id_that_names_rows_is_suspected() -> None:
    expect(Episodes.from_lists(*walks(length=1)), "one-step")


def test_final_states_of_zeros_are_suspected() -> None:
    states, rewards, ended = walks(length=30, ended=False)
    states[3][-1] = 0
    expect(Episodes.from_lists(states, rewards, ended), "zeroed-final", "episode 3")


def test_repeated_final_states_are_suspected() -> None:
    states, rewards, ended = walks(length=30, ended=False)
    for state in states:
        state[-1] = state[-2]
    expect(Episodes.from_lists(states, rewards, ended), "repeated-final", "episode 0")


def test_observations_after_a_reset_are_suspected() -> None:
    states, rewards, ended = walks(length=30, ended=False)
    for state, following in pairwise(states):
        state[-1] = following[0]
    expect(Episodes.from_lists(states, rewards, ended), "final-of-the-next", "episode 0")


def test_a_state_that_does_not_move_and_episodes_that_repeat_are_reported() -> None:
    found = check(Episodes.from_lists(np.ones((3, 6)), np.ones((3, 5)), [True] * 3))
    assert codes(found) == {"stuck", "repeated-episodes", "time-limit-as-end"}
    assert codes(found, "info") >= {"constant-features"}


def test_rewards_at_the_end_only_and_none_at_all_are_reported() -> None:
    states, rewards, ended = walks()
    for reward in rewards:
        reward[:-1] = 0
    assert "reward-at-end" in codes(check(Episodes.from_lists(states, rewards, ended)), "info")
    none = [np.zeros(len(reward)) for reward in rewards]
    expect(Episodes.from_lists(states, none, ended), "no-reward")


def test_time_in_the_wrong_unit_is_reported() -> None:
    states, rewards, ended = walks()
    durations = [np.full(len(reward), 86400.0) for reward in rewards]
    expect(Episodes.from_lists(states, rewards, ended, durations=durations), "time-unit")


def test_a_missing_final_observation_is_reported(tmp_path: Path) -> None:
    flat: dict[str, Any] = {"observations": np.random.default_rng(0).normal(size=9), "rewards": np.ones(9)}
    flat |= {"terminals": np.arange(9) == 3, "timeouts": np.zeros(9, bool)}
    np.savez(tmp_path / "log.npz", **flat)
    found = check(tmp_path / "log.npz")
    assert [f.where for f in found if f.code == "missing-final"] == ["episode 1"]
    assert codes(found, "error") == set()


def test_a_log_that_is_refused_is_still_described(tmp_path: Path) -> None:
    flat: dict[str, Any] = {"observations": np.arange(1.0, 9), "rewards": np.ones(8)}
    flat |= {"terminals": np.isin(np.arange(8), (3, 5, 7)), "next_observations": np.arange(2.0, 10)}
    flat["next_observations"][1] = 77
    flat["rewards"][4] = np.nan
    np.savez(tmp_path / "log.npz", **flat)
    found = check(tmp_path / "log.npz")
    errors = [finding.message for finding in found if finding.level == "error"]
    assert len(errors) == 2
    assert "next_observations: 1 rows differ" in errors[0]
    assert "(first: episode 0, step 1)" in errors[0]
    assert errors[1] == "rewards: non-finite value in episode 1, step 0"
    assert found[0].message.startswith("2 episodes, 6 transitions")
    assert "no field marks truncation" in "".join(f.message for f in found if f.code == "note")


def test_guesses_about_columns_are_told(tmp_path: Path) -> None:
    table = pl.DataFrame(
        {"episode": [0, 0, 1], "t": [0, 1, 0], "x": [1.0, 2.0, 3.0], "reward": [1.0, None, None]}
    )
    table.write_csv(tmp_path / "log.csv")
    found = check(tmp_path / "log.csv", ends="truncated")
    notes = [finding.message for finding in found if finding.code == "note"]
    assert "features: guessed to be x" in notes
    assert "step: guessed to be column 't'" in notes
    assert [f.where for f in found if f.code == "empty"] == ["episode 1"]


@pytest.mark.parametrize("name", ["log.npz", "log.parquet"])
def test_a_broken_file_is_one_finding(tmp_path: Path, name: str) -> None:
    save(some_episodes(), tmp_path / name)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:100])
    (found,) = check(tmp_path / name)
    assert (found.level, found.code, found.where) == ("error", "refused", str(tmp_path / name))


def test_fields_that_do_not_fit_are_one_finding(tmp_path: Path) -> None:
    ours: dict[str, Any] = {"states": np.zeros(4), "rewards": np.ones(3), "ended": np.ones((2, 2))}
    np.savez(tmp_path / "log.npz", **ours, lengths=np.array([[1, 2]]))
    (found,) = check(tmp_path / "log.npz")
    assert found.message.startswith("lengths: expected a list of whole numbers")


def test_a_mistyped_name_is_an_error_here_too(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        check(tmp_path / "nothing.npz")
