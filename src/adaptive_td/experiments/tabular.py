"""The chain's estimators, which are computed rather than trained: many logs at once, no network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from adaptive_td.problems.chain import Chain, Estimates, Log

from .cells import Group
from .judging import digest
from .measure import MEASURES, Outcome

ESTIMATORS: dict[str, Callable[[Chain, Log, float], Estimates]] = {
    "mc": lambda chain, log, level: chain.monte_carlo(log),
    "td": lambda chain, log, level: chain.td(log),
    "adaptive-td": lambda chain, log, level: chain.adaptive_td(log, level=level),
    "adaptive-td:endpoint": lambda chain, log, level: chain.adaptive_td(
        log, level=level, fallback="endpoint"
    ),
}


def tabular(group: Group) -> Iterator[Outcome]:
    """The MSVE of each estimator over s_1 ... s_k, averaged over the repeats.

    The arrays are those of the first repeat, at s_1 ... s_k, b_1, b_2 and q: estimates, and the ends of
    Student's intervals for the mean return (infinite where a state was seen less than twice).
    """
    chain = group.problem
    assert isinstance(chain, Chain)
    first = next(iter(group.cells.values()))
    log = chain.log(first.episodes, repeats=first.repeats or 1, seed=first.seed)
    truth = chain.true_values()
    outcome = partial(Outcome, log=digest(*log), truth=digest(truth.values, truth.standard_errors))
    for id_, cell in group.cells.items():
        level = 0.95 if cell.level is None else cell.level
        estimates = ESTIMATORS[cell.method](chain, log, level)
        lower, upper = chain.intervals(log, level=level)
        values = np.concatenate([estimates.s[0], estimates.b[0], estimates.q[:1]])
        arrays = {"values": values, "lower": lower[0], "upper": upper[0]}
        yield outcome(
            cell=id_,
            status="done",
            numbers={"msve": float(chain.msve(estimates).mean())},
            arrays={name: np.asarray(array, np.float32) for name, array in arrays.items()},
        )


MEASURES["tabular"] = tabular
