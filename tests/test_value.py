"""Value functions and models: calls, intervals, files, and what is refused."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from jaxtyping import Array

import adaptive_td as atd
from adaptive_td.models import (
    MODELS,
    Model,
    _plain_convolution,
    convolution,
    describe,
    from_description,
    with_intercept,
)

KEY = jax.random.key(0)
SHORT = atd.Training(steps=100, batch_size=64)


def log(shape: tuple[int, ...] = (2,), dtype: type = np.float32) -> atd.Episodes:
    rng = np.random.default_rng(0)
    episodes: list[np.ndarray] = [rng.uniform(0, 9, (13, *shape)).astype(dtype) for _ in range(12)]
    return atd.Episodes.from_lists(episodes, [rng.normal(size=12) for _ in episodes], [True] * 12)


def fit(
    model: object = None, method: object = None, episodes: atd.Episodes | None = None
) -> atd.ValueFunction:
    return atd.fit(
        method or atd.AdaptiveTD(),  # type: ignore[arg-type]
        episodes or log(),
        model or atd.MLP((8,)),
        discount=0.9,
        key=KEY,
        training=atd.Training(steps=3, batch_size=8) if isinstance(model, atd.NatureCNN) else SHORT,
    )


STATES = np.random.default_rng(2).uniform(0, 9, (70, 2)).astype(np.float32)


def test_a_value_function_takes_one_state_or_many_in_any_arrangement() -> None:
    value = fit()
    flat = value(STATES)
    assert flat.shape == (70,)
    assert np.allclose(value(STATES.reshape(7, 10, 2)), flat.reshape(7, 10))
    assert value(STATES[0]) == pytest.approx(flat[0], rel=1e-5)
    assert value.interval(STATES.reshape(7, 10, 2)).lower.shape == (7, 10)
    assert value(np.zeros((0, 2))).shape == (0,)


def test_wider_levels_give_wider_intervals_around_the_same_midpoint() -> None:
    value = fit()
    narrow, wide = value.interval(STATES, level=0.5), value.interval(STATES, level=0.99)
    assert np.all(wide.lower < narrow.lower)
    assert np.all(narrow.upper < wide.upper)
    assert np.allclose(narrow.midpoint, wide.midpoint, atol=1e-3)


def test_states_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(atd.DataError, match="expected numbers of shape"):
        fit()(np.zeros((4, 3)))


def test_methods_without_an_interval_say_which_have_one() -> None:
    with pytest.raises(atd.UsageError, match="TD has no interval; AdaptiveTD"):
        fit(method=atd.TD()).interval(STATES)


def test_diagnostics_tell_where_and_when_td_was_overruled() -> None:
    diagnostics = fit(method=atd.AdaptiveTD(level=0.3)).diagnostics
    assert diagnostics.overruled is not None
    assert diagnostics.history is not None
    assert diagnostics.overruled.shape == (144,)
    assert diagnostics.share_overruled == np.mean(diagnostics.overruled != 0)
    assert diagnostics.history.above.shape == (100,)
    assert 0 < (diagnostics.history.above + diagnostics.history.below).max() <= 1


def test_scaling_is_undone_on_the_way_out() -> None:
    """Rewards in other units and states on another scale change the values by that unit and nothing else."""
    plain, episodes = fit(), log()
    scaled = atd.Episodes(
        states=episodes.states * 1000 - 7,
        rewards=episodes.rewards * 64,
        lengths=episodes.lengths,
        ended=episodes.ended,
    )
    other = fit(episodes=scaled)
    assert np.allclose(other(STATES * 1000 - 7), 64 * plain(STATES), rtol=2e-2, atol=0.2)


def test_without_normalising_networks_see_raw_numbers() -> None:
    value = atd.fit(atd.TD(), log(), atd.MLP((8,)), discount=0.9, key=KEY, training=SHORT, normalize=False)
    assert np.all(np.asarray(value.scaling.center) == 0)
    assert np.all(np.asarray(value.scaling.half) == 1)
    assert float(value.scaling.reward) == 1


@pytest.mark.parametrize(
    ("model", "shape", "dtype"),
    [
        (atd.MLP((8, 4)), (2,), np.float32),
        (atd.MLP(()), (2,), np.float64),
        (atd.MLP((8,)), (3, 4), np.float32),
        (atd.MLP((8,)), (), np.float32),
        (atd.NatureCNN(dense=8), (1, 36, 36), np.uint8),
        (atd.Grid(3.0, (0.0, 0.0), (9.0, 9.0)), (2,), np.float32),
        (atd.Table(9), (), np.int64),
        (atd.Table(9), (1,), np.int32),
        (atd.Linear(), (2,), np.float32),
    ],
    ids=lambda x: "" if isinstance(x, tuple | type) else type(x).__name__,
)
def test_every_model_trains_on_the_states_it_is_for_and_survives_a_file(
    model: Model, shape: tuple[int, ...], dtype: type, tmp_path: Path
) -> None:
    episodes = log(shape, dtype)
    value = fit(model, episodes=episodes)
    value.save(tmp_path / "saved")
    again = atd.ValueFunction.load(tmp_path / "saved")
    assert np.array_equal(again(episodes.states), value(episodes.states))
    assert np.array_equal(again.interval(episodes.states), value.interval(episodes.states))
    assert again.method == value.method
    assert again.diagnostics.share_overruled == value.diagnostics.share_overruled


def test_every_registered_model_can_be_described_in_json() -> None:
    made: list[Model] = [
        atd.MLP((3,)),
        atd.NatureCNN(),
        atd.Grid(1.0, (0.0,), (2.0,)),
        atd.Table(4),
        atd.Linear(),
    ]
    assert {type(m).__name__ for m in made} == set(MODELS)
    for model in made:
        assert from_description(json.loads(json.dumps(describe(model)))) == model


@pytest.mark.parametrize(
    "method",
    [atd.MonteCarlo(), atd.MonteCarloEnsemble(), atd.TD(), atd.NStepTD(2), atd.TDLambda(0.5)],
    ids=repr,
)
def test_every_method_survives_a_file(method: object, tmp_path: Path) -> None:
    value = fit(method=method)
    value.save(tmp_path / "saved")
    again = atd.ValueFunction.load(tmp_path / "saved")
    assert again.method == method
    assert np.array_equal(again(STATES), value(STATES))


def test_an_ensemble_with_nothing_to_learn_survives_a_file(tmp_path: Path) -> None:
    cut = atd.Episodes.from_lists([np.zeros((3, 2))] * 4, [[1.0, 1.0]] * 4, [False] * 4)
    with pytest.warns(UserWarning, match="cut short"):
        value = fit(episodes=cut)
    value.save(tmp_path / "saved")
    assert np.isinf(atd.ValueFunction.load(tmp_path / "saved").interval(STATES).upper).all()


@pytest.mark.parametrize(("kernel", "stride"), [(8, 4), (4, 2), (3, 1), (5, 2)])
def test_convolutions_by_products_are_convolutions_gradients_included(kernel: int, stride: int) -> None:
    keys = jax.random.split(jax.random.key(0), 2)
    x, weight = jax.random.normal(keys[0], (41, 38, 3)), jax.random.normal(keys[1], (5, 3, kernel, kernel))

    def both(convolve: Callable[..., Array]) -> tuple[Array, tuple[Array, Array]]:
        out = convolve(x, weight, stride)
        return out, jax.grad(lambda x, w: jnp.sum(convolve(x, w, stride) ** 3), argnums=(0, 1))(x, weight)

    plain = both(_plain_convolution)
    for ours, theirs in zip(jax.tree.leaves(both(convolution)), jax.tree.leaves(plain), strict=True):
        assert ours.shape == theirs.shape
        scale = float(jnp.abs(theirs).max())
        np.testing.assert_allclose(ours, theirs, atol=1e-5 * scale)


def test_grid_counts_cells_up_so_that_the_last_may_stick_out() -> None:
    grid = atd.Grid(19.0, (0.0, 0.0), (400.0, 300.0))
    assert grid.counts == (22, 16)
    assert grid.cells == 352
    corners = jnp.array([[0.0, 0.0], [399.9, 299.9], [500.0, -5.0]])
    assert [int(grid.index(c)) for c in corners] == [0, 351, 336]


def test_linear_features_of_the_users_own_are_fitted() -> None:
    """Features that hold the answer are weighted as they should be: V = 3 x² on a one-step problem."""
    states = np.linspace(-1, 1, 40)[:, None]
    episodes = atd.Episodes.from_lists(
        [[s, s] for s in states], [[3 * s[0] ** 2] for s in states], [True] * 40
    )
    model = atd.Linear(lambda x: jnp.array([1.0, x[0], x[0] ** 2]), scales_inputs=False)
    training = atd.Training(steps=3000, learning_rate=1e-2)
    value = atd.fit(atd.TD(), episodes, model, discount=0.9, key=KEY, training=training)
    assert np.allclose(value(states), 3 * states[:, 0] ** 2, atol=1e-2)


class Own(eqx.Module):
    """A network as a user would write it."""

    layer: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, key: jax.Array):
        a, b = jax.random.split(key)
        self.layer = eqx.nn.Linear(2, 8, key=a)
        self.out = eqx.nn.Linear(8, 1, key=b)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.out(jnp.tanh(self.layer(x)))


@pytest.mark.parametrize(
    "model", [Own, Own(jax.random.key(5)), lambda key: Own(key)], ids=["class", "module", "function"]
)
def test_a_users_own_module_works_as_a_model(model: object, tmp_path: Path) -> None:
    value = fit(model)
    assert np.isfinite(value(STATES)).all()
    value.save(tmp_path / "saved")
    with pytest.raises(atd.UsageError, match="your own code"):
        atd.ValueFunction.load(tmp_path / "saved")
    assert np.array_equal(atd.ValueFunction.load(tmp_path / "saved", model=model)(STATES), value(STATES))


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        (atd.NatureCNN(), (2,), "NatureCNN needs"),
        (atd.Grid(1.0, (0.0,), (1.0,)), (2,), "1 dimensions"),
        (atd.Table(3), (2,), "one integer"),
        (lambda key: eqx.nn.Linear(2, 2, key=key), (2,), "to one number"),
        (3, (2,), "neither a model"),
    ],
)
def test_models_that_do_not_fit_the_states_are_refused(
    model: object, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(atd.UsageError, match=message):
        fit(model, episodes=log(shape))


def test_the_default_features_are_the_state_and_a_constant() -> None:
    assert with_intercept(jnp.array([2.0, 3.0])).tolist() == [2.0, 3.0, 1.0]


# Files that are not what they should be.


def saved(folder: Path) -> Path:
    fit().save(folder / "v")
    return folder / "v"


def test_saving_never_overwrites(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with pytest.raises(atd.UsageError, match="never overwritten"):
        fit().save(path)


def test_weights_of_another_shape_or_with_nan_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    file = path / "weights.safetensors"
    tensors = safetensors.numpy.load_file(file)
    name = "function.weights.0"
    safetensors.numpy.save_file({**tensors, name: np.zeros((5, 8), np.float32)}, file)
    with pytest.raises(atd.DataError, match=rf"{name} is float32\[5, 8\]"):
        atd.ValueFunction.load(path)
    safetensors.numpy.save_file({**tensors, name: tensors[name] * np.nan}, file)
    with pytest.raises(atd.DataError, match=f"{name} holds a non-finite"):
        atd.ValueFunction.load(path)
    del tensors[name]
    safetensors.numpy.save_file(tensors, file)
    with pytest.raises(atd.DataError, match="only in one"):
        atd.ValueFunction.load(path)


@pytest.mark.parametrize("keep", [0, 4, 100])
def test_truncated_weights_are_refused_with_their_size(tmp_path: Path, keep: int) -> None:
    path = saved(tmp_path)
    file = path / "weights.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(atd.DataError, match=f"{keep} bytes"):
        atd.ValueFunction.load(path)


def test_weights_that_declare_a_huge_shape_are_refused_before_allocation(tmp_path: Path) -> None:
    path = saved(tmp_path)
    header = json.dumps({"x": {"dtype": "F32", "shape": [2**33], "data_offsets": [0, 2**35]}}).encode()
    (path / "weights.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(atd.DataError, match="not a whole safetensors file"):
        atd.ValueFunction.load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not JSON"),
        ("[]", "is missing"),
        ('{"format": 1}', "is missing"),
    ],
)
def test_a_broken_header_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = saved(tmp_path)
    (path / "value.json").write_text(content)
    with pytest.raises(atd.DataError, match=message):
        atd.ValueFunction.load(path)


def test_a_header_of_another_version_or_with_unknown_names_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    header = json.loads((path / "value.json").read_text())
    for change, message in (
        ({"format": 99}, "another version"),
        ({"method": {"name": "pickle.loads"}}, "not one of"),
        ({"model": {"name": "os.system"}}, "unknown model"),
        ({"model": {"name": "MLP", "width": 3}}, "model MLP: .*width"),
    ):
        (path / "value.json").write_text(json.dumps({**header, **change}))
        with pytest.raises(atd.AdaptiveTDError, match=message):
            atd.ValueFunction.load(path)


def test_a_pickle_offered_as_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.pkl").write_bytes(b"\x80\x04N.")
    with pytest.raises(atd.DataError, match="pickles are never read"):
        atd.ValueFunction.load(tmp_path / "model.pkl")
