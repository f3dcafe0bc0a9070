# SPDX-License-Identifier: Apache-2.0
"""`pipegen verify`: run emitted kernels on the CPU at the sizes where protocols break."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipegen.cli import print_json

if TYPE_CHECKING:
    from pipegen.compiling.module import Module
    from pipegen.emulator.verifying import Verified

EPILOG = """\b
Examples:
  pipegen verify kernels/gemm.py
  pipegen verify kernels --schedules 20 --jobs 4
"""


@click.command("verify", epilog=EPILOG)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--schedules", type=click.IntRange(min=1), default=3, show_default=True,
    help="Runs of each size; the first computes, the others run the protocol alone.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of inputs and schedules.")
@click.option("--jobs", type=click.IntRange(min=1), help="Modules at once. [default: the cores]")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True, max=86400), default=600.0,
    show_default=True, metavar="SECONDS", help="Seconds a module may take.",
)  # fmt: skip
@click.option("--exclude", multiple=True, metavar="GLOB", help="As for `pipegen check`.")
@click.option("--no-cache", is_flag=True, help="Run everything again; keep nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    paths: tuple[Path, ...],
    schedules: int,
    seed: int,
    jobs: int | None,
    timeout: float,
    exclude: tuple[str, ...],
    no_cache: bool,
    as_json: bool,
) -> None:
    """Run emitted kernels on the CPU at small sizes, under several schedules.

    PATHS are files or folders. The sizes come from each module's plan: loops of 1, S - 1, S, S + 1
    and 2 S + 1 tiles for a ring of S stages, two output tiles for each CTA, and edges that are no
    multiple of a tile. The first schedule compares with the float64 reference; the others vary the
    order of warps and asynchronous operations. See `pipegen emulate` for one size by itself.

    Exit code 1: something was found. 2: the input is wrong.
    """
    from pipegen.compiling.cache import default_folder
    from pipegen.compiling.pool import default_jobs
    from pipegen.emulator.verifying import Options, verify_all

    modules = _modules(paths, exclude)
    verdicts = verify_all(
        modules,
        None if no_cache else default_folder(),
        jobs or default_jobs(),
        Options(schedules=schedules, seed=seed),
        timeout,
        None if as_json else _print,
    )
    if as_json:
        pairs = zip(modules, verdicts, strict=True)
        print_json([{"path": str(module.path), **v.as_dict()} for module, v in pairs])
    raise SystemExit(1 if any(verdict.failed for verdict in verdicts) else 0)


def _modules(paths: tuple[Path, ...], exclude: tuple[str, ...]) -> "list[Module]":
    """The modules that can be verified. InputError for what is wrong, or if there is none."""
    from pipegen.compiling.discovery import discover, load_module
    from pipegen.compiling.module import Module
    from pipegen.emulator.verifying import applies_to
    from pipegen.errors import InputError, Problem

    found = discover(paths, exclude)
    loaded = [load_module(path) for path in found.modules]
    problems = [*found.problems, *(each for each in loaded if isinstance(each, Problem))]
    if problems:
        raise InputError(problems)
    modules = [each for each in loaded if isinstance(each, Module) and applies_to(each)]
    if not modules:
        names = ", ".join(map(str, paths))
        raise InputError(f"nothing to verify in {names}: no emitted module with a self-check")
    return modules


def _print(module: "Module", verdict: "Verified") -> None:
    """One module: its verdict and time, then each distinct fault once."""
    from pipegen.emulator.verdict import distinct_faults

    took = "known from before" if verdict.cached else f"{verdict.seconds:.1f} s"
    trials = f"{len(verdict.trials)} runs, {verdict.instructions} instructions, {took}"
    words = {"ok": f"ok       {trials}", "finding": f"FINDING  {trials}"}
    said = words.get(verdict.status, f"{verdict.status.upper()}  {verdict.message}")
    click.echo(f"{module.path}: {said}")
    for (_, sentence), (fault, _) in zip(
        verdict.sentences(), distinct_faults(verdict.trials), strict=False
    ):
        click.echo(f"  {fault.code} {sentence}")
        for place in fault.places:
            click.echo(f"    at {place}")
