# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipegen.cli import console, print_json

if TYPE_CHECKING:
    from pipegen.planning import Plan
    from pipegen.planning.custom.numbers import Numbers

EPILOG = """\b
Examples:
  pipegen plan kernels/gemm.toml
  pipegen plan kernels/gemm.toml --format json
"""


@click.command(epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option(
    "--svg",
    type=click.Path(path_type=Path),
    help='Also draw the roles and rings of an op = "custom" into this file.',
)
def command(file: Path, output: str, svg: Path | None) -> None:
    """Show every derived number of FILE with its formula, and what limits the stages."""
    from pipegen.description_file import load_description
    from pipegen.planning import plan

    made = plan(load_description(file))
    if svg is not None:
        write_svg(made, svg)
    if output == "json":
        print_json(as_data(made))
    else:
        show(made)


def graph_numbers(made: "Plan") -> "Numbers | None":
    """The numbers of a custom kernel's graph; None for other ops, whose graph is the template's."""
    from pipegen.planning.custom.product_numbers import numbers_for
    from pipegen.planning.custom.reading import read_graph

    graph = read_graph(made.description) if made.description.kernel.op == "custom" else None
    return (
        numbers_for(graph, made.description.kernel.arch, made.description.kernel.backend)
        if graph
        else None
    )


def write_svg(made: "Plan", path: Path) -> None:
    """Draw the graph of a custom kernel. Raises InputError for other ops and unwritable paths."""
    from pipegen.errors import InputError, Problem
    from pipegen.planning.custom.picture import draw_svg

    numbers = graph_numbers(made)
    if numbers is None:
        op = made.description.kernel.op
        raise InputError(
            Problem(f'only op = "custom" has a graph of its own to draw, not {op}', file="--svg")
        )
    try:
        path.write_text(draw_svg(numbers, made.name), encoding="utf-8")
    except OSError as error:
        raise InputError(
            Problem(f"cannot be written: {error.strerror or error}", file=str(path))
        ) from None


def as_data(made: "Plan") -> dict[str, Any]:
    """The plan as plain data."""
    from dataclasses import asdict

    return {
        "name": made.name,
        "template": made.template,
        "description": made.description.model_dump(mode="json"),
        "defaulted": defaulted(made),
        "pipelines": [asdict(pipeline) for pipeline in made.pipelines],
        "roles": [asdict(role) for role in made.roles],
        "numbers": {number.name: asdict(number) for number in made.numbers},
        "stage_limit": made.stage_limit,
    }


def defaulted(made: "Plan") -> dict[str, Any]:
    """The keys that the user left out, dotted, with what each became."""
    given = _flat(made.given.model_dump(mode="json", exclude_unset=True))
    full = _flat(made.description.model_dump(mode="json"))
    return {key: value for key, value in full.items() if key not in given and value is not None}


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        dotted = f"{prefix}{key}"
        flat.update(_flat(value, f"{dotted}.") if isinstance(value, dict) else {dotted: value})
    return flat


def show(made: "Plan") -> None:
    """Print the plan as tables."""
    from rich import box
    from rich.table import Table

    from pipegen.errors import toml_literal

    out = console()

    def show_table(table: Table) -> None:
        with out.capture() as captured:
            out.print(table)
        for line in captured.get().splitlines():
            click.echo(line.rstrip())

    kernel = made.description.kernel
    out.print(f"{made.name}: {kernel.op}, {kernel.backend}, {kernel.arch}, {kernel.style}")
    out.print(f"template: templates/{made.template}\n")

    numbers_of_graph = graph_numbers(made)
    if numbers_of_graph is not None:
        from pipegen.planning.custom.draw import draw_text

        click.echo("Graph")
        for line in draw_text(numbers_of_graph).splitlines():
            click.echo(f"  {line}")
        click.echo()

    pipelines = Table(title="Pipelines", title_justify="left", box=box.SIMPLE)
    for heading in ("name", "producer -> consumer", "class", "stages", "B/stage", "tx_count"):
        pipelines.add_column(heading, overflow="fold")
    pipelines.add_column("arrive counts", overflow="fold")
    for pipe in made.pipelines:
        barriers = {"full": pipe.full_arrive_count, "empty": pipe.empty_arrive_count}
        counts = ", ".join(f"{name} {count}" for name, count in barriers.items() if count)
        pipelines.add_row(
            pipe.name,
            f"{pipe.producer} -> {pipe.consumer}",
            pipe.construct,
            str(pipe.stages),
            str(pipe.stage_bytes),
            "-" if pipe.tx_count is None else str(pipe.tx_count),
            counts or "none",
        )
    show_table(pipelines)

    roles = Table(title="Roles", title_justify="left", box=box.SIMPLE)
    for heading in ("role", "threads", "registers", "does"):
        roles.add_column(heading, overflow="fold")
    for role in made.roles:
        roles.add_row(role.name, str(role.threads), str(role.registers or "-"), role.does)
    show_table(roles)

    numbers = Table(title="Numbers", title_justify="left", box=box.SIMPLE)
    numbers.add_column("name", no_wrap=True)
    for heading in ("value", "unit", "formula", "source"):
        numbers.add_column(heading, overflow="fold")
    for number in made.numbers:
        numbers.add_row(number.name, str(number.value), number.unit, number.formula, number.source)
    show_table(numbers)
    out.print(f"What limits the stages: {made.stage_limit}.")
    words = ", ".join(f"{key} = {toml_literal(value)}" for key, value in defaulted(made).items())
    out.print(f"Defaults: {words}.")
