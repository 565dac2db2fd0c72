"""The commands about Atari games: `atari train-policy` and `atari score`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_td.console import emit, narration, print_table, progress_bar
from adaptive_td.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from adaptive_td.episodes import Episodes

    from .qnetwork import QNetwork
    from .training import Learner, Recipe, Report

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No narration, no progress bars.")]
Game = Annotated[str, typer.Argument(metavar="GAME", help="breakout, ms_pacman, pong or space_invaders.")]

ATARI = "atari:"
"""What the name of a game begins with where an environment is named."""
CHECKPOINT_SECONDS = 180.0
LINE_SECONDS = 60.0


def register(app: typer.Typer) -> None:
    """Add the commands."""
    atari = typer.Typer(help="Q-networks for Atari games.", no_args_is_help=True, rich_markup_mode=None)
    atari.command()(train_policy)
    atari.command()(score)
    app.add_typer(atari, name="atari")


def train_policy(
    game: Game,
    out: Annotated[Path, typer.Option(help="The network to write: a .safetensors file; its card beside it.")],
    steps: Annotated[int, typer.Option(help="Steps of the player, over all games.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Where all randomness comes from.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint beside OUT.")] = False,
    episodes: Annotated[
        int, typer.Option(help="Episodes whose scores go on the card; 0: `atari score` adds them.")
    ] = 30,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train a Q-network by parallelised Q-learning, and score it beside random play on its model card.

    Ctrl-C saves a checkpoint; --resume goes on from it.
    """
    from . import checkpoints, qnetwork
    from .games import ale_version, game_name
    from .training import Recipe

    recipe, ale = Recipe(steps=steps, seed=seed), ale_version()
    checkpoint = out.with_suffix(".checkpoint")
    _refuse_to_overwrite(out, checkpoint, resume)
    before = checkpoints.load(checkpoint, game_name(game), recipe) if resume else None
    learner = _trained(game, recipe, before, checkpoint, quiet)
    if learner.rounds < recipe.rounds:
        raise Interrupted(f"interrupted; saved in {checkpoint}; the same command with --resume goes on")
    card = _card(game, recipe, learner.rounds * recipe.round_steps, ale)
    qnetwork.save(out, learner.network, card)
    checkpoint.unlink(missing_ok=True)
    if not quiet:
        narration.print(f"wrote {out}", markup=False, soft_wrap=True)
    if episodes:
        stored = qnetwork.load(out).network  # in float16, as it will play
        card |= _scored(game, stored, quiet, episodes=episodes)
        qnetwork.write_card(out, card)

    def show() -> None:
        if episodes and not quiet:
            _show_scores({game: card["scores"]})

    emit(card | {"out": str(out)}, as_json, show)


def score(
    game: Annotated[str | None, typer.Argument(metavar="[GAME]", help="The game; not with --all.")] = None,
    policy: Annotated[
        str, typer.Option(help="packaged, or a .safetensors file; the card beside it is rewritten.")
    ] = "packaged",
    every: Annotated[bool, typer.Option("--all", help="All packaged networks.")] = False,
    episodes: Annotated[int, typer.Option(help="Episodes of each player.")] = 30,
    max_steps: Annotated[int, typer.Option(help="Where an episode is cut.")] = 4_000,
    temperature: Annotated[float, typer.Option(help="Of the softmax over Q-values.")] = 0.02,
    seed: Annotated[int, typer.Option(help="Where all randomness comes from.")] = 1_000_003,
    write: Annotated[bool, typer.Option("--write/--no-write", help="Rewrite the model card.")] = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure a network's soft player and a random one over whole episodes, and put that on its card."""
    from . import qnetwork
    from .games import GAMES, game_name

    if every == (game is not None) or (every and policy != "packaged"):
        raise UsageError("give either GAME, perhaps with --policy FILE, or --all")
    found: dict[str, Any] = {}
    for name in [one for one in GAMES if qnetwork.has_packaged(one)] if every else [game_name(str(game))]:
        path = qnetwork.packaged_path(name) if policy == "packaged" else Path(policy)
        loaded = qnetwork.load(path)
        scored = _scored(
            name,
            loaded.network,
            quiet,
            temperature=temperature,
            episodes=episodes,
            seed=seed,
            max_steps=max_steps,
        )
        found[name] = scored["scores"]
        if write:
            qnetwork.write_card(path, loaded.card | scored)
    emit(found, as_json, lambda: _show_scores(found))


def _scored(game: str, network: QNetwork, quiet: bool, **settings: Any) -> dict[str, Any]:
    """What a card says of how well a network plays."""
    from .scores import beats_random, scores

    with progress_bar(f"{game}: episodes", quiet) as progress:
        measured = scores(game, network, progress=progress, **settings)
    scored = measured | {"beats_random": beats_random(game, measured)}
    return {"policy_digest": network.digest, "scores": scored}


def _show_scores(found: dict[str, Any]) -> None:
    """A table of one or more games, all measured in the same way."""
    rows = [
        [name, *(m[who][value] for who in ("soft", "random") for value in ("mean", "std", "length"))]
        for name, m in found.items()
    ]
    header = ["game", "softmax(Q)", "±", "steps", "random", "±", "steps"]
    first = next(iter(found.values()))
    title = f"scores over {first['episodes']} episodes, temperature {first['temperature']}"
    print_table(title, header, rows)


def collect_games(
    env: str,
    policy: str,
    episodes: int,
    seed: int,
    max_steps: int | None,
    temperature: float | None,
    *,
    trust: bool,
    progress: Callable[[int, int], None] | None,
) -> Episodes:
    """The log of `collect atari:GAME`."""
    from .games import MAX_STEPS, ale_version, game_name
    from .policies import TEMPERATURE, player
    from .rollouts import collect

    game = game_name(env.removeprefix(ATARI))
    ale_version()
    chosen = player(policy, game, TEMPERATURE if temperature is None else temperature, trust=trust)
    limit = MAX_STEPS if max_steps is None else max_steps
    return collect(game, chosen, episodes=episodes, seed=seed, max_steps=limit, progress=progress)


def _trained(game: str, recipe: Recipe, learner: Learner | None, checkpoint: Path, quiet: bool) -> Learner:
    """Train until the last round or a signal; checkpoints every few minutes and when interrupted."""
    from adaptive_td.experiments.interrupts import Interrupts

    from . import checkpoints
    from .training import new_learner, train

    learner = learner or new_learner(game, recipe)
    first, started = learner.rounds, time.monotonic()
    saved = said = started
    with (
        Interrupts(lambda message: narration.print(message, markup=False)) as signals,
        progress_bar(f"training on {game}", quiet) as progress,
    ):
        if not quiet:
            steps = f"{recipe.rounds - first} rounds of {recipe.round_steps:,} steps"
            narration.print(f"{game}: {steps}; checkpoints in {checkpoint}", markup=False, soft_wrap=True)
        for report in train(game, recipe, learner, stop=lambda: signals.asked):
            learner, now = report.learner, time.monotonic()
            if progress is not None:
                progress(learner.rounds * recipe.round_steps, recipe.rounds * recipe.round_steps)
            if not quiet and now - said > LINE_SECONDS:
                said, rate = now, (learner.rounds - first) * recipe.round_steps / (now - started)
                _say(report, recipe, rate)
            if now - saved > CHECKPOINT_SECONDS:
                checkpoints.save(checkpoint, game, recipe, learner)
                saved = now
        if learner.rounds < recipe.rounds:
            checkpoints.save(checkpoint, game, recipe, learner)
    return learner


def _card(game: str, recipe: Recipe, steps: int, ale: str) -> dict[str, Any]:
    """A model card without scores."""
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


def _say(report: Report, recipe: Recipe, rate: float) -> None:
    done, total = report.learner.rounds * recipe.round_steps, recipe.rounds * recipe.round_steps
    score = "no game has ended" if report.score is None else f"score {report.score:.1f}"
    narration.print(
        f"{done:,} of {total:,} steps, {rate:.0f} a second, ε {report.epsilon:.2f}, loss {report.loss:.4f}, "
        f"{score}",
        markup=False,
        soft_wrap=True,
    )
