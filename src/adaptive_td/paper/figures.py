"""Every figure of the paper that some results can make."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from adaptive_td.errors import UsageError
from adaptive_td.experiments.results import Results
from adaptive_td.figures import save

from .chains import chains
from .curves import curves, overall
from .games import games
from .maps import maps
from .points import is_chain


def figures(results: Sequence[Results]) -> dict[str, Figure]:
    """Figures by the name of their file; what has no data is left out."""
    made: dict[str, Figure] = {}
    for one in results:
        for name, figure in chains(one) if is_chain(one) else (*curves(one), *maps(one), *games(one)):
            if name in made:
                raise UsageError(
                    f"two runs make the figure {name}: draw them one at a time, in different folders"
                )
            made[name] = figure
    return made | dict(overall(results))


def write(results: Sequence[Results], folder: Path) -> list[str]:
    """Save PNG and SVG of each figure; returns their names."""
    made = figures(results)
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in made.items():
        save(figure, folder / name)
    return list(made)
