"""A runner that can be killed: every fault, its message, its exit code, and what is left behind."""

import io
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from adaptive_td.errors import CellsFailed, Interrupted, RunInUse, UsageError
from adaptive_td.experiments import EXPERIMENTS, Plan, Store, Ways, plan, plugins, run
from adaptive_td.experiments.engines import Options
from adaptive_td.experiments.folder import RunFolder
from adaptive_td.experiments.runner import tally
from adaptive_td.experiments.status import progress_of
from adaptive_td.progress import Bar

TINY = Path(__file__).with_name("tiny.py")
COMMAND = Path(sys.executable).with_name("adaptive-td")
REPRODUCE = (COMMAND, "reproduce", "tiny", "--plugin", TINY, "--out", "run")
SERIAL = ("--engine", "serial")
DIGESTS = plugins.load([TINY])


def planned(name: str = "tiny", **overrides: Any) -> Plan:
    return plan(name, EXPERIMENTS[name].settings("quick", **overrides), plugins=DIGESTS)


def ways(engine: str = "serial", *, said: list[str] | None = None, **more: Any) -> Ways:
    tell: Callable[[str], None] = (lambda message: None) if said is None else said.append
    options = Options(plugins=(TINY,), **{k: more.pop(k) for k in ("workers", "timeout") if k in more})
    return Ways(engine=engine, options=options, tell=tell, complain=tell, command="resume", **more)


def start(*arguments: object, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*map(str, (*REPRODUCE, *arguments))],
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], code: int) -> str:
    """Wait for a command and expect its exit code; returns what it said on standard error."""
    _, said = process.communicate(timeout=300)
    assert process.returncode == code, said
    return said


def stored(folder: Path) -> set[str]:
    path = RunFolder(folder).store
    if not path.exists():
        return set()
    with Store.read(path) as store:
        return set(store.outcomes())


def wait_for(what: Callable[[], object], seconds: float = 180) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def results(folder: Path) -> bytes:
    return (folder / "results.parquet").read_bytes()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The table of a run of `tiny` that nothing stopped."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert run(planned(), folder, ways()) == {"done": 20, "diverged": 20, "failed": 0, "pending": 0}
    return results(folder)


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_a_run_killed_at_random_moments_ends_with_the_same_bytes(
    engine: str, tmp_path: Path, uninterrupted: bytes
) -> None:
    """kill -9 five times; what was stored is never run again."""
    ledger, moments = tmp_path / "ledger", random.Random(5)
    ledger.touch()
    for _ in range(5):
        before, lines = stored(tmp_path / "run"), len(ledger.read_text().splitlines())
        process = start("--engine", engine, cwd=tmp_path, TINY_LEDGER=str(ledger))
        some = len(before) + moments.randrange(0, 8)
        wait_for(lambda: len(ledger.read_text().splitlines()) > lines or process.poll() is not None)  # noqa: B023
        wait_for(lambda: len(stored(tmp_path / "run")) >= some or process.poll() is not None)  # noqa: B023
        time.sleep(moments.random() / 10)
        process.kill()
        process.communicate()
        ran = ledger.read_text().split()[lines:]
        assert before.isdisjoint(ran)
        wait_for(lambda: not RunFolder(tmp_path / "run").in_use())
    before, lines = stored(tmp_path / "run"), len(ledger.read_text().splitlines())
    assert 0 < len(before) < 40
    finish(start("--engine", engine, cwd=tmp_path, TINY_LEDGER=str(ledger)), 0)
    ran = ledger.read_text().split()[lines:]
    assert before.isdisjoint(ran)
    assert len(ran) == 40 - len(before)
    assert results(tmp_path / "run") == uninterrupted


def test_a_finished_run_runs_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        monkeypatch.setenv("TINY_LEDGER", str(tmp_path / "ledger"))
        run(planned(seeds=1), tmp_path / "run", ways())
    assert len((tmp_path / "ledger").read_text().split()) == 4


class Watched(Bar):
    """A bar that remembers what it was shown."""

    def __init__(self) -> None:
        super().__init__("cells")
        self.parts: dict[int, list[tuple[str, int, int]]] = {}
        self.ended: list[int] = []

    def part(self, number: int, what: str, done: int, total: int) -> None:
        super().part(number, what, done, total)
        self.parts.setdefault(number, []).append((what, done, total))

    def end(self, number: int) -> None:
        super().end(number)
        self.ended.append(number)


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_each_group_under_way_shows_its_episodes_its_training_and_its_judging(
    engine: str, tmp_path: Path
) -> None:
    whole, bar = planned("tiny-trained"), Watched()
    run(whole, tmp_path / "run", ways(engine, progress=bar))
    assert sorted(bar.ended) == sorted(bar.parts) == sorted(group.number for group in whole.groups)
    for group in whole.groups:
        case = next(iter(group.cells.values())).case
        shown = bar.parts[group.number]
        training = [(done, total) for what, done, total in shown if what == f"{case}: training"]
        assert training[-1][0] == training[-1][1] > 0
        assert shown[0][0] == f"{case}: episodes"
        assert shown[-1] == (f"{case}: judging", len(group.cells) - 1, len(group.cells))


def test_trained_cells_are_the_same_in_processes_and_one_by_one(tmp_path: Path) -> None:
    """Whichever engine, and also when one cell of a group is measured again by itself."""
    whole = planned("tiny-trained")
    run(whole, tmp_path / "serial", ways())
    run(whole, tmp_path / "processes", ways("processes", workers=1))
    assert results(tmp_path / "serial") == results(tmp_path / "processes")
    with Store.write(RunFolder(tmp_path / "serial").store) as store:
        store.forget([i for i, cell in whole.cells.items() if cell.after], "to see whether it comes back")
    before = results(tmp_path / "serial")
    run(whole, tmp_path / "serial", ways())
    assert results(tmp_path / "serial") == before


def test_the_driver_of_processes_starts_no_jax(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, jax\n"
        "from adaptive_td.experiments import EXPERIMENTS, Ways, plan, plugins, run\n"
        "from adaptive_td.experiments.engines import Options\n"
        "if __name__ == '__main__':\n"
        "    files = (pathlib.Path(sys.argv[1]),)\n"
        "    plugins.load(files)\n"
        "    tiny = plan('tiny', EXPERIMENTS['tiny'].settings('quick', seeds=1))\n"
        "    run(tiny, pathlib.Path('run'), Ways(options=Options(plugins=files, workers=1)))\n"
        "    assert not jax._src.xla_bridge.backends_are_initialized()\n"
    )
    (tmp_path / "driver.py").write_text(code)
    subprocess.run([sys.executable, "driver.py", str(TINY)], cwd=tmp_path, check=True, timeout=120)


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_one_ctrl_c_drains_saves_and_prints_how_to_resume(
    engine: str, tmp_path: Path, uninterrupted: bytes
) -> None:
    process = start("--engine", engine, cwd=tmp_path)
    wait_for(lambda: stored(tmp_path / "run"))
    process.send_signal(signal.SIGINT)
    said = finish(process, 130)
    assert "press Ctrl-C again to stop now" in said
    assert f"To resume: adaptive-td reproduce tiny --plugin {TINY} --out run --engine {engine}" in said
    assert "Traceback" not in said
    assert 0 < len(stored(tmp_path / "run")) < 40
    run(planned(), tmp_path / "run", ways())
    assert results(tmp_path / "run") == uninterrupted


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_a_second_ctrl_c_stops_now(engine: str, tmp_path: Path) -> None:
    process = start("--engine", engine, "--methods", "diverges,hangs", "--seeds", 3, cwd=tmp_path)
    wait_for((tmp_path / "run" / "facts.json").exists)
    time.sleep(6 if engine == "processes" else 1)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    said = finish(process, 130)
    assert time.monotonic() - began < 10
    assert "interrupted; 0 cells are stored, 12 are left. To resume: adaptive-td" in said


def test_sigterm_is_one_ctrl_c(tmp_path: Path) -> None:
    process = start("--engine", "serial", cwd=tmp_path)
    wait_for(lambda: stored(tmp_path / "run"))
    process.terminate()
    said = finish(process, 130)
    assert "asked to stop" in said
    assert "To resume: adaptive-td" in said
    assert 0 < len(stored(tmp_path / "run")) < 40


def test_sigterm_stops_within_thirty_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the time that work under way has cut from 20 s to one."""
    monkeypatch.setattr("adaptive_td.experiments.interrupts.GRACE", 1.0)
    monkeypatch.setenv("TINY_LEDGER", str(tmp_path / "ledger"))
    killer = (
        f"import os, time, pathlib\n"
        f"while not pathlib.Path({str(tmp_path / 'ledger')!r}).exists(): time.sleep(0.05)\n"
        f"os.kill({os.getpid()}, 15)\n"
    )
    with subprocess.Popen([sys.executable, "-c", killer]):
        began = time.monotonic()
        with pytest.raises(Interrupted, match="To resume: resume"):
            run(planned(methods=("hangs",), seeds=1), tmp_path / "run", ways())
        assert time.monotonic() - began < 10


def test_a_second_driver_is_refused_and_told_who_is_first(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run").locked():
        said = finish(start(cwd=tmp_path), RunInUse.exit_code)
        assert f"run is being written by process {os.getpid()} on {socket.gethostname()}" in said
        assert RunFolder(tmp_path / "run").in_use()
    assert RunInUse.exit_code == 5


def test_the_lock_of_a_dead_driver_is_free_at_once(tmp_path: Path) -> None:
    process = start("--methods", "hangs", "--engine", "serial", cwd=tmp_path)
    wait_for((tmp_path / "run" / "facts.json").exists)
    process.kill()
    process.communicate()
    assert (tmp_path / "run" / "holder.json").exists()
    with RunFolder(tmp_path / "run").locked():
        pass


def test_a_full_disk_stops_the_run_and_leaves_the_store_intact(tmp_path: Path) -> None:
    """A file may not grow beyond 256 KiB: the log of the store would, artefacts are smaller."""
    process = subprocess.Popen(
        ["bash", "-c", 'ulimit -f 256; exec "$@"', "-", *map(str, REPRODUCE), *SERIAL, "--methods", "fine"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = finish(process, 6)
    assert "no room for run/store.sqlite" in said
    assert "bytes needed" in said
    assert "Traceback" not in said
    assert 0 < len(stored(tmp_path / "run")) < 20
    assert run(planned(methods=("fine",)), tmp_path / "run", ways())["done"] == 20


def test_a_cell_that_raises_does_not_stop_the_others(tmp_path: Path) -> None:
    process = start("--methods", "slow,broken", "--seeds", 2, "--engine", "serial", "--quiet", cwd=tmp_path)
    said = finish(process, 4)
    assert said.count("Traceback (most recent call last)") == 1
    assert "DataError: this cell is broken" in said
    assert "4 of 8 cells failed, the first of them broken, made-up, line, 1 episodes, seed 0" in said
    frame = pl.read_parquet(tmp_path / "run" / "results.parquet")
    assert frame["status"].value_counts().sort("status")["count"].to_list() == [4, 4]


def test_fail_fast_stops_at_the_first_that_raises(tmp_path: Path) -> None:
    with pytest.raises(CellsFailed):
        run(planned(methods=("fine", "broken")), tmp_path / "run", ways(fail_fast=True))
    assert len(stored(tmp_path / "run")) == 2


def test_failed_cells_are_tried_again_on_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_FLAG", str(tmp_path / "flag"))
    whole = planned(methods=("broken-once",), seeds=1, sizes=(1,))
    with pytest.raises(CellsFailed):
        run(whole, tmp_path / "run", ways())
    assert run(whole, tmp_path / "run", ways())["done"] == 1


def test_a_worker_that_is_killed_is_replaced_and_leaves_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_FLAG", str(tmp_path / "flag"))
    said: list[str] = []
    whole = planned(methods=("fine", "dies-once"), seeds=1, sizes=(1,))
    counts = run(whole, tmp_path / "run", ways("processes", workers=1, said=said))
    assert counts["done"] == 2
    assert any("a worker died (exit code -9): its 2 cells are tried again, one by one" in s for s in said)


def test_a_cell_that_kills_every_worker_fails_and_its_neighbour_does_not(tmp_path: Path) -> None:
    whole = planned(methods=("dies", "fine"), seeds=1, sizes=(1,))
    with pytest.raises(CellsFailed, match="1 of 2 cells failed"):
        run(whole, tmp_path / "run", ways("processes", workers=2))
    with Store.read(RunFolder(tmp_path / "run").store) as store:
        assert tally(store) == {"done": 1, "diverged": 0, "failed": 1, "pending": 0}


def test_a_hung_cell_is_tried_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_FLAG", str(tmp_path / "flag"))
    said: list[str] = []
    whole = planned(methods=("hangs-once",), seeds=1, sizes=(1,))
    counts = run(whole, tmp_path / "run", ways("processes", workers=1, timeout=2.0, said=said))
    assert counts["done"] == 1
    assert any("a worker timed out" in line for line in said)


def test_a_time_out_needs_processes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--engine processes"):
        run(planned(), tmp_path / "run", ways(timeout=1.0))


def test_diverged_cells_are_a_status_and_counted(tmp_path: Path, uninterrupted: bytes) -> None:
    frame = pl.read_parquet(io.BytesIO(uninterrupted))
    diverged = frame.filter(pl.col("status") == "diverged")
    assert len(diverged) == 20
    assert diverged["diverged_step"].unique().to_list() == [7]
    assert diverged["msve"].null_count() == 20


@pytest.mark.parametrize("harm", ["missing", "altered"])
def test_a_lost_artefact_makes_its_cell_pending_and_is_logged(tmp_path: Path, harm: str) -> None:
    folder, whole, said = tmp_path / "run", planned(seeds=1), list[str]()
    run(whole, folder, ways())
    before = results(folder)
    victim = sorted((folder / "artefacts").iterdir())[0]
    content = victim.read_bytes()
    victim.unlink()
    if harm == "altered":
        victim.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    run(whole, folder, ways(said=said))
    assert f"artefact {victim.name} is missing or altered: its cell is measured again" in said
    assert victim.read_bytes() == content
    assert results(folder) == before
    assert len(progress_of(folder)["warnings"]) == 1


def test_a_resume_with_another_config_is_refused_with_the_difference(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(planned(seeds=1), folder, ways())
    with pytest.raises(UsageError) as refusal:
        run(planned(seeds=1, repeats=7, sizes=(1, 3)), folder, ways())
    message = str(refusal.value)
    assert "settings.repeats: 200 -> 7" in message
    assert "settings.sizes: [1, 2] -> [1, 3]" in message
    assert f"For a new run: --out {tmp_path / 'run-2'}" in message
    assert "--extend" not in message
    assert refusal.value.exit_code == 2
    assert len(stored(folder)) == 4


def test_a_run_can_be_extended_by_more_seeds(tmp_path: Path, uninterrupted: bytes) -> None:
    run(planned(seeds=2), tmp_path / "run", ways())
    with pytest.raises(UsageError, match="To add the new cells to this one: --extend"):
        run(planned(), tmp_path / "run", ways())
    run(planned(), tmp_path / "run", ways(extend=True))
    assert results(tmp_path / "run") == uninterrupted


def test_a_damaged_store_is_refused_and_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "store.sqlite").write_bytes(b"not a store at all" * 100)
    said = finish(start(cwd=tmp_path), 3)
    assert "run/store.sqlite is damaged" in said
    assert "Traceback" not in said
    assert (tmp_path / "run" / "store.sqlite").read_bytes() == b"not a store at all" * 100


def test_a_folder_that_cannot_be_written_is_found_at_the_start(tmp_path: Path) -> None:
    """`/proc` refuses new folders even to root."""
    process = start("--out", "/proc/run", cwd=tmp_path)
    said = finish(process, 2)
    assert "/proc/run cannot be written" in said
    assert "choose another folder with --out" in said


def test_status_tells_progress_rate_and_what_failed(tmp_path: Path) -> None:
    with pytest.raises(CellsFailed):
        run(planned(methods=("slow", "diverges", "broken"), seeds=1), tmp_path / "run", ways())
    told = subprocess.run([COMMAND, "status", "run", "--json"], cwd=tmp_path, capture_output=True, check=True)
    found = json.loads(told.stdout)
    assert (found["cells"], found["done"], found["diverged"], found["failed"]) == (6, 2, 2, 2)
    assert found["cells_per_hour"] > 0
    assert found["seconds_left"] == 0
    assert found["running"] is None
    assert "DataError: this cell is broken" in found["failed_cells"][0]
    assert "at step 7" in found["diverged_cells"][0]


def test_a_look_at_what_is_no_run_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run([COMMAND, "status", "nowhere"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 3
    assert "nowhere is not a run" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    process = start("--dry-run", "--json", cwd=tmp_path)
    told, _ = process.communicate(timeout=60)
    assert json.loads(told)["cells"] == 40
    assert list(tmp_path.iterdir()) == []


def test_a_mistyped_name_has_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run([COMMAND, "reproduce", "labirynth"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "did you mean 'labyrinth'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_says_what_it_was_and_where(tmp_path: Path) -> None:
    run(planned(seeds=1), tmp_path / "run", ways())
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["settings"]["seeds"] == 1
    facts = json.loads((tmp_path / "run" / "facts.json").read_text())
    assert {"python", "machine", "cores", "jax", "adaptive-td"} <= facts.keys()


@pytest.mark.slow
def test_a_real_experiment_killed_at_random_moments_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """Two maps, a network and the grid, kill -9 five times; no cell that was stored is measured again."""
    command = ["reproduce", "labyrinth", "--quick", "--maps", "2,3", "--sizes", "5,50", "--steps", "1000"]
    command += ["--seeds", "4", "--no-report"]
    subprocess.run([COMMAND, *command, "--out", "whole"], cwd=tmp_path, check=True)
    moments = random.Random(7)
    for _ in range(5):
        before = _finished(tmp_path / "killed")
        process = subprocess.Popen([COMMAND, *command, "--out", "killed"], cwd=tmp_path)
        wait_for(lambda: len(_finished(tmp_path / "killed")) > len(before) or process.poll() is not None)  # noqa: B023
        time.sleep(moments.random())
        assert process.poll() is None, "it ended before it could be killed: give it more to do"
        process.kill()
        process.wait()
        wait_for(lambda: not RunFolder(tmp_path / "killed").in_use())
        after = _finished(tmp_path / "killed")
        assert {id_: after[id_] for id_ in before} == before
    assert len(before) < len(after) < len(_finished(tmp_path / "whole"))
    subprocess.run([COMMAND, *command, "--out", "killed"], cwd=tmp_path, check=True)
    assert results(tmp_path / "killed") == results(tmp_path / "whole")
    assert after.items() <= _finished(tmp_path / "killed").items()


def _finished(folder: Path) -> dict[str, float]:
    """When each stored cell was finished: a cell that ran again would have another time."""
    path = RunFolder(folder).store
    if not path.exists():
        return {}
    with Store.read(path) as store:
        return {id_: one.finished for id_, one in store.outcomes().items()}
