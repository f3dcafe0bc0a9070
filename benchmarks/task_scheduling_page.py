# SPDX-License-Identifier: Apache-2.0
"""Writes docs/task_scheduling.md: one GEMM in three forms, with line counts and measured speed.

    python benchmarks/task_scheduling_page.py docs/task_scheduling.md

The code is cut out of the checked-in modules, the speed comes from
benchmarks/task_scheduling_speed.json, which says how it was measured.
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SPEED = Path(__file__).with_name("task_scheduling_speed.json")
FORMS = {
    "explicit state": ROOT / "generated" / "cute" / "gemm_sm90_c1x1_explicit_state.py",
    "participants": ROOT / "generated" / "cute" / "gemm_sm90_c1x1.py",
    "Task Scheduling": ROOT / "generated" / "cute_ts" / "ts_gemm_sm90.py",
}
AUXILIARY = "    @consumer_work(work_attrs=WorkAttr.AUXILIARY)\n    @cute.jit\n"
# What of each module is shown: from a line to the line before another one.
SHOWN = {
    "explicit state": [
        ("The load role", "            for index in cutlass.range(first", "    else:"),
        ("The mainloop of the compute role", "def multiply(", "@cute.kernel"),
    ],
    "participants": [
        ("The load role", "            for index in cutlass.range(first", "    else:"),
        ("The mainloop of the compute role", "def multiply(", "@cute.kernel"),
    ],
    "Task Scheduling": [
        ("The schedules of load and compute", "    @schedule", "    @schedule\n    def store"),
        ("What is done with one stage", "    def multiply(", f"{AUXILIARY}    def apply"),
    ],
}  # fmt: skip
TEXT = Path(__file__).with_suffix(".md")  # the page, with places for what is filled in


def main(arguments: list[str]) -> int:
    Path(arguments[0]).write_text(page(), encoding="utf-8")
    return 0


def page() -> str:
    """The page's text."""
    sources = {form: path.read_text(encoding="utf-8") for form, path in FORMS.items()}
    return TEXT.read_text(encoding="utf-8").format(
        tile="128 x 256 x 64",
        stages=4,
        counts=counts(sources),
        speed=speed(json.loads(SPEED.read_text(encoding="utf-8"))),
        code="\n".join(
            f"### {form.capitalize() if form[0].islower() else form}\n\n{shown(form, text)}"
            for form, text in sources.items()
        ),
    )


def counts(sources: dict[str, str]) -> str:
    """How long each module is, and what of that says who waits for whom."""
    rows = [
        "| form | lines | of these code | of these in the kernel function |",
        "| --- | --- | --- | --- |",
    ]
    for form, text in sources.items():
        lines = text.splitlines()
        code = code_lines(text)
        start = next(i for i, line in enumerate(lines) if line.startswith("def gemm_kernel"))
        end = next(
            i for i in range(start + 1, len(lines)) if lines[i][:1] not in ("", " ", ")", "#")
        )
        kernel = sum(bool(line.strip()) for line in lines[start:end])
        rows.append(f"| {form} | {len(lines)} | {code} | {kernel} |")
    return "\n".join(rows)


def code_lines(text: str) -> int:
    """Lines that are neither empty nor a comment nor in the module's docstring."""
    body = text.split('"""', 2)[2]
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") for line in body.splitlines()
    )


def speed(data: dict[str, Any]) -> str:
    """TFLOP/s of the three forms, each beside cuBLAS in the same rounds."""
    results = {result["module"]: result for result in data["results"]}
    rows = ["| M x N x K | " + " | ".join(FORMS) + " |", "| --- |" + " --- |" * len(FORMS)]
    shapes = [(r["m"], r["n"], r["k"]) for r in results[FORMS["participants"].name]["rows"]]
    for shape in shapes:
        cells = []
        for path in FORMS.values():
            row = next(r for r in results[path.name]["rows"] if (r["m"], r["n"], r["k"]) == shape)
            cells.append(f"{row['rate']:.0f} ({row['ratio']:.2f})")
        rows.append(f"| {' x '.join(map(str, shape))} | {' | '.join(cells)} |")
    gpu = data["machine"]["gpu"].split(",")[0]
    text = f"TFLOP/s on one {gpu} (ratio to cuBLAS, timed in the same rounds; "
    text += "`benchmarks/task_scheduling_speed.json`):\n\n"
    return text + "\n".join(rows)


def shown(form: str, text: str) -> str:
    """The parts of a module that say who waits for whom."""
    parts = []
    for title, first, last in SHOWN[form]:
        start = text.index(first)
        end = text.index(last, start + len(first))
        lines = text[start:end].rstrip().removesuffix("@cute.jit").rstrip().splitlines()
        indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
        cut = "\n".join(line[indent:] for line in lines)
        parts.append(f"{title}:\n\n```python\n{cut}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
