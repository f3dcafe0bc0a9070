# SPDX-License-Identifier: Apache-2.0
"""How to check and time an emitted module on a GPU: one file here for each op (`[kernel] op`)."""

import importlib
import importlib.util
import inspect
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch

TORCH = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "i8": torch.int8,
    "i32": torch.int32,
}
# Relative error (Frobenius norm of the difference over that of the reference) by output type.
# Whole numbers must be right; f32 operands are cut to tf32 by the tensor core (an operator says).
TOLERANCE = {"bf16": 1e-2, "f16": 1e-2, "f32": 1e-3, "i32": 1e-12}
TF32_TOLERANCE = 2e-3
# What `worst_error` may be, by output type: bf16 rounds by up to 2**-8, but scaled weights are
# rounded too, and f32 operands cut. A lost element is off by about 1. fp8 sums have about 14 bits.
WORST = {"bf16": 3e-2, "f16": 3e-2, "f32": 1e-2, "i32": 1e-12}
FP8_WORST = 6e-2

# How what is compared with a copy is timed. A CUDA graph makes torch's copy a memcpy node, and that
# is slower than the kernel that a plain call launches: 2.7 TB/s against 4.2 on an H200. And a JAX
# call costs the host much, and leaves gaps between kernels.
MOVER_CLOCK = "device"

_CLUSTERS: dict[Any, Any] = {}

Size = dict[str, int]
Call = Callable[[], Any]


class Operator(Protocol):
    """One module with its description; works on torch tensors, whatever the module's DSL.

    `clock`: how a launch must be timed (`pipegen.measuring.clocks`). Some have `rotates`: their
    launches take turns among copies of the operands already. Some have `timed_operands`, where
    those that a check needs would be unfair to a peer.
    """

    out_type: str
    clock: str

    def __init__(self, path: Path) -> None: ...

    def sizes(self) -> list[tuple[str, Size]]:
        """What to check: what the size is for, and the size."""

    def operands(self, size: Size) -> list[torch.Tensor]:
        """Fresh random inputs."""

    def run(self, operands: list[torch.Tensor], size: Size) -> list[torch.Tensor]:
        """The outputs, each written into memory that held NaN before."""

    def reference(self, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs in float64."""

    def launcher(self, operands: list[torch.Tensor], size: Size) -> tuple[Call, Call]:
        """A call that launches the kernel once, and one that waits for all launches."""

    def peer(self, operands: list[torch.Tensor], size: Size) -> Call:
        """A call of what the kernel is compared with (`PEER` in the op's file)."""

    def work(self, size: Size) -> int:
        """Operations (or bytes, `UNIT` says which) of one launch."""


def worst_error(out: Any, wanted: Any, *, by_row: bool = False) -> float:
    """The largest error of an element, over its own size or, where that is less, the rms.

    The norm of a large result hides a lost fragment; this does not. `by_row`: rows differ in scale,
    so that each has an rms of its own. float64 of torch or of NumPy; NaN wherever `out` has one.
    """
    squares = wanted * wanted
    mean = squares.mean(axis=-1, keepdims=True) if by_row else squares.mean()
    return float((abs(out - wanted) / abs(wanted).clip(min=mean**0.5)).max())


def load(path: Path) -> ModuleType:
    """Import a module from its file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def compile_ahead(kernel: Operator) -> None:
    """Compile a CuTe module before the GPU is this process's alone. A Pallas module is left alone:
    jax compiles for a size, which its `compile_only` wants to know."""
    module: Any = vars(kernel)["module"]
    if description(Path(module.__file__))["kernel"]["backend"] == "pallas":
        return
    for maker in (word for word in vars(module) if word.startswith("compile_")):
        getattr(module, maker)()


def use_object(kernel: Operator, path: Path, name: str) -> None:
    """Let a CuTe module launch what was compiled ahead of time, instead of compiling again.

    The object has the module's one `compile_…` function's result; nothing else of the module is
    replaced. Raises what the DSL raises if another version wrote the object.
    """
    from cutlass import cute

    module: Any = vars(kernel)["module"]
    (maker,) = (word for word in vars(module) if word.startswith("compile_"))
    library = cute.runtime.load_module(str(path))
    function = library[name]
    setattr(module, maker, lambda: function)
    if hasattr(module, "max_clusters"):
        # The DSL compiles an empty kernel to find this out: once for all modules that ask alike.
        asked = inspect.getsource(module.max_clusters), module.CLUSTER_M, module.CLUSTER_N
        module.max_clusters = _CLUSTERS.setdefault(asked, module.max_clusters)
    vars(kernel)["library"] = library  # holds the code that `function` runs


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


def poisoned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """An output full of NaN."""
    return torch.full(shape, float("nan"), device="cuda").to(dtype)


# One output for each set of operands, whoever computes it: a hundred candidates of a large size
# would not find memory for one each. A worker clears this with its operands.
OUTPUTS: dict[Any, torch.Tensor] = {}


def output_of(operands: list[torch.Tensor], shape: tuple[int, ...], name: str) -> torch.Tensor:
    """Where launches with these operands write: a tensor of this shape and type."""
    key = operands[0].data_ptr(), shape, name
    if key not in OUTPUTS:
        OUTPUTS[key] = torch.empty(shape, device="cuda", dtype=TORCH[name])
    return OUTPUTS[key]


def op_of(path: Path) -> ModuleType:
    """The file here that knows the module's op: its `Operator`, `PEER` and `UNIT`."""
    return importlib.import_module(
        f"pipegen.measuring.operators.{description(path)['kernel']['op']}"
    )
