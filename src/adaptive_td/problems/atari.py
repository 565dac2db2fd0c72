"""Atari games, as the paper uses them: the player samples from the softmax of a trained Q-network."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

from adaptive_td.atari.games import GAMES, ale_version, game_name
from adaptive_td.atari.policies import player
from adaptive_td.atari.qnetwork import packaged_path
from adaptive_td.atari.rollouts import collect
from adaptive_td.episodes import Episodes
from adaptive_td.errors import UsageError

from .cache import cache_folder
from .kept import Kept

TEST_STREAM = 0
"""The stream of the test episodes; those to learn from, with seed s, are of stream s + 1."""
FORMAT = 1
"""Raised when logs are kept in another way."""


@dataclass(frozen=True)
class Atari:
    """One game, γ = 0.99, four stacked frames of 84 x 84 as a state, raw rewards unless `clipped`.

    Values are judged by the returns of `test_episodes` episodes that no method learns from. An episode is cut
    after `max_steps` steps, which is a truncation. What was played is kept in the user's cache folder
    (`ADAPTIVE_TD_CACHE` names another), so a log is only ever played once.
    """

    game: str = "pong"
    temperature: float = 0.02
    max_steps: int = 4000
    test_episodes: int = 100
    clipped: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be played (nothing is computed)."""
        game_name(self.game)
        for name in ("temperature", "max_steps", "test_episodes"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} must be positive, got {getattr(self, name)}")

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"atari-{self.game}"

    @property
    def title(self) -> str:
        """The game's name as people write it."""
        return GAMES[self.game]

    @property
    def discount(self) -> float:
        """The paper's."""
        return 0.99

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Four frames."""
        return (4, 84, 84)

    def episodes(self, count: int, *, seed: int) -> Episodes:
        """Episodes to learn from; the first k of any number are the same k."""
        return self._stream(seed + 1, count)

    def test(self) -> Episodes:
        """Episodes to judge by, which no seed of `episodes` gives."""
        return self._stream(TEST_STREAM, self.test_episodes)

    def require(self) -> None:
        """Refuse where ale-py is not installed."""
        ale_version()

    def digest(self) -> str:
        """Names the policy that comes with the package, by its file."""
        path = packaged_path(self.game)
        if not path.exists():
            raise UsageError(f"{self.name}: no policy for this game comes with the package")
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def _stream(self, stream: int, count: int) -> Episodes:
        log = Kept(folder=self._folder(stream), play=_Player(self, stream)).episodes(count)
        return replace(log, rewards=log.extras["clipped_reward"]) if self.clipped else log

    def _folder(self, stream: int) -> Path:
        """Named by all that the play depends on; how it is judged is no part of it."""
        made_from = {
            "format": FORMAT,
            "game": self.game,
            "policy": self.digest(),
            "temperature": float(self.temperature),
            "max_steps": self.max_steps,
            "ale_py": ale_version(),
        }
        digest = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()
        return cache_folder("logs") / f"{self.name}-{digest[:16]}" / f"stream-{stream}"


@dataclass(frozen=True)
class _Player:
    """Plays a part of a stream of episodes."""

    problem: Atari
    stream: int

    def __call__(self, first: int, count: int) -> Episodes:
        problem = self.problem
        return collect(
            problem.game,
            player("packaged", problem.game, problem.temperature),
            episodes=count,
            first=first,
            seed=self.stream,
            max_steps=problem.max_steps,
        )
