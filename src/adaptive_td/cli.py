"""The command line: data on standard output, narration on standard error."""

from __future__ import annotations

import errno
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .atari import commands as atari_commands
from .console import emit, fail, narration, new_folder, print_table, progress_bar, show_warning
from .errors import AdaptiveTDError, UsageError
from .experiments import commands as experiment_commands
from .paper import commands as paper_commands

if TYPE_CHECKING:
    from .episodes import Episodes
    from .value import ValueFunction

app = typer.Typer(
    help="Value functions from logged episodes, with an interval for every state.",
    epilog="Try `adaptive-td demo`. Every command explains itself with --help.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="The log: .npz, .parquet, .csv, a Minari folder, or minari:DATASET-ID."
    ),
]
Column = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="What a column of a table is, as ROLE=NAME; repeat it. Roles: episode, step, time, duration, "
        "features, next_features, reward, terminated, truncated, done. Features may be several: "
        "features=x,y or features=x*. What is not named is guessed; `check` says how.",
    ),
]
Ends = Annotated[
    Literal["terminated", "truncated"] | None,
    typer.Option(help="How episodes end, where the log does not say: the process stopped, or only the log."),
]
TimeUnit = Annotated[
    float, typer.Option(help="Time over which the discount applies once (seconds for dates).")
]
NonFinite = Annotated[
    Literal["refuse", "drop-episode"],
    typer.Option("--allow-nonfinite", help="What to do with episodes that hold NaN or infinity."),
]
Discount = Annotated[float, typer.Option(help="γ, what a reward one step later is worth, in [0, 1].")]
ModelSpec = Annotated[
    str, typer.Option("--model", help="mlp:50,50 (any widths), linear, cnn, table, or grid:SIDE.")
]
Steps = Annotated[int, typer.Option(help="Gradient steps for each network.")]
BatchSize = Annotated[int, typer.Option(help="Transitions in each step.")]
LearningRate = Annotated[float, typer.Option(help="Adam's step size.")]
Seed = Annotated[int, typer.Option(help="Where all randomness comes from: the same seed, the same bits.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No narration, no progress bars.")]
RowsOut = Annotated[
    Path | None,
    typer.Option(
        "--rows",
        help="Write one row per transition (.parquet or .csv): the log's own keys, value, lower, upper, and "
        "overruled (1: TD's target is above the interval there, -1: below, 0: inside).",
    ),
]


def main() -> None:
    """Run a command; a mistake gets one line and its exit code, never a traceback."""
    warnings.showwarning = show_warning
    try:
        app()
    except AdaptiveTDError as error:
        fail(str(error), error.exit_code)
    except SystemExit as ending:
        if ending.code == 130:
            fail("interrupted; nothing was written", 130)
        raise
    except OSError as error:
        if error.errno == errno.ENOSPC:
            fail(f"no room left on the disk for {error.filename or 'the output'}", 6)
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 2)


def _columns(given: list[str] | None) -> dict[str, str | list[str]] | None:
    """ROLE=NAME pairs as a map."""
    columns: dict[str, str | list[str]] = {}
    for pair in given or []:
        role, equals, names = pair.partition("=")
        if not equals or not names:
            raise UsageError(f"--column takes ROLE=NAME, got {pair!r}")
        parts = names.split(",")
        columns[role] = parts if role.endswith("features") else names
    return columns or None


def _load(
    data: str,
    column: list[str] | None,
    ends: Literal["terminated", "truncated"] | None,
    time_unit: float,
    nonfinite: Literal["refuse", "drop-episode"],
    quiet: bool,
) -> Episodes:
    from .adapters import load

    episodes = load(data, columns=_columns(column), ends=ends, time_unit=time_unit, nonfinite=nonfinite)
    if not quiet:
        narration.print(f"{data}: {episodes!r}", markup=False, soft_wrap=True)
    return episodes


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option(help="The folder to write; a new one is numbered if it exists.")
    ] = Path("demo"),
    map_: Annotated[str, typer.Option("--map", help="A map of the Labyrinth, 0 to 5, or a TOML file.")] = "2",
    episodes: Annotated[int, typer.Option(help="How many episodes to log.")] = 50,
    steps: Steps = 30_000,
    seed: Seed = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Four methods on a walk among walls, against its true values: table, heat maps, HTML page."""
    from . import demo as demonstration
    from .problems import Labyrinth

    labyrinth = Labyrinth.map(int(map_)) if map_.isdigit() else Labyrinth.from_toml(map_)
    with progress_bar("training four methods", quiet) as progress:
        result = demonstration.run(
            labyrinth=labyrinth, episodes=episodes, steps=steps, seed=seed, progress=progress or False
        )
    folder = new_folder(out)
    demonstration.write(result, folder)
    rows = result.rows

    def show() -> None:
        print_table(
            f"map {map_}, {episodes} episodes, {steps:,} steps, seed {seed}",
            ["method", "RMSE", "MSVE", "interval covers", "overruled"],
            [[r["method"], r["rmse"], r["msve"], r["coverage"], r["overruled"]] for r in rows],
        )

    emit({"settings": result.settings, "methods": rows, "folder": str(folder)}, as_json, show)
    if not quiet:
        narration.print(f"figure: {folder / 'demo.png'}\npage:   {folder / 'report.html'}", soft_wrap=True)


@app.command()
def check(
    data: Data,
    column: Column = None,
    ends: Ends = None,
    time_unit: TimeUnit = 1.0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """What is in a log, and every trap in it that can be seen. Exit code 3 if it cannot be used."""
    from dataclasses import asdict

    from .check import check as find

    findings = find(data, columns=_columns(column), ends=ends, time_unit=time_unit)

    def show() -> None:
        for finding in findings:
            where = f" ({finding.where})" if finding.where else ""
            print(f"{finding.level}: {finding.code}: {finding.message}{where}")
        if not quiet and all(finding.level == "info" for finding in findings):
            narration.print("nothing suspicious")

    emit([asdict(finding) for finding in findings], as_json, show)
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(3)


@app.command()
def collect(
    env: Annotated[
        str,
        typer.Argument(
            metavar="ENV", help="The id of a Gymnasium environment, such as CartPole-v1, or atari:GAME."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The log to write: .npz or .parquet.")],
    policy: Annotated[
        str,
        typer.Option(
            help="random, zero, module:function or file.py:function (state -> action); for atari:GAME also "
            "packaged, FILE.safetensors, sb3:FILE or hub:OWNER/REPO."
        ),
    ] = "random",
    episodes: Annotated[int, typer.Option(help="How many episodes.")] = 100,
    max_steps: Annotated[
        int | None, typer.Option(help="Cut episodes here (a truncation); atari:GAME does so at 4,000.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="atari:GAME: actions are drawn from softmax(Q / temperature); 0.02.")
    ] = None,
    allow_pickle: Annotated[
        bool,
        typer.Option("--allow-pickle", help="atari:GAME: unpickle an sb3: or hub: archive; it may run code."),
    ] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Log episodes of a policy in a Gymnasium environment or an Atari game."""
    from .adapters import save
    from .adapters.gym import collect as gather
    from .adapters.policies import load_policy
    from .atari.commands import ATARI, collect_games

    if out.exists():
        raise UsageError(f"{out} exists; a log is never overwritten")
    if not env.startswith(ATARI) and (temperature is not None or allow_pickle):
        raise UsageError("--temperature and --allow-pickle are for atari:GAME")
    with progress_bar("collecting episodes", quiet) as progress:
        if env.startswith(ATARI):
            log = collect_games(
                env, policy, episodes, seed, max_steps, temperature, trust=allow_pickle, progress=progress
            )
        else:
            log = gather(
                env, load_policy(policy), episodes=episodes, seed=seed, max_steps=max_steps, progress=progress
            )
    save(log, out)
    summary = {
        "out": str(out),
        "episodes": len(log),
        "transitions": log.steps,
        "terminated": int(log.ended.sum()),
    }
    emit(
        summary,
        as_json,
        lambda: None if quiet else narration.print(f"{out}: {log!r}", markup=False, soft_wrap=True),
    )


@app.command()
def fit(
    data: Data,
    discount: Discount,
    out: Annotated[Path | None, typer.Option(help="The folder to save the value function in.")] = None,
    rows: RowsOut = None,
    method: Annotated[
        str, typer.Option(help="adaptive-td, td, mc, mc-ensemble, td-lambda:0.75 or n-step:5.")
    ] = "adaptive-td",
    model: ModelSpec = "mlp:50,50",
    members: Annotated[int, typer.Option(help="Networks in the ensemble behind the interval.")] = 3,
    bootstrap: Annotated[bool, typer.Option(help="Give each member its own resampled episodes.")] = True,
    level: Annotated[float, typer.Option(help="Level of the interval, in [0, 1]; 1 is plain TD.")] = 0.95,
    fallback: Annotated[
        Literal["midpoint", "endpoint", "return"], typer.Option(help="What replaces an overruled target.")
    ] = "midpoint",
    check: Annotated[
        Literal["sample", "mean", "value"], typer.Option(help="What is held against the interval.")
    ] = "sample",
    truncation: Annotated[
        Literal["mask", "zero", "bootstrap", "drop"] | None,
        typer.Option(help="What Monte Carlo does with returns that the end of the log cuts short."),
    ] = None,
    steps: Steps = 50_000,
    batch_size: BatchSize = 512,
    learning_rate: LearningRate = 1e-3,
    normalize: Annotated[bool, typer.Option(help="Scale states and rewards while training.")] = True,
    checkpoints: Annotated[
        Path | None,
        typer.Option(help="A folder for the state of training; the same command resumes it."),
    ] = None,
    column: Column = None,
    ends: Ends = None,
    time_unit: TimeUnit = 1.0,
    nonfinite: NonFinite = "refuse",
    seed: Seed = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Estimate the value function of the policy that logged DATA, with an interval for every state."""
    from . import specs
    from .fitting import fit as estimate
    from .jobs import Training
    from .scoring import score, write
    from .uncertainty import Ensemble

    for path in (out, rows):
        if path is not None and path.exists():
            raise UsageError(f"{path} exists; results are never overwritten")
    if out is None and rows is None:
        raise UsageError("nothing to write: give --out MODEL, --rows OUT.parquet, or both")
    options: dict[str, dict[str, Any]] = {
        "mc": {"truncation": truncation},
        "mc-ensemble": {"members": members, "bootstrap": bootstrap, "truncation": truncation},
        "adaptive-td": {
            "uncertainty": Ensemble(members, bootstrap, truncation),
            "level": level,
            "fallback": fallback,
            "check": check,
        },
    }
    chosen = specs.method(method, **options.get(method, {}))
    log = _load(data, column, ends, time_unit, nonfinite, quiet)
    training = Training(steps=steps, batch_size=batch_size, learning_rate=learning_rate)
    with progress_bar(f"fitting {method}", quiet) as progress:
        value = estimate(
            chosen,
            log,
            specs.model(model, log),
            discount=discount,
            key=seed,
            training=training,
            normalize=normalize,
            progress=progress or False,
            checkpoints=checkpoints,
        )
    if out is not None:
        value.save(out)
    if rows is not None:
        write(score(value, log), rows)
    summary = {
        "method": method,
        "episodes": len(log),
        "transitions": log.steps,
        "mean_value": float(value.over(log)[log.index].mean()),
        "share_overruled": value.diagnostics.share_overruled,
        "out": None if out is None else str(out),
        "rows": None if rows is None else str(rows),
    }
    emit(
        summary,
        as_json,
        lambda: None if quiet else print_table("fitted", ["", ""], [[k, v] for k, v in summary.items()]),
    )


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A value function that `fit --out` saved.")],
    data: Data,
    rows: RowsOut = None,
    column: Column = None,
    ends: Ends = None,
    time_unit: TimeUnit = 1.0,
    nonfinite: NonFinite = "refuse",
    quiet: Quiet = False,
) -> None:
    """Values and intervals for the rows of a log, as a table (CSV on standard output without --rows)."""
    from .scoring import score, write
    from .value import ValueFunction

    if rows is not None and rows.exists():
        raise UsageError(f"{rows} exists; results are never overwritten")
    value: ValueFunction = ValueFunction.load(model)
    frame = score(value, _load(data, column, ends, time_unit, nonfinite, quiet))
    if rows is None:
        sys.stdout.write(frame.write_csv())
    else:
        write(frame, rows)


@app.command()
def compare(
    data: Data,
    discount: Discount,
    methods: Annotated[
        str, typer.Option(help="Which to compare, comma-separated; td-lambda:0.5 and n-step:10 take numbers.")
    ] = "mc,mc-ensemble,td,n-step:5,td-lambda:0.75,adaptive-td",
    out: Annotated[Path | None, typer.Option(help="Write an HTML report here.")] = None,
    model: ModelSpec = "mlp:50,50",
    test_fraction: Annotated[float, typer.Option(help="Share of episodes held out to judge on.")] = 0.3,
    steps: Steps = 20_000,
    batch_size: BatchSize = 512,
    learning_rate: LearningRate = 1e-3,
    column: Column = None,
    ends: Ends = None,
    time_unit: TimeUnit = 1.0,
    nonfinite: NonFinite = "refuse",
    seed: Seed = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Which method suits this log? All on held-out episodes, by paired differences with intervals."""
    from . import compare as comparing
    from . import specs
    from .jobs import Training

    if out is not None and out.exists():
        raise UsageError(f"{out} exists; a report is never overwritten")
    chosen = {spec: specs.method(spec) for spec in methods.split(",")}
    log = _load(data, column, ends, time_unit, nonfinite, quiet)
    training = Training(steps=steps, batch_size=batch_size, learning_rate=learning_rate)
    with progress_bar(f"fitting {len(chosen)} methods", quiet) as progress:
        result = comparing.compare(
            log,
            chosen,
            specs.model(model, log),
            discount=discount,
            training=training,
            test_fraction=test_fraction,
            seed=seed,
            progress=progress or False,
        )

    def show() -> None:
        rows = []
        for name, error in sorted(result.errors.items(), key=lambda item: item[1].value):
            d = None if name == result.best else result.differences[name, result.best]
            rows.append(
                [
                    name,
                    error.value,
                    None if d is None else d.value,
                    None if d is None else f"[{d.low:.4g}, {d.high:.4g}]",
                    result.verdict(name),
                ]
            )
        title = f"{result.visits:,} held-out visits of {len(result.test)} episodes"
        print_table(title, ["method", "MSE to returns", "less the best's", "95% interval", "verdict"], rows)

    emit(result.as_json(), as_json, show)
    for name, step in result.diverged.items():
        narration.print(f"warning: {name} diverged at step {step}", markup=False)
    if out is not None:
        settings = {"data": data, "discount": discount, "model": model, "steps": steps, "seed": seed}
        comparing.page(result, settings).write(out)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Versions, devices, cores and optional parts: what this installation can do."""
    from .doctor import facts

    found = facts()
    emit(
        found, as_json, lambda: print_table("adaptive-td", ["", ""], [[k, str(v)] for k, v in found.items()])
    )


atari_commands.register(app)
experiment_commands.register(app)
paper_commands.register(app)
