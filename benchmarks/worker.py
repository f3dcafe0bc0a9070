# SPDX-License-Identifier: Apache-2.0
"""Checks or times one emitted GEMM module on this machine's GPU; prints one JSON object.

    python benchmarks/worker.py verify MODULE
    python benchmarks/worker.py speed MODULE M,N,K ...

Runs in its own process (see hopper.py), so that a deadlock costs its time limit and no more.
Data are N(0,1), fresh for each size; outputs lie in memory that held NaN; the reference is float64.
"""

import importlib.util
import json
import os
import statistics
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from code_digest import code_digest

TORCH = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
TOLERANCE = {"bf16": 1e-2, "f16": 1e-2, "f32": 1e-3}


def load(path: Path) -> ModuleType:
    """Import a module from its file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def description(path: Path) -> dict[str, Any]:
    """The description in the module's header."""
    lines = path.read_text(encoding="utf-8").splitlines()
    start = lines.index("# description:") + 1
    toml = []
    for line in lines[start:]:
        if not line.startswith("#"):
            break
        toml.append(line[4:])
    return tomllib.loads("\n".join(toml))


class Kernel:
    """One module with its types and majors; runs it on torch tensors, whatever its DSL."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = description(path)
        self.backend = self.text["kernel"]["backend"]
        dtype, layout = self.text.get("dtype", {}), self.text.get("layout", {})
        self.a_type = dtype.get("a", "bf16")
        self.b_type = dtype.get("b", self.a_type)
        small = self.a_type in ("e4m3", "e5m2")
        self.out_type = dtype.get("out", "bf16" if small else self.a_type)
        self.a_major, self.b_major = layout.get("a", "k"), layout.get("b", "k")
        self.module = load(path)
        self.tile = tuple(getattr(self.module, f"TILE_{mode}") for mode in "MNK")
        self.cluster = tuple(getattr(self.module, f"CLUSTER_{mode}", 1) for mode in "MN")
        self.stages: int = self.module.MAINLOOP_STAGES

    def operands(self, m: int, n: int, k: int, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Fresh A (L, M, K) and B (L, N, K), stored as the kernel wants them."""
        a_shape = (batch, m, k) if self.a_major == "k" else (batch, k, m)
        b_shape = (batch, n, k) if self.b_major == "k" else (batch, k, n)
        a = torch.randn(a_shape, device="cuda").to(TORCH[self.a_type])
        b = torch.randn(b_shape, device="cuda").to(TORCH[self.b_type])
        return a, b

    def reference(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """The product in float64."""
        left = a.double() if self.a_major == "k" else a.double().mT
        right = b.double().mT if self.b_major == "k" else b.double()
        return left @ right

    def run(self, a: torch.Tensor, b: torch.Tensor, m: int, n: int) -> torch.Tensor:
        """The product by the kernel, in memory that held NaN before."""
        if self.backend == "cute":
            out = torch.full((a.shape[0], m, n), float("nan"), device="cuda")
            out = out.to(TORCH[self.out_type])
            self.module.gemm(a, b, out)
            return out
        left, right = to_jax(a), to_jax(b)
        # XLA chooses the output's buffer, and takes the one that was freed last: a run on NaN
        # fills it (and every other buffer of the call) with NaN.
        poisoned = self.module.gemm(left * float("nan"), right)
        poisoned.block_until_ready()
        assert bool(poisoned.astype("float32").sum() != poisoned.astype("float32").sum())
        poisoned.delete()
        return from_jax(self.module.gemm(left, right), TORCH[self.out_type])

    def launcher(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Callable[[], Any]:
        """A call without arguments that launches the kernel once."""
        if self.backend == "cute":
            return lambda: self.module.gemm(a, b, out)
        import jax

        left, right = to_jax(a), to_jax(b)
        gemm = jax.jit(self.module.gemm)
        return lambda: gemm(left, right)


def to_jax(tensor: torch.Tensor) -> Any:
    """The tensor as a jax array; fp8 by its bytes, because DLPack may refuse it."""
    import jax
    import jax.numpy as jnp

    torch.cuda.synchronize()  # jax reads on a stream of its own
    names = {torch.float8_e4m3fn: jnp.float8_e4m3fn, torch.float8_e5m2: jnp.float8_e5m2}
    if tensor.dtype in names:
        raw = jax.dlpack.from_dlpack(tensor.view(torch.uint8).contiguous())
        return jax.lax.bitcast_convert_type(raw, names[tensor.dtype])
    return jax.dlpack.from_dlpack(tensor.contiguous())


def from_jax(array: Any, dtype: torch.dtype) -> torch.Tensor:
    """A jax array as a torch tensor."""
    array.block_until_ready()
    return torch.from_dlpack(array).to(dtype)


def sizes(kernel: Kernel) -> list[tuple[str, int, int, int, int]]:
    """(what it is for, M, N, K, L) for one kernel, from its tile, cluster and stages."""
    tm, tn, tk = kernel.tile
    cm, cn = kernel.cluster
    s = kernel.stages
    align = 16  # elements: 16-byte rows for every type that we have
    chosen = [
        ("one tile", tm, tn, tk * s, 1),
        ("one cluster of tiles", tm * cm, tn * cn, tk * 2, 1),
        ("fewer tiles than SMs", tm * 3, tn * 5, tk * 7, 1),
        ("several tiles a CTA", tm * 26, tn * 14, tk * 5, 1),
        ("K of one tile", tm * 2, tn * 2, tk, 1),
        ("K of stages - 1 tiles", tm * 2, tn * 2, tk * max(1, s - 1), 1),
        ("K of stages tiles", tm * 2, tn * 2, tk * s, 1),
        ("K of stages + 1 tiles", tm * 2, tn * 2, tk * (s + 1), 1),
        ("K of 2 stages + 1 tiles", tm * 2, tn * 2, tk * (2 * s + 1), 1),
        ("batch of 3", tm * 2, tn * 3, tk * 3, 3),
        ("large", 4096, 4096, 4096, 1),
    ]
    if not getattr(kernel.module, "DIVISIBLE_ONLY", False):
        chosen += [
            ("tail in M", tm * 3 + align, tn * 2, tk * 4, 1),
            ("tail in N", tm * 2, tn * 3 + align, tk * 4, 1),
            ("tail in K", tm * 2, tn * 2, tk * 4 + align, 1),
            ("tails everywhere, batch of 3", tm + align, tn - align, tk * 3 - align, 3),
            ("smaller than a tile", align, align, align, 1),
            ("odd M", tm + 1 if kernel.a_major == "k" else tm + align, tn, tk * 2, 1),
        ]
    return chosen


def verify(kernel: Kernel) -> list[dict[str, Any]]:
    """Each size once against float64, and once more for the same bits."""
    rows = []
    tolerance = TOLERANCE[kernel.out_type]
    for what, m, n, k, batch in sizes(kernel):
        a, b = kernel.operands(m, n, k, batch)
        out = kernel.run(a, b, m, n)
        again = kernel.run(a, b, m, n)
        torch.cuda.synchronize()
        expected = kernel.reference(a, b)
        error = ((out.double() - expected).norm() / expected.norm()).item()
        same = torch.equal(out.view(torch.uint8), again.view(torch.uint8))
        rows.append(
            {
                "what": what,
                "m": m,
                "n": n,
                "k": k,
                "l": batch,
                "error": error,
                "same_bits": same,
                "passed": bool(error < tolerance and same),  # NaN compares as False
            }
        )
    return rows


def interleave(
    calls: dict[str, Callable[[], Any]], wait: Callable[[], None], rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Seconds a call, one figure a round; the calls take turns within each round."""
    repeats = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        wait()
        start = time.perf_counter()
        for _ in range(10):
            call()
        wait()
        repeats[name] = max(4, int(seconds / ((time.perf_counter() - start) / 10)))
    figures: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            wait()
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            wait()
            figures[name].append((time.perf_counter() - start) / repeats[name])
    return figures


def speed(kernel: Kernel, shapes: list[tuple[int, int, int]]) -> list[dict[str, Any]]:
    """Each shape in rounds that alternate with torch.mm (cuBLAS) on the same operands."""
    rows = []
    for m, n, k in shapes:
        a, b = kernel.operands(m, n, k, 1)
        a, b = a[0], b[0]
        out = torch.empty(m, n, device="cuda", dtype=TORCH[kernel.out_type])
        theirs = torch.empty(m, n, device="cuda", dtype=TORCH[kernel.a_type])
        left = a if kernel.a_major == "k" else a.mT
        right = b.mT if kernel.b_major == "k" else b
        run = kernel.launcher(a, b, out)
        wait: Callable[[], None] = torch.cuda.synchronize
        if kernel.backend == "pallas":
            last: list[Any] = [run()]

            def call(run: Callable[[], Any] = run, last: list[Any] = last) -> None:
                last[0] = run()

            def both(last: list[Any] = last) -> None:
                last[0].block_until_ready()
                torch.cuda.synchronize()

            calls, wait = {"ours": call}, both
        else:
            calls = {"ours": run}

        def cublas(
            left: torch.Tensor = left, right: torch.Tensor = right, theirs: torch.Tensor = theirs
        ) -> None:
            torch.mm(left, right, out=theirs)

        calls["cublas"] = cublas
        figures = interleave(calls, wait, rounds=30, seconds=0.025)
        ratios = sorted(c / o for o, c in zip(figures["ours"], figures["cublas"], strict=True))
        flops = 2 * m * n * k
        rows.append(
            {
                "m": m,
                "n": n,
                "k": k,
                "tflops": flops / statistics.median(figures["ours"]) / 1e12,
                "cublas_tflops": flops / statistics.median(figures["cublas"]) / 1e12,
                "ratio": statistics.median(ratios),
                "ratio_low": ratios[len(ratios) // 10],
                "ratio_high": ratios[-1 - len(ratios) // 10],
            }
        )
    return rows


def main() -> None:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    task, path, *rest = sys.argv[1:]
    kernel = Kernel(Path(path))
    if task == "verify":
        rows = verify(kernel)
    else:
        shapes = [tuple(int(size) for size in word.split(",")) for word in rest]
        rows = speed(kernel, [(m, n, k) for m, n, k in shapes])
    result = {"out_type": kernel.out_type, "code": code_digest(kernel.path), "rows": rows}
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
