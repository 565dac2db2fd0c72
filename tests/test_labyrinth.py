"""Labyrinth: the rules of the walk, its maps, and its true values by three independent ways."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from jaxtyping import Bool, Float

from adaptive_td.errors import AdaptiveTDError, DataError, UsageError
from adaptive_td.problems import PROBLEMS, Labyrinth, named, true_values, walk
from adaptive_td.problems.fine_grid import solve
from adaptive_td.problems.true_values import PACKAGED, packaged_path

MAPS = [Labyrinth.map(number) for number in range(6)]
every_map = pytest.mark.parametrize("labyrinth", MAPS, ids=lambda labyrinth: labyrinth.name)


def room(*corners: tuple[float, float]) -> Labyrinth:
    """A map whose walls join the corners in a ring."""
    ends = zip(corners, (*corners[1:], corners[0]), strict=True)
    return Labyrinth(tuple((*a, *b) for a, b in ends), ((200.0, 150.0, 40.0),))


def walk_from(
    labyrinth: Labyrinth, starts: Float[np.ndarray, "lanes 2"], angles: Float[np.ndarray, "lanes steps"]
) -> Float[np.ndarray, "lanes steps_and_one 2"]:
    """The states along the given angles, the start first."""
    states, _ = walk.walk_block(labyrinth._arena(), starts.astype(np.float32), angles.astype(np.float32).T)
    return np.concatenate([starts.astype(np.float32)[:, None], np.asarray(states)], axis=1)


def one_step(labyrinth: Labyrinth, start: tuple[float, float], angle: float) -> Float[np.ndarray, "2"]:
    lanes = (jnp.full(walk.LANES, value, jnp.float32) for value in (*start, angle))
    return np.array([float(coordinate[0]) for coordinate in walk.move(labyrinth._arena(), *lanes)])


def side(p: object, q: object, r: object) -> Fraction:
    """Which side of the line from p to q the point r lies on, without rounding."""
    (px, py), (qx, qy), (rx, ry) = ([Fraction(float(c)) for c in point] for point in (p, q, r))  # type: ignore[attr-defined]
    return (qx - px) * (ry - py) - (qy - py) * (rx - px)


# The rules


@every_map
def test_the_first_episodes_of_any_number_are_the_same(labyrinth: Labyrinth) -> None:
    many, few = labyrinth.episodes(150, seed=3), labyrinth.episodes(4, seed=3)
    first = many.select(range(4))
    assert np.array_equal(first.states, few.states)
    assert np.array_equal(first.rewards, few.rewards)
    assert np.array_equal(first.lengths, few.lengths)
    assert not np.array_equal(labyrinth.episodes(4, seed=4).lengths, few.lengths)


@every_map
def test_a_step_is_ten_long_or_not_made_and_is_paid_where_it_leaves(labyrinth: Labyrinth) -> None:
    episodes = labyrinth.episodes(20, seed=0)
    here, there = episodes.observations, episodes.next_observations
    lengths = np.hypot(*(there - here).T)
    assert np.all((lengths == 0) | (np.abs(lengths - 10) < 1e-3))
    assert 0.01 < np.mean(lengths == 0) < 0.2
    assert np.all((here >= 0) & (here <= [400, 300]))
    inside = np.zeros(len(here), bool)
    for x, y, radius in labyrinth.discs:
        inside |= np.hypot(here[:, 0] - x, here[:, 1] - y) <= radius
    assert np.array_equal(episodes.rewards, np.where(inside, np.float32(30), np.float32(0)))


def test_angles_are_uniform_and_independent_from_step_to_step() -> None:
    episodes = MAPS[0].episodes(100, seed=1)
    moves = (episodes.next_observations - episodes.observations).astype(np.float64)
    open_field = np.all((episodes.observations > 11) & (episodes.observations < [389, 289]), axis=1)
    angle = np.arctan2(moves[:, 1], moves[:, 0])
    for wave in (1, 2, 3, 4):
        turn = np.exp(1j * wave * angle)
        assert abs(turn[open_field].mean()) < 4 / np.sqrt(open_field.sum())
        both = open_field[1:] & open_field[:-1] & ~episodes.last[:-1]
        assert abs((turn[1:] * turn[:-1].conj())[both].mean()) < 4 / np.sqrt(both.sum())


def test_lengths_are_geometric_with_mean_2000_and_every_end_is_a_true_one() -> None:
    episodes = MAPS[0].episodes(3000, seed=5)
    assert episodes.ended.all()
    assert abs(episodes.lengths.mean() - 2000) < 4 * 2000 / np.sqrt(3000)
    assert abs(np.mean(episodes.lengths > 4000) - np.exp(-2.0005)) < 4 * np.sqrt(0.135 * 0.865 / 3000)


def test_starts_are_uniform_over_the_map() -> None:
    labyrinth = Labyrinth(MAPS[3].walls, MAPS[3].discs, end_probability=1.0)
    starts = labyrinth.episodes(20_000, seed=2).observations / np.array([400, 300])
    counts = np.histogram2d(starts[:, 0], starts[:, 1], bins=10, range=[[0, 1], [0, 1]])[0]
    assert np.sum((counts - 200) ** 2 / 200) < 99 + 4 * np.sqrt(2 * 99)


def test_an_episode_that_goes_on_too_long_is_truncated_and_not_terminated() -> None:
    labyrinth = Labyrinth((), ((200, 150, 40),), end_probability=1e-4, longest=700)
    episodes = labyrinth.episodes(50, seed=0)
    assert episodes.lengths.max() == 700
    assert np.array_equal(episodes.ended, episodes.lengths < 700)


def test_the_effective_discount_counts_the_chance_to_end() -> None:
    assert MAPS[0].effective_discount == pytest.approx(0.989505, abs=1e-12)


def test_every_map_and_any_number_of_episodes_share_one_compiled_walk() -> None:
    MAPS[0].episodes(2, seed=0)
    compiled = walk.walk_block._cache_size()
    for labyrinth in MAPS:
        labyrinth.episodes(7, seed=0)
    MAPS[1].episodes(300, seed=0)
    assert walk.walk_block._cache_size() == compiled


# Walls

WALL = Labyrinth(((200, 100, 200, 200),), ((50, 50, 10),))


@pytest.mark.parametrize(
    ("start", "angle"),
    [
        ((195, 150), 0.0),  # across
        ((190, 150), 0.0),  # ends on it
        ((195, 100), 0.0),  # through its end
        ((195, 200), 0.0),
        ((200, 95), np.pi / 2),  # along it, into its end
        ((200, 90), np.pi / 2),  # along it, and stops at its end
        ((200, 150), 0.0),  # starts on it
        ((200, 150), np.pi / 2),  # lies on it
        ((195, 95), np.pi / 4),  # aslant through its end
        ((395, 50), 0.0),  # out of the map
        ((50, 4), -np.pi / 2),
    ],
)
def test_a_step_that_touches_a_wall_or_leaves_the_map_is_not_made(
    start: tuple[float, float], angle: float
) -> None:
    assert np.array_equal(one_step(WALL, start, angle), start)


@pytest.mark.parametrize(
    ("start", "angle"),
    [
        ((189.9, 150), 0.0),
        ((195, 99.9), 0.0),
        ((200, 89.9), np.pi / 2),
        ((200, 210.1), np.pi / 2),
        ((200.1, 150), np.pi / 2),
        ((390, 150), 0.0),  # onto the border
        ((194.9, 95.1), np.pi / 4 + 0.01 * np.pi - 0.07),
    ],
)
def test_a_step_that_stays_clear_of_walls_is_made(start: tuple[float, float], angle: float) -> None:
    expected = np.array(start) + 10 * np.array([np.cos(angle), np.sin(angle)])
    assert one_step(WALL, start, angle) == pytest.approx(expected, abs=1e-3)


def inside_triangle(
    points: Float[np.ndarray, "*n 2"], corners: list[tuple[float, float]]
) -> Bool[np.ndarray, "*n"]:
    turns = []
    for (x1, y1), (x2, y2) in zip(corners, corners[1:] + corners[:1], strict=True):
        turns.append((x2 - x1) * (points[..., 1] - y1) - (y2 - y1) * (points[..., 0] - x1))
    return np.all(np.array(turns) > 0, axis=0) | np.all(np.array(turns) < 0, axis=0)


corner = st.tuples(st.floats(0, 400, width=32), st.floats(0, 300, width=32))


@settings(max_examples=40, deadline=None)
@given(st.lists(corner, min_size=3, max_size=3, unique=True), st.integers(0, 2**32 - 1), st.booleans())
def test_nobody_enters_or_leaves_a_closed_room(
    corners: list[tuple[float, float]], seed: int, at_corners: bool
) -> None:
    labyrinth = room(*corners)
    random = np.random.default_rng(seed)
    near = np.array(corners)[random.integers(3, size=walk.LANES)] + random.normal(0, 3, (walk.LANES, 2))
    anywhere = random.uniform(0, 1, (walk.LANES, 2)) * [400, 300]
    starts = np.clip(near if at_corners else anywhere, 0, [400, 300]).astype(np.float32)
    paths = walk_from(labyrinth, starts, random.uniform(0, 2 * np.pi, (walk.LANES, walk.BLOCK)))
    clear = labyrinth.wall_distance(starts) > 0.002
    inside = inside_triangle(paths.astype(np.float64), corners)[clear]
    assert np.all(inside == inside[:, :1])
    assert np.all(labyrinth.wall_distance(paths[clear].reshape(-1, 2)) > 5e-4)


@settings(max_examples=40, deadline=None)
@given(corner, corner.filter(lambda c: 1 < c[0] < 399), st.integers(0, 2**32 - 1))
def test_no_step_meets_a_wall_when_computed_without_rounding(
    one: tuple[float, float], two: tuple[float, float], seed: int
) -> None:
    if one == two:
        return
    labyrinth = Labyrinth(((*one, *two),), ((200, 150, 40),))
    random = np.random.default_rng(seed)
    place = random.choice([0, random.random(), 1], walk.LANES)[:, None]
    target = np.array(one) + place * (np.array(two) - one)
    starts = np.clip(target + random.uniform(-9, 9, (walk.LANES, 2)), 0, [400, 300])
    aimed = np.arctan2(*(target - starts).T[::-1])[:, None] + random.normal(0, 1e-4, (walk.LANES, walk.BLOCK))
    paths = walk_from(labyrinth, starts, aimed)[:, :2]
    for before, after in paths[labyrinth.wall_distance(starts.astype(np.float32)) > 0.002]:
        if np.array_equal(before, after):
            continue
        apart = side(one, two, before) * side(one, two, after) > 0
        assert apart or side(before, after, one) * side(before, after, two) > 0


def test_a_locked_room_keeps_everyone_on_their_side_of_its_corners() -> None:
    episodes = MAPS[3].episodes(100, seed=11)
    within = np.all((episodes.states > [150, 100]) & (episodes.states < [250, 200]), axis=1)
    per_episode = np.split(within, np.cumsum(episodes.lengths + 1)[:-1])
    assert all(flags.all() or not flags.any() for flags in per_episode)
    assert 2 < sum(flags.all() for flags in per_episode) < 20


def test_wall_distance_is_to_the_nearest_point_of_the_nearest_wall() -> None:
    states = np.array([[190.0, 150.0], [200.0, 90.0], [203.0, 204.0], [200.0, 120.0]])
    assert WALL.wall_distance(states) == pytest.approx([10, 10, 5, 0])
    assert np.all(np.isinf(MAPS[0].wall_distance(states)))


def test_no_state_of_the_grid_lies_on_a_wall() -> None:
    labyrinth = Labyrinth(((205, 0, 205, 300), (0, 105, 400, 105)), ((200, 150, 40),))
    grid = labyrinth.grid()
    assert grid.shape == (1200, 2)
    assert labyrinth.wall_distance(grid).min() > 1
    assert np.array_equal(MAPS[5].grid()[:2], np.array([[5, 5], [15, 5]], np.float32))


# Maps as files


def test_a_map_is_read_from_a_small_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "walls = [[10, 0, 10, 20.5]]\ndiscs = [[5, 5, 2]]\nwidth = 20\nheight = 30\ndiscount = 0.9\n"
    )
    labyrinth = Labyrinth.from_toml(path)
    assert labyrinth == Labyrinth(
        ((10, 0, 10, 20.5),), ((5, 5, 2),), "mine", width=20, height=30, discount=0.9
    )
    assert labyrinth.episodes(3, seed=0).observation_shape == (2,)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("discs = [", DataError, "not TOML"),
        ("wals = []\ndiscs = [[1, 1, 1]]", UsageError, "'wals'; did you mean 'walls'"),
        ("walls = []", DataError, "discs: missing"),
        ("discs = []", DataError, "discs: a map needs at least one"),
        ("discs = [[1, 1, 0]]", DataError, r"discs\[0\]: radius must be positive"),
        ("discs = [[1, 1, nan]]", DataError, r"discs\[0\]: must be 3 numbers"),
        ("discs = [[900, 1, 5]]", DataError, r"discs\[0\]: its centre .* outside"),
        (
            "discs = [[1, 1, 1]]\nwalls = [[0, 0, 9, 9], [0, 0, 401, 0]]",
            DataError,
            r"walls\[1\]: x must lie in",
        ),
        ("discs = [[1, 1, 1]]\nwalls = [[0, -1, 1, 1]]", DataError, r"walls\[0\]: y must lie in"),
        ("discs = [[1, 1, 1]]\nwalls = [[5, 5, 5, 5]]", DataError, r"walls\[0\]: has no length"),
        ("discs = [[1, 1, 1]]\nwalls = [[5, 5, 5]]", DataError, r"walls\[0\]: must be 4 numbers"),
        ("discs = [[1, 1, 1]]\nwalls = 'none'", DataError, "walls: must be a list"),
        ("discs = [[1, 1, 1]]\nstep = 0", DataError, "step: must be positive"),
        ("discs = [[1, 1, 1]]\nend_probability = 2", DataError, "end_probability: must lie in"),
        ("discs = [[1, 1, 1]]\ndiscount = 'high'", DataError, "discount: must be a number"),
        ("discs = [[1, 1, 1]]\nname = 3", DataError, "name: must be text"),
        ("discs = [[1, 1, 1]]\nlongest = 2.5", DataError, "longest: must be a whole number"),
    ],
)
def test_a_bad_map_is_refused_by_the_name_of_its_field(
    tmp_path: Path, text: str, kind: type[AdaptiveTDError], message: str
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(kind, match=message) as caught:
        Labyrinth.from_toml(path)
    assert "bad.toml" in str(caught.value)


def test_what_does_not_exist_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        Labyrinth.from_toml(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="0 to 5"):
        Labyrinth.map(6)
    with pytest.raises(UsageError, match="did you mean 'labyrinth-0'"):
        named("labyrinth0")


# True values


def test_every_packaged_file_of_true_values_is_up_to_date_and_precise_enough() -> None:
    problems = [named(name) for name in PROBLEMS if name != "chain"]
    paths = {packaged_path(problem) for problem in problems}  # type: ignore[arg-type]
    assert paths == set(PACKAGED.iterdir())
    for problem in problems:
        truth = problem.true_values()
        assert len(truth.values) == len(problem.grid())
        assert truth.relative_error < 0.005


@every_map
def test_true_values_add_up_to_the_reward_of_the_whole_map(labyrinth: Labyrinth) -> None:
    # A step from s to s' is as likely as one back, so the uniform distribution is stationary, and the mean of
    # v = r + γ' E[v(s')] over the map is that of r / (1 - γ').
    area = sum(np.pi * radius**2 for _, _, radius in labyrinth.discs)
    expected = 30 * area / (400 * 300) / (1 - labyrinth.effective_discount)
    assert labyrinth.true_values().values.mean() == pytest.approx(expected, rel=0.005)


def test_what_can_never_reach_a_disc_is_worth_exactly_nothing() -> None:
    x, y = MAPS[2].grid().T
    truth = MAPS[2].true_values()
    assert np.all(truth.values[y > 150] == 0)
    assert np.all(truth.standard_errors[y > 150] == 0)
    assert np.all(truth.values[(y < 150) & (abs(x - 200) < 100)] > 0)
    x, y = MAPS[3].grid().T
    locked = (abs(x - 200) < 50) & (abs(y - 150) < 50)
    assert np.all(MAPS[3].true_values().values[locked] == 0)
    assert np.all(MAPS[3].true_values().values[~locked] > 0)


@pytest.mark.parametrize(
    ("number", "turn"), [(0, "x"), (0, "y"), (2, "x"), (3, "y"), (4, "xy"), (5, "x")], ids=str
)
def test_symmetric_maps_have_symmetric_values(number: int, turn: str) -> None:
    labyrinth = MAPS[number]
    truth = labyrinth.true_values()
    axes = [{"x": 1, "y": 0}[axis] for axis in turn]
    values, errors = (a.reshape(labyrinth.grid_shape) for a in (truth.values, truth.standard_errors))
    gap = values - np.flip(values, axes)
    error = np.hypot(errors, np.flip(errors, axes))
    z = gap[error > 0] / error[error > 0]
    assert np.abs(z).max() < 5
    assert 0.9 < np.sqrt(np.mean(z**2)) < 1.1


@every_map
def test_rollouts_and_the_fine_grid_agree_away_from_walls(labyrinth: Labyrinth) -> None:
    truth = labyrinth.true_values()
    away = labyrinth.wall_distance(labyrinth.grid()) > 15
    gap = np.abs(truth.values - solve(labyrinth, cells=(1, 3), angles=120))[away]
    assert np.all(gap < 0.005 * truth.values.max() + 4 * truth.standard_errors[away])


def test_true_values_of_a_new_map_are_estimated_once_and_then_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(true_values, "PILOT", 64)
    labyrinth = Labyrinth(((200, 0, 200, 300),), ((100, 150, 60),), discount=0.5)
    estimated = labyrinth.true_values()
    assert np.all(estimated.values[labyrinth.grid()[:, 0] > 200] == 0)
    assert estimated.values.max() == pytest.approx(30 / (1 - labyrinth.effective_discount), rel=1e-3)
    monkeypatch.setattr(true_values, "estimate", None)
    again = Labyrinth(labyrinth.walls, labyrinth.discs, "another name", discount=0.5).true_values()
    assert np.array_equal(again.values, estimated.values)
    assert np.array_equal(again.rollouts, estimated.rollouts)
    assert (again.seed, again.digest) == (estimated.seed, labyrinth.digest())


def test_a_changed_map_has_another_digest() -> None:
    changed = Labyrinth(((200.0, 0.0, 200.0, 221.0),), MAPS[1].discs)
    assert changed.digest() != MAPS[1].digest()
    assert Labyrinth(((200.0, 0.0, 200.0, 220.0),), MAPS[1].discs).digest() == MAPS[1].digest()


def test_a_damaged_file_of_true_values_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken.npz"
    path.write_bytes(packaged_path(MAPS[0]).read_bytes()[:500])
    with pytest.raises(DataError, match="not a file of true values"):
        true_values.TrueValues.load(path)
