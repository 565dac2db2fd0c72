"""Arrays as content-named files that appear whole or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Float

from adaptive_td.errors import DataError
from adaptive_td.files import write_whole


class Artefact(NamedTuple):
    """A file of arrays: its name in the folder, its size and its digest."""

    file: str
    bytes: int
    digest: str


def save(folder: Path, arrays: Mapping[str, Float[np.ndarray, "..."]]) -> Artefact:
    """Write arrays to a file that is named by what it holds; the same arrays are the same file."""
    content = safetensors.numpy.save({name: np.ascontiguousarray(a) for name, a in sorted(arrays.items())})
    digest = hashlib.sha256(content).hexdigest()
    artefact = Artefact(f"{digest}.safetensors", len(content), digest)
    if not intact(folder, artefact):
        write_whole(folder / artefact.file, content)
    return artefact


def intact(folder: Path, artefact: Artefact) -> bool:
    """Whether the file is there and is what it was."""
    try:
        content = (folder / artefact.file).read_bytes()
    except OSError:
        return False
    return len(content) == artefact.bytes and hashlib.sha256(content).hexdigest() == artefact.digest


def load(folder: Path, artefact: Artefact) -> dict[str, Float[np.ndarray, "..."]]:
    """The arrays of a file, after its digest was checked."""
    path = folder / artefact.file
    if not intact(folder, artefact):
        raise DataError(f"{path} is missing or altered; `reproduce` measures its cell again")
    return safetensors.numpy.load(path.read_bytes())


def sweep(folder: Path) -> None:
    """Remove what an interrupted write left behind."""
    for part in folder.glob(".*.part"):
        part.unlink(missing_ok=True)
