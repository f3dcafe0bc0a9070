# SPDX-License-Identifier: Apache-2.0
"""Plans: known numbers of known kernels, and what holds for every plan."""

import ast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pipegen as api
from pipegen.arithmetic import setmaxnreg_valid
from pipegen.description_file import description_from_data
from pipegen.errors import InputError
from pipegen.hardware import HARDWARE, MBARRIER_TX_LIMIT


def cute(**sections):
    return {
        "pipegen": 1,
        "kernel": {"op": "gemm", "backend": "cute", "arch": "sm_90a"},
        **sections,
    }


def test_the_default_cute_gemm():
    made = api.plan(description_from_data(cute()))
    expected = {
        "a_stage_bytes": 16384,  # 128 * 64 * 2
        "b_stage_bytes": 32768,  # 256 * 64 * 2
        "tx_count": 49152,
        "multicast_partners": 2,  # [2, 1]: 2 + 1 - 1
        "mainloop_full_arrive_count": 1,
        "mainloop_empty_arrive_count": 16,  # 8 warps * 2
        "epi_buffer_bytes": 8192,  # 128 * 32 * 2
        "epi_subtiles": 8,  # 256 / 32
        "mainloop_stages": 4,
        "epilogue_buffers": 4,
        "mbarrier_bytes": 64,
        "smem_bytes": 230400,
        "threads": 384,
        "launch_registers": 168,
        "producer_registers": 40,
        "consumer_registers": 232,
        "accumulator_registers": 128,
        "wgmma_per_stage": 4,
        "blocks_per_sm": 1,
    }
    assert {name: made.number(name).value for name in expected} == expected


def test_fp8_and_f32_output():
    data = cute(dtype={"a": "e4m3", "out": "f32"})
    made = api.plan(description_from_data(data))
    assert made.description.tile.k == 128
    assert made.description.tile.n == 128  # two accumulators: see rule PG204
    assert made.number("tx_count").value == 32768  # (128 + 128) * 128 * 1
    assert made.number("accumulator_registers").value == 128  # 2 * 128 * 128 / 256
    # (232448 - 1024 - 2 * 16384) / 32768 = 6.03
    assert made.number("mainloop_stages").value == 6
    assert made.number("epi_buffer_bytes").value == 16384  # 128 * 32 * 4
    assert made.number("epilogue_buffers").value == 2


def check_formulas(made) -> int:
    """Every formula that is arithmetic gives its number; how many were."""
    checked = 0
    for number in made.numbers:
        try:
            tree = ast.parse(number.formula, mode="eval")
        except SyntaxError:
            continue
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        if names <= {"min", "max"} and isinstance(number.value, int):
            assert eval(number.formula, {"min": min, "max": max}) == number.value, number
            checked += 1
    return checked


def test_a_number_knows_its_formula():
    assert check_formulas(api.plan(description_from_data(cute()))) >= 15


def test_a_given_number_is_not_explained_away():
    data = cute(role={"consumer": {"registers": 200}}, pipeline={"mainloop": {"stages": 3}})
    made = api.plan(description_from_data(data))
    assert made.number("consumer_registers").formula == "given"
    assert made.number("mainloop_stages").formula == "given"


def test_what_limits_the_stages():
    assert "SMEM: 5 stages of 49152 B" in api.plan(description_from_data(cute())).stage_limit
    fixed = cute(pipeline={"mainloop": {"stages": 3}})
    assert "the description (3); 4 would fit" in api.plan(description_from_data(fixed)).stage_limit


def test_plan_command(pipegen, tmp_path):
    (tmp_path / "k.toml").write_text('[kernel]\nop = "gemm"\nbackend = "cute"\narch = "sm_90a"\n')
    text = pipegen("plan", "k.toml")
    assert text.exit_code == 0
    for words in ("PipelineTmaAsync", "full 1, empty 16", "49152", "What limits the stages"):
        assert words in text.stdout
    import json

    data = json.loads(pipegen("plan", "k.toml", "--format", "json").stdout)
    assert data["numbers"]["mainloop_stages"]["value"] == 4
    assert data["defaulted"]["tile.m"] == 128
    assert data["pipelines"][0]["construct"] == "PipelineTmaAsync"


tiles = st.fixed_dictionaries(
    {
        "m": st.sampled_from([64, 128, 192, 256]),
        "n": st.integers(1, 17).map(lambda i: 16 * i),
        "k": st.sampled_from([16, 32, 64, 128, 256]),
    }
)
descriptions = st.fixed_dictionaries(
    {
        "style": st.sampled_from(
            ["participants", "explicit-state", "warp-specialized", "emit-pipeline"]
        ),
        "tile": tiles,
        "cluster": st.sampled_from([[1, 1], [2, 1], [1, 2], [2, 2]]),
        "a": st.sampled_from(["bf16", "f16", "e4m3", "e5m2"]),
        "out": st.sampled_from(["f32", "bf16", "f16"]),
        "stages": st.one_of(st.just("auto"), st.integers(0, 12)),
        "buffers": st.one_of(st.just("auto"), st.integers(1, 8)),
        "warpgroups": st.sampled_from([1, 2]),
        "producer": st.one_of(st.none(), st.integers(2, 16).map(lambda i: 8 * i)),
    }
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.filter_too_much])
@given(descriptions)
def test_every_plan_fits_the_machine(choice):
    """Whatever is asked for: a refusal, or a plan within every limit of the hardware."""
    pallas = choice["style"] in ("warp-specialized", "emit-pipeline")
    role = {"consumer": {"warpgroups": choice["warpgroups"]}}
    if choice["producer"] is not None:
        role["producer"] = {"registers": choice["producer"]}
    data = {
        "kernel": {
            "op": "gemm",
            "backend": "pallas" if pallas else "cute",
            "arch": "sm_90a",
            "style": choice["style"],
        },
        "dtype": {"a": choice["a"], "out": choice["out"]},
        "tile": choice["tile"],
        "cluster": {"shape": choice["cluster"]},
        "pipeline": {
            "mainloop": {"stages": choice["stages"]},
            "epilogue": {"stages": choice["buffers"]},
        },
        "role": role,
    }
    try:
        made = api.plan(description_from_data(data))
    except InputError:
        return
    hardware = HARDWARE["sm_90a"]
    value = {number.name: number.value for number in made.numbers}
    check_formulas(made)
    assert value["smem_bytes"] <= hardware.smem_per_block
    assert value["tx_count"] < MBARRIER_TX_LIMIT
    assert value["mainloop_stages"] >= 2
    assert value["blocks_per_sm"] >= (2 if choice["style"] == "emit-pipeline" else 1)
    m, n = choice["cluster"]
    ctas = len({(i, 0) for i in range(m)} | {(0, j) for j in range(n)})
    consumers = choice["warpgroups"]
    if choice["style"] == "emit-pipeline":
        assert (m, n, consumers) == (1, 1, 1)
        return
    # What a launch allocates: the register file over its threads, in steps of 8; 504, not 512,
    # for each lane of three warpgroups. 48 + 2 * 232 hung on an H200.
    threads = 128 * (1 + consumers)
    pool = hardware.registers_per_sm // threads // 8 * 8 * (1 + consumers)
    held = value["producer_registers"] + consumers * value["consumer_registers"]
    assert held <= pool
    assert setmaxnreg_valid(value["producer_registers"])
    assert setmaxnreg_valid(value["consumer_registers"])
    assert value["accumulator_registers"] < value["consumer_registers"]
    if not pallas:
        arrivals = 4 * consumers * ctas  # one lane of each warp, at each CTA
    elif ctas == 1:
        arrivals = 128 * consumers  # every thread
    else:
        arrivals = consumers * ctas  # one of each warpgroup, at each CTA
    assert value["mainloop_empty_arrive_count"] == arrivals


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_fewer_stages_leave_room_for_store_buffers(stages):
    data = cute(pipeline={"mainloop": {"stages": stages}})
    made = api.plan(description_from_data(data))
    assert made.number("mainloop_stages").value == stages
    assert made.number("epilogue_buffers").value == 4


def test_a_thread_has_at_most_255_registers():
    """224 accumulators and 40 more would be 264; 255 let two blocks of 128 threads share an SM."""
    made = api.plan(
        description_from_data(
            {
                "kernel": {
                    "op": "gemm",
                    "backend": "pallas",
                    "arch": "sm_90a",
                    "style": "emit-pipeline",
                },
                "tile": {"m": 128, "n": 224, "k": 16},
                "dtype": {"out": "f32"},
            }
        )
    )
    assert made.number("accumulator_registers").value == 224
    assert made.number("blocks_per_sm").value == 2  # 65536 / (128 * 256)
