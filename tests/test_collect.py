"""Rollouts: every transition is a real one, no episode is preferred, and a seed settles all of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

from adaptive_td import UsageError
from adaptive_td.adapters.gym import collect, load_policy
from adaptive_td.adapters.spaces import as_array, feature_names
from logs import assert_same, quick


class Clock(gymnasium.Env[Any, Any]):
    """Observes where it started and how many steps ago; stops after a random time, or is cut at 4 steps."""

    observation_space = spaces.Box(0, 100, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int | None = None):
        self.length, self.closed = length, False

    def observe(self) -> np.ndarray:
        """Start and time."""
        return np.array([self.start, self.time], np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Draw the start and the length."""
        super().reset(seed=seed)
        self.start, self.time = float(self.np_random.uniform(0, 100)), 0
        self.stop = self.length or int(self.np_random.integers(1, 8))
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The reward is the time at which the step is taken, and 100 times the action."""
        self.time += 1
        stops = self.time == self.stop
        reward = self.time - 1 + 100 * float(action)
        return self.observe(), reward, stops, self.time == 4 and not stops and self.length is None, {}

    def close(self) -> None:
        """Remember it."""
        self.closed = True


def coin(observation: np.ndarray, rng: np.random.Generator) -> int:
    """A random policy."""
    return int(rng.integers(2))


def never(observation: np.ndarray) -> int:
    """Always 0."""
    return 0


class Many:
    """A policy for many observations at once."""

    batched = True

    def __call__(self, observations: np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
        """Random, one generator for each."""
        return np.array([rng.integers(2) for rng in rngs])


@pytest.mark.parametrize("num_envs", [2, 3, 20, 50])
@pytest.mark.parametrize("policy", [coin, Many()])
def test_a_seed_gives_the_same_episodes_however_many_run_side_by_side(
    num_envs: int, policy: Callable[..., Any]
) -> None:
    alone = collect(Clock, coin, episodes=20, seed=3, num_envs=1)
    assert_same(collect(Clock, policy, episodes=20, seed=3, num_envs=num_envs), alone)


def test_a_generator_is_given_by_place_or_by_name() -> None:
    def named(observation: np.ndarray, *, rng: np.random.Generator) -> int:
        return coin(observation, rng)

    by_place = collect(Clock, lambda observation, chance: coin(observation, chance), episodes=5)
    assert_same(collect(Clock, named, episodes=5), by_place)


def test_seeds_share_no_episode() -> None:
    left, right = (collect(Clock, coin, episodes=20, seed=seed) for seed in (0, 1))
    assert not set(left.states[:, 0]) & set(right.states[:, 0])


@pytest.mark.parametrize("mode", AutoresetMode)
def test_every_transition_is_one_of_the_environment(mode: AutoresetMode) -> None:
    vector = SyncVectorEnv([Clock] * 3, autoreset_mode=mode)
    episodes = collect(vector, never, episodes=30)
    assert len(episodes) == 30
    assert np.array_equal(episodes.rewards, episodes.step)
    assert np.array_equal(episodes.observations[:, 1], episodes.step)
    assert np.array_equal(episodes.next_observations[:, 1], episodes.step + 1)
    assert np.array_equal(episodes.observations[:, 0], episodes.next_observations[:, 0])
    assert len(set(episodes.states[:, 0])) == 30
    assert not episodes.ended[episodes.lengths == 4].all()
    assert episodes.ended[episodes.lengths < 4].all()
    assert episodes.lengths.max() == 4


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_short_episodes_are_not_preferred(mode: AutoresetMode) -> None:
    vector = SyncVectorEnv([lambda: Clock(1), lambda: Clock(9)], autoreset_mode=mode)
    assert sorted(collect(vector, never, episodes=10).lengths) == [1] * 5 + [9] * 5


def test_a_limit_truncates() -> None:
    episodes = collect(lambda: Clock(9), never, episodes=3, max_steps=5)
    assert episodes.lengths.tolist() == [5, 5, 5]
    assert not episodes.ended.any()
    assert episodes.states[-1, 1] == 5


def test_a_limit_is_for_environments_that_we_reset() -> None:
    with pytest.raises(UsageError, match="max_steps: an environment that resets itself"):
        collect(SyncVectorEnv([Clock]), never, max_steps=5)


def test_a_real_environment_by_its_name() -> None:
    episodes = collect("CartPole-v1", load_policy("random"), episodes=5, seed=1)
    assert episodes.ended.all()
    again = collect(gymnasium.make("CartPole-v1"), load_policy("random"), episodes=5, seed=1)
    assert_same(again, episodes)
    fast = collect(gymnasium.make_vec("CartPole-v1", num_envs=2), load_policy("random"), episodes=5, seed=1)
    assert len(fast) == 5


def test_discrete_observations_stay_integers() -> None:
    episodes = collect("FrozenLake-v1", load_policy("random"), episodes=3)
    assert episodes.observation_shape == ()
    assert episodes.states.dtype.kind == "i"


def test_what_we_make_we_close_and_what_is_yours_we_leave() -> None:
    made: list[Clock] = []

    def make() -> Clock:
        made.append(Clock())
        return made[-1]

    collect(make, never, episodes=2)
    assert [env.closed for env in made] == [True]
    yours = Clock()
    collect(yours, never, episodes=2)
    assert not yours.closed


def test_progress_is_reported() -> None:
    seen: list[tuple[int, int]] = []
    collect(Clock, never, episodes=3, num_envs=2, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_an_exception_of_the_policy_says_where_it_was_raised() -> None:
    def stumble(observation: np.ndarray) -> int:
        if observation[1] == 2:
            raise ZeroDivisionError("mine")
        return 0

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        collect(lambda: Clock(9), stumble, episodes=2)
    assert caught.value.__notes__ == ["raised by the policy in episode 0, step 2"]


@pytest.mark.parametrize("action", [7, -1, 0.5, "left", None, [0, 0]])
def test_an_action_that_the_environment_does_not_know_is_refused(action: object) -> None:
    with pytest.raises(UsageError, match=r"policy: action .* in episode 0, step 0 is not in Discrete\(2\)"):
        collect(Clock, lambda observation: action, episodes=1)


def test_a_box_takes_actions_of_any_precision_but_not_of_any_size() -> None:
    episodes = collect("Pendulum-v1", lambda observation: [0.5], episodes=1, max_steps=3)
    assert len(episodes.rewards) == 3
    with pytest.raises(UsageError, match=r"policy: action .* is not in Box"):
        collect("Pendulum-v1", lambda observation: [99.0], episodes=1)
    with pytest.raises(UsageError, match=r"policy: action .* is not in Box"):
        collect("Pendulum-v1", lambda observation: 0.5, episodes=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"episodes": 0}, "episodes: must be at least 1"),
        ({"seed": -1}, "seed: must not be negative"),
        ({"max_steps": 0}, "max_steps: must be at least 1"),
        ({"num_envs": 0}, "num_envs: must be at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        collect(Clock, never, **options)  # type: ignore[arg-type]


def test_environments_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'"):
        collect("CartPol-v1", never)
    with pytest.raises(UsageError, match="environment 'nowhere:Env-v0': "):
        collect("nowhere:Env-v0", never)
    with pytest.raises(UsageError, match="num_envs: one environment cannot run beside itself"):
        collect(Clock(), never, num_envs=2)
    with pytest.raises(UsageError, match="num_envs: the vector environment has 1, not 2"):
        collect(SyncVectorEnv([Clock]), never, num_envs=2)


def test_policies_are_found_by_name(tmp_path: Path) -> None:
    assert collect(Clock, load_policy("zero"), episodes=2).rewards[0] == 0
    file = tmp_path / "mine.py"
    file.write_text("def one(observation):\n    return 1\n")
    assert collect(Clock, load_policy(f"{file}:one"), episodes=2).rewards[0] == 100
    assert load_policy("operator:itemgetter") is __import__("operator").itemgetter


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("randm", "unknown policy 'randm'; did you mean 'random'?"),
        ("json:dmps", "unknown function in json 'dmps'; did you mean 'dumps'?"),
        ("no_such_module:f", "policy: cannot import 'no_such_module'"),
        ("no_such_file.py:f", "unknown policy file 'no_such_file.py'"),
    ],
)
def test_a_policy_that_is_not_there_gets_the_nearest_match(spec: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_policy(spec)
    assert str(caught.value).startswith(message)
    assert caught.value.exit_code == 2


PARTS = st.sampled_from(
    [
        spaces.Box(-1, 1, (2, 2), np.float32),
        spaces.Box(0, 9, (), np.float64),
        spaces.Discrete(3, start=2),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(3),
    ]
)
NESTED = st.recursive(
    PARTS,
    lambda inner: (
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(spaces.Dict)
        | st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple)
    ),
    max_leaves=4,
)


@quick
@given(NESTED, st.integers(1, 4))
def test_nested_observations_are_laid_out_as_gymnasium_does(space: spaces.Space[Any], count: int) -> None:
    space.seed(0)
    samples = [space.sample() for _ in range(count)]
    out: Any = gymnasium.vector.utils.create_empty_array(space, n=count)
    rows = as_array(space, gymnasium.vector.utils.concatenate(space, samples, out))
    if isinstance(space, spaces.Dict | spaces.Tuple):
        expected = np.stack([np.asarray(spaces.flatten(space, sample)) for sample in samples])
        assert np.array_equal(rows, expected)
        assert len(feature_names(space)) == rows.shape[1]
    else:
        assert np.array_equal(rows, np.stack(samples))


def test_features_have_names() -> None:
    arm = spaces.Dict({"angle": spaces.Box(-1, 1, (2,)), "gear": spaces.Discrete(2)})
    names = ["arm.angle[0]", "arm.angle[1]", "arm.gear=0", "arm.gear=1", "speed"]
    assert feature_names(spaces.Dict({"arm": arm, "speed": spaces.Box(0, 1, ())})) == names


def test_dict_observations_are_collected_as_vectors() -> None:
    class Both(gymnasium.ObservationWrapper[Any, Any, Any]):
        def __init__(self) -> None:
            super().__init__(Clock())
            self.observation_space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(0, 100, (2,))})

        def observation(self, observation: np.ndarray) -> dict[str, Any]:
            return {"a": int(observation[1]) % 3, "b": observation}

    for mode in (None, AutoresetMode.SAME_STEP):
        env: Any = Both if mode is None else SyncVectorEnv([Both] * 2, autoreset_mode=mode)
        episodes = collect(env, lambda observation: observation["a"] % 2, episodes=5)
        assert episodes.observation_shape == (5,)
        assert np.array_equal(episodes.next_observations[:, -1], episodes.step + 1)
