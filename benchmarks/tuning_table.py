# SPDX-License-Identifier: Apache-2.0
"""Writes the table of docs/tuning.md from the committed search: `make docs`.

    python benchmarks/tuning_table.py docs/tuning.md           rewrite what is between the marks
    python benchmarks/tuning_table.py --check docs/tuning.md   exit code 1 if that changes anything
    python benchmarks/tuning_table.py --plot docs/tuned.svg    the picture (needs matplotlib)

The search is a results file of `pipegen tune` (benchmarks/tune_*.json).
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # these belong to this checkout's pipegen

from pipegen.measuring.statistics import geometric_mean
from pipegen.tuning.order import model_tiles
from pipegen.tuning.results import shape_result

HERE = Path(__file__).parent
SEARCH = "tune_gemm_sm90_bf16.json"
BEGIN, END = "<!-- tuned -->\n", "<!-- /tuned -->"
PEER, SMS = "cublas", 132
DESCRIBED = "__as_described"


def entries() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The search's facts, and its last round's entries in the order of the sizes."""
    data = json.loads((HERE / SEARCH).read_text(encoding="utf-8"))
    last: dict[tuple[int, ...], dict[str, Any]] = {}
    for key in sorted(data["entries"]):  # coarse before fine
        entry = data["entries"][key]
        last[tuple(entry["shape"])] = entry
    return data["facts"], [last[shape] for shape in sorted(last, key=lambda s: (s[1:], s[0]))]


def words(values: dict[str, Any]) -> str:
    """A candidate's values: the tile, who computes it, the cluster, and what else it says."""
    tile = "x".join(str(values[f"tile.{letter}"]) for letter in "mnk" if f"tile.{letter}" in values)
    who = {"ping-pong": "ping-pong"}.get(values.get("scheduler.consumers", ""), "")
    who = who or ("one warpgroup" if values.get("role.consumer.warpgroups") == 1 else "together")
    cluster = "x".join(map(str, values.get("cluster.shape", ())))
    rest = {
        "scheduler.raster_group": "raster",
        "role.producer.registers": "producer registers",
        "pipeline.mainloop.stages": "stages",
        "pipeline.epilogue.stages": "store buffers",
    }
    more = [f"{word} {values[key]}" for key, word in rest.items() if key in values]
    if not tile:
        return "as described"
    return ", ".join([tile, who, *([cluster] if cluster else []), *more])


def table() -> str:
    """The markdown between the marks."""
    facts, found = entries()
    lines = [
        "| M x N x K | cuBLAS, TFLOP/s | ratio (deciles) | fastest | place | as described |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    ratios = []
    for entry in found:
        result = shape_result(entry)
        best, peer = result.ranked[0], result.peers[PEER][1]
        ratio, values = best.ratios[PEER], entry["ranked"][0]["values"]
        ratios.append(ratio.ratio)
        own = next((s for name, s in result.shares.items() if name.endswith(DESCRIBED)), None)
        tile = values.get("tile.m", 128), values.get("tile.n", 256)
        order = model_tiles(result.shape, SMS, 100)
        place = order.index(tile) + 1 if tile in order else "-"
        cells = [
            " x ".join(map(str, result.shape)),
            f"{result.work / peer / 1e12:.0f}",
            f"{ratio.ratio:.3f} ({ratio.low:.3f} to {ratio.high:.3f})",
            words(values),
            str(place),
            f"{own * ratio.ratio:.3f}" if own else "-",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    packages = ", ".join(
        f"{name} {facts['machine'][name]}" for name in ("torch", "nvidia-cutlass-dsl")
    )
    lines += [
        "",
        f"Geometric mean {geometric_mean(ratios):.3f} of cuBLAS, least {min(ratios):.3f}. "
        f"{facts['machine']['gpu'].split(',')[0]}, {packages}. Place: that of the tile in the "
        "order in which the model tries them." + facts.get("note", ""),
    ]
    return "\n".join(lines) + "\n"


def report() -> dict[str, Any]:
    """The search as a report of `pipegen bench`, for its picture."""
    facts, found = entries()
    rows = []
    for entry in found:
        result = shape_result(entry)
        best, peer = result.ranked[0], result.peers[PEER][1]
        rate = {"rate": result.work / peer / 1e12}
        rows.append(
            {
                **dict(zip("mnk", result.shape, strict=True)),
                "best": best.name,
                "rate": result.work / best.seconds / 1e12,
                "peers": {PEER: {**rate, **best.ratios[PEER].as_row()}},
            }
        )
    gpu = facts["device"]["gpu"]
    return {
        "op": "gemm, bf16, the best candidate of each size",
        "unit": "TFLOP/s",
        "date": f"driver {facts['machine']['gpu'].split(', ')[1]}",
        "device": {"gpu": gpu},
        "peers": {PEER: ""},
        "rows": rows,
    }


def main() -> int:
    path = Path(sys.argv[-1])
    if "--plot" in sys.argv:
        from pipegen.measuring.plotting import draw

        draw(report(), path)
        return 0
    text = path.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    wanted = head + BEGIN + table() + END + tail
    if wanted == text:
        return 0
    if "--check" in sys.argv:
        print(f"{path} is not what the results say: run `make docs`")
        return 1
    path.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
