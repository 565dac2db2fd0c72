"""Claims about Mountain Car."""

from __future__ import annotations

from adaptive_td.experiments.results import Results

from .deciding import (
    ATD,
    BELOW_ONE,
    CLOSE,
    ENSEMBLE,
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
    names_of,
    ratio,
)


def _car_cases(results: Results) -> list[Case]:
    model = results.settings["models"][0]
    return [{"problem": "mountain-car", "model": model, "episodes": n} for n in results.settings["sizes"]]


def _car_monte_carlo(results: Results) -> Finding:
    cases = _car_cases(results)
    return all_of("M(MC)/M(TD)", each(results, cases, MC, TD), BELOW_ONE, names=names_of(cases))


def _car_adaptive(results: Results) -> Finding:
    cases = _car_cases(results)
    few, many = cases[:1], cases[-1:]
    return both(
        all_of("M(Adaptive TD)/M(MC)", each(results, few, ATD, MC), BELOW_ONE, names=names_of(few)),
        all_of(
            "M(Adaptive TD)/M(MC)", each(results, many, ATD, MC), Bound(CLOSE, "below"), names=names_of(many)
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


CLAIMS = [
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
]
