# SPDX-License-Identifier: Apache-2.0
"""Pallas on Hopper beyond 16-bit and fp8: tf32 and int8 GEMMs, and integer weights converted."""

import os
import runpy
import subprocess
from pathlib import Path

import numpy as np
import pytest
from test_planning import check_formulas

import pipegen as api
from pipegen.compiling.installed import dsl
from pipegen.description_file import description_from_data
from pipegen.planning.mixed_sm90_pallas import CONVERSIONS
from pipegen.planning.pallas_check_words import tolerance_words
from pipegen.vocabulary import DTYPE

GENERATED = Path(__file__).parent.parent / "generated" / "pallas"


def planned(op="gemm", style=None, **sections):
    kernel = {"op": op, "backend": "pallas", "arch": "sm_90a"}
    if style:
        kernel["style"] = style
    return api.plan(description_from_data({"pipegen": 1, "kernel": kernel, **sections}))


def expect(made, numbers):
    assert {name: made.number(name).value for name in numbers} == numbers
    assert check_formulas(made) >= 10


def test_int8_sums_are_exact():
    made = planned(dtype={"a": "i8"})
    expect(
        made,
        {
            "a_stage_bytes": 16384,  # 128 * 128 * 1
            "b_stage_bytes": 32768,
            "mainloop_stages": 4,
            "accumulator_registers": 128,
            "epi_buffer_bytes": 8192,  # 64 rows * 32 columns of i32: one swizzle
        },
    )
    dtype = made.description.dtype
    assert (dtype.b, dtype.acc, dtype.out) == ("i8", "i32", "i32")
    assert made.values["tolerance"] == "0.0"


def test_f32_operands_fill_a_swizzle():
    made = planned(dtype={"a": "f32"})
    expect(made, {"a_stage_bytes": 16384, "tx_count": 49152, "mainloop_stages": 4})  # 128 * 32 * 4
    assert made.description.tile.k == 32
    assert made.description.dtype.acc == "f32"
    assert made.values["tolerance"] == "2e-3"


def test_tf32_is_allowed_the_bits_that_it_lacks_and_no_more():
    """Both operands cut to 11 significant bits: the error of a float64 product, measured."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 512), np.float32) for _ in range(2))
    cut = [(x.view(np.uint32) & ~np.uint32(0x1FFF)).view(np.float32).astype(float) for x in (a, b)]
    exact = a.astype(float) @ b.astype(float).T
    error = np.linalg.norm(cut[0] @ cut[1].T - exact) / np.linalg.norm(exact)
    limit = float(tolerance_words(DTYPE["f32"], DTYPE["f32"], DTYPE["f32"]))
    assert 0.25 * limit < error < limit


def test_the_default_mixed_plan():
    expect(
        planned("mixed_gemm"),
        {
            "a_stage_bytes": 32768,  # 256 tokens * 64 * 2
            "b_stage_bytes": 8192,  # 128 channels * 64
            "scale_stage_bytes": 0,
            "mainloop_full_arrive_count": 256,  # two copies
            "mainloop_empty_arrive_count": 256,  # two warpgroups
            "mainloop_stages": 4,  # (232448 - 32768) / (40960 + 16) = 4.9
            "epilogue_buffers": 2,
            "smem_bytes": 4 * 40960 + 4 * 8192 + 64,
            "accumulator_registers": 128,  # 64 channels * 256 tokens / 128
            "fragment_registers": 16,  # 64 * 64 / 2 / 128
            "pieces": 1,
            "consumer_registers": 216,
        },
    )


def test_scales_of_groups_are_a_third_copy():
    made = planned("mixed_gemm", dtype={"b": "i4", "scale_group": 512}, tile={"m": 16})
    expect(
        made,
        {
            "a_stage_bytes": 16384,  # 16 * 512 * 2
            "b_stage_bytes": 16384,  # 64 * 512 / 2
            "scale_stage_bytes": 128,  # 64 * 2
            "mainloop_full_arrive_count": 384,
            "mainloop_stages": 6,
            "pieces": 8,  # 64 of K each
            "fragment_registers": 128,
        },
    )
    assert not made.values["upcast"]
    assert planned("mixed_gemm", tile={"m": 80}).values["upcast_layout"] == "WGMMA_UPCAST_2X"


def test_i8_to_f16_is_exact():
    """What `convert` says, in NumPy."""
    words = CONVERSIONS["f16", "i8"][1]
    assert "(weights.astype(jnp.int16) + 128) | 0x6400" in words[1]
    assert "jnp.float16(1152)" in words[2]
    weights = np.arange(-128, 128, dtype=np.int8)
    bits = (weights.astype(np.int16) + 128) | 0x6400
    assert (bits.view(np.float16) - np.float16(1152) == weights).all()


INTERPRETED = [
    ("pallas_gemm_sm90_ws_tf32", "136,24,40"),
    ("pallas_gemm_sm90_ws_i8", "136,24,136,2"),
    ("pallas_gemm_sm90_emit_pipeline_i8_f32_out", "136,24,136"),
    ("pallas_mixed_gemm_sm90_f16_c1x2", "264,192,136"),
    ("pallas_mixed_gemm_sm90_g128", "40,200,200,2"),
    ("pallas_mixed_gemm_sm90_16x64", "24,136,1100"),
    ("pallas_mixed_gemm_sm90_f16_i4_f32_out_64x64", "72,136,300"),
    ("pallas_mixed_gemm_sm90_i4_g512_16x64", "24,72,1100"),
]


@pytest.mark.parametrize(("name", "size"), INTERPRETED)
def test_numbers_on_the_cpu(newest_jax, name, size):
    """Against float64, with tails and several tiles a CTA, and no race."""
    command = [newest_jax, GENERATED / f"{name}.py", "--interpret", "--size", size]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "NPROC": "16"}
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith("PASS")
    assert "RACE" not in result.stdout + result.stderr


@pytest.mark.parametrize("name", ["pallas_mixed_gemm_sm90", "pallas_mixed_gemm_sm90_g128"])
def test_operands_are_checked(name):
    if not dsl("pallas").usable:
        pytest.skip(dsl("pallas").reason)
    import jax.numpy as jnp

    module = runpy.run_path(str(GENERATED / f"{name}.py"))
    check = module["check_operands"]
    a, b = jnp.zeros((3, 130), jnp.bfloat16), jnp.zeros((8, 130), jnp.int8)
    right = jnp.zeros(module["scale_shape"](8, 130, 1)[1:], module["SCALE_DTYPE"])
    check(a, b, right)
    for wrong, word in (
        ((a.astype(jnp.float32), b, right), "a.dtype=float32"),
        ((a, b.astype(jnp.int4), right), "b.dtype=int4"),
        ((a[:, :64], b, right), "a.shape=\\(3, 64\\)"),
        ((a[None], b, right), "a.shape=\\(1, 3, 130\\)"),
        ((a, b, right[..., :4]), "scale.shape="),
        ((a[:0], b, right), "at least 1"),
    ):
        with pytest.raises((TypeError, ValueError), match=word):
            check(*wrong)
