"""The paper's claims, each with the statistic that decides it.

A claim about methods is put as ratios of mean squared value errors, M(a)/M(b), averaged over seeds first,
with a bootstrap interval over seeds (drawn within each problem, the same for both methods). A ratio *shows*
a bound when its whole interval is on the right side of it, and *contradicts* it when its whole interval is on
the other. "Close" means a ratio below 1.25, "dramatic" below 0.5.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float64

from adaptive_td.experiments.results import Arrays, Results
from adaptive_td.metrics import Estimate, mean_over_seeds, min_max, stratified_bootstrap
from adaptive_td.problems import Chain, Labyrinth

from .styles import style

Verdict = Literal["holds", "does not hold", "not enough data"]
Case = dict[str, Any]
Means = dict[str, Float64[np.ndarray, " cases"]]
"""The mean MSVE over seeds of each method, by case."""

CLOSE, DRAMATIC = 1.25, 0.5
FEWEST_SEEDS = 3
NEAR_WALL = 50.0
"""Five steps of the walk."""
MC, ENSEMBLE, TD, ATD = "mc", "mc-ensemble", "td", "adaptive-td"
LAMBDAS = ("td-lambda:0.25", "td-lambda:0.5", "td-lambda:0.75")


class Row(NamedTuple):
    """One claim, checked."""

    number: str
    about: str
    claim: str
    statistic: str
    verdict: Verdict


class Finding(NamedTuple):
    """A statistic in words, and what it decides."""

    statistic: str
    verdict: Verdict


class Bound(NamedTuple):
    """What a statistic has to be: below or above a number."""

    number: float
    side: Literal["below", "above"]

    def shown(self, estimate: Estimate) -> bool:
        """Whether the whole interval is on the right side."""
        return estimate.high < self.number if self.side == "below" else estimate.low > self.number

    def contradicted(self, estimate: Estimate) -> bool:
        """Whether the whole interval is on the wrong side."""
        return estimate.low > self.number if self.side == "below" else estimate.high < self.number


BELOW_ONE, ABOVE_ONE = Bound(1, "below"), Bound(1, "above")


def check(results: Sequence[Results]) -> list[Row]:
    """Every claim that these results bear on."""
    by_name = {one.experiment: one for one in results}
    rows: list[Row] = []
    for name, claims in CLAIMS.items():
        if name in by_name:
            rows += [Row(*claim[:3], *claim.decide(by_name[name])) for claim in claims]
    return rows + (list(_overall(results)) if by_name.keys() & {"labyrinth", "atari"} else [])


def markdown(results: Sequence[Results]) -> str:
    """The claims as a Markdown table, with what was run above it."""
    ran = [f"- {one.experiment}: {_ran(one)}" for one in results]
    head = "| | about | claim | deciding statistic [95%] | verdict |\n|---|---|---|---|---|"
    rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in check(results)]
    return "\n".join(["# Claims of the paper, checked", "", *ran, "", head, *rows, ""])


def _ran(results: Results) -> str:
    settings = results.settings
    trained = (
        f"{settings['steps']:,} steps of {settings['batch_size']}, "
        if "tabular" not in settings["models"]
        else ""
    )
    seeds = results.cells()["seed"].n_unique()
    return (
        f"{', '.join(settings['models'])}; {trained}{seeds} seeds; {results.facts.get('machine', '')}, "
        f"{results.facts.get('cores', '?')} cores, adaptive-td {results.facts.get('adaptive-td', '')}"
    )


# --- statistics ---------------------------------------------------------------------------------------------


def estimate(
    results: Results, cases: Sequence[Case], methods: Sequence[str], statistic: Callable[[Means], float]
) -> Estimate | None:
    """A statistic of mean errors with its interval over seeds; None where there are too few seeds."""
    scores = results.paired(methods, cases)
    if len(scores) < FEWEST_SEEDS:
        return None

    def of_means(drawn: Float64[np.ndarray, "seeds cases methods"]) -> float:
        return statistic(dict(zip(methods, np.moveaxis(drawn.mean(axis=0), -1, 0), strict=True)))

    return stratified_bootstrap(scores, of_means)


def ratio(results: Results, cases: Sequence[Case], above: str, *below: str) -> Estimate | None:
    """M(above)/M(below), the geometric mean over cases; with several below, their least."""

    def statistic(means: Means) -> float:
        least = np.min([means[method] for method in below], axis=0)
        return float(np.exp(np.mean(np.log(means[above] / least))))

    return estimate(results, cases, [above, *below], statistic)


def all_of(
    what: str, found: Sequence[Estimate | None], bound: Bound, *, names: Sequence[str], exceptions: int = 0
) -> Finding:
    """A statistic that must be on its side in all cases, or all but some."""
    known = [one for one in found if one is not None]
    if len(known) < len(found) or not known:
        return Finding(f"{what}: fewer than {FEWEST_SEEDS} seeds", "not enough data")
    shown = sum(bound.shown(one) for one in known)
    against = [name for one, name in zip(known, names, strict=True) if bound.contradicted(one)]
    each = "; ".join(f"{name} {_text(one)}" for name, one in zip(names, known, strict=True))
    verdict: Verdict = "not enough data"
    if shown >= len(known) - exceptions:
        verdict = "holds"
    elif len(against) > exceptions:
        verdict = "does not hold"
    wanted = f"{bound.side} {bound.number:g}"
    return Finding(f"{what}, to be {wanted}: {each} ({shown} of {len(known)} shown)", verdict)


def both(*findings: Finding) -> Finding:
    """A claim of several parts."""
    verdicts = [finding.verdict for finding in findings]
    worst: Verdict = "holds"
    for verdict in ("not enough data", "does not hold"):
        if verdict in verdicts:
            worst = verdict
    return Finding(" · ".join(f"{f.statistic}: {f.verdict}" for f in findings), worst)


def _text(one: Estimate) -> str:
    return f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"


def _over_seeds(numbers: Sequence[float]) -> Estimate | None:
    """The mean of one number per seed."""
    if len(numbers) < FEWEST_SEEDS:
        return None
    return mean_over_seeds(np.array(numbers))


# --- chain --------------------------------------------------------------------------------------------------


def _chain_cases(results: Results, problem: str) -> list[Case]:
    return [{"problem": problem, "episodes": size} for size in results.settings["sizes"]]


def _names(cases: Sequence[Case]) -> list[str]:
    """What tells cases apart: episodes, or the number of the map."""
    if len({case["problem"] for case in cases}) > 1:
        return [case["problem"].replace("labyrinth-", "map ") for case in cases]
    return [f"n = {case['episodes']}" for case in cases]


def _each(results: Results, cases: Sequence[Case], above: str, *below: str) -> list[Estimate | None]:
    return [ratio(results, [case], above, *below) for case in cases]


def _variances(results: Results) -> Finding:
    cases, chain = _chain_cases(results, "chain"), results.problems["chain"]
    assert isinstance(chain, Chain)
    ahead = all_of("M(MC)/M(TD)", _each(results, cases, MC, TD), ABOVE_ONE, names=_names(cases))
    largest = ratio(results, cases[-1:], MC, TD)
    if largest is None:
        return ahead
    is_k = largest.low <= 1.25 * chain.k and largest.high >= 0.8 * chain.k
    size = cases[-1]["episodes"]
    return both(
        ahead,
        Finding(f"at n = {size} it is {_text(largest)}, k = {chain.k}", "holds" if is_k else "does not hold"),
    )


def _crossing(results: Results) -> Finding:
    cases = _chain_cases(results, "chain-biased")
    few, many = cases[:1], cases[-1:]
    return both(
        all_of("M(MC)/M(TD)", _each(results, few, MC, TD), ABOVE_ONE, names=_names(few)),
        all_of("M(MC)/M(TD)", _each(results, many, MC, TD), BELOW_ONE, names=_names(many)),
    )


def _chain_adapts(results: Results) -> Finding:
    few, many = _chain_cases(results, "chain")[:1], _chain_cases(results, "chain-biased")[-1:]
    return both(
        all_of(
            "M(Adaptive TD)/M(TD), unbiased",
            _each(results, few, ATD, TD),
            Bound(CLOSE, "below"),
            names=_names(few),
        ),
        all_of("M(Adaptive TD)/M(TD), biased", _each(results, many, ATD, TD), BELOW_ONE, names=_names(many)),
    )


def _chain_outside(results: Results) -> Finding:
    chain, largest = results.problems["chain-biased"], max(results.settings["sizes"])
    assert isinstance(chain, Chain)
    arrays = results.arrays_of(problem="chain-biased", method=TD, episodes=largest)
    shares = [float(outside(one)[: chain.p].astype(bool).mean()) for one in arrays.values()]
    what = f"share of s_1 ... s_{chain.p}, which TD reads off the biased b_1, outside at n = {largest}"
    return all_of(what, [_over_seeds(shares)], Bound(0.5, "above"), names=["share"])


def outside(arrays: Arrays) -> Float64[np.ndarray, " states"]:
    """1 where V(s) lies above its interval, -1 where it lies below, 0 inside."""
    values, lower, upper = (arrays[name] for name in ("values", "lower", "upper"))
    return (values > upper).astype(float) - (values < lower)


# --- labyrinth ----------------------------------------------------------------------------------------------


def _maps(results: Results) -> list[str]:
    return [name for name, problem in results.problems.items() if isinstance(problem, Labyrinth)]


def _at(results: Results, size: int, model: str | None = None, maps: Sequence[str] = ()) -> list[Case]:
    model = model or results.settings["models"][0]
    return [{"problem": name, "model": model, "episodes": size} for name in maps or _maps(results)]


def _few(results: Results) -> int:
    return min(results.settings["sizes"])


def _many(results: Results) -> int:
    return max(results.settings["sizes"])


def _leaky(results: Results) -> list[str]:
    """The maps on which the paper finds strong leakage, as far as they were run."""
    return [name for name in _maps(results) if name in {f"labyrinth-{k}" for k in (1, 2, 3, 5)}]


def _few_monte_carlo(results: Results, model: str | None = None) -> Finding:
    cases = _at(results, _few(results), model)
    what = f"M(MC)/M(TD) at {_few(results)} episodes"
    return all_of(what, _each(results, cases, MC, TD), ABOVE_ONE, names=_names(cases))


def _many_monte_carlo(results: Results, model: str | None = None) -> Finding:
    cases = _at(results, _many(results), model)
    what = f"M(MC)/M(TD) at {_many(results)} episodes, on most maps"
    ratios = _each(results, cases, MC, TD)
    return all_of(what, ratios, BELOW_ONE, names=_names(cases), exceptions=(len(cases) - 1) // 2)


def _few_adaptive(results: Results, model: str | None = None) -> Finding:
    cases = _at(results, _few(results), model)
    what = f"M(Adaptive TD)/M(MC) at {_few(results)} episodes, on all maps but one"
    return all_of(what, _each(results, cases, ATD, MC), BELOW_ONE, names=_names(cases), exceptions=1)


def _many_adaptive(results: Results, model: str | None = None) -> Finding:
    cases = _at(results, _many(results), model)
    what = f"M(Adaptive TD)/M(MC) at {_many(results)} episodes"
    return all_of(what, _each(results, cases, ATD, MC), Bound(CLOSE, "below"), names=_names(cases))


def _dramatic(results: Results, model: str | None = None) -> Finding:
    cases = _at(results, _many(results), model, _leaky(results))
    what = f"M(Adaptive TD)/M(TD) at {_many(results)} episodes"
    return all_of(what, _each(results, cases, ATD, TD), Bound(DRAMATIC, "below"), names=_names(cases))


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
    return all_of("M(TD)/M(MC) on map 0", _each(results, cases, TD, MC), BELOW_ONE, names=_names(cases))


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
                **_at(results, _many(results), maps=["labyrinth-2"])[0], method=method
            ).values()
        ]
        for method in (MC, TD)
    }
    spread = [
        float(np.log(td[far].mean() / mc[far].mean())) for td, mc in zip(errors[TD], errors[MC], strict=False)
    ]
    concentrated = [float(mc[band].sum() / mc[above].sum()) for mc in errors[MC]]
    logs = _over_seeds(spread)
    times = None if logs is None else Estimate(*(float(np.exp(x)) for x in logs))
    return both(
        all_of(
            f"share of MC's squared error in the far half that is within {NEAR_WALL:.0f} of the wall",
            [_over_seeds(concentrated)],
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
            [_over_seeds(inside)],
            Bound(0.5, "above"),
            names=[f"at {size} episodes"],
        ),
        all_of(
            f"share where V is outside after {early} steps",
            [_over_seeds(violated)],
            Bound(0.1, "above"),
            names=["share"],
        ),
        all_of(
            "distance to a wall of what is outside at the end, over that of all states",
            [_over_seeds(distances)],
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


# --- mountain car -------------------------------------------------------------------------------------------


def _car_cases(results: Results) -> list[Case]:
    model = results.settings["models"][0]
    return [{"problem": "mountain-car", "model": model, "episodes": n} for n in results.settings["sizes"]]


def _car_monte_carlo(results: Results) -> Finding:
    cases = _car_cases(results)
    return all_of("M(MC)/M(TD)", _each(results, cases, MC, TD), BELOW_ONE, names=_names(cases))


def _car_adaptive(results: Results) -> Finding:
    cases = _car_cases(results)
    few, many = cases[:1], cases[-1:]
    return both(
        all_of("M(Adaptive TD)/M(MC)", _each(results, few, ATD, MC), BELOW_ONE, names=_names(few)),
        all_of(
            "M(Adaptive TD)/M(MC)", _each(results, many, ATD, MC), Bound(CLOSE, "below"), names=_names(many)
        ),
        all_of("M(Adaptive TD)/M(TD)", [ratio(results, cases, ATD, TD)], BELOW_ONE, names=["over sizes"]),
    )


def _car_lambdas(results: Results) -> Finding:
    cases = _car_cases(results)
    return both(
        *(
            all_of(
                f"M(λ={method.partition(':')[2]})/min(M(MC ensemble), M(Adaptive TD))",
                [ratio(results, cases, method, ENSEMBLE, ATD)],
                Bound(CLOSE, "below"),
                names=["over sizes"],
            )
            for method in LAMBDAS[1:]
        )
    )


# --- all scenarios ------------------------------------------------------------------------------------------


def scenarios(results: Sequence[Results]) -> list[tuple[Results, Case]]:
    """Maps and games at every size, with the first model of each."""
    return [
        (one, {"problem": name, "model": one.settings["models"][0], "episodes": size})
        for one in results
        if one.experiment in ("labyrinth", "atari")
        for name, size in itertools.product(one.problems, one.settings["sizes"])
    ]


def _overall(results: Sequence[Results]) -> Iterator[Row]:
    cases = scenarios(results)
    names = sorted({case["problem"] for _, case in cases})
    about = f"{len(names)} of the ten scenarios"
    yield Row("O1", about, _CLAIM_O1, *_ahead_overall(cases))
    yield Row("O2", about, _CLAIM_O2, *_never_worse(cases))


_CLAIM_O1 = "min-max normalised and averaged, Adaptive TD is ahead of TD and MC, of its ensemble and of TD(λ)"
_CLAIM_O2 = "Adaptive TD is never worse than the worse of MC and TD, and close to the better in most cases"


def _ahead_overall(cases: Sequence[tuple[Results, Case]]) -> Finding:
    methods = (ATD, TD, MC, ENSEMBLE, *LAMBDAS)
    blocks = [one.paired(methods, [case]) for one, case in cases]
    seeds = min(len(block) for block in blocks)
    if seeds < FEWEST_SEEDS:
        return Finding(f"fewer than {FEWEST_SEEDS} seeds of every case", "not enough data")
    scores = np.concatenate([block[:seeds] for block in blocks], axis=1)

    def lead(over: int) -> Callable[[Float64[np.ndarray, "seeds cases methods"]], float]:
        def statistic(drawn: Float64[np.ndarray, "seeds cases methods"]) -> float:
            normalised = min_max(drawn.mean(axis=0))
            return float(np.mean(normalised[:, 0] - normalised[:, over]))

        return statistic

    found = [stratified_bootstrap(scores, lead(k)) for k in range(1, len(methods))]
    what = "mean min-max normalised MSVE of Adaptive TD less that of the other"
    return all_of(what, found, Bound(0, "below"), names=[style(m).label for m in methods[1:]])


def _never_worse(cases: Sequence[tuple[Results, Case]]) -> Finding:
    worse, close, known = [], 0, 0
    for one, case in cases:
        to_worst = estimate(one, [case], [ATD, MC, TD], lambda m: float(m[ATD][0] / max(m[MC][0], m[TD][0])))
        to_best = estimate(one, [case], [ATD, MC, TD], lambda m: float(m[ATD][0] / min(m[MC][0], m[TD][0])))
        if to_worst is None or to_best is None:
            return Finding(f"fewer than {FEWEST_SEEDS} seeds of every case", "not enough data")
        known += 1
        close += to_best.value < CLOSE
        if ABOVE_ONE.shown(to_worst):
            worse.append(f"{case['problem']} at {case['episodes']} {_text(to_worst)}")
    told = f"shown to be worse than both in {len(worse)} of {known} cases"
    if worse:
        told += ": " + "; ".join(worse)
    close_text = f"within {CLOSE} of the better in {close} of {known}"
    return both(
        Finding(told, "does not hold" if worse else "holds"),
        Finding(close_text, "holds" if 2 * close > known else "does not hold"),
    )


class Claim(NamedTuple):
    """A claim of the paper in our words, and how it is decided."""

    number: str
    about: str
    claim: str
    decide: Callable[[Results], Finding]


CLAIMS: dict[str, list[Claim]] = {
    "chain": [
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
    ],
    "labyrinth": [
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
    ],
    "mountain-car": [
        Claim("M1", "Mountain Car", "MC consistently beats TD", _car_monte_carlo),
        Claim(
            "M2",
            "Mountain Car",
            "Adaptive TD is strong at few rollouts, like MC at many, and ahead of TD",
            _car_adaptive,
        ),
        Claim(
            "M3",
            "Mountain Car",
            "TD(λ) with λ ≥ 0.5 competes with the MC ensemble and Adaptive TD",
            _car_lambdas,
        ),
    ],
}
"""By experiment; another experiment adds its own list."""
