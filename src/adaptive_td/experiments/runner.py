"""Runs a plan to its end, however often it is stopped on the way: finished cells are never run again."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from adaptive_td.console import new_folder
from adaptive_td.doctor import facts
from adaptive_td.errors import CellsFailed, Interrupted, UsageError
from adaptive_td.problems import Tested, describe
from adaptive_td.problems.true_values import Simulated, find, find_or_estimate
from adaptive_td.progress import Bar

from . import artefacts
from .cells import Group, canonical
from .engines import ENGINES, Engine, Options, Report
from .folder import RunFolder
from .interrupts import Interrupts
from .measure import Outcome, checkpoint_folder
from .plans import Plan
from .results import adopt
from .store import Store, stored
from .table import export

TRIES = {"died": 3, "timed out": 2}
"""How often a cell may lose its worker before it has failed."""

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Ways:
    """How to run, none of which changes a result."""

    engine: str = "processes"
    options: Options = field(default_factory=Options)
    fail_fast: bool = False
    extend: bool = False
    """Add cells to a run, if all that it has stay."""
    known: tuple[Path, ...] = ()
    """Folders of results, published or of other runs, whose cells are not measured again."""
    command: str = "the same command"
    """What to type to resume."""
    tell: Tell = print
    """What happens, for who wants to know."""
    complain: Tell = print
    """What went wrong."""
    progress: Bar | None = None


def run(plan: Plan, folder: Path, ways: Ways) -> dict[str, int]:
    """Measure all cells of a plan that have no result yet, and write the final table.

    Returns how many cells are done, diverged, failed and pending. Raises `Interrupted` when it was stopped,
    `CellsFailed` when cells raised; all that was measured is stored in either case.
    """
    if ways.options.timeout is not None and ways.engine == "serial":
        raise UsageError("a time-out needs worker processes: --engine processes")
    for problem in plan.problems.values():
        if isinstance(problem, Tested):
            problem.require()
    where = RunFolder(folder)
    with where.locked(), _opened(plan, where, ways) as store:
        try:
            for known in ways.known:
                ways.tell(f"{adopt(store, where, known):,} cells are known from {known}")
            _know_true_values(plan, ways.tell)
            with Interrupts(ways.tell) as interrupts:
                options = replace(ways.options, checkpoints=where.checkpoints)
                engine = ENGINES[ways.engine](options, partial(_show_group, ways.progress))
                try:
                    _Driver(plan, store, where, engine, interrupts, ways).drive()
                finally:
                    engine.close()
        except KeyboardInterrupt:
            raise Interrupted(_stopped(store, ways)) from None
        counts = tally(store)
        if interrupts.asked and counts["pending"]:
            raise Interrupted(_stopped(store, ways))
        if not counts["pending"]:
            export(store, where.results)
        if counts["failed"]:
            first = next(one for one in store.outcomes().values() if one.status == "failed")
            raise CellsFailed(
                f"{counts['failed']} of {len(plan.cells)} cells failed, the first of them "
                f"{plan.cells[first.cell]}; to try them again: {ways.command}"
            )
        return counts


def _show_group(bar: Bar | None, group: Group, what: str, done: int, total: int) -> None:
    """How far a group is."""
    if bar is not None:
        bar.part(group.number, f"{next(iter(group.cells.values())).case}: {what}", done, total)


def _know_true_values(plan: Plan, tell: Tell) -> None:
    """Estimate values that nobody has estimated before, once and on all cores, before workers need them.

    In a process of its own, because this one never starts JAX.
    """
    for problem in plan.problems.values():
        if isinstance(problem, Simulated) and find(problem) is None:
            tell(f"the true values of {problem.name} are not known yet: estimating them, once, takes minutes")
            process = multiprocessing.get_context("spawn").Process(target=find_or_estimate, args=(problem,))
            process.start()
            process.join()


def tally(store: Store) -> dict[str, int]:
    """How many cells have each status."""
    counts = Counter(one.status for one in store.outcomes().values())
    return {
        "done": counts["done"],
        "diverged": counts["diverged"],
        "failed": counts["failed"],
        "pending": len(store.pending()),
    }


def _stopped(store: Store, ways: Ways) -> str:
    counts = tally(store)
    finished = sum(counts.values()) - counts["pending"]
    return (
        f"interrupted; {finished} cells are stored, {counts['pending']} are left. To resume: {ways.command}"
    )


def _opened(plan: Plan, where: RunFolder, ways: Ways) -> Store:
    """The store of this run, new or from before, with everything pending that has to be."""
    config = json.loads(canonical(plan.config()))
    if where.store.exists():
        store = Store.write(where.store)
        try:
            _agree(store, config, plan, where, ways)
            _reopen(store, where, ways.complain)
        except BaseException:
            store.__exit__(None, None, None)
            raise
    else:
        store = Store.create(where.store, config, plan.cells)
    where.write_json("config.json", config)
    where.write_json("problems.json", {name: describe(one) for name, one in plan.problems.items()})
    machine = facts(devices=False)
    for line in differences(
        json.loads((store.events("start") or [(0.0, canonical(machine))])[-1][1]), machine
    ):
        ways.complain(f"warning: this run was started elsewhere: {line}")
        store.record("warning", f"resumed elsewhere: {line}")
    where.write_json("facts.json", machine)
    store.record("start", canonical(machine))
    return store


def _agree(store: Store, config: Mapping[str, Any], plan: Plan, where: RunFolder, ways: Ways) -> None:
    """Refuse to go on with another config, unless the run is to be extended and loses nothing."""
    before = store.config
    if before == config:
        return
    grows = store.cells().keys() <= plan.cells.keys()
    if grows and ways.extend:
        store.set_plan(config, plan.cells)
        return
    other = new_folder(where.path)
    raise UsageError(
        f"{where.path} was started with another config:\n"
        + "\n".join(f"  {line}" for line in differences(before, config))
        + f"\nFor a new run: --out {other}"
        + ("\nTo add the new cells to this one: --extend" if grows else "")
    )


def differences(before: Any, after: Any, name: str = "") -> list[str]:
    """Settings that differ, one line each."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [*before, *(key for key in after if key not in before)]
        parts = [differences(before.get(k), after.get(k), f"{name}.{k}" if name else k) for k in keys]
        return [line for part in parts for line in part]
    return [] if before == after else [f"{name}: {json.dumps(before)} -> {json.dumps(after)}"]


def _reopen(store: Store, where: RunFolder, complain: Tell) -> None:
    """Make pending what failed before, and what lost its artefact."""
    outcomes = store.outcomes().values()
    store.forget((one.cell for one in outcomes if one.status == "failed"), "failed before, tried again")
    lost = [one for one in outcomes if one.artefact and not artefacts.intact(where.artefacts, one.artefact)]
    for one in lost:
        assert one.artefact is not None
        complain(f"artefact {one.artefact.file} is missing or altered: its cell is measured again")
        store.forget([one.cell], f"artefact {one.artefact.file} is missing or altered")


@dataclass
class _Driver:
    """One pass over the pending cells."""

    plan: Plan
    store: Store
    where: RunFolder
    engine: Engine
    interrupts: Interrupts
    ways: Ways
    lost: Counter[str] = field(default_factory=Counter)
    shown: set[str] = field(default_factory=set)

    def drive(self) -> None:
        """Keep the engine busy until nothing is left, or until asked to stop."""
        pending = set(self.store.pending())
        queue = deque(g.only(pending) for g in self.plan.groups if not pending.isdisjoint(g.cells))
        under_way = 0
        self._show()
        while under_way or (queue and not self.interrupts.asked):
            while queue and under_way < self.engine.slots and not self.interrupts.asked:
                self.engine.submit(queue.popleft())
                under_way += 1
            for report in self.engine.wait(0.2):
                under_way -= 1
                queue.extendleft(self._handle(report))
            if self.ways.fail_fast and self.shown:
                return

    def _handle(self, report: Report) -> list[Group]:
        """Store what came of a group; returns what is to be tried again."""
        if self.ways.progress is not None:
            self.ways.progress.end(report.group.number)
        if not report.lost:
            self._keep(report.outcomes)
            shutil.rmtree(self.where.checkpoints / checkpoint_folder(report.group), ignore_errors=True)
            return []
        self.lost.update(report.group.cells.keys())
        gone = [id_ for id_ in report.group.cells if self.lost[id_] >= TRIES[report.lost]]
        message = f"a worker {report.lost}{f' ({report.why})' if report.why else ''}"
        self.store.record("worker lost", message)
        self._keep([Outcome(cell=id_, status="failed", error=f"{message}, again and again") for id_ in gone])
        again = [report.group.only([id_]) for id_ in report.group.cells if id_ not in gone]
        if again:
            self.ways.complain(f"{message}: its {len(again)} cells are tried again, one by one")
        return again

    def _keep(self, outcomes: Sequence[Outcome]) -> None:
        rows = []
        for outcome in outcomes:
            artefact = artefacts.save(self.where.artefacts, outcome.arrays) if outcome.arrays else None
            rows.append(stored(outcome, artefact))
        for warning in self.store.add(rows):
            self.ways.complain(f"warning: {warning}")
        for outcome in outcomes:
            if outcome.status == "failed" and outcome.error not in self.shown:
                self.shown.add(outcome.error)
                self.ways.complain(f"{self.plan.cells[outcome.cell]} failed:\n{outcome.error}")
        self._show()

    def _show(self) -> None:
        if self.ways.progress is not None:
            total = len(self.plan.cells)
            self.ways.progress(total - len(self.store.pending()), total)
