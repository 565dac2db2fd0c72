"""Episodes in NumPy's .npz archives, ours and the flat ones that people already hold.

Our layout, as `write` makes it, lays episodes end to end:

    states      (steps + episodes, *shape)   every state once, the final one of each episode included
    rewards     (steps,)
    lengths     (episodes,)                  transitions of each episode
    ended       (episodes,)                  True: terminated; False: truncated
    durations   (steps,)                     optional; the time each transition takes
    key:<name>  (steps,)                     optional; the columns by which the log names its rows
    extra:<name> (steps,)                    optional; further columns
    stack       ()                           optional; how many rows make one state, newest last
    info        (bytes,)                     optional; where the log comes from, as JSON

The flat layout has one row per transition: `observations`, `rewards`, `terminated` (or `terminals`) and
`truncated` (or `timeouts`), and perhaps `next_observations`. An episode stops where either flag is set.

A file is judged before anything is allocated, and nothing in it is ever unpickled.
"""

from __future__ import annotations

import json
import math
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

import numpy as np

from adaptive_td.episodes import Episodes, aligned_empty, as_flags
from adaptive_td.errors import DataError, UsageError

from .log import ENDS_NOT_STATED, EXTRA, KEY, Ends, Log, cut_at_flags, refuse_bomb
from .names import find_name

REQUIRED = ("states", "rewards", "lengths", "ended")
OPTIONAL = ("durations", "stack", "info")
END_FIELDS: tuple[Literal["terminated", "truncated", "done"], ...] = ("terminated", "truncated", "done")
UNPICKLING = (
    "can only be read by unpickling, which runs whatever code the file holds; store plain numbers instead, "
    "with numpy.savez or as Parquet"
)
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    tokenize.TokenError,
    EOFError,
    NotImplementedError,
    OSError,
    RuntimeError,
    SyntaxError,
    ValueError,
)


def read(path: Path, *, ends: Ends | None = None, max_bytes: int = 2**30) -> Log:
    """The rows of an .npz archive of either layout."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        if stream.read(1) == b"\x80":
            raise DataError(f"{path.name}: holds a pickle, which {UNPICKLING}")
    with _naming(path.name, size):
        archive = zipfile.ZipFile(path)
    with archive:
        fields = _judge(archive, size, max_bytes)
        ours = "states" in fields and bool({"lengths", "ended"} & set(fields))
        return _read_ours(fields, ends) if ours else _read_flat(fields, ends)


def write(stream: IO[bytes], episodes: Episodes) -> None:
    """Write our layout."""
    fields = {"states": episodes.states, "rewards": episodes.rewards, "lengths": episodes.lengths}
    fields["ended"] = episodes.ended
    if episodes.durations is not None:
        fields["durations"] = episodes.durations
    named = {KEY + name: column for name, column in episodes.keys.items()}
    named |= {EXTRA + name: column for name, column in episodes.extras.items()}
    for name, column in named.items():
        _refuse_unsafe_name(name)
        fields[name] = column
    if episodes.stack > 1:
        fields["stack"] = np.array(episodes.stack)
    if episodes.info:
        text = json.dumps(dict(episodes.info), sort_keys=True, allow_nan=False)
        fields["info"] = np.frombuffer(text.encode(), np.uint8)
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in fields.items():
            if array.dtype.hasobject:
                raise DataError(f"{name}: holds Python objects, which cannot be written without pickling")
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _read_ours(fields: dict[str, _Field], ends: Ends | None) -> Log:
    if ends is not None:
        raise UsageError("ends: this file states how each episode ended")
    for name in REQUIRED:
        if name not in fields:
            raise DataError(f"{name}: missing; found {', '.join(sorted(fields))}")
    known = (*REQUIRED, *OPTIONAL)
    unknown = [name for name in fields if name not in known and not name.startswith((KEY, EXTRA))]
    if unknown:
        raise DataError(f"{unknown[0]}: unknown field beside `states`; known: {', '.join(known)}")
    return Log(
        states=fields["states"].array(),
        rewards=fields["rewards"].array(),
        lengths=fields["lengths"].array(),
        ended=fields["ended"].array(),
        durations=fields["durations"].array() if "durations" in fields else None,
        keys=_columns(fields, KEY),
        stack=_stack(fields["stack"].array()) if "stack" in fields else 1,
        extras=_columns(fields, EXTRA),
        info=_info(fields["info"].array()) if "info" in fields else {},
    )


def _columns(fields: dict[str, _Field], prefix: str) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(prefix): field.array() for name, field in fields.items() if name.startswith(prefix)
    }


def _stack(array: np.ndarray) -> int:
    if array.shape != () or array.dtype.kind not in "iu" or array < 1:
        raise DataError(f"stack: expected one whole number of at least 1, got {array!r}")
    return int(array)


def _info(array: np.ndarray) -> dict[str, Any]:
    try:
        info = json.loads(array.tobytes().decode())
    except ValueError as error:
        raise DataError(f"info: not JSON: {error}") from None
    if not isinstance(info, dict):
        raise DataError("info: expected a JSON object")
    return info


def _read_flat(fields: dict[str, _Field], ends: Ends | None) -> Log:
    observation, reward = find_name("observation", fields), find_name("reward", fields)
    if observation is None or reward is None:
        raise DataError(
            f"{'rewards' if observation else 'observations'}: missing; found "
            f"{', '.join(sorted(fields)) or 'nothing'}; an .npz holds either {', '.join(REQUIRED)}, or "
            "observations, rewards, terminated, truncated"
        )
    states, rewards = fields[observation].array(), fields[reward].array()
    if rewards.ndim != 1 or states.shape[:1] != rewards.shape or not len(rewards):
        raise DataError(f"{reward}: shape {rewards.shape} where {observation} has {states.shape}")
    terminated, truncated, notes = _flat_ends(fields, ends, len(rewards))
    lengths, ended = cut_at_flags(terminated, truncated)
    has_final = np.zeros(len(lengths), bool)
    log = Log(states=states, rewards=rewards, lengths=lengths, ended=ended, has_final=has_final, notes=notes)
    successor = find_name("next_observation", fields)
    return log if successor is None else log.with_successors(fields[successor].array())


def _flat_ends(
    fields: dict[str, _Field], ends: Ends | None, steps: int
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Per row, whether the process stopped after it and whether only the log did; and what is doubtful."""
    flags = {}
    for kind in END_FIELDS:
        name = find_name(kind, fields)
        if name is not None:
            flags[kind] = as_flags(name, fields[name].array())
            if flags[kind].shape != (steps,):
                raise DataError(f"{name}: shape {flags[kind].shape} where there are {steps} rewards")
    if ends is not None and set(flags) != {"done"}:
        raise UsageError("ends: only settles what a single `done` field leaves open")
    done = flags.get("done", np.zeros(steps, bool))
    if set(flags) == {"terminated"}:
        return flags["terminated"], done, ("no field marks truncation: a cut episode runs into the next",)
    if "terminated" in flags:
        return flags["terminated"], flags.get("truncated", done & ~flags["terminated"]), ()
    if "truncated" in flags:
        return done & ~flags["truncated"], flags["truncated"], ()
    if ends is None:
        raise DataError(f"{find_name('done', fields) or 'terminated'}: {ENDS_NOT_STATED}")
    return (done & (ends == "terminated"), done & (ends == "truncated"), ())


@dataclass(frozen=True)
class _Field:
    """One array of an archive, judged but not yet read."""

    name: str
    archive: zipfile.ZipFile
    member: zipfile.ZipInfo
    dtype: np.dtype

    def array(self) -> np.ndarray:
        """Read it; the archive's checksum covers every byte."""
        if self.dtype.hasobject:
            raise DataError(f"{self.name}: an array of Python objects, which {UNPICKLING}")
        with _naming(self.name, self.member.file_size), self.archive.open(self.member) as stream:
            shape, fortran, dtype = _array_header(stream)
            array = aligned_empty(shape[::-1] if fortran else shape, dtype)
            room = array.reshape(-1).view(np.uint8).data
            while room.nbytes:
                count = stream.readinto(room)  # type: ignore[attr-defined]
                if not count:
                    raise EOFError(f"{room.nbytes} bytes are missing")
                room = room[count:]
            if stream.read(1):
                raise ValueError("there are bytes after the last number")
            return array.T if fortran else array


def _judge(archive: zipfile.ZipFile, size: int, max_bytes: int) -> dict[str, _Field]:
    """The fields of an archive, none of which is larger than it says or more than it seems."""
    members = archive.infolist()
    refuse_bomb("archive", packed=size, unpacked=sum(m.file_size for m in members), max_bytes=max_bytes)
    fields: dict[str, _Field] = {}
    for member in members:
        _refuse_unsafe_name(member.filename)
        name = member.filename.removesuffix(".npy")
        if name in fields:
            raise DataError(f"{name}: appears twice in the archive")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"{name}: compressed in a way that NumPy does not use")
        if member.comment:  # a damaged length of it would swallow the fields that follow
            raise DataError(
                f"{name}: carries a comment of {len(member.comment)} bytes, as NumPy never writes"
            )
        dtype, declared, held = _header(name, archive, member)
        if declared != held and not dtype.hasobject:
            raise DataError(f"{name}: declares {declared} bytes of data and holds {held}")
        fields[name] = _Field(name, archive, member, dtype)
    return fields


def _header(name: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[np.dtype, int, int]:
    """The element type of an array, and the bytes of data that it declares and that it holds."""
    with _naming(name, member.file_size), archive.open(member) as stream:
        shape, _, dtype = _array_header(stream)
        return dtype, math.prod(shape) * dtype.itemsize, member.file_size - stream.tell()


def _array_header(stream: IO[bytes] | zipfile.ZipExtFile) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether columns come first, and element type."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(f"array format version {version} is not for plain numbers")


def _refuse_unsafe_name(name: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not name.isprintable():
        raise DataError(f"{name!r}: a member's name must not lead out of the archive")


@contextmanager
def _naming(field: str, size: int) -> Iterator[None]:
    """Give the many errors of a broken archive one form, with the field and its size."""
    try:
        with warnings.catch_warnings(action="ignore"):  # NumPy's advice on arrays written by Python 2
            yield
    except _BROKEN as error:
        raise DataError(f"{field}: cannot be read from its {size} bytes: {error}") from None
