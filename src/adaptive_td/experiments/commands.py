"""The commands of experiments: `reproduce` and `status`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from adaptive_td.console import emit, narration, print_table, progress_bar
from adaptive_td.errors import UsageError, unknown_name

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No narration, no progress bars.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(reproduce)
    app.command()(status)


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="chain, labyrinth, mountain-car or atari.")],
    preset: Annotated[
        Literal["quick", "laptop", "paper"],
        typer.Option(help="quick: minutes on two cores; laptop: hours (atari); paper: the paper's numbers."),
    ] = "quick",
    quick: Annotated[bool, typer.Option("--quick", help="The same as --preset quick.")] = False,
    laptop: Annotated[bool, typer.Option("--laptop", help="The same as --preset laptop.")] = False,
    paper: Annotated[bool, typer.Option("--paper", help="The same as --preset paper.")] = False,
    sizes: Annotated[str | None, typer.Option(help="Numbers of episodes, such as 5,10,20.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="How many seeds; each has data and weights of its own.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods, such as mc,td,adaptive-td,td-lambda:0.5.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A model, such as mlp:50,50 or grid:19; repeat it.")
    ] = None,
    problems: Annotated[str | None, typer.Option(help="Problems by name.")] = None,
    maps: Annotated[str | None, typer.Option(help="Maps of the Labyrinth, such as 0,2.")] = None,
    game: Annotated[
        list[str] | None, typer.Option(help="A game of Atari, such as pong or space_invaders; repeat it.")
    ] = None,
    map_: Annotated[
        list[str] | None, typer.Option("--map", help="A TOML file with a map of your own; repeat it.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Gradient steps for each network.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Transitions in each step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Adam's step size.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Adam's epsilon.")] = None,
    truncation: Annotated[
        str | None,
        typer.Option(help="Returns that are cut short, in Monte Carlo: mask, zero, bootstrap or drop."),
    ] = None,
    test_episodes: Annotated[int | None, typer.Option(help="Episodes to judge a game's values by.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Steps after which a game is cut.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of the policy that plays a game.")] = None,
    clipped: Annotated[
        bool | None, typer.Option("--clipped/--raw", help="Whether a game's rewards are clipped.")
    ] = None,
    members: Annotated[
        int | None, typer.Option(help="Networks in the ensemble behind the intervals.")
    ] = None,
    level: Annotated[float | None, typer.Option(help="Level of the intervals.")] = None,
    snapshot_episodes: Annotated[
        int | None, typer.Option(help="The size at which there are snapshots.")
    ] = None,
    snapshot_steps: Annotated[int | None, typer.Option(help="Steps before a snapshot.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/NAME-PRESET if not given.")] = None,
    engine: Annotated[
        Literal["serial", "processes"], typer.Option(help="One process, or one for each core.")
    ] = "processes",
    workers: Annotated[int | None, typer.Option(help="How many worker processes.")] = None,
    threads: Annotated[int, typer.Option(help="Cores for each worker process.")] = 1,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds a cell may take; then it is tried once more.")
    ] = None,
    fail_fast: Annotated[bool, typer.Option(help="Stop at the first cell that fails.")] = False,
    extend: Annotated[bool, typer.Option(help="Add cells (more seeds, more sizes) to a run.")] = False,
    known: Annotated[
        list[Path] | None,
        typer.Option(
            help="A folder of results, such as results/labyrinth, whose cells are taken over; repeat it."
        ),
    ] = None,
    plugin: Annotated[
        list[Path] | None,
        typer.Option(help="A Python file that registers a method, problem or experiment; repeat it."),
    ] = None,
    with_report: Annotated[
        bool, typer.Option("--report/--no-report", help="Write figures and the report at the end.")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be run, and run nothing.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment of the paper. The same command again resumes it, and skips what is done."""
    from . import plugins
    from .engines import Options
    from .plans import EXPERIMENTS, plan
    from .runner import Ways, run

    files = tuple(path.absolute() for path in plugin or [])
    digests = plugins.load(files)
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    flags = [flag for flag, given in (("quick", quick), ("laptop", laptop), ("paper", paper)) if given]
    if len(flags) > 1:
        raise UsageError(f"{' and '.join(f'--{flag}' for flag in flags)} exclude each other")
    chosen = flags[0] if flags else preset
    settings = EXPERIMENTS[name].settings(
        chosen,
        problems=_problems(problems, maps, game, map_),
        methods=_list(methods),
        models=tuple(model) if model else None,
        sizes=_whole_numbers("--sizes", sizes),
        seeds=seeds,
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        epsilon=epsilon,
        truncation=truncation,
        test_episodes=test_episodes,
        max_steps=max_steps,
        temperature=temperature,
        clipped=clipped,
        members=members,
        level=level,
        snapshot_episodes=snapshot_episodes,
        snapshot_steps=snapshot_steps,
    )
    planned = plan(name, settings, plugins=digests)
    folder = out or Path("runs") / f"{name}-{chosen}"
    summary: dict[str, Any] = {"run": str(folder), "cells": len(planned.cells), "groups": len(planned.groups)}
    if dry_run:
        summary |= planned.config()
        _show(f"{name} would run", summary, as_json, quiet)
        return

    def complain(message: str) -> None:
        narration.print(message, markup=False, soft_wrap=True)

    def tell(message: str) -> None:
        if not quiet:
            complain(message)

    tell(f"{name}: {len(planned.cells)} cells in {len(planned.groups)} groups; {folder}")
    with progress_bar(f"{name}: cells", quiet) as progress:
        ways = Ways(
            engine=engine,
            options=Options(workers=workers, threads=threads, timeout=timeout, plugins=files),
            fail_fast=fail_fast,
            extend=extend,
            known=tuple(known or ()),
            command=shlex.join(["adaptive-td", *sys.argv[1:]]),
            tell=tell,
            complain=complain,
            progress=progress,
        )
        summary |= run(planned, folder, ways)
    summary |= {"results": str(folder / "results.parquet")}
    if with_report:
        tell("drawing figures and writing the report")
        summary |= _written(folder)
    _show(f"{name} is complete", summary, as_json, quiet)


def _written(folder: Path) -> dict[str, str]:
    """Figures and page of a finished run, beside its results."""
    from adaptive_td.paper import figures, page

    from .results import read

    results = [read(folder)]
    figures.write(results, folder / "figures")
    page.page(results).write(folder / "report.html", again=True)
    return {"figures": str(folder / "figures"), "report": str(folder / "report.html")}


def status(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    as_json: AsJson = False,
) -> None:
    """How far a run is: progress, rate, time left, and what failed or diverged. Also while it runs."""
    from .status import progress_of

    found = progress_of(run)

    def show() -> None:
        rows = [[k.replace("_", " "), v] for k, v in found.items() if not isinstance(v, list)]
        print_table(str(run), ["", ""], rows)
        for kind in ("failed_cells", "diverged_cells", "warnings"):
            for line in found[kind]:
                print(f"{kind.removesuffix('_cells')}: {line}")

    emit(found, as_json, show)


def _show(title: str, summary: dict[str, Any], as_json: bool, quiet: bool) -> None:
    def show() -> None:
        if not quiet:
            print_table(title, ["", ""], [[key, str(value)] for key, value in summary.items()])

    emit(summary, as_json, show)


def _list(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def _whole_numbers(option: str, text: str | None) -> tuple[int, ...] | None:
    parts = _list(text)
    if parts is None:
        return None
    for part in parts:
        if not part.isdecimal():
            raise UsageError(f"{option} takes whole numbers, got {part!r}")
    return tuple(map(int, parts))


def _problems(
    names: str | None, maps: str | None, games: list[str] | None, files: list[str] | None
) -> tuple[str, ...] | None:
    """Problems by name, maps by number, games by name, and files with maps; None if none is given."""
    numbered = (f"labyrinth-{number}" for number in _whole_numbers("--maps", maps) or ())
    given = (*(_list(names) or ()), *numbered, *(f"atari-{game}" for game in games or ()), *(files or ()))
    return given or None
