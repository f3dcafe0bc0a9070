# SPDX-License-Identifier: Apache-2.0
"""Each class of the CuTe table has limits; a description beyond one is answered by name."""

from pathlib import Path

import pytest

from pipegen.description_file import load_description
from pipegen.errors import InputError
from pipegen.selection import rows

CASES = Path(__file__).parent / "cases"
# A case that asks the impossible of the class, the key at fault, and a word of the reason.
LIMITS = {
    "PipelineAsync": ("stream_row_by_threads", "stream.y", "thread"),
    "PipelineCpAsync": ("gather_cluster", "cluster.shape", "cp.async"),
    "PipelineTmaAsync": ("stages_too_many", "pipeline.mainloop.stages", "232448 B of SMEM"),
    "PipelineTmaUmma": ("blackwell_pair_cp_async", "pipeline.mainloop.producer", "tcgen05"),
    "PipelineAsyncUmma": ("mixed_blackwell_stages", "pipeline.transform.stages", "TMEM"),
    "PipelineUmmaAsync": ("blackwell_too_many_accumulators", "pipeline.accumulator.stages", "TMEM"),
    "PipelineClcFetchAsync": ("clc_on_hopper", "scheduler.tiles", "cluster launch control"),
    "PipelineTmaMultiConsumersAsync": ("rowsum_m_major", "layout.a", "16 bytes at a time"),
    "PipelineTmaStore": ("store_buffers_too_many", "pipeline.epilogue.stages", "stores of 8192 B"),
    "PipelineOrder": ("ping_pong_one_warpgroup", "role.consumer.warpgroups", "take turns"),
}


def test_every_class_has_a_limit():
    assert set(LIMITS) == {row.cls for row in rows("cute")}


@pytest.mark.parametrize("cls", LIMITS)
def test_the_impossible_is_answered_by_name(cls):
    case, key, reason = LIMITS[cls]
    with pytest.raises(InputError) as refused:
        load_description(CASES / case / "kernel.toml")
    problem = {each.key: each for each in refused.value.problems}[key]
    assert reason in problem.paragraph()
    assert problem.rule
    assert problem.allowed
    assert problem.nearest
