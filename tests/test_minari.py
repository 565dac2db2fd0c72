"""Minari data sets as Minari itself writes them, and what a hostile one tries."""

import builtins
import json
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import minari
import numpy as np
import pytest
from gymnasium import spaces

from adaptive_td import DataError, UsageError
from adaptive_td.adapters import load
from adaptive_td.adapters.spaces import feature_names

FORMATS = ["hdf5", "arrow"]


class Walk(gymnasium.Env[Any, Any]):
    """Counts its steps; terminates at 3 or is truncated at 5, in turn, and can observe itself as a dict."""

    action_space = spaces.Discrete(2)

    def __init__(self, kind: str = "discrete"):
        self.kind, self.episode = kind, 0
        nested = {"z": spaces.Box(0, 9, (2,), np.float32), "a": spaces.Discrete(3)}
        self.observation_space = {
            "discrete": spaces.Discrete(10),
            "box": spaces.Box(0, 9, (2,), np.float32),
            "image": spaces.Box(0, 255, (40, 40, 3), np.uint8),
            "dict": spaces.Dict(nested),
            "tuple": spaces.Tuple(nested.values()),
        }[kind]

    def observe(self) -> Any:
        """The time, in the form asked for."""
        vector = np.full(2, self.time, np.float32)
        forms = {
            "discrete": self.time,
            "box": vector,
            "image": np.full((40, 40, 3), 40 * self.time, np.uint8),
        }
        forms |= {"dict": {"a": self.time % 3, "z": vector}, "tuple": (vector, self.time % 3)}
        return forms[self.kind]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start again."""
        super().reset(seed=seed)
        self.time, self.episode = 0, self.episode + 1
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step, with the time as reward."""
        self.time += 1
        odd = self.episode % 2 == 1
        return self.observe(), float(self.time), odd and self.time == 3, not odd and self.time == 5, {}


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Record four episodes of `Walk` (3, 5 and 3 steps, and 2 of which nothing is flagged) with Minari."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))

    def run(kind: str = "discrete", data_format: str = "hdf5", name: str = "test/walk-v0") -> Path:
        env = minari.DataCollector(Walk(kind), data_format=data_format)
        for steps in (3, 5, 3, 2):
            env.reset(seed=0)
            for _ in range(steps):
                env.step(0)
        with warnings.catch_warnings(action="ignore"):  # Minari asks for authors and the like
            env.create_dataset(name)
        env._tmp_dir.cleanup()
        return tmp_path / name

    return run


@pytest.mark.parametrize("data_format", FORMATS)
def test_a_data_set_is_read_with_its_final_observations_and_both_ends(
    record: Callable[..., Path], data_format: str
) -> None:
    record("discrete", data_format)
    episodes = load("minari:test/walk-v0")
    assert episodes.lengths.tolist() == [3, 5, 3, 2]
    assert episodes.ended.tolist() == [True, False, True, False]
    assert episodes.states.tolist() == [*range(4), *range(6), *range(4), *range(3)]
    assert episodes.states.dtype.kind == "i"
    assert np.array_equal(episodes.rewards, episodes.step + 1)


@pytest.mark.parametrize("data_format", FORMATS)
def test_a_folder_is_as_good_as_a_name(record: Callable[..., Path], data_format: str) -> None:
    folder = record("box", data_format)
    assert load(folder).states.shape == (17, 2)
    assert np.array_equal(load(folder / "data").states, load(folder).states)


@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("kind", ["dict", "tuple"])
def test_nested_observations_become_vectors_in_a_fixed_order(
    record: Callable[..., Path], data_format: str, kind: str
) -> None:
    episodes = load(record(kind, data_format))
    space = Walk(kind).observation_space
    observed = {"dict": {"a": 2, "z": np.full(2, 2.0)}, "tuple": (np.full(2, 2.0), 2)}[kind]
    assert np.array_equal(episodes.states[2], np.asarray(spaces.flatten(space, observed)))
    assert (
        feature_names(space)
        == {
            "dict": ["a=0", "a=1", "a=2", "z[0]", "z[1]"],
            "tuple": ["0[0]", "0[1]", "1=0", "1=1", "1=2"],
        }[kind]
    )


@pytest.mark.parametrize("data_format", FORMATS)
def test_images_keep_their_shape(record: Callable[..., Path], data_format: str) -> None:
    episodes = load(record("image", data_format))
    assert episodes.observation_shape == (40, 40, 3)
    assert episodes.states.dtype == np.uint8
    assert np.allclose(episodes.states[2], 80, atol=4)  # Minari stores JPEG


def test_an_unknown_name_gets_the_nearest(record: Callable[..., Path]) -> None:
    record()
    with pytest.raises(UsageError, match="data set 'test/walk-v1'; did you mean 'test/walk-v0'") as caught:
        load("minari:test/walk-v1")
    assert caught.value.exit_code == 2
    with pytest.raises(UsageError, match="ends: a Minari data set states"):
        load("minari:test/walk-v0", ends="terminated")


def test_without_minari_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(UsageError, match=r'pip install "adaptive-td\[minari\]"'):
        load("minari:test/walk-v0")


def refused(folder: Path, message: str) -> None:
    """The error, in one line, with the exit code of bad data."""
    with pytest.raises(DataError, match=message) as caught:
        load(folder)
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)


def change(folder: Path, **entries: object) -> None:
    """Change the metadata of a data set; None removes an entry."""
    path = folder / "data" / "metadata.json"
    metadata = json.loads(path.read_text()) | entries
    path.write_text(json.dumps({name: value for name, value in metadata.items() if value is not None}))


def test_nothing_that_a_data_set_names_is_imported_or_run(
    record: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = record()
    spec = gymnasium.spec("CartPole-v1").to_json().replace("gymnasium.envs", "evil_package.envs")
    change(folder, env_spec=spec, eval_env_spec=spec, requirements=["evil_package"])
    real_import = builtins.__import__

    def watched(name: str, *args: Any, **options: Any) -> Any:
        assert "evil" not in name
        return real_import(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", watched)
    monkeypatch.setattr(gymnasium, "make", lambda *_, **__: pytest.fail("an environment was built"))
    assert len(load(folder)) == 4
    change(folder, observation_space=None)
    refused(folder, "^observation_space: missing in metadata.json; Minari would build the environment")


@pytest.mark.parametrize("link", ["external", "soft", "storage", "virtual", "cycle"])
def test_an_hdf5_file_that_leads_elsewhere_is_refused(
    record: Callable[..., Path], tmp_path: Path, link: str
) -> None:
    folder = record()
    secret = tmp_path / "secret.hdf5"
    with h5py.File(secret, "w") as file:
        file["rewards"] = np.ones(3)
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        group = file["episode_0"]
        del group["rewards"]
        if link == "external":
            group["rewards"] = h5py.ExternalLink(str(secret), "/rewards")
        elif link == "soft":
            group["rewards"] = h5py.SoftLink("/episode_2/rewards")
        elif link == "storage":
            group.create_dataset("rewards", (3,), "f8", external=[(str(secret), 0, 24)])
        elif link == "virtual":
            layout = h5py.VirtualLayout((3,), "f8")
            layout[:] = h5py.VirtualSource(secret, "rewards", (3,))
            group.create_virtual_dataset("rewards", layout)
        else:
            group["rewards"] = file["episode_1"]
    refused(folder, "a link to another place|kept in another file|appears twice")


def test_an_hdf5_array_that_declares_gigabytes_is_refused(record: Callable[..., Path]) -> None:
    folder = record()
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        del file["episode_0/rewards"]
        file["episode_0"].create_dataset("rewards", (2**32,), "f8", chunks=True)
    refused(folder, r"^main_data.hdf5: \d+ bytes that would unpack to 3435\d+; if you trust")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"minari_version": "9.9.9"}, "^minari_version: 9.9.9 is not one that the installed Minari reads"),
        ({"data_format": "pickle"}, "not readable as a Minari data set: KeyError"),
        ({"total_episodes": 9}, "not readable as a Minari data set"),
        ({"total_episodes": 0}, "^episodes: the data set has none"),
        ({"minari_version": None}, "not readable as a Minari data set: KeyError"),
        ({"observation_space": '{"type": "Evil"}'}, "not readable as a Minari data set"),
    ],
)
def test_metadata_that_does_not_fit_is_refused(
    record: Callable[..., Path], entries: dict[str, object], message: str
) -> None:
    folder = record()
    change(folder, **entries)
    refused(folder, message)


@pytest.mark.parametrize("data_format", FORMATS)
def test_a_data_set_that_is_cut_short_is_refused(record: Callable[..., Path], data_format: str) -> None:
    folder = record("box", data_format)
    file = next(p for p in (folder / "data").rglob("*") if p.suffix in (".hdf5", ".arrow"))
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    refused(folder, "not readable as a Minari data set")
    file.unlink()
    refused(folder, "not readable as a Minari data set|one more than each")


def test_observations_and_rewards_must_be_aligned(record: Callable[..., Path]) -> None:
    folder = record()
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        file["episode_1/observations"].resize((5,))
    refused(folder, "^observations: episode 1 has 5 for 5 rewards")


def test_an_episode_cannot_go_on_after_its_end(record: Callable[..., Path]) -> None:
    folder = record()
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        file["episode_1/terminations"][1] = True
    refused(folder, "^terminations: episode 1 goes on after it terminated in step 1$")


def test_a_folder_without_metadata_is_not_a_data_set(tmp_path: Path) -> None:
    refused(tmp_path, "not a Minari data set: it has no metadata.json$")
    shutil.copy(__file__, tmp_path / "metadata.json")
    refused(tmp_path, "not readable as a Minari data set: JSONDecodeError")
