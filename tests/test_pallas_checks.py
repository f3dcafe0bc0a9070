# SPDX-License-Identifier: Apache-2.0
"""The self-check of an emitted Pallas module: a small hole in a large result makes it fail.

No kernel runs here. `check` gets a function that returns the reference, rounded as the kernel
would round it, and then with a block of 8 rows x 64 columns of zeros: 1% of a result of
2304 x 2304 in the Frobenius norm, which is as much as rounding to bf16 may do.
"""

import functools
import importlib.util
import re
from pathlib import Path

import pytest

from pipegen.planning import pallas_check_limits
from pipegen.vocabulary import DTYPE

np = pytest.importorskip("numpy")
jax = pytest.importorskip("jax")

GENERATED = Path(__file__).parent.parent / "generated" / "pallas"
BOTH = re.compile(r"relative error (\S+) \(limit (\S+)\), of an element (\S+) \((\S+)\)")
# One of each template that is not for sm_100a's GEMM, and those whose limits are others.
MODULES = [
    "pallas_stream_sm90_emit_pipeline",
    "pallas_stream_sm90_ws_row",
    "pallas_stream_sm90_emit_pipeline_matrix_f32_bf16_f16_out",
    "pallas_reduce_sm90_emit_pipeline",
    "pallas_reduce_sm90_ws_2048",
    "pallas_reduce_sm90_ws_softmax_4096_f32_f16_out",
    "pallas_mixed_gemm_sm90",
    "pallas_mixed_gemm_sm90_g128",
    "pallas_mixed_gemm_sm90_f16_i4_f32_out_64x64",
    "pallas_gemm_sm90_pallas_call",
    "pallas_gemm_sm90_emit_pipeline",
    "pallas_gemm_sm90_emit_pipeline_e5m2",
    "pallas_gemm_sm90_ws",
    "pallas_gemm_sm90_ws_i8",
    "pallas_gemm_sm90_ws_tf32",
    "pallas_custom_sm90_add_two",
    "pallas_custom_sm90_convert",
]


@functools.cache
def module_of(name: str):
    spec = importlib.util.spec_from_file_location(name, GENERATED / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sizes_of(module) -> tuple[int, ...]:
    """About 2304 x 2304 elements, with a short K."""
    if hasattr(module, "TILE_K"):
        return 2304, 2304, 64
    if hasattr(module, "MAX_COLUMNS"):
        return 5_308_416 // module.MAX_COLUMNS, module.MAX_COLUMNS
    return 2304 // module.TILE_M * module.TILE_M, 2304 // module.TILE_N * module.TILE_N


def rounded(module, wanted, name="out"):
    """The reference in the type of the result."""
    dtype = getattr(module, f"{name.upper()}_DTYPE")
    return np.asarray(wanted).astype(np.float32 if dtype != "int32" else dtype).astype(dtype)


def broken(result):
    """The result with zeros in a block around the largest element of row 8."""
    holed = np.array(result)
    rows = holed.reshape(-1, holed.shape[-1])
    first = min(int(np.argmax(np.abs(rows[8].astype(np.float64)))), rows.shape[1] - 64)
    rows[8:16, first : first + 64] = 0
    return holed


def run_of(module, change):
    """A function that returns what the module's own would, changed."""

    def run(*operands):
        if hasattr(module, "custom"):
            expected = module.reference(*(np.asarray(x).astype(np.float64) for x in operands))
            return [change(rounded(module, each, name)) for name, each in expected.items()]
        return change(rounded(module, module.reference(*operands)))

    return run


@pytest.mark.parametrize("name", MODULES)
def test_a_small_hole_is_seen(name, capsys):
    module = module_of(name)
    sizes = sizes_of(module)
    assert module.check(run_of(module, lambda result: result), *sizes), capsys.readouterr().out
    capsys.readouterr()
    assert not module.check(run_of(module, broken), *sizes)
    assert "FAIL" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["pallas_gemm_sm90_ws", "pallas_gemm_sm90_pallas_call"])
def test_the_norm_alone_would_not_see_it(name, capsys):
    module = module_of(name)
    assert not module.check(run_of(module, broken), *sizes_of(module))
    error, limit, worst, most = map(float, BOTH.search(capsys.readouterr().out).groups())
    assert error <= limit
    assert worst > 10 * most


@pytest.mark.parametrize("name", ["pallas_gemm_sm90_ws", "pallas_reduce_sm90_ws_2048"])
def test_what_was_never_written_fails(name):
    module = module_of(name)

    def spoil(result):
        spoiled = np.array(result)
        spoiled[..., -1, -1] = np.nan
        return spoiled

    sizes = (64, 64, 64) if hasattr(module, "TILE_K") else (64, 64)
    assert not module.check(run_of(module, spoil), *sizes)


def test_a_softmax_without_its_largest_subtracted_fails():
    module = module_of("pallas_reduce_sm90_ws_softmax_4096_f32_f16_out")

    def run(x):
        with np.errstate(over="ignore", invalid="ignore"):
            powers = np.exp(np.asarray(x).astype(np.float32))
            return powers / powers.sum(axis=1, keepdims=True)

    assert not module.check(run, 64, 4096)


def test_the_block_of_poison_holds_operands_and_result():
    """As many bytes as the launcher pads and cuts, for a size in which nothing is a multiple."""
    module = module_of("pallas_gemm_sm90_ws")
    taken = []
    full = module.jnp.full

    def seen(count, value, dtype):
        taken.append(count)
        return full(count, value, dtype)

    module.jnp = type("Jnp", (), {"__getattr__": lambda _, name: getattr(jax.numpy, name)})()
    module.jnp.full = seen
    try:
        module.check(run_of(module, lambda result: result), 41, 25, 43)
    finally:
        module.jnp = jax.numpy
    up = module.round_up
    block = module.MMA_BLOCK
    sizes = [up((41, 43), block), up((25, 43), block), up((41, module.OUT_BLOCK[1] + 1), (8, 64))]
    assert taken[0] >= sum(rows * columns * 2 for rows, columns in sizes)


def test_limits_follow_the_types():
    bf16, f16, f32, e4m3, i32 = (DTYPE[name] for name in ("bf16", "f16", "f32", "e4m3", "i32"))
    gemm = pallas_check_limits.gemm_limits
    assert gemm(bf16, bf16, bf16, "1e-2")["worst"] == "3e-2"
    assert gemm(f16, f16, f16, "1e-2")["worst"] == "5e-3"
    assert gemm(e4m3, e4m3, bf16, "1e-2")["worst"] == "6e-2"
    assert gemm(f32, f32, f32, "2e-3")["worst"] == "1e-2"
    assert gemm(DTYPE["i8"], DTYPE["i8"], i32, "0.0")["worst"] == "0.0"
    assert pallas_check_limits.stream_limits("bf16", bf16, alone=True)["worst"] == "0.0"
    assert pallas_check_limits.stream_limits("f32", bf16, alone=True)["worst"] == "3e-2"
    assert pallas_check_limits.row_limits(f32)["worst"] == "1e-5"
    for limits in (gemm(bf16, bf16, bf16, "1e-2"), pallas_check_limits.row_limits(bf16)):
        # Rounding of the largest alone must fit.
        assert float(limits["worst"]) > float(limits["worst_reason"].rpartition(" ")[2])
