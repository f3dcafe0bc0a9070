# SPDX-License-Identifier: Apache-2.0
"""Options of the Hopper GEMM's mainloop: asking ahead, deferred barriers, two producer warps."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_planning import check_formulas

import pipegen as api
from pipegen.description_file import description_from_data
from pipegen.errors import InputError

CUTE = Path(__file__).parent.parent / "generated" / "cute"


def planned(style="participants", **sections):
    kernel = {"op": "gemm", "backend": "cute", "arch": "sm_90a", "style": style}
    return api.plan(description_from_data({"pipegen": 1, "kernel": kernel, **sections}))


def text_of(**sections) -> str:
    (text,) = api.render(planned(**sections)).values()
    return text.split('"""', 1)[1]  # behind the header, which differs with the description


def test_two_producers_arm_half_of_the_bytes_each():
    made = planned(role={"producer": {"warps": 2}})
    mainloop = made.pipeline("mainloop")
    assert mainloop.full_arrive_count == 2
    assert mainloop.tx_count == 24576  # (16384 + 32768) / 2
    assert mainloop.stage_bytes == 49152
    assert mainloop.empty_arrive_count == 16  # as with one: 8 consumer warps * 2 partners
    assert made.number("threads").value == 384  # two of the producer warpgroup's four warps
    check_formulas(made)


@given(
    m=st.sampled_from([64, 128, 256]),
    n=st.integers(1, 16).map(lambda i: 16 * i),
    k=st.sampled_from([16, 32, 64, 128, 256]),
    a=st.sampled_from(["bf16", "e4m3"]),
    warps=st.sampled_from([1, 2]),
)
def test_the_armed_bytes_are_those_of_the_stage(m, n, k, a, warps):
    try:
        made = planned(
            dtype={"a": a}, tile={"m": m, "n": n, "k": k}, role={"producer": {"warps": warps}}
        )
    except InputError:
        return
    mainloop = made.pipeline("mainloop")
    assert mainloop.full_arrive_count * mainloop.tx_count == mainloop.stage_bytes
    check_formulas(made)


def early(arrive_count: int, armed: tuple[int, int], landing: tuple[int, int]) -> set[str]:
    """How a full barrier can end its phase, over all orders of two arming warps and their copies.

    A phase ends when no arrival is missing and as many bytes have landed as were armed (PTX ISA,
    "mbarrier", phase completion). A copy lands after its own warp has armed.
    """
    events = ("arm", 0), ("arm", 1), ("land", 0), ("land", 1)
    ends = set()
    for order in itertools.permutations(events):
        if any(order.index(("arm", w)) > order.index(("land", w)) for w in (0, 1)):
            continue
        missing, bytes_left, end = arrive_count, 0, "never"
        for place, (kind, warp) in enumerate(order):
            missing -= kind == "arm"
            bytes_left += armed[warp] if kind == "arm" else -landing[warp]
            if missing <= 0 and bytes_left == 0:
                end = "early" if place < 3 else "with the last bytes"
                break
        ends.add(end)
    return ends


def test_halves_end_the_phase_with_the_last_bytes_in_every_order():
    a, b = 16384, 32768
    half = (a + b) // 2
    assert early(2, (half, half), (a, b)) == {"with the last bytes"}
    # The same with the bytes that each warp really copies: only the sum counts.
    assert early(2, (a, b), (a, b)) == {"with the last bytes"}
    # What goes wrong: one arrival counted, the whole stage armed twice, or a half armed once.
    assert "early" in early(1, (a, b), (a, b))
    assert early(2, (a + b, a + b), (a, b)) == {"never"}
    assert "never" in early(2, (half, 0), (a, b))


@pytest.mark.parametrize("style", ["participants", "explicit-state"])
def test_each_producer_has_a_copy_of_the_state_and_one_waits_at_the_end(style):
    text = text_of(style=style, role={"producer": {"warps": 2}})
    tail = {"participants": ".tail()", "explicit-state": "mainloop.producer_tail("}[style]
    assert text.count(tail) == 1
    assert ".clone()" in text
    assert text.index(tail) < text.index("elif warp_idx == B_WARP:")  # by the owner of the first


@pytest.mark.parametrize("style", ["participants", "explicit-state"])
def test_every_answer_is_asked_for_before_it_is_taken(style):
    text = text_of(style=style, pipeline={"mainloop": {"try_ahead": True}})
    words = {
        "participants": (("try_acquire()", "acquire_and_advance(is_empty)"), "wait_and_advance("),
        "explicit-state": (("producer_try_acquire(", "producer_acquire("), "consumer_wait("),
    }[style]
    (ask, take), wait = words
    producer = text[text.index("if warp_idx == PRODUCER_WARP") :]
    assert producer.count(f"{ask}") == 2  # before the first tile, and behind each stage
    assert producer.index(ask) < producer.index("for index in") < producer.index(take)
    multiply = text[text.index("def multiply") : text.index("@cute.kernel")]
    assert multiply.count(wait) == 2
    assert multiply.count("is_full)") == 2
    # A consumer asks for a stage that will come, after it has released the one before.
    assert "if k_tile + 1 < count:" in multiply
    loop = multiply[multiply.index("for k_tile in") :]
    assert loop.index("release(") < loop.index("try_wait(")


def test_deferred_barriers_have_work_between_the_two_halves():
    text = text_of(pipeline={"mainloop": {"defer_sync": True}})
    arrive, wait = text.index("pipeline_init_arrive("), text.index("pipeline_init_wait(")
    assert text[arrive:wait].count("prefetch_descriptor(") == 3
    usual = text_of()
    assert "prefetch_descriptor(" not in usual
    for each in ("arrive", "wait"):
        assert f"pipeline_init_{each}(cluster_shape_mn=(CLUSTER_M, CLUSTER_N)" in text


def test_options_change_nothing_when_they_are_not_asked_for():
    usual = {"try_ahead": False, "defer_sync": False}
    assert text_of(pipeline={"mainloop": usual}, role={"producer": {"warps": 1}}) == text_of()


@pytest.mark.parametrize("consumers", ["cooperative", "ping-pong"])
@pytest.mark.parametrize("style", ["participants", "explicit-state"])
def test_a_kernel_without_a_cluster_mentions_none(style, consumers):
    scheduler = {"consumers": consumers}
    alone = text_of(style=style, scheduler=scheduler, cluster={"shape": [1, 1]})
    docstring, code = alone.split('"""', 1)
    kernel = code[code.index("@cute.jit") : code.index("def compile_gemm")]
    for word in ("cluster", "CLUSTER", "ctas:", "another CTA"):
        assert word not in kernel
    assert "every CTA" not in docstring
    assert "multicast" not in alone
    shared = text_of(style=style, scheduler=scheduler, cluster={"shape": [2, 1]})
    for word in ("cluster=cluster", "every CTA", "multicast partners"):
        assert word in shared
