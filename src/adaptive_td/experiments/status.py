"""How far a run is, read from its store while another process may be writing it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from .folder import RunFolder
from .runner import tally
from .store import Store


def progress_of(folder: Path) -> dict[str, Any]:
    """Counts, rate and time left as plain data; what failed, diverged or gave a warning by name."""
    where = RunFolder(folder)
    running = where.in_use()
    with Store.read(where.store) as store:
        cells, outcomes, counts = store.cells(), store.outcomes(), tally(store)
        started = store.events("start")[-1][0] if store.events("start") else 0.0
        measured = [one for one in outcomes.values() if one.seconds > 0]  # not adopted from other results
        recent = [one.finished for one in measured if one.finished >= started]
        warnings = [message for kind in ("warning", "pending again") for _, message in store.events(kind)]
        experiment = store.config["experiment"]
    until = time.time() if running else max(recent, default=started)
    rate = len(recent) / (until - started) if recent and until > started else None
    return {
        "run": str(folder),
        "experiment": experiment,
        "running": where.holder() if running else None,
        "cells": len(cells),
        **counts,
        "cells_per_hour": None if rate is None else round(3600 * rate, 1),
        "seconds_left": None if rate is None else round(counts["pending"] / rate),
        "seconds_of_work": round(sum(one.seconds for one in outcomes.values()), 1),
        "failed_cells": [_line(cells[k], one.error) for k, one in outcomes.items() if one.status == "failed"],
        "diverged_cells": [
            _line(cells[k], f"at step {one.step}") for k, one in outcomes.items() if one.status == "diverged"
        ],
        "warnings": warnings,
    }


def _line(cell: object, error: str) -> str:
    last = error.strip().splitlines()[-1] if error.strip() else ""
    return f"{cell}: {last}"
