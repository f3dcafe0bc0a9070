# SPDX-License-Identifier: Apache-2.0
"""The model of the barriers: what works passes, and each way to break it is found."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipegen.barriers import End, RingModel, find_in_ring, find_in_roles, find_in_turns
from pipegen.barriers.machine import Barrier, Op, System, explore
from pipegen.barriers.plans import find_in_plan
from pipegen.barriers.rings import Step
from pipegen.description_file import load_description
from pipegen.planning import plan

ROOT = Path(__file__).parent.parent
DESCRIPTIONS = sorted((ROOT / "generated").rglob("*.toml"))
# Four warps read what one TMA warp loads.
TMA = RingModel(
    "ring",
    2,
    1,
    4,
    (End("load", 1, 64, 64),),
    (End("a warp", 1), End("the others", 3)),
)
# 128 threads write what 4 warps read.
THREADS = RingModel(
    "ring",
    3,
    128,
    4,
    (End("a writer", 32), End("the other writers", 96)),
    (End("a warp", 1), End("the others", 3)),
)
# Two TMA warps fill one stage.
PAIR = replace(TMA, full_count=2, producers=(End("x", 1, 64, 64), End("y", 1, 64, 64)))


def kind(ring: RingModel) -> str:
    found = find_in_ring(ring)
    return found.kind if found else ""


@pytest.mark.parametrize("ring", [TMA, THREADS, PAIR], ids=["tma", "threads", "pair"])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_right_ring_has_no_fault_in_any_order(ring, stages):
    assert find_in_ring(replace(ring, stages=stages)) is None


@pytest.mark.parametrize("ring", [TMA, THREADS, PAIR], ids=["tma", "threads", "pair"])
def test_a_count_that_is_too_high_hangs(ring):
    assert kind(replace(ring, full_count=ring.full_count + 1)) == "deadlock"
    assert kind(replace(ring, empty_count=ring.empty_count + 1)) == "deadlock"


def test_a_count_that_is_too_low_races():
    assert kind(replace(TMA, empty_count=3)) == "race"
    assert kind(replace(THREADS, empty_count=1)) == "race"
    assert kind(replace(THREADS, full_count=96)) == "race"
    assert kind(replace(PAIR, full_count=1))  # by the order of events either


def test_an_empty_barrier_that_is_too_high_hangs_at_the_second_lap():
    found = find_in_ring(replace(TMA, empty_count=5))
    assert "acquires stage 0 of ring, lap 1; 1 of 5 arrivals are missing" in found.message
    assert len(found.trace) > 8


def test_a_missing_release_hangs_and_one_that_nobody_counts_races():
    silent = (End("a warp", 1), End("the others", 0))
    assert kind(replace(TMA, consumers=silent)) == "deadlock"
    assert kind(replace(TMA, consumers=silent, empty_count=1)) == "race"


def test_a_missing_commit_hangs():
    silent = (End("a writer", 32), End("the other writers", 0))
    assert kind(replace(THREADS, producers=silent)) == "deadlock"


def test_a_wrong_first_phase():
    """A producer that begins with 0 waits for a release; a consumer with 1 reads too early."""
    assert kind(replace(TMA, producers=(End("load", 1, 64, 64, phase=0),))) == "deadlock"
    early = (End("a warp", 1, phase=1), End("the others", 3))
    assert kind(replace(TMA, consumers=early)) == "race"


@pytest.mark.parametrize(("armed", "copied"), [(64, 60), (60, 64), (64, 0)])
def test_bytes_that_are_off_hang(armed, copied):
    assert kind(replace(TMA, producers=(End("load", 1, armed, copied),))) == "deadlock"


def test_bytes_that_nobody_arms_are_missed():
    """The arrive alone completes the phase: a reader does not wait for the bytes."""
    assert kind(replace(TMA, producers=(End("load", 1, 0, 64),))) == "race"


@pytest.mark.parametrize(("fills", "takes"), [(5, 4), (4, 5), (9, 8)])
def test_unequal_trips_hang(fills, takes):
    ring = replace(
        TMA,
        producers=(End("load", 1, 64, 64, trips=fills),),
        consumers=(End("a warp", 1, trips=takes), End("the others", 3, trips=takes)),
    )
    assert kind(ring) == "deadlock"
    even = replace(ring, producers=(End("load", 1, 64, 64, trips=takes),))
    assert kind(even) == ""


def test_groups_in_turn():
    assert find_in_turns([128, 128], [128, 128]) is None
    assert find_in_turns([128, 128, 128], [128, 128, 128]) is None
    assert find_in_turns([129, 128], [128, 128]).kind == "deadlock"
    assert find_in_turns([128, 128], [128, 0]).kind == "deadlock"
    # Nobody begins: each group waits for the one before it.
    assert find_in_turns([128, 128], [128, 128], phase=0).kind == "deadlock"
    assert find_in_turns([64, 64], [128, 128]) is not None


def rings(*edges: tuple[str, str, int]) -> list[RingModel]:
    return [
        RingModel(f"{a}{b}", stages, 1, 1, (End(a, 1),), (End(b, 1),)) for a, b, stages in edges
    ]


def passes(takes: str = "", fills: str = "", count: int = 6) -> list[Step]:
    took, filled = tuple(takes.split()), tuple(fills.split())
    return [Step(took, filled, filled, took)] * count


@pytest.mark.parametrize("every_order", [False, True])
def test_a_chain_and_a_circle_of_roles(every_order):
    chain = rings(("a", "b", 2), ("b", "c", 1))
    steps = {"a": passes("", "ab"), "b": passes("ab", "bc"), "c": passes("bc", "")}
    assert find_in_roles(chain, steps, every_order) is None
    circle = [*chain, *rings(("c", "a", 5))]
    steps = {"a": passes("ca", "ab"), "b": passes("ab", "bc"), "c": passes("bc", "ca")}
    assert find_in_roles(circle, steps, every_order).kind == "deadlock"


@pytest.mark.parametrize("every_order", [False, True])
@pytest.mark.parametrize(("stages", "tiles", "fault"), [(3, 3, False), (3, 4, True), (4, 4, False)])
def test_two_ways_of_which_one_holds_a_panel_back(stages, tiles, fault, every_order):
    """load feeds mean and scale; scale waits for the mean of the panel before it takes a tile."""
    tile = RingModel("x", stages, 1, 2, (End("load", 1),), (End("mean", 1), End("scale", 1)))
    panel = RingModel("mean", 1, 1, 1, (End("mean", 1),), (End("scale", 1),))
    steps = {
        "load": [Step((), ("x",), ("x",), ())] * (2 * tiles),
        "mean": ([Step(("x",), (), (), ("x",))] * tiles + [Step((), ("mean",), ("mean",), ())]) * 2,
        "scale": (
            [Step(("mean",), (), (), ())]
            + [Step(("x",), (), (), ("x",))] * tiles
            + [Step((), (), (), ("mean",))]
        )
        * 2,
    }
    found = find_in_roles([tile, panel], steps, every_order)
    assert (found is not None and found.kind == "deadlock") == fault


def test_too_many_states_are_said_to_be_so():
    agents = tuple((f"agent {i}", tuple([Op("arrive", i, 1, "arrives")] * 9)) for i in range(6))
    barriers = tuple(Barrier(f"barrier {i}", 1) for i in range(6))
    assert explore(System(barriers, agents), limit=500).kind == "limit"


def test_what_is_taken_out_of_a_plan_is_missed():
    """The model sees a plan's wrong count: it works out who arrives for itself."""
    made = plan(load_description(ROOT / "generated" / "cute" / "gemm_sm90_c2x1.toml"))
    assert find_in_plan(made)[0] == []
    for change in (-1, 1):
        mainloop = made.pipelines[0]
        wrong = replace(mainloop, empty_arrive_count=mainloop.empty_arrive_count + change)
        found, _ = find_in_plan(replace(made, pipelines=(wrong, *made.pipelines[1:])))
        assert [name for name, _ in found] == ["mainloop"]


@pytest.mark.parametrize("path", DESCRIPTIONS, ids=lambda path: path.stem)
def test_every_checked_in_kernel_passes(path):
    made = plan(load_description(path))
    found, skipped = find_in_plan(made)
    assert found == []
    assert len(skipped) < len(made.pipelines), [each.reason for each in skipped]
