# SPDX-License-Identifier: Apache-2.0
"""What `run`, `bench` and `tune` share: their options, the modules they take, and the skip."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pipegen.cli.completing import words_of

if TYPE_CHECKING:
    from pipegen.compiling.module import Module

F = TypeVar("F", bound=Callable[..., Any])
SECONDS = click.FloatRange(min=0, min_open=True, max=86400)


def _lists() -> list[str]:
    from pipegen.measuring.shapes import list_names

    return list_names()


def _peers() -> list[str]:
    from pipegen.measuring.peers import PEERS

    return list(PEERS)


def size_options(function: F) -> F:
    """--shape and --shapes."""
    function = click.option(
        "--shape", "sizes", multiple=True, metavar="M,N,K", help="A size; may be repeated."
    )(function)
    return click.option(
        "--shapes", "lists", multiple=True, metavar="FILE|NAME",
        shell_complete=words_of(_lists),
        help="A list of sizes: a TOML file, or one that comes with pipegen; may be repeated.",
    )(function)  # fmt: skip


def against_option(function: F) -> F:
    """--against."""
    return click.option(
        "--against", default="", metavar="PEER[,PEER]", shell_complete=words_of(_peers),
        help="What to compare with: cublas, torch, jnp.dot, hopper_matmul_mgpu, quack, or a "
        "function of yours, MODULE:FUNCTION. [default: torch's own, cuBLAS for a GEMM]",
    )(function)  # fmt: skip


def limit_option(default: float, what: str) -> Callable[[F], F]:
    """--limit: seconds that something on the GPU may take."""
    return click.option(
        "--limit", type=SECONDS, default=default, show_default=True, metavar="SECONDS", help=what
    )


def require_option(function: F) -> F:
    """--require-gpu."""
    return click.option(
        "--require-gpu", is_flag=True, help="Fail if there is no GPU, instead of a skip."
    )(function)


def words(text: str) -> list[str]:
    """The words between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def skip(why: str, require: bool) -> None:
    """End a command that has no GPU to run on: exit code 0, or 1 if one is required."""
    click.echo(f"{'FAIL' if require else 'SKIP'} {why}")
    raise SystemExit(1 if require else 0)


def modules_of(paths: tuple[Path, ...]) -> "list[Module]":
    """The modules at the paths; of a description the module beside it. Raises InputError."""
    from pipegen.compiling.discovery import load_module
    from pipegen.compiling.module import Module
    from pipegen.errors import InputError, Problem

    found, problems = [], []
    for path in paths:
        place = path
        if path.suffix == ".toml" and path.is_file():
            place = path.with_suffix(".py")
            if not place.is_file():
                problems.append(
                    Problem(
                        f"has no module beside it: `pipegen generate {path}` writes {place.name}",
                        file=str(path),
                    )
                )
                continue
        loaded = load_module(place)
        if isinstance(loaded, Module):
            found.append(loaded)
        else:
            problems.append(loaded)
    if problems:
        raise InputError(problems)
    return found
