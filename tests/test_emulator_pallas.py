# SPDX-License-Identifier: Apache-2.0
"""Pallas modules in the emulator: one of each template is right, and planted faults are found."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pipegen.compiling.installed import dsl
from pipegen.emulator.capture.entry import Parameter
from pipegen.emulator.machine.scalar import add_halves
from pipegen.emulator.mosaic.host_code import HostCodeError
from pipegen.emulator.mosaic.runtime import run_host_code
from pipegen.emulator.ptx.constants import constant
from pipegen.emulator.ptx.parsing import parse
from pipegen.emulator.tensor_map import decode_tensor_map

ROOT = Path(__file__).parent.parent
PALLAS = ROOT / "generated" / "pallas"

needs_pallas = pytest.mark.skipif(not dsl("pallas").usable, reason=dsl("pallas").reason)

# One module of each template, by architecture.
RIGHT = {
    "sm_90a": (
        "pallas_gemm_sm90_ws_c2x1",
        "pallas_gemm_sm90_emit_pipeline",
        "pallas_gemm_sm90_pallas_call",
        "pallas_gemm_sm90_pingpong_128x192_b_n_major",
        "pallas_mixed_gemm_sm90",
        "pallas_stream_sm90_ws",
        "pallas_stream_sm90_emit_pipeline",
        "pallas_reduce_sm90_ws",
        "pallas_reduce_sm90_emit_pipeline",
        "pallas_custom_sm90_convert",
        "pallas_custom_sm90_convert_multiply",
    ),
    "sm_100a": (
        "pallas_gemm_sm100",
        "pallas_gemm_sm100_clc",
        "pallas_gemm_sm100_128x80_k32_two_stages",  # lanes that are not elected wait by themselves
        "pallas_gemm_sm100_pair",
        "pallas_gemm_sm100_pair_clc",
        "pallas_custom_sm100_convert_multiply",
        "pallas_custom_sm100_multiply",
        "pallas_custom_sm100_multiply_twice",
    ),
}
# What is broken -> (module, [text, what takes its place, ...], sizes or the module's own, the code
# of the finding, words of it).
BROKEN = {
    "sm_90a": {
        "the store is not published": (
            "pallas_gemm_sm90_ws",
            ["            plgpu.commit_smem()\n", ""],
            {},
            "PG321",
            "with no fence.proxy.async between",
        ),
        "a stage is released while wgmma reads it": (
            "pallas_gemm_sm90_ws_in_flight",
            ["DELAY_RELEASE = 1 ", "DELAY_RELEASE = 0 "],
            {},
            "PG320",
            "loads a box into SMEM",
        ),
        "a stage has one full barrier for both warpgroups": (
            "pallas_gemm_sm90_pingpong",
            [
                "loaded = full.at[reader * MAINLOOP_STAGES + stage]",
                "loaded = full.at[stage]",
                "plgpu.barrier_wait(full.at[warpgroup * MAINLOOP_STAGES + stage])",
                "plgpu.barrier_wait(full.at[stage])",
            ],
            {},
            "PG310",
            "no warp can go on",
        ),
        "a warpgroup gives itself the turn": (
            "pallas_gemm_sm90_pingpong",
            ["turn.at[1 - warpgroup]", "turn.at[warpgroup]"],
            {},
            "PG310",
            "no warp can go on",
        ),
        "a stage in ping-pong is released a step early": (
            "pallas_gemm_sm90_pingpong",
            [
                "stage_of(tile * k_tiles + k - 1)",
                "stage_of(tile * k_tiles + k)",
                "@pl.when(k > 0)",
                "@pl.when(k + 1 < k_tiles)",
            ],
            {},
            "PG320",
            "loads a box into SMEM",
        ),
    },
    "sm_100a": {
        "one arrival too many": (
            "pallas_gemm_sm100_pair",
            ["Barrier(num_arrivals=2, ", "Barrier(num_arrivals=3, "],
            {},
            "PG310",
            "with 256 of 384 arrivals",
        ),
        "nobody waits for the accumulator": (
            "pallas_gemm_sm100_pair",
            ["        plgpu.barrier_wait(acc_full.at[buffer])\n", ""],
            {},
            "PG320",
            "accumulates into TMEM column 0",
        ),
        "two arrivals of one copy": (
            "pallas_custom_sm100_convert_multiply",
            ["X_FULL, X_EMPTY = 1, 1 ", "X_FULL, X_EMPTY = 2, 1 "],
            {},
            "PG310",
            "with 128 of 256 arrivals",
        ),
        "tcgen05 reads a stage that threads still fill": (
            "pallas_custom_sm100_convert_multiply",
            [
                "wide_stage = wait(wide_full, k_step, WIDE_STAGES)",
                "wide_stage = lax.rem(k_step, 4)",
            ],
            {},
            "PG320",
            "SMEM",
        ),
        "what threads fill is not published": (
            "pallas_custom_sm100_convert_multiply",
            [
                "                plgpu.commit_smem()\n                plgpu.barrier_arrive(wide",
                "                plgpu.barrier_arrive(wide",
            ],
            {},
            "PG321",
            "with no fence.proxy.async between",
        ),
        "accumulators go back before they have been read": (
            "pallas_custom_sm100_multiply",
            ["            plgpu.wait_load_tmem()\n", ""],
            {},
            "PG324",
            "accumulates into TMEM",
        ),
        # Not our text: in JAX's dynamic_scheduling_loop one warp of a warpgroup says that all have
        # read the answer. Three answers in two buffers show it; jax 0.10.2 and 0.12.0.1 have it.
        "the loop of jax over tiles of a cluster": (
            "pallas_gemm_sm100_pair_clc",
            [],
            {"m": 504, "n": 600, "k": 120},
            "PG320",
            "writes a response into SMEM",
        ),
    },
}


@pytest.fixture(scope="module")
def emulated():
    """What the emulator says of all modules of an architecture, from one process each."""
    return cache(_emulated)


def _emulated(arch: str) -> dict[str, dict[str, object]]:
    wanted: dict[str, object] = {name: (str(PALLAS / f"{name}.py"), [], {}) for name in RIGHT[arch]}
    for what, (name, change, sizes, _, _) in BROKEN[arch].items():
        changes = list(zip(change[::2], change[1::2], strict=True))
        wanted[what] = (str(PALLAS / f"{name}.py"), changes, sizes)
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "emulated_pallas.py", arch, json.dumps(wanted)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    if done.returncode:
        return {name: {"refused": done.stderr[-3000:]} for name in wanted}
    return json.loads(done.stdout.splitlines()[-1])


# ---- Modules -------------------------------------------------------------------------------------


@needs_pallas
@pytest.mark.parametrize(
    ("arch", "name"), [(arch, name) for arch, names in RIGHT.items() for name in names]
)
def test_a_module_of_each_template_is_right(emulated, arch, name):
    """Its own check passes on the emulated GPU, and nothing is found."""
    trial = emulated(arch)[name]
    assert trial.get("refused") is None, trial
    assert trial["passed"], trial["said"]
    assert not trial["faults"], trial["faults"]
    assert trial["launches"] == 1
    assert trial["said"].startswith("PASS ")


def test_every_template_is_tried():
    """Each template of Pallas has a module among those that are emulated."""
    texts = [
        (PALLAS / f"{name}.py").read_text("utf-8") for names in RIGHT.values() for name in names
    ]
    made = {re.search(r"^# template: pallas/(\S+)", text, re.MULTILINE)[1] for text in texts}
    assert made == {path.name for path in (ROOT / "templates" / "pallas").glob("*.j2")}


@needs_pallas
@pytest.mark.parametrize(
    ("arch", "what"), [(arch, what) for arch, kinds in BROKEN.items() for what in kinds]
)
def test_a_planted_fault_is_named(emulated, arch, what):
    """The code of the finding, its words, and the line of the module's source."""
    *_, code, words = BROKEN[arch][what]
    trial = emulated(arch)[what]
    assert trial.get("refused") is None, trial
    found = [fault for fault in trial["faults"] if words in fault["message"]]
    assert found, trial["faults"]
    assert {fault["code"] for fault in found} == {code}
    assert any("source line" in place for fault in found for place in fault["places"])


# A file without a pipegen header, for --entry and for the context manager.
USER = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def twice(x_gmem, out_gmem):
    out_gmem[...] = x_gmem[...] * 2


@jax.jit
def double(x):
    kernel = plgpu.kernel(twice, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
    return kernel(x + 1) + 1


def right():
    assert jax.devices()[0].compute_capability == "9.0"
    x = jnp.arange(128, dtype=jnp.float32)
    return bool((double(x) == 2 * x + 3).all())


def wrong():
    return not right()


if __name__ == "__main__":
    import pipegen

    for attempt in range(2):
        with pipegen.emulator(arch="sm_90a", dsl="pallas") as emulated:
            assert right()
        assert len(emulated.launches) == len(emulated.results) == 1
        assert [each.name for each in emulated.launches[0].buffers] == ["input 0", "output 0"]
    try:
        double(jnp.ones(128, jnp.float32))
    except ValueError as error:  # jax's own, on a CPU
        print(error)
"""


@needs_pallas
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["-m", "pipegen", "emulate", "FILE", "--entry", "right", "--arch", "sm_90a"], 0, "PASS"),
        (["-m", "pipegen", "emulate", "FILE", "--entry", "wrong", "--arch", "sm_90a"], 1, "PG350"),
        (["FILE"], 0, "Only interpret mode is supported"),
    ],
    ids=["right", "wrong", "context manager"],
)
def test_a_users_own_kernel(tmp_path, arguments, code, said):
    """`--entry` of a file without a header, and the emulator in one's own test."""
    file = tmp_path / "mine.py"
    file.write_text(USER, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, *(str(file) if each == "FILE" else each for each in arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout


# ---- Host code -----------------------------------------------------------------------------------

HOST = """
declare void @mosaic_gpu_init_tma_desc(ptr, ptr, i64, i64, ptr, ptr, i64, ptr)

define void @kernel(ptr %0, ptr %1, ptr %2) {
  %4 = load ptr, ptr %2, align 8
  %5 = insertvalue { ptr, i64, [2 x i64] } undef, ptr %4, 0
  %6 = insertvalue { ptr, i64, [2 x i64] } %5, i64 64, 2, 1
  %7 = extractvalue { ptr, i64, [2 x i64] } %6, 2, 1
  %8 = alloca [128 x i8], i64 1, align 64
  %9 = alloca i64, i64 2, align 8
  store i64 48, ptr %9, align 4
  %10 = getelementptr inbounds nuw i64, ptr %9, i32 1
  store i64 %7, ptr %10, align 4
  %11 = alloca i64, i64 2, align 8
  store i64 64, ptr %11, align 4
  %12 = getelementptr i64, ptr %11, i32 1
  store i64 1, ptr %12, align 4
  %13 = alloca i64, i64 2, align 8
  store i64 16, ptr %13, align 4
  %14 = getelementptr i64, ptr %13, i32 1
  store i64 KIND, ptr %14, align 4
  call void @mosaic_gpu_init_tma_desc(ptr %8, ptr %4, i64 7, i64 2, TABLES)
  %15 = load [128 x i8], ptr %8, align 1
  %16 = alloca { [128 x i8] }, align 8
  %17 = alloca [1 x i64], align 8
  %18 = getelementptr { [128 x i8] }, ptr %16, i32 0, i32 0
  store [128 x i8] %15, ptr %18, align 1
  store ptr %18, ptr %17, align 8
  LAUNCH
  ret void
}
"""
TABLES = "ptr %9, ptr %11, i64 128, ptr %13"  # sizes, strides, swizzle, box
HOST = HOST.replace("TABLES", TABLES)
LAUNCH = (
    "call void @mosaic_gpu_launch_kernel(ptr %0, i32 6, i32 1, i32 1, i32 2, i32 1, i32 1, "
    "i32 128, i32 1, i32 1, i32 4096, ptr %1, ptr %17)"
)
SPEC = (
    "call void @mosaic_gpu_build_kernel_spec(ptr %0, i32 6, i32 1, i32 1, i32 2, i32 1, i32 1, i32 "
    "128, i32 1, i32 1, i32 4096, i32 0, i32 1, ptr %17, ptr %17)"
)
PARAMETERS = (Parameter("map", 128, 64),)


@pytest.mark.parametrize("launch", [LAUNCH, SPEC], ids=["jax 0.10", "jax 0.12"])
def test_host_code_launches(launch):
    """Grid, cluster, block, SMEM, and a tensor map of the operand, in both ways of launching."""
    text = HOST.replace("KIND", "64").replace("LAUNCH", launch)
    if launch is SPEC:  # it has no argument for a stream
        text = text.replace("(ptr %0, ptr %1, ptr %2) {", "(ptr %0, ptr %2) {")
    made = run_host_code(text, [0x1000], PARAMETERS)
    assert (made.grid, made.cluster, made.block) == ((6, 1, 1), (2, 1, 1), (128, 1, 1))
    assert made.smem_bytes == 4096
    (raw,) = made.params
    found = decode_tensor_map(raw)
    assert (found.address, found.dtype, found.swizzle) == (0x1000, "bf16", 128)
    assert (found.sizes, found.strides, found.box) == ((64, 48), (128,), (64, 16))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("LAUNCH", "", "has 0 functions that launch a kernel"),
        ("LAUNCH", f"{LAUNCH}\n  {LAUNCH}", "launches 2 kernels"),
        ("LAUNCH", f"br label %19\n  {LAUNCH}", "the instruction 'br'"),
        ("LAUNCH", f"call void @puts(ptr %0)\n  {LAUNCH}", "a call of @puts"),
        ("i64 7, i64 2", "i64 11, i64 2", "element type 11, rank 2 and swizzle 128"),
        ("store i64 64, ptr %11", "store i64 undef, ptr %11", "a store of no known value"),
    ],
)
def test_host_code_that_is_not_known_is_an_error(old, new, said):
    """Nothing is guessed: the line, or what is odd about it."""
    assert old in HOST
    text = HOST.replace(old, new).replace("KIND", "64").replace("LAUNCH", LAUNCH)
    with pytest.raises(HostCodeError, match=said):
        run_host_code(text, [0x1000], PARAMETERS)


def test_a_box_that_the_driver_refuses_is_an_error():
    """As cuTensorMapEncodeTiled: 1 to 256 elements in each dimension."""
    text = HOST.replace("KIND", "320").replace("LAUNCH", LAUNCH)
    with pytest.raises(ValueError, match="each must be 1 to 256"):
        run_host_code(text, [0x1000], PARAMETERS)


# ---- PTX -----------------------------------------------------------------------------------------

BRANCHES = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 p)
{
    .reg .b32 %r<2>;
    mov.u32 %r1, 2;
$targets: .branchtargets $zero, $one, $two;
    brx.idx %r1, $targets;
$zero:
$one:
    trap;
$two:
    ret;
}
    .section    .debug_str
    {
$name:
.b8 103
    }
"""


@pytest.mark.parametrize(
    ("text", "value"),
    [("(0xf0 & 0xcc) ^ 0xaa", 0x6A), ("~0", -1), ("(1 << 4) | 3", 19), ("(f)", None), ("(1", None)],
)
def test_a_constant_expression_has_a_value(text, value):
    """C's operators on integers; nothing else."""
    assert constant(text) == value


def test_halves_are_added_without_a_carry():
    """`add.s16x2`: the lower sum does not reach the upper one."""
    assert add_halves(0x0001_FFFF, 0x0001_0001) == 0x0002_0000
    both = np.array([0x8000_8000, 0x0001_0002], np.uint32)
    assert list(add_halves(both, both)) == [0, 0x0002_0004]


def test_a_branch_by_index_is_read():
    """`brx.idx` becomes a branch for each target but the last; a debug section is passed over."""
    (kernel,) = parse(BRANCHES).kernels
    names = [instruction.name for instruction in kernel.instructions]
    assert names == ["mov.u32", *["setp.eq.u32", "bra"] * 2, "bra", "trap", "ret"]
