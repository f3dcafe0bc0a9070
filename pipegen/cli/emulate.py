# SPDX-License-Identifier: Apache-2.0
"""`pipegen emulate`: run one kernel's PTX on the CPU, with the launch that its host code makes."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipegen.cli import print_json
from pipegen.vocabulary import ARCH_ALIASES, ARCHS

if TYPE_CHECKING:
    from pipegen.emulator.cases import Case
    from pipegen.emulator.verdict import Trial

EPILOG = """\b
Examples:
  pipegen emulate kernels/gemm.py                        a size that makes its rings wrap
  pipegen emulate kernels/gemm.py --shape 300,264,200 --sms 2 --schedules 20
  pipegen emulate my_add.py --entry check_add --arch sm_90a
"""


def _shape(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[int, ...]:
    if not value:
        return ()
    try:
        sizes = tuple(int(size) for size in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of sizes, such as 256,256,128.") from None
    if min(sizes) < 1:
        raise click.BadParameter(f"{value!r}: a size is at least 1.")
    return sizes


def _arch(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    name = ARCH_ALIASES.get(value, value) if value else None
    if name is not None and name not in ARCHS:
        raise click.BadParameter(f"{value!r} is no architecture. Allowed: {', '.join(ARCHS)}.")
    return name


@click.command("emulate", epilog=EPILOG)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--entry", metavar="NAME", help="A function of FILE without arguments to call.")
@click.option(
    "--shape", default="", metavar="M,N[,K]", callback=_shape,
    help="Sizes of an emitted module's operands. [default: its rings wrap once]",
)  # fmt: skip
@click.option("--arch", callback=_arch, help="Architecture of a file without a pipegen header.")
@click.option(
    "--sms", type=click.IntRange(min=1),
    help="SMs that the GPU claims; few make a persistent kernel loop. [default: the real number]",
)  # fmt: skip
@click.option(
    "--schedules", type=click.IntRange(min=1), default=1, show_default=True,
    help="Runs, each with another order of warps and of asynchronous operations.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of inputs and schedules.")
@click.option("--sync-only", is_flag=True, help="The protocol without the data; faster.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N instructions.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    file: Path,
    entry: str | None,
    shape: tuple[int, ...],
    arch: str | None,
    sms: int | None,
    schedules: int,
    seed: int,
    sync_only: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """Run a CuTe DSL or Pallas kernel on the CPU, without a GPU, and say what is wrong with it.

    FILE is compiled as for the GPU. Its launch is captured, and the PTX is executed with all warps
    of all CTAs, mbarriers, TMA, wgmma and tcgen05. Deadlocks, races, missing fences, wrong counts
    and accesses out of bounds are named with a code (`pipegen explain CODE`) and their lines.

    A module that pipegen emitted is tried with its own self-check: random inputs, poisoned outputs,
    a float64 reference. Of any other file, --entry names a function that builds its arrays (numpy,
    torch or jax, on the CPU), calls the kernel, and raises or returns False if the result is wrong.

    Exit code 1: something was found, or the result is wrong. 2: the input is wrong, or uses what
    the emulator does not know.
    """
    from pipegen.emulator.trying import How, try_entry, try_module

    how = How(schedules=schedules, data_schedules=0 if sync_only else schedules, seed=seed)
    if limit:
        how = replace(how, instructions=limit)
    if entry:
        trials = try_entry(file, entry, _entry_arch(file, arch), sms, how)
    else:
        header_arch, case = _case(file, shape, sms)
        trials = try_module(file, header_arch, [case], how)
    if as_json:
        print_json([trial.as_dict() for trial in trials])
    else:
        _print(trials)
    raise SystemExit(0 if all(trial.ok for trial in trials) else 1)


def _entry_arch(file: Path, arch: str | None) -> str:
    from pipegen.errors import InputError

    chosen = arch or os.environ.get("CUTE_DSL_ARCH", "")
    if not chosen:
        raise InputError(f"{file}: --arch must say for which architecture, or set CUTE_DSL_ARCH")
    return chosen


def _case(file: Path, shape: tuple[int, ...], sms: int | None) -> "tuple[str, Case]":
    """(architecture, case) of an emitted module, from its header's description."""
    from pipegen.description_file import parse_description
    from pipegen.emulator.cases import Case, default_case
    from pipegen.emulator.verdict import EMULATED
    from pipegen.errors import InputError, listing
    from pipegen.planning import plan
    from pipegen.vendor.header import read_header

    header = read_header(file.read_text("utf-8", "replace"))
    if header is None:
        raise InputError(
            f"{file}: has no pipegen header. Name a function of it that takes no arguments with "
            "--entry"
        )
    if header.backend not in EMULATED:
        raise InputError(
            f"{file}: is a module of backend {header.backend!r}; the emulator runs "
            f"{listing(EMULATED)}"
        )
    if shape:
        names = ("m", "n", "k", "batches")
        return header.arch, Case("--shape", dict(zip(names, shape, strict=False)), sms or 0)
    case = default_case(plan(parse_description(header.description, str(file))))
    return header.arch, replace(case, sms=sms or case.sms)


def _print(trials: "tuple[Trial, ...]") -> None:
    from pipegen.emulator.verdict import distinct_faults

    for trial in trials:
        sizes = " ".join(f"{name}={size}" for name, size in trial.sizes.items()) or trial.label
        verdict = "PASS" if trial.ok else "FAIL"
        computed = "" if trial.passed is not None else ", protocol only"
        click.echo(
            f"{verdict} {sizes}: schedule {trial.schedule} ({trial.policy}{computed}), "
            f"{trial.launches} launch{'' if trial.launches == 1 else 'es'}, "
            f"{trial.instructions} instructions in {trial.seconds:.1f} s"
        )
        for line in trial.said.splitlines():
            click.echo(f"  {line}")
    for fault, trial in distinct_faults(trials):
        click.echo(f"\n{fault.paragraph()}")
        for place in fault.places:
            click.echo(f"  at {place}")
        click.echo(
            f"  under schedule {trial.schedule} ({trial.policy}); pipegen explain {fault.code}"
        )
