"""Logs of a player's games, with every frame stored once.

Every episode has its own seeds, for the game and for the player, and which episodes are played is settled
before the first step: the first k of any number of episodes are the same k, however many games run side
by side.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt8

from adaptive_td.adapters.policies import Actor, Policy
from adaptive_td.episodes import Episodes, aligned_empty
from adaptive_td.errors import UsageError

from .games import MAX_STEPS, STACK, ale_version, game_name, reset_games, vector_env

SIDE_BY_SIDE = 8


@dataclass
class _Game:
    """One episode while it is played."""

    number: int
    rng: np.random.Generator
    frames: list[np.ndarray] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Played:
    """One episode that was played to its end."""

    number: int
    frames: UInt8[np.ndarray, "steps_and_one 84 84"]
    rewards: np.ndarray
    actions: np.ndarray
    terminated: bool


def collect(
    game: str,
    policy: Policy,
    *,
    episodes: int = 100,
    first: int = 0,
    seed: int = 0,
    max_steps: int = MAX_STEPS,
    num_envs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Episodes:
    """Episodes of a player, cut after `max_steps` steps (a truncation), with raw rewards.

    Of the episodes that a seed gives, those numbered first, ..., first + episodes - 1 are played.
    `extras` holds the rewards clipped to [-1, 1] and the actions; `info` tells the game, the player, the
    seed and the version of ale-py. Players are those of `adaptive_td.collect`.
    """
    for name, value in {"episodes": episodes, "max_steps": max_steps, "num_envs": num_envs}.items():
        if value is not None and value < 1:
            raise UsageError(f"{name}: must be at least 1, got {value}")
    for name, value in {"seed": seed, "first": first}.items():
        if value < 0:
            raise UsageError(f"{name}: must not be negative, got {value}")
    info = {
        "game": game_name(game),
        **_description(policy),
        "seed": seed,
        "first_episode": first,
        "max_steps": max_steps,
        "ale_py": ale_version(),
    }
    played: list[_Played] = []
    numbers, side_by_side = range(first, first + episodes), min(episodes, num_envs or SIDE_BY_SIDE)
    for one in _play(game, policy, numbers, seed, max_steps, side_by_side):
        played.append(one)
        if progress is not None:
            progress(len(played), episodes)
    played.sort(key=lambda one: one.number)
    rewards = np.concatenate([one.rewards for one in played])
    return Episodes(
        rewards=rewards,
        lengths=np.array([len(one.rewards) for one in played], np.int64),
        ended=np.array([one.terminated for one in played], bool),
        stack=STACK,
        extras={
            "clipped_reward": np.clip(rewards, -1, 1),
            "action": np.concatenate([one.actions for one in played]),
        },
        info=info,
        states=_joined_frames(played),
    )


def _play(
    game: str, policy: Policy, numbers: range, seed: int, max_steps: int, num_envs: int
) -> Iterator[_Played]:
    """Episodes as they finish; a game that has ended is reset by us, with its next episode's own seed."""
    env = vector_env(game, num_envs, max_steps=max_steps)
    try:
        actor = Actor(policy, env.single_action_space)
        waiting = iter(numbers)
        playing = [_next_game(waiting, seed) for _ in range(num_envs)]
        states = _reset(env, playing, np.ones(num_envs, bool), seed)
        while any(playing):
            actions = _actions(actor, states, playing)
            states, rewards, terminated, truncated, _ = env.step(actions)
            ended = np.logical_or(terminated, truncated)
            for k, one in enumerate(playing):
                if one is None:
                    continue
                one.frames.append(states[k, -1].copy())
                one.rewards.append(float(rewards[k]))
                one.actions.append(int(actions[k]))
                if ended[k]:
                    yield _finished(one, bool(terminated[k]))
                    playing[k] = _next_game(waiting, seed)
            if ended.any() and any(playing):
                states = _reset(env, playing, ended, seed)
    finally:
        env.close()


def _next_game(waiting: Iterator[int], seed: int) -> _Game | None:
    number = next(waiting, None)
    return None if number is None else _Game(number, np.random.default_rng([seed, number]))


def _reset(
    env: Any, playing: list[_Game | None], ended: Bool[np.ndarray, " envs"], seed: int
) -> UInt8[np.ndarray, "envs 4 84 84"]:
    """Start the next episodes where one has ended; nobody watches a game that has none to play."""
    seeds = []
    for k in np.flatnonzero(ended):
        one = playing[k]
        seeds.append(0 if one is None else _game_seed(seed, one.number))
    states = reset_games(env, ended, seeds)
    for k in np.flatnonzero(ended):
        one = playing[k]
        if one is not None:
            one.frames.append(states[k, -1].copy())
    return states


def _game_seed(seed: int, number: int) -> int:
    """A seed of 31 bits for one episode's game."""
    return int(np.random.SeedSequence([seed, number, 1]).generate_state(1)[0] >> 1)


def _actions(
    actor: Actor, states: UInt8[np.ndarray, "envs 4 84 84"], playing: list[_Game | None]
) -> np.ndarray:
    """One action for each game; those that nobody watches get the first."""
    watched = [(k, one) for k, one in enumerate(playing) if one is not None]
    actions = np.zeros(len(playing), np.int64)
    if actor.batched:
        place = f"one of episodes {[one.number for _, one in watched]}"
        batch = actor.act(states[[k for k, _ in watched]], [one.rng for _, one in watched], place)
    for i, (k, one) in enumerate(watched):
        place = f"episode {one.number}, step {len(one.rewards)}"
        action = batch[i] if actor.batched else actor.act(states[k], one.rng, place)
        actions[k] = actor.judged(action, place)
    return actions


def _finished(one: _Game, terminated: bool) -> _Played:
    return _Played(
        one.number,
        np.stack(one.frames),
        np.array(one.rewards, np.float32),
        np.array(one.actions, np.int32),
        terminated,
    )


def _joined_frames(played: list[_Played]) -> UInt8[np.ndarray, "rows 84 84"]:
    """All frames end to end; each episode's own are given up as they are copied, to hold them once."""
    shape = played[0].frames.shape[1:]
    out, at = aligned_empty((sum(len(one.frames) for one in played), *shape), np.uint8), 0
    played.reverse()
    while played:
        frames = played.pop().frames
        out[at : at + len(frames)] = frames
        at += len(frames)
    return out


def _description(policy: Policy) -> dict[str, Any]:
    """What a player says of itself, or its name."""
    description = getattr(policy, "description", None)
    if description is not None:
        return dict(json.loads(json.dumps(description)))
    return {"policy": getattr(policy, "__name__", type(policy).__name__)}
