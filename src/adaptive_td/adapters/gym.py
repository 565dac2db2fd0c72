"""Rollouts of a policy in a Gymnasium environment.

Which episodes are collected is settled before the first step, so that none is preferred for being short:
where environments run side by side, to stop at the n-th that finishes would keep the quick ones. Every
episode has its own seeds, for the environment and for the policy, so the same seed gives the same episodes
however many environments run side by side. Only a vector environment that resets itself cannot be seeded
so: there each of its environments plays a fixed number of episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate
from jaxtyping import Bool

from adaptive_td.episodes import Episodes
from adaptive_td.errors import UsageError, unknown_name

from .policies import Actor, Policy, load_policy
from .spaces import as_array

__all__ = ["collect", "load_policy"]

Environment = str | gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any] | Callable[[], gymnasium.Env[Any, Any]]


def collect(
    env: Environment,
    policy: Policy,
    *,
    episodes: int = 100,
    seed: int = 0,
    max_steps: int | None = None,
    num_envs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Episodes:
    """Play episodes of `policy` in `env`: an environment's id, the environment, or a function that makes it.

    `policy(observation)` gives an action; it may take a second argument, a NumPy generator of its episode's
    own, and one named `action_space`. With an attribute `batched = True` it is given observations as the
    environments' batch (and a list of generators) and returns a batch of actions. `num_envs` environments
    run side by side. An episode is truncated after `max_steps`. `progress` is called with the number of
    finished episodes and of all.
    """
    counts = {"episodes": episodes, "max_steps": max_steps, "num_envs": num_envs}
    for name, value in counts.items():
        if value is not None and value < 1:
            raise UsageError(f"{name}: must be at least 1, got {value}")
    if seed < 0:
        raise UsageError(f"seed: must not be negative, got {seed}")
    side_by_side = min(episodes, num_envs or (8 if getattr(policy, "batched", False) else 1))
    vector = _as_vector(env, side_by_side, num_envs)
    finished: list[_Episode] = []
    try:
        actor = Actor(policy, vector.single_action_space)
        for episode in _play(vector, actor, episodes, seed, max_steps):
            finished.append(episode)
            if progress is not None:
                progress(len(finished), episodes)
    finally:
        if not isinstance(env, VectorEnv | gymnasium.Env):  # what we made, we close
            vector.close()
    finished.sort(key=lambda episode: episode.number)
    return Episodes.from_rows(
        np.stack([state for episode in finished for state in episode.states]),
        np.array([reward for episode in finished for reward in episode.rewards]),
        np.array([len(episode.rewards) for episode in finished]),
        np.array([episode.terminated for episode in finished]),
    )


@dataclass
class _Episode:
    """One episode while it is played."""

    number: int
    rng: np.random.Generator
    states: list[np.ndarray] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: bool = False

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"episode {self.number}, step {len(self.rewards)}"


def _play(
    vector: VectorEnv[Any, Any, Any], actor: Actor, count: int, seed: int, max_steps: int | None
) -> Iterator[_Episode]:
    """Episodes as they finish. The three ways in which a vector environment resets differ in three places.

    Disabled: we reset what has ended, with the seed of the episode that comes next. Next step: the step after
    the end resets, and is no transition. Same step: the observation already is the next episode's first, and
    the final one is in `final_obs`.
    """
    mode = AutoresetMode(vector.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
    if max_steps is not None and mode is not AutoresetMode.DISABLED:
        raise UsageError(
            "max_steps: an environment that resets itself must be given its limit when it is made"
        )
    width, space = vector.num_envs, vector.single_observation_space
    shared = iter(range(count))
    quotas = [
        shared if mode is AutoresetMode.DISABLED else iter(range(k, count, width)) for k in range(width)
    ]
    playing = [_next_episode(quota, seed) for quota in quotas]
    ended, resetting = np.ones(width, bool), np.zeros(width, bool)
    observations = _reset(vector, mode, playing, ended, seed)
    while any(playing):
        actions = _actions(actor, vector, observations, playing, resetting)
        observations, rewards, terminated, truncated, infos = vector.step(actions)
        rows, ended = as_array(space, observations), np.logical_or(terminated, truncated)
        for k, episode in enumerate(playing):
            if episode is None:
                continue
            if resetting[k]:
                episode.states.append(np.array(rows[k]))
                continue
            episode.rewards.append(float(rewards[k]))
            final = ended[k] and mode is AutoresetMode.SAME_STEP
            episode.states.append(
                as_array(space, _batch(space, [infos["final_obs"][k]]))[0] if final else np.array(rows[k])
            )
            if ended[k] or len(episode.rewards) == max_steps:
                ended[k], episode.terminated = True, bool(terminated[k])
                yield episode
                playing[k] = following = _next_episode(quotas[k], seed)
                if following is not None and mode is AutoresetMode.SAME_STEP:
                    following.states.append(np.array(rows[k]))
        if mode is AutoresetMode.DISABLED and ended.any() and any(playing):
            observations = _reset(vector, mode, playing, ended, seed)
        resetting = ended & (mode is AutoresetMode.NEXT_STEP)


def _next_episode(quota: Iterator[int], seed: int) -> _Episode | None:
    number = next(quota, None)
    return None if number is None else _Episode(number, np.random.default_rng([seed, number]))


def _reset(
    vector: VectorEnv[Any, Any, Any],
    mode: AutoresetMode,
    playing: list[_Episode | None],
    ended: Bool[np.ndarray, " envs"],
    seed: int,
) -> Any:
    """Reset the environments whose episode has ended, and give the next ones their first state."""
    if mode is AutoresetMode.DISABLED:
        seeds = [None if episode is None else _environment_seed(seed, episode.number) for episode in playing]
        # Gymnasium's vector environments take one seed each, which the signature of their base leaves out.
        observations, _ = vector.reset(seed=seeds, options={"reset_mask": ended.copy()})  # type: ignore[arg-type]
    else:
        observations, _ = vector.reset(seed=seed)
    rows = as_array(vector.single_observation_space, observations)
    for k in np.flatnonzero(ended):
        episode = playing[k]
        if episode is not None:
            episode.states.append(np.array(rows[k]))
    return observations


def _environment_seed(seed: int, number: int) -> int:
    """A seed for one episode: 31 bits, which every environment takes, and unlike that of any other."""
    return int(np.random.SeedSequence([seed, number, 1]).generate_state(1)[0] >> 1)


def _actions(
    actor: Actor,
    vector: VectorEnv[Any, Any, Any],
    observations: Any,
    playing: list[_Episode | None],
    resetting: Bool[np.ndarray, " envs"],
) -> Any:
    """A batch of actions; environments that nobody watches get any action at all."""
    space = vector.single_action_space
    if actor.batched:
        rngs = [np.random.default_rng(0) if episode is None else episode.rng for episode in playing]
        numbers = [episode.number for episode in playing if episode is not None]
        batch = list(
            iterate(vector.action_space, actor.act(observations, rngs, f"one of episodes {numbers}"))
        )
    else:
        batch = list(iterate(vector.observation_space, observations))
    actions = []
    for k, episode in enumerate(playing):
        if episode is None or resetting[k]:
            actions.append(space.sample())
        else:
            action = batch[k] if actor.batched else actor.act(batch[k], episode.rng, episode.place)
            actions.append(actor.judged(action, episode.place))
    return _batch(space, actions)


def _batch(space: gymnasium.Space[Any], items: list[Any]) -> Any:
    out: Any = create_empty_array(space, n=len(items))
    return concatenate(space, items, out)


def _as_vector(env: Environment, side_by_side: int, num_envs: int | None) -> VectorEnv[Any, Any, Any]:
    """Any kind of environment as a vector of them; those that we make are reset by us."""
    if isinstance(env, VectorEnv):
        if num_envs not in (None, env.num_envs):
            raise UsageError(f"num_envs: the vector environment has {env.num_envs}, not {num_envs}")
        return env
    if isinstance(env, gymnasium.Env):
        if num_envs not in (None, 1):
            raise UsageError("num_envs: one environment cannot run beside itself; give its id or its maker")
        makers: list[Callable[[], gymnasium.Env[Any, Any]]] = [lambda: env]
    elif isinstance(env, str):
        makers = [lambda: _make(env)] * side_by_side
    else:
        makers = [env] * side_by_side
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED)


def _make(name: str) -> gymnasium.Env[Any, Any]:
    try:
        return gymnasium.make(name)
    except gymnasium.error.UnregisteredEnv:
        raise unknown_name("environment", name, gymnasium.registry) from None
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        raise UsageError(f"environment {name!r}: {error}") from None
