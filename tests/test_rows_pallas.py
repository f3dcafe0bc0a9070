# SPDX-License-Identifier: Apache-2.0
"""Pallas stream and reduce kernels: numbers by hand, what holds for every plan, what is refused."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import environments
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from interpretable import WRAPPING
from test_planning import check_formulas

import pipegen as api
from pipegen.arithmetic import setmaxnreg_valid
from pipegen.compiling.installed import dsl as find_dsl
from pipegen.description_file import description_from_data, load_description
from pipegen.errors import InputError
from pipegen.hardware import HARDWARE, MBARRIER_TX_LIMIT

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    path
    for op in ("stream", "reduce")
    for path in (ROOT / "generated" / "pallas").glob(f"pallas_{op}_*.py")
)


def planned(op="reduce", arch="sm_90a", style="warp-specialized", **sections):
    kernel = {"op": op, "backend": "pallas", "arch": arch, "style": style}
    return api.plan(description_from_data({"pipegen": 1, "kernel": kernel, **sections}))


def text_of(**choice):
    return next(iter(api.render(planned(**choice)).values()))


def values(made, *names):
    return {name: made.number(name).value for name in names}


OUT_SPECS = {"pipeline": {"epilogue": {"out_specs": True}}}


def test_the_default_reduction():
    made = planned(tile={"m": 1})
    assert made.description.tile.n == 8192
    expected = {
        "x_tile_bytes": 16384,  # 8192 * 2
        "weight_bytes": 16384,
        "tx_count": 16384,
        "mainloop_full_arrive_count": 128,  # the issuing warpgroup
        "mainloop_empty_arrive_count": 128,  # one consumer warpgroup
        "thread_elements": 64,  # 8192 / 128
        "threads": 256,
        "mainloop_stages": 11,  # (232448 - 16384 - 2 * 16384 - 2048 - 8) / 16400 = 11.05
        # 11 stages, the weight, 2 buffers, the scratch; 22 barriers and the weight's.
        "smem_bytes": 14 * 16384 + 2048 + 8 * 23,
        "consumer_registers": 256,
    }
    assert values(made, *expected) == expected


def test_out_specs_have_a_buffer_for_each_stage():
    made = planned(tile={"m": 1}, **OUT_SPECS)
    assert made.pipeline("mainloop").stages == made.pipeline("epilogue").stages == 6
    assert made.number("smem_bytes").value == 13 * 16384 + 2048 + 8 * 13
    assert made.pipeline("epilogue").construct.endswith("(out_specs)")


def test_short_rows_leave_each_warp_its_own():
    made = planned(tile={"n": 2048})
    assert made.description.tile.m == 8  # 2 warpgroups of 4 rows
    assert values(made, "wg_m", "thread_elements") == {"wg_m": 4, "thread_elements": 64}
    assert made.pipeline("mainloop").empty_arrive_count == 256
    softmax = {"body": "softmax"}
    assert planned(tile={"n": 4096}, reduce=softmax).description.tile.m == 2  # 2 warps share a row
    # Two rows at once hide the latency of their sums where one warpgroup computes.
    assert planned().description.tile.m == 2
    assert planned(style="emit-pipeline").description.tile.m == 1
    assert planned(tile={"n": 16384}).number("thread_elements").value == 128


def test_the_default_streams():
    made = planned(op="stream")
    expected = {
        "x_tile_bytes": 32768,  # 64 * 256 * 2
        "wg_m": 32,
        "vector": 8,
        "thread_elements": 64,
        "mainloop_empty_arrive_count": 256,
        "consumer_registers": 232,
        "piece_columns": 64,
        "blocks_per_sm": 1,
    }
    assert values(made, *expected) == expected
    both = planned(op="stream", style="emit-pipeline", stream={"y": "matrix"})
    assert both.pipeline("mainloop").full_arrive_count == 256  # a copy of x and one of y
    assert both.pipeline("mainloop").empty_arrive_count is None
    assert both.number("blocks_per_sm").value == 2
    row = planned(op="stream", stream={"y": "row"})
    assert row.pipeline("mainloop").tx_count == 32768 + 512


def test_rows_too_large_for_two_blocks_get_an_sm_of_their_own():
    assert planned(style="emit-pipeline").number("blocks_per_sm").value == 2
    large = planned(style="emit-pipeline", dtype={"a": "f32"})
    assert large.number("blocks_per_sm").value == 1


@pytest.mark.parametrize("op", ["stream", "reduce"])
@pytest.mark.parametrize("style", ["emit-pipeline", "warp-specialized"])
def test_who_writes_back(op, style):
    """Either the pipeline has out_specs, or the step waits, publishes, and copies; never both."""
    by_hand = text_of(op=op, style=style).split('"""', 2)[2]
    assert "out_specs" not in by_hand
    place = [
        by_hand.index(words)
        for words in (
            "plgpu.wait_smem_to_gmem(EPI_STAGES - 1, wait_read_only=True)",
            "buffer[...] = out\n",
            "plgpu.commit_smem()",
            "plgpu.copy_smem_to_gmem(buffer, out_tile)",
            "plgpu.wait_smem_to_gmem(0, wait_read_only=True)",
        )
    ]
    assert place == sorted(place)
    with_specs = text_of(op=op, style=style, **OUT_SPECS).split('"""', 2)[2]
    assert with_specs.count("out_specs=[") == 1
    assert "copy_smem_to_gmem" not in with_specs
    # A memory warpgroup fills a stage as soon as it is released: reads are published before.
    assert with_specs.count("plgpu.commit_smem()") == (style == "warp-specialized")


def test_padding_does_not_change_a_softmax():
    text = text_of(reduce={"body": "softmax"})
    assert "BEYOND = -jnp.inf" in text
    assert "reduce_op(mask(x, columns))" in text
    assert "mask(" not in text_of()  # zeros change no sum of squares


words = st.sampled_from(["bf16", "f16", "f32"])
sections = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["stream", "reduce"]),
        "arch": st.sampled_from(["sm_90a", "sm_100a"]),
        "style": st.sampled_from(["warp-specialized", "emit-pipeline"]),
        "dtype": st.fixed_dictionaries({"a": words, "b": words, "out": words}),
        "tile": st.fixed_dictionaries(
            {},
            optional={
                "m": st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 32, 48, 64, 256]),
                "n": st.sampled_from([64, 96, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 20000]),
            },
        ),
        "pipeline": st.fixed_dictionaries(
            {
                "mainloop": st.fixed_dictionaries(
                    {"stages": st.one_of(st.just("auto"), st.integers(0, 40))}
                ),
                "epilogue": st.fixed_dictionaries(
                    {
                        "stages": st.one_of(st.just("auto"), st.integers(0, 9)),
                        "out_specs": st.booleans(),
                    }
                ),
            }
        ),
        "role": st.one_of(
            st.just({}),
            st.fixed_dictionaries(
                {"consumer": st.fixed_dictionaries({"warpgroups": st.integers(0, 5)})}
            ),
        ),
        "y": st.sampled_from(["none", "matrix", "row"]),
        "body": st.sampled_from(["rmsnorm", "softmax"]),
        "blocks": st.one_of(st.just("auto"), st.integers(0, 9)),
    }
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sections)
def test_every_plan_fits_the_machine(choice):
    """A plan, or problems that say what is wrong: never a crash, never a plan that cannot run."""
    op, y, body, blocks = (choice.pop(key) for key in ("op", "y", "body", "blocks"))
    own = {"y": y} if op == "stream" else {"body": body}
    try:
        made = planned(op=op, **choice, **{op: own | {"blocks_per_sm": blocks}})
    except InputError:
        return
    hardware = HARDWARE[made.description.kernel.arch]
    mainloop, epilogue = made.pipeline("mainloop"), made.pipeline("epilogue")
    value = {number.name: number.value for number in made.numbers}
    check_formulas(made)
    held = value["blocks_per_sm"] * (value["smem_bytes"] + hardware.smem_reserved_per_block)
    assert held <= hardware.smem_per_sm
    assert 2 <= mainloop.stages <= 32
    assert epilogue.stages >= 1
    assert mainloop.tx_count == mainloop.stage_bytes < MBARRIER_TX_LIMIT
    warpgroups = made.description.role["consumer"].warpgroups
    specialized = made.description.kernel.style == "warp-specialized"
    assert value["threads"] == 128 * (warpgroups + specialized)
    assert value["wg_m"] * warpgroups == made.description.tile.m
    assert value["thread_elements"] <= (64 if op == "stream" else 128)
    if made.description.pipeline["epilogue"].out_specs:
        assert warpgroups == 1
        assert epilogue.stages == mainloop.stages
    if op == "reduce" and value["wg_m"] < 4:
        assert warpgroups == 1  # one scratch for a reduction across warps
    if specialized:
        given_away, kept = value["producer_registers"], value["consumer_registers"]
        pool = hardware.registers_per_sm // value["threads"] // 8 * 8 * (warpgroups + 1)
        assert given_away + warpgroups * kept <= pool
        assert setmaxnreg_valid(given_away)
        assert setmaxnreg_valid(kept)
        assert value["blocks_per_sm"] == 1


@pytest.fixture(scope="module")
def compiled():
    """What `pipegen check` says of each module that was compiled."""
    found = find_dsl("pallas")
    if found.reason:
        pytest.skip(found.reason)
    done = subprocess.run(
        [sys.executable, "-m", "pipegen", "check", *map(str, MODULES), "--format", "json"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    modules = json.loads(done.stdout)["modules"]
    return {Path(module["path"]).stem: module["compile"] for module in modules}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_the_compiler_finds_what_was_planned(compiled, path):
    """Barriers with their counts, SMEM to the byte, threads; and no spill."""
    found = compiled[path.stem]
    assert found["status"] == "ok", found["message"]
    (kernel,) = found["kernels"]
    made = api.plan(load_description(path.with_suffix(".toml")))
    mainloop = made.pipeline("mainloop")
    counts = Counter({mainloop.full_arrive_count: mainloop.stages})
    if mainloop.empty_arrive_count:
        counts[mainloop.empty_arrive_count] += mainloop.stages
    if any(number.name == "weight_bytes" for number in made.numbers):
        counts[128] += 1
    assert Counter(kernel["mbarrier_counts"]) == counts
    assert kernel["smem_bytes"] == made.number("smem_bytes").value
    assert kernel["threads"] == made.number("threads").value
    assert found["spill_bytes"] == 0


def test_the_blocks_of_an_sm_have_the_registers(compiled):
    """As many blocks run at once as the persistent grid counts on."""
    for path in MODULES:
        made = api.plan(load_description(path.with_suffix(".toml")))
        (kernel,) = compiled[path.stem]["kernels"]
        hardware = HARDWARE[made.description.kernel.arch]
        taken = made.number("blocks_per_sm").value * kernel["threads"] * kernel["registers"]
        assert taken <= hardware.registers_per_sm, path.stem


@pytest.mark.parametrize(
    ("op", "body", "style", "tiles"),
    [
        ("stream", "rmsnorm", "emit-pipeline", 2),
        ("stream", "rmsnorm", "warp-specialized", 3),
        ("reduce", "rmsnorm", "emit-pipeline", 4),
        ("reduce", "rmsnorm", "warp-specialized", 4),
        ("reduce", "softmax", "emit-pipeline", 4),
        ("reduce", "softmax", "warp-specialized", 8),
    ],
)
def test_few_tiles_a_block(op, body, style, tiles):
    """More blocks than run at once."""
    text = text_of(op=op, style=style, reduce={"body": body}).split('"""', 2)[2]
    assert f"TILES_PER_BLOCK = {tiles}  #" in text
    assert "pl.cdiv(tiles, TILES_PER_BLOCK)" in text


def test_a_missing_fence_is_seen(newest_jax, tmp_path):
    """Without the publication of its reads, a stage that is released is a race."""
    source = ROOT / "generated" / "pallas" / "pallas_stream_sm90_ws_matrix_out_specs.py"
    broken = tmp_path / source.name
    text = source.read_text()
    assert text.count("        plgpu.commit_smem()\n") == 1
    broken.write_text(text.replace("        plgpu.commit_smem()\n", ""))
    todo = {"module": str(broken), "set": WRAPPING, "through": "launch"}
    (result,) = environments.interpret(newest_jax, [todo], tmp_path)
    assert result["verdict"] == "race", result["said"]
