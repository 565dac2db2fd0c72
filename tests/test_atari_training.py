"""Parallelised Q-learning: its targets, its loss, the games it plays, and how it resumes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import jax
import numpy as np
import pytest

from adaptive_td.atari import checkpoints, policies, qnetwork
from adaptive_td.atari.training import Games, Learner, Recipe, Round, learn, new_learner, round_targets, train
from adaptive_td.errors import DataError, UsageError

SMALL = Recipe(steps=32 * 60, num_envs=4, rollout=8, batch_size=16, learning_rate=1e-3, seed=1)
WHOLE = Recipe(steps=32, num_envs=4, rollout=8, batch_size=32, epochs=1)


def some_round(recipe: Recipe, seed: int = 0) -> Round:
    """Steps as games give them: the one after an end resets, and is no transition."""
    rng = np.random.default_rng(seed)
    shape = (recipe.rollout, recipe.num_envs)
    ended = rng.random(shape) < 0.2
    ended[1:] &= ~ended[:-1]
    return Round(
        states=rng.integers(0, 256, (*shape, 4, 84, 84), np.uint8),
        actions=rng.integers(6, size=shape),
        rewards=rng.integers(-1, 2, shape).astype(np.float32),
        terminated=(ended & (rng.random(shape) < 0.5)) | (rng.random(shape) < 0.1),
        ended=ended,
        transition=np.concatenate([np.ones((1, shape[1]), bool), ~ended[:-1]]),
        best=rng.normal(size=(shape[0] + 1, shape[1])).astype(np.float32),
    )


def plain_targets(played: Round, recipe: Recipe) -> np.ndarray:
    """The recursion, game by game and step by step."""
    targets = np.zeros(played.rewards.shape)
    for game in range(recipe.num_envs):
        for t in reversed(range(recipe.rollout)):
            if played.terminated[t, game]:
                targets[t, game] = played.rewards[t, game]
                continue
            v = played.best[t + 1, game]
            log_stops = played.ended[t, game] or t == recipe.rollout - 1
            after = v if log_stops else (1 - recipe.lam) * v + recipe.lam * targets[t + 1, game]
            targets[t, game] = played.rewards[t, game] + recipe.discount * after
    return targets


def q_values(learner: Learner, played: Round) -> np.ndarray:
    """Q of every step's state, one row for each."""
    states = played.states.reshape(-1, *played.states.shape[2:])
    return policies.in_blocks(policies.soft_q(learner.network).values, states)


@pytest.mark.parametrize("lam", [0.0, 0.65, 1.0])
def test_targets_are_those_of_a_plain_loop(lam: float) -> None:
    recipe = Recipe(steps=1, num_envs=5, rollout=9, batch_size=45, lam=lam)
    played = some_round(recipe)
    np.testing.assert_allclose(round_targets(played, recipe), plain_targets(played, recipe), atol=1e-5)


def test_the_loss_is_half_the_mean_square_over_transitions_alone() -> None:
    recipe, learner, played = WHOLE, new_learner("pong", WHOLE), some_round(WHOLE)
    values = q_values(learner, played)
    chosen = values[np.arange(32), played.actions.reshape(-1)]
    squares = np.square(plain_targets(played, recipe).reshape(-1) - chosen)[played.transition.reshape(-1)]
    after, loss = learn(learner, played, recipe)
    assert loss == pytest.approx(squares.mean() / 2, rel=1e-4)
    assert not played.transition.all()
    states = played.states.copy()
    states[~played.transition] = 0
    other, _ = learn(learner, played._replace(states=states), recipe)
    for a, b in zip(jax.tree.leaves(after.network), jax.tree.leaves(other.network), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-7)


def test_rounds_teach_which_action_is_paid() -> None:
    """Every step ends and pays 1 for action 2: Q must learn it, in states as different as noise."""
    played, learner = some_round(SMALL), new_learner("pong", SMALL)
    actions = np.arange(32).reshape(8, 4) % 6
    played = played._replace(
        actions=actions,
        rewards=(actions == 2).astype(np.float32),
        terminated=np.ones((8, 4), bool),
        transition=np.ones((8, 4), bool),
    )
    losses = []
    for _ in range(20):
        learner, loss = learn(learner, played, SMALL)
        losses.append(loss)
    assert losses[-1] < 0.05 * losses[0]
    assert q_values(learner, played).mean(0).argmax() == 2


def test_a_lost_life_ends_a_return_but_not_the_game() -> None:
    recipe = Recipe(steps=1, num_envs=4, rollout=120, batch_size=480)
    learner, games = new_learner("breakout", recipe), Games("breakout", recipe)
    played = games.play(learner)
    games.close()
    lost = played.terminated & ~played.ended
    assert lost.any()
    assert played.transition[1:][lost[:-1]].all()
    assert not played.transition[1:][played.ended[:-1]].any()
    black = (played.states == 0).all((3, 4))  # older frames are black at the start of a game, not of a life
    assert black[0, :, :3].all()
    assert not black[1:][lost[:-1]][:, 0].any()
    assert set(np.unique(played.rewards)) <= {-1, 0, 1}
    np.testing.assert_allclose(played.best[3], q_values(learner, played)[12:16].max(1), atol=1e-5)


def test_exploration_falls_in_a_line_and_stays() -> None:
    recipe = Recipe(steps=2048 * 100, epsilon_final=0.1, epsilon_share=0.2)
    assert [recipe.epsilon(k) for k in (0, 10, 20, 99)] == pytest.approx([1.0, 0.55, 0.1, 0.1])


def assert_same(a: Learner, b: Learner) -> None:
    """Bit for bit."""
    assert a.rounds == b.rounds
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_resumed_learner_goes_on_bit_for_bit_on_the_same_rounds(tmp_path: Path) -> None:
    rounds = [some_round(SMALL, seed) for seed in range(3)]
    straight = new_learner("pong", SMALL)
    for played in rounds:
        straight, _ = learn(straight, played, SMALL)
    resumed, path = new_learner("pong", SMALL), tmp_path / "net.checkpoint"
    for played in rounds:
        resumed, _ = learn(resumed, played, SMALL)
        checkpoints.save(path, "pong", SMALL, resumed)
        resumed = checkpoints.load(path, "pong", SMALL)
    assert_same(straight, resumed)
    for game, recipe, field in (
        ("space_invaders", SMALL, "game"),
        ("pong", replace(SMALL, steps=640), "steps"),
    ):
        with pytest.raises(UsageError, match=f"{field}: the checkpoint"):
            checkpoints.load(path, game, recipe)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match="cannot be read"):
        checkpoints.load(path, "pong", SMALL)


def test_training_runs_to_its_last_round_and_the_same_seed_gives_the_same_network() -> None:
    first, second = (list(islice(train("pong", SMALL), 2)) for _ in range(2))
    assert [report.learner.rounds for report in first] == [1, 2]
    assert_same(first[-1].learner, second[-1].learner)
    fresh = new_learner("pong", SMALL)
    onward = list(train("pong", SMALL, Learner(fresh.network, fresh.optimiser, SMALL.rounds - 2)))
    assert [report.learner.rounds for report in onward] == [59, 60]
    assert not list(train("pong", SMALL, fresh, stop=lambda: True))


@pytest.mark.parametrize(("field", "value"), [("steps", 0), ("batch_size", 100)])
def test_numbers_that_do_not_fit_are_refused(field: str, value: int) -> None:
    with pytest.raises(UsageError, match=field):
        Recipe(**{"steps": 1, field: value})


@pytest.mark.slow
def test_an_interrupted_command_saves_and_resumes_to_a_network_with_a_card(tmp_path: Path) -> None:
    out = tmp_path / "net.safetensors"
    command = [sys.executable, "-c", "from adaptive_td.cli import main; main()", "atari", "train-policy"]
    command += ["pong", "--steps", "4096", "--episodes", "2", "--out", str(out)]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    assert "2 rounds of 2,048 steps" in running.stderr.readline()
    os.kill(running.pid, signal.SIGINT)
    _, narration = running.communicate(timeout=600)
    assert running.returncode == 130
    assert "--resume" in narration
    assert not out.exists()
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "--resume" in again.stderr
    done = subprocess.run([*command, "--resume", "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["steps"] == 4096
    network, card = qnetwork.load(out).network, qnetwork.load(out).card
    assert card["recipe"]["num_envs"] == 64
    assert card["policy_digest"] == network.digest
    assert [len(card["scores"][who]["scores"]) for who in ("soft", "random")] == [2, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.json", "net.safetensors"]
