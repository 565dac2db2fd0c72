"""Compile the native kernel while the package is built; without a compiler, build the package without it."""

from __future__ import annotations

import os
import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

REQUIRED = "ADAPTIVE_TD_REQUIRE_KERNEL"
"""Environment variable: where it is set, a kernel that does not compile is an error (wheels set it)."""


class KernelHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs `native/build.py` for wheels and editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and mark the wheel as one for this platform."""
        folder = Path(self.root, "src", "adaptive_td", "native")
        script = runpy.run_path(str(folder / "build.py"))
        try:
            paths = script["build"]()
        except script["BuildError"] as error:
            if os.environ.get(REQUIRED):
                raise
            self.app.display_warning(f"native kernel not built, the XLA engine will serve: {error}")
            return
        build_data["artifacts"] += [f"/{path.relative_to(self.root)}" for path in paths]
        build_data["pure_python"] = False
        # The kernel is called through ctypes, so one wheel serves every Python 3.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
