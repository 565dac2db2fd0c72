"""Claims about all maps and games together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Float64

from adaptive_td.experiments.results import Results
from adaptive_td.metrics import min_max, stratified_bootstrap
from adaptive_td.paper.styles import style

from .deciding import (
    ABOVE_ONE,
    ATD,
    CLOSE,
    ENSEMBLE,
    FEWEST_SEEDS,
    LAMBDAS,
    MC,
    TD,
    Bound,
    Case,
    Finding,
    all_of,
    both,
    estimate,
    text,
)

EXPERIMENTS = ("labyrinth", "atari")
"""Those whose problems are the paper's ten scenarios."""
METHODS = (ATD, TD, MC, ENSEMBLE, *LAMBDAS)
Scenario = tuple[Results, Case]


def claims(results: Sequence[Results]) -> Iterator[tuple[str, str, str, Finding]]:
    """Number, what about, claim and finding of each; over the scenarios that have enough seeds."""
    for number, claim, methods, decide in (
        ("O1", _CLAIM_O1, METHODS, _ahead),
        ("O2", _CLAIM_O2, (ATD, MC, TD), _never_worse),
    ):
        cases, missing = _usable(scenarios(results), methods)
        names = sorted({case["problem"] for _, case in cases})
        statistic, verdict = decide(cases) if cases else Finding("no scenario is complete", "not enough data")
        left_out = f" · left out, with fewer than {FEWEST_SEEDS} seeds of every method: {', '.join(missing)}"
        told = statistic + (left_out if missing else "")
        yield number, f"{len(names)} of the ten scenarios", claim, Finding(told, verdict)


_CLAIM_O1 = "min-max normalised and averaged, Adaptive TD is ahead of TD and MC, of its ensemble and of TD(λ)"
_CLAIM_O2 = "Adaptive TD is never worse than the worse of MC and TD, and close to the better in most cases"


def scenarios(results: Sequence[Results]) -> list[Scenario]:
    """Maps and games at every size, with the first model of each."""
    return [
        (one, {"problem": name, "model": one.settings["models"][0], "episodes": size})
        for one in results
        for name, size in itertools.product(one.problems, one.settings["sizes"])
    ]


def _usable(cases: Sequence[Scenario], methods: Sequence[str]) -> tuple[list[Scenario], list[str]]:
    """The cases of problems that have enough seeds at every size, and the names of the other problems."""
    few = {case["problem"] for one, case in cases if len(one.paired(methods, [case])) < FEWEST_SEEDS}
    return [one for one in cases if one[1]["problem"] not in few], sorted(few)


def _ahead(cases: Sequence[Scenario]) -> Finding:
    blocks = [one.paired(METHODS, [case]) for one, case in cases]
    seeds = min(len(block) for block in blocks)
    scores = np.concatenate([block[:seeds] for block in blocks], axis=1)

    def lead(over: int) -> Callable[[Float64[np.ndarray, "seeds cases methods"]], float]:
        def statistic(drawn: Float64[np.ndarray, "seeds cases methods"]) -> float:
            normalised = min_max(drawn.mean(axis=0))
            return float(np.mean(normalised[:, 0] - normalised[:, over]))

        return statistic

    found = [stratified_bootstrap(scores, lead(k)) for k in range(1, len(METHODS))]
    what = "mean min-max normalised MSVE of Adaptive TD less that of the other"
    return all_of(what, found, Bound(0, "below"), names=[style(m).label for m in METHODS[1:]])


def _never_worse(cases: Sequence[Scenario]) -> Finding:
    worse, close = [], 0
    for one, case in cases:
        to_worst = estimate(one, [case], [ATD, MC, TD], lambda m: float(m[ATD][0] / max(m[MC][0], m[TD][0])))
        to_best = estimate(one, [case], [ATD, MC, TD], lambda m: float(m[ATD][0] / min(m[MC][0], m[TD][0])))
        assert to_worst is not None
        assert to_best is not None
        close += to_best.value < CLOSE
        if ABOVE_ONE.shown(to_worst):
            worse.append(f"{case['problem']} at {case['episodes']} {text(to_worst)}")
    told = f"shown to be worse than both in {len(worse)} of {len(cases)} cases"
    if worse:
        told += ": " + "; ".join(worse)
    close_text = f"within {CLOSE} of the better in {close} of {len(cases)}"
    games = [case for one, case in cases if one.experiment == "atari"]
    if games:
        close_text += f" (in {len(games)} of them, the games, the noise of returns makes that easy)"
    return both(
        Finding(told, "does not hold" if worse else "holds"),
        Finding(close_text, "holds" if 2 * close > len(cases) else "does not hold"),
    )
