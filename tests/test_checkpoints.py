"""Fits that are killed go on where they were, to the same weights bit for bit."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import adaptive_td as atd
from adaptive_td.checkpoints import Checkpoints
from adaptive_td.methods import Method

FIT = """
import sys, numpy as np, adaptive_td as atd
from pathlib import Path
from adaptive_td.checkpoints import Checkpoints

case, folder, out = sys.argv[1], sys.argv[2], sys.argv[3]
rng = np.random.default_rng(0)
if case in ("frames", "frames by xla"):
    states = rng.integers(0, 255, (4 * 41, 36, 36), np.uint8)
    log = atd.Episodes.from_rows(states, rng.normal(size=160), np.full(4, 40), np.ones(4, bool), stack=2)
    model, batch, steps = atd.NatureCNN(dense=32), 4, 60
else:
    states = rng.normal(size=(8 * 51, 2))
    log = atd.Episodes.from_rows(states, rng.normal(size=400), np.full(8, 50), np.ones(8, bool))
    model, batch, steps = atd.MLP((16,)), 64, 20_000
method = atd.TDLambda(0.5) if case == "lambda" else atd.AdaptiveTD()
told = lambda done, total: print(done, flush=True)
checkpoints = Checkpoints(folder=Path(folder), seconds=0.0) if folder else None
value = atd.fit(method, log, model, discount=0.9, key=0, training=atd.Training(steps=steps, batch_size=batch),
                progress=told, checkpoints=checkpoints, engine="xla" if case == "frames by xla" else "auto")
value.save(out)
"""


def weights(folder: Path) -> bytes:
    return (folder / "weights.safetensors").read_bytes()


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", FIT, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("case", ["mlp", "lambda", "frames", "frames by xla"])
def test_a_fit_killed_with_kill_9_and_resumed_has_the_weights_of_one_that_was_not(
    case: str, tmp_path: Path
) -> None:
    with start(case, "", tmp_path / "whole") as whole:
        assert whole.communicate()[0]
    folder, kept = tmp_path / "checkpoints", 0
    for reports in (3, 6):  # stages and steps at which it is killed
        with start(case, folder, tmp_path / "killed") as killed:
            assert killed.stdout is not None
            for _ in range(reports):
                assert killed.stdout.readline()
            deadline = time.monotonic() + 60
            while not list(folder.glob("*.safetensors")) and time.monotonic() < deadline:
                time.sleep(0.01)
            os.kill(killed.pid, signal.SIGKILL)
        assert not (tmp_path / "killed").exists()
        kept = len(list(folder.glob("*.safetensors")))
    assert kept > 0
    with start(case, folder, tmp_path / "resumed") as resumed:
        first = int(resumed.communicate()[0].splitlines()[0])
    assert first > 0
    assert weights(tmp_path / "resumed") == weights(tmp_path / "whole")


def log() -> atd.Episodes:
    rng = np.random.default_rng(1)
    return atd.Episodes.from_rows(
        rng.normal(size=(4 * 26, 2)), rng.normal(size=100), np.full(4, 25), np.ones(4, bool)
    )


def fit(folder: Path, method: Method, *, key: int = 0, steps: int = 200) -> atd.ValueFunction:
    training = atd.Training(steps=steps, batch_size=32)
    model = atd.MLP((8,))
    return atd.fit(method, log(), model, discount=0.9, key=key, training=training, checkpoints=folder)


def test_a_finished_fit_is_taken_from_its_folder_and_others_are_not(tmp_path: Path) -> None:
    first = fit(tmp_path, atd.AdaptiveTD())
    files = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(files) == 4  # three members and the value function
    again = fit(tmp_path, atd.AdaptiveTD())
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == files
    assert jax.tree.all(jax.tree.map(np.array_equal, first.function, again.function))
    for other in (
        fit(tmp_path, atd.AdaptiveTD(), key=1),
        fit(tmp_path, atd.AdaptiveTD(), steps=201),
        fit(tmp_path, atd.AdaptiveTD(level=0.5)),
    ):
        assert not np.array_equal(other(log().states), first(log().states))


def test_a_broken_checkpoint_is_refused_and_named(tmp_path: Path) -> None:
    fit(tmp_path, atd.TD())
    (path,) = tmp_path.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(atd.DataError, match=r"\(100 bytes\) is not a whole checkpoint"):
        fit(tmp_path, atd.TD())


def test_states_are_written_no_more_often_than_asked(tmp_path: Path) -> None:
    training = atd.Training(steps=2000, batch_size=32)
    written: set[int] = set()

    def watch(done: int, total: int) -> None:
        written.update(path.stat().st_mtime_ns for path in tmp_path.glob("*.safetensors"))

    patient = Checkpoints(folder=tmp_path, seconds=3600.0)
    model = atd.MLP((8,))
    atd.fit(
        atd.TD(), log(), model, discount=0.9, key=0, training=training, progress=watch, checkpoints=patient
    )
    assert len(written) <= 1
    assert len(list(tmp_path.glob("*.safetensors"))) == 1


def test_the_command_line_keeps_and_uses_checkpoints(tmp_path: Path) -> None:
    atd.save(log(), tmp_path / "log.npz")
    program = str(Path(sys.executable).with_name("adaptive-td"))
    command = [program, "fit", "log.npz", "--discount", "0.9", "--steps", "100"]
    for out in ("first", "second"):
        options = ["--checkpoints", "kept", "--out", out, "--quiet"]
        subprocess.run([*command, *options], cwd=tmp_path, check=True, capture_output=True)
    assert len(list((tmp_path / "kept").glob("*.safetensors"))) == 4
    assert weights(tmp_path / "first") == weights(tmp_path / "second")
