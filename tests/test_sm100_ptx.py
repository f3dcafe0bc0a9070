# SPDX-License-Identifier: Apache-2.0
"""What the compiled PTX of pairs, cluster launch control and the mainloop's options must show."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pipegen.compiling.installed import dsl as find_dsl

ROOT = Path(__file__).parent.parent
LEADER = 0xFEFFFFF8 - (1 << 32)  # clears the pair's bit of a shared::cluster address
LOAD = r"cp\.async\.bulk\.tensor\.3d\.shared::c\w+\.global\.tile\S*"


@cache
def ptx(name: str) -> str:
    if reason := find_dsl("cute").reason:
        pytest.skip(reason)
    with TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, ROOT / "generated" / "cute" / f"{name}.py", "--compile-only"],
            env={
                **os.environ,
                "CUTE_DSL_ARCH": "sm_100a",
                "CUTE_DSL_KEEP": "ptx",
                "CUTE_DSL_DUMP_DIR": folder,
            },
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (path,) = Path(folder).glob("*.ptx")
        return path.read_text()


def count(text: str, pattern: str) -> int:
    return len(re.findall(pattern, text))


def register_values(text: str, register: str) -> list[str]:
    """What is assigned to a register: the right sides."""
    return re.findall(rf"\t([\w.]+ \t{re.escape(register)}, [^;]*);", text)


@pytest.mark.parametrize(
    ("name", "kind", "stages"),
    [
        ("gemm_sm100_pair_c4x2", "f16", 6),
        ("gemm_sm100_clc_pair_c2x1", "f16", 6),
        ("gemm_sm100_pair_c2x1_e4m3", "f8f6f4", 6),
    ],
)
def test_a_pair(name, kind, stages):
    text = ptx(name)
    assert count(text, rf"tcgen05\.mma\.cta_group::2\.kind::{kind}\b") == 4
    assert "cta_group::1" not in text
    for once in ("alloc", "relinquish_alloc_permit", "dealloc"):
        assert count(text, rf"tcgen05\.{once}\.cta_group::2") == 1
    # The mainloop's release and the accumulator's commit go to more than one CTA.
    commit = r"tcgen05\.commit\.cta_group::2\S*multicast::cluster"
    assert count(text, commit) == count(text, r"tcgen05\.commit") == 2
    # Both loads belong to the pair, and complete the leader's barrier.
    loads = re.findall(rf"{LOAD} \[[^\]]*\], \[[^\]]*\], \[(%r\d+)\]", text)
    assert len(loads) == 2 == count(text, rf"{LOAD}\.cta_group::2")
    for barrier in loads:
        (value,) = register_values(text, barrier)
        assert value.startswith("and.b32")
        assert value.endswith(f", {LEADER}")


def test_multicast_of_a_cluster_of_pairs():
    text = ptx("gemm_sm100_pair_c4x2")
    assert count(text, rf"{LOAD}\.multicast::cluster\S*\.cta_group::2") == 2
    assert count(ptx("gemm_sm100_clc_pair_c2x1"), rf"{LOAD}\.multicast") == 0


def test_tmem_of_a_pair_is_freed_together():
    """The free barrier is set up before the first meeting; the permit is given up at once. A CTA
    arrives at the other one, waits for it, frees, and only then meets the cluster for the last
    time."""
    text = ptx("gemm_sm100_pair_c4x2")
    first = text.index("barrier.cluster.arrive.relaxed;")
    assert count(text[:first], r"mbarrier\.init") == 2 * 6 + 2 * 2 + 1
    assert "mbarrier.init" not in text[first:]
    assert "fence.mbarrier_init.release.cluster;" in text[:first]
    alloc, permit = text.index("tcgen05.alloc"), text.index("tcgen05.relinquish_alloc_permit")
    assert alloc < permit < text.index("tcgen05.ld")
    assert "mbarrier" not in text[alloc:permit]
    order = [
        r"mapa\.shared::cluster",  # the accumulator's last release
        r"mbarrier\.arrive\.shared::cluster",
        r"mapa\.shared::cluster",
        r"mbarrier\.arrive\.shared::cluster",
        r"mbarrier\.try_wait\.parity\S* P1, \[%r\d+\], 0,",
        r"tcgen05\.dealloc",
        r"barrier\.cluster\.arrive;",
        r"barrier\.cluster\.wait;",
    ]
    rest = text[text.rindex("tcgen05.wait::ld") :]
    for step in order:
        found = re.search(step, rest)
        assert found, step
        rest = rest[found.end() :]


def test_the_epilogue_of_a_pair_arrives_at_the_leader():
    """Two arrives at another CTA: the accumulator's release, and freeing TMEM."""
    text = ptx("gemm_sm100_pair_c4x2")
    assert count(text, r"mbarrier\.arrive\.shared::cluster") == 2
    release = text[text.rindex("tcgen05.wait::ld") :]
    target = re.search(r"mapa\.shared::cluster\.u32 \t%r\d+, %r\d+, (%r\d+);", release)[1]
    # An even rank: the lowest bit cleared, or shifted in.
    (rank,) = register_values(text, target)
    cleared = re.search(r"and\.b32 .*, (-2|2147483646)$", rank)
    assert cleared or re.fullmatch(r"shl\.b32 \t%r\d+, %r\d+, 1", rank)


@pytest.mark.parametrize(
    ("name", "multicast"),
    [("gemm_sm100_clc_c1x1", ""), ("gemm_sm100_clc_pair_c2x1", r"\.multicast::cluster::all")],
)
def test_cluster_launch_control(name, multicast):
    text = ptx(name)
    query = rf"clusterlaunchcontrol\.try_cancel\.async\.shared::cta\S*bytes{multicast}\.b128"
    assert count(text, query) == count(text, "try_cancel") == 1
    # TMA, MMA, epilogue and scheduler read the answer; only TMA and epilogue need the tile.
    assert count(text, r"query_cancel\.is_canceled") == 4
    assert count(text, r"query_cancel\.get_first_ctaid::x") == 2
    # Lanes of the scheduler warp arm one CTA each, before the query.
    armed = text.index("mbarrier.arrive.expect_tx.shared::cluster")
    assert armed < text.index("try_cancel")
    assert count(text, r"expect_tx\.shared::cluster") == 1
    # One load of 16 bytes, a fence, and an arrive at CTA 0.
    for part in text.split("ld.shared.v2.b64")[1:]:
        fence = part.index("fence.proxy.async.shared::cta")
        arrive = part.index("mbarrier.arrive.shared::cluster")
        assert part.index("is_canceled") < arrive
        assert fence < arrive
        assert re.search(r"mapa\.shared::cluster\.u32 \t%r\d+, %r\d+, 0;", part[fence:arrive])
    assert count(text, r"ld\.shared\.v2\.b64") == 4


def test_expected_tx_of_one_cta():
    """Two boxes of B, the second under a condition, and the bytes chosen by the same one."""
    text = ptx("gemm_sm100_c2x1_expected_tx")
    assert count(text, LOAD) == 3
    armed = re.search(r"mbarrier\.arrive\.expect_tx\.shared\.b64 %rd\d+, \[%r\d+\], (%r\d+);", text)
    (choice,) = register_values(text, armed[1])
    # A and B, or A and half of B: 16384 + 32768, 16384 + 16384.
    assert choice.startswith("selp.b32")
    assert re.search(r"49152, 32768, %p\d+", choice)


def test_expected_tx_and_try_ahead_of_a_pair():
    text = ptx("gemm_sm100_pair_c2x1_all_options_explicit_state")
    assert count(text, rf"{LOAD}\.cta_group::2") == 2
    armed = re.search(r"mbarrier\.arrive\.expect_tx\.shared\.b64 %rd\d+, \[%r\d+\], (%r\d+);", text)
    (choice,) = register_values(text, armed[1])
    # Both CTAs' A and B, or without the second CTA's half of B: 65536 - 16384.
    assert re.search(r"49152, 65536, %p\d+", choice)
    # Asked before the tile's first stage and before each further one, in the TMA and the MMA warp.
    assert count(text, r"mbarrier\.try_wait\.parity\.acquire\S* %p\d+, ") == 4
    assert count(ptx("gemm_sm100_pair_c4x2"), r"mbarrier\.try_wait\.parity\.acquire") == 0


def test_defer_sync_works_between_the_arrive_and_the_wait():
    """The tensor maps are fetched while the other CTAs set up their barriers."""
    text = ptx("gemm_sm100_pair_c2x1_all_options_explicit_state")
    between = text[text.index("barrier.cluster.arrive.relaxed;") : text.index("cluster.wait;")]
    assert count(between, r"prefetch\.\S*tensormap") == 3
    plain = ptx("gemm_sm100_pair_c4x2")
    assert "tensormap" not in plain[plain.index("{") :]


@pytest.mark.parametrize(("name", "boxes"), [("mixed_gemm_sm100", 2)])
def test_a_mixed_subtile_is_stored_in_few_boxes(name, boxes):
    """One TMA store for each swizzle's width of channels: 2 * 64 of bf16; and 4 subtiles."""
    assert count(ptx(name), r"cp\.async\.bulk\.tensor\.3d\.global\.shared") == 4 * boxes
