# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipegen.cli import print_json, show_diff

if TYPE_CHECKING:
    from pipegen.vendor.project import Project
    from pipegen.vendor.updating import Change, Survey

EPILOG = """\b
Examples:
  pipegen update                      every module of the project
  pipegen update kernels/gemm.py      one
  pipegen update --dry-run            what it would do
"""


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Also where git could not bring the old texts back.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; write nothing.")
@click.option(
    "--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def command(paths: tuple[Path, ...], force: bool, dry_run: bool, output: str) -> None:
    """Merge what is new in templates and descriptions into the project's modules.

    A three-way merge: what pipegen wrote before, what it writes now, and your edited file. PATHS
    are modules, descriptions or folders of the project; left out, all. Needs a clean git working
    tree, except for the descriptions, unless forced.

    \b
    created     was not there yet
    updated     nobody had edited it
    merged      your edits are kept, and what is new came in
    conflicted  both changed the same lines: settle it between <<<<<<< and >>>>>>>
    edited      yours, and nothing new for it
    unchanged   as pipegen writes it
    deleted     you removed it: it stays so
    unresolved  still has marks of an earlier conflict: left alone
    refused     was edited, and what pipegen had written is not known any more
    orphan      no description stands for it any more: left alone

    Exit code 1: something is conflicted, unresolved or refused. 2: the input is wrong.
    """
    from pipegen import __version__
    from pipegen.errors import InputError
    from pipegen.vendor.git import unsafe
    from pipegen.vendor.transaction import exclusive
    from pipegen.vendor.updating import TROUBLE, WRITING, apply

    project = required_project()
    with exclusive(project.folder):
        seen = surveyed(project, paths)
        written = [change for change in seen.changes if change.outcome in WRITING]
        if written and not force and not dry_run:
            inputs = [project.file, *(c.description for c in seen.changes if c.description)]
            wrong = unsafe(project.folder, [change.path for change in written], inputs)
            if wrong is not None:
                wrong = type(wrong)(wrong.message + ", or use --force", file=wrong.file)
                raise InputError(wrong)
        if not dry_run:
            apply(project, seen.lock, seen.changes, __version__)
    if output == "json":
        print_json([change.as_dict() for change in seen.changes])
    else:
        for change in seen.changes:
            click.echo(line(change, dry_run))
        if not seen.changes:
            click.echo("nothing to update")
    raise SystemExit(any(change.outcome in TROUBLE for change in seen.changes))


def required_project() -> "Project":
    """The project here. Raises InputError if there is none."""
    from pipegen.errors import InputError
    from pipegen.vendor.project import find_project

    project = find_project()
    if project is None:
        raise InputError(
            "there is no project here, neither pipegen.toml nor [tool.pipegen] in pyproject.toml, "
            "so nothing says what pipegen had written before your edits: `pipegen init` makes one"
        )
    return project


def surveyed(project: "Project", paths: tuple[Path, ...]) -> "Survey":
    """What would become of the modules at `paths`. Raises InputError if the input is wrong."""
    from pipegen.errors import InputError
    from pipegen.generating import generate_one
    from pipegen.vendor.updating import survey

    seen = survey(project, generate_one, paths or None)
    if seen.problems:
        raise InputError(seen.problems)
    return seen


def line(change: "Change", would: bool = False) -> str:
    """A change in one line."""
    note = f"  ({change.note})" if change.note else ""
    return f"{'would be ' if would else ''}{change.outcome.value:<10} {change.path}{note}"


def print_diff(change: "Change") -> None:
    """What an update would change in a module."""
    if change.after is not None and change.after != change.before:
        show_diff(change.path.parent, {change.path.name: change.after})
