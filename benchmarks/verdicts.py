"""What must hold, as ratios within one run: asked, measured, and whether it does."""

from __future__ import annotations

import statistics
from typing import NamedTuple

from .speed import EAGER, ENGINES, NETWORKS, PLAIN, SHAPES, cnn_name, our_name
from .timing import Results
from .work import Work


class Verdict(NamedTuple):
    """A ratio that is asked for, and the one that was measured, or None if it was not."""

    what: str
    asked: float
    measured: float | None

    def __str__(self) -> str:
        """One line of the report."""
        if self.measured is None:
            return f"{self.what:64s}{self.asked:8.2f}{'-':>10s}  not measured"
        held = "holds" if self.measured >= self.asked else "DOES NOT HOLD"
        return f"{self.what:64s}{self.asked:8.2f}{self.measured:10.2f}  {held}"


class _Rates:
    """Medians over the rounds; a ratio with a part that was not measured is None."""

    def __init__(self, results: Results):
        self._entries = results.entries

    def of(self, group: str, way: str) -> float | None:
        values = [v for name, v in self._entries.items() if name.startswith(f"{group} | {way} | ")]
        return statistics.median(values) if values else None

    def share(self, work: Work, way: str) -> float | None:
        peaks = [v for name, v in self._entries.items() if name.startswith(f"peak | {work.name} | ")]
        return ratio(self.of(work.name, way), max(peaks) / work.flop if peaks else None)

    def microseconds(self, transitions: int, engine: str) -> float | None:
        point = self._entries.get(f"scaling | transitions | {engine} | {transitions}")
        return point["us"] if point else None


def ratio(a: float | None, b: float | None) -> float | None:
    """The ratio a/b, where both were measured."""
    return None if a is None or b is None else a / b


def least(values: list[float | None]) -> float | None:
    """The least of values, all of which must have been measured."""
    return min((v for v in values if v is not None), default=None) if None not in values else None


def verdicts(results: Results) -> list[Verdict]:
    """Every ratio that must hold."""
    rates, work, large = _Rates(results), Work(), Work(sizes=SHAPES[1])
    eager, plain = rates.of(work.name, EAGER), rates.of(work.name, PLAIN)
    native = {n: rates.of(work.name, our_name("native", n)) for n in NETWORKS}
    xla = {n: rates.of(work.name, our_name("xla", n)) for n in NETWORKS}
    several = least([native[n] for n in NETWORKS if n > 1])
    shares = least([rates.share(work, our_name("native", n)) for n in NETWORKS if n > 1])
    large_share = least([rates.share(large, our_name("native", n)) for n in (2, 16)])
    found = [
        Verdict("native, 2 and more networks (the slowest), over PyTorch eager", 20, ratio(several, eager)),
        Verdict("native, 2 and more networks (the slowest), over plain JAX", 6, ratio(several, plain)),
        Verdict("native, 2 and more networks (the slowest), of the GEMM peak", 0.6, shares),
        Verdict("native, 1 network, over plain JAX", 1.5, ratio(native[1], plain)),
        Verdict("native, 17-256-256-1, 2 and more networks, of the GEMM peak", 0.6, large_share),
        Verdict("XLA, 16 networks, over PyTorch eager", 8, ratio(xla[16], eager)),
        Verdict("XLA, 16 networks, over plain JAX", 2.5, ratio(xla[16], plain)),
        Verdict("XLA, 1 network, over plain JAX", 1, ratio(xla[1], plain)),
    ]
    for engine, own in (("native", native), ("xla", xla)):
        found.append(Verdict(f"{engine}, 256 networks over 16", 0.9, ratio(own[256], own[16])))
        small, big = (rates.microseconds(n, engine) for n in (200_000, 10_000_000))
        found.append(Verdict(f"{engine}, 10,000,000 transitions over 200,000", 0.7, ratio(small, big)))
    for engine in ENGINES:
        cnn = ratio(rates.of("CNN", cnn_name(engine, 5)), rates.of("CNN", cnn_name("torch", 1)))
        found.append(Verdict(f"{engine}, Nature CNN, 5 networks, over PyTorch one after the other", 1, cnn))
    return found


def table(results: Results) -> str:
    """One line each; speed is that of the TD update on 2-50-50-1 unless said otherwise."""
    head = f"{'what must hold (TD, 2-50-50-1 unless said otherwise)':64s}{'asked':>8s}{'measured':>10s}"
    return "\n".join(["", head, *map(str, verdicts(results))])
