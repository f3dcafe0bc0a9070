# SPDX-License-Identifier: Apache-2.0
"""Text for people: through rich in a terminal; plain lines, without importing it, in a pipe."""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

import click


def print_heading(text: str) -> None:
    """One bold line, never wrapped."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.text import Text

        Console(highlight=False).print(Text(text, style="bold"), soft_wrap=True)
    else:
        click.echo(text)


def print_section(title: str, lines: Iterable[str], bullet: str = "") -> None:
    """A bold title and a list, each line wrapped with a hanging indent. Nothing if empty."""
    lines = list(lines)
    if title and lines:
        print_heading(title)
    for line in lines:
        click.echo(_filled(line, "  " + bullet, "    "))


def print_paragraphs(title: str, *paragraphs: str) -> None:
    """A bold title and indented sentences."""
    if title:
        print_heading(title)
    for paragraph in paragraphs:
        click.echo(_filled(paragraph, "  ", "  "))


def print_block(title: str, text: str) -> None:
    """A bold title and indented text whose lines are kept, such as code."""
    print_heading(title)
    click.echo(textwrap.indent(text.strip("\n"), "  "))


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A titled table; in a pipe one line a row, columns apart by two spaces."""
    print_heading(title)
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
        for row in (headings, *rows):
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            click.echo("  ".join(cells).rstrip())
        click.echo()
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        grid.add_column(heading, overflow="fold")
    for row in rows:
        grid.add_row(*row)
    Console(highlight=False).print(grid)


def sentence(text: str) -> str:
    """With a capital at the start, unless a name stands there, and one full stop at the end."""
    first = text.split(maxsplit=1)[0]
    if first.isalpha() and first not in ("wgmma", "tma", "cute", "pallas"):
        text = text[0].upper() + text[1:]
    return text.rstrip(".") + "."


def _filled(text: str, first: str, others: str) -> str:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
    return textwrap.fill(
        text,
        width=min(max(width, 40), 100),
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
