# SPDX-License-Identifier: Apache-2.0
"""What the installed jax says: signatures of the constructs, and whether the examples lower.

Run by the tests in a process of its own. Reads a JSON array of rows from standard input and writes
an object to standard output. Exit code 77: jax or its Mosaic GPU modules cannot be imported.
"""

import functools
import importlib
import inspect
import json
import sys
from typing import Any

try:
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import mosaic_gpu as plgpu
except ImportError as import_error:
    print(import_error)
    sys.exit(77)

BF16 = jnp.bfloat16
MOSAIC = "jax.experimental.pallas.mosaic_gpu"


def signature(module: str, name: str) -> dict[str, bool]:
    """Parameter names of a call, and whether each is required."""
    function = getattr(importlib.import_module(module), name)
    return {
        parameter.name: parameter.default is parameter.empty
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    }


def names() -> dict[str, Any]:
    """What every example may use."""
    tiles = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
    return dict(jax=jax, jnp=jnp, pl=pl, plgpu=plgpu, tiles=tiles, m=256, n=256, k=512, rows=256)


def lower(function: Any, *shapes: tuple[tuple[int, ...], Any]) -> None:
    """Lower to Mosaic GPU, which needs no GPU."""
    arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
    jax.export.export(jax.jit(function), platforms=["cuda"])(*arguments)


def warpgroups(count: int) -> dict[str, Any]:
    """How a kernel of several warpgroups is declared."""
    return dict(num_threads=count, thread_name="wg") if count > 1 else {}


def matmul(example: str, count: int) -> None:
    """A kernel whose mainloop is the example."""
    scope = names()

    def body(a_gmem: Any, b_gmem: Any, o_gmem: Any, o_smem: Any, acc: Any = None) -> None:
        m_block, n_block = jax.lax.axis_index("m"), jax.lax.axis_index("n")

        def epilogue(acc: Any) -> None:
            o_smem[...] = acc[...].astype(BF16)
            plgpu.commit_smem()
            where = pl.ds(m_block * 128, 128), pl.ds(n_block * 128, 128)
            plgpu.copy_smem_to_gmem(o_smem, o_gmem.at[where])
            plgpu.wait_smem_to_gmem(0)

        def mainloop_and_epilogue(pipeline: Any) -> None:
            @functools.partial(pl.run_scoped, acc=plgpu.ACC((128, 128), jnp.float32))
            def _(acc: Any) -> None:
                pipeline(acc)
                epilogue(acc)

        scope.update(locals())
        exec(example, scope)
        if acc is not None:
            epilogue(acc)

    scratch = dict(o_smem=plgpu.SMEM((128, 128), BF16, transforms=scope["tiles"]))
    if count == 1:
        scratch["acc"] = plgpu.ACC((128, 128), jnp.float32)
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((256, 256), BF16),
        scratch_types=scratch,
        grid=(2, 2),
        grid_names=("m", "n"),
        **warpgroups(count),
    )
    lower(kernel, ((256, 512), BF16), ((512, 256), BF16))


def elementwise(example: str, count: int) -> None:
    """A kernel that is the example."""

    def body(x_gmem: Any, y_gmem: Any) -> None:
        exec(example, names() | {"x_gmem": x_gmem, "y_gmem": y_gmem})

    out = jax.ShapeDtypeStruct((256, 128), jnp.float32)
    kernel = plgpu.kernel(body, out_type=out, grid=(1,), grid_names=("x",), **warpgroups(count))
    lower(kernel, ((256, 128), jnp.float32))


def store(example: str) -> None:
    """A kernel that stores one buffer."""

    def body(x_gmem: Any, out_gmem: Any, out_smem: Any, acc: Any) -> None:
        exec(example, names() | locals() | {"row": 0, "column": 0})

    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((128, 128), BF16),
        scratch_types=dict(
            out_smem=plgpu.SMEM((128, 128), BF16), acc=plgpu.SMEM((128, 128), jnp.float32)
        ),
        grid=(1,),
        grid_names=("x",),
    )
    lower(kernel, ((128, 128), jnp.float32))


def tensor_core(example: str, barriers: dict[str, Any]) -> None:
    """The protocol around tcgen05, without its loops."""
    indices = dict(stage=1, acc_stage=1, ki=1, rows=pl.ds(0, 128), cols=pl.ds(0, 128))
    indices |= dict(ks=pl.ds(0, 64), columns=pl.ds(0, 32))

    def body(a_gmem: Any, b_gmem: Any, o_gmem: Any, **scratch: Any) -> None:
        exec(example, names() | indices | scratch | {"a_gmem": a_gmem, "b_gmem": b_gmem})

    tiles = names()["tiles"]
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((128, 128), BF16),
        scratch_types=dict(
            a_smem=plgpu.SMEM((4, 128, 64), BF16, transforms=tiles),
            b_smem=plgpu.SMEM((4, 64, 128), BF16, transforms=tiles),
            acc_tmem=plgpu.TMEM((128, 128), jnp.float32),
            **barriers,
        ),
        grid=(1,),
        grid_names=("x",),
        compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
    )
    lower(kernel, ((128, 64), BF16), ((64, 128), BF16))


def scheduling_loop(example: str) -> None:
    """A kernel that loops over its share of the grid."""

    def body(x_gmem: Any, o_gmem: Any) -> None:
        exec(example, names())

    out = jax.ShapeDtypeStruct((128, 128), BF16)
    threads = dict(num_threads=1, thread_name="wg")
    kernel = plgpu.kernel(body, out_type=out, grid=(4,), grid_names=("tile",), **threads)
    lower(kernel, ((128, 128), BF16))


def pallas_call(example: str) -> None:
    """A matrix multiply through the TPU-compatible entry."""

    def kernel(a: Any, b: Any, o: Any, acc: Any) -> None:
        plgpu.wgmma(acc, a, b)
        plgpu.wgmma_wait(0)

        @pl.when(pl.program_id(2) == 7)
        def _() -> None:
            o[...] = acc[...].astype(BF16)

    def call(a: Any, b: Any) -> Any:
        scope = names() | {"kernel": kernel, "a": a, "b": b}
        exec("result = " + example, scope)
        return scope["result"]

    lower(call, ((256, 512), BF16), ((512, 256), BF16))


def barriers(*refs: tuple[str, int, int, bool]) -> dict[str, Any]:
    """Barriers by argument name, arrivals, stages, and whether tcgen05 takes part."""
    return {
        name: plgpu.Barrier(num_arrivals=arrivals, num_barriers=stages, orders_tensor_core=tensor)
        for name, arrivals, stages, tensor in refs
    }


RUN: dict[tuple[str, str], Any] = {
    ("plgpu.emit_pipeline", "wgmma"): lambda e: matmul(e, 1),
    ("plgpu.emit_pipeline_warp_specialized", "wgmma"): lambda e: matmul(e, 2),
    ("plgpu.emit_pipeline", "thread"): lambda e: elementwise(e, 1),
    ("plgpu.emit_pipeline_warp_specialized", "thread"): lambda e: elementwise(e, 2),
    ("plgpu.copy_smem_to_gmem", "tma_store"): store,
    ("plgpu.dynamic_scheduling_loop", "thread"): scheduling_loop,
    ("pl.pallas_call", "wgmma"): pallas_call,
    ("plgpu.kernel", "umma"): lambda e: tensor_core(
        e, barriers(("loaded_ref", 2, 4, False), ("consumed_ref", 1, 4, True))
    ),
    ("plgpu.kernel", "thread"): lambda e: tensor_core(
        e, barriers(("mma_done_ref", 1, 2, True), ("drained_ref", 1, 2, True))
    ),
}


def try_example(row: dict[str, str]) -> str:
    """Empty if the row's example lowers, else the error."""
    run = RUN.get((row["cls"], row["consumer"]))
    if run is None:
        return "no test knows how to lower this example"
    try:
        run(row["example"])
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    table = json.load(sys.stdin)
    called = {(row["module"], row["call"]) for row in table}
    called |= {(MOSAIC, name.split(".")[0]) for row in table for name in row["dotted"]}
    answer = {
        "version": jax.__version__,
        "signatures": {f"{module}:{name}": signature(module, name) for module, name in called},
        "lowered": {f"{row['cls']} {row['consumer']}": try_example(row) for row in table},
    }
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
