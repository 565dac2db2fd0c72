"""Atari: what is logged is what was played; players, networks and their files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
import safetensors.numpy
from typer.testing import CliRunner

import adaptive_td as atd
from adaptive_td.adapters.policies import BUILT_IN
from adaptive_td.atari import policies, qnetwork
from adaptive_td.atari.games import ACTIONS, GAMES, reset_games, vector_env
from adaptive_td.atari.rollouts import _game_seed, collect
from adaptive_td.atari.scores import beats_random, score
from adaptive_td.cli import app
from adaptive_td.errors import DataError, UsageError

RANDOM = BUILT_IN["random"]


def q_values(network: qnetwork.QNetwork, states: np.ndarray) -> np.ndarray:
    """Q as players compute it."""
    return policies.in_blocks(policies.soft_q(network).values, states)


class Recorded:
    """A random player that keeps every stack of frames it is shown, by episode in their order."""

    batched = True

    def __init__(self, actions: int):
        self.actions = actions
        self.seen: dict[int, list[np.ndarray]] = {}
        self.generators: list[np.random.Generator] = []  # kept alive, so that no two share an id

    def __call__(self, observations: np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
        for state, rng in zip(observations, rngs, strict=True):
            if id(rng) not in self.seen:
                self.generators.append(rng)
            self.seen.setdefault(id(rng), []).append(state.copy())
        return np.array([rng.integers(self.actions) for rng in rngs])


@pytest.mark.parametrize(("game", "max_steps", "episodes"), [("breakout", 200, 14), ("ms_pacman", 150, 14)])
def test_a_stack_of_stored_frames_is_byte_for_byte_what_the_game_returned(
    game: str, max_steps: int, episodes: int
) -> None:
    """Played again by their seeds and actions, over 2,000 steps and across ends of both kinds."""
    player = Recorded(ACTIONS[game])
    log = collect(game, player, episodes=episodes, seed=3, max_steps=max_steps, num_envs=3)
    assert log.steps >= 2_000
    assert log.stack == 4
    assert log.states.shape == (log.steps + episodes, 84, 84)
    stacks, terminated_at, truncated_at = (
        log.observe(np.arange(len(log.states))),
        log.terminated,
        log.truncated,
    )
    starts = log.offsets[:-1] + np.arange(episodes)
    for seen, start in zip(map(np.stack, player.seen.values()), starts, strict=True):
        np.testing.assert_array_equal(seen, stacks[start : start + len(seen)])
    env = vector_env(game, 1, max_steps=max_steps)
    row, step = 0, 0
    for i, length in enumerate(log.lengths):
        stack = reset_games(env, np.array([True]), [_game_seed(3, i)])
        np.testing.assert_array_equal(stack[0], stacks[row])
        for _ in range(length):
            action = log.extras["action"][step : step + 1].astype(np.int64)
            stack, rewards, terminated, truncated, _ = env.step(action)
            row += 1
            np.testing.assert_array_equal(stack[0], stacks[row])
            assert rewards[0] == log.rewards[step]
            assert log.extras["clipped_reward"][step] == np.clip(rewards[0], -1, 1)
            assert (terminated[0], truncated[0]) == (terminated_at[step], truncated_at[step])
            step += 1
        row += 1
    env.close()
    assert not log.ended.all()
    assert log.ended.any() == (game == "breakout")


@pytest.mark.parametrize("player", ["random", "packaged"])
def test_episodes_are_the_same_for_any_number_side_by_side_and_the_first_of_more_are_the_same(
    player: str,
) -> None:
    policy = policies.player(player, "breakout")
    six = collect("breakout", policy, episodes=6, seed=1, max_steps=80, num_envs=4)
    for log, part in {
        collect("breakout", policy, episodes=6, seed=1, max_steps=80, num_envs=1): range(6),
        collect("breakout", policy, episodes=3, seed=1, max_steps=80): range(3),
        collect("breakout", policy, episodes=2, first=3, seed=1, max_steps=80, num_envs=2): range(3, 5),
    }.items():
        expected = six.select(list(part))
        for name in ("states", "rewards", "lengths", "ended"):
            np.testing.assert_array_equal(getattr(log, name), getattr(expected, name))
        np.testing.assert_array_equal(log.extras["action"], expected.extras["action"])
    other = collect("breakout", policy, episodes=3, seed=2, max_steps=80)
    assert other.states.shape != six.select([0, 1, 2]).states.shape or (
        (other.states != six.select([0, 1, 2]).states).any()
    )


def test_a_log_says_where_it_comes_from_and_keeps_that_on_disk(tmp_path: Path) -> None:
    out = tmp_path / "log.npz"
    options = ["--policy", "packaged", "--episodes", "2", "--max-steps", "12", "--temperature", "0.5"]
    result = CliRunner().invoke(app, ["collect", "atari:pong", *options, "--out", str(out), "--seed", "7"])
    assert result.exit_code == 0, result.output
    log = atd.load(out)
    assert log.observation_shape == (4, 84, 84)
    assert log.info["game"] == "pong"
    assert log.info["policy_digest"] == qnetwork.packaged("pong").network.digest
    assert (log.info["temperature"], log.info["seed"], log.info["max_steps"]) == (0.5, 7, 12)
    assert log.info["ale_py"]
    assert (log.lengths == 12).all()
    assert not log.ended.any()


def test_players_draw_from_the_softmax_of_q() -> None:
    values = np.array([[0.0, 0.02, -0.02], [1e4, 0.0, 0.0]])
    chances = policies.softmax(values, 0.02)
    e = np.exp([0.0, 1.0, -1.0])
    np.testing.assert_allclose(chances, [e / e.sum(), [1, 0, 0]], rtol=1e-12, atol=1e-300)
    player = policies.SoftQ(lambda states: np.tile(values[0], (len(states), 1)), {}, 0.02)
    rng = np.random.default_rng(0)
    drawn = np.concatenate([player(np.zeros((8, 4, 84, 84), np.uint8), [rng] * 8) for _ in range(1_000)])
    counts = np.bincount(drawn, minlength=3) / len(drawn)
    np.testing.assert_allclose(counts, chances[0], atol=4 * np.sqrt(0.25 / len(drawn)))


def test_a_player_gives_the_same_chances_whatever_states_are_beside() -> None:
    states = np.random.default_rng(0).integers(0, 256, (11, 4, 84, 84), np.uint8)
    player = policies.soft_q(qnetwork.packaged("pong").network)
    together = player.probabilities(states)
    assert together.shape == (11, 6)
    np.testing.assert_allclose(together.sum(1), 1, rtol=1e-12)
    alone = np.concatenate([player.probabilities(states[k : k + 1]) for k in range(11)])
    np.testing.assert_array_equal(alone, together)
    again = [np.random.default_rng(k) for k in range(11)]
    np.testing.assert_array_equal(
        player(states, [np.random.default_rng(k) for k in range(11)]), player(states, again)
    )


def test_a_network_survives_its_file_within_float16(tmp_path: Path) -> None:
    network, path = qnetwork.init(6, key=jax.random.key(1)), tmp_path / "net.safetensors"
    qnetwork.save(path, network, {"game": "none"})
    loaded = qnetwork.load(path)
    assert loaded.card == {"game": "none"}
    for name, layer in network.layers.items():
        np.testing.assert_array_equal(loaded.network.layers[name], np.float32(np.float16(layer)))
    assert loaded.network.digest == network.digest
    states = np.random.default_rng(0).integers(0, 256, (2, 4, 84, 84), np.uint8)
    np.testing.assert_allclose(q_values(loaded.network, states), q_values(network, states), atol=5e-3)


def test_layers_agree_with_their_definition() -> None:
    """Normalisation over channels and pixels together, features in order of channel, row, column."""
    network = qnetwork.init(6, key=jax.random.key(0))
    rng = np.random.default_rng(0)
    layers = {
        k: jax.numpy.asarray(v + 0.1 * rng.normal(size=v.shape).astype(np.float32))
        for k, v in network.layers.items()
    }
    states = rng.integers(0, 256, (2, 4, 84, 84), np.uint8)
    p = {k: np.asarray(v, np.float64) for k, v in layers.items()}
    x = states / 255.0
    for layer, norm, stride in (("c1", "n1", 4), ("c2", "n2", 2), ("c3", "n3", 1)):
        w = p[f"{layer}.weight"]
        k, size = w.shape[2], (x.shape[2] - w.shape[2]) // stride + 1
        y = np.zeros((2, len(w), size, size))
        for i in range(size):
            for j in range(size):
                patch = x[:, :, stride * i : stride * i + k, stride * j : stride * j + k]
                y[:, :, i, j] = np.einsum("ncij,ocij->no", patch, w) + p[f"{layer}.bias"]
        y = (y - y.mean((1, 2, 3), keepdims=True)) / np.sqrt(y.var((1, 2, 3), keepdims=True) + 1e-5)
        scale, shift = p[f"{norm}.weight"][:, None, None], p[f"{norm}.bias"][:, None, None]
        x = np.maximum(0, y * scale + shift)
    y = x.reshape(2, -1) @ p["f.weight"].T + p["f.bias"]
    y = (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 1e-5)
    q = np.maximum(0, y * p["n4.weight"] + p["n4.bias"]) @ p["o.weight"].T + p["o.bias"]
    np.testing.assert_allclose(q_values(qnetwork.QNetwork(layers), states), q, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: arrays.pop("c2.bias"), "c2.bias: missing"),
        (lambda arrays: arrays.update(extra=np.zeros(1)), "extra: no layer"),
        (lambda arrays: arrays.update({"f.bias": np.zeros(3, np.float16)}), "f.bias: shape"),
        (lambda arrays: arrays["o.bias"].fill(np.nan), "o.bias: holds NaN"),
    ],
)
def test_a_file_that_is_no_network_is_refused_with_the_layer(
    tmp_path: Path, change: Any, message: str
) -> None:
    arrays = {k: np.asarray(v, np.float16) for k, v in qnetwork.init(4, key=jax.random.key(0)).layers.items()}
    change(arrays)
    path = tmp_path / "net.safetensors"
    safetensors.numpy.save_file(arrays, path)
    with pytest.raises(DataError, match=message):
        qnetwork.load(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match="cannot be read"):
        qnetwork.load(path)


@pytest.mark.parametrize("game", GAMES)
def test_a_packaged_network_is_small_fits_its_game_and_beats_random_play_by_its_card(game: str) -> None:
    loaded, path = qnetwork.packaged(game), qnetwork.packaged_path(game)
    assert path.stat().st_size < 4_000_000
    assert loaded.network.actions == ACTIONS[game]
    measured = loaded.card["scores"]
    assert loaded.card["policy_digest"] == loaded.network.digest
    assert (measured["episodes"], measured["temperature"], measured["max_steps"]) == (30, 0.02, 4_000)
    for who in ("soft", "random"):
        assert len(measured[who]["scores"]) == 30
        assert np.mean(measured[who]["scores"]) == pytest.approx(measured[who]["mean"], abs=1e-3)
    assert beats_random(game, measured)


def test_the_packaged_player_of_pong_leads_where_a_random_one_trails() -> None:
    player = policies.player("packaged", "pong")
    soft = score("pong", player, episodes=4, max_steps=500)
    random = score("pong", RANDOM, episodes=4, max_steps=500)
    assert soft["mean"] > 2
    assert random["mean"] < -2


@pytest.mark.parametrize("game", GAMES)
def test_each_game_has_as_many_actions_as_we_say(game: str) -> None:
    env = vector_env(game, 1)
    assert env.single_action_space == gymnasium.spaces.Discrete(ACTIONS[game])
    env.close()


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'pong'"):
        collect("pog", RANDOM, episodes=1)
    with pytest.raises(UsageError, match="episodes: must be at least 1"):
        collect("pong", RANDOM, episodes=0)
    with pytest.raises(UsageError, match="temperature"):
        policies.player("packaged", "pong", 0.0)
    network = tmp_path / "net.safetensors"
    qnetwork.save(network, qnetwork.init(4, key=jax.random.key(0)), {})
    with pytest.raises(DataError, match="4 actions, pong has 6"):
        policies.player(str(network), "pong")
    with pytest.raises(UsageError, match="OWNER/REPO"):
        policies.player("hub:name", "pong", trust=True)
    with pytest.raises(UsageError, match="--allow-pickle"):
        policies.player("hub:owner/name", "pong")
    (tmp_path / "dqn.zip").write_bytes(b"")
    with pytest.raises(UsageError, match="--allow-pickle"):
        policies.player(f"sb3:{tmp_path / 'dqn.zip'}", "pong")
    result = CliRunner().invoke(app, ["collect", "CartPole-v1", "--out", "x.npz", "--temperature", "1"])
    assert isinstance(result.exception, UsageError)


BLOCKED = """
import sys
sys.modules["ale_py"] = None
from adaptive_td.cli import main
sys.argv = ["adaptive-td", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(
    "command",
    [
        ["collect", "atari:pong", "--out", "log.npz"],
        ["atari", "train-policy", "pong", "--out", "net.safetensors"],
        ["atari", "score", "pong"],
    ],
)
def test_without_the_extra_a_command_says_which_is_missing(command: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, *command], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2
    assert 'pip install "adaptive-td[atari]"' in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_without_the_extra_everything_else_works() -> None:
    code = "import sys; sys.modules['ale_py'] = None\n" + (
        "import numpy as np, adaptive_td as atd; from adaptive_td.atari import policies, qnetwork\n"
        "print(policies.player('packaged', 'pong').probabilities(np.zeros((1, 4, 84, 84), np.uint8)).sum())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(1)


def dqn_archive(path: Path) -> Any:
    """A small DQN of Stable-Baselines3, saved as an archive."""
    pytest.importorskip("stable_baselines3", reason="the extra sb3 needs PyTorch and is no part of dev")
    from stable_baselines3 import DQN

    class Still(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
        action_space = gymnasium.spaces.Discrete(6)

        def reset(self, **options: Any) -> Any:
            return self.observation_space.sample(), {}

        def step(self, action: Any) -> Any:
            return self.observation_space.sample(), 1.0, False, True, {}

    model = DQN("CnnPolicy", Still(), buffer_size=50, learning_starts=5, device="cpu", seed=0)
    model.learn(20)
    model.save(path)
    return model


def assert_plays_as(model: Any, player: Any, temperature: float) -> None:
    """The chances of actions are the softmax of the archive's own Q-network."""
    assert isinstance(player, policies.SoftQ)
    states = np.random.default_rng(0).integers(0, 256, (3, 4, 84, 84), np.uint8)
    q_values = model.q_net(model.policy.obs_to_tensor(states)[0]).detach().numpy()
    expected = policies.softmax(q_values, temperature)
    np.testing.assert_allclose(player.probabilities(states), expected, rtol=1e-4)


def test_a_stable_baselines_archive_plays_once_it_is_trusted(tmp_path: Path) -> None:
    model = dqn_archive(tmp_path / "dqn.zip")
    with pytest.warns(UserWarning, match="unpickling"):
        player = policies.player(f"sb3:{tmp_path / 'dqn.zip'}", "pong", 0.5, trust=True)
    assert_plays_as(model, player, 0.5)
    log = collect("pong", player, episodes=2, max_steps=10)
    assert log.info["policy"] == "sb3:dqn.zip"
    assert json.loads(json.dumps(dict(log.info))) == dict(log.info)


def test_an_archive_of_the_hub_plays_and_one_that_cannot_be_had_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's own client, offline, with a cache laid out as a download leaves it."""
    constants = pytest.importorskip("huggingface_hub.constants", reason="the extra hub is no part of dev")
    revision = "0" * 40
    folder = tmp_path / "models--someone--dqn-pong"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(revision)
    (folder / "snapshots" / revision).mkdir(parents=True)
    model = dqn_archive(folder / "snapshots" / revision / "dqn-pong.zip")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.warns(UserWarning, match="unpickling"):
        player = policies.player("hub:someone/dqn-pong", "pong", 0.5, trust=True)
    assert_plays_as(model, player, 0.5)
    with pytest.raises(UsageError, match=r"hub:someone/dqn-pong/other.zip: cannot download other.zip"):
        policies.player("hub:someone/dqn-pong/other.zip", "pong", trust=True)
