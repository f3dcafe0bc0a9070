# SPDX-License-Identifier: Apache-2.0
"""Random graphs of 2 to 5 roles and 1 to 4 rings, as the data of a description; by a seed.

`python tests/random_graphs.py FOLDER COUNT [orders]` writes that many modules, to run them on a
GPU; with `orders` of those of `random_orders`.
"""

import random
import sys
from pathlib import Path
from typing import Any

TILES = ((16, 64), (32, 64), (16, 128), (32, 32))


def valid(seed: int) -> dict[str, Any]:
    """A graph that the rules let pass: roles in a line, rings from each to later ones."""
    rng = random.Random(seed)
    while True:
        data = _draft(rng)
        if data is not None:
            data["kernel"]["name"] = f"graph_{seed}"
            return data


def _draft(rng: random.Random) -> dict[str, Any] | None:
    count = rng.randint(2, 5)
    names = [f"r{index}" for index in range(count)]
    edges = []
    for _ in range(rng.randint(1, 4)):
        source = rng.randrange(count - 1)
        later = range(source + 1, count)
        targets = sorted(rng.sample(later, min(len(later), rng.choice((1, 1, 1, 2)))))
        edges.append((source, targets))
    used = {source for source, _ in edges} | {t for _, targets in edges for t in targets}
    if used != set(range(count)):
        return None
    fed = {target for _, targets in edges for target in targets}
    feeding = {source for source, _ in edges}
    m, n = rng.choice(TILES)
    tensors: dict[str, Any] = {}
    rings: dict[str, Any] = {}
    roles: dict[str, Any] = {}
    dtype = {index: rng.choice(("bf16", "f16", "f32", "i8")) for index in range(count)}
    for index, name in enumerate(names):
        if index in fed:
            roles[name] = {"kind": "thread", "warps": rng.choice((1, 2, 4))}
            if rng.random() < 0.15:
                shape = rng.choice(("M", "N", "M, N"))
                tensors[f"extra{index}"] = {"read": name, "shape": shape, "dtype": "f32"}
            continue
        kind = rng.choice(("tma", "tma", "cp_async", "thread"))
        shape = rng.choice(("M, N", "M, N", "M, N", "M", "N")) if kind == "tma" else "M, N"
        narrow = n // 32 * {"i8": 1, "f32": 4}.get(dtype[index], 2)
        if kind == "cp_async" and narrow not in (4, 8, 16):
            kind = "tma"
        roles[name] = {"kind": kind, "warps": 1 if kind == "tma" else rng.choice((1, 2, 4))}
        tensors[f"x{index}"] = {"read": name, "shape": shape, "dtype": dtype[index]}
    for place, (source, targets) in enumerate(edges):
        ring: dict[str, Any] = {
            "edge": f"{names[source]} -> {', '.join(names[target] for target in targets)}",
            "stages": rng.randint(1, 5),
        }
        if roles[names[source]]["kind"] == "thread":
            ring["dtype"] = rng.choice(("bf16", "f16", "f32"))
            ring["shape"] = "M, N"
        else:
            ring["holds"] = f"x{source}"
        rings[f"ring{place}"] = ring
    for index, name in enumerate(names):
        if index not in feeding or (roles[name]["kind"] == "thread" and rng.random() < 0.2):
            sums = rng.random() < 0.2 and _has_columns(index, edges, tensors, roles, names)
            # Sums of a whole row are exact in f32 alone.
            shape = {"shape": "M", "dtype": "f32"} if sums else {"dtype": _wide(rng)}
            tensors[f"out{index}"] = {"write": name, **shape}
    if not any(tensor.get("shape", "M, N") == "M, N" for tensor in tensors.values()):
        return None
    return {
        "kernel": {"op": "custom", "backend": "cute", "arch": "sm_90a"},
        "tile": {"m": m, "n": n},
        "tensor": tensors,
        "pipeline": rings,
        "role": roles,
    }


def _wide(rng: random.Random) -> str:
    return rng.choice(("bf16", "f16", "f32"))


def _has_columns(index: int, edges: Any, tensors: Any, roles: Any, names: Any) -> bool:
    """Whether a role takes a tile that has columns: it could not sum rows without."""
    for source, targets in edges:
        if index in targets:
            tensor = tensors.get(f"x{source}")
            if roles[names[source]]["kind"] == "thread" or "N" in tensor["shape"]:
                return True
    return False


# Each way to break a graph: the rule that must say so, and what is changed.
def broken(seed: int) -> tuple[str, dict[str, Any]]:
    """A graph with one fault, and the code of the rule that finds it."""
    rng = random.Random(seed)
    data = valid(seed)
    rings, roles, tensors = data["pipeline"], data["role"], data["tensor"]
    ring = rng.choice(sorted(rings))
    left, right = (side.strip() for side in rings[ring]["edge"].split("->"))
    first = right.split(", ")[0]
    fault = rng.choice(
        ("itself", "circle", "warps", "stages", "smem", "trips", "role", "kind", "word", "end")
    )
    if fault == "itself":
        rings[ring]["edge"] = f"{left} -> {left}"
        return "PG27", data
    if fault == "circle":
        for name in (first, left):
            roles[name] = {"kind": "thread"}
        for each in rings.values():
            each.pop("holds", None)
        rings["back"] = {"edge": f"{first} -> {left}", "stages": rng.randint(1, 5)}
        return "PG274", data
    if fault == "warps":
        roles[first]["warps"] = rng.choice((3, 5, 64))
        return "PG273", data
    if fault == "stages":
        rings[ring]["stages"] = rng.choice((0, -1, 33))
        return "PG273", data
    if fault == "smem":
        data["tile"] = {"m": 32, "n": 64}
        for each in rings.values():
            each["stages"] = 32
            if "holds" not in each:
                each["dtype"] = "f32"
        rings["wide"] = {"edge": f"{first} -> sink", "stages": 32, "dtype": "f32"}
        rings["wide"]["shape"] = "M, N"
        roles["sink"] = {"warps": 1}
        tensors["sunk"] = {"write": "sink"}
        return "PG273", data
    if fault == "trips":
        name = next(name for name, t in tensors.items() if t.get("shape", "M, N") == "M, N")
        tensors[name]["tile"] = [data["tile"]["m"], 2 * data["tile"]["n"]]
        return "PG272", data
    if fault == "role":
        roles["nobody"] = {"warps": 1}
        return "PG270", data
    if fault == "kind":
        rings[ring]["consumer"] = "umma"
        return "PG271", data
    if fault == "word":
        rings[ring]["edge"] = rng.choice((left, f"{left} -> ", f"{left} => {first}", f"-> {first}"))
        return "PG270", data
    rings["lost"] = {"edge": f"{first} -> nowhere", "stages": 1}
    return "PG271", data


def main(folder: str, count: str, kind: str = "") -> None:
    import random_orders

    from pipegen.description_file import description_from_data
    from pipegen.planning import plan
    from pipegen.rendering import render

    make = random_orders.valid if kind == "orders" else valid
    for seed in range(int(count)):
        for name, text in render(plan(description_from_data(make(seed)))).items():
            (Path(folder) / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
