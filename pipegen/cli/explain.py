# SPDX-License-Identifier: Apache-2.0
"""`pipegen explain`: a class, a term or a rule, with an example."""

import click

from pipegen.cli import print_json
from pipegen.cli.completing import explained
from pipegen.errors import listing
from pipegen.explanations import (
    GROUPS,
    ClassEntry,
    Entry,
    RuleEntry,
    Term,
    classes,
    emitted_examples,
    explain,
    rules,
    terms,
)
from pipegen.prose import print_block, print_heading, print_paragraphs, print_section, sentence
from pipegen.protocols import Protocol

EPILOG = """\b
Examples:
  pipegen explain tx_count
  pipegen explain PipelineTmaAsync
  pipegen explain            lists everything
"""


@click.command("explain", epilog=EPILOG)
@click.argument("name", nargs=-1, shell_complete=explained())
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
                if entry.protocol and not number:
                    _print_protocol(entry.protocol)
                print_section(f"Arguments of {row.module}.{row.call}", arguments)
                print_section("Take care", row.cautions, bullet="- ")
                print_block("Example", row.example)
                print_section("Emitted kernels that use it", emitted_examples(row))
        case RuleEntry():
            print_heading(f"{entry.code} {entry.name}")
            click.echo(entry.text)


def _print_protocol(protocol: Protocol) -> None:
    """Arrive counts, then the states of a stage as a table that fits 100 columns."""
    counts = [f"full barrier: {protocol.full}", f"empty barrier: {protocol.empty}"]
    print_section("Arrive counts", counts)
    print_heading("States of a stage (where the current phase of its barriers stands)")
    for state in protocol.states:
        barriers = f"full {state.full}, empty {state.empty}"
        click.echo(f"  {state.stage:<14} {barriers:<28} until {state.until}")
