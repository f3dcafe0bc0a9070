# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import click

EPILOG = """\b
Examples:
  pipegen generate kernels            every description below kernels/
  pipegen generate kernels/gemm.toml  one
"""


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would be written; write nothing.")
def command(paths: tuple[Path, ...], dry_run: bool) -> None:
    """Write the kernels of the descriptions at PATHS, each beside its description.

    Writes only what changes. A file that somebody edited is left alone: exit code 2.
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
