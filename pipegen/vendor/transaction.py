# SPDX-License-Identifier: Apache-2.0
"""Changes several files as one: killed at any moment, all are old or all become new.

The new texts are written to temporary names beside their targets. Then a journal that lists the
renames is put in place, in one step: before it the tree is old, from it on it is new, since whoever
comes next finishes the renames (`recover`). Each file by itself is replaced in one step, too.
"""

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from pipegen.errors import InputError, Problem

JOURNAL_NAME = ".pipegen.journal"
TEMPORARY = ".pipegen-tmp"


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the project alone, after finishing what an interrupted run left.

    Raises InputError if another process holds it. The system frees it when a process dies.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                Problem("another pipegen is writing here; try again", file=str(folder))
            ) from None
        recover(folder)
        yield
    finally:
        os.close(descriptor)


def interrupted(folder: Path) -> bool:
    """Whether a run was stopped between its journal and its last rename."""
    return (folder / JOURNAL_NAME).exists()


def commit(folder: Path, files: Mapping[Path, str | None]) -> None:
    """Write each text at its path, or remove the path (None). All below `folder`.

    Call it within `exclusive`. Raises InputError, with nothing changed, if something cannot be
    written.
    """
    # A link stays one: the file that it leads to is written.
    files = {Path(os.path.realpath(path)): text for path, text in files.items()}
    staged: dict[str, str] = {}
    removed = [_relative(folder, path) for path, text in files.items() if text is None]
    try:
        for path, text in files.items():
            if text is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                _sweep(path)
                staged[_relative(folder, _stage(path, text))] = _relative(folder, path)
        if not (staged or removed):
            return
        journal = folder / JOURNAL_NAME
        temporary = _stage(journal, json.dumps({"renames": staged, "removals": removed}))
        os.replace(temporary, journal)
        _sync(folder)
    except OSError as error:
        for name in staged:
            with contextlib.suppress(OSError):
                (folder / name).unlink()
        reason = error.strerror or str(error)
        raise InputError(
            Problem(f"cannot be written: {reason}. Nothing was changed", file=str(folder))
        ) from None
    recover(folder)


def recover(folder: Path) -> bool:
    """Finish the renames of a journal; whether there was one. Doing it twice does no harm."""
    journal = folder / JOURNAL_NAME
    try:
        data = json.loads(journal.read_text("utf-8"))
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        raise InputError(
            Problem(f"is no journal of pipegen: {error}; look at it, then remove it",
                    file=str(journal))
        ) from None  # fmt: skip
    folders = {folder}
    try:
        for source, target in data["renames"].items():
            # Not there: renamed before the run was stopped.
            with contextlib.suppress(FileNotFoundError):
                os.replace(folder / source, folder / target)
            folders.add((folder / target).parent)
        for name in data["removals"]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(folder / name)
        for place in folders:
            _sync(place)
        os.unlink(journal)
    except OSError as error:
        raise InputError(
            Problem(
                f"an update is half done: {error.strerror or error}. Make the place writable and "
                "call pipegen again: it finishes the update",
                file=str(journal),
            )
        ) from None
    return True


def _stage(path: Path, text: str) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=TEMPORARY, dir=path.parent)
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


def _sweep(path: Path) -> None:
    """Remove what runs that were killed before their journal left beside `path`."""
    prefix = f".{path.name}."
    for entry in os.scandir(path.parent):
        if entry.name.startswith(prefix) and entry.name.endswith(TEMPORARY):
            with contextlib.suppress(OSError):
                os.unlink(entry.path)


def _relative(folder: Path, path: Path) -> str:
    return os.path.relpath(path.absolute(), folder.absolute())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
