"""The compiled kernel, loaded through the plain C interface (ctypes releases the GIL while it runs)."""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, c_char_p, c_float, c_int32, c_int64, c_uint32, c_void_p
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from . import build
from .build import BASELINE, digest, instruction_sets, library_path

FOLDER = "ADAPTIVE_TD_KERNELS"
"""Environment variable: a folder of libraries to load in place of the package's (tests use it)."""


class Problem(ctypes.Structure):
    """One network, its log, and how it is updated; the same structure as in problem.h."""

    _fields_ = (
        ("convolutions", c_void_p),
        ("convolution_count", c_int32),
        ("sizes", c_void_p),
        ("layers", c_int32),
        ("padded", c_int32),
        ("parameters", c_void_p),
        ("first_moment", c_void_p),
        ("second_moment", c_void_p),
        ("states", c_void_p),
        ("center", c_void_p),
        ("half", c_void_p),
        ("rows", c_void_p),
        ("draws", c_void_p),
        ("count", c_uint32),
        ("seed", c_uint32 * 2),
        ("states_are_bytes", c_int32),
        ("stack", c_int32),
        ("ages", c_void_p),
        ("batch", c_int32),
        ("whole", c_int32),
        ("window", c_int32),
        ("lam", c_float),
        ("tests_value", c_int32),
        ("fallback", c_int32),
        ("learning_rate", c_float),
        ("epsilon", c_float),
        ("steps", c_int64),
        ("history", c_void_p),
        ("diverged_at", c_int64),
    )


class Library(NamedTuple):
    """A loaded kernel and the instruction set it was compiled for."""

    instructions: str
    functions: ctypes.CDLL

    def advance(self, problem: Problem, start: int, stop: int, threads: int) -> None:
        """Take steps start, ..., stop - 1, on at most `threads` threads."""
        if self.functions.adaptive_td_advance(ctypes.byref(problem), start, stop, threads):
            raise MemoryError("the native kernel ran out of memory")

    def values(self, problem: Problem, count: int, threads: int) -> Float[np.ndarray, " count"]:
        """V at the first states of the log, on at most `threads` threads."""
        found = np.empty(count, np.float32)
        if self.functions.adaptive_td_values(ctypes.byref(problem), count, threads, found.ctypes.data):
            raise MemoryError("the native kernel ran out of memory")
        return found


class Unavailable(Exception):
    """The kernel cannot be loaded; the message says why."""


def load(instructions: str) -> Library:
    """The kernel for one instruction set; raises `Unavailable`."""
    path = library_path(Path(os.environ.get(FOLDER) or Path(__file__).parent), instructions)
    if not path.exists():
        raise Unavailable("it was not built (there was no C++ compiler when the package was installed)")
    try:
        functions = ctypes.CDLL(str(path))
        functions.adaptive_td_source.restype = c_char_p
        functions.adaptive_td_machine.restype = c_int32
        functions.adaptive_td_advance.argtypes = (POINTER(Problem), c_int64, c_int64, c_int32)
        functions.adaptive_td_advance.restype = c_int32
        functions.adaptive_td_values.argtypes = (POINTER(Problem), c_int32, c_int32, c_void_p)
        functions.adaptive_td_values.restype = c_int32
        functions.adaptive_td_bits.argtypes = (POINTER(c_uint32 * 2), c_int64, c_int32, c_void_p)
        functions.adaptive_td_bits.restype = None
    except (OSError, AttributeError) as error:
        raise Unavailable(f"{path.name} cannot be loaded: {error}") from error
    if functions.adaptive_td_source() != digest().encode():
        raise Unavailable(f"{path.name} was built from another version; run python {build.__file__}")
    return Library(instructions, functions)


def usable() -> list[str]:
    """The instruction sets that this machine has, widest first; raises `Unavailable`."""
    level = load(BASELINE).functions.adaptive_td_machine()
    names = list(instruction_sets())
    return [name for name in names if {"avx512": 2, "avx2": 1}.get(name, 0) <= level]


@functools.cache
def best() -> Library | Unavailable:
    """The kernel for the widest instruction set of this machine, or why there is none."""
    try:
        return load(usable()[0])
    except Unavailable as reason:
        return reason
