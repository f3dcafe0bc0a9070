# SPDX-License-Identifier: Apache-2.0
"""Checks or times one emitted module on this machine's GPU; prints one JSON object.

    python benchmarks/worker.py verify MODULE
    python benchmarks/worker.py speed --sizes M,N,K[;M,N,K] MODULE [SAME_WITH_ANOTHER_TILE ...] \
        [--against PEER]

Runs in its own process (see hopper.py), so that a deadlock costs its time limit and no more. With
--turn, a file to lock, such processes time one after the other, though they start at once.
Data are fresh and random for each size; outputs lie in memory that held NaN; the reference is
float64.
"""

import argparse
import fcntl
import json
import os
import random
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from code_digest import code_digest
from operators import TOLERANCE, WORST, Call, Operator, Size, op_of, worst_error


def verify(kernel: Operator) -> list[dict[str, Any]]:
    """Each size once against float64, and once more for the same bits."""
    rows = []
    for what, size in kernel.sizes():
        operands = kernel.operands(size)
        outputs = kernel.run(operands, size)
        again = kernel.run(operands, size)
        torch.cuda.synchronize()
        pairs = [
            (out.double(), wanted)
            for out, wanted in zip(outputs, kernel.reference(operands), strict=True)
        ]
        errors = [((out - wanted).norm() / wanted.norm()).item() for out, wanted in pairs]
        by_row = getattr(kernel, "by_row", False)
        elements = [worst_error(out, wanted, by_row=by_row) for out, wanted in pairs]
        same = all(
            torch.equal(out.view(torch.uint8), twin.view(torch.uint8))
            for out, twin in zip(outputs, again, strict=True)
        )
        # NaN compares as False, also where it is not the largest.
        limit = getattr(kernel, "tolerance", TOLERANCE[kernel.out_type])
        worst_limit = getattr(kernel, "worst", WORST[kernel.out_type])
        right = all(error < limit for error in errors)
        right = right and all(worst < worst_limit for worst in elements)
        rows.append(
            {
                "what": what,
                **size,
                "error": max(errors),
                "worst": max(elements),
                "same_bits": same,
                "passed": right and same,
            }
        )
    return rows


def interleave(
    calls: dict[str, Call], waits: list[Call], rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Seconds a call, one figure a round; the calls take turns within each round.

    Each round has an order of its own: what ran before a kernel decides how hot the chip is.
    """

    def wait() -> None:
        for each in waits:
            each()

    repeats = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        wait()
        start = time.perf_counter()
        for _ in range(10):
            call()
        wait()
        repeats[name] = max(4, int(seconds / ((time.perf_counter() - start) / 10)))
    figures: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in random.sample(list(calls.items()), len(calls)):
            wait()
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            wait()
            figures[name].append((time.perf_counter() - start) / repeats[name])
    return figures


def ratio(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """How much faster we are, from rounds that were timed together: median and deciles."""
    ratios = sorted(their / our for our, their in zip(ours, theirs, strict=True))
    return {
        "ratio": statistics.median(ratios),
        "ratio_low": ratios[len(ratios) // 10],
        "ratio_high": ratios[-1 - len(ratios) // 10],
    }


def further_calls(
    kernel: Operator, peer: str, operands: list[torch.Tensor]
) -> dict[str, tuple[Call, Call]]:
    """A launch and a wait for each configuration of a further peer, if the operator knows it."""
    known = getattr(kernel, "against", None)
    if known is None:
        raise SystemExit(f"--against {peer}: this operator has no further peers")
    calls: dict[str, tuple[Call, Call]] = known(peer, operands)
    return calls


def device_times(
    calls: dict[str, Call], waits: list[Call], rounds: int, repeats: int
) -> dict[str, list[float]]:
    """Seconds that the GPU works for a call, as CUPTI reports them; calls take turns in a round.

    All that the call starts counts: kernels, copies and fills, not the gaps between them.
    """
    from torch.profiler import ProfilerActivity, profile

    def wait() -> None:
        for each in waits:
            each()

    figures: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            wait()
            with profile(activities=[ProfilerActivity.CUDA]) as profiled:
                for _ in range(repeats):
                    call()
                wait()
            events = [each for each in profiled.events() if each.device_type.name == "CUDA"]
            assert len(events) >= repeats, f"CUPTI saw {len(events)} of {repeats} calls of {name}"
            figures[name].append(sum(each.device_time for each in events) * 1e-6 / repeats)
    return figures


def speed(
    kernels: dict[str, Operator], peer: str, sizes: list[Size], rounds: int, against: str = ""
) -> list[dict[str, Any]]:
    """Each size in rounds in which all kernels and the peer take turns, on the same operands.

    Operators that move bytes have a second yardstick, a copy of contiguous memory. `against` names
    a further peer, whose fastest configuration counts.
    """
    rows = []
    for size in sizes:
        first = next(iter(kernels.values()))
        operands = first.operands(size)
        # All at once: each compiles for its size, which takes seconds and no GPU.
        with ThreadPoolExecutor(len(kernels)) as pool:
            jobs = {
                tile: pool.submit(kernel.launcher, operands, size)
                for tile, kernel in kernels.items()
            }
            built = {tile: job.result() for tile, job in jobs.items()}
        calls = {tile: call for tile, (call, _) in built.items()}
        waits = [torch.cuda.synchronize, *(wait for _, wait in built.values())]
        calls[peer] = first.peer(operands, size)
        further = further_calls(first, against, operands) if against else {}
        for name, (call, wait) in further.items():
            calls[name] = call
            waits.append(wait)
        calls |= first.others(operands, size) if hasattr(first, "others") else {}
        if copied := getattr(first, "contiguous_copy", None):
            calls["copy"], copy_work = copied(size)
        if getattr(first, "clock", "host") == "device":
            figures = device_times(calls, waits, rounds, repeats=20)
        else:
            figures = interleave(calls, waits, rounds, seconds=0.025)
        medians = {name: statistics.median(each) for name, each in figures.items()}
        best = min(kernels, key=lambda tile: medians[tile])
        copy_seconds, copy_rates = medians.pop("copy", None), {}
        if copy_seconds is not None:
            pairs = zip(figures[best], figures["copy"], strict=True)
            share = statistics.median(copy / ours for ours, copy in pairs)
            copy_rates = {
                "copy_rate": copy_work / copy_seconds / 1e12,
                "copy_ratio": share * first.work(size) / copy_work,
            }
        per_second = {name: first.work(size) / each / 1e12 for name, each in medians.items()}
        rows.append(
            {
                **size,
                "tile": best,
                "rate": per_second[best],
                "peer_rate": per_second.pop(peer),
                **ratio(figures[best], figures[peer]),
                **copy_rates,
                "rates": {name: each for name, each in per_second.items() if name not in further},
            }
        )
        if further:
            fastest = min(further, key=lambda name: medians[name])
            rows[-1]["against"] = {
                "peer": against,
                "configuration": fastest,
                "rate": per_second[fastest],
                **ratio(figures[best], figures[fastest]),
                "rates": {name: per_second[name] for name in further},
            }
        del calls, waits
    return rows


def size_of(word: str) -> Size:
    """A size from M,N,K or, where there is no K, M,N."""
    return {"k": 1, **dict(zip("mnk", map(int, word.split(",")), strict=False)), "l": 1}


def in_turn(
    arguments: argparse.Namespace, timed: Callable[[], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """What `timed` returns, called when no other process that has the same file is at it."""
    if arguments.turn is None:
        return timed()
    with arguments.turn.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return timed()


def main() -> None:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["verify", "speed"])
    parser.add_argument("modules", nargs="+", type=Path)
    parser.add_argument("--sizes", default="", help="M,N,K[;M,N,K]")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--against", default="", help="a further peer of a GEMM")
    parser.add_argument("--turn", type=Path, help="file to lock while the GPU is in use")
    arguments = parser.parse_args()
    paths: list[Path] = arguments.modules
    op = op_of(paths[0])
    kernels: dict[str, Operator] = {path.stem: op.Operator(path) for path in paths}
    result: dict[str, Any] = {
        "out_type": kernels[paths[0].stem].out_type,
        "code": code_digest(paths[0]),
    }
    if arguments.task == "verify":
        result["rows"] = verify(kernels[paths[0].stem])
    else:
        tiles = {stem.rpartition("__")[2]: kernel for stem, kernel in kernels.items()}
        sizes = [size_of(word) for word in arguments.sizes.split(";")]
        result |= {"peer": op.PEER, "unit": op.UNIT}
        for kernel in tiles.values():
            if compile_ahead := getattr(kernel, "compile_ahead", None):
                compile_ahead()
        result["clock"] = getattr(kernels[paths[0].stem], "clock", "host")
        result["rows"] = in_turn(
            arguments, lambda: speed(tiles, op.PEER, sizes, arguments.rounds, arguments.against)
        )
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
