"""Experiments as data: settings in, cells with derived ids and fixed groups out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import partial
from typing import Any, get_args

from adaptive_td import specs
from adaptive_td.atari.games import GAMES
from adaptive_td.errors import UsageError, unknown_name
from adaptive_td.problems import Chain, Labyrinth, Problem, named
from adaptive_td.tasks import Truncation

from .cells import NUMERICS, Cell, Group, canonical, problem_digest, sha256, tidy
from .measure import MONTE_CARLO, build_model, log_of_nothing
from .tabular import ESTIMATORS

SHARED = (
    *("problem", "model", "episodes", "seed"),
    *("steps", "batch_size", "learning_rate", "epsilon", "repeats"),
)
"""What the cells of a group have in common."""
OF_PROBLEMS = ("test_episodes", "max_steps", "temperature", "clipped")
"""Settings that a problem itself may have."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every number of an experiment; the defaults are the paper's."""

    problems: tuple[str, ...]
    methods: tuple[str, ...] = (
        *("mc", "mc-ensemble", "td", "adaptive-td"),
        *("td-lambda:0.25", "td-lambda:0.5", "td-lambda:0.75"),
    )
    models: tuple[str, ...] = ("mlp:50,50",)
    sizes: tuple[int, ...] = (5, 10, 20, 50, 75, 100)
    seeds: int = 20
    steps: int = 50_000
    batch_size: int = 512
    learning_rate: float = 1e-3
    members: int = 3
    level: float = 0.95
    snapshot_episodes: int = 50
    """The size at which Adaptive TD is also looked at early on; no snapshots where no size is this one."""
    snapshot_steps: int = 300
    repeats: int = 200
    """Independent logs behind each tabular estimate."""
    epsilon: float | None = None
    """Adam's ε; None is its default, and so it is with all that follow."""
    truncation: str | None = None
    """How Monte Carlo treats an episode that is cut short."""
    test_episodes: int | None = None
    """Of problems that are judged by test episodes, how many of them."""
    max_steps: int | None = None
    """Where such a problem cuts its episodes."""
    temperature: float | None = None
    """Of the policy that plays."""
    clipped: bool | None = None
    """Whether its rewards are clipped to -1, 0 and 1."""

    def __post_init__(self) -> None:
        """Spell names in one way, and refuse settings that leave nothing to do."""
        for name in ("methods", "models"):
            object.__setattr__(self, name, tuple(map(tidy, getattr(self, name))))
        for name in ("seeds", "steps", "batch_size", "learning_rate", "snapshot_steps", "repeats"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("problems", "methods", "models", "sizes"):
            if not getattr(self, name):
                raise UsageError(f"{name}: none given")
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise UsageError(f"{name}: one is named twice: {', '.join(map(str, getattr(self, name)))}")
        for name in ("epsilon", *OF_PROBLEMS):
            if (given := getattr(self, name)) is not None and given is not False and not given > 0:
                raise UsageError(f"{name} must be positive, got {given}")
        if self.truncation is not None and self.truncation not in get_args(Truncation):
            raise unknown_name("truncation", self.truncation, get_args(Truncation))
        if min(self.sizes) < 1:
            raise UsageError(f"sizes: an experiment needs at least one episode, got {min(self.sizes)}")


def trained_cells(settings: Settings) -> Iterator[Cell]:
    """All methods on all problems, sizes and seeds; whole seeds first, so that a run cut short has some."""
    product = itertools.product(
        range(settings.seeds), settings.problems, settings.models, settings.sizes, settings.methods
    )
    for seed, problem, model, episodes, method in product:
        cell = Cell(
            problem=problem,
            method=method,
            model=model,
            episodes=episodes,
            seed=seed,
            steps=settings.steps,
            batch_size=settings.batch_size,
            learning_rate=float(settings.learning_rate),
            members=settings.members if method in ("mc-ensemble", "adaptive-td") else None,
            level=float(settings.level) if method in ("mc-ensemble", "adaptive-td") else None,
            epsilon=None if settings.epsilon is None else float(settings.epsilon),
            truncation=settings.truncation if method in MONTE_CARLO else None,
        )
        yield cell
        if method == "adaptive-td" and episodes == settings.snapshot_episodes:
            yield replace(cell, after=settings.snapshot_steps)


def tabular_cells(settings: Settings) -> Iterator[Cell]:
    """The estimators of the chain, each averaged over many logs."""
    product = itertools.product(range(settings.seeds), settings.problems, settings.sizes, settings.methods)
    for method in settings.methods:
        if method not in ESTIMATORS:
            raise unknown_name("method of the chain", method, ESTIMATORS)
    for seed, problem, episodes, method in product:
        yield Cell(
            problem=problem,
            method=method,
            model="tabular",
            episodes=episodes,
            seed=seed,
            level=float(settings.level) if method.startswith("adaptive-td") else None,
            repeats=settings.repeats,
        )


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A named experiment: what it shows, its presets, and how settings become cells."""

    about: str
    presets: Mapping[str, Settings]
    cells: Callable[[Settings], Iterator[Cell]] = trained_cells
    variants: Mapping[str, Callable[[], Problem]] = field(default_factory=dict)
    """Problems that only this experiment has."""

    def settings(self, preset: str, **overrides: Any) -> Settings:
        """A preset with some numbers replaced; an override of None is none."""
        if preset not in self.presets:
            raise unknown_name("preset", preset, self.presets)
        return replace(self.presets[preset], **{k: v for k, v in overrides.items() if v is not None})


def presets(paper: Settings, **quick: Any) -> dict[str, Settings]:
    """The paper's settings, and quick ones that differ in a few numbers."""
    return {"quick": replace(paper, **quick), "paper": paper}


_CHAIN = Settings(
    problems=("chain", "chain-biased"),
    methods=("mc", "td", "adaptive-td", "adaptive-td:endpoint"),
    models=("tabular",),
    sizes=(5, 10, 20, 50, 100, 200, 500, 1000),
)
_QUICK = {"sizes": (5, 50), "seeds": 2, "steps": 2000}
_ATARI = Settings(
    problems=tuple(f"atari-{game}" for game in GAMES),
    models=("cnn",),
    sizes=(5, 10, 20, 50, 100, 200),
    steps=250_000,
    batch_size=32,
    learning_rate=6.25e-5,
    epsilon=1.5e-4,
    snapshot_episodes=0,
)
EXPERIMENTS: dict[str, Experiment] = {
    "chain": Experiment(
        about="the paper's simple example, exact and with a bias of a half at b_1",
        presets={"quick": _CHAIN, "paper": _CHAIN},
        cells=tabular_cells,
        variants={"chain-biased": partial(Chain, bias=0.5)},
    ),
    "labyrinth": Experiment(
        about="Labyrinth-2D: six maps, an MLP and a piecewise constant grid",
        presets=presets(
            Settings(
                problems=tuple(f"labyrinth-{number}" for number in range(6)), models=("mlp:50,50", "grid:19")
            ),
            **_QUICK,
        ),
    ),
    "mountain-car": Experiment(
        about="Mountain Car with an MLP",
        presets=presets(Settings(problems=("mountain-car",)), **{**_QUICK, "sizes": (5, 20, 50), "seeds": 3}),
    ),
    "atari": Experiment(
        about="four Atari games from their pixels, judged by the returns of test episodes",
        presets={
            "quick": replace(
                _ATARI,
                problems=("atari-pong",),
                methods=("mc", "mc-ensemble", "td", "adaptive-td"),
                sizes=(5, 10),
                seeds=1,
                steps=3000,
                test_episodes=10,
            ),
            "laptop": replace(_ATARI, sizes=(5, 20, 50), seeds=2, steps=10_000),
            "paper": _ATARI,
        },
    ),
}
"""Every experiment by name; a new one is an entry here."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """An experiment in full: its settings, problems and cells by id, and the groups they train in."""

    name: str
    settings: Settings
    problems: Mapping[str, Problem]
    cells: Mapping[str, Cell]
    groups: tuple[Group, ...]
    plugins: Mapping[str, str]

    def config(self) -> dict[str, Any]:
        """What was resolved, as plain data; two plans with the same config have the same cells."""
        return {
            "experiment": self.name,
            "numerics": NUMERICS,
            "settings": {name: value for name, value in asdict(self.settings).items() if value is not None},
            "data": {name: problem_digest(problem) for name, problem in self.problems.items()},
            "plugins": dict(self.plugins),
        }

    @property
    def digest(self) -> str:
        """Names the cells and their order."""
        return sha256("\n".join(self.cells))


def plan(name: str, settings: Settings, *, plugins: Mapping[str, str] | None = None) -> Plan:
    """The cells of an experiment. A problem is a registered name, or a TOML file with a map."""
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    experiment = EXPERIMENTS[name]
    made = [_with_settings(_make(spec, experiment), settings) for spec in settings.problems]
    names = [p.name if s.endswith(".toml") else s for s, p in zip(settings.problems, made, strict=True)]
    settings = replace(settings, problems=tuple(names))
    problems = dict(zip(names, made, strict=True))
    digests = {name: problem_digest(problem) for name, problem in problems.items()}
    cells = {cell.id(digests[cell.problem]): cell for cell in experiment.cells(settings)}
    if any(cell.steps for cell in cells.values()):
        _check_names(settings, made)
    return Plan(
        name=name,
        settings=settings,
        problems=problems,
        cells=cells,
        groups=_groups(cells, problems),
        plugins=plugins or {},
    )


def _make(spec: str, experiment: Experiment) -> Problem:
    if spec.endswith(".toml"):
        return Labyrinth.from_toml(spec)
    return experiment.variants[spec]() if spec in experiment.variants else named(spec)


def _with_settings(problem: Problem, settings: Settings) -> Problem:
    """The problem with the numbers that the settings have for it."""
    given = {name: value for name in OF_PROBLEMS if (value := getattr(settings, name)) is not None}
    if not given:
        return problem
    own: set[str] = {one.name for one in fields(problem)} if is_dataclass(problem) else set()
    for name in given:
        if name not in own:
            raise UsageError(f"{problem.name} has no {name.replace('_', ' ')} to set")
    changed: Problem = replace(problem, **given)  # type: ignore[type-var]
    return changed


def _check_names(settings: Settings, problems: Sequence[Problem]) -> None:
    """Refuse methods and models that do not exist, before anything runs."""
    for method in settings.methods:
        specs.method(method)
    for model, problem in itertools.product(settings.models, problems):
        build_model(model, problem, log_of_nothing(problem))


def _groups(cells: Mapping[str, Cell], problems: Mapping[str, Problem]) -> tuple[Group, ...]:
    """Cells of one log and model, in the order of their first cell."""
    alike: dict[str, dict[str, Cell]] = {}
    for id_, cell in cells.items():
        alike.setdefault(canonical([getattr(cell, name) for name in SHARED]), {})[id_] = cell
    return tuple(
        Group(number, problems[next(iter(same.values())).problem], same)
        for number, same in enumerate(alike.values())
    )
