"""The paper's claims, each with the statistic that decides it and what was run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from adaptive_td.experiments.results import Results

from . import atari, chain, labyrinth, mountain_car, overall
from .deciding import (
    ABOVE_ONE,
    BELOW_ONE,
    Bound,
    Case,
    Claim,
    Verdict,
    all_of,
    both,
    ratio,
)

CLAIMS: dict[str, list[Claim]] = {
    "chain": chain.CLAIMS,
    "labyrinth": labyrinth.CLAIMS,
    "mountain-car": mountain_car.CLAIMS,
    "atari": atari.CLAIMS,
}
"""By experiment; another experiment adds its own list."""


class Row(NamedTuple):
    """One claim, checked."""

    number: str
    about: str
    claim: str
    statistic: str
    ran: str
    """What was run: problems, sizes, training and seeds."""
    verdict: Verdict


def check(results: Sequence[Results]) -> list[Row]:
    """Every claim that these results bear on."""
    by_name = {one.experiment: one for one in results}
    rows: list[Row] = []
    for name, claims in CLAIMS.items():
        if name in by_name:
            found = by_name[name]
            for claim in claims:
                statistic, verdict = claim.decide(found)
                rows.append(Row(*claim[:3], statistic, what_was_run(found), verdict))
    together = [one for one in results if one.experiment in overall.EXPERIMENTS]
    ran = "; ".join(f"{one.experiment}: {what_was_run(one)}" for one in together)
    for number, about, text, (statistic, verdict) in overall.claims(together) if together else ():
        rows.append(Row(number, about, text, statistic, ran, verdict))
    return rows


def what_was_run(results: Results) -> str:
    """Problems, sizes, training and seeds, in a line."""
    settings = results.settings
    count = len(results.problems)
    kind = {"atari": "game", "labyrinth": "map"}.get(results.experiment, "problem")
    sizes = ", ".join(map(str, settings["sizes"]))
    return f"{count} {kind}{'s' * (count != 1)}; {sizes} episodes; {_training(results)}"


def _training(results: Results) -> str:
    settings = results.settings
    trained = "tabular" not in settings["models"]
    steps = f"{settings['steps']:,} steps of {settings['batch_size']}, " if trained else ""
    seeds = results.cells()["seed"].n_unique()
    return f"{', '.join(settings['models'])}; {steps}{seeds} seed{'s' * (seeds != 1)}"


def markdown(results: Sequence[Results]) -> str:
    """The claims as a Markdown table, with what was run above it."""
    ran = [f"- {one.experiment}: {_training(one)}; {_machine(one)}" for one in results]
    head = (
        "| | about | claim | deciding statistic [95%] | what was run | verdict |\n|---|---|---|---|---|---|"
    )
    rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in check(results)]
    return "\n".join(["# Claims of the paper, checked", "", *ran, "", head, *rows, ""])


def _machine(results: Results) -> str:
    facts = results.facts
    version = facts.get("adaptive-td", "")
    return f"{facts.get('machine', '')}, {facts.get('cores', '?')} cores, adaptive-td {version}"


__all__ = [
    "ABOVE_ONE",
    "BELOW_ONE",
    "CLAIMS",
    "Bound",
    "Case",
    "Row",
    "all_of",
    "both",
    "check",
    "markdown",
    "ratio",
    "what_was_run",
]
