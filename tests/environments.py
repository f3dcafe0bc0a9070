# SPDX-License-Identifier: Apache-2.0
"""The Pythons in which the tests interpret Pallas modules: this one, and one with the newest jax.

Python 3.11 gets no jax above 0.10, whose interpreter refuses TMEM and clusters. Where a Python 3.12
or newer is installed beside it, a virtual environment with the newest jax is made for it, once.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from filelock import FileLock

RUNNER = Path(__file__).with_name("interpret_modules.py")
NEWER = ("3.12", "3.13")
REQUIREMENTS = ("jax>=0.11", "numpy>=1.26")
JOBS = 2
LIMIT_SECONDS = 600
VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


def newer_python() -> str:
    """A Python of one of the versions NEWER: of PATH, or of pyenv; empty if there is none."""
    for version in NEWER:
        for candidate in _candidates(version):
            if _says(candidate, "-c", VERSION) == version:
                return candidate
    return ""


def _candidates(version: str) -> Iterator[str]:
    """Commands that may be that Python. pyenv's on PATH starts only if its version is chosen."""
    yield shutil.which(f"python{version}") or ""
    if shutil.which("pyenv"):
        for installed in _says("pyenv", "versions", "--bare").split():
            if installed.startswith(f"{version}."):
                yield str(Path(_says("pyenv", "prefix", installed)) / "bin" / "python")


def _environment() -> dict[str, str]:
    """Ours, and where pyenv's Pythons are, whatever HOME is."""
    command = shutil.which("pyenv")
    root = str(Path(command).resolve().parents[1]) if command else ""
    return {"PYENV_ROOT": root, **os.environ} if root else dict(os.environ)


def _says(*command: str) -> str:
    """What a command prints; empty if it fails, or is not there."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60, env=_environment()
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def newest_jax(folder: Path) -> tuple[str, str]:
    """The Python of an environment below `folder` with the newest jax, or why there is none.

    Several processes may ask: one installs, the others wait for it.
    """
    with FileLock(folder / "installing.lock"):
        return _newest_jax(folder)


def _newest_jax(folder: Path) -> tuple[str, str]:
    python = newer_python()
    if not python:
        return "", f"no Python {' or '.join(NEWER)} is installed, and jax 0.11 needs one"
    environment, stamp = folder / "venv", folder / "installed.txt"
    inside = environment / "bin" / "python"
    wanted = f"{python} {' '.join(REQUIREMENTS)}"
    if stamp.is_file() and stamp.read_text("utf-8") == wanted and inside.is_file():
        return str(inside), ""
    for command in (
        [python, "-m", "venv", "--clear", str(environment)],
        [str(inside), "-m", "pip", "install", "--quiet", *REQUIREMENTS],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return "", f"`{' '.join(command[1:4])}` failed: {done.stderr.strip()[-200:]}"
    stamp.write_text(wanted, encoding="utf-8")
    return str(inside), ""


@functools.cache
def jax_version(python: str) -> tuple[int, ...]:
    """The version of jax that a Python has: (0, 12, 0, 1). Raises ValueError if it has none."""
    said = _says(python, "-c", "import importlib.metadata as m; print(m.version('jax'))")
    return tuple(int(part) for part in said.split("."))


def interpret(python: str, cases: Iterable[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """What `python` says of each case (see interpret_modules.py), several at a time.

    A case that ends its process, or finds no end, has the verdict "died"; those after it still run.
    """
    cases = list(cases)
    with ThreadPoolExecutor(JOBS) as pool:
        shares = [(cases[i::JOBS], folder / f"cases_{i}.json") for i in range(JOBS)]
        parts = pool.map(lambda share: _interpret(python, *share), shares)
        return [result for part in parts for result in part]


def _interpret(python: str, cases: list[dict[str, Any]], listed: Path) -> list[dict[str, Any]]:
    """The cases one after the other, in as few processes as it takes."""
    results: list[dict[str, Any]] = []
    # XLA's threads: every warp of an interpreted kernel that waits takes one.
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "NPROC": "16"}
    while len(results) < len(cases):
        listed.write_text(json.dumps(cases[len(results) :]), encoding="utf-8")
        process = subprocess.Popen(
            [python, str(RUNNER), str(listed)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        try:
            out, errors = process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            out, errors = process.communicate()
            errors += f"\nno end within {LIMIT_SECONDS} s"
        results += [json.loads(line) for line in out.splitlines()]
        if len(results) < len(cases):
            died = {"verdict": "died", "said": errors[-2000:], "seconds": 0.0}
            results.append({**cases[len(results)], **died})
    return results


if __name__ == "__main__":
    print(newest_jax(Path(sys.argv[1])))
