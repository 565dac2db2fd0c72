"""Native kernel, XLA loop and a reference in double precision take the same steps."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy import stats

import adaptive_td as atd
from adaptive_td import native
from adaptive_td.fitting import Fit, _task, fit_many
from adaptive_td.intervals import Interval
from adaptive_td.jobs import Job, Training, options
from adaptive_td.methods import Method
from adaptive_td.metrics import msve
from adaptive_td.models import Dense
from adaptive_td.native import build, library
from adaptive_td.problems import Labyrinth
from adaptive_td.rows import counter_bits
from adaptive_td.training import train
from adaptive_td.value import ValueFunction
from adaptive_td.xla import XlaRun

BUILT = native.unavailable() is None
needs_kernel = pytest.mark.skipif(not BUILT, reason=f"native kernel: {native.unavailable()}")
SETS = library.usable() if BUILT else []
SHORT = Training(steps=100, batch_size=16)
FULL = Training(steps=5000)
SMALL = atd.MLP((8, 8))

METHODS: list[Method] = [
    atd.MonteCarlo(),
    atd.MonteCarlo(truncation="bootstrap"),
    atd.MonteCarloEnsemble(),
    atd.TD(),
    atd.NStepTD(3),
    atd.TDLambda(0.5),
    atd.TDLambda(1.0),
    *(
        atd.AdaptiveTD(level=0.5, fallback=fallback, check=check)
        for fallback in ("midpoint", "endpoint", "return")
        for check in ("sample", "value")
    ),
]


def log(features: int = 2, *, episodes: int = 12, length: int = 30, dtype: Any = np.float32) -> atd.Episodes:
    rng = np.random.default_rng(features)
    shape = (length + 1, features)
    states = [rng.uniform(0, 200, shape).astype(dtype) for _ in range(episodes)]
    rewards = [rng.normal(size=length).astype(np.float32) for _ in range(episodes)]
    return atd.Episodes.from_lists(states, rewards, [k % 3 > 0 for k in range(episodes)])


def jobs_of(
    method: Method, model: Any = SMALL, training: Training = SHORT, *, key: int = 0, **of_log: Any
) -> list[Job]:
    """The networks a method trains; of Adaptive TD the second stage, the first being trained here."""
    one = Fit(method, log(**of_log), model, discount=0.9, key=key)
    recipe = method.fit(_task(one, training, {}))
    jobs = next(recipe)
    if isinstance(method, atd.AdaptiveTD):
        jobs = recipe.send(train(jobs, training, engine="xla"))
    return jobs


class Reference:
    """The update in NumPy and double precision, one line for each line of the contract."""

    def __init__(self, job: Job, training: Training):
        dense: Any = getattr(job.network, "network", job.network)
        self.job, self.training, self.rows = job, training, job.rows
        self.w = [np.asarray(x, np.float64) for x in (*dense.weights, *dense.biases)]
        self.m, self.v = ([np.zeros_like(x) for x in self.w] for _ in range(2))
        scaling, states = job.data.scaling, np.asarray(job.data.states, np.float32)
        scaled = (states - np.asarray(scaling.center)) / np.asarray(scaling.half)
        self.states = scaled.reshape(len(states), -1).astype(np.float64)
        self.margin = np.inf
        """The least distance of anything to a threshold, relative to its scale: below it rounding decides."""

    def layers(self, x: np.ndarray, *, watch: bool = False) -> list[np.ndarray]:
        outputs, depth = [x], len(self.w) // 2
        for k in range(depth):
            x = x @ self.w[k] + self.w[depth + k]
            if k < depth - 1:
                if watch:
                    self.margin = min(self.margin, np.abs(x).min())
                x = np.maximum(x, 0)
            outputs.append(x)
        return outputs

    def values(self) -> np.ndarray:
        return self.layers(self.states)[-1][:, 0]

    def step(self, number: int) -> float:
        job, form = self.job, options(self.job, self.training)
        if job.refresh is not None and number % job.refresh.every == 0:
            self.rows = job.refresh.update(job.data, self.rows, jnp.asarray(self.values(), jnp.float32))
        rows, lanes = self.rows, np.arange(form.batch, dtype=np.uint32)
        bits = np.asarray(counter_bits(job.seed, jnp.asarray(number), jnp.asarray(lanes)))
        slots = lanes if form.whole else bits % np.uint32(rows.drawable)
        i = slots if rows.draws is None else np.asarray(rows.draws)[slots]
        column = [np.asarray(x, np.float64)[i] for x in (rows.rewards, rows.discounts, rows.fallback)]
        none = np.full(len(rows.rewards), np.inf)
        lower, upper = (np.asarray(x, np.float64)[i] for x in rows.bounds or (-none, none))
        target = column[0]
        if form.bootstraps:
            target = target + column[1] * self.layers(self.states[np.asarray(rows.next_index)[i]])[-1][:, 0]
        x = self.layers(self.states[np.asarray(job.data.index)[i]], watch=True)
        value = x[-1][:, 0]
        tested = value if form.tests == "value" else target
        self.margin = min(self.margin, np.abs(tested - lower).min(), np.abs(tested - upper).min())
        with np.errstate(invalid="ignore"):
            other = {"midpoint": (lower + upper) / 2, "endpoint": np.clip(target, lower, upper)}
        y = np.where((lower < tested) & (tested < upper), target, other.get(form.fallback, column[2]))
        self.descend(x, (2 * (value - y) / form.batch)[:, None], number + 1)
        return float(np.mean((value - y) ** 2))

    def descend(self, x: list[np.ndarray], delta: np.ndarray, t: int) -> None:
        depth, gradient = len(self.w) // 2, list(self.w)
        for k in reversed(range(depth)):
            gradient[k], gradient[depth + k] = x[k].T @ delta, delta.sum(0)
            delta = (delta @ self.w[k].T) * (x[k] > 0)
        for k, g in enumerate(gradient):
            self.m[k] = 0.9 * self.m[k] + 0.1 * g
            self.v[k] = 0.999 * self.v[k] + 0.001 * g**2
            root = np.sqrt(self.v[k] / (1 - 0.999**t)) + self.training.epsilon
            self.w[k] = self.w[k] - self.training.learning_rate * (self.m[k] / (1 - 0.9**t)) / root


def flat(network: Any) -> np.ndarray:
    dense = getattr(network, "network", network)
    return np.concatenate([np.ravel(x) for x in (*dense.weights, *dense.biases)])


def native_run(job: Job, training: Training, instructions: str | None = None) -> native.NativeRun:
    return native.NativeRun(job, training, library.load(instructions) if instructions else None)


def well_conditioned(method: Method) -> list[tuple[Job, Reference, list[float]]]:
    """Jobs of the first key with which no ReLU and no bound is a matter of rounding.

    Where an input of a ReLU is within rounding of 0, or a target of its bound, engines may take different
    sides and part for good. The reference alone decides which key that is, before any engine has run.
    """
    for key in range(20):
        cases = [(job, Reference(job, SHORT)) for job in jobs_of(method, key=key)]
        losses = [[reference.step(k) for k in range(100)] for _, reference in cases]
        if all(reference.margin > 2e-6 for _, reference in cases):
            return [(job, reference, own) for (job, reference), own in zip(cases, losses, strict=True)]
    raise AssertionError("no key is well conditioned")


@needs_kernel
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_engines_agree_with_the_reference_after_100_updates_of_every_method(method: Method) -> None:
    for job, reference, losses in well_conditioned(method):
        expected = np.concatenate([np.ravel(x) for x in reference.w])
        trained = {engine: train([job], SHORT, engine=engine)[0] for engine in ("native", "xla")}
        for result in trained.values():
            assert np.allclose(flat(result.network), expected, rtol=0, atol=1e-5)
            assert np.allclose(result.history.loss, losses, rtol=1e-4, atol=1e-6)
        for name in ("below", "above"):
            a, b = (getattr(result.history, name) for result in trained.values())
            assert np.allclose(a, b, atol=1e-6)


@needs_kernel
@pytest.mark.parametrize("method", [atd.MonteCarlo(), atd.TD()], ids=repr)
def test_engines_agree_after_100_updates_of_the_papers_network(method: Method) -> None:
    training = Training(steps=100)
    job = jobs_of(method, atd.MLP((50, 50)), training, episodes=100, length=100)[0]
    a, b = (flat(train([job], training, engine=engine)[0].network) for engine in ("native", "xla"))
    assert np.abs(a - b).max() < 1e-5


@needs_kernel
@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("lam", [0.25, 0.9])
def test_windows_of_lambda_returns_are_those_of_xla(lam: float, instructions: str) -> None:
    training = Training(steps=20, batch_size=8)
    job = jobs_of(atd.TDLambda(lam), training=training, length=7, episodes=200)[0]
    assert job.window > 1
    run, by_xla = native_run(job, training, instructions), XlaRun([job], training)
    for one in (run, by_xla):
        one.advance(0, 20, 1)
    assert np.allclose(run.history(), by_xla.history(), rtol=1e-4, atol=1e-6)
    assert np.allclose(flat(run.networks()[0]), flat(by_xla.networks()[0]), rtol=0, atol=1e-5)


@needs_kernel
@pytest.mark.parametrize("instructions", SETS)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    hidden=st.lists(st.integers(1, 300), max_size=4).map(tuple),
    batch=st.integers(1, 300),
    features=st.integers(1, 70),
    bounded=st.booleans(),
    threads=st.integers(1, 5),
)
def test_every_instruction_set_takes_the_step_of_the_reference_for_any_shape(
    instructions: str, hidden: tuple[int, ...], batch: int, features: int, bounded: bool, threads: int
) -> None:
    training = Training(steps=2, batch_size=batch)
    job = jobs_of(atd.TD(), atd.MLP(hidden), training, features=features)[0]
    if bounded:
        edge = jnp.abs(job.rows.rewards)
        bounds = Interval(-edge, edge)
        job = Job(**{**vars(job), "rows": job.rows._replace(bounds=bounds), "fallback": "endpoint"})
    reference, run = Reference(job, training), native_run(job, training, instructions)
    losses = [reference.step(0), reference.step(1)]
    assume(reference.margin > 1e-6)
    run.advance(0, 2, threads)
    assert np.allclose(run.history()[0, [0, 50], 0], losses, rtol=1e-4, atol=1e-6)
    moments = np.concatenate([np.ravel(x) for x in reference.m])
    layers = [np.vstack([w, b]).ravel() for w, b in zip(*halves(reference.m), strict=True)]
    first = run._moments[0][: len(moments)]
    assert np.allclose(first, np.concatenate(layers), rtol=0, atol=1e-5 * max(1, np.abs(moments).max()))


@needs_kernel
@pytest.mark.parametrize("instructions", SETS)
def test_lanes_beyond_a_small_batch_stay_out_of_it_however_long_it_trains(instructions: str) -> None:
    """States of a small range are scaled up: lanes that nobody fills must not be, step after step."""
    rng = np.random.default_rng(0)
    states = rng.uniform(-1e-3, 1e-3, (38, 2)).astype(np.float32)
    log = atd.Episodes.from_rows(states, rng.normal(size=37), np.array([37]), np.array([True]))
    training = Training(steps=200, batch_size=512)
    one = Fit(atd.MonteCarlo(), log, atd.MLP((8,)), discount=0.9, key=0)
    job = next(atd.MonteCarlo().fit(_task(one, training, {})))[0]
    run = native_run(job, training, instructions)
    run.advance(0, 200, 1)
    assert run.diverged_at().tolist() == [-1]
    by_xla = train([job], training, engine="xla")[0]
    assert np.allclose(run.history()[0, -1, 0] / run.history()[0, -1, 3], by_xla.history.loss[-1], rtol=1e-3)


def halves(arrays: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    depth = len(arrays) // 2
    return arrays[:depth], arrays[depth:]


@needs_kernel
@pytest.mark.parametrize("batch", [1, 129, 300])
def test_the_same_seed_gives_the_same_bits_for_any_number_of_threads_and_chunks(batch: int) -> None:
    training = Training(steps=40, batch_size=batch)
    job = jobs_of(atd.TD(), atd.MLP((30, 20)), training)[0]
    results = []
    for threads in (1, 2, 3, 8):
        run = native_run(job, training)
        for start, stop in ((0, 1), (1, 17), (17, 40)):
            run.advance(start, stop, threads)
        results.append((flat(run.networks()[0]), run.history().copy()))
    for parameters, history in results[1:]:
        assert np.array_equal(parameters, results[0][0])
        assert np.array_equal(history, results[0][1])


@needs_kernel
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32])
def test_states_of_any_kind_and_shape_are_read_as_xla_reads_them(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    states = [rng.integers(0, 255, (31, 3, 4)).astype(dtype) for _ in range(4)]
    episodes = atd.Episodes.from_lists(states, [rng.normal(size=30) for _ in range(4)], [True] * 4)
    a, b = (
        atd.fit(atd.TD(), episodes, SMALL, discount=0.9, key=0, training=SHORT, engine=engine)(states[0])
        for engine in ("native", "xla")
    )
    assert np.allclose(a, b, atol=1e-4)


@needs_kernel
def test_a_log_smaller_than_a_batch_is_used_whole() -> None:
    training = Training(steps=50, batch_size=1000)
    job = jobs_of(atd.TD(), training=training)[0]
    a, b = (flat(train([job], training, engine=engine)[0].network) for engine in ("native", "xla"))
    assert np.allclose(a, b, atol=1e-5)


@needs_kernel
@pytest.mark.parametrize("learning_rate", [1e12, 1e19, 3e38])
def test_divergence_is_reported_at_the_same_step(learning_rate: float) -> None:
    training = Training(steps=300, batch_size=16, learning_rate=learning_rate)
    job = jobs_of(atd.TD(), training=Training(steps=1, batch_size=16))[0]
    a, b = (train([job], training, engine=engine)[0].diverged_at for engine in ("native", "xla"))
    assert a is not None
    assert a == b


@needs_kernel
def test_one_that_diverges_leaves_its_neighbours_as_they_are() -> None:
    jobs = jobs_of(atd.MonteCarloEnsemble())
    broken = jobs[1].network
    assert isinstance(broken, Dense)
    spoilt = Dense([w * jnp.inf for w in broken.weights], broken.biases)
    mixed = [jobs[0], Job(**{**vars(jobs[1]), "network": spoilt}), jobs[2]]
    alone, beside = train(jobs, SHORT, engine="native"), train(mixed, SHORT, engine="native")
    assert [t.diverged_at for t in beside] == [None, 0, None]
    for k in (0, 2):
        assert np.array_equal(flat(alone[k].network), flat(beside[k].network))


@needs_kernel
def test_both_engines_draw_the_same_indices() -> None:
    for seed, step in (((0, 0), 0), ((7, 2**32 - 1), 12345), ((2**31, 5), 2**31 - 1)):
        bits = np.zeros(4096, np.uint32)
        functions = native.kernel().functions
        functions.adaptive_td_bits((ctypes.c_uint32 * 2)(*seed), step, 4096, bits.ctypes.data)
        lanes = jnp.arange(4096, dtype=jnp.uint32)
        ours = counter_bits(jnp.asarray(seed, jnp.uint32), jnp.asarray(step, jnp.int32), lanes)
        assert np.array_equal(bits, np.asarray(ours))


@pytest.mark.parametrize("count", [7, 1000, 200_000])
@pytest.mark.parametrize("along", ["lanes", "steps"])
def test_indices_are_uniform(count: int, along: str) -> None:
    seed, many = jnp.asarray([3, 4], jnp.uint32), 1 << 17
    first = jnp.zeros(1, jnp.uint32)
    if along == "lanes":
        bits = counter_bits(seed, jnp.asarray(9), jnp.arange(many, dtype=jnp.uint32))
    else:
        bits = jax.vmap(lambda step: counter_bits(seed, step, first))(jnp.arange(many))
    slots = np.ravel(np.asarray(bits) % np.uint32(count))
    observed = np.bincount(slots * min(count, 100) // count, minlength=min(count, 100))
    sizes = np.bincount(np.arange(count) * min(count, 100) // count)
    assert stats.chisquare(observed, len(slots) * sizes / count).pvalue > 1e-3


def test_forcing_the_kernel_where_it_does_not_apply_says_why() -> None:
    grid = atd.Grid(50.0, (0.0, 0.0), (200.0, 200.0))
    with pytest.raises(atd.UsageError, match=r"dense ReLU networks"):
        atd.fit(atd.TD(), log(), grid, discount=0.9, key=0, training=SHORT, engine="native")


def test_without_a_built_kernel_xla_serves_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(library.FOLDER, str(tmp_path))
    library.best.cache_clear()
    try:
        assert atd.engine_report().engine == "xla"
        assert "not built" in atd.engine_report().reason
        atd.fit(atd.TD(), log(), SMALL, discount=0.9, key=0, training=SHORT)
        with pytest.raises(atd.UsageError, match="not built"):
            atd.fit(atd.TD(), log(), SMALL, discount=0.9, key=0, training=SHORT, engine="native")
    finally:
        library.best.cache_clear()


@needs_kernel
def test_a_kernel_built_from_another_source_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "digest", lambda: "another")
    with pytest.raises(library.Unavailable, match="another version"):
        library.load(build.BASELINE)


@needs_kernel
def test_rows_that_point_outside_the_log_are_refused() -> None:
    job = jobs_of(atd.TD())[0]
    rows = job.rows._replace(next_index=job.rows.next_index + 10**6)
    refused = []  # what is kept alive must not be shared unchecked with the next who asks, nor half written
    for _ in range(2):
        with pytest.raises(atd.UsageError, match="rows must refer to states") as error:
            native_run(Job(**{**vars(job), "rows": rows}), SHORT)
        refused.append(error)


@needs_kernel
def test_the_engine_report_names_the_instruction_set() -> None:
    assert atd.engine_report().engine == "native"
    assert SETS[0] in atd.engine_report().reason


SANITIZED = """
import numpy as np, adaptive_td as atd, sys
sys.path.insert(0, sys.argv[1])
import test_engines as t
for hidden, batch, features in [((), 1, 1), ((1,), 7, 3), ((50, 50), 129, 2), ((7, 300, 2, 33), 300, 70)]:
    training = t.Training(steps=3, batch_size=batch)
    for method in (atd.TD(), atd.MonteCarlo()):
        job = t.jobs_of(method, atd.MLP(hidden), training, features=features)[0]
        for threads in (1, 3):
            t.native_run(job, training, "baseline").advance(0, 3, threads)
import test_convolutions as c
for case in (c.Case(batch=1), c.Case(batch=37, stack=3), c.Case((3, 37, 45), stack=1, dtype=np.float32)):
    job, training = case.job(atd.TD())
    for threads in (1, 3):
        run = t.native_run(job, training, "baseline")
        run.advance(0, 2, threads)
        run.values(threads)
print("clean")
"""


@pytest.mark.skipif(build.compiler() is None or sys.platform != "linux", reason="needs GCC on Linux")
def test_the_kernel_is_clean_under_address_and_undefined_behaviour_sanitizers(tmp_path: Path) -> None:
    build.build(tmp_path, sanitize=True, only=[build.BASELINE])
    found = [
        subprocess.run(
            [*(build.compiler() or []), f"-print-file-name={name}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    environment = {
        **os.environ,
        library.FOLDER: str(tmp_path),
        "LD_PRELOAD": " ".join(found),
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    done = subprocess.run(
        [sys.executable, "-c", SANITIZED, str(Path(__file__).parent)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "clean", done.stderr[-3000:]


def test_stacked_networks_of_the_xla_engine_agree_with_single_ones() -> None:
    jobs = jobs_of(atd.MonteCarloEnsemble())
    stacked = XlaRun(jobs[:1] * 2, SHORT)
    single = XlaRun(jobs[:1], SHORT)
    for run in (stacked, single):
        run.advance(0, 20, 1)
    assert np.allclose(flat(stacked.networks()[1]), flat(single.networks()[0]), atol=1e-5)


@needs_kernel
@pytest.mark.slow
@pytest.mark.parametrize("method", [atd.MonteCarlo(), atd.TD()], ids=repr)
def test_after_full_training_on_a_labyrinth_the_engines_err_alike(method: Method) -> None:
    """Runs that differ by rounding part, so seeds are compared in pairs: log MSVE, native less XLA.

    The second assertion is what the first rests on: a difference of a quarter would show.
    """
    labyrinth, keys = Labyrinth.map(1), range(24)
    episodes, truth = labyrinth.episodes(20, seed=0), labyrinth.true_values().values
    fits = [Fit(method, episodes, atd.MLP((50, 50)), discount=labyrinth.discount, key=key) for key in keys]
    errors = {}
    for engine in ("native", "xla"):
        fitted = fit_many(fits, training=FULL, engine=engine)
        values = [np.asarray(value(labyrinth.grid())) for value in fitted if isinstance(value, ValueFunction)]
        assert len(values) == len(fits)
        errors[engine] = np.log([msve(v, truth) for v in values])
    difference = errors["native"] - errors["xla"]
    assert np.any(difference != 0)
    assert stats.ttest_1samp(difference, 0).pvalue > 0.01
    assert stats.sem(difference) < np.log(1.25) / 3
