"""Compile the native kernel, once per instruction set: `python src/adaptive_td/native/build.py [folder]`.

Uses nothing but the standard library, as the build of the package runs it (see `hatch_build.py`). The
compiler is `$CXX`, or else c++, g++ or clang++. One build serves any machine of its architecture: the widest
instruction set that the processor has is chosen when the kernel is loaded.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

SOURCE = Path(__file__).with_name("kernel.cpp")

BASELINE = "baseline"
X86 = {
    "avx512": ["-mavx512f", "-mavx2", "-mfma"],
    "avx2": ["-mavx2", "-mfma"],
}

# No -ffast-math: infinite bounds and NaN losses mean something. a * b + c may become one rounding (FMA), and
# sqrt need not set errno, so that it is one instruction.
FLAGS = ["-std=c++17", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fPIC", "-shared", "-pthread"]
WARNINGS = ["-Wall", "-Wextra"]
SANITIZE = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


class BuildError(Exception):
    """The kernel could not be compiled; the package works without it."""


def compiler() -> list[str] | None:
    """The C++ compiler and its arguments, or None where there is none."""
    chosen = os.environ.get("CXX")
    if chosen:
        command = shlex.split(chosen)
        return command if shutil.which(command[0]) else None
    found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    return [found] if found else None


def instruction_sets() -> dict[str, list[str]]:
    """The instruction sets of this architecture, widest first, with the flags that allow them."""
    # macOS may compile for another architecture than the one it runs on; cibuildwheel says so here.
    architecture = os.environ.get("ARCHFLAGS", platform.machine())
    x86 = any(name in architecture for name in ("x86_64", "AMD64"))
    return {**(X86 if x86 else {}), BASELINE: []}


def digest() -> str:
    """Names the source a library was compiled from."""
    sources = [SOURCE, *sorted(SOURCE.parent.glob("*.h"))]
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]


def library_path(folder: Path, instructions: str) -> Path:
    """Where the library for an instruction set lies."""
    return folder / f"kernel_{instructions}.so"


def build(
    folder: Path = SOURCE.parent, *, sanitize: bool = False, only: Collection[str] | None = None
) -> list[Path]:
    """Compile the libraries (all, or only some) into a folder; raises `BuildError`."""
    command = compiler()
    if command is None:
        raise BuildError("no C++ compiler was found (set CXX to name one)")
    if sys.platform == "win32":
        raise BuildError("the kernel needs GCC or Clang, and is not built on Windows")
    folder.mkdir(parents=True, exist_ok=True)
    extra = shlex.split(os.environ.get("ARCHFLAGS", "")) + (SANITIZE if sanitize else [])
    paths = []
    for name, flags in instruction_sets().items():
        if only is not None and name not in only:
            continue
        path = library_path(folder, name)
        unfinished = path.with_suffix(f".{os.getpid()}")
        parts = [*command, *FLAGS, *WARNINGS, *flags, *extra, f'-DSOURCE_DIGEST="{digest()}"']
        result = subprocess.run(
            [*parts, str(SOURCE), "-o", str(unfinished)], capture_output=True, text=True, check=False
        )
        if result.returncode:
            unfinished.unlink(missing_ok=True)
            raise BuildError(f"{' '.join(command)} failed for {name}:\n{result.stderr.strip()}")
        unfinished.replace(path)
        paths.append(path)
    return paths


if __name__ == "__main__":
    arguments = [a for a in sys.argv[1:] if a != "--sanitize"]
    try:
        target = Path(arguments[0]) if arguments else SOURCE.parent
        for built in build(target, sanitize="--sanitize" in sys.argv):
            print(built)
    except BuildError as error:
        sys.exit(f"native kernel not built: {error}")
