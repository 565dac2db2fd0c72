"""Side by side in one run: PyTorch, plain JAX, our XLA engine and our native kernel."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from . import cnn
from .others import PlainJax, TorchEager, TorchStacked
from .ours import Ours
from .timing import Results, gemm_peak, rate
from .work import Update, Way, Work, cnn_flop, scaled_states

EAGER, STACKED, PLAIN = "(a) PyTorch eager, 1", "(b) PyTorch bmm compiled, 16", "(c) plain JAX loop, 1"
NETWORKS = (1, 2, 4, 16, 64, 256)
SHAPES = ((2, 50, 50, 1), (17, 256, 256, 1), (64, 128, 1))
ENGINES: tuple[Literal["native", "xla"], ...] = ("native", "xla")
FEW, MANY = 5, 100
ROUNDS = 2


def our_name(engine: str, networks: int) -> str:
    """(d) and (e) of the table."""
    return f"{'(d) our XLA engine' if engine == 'xla' else '(e) our native engine'}, {networks}"


def cnn_name(by: Literal["torch", "channels-last", "xla", "native"], networks: int) -> str:
    """The ways of the convolutional table."""
    if by in ("xla", "native"):
        return f"our {'XLA' if by == 'xla' else by} engine, {networks}"
    return "PyTorch, 1 (five in turn)" if by == "torch" else "PyTorch channels-last, 1"


def ways(work: Work, networks: tuple[int, ...]) -> dict[str, Callable[[np.ndarray | None], Way]]:
    """Every way to do this work, made from the batches it must use (None: its own)."""

    def ours(engine: Literal["xla", "native"], count: int) -> Callable[[np.ndarray | None], Way]:
        return lambda indices: Ours(work.jobs(count), work.training, engine)

    return {
        EAGER: lambda indices: TorchEager(work, indices),
        STACKED: lambda indices: TorchStacked(work, 16, indices),
        PLAIN: lambda indices: PlainJax(work, indices),
        **{our_name("xla", n): ours("xla", n) for n in networks},
        **{our_name("native", n): ours("native", n) for n in networks},
    }


def check(work: Work) -> float:
    """The largest difference between the values of any two ways after the same few updates.

    PyTorch rounds Adam's 1 - β₂ otherwise than Optax, so it is held to less, and for fewer updates. Many
    updates are for the paper's network: in larger ones some input of a ReLU is soon a matter of rounding.
    """
    everyone = ways(work, (1, 2))
    if work.sizes == SHAPES[0]:
        _spread(work, {n: way for n, way in everyone.items() if n not in (EAGER, STACKED)}, MANY, 1e-5)
    return _spread(work, everyone, FEW, 1e-4)


def _spread(
    work: Work, made: Mapping[str, Callable[[np.ndarray | None], Way]], updates: int, most: float
) -> float:
    indices, states = work.indices(updates), scaled_states(work)
    values = []
    for name, make in made.items():
        way = make(indices)
        way.run(updates)
        values.append(way.values(states))
        difference = float(np.abs(values[-1] - values[0]).max())
        if not difference <= most:
            raise AssertionError(
                f"{work.name}: {name} does not compute the update of {next(iter(made))}: {difference}"
            )
    return float(np.ptp(np.stack(values), axis=0).max())


def dense(results: Results) -> None:
    """Every shape, both updates for the paper's; rounds interleave the ways, and each has its own peak."""
    updates: tuple[Update, ...] = ("TD", "MC")
    for sizes in SHAPES:
        for update in updates if sizes == SHAPES[0] else updates[:1]:
            work = Work(update=update, sizes=sizes)
            results.once(f"{work.name} | agreement", lambda work=work: check(work))  # type: ignore[misc]
            counts = NETWORKS if sizes == SHAPES[0] else (1, 2, 16)
            made = {name: make for name, make in ways(work, counts).items()}
            for k in range(ROUNDS):
                results.once(f"peak | {work.name} | {k}", gemm_peak)
                for name, make in made.items():
                    measured = results.once(
                        f"{work.name} | {name} | {k}",
                        lambda make=make: rate(make(None)),  # type: ignore[misc]
                    )
                    print(f"{work.name}  {name:32s} {measured:10.0f} updates/s", flush=True)


def convolutional(results: Results) -> None:
    """The Nature CNN: one network, and the five of an Atari comparison."""
    results.once("CNN | agreement", _check_cnn)
    made: dict[str, Callable[[], Way]] = {
        cnn_name("torch", 1): lambda: cnn.TorchCNN(channels_last=False),  # type: ignore[dict-item]
        cnn_name("channels-last", 1): lambda: cnn.TorchCNN(channels_last=True),  # type: ignore[dict-item]
        cnn_name("xla", 1): lambda: Ours(cnn.jobs(1), cnn.TRAINING, "xla"),
        cnn_name("xla", 5): lambda: Ours(cnn.jobs(5), cnn.TRAINING, "xla"),
        cnn_name("native", 1): lambda: Ours(cnn.jobs(1), cnn.TRAINING, "native"),
        cnn_name("native", 5): lambda: Ours(cnn.jobs(5), cnn.TRAINING, "native"),
    }
    for k in range(ROUNDS):
        results.once(f"peak | CNN | {k}", gemm_peak)
        for name, make in made.items():
            measured = results.once(f"CNN | {name} | {k}", lambda make=make: rate(make(), seconds=6))  # type: ignore[misc]
            print(f"Nature CNN  {name:32s} {measured:8.1f} updates/s", flush=True)


def _check_cnn() -> float:
    count, batches = 20, cnn.indices(3)
    job = cnn.jobs(1)[0]
    values, states = [], np.asarray(job.data.scaling(job.data.states[:count]))
    for engine in ENGINES:
        ours = Ours([job], cnn.TRAINING, engine)
        ours.run(3)
        values.append(ours.values(states))
    for last in (False, True):
        way = cnn.TorchCNN(channels_last=last, indices=batches)
        way.run(3)
        values.append(way.values(count))
    spread = float(np.ptp(np.stack(values), axis=0).max())
    if spread > 1e-3:
        raise AssertionError(f"Nature CNN: the ways do not compute the same update: {spread}")
    return spread


def table(results: Results) -> str:
    """Medians over the rounds: updates/s, GFLOP/s, share of the peak, ratios to (a) and (c)."""
    lines = []
    groups: dict[str, dict[str, list[float]]] = {}
    for name, value in results.entries.items():
        parts = name.split(" | ")
        if len(parts) == 3 and parts[0] != "peak":
            groups.setdefault(parts[0], {}).setdefault(parts[1], []).append(value)
    for group, rates in groups.items():
        flop = cnn_flop() if group == "CNN" else _work(group).flop
        peaks = [v for k, v in results.entries.items() if k.startswith(f"peak | {group} |")]
        peak = max(peaks)
        medians = {name: statistics.median(values) for name, values in rates.items()}
        bases = [medians.get(EAGER), medians.get(PLAIN)] if group != "CNN" else [next(iter(medians.values()))]
        lines += ["", f"{group}: {flop / 1e6:.1f} MFLOP an update, GEMM peak {peak / 1e9:.0f} GFLOP/s"]
        lines += [f"{'way, networks':34s}{'updates/s':>11s}{'GFLOP/s':>9s}{'of peak':>9s}  ratios"]
        for name, value in medians.items():
            ratios = " ".join(f"{value / base:7.2f}x" for base in bases if base)
            share = value * flop / peak
            lines.append(f"{name:34s}{value:11.1f}{value * flop / 1e9:9.1f}{share:9.1%}  {ratios}")
    return "\n".join(lines)


def _work(name: str) -> Work:
    update, sizes, *_ = name.split(" ")
    return Work(update="TD" if update == "TD" else "MC", sizes=tuple(map(int, sizes.split("-"))))


def warm() -> None:
    """Start the libraries' thread pools before anything is timed."""
    jax.block_until_ready(jnp.ones((256, 256)) @ jnp.ones((256, 256)))  # type: ignore[no-untyped-call]
