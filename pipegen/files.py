# SPDX-License-Identifier: Apache-2.0
"""Writes files: a reader sees the old text or the new one, never half; no edit is lost."""

import contextlib
import os
import tempfile
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from pipegen.errors import InputError, Problem
from pipegen.vendor.header import is_pristine


class Outcome(Enum):
    """What writing a file did."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


def outcome_for(path: Path, text: str) -> Outcome | Problem:
    """What writing `text` to `path` would do; a Problem if it would destroy somebody's text."""
    try:
        old = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Outcome.CREATED
    except UnicodeDecodeError:
        return _refusal(path, "exists and is not text that pipegen wrote")
    except OSError as error:
        return Problem(f"cannot be read: {error.strerror or error}", file=str(path))
    if old == text:
        return Outcome.UNCHANGED
    if is_pristine(old):
        return Outcome.UPDATED
    return _refusal(path, "exists with other text (edited, or not written by pipegen)")


def write_files(folder: Path, files: Mapping[str, str]) -> dict[Path, Outcome]:
    """Write all files or none. Raises InputError before the first write if one must not be written.

    Each file goes to a temporary name beside its target and is then renamed onto it.
    """
    outcomes = {folder / name: outcome_for(folder / name, text) for name, text in files.items()}
    problems = [outcome for outcome in outcomes.values() if isinstance(outcome, Problem)]
    if problems:
        raise InputError(problems)
    done: dict[Path, Outcome] = {}
    staged: list[tuple[Path, Path]] = []
    made = _make_folder(folder)
    try:
        for path, outcome in outcomes.items():
            if isinstance(outcome, Outcome):
                done[path] = outcome
                if outcome is not Outcome.UNCHANGED:
                    staged.append((_stage(path, files[path.name]), path))
        for temporary, path in staged:
            os.replace(temporary, path)
    except OSError as error:
        for temporary, _ in staged:
            temporary.unlink(missing_ok=True)
        for parent in made:
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise InputError(_unwritable(folder, error)) from None
    return done


def replace_file(path: Path, text: str) -> None:
    """Write one file that is ours to replace, whole or not at all. Raises InputError."""
    made = _make_folder(path.parent)
    try:
        os.replace(_stage(path, text), path)
    except OSError as error:
        for parent in made:
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise InputError(_unwritable(path.parent, error)) from None


def _make_folder(folder: Path) -> list[Path]:
    """Create the folder; return the parts that were created, deepest first."""
    missing = [part for part in (folder, *folder.parents) if not part.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(_unwritable(folder, error)) from None
    return missing


def _stage(path: Path, text: str) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; give ours what open() would have given.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(path.stat().st_mode if path.exists() else 0o666 & ~mask)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _refusal(path: Path, message: str) -> Problem:
    return Problem(
        f"{message}; it was left alone, and nothing else was written. --diff shows the change; "
        "move the file away to have a fresh copy",
        file=str(path),
    )


def _unwritable(folder: Path, error: OSError) -> Problem:
    reason = error.strerror or str(error)
    return Problem(
        f"nothing can be written here: {reason}. Nothing was changed; choose a folder that you "
        "may write to",
        file=str(folder),
    )
