# SPDX-License-Identifier: Apache-2.0
"""The mixed GEMMs: numbers by hand, conversions bit by bit, masks, and refusals."""

import ast
import re
import runpy
import struct
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_planning import check_formulas
from test_sm100_pairs import evaluated

import pipegen as api
from pipegen import arithmetic
from pipegen.compiling.installed import dsl as find_dsl
from pipegen.description_file import description_from_data
from pipegen.errors import InputError
from pipegen.hardware import HARDWARE, MBARRIER_TX_LIMIT
from pipegen.planning.mixed_template import MAGIC

ROOT = Path(__file__).parent.parent
EMITTED = sorted((ROOT / "generated" / "cute").glob("mixed_gemm_*.py"))
BLACKWELL = [path for path in EMITTED if "sm100" in path.name]
CLUSTERS = [(1, 1), (2, 1), (1, 2), (2, 2)]


def planned(arch="sm_90a", **sections):
    kernel = {"op": "mixed_gemm", "backend": "cute", "arch": arch}
    return api.plan(description_from_data({"pipegen": 1, "kernel": kernel, **sections}))


def values(made):
    return {number.name: number.value for number in made.numbers}


def test_the_default_hopper_plan():
    made = planned()
    expected = {
        "a_stage_bytes": 32768,  # 128 tokens * 128 of K * 2
        "b_stage_bytes": 16384,  # 128 channels * 128 of K * 1
        "scale_stage_bytes": 0,
        "tx_count": 49152,
        "mainloop_empty_arrive_count": 8,  # two warpgroups, no partners
        "epi_buffer_bytes": 8192,  # 32 tokens * 128 channels * 2
        "epi_subtiles": 4,  # 128 / 32
        "mainloop_stages": 4,  # (232448 - 1024 - 2 * 8192) / 49152 = 4.4
        "epilogue_buffers": 4,
        "smem_bytes": 230400,
        "accumulator_registers": 64,  # 128 * 128 / 256
        "fragment_registers": 32,  # 128 * 128 / 2 / 256
        "group_steps": 4,  # 16 registers a group, 4 a step
    }
    assert {name: made.number(name).value for name in expected} == expected
    assert check_formulas(made) >= 12
    assert made.description.dtype.b == "i8"
    assert made.name == "sm90_mixed_gemm_tma_wgmma_s4_c1x1"


def test_int4_with_groups_for_few_tokens():
    made = planned(dtype={"b": "i4", "scale_group": 128}, tile={"m": 16, "n": 64})
    expected = {
        "a_stage_bytes": 4096,  # 16 * 128 * 2
        "b_stage_bytes": 4096,  # 64 * 128 / 2
        "scale_stage_bytes": 128,  # 64 * 2
        "tx_count": 8320,
        "mainloop_stages": 27,  # (232448 - 1024 - 2048) / 8320 = 27.6
        # 27 * 128 = 3456 B of scales, rounded to 4096.
        "smem_bytes": 1024 + 2 * 27 * 4096 + 4096 + 2048,
        "mainloop_empty_arrive_count": 4,
        "accumulator_registers": 8,
    }
    assert {name: made.number(name).value for name in expected} == expected
    assert made.values["chunk_pairs"] == 16  # 16 B hold 16 pairs of 4 bits
    assert made.values["chunks"] == 4  # 64 B a row
    assert made.values["swizzle_rows"] == 2


def test_the_default_blackwell_plan():
    made = planned("sm_100a", cluster={"shape": [2, 2]})
    pipelines = {pipeline.name: pipeline for pipeline in made.pipelines}
    assert list(pipelines) == ["mainloop", "weights", "transform", "accumulator", "epilogue"]
    counts = {
        name: (each.full_arrive_count, each.empty_arrive_count) for name, each in pipelines.items()
    }
    assert counts == {
        "mainloop": (1, 2),  # commits of the two CTAs that share A
        "weights": (1, 8),  # four warps of each of the two CTAs that share B
        "transform": (128, 1),
        "accumulator": (1, 4),
        "epilogue": (None, None),
    }
    assert pipelines["mainloop"].tx_count == 32768  # 128 * 128 * 2
    assert pipelines["weights"].tx_count == 16384  # 128 * 128
    assert pipelines["transform"].stages == 4  # (512 - 2 * 128) / 64
    assert made.number("tmem_columns").value == 512
    assert made.number("threads").value == 320
    assert check_formulas(made) >= 10


@pytest.mark.parametrize(
    ("m", "k", "converted", "columns"),
    # 2 * m columns of accumulators, k / 2 for a converted tile; a power of two is allocated.
    [(16, 128, 4, 512), (16, 32, 4, 128), (128, 128, 4, 512), (192, 64, 4, 512), (224, 64, 2, 512)],
)
def test_tmem_is_shared(m, k, converted, columns):
    made = planned("sm_100a", tile={"m": m, "k": k})
    assert made.pipeline("transform").stages == converted
    assert made.number("tmem_columns").value == columns
    assert 2 * m + converted * k // 2 <= columns


def test_barriers_of_two_rings_are_counted():
    # 40 stages: 640 B of barriers for one ring fit in 1024 B, for two they do not.
    assert arithmetic.smem_bytes((1024,), 1024, 40, 1) == 1024 * (1 + 40 + 1)
    assert arithmetic.smem_bytes((1024,), 1024, 40, 1, rings=2) == 1024 * (2 + 40 + 1)


@settings(max_examples=300)
@given(
    arch=st.sampled_from(["sm_90a", "sm_100a"]),
    a=st.sampled_from(["bf16", "f16"]),
    b=st.sampled_from(["i8", "i4"]),
    out=st.sampled_from(["f32", "bf16", "f16"]),
    group=st.sampled_from([0, 32, 64, 128, 256]),
    m=st.integers(1, 17).map(lambda i: 16 * i),
    n=st.sampled_from([64, 128, 192, 256, 512]),
    k=st.sampled_from([16, 32, 64, 128, 256]),
    cluster=st.sampled_from(CLUSTERS),
    stages=st.one_of(st.just("auto"), st.integers(0, 12)),
)
def test_every_plan_fits_the_machine(arch, a, b, out, group, m, n, k, cluster, stages):
    """Whatever is asked for: a refusal, or a plan within every limit of the hardware."""
    try:
        made = planned(
            arch,
            dtype={"a": a, "b": b, "out": out, "scale_group": group},
            tile={"m": m, "n": n, "k": k},
            cluster={"shape": cluster},
            pipeline={"mainloop": {"stages": stages}},
        )
    except InputError:
        return
    value = values(made)
    check_formulas(made)
    assert value["smem_bytes"] <= HARDWARE[arch].smem_per_block
    assert value["mainloop_stages"] >= 2
    weights = n * k * (8 if b == "i8" else 4) // 8 + (2 * n if group else 0)
    if arch == "sm_100a":
        assert n == 128
        assert value["tmem_columns"] <= 512
        assert 2 <= value["transform_stages"] <= (512 - 2 * m) // (k // 2)
        assert value["weights_tx_count"] == weights < MBARRIER_TX_LIMIT
        assert value["mainloop_empty_arrive_count"] == cluster[1]
        assert value["weights_empty_arrive_count"] == 4 * cluster[0]
        return
    assert value["tx_count"] == 2 * m * k + weights < MBARRIER_TX_LIMIT
    warpgroups = 2 if n % 128 == 0 else 1
    assert value["mainloop_empty_arrive_count"] == 4 * warpgroups * (sum(cluster) - 1)
    # Two groups of converted weights under way, and the pairs of a third.
    held = value["accumulator_registers"] + 3 * 16
    assert held < value["consumer_registers"]
    steps, group_steps = k // 16, value["group_steps"]
    assert steps % group_steps == 0
    assert steps // group_steps >= 2, "one group's registers are written while another is read"


def float_of(bits: int, kind: str) -> float:
    """A 16-bit float's value."""
    if kind == "f16":
        return struct.unpack("<e", struct.pack("<H", bits))[0]
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def test_i8_to_bf16_is_exact():
    """The two masks of `convert`: what is left of 0x43uu, read as bf16, differs by the weight."""
    for byte in range(256):
        low, sign = 0x4300 | byte & 0x7F, 0x4300 | byte & 0x80
        signed = byte - 256 if byte > 127 else byte
        assert float_of(low, "bf16") - float_of(sign, "bf16") == signed


def test_i8_to_f16_is_exact():
    for byte in range(256):
        signed = byte - 256 if byte > 127 else byte
        assert float_of(0x6400 | byte ^ 0x80, "f16") + float_of(0xE480, "f16") == signed


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_i4_is_exact(kind):
    magic = MAGIC[kind]
    bits, minus, one = (int(word, 16) & 0xFFFF for word in (magic.bits, magic.minus, magic.one))
    assert float_of(one, kind) == 1
    assert float_of(minus, kind) == -(magic.base + 8)
    for nibble in range(16):
        signed = nibble - 16 if nibble > 7 else nibble
        assert float_of(nibble ^ bits, kind) + float_of(minus, kind) == signed


@pytest.mark.parametrize("row_bytes", [32, 64, 128])
def test_a_warps_loads_touch_every_bank_once(row_bytes):
    """What `load_pairs` reads at a time: 8 rows, 8 bytes of i8 in each, in 32 different banks."""
    chunks, swizzle_rows = row_bytes // 16, 128 // row_bytes
    for step in range(row_bytes // 16):
        for half in (0, 8):
            words = set()
            for lane in range(32):
                row, byte = lane // 4, 16 * step + half + 2 * (lane % 4)
                chunk = byte // 16 ^ row // swizzle_rows % chunks
                words.add((row * row_bytes + chunk * 16 + byte % 16) // 4 % 32)
            assert len(words) == 16  # two lanes a word


@pytest.mark.parametrize("row_bytes", [32, 64, 128])
def test_the_swizzle_is_the_hardwares(row_bytes):
    """One XOR a row is what CUTLASS writes as Swizzle<B, 4, 3>: bits from 7 on, onto bits 4 on."""
    width = {32: 1, 64: 2, 128: 3}[row_bytes]
    chunks, swizzle_rows = row_bytes // 16, 128 // row_bytes
    for row in range(64):
        for chunk in range(chunks):
            plain = row * row_bytes + chunk * 16
            swizzled = plain ^ (plain >> 7 & (1 << width) - 1) << 4
            ours = row * row_bytes + (chunk ^ row // swizzle_rows % chunks) * 16
            assert swizzled == ours


def masks(cluster: tuple[int, int], expression: str) -> list[int]:
    """For each CTA, the CTAs that its mainloop release signals: the DSL's own function."""
    from cutlass import cute, pipeline

    names = {"cute": cute, "CLUSTER_M": cluster[0], "CLUSTER_N": cluster[1]}
    found: list[int] = []

    def evaluate():
        ctas = eval(expression, names)
        for rank in range(cluster[0] * cluster[1]):
            with (
                mock.patch.object(cute.arch, "block_idx_in_cluster", return_value=rank),
                mock.patch.object(cute.arch, "make_warp_uniform", return_value=rank),
            ):
                mask = pipeline.PipelineTmaUmma._compute_mcast_arrival_mask(ctas, (1, 0))
                found.append(mask.value)

    @cute.jit
    def trace():
        evaluate()

    trace()
    return found


@pytest.mark.parametrize("cluster", CLUSTERS[1:])
def test_an_empty_mainloop_stage_is_told_to_those_who_send_a(cluster):
    """A is shared along N only: a release goes to the CTAs of the same row of the cluster."""
    if reason := find_dsl("cute").reason:
        pytest.skip(reason)
    text = next(path for path in BLACKWELL if "c2x2" in path.name).read_text()
    assert "mcast_mode_mn=(1, 0)" in text
    expression = re.search(r"    ctas = (cute\.make_layout\(\(1, .*\))\n", text)[1]
    m, n = cluster
    found = masks(cluster, expression)
    for rank in range(m * n):
        assert found[rank] == sum(1 << r for r in range(m * n) if r % m == rank % m)
        assert sum(mask >> rank & 1 for mask in found) == n


@pytest.mark.parametrize("path", BLACKWELL, ids=lambda path: path.stem)
def test_an_emitted_file_says_that_it_never_ran(path):
    docstring = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
    assert "was compiled and emulated, and never run" in docstring


@pytest.mark.parametrize("path", EMITTED, ids=lambda path: path.stem)
def test_one_kind_of_scale_only(path):
    """A file with groups scales when it converts, one without in the epilogue; none does both."""
    text = path.read_text()
    assert ("SCALE_GROUP = " in text) != ("def scale_vector" in text)


def test_what_other_ops_have_no_use_for_is_refused():
    kernel = {"op": "gemm", "backend": "cute", "arch": "sm_90a"}
    for dtype in ({"scale_group": 128}, {"a": "i8"}, {"b": "i4"}):
        with pytest.raises(InputError):
            api.plan(description_from_data({"pipegen": 1, "kernel": kernel, "dtype": dtype}))


@pytest.mark.parametrize(
    "name",
    [
        "mixed_gemm_sm90",
        "mixed_gemm_sm90_16x64",
        "mixed_gemm_sm90_f32_out",
        "mixed_gemm_sm90_64x64",
        "mixed_gemm_sm100",
        "mixed_gemm_sm100_192x128_k64_f32_out",
    ],
)
def test_a_store_buffer_is_made_of_whole_boxes(name):
    """As many channels as a swizzle has, by all tokens of a subtile, are contiguous: one TMA store.
    The order (0, 1, 2) would make a box of each 8 tokens."""
    if reason := find_dsl("cute").reason:
        pytest.skip(reason)
    path = ROOT / "generated" / "cute" / f"{name}.py"
    module = runpy.run_path(str(path))
    (order,) = re.findall(r"OUT_DTYPE, out_tile, EPI_STAGES, (\(.*?\))\)", path.read_text())
    channels, tokens, stages = (module[key] for key in ("EPI_TILE_N", "EPI_TILE_M", "EPI_STAGES"))
    width = 128 * 8 // module["OUT_DTYPE"].width  # channels in a swizzle's 128 B

    def misplaced(order):
        layout = module["smem_layout"](
            module["OUT_SWIZZLE"], module["OUT_DTYPE"], (channels, tokens), stages, order
        )
        return sum(
            layout.outer((n, m, stage))
            != ((stage * channels + n // width * width) * tokens + m * width + n % width)
            for stage in range(stages)
            for n in range(0, channels, 8)
            for m in range(tokens)
        )

    assert module["OUT_SWIZZLE"].name == "MN_SW128"
    assert evaluated(lambda: misplaced(ast.literal_eval(order))) == 0
    assert evaluated(lambda: misplaced((0, 1, 2))) > 0 or channels == width
