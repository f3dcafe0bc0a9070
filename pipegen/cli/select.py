# SPDX-License-Identifier: Apache-2.0
"""`pipegen select`: the class for one producer and consumer, or why there is none."""

import click

from pipegen.cli import print_json
from pipegen.cli.completing import vocabulary
from pipegen.prose import print_heading, print_paragraphs, print_section, sentence
from pipegen.selection import Refusal, Selection, select_all

EPILOG = """\b
Examples:
  pipegen select tma wgmma --arch sm_90a --backend cute
  pipegen select umma thread
  pipegen select tma wgmma --backend pallas --style emit-pipeline --format json
"""


@click.command("select", epilog=EPILOG)
@click.argument("producer", shell_complete=vocabulary("PRODUCERS"))
@click.argument("consumer", shell_complete=vocabulary("CONSUMERS"))
@click.option(
    "--arch",
    metavar="NAME",
    shell_complete=vocabulary("ARCHS"),
    help="sm_90a or sm_100a; left out, each that applies.",
)
@click.option(
    "--backend",
    metavar="NAME",
    shell_complete=vocabulary("BACKENDS"),
    help="cute, cute-ts or pallas; left out, each.",
)
@click.option("--style", metavar="NAME", help="One of the backend's styles; left out, each class.")
@click.option(
    "--cta-group", type=int, default=1, show_default=True, help="2: the consumer is a CTA pair."
)
@click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: an object if --arch and --backend are given, else an array of them.",
)
@click.pass_context
def command(
    ctx: click.Context,
    producer: str,
    consumer: str,
    arch: str | None,
    backend: str | None,
    style: str | None,
    cta_group: int,
    output: str,
) -> None:
    """Name the class for a PRODUCER and a CONSUMER, with its reasons.

    PRODUCER fills the stage: thread, cp_async, tma, umma or clc. CONSUMER empties it: thread,
    wgmma, umma, umma+thread or tma_store. For an impossible pair: why, the nearest valid ones,
    and exit code 1.
    """
    found = select_all(producer, consumer, arch, backend, style, cta_group)
    if isinstance(found, Refusal):
        print_json(found.as_dict()) if output == "json" else _print_refusal(found)
        ctx.exit(1)
    if output == "text":
        _print_selections(found)
    elif arch and backend:
        print_json(found[0].as_dict() | {"alternatives": [s.as_dict() for s in found[1:]]})
    else:
        print_json([selection.as_dict() for selection in found])


def _print_refusal(refusal: Refusal) -> None:
    print_heading(f"{refusal.request.label}: impossible")
    print_paragraphs("Why", sentence(refusal.reason))
    nearest = [f"{near.label}: {near.cls}, {near.status}" for near in refusal.nearest]
    print_section("Nearest valid pairs", nearest)


def _print_selections(found: tuple[Selection, ...]) -> None:
    for number, selection in enumerate(found):
        if number:
            click.echo()
        row = selection.row
        print_heading(f"{selection.label}: {row.cls}")
        same = [other for other in found[:number] if other.row is row]
        if same:
            print_paragraphs("", f"As on {same[0].arch}.", sentence(selection.status_text))
            continue
        required = [f"{a.name}: {a.rule}" for a in row.arguments if a.required]
        optional = [f"{a.name}: {a.rule}" for a in row.arguments if not a.required]
        print_paragraphs("Why", row.why)
        print_section(f"What must be passed to {row.module}.{row.call}", required)
        print_section("What may be passed", optional)
        print_paragraphs("Used for", sentence(row.operator))
        print_section("Take care", row.cautions, bullet="- ")
        print_paragraphs("Status", sentence(selection.status_text))
    if len({selection.row for selection in found}) > 1:
        click.echo("\nNarrow it down with --arch, --backend and --style.")
