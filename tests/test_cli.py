"""The command line as people use it: real commands in a real shell, their output and exit codes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import polars as pl
import pytest

import adaptive_td as atd
from adaptive_td.adapters.policies import load_policy

ROOT = Path(__file__).parent.parent
POLICY = f"{ROOT / 'examples' / 'cartpole.py'}:balance"
COMMAND = Path(sys.executable).with_name("adaptive-td")


def run(*arguments: object, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command and expect its exit code; whatever happens, no traceback."""
    done = subprocess.run(
        [COMMAND, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def true_values(states: np.ndarray, *, rollouts: int, seed: int) -> np.ndarray:
    """Values of CartPole states under the example policy by fresh rollouts from each, γ = 0.99, no limit."""
    balance = load_policy(POLICY)
    rng = np.random.default_rng(seed)
    env = gymnasium.make("CartPole-v1").unwrapped
    totals = np.zeros(len(states))
    for i, state in enumerate(states):
        for _ in range(rollouts):
            env.reset(seed=0)
            env.state = np.array(state, np.float64)  # type: ignore[attr-defined]
            observation, weight, fallen = state, 1.0, False
            while not fallen and weight > 0.005:
                totals[i] += weight
                weight *= 0.99
                observation, _, fallen, _, _ = env.step(balance(observation, rng))
    return totals / rollouts


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which 100 episodes were collected and a value function fitted."""
    folder = tmp_path_factory.mktemp("cartpole")
    run("collect", "CartPole-v1", "--policy", POLICY, "--episodes", 100, "--out", "log.parquet", cwd=folder)
    fitted = run(
        *("fit", "log.parquet", "--discount", 0.99, "--out", "model", "--rows", "rows.parquet"),
        *("--steps", 8000, "--json"),
        cwd=folder,
    )
    (folder / "fit.json").write_text(fitted.stdout)
    return folder


def test_a_log_is_checked_before_it_is_used(cartpole: Path) -> None:
    findings = json.loads(run("check", "log.parquet", "--json", cwd=cartpole).stdout)
    assert not [f for f in findings if f["level"] == "error"]
    assert "100 episodes" in next(f["message"] for f in findings if f["code"] == "contents")


def test_fitted_values_agree_with_fresh_rollouts(cartpole: Path) -> None:
    """Judged at thirty states of the log, each by thirty rollouts that the fit has never seen."""
    log = atd.load(cartpole / "log.parquet")
    rows = pl.read_parquet(cartpole / "rows.parquet")
    chosen = np.random.default_rng(0).choice(log.steps, 30, replace=False)
    truth = true_values(log.observations[chosen], rollouts=30, seed=1)
    values = rows["value"].to_numpy()[chosen]
    assert np.sqrt(np.mean((values - truth) ** 2)) < 8
    inside = (rows["lower"].to_numpy()[chosen] < truth) & (truth < rows["upper"].to_numpy()[chosen])
    assert inside.mean() > 0.6


def test_rows_are_keyed_like_the_log(cartpole: Path) -> None:
    log, rows = pl.read_parquet(cartpole / "log.parquet"), pl.read_parquet(cartpole / "rows.parquet")
    keys = [name for name in rows.columns if name not in ("value", "lower", "upper", "overruled")]
    assert keys
    transitions = log.filter(pl.col("reward").is_not_null())
    assert rows.select(keys).equals(transitions.select(keys))
    assert set(rows["overruled"].unique()) <= {-1, 0, 1}
    summary = json.loads((cartpole / "fit.json").read_text())
    assert summary["share_overruled"] == pytest.approx((rows["overruled"] != 0).mean(), abs=1e-3)


def test_predicting_the_training_log_gives_its_rows_again(cartpole: Path) -> None:
    run("predict", "model", "log.parquet", "--rows", "again.parquet", cwd=cartpole)
    assert pl.read_parquet(cartpole / "again.parquet").equals(pl.read_parquet(cartpole / "rows.parquet"))
    csv = run("predict", "model", "log.parquet", "--quiet", cwd=cartpole)
    assert csv.stdout.splitlines()[0].endswith("value,lower,upper,overruled")
    assert csv.stderr == ""


def test_methods_are_compared_on_held_out_episodes(cartpole: Path) -> None:
    options = ("--discount", 0.99, "--steps", 2000, "--methods", "mc,td,adaptive-td")
    result = json.loads(
        run("compare", "log.parquet", *options, "--out", "compare.html", "--json", cwd=cartpole).stdout
    )
    assert set(result["errors"]) == {"mc", "td", "adaptive-td"}
    assert result["test_episodes"] == 30
    for difference in result["differences"]:
        assert difference["low"] <= difference["value"] <= difference["high"]
    page = (cartpole / "compare.html").read_text()
    assert "Paired differences" in page
    assert "http://" not in page.split("</style>")[0]


def test_results_are_never_overwritten(cartpole: Path) -> None:
    before = (cartpole / "rows.parquet").read_bytes()
    fit = ("fit", "log.parquet", "--discount", 0.99, "--steps", 1)
    assert "never overwritten" in run(*fit, "--rows", "rows.parquet", cwd=cartpole, code=2).stderr
    assert "never overwritten" in run(*fit, "--out", "model", cwd=cartpole, code=2).stderr
    again = ("collect", "CartPole-v1", "--out", "log.parquet", "--episodes", 1)
    assert "never overwritten" in run(*again, cwd=cartpole, code=2).stderr
    assert (cartpole / "rows.parquet").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fti",), "Did you mean 'fit'"),
        (("fit", "log.parquet", "--discount", 0.99), "nothing to write"),
        (
            ("fit", "log.parquet", "--discount", 0.99, "--out", "m", "--method", "adaptive"),
            "did you mean 'adaptive-td'",
        ),
        (("fit", "log.parquet", "--discount", 0.99, "--out", "m", "--model", "mpl"), "did you mean 'mlp'"),
        (("fit", "log.parquet", "--discount", 1.5, "--out", "m"), "discount must lie in"),
        (("fit", "log.parqet", "--discount", 0.9, "--out", "m"), "parqet"),
        (("fit", "lag.parquet", "--discount", 0.9, "--out", "m"), "did you mean 'log.parquet'"),
        (
            ("fit", "log.parquet", "--discount", 0.9, "--out", "m", "--column", "reward=rewrad"),
            "did you mean",
        ),
        (("compare", "log.parquet", "--discount", 0.9, "--methods", "mc,dt"), "unknown method 'dt'"),
        (("collect", "CartPole-v1", "--out", "x.npz", "--policy", "randon"), "random"),
    ],
)
def test_a_mistyped_name_gets_a_hint_and_exit_code_2(
    arguments: tuple[object, ...], message: str, cartpole: Path
) -> None:
    assert message in run(*arguments, cwd=cartpole, code=2).stderr


def test_bad_data_gets_one_line_and_exit_code_3(tmp_path: Path) -> None:
    pl.DataFrame(
        {
            "episode": [0, 0],
            "t": [0, 1],
            "x": [0.0, 1.0],
            "reward": [1.0, float("nan")],
            "terminated": [False, True],
        }
    ).write_csv(tmp_path / "log.csv")
    failed = run("fit", "log.csv", "--discount", 0.9, "--out", "m", "--quiet", cwd=tmp_path, code=3)
    assert failed.stderr.startswith("adaptive-td: reward")
    assert failed.stderr.count("\n") == 1
    assert "refused" in run("check", "log.csv", cwd=tmp_path, code=3).stdout
    (tmp_path / "model").mkdir()
    assert "value.json is missing" in run("predict", "model", "log.csv", cwd=tmp_path, code=3).stderr


def test_a_diverging_fit_names_its_step_and_exits_4(tmp_path: Path) -> None:
    wild = atd.Episodes.from_lists([np.ones((3, 1))] * 3, [[3e38, 3e38]] * 3, [True] * 3)
    atd.save(wild, tmp_path / "wild.npz")
    options = ("--discount", 1.0, "--out", "m", "--method", "td", "--no-normalize", "--steps", 50)
    assert "at step 0" in run("fit", "wild.npz", *options, cwd=tmp_path, code=4).stderr


def test_control_c_exits_130_and_leaves_nothing_behind(cartpole: Path) -> None:
    arguments = ["fit", "log.parquet", "--discount", "0.99", "--out", "long", "--steps", "20000000"]
    process = subprocess.Popen(
        [COMMAND, *arguments],
        cwd=cartpole,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert process.stderr is not None
    assert "log.parquet" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted" in rest
    assert not (cartpole / "long").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_named_and_exits_6(cartpole: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [COMMAND, "predict", "model", "log.parquet", "--quiet"],
            cwd=cartpole,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 6, done.stderr
    assert "no room left" in done.stderr


def test_doctor_tells_what_is_installed(tmp_path: Path) -> None:
    facts = json.loads(run("doctor", "--json", cwd=tmp_path).stdout)
    assert facts["cores"] >= 1
    assert facts["backend"] == "cpu"
    assert "extra minari" in facts


def test_the_demonstration_writes_its_figure_and_page(tmp_path: Path) -> None:
    done = run("demo", "--steps", 200, "--episodes", 5, "--json", cwd=tmp_path)
    result = json.loads(done.stdout)
    assert [row["method"] for row in result["methods"]] == [
        "Monte Carlo",
        "MC ensemble",
        "TD(0)",
        "Adaptive TD",
    ]
    for name in ("demo.png", "demo.svg", "report.html"):
        assert (tmp_path / "demo" / name).stat().st_size > 10_000
    again = json.loads(run("demo", "--steps", 20, "--episodes", 2, "--json", cwd=tmp_path).stdout)
    assert again["folder"] == "demo-2"
