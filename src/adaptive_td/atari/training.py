"""Parallelised Q-learning: a Q-network from many games at once, without replay and target network.

Each round plays `rollout` steps in `num_envs` games with an ε-greedy player, computes λ-targets with the
same network,

    G_t = r_t + γ_t [(1 - λ) max_a Q(s_{t+1}, a) + λ G_{t+1}],

and passes over the round's transitions `epochs` times in minibatches. Layer normalisation is what keeps it
stable (Gallici et al., 2024). In training only, rewards are clipped to [-1, 1] and nothing is expected to
follow a lost life. The game goes on all the same: ale-py's own `episodic_life` starts a new game after each
life, and a network trained with it would never see what comes later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, UInt8

from adaptive_td.errors import UsageError
from adaptive_td.targets import lambda_returns

from .games import ACTIONS, game_name, vector_env
from .qnetwork import QNetwork, init


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a network is trained; `steps` are the player's, over all games together."""

    steps: int
    num_envs: int = 64
    rollout: int = 32
    lam: float = 0.65
    epochs: int = 2
    batch_size: int = 128
    learning_rate: float = 2.5e-4
    max_gradient: float = 10.0
    discount: float = 0.99
    epsilon_final: float = 0.01
    epsilon_share: float = 0.1
    """Share of all steps over which ε falls from 1 to its final value."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse numbers that do not fit each other."""
        for name in ("steps", "num_envs", "rollout", "epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}: must be at least 1, got {getattr(self, name)}")
        if self.round_steps % self.batch_size:
            raise UsageError(
                f"batch_size: {self.batch_size} does not divide the {self.round_steps} steps of a round"
            )

    @property
    def round_steps(self) -> int:
        """Steps between two changes of the network."""
        return self.num_envs * self.rollout

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return max(1, self.steps // self.round_steps)

    @property
    def batches(self) -> int:
        """Minibatches in a round."""
        return self.epochs * self.round_steps // self.batch_size

    def epsilon(self, done: int) -> float:
        """The share of random actions after so many rounds."""
        fallen = min(1.0, done / max(1.0, self.epsilon_share * self.rounds))
        return 1 + fallen * (self.epsilon_final - 1)

    def optimiser(self) -> optax.GradientTransformation:
        """RAdam with a step size that falls to zero, on clipped gradients."""
        falling = optax.linear_schedule(self.learning_rate, 0.0, self.rounds * self.batches)
        return optax.chain(optax.clip_by_global_norm(self.max_gradient), optax.radam(falling))


class Round(NamedTuple):
    """What one round played; `best` holds max_a Q(s, a) of its states and of the states after the last."""

    states: UInt8[np.ndarray, "rollout envs 4 84 84"]
    actions: Int[np.ndarray, "rollout envs"]
    rewards: Float[np.ndarray, "rollout envs"]
    terminated: Bool[np.ndarray, "rollout envs"]
    ended: Bool[np.ndarray, "rollout envs"]
    transition: Bool[np.ndarray, "rollout envs"]
    """False where the step after an end resets a game."""
    best: Float[np.ndarray, "rollout_and_one envs"]


class Learner(eqx.Module):
    """All that training carries from round to round but the games."""

    network: QNetwork
    optimiser: Any
    rounds: int = eqx.field(static=True, default=0)


def new_learner(game: str, recipe: Recipe) -> Learner:
    """A fresh network for a game."""
    network = init(ACTIONS[game_name(game)], key=jax.random.key(recipe.seed))
    return Learner(network, recipe.optimiser().init(network))


def round_targets(played: Round, recipe: Recipe) -> Float[Array, "rollout envs"]:
    """λ-targets of every step; those of steps that reset a game mean nothing."""
    discounts = jnp.where(jnp.asarray(played.terminated), 0.0, recipe.discount)
    last = jnp.asarray(played.ended).at[-1].set(True)
    over_games = jax.vmap(partial(lambda_returns, lam=recipe.lam), in_axes=1, out_axes=1)
    return over_games(jnp.asarray(played.rewards), discounts, jnp.asarray(played.best)[1:], last)


def learn(learner: Learner, played: Round, recipe: Recipe) -> tuple[Learner, float]:
    """One round's minibatches; also the mean of their losses."""
    rng = np.random.default_rng([recipe.seed, learner.rounds, 1])
    order = np.stack([rng.permutation(recipe.round_steps) for _ in range(recipe.epochs)])
    network, optimiser, loss = _fit(
        learner.network, learner.optimiser, played, order.reshape(recipe.batches, -1), recipe
    )
    return Learner(network, optimiser, learner.rounds + 1), float(loss)


@partial(jax.jit, static_argnames="recipe")
def _fit(
    network: QNetwork, optimiser: Any, played: Round, order: Int[Array, "batches batch"], recipe: Recipe
) -> tuple[QNetwork, Any, Array]:
    """Minibatch steps on (1/2) (G - Q(s, a))², one after the other."""
    flat = partial(jnp.reshape, shape=(recipe.round_steps,))
    states = played.states.reshape(recipe.round_steps, *played.states.shape[2:])
    actions, counted = flat(played.actions), flat(played.transition)
    targets = flat(round_targets(played, recipe))

    def loss(network: QNetwork, batch: Array) -> Array:
        chosen = jnp.take_along_axis(network(states[batch]), actions[batch, None], axis=1)[:, 0]
        squares = jnp.where(counted[batch], jnp.square(targets[batch] - chosen), 0.0)
        return 0.5 * squares.sum() / jnp.maximum(1, counted[batch].sum())

    def step(carried: tuple[QNetwork, Any], batch: Array) -> tuple[tuple[QNetwork, Any], Array]:
        network, optimiser = carried
        value, gradient = jax.value_and_grad(loss)(network, batch)
        change, optimiser = recipe.optimiser().update(gradient, optimiser, network)
        return (optax.apply_updates(network, change), optimiser), value

    (network, optimiser), losses = jax.lax.scan(step, (network, optimiser), order)
    return network, optimiser, losses.mean()


@jax.jit
def _greedy(network: QNetwork, states: UInt8[Array, "envs 4 84 84"]) -> tuple[Array, Array]:
    values = network(states)
    return values.argmax(1), values.max(1)


class Games:
    """The games of training, and the scores of those that were played to their end."""

    def __init__(self, game: str, recipe: Recipe, *, first_round: int = 0):
        """Start `num_envs` games; those of a resumed training have other seeds."""
        self._env = vector_env(game, recipe.num_envs, max_steps=27_000)
        self._recipe = recipe
        first = int(np.random.SeedSequence([recipe.seed, first_round, 2]).generate_state(1)[0] >> 2)
        self._states, info = self._env.reset(seed=first)
        self._lives = np.array(info["lives"])
        self._resetting = np.zeros(recipe.num_envs, bool)
        self._score = np.zeros(recipe.num_envs)
        self.scores: list[float] = []

    def play(self, learner: Learner) -> Round:
        """One round with the ε-greedy player."""
        recipe, rng = self._recipe, np.random.default_rng([self._recipe.seed, learner.rounds, 0])
        epsilon, columns = recipe.epsilon(learner.rounds), []
        for _ in range(recipe.rollout):
            states, transition = np.array(self._states), ~self._resetting
            greedy, best = map(np.asarray, _greedy(learner.network, states))
            chance = rng.random(recipe.num_envs) < epsilon
            actions = np.where(chance, rng.integers(learner.network.actions, size=recipe.num_envs), greedy)
            rewards, stopped, ended = self._step(actions)
            columns.append((states, actions, np.clip(rewards, -1, 1), stopped, ended, transition, best))
        _, after = _greedy(learner.network, np.array(self._states))
        played = Round(*(np.stack(column) for column in zip(*columns, strict=True)))
        return played._replace(best=np.concatenate([played.best, np.asarray(after)[None]]))

    def close(self) -> None:
        """Stop the games."""
        self._env.close()

    def _step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rewards; whether nothing follows, also after a lost life; whether the next step resets."""
        self._states, rewards, terminated, truncated, info = self._env.step(actions.astype(np.int64))
        lives = np.array(info["lives"])
        rewards, ended, lost = np.asarray(rewards, np.float32), terminated | truncated, lives < self._lives
        self._score += rewards
        for k in np.flatnonzero(ended):
            self.scores.append(float(self._score[k]))
            self._score[k] = 0.0
        self._lives, self._resetting = lives, ended
        return rewards, terminated | lost, ended


class Report(NamedTuple):
    """How training stands after a round."""

    learner: Learner
    loss: float
    epsilon: float
    score: float | None
    """Mean score of the last hundred games that ended, in the game's own points; None before the first."""


def train(
    game: str,
    recipe: Recipe,
    learner: Learner | None = None,
    *,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Report]:
    """Rounds of training, from the start or from where a learner is.

    A resumed training has the same weights, optimiser, schedules and random numbers as one that was not
    interrupted, but its games start afresh, so it does not see the same frames.
    """
    learner = learner or new_learner(game, recipe)
    games = Games(game, recipe, first_round=learner.rounds)
    try:
        while learner.rounds < recipe.rounds and not stop():
            epsilon = recipe.epsilon(learner.rounds)
            learner, loss = learn(learner, games.play(learner), recipe)
            recent = games.scores[-100:]
            yield Report(learner, loss, epsilon, float(np.mean(recent)) if recent else None)
    finally:
        games.close()
