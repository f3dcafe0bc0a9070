# SPDX-License-Identifier: Apache-2.0
"""Environments with other versions of the DSLs, made once and kept in the cache folder.

An environment is a virtual environment with the pinned packages and what they need, and nothing of
pipegen but a link to its code: the compile check needs the standard library alone.
"""

import contextlib
import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipegen.errors import Problem

_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9.!+_-]*)")
# The package that makes a DSL.
DSL_OF_PACKAGE = {"nvidia-cutlass-dsl": "cute", "jax": "pallas"}
_MARK = "complete.json"
_TAIL = 6
_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Wanted:
    """Pinned packages that make one environment, as the user spelled them, and its Python."""

    pins: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """What the column of the table is called."""
        return ",".join(f"{name}=={version}" for name, version in self.pins)

    @property
    def dsls(self) -> frozenset[str]:
        """The DSLs whose modules compile in it."""
        return frozenset(DSL_OF_PACKAGE[name] for name, _ in self.pins if name in DSL_OF_PACKAGE)

    @property
    def python(self) -> str:
        """The Python version that was asked for; empty: this one."""
        return dict(self.pins).get("python", "")

    def requirements(self) -> list[str]:
        """What to install: the pins, and what a compile check needs besides."""
        pins = {name: version for name, version in self.pins if name != "python"}
        wanted = [f"{name}=={version}" for name, version in pins.items()]
        if "nvidia-cutlass-dsl" in pins and "nvidia-cuda-cuobjdump" not in pins:
            wanted.append("nvidia-cuda-cuobjdump>=13.0")
        if "jax" in pins:
            # The plug-in's compiler, which needs no GPU, must have jax's own version.
            if not any(re.fullmatch(r"jax-cuda\d+-(plugin|pjrt)", name) for name in pins):
                wanted += [f"jax-cuda12-{part}=={pins['jax']}" for part in ("plugin", "pjrt")]
            wanted += [] if "absl-py" in pins else ["absl-py>=2.0"]
        return wanted

    def key(self) -> str:
        """What the environment is filed under."""
        parts = [sys.version, self.python, *sorted(self.requirements())]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def parse_wanted(text: str, source: str) -> Wanted | Problem:
    """`NAME==VERSION[,NAME==VERSION…]`; `source` is the option or file for the message."""
    pins: dict[str, str] = {}
    for part in re.split(r"[,\s]+", text.strip()):
        match = _PIN.fullmatch(part)
        if match is None:
            return Problem(
                f"needs a package, == and a version, got {part!r}: an environment that says what "
                "it tested has exact versions",
                file=source,
                nearest="nvidia-cutlass-dsl==4.8.1",
            )
        pins[re.sub(r"[-_.]+", "-", match[1]).lower()] = match[2]
    if not set(pins) & set(DSL_OF_PACKAGE):
        return Problem(
            f"{text!r} names no DSL, so nothing would be compiled with it",
            file=source,
            allowed=", ".join(f"{name}==…" for name in DSL_OF_PACKAGE),
        )
    return Wanted(tuple(pins.items()))


def environment(wanted: Wanted, folder: Path) -> Path | Problem:
    """The Python of the environment below `folder`, made if it is not there yet."""
    place = folder / wanted.key()
    python = place / "bin" / "python"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder / f"{place.name}.lock"):
            if (place / _MARK).exists() and python.exists():
                return python
            shutil.rmtree(place, ignore_errors=True)
            failure = _make(wanted, place)
            if failure:
                shutil.rmtree(place, ignore_errors=True)
                return Problem(f"cannot be installed here: {failure}", file=f"--with {wanted.name}")
            (place / "code").mkdir()
            (place / _MARK).write_text(json.dumps({"with": wanted.name}), "utf-8")
    except OSError as error:
        return Problem(f"cannot be made: {error}", file=f"--with {wanted.name}")
    return python


def code_folder(python: Path) -> Path:
    """A folder that holds this pipegen and no other package, to be the environment's PYTHONPATH."""
    folder = python.parent.parent / "code"
    link = folder / "pipegen"
    if not link.is_symlink() or link.resolve() != _PACKAGE:
        with contextlib.suppress(FileNotFoundError):
            link.unlink()
        link.symlink_to(_PACKAGE)
    return folder


def _make(wanted: Wanted, place: Path) -> str:
    """Make the environment; why it failed, or an empty string."""
    uv = shutil.which("uv")
    interpreter = sys.executable
    if wanted.python:
        found = shutil.which(f"python{wanted.python}")
        if found is None and uv is None:
            return f"there is no python{wanted.python} on the PATH"
        interpreter = found or wanted.python
    python = place / "bin" / "python"
    requirements = wanted.requirements()
    if uv:
        steps = [
            [uv, "venv", "--quiet", "--python", interpreter, str(place)],
            [uv, "pip", "install", "--quiet", "--python", str(python), *requirements],
        ]
    else:
        pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
        steps = [
            [interpreter, "-m", "venv", str(place)],
            [*pip, "install", "--quiet", "--no-input", *requirements],
        ]
    for step in steps:
        done = subprocess.run(
            step, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode:
            lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
            return " ".join(line.strip() for line in lines[-_TAIL:]) or f"exit {done.returncode}"
    return ""


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait until nobody else makes the same environment."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
