# SPDX-License-Identifier: Apache-2.0
"""The Hopper GEMM that loads by cp.async: who copies what, to which place, what is counted."""

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_planning import check_formulas

import pipegen as api
from pipegen import arithmetic
from pipegen.compiling.installed import dsl as find_dsl
from pipegen.description_file import description_from_data
from pipegen.errors import InputError
from pipegen.hardware import HARDWARE

ROOT = Path(__file__).parent.parent
EMITTED = sorted((ROOT / "generated" / "cute").glob("gemm_sm90_cp_async*.py"))
EMITTED += sorted((ROOT / "generated" / "cute").glob("gemm_sm90_gather*.py"))
ALIGNMENTS = (16, 8, 4)


def planned(**sections):
    kernel = {"op": "gemm", "backend": "cute", "arch": "sm_90a"}
    return api.plan(description_from_data({"pipegen": 1, "kernel": kernel, **sections}))


def test_the_default_gather():
    made = planned(layout={"gather": True})
    expected = {
        "stage_bytes": 49152,  # (128 + 256) * 64 * 2
        "mainloop_full_arrive_count": 128,  # every thread of the producer warpgroup
        "mainloop_empty_arrive_count": 8,  # one lane of each of 8 consumer warps
        "copy_elements": 8,  # 16 B of bf16
        "threads_per_row": 8,  # a row of a stage is 64 * 2 = 128 B = 8 copies
        "rows_per_pass": 16,  # 128 threads / 8
        "a_passes": 8,  # 128 rows / 16
        "b_passes": 16,  # 256 rows / 16
        "copies_per_stage": 24,  # 49152 B / 16 B / 128 threads
        "producer_registers": 88,  # 24 addresses of 2 registers, and 40
        "consumer_registers": 208,  # (3 * 168 - 88) / 2
        "mainloop_stages": 4,  # (232448 - 1024 - 2 * 8192) / 49152 = 4.4
        "smem_bytes": 230400,  # as with TMA
    }
    assert {name: made.number(name).value for name in expected} == expected
    assert check_formulas(made) >= 18
    mainloop = made.pipeline("mainloop")
    assert (mainloop.construct, mainloop.tx_count) == ("PipelineCpAsync", None)
    assert made.description.cluster.shape == (1, 1)
    assert made.template == "cute/gemm_sm90_cp_async.py.j2"
    assert made.name == "sm90_gemm_cp_async_wgmma_s4_c1x1"


@pytest.mark.parametrize(
    ("tile", "alignment", "expected", "copies", "registers"),
    [
        # (elements, threads a row, rows a pass, A rows, B rows, copies a row), copies, registers.
        ((128, 256), 16, (8, 8, 16, 8, 16, 1), 24, 88),
        # 8 B: 16 copies a row, so 8 rows a pass, 16 + 32 of them; 2 * 48 + 40 = 136.
        ((128, 256), 8, (4, 16, 8, 16, 32, 1), 48, 136),
        # 4 B: 32 copies a row by 16 threads, two each, so that a pass still has 8 rows.
        ((128, 256), 4, (2, 16, 8, 16, 32, 2), 96, 136),
        # 64 x 80: 4 + 5 rows; 2 * 9 + 40 = 58, and setmaxnreg takes 64.
        ((64, 80), 16, (8, 8, 16, 4, 5, 1), 9, 64),
    ],
)
def test_row_copies(tile, alignment, expected, copies, registers):
    found = arithmetic.row_copies(tile, 16, alignment)
    assert tuple(vars(found).values()) == expected
    assert (found.copies, found.registers) == (copies, registers)


def places(tile_rows: int, passes: int, alignment: int) -> dict[int, tuple[int, int]]:
    """Where the emitted producer puts each element of a stage: place -> (row, column).

    The arithmetic of the template's producer and of `copy_tile`, for all 128 threads.
    """
    found = arithmetic.row_copies((tile_rows, tile_rows), 16, alignment)
    written = {}
    for thread in range(128):
        row = thread // found.threads_per_row
        column = thread % found.threads_per_row * found.elements
        swizzled = row * 64 + (column ^ row % 8 * 8)
        for half in range(found.copies_per_row):
            for i in range(passes):
                for element in range(found.elements):
                    place = (swizzled ^ half * 32) + i * found.rows_per_pass * 64 + element
                    assert place not in written, "two copies of one place"
                    gmem = (row + i * found.rows_per_pass, column + half * 32 + element)
                    written[place] = gmem
    return written


@pytest.mark.parametrize("alignment", ALIGNMENTS)
@pytest.mark.parametrize("rows", [64, 80, 128, 256])
def test_the_producer_fills_the_stage_as_wgmma_reads_it(rows, alignment):
    """PTX ISA, "wgmma", 128-byte swizzle: address bits 4 to 6 are XORed with bits 7 to 9."""
    passes = rows // arithmetic.row_copies((rows, rows), 16, alignment).rows_per_pass
    written = places(rows, passes, alignment)
    wanted = {}
    for row in range(rows):
        for column in range(64):
            address = row * 128 + column * 2
            wanted[(address ^ (address >> 7 & 7) << 4) // 2] = (row, column)
    assert written == wanted


@given(
    m=st.sampled_from([64, 128, 256]),
    n=st.integers(1, 16).map(lambda i: 16 * i),
    alignment=st.sampled_from(ALIGNMENTS),
    gather=st.booleans(),
    warpgroups=st.sampled_from([1, 2]),
)
def test_every_plan_copies_each_byte_once_and_fits(m, n, alignment, gather, warpgroups):
    try:
        made = planned(
            tile={"m": m, "n": n},
            layout={"alignment": alignment, "gather": gather},
            role={"consumer": {"warpgroups": warpgroups}},
            pipeline={"mainloop": {"producer": "cp_async"}},
        )
    except InputError:
        return
    value = {number.name: number.value for number in made.numbers}
    assert value["copies_per_stage"] * 128 * alignment == value["stage_bytes"] == (m + n) * 128
    assert value["rows_per_pass"] % 8 == 0  # the swizzle of all rows of a thread is one
    assert value["a_passes"] * value["rows_per_pass"] == m
    assert value["b_passes"] * value["rows_per_pass"] == n
    assert value["mainloop_empty_arrive_count"] == 4 * warpgroups
    together = value["producer_registers"] + warpgroups * value["consumer_registers"]
    assert together <= (1 + warpgroups) * value["launch_registers"]
    assert value["smem_bytes"] <= HARDWARE["sm_90a"].smem_per_block
    check_formulas(made)


@pytest.mark.parametrize(
    ("sections", "template"),
    [
        ({}, "cute/gemm_sm90.py.j2"),
        ({"layout": {"gather": True}}, "cute/gemm_sm90_cp_async.py.j2"),
        ({"layout": {"alignment": 4}}, "cute/gemm_sm90_cp_async.py.j2"),
        ({"pipeline": {"mainloop": {"producer": "cp_async"}}}, "cute/gemm_sm90_cp_async.py.j2"),
    ],
)
def test_what_is_asked_for_chooses_the_template(sections, template):
    assert planned(**sections).template == template


def test_given_registers_are_kept_and_the_consumers_get_the_rest():
    made = planned(layout={"gather": True}, role={"producer": {"registers": 104}})
    assert made.number("producer_registers").formula == "given"
    assert made.number("consumer_registers").value == 200  # (3 * 168 - 104) / 2


def protocol_faults(text: str) -> list[str]:
    """What an emitted file does against the protocol of `PipelineCpAsync`."""
    faults = []
    functions = {n.name: n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)}
    lines = ast.unparse(functions["multiply"]).splitlines()
    for i, line in enumerate(lines):
        waits = re.search(r"\.(wait_and_advance|consumer_wait)\(", line)
        if waits and "fence_proxy('async.shared', space='cta')" not in lines[i + 1]:
            faults.append("wgmma may read before the copies are visible to its proxy")
        if re.search(r"\.(release|consumer_release)\(", line):
            # EMPTY_ARRIVES counts warps, and a warp's wgmmas must have read.
            if "elect_one" not in lines[i - 1]:
                faults.append("more arrives than counted")
            if "wait_group" not in lines[i - 2]:
                faults.append("released while wgmma reads")
    loops = [n for n in ast.walk(functions["gemm_kernel"]) if isinstance(n, ast.For)]
    [k_loop] = [n for n in loops if "k_tiles" in ast.unparse(n.iter)]
    commits = re.findall(r"^    \w+\.(?:producer_)?commit\(", ast.unparse(k_loop), re.MULTILINE)
    if len(commits) != 1:
        faults.append("not every producer thread commits every stage once")
    return faults


@pytest.mark.parametrize("path", EMITTED, ids=lambda path: path.stem)
def test_an_emitted_file_keeps_the_protocol(path):
    text = path.read_text(encoding="utf-8")
    assert protocol_faults(text) == []
    assert ("index is int32" in text) == ("gather" in path.stem)


FENCE = '        cute.arch.fence_proxy("async.shared", space="cta")\n        warpgroup.fence()'
ELECTED = "        with cute.arch.elect_one():\n            stage.release()\n        stage = newest"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (FENCE, "        warpgroup.fence()", "visible"),
        (ELECTED, "        stage.release()\n        stage = newest", "more arrives"),
        ("        warpgroup.wait_group(1)\n", "", "while wgmma reads"),
        (
            "                stage.commit()",
            "                if column < k_size:\n                    stage.commit()",
            "not every producer thread",
        ),
        ("                stage.commit()\n", "", "not every producer thread"),
    ],
)
def test_a_broken_protocol_is_found(old, new, fault):
    text = (ROOT / "generated" / "cute" / "gemm_sm90_gather.py").read_text(encoding="utf-8")
    assert text.count(old) == 1
    assert any(fault in each for each in protocol_faults(text.replace(old, new)))


@pytest.fixture(scope="module")
def emitted():
    """The functions of an emitted module, which needs the DSL to be imported."""
    found = find_dsl("cute")
    if found.reason:
        pytest.skip(found.reason)
    return lambda name: runpy.run_path(str(ROOT / "generated" / "cute" / f"{name}.py"))


@pytest.mark.parametrize(
    ("align", "strides", "right"),
    [
        (8, (640, 64, 1), True),
        (8, (0, 64, 1), True),  # one matrix for the whole batch
        (8, (640, 0, 1), False),  # but not one row for all rows
        (8, (640, 60, 1), False),  # 120 B a row: no multiple of 16
        (4, (640, 60, 1), True),  # but of 8
        (2, (640, 62, 1), True),
        (2, (640, 61, 1), False),
        (8, (640, 1, 10), False),
        (8, (640, -64, 1), False),
        (8, (-640, 64, 1), False),
    ],
)
def test_the_host_side_knows_which_strides_work(emitted, align, strides, right):
    matrix = emitted("gemm_sm90_gather")["matrix"]
    arguments = ("a", "torch.bfloat16", (3, 10, 60), strides, "bfloat16", align)
    if right:
        assert matrix(*arguments) == ((3, 10, 60), strides[1], strides[0])
    else:
        with pytest.raises(ValueError, match=r"a\.stride="):
            matrix(*arguments)


class Index:
    """What the host side asks of a torch tensor."""

    def __init__(self, dtype, shape, strides):
        self.dtype, self.shape, self.strides = dtype, shape, strides

    def data_ptr(self):
        return 4096

    def get_device(self):
        return 0

    def stride(self):
        return self.strides


def test_the_host_side_checks_the_index(emitted):
    row_index = emitted("gemm_sm90_gather")["row_index"]
    assert row_index(Index("torch.int32", (7,), (1,))) == (4096, 0, (1, 7), 0)
    assert row_index(Index("torch.int32", (3, 7), (8, 1))) == (4096, 0, (3, 7), 8)
    with pytest.raises(TypeError, match=r"index\.dtype=torch\.int64: must be int32"):
        row_index(Index("torch.int64", (7,), (1,)))
    with pytest.raises(ValueError, match=r"index\.shape=\(2, 3, 7\)"):
        row_index(Index("torch.int32", (2, 3, 7), (21, 7, 1)))
    with pytest.raises(ValueError, match=r"index\.stride=\(2,\)"):
        row_index(Index("torch.int32", (7,), (2,)))


@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_the_compiler_emits_copies_that_fill_with_zeros(alignment, tmp_path):
    """PTX: one cp.async of the size and a byte count for each row, and the arrive that follows."""
    found = find_dsl("cute")
    if found.reason:
        pytest.skip(found.reason)
    name = {16: "gemm_sm90_gather", 8: "gemm_sm90_cp_async_align8", 4: "gemm_sm90_cp_async_align4"}
    environment = {
        **os.environ,
        "CUTE_DSL_ARCH": "sm_90a",
        "CUTE_DSL_KEEP": "ptx",
        "CUTE_DSL_DUMP_DIR": str(tmp_path),
    }
    module = ROOT / "generated" / "cute" / f"{name[alignment]}.py"
    done = subprocess.run(
        [sys.executable, str(module), "--compile-only"], env=environment, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    [ptx] = tmp_path.glob("*.ptx")
    text = ptx.read_text()
    mode = "cg" if alignment == 16 else "ca"
    copies = re.findall(
        rf"cp\.async\.{mode}\.shared\.global \[[^]]*\], \[[^]]*\], {alignment}, %r", text
    )
    # 24 of 16 B, or 48 smaller ones: of 4 B each is in a loop over the halves of the row.
    assert len(copies) == (24 if alignment == 16 else 48)
    assert text.count("cp.async.mbarrier.arrive.noinc") == 1
    assert text.count("fence.proxy.async.shared::cta") >= 2
