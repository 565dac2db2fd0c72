"""A self-contained HTML page: text, tables and interactive figures in one file that needs no network."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from .errors import UsageError
from .figures import DIVERGING, SEQUENTIAL, Wall

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; color: #222; }
body { padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.25rem; margin-top: 2.2rem; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; }
figcaption, .note { color: #555; font-size: .9rem; } figure { margin: 1rem 0; }
code { background: #f3f3f3; padding: 0 .25rem; }
"""


class Page:
    """A page that is built from top to bottom and then written once."""

    def __init__(self, title: str):
        """Start with a title."""
        self._title = title
        self._parts = [f"<h1>{html.escape(title)}</h1>"]

    def heading(self, text: str) -> None:
        """Start a section."""
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str, *, note: bool = False) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p{' class=note' if note else ''}>{html.escape(text)}</p>")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Add a table; numbers are shown to four digits."""
        head = "".join(f"<th>{html.escape(h)}</th>" for h in header)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell(value))}</td>" for value in row) + "</tr>"
            for row in rows
        )
        self._parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")

    def figure(self, figure: go.Figure, caption: str) -> None:
        """Add an interactive figure with a caption."""
        picture = figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False})
        self._parts.append(f"<figure>{picture}<figcaption>{html.escape(caption)}</figcaption></figure>")

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a new file."""
        target = Path(path)
        if target.exists():
            raise UsageError(f"{target} exists; a report is never overwritten")
        target.write_text(
            "<!doctype html><html lang=en><head><meta charset=utf-8>"
            f"<title>{html.escape(self._title)}</title><style>{_STYLE}</style>"
            f"<script>{get_plotlyjs()}</script></head><body>{''.join(self._parts)}</body></html>\n"
        )


def cell(value: Any) -> str:
    """A table cell as text."""
    if value is None:
        return "–"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def maps(
    panels: Sequence[tuple[str, Any]],
    *,
    x: Any,
    y: Any,
    walls: Sequence[Wall] = (),
    label: str,
    diverging: bool,
    columns: int = 2,
) -> go.Figure:
    """Heat maps of the same plane side by side on one colour scale, with walls drawn over them."""
    rows = -(-len(panels) // columns)
    figure = make_subplots(rows, columns, subplot_titles=[title for title, _ in panels], vertical_spacing=0.1)
    for k, (_, values) in enumerate(panels):
        place = {"row": k // columns + 1, "col": k % columns + 1}
        hover = f"x %{{x:.0f}}, y %{{y:.0f}}<br>{label} %{{z:.3g}}<extra></extra>"
        figure.add_heatmap(z=values, x=x, y=y, coloraxis="coloraxis", hovertemplate=hover, **place)
        for x1, y1, x2, y2 in walls:
            figure.add_shape(
                type="line", x0=x1, y0=y1, x1=x2, y1=y2, line={"color": "black", "width": 3}, **place
            )
    scale: dict[str, Any] = {
        "colorscale": DIVERGING if diverging else SEQUENTIAL,
        "colorbar": {"title": label},
    }
    if diverging:
        scale["cmid"] = 0
    figure.update_layout(coloraxis=scale, height=330 * rows, margin={"t": 40, "b": 30})
    for k in range(len(panels)):
        axis = {"row": k // columns + 1, "col": k % columns + 1}
        figure.update_yaxes(scaleanchor=f"x{k + 1 if k else ''}", constrain="domain", **axis)
        figure.update_xaxes(constrain="domain", **axis)
    return figure
