"""What a method is given to work on, and the Monte Carlo returns that many of them start from."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Hashable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .episodes import Episodes, ranges
from .errors import DataError, UsageError
from .jobs import Job, Trained, Training
from .models import Model
from .rows import Data, Rows, make_draws
from .targets import lambda_returns

Result = TypeVar("Result")
Recipe = Generator[list[Job], list[Trained], Result]
"""A computation that yields networks to train, is sent them trained, and returns a result."""

Truncation = Literal["mask", "zero", "bootstrap", "drop"]
MASK_TOLERANCE = 0.01


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A log on the device, a model, and the key that all randomness comes from."""

    episodes: Episodes
    data: Data
    model: Model
    key: PRNGKeyArray
    training: Training
    identity: Hashable

    def keys(self, network: int) -> tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray]:
        """Keys of network 0 (the value function) or 1, 2, ... (members): weights, batches, episodes."""
        start, batches, resampling = jax.random.split(jax.random.fold_in(self.key, network), 3)
        return start, batches, resampling

    def job(self, network: int, name: tuple[Hashable, ...], rows: Rows, **options: Any) -> Job:
        """Train network number `network` on these rows; `name` tells its work from others on this log."""
        start, batches, _ = self.keys(network)
        return Job(
            name=(self.identity, network, *name),
            data=self.data,
            network=self.model.build(self.episodes.observation_shape, key=start),
            rows=rows,
            seed=jax.random.key_data(batches)[-2:].astype(jnp.uint32),
            **options,
        )

    def everything(self) -> tuple[None, Array]:
        """Draws from every transition of the log, without a list of them."""
        return None, jnp.asarray(self.episodes.steps, jnp.int32)


class MonteCarloRows(NamedTuple):
    """Monte Carlo returns of a log as rows, and the visits whose return can be trusted."""

    rows: Rows
    kept: Int[np.ndarray, " visits"]
    mode: Truncation

    def drawing(self, visits: Int[np.ndarray, " slots"]) -> Rows:
        """The rows, drawn from these visits (with repetition, if any); columns are shared."""
        draws, drawable = make_draws(visits)
        return self.rows._replace(draws=draws, drawable=drawable)

    @property
    def bootstraps(self) -> bool:
        """Whether a truncated return goes on with V."""
        return self.mode == "bootstrap"


def monte_carlo_rows(
    task: Task, truncation: Truncation | None, *, or_nothing: bool = False
) -> MonteCarloRows:
    """How Monte Carlo treats an episode whose log stops before the process does.

    mask: drop visits that carry more than 1% of their weight beyond the end, Π γ > 0.01 (the default);
    zero: take the end of the log for the end of the process; bootstrap: go on with V(s_T), so no longer
    pure Monte Carlo; drop: leave such episodes out, which favours short ones.
    """
    episodes, data = task.episodes, task.data
    beyond = weight_beyond(data)
    weights = np.asarray(beyond)[: episodes.steps]
    if truncation is None and weights.max() == 1:
        raise UsageError(
            "Monte Carlo with discount 1 and truncated episodes has no safe default: "
            "choose truncation 'zero', 'bootstrap', 'drop' or 'mask'"
        )
    mode: Truncation = truncation or "mask"
    kept = np.arange(episodes.steps)
    if mode == "mask":
        kept = kept[weights <= MASK_TOLERANCE]
    elif mode == "drop":
        kept = kept[np.repeat(episodes.ended, episodes.lengths)]
        if not episodes.ended.all():
            warnings.warn("truncated episodes are left out, which favours short ones", stacklevel=2)
    if not len(kept) and not or_nothing:
        raise nothing_to_learn()
    next_index = last_states(task) if mode == "bootstrap" else data.index
    returns = data.returns()
    draws = task.everything() if len(kept) == episodes.steps else make_draws(kept)
    rows = Rows(next_index, returns, beyond, None, returns, *draws)
    return MonteCarloRows(rows, kept, mode)


def nothing_to_learn() -> DataError:
    """The error for Monte Carlo on a log without one trusted return."""
    return DataError(
        "every return of this log is cut short by truncation, so Monte Carlo has nothing to learn from; "
        "use TD, or truncation 'bootstrap' or 'zero'"
    )


def last_states(task: Task) -> Int[Array, " padded"]:
    """The row of the last state of each transition's episode."""
    episodes = task.episodes
    ends = np.repeat(episodes.offsets[1:] + np.arange(len(episodes)), episodes.lengths)
    return jnp.pad(jnp.asarray(ends, jnp.int32), (0, len(task.data.index) - len(ends)))


@jax.jit
def weight_beyond(data: Data) -> Float[Array, " padded"]:
    """Π γ from each transition to the end of its log: 0 where the process stopped."""
    none, one = jnp.zeros_like(data.rewards), jnp.ones_like(data.rewards)
    return lambda_returns(none, data.discounts, one, data.last, 1.0)


def bootstrap_visits(
    episodes: Episodes, kept: Int[np.ndarray, " visits"], *, key: PRNGKeyArray
) -> Int[np.ndarray, " slots"]:
    """The kept visits of n episodes, drawn with replacement from the n that have any."""
    edges = np.searchsorted(kept, episodes.offsets)
    starts, counts = edges[:-1], np.diff(edges)
    usable = np.flatnonzero(counts)
    drawn = usable[np.asarray(jax.random.randint(key, (len(usable),), 0, len(usable)))]
    return kept[ranges(starts[drawn], counts[drawn])]
