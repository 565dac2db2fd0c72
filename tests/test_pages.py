"""Pages as a browser shows them; without a Chromium these tests say so and are left out."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import adaptive_td as atd
from adaptive_td import compare, demo
from adaptive_td.experiments import EXPERIMENTS, Store, Ways, plan, plugins, run
from adaptive_td.experiments.folder import RunFolder
from adaptive_td.experiments.results import read
from adaptive_td.methods import Method
from adaptive_td.paper.page import page
from adaptive_td.problems import Labyrinth, describe
from adaptive_td.scoring import whole_returns

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium found")
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--virtual-time-budget=20000"),
)


def rendered(page: Path, profile: Path) -> str:
    """The page's document after its scripts have run."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *QUIET, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def figures_drawn(document: str) -> int:
    """How many figures have at least one plot with something in it."""
    return len(re.findall(r'<div id="[^"]+" class="plotly-graph-div js-plotly-plot"', document))


@needs_browser
def test_the_demonstration_page_draws_all_its_figures(tmp_path: Path) -> None:
    result = demo.run(labyrinth=Labyrinth.map(2), episodes=3, steps=50, progress=False)
    demo.write(result, tmp_path / "demo")
    document = rendered(tmp_path / "demo" / "report.html", tmp_path / "profile")
    assert figures_drawn(document) == 4
    assert document.count('class="hm"') == 6
    assert "Adaptive TD" in document


@needs_browser
def test_the_comparison_page_draws_its_matrix(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    walks = [np.cumsum(rng.normal(size=(21, 2)), axis=0) for _ in range(12)]
    log = atd.Episodes.from_lists(walks, [np.sin(w[:-1, 0]) for w in walks], [True] * 12)
    methods: dict[str, Method] = {"td": atd.TD(), "mc": atd.MonteCarlo()}
    result = compare.compare(
        log, methods, atd.MLP((8,)), discount=0.9, training=atd.Training(steps=50), progress=False
    )
    compare.page(result, {"seed": 0}).write(tmp_path / "page.html")
    document = rendered(tmp_path / "page.html", tmp_path / "profile")
    assert figures_drawn(document) == 1
    assert document.count('class="hm"') == 1
    assert result.best in document


def test_a_page_is_never_overwritten_and_escapes_what_it_shows(tmp_path: Path) -> None:
    from adaptive_td.report import Page

    page = Page("<script>alert(1)</script>")
    page.table(["a"], [["<b>"]])
    page.write(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<script>alert" not in text
    assert "&lt;b&gt;" in text
    with pytest.raises(atd.UsageError, match="never overwritten"):
        page.write(tmp_path / "page.html")


def test_comparing_a_method_with_itself_finds_no_difference() -> None:
    rng = np.random.default_rng(0)
    walks = [np.cumsum(rng.normal(size=(21, 2)), axis=0) for _ in range(12)]
    log = atd.Episodes.from_lists(walks, [np.sin(w[:-1, 0]) for w in walks], [True] * 12)
    methods: dict[str, Method] = {"one": atd.TD(), "other": atd.TDLambda(0.0)}
    result = compare.compare(
        log, methods, atd.MLP((8,)), discount=0.9, training=atd.Training(steps=50), progress=False
    )
    assert result.differences["one", "other"] == (0, 0, 0)


def test_returns_that_truncation_cuts_short_are_not_judged_by() -> None:
    log = atd.Episodes.from_lists([np.zeros((11, 1))] * 6, [np.ones(10)] * 6, [False] * 6)
    assert len(whole_returns(log, 0.99)[1]) == 0
    assert whole_returns(log, 0.5)[1].tolist()[:4] == [0, 1, 2, 3]
    with pytest.raises(atd.DataError, match="no held-out return is whole"):
        compare.compare(log, {"td": atd.TD()}, atd.MLP((8,)), discount=0.99, progress=False)


def test_the_better_of_two_methods_is_found_on_held_out_episodes() -> None:
    """On the ring, Monte Carlo that takes a cut for an end is worse than TD, beyond doubt."""
    rng = np.random.default_rng(0)
    reward = 1 + np.cos(2 * np.pi * np.arange(10) / 10)
    paths = [(rng.integers(10) + np.cumsum(rng.integers(-1, 2, 61))) % 10 for _ in range(200)]
    log = atd.Episodes.from_lists(paths, [reward[p[:-1]] for p in paths], [False] * 200)
    methods: dict[str, Method] = {"td": atd.TD(), "zero": atd.MonteCarlo(truncation="zero")}
    training = atd.Training(steps=6000, learning_rate=5e-3)
    result = compare.compare(log, methods, atd.Table(10), discount=0.9, training=training, progress=False)
    assert result.best == "td"
    assert result.verdict("zero") == "worse"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a small run of two maps, three seeds and two models."""
    folder = tmp_path_factory.mktemp("run")
    settings = EXPERIMENTS["labyrinth"].settings(
        "quick",
        problems=("labyrinth-0", "labyrinth-2"),
        methods=("mc", "td", "adaptive-td"),
        sizes=(2, 3),
        seeds=3,
        steps=20,
        snapshot_episodes=3,
        snapshot_steps=5,
    )
    run(plan("labyrinth", settings), folder / "labyrinth", Ways(engine="serial", tell=lambda _: None))
    page([read(folder / "labyrinth")]).write(folder / "report.html")
    return folder / "report.html"


@needs_browser
def test_the_report_has_curves_maps_claims_and_pictures_and_none_is_empty(
    report: Path, tmp_path: Path
) -> None:
    document = rendered(report, tmp_path / "profile")
    assert figures_drawn(document) == 1
    assert document.count('class="scatterlayer mlayer"') >= 1
    assert document.count('class="hm"') == 1
    assert document.count('<img alt="labyrinth-') >= 6
    for number in range(1, 11):
        assert f"<td>L{number}</td>" in document
    assert "seed 0: MSVE" in document
    assert not re.search(r">[^<]*\bNaN\b", re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL))


@needs_browser
@pytest.mark.parametrize(
    ("choice", "seen"),
    [
        (
            {"problem": "labyrinth-2", "method": "adaptive-td", "show": "quality"},
            ["holds the truth", "too high"],
        ),
        ({"problem": "labyrinth-2", "method": "adaptive-td", "show": "outside"}, ["above", "below"]),
        ({"model": "grid:19", "method": "td", "episodes": "3", "show": "error"}, ["seed 0: MSVE"]),
    ],
)
def test_the_maps_of_the_report_follow_the_menus(
    report: Path, tmp_path: Path, choice: dict[str, str], seen: list[str]
) -> None:
    """A script at the end of the page chooses as a reader would."""
    chosen = "".join(
        f"s=document.querySelector('.explorer [name={name}]'); s.value='{value}';"
        "s.dispatchEvent(new Event('change'));"
        f"document.body.dataset.{name}=s.value;"
        for name, value in choice.items()
    )
    page_with_choice = tmp_path / "chosen.html"
    page_with_choice.write_text(
        report.read_text().replace("</body>", f"<script>let s;{chosen}</script></body>")
    )
    document = rendered(page_with_choice, tmp_path / "profile")
    for name, value in choice.items():
        assert f'data-{name}="{value}"' in document
    for text in seen:
        assert text in re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL)


@needs_browser
def test_the_page_of_a_run_that_has_only_begun_says_so(tmp_path: Path) -> None:
    settings = EXPERIMENTS["labyrinth"].settings("quick", problems=("labyrinth-0",), seeds=1)
    begun = plan("labyrinth", settings)
    where = RunFolder(tmp_path / "run")
    with where.locked():
        Store.create(where.store, begun.config(), begun.cells).__exit__(None, None, None)
        where.write_json("facts.json", {})
        where.write_json("problems.json", {name: describe(one) for name, one in begun.problems.items()})
    page([read(tmp_path / "run")]).write(tmp_path / "report.html")
    document = rendered(tmp_path / "report.html", tmp_path / "profile")
    assert "No cell is done yet." in document
    assert f"{len(begun.cells)} cells pending" in document


@needs_browser
def test_the_report_of_a_problem_judged_by_test_episodes_has_no_map_and_nothing_empty(tmp_path: Path) -> None:
    plugins.load([Path(__file__).with_name("walks.py")])
    settings = EXPERIMENTS["walks"].settings("quick", methods=("mc", "td", "adaptive-td"), seeds=2)
    run(plan("walks", settings), tmp_path / "run", Ways(engine="serial", tell=lambda _: None))
    page([read(tmp_path / "run")]).write(tmp_path / "report.html")
    document = rendered(tmp_path / "report.html", tmp_path / "profile")
    assert figures_drawn(document) == 1
    assert document.count('class="hm"') == 0
    for name in ("walks-msve", "walks-normalised", "walks-episode", "overall"):
        assert f'<img alt="{name}"' in document
    assert "less that of the best [95% over test episodes]" in document
    assert not re.search(r">[^<]*\bNaN\b", re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL))
