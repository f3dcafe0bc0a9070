# SPDX-License-Identifier: Apache-2.0
"""`pipegen table`: the selection table."""

import click

from pipegen.cli import print_json
from pipegen.prose import print_table
from pipegen.selection import Request, known_words, rows, table
from pipegen.selection_docs import HEADINGS, TITLES, cells, table_markdown
from pipegen.vocabulary import BACKENDS

EPILOG = """\b
Examples:
  pipegen table
  pipegen table --backend cute --arch sm_90a
  pipegen table --format markdown > table.md
"""


@click.command("table", epilog=EPILOG)
@click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="json: one object for each row and architecture, as `pipegen select` prints it.",
)
@click.option("--backend", metavar="NAME", help="Only this backend: cute, cute-ts or pallas.")
@click.option("--arch", metavar="NAME", help="Only this architecture: sm_90a or sm_100a.")
def command(output: str, backend: str | None, arch: str | None) -> None:
    """Show which class each producer and consumer select.

    A row is ready if pipegen can emit it today, and planned if no template does so yet.
    """
    place = known_words(Request("tma", "thread", arch, backend))
    if output == "json":
        print_json([selection.as_dict() for selection in table(place.backend, place.arch)])
    elif output == "markdown":
        click.echo(table_markdown(place.backend, place.arch), nl=False)
    else:
        for name in (place.backend,) if place.backend else BACKENDS:
            listed = [cells(row, place.arch) for row in rows(name, place.arch)]
            print_table(TITLES[name].replace("`", ""), HEADINGS, listed)
        click.echo("planned: no template emits the row yet. `pipegen select` tells more of a pair.")
