# SPDX-License-Identifier: Apache-2.0
"""Custom Pallas graphs with warpgroups that take turns: stages of their own, barriers, faults."""

from dataclasses import replace
from pathlib import Path

import environments
import pytest
from interpretable import case
from random_orders import in_pallas

from pipegen.barriers import find_in_roles
from pipegen.description_file import description_from_data, load_description
from pipegen.errors import InputError
from pipegen.planning import plan
from pipegen.planning.custom.models import find_alone, find_together, models, steps_of, turns_model
from pipegen.planning.custom.numbers import Numbers
from pipegen.planning.custom.reading import read_graph
from pipegen.rendering import render

RUNNING_SUM = (
    Path(__file__).parent.parent / "generated" / "pallas" / "pallas_custom_sm90_running_sum.toml"
)
RANDOM, INTERPRETED = 8, (0, 4)  # graphs: how many are written, and which run


def numbers_of(read) -> Numbers:
    return Numbers(read_graph(plan(read).description), "sm_90a", "pallas")


def text_of(made) -> str:
    (text,) = render(made).values()
    return text


def test_running_sum_by_hand():
    made = plan(load_description(RUNNING_SUM))
    # Three warpgroups; 64 x 128 of bf16 in 4 stages, which two groups share; of f32 a buffer each;
    # 64 numbers of rows and what a reduction takes; 2 * 4 barriers of the ring and 2 of the turns.
    assert made.number("threads").value == 384
    assert made.pipeline("x").stages == 4
    stages, buffers, rows = 4 * 64 * 128 * 2, 2 * 64 * 128 * 4, 1024 + 2048
    assert made.number("smem_bytes").value == stages + buffers + rows + 10 * 8
    assert made.pipeline("carry").full_arrive_count == 1


def test_stages_that_say_nothing_belong_to_one_group_each():
    """Mosaic GPU counts a thread's waits: a group that missed a phase would take the wrong one."""
    data = load_description(RUNNING_SUM).model_dump(exclude_unset=True)
    for groups, stages in ((2, 4), (3, 3), (4, 4)):
        data["order"]["carry"]["groups"] = groups
        assert plan(description_from_data(data)).pipeline("x").stages == stages


def test_the_turns_end_and_nothing_is_passed():
    numbers = numbers_of(load_description(RUNNING_SUM))
    assert find_alone(numbers) is None
    for tiles in range(1, 7):
        assert find_together(numbers, tiles) is None


def test_a_turn_that_needs_two_arrivals_hangs_in_the_model():
    numbers = numbers_of(load_description(RUNNING_SUM))
    graph = numbers.graph
    rings = [model for ring in graph.rings for model in models(numbers, ring, (0,))]
    turns = turns_model(numbers, graph.orders[0], 0, (0,))
    steps = dict(steps_of(numbers, 3, 0, (0,)))
    assert find_in_roles(rings, steps, turns=[turns]) is None
    found = find_in_roles(rings, steps, turns=[replace(turns, count=2)])
    assert found is not None
    assert found.kind == "deadlock"


@pytest.mark.parametrize("groups", [-1, 0, 1, 9])
def test_so_many_groups_are_refused(groups):
    data = load_description(RUNNING_SUM).model_dump(exclude_unset=True)
    data["order"]["carry"]["groups"] = groups
    with pytest.raises(InputError) as caught:
        plan(description_from_data(data))
    assert "PG265" in {problem.rule for problem in caught.value.problems}


FAULTS = {
    "no wait for the turn": ("            wait_turn(carry_turns, step, CARRY_GROUPS)\n", ""),
    "both groups in one buffer": ("out_buffer.at[group]", "out_buffer.at[0]"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(newest_jax, fault, tmp_path):
    old, new = FAULTS[fault]
    text = RUNNING_SUM.with_suffix(".py").read_text()
    assert old in text
    planted = tmp_path / "planted.py"
    planted.write_text(text.replace(old, new))
    (result,) = environments.interpret(newest_jax, [case(planted)], tmp_path)
    assert result["verdict"] in ("race", "error", "fail"), result["said"]


@pytest.mark.parametrize("seed", range(RANDOM))
def test_random_graphs_in_turn_are_written(seed):
    made = plan(description_from_data(in_pallas(seed)))
    text = text_of(made)
    for order in made.description.order:
        assert text.count(f"num_barriers={order.upper()}_GROUPS") == 1
        assert f"wait_turn({order}_turns, step, {order.upper()}_GROUPS)" in text
    assert max(map(len, text.splitlines())) <= 100


def test_random_graphs_in_turn_are_right_when_interpreted(newest_jax, tmp_path):
    paths = []
    for seed in INTERPRETED:
        made = plan(description_from_data(in_pallas(seed)))
        paths.append(tmp_path / f"{made.name}.py")
        paths[-1].write_text(text_of(made))
    results = environments.interpret(newest_jax, [case(path) for path in paths], tmp_path)
    assert [result["verdict"] for result in results] == ["pass"] * len(INTERPRETED), results
