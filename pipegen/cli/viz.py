# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pipegen.viz.latency import Rates

EPILOG = """\b
Examples:
  pipegen viz kernels/gemm.toml
  pipegen viz kernels/gemm.toml -o pictures --rate latency=1200
"""


@click.command(epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("."), show_default=True,
    help="Folder for NAME.html and NAME.svg.",
)  # fmt: skip
@click.option(
    "--rate", "rates", multiple=True, metavar="NAME=VALUE",
    help="A number of the model: flops, load_bytes, store_bytes, smem_bytes (a cycle), latency, "
    "issue (cycles). May be repeated.",
)  # fmt: skip
def command(file: Path, output: Path, rates: tuple[str, ...]) -> None:
    """Draw the pipeline of FILE: roles over time, the stages of the ring, who waits for whom.

    Writes a page that needs nothing else, and its picture alone as SVG. The times come from a
    simple latency model, whose numbers are on the page: a help to think with, no measurement.
    """
    from pipegen.description_file import load_description
    from pipegen.planning import plan
    from pipegen.viz.drawing import page, svg
    from pipegen.viz.latency import simulate

    made = plan(load_description(file))
    timeline = simulate(made, _rates(made.description.kernel.arch, rates))
    for name, text in (
        (f"{made.name}.html", page(made, timeline)),
        (f"{made.name}.svg", svg(timeline)),
    ):
        _write(output / name, text)
        click.echo(f"wrote {output / name}")
    click.echo(timeline.verdict())


def _rates(arch: str, settings: tuple[str, ...]) -> "Rates":
    import dataclasses

    from pipegen.errors import InputError, Problem, listing, nearest_word
    from pipegen.viz.latency import Rates, rates_for

    names = [field.name for field in dataclasses.fields(Rates)]
    changes: dict[str, int] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not text.isdecimal() or not 0 < int(text[:12]) <= 10**9 or len(text) > 12:
            raise InputError(
                Problem(
                    f"needs a name, = and a whole number from 1, got {setting!r}",
                    file="--rate", nearest="latency=700",
                )
            )  # fmt: skip
        if name not in names:
            raise InputError(
                Problem(
                    f"{name!r} is no number of the model", file="--rate", allowed=listing(names),
                    nearest=nearest_word(name, names),
                )
            )  # fmt: skip
        changes[name] = int(text)
    return rates_for(arch, changes)


def _write(path: Path, text: str) -> None:
    """Write a picture; only a picture of ours is overwritten."""
    from pipegen.errors import InputError, Problem
    from pipegen.viz.drawing import MARK

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and MARK not in path.read_text("utf-8", "replace")[:2000]:
            raise InputError(Problem("exists and is no picture of pipegen's", file=str(path)))
        path.write_text(text, "utf-8")
    except OSError as error:
        raise InputError(Problem(f"cannot be written: {error.strerror}", file=str(path))) from None
