"""Groups in worker processes: one that dies or hangs takes only its group with it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import NamedTuple

from adaptive_td.training import cores

from . import plugins
from .cells import Group
from .engines import Options, Report, Told
from .measure import measure

_SPAWN = multiprocessing.get_context("spawn")
_READY = "ready"
"""What a worker says first: the time of a group does not start before."""


class _At(NamedTuple):
    """What a worker says on the way."""

    what: str
    done: int
    total: int


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    cores: Sequence[int]
    ready: bool = False
    group: Group | None = None
    deadline: float = float("inf")

    def start_clock(self, timeout: float | None) -> None:
        """From now on the group has so many seconds for each of its cells."""
        if self.ready and self.group is not None and timeout is not None:
            self.deadline = time.monotonic() + timeout * len(self.group.cells)


class Processes:
    """As many worker processes as there are cores for, each with one group at a time and cores of its own.

    Workers are spawned and last: what one has compiled serves its later groups. This process computes nothing
    and never starts JAX.
    """

    def __init__(self, options: Options, told: Told):
        """Decide how many; workers start when there is work."""
        self._options, self._told = options, told
        usable = _usable_cores()
        self.slots = options.workers or max(1, len(usable) // options.threads)
        share = [usable[k * options.threads :][: options.threads] for k in range(self.slots)]
        self._spare: list[Sequence[int]] = [part or usable for part in share]
        self._workers: list[_Worker] = []

    def submit(self, group: Group) -> None:
        """Give it to an idle worker, or to a new one."""
        worker = next((w for w in self._workers if w.group is None), None) or self._start()
        worker.group = group
        worker.start_clock(self._options.timeout)
        with contextlib.suppress(OSError):  # it died while idle; `wait` finds out
            worker.pipe.send(group)

    def wait(self, seconds: float) -> list[Report]:
        """Answers of workers, and news of those that died or ran out of time."""
        busy = {worker.pipe: worker for worker in self._workers if worker.group is not None}
        ready = wait(list(busy), timeout=seconds)
        reports = [report for pipe in busy if pipe in ready and (report := self._hear(busy[pipe]))]
        late = [w for w in busy.values() if w.group is not None and time.monotonic() > w.deadline]
        return reports + [self._lose(worker, "timed out", "") for worker in late]

    def close(self) -> None:
        """Kill all workers; their groups are lost, which is harmless."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
        self._workers.clear()

    def _start(self) -> _Worker:
        ours, theirs = _SPAWN.Pipe()
        own = self._spare.pop()
        process = _SPAWN.Process(target=_work, args=(theirs, own, self._options), daemon=True)
        process.start()
        theirs.close()
        worker = _Worker(process, ours, own)
        self._workers.append(worker)
        return worker

    def _hear(self, worker: _Worker) -> Report | None:
        try:
            said = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            return self._lose(worker, "died", f"exit code {worker.process.exitcode}")
        if said == _READY:
            worker.ready = True
            worker.start_clock(self._options.timeout)
            return None
        assert worker.group is not None
        if isinstance(said, _At):
            self._told(worker.group, *said)
            return None
        report = Report(worker.group, said)
        worker.group, worker.deadline = None, float("inf")
        return report

    def _lose(self, worker: _Worker, how: str, why: str) -> Report:
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        self._workers.remove(worker)
        self._spare.append(worker.cores)
        assert worker.group is not None
        return Report(worker.group, lost="died" if how == "died" else "timed out", why=why)


def _usable_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(cores()))


def _work(pipe: Connection, own: Sequence[int], options: Options) -> None:
    """A worker: measure one group after another until the pipe closes or the driver is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the driver decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_driver, daemon=True).start()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, own)
    plugins.load(options.plugins)
    pipe.send(_READY)
    while True:
        try:
            group = pipe.recv()
        except EOFError:
            return
        pipe.send(measure(group, options.checkpoints, lambda *at: pipe.send(_At(*at))))


def _end_with_driver() -> None:
    driver = multiprocessing.parent_process()
    if driver is not None:
        wait([driver.sentinel])
        os._exit(1)
