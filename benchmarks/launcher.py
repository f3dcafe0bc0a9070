# SPDX-License-Identifier: Apache-2.0
"""Checks what surrounds the kernel on this machine's GPU: callers, streams, the hook, refusals.

    python benchmarks/launcher.py generated/cute/gemm_sm90_f16.py --json benchmarks/launcher.json

For one emitted CuTe GEMM with K-major f16 operands and f16 output. Exit code 1 if a check fails.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))  # these belong to this checkout's pipegen

from pipegen.measuring.operators import load

M, N, K = 384, 520, 264
HOOK = """
    for i in cutlass.range_constexpr(cute.size(acc)):
        weight = (coord[i][0] + 2 * coord[i][1]) % 3
        acc[i] = cutlass.max(acc[i], 0.0) * weight.to(ACC_DTYPE)
"""


def relative(out: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative error in the Frobenius norm; NaN if anything is NaN."""
    return ((out.double() - expected).norm() / expected.norm()).item()


def operands(*lead: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Fresh A, B and a poisoned output."""
    a = torch.randn(*lead, M, K, device="cuda", dtype=torch.float16)
    b = torch.randn(*lead, N, K, device="cuda", dtype=torch.float16)
    out = torch.full((*lead, M, N), float("nan"), device="cuda", dtype=torch.float16)
    return a, b, out


def from_jax(module: ModuleType) -> float:
    """jax arrays as operands and output."""
    import jax
    import jax.numpy as jnp

    a, b, _ = operands()
    left, right = (jax.dlpack.from_dlpack(tensor) for tensor in (a, b))
    out = jnp.full((M, N), jnp.nan, dtype=jnp.float16)
    out.block_until_ready()
    torch.cuda.synchronize()
    module.gemm(left, right, out)
    torch.cuda.synchronize()
    return relative(torch.from_dlpack(out), a.double() @ b.double().mT)


def from_cupy(module: ModuleType) -> float:
    """cupy arrays as operands and output."""
    import cupy

    a, b, out = operands()
    module.gemm(cupy.from_dlpack(a), cupy.from_dlpack(b), cupy.from_dlpack(out))
    torch.cuda.synchronize()
    return relative(out, a.double() @ b.double().mT)


def on_a_side_stream(module: ModuleType) -> float:
    """torch's current stream is honoured: the operands are filled on it, late."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        a, b, out = operands()
        torch.cuda._sleep(100_000_000)
        a.mul_(2.0)
        module.gemm(a, b, out)
        out.mul_(0.5)
    stream.synchronize()
    return relative(out, 0.5 * (a.double() @ b.double().mT))


def on_a_stream_by_name(module: ModuleType) -> float:
    """A stream handed over as an argument is the one that is used."""
    stream = torch.cuda.Stream()
    a, b, out = operands()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        a.mul_(2.0)
    module.gemm(a, b, out, stream=stream)
    stream.synchronize()
    return relative(out, a.double() @ b.double().mT)


def in_a_graph(module: ModuleType) -> float:
    """A launch can be captured in a CUDA graph and replayed on new data."""
    a, b, out = operands()
    module.gemm(a, b, out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module.gemm(a, b, out)
    a.normal_()
    out.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    return relative(out, a.double() @ b.double().mT)


def views_of_larger_matrices(module: ModuleType) -> float:
    """Strided rows and batches; what lies beside the output stays as it was."""
    big_a = torch.randn(3, M + 5, K + 24, device="cuda", dtype=torch.float16)
    big_b = torch.randn(3, N + 7, K + 8, device="cuda", dtype=torch.float16)
    big_out = torch.full((3, M + 2, N + 40), 7.0, device="cuda", dtype=torch.float16)
    a, b, out = big_a[:, 2 : M + 2, 8 : K + 8], big_b[:, :N, :K], big_out[:, 1 : M + 1, 16 : N + 16]
    module.gemm(a, b, out)
    torch.cuda.synchronize()
    error = relative(out, a.double() @ b.double().mT)
    out.fill_(7.0)
    return error if bool((big_out == 7.0).all()) else float("nan")


def a_hook(module: ModuleType) -> float:
    """An edited copy: ReLU and a weight that depends on the coordinates."""
    text = Path(str(module.__file__)).read_text(encoding="utf-8")
    start = text.index("def epilogue_op")
    docstring = text.index('"""', start)
    end = text.index('"""', docstring + 3) + 3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edited.py"
        path.write_text(text[:end] + HOOK + text[end:], encoding="utf-8")
        edited = load(path)
        a, b, out = operands()
        edited.gemm(a, b, out)
        torch.cuda.synchronize()
    rows = torch.arange(M, device="cuda")[:, None]
    columns = torch.arange(N, device="cuda")[None]
    expected = (a.double() @ b.double().mT).clamp(min=0) * ((rows + 2 * columns) % 3)
    return relative(out, expected)


def refusals(module: ModuleType) -> list[str]:
    """What the launcher says of wrong tensors; each must be a named error."""
    a, b, out = operands()
    wrong: dict[str, Callable[[], None]] = {
        "dtype": lambda: module.gemm(a.float(), b, out),
        "shape of b": lambda: module.gemm(a, b[:, :-8], out),
        "shape of out": lambda: module.gemm(a, b, out[:-1]),
        "stride": lambda: module.gemm(a[:, 1:-7], b[:, :-8], out),
        "last dimension": lambda: module.gemm(a, b, out.mT.contiguous().mT),
        "N": lambda: module.gemm(a, b[:-3], out[:, :-3]),
        "CPU": lambda: module.gemm(a.cpu(), b, out),
        "one dimension": lambda: module.gemm(a[0], b, out),
        "empty": lambda: module.gemm(a[:0], b, out[:0]),
        "overlap": lambda: module.gemm(a, b, out.as_strided((M, N), (8, 1))),
    }
    said = []
    for what, call in wrong.items():
        try:
            call()
        except (TypeError, ValueError) as error:
            said.append(f"{what}: {type(error).__name__}: {error}")
        else:
            said.append(f"{what}: NOT REFUSED")
    return said


def host_microseconds(module: ModuleType) -> float:
    """Time of one `gemm` call on the host, launch included, without waiting for the GPU."""
    a, b, out = operands()
    module.gemm(a, b, out)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(1000):
        module.gemm(a, b, out)
    elapsed = time.perf_counter() - start
    torch.cuda.synchronize()
    return elapsed * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("module", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    module = load(arguments.module)
    checks = (
        views_of_larger_matrices,
        on_a_side_stream,
        on_a_stream_by_name,
        in_a_graph,
        a_hook,
        from_cupy,
        from_jax,
    )
    errors: dict[str, float | str] = {}
    for check in checks:
        try:
            errors[check.__name__] = check(module)
        except Exception as error:  # a crash of one check is its result, not the end
            errors[check.__name__] = f"{type(error).__name__}: {error}"
    said = refusals(module)
    microseconds = host_microseconds(module)
    well = all(isinstance(error, float) and error < 1e-2 for error in errors.values())
    well &= not any("NOT REFUSED" in line for line in said)
    for name, error in errors.items():
        passed = isinstance(error, float) and error < 1e-2
        print(f"{'PASS' if passed else 'FAIL'} {name}: {error}")
    print(*said, sep="\n")
    print(f"{microseconds:.1f} us of host time a call")
    if arguments.json:
        report = {
            "command": " ".join(["python", *sys.argv]),
            "errors": errors,
            "refusals": said,
            "host_microseconds": microseconds,
        }
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
