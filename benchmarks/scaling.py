"""How cost grows with the work: networks, transitions, members; time per update and memory.

Every point is a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import matplotlib.pyplot as plt

import adaptive_td as atd

from .ours import Ours
from .timing import Results, rate
from .work import Work

POINTS = {
    "networks": (1, 2, 4, 16, 64, 256),
    "transitions": (10_000, 100_000, 200_000, 1_000_000, 10_000_000),
    "members": (2, 3, 10, 30),
}
LABELS = {
    "networks": "networks (200,000 transitions)",
    "transitions": "transitions (2 networks)",
    "members": "members m of Adaptive TD",
}
COLOURS = {"native": "#0072B2", "xla": "#D55E00"}  # told apart by colour-blind readers too
MARKERS = {"native": "o", "xla": "s"}
MEMBER_STEPS = 2000


def measure(axis: str, size: int, engine: Literal["native", "xla"]) -> dict[str, float]:
    """Microseconds per update of a network; peak memory in MB at the start, with the log, in training."""
    memory = [_peak_memory()]
    work = Work(transitions=size if axis == "transitions" else 200_000)
    if axis == "members":
        method = atd.AdaptiveTD(uncertainty=atd.Ensemble(members=size))
        training = atd.Training(steps=MEMBER_STEPS)
        memory.append(_peak_memory())
        model = atd.MLP(work.sizes[1:-1])
        for run in (atd.Training(steps=16), training):  # the first compiles
            began = time.perf_counter()
            atd.fit(method, work.episodes, model, discount=0.99, key=0, training=run, engine=engine)
        updates = MEMBER_STEPS * (size + 1) / (time.perf_counter() - began)
    else:
        jobs = work.jobs(size if axis == "networks" else 2)
        memory.append(_peak_memory())
        updates = rate(Ours(jobs, work.training, engine))
    memory.append(_peak_memory())
    return {"us": 1e6 / updates, **dict(zip(("start_mb", "log_mb", "training_mb"), memory, strict=True))}


def _peak_memory() -> float:
    """In MB. Linux counts into `ru_maxrss` what the parent held when this process was started."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e6


def run(results: Results) -> None:
    """Every point of both engines."""
    for axis, sizes in POINTS.items():
        for engine in ("native", "xla"):
            for size in sizes:
                name = f"scaling | {axis} | {engine} | {size}"
                point = results.once(name, lambda a=axis, s=size, e=engine: _apart(a, s, e))  # type: ignore[misc]
                print(f"{name:50s} {point['us']:8.1f} us  {point['training_mb']:7.0f} MB", flush=True)


def _apart(axis: str, size: int, engine: str) -> Any:
    command = [sys.executable, "-m", __spec__.name, axis, str(size), engine]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def table(results: Results) -> str:
    """One line per point."""
    lines = ["", f"{'axis':14s}{'engine':8s}{'size':>10s}{'us/update':>11s}{'log MB':>9s}{'peak MB':>9s}"]
    for name, point in results.entries.items():
        if name.startswith("scaling"):
            _, axis, engine, size = name.split(" | ")
            memory = f"{point['log_mb']:9.0f}{point['training_mb']:9.0f}"
            lines.append(f"{axis:14s}{engine:8s}{int(size):10,d}{point['us']:11.1f}{memory}")
    return "\n".join(lines)


def figure(results: Results, path: Path) -> None:
    """Time per update and memory along each axis."""
    mpl.use("agg")
    canvas, axes = plt.subplots(2, len(POINTS), figsize=(11, 6), layout="constrained", sharex="col")
    for k, (axis, sizes) in enumerate(POINTS.items()):
        for engine in ("native", "xla"):
            points = [results.entries[f"scaling | {axis} | {engine} | {size}"] for size in sizes]
            style = {"color": COLOURS[engine], "marker": MARKERS[engine], "label": f"{engine} engine"}
            axes[0, k].plot(sizes, [p["us"] for p in points], **style)
            axes[1, k].plot(sizes, [p["training_mb"] for p in points], **style)
        for row in range(2):
            axes[row, k].set_xscale("log")
            axes[row, k].set_ylim(bottom=0)
            if sizes[-1] < 1000:
                axes[row, k].minorticks_off()
                axes[row, k].set_xticks(sizes, list(map(str, sizes)))
        axes[1, k].set_xlabel(LABELS[axis])
    axes[0, 0].set_ylabel("time per update of a network, µs")
    axes[1, 0].set_ylabel("peak memory of the process, MB")
    axes[0, 0].legend()
    canvas.savefig(path, dpi=150)


if __name__ == "__main__":
    axis, size, engine = sys.argv[1:]
    print(json.dumps(measure(axis, int(size), "native" if engine == "native" else "xla")))
