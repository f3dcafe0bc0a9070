# SPDX-License-Identifier: Apache-2.0
"""The Blackwell GEMM, which no machine here can run: what can be shown without one."""

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_planning import check_formulas

import pipegen as api
from pipegen import arithmetic
from pipegen.compiling.installed import dsl as find_dsl
from pipegen.description_file import description_from_data
from pipegen.errors import InputError
from pipegen.hardware import HARDWARE, MBARRIER_TX_LIMIT

ROOT = Path(__file__).parent.parent
EMITTED = sorted((ROOT / "generated" / "cute").glob("gemm_sm100_*.py"))
CLUSTERS = [(1, 1), (2, 1), (1, 2), (2, 2)]


def planned(**sections):
    kernel = {"op": "gemm", "backend": "cute", "arch": "sm_100a"}
    return api.plan(description_from_data({"pipegen": 1, "kernel": kernel, **sections}))


def test_the_default_plan():
    made = planned()
    expected = {
        "tx_count": 49152,  # (128 + 256) * 64 * 2
        "mainloop_full_arrive_count": 1,
        "mainloop_empty_arrive_count": 2,  # [2, 1]: a commit of each of 2 + 1 - 1 CTAs
        "accumulator_full_arrive_count": 1,
        "accumulator_empty_arrive_count": 4,  # one lane of each epilogue warp
        "tmem_columns": 512,  # 2 * 256
        "mainloop_stages": 4,  # (232448 - 1024 - 2 * 8192) / 49152 = 4.4
        "epilogue_buffers": 4,
        "mbarrier_bytes": 96,  # 2 * 4 * 8 + 2 * 2 * 8
        "smem_bytes": 230400,
        "threads": 192,
        "mma_per_stage": 4,
    }
    assert {name: made.number(name).value for name in expected} == expected
    assert check_formulas(made) >= 10
    assert made.name == "sm100_gemm_tma_umma_s4_c2x1"


@pytest.mark.parametrize(
    ("buffers", "tile_n", "columns"),
    # A power of two from 32: 2 * 16 = 32; 2 * 80 = 160 -> 256; 2 * 256 and 4 * 128 are all of it.
    [(2, 16, 32), (2, 80, 256), (2, 128, 256), (2, 256, 512), (4, 128, 512), (3, 256, 1024)],
)
def test_tmem_columns(buffers, tile_n, columns):
    assert arithmetic.tmem_columns(buffers, tile_n) == columns


def test_barriers_beside_the_ring_are_counted():
    # 62 stages of 2 * 8 B are 992 B and fit in the first 1024; with 36 B more they do not.
    assert arithmetic.smem_bytes((1024, 1024), 1024, 62, 1) == 1024 * (1 + 124 + 1)
    assert arithmetic.smem_bytes((1024, 1024), 1024, 62, 1, 36) == 1024 * (2 + 124 + 1)


@settings(max_examples=200)
@given(
    m=st.sampled_from([64, 128, 256]),
    n=st.integers(1, 17).map(lambda i: 16 * i),
    k=st.sampled_from([16, 32, 64, 128, 256]),
    cluster=st.sampled_from(CLUSTERS),
    a=st.sampled_from(["bf16", "f16", "e4m3", "e5m2"]),
    out=st.sampled_from(["f32", "bf16", "f16"]),
    stages=st.one_of(st.just("auto"), st.integers(0, 12)),
    accumulators=st.one_of(st.just("auto"), st.integers(0, 9)),
)
def test_every_plan_fits_the_machine(m, n, k, cluster, a, out, stages, accumulators):
    """Whatever is asked for: a refusal, or a plan within every limit of the hardware."""
    try:
        made = planned(
            dtype={"a": a, "out": out},
            tile={"m": m, "n": n, "k": k},
            cluster={"shape": cluster},
            pipeline={"mainloop": {"stages": stages}, "accumulator": {"stages": accumulators}},
        )
    except InputError:
        return
    value = {number.name: number.value for number in made.numbers}
    check_formulas(made)
    assert value["smem_bytes"] <= HARDWARE["sm_100a"].smem_per_block
    assert value["tx_count"] < MBARRIER_TX_LIMIT
    assert value["mainloop_stages"] >= 2
    columns, buffers = value["tmem_columns"], value["accumulator_buffers"]
    assert columns in (32, 64, 128, 256, 512)
    assert 2 <= buffers <= columns // n
    assert value["accumulator_empty_arrive_count"] == 4
    signalling = {(i, 0) for i in range(cluster[0])} | {(0, j) for j in range(cluster[1])}
    assert value["mainloop_empty_arrive_count"] == len(signalling)


def masks(cluster: tuple[int, int], expression: str) -> tuple[list[int], list[int]]:
    """For each CTA of the cluster, the CTAs that its mainloop release and its accumulator commit
    signal: the DSL's own functions, evaluated on the host for the emitted file's CTA layout."""
    from cutlass import cute, pipeline

    names = {"cute": cute, "CLUSTER_M": cluster[0], "CLUSTER_N": cluster[1]}
    found: tuple[list[int], list[int]] = ([], [])

    def evaluate():
        ctas = eval(expression, names)
        for rank in range(cluster[0] * cluster[1]):
            with (
                mock.patch.object(cute.arch, "block_idx_in_cluster", return_value=rank),
                mock.patch.object(cute.arch, "make_warp_uniform", return_value=rank),
            ):
                mainloop = pipeline.PipelineTmaUmma._compute_mcast_arrival_mask(ctas, (1, 1))
                accumulator = pipeline.PipelineUmmaAsync._compute_tmem_sync_mask(ctas)
            found[0].append(mainloop.value)
            found[1].append(accumulator.value)

    @cute.jit
    def trace():
        evaluate()

    trace()
    return found


@pytest.mark.parametrize("cluster", CLUSTERS[1:])
def test_no_mask_names_a_cta_outside_the_cluster(cluster):
    """PipelineTmaUmma signals a pair's peer even without pairs: here that must be itself.

    Each CTA is signalled as often as its empty barrier counts, and its accumulator by itself only.
    """
    if reason := find_dsl("cute").reason:
        pytest.skip(reason)
    text = next(path for path in EMITTED if "c2x2" in path.name).read_text()
    expression = re.search(r"    ctas = (cute\.make_layout\(\(1, .*\))\n", text)[1]
    mainloop, accumulator = masks(cluster, expression)
    m, n = cluster
    size = m * n
    for rank in range(size):
        column, row = rank // m, rank % m  # rank = row + m * column
        partners = {r for r in range(size) if r // m == column or r % m == row}
        assert mainloop[rank] == sum(1 << partner for partner in partners)
        assert accumulator[rank] == 1 << rank
        signals = sum(mask >> rank & 1 for mask in mainloop)
        assert signals == arithmetic.umma_consumer_arrive_count(cluster)


@pytest.mark.parametrize("path", EMITTED, ids=lambda path: path.stem)
def test_an_emitted_file_says_that_it_never_ran(path):
    docstring = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
    assert "was compiled and emulated, and never run" in docstring


@pytest.mark.parametrize("name", ["gemm_sm100_c2x2", "gemm_sm100_e4m3"])
def test_the_compiler_uses_tcgen05(name, tmp_path):
    """The PTX has the MMAs of the right kind, and TMEM is given back."""
    if reason := find_dsl("cute").reason:
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, ROOT / "generated" / "cute" / f"{name}.py", "--compile-only"],
        env={
            **os.environ,
            "CUTE_DSL_ARCH": "sm_100a",
            "CUTE_DSL_KEEP": "ptx,cubin",
            "CUTE_DSL_DUMP_DIR": str(tmp_path),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.glob("*sm_100a*.cubin"))
    (ptx,) = (path.read_text() for path in tmp_path.glob("*.ptx"))
    kind = "f8f6f4" if "e4m3" in name else "f16"
    assert len(re.findall(rf"tcgen05\.mma\.cta_group::1\.kind::{kind}\b", ptx)) == 4
    for once in ("alloc", "relinquish_alloc_permit", "dealloc"):
        assert len(re.findall(rf"tcgen05\.{once}\.cta_group::1", ptx)) == 1
    assert "tcgen05.wait::ld.sync.aligned" in ptx


def test_the_hopper_script_leaves_blackwell_out():
    for_hopper = runpy.run_path(str(ROOT / "benchmarks" / "hopper.py"))["for_hopper"]
    assert not any(map(for_hopper, EMITTED))
    assert all(map(for_hopper, EMITTED[0].parent.glob("gemm_sm90_*.py")))
