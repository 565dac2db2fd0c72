"""Claims about the Labyrinth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adaptive_td.experiments.results import Arrays, Results
from adaptive_td.metrics import Estimate
from adaptive_td.problems import Labyrinth

from .deciding import (
    ABOVE_ONE,
    ATD,
    BELOW_ONE,
    CLOSE,
    DRAMATIC,
    LAMBDAS,
    MC,
    TD,
    Bound,
    Case,
    Claim,
    Finding,
    all_of,
    both,
    each,
    fewest,
    most,
    names_of,
    outside,
    over_seeds,
    ratio,
)

NEAR_WALL = 50.0
"""Five steps of the walk."""


def _maps(results: Results) -> list[str]:
    return [name for name, problem in results.problems.items() if isinstance(problem, Labyrinth)]


def _at(results: Results, size: int, model: str | None = None, maps: Sequence[str] = ()) -> list[Case]:
    model = model or results.settings["models"][0]
    return [{"problem": name, "model": model, "episodes": size} for name in maps or _maps(results)]


def _leaky(results: Results) -> list[str]:
    """The maps on which the paper finds strong leakage, as far as they were run."""
    return [name for name in _maps(results) if name in {f"labyrinth-{k}" for k in (1, 2, 3, 5)}]


def _few_monte_carlo(results: Results, model: str | None = None) -> Finding:
    cases = _at(results, fewest(results), model)
    what = f"M(MC)/M(TD) at {fewest(results)} episodes"
    return all_of(what, each(results, cases, MC, TD), ABOVE_ONE, names=names_of(cases))


def _many_monte_carlo(results: Results, model: str | None = None) -> Finding:
    cases = _at(results, most(results), model)
    what = f"M(MC)/M(TD) at {most(results)} episodes, on most maps"
    ratios = each(results, cases, MC, TD)
    return all_of(what, ratios, BELOW_ONE, names=names_of(cases), exceptions=(len(cases) - 1) // 2)


def _few_adaptive(results: Results, model: str | None = None) -> Finding:
    cases = _at(results, fewest(results), model)
    what = f"M(Adaptive TD)/M(MC) at {fewest(results)} episodes, on all maps but one"
    return all_of(what, each(results, cases, ATD, MC), BELOW_ONE, names=names_of(cases), exceptions=1)


def _many_adaptive(results: Results, model: str | None = None) -> Finding:
    cases = _at(results, most(results), model)
    what = f"M(Adaptive TD)/M(MC) at {most(results)} episodes"
    return all_of(what, each(results, cases, ATD, MC), Bound(CLOSE, "below"), names=names_of(cases))


def _dramatic(results: Results, model: str | None = None) -> Finding:
    cases = _at(results, most(results), model, _leaky(results))
    what = f"M(Adaptive TD)/M(TD) at {most(results)} episodes"
    return all_of(what, each(results, cases, ATD, TD), Bound(DRAMATIC, "below"), names=names_of(cases))


def _over_sizes(results: Results, above: str, *below: str) -> list[Estimate | None]:
    """On each leaky map, the ratio's geometric mean over sizes."""
    sizes, model = results.settings["sizes"], results.settings["models"][0]
    return [
        ratio(results, [{"problem": name, "model": model, "episodes": n} for n in sizes], above, *below)
        for name in _leaky(results)
    ]


def _lambdas(results: Results) -> Finding:
    names = [name.replace("labyrinth-", "map ") for name in _leaky(results)]
    best = LAMBDAS[2]
    parts = [
        all_of(
            "M(λ=0.75)/M(Adaptive TD) over sizes",
            _over_sizes(results, best, ATD),
            Bound(CLOSE, "below"),
            names=names,
        )
    ]
    for other in LAMBDAS[:2]:
        what = f"M(λ={other.partition(':')[2]})/M(λ=0.75) over sizes, on most"
        found = _over_sizes(results, other, best)
        parts.append(all_of(what, found, ABOVE_ONE, names=names, exceptions=(len(names) - 1) // 2))
    return both(*parts)


def _open_map(results: Results) -> Finding:
    if "labyrinth-0" not in results.problems:
        return Finding("map 0 was not run", "not enough data")
    model = results.settings["models"][0]
    cases = [{"problem": "labyrinth-0", "model": model, "episodes": n} for n in results.settings["sizes"]]
    return all_of("M(TD)/M(MC) on map 0", each(results, cases, TD, MC), BELOW_ONE, names=names_of(cases))


def _leakage(results: Results) -> Finding:
    problem = results.problems.get("labyrinth-2")
    if not isinstance(problem, Labyrinth):
        return Finding("map 2 was not run", "not enough data")
    truth, grid = problem.true_values().values, problem.grid()
    above = grid[:, 1] > 150
    band = above & (problem.wall_distance(grid) < NEAR_WALL)
    far = above & ~band
    errors = {
        method: [
            (arrays["values"] - truth) ** 2
            for arrays in results.arrays_of(
                **_at(results, most(results), maps=["labyrinth-2"])[0], method=method
            ).values()
        ]
        for method in (MC, TD)
    }
    spread = [
        float(np.log(td[far].mean() / mc[far].mean())) for td, mc in zip(errors[TD], errors[MC], strict=False)
    ]
    concentrated = [float(mc[band].sum() / mc[above].sum()) for mc in errors[MC]]
    logs = over_seeds(spread)
    times = None if logs is None else Estimate(*(float(np.exp(x)) for x in logs))
    return both(
        all_of(
            f"share of MC's squared error in the far half that is within {NEAR_WALL:.0f} of the wall",
            [over_seeds(concentrated)],
            Bound(0.5, "above"),
            names=["share"],
        ),
        all_of(
            "mean squared error further in, TD over MC (geometric mean over seeds)",
            [times],
            Bound(1.0, "above"),
            names=["ratio"],
        ),
    )


def _intervals(results: Results) -> Finding:
    settings = results.settings
    size, early = settings["snapshot_episodes"], settings["snapshot_steps"]
    if size not in settings["sizes"]:
        return Finding(f"no intervals were looked at: {size} episodes were not run", "not enough data")
    inside, violated, distances = [], [], []
    cases = _at(results, size)
    for seed in range(settings["seeds"]):
        chosen: list[tuple[Labyrinth, Arrays, Arrays]] = []
        for case in cases:
            problem = results.problems[case["problem"]]
            assert isinstance(problem, Labyrinth)
            ends = results.arrays_of(**case, method=ATD, seed=seed)
            starts = results.arrays_of(**case, method=ATD, seed=seed, after=early)
            if seed in ends and seed in starts:
                chosen.append((problem, ends[seed], starts[seed]))
        if len(chosen) < len(cases):
            continue
        inside.append(float(np.mean([_covered(problem, end) for problem, end, _ in chosen])))
        violated.append(float(np.mean([np.mean(outside(start) != 0) for _, _, start in chosen])))
        nearer = [x for problem, end, _ in chosen if (x := _nearness(problem, end)) is not None]
        distances.append(float(np.mean(nearer)) if nearer else np.nan)
    return both(
        all_of(
            "share of the maps where the interval holds the truth",
            [over_seeds(inside)],
            Bound(0.5, "above"),
            names=[f"at {size} episodes"],
        ),
        all_of(
            f"share where V is outside after {early} steps",
            [over_seeds(violated)],
            Bound(0.1, "above"),
            names=["share"],
        ),
        all_of(
            "distance to a wall of what is outside at the end, over that of all states",
            [over_seeds(distances)],
            BELOW_ONE,
            names=["ratio"],
        ),
    )


def _covered(problem: Labyrinth, arrays: Arrays) -> float:
    truth = problem.true_values().values
    return float(np.mean((arrays["lower"] < truth) & (truth < arrays["upper"])))


def _nearness(problem: Labyrinth, arrays: Arrays) -> float | None:
    """The mean distance to a wall where V is outside its interval, over the mean of all states."""
    far = problem.wall_distance(problem.grid())
    violated = outside(arrays) != 0
    if not problem.walls or not violated.any():
        return None
    return float(far[violated].mean() / far.mean())


def _grid(results: Results) -> Finding:
    models = results.settings["models"]
    grid = next((model for model in models if model.startswith("grid")), None)
    if grid is None or grid == models[0]:
        return Finding("the grid was not run beside a network", "not enough data")
    parts = {
        "L1": _few_monte_carlo,
        "L2": _many_monte_carlo,
        "L3": _few_adaptive,
        "L4": _many_adaptive,
        "L5": _dramatic,
    }
    verdicts = {name: (part(results).verdict, part(results, grid).verdict) for name, part in parts.items()}
    told = "; ".join(f"{name}: {mlp} / {cells}" for name, (mlp, cells) in verdicts.items())
    if any("not enough data" in pair for pair in verdicts.values()):
        return Finding(f"verdicts with the network / with the grid: {told}", "not enough data")
    same = all(mlp == cells for mlp, cells in verdicts.values())
    return Finding(f"verdicts with the network / with the grid: {told}", "holds" if same else "does not hold")


CLAIMS = [
    Claim("L1", "Labyrinth", "MC suffers at few rollouts, on all maps", _few_monte_carlo),
    Claim("L2", "Labyrinth", "in most maps MC beats TD at many rollouts", _many_monte_carlo),
    Claim(
        "L3",
        "Labyrinth",
        "Adaptive TD gains from TD at few rollouts, on basically all maps",
        _few_adaptive,
    ),
    Claim("L4", "Labyrinth", "Adaptive TD stays very close to MC at many rollouts", _many_adaptive),
    Claim("L5", "maps 1, 2, 3, 5", "at many rollouts its gain over TD is dramatic", _dramatic),
    Claim(
        "L6",
        "maps 1, 2, 3, 5",
        "λ = 0.75 is competitive with Adaptive TD, the other λ are mostly behind",
        _lambdas,
    ),
    Claim("L7", "map 0", "TD is the right choice where there is no wall", _open_map),
    Claim(
        "L8",
        "map 2",
        "MC errs in a narrow band above the wall, TD spreads the error far into the zero half",
        _leakage,
    ),
    Claim(
        "L9",
        "Labyrinth",
        "intervals hold the truth in most of the space; violations are wide after 300 steps and next to "
        "walls at the end",
        _intervals,
    ),
    Claim("L10", "Labyrinth, grid", "the same comparison holds with the 19 x 19 grid", _grid),
]
