# SPDX-License-Identifier: Apache-2.0
"""Writes docs/task_scheduling.md: one GEMM in three forms, with line counts and measured speed.

    python benchmarks/task_scheduling_page.py docs/task_scheduling.md

The code is cut out of the checked-in modules, the speed comes from
benchmarks/hopper_speed_task_scheduling.json (`hopper.py speed` with the three modules).
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SPEED = Path(__file__).with_name("hopper_speed_task_scheduling.json")
FORMS = {
    "explicit state": ROOT / "generated" / "cute" / "gemm_sm90_c1x1_explicit_state.py",
    "participants": ROOT / "generated" / "cute" / "gemm_sm90_c1x1.py",
    "Task Scheduling": ROOT / "generated" / "cute_ts" / "ts_gemm_sm90.py",
}
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
        ("The schedules of the load and of the compute task", "    @schedule", "    @schedule\n    def store"),
        ("What one stage is multiplied with", "    def multiply(", "    @consumer_work(work_attrs=WorkAttr.AUXILIARY)\n    @cute.jit\n    def apply"),
    ],
}  # fmt: skip
TEXT = """# Task Scheduling

`backend = "cute-ts"` emits the same descriptions in CUTLASS' Task Scheduling
(`cutlass.experimental.task_scheduling`). A kernel is declared there: *resources* own SMEM or TMEM and
the pipelines that guard them, *schedules* say what is done with them in which order, *tasks* give
each schedule its warps. Task Scheduling writes the barriers, and checks the schedules first.

What there is: `stream` (grid-stride, work tiles, interleaved lanes, two operands in one ring) and
`gemm` on sm_90a; the same without lanes' measurements, one CTA and pairs, static and CLC, on sm_100a.
The folder `generated/cute_ts` has them all. Those for Hopper were run on an H200; those for Blackwell
were compiled and checked, never run.

## What `pipegen check` does with such a module

It compiles the module as it stands, and turns all of Task Scheduling's checks on, which the module
itself leaves off: they take seconds, and print. A finding fails the run. The report has the verdict,
the schedule table and the layout of SMEM and TMEM (`--format json`: `compile.schedules`).

- Loops of unknown length are searched with as many steps as go round the deepest ring, and one more;
  alone, Task Scheduling searches one step, in which no ring comes round.
- Steps that neither wait nor let another task go on are left out of the search, unless they touch
  memory that two resources share: the states of a Blackwell GEMM come down from over a million, where
  the search stops, to {states_sm100}. Rings of more than 8 stages are searched with 8.
- A search that stops at its limit is reported as "not proved". It is no proof of anything.
- The bytes that a stage's copies bring are added up and compared with `num_bytes`. Task Scheduling
  leaves that to the author; with too few the reader waits for ever, with too many it reads too early.

What nobody checks here: wgmma's own reads (Task Scheduling takes a thread consumer to be done when it
releases), named barriers, and anything else inside a work method.

## One GEMM, three forms

bf16, {tile}, {stages} stages, one CTA, persistent; the same registers, and the same rings.

{counts}

{speed}

The Task Scheduling form is longer: resources are classes, and each has to say what it holds. It buys
schedules that read like the sentence that describes the kernel, and that are checked. The store has a
warp of its own, with a ring of barriers before it, where the other two forms have a named barrier.

{code}
## Options

| key | in Task Scheduling |
| --- | --- |
| `pipeline.mainloop.stages` | `num_stages` of the ring |
| `pipeline.mainloop.advance_on_wait` | the consumer's two cursors: the wait runs ahead of the release (GEMM on sm_90a; true) |
| `pipeline.mainloop.lanes` | `interleave_stride`: compute warp i has every lanes-th stage to itself (stream) |
| `pipeline.mainloop.try_ahead` | `try_acquire` and `try_wait` before each `acquire` and `wait` |
| `scheduler.work_tiles` | a `WorkQueue` and `work_tile_loop`, not a loop with the grid's stride (stream) |
| `scheduler.tiles = "clc"` | the WorkQueue's tiles come from cluster launch control (sm_100a) |
| `stream.y = "matrix"` | two operands in one ring: the schedule picks `load_x`, `load_y`, `read_x`, `read_y` |
| `integration.pdl` | `PdlWaitBarrier` and `PdlLaunchBarrier`: programmatic dependent launch (sm_90a; stream) |

## Versions

Task Scheduling is experimental: names move between versions. The templates were checked with
nvidia-cutlass-dsl 4.8.1; `pipegen doctor` and `pipegen check` say so when another one is installed.
With 4.7.1 all checked-in modules of this backend compile but those that use `advance_on_wait` between
TMA and threads, which that version does not have: the Hopper GEMM with `advance_on_wait = false` does.
`pipegen check` itself asks for 4.8, as the modules of the backend `cute` do.
"""


def main(arguments: list[str]) -> int:
    Path(arguments[0]).write_text(page(), encoding="utf-8")
    return 0


def page() -> str:
    """The page's text."""
    sources = {form: path.read_text(encoding="utf-8") for form, path in FORMS.items()}
    return TEXT.format(
        tile="128 x 256 x 64",
        stages=4,
        states_sm100="14485",
        counts=counts(sources),
        speed=speed(json.loads(SPEED.read_text(encoding="utf-8"))),
        code="\n".join(
            f"### {form.capitalize() if form[0].islower() else form}\n\n{shown(form, text)}"
            for form, text in sources.items()
        ),
    )


def counts(sources: dict[str, str]) -> str:
    """How long each module is, and what of that says who waits for whom."""
    rows = ["| form | lines | of these code | of these in the kernel function |", "| --- | --- | --- | --- |"]
    for form, text in sources.items():
        lines = text.splitlines()
        code = code_lines(text)
        start = next(i for i, line in enumerate(lines) if line.startswith("def gemm_kernel"))
        end = next(i for i in range(start + 1, len(lines)) if lines[i][:1] not in ("", " ", ")", "#"))
        kernel = sum(bool(line.strip()) for line in lines[start:end])
        rows.append(f"| {form} | {len(lines)} | {code} | {kernel} |")
    return "\n".join(rows)


def code_lines(text: str) -> int:
    """Lines that are neither empty nor a comment nor in the module's docstring."""
    body = text.split('"""', 2)[2]
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in body.splitlines())


def speed(data: dict[str, Any]) -> str:
    """TFLOP/s of the three forms, each beside cuBLAS in the same rounds."""
    results = {result["module"]: result for result in data["results"]}
    rows = ["| M x N x K | " + " | ".join(FORMS) + " |", "| --- |" + " --- |" * len(FORMS)]
    shapes = [(r["m"], r["n"], r["k"]) for r in results[FORMS["participants"].name]["rows"]]
    for shape in shapes:
        cells = []
        for path in FORMS.values():
            row = next(
                r for r in results[path.name]["rows"] if (r["m"], r["n"], r["k"]) == shape
            )
            cells.append(f"{row['rate']:.0f} ({row['ratio']:.2f})")
        rows.append(f"| {' x '.join(map(str, shape))} | {' | '.join(cells)} |")
    gpu = data["machine"]["gpu"].split(",")[0]
    text = f"TFLOP/s on one {gpu} (ratio to cuBLAS, timed in the same rounds):\n\n"
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
