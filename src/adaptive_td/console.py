"""What the commands say: data on standard output, narration and progress on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table

from .progress import Bar
from .report import cell

narration = Console(stderr=True, highlight=False)


def fail(message: str, code: int) -> NoReturn:
    """Say what is wrong in one line and exit."""
    narration.print(f"adaptive-td: {message}", markup=False, soft_wrap=True)
    sys.exit(code)


def show_warning(message: Warning | str, *rest: object, **options: object) -> None:
    """A warning in one line, without the place in the code."""
    narration.print(f"warning: {message}", markup=False, soft_wrap=True)


def emit(result: Any, as_json: bool, show: Callable[[], None]) -> None:
    """The result as JSON, or as `show` shows it."""
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        show()


def print_table(title: str, header: list[str], rows: list[list[Any]]) -> None:
    """A table on standard output."""
    table = Table(title=title, title_justify="left", show_header=any(header))
    for k, name in enumerate(header):
        table.add_column(name, justify="left" if k == 0 else "right", no_wrap=k == 0)
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    Console(highlight=False, width=None if sys.stdout.isatty() else 120).print(table)


@contextmanager
def progress_bar(what: str, quiet: bool) -> Iterator[Bar | None]:
    """A bar on a terminal, nothing elsewhere."""
    if quiet or not narration.is_terminal:
        yield None
        return
    with Bar(what) as bar:
        yield bar


def new_folder(path: Path) -> Path:
    """The path itself, or where it exists the first of path-2, path-3, ... that does not."""
    numbered = (path.with_name(f"{path.name}-{k}") for k in range(2, 10_000))
    return path if not path.exists() else next(p for p in numbered if not p.exists())
