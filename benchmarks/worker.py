# SPDX-License-Identifier: Apache-2.0
"""Checks or times one emitted module on this machine's GPU; prints one JSON object.

    python benchmarks/worker.py verify MODULE
    python benchmarks/worker.py speed M,N,K[;M,N,K] MODULE [SAME_WITH_ANOTHER_TILE ...]

Runs in its own process (see hopper.py), so that a deadlock costs its time limit and no more.
Data are fresh and random for each size; outputs lie in memory that held NaN; the reference is
float64.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from code_digest import code_digest
from operators import TOLERANCE, Call, Operator, Size, op_of


def verify(kernel: Operator) -> list[dict[str, Any]]:
    """Each size once against float64, and once more for the same bits."""
    rows = []
    for what, size in kernel.sizes():
        operands = kernel.operands(size)
        outputs = kernel.run(operands, size)
        again = kernel.run(operands, size)
        torch.cuda.synchronize()
        errors = [
            ((out.double() - wanted).norm() / wanted.norm()).item()
            for out, wanted in zip(outputs, kernel.reference(operands), strict=True)
        ]
        same = all(
            torch.equal(out.view(torch.uint8), twin.view(torch.uint8))
            for out, twin in zip(outputs, again, strict=True)
        )
        # NaN compares as False, also where it is not the largest.
        right = all(error < TOLERANCE[kernel.out_type] for error in errors)
        error = max(errors)
        row = {"what": what, **size, "error": error, "same_bits": same, "passed": right and same}
        rows.append(row)
    return rows


def interleave(
    calls: dict[str, Call], waits: list[Call], rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Seconds a call, one figure a round; the calls take turns within each round."""

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
        for name, call in calls.items():
            wait()
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            wait()
            figures[name].append((time.perf_counter() - start) / repeats[name])
    return figures


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


def speed(kernels: dict[str, Operator], peer: str, sizes: list[Size]) -> list[dict[str, Any]]:
    """Each size in rounds in which all kernels and the peer take turns, on the same operands."""
    rows = []
    for size in sizes:
        first = next(iter(kernels.values()))
        operands = first.operands(size)
        calls, waits = {}, [torch.cuda.synchronize]
        for tile, kernel in kernels.items():
            calls[tile], wait = kernel.launcher(operands, size)
            waits.append(wait)
        calls[peer] = first.peer(operands, size)
        others = getattr(first, "others", None)
        calls |= others(operands, size) if others else {}
        if getattr(first, "clock", "host") == "device":
            figures = device_times(calls, waits, rounds=10, repeats=20)
        else:
            figures = interleave(calls, waits, rounds=30, seconds=0.025)
        medians = {name: statistics.median(each) for name, each in figures.items()}
        best = min(kernels, key=lambda tile: medians[tile])
        pairs = zip(figures[best], figures[peer], strict=True)
        ratios = sorted(theirs / ours for ours, theirs in pairs)
        per_second = {name: first.work(size) / each / 1e12 for name, each in medians.items()}
        rows.append(
            {
                **size,
                "tile": best,
                "rate": per_second[best],
                "peer_rate": per_second.pop(peer),
                "ratio": statistics.median(ratios),
                "ratio_low": ratios[len(ratios) // 10],
                "ratio_high": ratios[-1 - len(ratios) // 10],
                "rates": per_second,
            }
        )
        del calls, waits
    return rows


def size_of(word: str) -> Size:
    """A size from M,N,K or, where there is no K, M,N."""
    return {"k": 1, **dict(zip("mnk", map(int, word.split(",")), strict=False)), "l": 1}


def main() -> None:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    task, *rest = sys.argv[1:]
    sizes = rest.pop(0).split(";") if task == "speed" else []
    paths = [Path(word) for word in rest]
    op = op_of(paths[0])
    kernels: dict[str, Operator] = {path.stem: op.Operator(path) for path in paths}
    result: dict[str, Any] = {
        "out_type": kernels[paths[0].stem].out_type,
        "code": code_digest(paths[0]),
    }
    if task == "verify":
        result["rows"] = verify(kernels[paths[0].stem])
    else:
        tiles = {stem.rpartition("__")[2]: kernel for stem, kernel in kernels.items()}
        result |= {"peer": op.PEER, "unit": op.UNIT}
        result["clock"] = getattr(kernels[paths[0].stem], "clock", "host")
        result["rows"] = speed(tiles, op.PEER, [size_of(word) for word in sizes])
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
