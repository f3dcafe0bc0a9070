# SPDX-License-Identifier: Apache-2.0
"""Plans of every op through the model of the barriers, and each way to break one of them."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from pipegen.barriers import emitters
from pipegen.barriers.plans import find_in_plan
from pipegen.description_file import load_description
from pipegen.planning import plan

GENERATED = Path(__file__).parent.parent / "generated"
# Groups of bulk stores have no mbarrier; the others are set up and walked by Mosaic GPU alone.
UNMODELLED = (
    "PipelineTmaStore",
    "plgpu.copy_smem_to_gmem",
    "plgpu.dynamic_scheduling_loop",
    "(out_specs)",
)
# One kernel of each op, backend and way to write a pipeline.
KERNELS = [
    "cute/gemm_sm90_c2x1",
    "cute/gemm_sm90_pingpong_c2x1",
    "cute/gemm_sm100_pair_c2x1",
    "cute/gemm_sm100_clc_c1x1",
    "cute/gemm_rowsum_sm100_c1x1",
    "cute/mixed_gemm_sm90",
    "cute/mixed_gemm_sm100",
    "cute/stream_sm90_tma_row_c2x1",
    "cute/custom_sm90_running_sum",
    "cute/custom_sm90_scale_columns_c2x1",
    "cute/custom_sm90_unit_rows_c1x2",
    "cute/custom_sm90_feedback",
    "pallas/pallas_gemm_sm100",
    "pallas/pallas_gemm_sm90_ws",
    "pallas/pallas_gemm_sm90_ws_c2x1",
    "pallas/pallas_gemm_sm90_pingpong",
    "pallas/pallas_gemm_sm90_emit_pipeline",
    "pallas/pallas_gemm_sm90_pallas_call",
    "pallas/pallas_mixed_gemm_sm90_g128",
    "pallas/pallas_mixed_gemm_sm90_f16_c1x2",
    "pallas/pallas_reduce_sm90_ws",
    "pallas/pallas_reduce_sm90_emit_pipeline",
    "pallas/pallas_stream_sm90_ws_row",
    "pallas/pallas_custom_sm90_add_two",
    "pallas/pallas_custom_sm90_convert_multiply",
    "pallas/pallas_custom_sm90_running_sum",
    "pallas/pallas_custom_sm100_convert_multiply",
]


@cache
def made(name: str):
    return plan(load_description(GENERATED / f"{name}.toml"))


@pytest.mark.parametrize("name", KERNELS)
def test_every_pipeline_that_has_a_barrier_is_modelled(name):
    found, skipped = find_in_plan(made(name))
    assert found == []
    for each in skipped:
        assert any(word in each.reason for word in UNMODELLED), each
    assert len(skipped) < len(made(name).pipelines)


def broken(name: str):
    """(kernel, pipeline, what is changed by how much) of every count of a plan."""
    for pipeline in made(name).pipelines:
        if any(word in pipeline.construct for word in UNMODELLED):
            continue
        for count in ("full_arrive_count", "empty_arrive_count"):
            if getattr(pipeline, count) is not None:
                for change in (-1, 1):
                    yield name, pipeline.name, count, change


@pytest.mark.parametrize(
    ("name", "pipeline", "count", "change"), [each for name in KERNELS for each in broken(name)]
)
def test_every_count_that_is_off_by_one_is_found(name, pipeline, count, change):
    whole = made(name)
    wrong = tuple(
        replace(each, **{count: getattr(each, count) + change}) if each.name == pipeline else each
        for each in whole.pipelines
    )
    found, _ = find_in_plan(replace(whole, pipelines=wrong))
    assert [name for name, _ in found] == [pipeline]
    kinds = {finding.kind for _, finding in found}
    assert kinds == {"deadlock"} if change > 0 else kinds <= {"race", "deadlock"}


@pytest.mark.parametrize(
    "name", ["pallas/pallas_gemm_sm90_ws_in_flight", "pallas/pallas_gemm_sm90_emit_pipeline"]
)
def test_a_stage_that_is_kept_too_long_hangs(name):
    """With delay_release as large as the ring, a step waits for copies that nobody starts."""
    whole = made(name)
    for kept, faulty in ((whole.pipelines[0].stages - 1, False), (whole.pipelines[0].stages, True)):
        ring = whole.pipelines[0]
        ring = replace(ring, releases=tuple(replace(r, delay_release=kept) for r in ring.releases))
        found, _ = find_in_plan(replace(whole, pipelines=(ring, *whole.pipelines[1:])))
        assert [finding.kind for _, finding in found] == (["deadlock"] if faulty else [])


def test_one_warpgroup_that_arms_other_bytes_than_it_copies_hangs():
    ring = made("pallas/pallas_gemm_sm90_pallas_call").pipelines[0]
    system = emitters.one_stream(ring, 256)
    assert emitters.explore(system) is None
    (name, program), *_ = system.agents
    for kind, amount in (("arm", 1), ("copy", 1)):
        ops = tuple(replace(op, amount=amount) if op.kind == kind else op for op in program)
        found = emitters.explore(replace(system, agents=((name, ops),)))
        assert found.kind == "deadlock"
    # And copies of which a stage's barrier does not hear before the arrivals are missed.
    ops = tuple(replace(op, amount=0) if op.kind == "arm" else op for op in program)
    assert emitters.explore(replace(system, agents=((name, ops),))).kind == "race"
