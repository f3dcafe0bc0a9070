# SPDX-License-Identifier: Apache-2.0
"""Emitted `custom` modules: whatever their `reference` says of the tensors that they read."""

from pathlib import Path

import torch

from pipegen.measuring.operators import MOVER_CLOCK, TORCH, Call, Size, description, load, poisoned
from pipegen.measuring.operators.jax_arrays import from_jax, to_jax

PEER = "torch (copy_ of each result)"
UNIT = "TB/s"
TYPES = {**TORCH, "i8": torch.int8}


class Operator:
    """One custom module with its tensors; `out_type` is the widest error that any step may have."""

    clock = MOVER_CLOCK

    def __init__(self, path: Path) -> None:
        text = description(path)
        self.pallas = text["kernel"]["backend"] == "pallas"
        self.tensors = text["tensor"]
        self.read = [name for name, tensor in self.tensors.items() if "read" in tensor]
        self.written = [name for name, tensor in self.tensors.items() if "write" in tensor]
        dtypes = [tensor.get("dtype", "bf16") for tensor in self.tensors.values()]
        dtypes += [ring.get("dtype", "f32") for ring in text["pipeline"].values()]
        self.out_type = "f32" if set(dtypes) <= {"f32", "i8"} else "bf16"
        kinds = [role.get("kind") for role in text.get("role", {}).values()]
        # TMA stores whole 16 bytes; threads store any N.
        self.any_n = "tma_store" not in kinds
        self.module = load(path)
        self.multiplies = bool({"wgmma", "umma"} & {*kinds})
        shapes = {symbol for name in self.tensors for symbol in self.symbols(name)}
        self.tile = {symbol: getattr(self.module, f"TILE_{symbol.upper()}") for symbol in shapes}

    def type_of(self, name: str) -> torch.dtype:
        return TYPES[self.tensors[name].get("dtype", "bf16")]

    def symbols(self, name: str) -> list[str]:
        """The symbols of a tensor's shape, in lower case: m, n, of products also k and p."""
        return [each.strip().lower() for each in self.tensors[name].get("shape", "M, N").split(",")]

    def shape_of(self, name: str, size: Size) -> tuple[int, ...]:
        return tuple(size[symbol] for symbol in self.symbols(name))

    def operands(self, size: Size) -> list[torch.Tensor]:
        """The tensors that are read, their rows longer than the matrix."""
        found = []
        for name in self.read:
            shape, dtype = self.shape_of(name, size), self.type_of(name)
            longer = (*shape[:-1], (shape[-1] // 16 + 1) * 16)
            if dtype == torch.int8:
                values = torch.randint(-100, 101, longer, device="cuda")
            else:
                values = torch.randn(longer, device="cuda")
            found.append(values.to(dtype)[..., : shape[-1]])
        return found

    def reference(self, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        """The module's own, in float64."""
        if self.pallas:
            wanted = self.module.reference(*(each.double().cpu().numpy() for each in operands))
            return [torch.from_numpy(wanted[name]).cuda() for name in self.written]
        found = {
            symbol: extent
            for name, each in zip(self.read, operands, strict=True)
            for symbol, extent in zip(self.symbols(name), each.shape, strict=True)
        }
        sizes = [found[symbol] for symbol in "mnkp" if symbol in self.tile]
        wanted = self.module.reference(torch, *sizes, *(each.double() for each in operands))
        return [wanted[name] for name in self.written]

    def run(self, operands: list[torch.Tensor], size: Size) -> list[torch.Tensor]:
        """The results, in memory that held NaN before; all around them must still hold NaN."""
        if self.pallas:
            return self.run_jax(operands)
        given = dict(zip(self.read, operands, strict=True))
        around, results = {}, {}
        for name in self.written:
            shape = self.shape_of(name, size)
            longer = (*(s + 1 for s in shape[:-1]), (shape[-1] // 16 + 1) * 16)
            around[name] = poisoned(longer, self.type_of(name))
            results[name] = around[name][tuple(slice(0, s) for s in shape)]
        self.module.custom(*({**given, **results}[name] for name in self.tensors))
        for name, whole in around.items():
            beside = whole.isnan()
            beside[tuple(slice(0, s) for s in results[name].shape)] = True
            if not beside.all():
                raise AssertionError(f"wrote beside {name}: {size}")
        return list(results.values())

    def run_jax(self, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        """The results of a Pallas module, after a run on NaN that XLA's buffers keep."""
        arrays = [to_jax(each) for each in operands]
        # Whole numbers have no NaN: others take their place.
        bad = [~each if each.dtype == "int8" else each * float("nan") for each in arrays]
        for spoiled in self.module.custom(*bad):
            spoiled.block_until_ready()
            spoiled.delete()
        results = zip(self.module.custom(*arrays), self.written, strict=True)
        return [from_jax(result, self.type_of(name)) for result, name in results]

    def launcher(self, operands: list[torch.Tensor], size: Size) -> tuple[Call, Call]:
        """One launch, and the wait for all."""
        if self.pallas:
            arrays = [to_jax(each) for each in operands]
            last = [self.module.custom(*arrays)]

            def run() -> None:
                last[0] = self.module.custom(*arrays)

            return run, lambda: [each.block_until_ready() for each in last[0]]
        given = dict(zip(self.read, operands, strict=True))
        for name in self.written:
            shape = self.shape_of(name, size)
            given[name] = torch.empty(shape, device="cuda", dtype=self.type_of(name))
        return (
            lambda: self.module.custom(*(given[name] for name in self.tensors)),
            torch.cuda.synchronize,
        )

    def peer(self, operands: list[torch.Tensor], size: Size) -> Call:
        """A device copy of the first matrix: what the memory gives."""
        first = next(each for each in operands if each.ndim == 2)
        out = torch.empty(first.shape, device="cuda", dtype=first.dtype)
        return lambda: out.copy_(first)

    def work(self, size: Size) -> int:
        """Bytes read and written."""
        total = 0
        for name in self.tensors:
            elements = 1
            for extent in self.shape_of(name, size):
                elements *= extent
            total += elements * self.type_of(name).itemsize
        return total

    def product_sizes(self) -> list[tuple[str, Size]]:
        """Of a graph that multiplies: each symbol in tiles, and a size that no tile divides."""
        columns = self.symbols(self.written[0])[-1]  # TMA stores whole 16 bytes of them
        step = 1 if self.any_n else 16
        found = []
        for what, tiles, beside in (
            ("one tile", {}, 0),
            ("one step more than stages", {"k": 9, "n": 9}, 0),
            ("several tiles a block", {"m": 24, columns: 17}, 0),
            ("many steps", {"k": 65}, 0),
            ("tails everywhere", {"m": 3, "n": 5, "k": 4, "p": 2}, -5),
            ("a little more than tiles", {"m": 2, "n": 3, "k": 3, "p": 2}, 3),
            ("large", {"m": 32, "n": 24, "k": 24, "p": 8}, 0),
        ):
            size = {"m": 1, "n": 1, "k": 1, "l": 1}
            for symbol, tile in self.tile.items():
                whole = tiles.get(symbol, 1) * tile
                unit = step if symbol == columns else 1
                size[symbol] = whole + (beside * unit if whole > -beside * unit else 0)
            found.append((what, size))
        smallest = {symbol: step if symbol == columns else 1 for symbol in self.tile}
        return [*found, ("smallest", {"m": 1, "n": 1, "k": 1, "l": 1, **smallest})]

    def sizes(self) -> list[tuple[str, Size]]:
        """From the module's tile."""
        if self.multiplies:
            return self.product_sizes()
        tm, tn = self.tile["m"], self.tile["n"]
        chosen = [
            ("one tile", tm, tn),
            ("fewer panels than blocks", tm * 3, tn * 5),
            ("several panels a block", tm * 132 * 3, tn * 2),
            ("many tiles a panel", tm * 7, tn * 33),
            ("tail in M", tm * 3 + 1, tn * 2),
            ("tail in N", tm * 2, tn * 3 + 16),
            ("tails everywhere", tm * 5 - 3, tn * 7 - 16),
            ("one row", 1, tn * 9),
            ("smaller than a tile", 3, 16),
            ("large", 8192, 8192),
        ]
        if self.pallas:
            # Whole tiles only: the module refuses others by name.
            chosen = [each for each in chosen if each[1] % tm == 0 and each[2] % tn == 0]
        elif self.any_n:
            chosen += [("odd N", tm * 2, tn * 3 + 1), ("odd M and N", tm * 4 - 1, tn * 5 - 1)]
        return [(what, {"m": m, "n": n, "k": 1, "l": 1}) for what, m, n in chosen]
