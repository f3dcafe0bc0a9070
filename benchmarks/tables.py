# SPDX-License-Identifier: Apache-2.0
"""Writes the README's H200 tables from the committed results: `make docs`.

python benchmarks/tables.py README.md            rewrite what stands between the markers
python benchmarks/tables.py --check README.md    exit code 1 if that would change anything
"""

import json
import sys
from pathlib import Path
from typing import Any

from pipegen.measuring.code_digest import code_digest

HERE = Path(__file__).parent
PACKAGES = ("torch", "nvidia-cutlass-dsl", "jax")
LONG_TABLE = 8  # rows; a longer one is folded
BEGIN, END = "<!-- h200 tables -->\n", "<!-- /h200 tables -->"


def read(name: str) -> dict[str, Any]:
    """One results file."""
    data: dict[str, Any] = json.loads((HERE / name).read_text(encoding="utf-8"))
    return data


def speed_table(results: list[dict[str, Any]]) -> list[str]:
    """Modules by rows, sizes by columns: the rate, the ratio to the peer, and the fastest tile."""
    sizes = [(row["m"], row["n"], row["k"]) for row in results[0]["rows"]]
    heads = [" x ".join(str(side) for side in size if side > 1) for size in sizes]
    peers = dict.fromkeys(result["peer"] for result in results)
    copied = any("copy_ratio" in row for result in results for row in result["rows"])
    lines = [
        f"{results[0]['unit']}, the ratio to {' or '.join(peers)} in the same interleaved rounds"
        f"{', and to a copy of contiguous memory' if copied else ''}"
        f"{', and the fastest of several tiles' if timed_tiles(results) else ''}:",
        "",
        "| module | " + " | ".join(heads) + " |",
        "| --- |" + " --- |" * len(heads),
    ]
    for result in results:
        cells = [cell(result["module"], row) for row in result["rows"]]
        lines.append(f"| `{result['module']}` | " + " | ".join(cells) + " |")
    return lines


def folded(lines: list[str], results: list[dict[str, Any]]) -> list[str]:
    """A table as it is, or folded beneath a line that says what it spans."""
    if len(results) < LONG_TABLE:
        return lines
    ratios = [row["ratio"] for result in results for row in result["rows"]]
    what = results[0]["module"].partition("_sm90")[0]
    summary = f"{len(results)} {what} modules: {min(ratios):.3f} to {max(ratios):.3f} of the peer"
    return [f"<details><summary>{summary}</summary>", "", *lines, "", "</details>"]


def timed_tiles(results: list[dict[str, Any]]) -> bool:
    """Whether each kernel was timed with several tiles."""
    return any(len(row["rates"]) > 1 for result in results for row in result["rows"])


def cell(module: str, row: dict[str, Any]) -> str:
    """The rate with three digits, the ratio, and the tile if there was a choice."""
    rate = f"{row['rate']:.0f}" if row["rate"] >= 100 else f"{row['rate']:.3g}"
    tile = f", {row['tile']}" if len(row["rates"]) > 1 else ""
    copied = f", {row['copy_ratio']:.3f}" if "copy_ratio" in row else ""
    other = row.get("against")
    beside = f"; {other['ratio']:.3f} of {other['peer']}" if other else ""
    return f"{rate} ({row['ratio']:.3f}{copied}{beside}){tile}"


def verified() -> list[dict[str, Any]]:
    """The results of every verify run; one of jax 0.10 has what stands behind `pl.pallas_call`."""
    paths = sorted(HERE.glob("hopper_verify*.json"))
    return [result for path in paths for result in read(path.name)["results"]]


def verify_lines(results: list[dict[str, Any]]) -> list[str]:
    """How many modules and sizes passed, and the worst error for each kind of output."""
    rows = [row for result in results for row in result["rows"]]
    passed = f"{sum(row['passed'] for row in rows)} of {len(rows)}"
    failed = [result["module"] for result in results if result["failed"]]
    worst: dict[str, float] = {}
    for result in results:
        for row in result["rows"]:
            kind = result["out_type"]
            worst[kind] = max(worst.get(kind, 0.0), row["error"])
    errors = ", ".join(f"{kind} {error:.1e}" for kind, error in sorted(worst.items()))
    lines = [
        f"{len(results)} modules, {len(rows)} runs of different sizes, {passed} right; "
        f"{sum(row.get('same_bits', False) for row in rows)} were repeated, with the same bits. "
        f"Worst relative error by output type: {errors}."
    ]
    return lines + ([f"Without a result: {', '.join(failed)}."] if failed else [])


def modules() -> dict[str, Path]:
    """Every emitted module by its file's name."""
    return {path.name: path for path in sorted((HERE.parent / "generated").rglob("*.py"))}


def changed_since(results: list[dict[str, Any]]) -> list[str]:
    """Modules whose code is not what ran (comments aside)."""
    paths = modules()
    return [
        result["module"]
        for result in results
        if result["module"] not in paths
        or result.get("code") != code_digest(paths[result["module"]])
    ]


def right(result: dict[str, Any]) -> bool:
    """Whether the emulator found a module, as it stands, to be right."""
    path = modules().get(result["module"])
    return bool(result["passed"] and path and result["code"] == code_digest(path))


def file_lists(results: list[dict[str, Any]]) -> list[str]:
    """For each file whether it ran on an H200, or was compiled only."""
    changed = set(changed_since(results))
    ran = {
        result["module"]
        for result in results
        if result["module"] not in changed and all(row["passed"] for row in result["rows"])
    }
    emulated = {result["module"] for result in read("emulated.json")["results"] if right(result)}
    lists = {
        "Run on an H200, and compiled": [name for name in modules() if name in ran],
        "Compiled and emulated, and not run on a GPU as they stand": [
            name for name in modules() if name in emulated - ran
        ],
        "Compiled, and not run on a GPU as they stand": [
            name for name in modules() if name not in ran | emulated
        ],
    }
    lines = []
    for title, names in lists.items():
        if not names:
            continue
        lines += [f"<details><summary>{title}: {len(names)} files</summary>", ""]
        lines += [", ".join(f"`{name}`" for name in names) + ".", "", "</details>", ""]
    return lines


def tables() -> str:
    """The markdown between the markers."""
    verify = read("hopper_verify.json")
    facts = verify["machine"]
    versions = ", ".join(f"{name} {facts[name]}" for name in PACKAGES if name in facts)
    changed = changed_since(verified())
    lines = [*verify_lines(verified()), "", *file_lists(verified())]
    lines += [f"`{name}`: {reason}." for name, reason in verify.get("not_run", {}).items()]
    lines += [""] if "not_run" in verify else []
    if changed:
        names = ", ".join(f"`{name}`" for name in changed)
        lines += [f"Code changed since that run: {names}.", ""]
    for path in sorted(HERE.glob("hopper_speed_*.json")):
        speed = read(path.name)
        lines += [*folded(speed_table(speed["results"]), speed["results"]), ""]
        lines += [speed["note"], ""] if "note" in speed else []
    lines += [
        f"{facts['gpu'].split(',')[0]}, {versions}; {verify['date']}. All figures and commands: "
        "`benchmarks/`, `hopper_verify.json`, `hopper_speed_*.json`, `launcher.json`.",
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
