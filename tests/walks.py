"""A plugin with problems that are judged by test episodes, as a user would write them: no true values.

The states of `walks` are vectors, those of `screens` small pictures of which three are stacked.
"""

from dataclasses import dataclass

import numpy as np

from adaptive_td import Episodes, UsageError
from adaptive_td.experiments import EXPERIMENTS, Experiment, Settings
from adaptive_td.problems import PROBLEMS

SIDE = 6


@dataclass(frozen=True)
class Walks:
    """A walk on a line of six places that ends at either side; a step is paid the place's number and noise.

    It is cut after `max_steps` steps. γ = 0.5, so that returns are whole seven steps before a cut.
    """

    test_episodes: int = 20
    max_steps: int = 8
    installed: bool = True

    @property
    def name(self) -> str:
        return "walks"

    @property
    def discount(self) -> float:
        return 0.5

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return (2,)

    def episodes(self, count: int, *, seed: int) -> Episodes:
        return self._log(count, seed + 1)

    def test(self) -> Episodes:
        return self._log(self.test_episodes, 0)

    def require(self) -> None:
        if not self.installed:
            raise UsageError('walks needs the extra `shoes`: pip install "adaptive-td[shoes]"')

    def states(self, path: list[int]) -> np.ndarray:
        return np.array([[at, at % 2] for at in path], np.float32)

    def _log(self, count: int, stream: int) -> Episodes:
        paths, rewards, ended = [], [], []
        for k in range(count):
            rng = np.random.default_rng([stream, k])
            path = [2 + int(rng.integers(2))]
            while 0 < path[-1] < SIDE - 1 and len(path) <= self.max_steps:
                path.append(path[-1] + (1 if rng.random() < 0.5 else -1))
            paths.append(self.states(path))
            rewards.append(np.array(path[:-1]) + rng.normal(size=len(path) - 1))
            ended.append(path[-1] in (0, SIDE - 1))
        return Episodes.from_lists(paths, rewards, ended)


EXPERIMENTS["walks"] = Experiment(
    about="a walk that is judged by test episodes",
    presets={
        "quick": Settings(
            problems=("walks",),
            methods=("mc", "mc-ensemble", "td", "adaptive-td", "td-lambda:0.5"),
            models=("mlp:8",),
            sizes=(3, 6),
            seeds=3,
            steps=30,
            batch_size=8,
            epsilon=1e-4,
            snapshot_episodes=0,
        )
    },
)
PROBLEMS["walks"] = Walks  # type: ignore[index]
