"""Convolutional networks in the native kernel take the steps that XLA takes."""

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import pytest

import adaptive_td as atd
from adaptive_td import native
from adaptive_td.fitting import Fit, _task
from adaptive_td.jobs import Job, Training, over_states
from adaptive_td.methods import Method
from adaptive_td.native import layouts, library
from adaptive_td.training import train
from adaptive_td.xla import XlaRun

BUILT = native.unavailable() is None
needs_kernel = pytest.mark.skipif(not BUILT, reason=f"native kernel: {native.unavailable()}")
SETS = library.usable() if BUILT else []
ADAM = {"learning_rate": 6.25e-5, "epsilon": 1.5e-4}
"""The paper's for games; with a large epsilon no update hangs on the sign of a gradient that is rounding."""


MODEL = atd.NatureCNN(dense=32)
ENSEMBLE = atd.Ensemble(3, truncation="zero")


class Case(NamedTuple):
    """A log of pictures, a network and a batch."""

    shape: tuple[int, ...] = (36, 40)
    stack: int = 2
    dtype: Any = np.uint8
    dense: int = 32
    batch: int = 8

    def job(self, method: Method, *, steps: int = 2, key: int = 0) -> tuple[Job, Training]:
        rng = np.random.default_rng(3)
        lengths = np.array([9, 1, 30])
        log = atd.Episodes.from_rows(
            rng.integers(0, 255, (sum(lengths) + 3, *self.shape)).astype(self.dtype),
            rng.normal(size=sum(lengths)),
            lengths,
            np.array([True, False, True]),
            stack=self.stack,
        )
        training = Training(steps=steps, batch_size=self.batch, **ADAM)
        model = atd.NatureCNN(dense=self.dense) if len(log.observation_shape) == 3 else atd.MLP((self.dense,))
        one = Fit(method, log, model, discount=0.9, key=key)
        recipe = method.fit(_task(one, training, {}))
        jobs = next(recipe)
        if isinstance(method, atd.AdaptiveTD):
            jobs = recipe.send(train(jobs, training, engine="xla"))
        return jobs[0], training


def gap(a: Any, b: Any) -> float:
    """The largest difference, relative to the largest number of its array."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(float(np.abs(x - y).max() / np.abs(y).max()) for x, y in pairs)


def first_moments(run: native.NativeRun) -> Any:
    return run._layout.rebuilt(layouts.split(run._moments[0], run._parts))


@needs_kernel
@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(batch=1, stack=5),
        Case(shape=(1, 36, 36), stack=1, batch=40, dense=96),
        Case(shape=(3, 47, 61), stack=1, dtype=np.float32, batch=17),
        Case(shape=(84, 84), stack=4, dense=512, batch=32),
    ],
    ids=str,
)
def test_every_instruction_set_takes_the_step_of_xla_for_any_shape(case: Case, instructions: str) -> None:
    """Gradients, through Adam's first moments: the weights alone would hide their size."""
    job, training = case.job(atd.TD())
    run, by_xla = native.NativeRun(job, training, library.load(instructions)), XlaRun([job], training)
    for one in (run, by_xla):
        one.advance(0, 2, 1)
    assert gap(first_moments(run), by_xla._state.optimiser[0].mu) < 1e-4
    np.testing.assert_allclose(run.history(), by_xla.history(), rtol=1e-4, atol=1e-6)


@needs_kernel
@pytest.mark.parametrize(
    "method",
    [
        atd.MonteCarlo(truncation="zero"),
        atd.TD(),
        atd.NStepTD(3),
        atd.TDLambda(0.5),
        atd.AdaptiveTD(uncertainty=ENSEMBLE, level=0.5),
        atd.AdaptiveTD(uncertainty=ENSEMBLE, level=0.5, fallback="endpoint"),
        atd.AdaptiveTD(uncertainty=ENSEMBLE, level=0.5, fallback="return", check="value"),
    ],
    ids=repr,
)
def test_engines_agree_after_ten_updates_of_every_method(method: Any) -> None:
    job, training = well_conditioned(method)
    a, b = (train([job], training, engine=engine)[0] for engine in ("native", "xla"))
    assert difference(a.network, b.network) < 1e-5
    np.testing.assert_allclose(a.history.loss, b.history.loss, rtol=1e-3, atol=1e-5)


def well_conditioned(method: Any) -> tuple[Job, Training]:
    """A job of the first key with which no ReLU and no bound is a matter of rounding.

    Where one is, runs that differ by rounding part for good; with 24,000 inputs of ReLUs in every step one of
    them soon is. XLA alone decides which key it is not with: from weights that are off by ten times the
    rounding of a number, four times over, it must end where it ends.
    """
    for key in range(20):
        job, training = Case().job(method, steps=10, key=key)
        params, rest = eqx.partition(job.network, eqx.is_inexact_array)
        end = train([job], training, engine="xla")[0].network
        rng = np.random.default_rng(key)
        for _ in range(4):
            off = jax.tree.map(lambda x, r=rng: x + x * r.normal(0, 1e-6, x.shape).astype(np.float32), params)
            moved = replace(job, network=eqx.combine(off, rest))
            if difference(train([moved], training, engine="xla")[0].network, end) > 1e-5:
                break
        else:
            return job, training
    raise AssertionError("no key is well conditioned")


def difference(a: Any, b: Any) -> float:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(float(np.abs(x - y).max()) for x, y in pairs)


@needs_kernel
def test_the_same_seed_gives_the_same_bits_for_any_number_of_threads() -> None:
    job, training = Case(batch=39).job(atd.TD(), steps=20)
    results = []
    for threads in (1, 2, 3):
        run = native.NativeRun(job, training)
        for start, stop in ((0, 1), (1, 20)):
            run.advance(start, stop, threads)
        results.append((run._parameters.copy(), run.history().copy(), np.asarray(run.values(threads)[0])))
    for other in results[1:]:
        for mine, theirs in zip(results[0], other, strict=True):
            assert np.array_equal(mine, theirs)


@needs_kernel
def test_frames_stacked_by_the_kernel_train_the_very_network_that_whole_stacks_train() -> None:
    rng = np.random.default_rng(0)
    frames = atd.Episodes.from_rows(
        rng.integers(1, 255, (25, 36, 36), np.uint8),
        rng.normal(size=22),
        np.array([12, 3, 7]),
        np.ones(3, bool),
        stack=4,
    )
    stacked = frames.observe(np.arange(len(frames.states)))
    whole = atd.Episodes.from_rows(stacked, frames.rewards, frames.lengths, frames.ended)
    training = Training(steps=30, batch_size=8, **ADAM)
    a, b = (
        atd.fit(
            atd.TD(), log, atd.NatureCNN(dense=32), discount=0.9, key=0, training=training, engine="native"
        )
        for log in (frames, whole)
    )
    assert np.array_equal(a(stacked), b(stacked))


@needs_kernel
@pytest.mark.parametrize("instructions", SETS)
def test_the_kernel_sees_v_at_every_state_of_a_log_as_xla_does(instructions: str) -> None:
    for job, training in (Case().job(atd.TD()), Case(shape=(70,), stack=1).job(atd.TD())):
        run = native.NativeRun(job, training, library.load(instructions))
        np.testing.assert_allclose(
            run.values(2)[0], over_states(run.networks()[0], job.data), rtol=1e-4, atol=1e-5
        )


def test_parameters_come_back_from_the_kernels_vector_as_they_were() -> None:
    network = atd.NatureCNN(dense=64).build((3, 47, 61), key=jax.random.key(1))
    layout = layouts.layout(network)
    assert isinstance(layout, layouts.ConvolutionalLayout)
    again = layout.rebuilt(layout.parts())
    assert jax.tree.all(jax.tree.map(np.array_equal, again, network))


def test_what_the_kernel_does_not_train_is_named() -> None:
    assert "multiples of 32 units, got [32, 64, 64, 40]" in str(
        layouts.layout(atd.NatureCNN(dense=40).build((1, 36, 36), key=jax.random.key(0)))
    )
