"""Facts about this installation and machine."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Any

import jax

from . import native
from .training import cores, engine_report

_REQUIRED = ("adaptive-td", "jax", "equinox", "optax", "numpy", "polars", "gymnasium", "safetensors")
_EXTRAS = {"minari": "minari", "atari": "ale-py", "sb3": "stable-baselines3", "ray": "ray"}


def facts(*, devices: bool = True) -> dict[str, Any]:
    """Versions, devices and threads, and which extras are there; without devices, JAX is not started."""
    machine = {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": cores(),
        "native kernel": native.describe(),
    }
    if devices:
        machine |= {
            "engine for MLP and NatureCNN": "{}: {}".format(*engine_report()),
            "engine for other models": "xla",
            "backend": jax.default_backend(),
            "devices": ", ".join(str(device) for device in jax.devices()),
        }
    return {
        **machine,
        **{name: importlib.metadata.version(name) for name in _REQUIRED},
        **{f"extra {extra}": _version(name) for extra, name in _EXTRAS.items()},
    }


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
