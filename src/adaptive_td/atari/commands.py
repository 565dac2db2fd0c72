"""The commands about Atari games: `atari train-policy` and `atari score`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from adaptive_td.console import emit, narration, print_table, progress_bar
from adaptive_td.errors import Interrupted, UsageError

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No narration, no progress bars.")]
Game = Annotated[str, typer.Argument(metavar="GAME", help="breakout, ms_pacman, pong or space_invaders.")]

CHECKPOINT_SECONDS = 180.0
LINE_SECONDS = 60.0


def register(app: typer.Typer) -> None:
    """Add the commands."""
    atari = typer.Typer(help="Q-networks for Atari games.", no_args_is_help=True, rich_markup_mode=None)
    atari.command()(train_policy)
    app.add_typer(atari, name="atari")


def train_policy(
    game: Game,
    out: Annotated[Path, typer.Option(help="The network to write: a .safetensors file; its card beside it.")],
    steps: Annotated[int, typer.Option(help="Steps of the player, over all games.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Where all randomness comes from.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint beside OUT.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train a Q-network by parallelised Q-learning. Ctrl-C saves a checkpoint; --resume goes on from it."""
    from adaptive_td.experiments.interrupts import Interrupts

    from . import checkpoints, qnetwork
    from .games import ale_version, game_name
    from .training import Recipe, train

    recipe = Recipe(steps=steps, seed=seed)
    ale, checkpoint = ale_version(), out.with_suffix(".checkpoint")
    _refuse_to_overwrite(out, checkpoint, resume)
    learner = checkpoints.load(checkpoint, game_name(game), recipe) if resume else None
    saved = said = started = time.monotonic()
    first = learner.rounds if learner else 0
    with Interrupts(lambda message: narration.print(message, markup=False)) as signals:
        with progress_bar(f"training on {game}", quiet) as progress:
            for report in train(game, recipe, learner, stop=lambda: signals.asked):
                learner, now = report.learner, time.monotonic()
                if progress is not None:
                    progress(learner.rounds * recipe.round_steps, recipe.steps)
                if not quiet and now - said > LINE_SECONDS:
                    said, rate = now, (learner.rounds - first) * recipe.round_steps / (now - started)
                    _say(learner.rounds * recipe.round_steps, recipe.steps, report, rate)
                if now - saved > CHECKPOINT_SECONDS:
                    checkpoints.save(checkpoint, game, recipe, learner)
                    saved = now
        if learner is not None and learner.rounds < recipe.rounds:
            checkpoints.save(checkpoint, game, recipe, learner)
            raise Interrupted(f"interrupted; saved in {checkpoint}; the same command with --resume goes on")
    if learner is None:
        raise UsageError(f"steps: {steps} leave nothing to train")
    card = card_of(game, recipe, learner.rounds * recipe.round_steps, ale)
    qnetwork.save(out, learner.network, card)
    checkpoint.unlink(missing_ok=True)
    emit(card | {"out": str(out)}, as_json, lambda: narration.print(f"wrote {out}", markup=False))


def card_of(game: str, recipe: Any, steps: int, ale: str) -> dict[str, Any]:
    """A model card without scores, which `atari score` adds."""
    from dataclasses import asdict

    from .games import GAMES

    return {
        "game": game,
        "title": GAMES[game],
        "steps": steps,
        "algorithm": "parallelised Q-learning with λ-targets and layer normalisation, without replay",
        "recipe": asdict(recipe),
        "rewards": "clipped to [-1, 1] in training, where nothing is expected to follow a lost life",
        "ale_py": ale,
    }


def _refuse_to_overwrite(out: Path, checkpoint: Path, resume: bool) -> None:
    if out.suffix != ".safetensors":
        raise UsageError(f"out: {out} must end in .safetensors")
    if out.exists():
        raise UsageError(f"{out} exists; a network is never overwritten")
    if not out.parent.is_dir():
        raise UsageError(f"{out.parent}: no such folder")
    if checkpoint.exists() and not resume:
        raise UsageError(f"{checkpoint} exists: --resume goes on from it; remove it to start anew")


def _say(done: int, total: int, report: Any, rate: float) -> None:
    score = "no game has ended" if report.score is None else f"score {report.score:.1f}"
    narration.print(
        f"{done:,} of {total:,} steps, {rate:.0f} a second, ε {report.epsilon:.2f}, loss {report.loss:.4f}, "
        f"{score}",
        markup=False,
        soft_wrap=True,
    )


_ = print_table
