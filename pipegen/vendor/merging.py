# SPDX-License-Identifier: Apache-2.0
"""Three-way merges of texts by git's own merge, and the marks that a conflict leaves."""

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pipegen.errors import InputError

OURS = "yours"
BASE = "what pipegen wrote before"
THEIRS = "what pipegen writes now"
_OPENING = re.compile(r"^<{7}(?: .*)?$", re.MULTILINE)
_CLOSING = re.compile(r"^>{7}(?: .*)?$", re.MULTILINE)
# git merge-file's exit code is the number of conflicts, cut off here; above it are errors.
_MOST_CONFLICTS = 127


@dataclass(frozen=True)
class Merged:
    """The merged text. With conflicts it holds both sides between marks."""

    text: str
    conflicts: int


def merge(base: str, ours: str, theirs: str) -> Merged:
    """Put what changed from `base` to `theirs` into `ours`.

    A place that both changed, in different ways, becomes a conflict with labelled sides. Raises
    InputError if git is not there.
    """
    if ours in (base, theirs):
        return Merged(theirs, 0)
    if theirs == base:
        return Merged(ours, 0)
    git = shutil.which("git")
    if git is None:
        raise InputError("merging needs git, which is not on the PATH: install git")
    if "\r\n" in ours:  # an editor's line ends are no change of every line
        base, theirs = (text.replace("\n", "\r\n") for text in (base, theirs))
    with tempfile.TemporaryDirectory(prefix="pipegen-merge-") as name:
        paths = [Path(name, part) for part in ("ours", "base", "theirs")]
        for path, text in zip(paths, (ours, base, theirs), strict=True):
            path.write_bytes(text.encode("utf-8"))
        labels = [word for label in (OURS, BASE, THEIRS) for word in ("-L", label)]
        done = subprocess.run(
            [git, "merge-file", "--stdout", "--diff3", *labels, *map(str, paths)],
            cwd=name,
            capture_output=True,
            check=False,
        )
    if not 0 <= done.returncode <= _MOST_CONFLICTS:
        raise InputError(f"git merge-file: {done.stderr.decode('utf-8', 'replace').strip()}")
    return Merged(done.stdout.decode("utf-8"), done.returncode)


def conflicts(text: str) -> list[int]:
    """The lines (from 1) on which a conflict's marks open, if some close, too."""
    if not _CLOSING.search(text):
        return []
    return [text.count("\n", 0, match.start()) + 1 for match in _OPENING.finditer(text)]
