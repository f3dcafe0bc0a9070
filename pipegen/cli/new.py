# SPDX-License-Identifier: Apache-2.0
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from pipegen.cli import show_diff
from pipegen.cli.completing import emitted, vocabulary

EPILOG = """\b
Examples:
  pipegen new my_gemm --op gemm --backend cute --arch sm_90a --cluster 2,1 -o kernels
  pipegen new my_gemm --op gemm --backend pallas --arch sm_90a --tile 128,256,64 --dry-run
  pipegen new my_copy --op stream --backend cute --arch sm_90a --set layout.gather=true --dry-run
  pipegen new my_graph --op custom --backend cute --arch sm_90a --roles load,convert,store
  pipegen new my_graph --op custom --backend cute --arch sm_90a --graph product --dtype-b i8
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
    "dtype.scale_group": "--scale-group",
    "stream.y": "--y",
    "tensor.x.dtype": "--dtype",
    "tensor.out.dtype": "--dtype-out",
}


@click.command(epilog=EPILOG)
@click.argument("name", required=False)
@click.option(
    "--op",
    shell_complete=emitted(0),
    help="What it computes: gemm, gemm_rowsum, mixed_gemm, stream, reduce, custom.",
)
@click.option("--backend", shell_complete=emitted(1), help="cute or pallas.")
@click.option("--arch", shell_complete=emitted(2), help="sm_90a, sm_100a.")
@click.option(
    "--style",
    shell_complete=emitted(3),
    help="cute: participants, explicit-state. "
    "pallas: warp-specialized, emit-pipeline, pallas-call.",
)
@click.option(
    "--producer",
    shell_complete=vocabulary("PRODUCERS"),
    help="Who fills a mainloop stage: tma, cp_async, thread (stream).",
)
@click.option(
    "--consumer",
    shell_complete=vocabulary("CONSUMERS"),
    help="Who empties it: wgmma, umma (sm_100a), thread (stream).",
)
@click.option("--stages", help="Mainloop stages: a number, or auto.")
@click.option("--epilogue-stages", help="Epilogue buffers: a number, or auto.")
@click.option("--cluster", help="CTAs along M and N: 2,1.")
@click.option("--cta-group", help="CTAs to an MMA: 1, or 2 on sm_100a.")
@click.option("--tile", help="CTA tile M,N,K in elements: 128,256,64; stream: M,N.")
@click.option(
    "--dtype", shell_complete=vocabulary("DTYPES"), help="Operand type: bf16, f16, e4m3, e5m2."
)
@click.option("--dtype-b", help="Type of B if it differs from A's; mixed_gemm: i8, i4.")
@click.option("--dtype-out", help="Output type: f32, bf16, f16.")
@click.option("--scale-group", help="mixed_gemm: K that shares a scale; 0: one a channel.")
@click.option("--layout", help="Majors of A and B: k,k or k,n or m,k or m,n.")
@click.option("--consumer-warpgroups", help="sm_90a: 1 or 2; stream: 1 to 4.")
@click.option("--graph", help="custom: line (of --roles), product, two-products.")
@click.option("--roles", help="custom: roles in a line: load,compute,store.")
@click.option("--y", help="stream: second input: none, matrix, row.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any key of the description: scheduler.tiles=clc. May be repeated.",
)
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
    from pipegen.planning import plan
    from pipegen.rendering import render

    if not all((name, options["op"], options["backend"], options["arch"])) and _interactive():
        from pipegen.cli.asking import ask

        name, options = ask(name, options, data_from_options, OPTION_OF)
    if not name:
        raise InputError("NAME is missing: say `pipegen new NAME --op … --backend … --arch …`")
    data = data_from_options(name, options)
    try:
        description: KernelDescription = description_from_data(data)
    except InputError as error:
        raise InputError(
            replace(problem, file=OPTION_OF.get(problem.key, option_that_set(problem.key, options)))
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
        _write(output, name, files)


def _write(output: Path, name: str, files: dict[str, str]) -> None:
    """Write description and module; in a project with its lock, and where its modules go."""
    from pipegen.files import write_files
    from pipegen.vendor.project import find_project, members

    project = find_project()
    toml = f"{name}.toml"
    if project is None:
        written = write_files(output, files)
    else:
        from pipegen.cli.generate import write_project
        from pipegen.files import Outcome

        written = write_files(output, {toml: files[toml]})
        listed = {path.resolve() for path in members(project)[0]}
        try:
            if (output / toml).resolve() in listed:
                written |= write_project(project, [output / toml])
            else:
                written |= write_files(output, files)
        except BaseException:
            if written[output / toml] is Outcome.CREATED:
                (output / toml).unlink()  # both or neither
            raise
        if (output / toml).resolve() not in listed:
            click.echo(
                f"{output / toml} is no part of the project: add it to descriptions in "
                f"{project.file}, then `pipegen generate`"
            )
    for path, outcome in written.items():
        click.echo(f"{outcome.value:<9} {path}")
    module = next(path for path in written if path.suffix == ".py")
    click.echo("next:")
    for command_line, does in (
        (f"pipegen plan {output / toml}", "every number, and why"),
        (f"pipegen check {module}", "compiles it; no GPU needed"),
        (f"python {module}", "runs it on a GPU against float64"),
    ):
        click.echo(f"  {command_line:<40}  {does}")


def option_that_set(key: str, options: dict[str, Any]) -> str:
    """`--set KEY` if that is where a key comes from, else the command."""
    given = (setting.partition("=")[0].strip() for setting in options["settings"])
    return f"--set {key}" if key in given else "pipegen new"


def data_from_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the nested data of a description; words that are no numbers stay words."""
    data: dict[str, Any] = {"pipegen": 1, "kernel": {"name": name}}
    if options["op"] == "custom":
        from pipegen.cli.new_graph import first_graph

        data |= first_graph(options)
        taken = ("dtype", "dtype_b", "dtype_out", "stages")  # by the graph
        options = {**options, **dict.fromkeys(taken)}

    def put(key: str, value: Any) -> None:
        *path, leaf = key.split(".")
        table = data
        for part in path:
            inner = table.setdefault(part, {})
            # A value where a table should be: the model says so.
            table[part] = table = inner if isinstance(inner, dict) else {}
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
        ("y", "stream.y"),
    ):
        if options[option] is not None:
            put(key, options[option])
    for option, key in (
        ("stages", "pipeline.mainloop.stages"),
        ("epilogue_stages", "pipeline.epilogue.stages"),
        ("consumer_warpgroups", "role.consumer.warpgroups"),
        ("cta_group", "cluster.cta_group"),
        ("scale_group", "dtype.scale_group"),
    ):
        if options[option] is not None:
            put(key, number_or_word(options[option]))
    symbols, usual_tile = tile_symbols(options)
    for option, section, keys, example in (
        ("tile", "tile", symbols, usual_tile),
        ("layout", "layout", ("a", "b"), "k,k or k,n or m,k or m,n"),
        ("cluster", "", ("m", "n"), "1,1 or 2,1 or 1,2 or 2,2"),
    ):
        if options[option] is not None:
            parts = [number_or_word(part) for part in options[option].split(",")]
            numbers = all(isinstance(part, int) for part in parts)
            if len(parts) != len(keys) or (option != "layout" and not numbers):
                from pipegen.errors import InputError, Problem

                raise InputError(
                    Problem(
                        f"needs {len(keys)} {'letters' if option == 'layout' else 'whole numbers'} "
                        f"with commas between, got {options[option]!r}",
                        file=f"--{option}",
                        allowed=example,
                        nearest=example.split(" or ")[0],
                    )
                )
            if not section:
                put("cluster.shape", parts)
                continue
            for key, part in zip(keys, parts, strict=True):
                put(f"{section}.{key}", part)
    for setting in options["settings"]:
        put(*key_and_value(setting))
    return data


def tile_symbols(options: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """The keys of the tile, and an example of it."""
    if options["op"] == "custom" and options["graph"] in ("product", "two-products"):
        twice = options["graph"] == "two-products"
        return (tuple("mnkp"), "128,64,64,128") if twice else (tuple("mnk"), "128,128,64")
    if options["op"] in ("stream", "reduce", "custom"):  # have no K
        return ("m", "n"), "32,256"
    return ("m", "n", "k"), "128,256,64"


def key_and_value(setting: str) -> tuple[str, Any]:
    """`KEY=VALUE`: a dotted key, and a TOML value or a word."""
    from pipegen.errors import InputError, Problem

    key, equals, text = setting.partition("=")
    key, text = key.strip(), text.strip()
    if not equals or not re.fullmatch(r"\w+(\.\w+)+", key) or not text:
        raise InputError(
            Problem(
                f"needs a dotted key, = and a value, got {setting!r}",
                file="--set",
                allowed="KEY=VALUE",
                nearest="scheduler.tiles=clc",
            )
        )
    if re.fullmatch(r"-?[0-9]+|true|false|\[.*\]|\".*\"", text):
        try:
            return key, tomllib.loads(f"value = {text}")["value"]
        except (tomllib.TOMLDecodeError, ValueError):
            return key, text
    return key, text


def number_or_word(text: str) -> int | str:
    """The text as a whole number if it is one, else as it stands."""
    text = text.strip()
    # Longer numbers are no size of anything, and int() refuses very long ones.
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else text


def _interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()
