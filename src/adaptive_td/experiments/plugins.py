"""The user's own methods, problems and experiments: files that are run and register themselves."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from adaptive_td.errors import UsageError


def load(files: Iterable[Path]) -> dict[str, str]:
    """Run Python files, in every process of a run, and return the digest of each.

    A file registers what it defines: `METHODS["mine"] = ...`, `PROBLEMS["mine"] = ...`,
    `EXPERIMENTS["mine"] = ...`. It is code: name only what you trust.
    """
    digests = {}
    for path in files:
        name = f"adaptive_td_plugin_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        if not path.is_file() or spec is None or spec.loader is None:
            raise UsageError(f"plugin {path}: there is no such Python file")
        digests[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        if name not in sys.modules:
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
    return digests
