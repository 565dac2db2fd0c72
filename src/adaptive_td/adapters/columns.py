"""Which column of a table is what: as the user says, and guessed by name where the user is silent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import polars as pl

from adaptive_td.errors import DataError, UsageError, unknown_name

from .names import NAMES, Field, find_name

Columns = Mapping[str, str | Sequence[str]]

ROLES = (
    *("episode", "step", "time", "duration", "features", "next_features"),
    *("reward", "terminated", "truncated", "done"),
)
_OBSERVATION = re.compile(r"(observations?|obs|states?)([._\d].*)?", re.IGNORECASE)
_NOT_STATE = re.compile(r"(actions?|next|infos?)([._\d].*)?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """The column of each role; None or empty where the table has none."""

    episode: str
    features: tuple[str, ...]
    reward: str
    keys: Mapping[str, str]
    """The columns that name a row, each under the name it has in `Episodes.keys`."""
    step: str | None = None
    time: str | None = None
    duration: str | None = None
    next_features: tuple[str, ...] = ()
    terminated: str | None = None
    truncated: str | None = None
    done: str | None = None
    scalar: bool = False
    """Whether the one feature is the observation itself, not a vector of one."""
    notes: tuple[str, ...] = ()
    """One line for each role that was guessed, and for what the table lacks."""

    @property
    def used(self) -> list[str]:
        """Every column that has to be read, once."""
        single = (self.episode, self.step, self.time, self.duration, self.reward)
        ends = (self.terminated, self.truncated, self.done)
        names = (*single, *ends, *self.features, *self.next_features, *self.keys.values())
        return list(dict.fromkeys(name for name in names if name is not None))


def resolve_columns(schema: Mapping[str, object], columns: Columns | None = None) -> TableColumns:
    """The role of each column: those in `columns`, and the rest guessed from common names.

    `columns` maps a role (episode, step, time, duration, features, next_features, reward, terminated,
    truncated, done) to a column; features also to several, by a list or a pattern such as "x*". Where
    features are not named they are the columns that begin with `observation`, `obs` or `state`, else every
    numeric column without another role. `notes` of the result says what was guessed.
    """
    columns = columns or {}
    for role in columns:
        if role not in ROLES:
            raise unknown_name("role in columns", role, ROLES)
    if "time" in columns and "duration" in columns:
        raise UsageError("columns: `time` and `duration` both say how long a step takes; give one of them")
    named = {role: _expand(role, columns[role], schema) for role in columns}
    single = {role: names[0] for role, names in named.items() if not role.endswith("features")}
    guesses = {role: name for role, name in _guess(schema, single).items() if role not in single}
    found = single | guesses
    for role in ("episode", "reward"):
        if role not in found:
            raise DataError(
                f"{role}: no column has a name known for it; say which it is with columns={{{role!r}: ...}}; "
                f"the table has {', '.join(schema)}"
            )
    features = named.get("features") or _guess_features(schema, found.values())
    successors = named.get("next_features") or _guess_successors(schema, features)
    if successors and len(successors) != len(features):
        raise UsageError(f"next_features: {len(successors)} columns for {len(features)} features")
    notes = [f"{role}: guessed to be column {name!r}" for role, name in guesses.items()]
    if "features" not in named:
        notes.append(f"features: guessed to be {', '.join(features)}")
    if successors and "next_features" not in named:
        notes.append(f"next_features: guessed to be {', '.join(successors)}")
    if "step" not in found and "time" not in found:
        notes.append("step: neither a step nor a time column; rows are taken in the order of the file")
    order = [found[role] for role in ("episode", "step", "time") if role in found]
    return TableColumns(
        episode=found["episode"],
        features=features,
        reward=found["reward"],
        keys={column: column for column in order},
        step=found.get("step"),
        time=found.get("time"),
        duration=found.get("duration"),
        next_features=successors,
        terminated=found.get("terminated"),
        truncated=found.get("truncated"),
        done=found.get("done"),
        notes=tuple(notes),
    )


def _expand(role: str, names: str | Sequence[str], schema: Mapping[str, object]) -> tuple[str, ...]:
    """The columns that a name, a pattern or a list of these stands for."""
    patterns = [names] if isinstance(names, str) else list(names)
    if not role.endswith("features") and len(patterns) != 1:
        raise UsageError(f"columns: {role!r} needs one column, got {patterns}")
    found: list[str] = []
    for pattern in patterns:
        matches = [pattern] if pattern in schema else [name for name in schema if fnmatchcase(name, pattern)]
        if not matches:
            raise unknown_name(f"column for {role}", pattern, schema)
        found += matches
    if not found:
        raise UsageError(f"columns: {role!r} names no column")
    return tuple(dict.fromkeys(found))


def _guess(schema: Mapping[str, object], given: Mapping[str, str]) -> dict[str, str]:
    """Columns by their common names. What the user says about order or ends is not added to by guesses."""
    fields: list[Field] = ["episode", "reward"]
    if not {"step", "time"} & set(given):
        fields.append("step" if find_name("step", schema) else "time")
    if not {"terminated", "truncated", "done"} & set(given):
        fields += ["terminated", "truncated", "done"]
    free = [name for name in schema if name not in given.values()]
    guessed = {field: find_name(field, free) for field in fields}
    return {field: name for field, name in guessed.items() if name is not None}


def _guess_features(schema: Mapping[str, object], taken: Iterable[str]) -> tuple[str, ...]:
    known = {name for names in NAMES.values() for name in names.split()} - set(NAMES["observation"].split())
    free = [name for name, dtype in schema.items() if is_numeric(dtype) and name not in set(taken)]
    free = [name for name in free if name.lower() not in known and not _NOT_STATE.fullmatch(name)]
    features = [name for name in free if _OBSERVATION.fullmatch(name)] or free
    if not features:
        raise DataError(f"features: no numeric column is left for them; the table has {', '.join(schema)}")
    return tuple(features)


def _guess_successors(schema: Mapping[str, object], features: Sequence[str]) -> tuple[str, ...]:
    """`next_x` for each feature x, if all are there; a single observation column by its own common names."""
    for prefix in ("next_", "next."):
        if all(prefix + name in schema for name in features):
            return tuple(prefix + name for name in features)
    other = find_name("next_observation", schema)
    return (other,) if len(features) == 1 and other is not None else ()


def is_numeric(dtype: object) -> bool:
    """Whether a column holds numbers, True and False, or lists of numbers."""
    inner = dtype.inner if isinstance(dtype, pl.List | pl.Array) else dtype
    return isinstance(inner, pl.Boolean) or (isinstance(inner, pl.DataType) and inner.is_numeric())
