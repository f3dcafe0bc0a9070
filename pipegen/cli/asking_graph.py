# SPDX-License-Identifier: Apache-2.0
"""The questions of `pipegen new --op custom`: a first graph, then what is added to it, one by one.

Every choice that is offered was tried: the rules let it pass. After each the graph is shown.
"""

from collections.abc import Callable, Sequence
from typing import Any

import click

from pipegen.cli import new_graph
from pipegen.cli.graph_additions import ADDITIONS, NOTHING, SAID, Asked, choose
from pipegen.cli.new_graph import Data


def ask_graph(name: str, options: dict[str, Any], data: Callable[..., Data]) -> dict[str, Any]:
    """Ask for a first graph and for what is added to it; `data` makes a description of options."""
    from pipegen.vocabulary import DTYPES

    types = [word for word in DTYPES if word != "i4"]

    def whole(tables: Data) -> Data:
        return data(name, {**options, "graph_data": tables})

    given = any(setting.startswith(("tensor.", "pipeline.")) for setting in options["settings"])
    if given and options["roles"] is None:
        return options
    tables = first(options, whole, types)
    asked = Asked(tables, whole, types)
    if not asked.fits(tables):
        return {**options, "graph_data": tables}  # an option is wrong: its own error says how
    show(asked)
    explain(asked)
    while (made := addition(asked)) is not None:
        if asked.fits(made):
            asked.tables = made
            show(asked)
        else:
            complain(asked, made)
    click.echo(
        f"{name}: each role's body is the identity until you write your own, in the description or "
        "in the kernel (docs/custom.md)"
    )
    return {**options, "graph_data": asked.tables}


def first(options: dict[str, Any], whole: Callable[[Data], Data], types: Sequence[str]) -> Data:
    """The answers that make the first graph."""
    kind = next((kind for kind in new_graph.PRODUCT_KINDS if multiplies(whole, kind)), None)
    if options["graph"] is None:
        line = options["roles"] is not None or kind is None
        options["graph"] = (
            "line" if line else choose("What does it do", new_graph.GRAPHS, new_graph.GRAPHS[0])
        )
    if options["graph"] == "line":
        return line_of(options, types, whole)
    kind = kind or new_graph.PRODUCT_KINDS[0]
    dtype = options["dtype"] or choose("Type of the operands", ("bf16", "f16"), "bf16")
    if options["graph"] == "product":
        others = choose("Type of w (i8: a role converts it)", (dtype, "i8"), dtype)
        epilogue = click.confirm("A role for the epilogue, and a store by TMA", default=True)
        dtype_out = options["dtype_out"] or choose("Type of out", (dtype, "f32"), dtype)
        tables = new_graph.product_data(kind, dtype, others, dtype_out, epilogue)
    else:
        dtype_out = options["dtype_out"] or choose("Type of out", (dtype, "f32"), dtype)
        tables = new_graph.two_products_data(kind, dtype, dtype_out)
    options |= {"dtype": None, "dtype_out": None}
    return sized(tables, options, whole)


def multiplies(whole: Callable[[Data], Data], kind: str) -> bool:
    """Whether there is a template for a role of this kind."""
    return new_graph.valid(whole(new_graph.product_data(kind, "bf16", "bf16", "bf16", True)))


def line_of(options: dict[str, Any], types: Sequence[str], whole: Callable[[Data], Data]) -> Data:
    """Roles in a line, the types of what they hand on, the tile, the stages."""
    from pipegen.cli.new import number_or_word
    from pipegen.errors import InputError

    def checked(answer: str) -> str:
        try:
            new_graph.roles_of(answer)
        except InputError as error:
            raise click.UsageError(str(error)) from None
        return answer

    if options["roles"] is None:
        options["roles"] = click.prompt(
            "Roles in a line, from the one that loads to the one that stores",
            default=new_graph.USUAL_ROLES,
            value_proc=checked,
        )
    roles = new_graph.roles_of(options["roles"])
    dtype = options["dtype"] or choose("Type of x, which is loaded", types, "bf16")
    usual = new_graph.usual_types(roles, options["dtype_out"] or dtype)
    stage_types = [
        choose(f"Type of the stages that {role} fills", types, proposed)
        for role, proposed in zip(roles[1:-1], usual, strict=True)
    ]
    last = stage_types[-1] if stage_types else dtype
    dtype_out = options["dtype_out"] or choose("Type of out, which is stored", types, last)

    def tables() -> Data:
        stages = number_or_word(options["stages"] or "auto")
        return new_graph.graph_data(roles, dtype, dtype_out, stage_types, stages)

    for key, question, proposed in (
        ("tile", "CTA tile M,N", "32,256"),
        ("stages", "Stages of each ring (auto fills SMEM, up to 4)", "auto"),
    ):
        if options[key] is None:
            ask_size(options, key, question, proposed, lambda: whole(tables()))
    return tables()


def ask_size(
    options: dict[str, Any], key: str, question: str, proposed: str, made: Callable[[], Data]
) -> None:
    """Ask for an option; again while the description, which is whole but for it, has a fault."""
    from dataclasses import replace

    from pipegen.description_file import description_from_data
    from pipegen.errors import InputError

    def complaint(answer: str) -> str:
        options[key] = answer
        try:
            description_from_data(made())
        except InputError as error:
            return " ".join(replace(each, file="").paragraph() for each in error.problems)
        return ""

    sound = not complaint(proposed)  # else something else is wrong, and is told at the end

    def checked(answer: str) -> str:
        said = complaint(answer)
        if said and sound:
            raise click.UsageError(said)
        return answer

    options[key] = click.prompt(question, default=proposed, value_proc=checked)


def sized(tables: Data, options: dict[str, Any], whole: Callable[[Data], Data]) -> Data:
    """The tables of products, with the answer for their tile."""
    from pipegen.description import KernelDescription
    from pipegen.planning.defaults import resolve

    if options["tile"] is None:
        tile = resolve(KernelDescription.model_validate(whole(tables))).tile
        proposed = [tile.m, tile.n, tile.k, *([tile.p] if tile.p else [])]
        letters = "M,N,K,P" if tile.p else "M,N,K"
        usual = ",".join(map(str, proposed))
        ask_size(options, "tile", f"CTA tile {letters}", usual, lambda: whole(tables))
    return {key: table for key, table in tables.items() if key != "tile"}


def addition(asked: Asked) -> Data | None:
    """The tables with what was chosen to be added; None for nothing more."""
    offered = {word: make for word, (fits, make) in ADDITIONS.items() if fits(asked)}
    if not offered:
        return None
    word = click.prompt(
        "Add to it", type=click.Choice([NOTHING, *offered]), default=NOTHING, show_choices=True
    )
    return None if word == NOTHING else offered[word](asked)


def explain(asked: Asked) -> None:
    """What each addition is, once."""
    for word, (fits, _) in ADDITIONS.items():
        if fits(asked):
            click.echo(f"  {word}: {SAID[word]}")


def show(asked: Asked) -> None:
    """The graph so far, and what the plan makes of it."""
    from pipegen.cli.asking import consequences
    from pipegen.cli.plan import graph_numbers
    from pipegen.description_file import description_from_data
    from pipegen.planning import plan
    from pipegen.planning.custom.draw import draw_text

    made = plan(description_from_data(asked.whole(asked.tables)))
    numbers = graph_numbers(made)
    lines = draw_text(numbers).splitlines() if numbers else []
    for line in [*lines, *consequences(made)]:
        click.echo(click.style(f"  {line}", dim=True))


def complain(asked: Asked, tables: Data) -> None:
    """Why an addition was not taken."""
    from dataclasses import replace

    from pipegen.description_file import description_from_data
    from pipegen.errors import InputError

    try:
        description_from_data(asked.whole(tables))
    except InputError as error:
        for problem in error.problems:
            click.echo(f"not added: {replace(problem, file='').paragraph()}")
