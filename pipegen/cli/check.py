# SPDX-License-Identifier: Apache-2.0
import math
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipegen.cli.progress import Progress
from pipegen.vocabulary import ARCH_ALIASES, ARCHS

if TYPE_CHECKING:
    from pipegen.compiling.checking import Level
    from pipegen.compiling.environments import Wanted
    from pipegen.report import Report
    from pipegen.vendor.project import Project

EPILOG = """\b
Examples:
  pipegen check                               the project, or all below this folder
  pipegen check kernels                       all below kernels/
  pipegen check kernels/gemm.py --no-cache    one, compiled again
  pipegen check . --exclude 'old_*' --exclude tests/data    without some files and folders
  pipegen check --with nvidia-cutlass-dsl==4.7.1 --with jax==0.11.2     before an upgrade
  pipegen check kernels --format github --require cute      in CI: a skip is a failure
"""

_DAY_SECONDS = 86400


def _dsls(_ctx: click.Context, _param: click.Parameter, value: str) -> frozenset[str]:
    from pipegen.compiling.installed import DSLS

    names = [name.strip() for name in value.split(",") if name.strip()]
    wrong = [name for name in names if name not in DSLS]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is no DSL. Allowed: {', '.join(DSLS)}.")
    return frozenset(names)


def _arch(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    name = ARCH_ALIASES.get(value, value)
    if name not in ARCHS:
        raise click.BadParameter(f"{value!r} is no architecture. Allowed: {', '.join(ARCHS)}.")
    return name


def _seconds(_ctx: click.Context, _param: click.Parameter, value: float) -> float:
    # A range takes nan: it is neither below nor above.
    if not math.isfinite(value):
        raise click.BadParameter(f"{value} is no number of seconds.")
    return value


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--format", "output", type=click.Choice(["text", "json", "github", "junit", "sarif"]),
    default="text", show_default=True,
)  # fmt: skip
@click.option(
    "--level", type=click.Choice(["fresh", "compile", "verify"]), default="compile",
    show_default=True,
    help="How far to check; fresh needs no DSL and takes a moment, verify takes minutes.",
)  # fmt: skip
@click.option("--verify", is_flag=True, help="As --level verify: run the kernels on the CPU.")
@click.option("--pristine", is_flag=True, help="An edited file is a finding, too.")
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Modules to compile at once. [default: the cores]"
)
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True, max=_DAY_SECONDS), default=120.0,
    show_default=True, callback=_seconds, metavar="SECONDS",
    help="Seconds a module may take to compile.",
)  # fmt: skip
@click.option(
    "--exclude", multiple=True, metavar="GLOB",
    help="Leave out files and folders below PATHS whose name or path matches; may be repeated.",
)  # fmt: skip
@click.option("--no-cache", is_flag=True, help="Compile everything again; keep nothing.")
@click.option(
    "--require", default="", metavar="DSL[,DSL]", callback=_dsls,
    help="Fail if modules of this DSL (cute, pallas) are skipped.",
)  # fmt: skip
@click.option(
    "--with", "with_", multiple=True, metavar="PACKAGE==VERSION[,…]",
    help="Compile under these versions, too, in an environment of their own; may be repeated.",
)  # fmt: skip
@click.option("--versions", is_flag=True, help="As --with for each of the project's `versions`.")
@click.option(
    "--arch", default="sm_90a", show_default=True, callback=_arch,
    help="Architecture of files that have no pipegen header.",
)  # fmt: skip
def command(
    paths: tuple[Path, ...],
    output: str,
    level: "Level",
    verify: bool,
    pristine: bool,
    jobs: int | None,
    timeout: float,
    exclude: tuple[str, ...],
    no_cache: bool,
    require: frozenset[str],
    with_: tuple[str, ...],
    versions: bool,
    arch: str,
) -> None:
    """Check that kernels are fresh and compile. Needs no GPU.

    PATHS are files or folders (default: the project of pipegen.toml or pyproject.toml, or else the
    current folder). Each module is compared with what its
    description gives today, and compiled to SASS in a process of its own by the DSL that is
    installed here. Registers, spills and SMEM are read from what the compiler wrote.

    Hidden folders and virtual environments are left out. Results are kept in
    $XDG_CACHE_HOME/pipegen (~/.cache/pipegen) until a source or a compiler changes; --no-cache
    neither reads nor writes there. So are the environments of --with, which `uv` or `pip` fill.

    \b
    fresh       as its description and the template give it today
    stale       description or template changed since: `pipegen generate` or `update`
    missing     the description is there, the module is not
    orphan      the module is there, the project has no description for it
    conflicted  marks of a merge conflict are in it
    edited      changed by hand, otherwise up to date: fine
    pristine    no description beside it, and as pipegen wrote it: fine
    -           has no pipegen header, or its description is wrong

    Exit code 1: a module is stale, missing, orphaned or conflicted, does not compile, spills
    registers, has its wgmma serialized, or does not fit in SMEM; with --verify if the emulator
    finds something (see `pipegen verify`); with --pristine also if it is edited. 2: the
    input is wrong. 130: stopped with Ctrl-C.
    """
    from pipegen.compiling.cache import default_folder
    from pipegen.compiling.checking import check
    from pipegen.vendor.project import find_project

    project = find_project()
    signal.signal(signal.SIGTERM, _stop)
    try:
        with Progress() as progress:
            report = check(
                paths,
                cache_folder=None if no_cache else default_folder(),
                jobs=jobs,
                timeout=timeout,
                require=require,
                arch=arch,
                progress=progress.show,
                exclude=exclude,
                project=project,
                versions=_wanted(with_, project, versions),
                level="verify" if verify else level,
                pristine=pristine,
            )
    except KeyboardInterrupt:
        # click would make it 1, which says that a check found something.
        click.echo("stopped", err=True)
        raise SystemExit(128 + signal.SIGINT) from None
    _print(report, output)
    raise SystemExit(report.exit_code)


def _wanted(options: tuple[str, ...], project: "Project | None", listed: bool) -> "list[Wanted]":
    """The environments that were asked for. Raises InputError with every wrong one."""
    from pipegen.compiling.environments import parse_wanted
    from pipegen.errors import InputError, Problem

    asked = [(text, "--with") for text in options]
    if listed:
        if project is None or not project.versions:
            raise InputError(
                "--versions takes the key `versions` of the project's file, and there is none: say "
                "--with PACKAGE==VERSION"
            )
        asked += [(text, f"{project.file}: versions") for text in project.versions]
    parsed = [parse_wanted(text, source) for text, source in asked]
    problems = [found for found in parsed if isinstance(found, Problem)]
    if problems:
        raise InputError(problems)
    unique = dict.fromkeys(found for found in parsed if not isinstance(found, Problem))
    return list(unique)


def _stop(number: int, _frame: object) -> None:
    """Leave like on Ctrl-C, so that no compiler process stays behind."""
    raise SystemExit(128 + number)


def _print(report: "Report", output: str) -> None:
    from pipegen.report import closing_lines, rich_table
    from pipegen.report_formats import FORMATS

    if output == "text":
        for problem in report.problems:
            click.echo(f"error: {problem.paragraph()}", err=True)
    if output != "text" or not sys.stdout.isatty():
        sys.stdout.write(FORMATS[output](report))
        return
    from pipegen.cli import console

    out = console()
    if report.modules:
        out.print(rich_table(report))
    for line in closing_lines(report):
        out.print(line, markup=False)
