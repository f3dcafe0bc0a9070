# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipegen.cli.completing import words_of
from pipegen.cli.measured import (
    SECONDS,
    against_option,
    limit_option,
    require_option,
    size_options,
    skip,
    words,
)

if TYPE_CHECKING:
    from pipegen.description import KernelDescription
    from pipegen.measuring.shapes import Shape
    from pipegen.tuning.search import Options, Outcome, Proposals

# Tiles of a size that the model, or NVIDIA's, may propose; the usual ones come on top.
TILES = 6
EPILOG = """\b
Examples:
  pipegen tune kernels/gemm.toml --shape 4096,4096,4096
  pipegen tune kernels/gemm.toml --shapes deepgemm --write
  pipegen tune kernels/gemm.toml --shapes bar --keep cluster.shape --most 24
  pipegen tune kernels/gemm.toml --dry-run                    the candidates; no GPU
  pipegen tune kernels/gemm.toml --executor processes --jobs 8
"""


def _tunable() -> tuple[str, ...]:
    from pipegen.tuning.space import TUNABLE

    return TUNABLE


@click.command(epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
@size_options
@against_option
@click.option(
    "--results", type=click.Path(path_type=Path),
    help="Keep the results here, and go on from what is there. [default: FILE's name.tune.json]",
)  # fmt: skip
@click.option("--write", is_flag=True, help="Put the best values for all sizes into FILE.")
@click.option(
    "--keep", multiple=True, metavar="KEY", shell_complete=words_of(_tunable),
    help="A key whose value in FILE stays; may be repeated.",
)  # fmt: skip
@click.option("--most", type=click.IntRange(1, 10_000), default=48, show_default=True,
              help="Candidates of a size to begin with.")  # fmt: skip
@click.option(
    "--order", type=click.Choice(["model", "nvidia"]), default="model", show_default=True,
    help="Which tiles come first: by waves and loads, or by nvidia-matmul-heuristics.",
)  # fmt: skip
@click.option("--near", type=click.IntRange(0, 1000), default=20, show_default=True,
              help="Neighbours of a size's fastest ones to try; 0 for none.")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Measure everything again.")
@click.option("--dry-run", is_flag=True, help="List the candidates and what was dropped; no GPU.")
@click.option(
    "--executor", default="local", show_default=True, metavar="local|processes|dask://HOST:PORT",
    help="Where to compile and to measure.",
)  # fmt: skip
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Modules to compile at once. [default: the cores]"
)
@click.option("--timeout", type=SECONDS, default=120.0, show_default=True, metavar="SECONDS",
              help="Seconds a module may take to compile.")  # fmt: skip
@limit_option(30.0, "Seconds a step on the GPU may take; more is a hang, and that one is out.")
@click.option(
    "--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@require_option
def command(
    file: Path,
    sizes: tuple[str, ...],
    lists: tuple[str, ...],
    against: str,
    results: Path | None,
    write: bool,
    keep: tuple[str, ...],
    most: int,
    order: str,
    near: int,
    fresh: bool,
    dry_run: bool,
    executor: str,
    jobs: int | None,
    timeout: float,
    limit: float,
    output: str,
    require_gpu: bool,
) -> None:
    """Search for the values of FILE, a description, that are fastest at some sizes.

    Searched are the tile, the cluster, who computes a tile (one warpgroup, two together, two in
    ping-pong), and, around the fast ones, stages, store buffers, registers and the raster group.
    Each candidate is planned first; what the rules refuse is not compiled. The rest is compiled in
    parallel, without a GPU, compared with float64, and timed in interleaved rounds by successive
    halving, beside the peers. The description as it stands always takes part to the end.

    The results file is written after each size: a search that was interrupted goes on, and one
    that is done is not measured again. It can be committed.

    Exit code 1: no candidate could be measured at some size. 2: the call is wrong. Without a GPU it
    says SKIP, exit code 0.
    """
    from pipegen.description_file import load_description
    from pipegen.errors import InputError, Problem, listing
    from pipegen.measuring.peers import checked_peers, usual_peer
    from pipegen.measuring.shapes import chosen_shapes
    from pipegen.tuning.executors import check_executor
    from pipegen.tuning.results import read_results
    from pipegen.tuning.search import Options
    from pipegen.tuning.space import SEARCHED_OPS

    description = load_description(file)
    _check_keys(keep)
    op = description.kernel.op
    if op not in SEARCHED_OPS:
        raise InputError(
            Problem(
                "has nothing that a search may change", "kernel.op", op, listing(SEARCHED_OPS),
                file=str(file),
            )
        )  # fmt: skip
    shapes = chosen_shapes(sizes, lists)
    peers = tuple(checked_peers(words(against) or [usual_peer(op)], {op}))
    options = Options(peers, keep, most, near, write, limit, timeout)
    check_executor(executor)
    proposed = _proposals(description, shapes, order)
    target = results or file.with_suffix(".tune.json")
    known = read_results(target)
    if dry_run:
        _show_space(description, proposed, options, output)
        return
    if fresh:
        known.entries.clear()
    outcome = _search(description, proposed, options, known, target, executor, jobs, require_gpu)
    _show(outcome, peers, target, output)
    if write:
        _write(file, outcome, keep)
    raise SystemExit(0 if all(result.ranked for result in outcome.shapes) else 1)


def _check_keys(keep: tuple[str, ...]) -> None:
    from pipegen.errors import InputError, Problem, listing, nearest_word

    tunable = _tunable()
    wrong = [key for key in keep if key not in tunable]
    if wrong:
        raise InputError(
            Problem(
                "is no key that is searched", "--keep", wrong[0], listing(tunable),
                nearest_word(wrong[0], list(tunable)),
            )
        )  # fmt: skip


def _proposals(description: "KernelDescription", shapes: "list[Shape]", order: str) -> "Proposals":
    from pipegen.hardware import HARDWARE
    from pipegen.planning.defaults import resolve
    from pipegen.tuning.order import nvidia_tiles, tiles_for
    from pipegen.tuning.proposing import proposals

    resolved = resolve(description)
    first: list[list[tuple[int, int]]] = [[] for _ in shapes]
    if order == "nvidia":
        types = resolved.dtype.a, str(resolved.dtype.out)
        first = nvidia_tiles(shapes, types, (resolved.layout.a, resolved.layout.b), 4)
    sms = HARDWARE[description.kernel.arch].sm_count
    return {
        shape: proposals(description, shape, tiles_for(shape, sms, TILES, own))
        for shape, own in zip(shapes, first, strict=True)
    }


def _search(
    description: "KernelDescription",
    proposed: "Proposals",
    options: "Options",
    known: Any,
    target: Path,
    executor: str,
    jobs: int | None,
    require_gpu: bool,
) -> "Outcome":
    from functools import partial

    from pipegen.cli.progress import Progress
    from pipegen.compiling.pool import default_jobs
    from pipegen.measuring.machine import machine, no_gpu
    from pipegen.measuring.process import WorkerDied, WorkerRefused
    from pipegen.tuning.executors import place
    from pipegen.tuning.jobs import close, device_of
    from pipegen.tuning.results import write_results
    from pipegen.tuning.search import search

    here = not executor.startswith("dask://")
    if here and (why := no_gpu()):
        skip(why, require_gpu)
    with place(executor, jobs or default_jobs()) as found, Progress() as progress:
        try:
            device = found.measuring.submit(device_of, options.factory, options.limit).result()
        except (WorkerDied, WorkerRefused) as error:
            skip(f"the measuring process does not start: {error}", require_gpu)
        if not device["gpu"]:
            skip("torch sees no GPU", require_gpu)
        known.facts = {"machine": machine(), "device": device}
        try:
            return search(
                description, proposed, options, known, found, device["gpu"],
                partial(write_results, target), progress.show,
            )  # fmt: skip
        finally:
            if here:
                found.measuring.submit(close).result()


def _show_space(
    description: "KernelDescription", proposed: "Proposals", options: "Options", output: str
) -> None:
    from pipegen.cli import print_json
    from pipegen.measuring.shapes import shape_text
    from pipegen.tuning.search import first_space
    from pipegen.tuning.space import Planner, reasons

    planner = Planner(description, options.keep)
    found = first_space(planner, proposed, options.most)
    every = found.candidates()
    if output == "json":
        print_json(
            {
                "candidates": {each.name: each.as_dict() for each in every},
                "sizes": {
                    shape_text(shape): [each.name for each in own]
                    for shape, own in found.by_shape.items()
                },
                "left_out": found.left_out,
                "dropped": [
                    {"values": dict(each.values), "rule": each.code, "why": each.why}
                    for each in planner.dropped
                ],
            }
        )
        return
    for candidate in every:
        click.echo(candidate.name)
    most = max(len(own) for own in found.by_shape.values())
    click.echo(
        f"{len(every)} candidates, at most {most} at a size; {found.left_out} more beyond --most"
    )
    for code, (count, why) in reasons(planner.dropped).items():
        click.echo(f"dropped by {code}: {count}, the first because {why}")


def _show(outcome: "Outcome", peers: tuple[str, ...], target: Path, output: str) -> None:
    from pipegen.cli import console, print_json
    from pipegen.tuning.report import as_data, closing_lines, table

    if output == "json":
        print_json(as_data(outcome, peers))
        return
    out = console()
    out.print(table(outcome, peers))
    for line in closing_lines(outcome, peers):
        out.print(line, markup=False)
    out.print(f"results: {target}", markup=False)


def _write(file: Path, outcome: "Outcome", keep: tuple[str, ...]) -> None:
    from pipegen.tuning.ranking import overall
    from pipegen.tuning.writing import write_best

    ranking = overall(outcome.shapes)
    if not ranking:
        click.echo("nothing written: no candidate is right at every size")
        return
    for path, what in write_best(file, outcome.candidates[ranking[0].name], keep):
        click.echo(f"{what}  {path}")
