"""The commands about results: `report`, `figures` and `publish`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adaptive_td.console import narration

Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help="Folders of runs, also unfinished ones, or of published results."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(report)
    app.command()(figures)
    app.command()(publish)


def report(
    runs: Runs,
    out: Annotated[Path | None, typer.Option(help="The page; report.html in the first run's folder.")] = None,
) -> None:
    """One HTML page: what was run, the paper's claims checked, curves, tables, maps and figures."""
    from adaptive_td.experiments.results import read

    from .page import page

    path = out or runs[0] / "report.html"
    page([read(run) for run in runs]).write(path, again=out is None)
    narration.print(f"wrote {path}", markup=False, soft_wrap=True)


def figures(
    runs: Runs,
    out: Annotated[Path, typer.Option(help="The folder for them.")],
) -> None:
    """Every figure of the paper that these runs can make, as PNG and SVG, and its claims as a table."""
    from adaptive_td.experiments.results import read

    from .claims import markdown
    from .figures import write

    results = [read(run) for run in runs]
    names = write(results, out)
    (out / "claims.md").write_text(markdown(results))
    narration.print(f"wrote {len(names)} figures to {out}", markup=False, soft_wrap=True)


def publish(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to; what is there may only grow.")],
    partial: Annotated[bool, typer.Option("--partial", help="Also of a run that is not finished.")] = False,
) -> None:
    """The table of a run and the arrays behind its figures as Parquet, small enough for a repository."""
    from adaptive_td.experiments.results import publish as written

    results = written(run, out, partial=partial)
    narration.print(f"wrote {len(results.table):,} cells to {out}", markup=False, soft_wrap=True)
