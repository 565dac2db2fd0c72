"""The games, and ale-py's vector environment as this project uses it.

Four 84 x 84 grey frames are stacked, each the maximum of the last two of four emulated frames; an episode
starts after up to 30 idle frames, and with a press of the fire button where the game wants one. At the start
of an episode the three older frames of the stack are black.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from adaptive_td.errors import UsageError, unknown_name

GAMES = {
    "breakout": "Breakout",
    "ms_pacman": "Ms. Pac-Man",
    "pong": "Pong",
    "space_invaders": "Space Invaders",
}
"""The paper's games, by the name of the cartridge, with the title of each."""

ACTIONS = {"breakout": 4, "ms_pacman": 9, "pong": 6, "space_invaders": 6}
"""The size of each game's minimal set of actions."""

FRAME_SKIP = 4
STACK = 4
MAX_STEPS = 4_000
"""Where an episode is cut, in steps of the player (a truncation)."""


def game_name(name: str) -> str:
    """The name itself if there is such a game."""
    if name not in GAMES:
        raise unknown_name("game", name, GAMES)
    return name


def ale_version() -> str:
    """The version of ale-py, or an error that names the extra it comes with."""
    return str(_ale().__version__)


def vector_env(game: str, num_envs: int, *, max_steps: int = MAX_STEPS) -> VectorEnv[Any, Any, Any]:
    """`num_envs` games side by side, with raw rewards.

    An episode is truncated after `max_steps` steps of the player. The step after an end resets and is no
    transition, unless the environment is reset by hand before it, as `reset_games` does.
    """
    _ale()
    from ale_py.vector_env import AtariVectorEnv

    env: VectorEnv[Any, Any, Any] = AtariVectorEnv(
        game_name(game),
        num_envs,
        max_num_frames_per_episode=FRAME_SKIP * max_steps,
        frameskip=FRAME_SKIP,
        stack_num=STACK,
        reward_clipping=False,
    )
    return env


def reset_games(env: VectorEnv[Any, Any, Any], which: np.ndarray, seeds: Sequence[int]) -> np.ndarray:
    """Start new episodes in the chosen environments, each from its own seed; all observations."""
    observations, _ = env.reset(
        seed=np.asarray(seeds, np.int64),  # type: ignore[arg-type]  # ale-py takes one for each
        options={"reset_mask": which},
    )
    return np.asarray(observations)


def _ale() -> Any:
    try:
        import ale_py
    except ImportError:
        raise UsageError('Atari games need the extra `atari`: pip install "adaptive-td[atari]"') from None
    return ale_py
