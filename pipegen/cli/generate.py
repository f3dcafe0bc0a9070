# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import click

from pipegen.cli import show_diff

EPILOG = """\b
Examples:
  pipegen generate kernels            every description below kernels/
  pipegen generate kernels/gemm.toml  one
"""


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would be written; write nothing.")
@click.option("--diff", is_flag=True, help="Print what would change on disk; write nothing.")
def command(paths: tuple[Path, ...], dry_run: bool, diff: bool) -> None:
    """Write the kernels of the descriptions at PATHS, each beside its description.

    Writes only what changes. If one file must not be written, because somebody edited it or its
    description is faulty, none is: exit code 2.
    """
    from pipegen.errors import InputError, Problem
    from pipegen.files import Outcome, outcome_for, write_files
    from pipegen.generating import find_descriptions, generate_one

    problems: list[Problem] = []
    texts: dict[Path, str] = {}
    owners: dict[Path, Path] = {}
    for path in find_descriptions(paths):
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
