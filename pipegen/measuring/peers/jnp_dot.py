# SPDX-License-Identifier: Apache-2.0
"""jax.numpy.dot in jax.jit, for a GEMM: what XLA makes of it, mostly cuBLAS."""

from typing import Any

from pipegen.measuring.clocks import Entry
from pipegen.measuring.operators import TORCH, Operator, Size
from pipegen.measuring.operators.jax_arrays import from_jax, jax_launcher, to_jax


def entries(name: str, operator: Operator, sets: list[list[Any]], size: Size) -> dict[str, Entry]:
    """One entry; the same operands, as jax arrays."""
    import jax
    import jax.numpy as jnp

    kernel: Any = operator
    accumulator = jnp.int32 if kernel.a_type == "i8" else jnp.float32
    out_type = getattr(jnp, {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}.get(
        kernel.out_type, "int32"))  # fmt: skip

    @jax.jit
    def dot(a: Any, b: Any) -> Any:
        left = a if kernel.a_major == "k" else a.T
        right = b.T if kernel.b_major == "k" else b
        return jnp.dot(left, right, preferred_element_type=accumulator).astype(out_type)

    arrays = [[to_jax(operand[0]) for operand in kernel.gathered(operands)] for operands in sets]
    calls, wait = jax_launcher(dot, arrays)
    result = from_jax(dot(*arrays[0]), TORCH[kernel.out_type])
    return {"": Entry(calls, wait, "device", lambda: [result[None]])}
