"""Claims about the Atari games.

M is the mean of (G - V)² over test visits: it holds the noise of the returns, the same for every method. The
noise pulls ratios towards 1, so who is ahead is still told by them, but not by how much. How far ahead is
told by errors on the scale from the best (0) to the worst (1) of MC, its ensemble, TD and Adaptive TD, where
it cancels: "well" and "struggles" mean below and above a half of that scale, "close" a quarter of it apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float64

from adaptive_td.experiments.results import Results
from adaptive_td.metrics import Estimate, min_max
from adaptive_td.problems import Atari

from .deciding import (
    ABOVE_ONE,
    ATD,
    BELOW_ONE,
    ENSEMBLE,
    LAMBDAS,
    MC,
    TD,
    Bound,
    Case,
    Claim,
    Finding,
    Means,
    all_of,
    both,
    estimate,
    fewest,
    ratio,
)

BASELINES = (MC, ENSEMBLE, TD, ATD)
HALF, QUARTER = 0.5, 0.25
PONG, INVADERS = "atari-pong", "atari-space_invaders"
GAINS = {PONG: 0.8, INVADERS: 0.9}
"""Ratios of errors that are taken for gains of about 30% and about 20%: half way to the next ten."""


def _games(results: Results) -> dict[str, str]:
    """The games that were run, by name, with their titles."""
    return {name: one.title for name, one in results.problems.items() if isinstance(one, Atari)}


def _cases(results: Results, games: Sequence[str], sizes: Sequence[int] = ()) -> list[Case]:
    model = results.settings["models"][0]
    return [
        {"problem": game, "model": model, "episodes": size}
        for game in games
        for size in sizes or results.settings["sizes"]
    ]


def _on_scale(
    results: Results, cases: Sequence[Case], statistic: Callable[[dict[str, Float64[np.ndarray, ""]]], float]
) -> Estimate | None:
    """A statistic of the methods' places between best and worst, averaged over cases."""

    def of_means(means: Means) -> float:
        places = min_max(np.stack([means[method] for method in BASELINES], axis=-1)).mean(axis=0)
        return statistic(dict(zip(BASELINES, places, strict=True)))

    return estimate(results, cases, BASELINES, of_means)


def _td_does_well(results: Results) -> Finding:
    sizes = results.settings["sizes"]
    found = [
        _on_scale(results, _cases(results, list(_games(results)), [size]), lambda at: float(at[TD]))
        for size in sizes
    ]
    what = "TD's place between best (0) and worst (1) of the four, mean over games"
    return all_of(what, found, Bound(HALF, "below"), names=[f"n = {size}" for size in sizes])


def _over_sizes(results: Results, above: str, below: str) -> list[Estimate | None]:
    return [ratio(results, _cases(results, [game]), above, below) for game in _games(results)]


def _mc_struggles(results: Results) -> Finding:
    games = _games(results)
    places = [_on_scale(results, _cases(results, [game]), lambda at: float(at[MC])) for game in games]
    titles = list(games.values())
    return both(
        all_of(
            "MC's place between best (0) and worst (1) of the four, mean over sizes",
            places,
            Bound(HALF, "above"),
            names=titles,
        ),
        all_of(
            "M(MC ensemble)/M(MC) over sizes", _over_sizes(results, ENSEMBLE, MC), BELOW_ONE, names=titles
        ),
    )


def _adaptive_beats_mc(results: Results) -> Finding:
    games = _games(results)
    titles = list(games.values())
    behind = [
        _on_scale(results, _cases(results, [game]), lambda at: float(at[ATD] - at[TD])) for game in games
    ]
    return both(
        all_of("M(Adaptive TD)/M(MC) over sizes", _over_sizes(results, ATD, MC), BELOW_ONE, names=titles),
        all_of(
            "M(Adaptive TD)/M(MC ensemble) over sizes",
            _over_sizes(results, ATD, ENSEMBLE),
            BELOW_ONE,
            names=titles,
        ),
        all_of(
            "Adaptive TD's place less TD's, mean over sizes", behind, Bound(QUARTER, "below"), names=titles
        ),
    )


def _worst_lambda(results: Results) -> Finding:
    games = _games(results)

    def least(means: Means) -> float:
        other = np.max([means[method] for method in LAMBDAS[:2]], axis=0)
        return float(np.exp(np.mean(np.log(means[LAMBDAS[2]] / other))))

    found = [estimate(results, _cases(results, [game]), LAMBDAS, least) for game in games]
    parts = [
        all_of("M(λ=0.75)/max(M(λ=0.25), M(λ=0.5)) over sizes", found, ABOVE_ONE, names=list(games.values()))
    ]
    for game, sizes, when in (
        (PONG, [fewest(results)], f"n = {fewest(results)}"),
        (INVADERS, results.settings["sizes"], "over sizes"),
    ):
        if game not in games:
            parts.append(Finding(f"{game.removeprefix('atari-')} was not run", "not enough data"))
            continue
        gain = [ratio(results, _cases(results, [game], sizes), ATD, LAMBDAS[2])]
        what = f"M(Adaptive TD)/M(λ=0.75) in {games[game]}"
        parts.append(all_of(what, gain, Bound(GAINS[game], "below"), names=[when]))
    return both(*parts)


CLAIMS = [
    Claim("A1", "Atari", "TD does well at every number of rollouts", _td_does_well),
    Claim(
        "A2",
        "Atari",
        "a single MC network struggles in all games, and the MC ensemble is better",
        _mc_struggles,
    ),
    Claim(
        "A3",
        "Atari",
        "Adaptive TD is ahead of MC and of its own ensemble, and close to TD",
        _adaptive_beats_mc,
    ),
    Claim(
        "A4",
        "Atari",
        "λ = 0.75 is the worst of the λ; Adaptive TD gains about 30% on it in Pong at few rollouts, about "
        "20% in Space Invaders throughout",
        _worst_lambda,
    ),
]
