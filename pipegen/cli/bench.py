# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipegen.cli.measured import (
    against_option,
    limit_option,
    modules_of,
    require_option,
    size_options,
    skip,
    words,
)

if TYPE_CHECKING:
    from pipegen.compiling.module import Module

EPILOG = """\b
Examples:
  pipegen bench kernels/gemm.py
  pipegen bench kernels/gemm.py --shapes deepgemm --against cublas,quack
  pipegen bench kernels/gemm.py --shape 4096,4096,4096 --against my_kernels:matmul
  pipegen bench kernels/gemm.py --shapes bar --json gemm.json
"""


@click.command(epilog=EPILOG)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@size_options
@against_option
@click.option("--rounds", type=click.IntRange(1, 1000), default=30, show_default=True,
              help="Rounds in which all take turns.")  # fmt: skip
@click.option("--json", "target", type=click.Path(path_type=Path), help="Write all figures here.")
@click.option(
    "--plot", type=click.Path(path_type=Path),
    help="Draw rates with the roofline, and ratios, into this .svg or .png (needs matplotlib).",
)  # fmt: skip
@click.option(
    "--from", "source", type=click.Path(path_type=Path),
    help="Take the figures of an earlier --json; measure nothing.",
)  # fmt: skip
@limit_option(60.0, "Seconds a step on the GPU may take; more is a hang, and that one is out.")
@require_option
def command(
    files: tuple[Path, ...],
    sizes: tuple[str, ...],
    lists: tuple[str, ...],
    against: str,
    rounds: int,
    target: Path | None,
    plot: Path | None,
    source: Path | None,
    limit: float,
    require_gpu: bool,
) -> None:
    """Time modules against peers on this machine's GPU, in interleaved rounds.

    FILES are modules of one op, or descriptions with their modules beside them: the fastest counts
    at each size, and all are listed. Each result, a peer's too, is compared with float64 before it
    is timed. Operands rotate beyond L2. Ratios are medians over the rounds, with their deciles:
    what is faster is above 1. The time is the GPU's own: CUDA graphs, or CUPTI where one of those
    compared cannot be captured.

    Exit code 1: a module was wrong, crashed or hung at a size. 2: the call is wrong. Without a GPU
    it says SKIP, exit code 0.
    """
    from pipegen.errors import InputError
    from pipegen.measuring.plotting import check_target
    from pipegen.measuring.report import read_report

    if plot is not None:
        check_target(plot)
    if source is not None:
        if files:
            raise InputError("--from takes the figures of a file: leave FILES out")
        report = read_report(source)
    else:
        if not files:
            raise InputError("name the modules to time, or --from a results file")
        report = measured(modules_of(files), sizes, lists, against, rounds, limit, require_gpu)
    show(report)
    if target is not None:
        from pipegen.files import replace_file

        replace_file(target, json.dumps(report, indent=1) + "\n")
        click.echo(f"wrote {target}")
    if plot is not None:
        from pipegen.measuring.plotting import draw

        draw(report, plot)
        click.echo(f"wrote {plot}")
    failed = {name for row in report["rows"] for name in row["out"]} & set(report["modules"])
    raise SystemExit(1 if failed else 0)


def measured(
    modules: "list[Module]",
    sizes: tuple[str, ...],
    lists: tuple[str, ...],
    against: str,
    rounds: int,
    limit: float,
    require_gpu: bool,
) -> dict[str, Any]:
    """The report of a run on this machine's GPU. Raises InputError; ends where there is no GPU."""
    from pipegen.cli.progress import Progress
    from pipegen.errors import InputError
    from pipegen.measuring.bench import bench
    from pipegen.measuring.machine import Gauge, no_gpu
    from pipegen.measuring.peers import checked_peers, usual_peer
    from pipegen.measuring.process import GpuMeasurer, WorkerDied, WorkerRefused
    from pipegen.measuring.protocol import Entrant
    from pipegen.measuring.report import report_of
    from pipegen.measuring.shapes import chosen_shapes
    from pipegen.vendor.header import read_header

    headers = [read_header(module.text) for module in modules]
    ops = {header.op if header else "" for header in headers}
    if len(ops) != 1 or "" in ops:
        raise InputError(
            "FILES must be modules of one op, with their pipegen headers: these are of "
            + ", ".join(sorted(op or "none" for op in ops))
        )
    (op,) = ops
    if len({module.path.stem for module in modules}) < len(modules):
        raise InputError("FILES must have different names: results are listed by them")
    peers = checked_peers(words(against) or [usual_peer(op)], {op})
    shapes = chosen_shapes(sizes, lists)
    if why := no_gpu():
        skip(why, require_gpu)
    entrants = [Entrant(module.path.stem, module.path.resolve()) for module in modules]
    with GpuMeasurer(limit) as measurer, Gauge() as gauge, Progress() as progress:
        try:
            device = measurer.device()
        except (WorkerDied, WorkerRefused) as error:
            skip(f"the measuring process does not start: {error}", require_gpu)
        if not device["gpu"]:
            skip("torch sees no GPU", require_gpu)
        rows = []
        for number, shape in enumerate(shapes):
            progress.show("measuring", number, len(shapes))
            rows += bench(measurer, entrants, [shape], peers, rounds, ready=gauge.taken)
            rows[-1]["gauge"] = gauge.taken()
        unit = next((facts["unit"] for facts in measurer.loaded.values()), "TFLOP/s")
    return report_of(op, [each.name for each in entrants], peers, rounds, unit, device, rows)


def show(report: dict[str, Any]) -> None:
    """The tables of a report."""
    from pipegen.cli import console
    from pipegen.measuring.report import closing_lines, table

    out = console()
    out.print(table(report))
    for line in closing_lines(report):
        out.print(line, markup=False)
