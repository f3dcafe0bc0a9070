# SPDX-License-Identifier: Apache-2.0
"""Stream kernels: numbers by hand, what holds for every plan, and what each rule refuses."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_planning import check_formulas

import pipegen as api
from pipegen.description_file import description_from_data
from pipegen.errors import InputError
from pipegen.hardware import HARDWARE, MBARRIER_TX_LIMIT
from pipegen.planning.stream.sizes import most_stages


def stream(arch="sm_90a", style="participants", **sections):
    kernel = {"op": "stream", "backend": "cute", "arch": arch, "style": style}
    return {"pipegen": 1, "kernel": kernel, **sections}


def planned(**sections):
    return api.plan(description_from_data(stream(**sections)))


def values(made, *names):
    return {name: made.number(name).value for name in names}


def test_the_default():
    made = planned()
    assert made.description.tile.m == 32
    assert made.description.tile.n == 256
    expected = {
        "x_tile_bytes": 16384,  # 32 * 256 * 2
        "tx_count": 16384,
        "mainloop_full_arrive_count": 1,
        "mainloop_empty_arrive_count": 8,  # one lane of each of 8 warps
        "warp_m": 4,  # 32 / 8
        "vector": 8,  # 16 B a lane
        "threads": 288,
        "smem_capacity": 115712,  # 228 KiB / 2 - 1 KiB
        "mainloop_stages": 7,  # (115712 - 128) / 16384 = 7.05
        "smem_bytes": 114816,  # 128 + 7 * 16384
        "blocks_per_sm": 2,
    }
    assert values(made, *expected) == expected
    assert [pipeline.construct for pipeline in made.pipelines] == ["PipelineTmaAsync"]
    assert "SMEM: 8 stages of 16384 B" in made.stage_limit


def test_tma_stores():
    made = planned(pipeline={"epilogue": {"consumer": "tma_store"}})
    expected = {
        "blocks_per_sm": 1,
        "smem_capacity": 232448,
        "mainloop_stages": 11,  # (232448 - 256 - 3 * 16384) / 16384 = 11.17
        "smem_bytes": 229632,  # 256 + 11 * 16384 + 3 * 16384
    }
    assert values(made, *expected) == expected
    epilogue = made.pipeline("epilogue")
    assert (epilogue.construct, epilogue.stages) == ("PipelineTmaStore", 3)
    assert epilogue.stage_bytes == 2048  # 4 rows * 256 * 2: a warp's own
    assert epilogue.full_arrive_count is epilogue.empty_arrive_count is None


def test_a_row_shared_by_a_cluster():
    made = planned(stream={"y": "row"}, cluster={"shape": [4, 1]})
    expected = {
        "y_tile_bytes": 512,  # 256 * 2
        "tx_count": 16896,  # all of y lands here, whoever loads it
        "mainloop_full_arrive_count": 1,
        "mainloop_empty_arrive_count": 32,  # 8 warps of each of 4 CTAs
        "mainloop_stages": 6,  # (115712 - 128) / 16896 = 6.8
        "smem_bytes": 101504,  # 128 + 6 * 16896
    }
    assert values(made, *expected) == expected


def test_two_producer_warps_arm_their_own_tiles():
    made = planned(stream={"y": "matrix"}, role={"producer": {"warps": 2}})
    expected = {
        "tx_count": 16384,  # of each of the two arrives
        "mainloop_full_arrive_count": 2,
        "threads": 320,
        "mainloop_stages": 3,  # (115712 - 128) / 32768 = 3.5
    }
    assert values(made, *expected) == expected
    both = made.pipeline("mainloop")
    assert both.full_arrive_count * both.tx_count == both.stage_bytes


def test_the_widest_type_gets_16_bytes_a_lane():
    assert planned(dtype={"a": "f32"}).description.tile.n == 128  # 32 * 16 / 4
    assert planned(dtype={"a": "bf16", "out": "f32"}).description.tile.n == 128
    # y's type does not count where there is no y.
    assert planned(dtype={"a": "bf16", "b": "f32"}).description.tile.n == 256


def test_barriers_leave_room_for_themselves():
    assert most_stages(16384 * 7 + 127, 16384) == 6  # 7 stages need 112 B: 128
    assert most_stages(16384 * 7 + 128, 16384) == 7
    assert most_stages(16384 * 9 + 128, 16384) == 8  # 9 stages need 144 B: 256
    assert most_stages(100, 16384) == 0


sections = st.fixed_dictionaries(
    {
        "arch": st.sampled_from(["sm_90a", "sm_100a"]),
        "style": st.sampled_from(["participants", "explicit-state"]),
        "dtype": st.fixed_dictionaries(
            {key: st.sampled_from(["bf16", "f16", "f32"]) for key in ("a", "b", "out")}
        ),
        "tile": st.fixed_dictionaries(
            {
                "m": st.sampled_from([4, 8, 12, 16, 32, 48, 64, 128]),
                "n": st.sampled_from([32, 64, 96, 128, 256, 512]),
            }
        ),
        "cluster": st.fixed_dictionaries(
            {"shape": st.sampled_from([[1, 1], [2, 1], [4, 1], [8, 1], [1, 2]])}
        ),
        "pipeline": st.one_of(
            st.just({}),
            st.fixed_dictionaries(
                {"mainloop": st.fixed_dictionaries({"stages": st.integers(1, 30)})}
            ),
            st.fixed_dictionaries(
                {"epilogue": st.fixed_dictionaries({"stages": st.integers(0, 9)})}
            ),
        ),
        "role": st.fixed_dictionaries(
            {
                "producer": st.fixed_dictionaries({"warps": st.sampled_from([1, 2])}),
                "consumer": st.fixed_dictionaries({"warpgroups": st.integers(0, 5)}),
            }
        ),
        "stream": st.fixed_dictionaries(
            {
                "y": st.sampled_from(["none", "matrix", "row"]),
                "blocks_per_sm": st.integers(0, 9),
            }
        ),
    }
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sections)
def test_every_plan_fits_the_machine(choice):
    """A plan, or problems that say what is wrong: never a crash, never a plan that cannot run."""
    try:
        made = planned(**choice)
    except InputError:
        return
    hardware = HARDWARE[made.description.kernel.arch]
    mainloop, description = made.pipeline("mainloop"), made.description
    smem, blocks = made.number("smem_bytes").value, made.number("blocks_per_sm").value
    assert blocks * (smem + hardware.smem_reserved_per_block) <= hardware.smem_per_sm
    assert blocks * made.number("threads").value <= hardware.max_threads_per_sm
    assert mainloop.stages >= 2
    assert mainloop.tx_count * mainloop.full_arrive_count == mainloop.stage_bytes
    assert mainloop.tx_count < MBARRIER_TX_LIMIT
    warps = made.number("threads").value // 32 - description.role["producer"].warps
    assert mainloop.empty_arrive_count == warps * description.cluster.shape[0]
    assert made.number("warp_m").value * warps == description.tile.m
    assert made.number("vector").value * 32 == description.tile.n
    check_formulas(made)


@pytest.mark.parametrize(
    ("given_sections", "rule", "key"),
    [
        ({"dtype": {"b": "e5m2"}, "stream": {"y": "matrix"}}, "PG210", "dtype.b"),
        ({"tile": {"n": 48}}, "PG211", "tile.n"),
        # A row of y would begin at a multiple of 64 bytes.
        ({"tile": {"n": 32}, "stream": {"y": "row"}}, "PG211", "tile.n"),
        ({"tile": {"m": 72}}, "PG211", "tile.m"),
        # One row of 32 bf16 is less than TMA's 128 bytes.
        ({"tile": {"m": 8, "n": 32}, "pipeline": {"epilogue": {}}}, "PG211", "tile.m"),
        ({"cluster": {"shape": [2, 1]}, "stream": {"y": "matrix"}}, "PG212", "cluster.shape"),
        ({"role": {"producer": {"warps": 2}}, "stream": {"y": "row"}}, "PG213", None),
        ({"stream": {"blocks_per_sm": 0}}, "PG214", "stream.blocks_per_sm"),
        ({"pipeline": {"epilogue": {"stages": 0}}}, "PG214", "pipeline.epilogue.stages"),
        ({"scheduler": {"tiles": "clc"}}, "PG108", "scheduler.tiles"),
        ({"layout": {"b": "n"}}, "PG215", "layout.b"),
    ],
)
def test_what_is_refused(given_sections, rule, key):
    with pytest.raises(InputError) as caught:
        planned(**given_sections)
    found = [(problem.rule, problem.key) for problem in caught.value.problems]
    assert found == [(rule, key or "role.producer.warps")]


@pytest.mark.parametrize("shape", [[2, 1], [4, 1]])
@pytest.mark.parametrize("stored", [False, True])
def test_what_a_cluster_needs_is_written(shape, stored):
    """The mask of all CTAs, the cluster's layout, and the meeting before anyone leaves."""
    pipelines = {"epilogue": {}} if stored else {}
    made = planned(stream={"y": "row"}, cluster={"shape": shape}, pipeline=pipelines)
    text = next(iter(api.render(made).values()))
    for words in (
        "cta_layout_vmnk=cute.make_layout((1, CLUSTER_M, 1, 1))",
        "mcast_mask=all_ctas",
        "num_multicast=CLUSTER_M",
        "cute.arch.cluster_wait()",
    ):
        assert text.count(words) == 1
    alone = next(iter(api.render(planned(stream={"y": "row"}, pipeline=pipelines)).values()))
    assert "cluster" not in alone.split('"""', 2)[2]


def test_reads_are_fenced_before_the_release():
    """The next TMA copy writes through the async proxy: a release does not order the reads."""
    for style in ("participants", "explicit-state"):
        text = next(iter(api.render(planned(style=style)).values()))
        lines = [line.strip() for line in text.splitlines()]
        release = next(
            i
            for i, line in enumerate(lines)
            if line.startswith(("stage.release", "mainloop.consumer_r"))
        )
        assert lines[release - 2].startswith('cute.arch.fence_proxy("async.shared"')
        assert lines[release - 1] == "cute.arch.sync_warp()"


def test_one_tail_and_by_the_owner():
    for producer in ({"warps": 1}, {"warps": 2}):
        for style in ("participants", "explicit-state"):
            made = planned(style=style, stream={"y": "matrix"}, role={"producer": producer})
            text = next(iter(api.render(made).values()))
            assert text.count(".tail()") + text.count(".producer_tail(stage)") == 1


def test_a_deferred_sync_is_made_up_for():
    deferred = {"mainloop": {"defer_sync": True}}
    for pipelines, times in (({}, 0), (deferred, 1)):
        text = next(iter(api.render(planned(pipeline=pipelines)).values()))
        for words in ("defer_sync=True", "pipeline_init_arrive(", "pipeline_init_wait("):
            assert text.count(words) == times
