# SPDX-License-Identifier: Apache-2.0
"""Random graphs that multiply, as the data of a description; by a seed.

One product or two, operands straight from TMA or converted, one loader or two, results stored by
wgmma's threads, by others, or by TMA; with tcgen05 by one role or two that take the sums. In the
CuTe DSL or, in whole warpgroups with wgmma, in Pallas.
`python tests/random_products.py FOLDER COUNT` writes that many modules of wgmma for the CuTe DSL,
to run them on a GPU.
"""

import random
import sys
from pathlib import Path
from typing import Any

from pipegen.description_file import description_from_data
from pipegen.errors import InputError

# Rules of what a block has: a draft may ask for too much, and another is drawn.
RESOURCES = {"PG269", "PG273", "PG279", "PG285"}


def product(seed: int, arch: str = "sm_90a", backend: str = "cute") -> dict[str, Any]:
    """A graph that the rules let pass. Raises InputError if one is refused for its form."""
    rng = random.Random(seed)
    draft = _draft if arch == "sm_90a" else _umma_draft
    while True:
        data = draft(rng)
        if backend == "pallas":
            _whole_warpgroups(rng, data)
        data["kernel"]["name"] = f"product_{seed}"
        try:
            description_from_data(data)
        except InputError as error:
            if {problem.rule for problem in error.problems} <= RESOURCES:
                continue
            raise
        return data


class _Draft:
    """Tensors, rings and roles as they are drawn."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.word = rng.choice(("bf16", "f16"))
        self.tensors: dict[str, Any] = {}
        self.rings: dict[str, Any] = {}
        self.roles: dict[str, Any] = {}
        self.loaders = ["load"] if rng.random() < 0.6 else ["load", "load_b"]

    def ring(self, name: str, edge: str, **more: Any) -> None:
        """A ring of a random depth, or of as many stages as fit."""
        stages = self.rng.choice(("auto", "auto", 1, 2, 3))
        self.rings[name] = {"edge": edge, "stages": stages, **more}

    def operand(self, name: str, shape: str, role: str) -> None:
        """A tensor that comes to `role` as it is, or through a role that converts it."""
        loader = self.rng.choice(self.loaders)
        wide = self.rng.choice(("i8", "f32", "bf16", "f16"))
        converted = self.rng.random() < 0.4
        self.tensors[name] = {
            "shape": shape,
            "read": loader,
            "dtype": wide if converted else self.word,
        }
        if not converted:
            self.ring(name, f"{loader} -> {role}", holds=name)
            return
        between = f"convert_{name}"
        self.roles[between] = {"kind": "thread", "warps": self.rng.choice((2, 4))}
        self.ring(name, f"{loader} -> {between}", holds=name)
        self.ring(f"{name}_wide", f"{between} -> {role}", dtype=self.word)

    def result(self, role: str, shape: str) -> None:
        """What becomes of a role's product."""
        way = self.rng.choice(("own", "store", "threads", "both"))
        dtype = self.rng.choice(("f32", "bf16", "f16"))
        out = {"shape": shape, "dtype": dtype}
        if way == "own":
            self.tensors["out"] = {**out, "write": role}
        elif way == "store":
            self.ring("done", f"{role} -> store", dtype=dtype)
            self.roles["store"] = {"kind": "tma_store", "warps": 1}
            self.tensors["out"] = {**out, "write": "store"}
        else:
            self.ring("product", f"{role} -> finish", dtype=self.rng.choice(("f32", "bf16")))
            self.roles["finish"] = {"kind": "thread", "warps": self.rng.choice((4, 8))}
            self.vector(shape)
            if way == "threads":
                self.tensors["out"] = {**out, "write": "finish"}
                return
            self.ring("done", "finish -> store", dtype=dtype)
            self.roles["store"] = {"kind": "tma_store", "warps": 1}
            self.tensors["out"] = {**out, "write": "store"}

    def vector(self, shape: str) -> None:
        """A row or a column that is added to the product, by TMA or by the threads themselves."""
        if self.rng.random() < 0.4:
            return
        reader = self.rng.choice((*self.loaders, "finish"))
        symbol = self.rng.choice(shape.split(", "))
        self.tensors["v"] = {"shape": symbol, "dtype": "f32", "read": reader}
        if reader != "finish":
            self.ring("v", f"{reader} -> finish", holds="v")

    def sums(self, role: str, shape: str) -> None:
        """What becomes of a product in TMEM: threads store it, or TMA does, or both."""
        way = self.rng.choice(("threads", "store", "both"))
        readers = ["finish", "other"] if way == "both" else ["finish"]
        stages = self.rng.choice(("auto", 1, 2, 3))
        self.rings["acc"] = {"edge": f"{role} -> {', '.join(readers)}", "stages": stages}
        self.vector(shape)
        written = {"shape": shape, "dtype": self.rng.choice(("f32", "bf16", "f16"))}
        if way == "both":
            self.tensors["raw"] = {"shape": shape, "dtype": "f32", "write": "other"}
        if way == "threads":
            self.tensors["out"] = {**written, "write": "finish"}
            return
        self.ring("done", "finish -> store", dtype=written["dtype"])
        self.roles["store"] = {"kind": "tma_store", "warps": 1}
        self.tensors["out"] = {**written, "write": "store"}


def _draft(rng: random.Random) -> dict[str, Any]:
    draft = _Draft(rng)
    tile = {"m": rng.choice((64, 128)), "n": rng.choice((64, 96, 128)), "k": rng.choice((32, 64))}
    warpgroups = rng.choice((1, tile["m"] // 64))
    draft.roles["multiply"] = {"kind": "wgmma", "warps": 4 * warpgroups}
    draft.operand("a", "M, K", "multiply")
    draft.operand("b", "N, K", "multiply")
    if rng.random() < 0.4:
        tile["p"] = rng.choice((32, 64, 128))
        draft.roles["second"] = {"kind": "wgmma", "warps": 4 * warpgroups}
        draft.ring("between", "multiply -> second", dtype=draft.word)
        draft.operand("c", "P, N", "second")
        draft.result("second", "M, P")
    else:
        draft.result("multiply", "M, N")
    return _data(draft, tile, "sm_90a")


def _umma_draft(rng: random.Random) -> dict[str, Any]:
    draft = _Draft(rng)
    tile = {"m": 128, "n": rng.choice((32, 64, 96, 128)), "k": rng.choice((32, 64))}
    draft.roles["multiply"] = {"kind": "umma", "warps": 1}
    draft.operand("a", "M, K", "multiply")
    draft.operand("b", "N, K", "multiply")
    if rng.random() < 0.4:
        tile |= {"n": rng.choice((32, 64)), "p": rng.choice((32, 64, 128))}
        draft.roles["second"] = {"kind": "umma", "warps": 1}
        draft.ring("scores", "multiply -> round")
        draft.ring("between", "round -> second", dtype=draft.word)
        draft.operand("c", "P, N", "second")
        draft.sums("second", "M, P")
    else:
        draft.sums("multiply", "M, N")
    return _data(draft, tile, "sm_100a")


def _data(draft: _Draft, tile: dict[str, int], arch: str) -> dict[str, Any]:
    used = {tensor.get("read") for tensor in draft.tensors.values()}
    for loader in draft.loaders:
        if loader in used:
            draft.roles[loader] = {"kind": "tma", "warps": 1}
    return {
        "kernel": {"op": "custom", "backend": "cute", "arch": arch},
        "tile": tile,
        "tensor": draft.tensors,
        "pipeline": draft.rings,
        "role": draft.roles,
    }


def _whole_warpgroups(rng: random.Random, data: dict[str, Any]) -> None:
    """The same graph in Pallas, in place: no role has less than a warpgroup."""
    data["kernel"]["backend"] = "pallas"
    for role in data["role"].values():
        if role["kind"] == "thread":
            role["warps"] = rng.choice((4, 4, 8))
        elif role["kind"] != "wgmma":
            role["warps"] = 4


def main(folder: str, count: str) -> None:
    from pipegen.planning import plan
    from pipegen.rendering import render

    for seed in range(int(count)):
        for name, text in render(plan(description_from_data(product(seed)))).items():
            (Path(folder) / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
