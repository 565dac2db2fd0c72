"""Players for Atari games: samples from softmax(Q / temperature) of a Q-network, whoever trained it.

A Stable-Baselines3 archive is unpickled when it is loaded, which runs whatever code it holds. It is read
only where the caller says that it is trusted.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int, UInt8

from adaptive_td.adapters.policies import Policy, load_policy
from adaptive_td.errors import DataError, UsageError

from . import qnetwork
from .games import ACTIONS, game_name

TEMPERATURE = 0.02
BLOCK = 8
"""States that are evaluated together: always as many, because a value's last bits depend on the number."""
SB3, HUB = "sb3:", "hub:"

_values = jax.jit(lambda network, states: network(states))


def softmax(values: Float[np.ndarray, "n actions"], temperature: float) -> Float[np.ndarray, "n actions"]:
    """exp(q / temperature), each row divided by its sum."""
    scaled = np.asarray(values, np.float64) / temperature
    weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def in_blocks(
    values: Callable[[np.ndarray], np.ndarray], states: UInt8[np.ndarray, "n *obs"]
) -> Float[np.ndarray, "n actions"]:
    """Values of any number of states, the same bits for a state whatever others are beside it."""
    parts = []
    for start in range(0, len(states), BLOCK):
        part = states[start : start + BLOCK]
        padding = [(0, BLOCK - len(part))] + [(0, 0)] * (states.ndim - 1)
        parts.append(np.asarray(values(np.pad(part, padding)))[: len(part)])
    return np.concatenate(parts)


@dataclass(frozen=True)
class SoftQ:
    """Samples actions from softmax(Q / temperature); `values` gives Q of a batch of states."""

    values: Callable[[np.ndarray], np.ndarray]
    description: dict[str, Any]
    temperature: float = TEMPERATURE
    batched = True

    def __call__(
        self, observations: UInt8[np.ndarray, "n 4 84 84"], rngs: Sequence[np.random.Generator]
    ) -> Int[np.ndarray, " n"]:
        """One action for each state, by one uniform number of each state's own generator."""
        chances = self.probabilities(observations).cumsum(axis=1)
        drawn = np.array([rng.random() for rng in rngs])
        below: Int[np.ndarray, " n"] = (drawn[:, None] >= chances[:, :-1]).sum(axis=1)
        return below

    def probabilities(self, observations: UInt8[np.ndarray, "n 4 84 84"]) -> Float[np.ndarray, "n actions"]:
        """How likely each action is in each state."""
        return softmax(in_blocks(self.values, observations), self.temperature)


def soft_q(network: qnetwork.QNetwork, temperature: float = TEMPERATURE, *, name: str = "Q-network") -> SoftQ:
    """A player from one of our Q-networks."""
    _check_temperature(temperature)
    description = {"policy": name, "policy_digest": network.digest, "temperature": temperature}
    return SoftQ(partial(_values, network), description, temperature)


def sb3_policy(path: Path, temperature: float = TEMPERATURE, *, trust: bool = False) -> SoftQ:
    """A player from a Stable-Baselines3 DQN archive, which is unpickled: only with `trust`."""
    _check_temperature(temperature)
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    if not trust:
        raise UsageError(
            f"{path.name}: a Stable-Baselines3 archive is unpickled, which runs whatever code it holds; "
            "if you trust where it comes from, say so with --allow-pickle (trust=True)"
        )
    try:
        import torch
        from stable_baselines3 import DQN
    except ImportError:
        raise UsageError(
            'Stable-Baselines3 archives need the extra `sb3`: pip install "adaptive-td[sb3]"'
        ) from None
    warnings.warn(f"{path.name}: unpickling an archive, which runs whatever code it holds", stacklevel=2)
    try:
        model = DQN.load(path, device="cpu", buffer_size=1)
    except (ValueError, KeyError, AssertionError, RuntimeError) as error:
        raise DataError(f"{path.name}: cannot be read as a Stable-Baselines3 DQN: {error}") from None
    shape = tuple(model.observation_space.shape or ())
    if shape not in ((4, 84, 84), (84, 84, 4)):
        raise DataError(f"{path.name}: plays on observations {shape}, not on four stacked 84 x 84 frames")

    def values(states: np.ndarray) -> np.ndarray:
        frames = states if shape == (4, 84, 84) else np.moveaxis(states, 1, -1)
        with torch.no_grad():
            return np.asarray(model.q_net(model.policy.obs_to_tensor(frames)[0]))

    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    description = {"policy": f"{SB3}{path.name}", "policy_digest": digest, "temperature": temperature}
    return SoftQ(values, description, temperature)


def hub_policy(name: str, temperature: float = TEMPERATURE, *, trust: bool = False) -> SoftQ:
    """A player from a DQN archive on the Hugging Face hub, as OWNER/REPO or OWNER/REPO/FILE.zip."""
    owner, repo, *rest = [*name.split("/"), ""][:3] if "/" in name else (name, "", "")
    if not owner or not repo:
        raise UsageError(f"hub: expected OWNER/REPO or OWNER/REPO/FILE.zip, got {name!r}")
    if not trust:
        raise UsageError(
            f"hub:{name}: the archive is unpickled, which runs whatever code it holds; if you trust who made "
            "it, say so with --allow-pickle (trust=True)"
        )
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError:
        raise UsageError('the hub needs the extra `hub`: pip install "adaptive-td[hub]"') from None
    file = rest[0] or f"{repo}.zip"
    try:
        path = hf_hub_download(f"{owner}/{repo}", file)
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise UsageError(f"hub:{name}: cannot download {file}: {str(error).splitlines()[0]}") from None
    return sb3_policy(Path(path), temperature, trust=trust)


def player(spec: str, game: str, temperature: float = TEMPERATURE, *, trust: bool = False) -> Policy:
    """A player by name: packaged, random, FILE.safetensors, sb3:FILE, hub:OWNER/REPO, module:function."""
    if spec == "packaged":
        return soft_q(qnetwork.packaged(game).network, temperature, name=f"packaged {game}")
    if spec.endswith(".safetensors"):
        network = qnetwork.load(Path(spec)).network
        if network.actions != ACTIONS[game_name(game)]:
            raise DataError(f"{spec}: has {network.actions} actions, {game} has {ACTIONS[game]}")
        return soft_q(network, temperature, name=Path(spec).name)
    if spec.startswith(SB3):
        return sb3_policy(Path(spec.removeprefix(SB3)), temperature, trust=trust)
    if spec.startswith(HUB):
        return hub_policy(spec.removeprefix(HUB), temperature, trust=trust)
    return load_policy(spec)


def _check_temperature(temperature: float) -> None:
    if not 0 < temperature < float("inf"):
        raise UsageError(f"temperature: must be a positive number, got {temperature}")
