"""Frames stored once and stacked when they are looked at: a stack is the same wherever it is made."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaptive_td as atd
from adaptive_td.jobs import over_states
from adaptive_td.rows import prepare
from logs import assert_same, quick


def frames(lengths: list[int], shape: tuple[int, ...] = (3,), stack: int = 4, seed: int = 0) -> atd.Episodes:
    rng = np.random.default_rng(seed)
    steps = sum(lengths)
    return atd.Episodes.from_rows(
        rng.integers(1, 255, (steps + len(lengths), *shape), np.uint8),
        rng.normal(size=steps),
        np.array(lengths),
        np.arange(len(lengths)) % 2 == 0,
        stack=stack,
        extras={"action": rng.integers(0, 4, steps)},
        info={"game": "pong", "temperature": 0.02},
    )


def by_hand(log: atd.Episodes) -> np.ndarray:
    """A queue of zeros at the start of each episode, into which its frames are pushed one by one."""
    stacks, at = [], 0
    for length in log.lengths:
        queue = [np.zeros_like(log.states[0])] * log.stack
        for frame in log.states[at : at + length + 1]:
            queue = [*queue[1:], frame]
            stacks.append(np.stack(queue))
        at += length + 1
    return np.stack(stacks)


@quick
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(2, 5))
def test_a_stack_holds_the_newest_frames_of_its_own_episode_and_zeros_before_it(
    lengths: list[int], stack: int
) -> None:
    log = frames(lengths, stack=stack)
    expected, rows = by_hand(log), np.arange(len(log.states))
    assert log.observation_shape == expected.shape[1:]
    np.testing.assert_array_equal(log.observe(rows), expected)
    np.testing.assert_array_equal(log.observations, expected[log.index])
    np.testing.assert_array_equal(log.next_observations, expected[log.index + 1])


def test_the_device_stacks_frames_as_the_log_does() -> None:
    log = frames([5, 1, 8])
    data = prepare(log, 0.9, normalize=True, scales_inputs=True)
    rows = np.arange(len(log.states))
    np.testing.assert_array_equal(data.observe(jnp.asarray(rows)), log.observe(rows))
    sums = over_states(lambda state: state.sum(), data)[: len(rows)]
    np.testing.assert_allclose(sums, log.observe(rows).sum((1, 2)) / 255, rtol=1e-5)


def test_frames_stacked_in_the_loop_train_the_very_network_that_whole_stacks_train() -> None:
    log = frames([30, 20, 25], (36, 36))
    whole = atd.Episodes(
        states=log.observe(np.arange(len(log.states))),
        rewards=log.rewards,
        lengths=log.lengths,
        ended=log.ended,
    )
    training = atd.Training(steps=4, batch_size=8)
    values = [
        atd.fit(atd.TD(), one, atd.NatureCNN(dense=8), discount=0.9, key=0, training=training)
        for one in (log, whole)
    ]
    np.testing.assert_allclose(values[0].over(log), values[1].over(whole), atol=1e-5)
    np.testing.assert_allclose(values[0].over(log)[log.index], values[0](log.observations), atol=1e-5)


def test_intervals_over_a_log_are_those_of_its_states() -> None:
    log = frames([30, 20, 25], (2,))
    training = atd.Training(steps=20, batch_size=8)
    method = atd.MonteCarloEnsemble(truncation="zero")
    value = atd.fit(method, log, atd.MLP((8,)), discount=0.9, key=0, training=training)
    over, states = value.interval_over(log), value.interval(log.observe(np.arange(len(log.states))))
    np.testing.assert_allclose(over.lower, states.lower, rtol=1e-5)
    np.testing.assert_allclose(over.upper, states.upper, rtol=1e-5)


def test_a_file_keeps_the_stack_the_extras_and_where_the_log_comes_from(tmp_path: Path) -> None:
    log = frames([5, 1, 8])
    atd.save(log, tmp_path / "log.npz")
    back = atd.load(tmp_path / "log.npz")
    assert_same(back, log)
    assert (back.stack, back.info) == (4, log.info)
    assert back.select([2, 0]).extras["action"].tolist() == log.select([2, 0]).extras["action"].tolist()
    with pytest.raises(atd.UsageError, match="npz"):
        atd.save(log, tmp_path / "log.parquet")


def test_frames_of_many_episodes_are_shared_with_the_device_and_not_copied() -> None:
    rows = 12_000  # 84 MB of frames
    states = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (rows, 84, 84), (0, 0, 0))
    log = atd.Episodes.from_rows(states, np.zeros(rows - 1), np.array([rows - 1]), np.array([True]), stack=4)
    log = log.select([0])  # in memory of its own
    data = prepare(log, 0.99, normalize=True, scales_inputs=True)
    assert data.states.unsafe_buffer_pointer() == log.states.ctypes.data


@pytest.mark.parametrize("stack", [0, -1])
def test_a_stack_of_no_rows_is_refused(stack: int) -> None:
    with pytest.raises(atd.DataError, match="stack"):
        frames([3], stack=stack)
