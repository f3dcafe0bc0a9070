# SPDX-License-Identifier: Apache-2.0
"""Torch tensors for emitted Pallas modules, and their results as torch tensors."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from pipegen.measuring.operators import Call


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


def jax_run(
    function: Callable[..., Any], operands: list[torch.Tensor], dtype: torch.dtype
) -> torch.Tensor:
    """The function's result, in memory that held NaN before.

    XLA chooses the output's buffer, and takes the one that was freed last: a run on NaN fills it
    (and every other buffer of the call) with NaN.
    """
    first, *others = map(to_jax, operands)
    spoiled = function(first * float("nan"), *others)
    spoiled.block_until_ready()
    assert bool(spoiled.astype("float32").sum() != spoiled.astype("float32").sum())
    spoiled.delete()
    return from_jax(function(first, *others), dtype)


def compile_launch(module: Any, operands: Sequence[Any]) -> None:
    """Compile a Pallas module's `launch` for these jax arrays, as its function then calls it.

    jax keeps what is compiled so: the call that follows does not compile again.
    """
    import jax

    takes = inspect.signature(module.launch).parameters
    counts = [jax.devices()[0].core_count] if "sm_count" in takes else []
    module.launch.lower(*operands, *counts).compile()


def jax_launcher(
    compiled: Callable[..., Any], sets: Sequence[Sequence[Any]]
) -> tuple[list[Call], Call]:
    """A call for each set of jax arrays, and the wait for the last that was launched."""
    last: list[Any] = [compiled(*sets[0])]

    def launch(arrays: Sequence[Any]) -> None:
        last[0] = compiled(*arrays)

    return [partial(launch, arrays) for arrays in sets], lambda: last[0].block_until_ready()


def jax_call(function: Callable[..., Any], operands: list[torch.Tensor]) -> tuple[Call, Call]:
    """A call that runs the function once, and one that waits for all runs."""
    import jax

    (call,), wait = jax_launcher(jax.jit(function), [[to_jax(operand) for operand in operands]])
    return call, wait
