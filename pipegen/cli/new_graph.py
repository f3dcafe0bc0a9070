# SPDX-License-Identifier: Apache-2.0
"""`pipegen new --op custom`: a first graph, from a line of roles, and what to ask for it."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import click

USUAL_ROLES = "load, compute, store"


def graph_data(
    roles: Sequence[str], dtype: str, dtype_out: str, stage_types: Sequence[str], stages: Any
) -> dict[str, Any]:
    """Tensors and pipelines of a line of roles: the first reads x, the last writes out.

    `stage_types`: what each role but the first and the last writes into its stages.
    """
    types = iter(stage_types)
    rings: dict[str, Any] = {}
    for index, (source, target) in enumerate(pairwise(roles)):
        ring: dict[str, Any] = {"edge": f"{source} -> {target}"}
        if index:
            ring["dtype"] = next(types, dtype)
        if stages not in (None, "auto"):
            ring["stages"] = stages
        rings[f"{source}_tiles"] = ring
    return {
        "tensor": {
            "x": {"dtype": dtype, "read": roles[0]},
            "out": {"dtype": dtype_out, "write": roles[-1]},
        },
        "pipeline": rings,
    }


def roles_of(text: str) -> list[str]:
    """The roles of `load, compute, store`. Raises InputError if there are no two of them."""
    from pipegen.errors import InputError, Problem

    roles = [name.strip() for name in text.split(",") if name.strip()]
    if len(roles) < 2 or len(set(roles)) < len(roles):
        raise InputError(
            Problem(
                f"needs two or more different roles, with commas between, got {text!r}",
                file="--roles",
                allowed=USUAL_ROLES,
                nearest=USUAL_ROLES,
            )
        )
    return roles


def ask_graph(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Ask for the roles in a line and the types of what they hand on; the rest has defaults."""
    from pipegen.errors import InputError
    from pipegen.vocabulary import DTYPES

    types = click.Choice([word for word in DTYPES if word != "i4"])

    def checked(answer: str) -> str:
        try:
            roles_of(answer)
        except InputError as error:
            raise click.UsageError(str(error)) from None
        return answer

    if options["roles"] is None:
        options["roles"] = click.prompt(
            "Roles in a line, from the one that loads to the one that stores",
            default=USUAL_ROLES,
            value_proc=checked,
        )
    roles = roles_of(options["roles"])
    if options["dtype"] is None:
        options["dtype"] = click.prompt("Type of x, which is loaded", type=types, default="bf16")
    options["stage_types"] = [
        click.prompt(f"Type of the stages that {role} fills", type=types, default="f32")
        for role in roles[1:-1]
    ]
    if options["dtype_out"] is None:
        options["dtype_out"] = click.prompt(
            "Type of out, which is stored", type=types, default=options["dtype"]
        )
    for key, question, usual in (
        ("tile", "CTA tile M,N", "32,256"),
        ("stages", "Stages of each ring (auto fills SMEM, up to 4)", "auto"),
    ):
        if options[key] is None:
            options[key] = click.prompt(question, default=usual)
    click.echo(
        f"{name}: each role's body is the identity. In the description you may add tensors, fan "
        'out ("load -> sum, copy"), fan in, and bodies.'
    )
    return options
