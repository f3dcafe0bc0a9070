# SPDX-License-Identifier: Apache-2.0
"""What a module's `torch_op` takes and returns, in the words of the emitted file."""

from dataclasses import dataclass

from pipegen.description import KernelDescription
from pipegen.vocabulary import DTYPE


@dataclass(frozen=True)
class TorchOp:
    """The operator's inputs, and the tensor that it makes: shape and dtype as Python text."""

    inputs: str  # "a, b"
    annotated: str  # with their types, which torch reads the operator's schema from
    first: str  # the input that the result is made beside
    shape: str
    dtype: str


def torch_op(resolved: KernelDescription) -> TorchOp | None:
    """The operator of a resolved description; None for an op that has none.

    A result has a row for each row of A (of x, or of the index), wherever A keeps its rows.
    """
    names, shape = _inputs_and_shape(resolved)
    if not names:
        return None
    return TorchOp(
        inputs=", ".join(names),
        annotated=", ".join(f"{name}: torch.Tensor" for name in names),
        first=names[0],
        shape=shape,
        dtype=DTYPE[resolved.dtype.out or resolved.dtype.a].torch,
    )


def _inputs_and_shape(resolved: KernelDescription) -> tuple[list[str], str]:
    op, layout = resolved.kernel.op, resolved.layout
    if op == "stream":
        if layout.gather:
            return ["x", "index"], "(index.shape[0], x.shape[1])"
        return (["x"] if resolved.stream.y == "none" else ["x", "y"]), "x.shape"
    rows = "a.shape[-2]" if layout.a == "k" else "a.shape[-1]"
    columns = "b.shape[-2]" if layout.b == "k" else "b.shape[-1]"
    shape = f"(*a.shape[:-2], {rows}, {columns})"
    if op == "gemm" and not layout.gather:
        return ["a", "b"], shape
    if op == "mixed_gemm":
        return ["a", "b", "scale"], shape
    return [], ""
