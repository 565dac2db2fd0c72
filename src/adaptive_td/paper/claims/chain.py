"""Claims about the chain."""

from __future__ import annotations

import numpy as np

from adaptive_td.experiments.results import Results
from adaptive_td.problems import Chain

from .deciding import (
    ABOVE_ONE,
    ATD,
    BELOW_ONE,
    CLOSE,
    MC,
    TD,
    Bound,
    Case,
    Claim,
    Finding,
    all_of,
    both,
    each,
    names_of,
    outside,
    over_seeds,
    ratio,
    text,
)


def _chain_cases(results: Results, problem: str) -> list[Case]:
    return [{"problem": problem, "episodes": size} for size in results.settings["sizes"]]


def _variances(results: Results) -> Finding:
    cases, chain = _chain_cases(results, "chain"), results.problems["chain"]
    assert isinstance(chain, Chain)
    ahead = all_of("M(MC)/M(TD)", each(results, cases, MC, TD), ABOVE_ONE, names=names_of(cases))
    largest = ratio(results, cases[-1:], MC, TD)
    if largest is None or not np.isfinite(largest.low):
        return ahead
    is_k = largest.low <= 1.25 * chain.k and largest.high >= 0.8 * chain.k
    size = cases[-1]["episodes"]
    return both(
        ahead,
        Finding(f"at n = {size} it is {text(largest)}, k = {chain.k}", "holds" if is_k else "does not hold"),
    )


def _crossing(results: Results) -> Finding:
    cases = _chain_cases(results, "chain-biased")
    few, many = cases[:1], cases[-1:]
    return both(
        all_of("M(MC)/M(TD)", each(results, few, MC, TD), ABOVE_ONE, names=names_of(few)),
        all_of("M(MC)/M(TD)", each(results, many, MC, TD), BELOW_ONE, names=names_of(many)),
    )


def _chain_adapts(results: Results) -> Finding:
    few, many = _chain_cases(results, "chain")[:1], _chain_cases(results, "chain-biased")[-1:]
    return both(
        all_of(
            "M(Adaptive TD)/M(TD), unbiased",
            each(results, few, ATD, TD),
            Bound(CLOSE, "below"),
            names=names_of(few),
        ),
        all_of("M(Adaptive TD)/M(TD), biased", each(results, many, ATD, TD), BELOW_ONE, names=names_of(many)),
    )


def _chain_outside(results: Results) -> Finding:
    chain, largest = results.problems["chain-biased"], max(results.settings["sizes"])
    assert isinstance(chain, Chain)
    arrays = results.arrays_of(problem="chain-biased", method=TD, episodes=largest)
    shares = [float(outside(one)[: chain.p].astype(bool).mean()) for one in arrays.values()]
    what = f"share of s_1 ... s_{chain.p}, which TD reads off the biased b_1, outside at n = {largest}"
    return all_of(what, [over_seeds(shares)], Bound(0.5, "above"), names=["share"])


CLAIMS = [
    Claim(
        "C1",
        "chain, tabular",
        "the variance of MC at s_i is about k times that of TD, and TD is ahead at every n",
        _variances,
    ),
    Claim("C2", "chain, biased", "TD is ahead with little data and MC with much", _crossing),
    Claim(
        "C3",
        "chain",
        "Adaptive TD follows TD where MC varies much, and avoids TD's bias",
        _chain_adapts,
    ),
    Claim(
        "C4",
        "chain, biased",
        "TD's estimates fall mostly outside the 95% intervals of MC",
        _chain_outside,
    ),
]
