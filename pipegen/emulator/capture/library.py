# SPDX-License-Identifier: Apache-2.0
"""Builds our launch library from its C source, once, into the user's cache folder."""

import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from pipegen.compiling.cache import default_folder, key_of
from pipegen.errors import InputError

SOURCE = Path(__file__).with_name("launch_library.c")
_FLAGS = ("-O1", "-shared", "-fPIC")
_COMPILERS = ("cc", "gcc", "clang")


@cache
def launch_library(folder: Path | None = None) -> Path:
    """The path of the built library: from the cache below `folder`, or built now.

    `folder` None means pipegen's own cache folder. InputError without a C compiler, or with what
    the compiler said. A cache that cannot be written only costs time: a temporary folder is used.
    """
    source = SOURCE.read_text("utf-8")
    key = key_of(source, *_FLAGS, platform.machine(), platform.system())[:16]
    target = (folder or default_folder()) / "emulator" / f"launch-{key}.so"
    if target.exists():
        return target
    compiler = find_compiler()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=".launch-", dir=target.parent))
    except OSError:
        made = Path(tempfile.mkdtemp(prefix="pipegen-launch-"))
        target = made / target.name
    new = made / "new.so"
    try:
        _compile(compiler, new)
        # Another process may do the same: a reader sees one whole library or the other.
        os.replace(new, target)
    finally:
        if made != target.parent:
            shutil.rmtree(made, ignore_errors=True)
    return target


def find_compiler() -> str:
    """A C compiler: what CC names, or cc, gcc or clang. InputError if there is none."""
    asked = os.environ.get("CC", "").strip()
    for name in (asked, *_COMPILERS) if asked else _COMPILERS:
        if found := shutil.which(name):
            return found
    tried = f"CC={asked} and {', '.join(_COMPILERS)}" if asked else ", ".join(_COMPILERS)
    raise InputError(
        "the emulator needs a C compiler once, to build the small library that stands in for the "
        f"CUDA runtime, and found none (tried {tried} on the PATH). Install one (Debian, Ubuntu: "
        "apt install gcc; Fedora: dnf install gcc; conda: conda install c-compiler), or set CC to "
        "its path"
    )


def _compile(compiler: str, target: Path) -> None:
    command = [compiler, *_FLAGS, "-o", str(target), str(SOURCE)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{compiler} could not be run to build the launch library: {error}") from (
            error
        )
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())[:500] or "nothing"
        raise InputError(
            f"{compiler} failed to build the launch library (exit code {done.returncode}). It "
            f"said: {said}"
        )
