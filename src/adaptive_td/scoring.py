"""A value function applied to a log, row by row, keyed as the log keys its rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Float, Int, Int8

from .episodes import Episodes
from .errors import UsageError
from .targets import lambda_returns, monte_carlo_returns
from .tasks import MASK_TOLERANCE
from .value import ValueFunction


def score(value: ValueFunction, episodes: Episodes) -> pl.DataFrame:
    """Per transition: the log's own keys, value, lower, upper, and whether TD is overruled there.

    `overruled` is 1 where the TD target is above the interval, -1 below, 0 inside; null, like the interval,
    where the method has none.
    """
    columns = {name: pl.Series(np.asarray(column)) for name, column in episodes.row_keys().items()}
    taken = {"value", "lower", "upper", "overruled"} & columns.keys()
    if taken:
        raise UsageError(f"the log has a key column named {sorted(taken)[0]!r}, which the result needs")
    frame = pl.DataFrame({**columns, "value": value.over(episodes)[episodes.index]})
    if value.estimate is None:
        return frame.with_columns(
            lower=pl.lit(None, pl.Float32), upper=pl.lit(None, pl.Float32), overruled=pl.lit(None, pl.Int8)
        )
    lower, upper = (np.asarray(bound)[episodes.index] for bound in value.interval_over(episodes))
    return frame.with_columns(lower=lower, upper=upper, overruled=overruled(value, episodes))


def overruled(value: ValueFunction, episodes: Episodes) -> Int8[np.ndarray, " steps"]:
    """Where the quantity the method checks leaves the interval: V(s), or T = r + γ V(s')."""
    index, values = episodes.index, value.over(episodes)
    if getattr(value.method, "check", "sample") == "value":
        tested = values[index]
    else:
        tested = episodes.rewards + episodes.discounts(value.discount) * values[index + 1]
    lower, upper = (np.asarray(bound)[index] for bound in value.interval_over(episodes))
    return (tested >= upper).astype(np.int8) - (tested <= lower).astype(np.int8)


def whole_returns(
    episodes: Episodes, discount: float
) -> tuple[Float[np.ndarray, " steps"], Int[np.ndarray, " visits"]]:
    """Returns of a log, and the visits whose return misses at most 1% of its weight to truncation."""
    discounts, last = episodes.discounts(discount), episodes.last
    returns = np.asarray(monte_carlo_returns(episodes.rewards, discounts, last))
    none, one = np.zeros_like(episodes.rewards), np.ones_like(episodes.rewards)
    beyond = np.asarray(lambda_returns(none, discounts, one, last, 1.0))
    return returns, np.flatnonzero(beyond <= MASK_TOLERANCE)


def write(frame: pl.DataFrame, path: Path) -> None:
    """Write a table to a new Parquet or CSV file."""
    if path.exists():
        raise UsageError(f"{path} exists; results are never overwritten")
    if path.suffix == ".parquet":
        frame.write_parquet(path)
    elif path.suffix == ".csv":
        frame.write_csv(path)
    else:
        raise UsageError(f"{path}: rows are written to .parquet or .csv")
