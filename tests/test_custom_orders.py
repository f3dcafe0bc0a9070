# SPDX-License-Identifier: Apache-2.0
"""op = "custom": groups in turn, clusters of two CTAs, and rings that lead back."""

import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from random_orders import KINDS, broken, valid

from pipegen import rendering
from pipegen.barriers import End, RingModel, TurnsModel, find_in_roles
from pipegen.barriers.rings import Step
from pipegen.compiling.installed import dsl as find_dsl
from pipegen.description import KernelDescription
from pipegen.description_file import description_from_data, load_description, parse_description
from pipegen.errors import InputError
from pipegen.planning import plan
from pipegen.planning.custom.bodies import expected
from pipegen.planning.custom.draw import depths, draw_text
from pipegen.planning.custom.models import find_alone, find_together, models, steps_of
from pipegen.planning.custom.numbers import Numbers
from pipegen.planning.custom.picture import draw_svg
from pipegen.planning.custom.reading import read_graph
from pipegen.planning.defaults import resolve
from pipegen.rendering import render

GENERATED = Path(__file__).parent.parent / "generated" / "cute"
HEAD = 'kernel = { op = "custom", backend = "cute", arch = "sm_90a" }\n'
# Compiled here, one of each kind on Hopper; twenty have run on an H200.
SEEDS = {"sm_90a": range(5), "sm_100a": (1, 3)}


def numbers_of(text: str) -> Numbers:
    """The numbers of a graph that the rules have not seen."""
    description = resolve(KernelDescription.model_validate(tomllib.loads(HEAD + text)))
    return Numbers(read_graph(description), "sm_90a")


def text_of(made) -> str:
    (text,) = render(made).values()
    return text


@pytest.fixture
def _unformatted(monkeypatch):
    monkeypatch.setattr(rendering, "format_text", lambda text: text)


def test_groups_in_turn_have_one_group_for_each_stage():
    made = plan(load_description(GENERATED / "custom_sm90_running_sum.toml"))
    ring, order = made.pipelines
    assert (ring.construct, ring.full_arrive_count, ring.empty_arrive_count) == (
        "PipelineTmaAsync",
        1,
        4,  # the warps of one group, of the two
    )
    assert (order.construct, order.stages, order.groups) == ("PipelineOrder", 1, 2)
    assert order.full_arrive_count == 128
    # 8 warps of two groups, and the one that loads.
    assert made.number("threads").value == 288
    # 8 + 2 mbarriers, four stages, and a number for each of 32 rows.
    assert made.number("smem_bytes").value == 128 + 4 * 16384 + 128
    text = text_of(made)
    for line in (
        "x_consumer.advance(carry_group)",
        "x_consumer.advance(CARRY_GROUPS - 1)",
        "carry_order.wait(carry_turn)",
        "carry_turn = carry_order.arrive(carry_turn)",
    ):
        assert text.count(line) == 1
    assert text.index("carry_order.wait(") < text.index("scan_turn(\n                x_smem")


def test_two_roles_fill_one_ring_in_turn():
    text = """
        tensor.x = { read = "load" }
        tensor.out = { write = "save" }
        pipeline.x = { edge = "load -> even, odd", stages = 3 }
        pipeline.done = { edge = "even, odd -> save", stages = 3 }
        role.save = { kind = "tma_store" }
        order.turns = { roles = "even, odd" }
        """
    made = plan(parse_description(HEAD + text))
    done = made.pipeline("done")
    assert (done.full_arrive_count, done.empty_arrive_count) == (128, 1)
    assert text_of(made).count("turns_order.wait(turns_turn)") == 2
    # As the order says, whatever the edges do.
    swapped = numbers_of(text.replace('"even, odd" }', '"odd, even" }'))
    assert [role.name for role in swapped.graph.roles] == ["odd", "even", "load", "save"]


def test_fewer_stages_than_groups_are_refused_and_why():
    """The model finds it too: a wait takes the phase before the last for its own."""
    text = """
        tensor.x = { read = "load" }
        tensor.out = { write = "work" }
        pipeline.x = { edge = "load -> work", stages = 2 }
        order.turns = { roles = "work", groups = 3 }
        """
    with pytest.raises(InputError, match="at least 3") as caught:
        plan(parse_description(HEAD + text))
    assert "PG265" in str(caught.value)
    assert find_alone(numbers_of(text))[1].kind == "race"
    assert find_alone(numbers_of(text.replace("stages = 2", "stages = 3"))) is None


def ring(stages: int, groups: int) -> RingModel:
    names = [f"group {index}" for index in range(groups)]
    takers = [End(name, 1, first=i, every=groups) for i, name in enumerate(names)]
    return RingModel("x", stages, 1, 1, (End("load", 1, 64, 64),), tuple(takers))


def in_turn(stages: int = 2, tiles: int = 8, order: tuple[int, int] = (1, 1), **change):
    """Two groups that take a ring's stages in turn; `order`: count and arrivals of their order."""
    names = ("group 0", "group 1")
    turns = TurnsModel("turns", names, *order)
    each = Step(("x",), (), (), ("x",), ("turns",))
    steps = {"load": [Step((), ("x",), ("x",))] * tiles}
    steps |= {name: [each] * len(range(index, tiles, 2)) for index, name in enumerate(names)}
    steps |= change
    found = find_in_roles([ring(stages, 2)], steps, every_order=True, turns=[turns])
    return found.kind if found else ""


def test_turns_and_each_way_to_break_them():
    assert in_turn() == ""
    assert in_turn(tiles=7) == ""
    assert in_turn(order=(2, 1)) == "deadlock"  # a count that is too high
    assert in_turn(order=(1, 0)) == "deadlock"  # nobody gives the turn on
    assert in_turn(order=(1, 2)) in ("race", "deadlock")  # a turn that is given on twice
    assert in_turn(stages=1) == "race"
    # A group that leaves a turn out hangs the other one.
    without = [Step(("x",), (), (), ("x",))] * 4
    assert in_turn(**{"group 0": without}) == "deadlock"
    # Groups that nothing orders: with three stages one may run a lap ahead of the other.
    unordered = {
        "load": [Step((), ("x",), ("x",))] * 9,
        "group 0": [Step(("x",), (), (), ("x",))] * 5,
        "group 1": [Step(("x",), (), (), ("x",))] * 4,
    }
    assert find_in_roles([ring(3, 2)], unordered, every_order=True).kind == "race"


CLUSTER = """
    cluster = { shape = [2, 1] }
    tensor.x = { read = "load" }
    tensor.w = { read = "load_w", shape = "N" }
    tensor.out = { write = "save" }
    pipeline.x = { edge = "load -> give", stages = 2 }
    pipeline.w = { edge = "load_w -> save", stages = 2, multicast = true }
    pipeline.done = { edge = "give -> save", stages = 2, peer = true }
    """


def test_both_ctas_release_what_is_loaded_for_both():
    made = plan(parse_description(HEAD + CLUSTER))
    assert made.pipeline("w").empty_arrive_count == 2 * 4
    assert made.pipeline("done").empty_arrive_count == 4
    text = text_of(made)
    assert "producer_mask=peer" in text
    assert "consumer_mask=peer" in text
    assert "done_peer[None, None, done_stage.index]" in text
    assert text.count("cute.arch.cluster_wait()") == 1
    # A fence before the commit, one behind the wait, one before the release.
    assert text.count("cute.arch.fence_acq_rel_cluster()") == 3
    assert expected(read_graph(made.description)) == {"out": "(w + of_peer(x))"}


def two_ctas(change=None) -> str:
    """The kind of fault of the cluster's graph, whose ring models `change` may break."""
    numbers = numbers_of(CLUSTER)
    rings = [m for each in numbers.graph.rings for m in models(numbers, each, (0, 1))]
    if change:
        rings = [change(model) for model in rings]
    steps = {
        f"{name} of CTA {cta}": passes[:3]
        for cta in (0, 1)
        for name, passes in steps_of(numbers, 3, cta, (0, 1))
    }
    found = find_in_roles(rings, steps)
    return found.kind if found else ""


def test_two_ctas_and_each_way_to_break_them():
    numbers = numbers_of(CLUSTER)
    assert find_together(numbers, 3) is None
    assert two_ctas() == ""

    def counts(name: str, **change: int):
        return lambda m: replace(m, **change) if m.name.startswith(name) else m

    # The releases of the other CTA are not counted, or more are than there are.
    assert two_ctas(counts("w", empty_count=9)) == "deadlock"
    assert two_ctas(counts("done", full_count=129)) == "deadlock"
    assert two_ctas(counts("done", empty_count=5)) == "deadlock"

    def deaf(model: RingModel) -> RingModel:
        """A release that reaches this CTA's barrier only."""
        return replace(model, consumers=tuple(replace(e, also=()) for e in model.consumers))

    assert two_ctas(deaf) == "deadlock"

    def half(model: RingModel) -> RingModel:
        """A load that reaches this CTA only."""
        return replace(model, producers=tuple(replace(e, also=()) for e in model.producers))

    assert two_ctas(half) == "deadlock"


def feedback(forward: int, stages: int, credits: int) -> str:
    return f"""
        tensor.x = {{ read = "load" }}
        tensor.out = {{ write = "keep", expect = "x" }}
        pipeline.x = {{ edge = "load -> mix", stages = 2 }}
        pipeline.done = {{ edge = "mix -> keep", stages = {forward} }}
        pipeline.back = {{ edge = "keep -> mix", stages = {stages}, credits = {credits} }}
        """


@pytest.mark.parametrize(
    ("forward", "stages", "credits", "passes"),
    [
        # keep fills a stage after it has taken one: as many credits as stages, and one more for
        # each further stage of done, in which mix leaves what it makes meanwhile.
        (1, 1, 1, True),
        (1, 1, 2, False),
        (2, 1, 2, True),
        (2, 1, 3, False),
        (1, 3, 3, True),
        (3, 2, 4, True),
        (3, 2, 5, False),
    ],
)
def test_credits_pass_where_the_model_comes_to_its_end(forward, stages, credits, passes):
    text = feedback(forward, stages, credits)
    if passes:
        made = plan(parse_description(HEAD + text))
        assert f"BACK_CREDITS = {credits}" in text_of(made)
        return
    with pytest.raises(InputError) as caught:
        plan(parse_description(HEAD + text))
    message = str(caught.value)
    assert f"{credits} credits in {stages} stages of keep -> mix" in message
    assert "PG274" in message
    # The choice that it names passes.
    nearest = int(message.split("Nearest valid choice: ")[1].split(".")[0])
    plan(parse_description(HEAD + feedback(forward, nearest, credits)))


def test_a_circle_without_credits_is_refused():
    text = feedback(2, 2, 0)
    with pytest.raises(InputError, match="without credits") as caught:
        plan(parse_description(HEAD + text))
    assert "done (mix -> keep), back (keep -> mix)" in str(caught.value)


def test_a_picture_of_a_circle_and_of_turns():
    numbers = numbers_of(feedback(1, 1, 1))
    assert depths(numbers.graph) == {"mix": 1, "keep": 2, "load": 0}
    assert "1 full at first" in draw_text(numbers)
    assert "1 full at first" in draw_svg(numbers, "circle")
    assert ", of the other CTA" in draw_text(numbers_of(CLUSTER))
    made = plan(load_description(GENERATED / "custom_sm90_running_sum.toml"))
    numbers = Numbers(read_graph(made.description), "sm_90a")
    assert "carry: 2 groups of scan in turn" in draw_text(numbers)
    assert "[thread, 2 x 4 warps]" in draw_text(numbers)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.usefixtures("_unformatted")
def test_random_graphs_are_written(seed):
    data = valid(seed)
    made = plan(description_from_data(data))
    text = text_of(made)
    compile(text, made.name, "exec")
    kind = KINDS[seed % len(KINDS)]
    assert ("PipelineOrder.create(" in text) == (kind in ("groups", "roles"))
    assert ("cute.arch.cluster_wait()" in text) == (kind in ("rows", "columns"))
    assert ("_CREDITS, unroll=1)" in text) == (kind == "feedback")


@pytest.mark.parametrize("seed", range(60))
def test_random_faults_are_refused_for_the_right_reason(seed):
    code, data = broken(seed)
    with pytest.raises(InputError) as caught:
        plan(description_from_data(data))
    assert code in str(caught.value)


COMPILE = """
import importlib, os, sys
sys.path.insert(0, sys.argv[1])
for name in sorted(os.listdir(sys.argv[1])):
    if name.startswith("graph_"):
        importlib.import_module(name[:-3]).compile_custom()
        print(name, flush=True)
"""


@pytest.mark.parametrize("arch", SEEDS)
@pytest.mark.usefixtures("_unformatted")
def test_random_graphs_compile(tmp_path, arch, monkeypatch):
    found = find_dsl("cute")
    if found.reason:
        pytest.skip(found.reason)
    for seed in SEEDS[arch]:
        data = valid(seed)
        data["kernel"]["arch"] = arch
        for name, text in render(plan(description_from_data(data))).items():
            (tmp_path / name).write_text(text)
    (tmp_path / "run.py").write_text(COMPILE)
    monkeypatch.setenv("CUTE_DSL_ARCH", arch)
    done = subprocess.run(
        [sys.executable, tmp_path / "run.py", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("graph_") == len(SEEDS[arch])
