# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import click

from pipegen.cli.measured import limit_option, modules_of, require_option, skip

EPILOG = """\b
Examples:
  pipegen run kernels/gemm.py
  pipegen run kernels/gemm.toml --limit 60     the module beside a description
  pipegen run kernels/gemm.py -- --size 4096,4096,4096     its own options
"""


@click.command(epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("more", nargs=-1, type=click.UNPROCESSED)
@limit_option(120.0, "Seconds a module may take; more is a hang.")
@require_option
def command(file: Path, more: tuple[str, ...], limit: float, require_gpu: bool) -> None:
    """Run modules' own checks on this machine's GPU, each in a process of its own.

    FILE is a module, or a description with its module beside it; more may follow. What follows
    `--` goes to each module's own `main`. A module compares fresh data with float64, in memory
    that held NaN.

    Exit code 0: all passed, or were skipped and say why (no GPU, no torch). 1: a module is wrong,
    crashed, or did not end within --limit seconds; the line says which. 2: the call is wrong.
    """
    from pipegen.measuring.running import run_module

    files, own = _split(file, more)
    modules = modules_of(files)
    worst = skipped = 0
    for module in modules:
        done = run_module(module, own, limit)
        for line in done.lines:
            click.echo(f"  {line}")
        click.echo(f"{done.verdict} {module.path}: {done.why}  {done.seconds:.1f} s")
        skipped += done.verdict == "SKIP"
        worst = max(worst, int(done.verdict in ("WRONG", "HANG", "CRASH")), 2 * done.usage)
    if skipped == len(modules) and require_gpu:
        skip("a GPU is required, and every module was skipped", True)
    raise SystemExit(worst)


def _split(file: Path, more: tuple[str, ...]) -> tuple[tuple[Path, ...], list[str]]:
    """The files, and what goes to the modules: from the first word on that is an option."""
    first = next((i for i, word in enumerate(more) if word.startswith("-")), len(more))
    return (file, *map(Path, more[:first])), list(more[first:])
