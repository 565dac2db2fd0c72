"""Where things that took long to make are kept for next time."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = "ADAPTIVE_TD_CACHE"
"""The environment variable that names another folder."""


def cache_folder(kind: str) -> Path:
    """`$ADAPTIVE_TD_CACHE`, else `adaptive-td` in the user's cache folder (`$XDG_CACHE_HOME`, `~/.cache`)."""
    if os.environ.get(FOLDER):
        return Path(os.environ[FOLDER]) / kind
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "adaptive-td" / kind
