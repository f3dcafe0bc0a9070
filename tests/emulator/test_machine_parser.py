# SPDX-License-Identifier: Apache-2.0
"""PTX is read as it was written, and what is not known is an error with its line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_kernels import kernel, launch_of

from pipegen.emulator.findings.naming import Names
from pipegen.emulator.machine import run
from pipegen.emulator.ptx import Instruction, PtxError, flow_of, parse, write

registers = st.builds(lambda kind, n: f"%{kind}{n}", st.sampled_from("rdh"), st.integers(0, 19))
integers = st.integers(-(2**31), 2**32 - 1).map(str)
floats = st.integers(0, 2**32 - 1).map(lambda bits: f"0f{bits:08X}")
simple = registers | integers | floats | st.sampled_from(["%tid.x", "smem", "_", "WARP_SZ"])
vectors = st.lists(registers, min_size=1, max_size=8).map(lambda items: f"{{{', '.join(items)}}}")
offsets = st.integers(-4096, 4096).filter(bool).map(lambda n: f"{n:+d}") | st.just("")
addresses = st.builds(lambda base, offset: f"[{base}{offset}]", registers, offsets)
boxes = st.builds(lambda base, at: f"[{base}, {at}]", registers, vectors)
pairs = st.builds(lambda a: f"{a}|%p3", registers)
names = st.lists(
    st.sampled_from(["add", "s32", "sync", "shared::cta", "mbarrier::complete_tx::bytes", "v4"]),
    min_size=1,
    max_size=5,
).map(".".join)
operands = st.lists(simple | vectors | addresses | boxes | pairs, max_size=6)
guards = st.sampled_from(["", "@%p1 ", "@!%p2 "])


def only(text: str) -> Instruction:
    (entry,) = parse(kernel(text, 0)).kernels
    return next(entry.instructions)


@given(guards, names, operands)
def test_an_instruction_is_read_as_it_was_written(guard, name, given_operands):
    text = f"{guard}{name} {', '.join(given_operands)}"
    first = only(text + ";")
    assert first.name == name
    assert len(first.operands) == len(given_operands)
    again = only(write(first) + ";")
    assert (again.parts, again.operands, again.guard) == (first.parts, first.operands, first.guard)
    assert again.negated == first.negated == guard.startswith("@!")


def test_lines_and_source_locations():
    text = kernel("    .loc 1 42 7\n    mov.b32 %r1, 5;\n    add.s32 %r2,\n      %r1, 1;\n", 0)
    first, second, _ = parse(text).kernels[0].instructions
    assert text.splitlines()[first.line - 1].strip() == "mov.b32 %r1, 5;"
    assert second.line == first.line + 1
    assert first.location == second.location
    assert (first.location.line, first.location.column) == (42, 7)


def test_names_of_inner_scopes_are_their_own():
    loop = "{ .reg .pred P1; AGAIN: setp.eq.b32 P1, %r1, 0; @P1 bra DONE; bra AGAIN; DONE: }"
    entry = parse(kernel(loop + loop, 0)).kernels[0]
    predicates = {i.operands[0].name for i in entry.instructions if i.opcode == "setp"}
    assert len(predicates) == 2
    flow = flow_of(entry)
    first, second = (block for block in flow.blocks if len(block.next) == 2)
    assert flow.blocks[first.next[1]].next == (first.index,)
    assert flow.blocks[second.next[1]].next == (second.index,)


def test_branches_meet_at_the_nearest_common_block():
    body = """
    @%p1 bra LEFT;
    mov.b32 %r1, 1;
    bra MEET;
LEFT:
    mov.b32 %r1, 2;
MEET:
    add.s32 %r2, %r1, 0;
"""
    flow = flow_of(parse(kernel(body, 0)).kernels[0])
    assert flow.blocks[0].join == 3
    assert flow.blocks[0].next == (2, 1)
    assert flow.blocks[3].live_in == {"%r1"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("frobnicate.b32 %r1, %r2;", "an instruction that the emulator does not know"),
        ("wmma.mma.sync %r1, %r2;", "an instruction that the emulator does not know"),
        ("cp.async.bulk.tensor.3d.im2col [%r1], [%d1, {%r1}], [%r2];", "mode of tensor copies"),
        ("mbarrier.try_wait.shared.b64 %p1, [%r1], %d1;", "wait by state"),
        ("ld.shared.frob.b32 %r1, [%r2];", ".frob"),
        ("mov.u32 %r1, %envreg3;", "%envreg3"),
        ("bra NOWHERE;", "no label"),
        ("add.s32 %r1, %r2 %r3;", "operands that the reader does not know"),
    ],
)
def test_what_is_not_known_is_named_with_its_line_and_nothing_runs(text, message):
    launch = launch_of("\n\n" + text)
    with pytest.raises(PtxError) as error:
        run(launch)
    assert message in str(error.value)
    wanted = next(n for n, line in enumerate(launch.ptx.splitlines(), 1) if line == text)
    assert error.value.line == wanted


def test_roles_and_barriers_have_the_names_of_the_source(tmp_path):
    source = tmp_path / "kernel.py"
    source.write_text(
        "def kernel():\n"
        "    ring = pipeline.PipelineTmaAsync.create(\n"
        "    alone = barrier()\n"
        "    if warp == 0:\n"
        "        # ---- Producer ----\n"
        "        load()\n"
        "    leave()\n"
    )
    lines = {"init": 2, "other": 3, "load": 6, "leave": 7}
    inits = "mov.b32 %r1, 4; " + "mbarrier.init.shared.b64 [%r2], %r1; " * 2
    body = (
        f".loc 1 {lines['init']} 0\n{inits} setp.eq.b32 %p1, %r1, 0; {inits}\n"
        f".loc 1 {lines['other']} 0\n elect.sync %r3|%p2, -1; mbarrier.init.shared.b64 [%r2], 1;\n"
        f".loc 1 {lines['load']} 0\n bar.sync 0;\n.loc 1 {lines['leave']} 0\n bar.sync 1;\n"
    )
    instructions = list(parse(kernel(body, 0)).kernels[0].instructions)
    names = Names(instructions, {1: str(source)})
    inits_at = [n for n, i in enumerate(instructions) if i.opcode == "mbarrier"]
    assert [names.barrier(at) for at in inits_at] == [
        "ring full, stage 0 of 2",
        "ring full, stage 1 of 2",
        "ring empty, stage 0 of 2",
        "ring empty, stage 1 of 2",
        "alone",
    ]
    load, leave = (n for n, i in enumerate(instructions) if i.opcode == "bar")
    assert names.role([(load, 1), (leave, 5)]) == "Producer"
    assert names.role([(leave, 5)]) == ""
