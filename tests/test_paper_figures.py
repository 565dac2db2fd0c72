"""The paper's figures, made of made-up results and of a small real run."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text

from adaptive_td.errors import UsageError
from adaptive_td.experiments import EXPERIMENTS, Ways, plan, run
from adaptive_td.experiments.results import Arrays, Results, read
from adaptive_td.intervals import Interval
from adaptive_td.metrics import min_max
from adaptive_td.paper import styles
from adaptive_td.paper.chains import CLOSED_FORMS, closed_form, overtaken
from adaptive_td.paper.curves import curves, overall
from adaptive_td.paper.figures import figures, write
from adaptive_td.paper.maps import ABOVE, BELOW, INSIDE, maps, sides
from adaptive_td.paper.points import Scenario, points, summary
from adaptive_td.problems import Chain, Known, Labyrinth, named

TRAINED = ("mc", "mc-ensemble", "td", "adaptive-td", "td-lambda:0.25", "td-lambda:0.5", "td-lambda:0.75")
LABYRINTH = {
    *(
        f"labyrinth-{model}{which}-{what}"
        for model in ("mlp", "grid")
        for which in ("", "-lambda")
        for what in ("normalised", "msve")
    ),
    *("labyrinth-maps", "labyrinth-2-leakage", "labyrinth-interval-quality"),
    *("labyrinth-violations-300", "labyrinth-violations-end"),
}
CAR = {
    "mountain-car-values",
    *(f"mountain-car{which}-{what}" for which in ("", "-lambda") for what in ("normalised", "msve")),
}


def made_up(
    experiment: str = "labyrinth",
    *,
    problems: tuple[str, ...] = ("labyrinth-0", "labyrinth-2"),
    methods: tuple[str, ...] = TRAINED,
    models: tuple[str, ...] = ("mlp:50,50", "grid:19"),
    sizes: tuple[int, ...] = (5, 50, 100),
    seeds: int = 3,
    intervals: bool = True,
) -> Results:
    """Results of a trained experiment that nobody ran."""
    known = {name: one for name in problems if isinstance(one := named(name), Known)}
    settings = {
        **{"problems": problems, "methods": methods, "models": models, "sizes": sizes, "seeds": seeds},
        **{"steps": 50_000, "batch_size": 512, "members": 3, "level": 0.95},
        **{"snapshot_episodes": 50, "snapshot_steps": 300},
    }
    rows = [
        {
            **{
                "problem": problem,
                "model": model,
                "method": method,
                "episodes": size,
                "seed": seed,
                "after": after,
            },
            "id": f"{problem}|{method}|{size}|{seed}|{after}",
            "status": "done",
            "msve": float(np.exp(rng.normal(0, 0.2)) * (1 + TRAINED.index(method) % 4) * 1e5 / size),
        }
        for problem, model, method, size, seed in itertools.product(
            problems, models, methods, sizes, range(seeds)
        )
        for rng in [np.random.default_rng([seed, size, len(method), int(problem[-1:].isdigit())])]
        for after in ([None, 300] if (method, size) == ("adaptive-td", 50) else [None])
    ]

    def arrays(id_: str) -> Arrays:
        problem, method, size, seed, after = id_.split("|")
        truth = known[problem].true_values().values
        rng = np.random.default_rng([int(seed), int(size), TRAINED.index(method)])
        noise = 0.1 * np.abs(truth).max() * rng.normal(size=truth.shape) * (2 if after != "None" else 1)
        found = {"values": truth + noise}
        if intervals and method == "adaptive-td":
            middle = truth + 0.5 * noise[::-1]
            found |= {"lower": middle - 80, "upper": middle + 80}
        return {name: array.astype(np.float32) for name, array in found.items()}

    return Results(
        config={"experiment": experiment, "settings": settings},
        facts={},
        problems={name: named(name) for name in problems},
        table=pl.DataFrame(rows, schema_overrides={"after": pl.Int64}),
        arrays=arrays,
    )


def car(**more: Any) -> Results:
    return made_up("mountain-car", problems=("mountain-car",), models=("mlp:50,50",), **more)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """A small run of the chain."""
    folder = tmp_path_factory.mktemp("runs") / "chain"
    settings = EXPERIMENTS["chain"].settings("quick", sizes=(5, 100, 200), seeds=2, repeats=40)
    run(plan("chain", settings), folder, Ways(engine="serial", tell=lambda message: None))
    return read(folder)


@pytest.fixture(scope="module")
def made(chain: Results) -> dict[str, Figure]:
    return figures([chain, made_up(), car()])


def panels(figure: Figure) -> list[Axes]:
    """The axes of a figure, but for those of colour bars."""
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def small_print(figure: Figure) -> str:
    """The text below a figure, on one line."""
    return figure.get_supxlabel().replace("\n", " ")


def lines(axes: Axes, method: str) -> list[np.ndarray]:
    """The data of what is drawn in the colour of a method: first its points, then its curve."""
    _, colour, marker, _ = styles.style(method)
    own = [line for line in axes.lines if line.get_color() == colour]
    return [
        np.asarray(line.get_xydata())
        for kind in (marker, "None")
        for line in own
        if line.get_marker() == kind
    ]


def with_bars(figure: Figure) -> int:
    """How many lines have error bars."""
    bars = (one for axes in figure.axes for one in axes.containers if isinstance(one, ErrorbarContainer))
    return sum(one.has_yerr for one in bars)


def test_these_results_make_every_figure_of_the_paper(made: dict[str, Figure]) -> None:
    assert set(made) == {"chain-msve", "chain-intervals", "overall", *LABYRINTH, *CAR}


def test_no_panel_is_empty_and_every_axis_says_what_it_shows(made: dict[str, Figure]) -> None:
    for name, figure in made.items():
        assert panels(figure), name
        assert any(axes.get_xlabel() for axes in panels(figure)), name
        assert any(axes.get_ylabel() for axes in panels(figure)), name
        for axes in panels(figure):
            assert axes.lines or axes.images or axes.collections, name
        for axes in figure.axes:
            if axes.images or axes.get_label() == "<colorbar>":
                continue
            values = np.concatenate([np.asarray(line.get_ydata(), float).ravel() for line in axes.lines])
            assert np.isfinite(values).any(), name


def test_every_figure_says_on_what_it_rests(made: dict[str, Figure]) -> None:
    for name, figure in made.items():
        footer = small_print(figure)
        if name in ("labyrinth-maps", "mountain-car-values"):
            assert "simulated returns" in footer
        elif name.startswith("chain"):
            assert "k = 10" in footer, name
        else:
            assert "MLP 50-50" in footer or "grid (cells of 19 × 19)" in footer, name
            assert "50,000 steps" in footer, name
            assert "seed" in footer, name


def test_all_text_can_be_read_at_the_width_of_a_page(made: dict[str, Figure]) -> None:
    for name, figure in made.items():
        assert figure.get_figwidth() <= 8, name
        sizes = [float(text.get_fontsize()) for text in figure.findobj(Text) if text.get_text()]
        assert min(sizes) >= 8, name


def test_what_is_measured_on_the_chain_lies_on_its_closed_forms(made: dict[str, Figure]) -> None:
    """Points of 80 logs scatter by a tenth; the curve through them is the closed form itself."""
    for axes, problem in zip(panels(made["chain-msve"]), (Chain(), Chain(bias=0.5)), strict=True):
        for method in ("mc", "td", "adaptive-td", "adaptive-td:endpoint"):
            points_drawn, curve = lines(axes, method)
            expected = [CLOSED_FORMS[method](problem, int(n)) for n in curve[:, 0]]
            np.testing.assert_allclose(curve[:, 1], expected)
            at_points = [CLOSED_FORMS[method](problem, int(n)) for n in points_drawn[:, 0]]
            np.testing.assert_allclose(points_drawn[:, 1], at_points, rtol=0.35)


def test_the_crossing_is_where_the_curves_cross() -> None:
    """Algorithms, C4: n = 84 for k = 10, p = 5, σ = 1 and a bias of a half; without a bias there is none."""
    assert overtaken(Chain(bias=0.5), 1000) == 84
    assert overtaken(Chain(bias=0.5), 83) is None
    assert overtaken(Chain(), 300) is None
    numbers, errors = closed_form(Chain(bias=0.5), "td", (5, 84))
    assert numbers[0] == 5
    assert numbers[-1] == 84
    assert errors[-1] == pytest.approx(0.13689, abs=1e-5)


def test_intervals_of_the_chain_are_shown_near_a_hundred_episodes_and_at_the_most(
    made: dict[str, Figure],
) -> None:
    titles = [axes.get_title() for axes in panels(made["chain-intervals"])]
    assert [title.split(":")[0] for title in titles] == ["n = 100 episodes", "n = 200 episodes"]


def test_normalised_errors_lie_between_0_and_1_and_the_worst_is_1(made: dict[str, Figure]) -> None:
    names = [name for name in made if name.endswith("-normalised")]
    assert len(names) == 6
    for axes in itertools.chain.from_iterable(panels(made[name]) for name in names):
        drawn = np.array([line.get_ydata() for line in axes.lines], float)
        assert drawn.min() >= 0
        np.testing.assert_array_equal(drawn.max(axis=0), 1)


def test_seeds_are_averaged_before_they_are_normalised() -> None:
    results = made_up(methods=("mc", "td"), seeds=4)
    for one in points(results, ["mc", "td"], problem="labyrinth-0", model="grid:19"):
        means = one.scores.mean(axis=0)
        assert one.normalised() == pytest.approx(dict(zip(["mc", "td"], means / means.max(), strict=True)))


def test_methods_are_compared_on_the_seeds_that_all_of_them_have() -> None:
    results = made_up(methods=("mc", "td"), seeds=4)
    lost = (results.table["method"] == "td") & (results.table["seed"] == 2)
    table = results.table.with_columns(status=pl.when(lost).then(pl.lit("diverged")).otherwise("status"))
    thinner = replace(results, table=table)
    before, after = (
        points(one, ["mc", "td"], problem="labyrinth-0", model="grid:19")[0] for one in (results, thinner)
    )
    np.testing.assert_array_equal(after.scores, before.scores[[0, 1, 3]])
    footer = small_print(dict(curves(thinner))["labyrinth-grid-msve"])
    assert "3 seeds; 6 fits diverged and left out" in footer


def test_one_seed_has_no_bars_and_several_have(made: dict[str, Figure]) -> None:
    assert with_bars(made["mountain-car-msve"]) == 4
    alone = dict(curves(car(seeds=1, methods=("mc", "td"))))
    assert with_bars(alone["mountain-car-msve"]) == 0
    assert "Bars" not in small_print(alone["mountain-car-msve"])


def test_the_summary_is_the_mean_of_normalised_means_within_its_interval() -> None:
    results = made_up(models=("mlp:50,50",), seeds=5)
    cases = [Scenario(results, name, "mlp:50,50") for name in results.problems]
    found = summary(cases, TRAINED)
    assert found is not None
    assert found.seeds == (5, 5)
    scores = results.paired(
        TRAINED, [{"problem": p, "model": "mlp:50,50", "episodes": 50} for p in results.problems]
    )
    np.testing.assert_allclose(found.values[1], min_max(scores.mean(axis=0)).mean(axis=0))
    assert (found.low <= found.values + 1e-12).all()
    assert (found.values <= found.high + 1e-12).all()
    assert (found.high > found.low).any()


def test_the_summary_leaves_out_what_is_not_complete_and_says_what_is_in() -> None:
    results = made_up(models=("mlp:50,50",))
    missing = (results.table["problem"] == "labyrinth-2") & (results.table["episodes"] == 100)
    figure = dict(overall([replace(results, table=results.table.filter(~missing))]))["overall"]
    assert small_print(figure).startswith("Scenarios: map 0. ")


def test_a_run_without_intervals_makes_no_map_of_them() -> None:
    with_intervals, without = (set(dict(maps(made_up(intervals=one)))) for one in (True, False))
    assert with_intervals - without == {
        *("labyrinth-interval-quality", "labyrinth-violations-300", "labyrinth-violations-end")
    }


def test_a_run_without_a_result_makes_no_curve() -> None:
    results = car()
    nothing = replace(results, table=results.table.with_columns(status=pl.lit("pending")))
    assert set(figures([nothing])) == {"mountain-car-values"}


def test_a_method_and_a_model_of_ones_own_are_drawn_too() -> None:
    """A line of four weights on one map: the same figures, under the names of the run."""
    results = made_up(problems=("labyrinth-2",), methods=("mc", "td-lambda:0.25"), models=("linear",))
    named_otherwise = results.table.with_columns(pl.col("method").replace("mc", "mine"))
    settings = {**results.settings, "methods": ("mine", "td-lambda:0.25")}
    own = replace(results, table=named_otherwise, config={"experiment": "labyrinth", "settings": settings})
    drawn = figures([own])
    assert {"labyrinth-linear-msve", "labyrinth-linear-lambda-msve", "overall"} <= set(drawn)
    assert "mine" in [text.get_text() for text in drawn["labyrinth-linear-msve"].legends[0].get_texts()]


def test_two_runs_of_one_experiment_are_not_mixed_up() -> None:
    with pytest.raises(UsageError, match="two runs make the figure mountain-car-normalised"):
        figures([car(methods=("mc", "td")), car(methods=("mc", "td"))])


def test_sides_of_an_interval_are_told_apart_and_its_ends_are_outside() -> None:
    interval = Interval(np.array([1.0, 1.0, 1.0, 1.0, 1.0]), np.array([2.0, 2.0, 2.0, 2.0, 2.0]))
    assert sides(interval, np.array([0.0, 1.0, 1.5, 2.0, 3.0])).tolist() == [1, 1, 0, -1, -1]


def test_maps_of_violations_show_what_the_arrays_say() -> None:
    results = made_up(problems=("labyrinth-2",))
    figure = dict(maps(results))["labyrinth-violations-end"]
    arrays = results.arrays("labyrinth-2|adaptive-td|50|0|None")
    above, below = arrays["values"] >= arrays["upper"], arrays["values"] <= arrays["lower"]
    shown = np.asarray(panels(figure)[0].images[0].get_array()).ravel()
    np.testing.assert_array_equal(shown, above.astype(int) - below)
    colours = [patch.get_facecolor()[:3] for patch in figure.legends[0].get_patches()]
    assert colours == [to_rgb(colour) for colour in (ABOVE, INSIDE, BELOW)]


def test_leakage_is_the_mean_error_over_seeds_on_one_scale() -> None:
    results = made_up(problems=("labyrinth-2",), seeds=2)
    mc, td = panels(dict(maps(results))["labyrinth-2-leakage"])
    truth = Labyrinth.map(2).true_values().values
    both = [results.arrays(f"labyrinth-2|mc|100|{seed}|None")["values"] for seed in (0, 1)]
    shown = np.asarray(mc.images[0].get_array()).ravel()
    np.testing.assert_allclose(shown, np.mean(both, axis=0) - truth, rtol=1e-5, atol=1e-3)
    assert mc.images[0].get_clim() == td.images[0].get_clim()


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        assert write([car(methods=("td",), sizes=(5,))], folder) == [
            "mountain-car-msve",
            "mountain-car-values",
        ]
    for name in ("mountain-car-msve.png", "mountain-car-msve.svg", "mountain-car-values.svg"):
        assert (one / name).read_bytes() == (two / name).read_bytes(), name


DEFICIENCIES = {
    "none": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
"""Machado, Oliveira and Fernandes 2009: what is left of linear RGB."""


def seen(colour: str, deficiency: str) -> np.ndarray:
    """A colour as it is seen, in CIELAB (D65), where distances are about as large as they look."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(DEFICIENCIES[deficiency] @ linear, 0, 1) / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_colours_can_be_told_apart(deficiency: str) -> None:
    """A distance of 2.3 is just noticeable; red and green of equal lightness come below 10 here."""
    for group in ([one.colour for one in styles.STYLES.values()], [ABOVE, INSIDE, BELOW]):
        for one, other in itertools.combinations(group, 2):
            assert np.linalg.norm(seen(one, deficiency) - seen(other, deficiency)) > 15, (one, other)


def test_methods_can_be_told_apart_without_colour() -> None:
    looks = [(one.marker, one.line) for one in styles.STYLES.values()]
    assert len(set(looks)) == len({marker for marker, _ in looks}) == len(looks)
