# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import click

EPILOG = """\b
Example:
  pipegen export kernels/gemm.py -o build
"""


@click.command(epilog=EPILOG)
@click.argument("module", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("."), show_default=True,
    help="Folder for NAME.o and NAME.h.",
)  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True, max=86400), default=120.0,
    show_default=True, metavar="SECONDS", help="Seconds that compiling may take.",
)  # fmt: skip
def command(module: Path, output: Path, timeout: float) -> None:
    """Compile a CuTe MODULE ahead of time: an object file and a C header. Needs no GPU.

    The header declares `cute_dsl_NAME_wrapper(module, problem, stream)`. `problem` points to the
    64-bit numbers (addresses, sizes, strides) that the module's own function packs just before it
    launches: look there for their order. Python loads the object with
    `cute.runtime.load_module("NAME.o").NAME`; a C program links it with the DSL's
    libcuda_dialect_runtime_static.a and the CUDA runtime.
    """
    from pipegen.compiling.discovery import load_module
    from pipegen.compiling.exporting import export
    from pipegen.compiling.module import Module
    from pipegen.errors import InputError

    loaded = load_module(module)
    if not isinstance(loaded, Module):
        raise InputError(loaded)
    for path in export(loaded, output, timeout):
        click.echo(f"wrote {path}")
