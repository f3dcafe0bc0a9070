# SPDX-License-Identifier: Apache-2.0
"""Calls emitted modules as torch, jax and C would, on this machine's GPU.

    python benchmarks/integration.py generated/cute/*_torch*.py --json benchmarks/integration.json
    python benchmarks/integration.py MODULE... --export FOLDER    also objects of `pipegen export`

For each module with `torch_op`: the operator, torch's own opcheck, and torch.compile in one graph;
with `jax_gemm`: a call, one inside jax.jit, and the module's own function on jax
arrays (DLPack); and the object FOLDER/NAME.o in place of the compiled kernel. Random operands,
against `reference` in float64. Modules for other GPUs are skipped. Exit code 1 if anything failed.
"""

import argparse
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import torch
from hopper import machine

LIMIT = 1e-2
M, N, K, GROUP = 1000, 776, 512, 2


def load(path: Path) -> Any:
    """The module at `path`."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def described(text: str, section: str, key: str, usual: str) -> str:
    """A key of the description in a module's header."""
    table = re.search(rf"^#   \[{section}\]\n((?:#   \w.*\n)+)", text, re.MULTILINE)
    found = re.search(rf'^#   {key} = "?([\w-]+)"?', table[1], re.MULTILINE) if table else None
    return found[1] if found else usual


def operands(text: str) -> list[torch.Tensor]:
    """Random operands for the module's function, in bf16."""

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda").bfloat16()

    op = described(text, "kernel", "op", "gemm")
    if op == "stream":
        if described(text, "layout", "gather", "false") == "true":
            index = torch.randint(M, (M,), device="cuda").int()
            return [random(M, N), index]
        if described(text, "stream", "y", "none") == "row":
            return [random(M, N), random(N)]
        return [random(M, N)]
    if op == "mixed_gemm":
        weights = torch.randint(-128, 128, (N, K), device="cuda").to(torch.int8)
        return [random(M, K), weights, torch.rand(N, device="cuda")]
    a_k = described(text, "layout", "a", "k") == "k"
    b_k = described(text, "layout", "b", "k") == "k"
    a = random(GROUP, M, K) if a_k else random(GROUP, K, M)
    return [a, random(GROUP, N, K) if b_k else random(GROUP, K, N)]


def checks(path: Path, exported: Path | None) -> Iterator[tuple[str, Callable[[], float | None]]]:
    """Name and call of each check; a call gives the relative error, or None where it raised."""
    text = path.read_text("utf-8")
    module = load(path)
    given = operands(text)
    function = getattr(module, described(text, "kernel", "op", "gemm"))
    expected = module.reference(*given)

    def error(got: torch.Tensor) -> float:
        return ((got.double() - expected).norm() / expected.norm()).item()

    def own(*arguments: Any) -> torch.Tensor:
        out = torch.full(expected.shape, float("nan"), device="cuda").bfloat16()
        function(*arguments, out)
        return out

    if hasattr(module, "torch_op"):
        op = module.torch_op()
        torch._dynamo.reset()  # the cases before would count as recompilations
        # Tracing is what the fake is for; which backend compiles the rest does not matter.
        traced = torch.compile(
            lambda *each: torch.relu(-op(*each)), fullgraph=True, backend="aot_eager"
        )

        def opcheck() -> float | None:
            results = torch.library.opcheck(op, tuple(given))
            return 0.0 if set(results.values()) == {"SUCCESS"} else None

        yield "torch_op", lambda: error(op(*given))
        yield "torch.library.opcheck", opcheck
        same = torch.relu(-own(*given))
        yield "torch.compile", lambda: (traced(*given) - same).abs().max().item()
    if hasattr(module, "jax_gemm"):
        import jax
        import jax.numpy as jnp

        arrays = [jax.dlpack.from_dlpack(tensor) for tensor in given]

        def back(array: Any) -> torch.Tensor:
            return torch.from_dlpack(jax.block_until_ready(array))

        yield "jax_gemm", lambda: error(back(module.jax_gemm(*arrays)))
        jitted = jax.jit(lambda *each: module.jax_gemm(*each) + 0)
        yield "jax.jit", lambda: error(back(jitted(*arrays)))

        def by_dlpack() -> float:
            out = jax.block_until_ready(jnp.full(expected.shape, jnp.nan, jnp.bfloat16))
            function(*arrays, out)
            torch.cuda.synchronize()
            return error(torch.from_dlpack(out))

        yield "jax arrays by DLPack", by_dlpack
    if exported is not None and (exported / f"{path.stem}.o").exists():
        import cutlass.cute as cute

        loaded = cute.runtime.load_module(str(exported / f"{path.stem}.o"))
        compile_name = next(name for name in vars(module) if name.startswith("compile_"))

        def by_object() -> float:
            kept = getattr(module, compile_name)
            setattr(module, compile_name, lambda: getattr(loaded, path.stem))
            try:
                return error(own(*given))
            finally:
                setattr(module, compile_name, kept)

        yield "exported object", by_object


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("modules", nargs="+", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--export", type=Path)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    for path in arguments.modules:
        if "| sm_90a\n" not in path.read_text("utf-8"):
            continue
        for name, call in checks(path, arguments.export):
            try:
                found, why = call(), ""
            except Exception as problem:
                found, why = None, f"{type(problem).__name__}: {problem}"
            passed = found is not None and found <= LIMIT
            rows.append({"module": path.name, "check": name, "passed": passed, "error": found})
            if why:
                rows[-1]["why"] = why[:500]
            said = f"{found:.1e}" if found is not None else why[:200]
            print(f"{'PASS' if passed else 'FAIL'} {path.name:<42} {name:<24} {said}", flush=True)
    if arguments.json:
        result = {"machine": machine(), "limit": LIMIT, "rows": rows}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if rows and all(row["passed"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
