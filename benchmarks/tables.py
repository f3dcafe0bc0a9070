# SPDX-License-Identifier: Apache-2.0
"""Writes the README's H200 tables from the committed results: `make docs`.

python benchmarks/tables.py README.md            rewrite what stands between the markers
python benchmarks/tables.py --check README.md    exit code 1 if that would change anything
"""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BEGIN, END = "<!-- h200 tables -->\n", "<!-- /h200 tables -->"


def read(name: str) -> dict[str, Any]:
    """One results file."""
    data: dict[str, Any] = json.loads((HERE / name).read_text(encoding="utf-8"))
    return data


def speed_table(results: list[dict[str, Any]]) -> list[str]:
    """Modules by rows, sizes by columns: TFLOP/s and the ratio to cuBLAS in the same rounds."""
    sizes = [(row["m"], row["n"], row["k"]) for row in results[0]["rows"]]
    heads = [f"{m} x {n} x {k}" for m, n, k in sizes]
    lines = [
        "| module | " + " | ".join(heads) + " |",
        "| --- |" + " --- |" * len(heads),
    ]
    for result in results:
        cells = [f"{row['tflops']:.0f} ({row['ratio']:.3f})" for row in result["rows"]]
        lines.append(f"| `{result['module']}` | " + " | ".join(cells) + " |")
    return lines


def verify_lines(results: list[dict[str, Any]]) -> list[str]:
    """How many modules and sizes passed, and the worst error for each kind of output."""
    rows = [row for result in results for row in result["rows"]]
    passed = f"{sum(row['passed'] for row in rows)} of {len(rows)}"
    worst: dict[str, float] = {}
    for result in results:
        kind = result["out_type"]
        worst[kind] = max(worst.get(kind, 0.0), *(row["error"] for row in result["rows"]))
    errors = ", ".join(f"{kind} {error:.1e}" for kind, error in sorted(worst.items()))
    return [
        f"{len(results)} modules x {len(rows) // len(results)} sizes, {passed} right; "
        f"each with the same bits twice. Worst relative error by output type: {errors}."
    ]


def tables() -> str:
    """The markdown between the markers."""
    verify, speed = read("hopper_verify.json"), read("hopper_speed.json")
    facts = speed["machine"]
    versions = ", ".join(
        f"{name} {facts[name]}" for name in ("torch", "nvidia-cutlass-dsl", "jax") if name in facts
    )
    lines = [
        *verify_lines(verify["results"]),
        "",
        "TFLOP/s in bf16, and the ratio to cuBLAS (`torch.mm`) in the same interleaved rounds:",
        "",
        *speed_table(speed["results"]),
        "",
        f"{facts['gpu'].split(',')[0]}, {versions}; {speed['date']}. Results and commands are in "
        "`benchmarks/`: `hopper_verify.json`, `hopper_speed.json`, `launcher.json`.",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    check = "--check" in sys.argv
    path = Path(sys.argv[-1])
    text = path.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    wanted = head + BEGIN + tables() + END + tail
    if wanted == text:
        return 0
    if check:
        print(f"{path} is not what the results say: run `make docs`")
        return 1
    path.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
