# SPDX-License-Identifier: Apache-2.0
"""Times an fp8 GEMM against a bf16 one of ours, and each against cuBLAS, in the same rounds.

    python benchmarks/fp8.py generated/cute/gemm_sm90_e4m3.py generated/cute/gemm_sm90_c2x1.py \\
        --json benchmarks/fp8.json

Both are given in one call, or several tiles of each (the fastest counts): `bench` compares modules
that take the same operands, and these do not. Each type has a process of its own with its operands
and its peer; a round is a turn of one and then of the other. Needs an H100 or H200 with torch.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # these belong to this checkout's pipegen

from pipegen.description_file import parse_description
from pipegen.measuring.machine import machine
from pipegen.measuring.process import GpuMeasurer
from pipegen.measuring.protocol import Entrant, Measurer
from pipegen.measuring.rows import Timed, row_of
from pipegen.measuring.shapes import Shape, parse_shape, size_of
from pipegen.measuring.statistics import ratio_of
from pipegen.vendor.header import read_header

SHAPES = ("4096,4096,4096", "8192,8192,8192", "4096,14336,4096")
ROUNDS, TURN_SECONDS, PEER = 30, 0.012, "cublas"


def type_of(module: Path) -> str:
    """The type of A in a module's description: `bf16` where it names none."""
    header = read_header(module.read_text("utf-8"))
    assert header is not None, module
    dtype = parse_description(header.description, str(module)).dtype
    return str(dtype.a) if dtype and dtype.a else "bf16"


def by_type(modules: Sequence[Path]) -> dict[str, list[Entrant]]:
    """The modules of each type, in the order given."""
    groups: dict[str, list[Entrant]] = {}
    for module in modules:
        groups.setdefault(type_of(module), []).append(Entrant(module.stem, module.resolve()))
    return groups


def together(
    measurers: dict[str, Measurer],
    groups: dict[str, list[Entrant]],
    shape: Shape,
    rounds: int,
    seconds: float,
) -> dict[str, Any]:
    """The row of each type, and `ratio`: the first type's fastest over the others', by round."""
    ready = {
        word: measurers[word].prepare(shape, entrants, [PEER]) for word, entrants in groups.items()
    }
    names = {
        word: [*each.modules, *(n for peer in each.peers.values() for n in peer.values())]
        for word, each in ready.items()
    }
    figures: dict[str, dict[str, list[float]]] = {
        word: {name: [] for name in each} for word, each in names.items()
    }
    for _ in range(rounds):
        for word, measurer in measurers.items():
            for name, (second,) in measurer.time(names[word], 1, seconds).items():
                figures[word][name].append(second)
    rows = {
        word: row_of(
            Timed(
                size_of(shape),
                each.work,
                figures[word],
                each.modules,
                each.peers,
                each.clock,
                each.copies,
                extra={"out": dict(each.out)},
            )
        )
        for word, each in ready.items()
    }
    first, *others = groups
    ours = figures[first][rows[first]["best"]]
    ratios = {word: ratio_of(ours, figures[word][rows[word]["best"]]).as_row() for word in others}
    return {**size_of(shape), "rows": rows, "ratio": ratios}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="+", type=Path)
    parser.add_argument("--shape", action="append", help="M,N,K; may be repeated")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    groups = by_type(arguments.modules)
    if len(groups) < 2:
        parser.error(f"name modules of two types: these are all {', '.join(groups)}")
    measurers = {word: GpuMeasurer() for word in groups}
    results = []
    try:
        for word in arguments.shape or SHAPES:
            shape = parse_shape(word)
            row = together(measurers, groups, shape, arguments.rounds, TURN_SECONDS)
            results.append(row)
            for name, each in row["rows"].items():
                peer = each["peers"][PEER]
                print(
                    f"{word} {name}: {each['rate']:.0f} TFLOP/s, {each['best']}; "
                    f"{peer['ratio']:.3f} of cuBLAS ({peer['rate']:.0f})"
                )
            for name, each in row["ratio"].items():
                print(f"{word} {next(iter(groups))} is {each['ratio']:.3f} times {name}")
    finally:
        for measurer in measurers.values():
            measurer.close()
    modules = " ".join(str(module) for module in arguments.modules)
    report = {
        "command": f"python benchmarks/fp8.py {modules} --json benchmarks/{arguments.json.name}",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "results": results,
    }
    arguments.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
