# SPDX-License-Identifier: Apache-2.0
"""A small project to vendor into: emitted texts that are made up, and git around them."""

import hashlib
import subprocess
from pathlib import Path

from pipegen.errors import InputError, Problem
from pipegen.vendor.header import header_lines, sign

DESCRIPTION = 'pipegen = 1\n[kernel]\nop = "gemm"\nbackend = "cute"\narch = "sm_90a"\n'
PROJECT = 'descriptions = ["kernels"]\n'
LINES = tuple(f"value_{number} = {number}" for number in range(20))


def emitted(lines: tuple[str, ...] = LINES, template: str = "a", arch: str = "sm_90a") -> str:
    """An emitted file with the given body."""
    description = DESCRIPTION.replace("sm_90a", arch)
    head = header_lines("gemm", "cute", arch, "cute/t.py.j2", template * 12, "a DSL", description)
    return sign(head + "# --compile-only\n" + "".join(f"{line}\n" for line in lines))


class Renders:
    """Stands in for `generate_one`: the text of a description is what `texts` says of its name."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.wrong: set[str] = set()

    def key(self, description: Path, *_: object) -> str:
        """What the cache of rendered texts files a text under."""
        return hashlib.sha256(repr((str(description), self.texts)).encode()).hexdigest()

    def __call__(self, path: Path) -> dict[Path, str]:
        if path.stem in self.wrong:
            raise InputError(Problem("is wrong", file=str(path)))
        return {path.with_suffix(".py"): self.texts.get(path.stem, emitted())}


def git(*arguments: str) -> str:
    """git in the current folder, as somebody."""
    who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.com")
    done = subprocess.run(["git", *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def commit_all(message: str = "all") -> None:
    """Commit the current folder, a repository from now on."""
    if not Path(".git").exists():
        git("init", "-q", ".")
    git("add", "-A")
    git("commit", "-q", "--allow-empty", "-m", message)
