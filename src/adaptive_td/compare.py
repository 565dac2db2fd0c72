"""Which method suits this log? Fit on some episodes, judge on the others by paired differences."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import plotly.graph_objects as go

from .episodes import Episodes
from .errors import DataError, Diverged
from .fitting import Fit, fit_many
from .jobs import Training
from .methods import Method
from .metrics import Estimate, cluster_bootstrap, paired_difference
from .report import Page
from .scoring import whole_returns
from .training import Progress
from .value import ValueFunction


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Errors of each method on held-out visits, and all paired differences between them."""

    training: Episodes
    test: Episodes
    visits: int
    errors: dict[str, Estimate]
    """Mean squared difference to the realised return: the value error and, the same for all, its noise."""
    differences: dict[tuple[str, str], Estimate]
    """MSVE(first) - MSVE(second): the noise cancels. Negative: the first is better."""
    diverged: dict[str, int]
    overruled: dict[str, float]

    @property
    def best(self) -> str:
        """The method with the least error."""
        return min(self.errors, key=lambda name: self.errors[name].value)

    def verdict(self, name: str) -> str:
        """How a method stands to the best one, in words."""
        if name == self.best:
            return "least error"
        return "worse" if self.differences[name, self.best].low > 0 else "not told apart from the best"

    def as_json(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "training_episodes": len(self.training),
            "test_episodes": len(self.test),
            "test_visits": self.visits,
            "best": self.best,
            "errors": {name: e._asdict() for name, e in self.errors.items()},
            "differences": [{"a": a, "b": b, **e._asdict()} for (a, b), e in self.differences.items()],
            "diverged_at_step": self.diverged,
            "share_overruled": self.overruled,
        }


def compare(
    episodes: Episodes,
    methods: Mapping[str, Method],
    model: Any,
    *,
    discount: float,
    training: Training | None = None,
    test_fraction: float = 0.3,
    level: float = 0.95,
    seed: int = 0,
    normalize: bool = True,
    progress: Progress | bool | None = None,
) -> Comparison:
    """Fit every method to the same training episodes and judge all on the same held-out visits."""
    test, train = episodes.split(test_fraction, seed=seed)
    returns, visits = whole_returns(test, discount)
    if not len(visits):
        raise DataError(
            "no held-out return is whole: every test episode is cut by truncation before its discounted "
            "rewards have come in, so there is nothing to judge values by"
        )
    key = jax.random.key(seed)
    fits = [Fit(m, train, model, discount=discount, key=key, normalize=normalize) for m in methods.values()]
    results = dict(zip(methods, fit_many(fits, training=training, progress=progress), strict=True))
    row, episode, target = test.index[visits], test.episode[visits], returns[visits]
    values = {name: v.over(test)[row] for name, v in results.items() if isinstance(v, ValueFunction)}
    if not values:
        raise DataError("every method diverged; is a reward or state of this log of a wild size?")
    options = {"level": level, "seed": seed}
    return Comparison(
        training=train,
        test=test,
        visits=len(visits),
        errors={n: cluster_bootstrap((v - target) ** 2, episode, **options) for n, v in values.items()},  # type: ignore[arg-type]
        differences={
            (a, b): paired_difference(values[a], values[b], target, episode, **options)  # type: ignore[arg-type]
            for a, b in itertools.permutations(values, 2)
        },
        diverged={n: r.step for n, r in results.items() if isinstance(r, Diverged)},
        overruled={
            n: share
            for n, r in results.items()
            if isinstance(r, ValueFunction) and (share := r.diagnostics.share_overruled) is not None
        },
    )


def page(result: Comparison, settings: Mapping[str, Any]) -> Page:
    """The comparison as a page."""
    report = Page("Which method suits this log?")
    report.text(
        f"{len(result.training)} episodes to learn from, {len(result.test)} held out with {result.visits:,} "
        "visits whose return is known. The squared difference to a realised return holds the value error and "
        "the noise of the return; the noise is the same for every method and cancels in the paired "
        "differences, whose intervals come from resampling whole episodes."
    )
    report.table(
        ["method", "mean squared error to returns", "95%", "difference to the best", "95%", "verdict"],
        [
            [name, error.value, _range(error), *_to_best(result, name), result.verdict(name)]
            for name, error in sorted(result.errors.items(), key=lambda item: item[1].value)
        ],
    )
    report.text(
        "The best method is picked on the same episodes that it is judged by, which flatters it a little.",
        note=True,
    )
    for name, step in result.diverged.items():
        report.text(f"{name} diverged at step {step} and is left out.", note=True)
    report.heading("Paired differences")
    report.figure(_matrix(result), "MSVE of the row less that of the column, in squared value units.")
    report.heading("Settings")
    report.table(["setting", "value"], [[k, str(v)] for k, v in settings.items()])
    return report


def _range(estimate: Estimate) -> str:
    return f"[{estimate.low:,.4g}, {estimate.high:,.4g}]"


def _to_best(result: Comparison, name: str) -> tuple[float | None, str]:
    if name == result.best:
        return None, ""
    difference = result.differences[name, result.best]
    return difference.value, _range(difference)


def _matrix(result: Comparison) -> go.Figure:
    names = list(result.errors)
    values = [[0.0 if a == b else result.differences[a, b].value for b in names] for a in names]
    text = [
        [
            "" if a == b else f"{(d := result.differences[a, b]).value:.3g}<br>[{d.low:.3g}, {d.high:.3g}]"
            for b in names
        ]
        for a in names
    ]
    figure = go.Figure(
        go.Heatmap(
            z=values,
            x=names,
            y=names,
            text=text,
            texttemplate="%{text}",
            colorscale="PuOr_r",
            zmid=0,
            colorbar={"title": "difference"},
            hovertemplate="%{y} less %{x}: %{text}<extra></extra>",
        )
    )
    figure.update_layout(height=120 + 75 * len(names), margin={"t": 20}, yaxis={"autorange": "reversed"})
    return figure
