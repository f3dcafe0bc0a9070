# SPDX-License-Identifier: Apache-2.0
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

EPILOG = """\b
Examples:
  pipegen new my_gemm --op gemm --backend cute --arch sm_90a --cluster 2,1 -o kernels
  pipegen new my_gemm --op gemm --backend pallas --arch sm_90a --tile 128,256,64 --dry-run
  pipegen new                              asks
"""

# Where each key of the description comes from, so that an error names the option that was typed.
OPTION_OF = {
    "kernel.name": "NAME",
    "kernel.op": "--op",
    "kernel.backend": "--backend",
    "kernel.arch": "--arch",
    "kernel.style": "--style",
    "tile.m": "--tile",
    "tile.n": "--tile",
    "tile.k": "--tile",
    "cluster.shape": "--cluster",
    "cluster.cta_group": "--cta-group",
    "dtype.a": "--dtype",
    "dtype.b": "--dtype-b",
    "dtype.out": "--dtype-out",
    "layout.a": "--layout",
    "layout.b": "--layout",
    "pipeline.mainloop.producer": "--producer",
    "pipeline.mainloop.consumer": "--consumer",
    "pipeline.mainloop.stages": "--stages",
    "pipeline.epilogue.stages": "--epilogue-stages",
    "role.consumer.warpgroups": "--consumer-warpgroups",
}


@click.command(epilog=EPILOG)
@click.argument("name", required=False)
@click.option("--op", help="What it computes: gemm.")
@click.option("--backend", help="cute or pallas.")
@click.option("--arch", help="sm_90a.")
@click.option("--style", help="cute: participants, explicit-state. pallas: see `table`.")
@click.option("--producer", help="Who fills a mainloop stage: tma.")
@click.option("--consumer", help="Who empties it: wgmma.")
@click.option("--stages", help="Mainloop stages: a number, or auto.")
@click.option("--epilogue-stages", help="Epilogue buffers: a number, or auto.")
@click.option("--cluster", help="CTAs along M and N: 2,1.")
@click.option("--cta-group", help="2 for tcgen05 CTA pairs.")
@click.option("--tile", help="CTA tile M,N,K in elements: 128,256,64.")
@click.option("--dtype", help="Operand type: bf16, f16, e4m3, e5m2.")
@click.option("--dtype-b", help="Type of B if it differs from A's.")
@click.option("--dtype-out", help="Output type: f32, bf16, f16.")
@click.option("--layout", help="Majors of A and B: k,k or k,n or m,k or m,n.")
@click.option("--consumer-warpgroups", help="1 or 2.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("."),
    show_default=True,
    help="Folder for NAME.toml and NAME.py.",
)
@click.option("--dry-run", is_flag=True, help="Print the files; write nothing.")
@click.option("--diff", is_flag=True, help="Print what would change on disk; write nothing.")
def command(name: str | None, output: Path, dry_run: bool, diff: bool, **options: Any) -> None:
    """Write a description NAME.toml and its kernel NAME.py.

    Bare in a terminal it asks. A file that exists with other text is never overwritten.
    """
    from pipegen.description import KernelDescription
    from pipegen.description_file import description_from_data, dump_description
    from pipegen.errors import InputError
    from pipegen.files import write_files
    from pipegen.planning import plan
    from pipegen.rendering import render

    if not all((name, options["op"], options["backend"], options["arch"])) and _interactive():
        name, options = ask(name, options)
    if not name:
        raise InputError("NAME is missing: say `pipegen new NAME --op … --backend … --arch …`")
    data = data_from_options(name, options)
    try:
        description: KernelDescription = description_from_data(data)
    except InputError as error:
        raise InputError(
            replace(problem, file=OPTION_OF.get(problem.key, "pipegen new"))
            for problem in error.problems
        ) from None
    made = plan(description)
    files = {f"{name}.toml": dump_description(description), **render(made)}
    if dry_run:
        for path, text in files.items():
            click.echo(f"# ---- {path}\n{text}")
    elif diff:
        show_diff(output, files)
    else:
        for written, outcome in write_files(output, files).items():
            click.echo(f"{outcome.value:<9} {written}")
        click.echo(f"next: pipegen check {output / name}.toml")


def data_from_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options as the nested data of a description; words that are no numbers stay words."""
    data: dict[str, Any] = {"pipegen": 1, "kernel": {"name": name}}

    def put(key: str, value: Any) -> None:
        *path, leaf = key.split(".")
        table = data
        for part in path:
            table = table.setdefault(part, {})
        table[leaf] = value

    for key in ("op", "backend", "arch", "style"):
        if options[key] is not None:
            put(f"kernel.{key}", options[key])
    for option, key in (
        ("dtype", "dtype.a"),
        ("dtype_b", "dtype.b"),
        ("dtype_out", "dtype.out"),
        ("producer", "pipeline.mainloop.producer"),
        ("consumer", "pipeline.mainloop.consumer"),
    ):
        if options[option] is not None:
            put(key, options[option])
    for option, key in (
        ("stages", "pipeline.mainloop.stages"),
        ("epilogue_stages", "pipeline.epilogue.stages"),
        ("consumer_warpgroups", "role.consumer.warpgroups"),
        ("cta_group", "cluster.cta_group"),
    ):
        if options[option] is not None:
            put(key, number_or_word(options[option]))
    if options["cluster"] is not None:
        put("cluster.shape", [number_or_word(part) for part in options["cluster"].split(",")])
    for option, keys in (("tile", ("m", "n", "k")), ("layout", ("a", "b"))):
        if options[option] is not None:
            parts = options[option].split(",")
            if len(parts) != len(keys):
                from pipegen.errors import InputError, Problem

                raise InputError(
                    Problem(
                        f"needs {len(keys)} values with commas between, got {options[option]!r}",
                        file=f"--{option}",
                        allowed="128,256,64" if option == "tile" else "k,k or k,n or m,k or m,n",
                    )
                )
            section = "tile" if option == "tile" else "layout"
            for key, part in zip(keys, parts, strict=True):
                put(f"{section}.{key}", number_or_word(part))
    return data


def number_or_word(text: str) -> int | str:
    """The text as a whole number if it is one, else as it stands."""
    text = text.strip()
    return int(text) if text.lstrip("-").isdigit() else text


def ask(name: str | None, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Fill in what the command line left open by asking in the terminal."""
    from pydantic import ValidationError

    from pipegen.description import KernelDescription
    from pipegen.planning.defaults import resolve
    from pipegen.selection_table import kernels

    def choose(key: str, question: str, choices: list[str]) -> None:
        if options[key] is None:
            options[key] = click.prompt(
                question, type=click.Choice(choices), default=choices[0], show_choices=True
            )

    def text(key: str, question: str, default: str) -> None:
        if options[key] is None:
            options[key] = click.prompt(question, default=default)

    keys = list(kernels())
    name = name or click.prompt("Name of the kernel (a Python module name)", default="my_gemm")
    choose("op", "What does it compute", unique(key[0] for key in keys))
    keys = [key for key in keys if key[0] == options["op"]]
    choose("backend", "Which DSL", unique(key[1] for key in keys))
    keys = [key for key in keys if key[1] == options["backend"]]
    choose("arch", "Which architecture", unique(key[2] for key in keys))
    keys = [key for key in keys if key[2] == options["arch"]]
    choose("style", "Which style", unique(key[3] for key in keys) or ["participants"])
    choose("dtype", "Operand type", ["bf16", "f16", "e4m3", "e5m2"])
    try:
        offered = resolve(
            KernelDescription.model_validate(
                {
                    "kernel": {key: options[key] for key in ("op", "backend", "arch", "style")},
                    "dtype": {"a": options["dtype"]},
                }
            )
        )
    except ValidationError:
        return name, options  # an option has no such value: the description's own error says it
    tile, cluster = offered.tile, offered.cluster.shape or (1, 1)
    text("tile", "CTA tile M,N,K", f"{tile.m},{tile.n},{tile.k}")
    text("cluster", "Cluster M,N", f"{cluster[0]},{cluster[1]}")
    text("stages", "Mainloop stages (auto fills SMEM)", "auto")
    return name, options


def unique(words: Any) -> list[str]:
    """The words in order, each once."""
    return list(dict.fromkeys(words))


def show_diff(folder: Path, files: dict[str, str]) -> None:
    """Print a unified diff from what is on disk to `files`."""
    import difflib

    for name, text in files.items():
        path = folder / name
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = difflib.unified_diff(
            old.splitlines(keepends=True), text.splitlines(keepends=True), str(path), str(path)
        )
        click.echo("".join(lines), nl=False)


def _interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()
