"""Checkpoints of training: weights, optimiser and progress in one safetensors file, written whole."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from adaptive_td.errors import DataError, UsageError
from adaptive_td.files import write_whole

from .training import Learner, Recipe, new_learner


def save(path: Path, game: str, recipe: Recipe, learner: Learner) -> None:
    """Write all that a learner carries, in full precision, and what it is trained by."""
    leaves = {f"{k:04}": np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(learner))}
    progress = {"game": game, "recipe": asdict(recipe), "rounds": learner.rounds}
    write_whole(path, safetensors.numpy.save(leaves, {"progress": json.dumps(progress)}))


def load(path: Path, game: str, recipe: Recipe) -> Learner:
    """The learner of a checkpoint, if it was made for this game by this recipe."""
    if not path.is_file():
        raise UsageError(f"{path}: there is no checkpoint to resume from")
    try:
        with safe_open(path, "np") as file:
            progress = json.loads((file.metadata() or {}).get("progress", "{}"))
            leaves = [jnp.asarray(file.get_tensor(name)) for name in sorted(file.keys())]
    except (SafetensorError, ValueError) as error:
        raise DataError(f"{path.name}: cannot be read as a checkpoint: {error}") from None
    wanted: dict[str, object] = {"game": game, "recipe": asdict(recipe)}
    for field, value in _flat(wanted).items():
        before = _flat(progress).get(field)
        if before != value:
            raise UsageError(f"{field}: the checkpoint {path} has {before}, not {value}")
    fresh = new_learner(game, recipe)
    shapes = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(fresh)]
    if [(leaf.shape, leaf.dtype) for leaf in leaves] != shapes:
        raise DataError(f"{path.name}: its arrays are not those of a learner for {game}")
    loaded = jax.tree.unflatten(jax.tree.structure(fresh), leaves)
    return Learner(loaded.network, loaded.optimiser, int(progress["rounds"]))


def _flat(progress: dict[str, object]) -> dict[str, object]:
    recipe = progress.get("recipe")
    return {"game": progress.get("game"), **(recipe if isinstance(recipe, dict) else {})}
