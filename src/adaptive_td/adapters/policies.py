"""Policies: functions from an observation to an action, and how they are named on the command line."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import numpy as np
from gymnasium import spaces

from adaptive_td.errors import UsageError, unknown_name

from .spaces import PLAIN

Policy = Callable[..., Any]


def random(observation: Any, rng: np.random.Generator, action_space: spaces.Space[Any]) -> Any:
    """A uniformly random action."""
    action_space.seed(int(rng.integers(2**31)))
    return action_space.sample()


def zero(observation: Any, action_space: spaces.Space[Any]) -> Any:
    """The action 0, or the first there is."""
    first = getattr(action_space, "start", 0)
    return np.full(action_space.shape or (), first, action_space.dtype)


BUILT_IN: dict[str, Policy] = {"random": random, "zero": zero}


def load_policy(spec: str) -> Policy:
    """A policy by name: `random`, `zero`, `package.module:function` or `file.py:function`.

    The last two import the code that they name, so name only what you trust.
    """
    if spec in BUILT_IN:
        return BUILT_IN[spec]
    place, colon, name = spec.rpartition(":")
    if not colon:
        raise unknown_name("policy", spec, (*BUILT_IN, "package.module:function", "file.py:function"))
    module = _module(place)
    if not callable(getattr(module, name, None)):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise unknown_name(f"function in {place}", name, known)
    policy: Policy = getattr(module, name)
    return policy


def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise UsageError(f"policy: cannot import {place!r}: {error}") from None
    path = Path(place)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise unknown_name("policy file", place, map(str, path.parent.glob("*.py")))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Actor:
    """A policy for one kind of environment: it fills in `rng` and `action_space`, and judges the actions."""

    def __init__(self, policy: Policy, action_space: spaces.Space[Any]):
        self.policy, self.action_space = policy, action_space
        self.batched = bool(getattr(policy, "batched", False))
        self.names, self.takes_second = _parameters(policy)

    def act(
        self, observations: Any, rngs: Sequence[np.random.Generator] | np.random.Generator, place: str
    ) -> Any:
        """The action for an observation, or actions for a batch of them if the policy is batched."""
        offered = {"rng": rngs, "action_space": self.action_space}
        options = {name: value for name, value in offered.items() if name in self.names}
        second = [rngs] if self.takes_second and "rng" not in options else []
        with _Placed(place):
            return self.policy(observations, *second, **options)

    def judged(self, action: Any, place: str) -> Any:
        """The action in the type of its space, if it lies in it."""
        space = self.action_space
        if isinstance(space, PLAIN):
            action = np.asarray(action)
            if action.dtype.kind in "biuf":
                cast = action.astype(space.dtype)
                action = cast if isinstance(space, spaces.Box) or np.array_equal(cast, action) else action
        if not space.contains(action):
            raise UsageError(f"policy: action {action!r} in {place} is not in {space}")
        return action


def _parameters(policy: Policy) -> tuple[set[str], bool]:
    """The names of a policy's parameters, and whether it needs a second one beside the observation."""
    try:
        parameters = inspect.signature(policy).parameters
    except ValueError:  # a built-in without a signature
        return set(), False
    positional = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in positional if p.default is p.empty and p.name != "action_space"]
    return set(parameters), len(needed) > 1


class _Placed:
    """Adds to an exception where it was raised, and lets it pass."""

    def __init__(self, place: str):
        self.place = place

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Note the place."""
        if error is not None:
            error.add_note(f"raised by the policy in {self.place}")
