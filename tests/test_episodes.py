"""Episodes laid end to end: what goes in comes out, and what does not fit is refused by name."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_td import DataError, Episodes
from logs import any_episodes, assert_same, quick, some_episodes


def test_a_transition_leads_from_its_state_to_the_next() -> None:
    episodes = Episodes.from_lists([[0, 1, 2], [10, 11]], [[1, 2], [3]], [True, False])
    assert episodes.observations.tolist() == [0, 1, 10]
    assert episodes.next_observations.tolist() == [1, 2, 11]
    assert episodes.terminated.tolist() == [False, True, False]
    assert episodes.truncated.tolist() == [False, False, True]
    assert episodes.episode.tolist() == [0, 0, 1]
    assert episodes.step.tolist() == [0, 1, 0]


def test_termination_stops_the_discount_and_truncation_does_not() -> None:
    episodes = Episodes.from_lists([[0, 1], [0, 1]], [[1], [1]], [True, False], durations=[[2], [2]])
    assert np.allclose(episodes.discounts(0.5), [0, 0.25])


def test_a_terminated_episode_needs_no_final_state() -> None:
    episodes = Episodes.from_lists([[0, 1]], [[5, 6]], [True])
    assert episodes.rewards.tolist() == [5, 6]
    assert episodes.terminated.tolist() == [False, True]


def test_a_truncated_episode_without_final_state_gives_up_its_last_reward() -> None:
    with pytest.warns(UserWarning, match=r"1 truncated episodes have no final state \(first: episode 1\)"):
        episodes = Episodes.from_lists(
            [[0, 1], [7, 8, 9]], [[1], [2, 3, 4]], [False, False], keys={"t": [[0], [0, 1, 2]]}
        )
    assert episodes.rewards.tolist() == [1, 2, 3]
    assert episodes.states.tolist() == [0, 1, 7, 8, 9]
    assert episodes.keys["t"].tolist() == [0, 0, 1]


def test_an_episode_without_transitions_is_left_out() -> None:
    episodes = Episodes.from_lists([[0, 1], [5], [2, 3]], [[1], [], [1]], [True, False, True])
    assert len(episodes) == 2
    assert episodes.states.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("states", "rewards", "message"),
    [
        ([[0, 1], [0, np.nan, 2]], [[1], [1, 1]], "observations: non-finite value in episode 1, step 1"),
        ([[0, 1], [0, 1, 2]], [[1], [1, np.inf]], "rewards: non-finite value in episode 1, step 1"),
        ([[0, 1], [0, 1e300, 2]], [[1], [1, 1]], "observations: non-finite value in episode 1, step 1"),
    ],
)
def test_a_value_that_is_not_finite_is_refused_with_its_place(
    states: list[list[float]], rewards: list[list[float]], message: str
) -> None:
    with pytest.raises(DataError, match=f"^{message}$") as caught:
        Episodes.from_lists(states, rewards, [True, True])
    assert caught.value.exit_code == 3
    kept = Episodes.from_lists(states, rewards, [True, True], nonfinite="drop-episode")
    assert kept.states.tolist() == [0, 1]


def test_what_a_log_keeps_after_the_end_is_never_looked_at() -> None:
    episodes = Episodes.from_lists([[0, 1, np.nan]], [[1, 1]], [True])
    assert episodes.states.tolist() == [0, 1, 1]
    with pytest.raises(DataError, match="observations: non-finite value in episode 0, step 2"):
        Episodes.from_lists([[0, 1, np.nan]], [[1, 1]], [False])


@pytest.mark.parametrize(
    ("states", "rewards", "terminated", "message"),
    [
        ([[0, 1]], [[1], [2]], [True], "one entry per episode; got 1, 2 and 1"),
        ([[0, 1, 2, 3]], [[1]], [True], "observations: episode 0 has 4 states for 1 rewards; expected 2"),
        ([[[0], [1]], [0, 1]], [[1], [1]], [True, True], r"observations: episode 1 has shape \(\) per step"),
        ([[[0], [1, 2]]], [[1]], [True], "observations: episode 0 is ragged"),
        ([["a", "b"]], [[1]], [True], "observations: episode 0 has dtype <U1, which is not numeric"),
        ([[0, 1]], [["x"]], [True], "rewards: episode 0 has dtype <U1, which is not numeric"),
        ([[0, 1]], [[[1]]], [True], "rewards: episode 0 must be a flat list"),
        ([[0, 1, 2]], [[1, 1]], [[True, False]], "terminated: episode 0 needs one True or False"),
        ([[0, 1]], [[1]], [2], "terminated: episode 0: 2 in row 0 is neither True nor False"),
        ([], [], [], "rewards: expected at least one"),
        ([[5]], [[]], [True], "rewards: expected at least one"),
    ],
)
def test_lists_that_do_not_fit_are_refused(
    states: list[object], rewards: list[object], terminated: list[object], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        Episodes.from_lists(states, rewards, terminated)


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(DataError, match="durations: negative at transition 1"):
        Episodes.from_lists([[0, 1, 2]], [[1, 1]], [True], durations=[[1, -1]])


@quick
@given(any_episodes())
def test_lists_and_rows_give_the_same_episodes(episodes: Episodes) -> None:
    transitions = np.split(np.arange(episodes.steps), episodes.offsets[1:-1])
    states = np.split(episodes.states, np.cumsum(episodes.lengths + 1)[:-1])
    again = Episodes.from_lists(
        states,
        [episodes.rewards[t] for t in transitions],
        episodes.ended,
        durations=None if episodes.durations is None else [episodes.durations[t] for t in transitions],
        keys={name: [column[t] for t in transitions] for name, column in episodes.keys.items()},
    )
    assert_same(again, episodes)


@quick
@given(any_episodes(), st.data())
def test_selected_episodes_are_the_ones_selected(episodes: Episodes, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(episodes) - 1), min_size=1, max_size=6))
    part = episodes.select(chosen)
    for place, i in enumerate(chosen):
        assert_same(part.select([place]), episodes.select([i]))


def test_a_split_keeps_every_episode_once() -> None:
    episodes = some_episodes()
    left, right = episodes.split(0.3, seed=0)
    assert sorted([*left.keys["id"], *right.keys["id"]]) == sorted(episodes.keys["id"])
    assert len(episodes.resample(seed=1)) == len(episodes)


def test_an_episode_that_does_not_exist_cannot_be_selected() -> None:
    with pytest.raises(DataError, match=r"must lie in \[0, 3\)"):
        some_episodes().select([3])


def test_rows_without_keys_are_named_by_episode_and_step() -> None:
    episodes = Episodes.from_lists([[0, 1, 2]], [[1, 1]], [True])
    assert {name: list(column) for name, column in episodes.row_keys().items()} == {
        "episode": [0, 0],
        "step": [0, 1],
    }
