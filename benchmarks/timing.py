"""Rates, the machine's peak, and a file of results that a second run continues."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import adaptive_td as atd
from adaptive_td.training import cores

from .work import Way

RESULTS = Path(__file__).parent / "results"
SECONDS = 1.0
LEAST = 300
"""Updates of each network in a measurement: what the driver asks an engine for at a time is more."""


def rate(way: Way, *, seconds: float = SECONDS) -> float:
    """Updates of a network per second, after compilation and one warm-up."""
    way.run(2)
    steps = 2
    while True:
        began = time.perf_counter()
        way.run(steps)
        took = time.perf_counter() - began
        if took > seconds / 4:
            break
        steps = max(steps + 1, round(steps * min(8, seconds / 2 / max(took, 1e-6))))
    steps = max(LEAST if seconds == SECONDS else 1, round(steps * seconds / took))
    began = time.perf_counter()
    way.run(steps)
    return steps * way.networks / (time.perf_counter() - began)


def gemm_peak(size: int = 2048, *, repeats: int = 8) -> float:
    """The largest rate (FLOP/s) at which any library here multiplies float32 matrices, on all cores."""
    a = np.random.default_rng(0).random((size, size), np.float32)
    ways: dict[str, Callable[[], Any]] = {"numpy": lambda: a @ a}
    on_device, multiply = jnp.asarray(a), jax.jit(jnp.matmul)
    ways["jax"] = lambda: multiply(on_device, on_device).block_until_ready()
    try:
        import torch

        tensor = torch.from_numpy(a)
        ways["torch"] = lambda: tensor @ tensor
    except ImportError:
        pass
    best = np.inf
    for multiply_once in ways.values():
        multiply_once()
        for _ in range(repeats):
            began = time.perf_counter()
            multiply_once()
            best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":")[1].strip() if names else model
    return {
        "processor": model,
        "cores": cores(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "jax": jax.__version__,
        "engine": " ".join(atd.engine_report()),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
    }


class Results:
    """Measurements by name, written after each; those already in the file are not made again."""

    def __init__(self, path: Path):
        self.path = path
        self.entries: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def once(self, name: str, measure: Callable[[], Any]) -> Any:
        """The measurement of this name, made now if it has not been."""
        if name not in self.entries:
            self.entries[name] = measure()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = self.path.with_suffix(".unfinished")
            unfinished.write_text(json.dumps(self.entries, indent=1) + "\n")
            unfinished.replace(self.path)
        return self.entries[name]
