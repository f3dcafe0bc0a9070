# SPDX-License-Identifier: Apache-2.0
"""`pipegen explain`: a class, a term or a rule, with an example."""

import click

from pipegen.cli import print_json
from pipegen.errors import listing
from pipegen.explanations import (
    GROUPS,
    ClassEntry,
    Entry,
    RuleEntry,
    Term,
    classes,
    explain,
    rules,
    terms,
)
from pipegen.prose import print_block, print_heading, print_paragraphs, print_section, sentence

EPILOG = """\b
Examples:
  pipegen explain tx_count
  pipegen explain PipelineTmaAsync
  pipegen explain            lists everything
"""


@click.command("explain", epilog=EPILOG)
@click.argument("name", nargs=-1)
@click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
)
def command(name: tuple[str, ...], output: str) -> None:
    """Explain NAME: a class, a term or a rule. Without NAME, list what there is."""
    if not name:
        known: list[Entry] = [*terms(), *classes(), *rules()]
        print_json([_listed(entry) for entry in known]) if output == "json" else _print_list()
        return
    found = explain(" ".join(name))  # "arrive count" needs no quotes
    if output == "json":
        print_json([entry.as_dict() for entry in found])
        return
    for number, entry in enumerate(found):
        if number:
            click.echo()
        _print_entry(entry)


def _listed(entry: Entry) -> dict[str, object]:
    full = entry.as_dict()
    return {key: full[key] for key in ("kind", "name", "short")}


def _print_list() -> None:
    for group, title in GROUPS.items():
        members = [term for term in terms() if term.group == group]
        print_section(title, [f"{term.name}: {term.short}" for term in members])
    print_section("Classes", [f"{entry.name}: {entry.short}" for entry in classes()])
    print_section("Rules", [f"{rule.code}: {rule.name}" for rule in rules()])


def _print_entry(entry: Entry) -> None:
    match entry:
        case Term():
            also = [f"Also: {listing(entry.also)}."] if entry.also else []
            print_heading(entry.name)
            print_paragraphs("", sentence(entry.short), entry.text, *also)
            print_block("Example", entry.example)
            print_paragraphs("See also", listing(entry.see))
        case ClassEntry():
            for number, row in enumerate(entry.rows):
                if number:
                    click.echo()
                print_heading(f"{row.cls}: {row.pair} ({listing((*row.archs, row.backend))})")
                print_paragraphs("", row.why)
                print_paragraphs("Used for", sentence(row.operator))
                arguments = [
                    f"{a.name}{'' if a.required else ' (optional)'}: {a.rule}"
                    for a in row.arguments
                ]
                print_section(f"Arguments of {row.module}.{row.call}", arguments)
                print_section("Take care", row.cautions, bullet="- ")
                print_block("Example", row.example)
        case RuleEntry():
            print_heading(f"{entry.code} {entry.name}")
            click.echo(entry.text)
