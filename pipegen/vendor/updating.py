# SPDX-License-Identifier: Apache-2.0
"""What `generate`, `diff` and `update` do to each module of a project.

`decide` is pure: from the file's text, its base and what is rendered today follows what becomes of
it. `survey` reads, `apply` writes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from pipegen.errors import InputError, Problem
from pipegen.vendor.header import is_pristine, read_header
from pipegen.vendor.lock import (
    Entry,
    Lock,
    base_path,
    dump_lock,
    entry_for,
    read_base,
    read_lock,
)
from pipegen.vendor.merging import Merged, conflicts, merge
from pipegen.vendor.project import Project, members, rendered_files
from pipegen.vendor.transaction import commit


class Outcome(Enum):
    """What becomes of a module. The value is the word that is printed."""

    CREATED = "created"
    UPDATED = "updated"
    MERGED = "merged"
    CONFLICTED = "conflicted"
    UNCHANGED = "unchanged"
    EDITED = "edited"  # and nothing new to merge into it
    DELETED = "deleted"  # by its owner, and left so
    UNRESOLVED = "unresolved"  # marks of an earlier conflict: left alone
    REFUSED = "refused"  # nothing to merge with
    ORPHAN = "orphan"


WRITING = (Outcome.CREATED, Outcome.UPDATED, Outcome.MERGED, Outcome.CONFLICTED)
TROUBLE = (Outcome.CONFLICTED, Outcome.UNRESOLVED, Outcome.REFUSED)


@dataclass(frozen=True)
class Change:
    """One module: its text now (None: no file), the text it gets, and why."""

    path: Path
    outcome: Outcome
    before: str | None
    after: str | None
    note: str = ""
    # The pristine text to keep from now on; None keeps what there is.
    base: str | None = None
    description: Path | None = None

    def as_dict(self) -> dict[str, object]:
        """The change for JSON."""
        return {
            "path": str(self.path),
            "outcome": self.outcome.value,
            "description": str(self.description) if self.description else None,
            "note": self.note,
        }


def base_of(current: str, kept: str | None, rendered: str) -> str | None:
    """The pristine text that `current` was made from; None if nothing has it.

    `kept` is the text beside the lock. Without one, a file that still is as it was written is its
    own base, and one that was edited since today's text was written has that as its base.
    """
    if kept is not None:
        return kept
    if is_pristine(current):
        return current
    mine, today = read_header(current), read_header(rendered)
    if mine and today and mine.text_digest == today.text_digest:
        return rendered
    return None


def decide(
    path: Path, current: str | None, kept: str | None, rendered: str, known: bool, create: bool
) -> Change:
    """What becomes of the module at `path`.

    `known`: the lock has it, so that a missing file was deleted by its owner; `create` brings it
    back.
    """
    if current is None:
        if known and not create:
            return Change(path, Outcome.DELETED, None, None, "by its owner, and left so")
        return Change(path, Outcome.CREATED, None, rendered, base=rendered)
    lines = conflicts(current)
    if lines:
        where = ", ".join(map(str, lines))
        return Change(
            path, Outcome.UNRESOLVED, current, current,
            f"marks of a conflict on line {where}: choose a side, remove the marks, then update",
        )  # fmt: skip
    if current == rendered:
        return Change(path, Outcome.UNCHANGED, current, current, base=rendered)
    base = base_of(current, kept, rendered)
    if base is None:
        return Change(path, Outcome.REFUSED, current, current, _no_base(current))
    if current == base or is_pristine(current):  # also an older one that was taken back
        return Change(path, Outcome.UPDATED, current, rendered, base=rendered)
    if base == rendered:
        return Change(path, Outcome.EDITED, current, current, "nothing new for it", base=rendered)
    merged: Merged = merge(base, current, rendered)
    if merged.conflicts:
        places = "1 place" if merged.conflicts == 1 else f"{merged.conflicts} places"
        note = f"{places} to settle by hand, between <<<<<<< and >>>>>>>"
        return Change(path, Outcome.CONFLICTED, current, merged.text, note, rendered)
    return Change(path, Outcome.MERGED, current, merged.text, "your edits are kept", rendered)


def _no_base(current: str) -> str:
    if read_header(current) is None:
        return "exists and was not written by pipegen; it was left alone. Move it away"
    return (
        "was edited, and the pristine text it came from (in .base) is not there or does not fit "
        "pipegen.lock: take both from version control, or move the file away to have a fresh copy"
    )


@dataclass(frozen=True)
class Survey:
    """All of a project's modules, what is wrong with its input, and its lock."""

    changes: tuple[Change, ...]
    problems: tuple[Problem, ...]
    lock: Lock


def survey(
    project: Project,
    render: Callable[[Path], Mapping[Path, str]],
    only: Iterable[Path] | None = None,
    create: bool = False,
) -> Survey:
    """What would become of each module; nothing is written.

    `only` names descriptions or modules to look at; the project's others are left out.
    """
    lock = read_lock(project.lock)
    descriptions, problems = members(project)
    wanted = None if only is None else {path.resolve() for path in only}
    asked = descriptions
    if wanted is not None:
        asked = [path for path in descriptions if _asked(project, lock, path, wanted)]
        problems += _strangers(project, lock, descriptions, only or ())
    texts, wrong = rendered_files(project, asked, render)
    changes: list[Change] = []
    for path in sorted(texts):
        description, rendered = texts[path]
        entry = lock.entries.get(project.key(path))
        try:
            current = read_text(path)
        except InputError as error:
            wrong += error.problems
            continue
        change = decide(path, current, read_base(path, entry), rendered, entry is not None, create)
        changes.append(replace(change, description=description))
    if wanted is None and not problems and not wrong:
        changes += _orphans(project, lock, set(texts))
    return Survey(tuple(changes), (*problems, *wrong), lock)


def _asked(project: Project, lock: Lock, description: Path, wanted: set[Path]) -> bool:
    """Whether a description, a module of it, or a folder that holds one of them was named."""
    key = project.key(description)
    places = [description, *(project.folder / p for p, e in lock.entries.items()
                             if e.description == key)]  # fmt: skip
    places.append(project.target(description, f"{description.stem}.py"))
    resolved = [place.resolve() for place in places]
    return any(place in wanted or wanted & set(place.parents) for place in resolved)


def _strangers(
    project: Project, lock: Lock, descriptions: Iterable[Path], only: Iterable[Path]
) -> list[Problem]:
    """What was named and is no part of the project."""
    return [
        Problem(
            f"holds nothing of the project in {project.file}: see its key descriptions",
            file=str(path),
        )
        for path in only
        if not any(_asked(project, lock, d, {path.resolve()}) for d in descriptions)
    ]


def _orphans(project: Project, lock: Lock, known: set[Path]) -> list[Change]:
    """Modules of the lock that no description stands for any more."""
    keys = {project.key(path) for path in known}
    found = []
    for key in sorted(lock.entries):
        path = project.folder / key
        if key not in keys:
            current = read_text(path) if path.exists() else None
            note = f"its description {lock.entries[key].description} is gone"
            found.append(Change(path, Outcome.ORPHAN, current, current, note))
    return found


def read_text(path: Path) -> str | None:
    """The text with its line ends as they are; None if there is no file."""
    try:
        return path.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError:
        raise InputError(
            Problem("exists and is not text that pipegen wrote; move it away", file=str(path))
        ) from None
    except OSError as error:
        raise InputError(
            Problem(f"cannot be read: {error.strerror or error}", file=str(path))
        ) from None


def apply(project: Project, lock: Lock, changes: Iterable[Change], version: str) -> list[Path]:
    """Write what the changes say, with bases and lock, as one. Returns what was written.

    Call it within `transaction.exclusive`. An orphan whose file is gone leaves the lock.
    """
    files: dict[Path, str | None] = {}
    entries = dict(lock.entries)
    for change in changes:
        key = project.key(change.path)
        if change.outcome is Outcome.ORPHAN and change.before is None:
            entries.pop(key, None)
            if base_path(change.path).exists():
                files[base_path(change.path)] = None
            continue
        if change.after is not None and change.after != change.before:
            files[change.path] = change.after
        if change.base is not None and change.description is not None:
            base = base_path(change.path)
            if read_text(base) != change.base:
                files[base] = change.base
            made = entry_for(project.key(change.description), change.base, version)
            old = entries.get(key)
            entries[key] = made if old is None or not _same(old, made) else old
    text = dump_lock(Lock(entries))
    if read_text(project.lock) != text and (entries or project.lock.exists()):
        files[project.lock] = text
    commit(project.folder, files)
    return list(files)


def _same(old: Entry, new: Entry) -> bool:
    """Whether two entries differ in pipegen's version at most: that alone is no reason to write."""
    return replace(old, pipegen=new.pipegen) == new
