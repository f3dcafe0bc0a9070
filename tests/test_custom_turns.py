# SPDX-License-Identifier: Apache-2.0
"""Ordered groups of a custom graph: two parts in each tile, and two different roles in turn.

What the model of the barriers says of them, and what the emulator says of the emitted kernels, as
they are and with a turn that is broken.
"""

import re
from pathlib import Path

import pytest
from emulating import emulate

from pipegen import rendering
from pipegen.barriers import End, RingModel, TurnsModel, find_in_roles
from pipegen.barriers.rings import Step
from pipegen.compiling.installed import dsl as find_dsl
from pipegen.description_file import load_description, parse_description
from pipegen.planning import plan
from pipegen.rendering import render

GENERATED = Path(__file__).parent.parent / "generated" / "cute"
LOGSUMEXP = GENERATED / "custom_sm100_running_logsumexp.toml"
EXPONENTIALS = GENERATED / "custom_sm100_two_exponentials.toml"
SUM = GENERATED / "custom_sm90_running_sum.toml"

needs_cute = pytest.mark.skipif(
    not find_dsl("cute").versions, reason="nvidia-cutlass-dsl is not installed"
)


@pytest.fixture(autouse=True)
def _unformatted(monkeypatch):
    """Formatting takes as long as all the rest."""
    monkeypatch.setattr(rendering, "format_text", lambda text: text)


def module(path: Path, arch: str = "sm_90a", **changes: str) -> str:
    """The module of a description, for Hopper, with some words of it changed."""
    text = path.read_text(encoding="utf-8").replace("sm_100a", arch)
    for old, new in changes.values():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (module,) = render(plan(parse_description(text))).values()
    return module


def broken(text: str, old: str, new: str, nth: int = 0) -> str:
    """The text with its nth `old` replaced; it must be there."""
    parts = text.split(old)
    assert len(parts) > nth + 1, f"{old!r} stands {len(parts) - 1} times"
    return old.join(parts[: nth + 1]) + new + old.join(parts[nth + 1 :])


def test_a_body_is_in_order_and_so_is_its_turn():
    """Two parts have a barrier each for each group, and a wait and an arrive each."""
    made = plan(load_description(LOGSUMEXP))
    order = made.pipeline("left")
    assert (order.stages, order.groups, order.full_arrive_count) == (2, 2, 128)
    # 8 + 4 mbarriers, four stages of 16 KiB, a number for each of 32 rows; each begins at 128 B.
    assert made.number("smem_bytes").value == 128 + 4 * 16384 + 128
    text = module(LOGSUMEXP)
    assert "LEFT_GROUPS, LEFT_DEPTH = 2, 2" in text
    assert "barriers: cute.struct.MemRange[cutlass.Int64, LEFT_GROUPS * LEFT_DEPTH]" in text
    role = text[text.index("# ---- scan") : text.index("# ---- load")]
    steps = re.findall(r"\b(wait|scan|arrive|scan_turn)\(", role[role.index("left_order.wait") :])
    assert steps == ["wait", "scan", "arrive", "wait", "scan_turn", "arrive"]


def test_two_different_roles_stand_side_by_side_and_fill_one_ring():
    made = plan(load_description(EXPONENTIALS))
    assert [role.name for role in made.roles] == ["unit", "polynomial", "load", "store"]
    done, halo = made.pipeline("done"), made.pipeline("halo")
    # One group at a time comes to a stage: 4 warps release x, 128 threads commit done.
    assert (made.pipeline("x").empty_arrive_count, done.full_arrive_count) == (4, 128)
    assert (halo.groups, halo.stages) == (2, 1)
    text = module(EXPONENTIALS)
    assert "halo_group = warp_idx // UNIT_WARPS" in text
    assert text.count("halo_order.wait(halo_turn)") == 2  # one in each role
    # The ring is filled in the order of the tiles: a group's stage is the next but one.
    assert text.count("done_producer.advance(HALO_GROUPS - 1)") == 2


def in_parts(order: TurnsModel, tiles: int = 5, **steps: list[Step]) -> str:
    """The kind of fault of two groups whose tiles have as many ordered parts as `order` has."""
    takers = tuple(End(name, 1, first=i, every=2) for i, name in enumerate(("a", "b")))
    ring = RingModel("x", 2, 1, 1, (End("load", 1, 64, 64),), takers)
    each = Step(("x",), (), (), ("x",), ("turns",))
    usual = {
        "load": [Step((), ("x",), ("x",))] * tiles,
        **{name: [each] * len(range(i, tiles, 2)) for i, name in enumerate(("a", "b"))},
    }
    found = find_in_roles([ring], usual | steps, every_order=True, turns=[order])
    return found.kind if found else ""


@pytest.mark.parametrize("depth", [1, 2])
def test_each_way_to_break_turns_of_several_parts(depth):
    def turns(count: int = 1, arrivals: int = 1) -> TurnsModel:
        return TurnsModel("turns", ("a", "b"), count, arrivals, depth)

    assert in_parts(turns()) == ""
    assert in_parts(turns(), tiles=6) == ""
    assert in_parts(turns(count=2)) == "deadlock"  # the barrier waits for threads that never come
    assert in_parts(turns(arrivals=0)) == "deadlock"  # nobody gives the turn on
    assert in_parts(turns(arrivals=2)) in ("race", "deadlock")  # it is given on twice
    left_out = [Step(("x",), (), (), ("x",))] * 3  # a group that leaves its turns out
    assert in_parts(turns(), a=left_out) == "deadlock"


def two_parts() -> dict[str, str]:
    """Modules of an order with two parts: right ones, and such that break it, by what they do."""
    change = {"order": ("groups = 2, shape", "groups = 2, depth = 2, shape")}
    whole = module(SUM, **change)
    wait, arrive = "carry_order.wait(carry_turn)", "carry_turn = carry_order.arrive(carry_turn)"
    return {
        "right": whole,
        "one_role_of_three_groups": module(
            SUM, order=("groups = 2, shape", "groups = 3, depth = 2, shape")
        ),
        "no_wait_before_the_turn": broken(whole, wait, "pass", 1),
        "no_arrive_behind_the_body": broken(whole, arrive, "pass"),
        "arrives_too_few": broken(whole, "CARRY_ARRIVES = 128", "CARRY_ARRIVES = 129"),
    }


def two_roles() -> dict[str, str]:
    """The same of two different roles."""
    whole = module(EXPONENTIALS)
    both = {"order": ('polynomial", shape', 'polynomial", depth = 2, shape')}
    wait, arrive = "halo_order.wait(halo_turn)", "halo_turn = halo_order.arrive(halo_turn)"
    return {
        "right": whole,
        "with_two_parts": module(EXPONENTIALS, **both),
        "in_the_other_order": module(
            EXPONENTIALS, order=('roles = "unit, polynomial"', 'roles = "polynomial, unit"')
        ),
        "one_does_not_wait": broken(whole, wait, "pass", 1),
        "one_gives_nothing_on": broken(whole, arrive, "pass", 1),
        "both_are_the_first": broken(whole, "group_id=halo_group", "group_id=halo_group // 2"),
    }


FAULTS = {
    "no_wait_before_the_turn": {"race"},
    "no_arrive_behind_the_body": {
        "race"
    },  # its state stays, and so takes the body's turn for its own
    "arrives_too_few": {"deadlock"},
    "one_does_not_wait": {"race"},
    "one_gives_nothing_on": {"deadlock"},
    "both_are_the_first": {"race", "deadlock"},
}


@needs_cute
@pytest.mark.parametrize("modules", [two_parts, two_roles], ids=lambda make: make.__name__)
def test_the_emulator_passes_what_is_in_order_and_finds_what_is_not(tmp_path, modules):
    """Three panels for one CTA of an odd number of tiles: the groups' tiles change with them."""
    texts = modules()
    told = emulate(tmp_path, texts, 70, 600)
    assert any(name not in FAULTS for name in texts)
    for name, said in told.items():
        if name in FAULTS:
            assert not said["ok"]
            assert set(said["faults"]) & FAULTS[name], said
        else:
            assert said["ok"], said
            assert said["passed"]
