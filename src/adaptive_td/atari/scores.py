"""Scores of players: the game's own points over whole episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adaptive_td.adapters.policies import BUILT_IN, Policy

from . import qnetwork
from .games import MAX_STEPS, ale_version
from .policies import TEMPERATURE, soft_q
from .rollouts import collect

EPISODES = 30
SEED = 1_000_003
"""Apart from the seeds that anyone trains or collects with by default."""

Progress = Callable[[int, int], None]


def score(
    game: str,
    policy: Policy,
    *,
    episodes: int = EPISODES,
    seed: int = SEED,
    max_steps: int = MAX_STEPS,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Mean and standard deviation of the score, and the mean length in steps."""
    log = collect(game, policy, episodes=episodes, seed=seed, max_steps=max_steps, progress=progress)
    scores = np.add.reduceat(log.rewards.astype(np.float64), log.offsets[:-1])
    return {
        "mean": round(float(scores.mean()), 3),
        "std": round(float(scores.std(ddof=1)), 3) if len(scores) > 1 else None,
        "length": round(float(log.lengths.mean()), 1),
        "truncated": int((~log.ended).sum()),
        "scores": scores.tolist(),
    }


def scores(
    game: str,
    network: qnetwork.QNetwork,
    *,
    temperature: float = TEMPERATURE,
    episodes: int = EPISODES,
    seed: int = SEED,
    max_steps: int = MAX_STEPS,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The scores of a network's soft player and of a random one, as a model card tells them."""
    players = {"soft": soft_q(network, temperature), "random": BUILT_IN["random"]}
    settings = {"episodes": episodes, "seed": seed, "max_steps": max_steps}
    return {
        **settings,
        "temperature": temperature,
        "ale_py": ale_version(),
        **{name: score(game, one, **settings, progress=progress) for name, one in players.items()},  # type: ignore[arg-type]
    }


def beats_random(game: str, measured: dict[str, Any]) -> bool:
    """Twice the random player's mean score; in Pong, whose scores are negative at first, above -10."""
    soft, random = measured["soft"]["mean"], measured["random"]["mean"]
    return bool(soft > -10 if game == "pong" else soft >= 2 * random)
