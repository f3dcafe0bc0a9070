# SPDX-License-Identifier: Apache-2.0
"""Random graphs with groups in turn, clusters and rings that lead back, as data; by a seed.

They begin as one of `random_graphs`. Each is of one kind: `KINDS[seed % len(KINDS)]`.
"""

import random
from typing import Any

import random_graphs

KINDS = ("groups", "roles", "rows", "columns", "feedback")
FAULTS = (
    *("warps", "unknown", "one_end", "twice", "group", "four", "alone"),
    *("tma", "matrix", "forward", "circle", "room", "both"),
)
BYTES = {"i8": 1, "bf16": 2, "f16": 2, "f32": 4}


def valid(seed: int) -> dict[str, Any]:
    """A graph of its seed's kind that the rules let pass."""
    kind = KINDS[seed % len(KINDS)]
    rng = random.Random(seed)
    make = {"groups": _groups, "roles": _roles, "rows": _rows, "columns": _columns}
    while True:
        data = random_graphs.valid(rng.randrange(10**6))
        done = _feedback(rng) if kind == "feedback" else make[kind](rng, data)
        if done is not None:
            done["kernel"]["name"] = f"graph_{kind}_{seed}"
            return done


def in_pallas(seed: int) -> dict[str, Any]:
    """A graph with groups in turn for Pallas: matrices, TMA at both ends, a warpgroup a group."""
    rng = random.Random(seed)
    while True:
        kind = rng.choice(("groups", "roles"))
        data = {"groups": _groups, "roles": _roles}[kind](rng, _matrices(rng))
        if data is None or not _warpgroups(data):
            continue
        for order in data["order"].values():
            groups = order.get("groups", 2)
            for ring, entry in data["pipeline"].items():
                if set(order["roles"].split(", ")) & {n for end in _ends(data, ring) for n in end}:
                    entry["stages"] = -(-entry["stages"] // groups) * groups
        data["kernel"] |= {"backend": "pallas", "name": f"turns_{seed}"}
        return data


def _matrices(rng: random.Random) -> dict[str, Any]:
    """A random graph whose tiles are all matrices, which TMA loads."""
    while True:
        data = random_graphs.valid(rng.randrange(10**6))
        read = [tensor for tensor in data["tensor"].values() if "read" in tensor]
        fed = {name for ring in data["pipeline"] for name in _ends(data, ring)[1]}
        if any(tensor["read"] in fed for tensor in read):
            continue
        kinds = {role["kind"] for name, role in data["role"].items() if name not in fed}
        if "thread" in kinds or not all(map(_whole, data["tensor"].values())):
            continue
        for tensor in data["tensor"].values():
            tensor["dtype"] = "f16" if tensor["dtype"] == "i8" else tensor["dtype"]
        for name, role in data["role"].items():
            role |= {"warps": 4, "kind": role["kind"] if name in fed else "tma"}
        return data


def _warpgroups(data: dict[str, Any]) -> bool:
    """Whether a block has so many: each group is one."""
    groups = {order["roles"]: order.get("groups", 1) for order in data["order"].values()}
    return sum(groups.get(role, 1) for role in data["role"]) <= 8


def _ends(data: dict[str, Any], ring: str) -> tuple[list[str], list[str]]:
    left, right = data["pipeline"][ring]["edge"].split(" -> ")
    return left.split(", "), right.split(", ")


def _whole(tensor: dict[str, Any]) -> bool:
    return tensor.get("shape", "M, N") == "M, N"


def _by_tile(data: dict[str, Any], role: str) -> bool:
    """Whether a body takes and gives nothing that comes once a panel."""
    if data["role"][role]["kind"] != "thread":
        return False
    for ring in data["pipeline"]:
        if any(role in end for end in _ends(data, ring)):
            held = data["tensor"].get(data["pipeline"][ring].get("holds"), {})
            if "N" not in held.get("shape", "M, N"):
                return False
    own = [t for t in data["tensor"].values() if role in (t.get("read"), t.get("write"))]
    return all(_whole(tensor) for tensor in own)


def _groups(rng: random.Random, data: dict[str, Any]) -> dict[str, Any] | None:
    """One role, or two that follow each other, of several groups."""
    able = [role for role in data["role"] if _by_tile(data, role)]
    if not able:
        return None
    for index, role in enumerate(rng.sample(able, min(len(able), rng.choice((1, 1, 2))))):
        order = {"roles": role, "groups": rng.choice((2, 2, 3))}
        for ring, entry in data["pipeline"].items():
            if any(role in end for end in _ends(data, ring)):
                entry["stages"] = max(entry["stages"], order["groups"])
        data.setdefault("order", {})[f"turns{index}"] = order
    warps = sum(role["warps"] for role in data["role"].values())
    return data if 3 * warps <= 32 else None


def _roles(rng: random.Random, data: dict[str, Any]) -> dict[str, Any] | None:
    """Two roles in place of one that only takes and fills rings."""
    touched = {t.get("read") or t.get("write") for t in data["tensor"].values()}
    able = [role for role in data["role"] if _by_tile(data, role) and role not in touched]
    if not able:
        return None
    role = rng.choice(able)
    both = f"{role}a, {role}b"
    for ring in data["pipeline"]:
        ends = [[both if name == role else name for name in end] for end in _ends(data, ring)]
        data["pipeline"][ring]["edge"] = " -> ".join(", ".join(end) for end in ends)
        if any(both in end for end in ends):
            data["pipeline"][ring]["stages"] = max(data["pipeline"][ring]["stages"], 2)
    entry = data["role"].pop(role)
    data["role"] |= {f"{role}a": dict(entry), f"{role}b": dict(entry)}
    data["order"] = {"turns": {"roles": rng.choice((both, f"{role}b, {role}a"))}}
    return data


def _cluster(rng: random.Random, data: dict[str, Any], shape: list[int]) -> dict[str, Any] | None:
    """Two CTAs, some rings of the peer, and multicast of what both need."""
    data["cluster"] = {"shape": shape}
    shared, size = ("N", data["tile"]["n"]) if shape == [2, 1] else ("M", data["tile"]["m"])
    special = 0

    def whole(tensor: dict[str, Any]) -> bool:
        """Whether each half of a tile begins where TMA may write."""
        return size * BYTES[tensor["dtype"]] % 256 == 0

    for ring, entry in data["pipeline"].items():
        sources, _ = _ends(data, ring)
        held = data["tensor"].get(entry.get("holds"), {})
        kinds = [data["role"][name]["kind"] for name in sources]
        if kinds == ["thread"] and not held and rng.random() < 0.7:
            entry["peer"] = True
            special += 1
        elif (kinds, held.get("shape")) == (["tma"], shared) and whole(held):
            entry["multicast"] = True
            special += 1
    return data if special else None


def _rows(rng: random.Random, data: dict[str, Any]) -> dict[str, Any] | None:
    if rng.random() < 0.5:
        data["tile"] = {"m": 16, "n": 128}
    return _cluster(rng, data, [2, 1])


def _columns(rng: random.Random, data: dict[str, Any]) -> dict[str, Any] | None:
    data["tile"] = {"m": 64, "n": 32}
    if any(not _whole(t) and "write" in t for t in data["tensor"].values()):
        return None
    if any(role["kind"] == "cp_async" for role in data["role"].values()):
        return None
    return _cluster(rng, data, [1, 2])


def _feedback(rng: random.Random) -> dict[str, Any]:
    """A line of roles, and a ring from one of them back to an earlier one, which adds it."""
    count = rng.randint(2, 4)
    m, n = rng.choice(random_graphs.TILES)
    names = [f"r{index}" for index in range(count)]
    first = rng.randrange(count - 1)
    last = rng.randrange(first + 1, count)
    credits = rng.randint(1, 3)
    rings = {"x": {"edge": "load -> r0", "stages": rng.randint(1, 4)}}
    for index in range(count - 1):
        edge = f"{names[index]} -> {names[index + 1]}"
        rings[f"ring{index}"] = {"edge": edge, "stages": rng.randint(1, 3), "dtype": "f32"}
    back = {"edge": f"{names[last]} -> {names[first]}", "dtype": "f32", "credits": credits}
    rings["back"] = {**back, "stages": rng.randint(credits, 4)}
    step = n * credits
    moved = f"torch.nn.functional.pad(x, ({step} * k, 0))[:, : x.shape[1]]"
    expect = f"sum({moved} for k in range(x.shape[1] // {step} + 1))"
    return {
        "kernel": {"op": "custom", "backend": "cute", "arch": "sm_90a"},
        "tile": {"m": m, "n": n},
        "tensor": {
            "x": {"read": "load", "dtype": rng.choice(("bf16", "f16", "f32", "i8"))},
            "out": {"write": names[-1], "dtype": "f32", "expect": expect},
        },
        "pipeline": rings,
        "role": {name: {"warps": rng.choice((1, 2, 4))} for name in names},
    }


def _of(kind: str, rng: random.Random) -> dict[str, Any]:
    return valid(len(KINDS) * rng.randrange(200) + KINDS.index(kind))


def broken(seed: int) -> tuple[str, dict[str, Any]]:
    """A graph with one fault, and the code of the rule that finds it."""
    rng = random.Random(seed)
    fault = rng.choice(FAULTS)
    if fault == "warps":
        data = _of("roles", rng)
        role = data["order"]["turns"]["roles"].split(", ")[1]
        data["role"][role]["warps"] = 2 if data["role"][role]["warps"] == 4 else 4
        return "PG265", data
    if fault == "unknown":
        data = _of("groups", rng)
        data["order"]["turns0"]["roles"] = "nobody"
        return "PG265", data
    if fault == "one_end":
        data = _of("roles", rng)
        role = data["order"]["turns"]["roles"].split(", ")[1]
        other = rng.choice([ring for ring in data["pipeline"] if role in str(_ends(data, ring))])
        ends = [[name for name in end if name != role] for end in _ends(data, other)]
        data["pipeline"][other]["edge"] = " -> ".join(", ".join(end) for end in ends)
        return "PG2", data
    if fault == "twice":
        data = _of("groups", rng)
        data["order"]["again"] = dict(data["order"]["turns0"])
        return "PG265", data
    if fault == "group":
        data = _of("groups", rng)
        data["order"]["turns0"]["groups"] = rng.choice((-1, 0, 1, 99))
        return "PG265", data
    if fault == "four":
        data = _of("rows", rng)
        data["cluster"]["shape"] = rng.choice(([2, 2], [4, 1], [0, 1], [1, 3]))
        return "PG266", data
    if fault == "alone":
        data = _of("rows", rng)
        data["cluster"]["shape"] = [1, 1]
        return "PG266", data
    if fault in ("tma", "matrix"):
        data = {**_of("feedback", rng), "cluster": {"shape": rng.choice(([2, 1], [1, 2]))}}
        data["pipeline"].pop("back")
        data["pipeline"]["x"]["peer" if fault == "tma" else "multicast"] = True
        return "PG266", data
    data = _of("feedback", rng)
    if fault == "forward":
        data["pipeline"]["ring0"]["credits"] = 1
        data["pipeline"].pop("back")
        return "PG267", data
    if fault == "circle":
        data["pipeline"]["back"].pop("credits")
        return "PG274", data
    if fault == "both":
        return "PG266", {**data, "cluster": {"shape": [1, 2]}}
    data["pipeline"]["back"] |= {"credits": 20, "stages": 1}
    return "PG274", data
