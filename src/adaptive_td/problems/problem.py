"""What methods are compared on, whichever way values are judged there."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from adaptive_td.episodes import Episodes


@runtime_checkable
class Problem(Protocol):
    """A Markov process with rewards, seen through episodes of one policy.

    How values are judged is told by its kind: `Known` has true values on a grid of states, `Tested` has
    further episodes whose returns were realised.
    """

    @property
    def name(self) -> str:
        """What to call it in a table."""

    @property
    def discount(self) -> float:
        """γ, with which its values are defined."""

    def episodes(self, count: int, *, seed: int) -> Episodes:
        """Episodes of the policy; the first k of any number are the same k."""


@runtime_checkable
class Tested(Problem, Protocol):
    """A problem whose values nobody knows: judged by the returns of test episodes.

    A dataclass of this kind may have the fields `test_episodes`, `max_steps`, `temperature` and `clipped`,
    which `reproduce` sets when it is told to.
    """

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one state."""

    def test(self) -> Episodes:
        """Episodes that no seed of `episodes` gives, always the same ones."""

    def require(self) -> None:
        """Refuse, with a `UsageError`, where something that it needs is not installed."""
