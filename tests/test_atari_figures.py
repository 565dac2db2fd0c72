"""Figures of problems that are judged by test episodes: curves, frames, values along an episode, summary."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from adaptive_td.experiments.results import Arrays, Results
from adaptive_td.metrics import min_max
from adaptive_td.paper.curves import curves, overall
from adaptive_td.paper.figures import figures
from adaptive_td.paper.games import games
from adaptive_td.paper.page import page
from adaptive_td.problems import named
from test_paper_figures import TRAINED, car, panels, small_print
from test_paper_figures import made_up as made_up_maps

GAMES = tuple(f"atari-{game}" for game in ("breakout", "pong", "space_invaders", "ms_pacman"))


def made_up(
    *,
    problems: tuple[str, ...] = GAMES,
    methods: tuple[str, ...] = TRAINED,
    sizes: tuple[int, ...] = (5, 50, 200),
    seeds: int = 2,
) -> Results:
    """Results of games that nobody played."""
    settings = {
        **{"problems": problems, "methods": methods, "models": ("cnn",), "sizes": sizes, "seeds": seeds},
        **{"steps": 10_000, "batch_size": 32, "members": 3, "level": 0.95},
        **{"snapshot_episodes": 0, "snapshot_steps": 300},
    }
    product = itertools.product(problems, methods, sizes, range(seeds))
    rows = [
        {
            **{"problem": problem, "model": "cnn", "method": method, "episodes": size, "seed": seed},
            **{"after": None, "status": "done", "id": f"{problem}|{method}|{size}|{seed}"},
            "msve": 20 + float(rng.random()) + TRAINED.index(method) * 10 / size,
            **{"start_error": 1.5, "corrected": 2.5, "floor": 20.0, "floor_share": 0.2},
            **{"coverage": None, "overruled": None},
        }
        for problem, method, size, seed in product
        for rng in [np.random.default_rng([seed, size, len(method)])]
    ]

    def arrays(id_: str) -> Arrays:
        _, method, size, seed = id_.split("|")
        rng = np.random.default_rng([int(seed), int(size), TRAINED.index(method)])
        found = {"squared": 100 * (20 + rng.random(10)), "visits": np.full(10, 100.0)}
        if int(size) == max(sizes) and int(seed) == 0:
            returns = np.sin(np.arange(300) / 20)
            values = returns + rng.normal(0, 0.1, size=300)
            found |= {"episode_returns": returns, "episode_values": values}
            found |= {"frame": np.arange(20.0), "frame_shape": np.array([4.0, 5.0])}
            if method in ("adaptive-td", "mc-ensemble"):
                found |= {"episode_lower": values - 1, "episode_upper": values + 1}
        return {name: array.astype(np.float32) for name, array in found.items()}

    return Results(
        config={"experiment": "atari", "settings": settings},
        facts={},
        problems={name: named(name) for name in problems},
        table=pl.DataFrame(
            rows, schema_overrides={"after": pl.Int64, "coverage": pl.Float64, "overruled": pl.Float64}
        ),
        arrays=arrays,
    )


@pytest.fixture(scope="module")
def made() -> dict[str, Figure]:
    return figures([made_up()])


def test_games_have_the_same_plots_as_the_maps_and_two_more(made: dict[str, Figure]) -> None:
    assert set(made) == {
        *(f"atari{which}-{what}" for which in ("", "-lambda") for what in ("normalised", "msve")),
        *("atari-frames", "atari-episode", "overall"),
    }


def test_no_panel_of_a_game_is_empty_and_axes_have_units(made: dict[str, Figure]) -> None:
    for name, figure in made.items():
        assert len(panels(figure)) == (1 if name == "overall" else 4), name
        assert any(axes.get_xlabel() for axes in panels(figure)), name
        assert any(axes.get_ylabel() for axes in panels(figure)), name
        for axes in panels(figure):
            assert axes.lines or axes.images, name
        sizes = [float(text.get_fontsize()) for text in figure.findobj(Text) if text.get_text()]
        assert min(sizes) >= 8, name
        assert figure.get_figwidth() <= 8, name
    assert "(squared discounted reward)" in panels(made["atari-msve"])[0].get_ylabel()


def test_figures_of_games_say_that_they_hold_the_noise_of_returns(made: dict[str, Figure]) -> None:
    for name in ("atari-msve", "atari-normalised", "atari-lambda-msve", "atari-lambda-normalised"):
        assert "the noise of returns, which is the same for every method" in small_print(made[name])
        assert "Nature CNN, 10,000 steps of 32 transitions; 2 seeds" in small_print(made[name])
    assert "grid" not in small_print(made["atari-msve"])
    titles = [axes.get_title() for axes in panels(made["atari-msve"])]
    assert titles == ["Breakout", "Pong", "Space Invaders", "Ms. Pac-Man"]


def test_errors_of_games_have_scales_of_their_own(made: dict[str, Figure]) -> None:
    first, second = panels(made["atari-msve"])[:2]
    assert not first.get_shared_y_axes().joined(first, second)
    assert first.get_yscale() == "linear"


def test_the_plot_along_an_episode_shows_returns_values_and_the_interval(made: dict[str, Figure]) -> None:
    results = made_up()
    arrays = results.arrays("atari-breakout|adaptive-td|200|0")
    axes = panels(made["atari-episode"])[0]
    assert axes.get_title() == "Breakout (200 training episodes)"
    drawn = [np.asarray(line.get_ydata()) for line in axes.lines]
    assert len(drawn) == 4
    assert any(np.array_equal(one, arrays["episode_returns"]) for one in drawn)
    assert any(np.array_equal(one, arrays["episode_values"]) for one in drawn)
    band = np.asarray(axes.collections[0].get_paths()[0].vertices)
    assert band[:, 1].min() == pytest.approx(arrays["episode_lower"].min())
    assert band[:, 1].max() == pytest.approx(arrays["episode_upper"].max())
    assert "seed 0" in small_print(made["atari-episode"])


def test_frames_are_drawn_as_they_were_kept(made: dict[str, Figure]) -> None:
    shown = np.asarray(panels(made["atari-frames"])[0].images[0].get_array())
    np.testing.assert_array_equal(shown, np.arange(20).reshape(4, 5))


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_any_number_of_games_can_be_drawn(count: int) -> None:
    drawn = dict(games(made_up(problems=GAMES[:count])))
    assert [len(panels(drawn[name])) for name in ("atari-frames", "atari-episode")] == [count, count]


def test_results_without_an_episode_make_neither_picture() -> None:
    results = replace(made_up(), arrays=lambda id_: {})
    assert dict(games(results)) == {}
    assert "atari-msve" in dict(curves(results))


def test_the_summary_of_maps_and_games_is_at_the_sizes_they_share() -> None:
    maps, atari = made_up_maps(models=("mlp:50,50",), seeds=4), made_up(problems=GAMES[:2])
    figure = dict(overall([maps, atari, car(seeds=4)]))["overall"]
    titles = [axes.get_title() for axes in panels(figure)]
    assert titles == [
        *("maps (2 scenarios)", "maps and games (4 scenarios)", "with Mountain Car (5 scenarios)")
    ]
    first, second, _ = panels(figure)
    assert np.round(np.asarray(first.lines[0].get_xdata(), float)).tolist()[1:] != []
    assert len(np.asarray(first.lines[0].get_xdata())) == 3
    assert len(np.asarray(second.lines[0].get_xdata())) == 2
    footer = small_print(figure)
    assert "at the sizes that all of them share" in footer
    assert "2 to 4 seeds" in footer
    assert "noise is the same for every method and cancels here" in footer


def test_the_summary_of_maps_and_games_is_the_mean_of_normalised_means() -> None:
    maps, atari = made_up_maps(models=("mlp:50,50",), seeds=4), made_up(problems=GAMES[:2])
    axes = panels(dict(overall([maps, atari]))["overall"])[1]
    at_50 = [
        min_max(one.paired(TRAINED, [{"problem": p, "model": m, "episodes": 50}]).mean(axis=(0, 1)))
        for one, m in ((maps, "mlp:50,50"), (atari, "cnn"))
        for p in one.problems
    ]
    drawn = [np.asarray(line.get_ydata(), float)[1] for line in axes.lines]
    np.testing.assert_allclose(drawn, np.mean(at_50, axis=0))


def test_games_without_td_lambda_leave_the_summary_of_the_maps_whole() -> None:
    maps, atari = made_up_maps(models=("mlp:50,50",)), made_up(methods=TRAINED[:4])
    first, second = panels(dict(overall([maps, atari]))["overall"])
    assert (len(first.lines), len(second.lines)) == (7, 4)


def test_without_games_the_summary_is_what_it_was() -> None:
    maps = made_up_maps(models=("mlp:50,50",))
    titles = [axes.get_title() for axes in panels(dict(overall([maps, car()]))["overall"])]
    assert titles == ["without Mountain Car (2 scenarios)", "with Mountain Car (3 scenarios)"]


def test_the_report_of_games_has_paired_differences_and_no_maps(tmp_path: Path) -> None:
    page([made_up(problems=GAMES[:1])]).write(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    for expected in (
        *("less that of the best [95% over test episodes]", "squared error of the mean start value"),
        *("Nobody knows the true values", 'alt="atari-episode"', 'alt="atari-frames"', "<td>A4</td>"),
    ):
        assert expected in text, expected
    assert "class=explorer" not in text
