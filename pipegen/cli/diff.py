# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipegen.cli import print_json

if TYPE_CHECKING:
    from pipegen.vendor.project import Project
    from pipegen.vendor.updating import Survey

EPILOG = """\b
Examples:
  pipegen diff                        every module of the project
  pipegen diff kernels/gemm.py        one
  pipegen diff --mine                 what you changed since pipegen wrote it
"""


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--mine", is_flag=True, help="Your edits instead: from the pristine text to yours.")
@click.option(
    "--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def command(paths: tuple[Path, ...], mine: bool, output: str) -> None:
    """Show what `pipegen update` would change; write nothing.

    PATHS are modules, descriptions or folders of the project; left out, all. Exit code 1: there is
    something to show. 2: the input is wrong.
    """
    from pipegen.cli.update import line, print_diff, required_project, surveyed
    from pipegen.errors import InputError
    from pipegen.vendor.transaction import JOURNAL_NAME, interrupted
    from pipegen.vendor.updating import TROUBLE, WRITING, Outcome

    project = required_project()
    if interrupted(project.folder):
        raise InputError(
            f"{project.folder / JOURNAL_NAME}: an update was stopped half-way: `pipegen update` "
            "finishes it"
        )
    seen = surveyed(project, paths)
    if mine:
        raise SystemExit(_show_edits(project, seen))
    telling = (*WRITING, *TROUBLE, Outcome.DELETED, Outcome.ORPHAN)
    if output == "json":
        print_json([change.as_dict() for change in seen.changes])
    else:
        for change in seen.changes:
            print_diff(change)
        for change in seen.changes:
            if change.outcome in telling:
                click.echo(line(change, would=change.outcome in WRITING))
    raise SystemExit(any(change.outcome in (*WRITING, *TROUBLE) for change in seen.changes))


def _show_edits(project: "Project", seen: "Survey") -> bool:
    """Print the owner's edits of each module; whether there are any."""
    import difflib

    from pipegen.vendor.lock import read_base

    any_edit = False
    for change in seen.changes:
        base = read_base(change.path, seen.lock.entries.get(project.key(change.path)))
        if base is None or change.before is None or base == change.before:
            continue
        any_edit = True
        path = str(change.path)
        lines = difflib.unified_diff(
            base.splitlines(True), change.before.splitlines(True), f"{path} (pristine)", path
        )
        click.echo("".join(lines), nl=False)
    return any_edit
