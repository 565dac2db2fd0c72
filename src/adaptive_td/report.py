"""A self-contained HTML page: text, tables and interactive figures in one file that needs no network."""

from __future__ import annotations

import base64
import html
import os
import re
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
img { max-width: 100%; } details { margin: .5rem 0; } summary { cursor: pointer; }
table.words td { text-align: left; vertical-align: top; }
tr.holds td:last-child { color: #00674d; font-weight: 600; }
tr.does-not-hold td:last-child { color: #9c3c00; font-weight: 600; }
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

    def table(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[Any]],
        *,
        words: bool = False,
        folded: str | None = None,
    ) -> None:
        """Add a table; numbers are shown to four digits.

        With `words` cells are aligned for reading, and a row is styled by its last cell; `folded` is a line
        to click on that unfolds the table.
        """
        head = "".join(f"<th>{html.escape(h)}</th>" for h in header)
        body = "".join(
            f"<tr{f' class={_class(row[-1])}' if words else ''}>"
            + "".join(f"<td>{html.escape(cell(value))}</td>" for value in row)
            + "</tr>"
            for row in rows
        )
        kind = " class=words" if words else ""
        table = f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        if folded is not None:
            table = f"<details><summary>{html.escape(folded)}</summary>{table}</details>"
        self._parts.append(table)

    def html(self, content: str) -> None:
        """Add HTML as it is."""
        self._parts.append(content)

    def picture(self, png: bytes, caption: str) -> None:
        """Add a picture with a caption."""
        data, text = base64.b64encode(png).decode(), html.escape(caption)
        self._parts.append(
            f'<figure><img alt="{text}" src="data:image/png;base64,{data}"><figcaption>{text}</figcaption>'
            "</figure>"
        )

    def figure(self, figure: go.Figure, caption: str) -> None:
        """Add an interactive figure with a caption."""
        picture = figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False})
        self._parts.append(f"<figure>{picture}<figcaption>{html.escape(caption)}</figcaption></figure>")

    def write(self, path: str | os.PathLike[str], *, again: bool = False) -> None:
        """Write the page to a new file; `again` replaces one that was made from the same run before."""
        target = Path(path)
        if target.exists() and not again:
            raise UsageError(f"{target} exists; a report is never overwritten")
        target.write_text(
            "<!doctype html><html lang=en><head><meta charset=utf-8>"
            f"<title>{html.escape(self._title)}</title><style>{_STYLE}</style>"
            f"<script>{get_plotlyjs()}</script></head><body>{''.join(self._parts)}</body></html>\n"
        )


def _class(value: Any) -> str:
    """A word that CSS can name."""
    return re.sub(r"[^a-z]+", "-", str(value).lower()).strip("-") or "none"


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
