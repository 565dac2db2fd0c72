"""Atari as a problem: logs that are kept, and a run of the experiment from pixels to report."""

import multiprocessing
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adaptive_td import Episodes, problems
from adaptive_td.errors import DataError, UsageError
from adaptive_td.experiments import EXPERIMENTS, plan
from adaptive_td.experiments.cells import problem_digest
from adaptive_td.problems import Atari, named
from adaptive_td.problems.cache import FOLDER, cache_folder
from adaptive_td.problems.kept import CHUNK, Kept
from logs import assert_same

COMMAND = Path(sys.executable).with_name("adaptive-td")


def played(first: int, count: int) -> Episodes:
    """Episode k has k % 3 + 1 steps of small pictures that tell its number."""
    numbers = range(first, first + count)
    lengths = np.array([k % 3 + 1 for k in numbers])
    states = np.concatenate(
        [np.full((n + 1, 2, 2), k, np.uint8) for k, n in zip(numbers, lengths, strict=True)]
    )
    steps = int(lengths.sum())
    return Episodes(
        states=states,
        rewards=np.arange(steps, dtype=np.float32),
        lengths=lengths,
        ended=np.array([k % 2 == 0 for k in numbers]),
        stack=2,
        extras={"action": np.repeat(np.array(numbers, np.int32), lengths)},
        info={"game": "none"},
    )


def only_numbers(first: int, count: int) -> Episodes:
    """The same, with rewards that do not depend on where the stream is cut."""
    log = played(first, count)
    return replace(log, rewards=log.extras["action"].astype(np.float32))


def test_kept_episodes_are_played_once_and_come_back_whole(tmp_path: Path) -> None:
    calls = []

    def play(first: int, count: int) -> Episodes:
        calls.append((first, count))
        return only_numbers(first, count)

    kept = Kept(folder=tmp_path / "log", play=play)
    few, many, again = kept.episodes(3), kept.episodes(CHUNK + 4), kept.episodes(5)
    assert calls == [(0, 3), (3, CHUNK - 3), (CHUNK, 4)]
    expected = only_numbers(0, CHUNK + 4)
    assert_same(many, expected)
    assert many.stack == 2
    assert many.info == {"game": "none"}
    np.testing.assert_array_equal(many.extras["action"], expected.extras["action"])
    assert_same(few, expected.select(range(3)))
    assert_same(again, expected.select(range(5)))


def test_an_episode_that_is_lost_is_played_again_alone(tmp_path: Path) -> None:
    calls = []

    def play(first: int, count: int) -> Episodes:
        calls.append((first, count))
        return only_numbers(first, count)

    kept = Kept(folder=tmp_path, play=play)
    kept.episodes(6)
    (tmp_path / "000004.npz").unlink()
    assert_same(kept.episodes(6), only_numbers(0, 6))
    assert calls == [(0, 6), (4, 1)]


def test_an_interrupted_write_leaves_nothing_that_is_taken_for_an_episode(tmp_path: Path) -> None:
    def broken(first: int, count: int) -> Episodes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Kept(folder=tmp_path, play=broken).episodes(2)
    assert list(tmp_path.glob("*.npz")) == []
    assert len(Kept(folder=tmp_path, play=only_numbers).episodes(2)) == 2


def test_a_spoilt_file_is_named(tmp_path: Path) -> None:
    kept = Kept(folder=tmp_path, play=only_numbers)
    kept.episodes(2)
    (tmp_path / "000001.npz").write_bytes(b"PK not a log")
    with pytest.raises(DataError, match=r"000001\.npz is not a log.*remove it"):
        kept.episodes(2)


def _ask(folder: Path, ledger: Path) -> None:
    def play(first: int, count: int) -> Episodes:
        with ledger.open("a") as file:
            file.write(f"{first} {count}\n")
        return only_numbers(first, count)

    assert_same(Kept(folder=folder, play=play).episodes(3 * CHUNK), only_numbers(0, 3 * CHUNK))


def test_processes_that_want_the_same_episodes_play_none_twice(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=_ask, args=(tmp_path / "log", ledger)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(120)
    assert [process.exitcode for process in both] == [0, 0]
    parts = sorted(tuple(map(int, line.split())) for line in ledger.read_text().splitlines())
    assert parts == [(0, CHUNK), (CHUNK, CHUNK), (2 * CHUNK, CHUNK)]


def test_the_cache_lies_where_it_is_told_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv(FOLDER, raising=False)
    assert cache_folder("logs") == tmp_path / "xdg" / "adaptive-td" / "logs"
    monkeypatch.setenv(FOLDER, str(tmp_path / "own"))
    assert cache_folder("logs") == tmp_path / "own" / "logs"


def test_a_game_has_a_name_and_one_that_is_mistyped_is_refused() -> None:
    game = named("atari-space_invaders")
    assert game == Atari("space_invaders")
    assert (game.name, Atari("ms_pacman").title) == ("atari-space_invaders", "Ms. Pac-Man")
    assert isinstance(game, problems.Tested)
    with pytest.raises(UsageError, match="did you mean 'space_invaders'"):
        Atari("space-invaders")
    with pytest.raises(UsageError, match="max_steps must be positive"):
        Atari(max_steps=0)


def test_a_game_is_named_by_all_that_its_results_follow_from() -> None:
    pong = Atari("pong")
    others = [
        Atari("breakout"),
        *(replace(pong, temperature=1.0), replace(pong, max_steps=9), replace(pong, clipped=True)),
        replace(pong, test_episodes=3),
    ]
    assert len({problem_digest(one) for one in (pong, *others)}) == 6


def test_the_papers_atari_has_every_cell() -> None:
    settings = EXPERIMENTS["atari"].settings("paper", problems=("atari-pong", "atari-breakout"))
    whole = plan("atari", settings)
    assert len(whole.cells) == 2 * 6 * 7 * 20
    cell = next(iter(whole.cells.values()))
    assert (cell.steps, cell.batch_size, cell.learning_rate, cell.epsilon) == (250_000, 32, 6.25e-5, 1.5e-4)
    assert (cell.model, cell.truncation) == ("cnn", None)
    assert {len(group.cells) for group in whole.groups} == {7}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the tests that play."""
    return tmp_path_factory.mktemp("cache")


def test_episodes_of_a_game_are_prefixes_apart_from_the_test_episodes(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(cache))
    pong = Atari("pong", max_steps=30, test_episodes=2)
    two, one, test = pong.episodes(2, seed=0), pong.episodes(1, seed=0), pong.test()
    assert two.observation_shape == pong.observation_shape
    assert two.lengths.tolist() == test.lengths.tolist() == [30, 30]
    assert not two.ended.any()
    assert_same(one, two.select([0]))
    actions = [log.extras["action"] for log in (two, test, pong.episodes(2, seed=1))]
    assert not any(np.array_equal(a, b) for a, b in zip(actions, actions[1:] + actions[:1], strict=True))
    assert two.info["game"] == "pong"
    assert two.info["temperature"] == 0.02


def test_clipped_rewards_come_from_the_same_play(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(cache))
    raw = Atari("pong", max_steps=30, test_episodes=2)
    files = sorted(cache.rglob("*.npz"))
    clipped = replace(raw, clipped=True).episodes(2, seed=0)
    assert sorted(cache.rglob("*.npz")) == files
    np.testing.assert_array_equal(clipped.rewards, np.clip(raw.episodes(2, seed=0).rewards, -1, 1))


def test_without_the_extra_the_experiment_says_so_before_anything_is_written(tmp_path: Path) -> None:
    """A Python in which ale-py cannot be imported."""
    code = "import sys; sys.modules['ale_py'] = None; from adaptive_td.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code, "reproduce", "atari", "--quick", "--out", "run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 2, ran.stderr
    assert 'pip install "adaptive-td[atari]"' in ran.stderr
    assert "Traceback" not in ran.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_quick_preset_runs_from_pixels_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "cache"))
    smaller = ("--sizes", "1,2", "--steps", "5", "--test-episodes", "2", "--max-steps", "480")
    command = (COMMAND, "reproduce", "atari", "--quick", *smaller, "--out", "run", "--engine", "serial")
    subprocess.run([*map(str, command)], cwd=tmp_path, check=True, timeout=1200)
    pictures = {path.stem for path in (tmp_path / "run" / "figures").glob("*.png")}
    assert pictures == {"atari-normalised", "atari-msve", "atari-frames", "atari-episode", "overall"}
    report = (tmp_path / "run" / "report.html").read_text()
    for number in ("A1", "A2", "A3", "A4", "O1", "O2"):
        assert f"<td>{number}</td>" in report
