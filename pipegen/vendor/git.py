# SPDX-License-Identifier: Apache-2.0
"""Whether version control could bring back what an update is about to change."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from pipegen.errors import Problem


def unsafe(folder: Path, written: Iterable[Path], inputs: Iterable[Path]) -> Problem | None:
    """Why the working tree at `folder` is not one to update in; None if it is.

    Refused: changes of tracked files that are not committed, and files about to be written that git
    does not track. `inputs` (descriptions, the project file) may have changed: an update is how
    their change reaches the modules.
    """
    git = shutil.which("git")
    if git is None:
        return Problem("git is not on the PATH, so nothing keeps the old texts", file=str(folder))
    done = subprocess.run(
        [git, "-C", str(folder), "status", "--porcelain", "-z", "--untracked-files=all"],
        capture_output=True,
        check=False,
    )
    top = _output(git, folder, "rev-parse", "--show-toplevel")
    if done.returncode or not top:
        return Problem("is in no git repository, so nothing keeps the old texts", file=str(folder))
    targets = {path.resolve() for path in written if path.exists()}
    allowed = {path.resolve() for path in inputs}
    dirty = []
    for status, name in _entries(done.stdout.decode("utf-8", "surrogateescape")):
        path = (Path(top) / name).resolve()
        if path in allowed or (status == "??" and path not in targets):
            continue
        dirty.append(name)
    ignored = _ignored(git, folder, targets)
    if dirty or ignored:
        names = ", ".join([*dirty, *ignored][:5]) + (" and more" if len(dirty) > 5 else "")
        what = "is not committed" if dirty else "is ignored by git"
        return Problem(
            f"{names} {what}: commit first, so that the update can be looked at and taken back",
            file=str(folder),
        )
    return None


def _entries(listing: str) -> Iterable[tuple[str, str]]:
    """Status and path of each entry of `git status --porcelain -z`."""
    parts = iter(listing.split("\0"))
    for part in parts:
        if len(part) > 3:
            status = part[:2]
            yield status, part[3:]
            if "R" in status or "C" in status:
                yield status, next(parts, "")  # the name it had


def _ignored(git: str, folder: Path, paths: set[Path]) -> list[str]:
    if not paths:
        return []
    listing = _output(git, folder, "check-ignore", *map(str, sorted(paths)))
    return [Path(line).name for line in listing.splitlines()]


def _output(git: str, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [git, "-C", str(folder), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""
