"""Memory at scale, measured in a process of its own."""

import subprocess
import sys

import pytest

TEN_MILLION = """
import resource
import numpy as np
import adaptive_td as atd

episodes, steps = 10_000, 1_000
rng = np.random.default_rng(0)
log = atd.Episodes(
    states=rng.standard_normal((episodes * (steps + 1), 4), dtype=np.float32),
    rewards=rng.standard_normal(episodes * steps, dtype=np.float32),
    lengths=np.full(episodes, steps),
    ended=np.ones(episodes, bool),
)
settings = {"discount": 0.99, "key": 0, "training": atd.Training(steps=100), "progress": False}
value = atd.fit(atd.AdaptiveTD(), log, atd.MLP((50, 50)), **settings)
assert len(value.diagnostics.overruled) == log.steps
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


@pytest.mark.slow
def test_ten_million_transitions_of_four_floats_fit_in_two_and_a_half_gibibytes() -> None:
    done = subprocess.run([sys.executable, "-c", TEN_MILLION], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 2.5


FRAMES = """
import resource
import numpy as np
import adaptive_td as atd
from adaptive_td.episodes import aligned_empty

episodes, steps = 200, 1_716  # Pong with the policy that comes with the package
states = aligned_empty((episodes * (steps + 1), 84, 84), np.uint8)
states[:] = np.random.default_rng(0).integers(0, 255, (84, 84), np.uint8)
log = atd.Episodes(
    states=states,
    rewards=np.random.default_rng(0).standard_normal(episodes * steps, dtype=np.float32),
    lengths=np.full(episodes, steps),
    ended=np.ones(episodes, bool),
    stack=4,
)
methods = [atd.MonteCarlo(), atd.MonteCarloEnsemble(), atd.TD(), atd.AdaptiveTD()]
methods += [atd.TDLambda(0.25), atd.TDLambda(0.75)]
fits = [atd.Fit(method, log, atd.NatureCNN(), discount=0.99, key=0) for method in methods]
values = atd.fit_many(fits, training=atd.Training(steps=4, batch_size=32), progress=False)
assert np.isfinite(values[3].interval_over(log)).all()  # looked at with every member
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, states.nbytes)
"""


@pytest.mark.slow
def test_all_methods_together_hold_the_frames_of_two_hundred_episodes_of_pong_once() -> None:
    done = subprocess.run([sys.executable, "-c", FRAMES], capture_output=True, text=True, check=True)
    resident, frames = map(int, done.stdout.split())
    assert resident < 1.3 * frames + 1.5 * 2**30
