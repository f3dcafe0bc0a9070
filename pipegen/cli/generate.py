# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipegen.cli import show_diff

if TYPE_CHECKING:
    from pipegen.errors import Problem
    from pipegen.files import Outcome as FileOutcome
    from pipegen.vendor.project import Project
    from pipegen.vendor.updating import Change

EPILOG = """\b
Examples:
  pipegen generate                    the project in pipegen.toml or pyproject.toml
  pipegen generate kernels            every description below kernels/
  pipegen generate kernels/gemm.toml  one
"""


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would be written; write nothing.")
@click.option("--diff", is_flag=True, help="Print what would change on disk; write nothing.")
def command(paths: tuple[Path, ...], dry_run: bool, diff: bool) -> None:
    """Write the kernels of the descriptions at PATHS, or of the whole project.

    A project (see `pipegen init`) says where its modules go; others go beside their description.
    Writes only what changes. If one file must not be written, because somebody edited it or its
    description is faulty, none is: exit code 2. `pipegen update` merges with edits.
    """
    from pipegen.errors import InputError
    from pipegen.generating import find_descriptions
    from pipegen.vendor.project import find_project, members

    project = find_project()
    if project is None:
        if not paths:
            raise InputError(
                "say which descriptions: `pipegen generate PATH`. Without PATH it writes those of "
                "a project, and there is no pipegen.toml here: `pipegen init` makes one"
            )
        _beside(find_descriptions(paths), dry_run, diff)
        return
    if not paths:
        _project(project, None, dry_run, diff)
        return
    found = find_descriptions(paths)
    listed, _ = members(project)
    own = {path.resolve() for path in listed}
    inside = [path for path in found if path.resolve() in own]
    outside = [path for path in found if path.resolve() not in own]
    if inside:
        _project(project, inside, dry_run, diff)
    if outside:
        _beside(outside, dry_run, diff)


def _project(project: "Project", only: Iterable[Path] | None, dry_run: bool, diff: bool) -> None:
    from pipegen import __version__
    from pipegen.errors import InputError
    from pipegen.generating import generate_one
    from pipegen.vendor.transaction import exclusive
    from pipegen.vendor.updating import Outcome, apply, survey

    with exclusive(project.folder):
        seen = survey(project, generate_one, only, create=True)
        problems = [*seen.problems, *_refusals(seen.changes)]
        if diff and not seen.problems:
            for change in seen.changes:
                if change.after is not None:
                    show_diff(change.path.parent, {change.path.name: change.after})
            return
        if problems:
            raise InputError(problems)
        if not dry_run:
            apply(project, seen.lock, seen.changes, __version__)
    for change in seen.changes:
        gone = change.outcome is Outcome.ORPHAN and change.before is None
        note = f"  ({change.note})" if change.outcome is Outcome.ORPHAN else ""
        if not gone:
            would = "would be " if dry_run else ""
            click.echo(f"{would}{change.outcome.value:<9} {change.path}{note}")


def write_project(project: "Project", only: list[Path]) -> dict[Path, "FileOutcome"]:
    """Write the modules of the descriptions `only`, with the lock, or raise InputError."""
    from pipegen import __version__
    from pipegen.errors import InputError
    from pipegen.files import Outcome
    from pipegen.generating import generate_one
    from pipegen.vendor.transaction import exclusive
    from pipegen.vendor.updating import apply, survey

    with exclusive(project.folder):
        seen = survey(project, generate_one, only, create=True)
        problems = [*seen.problems, *_refusals(seen.changes)]
        if problems:
            raise InputError(problems)
        apply(project, seen.lock, seen.changes, __version__)
    words = {outcome.value: outcome for outcome in Outcome}
    return {c.path: words.get(c.outcome.value, Outcome.UNCHANGED) for c in seen.changes}


def _refusals(changes: Iterable["Change"]) -> "list[Problem]":
    """Why `generate`, which does not merge, must leave files alone."""
    from pipegen.errors import Problem
    from pipegen.vendor.updating import Outcome

    problems = []
    for change in changes:
        if change.outcome in (Outcome.MERGED, Outcome.CONFLICTED):
            problems.append(
                Problem(
                    "was edited, and there is something new for it: `pipegen update` merges the "
                    "two, `pipegen diff` shows it; nothing was written",
                    file=str(change.path),
                )
            )
        elif change.outcome in (Outcome.UNRESOLVED, Outcome.REFUSED):
            problems.append(Problem(change.note, file=str(change.path)))
    return problems


def _beside(found: Iterable[Path], dry_run: bool, diff: bool) -> None:
    from pipegen.errors import InputError, Problem
    from pipegen.files import Outcome, outcome_for, write_files
    from pipegen.generating import generate_one

    problems: list[Problem] = []
    texts: dict[Path, str] = {}
    owners: dict[Path, Path] = {}
    for path in found:
        try:
            written = generate_one(path)
        except InputError as error:
            problems += error.problems
            continue
        for target in written:
            if target in owners:
                problems.append(
                    Problem(
                        f"writes {target.name}, and so does {owners[target].name}: give one of "
                        "them another kernel.name",
                        file=str(path),
                    )
                )
            owners[target] = path
        texts.update(written)
    if diff and not problems:
        for path, text in texts.items():
            show_diff(path.parent, {path.name: text})
        return
    outcomes = {path: outcome_for(path, text) for path, text in texts.items()}
    problems += [outcome for outcome in outcomes.values() if isinstance(outcome, Problem)]
    if problems:
        raise InputError(problems)
    if not dry_run:
        for path, text in texts.items():
            write_files(path.parent, {path.name: text})
    for path, outcome in outcomes.items():
        word = outcome.value if isinstance(outcome, Outcome) else ""
        click.echo(f"{'would be ' if dry_run else ''}{word:<9} {path}")
