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
