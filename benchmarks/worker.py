# SPDX-License-Identifier: Apache-2.0
"""Checks or times one emitted module on this machine's GPU; prints one JSON object.

    python benchmarks/worker.py verify MODULE
    python benchmarks/worker.py speed M,N,K[;M,N,K] MODULE [SAME_WITH_ANOTHER_TILE ...] \
        [--against PEER]

Runs in its own process (see hopper.py), so that a deadlock costs its time limit and no more.
Data are fresh and random for each size; outputs lie in memory that held NaN; the reference is
float64.
"""

import json
import os
import random
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


def speed(
    kernels: dict[str, Operator], peer: str, sizes: list[Size], against: str = ""
) -> list[dict[str, Any]]:
    """Each size in rounds in which all kernels and the peer take turns, on the same operands.

    `against` names a further peer, whose fastest configuration counts.
    """
    rows = []
    for size in sizes:
        first = next(iter(kernels.values()))
        operands = first.operands(size)
        calls, waits = {}, [torch.cuda.synchronize]
        for tile, kernel in kernels.items():
            calls[tile], wait = kernel.launcher(operands, size)
            waits.append(wait)
        calls[peer] = first.peer(operands, size)
        further = further_calls(first, against, operands) if against else {}
        for name, (call, wait) in further.items():
            calls[name] = call
            waits.append(wait)
        figures = interleave(calls, waits, rounds=30, seconds=0.025)
        medians = {name: statistics.median(each) for name, each in figures.items()}
        best = min(kernels, key=lambda tile: medians[tile])
        per_second = {name: first.work(size) / each / 1e12 for name, each in medians.items()}
        rows.append(
            {
                **size,
                "tile": best,
                "rate": per_second[best],
                "peer_rate": per_second.pop(peer),
                **ratio(figures[best], figures[peer]),
                "rates": {name: per_second[name] for name in kernels},
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


def main() -> None:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    task, *rest = sys.argv[1:]
    against = ""
    if "--against" in rest:
        at = rest.index("--against")
        against = rest[at + 1]
        del rest[at : at + 2]
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
        result["rows"] = speed(tiles, op.PEER, [size_of(word) for word in sizes], against)
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
