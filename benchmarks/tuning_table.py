# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/tuning.md and README.md from the committed searches: `make docs`.

    python benchmarks/tuning_table.py docs/tuning.md           rewrite what is between the marks
    python benchmarks/tuning_table.py --check docs/tuning.md   exit code 1 if that changes anything
    python benchmarks/tuning_table.py --plot docs/tuned.svg    the picture (needs matplotlib)

A search is a results file of `pipegen tune` (benchmarks/tune_*.json); its mark names it.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # these belong to this checkout's pipegen

from pipegen.measuring.statistics import geometric_mean
from pipegen.tuning.order import model_tiles
from pipegen.tuning.results import shape_result

HERE = Path(__file__).parent
# The page's tables: the mark, and the search.
SEARCHES = {
    "tuned": "tune_gemm_sm90_bf16.json",
    "tuned pallas": "tune_pallas_gemm_sm90_bf16.json",
    "tuned pallas b_n_major": "tune_pallas_gemm_sm90_bf16_b_n_major.json",
}
PLOTTED = "tune_gemm_sm90_bf16.json"
STREAMS = "bench_stream_sm90.json"
PEER, SMS = "cublas", 132
NAMES = {"cublas": "cuBLAS", "quack": "QuACK"}
DESCRIBED = "__as_described"


def entries(search: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The search's facts, and the last round with peers of each size, in the order of the sizes."""
    data = json.loads((HERE / search).read_text(encoding="utf-8"))
    last: dict[tuple[int, ...], dict[str, Any]] = {}
    for key in sorted(data["entries"]):  # coarse before fine
        entry = data["entries"][key]
        if entry["peers"]:
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
        "scheduler.split_k": "split K in",
    }
    more = [f"{word} {values[key]}" for key, word in rest.items() if key in values]
    if not tile:
        return ", ".join(["as described", *more])
    return ", ".join([tile, who, *([cluster] if cluster else []), *more])


def table(search: str) -> str:
    """The markdown between the marks."""
    facts, found = entries(search)
    peers = list(dict.fromkeys(peer for entry in found for peer in entry["peers"]))
    others = [peer for peer in peers if peer != PEER]
    heads = ["M x N x K", "cuBLAS, TFLOP/s", "ratio (deciles)"]
    heads += [f"to {NAMES.get(peer, peer)}" for peer in others]
    heads += ["fastest", "place", "as described"]
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    ratios: dict[str, list[float]] = {peer: [] for peer in peers}
    for entry in found:
        result = shape_result(entry)
        best, values = result.ranked[0], entry["ranked"][0]["values"]
        for peer, ratio in best.ratios.items():
            ratios[peer].append(ratio.ratio)
        ratio = best.ratios[PEER]
        own = next((s for name, s in result.shares.items() if name.endswith(DESCRIBED)), None)
        cells = [
            " x ".join(map(str, result.shape)),
            f"{result.work / result.peers[PEER][1] / 1e12:.0f}",
            f"{ratio.ratio:.3f} ({ratio.low:.3f} to {ratio.high:.3f})",
            *(f"{best.ratios[p].ratio:.3f}" if p in best.ratios else "-" for p in others),
            words(values),
            place_of(result.shape, values),
            f"{own * ratio.ratio:.3f}" if own else "-",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    packages = ", ".join(
        f"{name} {facts['machine'][name]}"
        for name in ("torch", "nvidia-cutlass-dsl", "jax")
        if facts["machine"].get(name, "not installed") != "not installed"
    )
    means = "; ".join(
        f"of {NAMES.get(peer, peer)} {geometric_mean(each):.3f}, least {min(each):.3f}"
        + (f" ({len(each)} sizes)" if len(each) < len(found) else "")
        for peer, each in ratios.items()
    )
    lines += [
        "",
        f"{len(found)} sizes. Geometric mean {means}. {facts['machine']['gpu'].split(',')[0]}, "
        f"{packages}. Place: that of the tile in the order in which the model tries them.",
    ]
    return "\n".join(lines) + "\n"


def place_of(shape: tuple[int, ...], values: dict[str, Any]) -> str:
    """Where the model has the tile of these values; the usual one's where they name none."""
    tile = values.get("tile.m", 128), values.get("tile.n", 256)
    order = model_tiles(shape, SMS, 100)
    return str(order.index(tile) + 1) if tile in order else "-"


def report() -> dict[str, Any]:
    """The search as a report of `pipegen bench`, for its picture."""
    facts, found = entries(PLOTTED)
    rows = []
    for entry in found:
        result = shape_result(entry)
        best = result.ranked[0]
        rows.append(
            {
                **dict(zip("mnk", result.shape, strict=True)),
                "best": best.name,
                "rate": result.work / best.seconds / 1e12,
                "peers": {
                    peer: {"rate": result.work / seconds / 1e12, **best.ratios[peer].as_row()}
                    for peer, (_, seconds) in result.peers.items()
                },
            }
        )
    return {
        "op": "gemm, bf16, the best candidate of each size",
        "unit": "TFLOP/s",
        "date": f"driver {facts['machine']['gpu'].split(', ')[1]}",
        "device": {"gpu": facts["device"]["gpu"]},
        "peers": dict.fromkeys(rows[0]["peers"], ""),
        "rows": rows,
    }


def fp8_table() -> str:
    """fp8 against bf16 in the same rounds (benchmarks/fp8.json), and each against cuBLAS."""
    lines = [
        "| M x N x K | e4m3, TFLOP/s | to cuBLAS | bf16, TFLOP/s | to cuBLAS | e4m3 to bf16 |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in fp8_rows():
        cells = [f"{row['m']} x {row['n']} x {row['k']}"]
        for word in ("e4m3", "bf16"):
            one = row["rows"][word]
            cells += [f"{one['rate']:.0f}", f"{one['peers'][PEER]['ratio']:.3f}"]
        cells.append(f"{row['ratio']['bf16']['ratio']:.3f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def fp8_rows() -> list[dict[str, Any]]:
    """The sizes of benchmarks/fp8.json."""
    rows: list[dict[str, Any]] = json.loads((HERE / "fp8.json").read_text("utf-8"))["results"]
    return rows


def stream_table() -> str:
    """Equal shares and short blocks at several sizes, each to a copy of contiguous memory."""
    report = json.loads((HERE / STREAMS).read_text("utf-8"))
    names = {"stream_sm90_tma": "equal shares, TMA", "stream_sm90_tma_short_blocks": "short, TMA"}
    names["stream_sm90_cp_async_store_short_blocks"] = "short, cp.async and TMA stores"
    heads = ["M x N", "a copy, TB/s", *names.values()]
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for row in report["rows"]:
        ratios = [f"{row['rates'][name] / row['copy_rate']:.3f}" for name in names]
        lines.append(f"| {row['m']} x {row['n']} | {row['copy_rate']:.2f} | {' | '.join(ratios)} |")
    return "\n".join(lines) + "\n"


def stream_ratios() -> list[float]:
    """The fastest stream of each size, to a copy of contiguous memory."""
    report = json.loads((HERE / STREAMS).read_text("utf-8"))
    return [max(row["rates"].values()) / row["copy_rate"] for row in report["rows"]]


def mean_words(search: str) -> tuple[int, str]:
    """How many sizes a search has, and the mean and the least ratio to each peer."""
    _, found = entries(search)
    ratios: dict[str, list[float]] = {}
    for entry in found:
        for peer, ratio in shape_result(entry).ranked[0].ratios.items():
            ratios.setdefault(peer, []).append(ratio.ratio)
    words = [
        f"{NAMES.get(peer, peer)} {geometric_mean(each):.3f} (least {min(each):.3f}"
        + (f", {len(each)} sizes)" if len(each) < len(found) else ")")
        for peer, each in ratios.items()
    ]
    return len(found), "; ".join(words)


def summary() -> str:
    """README.md's table: what each search found, in a line."""
    what = {
        "tuned": "`gemm`, CuTe DSL, bf16: the list `bar`",
        "tuned pallas": "`gemm`, Pallas, bf16, B (N, K): M from 1024 in that list",
        "tuned pallas b_n_major": "the same with B (K, N), before there was ping-pong",
    }
    lines = ["| tuned for each size | sizes | geometric mean to |", "| --- | --- | --- |"]
    for mark, words in what.items():
        count, means = mean_words(SEARCHES[mark])
        lines.append(f"| {words} | {count} | {means} |")
    row = next(row for row in fp8_rows() if row["m"] == row["n"] == row["k"] == 8192)
    ratio = row["rows"]["e4m3"]["peers"][PEER]["ratio"]
    lines.append(
        f"| `gemm`, CuTe DSL, e4m3: 8192 x 8192 x 8192 | 1 | cuBLAS' fp8 {ratio:.3f}; our own bf16 "
        f"{row['ratio']['bf16']['ratio']:.3f} |"
    )
    copied = stream_ratios()
    lines.append(
        "| `stream`, CuTe DSL, bf16: the best of three, 4096 x 4096 to 32768 x 8192 "
        f"| {len(copied)} | a copy {geometric_mean(copied):.3f} (least {min(copied):.3f}) |"
    )
    return "\n".join(lines) + "\n"


def marked(text: str) -> str:
    """The page with every table between its marks."""
    makers: dict[str, Callable[[], str]] = {
        **{mark: partial(table, search) for mark, search in SEARCHES.items()},
        "tuned fp8": fp8_table,
        "stream sizes": stream_table,
        "tuned summary": summary,
    }
    for mark, make in makers.items():
        begin, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
        head, found, rest = text.partition(begin)
        if found:
            text = head + begin + make() + end + rest.partition(end)[2]
    return text


def main() -> int:
    path = Path(sys.argv[-1])
    if "--plot" in sys.argv:
        from pipegen.measuring.plotting import draw

        draw(report(), path)
        return 0
    text = path.read_text(encoding="utf-8")
    wanted = marked(text)
    if wanted == text:
        return 0
    if "--check" in sys.argv:
        print(f"{path} is not what the results say: run `make docs`")
        return 1
    path.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
