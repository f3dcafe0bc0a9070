# SPDX-License-Identifier: Apache-2.0
"""Custom graphs with roles that multiply: numbers by hand, loops, fences, barriers, compiling."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from random_products import product

from pipegen.barriers import find_in_ring, find_in_roles
from pipegen.barriers.rings import Step
from pipegen.compiling.installed import dsl as find_dsl
from pipegen.description_file import description_from_data, load_description, parse_description
from pipegen.errors import InputError
from pipegen.planning import plan
from pipegen.planning.custom.draw import draw_text
from pipegen.planning.custom.models import alone, find_alone, find_together, models, steps_of
from pipegen.planning.custom.product_bodies import product_expected
from pipegen.planning.custom.product_numbers import ProductNumbers
from pipegen.planning.custom.products import loops, product_of, result_dims, results
from pipegen.planning.custom.reading import read_graph
from pipegen.rendering import render

GENERATED = Path(__file__).parent.parent / "generated" / "cute"
CONVERT = GENERATED / "custom_sm90_convert_multiply.toml"
TWICE = GENERATED / "custom_sm90_multiply_twice.toml"
PLAIN = GENERATED / "custom_sm90_multiply.toml"
BIAS = GENERATED / "custom_sm90_multiply_bias.toml"
EXAMPLES = (CONVERT, TWICE, PLAIN, BIAS)
DRAWN, COMPILED = 10, 3  # random graphs


def numbers_of(path_or_text) -> ProductNumbers:
    given = path_or_text
    read = load_description(given) if isinstance(given, Path) else parse_description(given)
    graph = read_graph(plan(read).description)
    assert graph is not None
    return ProductNumbers(graph, "sm_90a")


def modelled(numbers: ProductNumbers, count: int):
    """Rings and steps for the model, for so many steps of each loop."""
    rings = [model for ring in numbers.graph.rings for model in models(numbers, ring, (0,))]
    return rings, dict(steps_of(numbers, count, 0, (0,)))


def text_of(path: Path) -> str:
    return path.with_suffix(".py").read_text(encoding="utf-8")


def branch_of(text: str, role: str) -> str:
    """The lines of a role in the emitted kernel."""
    return re.split(r"\n    (?:elif|else|if)\b", text.split(f"# ---- {role} -")[1])[0]


def test_convert_multiply_by_hand():
    made = plan(load_description(CONVERT))
    # 128 x 64 of bf16, 128 x 64 of i8, the same as bf16; 128 f32; 128 x 128 of f32 and of bf16.
    wanted = {
        "x": ("PipelineTmaAsync", 3, 16384, 16384, 1, 8),
        "w": ("PipelineTmaAsync", 3, 8192, 8192, 1, 4),
        "wide": ("PipelineAsync", 3, 16384, None, 128, 8),
        "scale": ("PipelineTmaAsync", 1, 512, 512, 1, 4),
        "acc": ("PipelineAsync", 1, 65536, None, 256, 4),
        "done": ("PipelineAsync", 1, 32768, None, 128, 1),
    }
    for pipe in made.pipelines:
        counts = (pipe.full_arrive_count, pipe.empty_arrive_count)
        assert wanted[pipe.name] == (
            pipe.construct,
            pipe.stages,
            pipe.stage_bytes,
            pipe.tx_count,
            *counts,
        )
    # 24 barriers before 1024; x to 50176, w to 74752, wide to 123904, scale to 124416; acc from
    # 124928 to 190464; done.
    assert made.number("smem_bytes").value == 190464 + 32768
    # 128 x 128 over two warpgroups; 18 warps are five warpgroups of 65536 / 640 registers, by 8.
    assert made.number("multiply_accumulators").value == 64
    assert made.number("launch_registers").value == 96
    assert made.number("threads").value == 32 * (8 + 4 + 4 + 1 + 1)


def test_multiply_twice_by_hand():
    made = plan(load_description(TWICE))
    sizes = {pipe.name: (pipe.stages, pipe.stage_bytes) for pipe in made.pipelines}
    # a 128 x 64 and b 64 x 64; c 128 x 64; the product 128 x 64 and the result 128 x 128; all bf16.
    assert sizes == {
        "ab": (4, 16384 + 8192),
        "c": (2, 16384),
        "between": (2, 16384),
        "done": (1, 32768),
    }
    pairs = {pipe.name: (pipe.producer, pipe.consumer) for pipe in made.pipelines}
    assert pairs["ab"] == pairs["c"] == ("tma", "wgmma")
    assert pairs["between"] == ("thread", "wgmma")
    assert pairs["done"] == ("thread", "thread")
    assert made.pipeline("between").full_arrive_count == 256  # both warpgroups round their sums
    assert made.number("smem_bytes").value == 1024 + 4 * 24576 + 4 * 16384 + 32768
    assert made.number("score_accumulators").value == 128 * 64 // 256


def test_loops_follow_from_the_symbols():
    once, twice = numbers_of(CONVERT), numbers_of(TWICE)
    assert (results(once.graph), loops(once.graph)) == (("M", "N"), ("K",))
    assert (results(twice.graph), loops(twice.graph)) == (("M", "P"), ("N", "K"))
    depths = {ring.name: twice.depth(ring) for ring in twice.graph.rings}
    assert depths == {"ab": 2, "c": 1, "between": 1, "done": 0}
    assert {role.name: twice.depth(role) for role in twice.graph.roles} == {
        "score": 2,
        "second": 1,
        "load": 2,
        "store": 0,
    }
    drawn = draw_text(twice)
    assert "ab (4 x 24576 B, at each step of K) -> score [wgmma, 8 warps]" in drawn
    assert "done (1 x 32768 B, once a tile) -> store [tma_store, 1 warp] -> out" in drawn


def test_the_first_operand_has_the_rows():
    graph = numbers_of(CONVERT).graph
    made = product_of(graph.role("multiply"))
    assert made is not None
    assert (made.a.part.name, made.b.part.name, made.over, made.columns) == ("x", "wide", "K", "N")
    parts = [made.b.part, made.a.part]
    assert result_dims(parts) == result_dims(parts[::-1]) == ("M", "N")
    assert result_dims([made.a.part, made.a.part]) is None
    assert result_dims([made.a.part]) is None
    assert product_of(graph.role("load")) is None


def test_what_is_expected_of_bodies_as_written():
    assert product_expected(numbers_of(TWICE).graph) == {"out": "((a @ b.T) @ c.T)"}
    # The epilogue as written adds its scale.
    assert product_expected(numbers_of(CONVERT).graph) == {"out": "(scale + (x @ w.T))"}
    graph = numbers_of(BIAS).graph
    assert product_expected(graph) == {"out": "(row[:, None] + (x @ w.T) + bias)"}


def test_converted_stages_are_published_to_wgmma():
    """Generic stores, the fence, then the arrive: wgmma reads through the async proxy."""
    fence = 'cute.arch.fence_proxy("async.shared", space="cta")'
    convert = branch_of(text_of(CONVERT), "convert")
    body = convert.index("convert(\n")
    assert body < convert.index(fence) < convert.index("wide_stage.commit()")
    # After its reads of w, and before the next load overwrites it.
    assert convert.index("wide_stage.commit()") < convert.rindex(fence)
    assert convert.rindex(fence) < convert.index("w_stage.release()")
    score = branch_of(text_of(TWICE), "score")
    assert score.index("store_sums(") < score.index(fence) < score.index("between_stage.commit()")
    # Threads read acc: no other proxy is in between.
    assert fence not in branch_of(text_of(CONVERT), "multiply")


def test_a_stage_goes_back_when_the_wgmmas_that_read_it_are_done():
    lines = [line.strip() for line in branch_of(text_of(CONVERT), "multiply").splitlines()]
    loop = lines.index("for _ in cutlass.range(tiles_k - 1, unroll=1):")
    waited = lines.index("warpgroup.wait_group(1)")
    released = lines.index("x_stage.release()")
    assert loop < waited < released < lines.index("x_stage, wide_stage = x_next, wide_next")
    last = lines.index("warpgroup.wait_group(0)")
    assert released < last < lines.index("x_stage.release()", last)
    assert "multiply_release_distance" in {n.name for n in plan(load_description(CONVERT)).numbers}


def test_with_one_stage_nothing_is_held():
    numbers = numbers_of(BIAS)
    assert numbers.release_distance(numbers.graph.role("multiply")) == 0
    multiply = branch_of(text_of(BIAS), "multiply")
    assert "_next" not in multiply
    assert "wait_group(1)" not in multiply
    assert multiply.index("warpgroup.wait_group(0)") < multiply.index("x_stage.release()")


def test_holding_the_only_stage_would_hang():
    """What the release distance is chosen for: the model finds the hang if it is not."""
    numbers = numbers_of(BIAS)

    class Late(ProductNumbers):
        def release_distance(self, role):
            return 1

    late = Late(numbers.graph, "sm_90a")
    assert find_together(numbers, 3) is None
    found = find_together(late, 3)
    assert found is not None
    assert found.kind == "deadlock"
    assert "multiply waits (waits for stage 0 of x, lap 1" in found.message


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_barriers_of_each_example(path):
    numbers = numbers_of(path)
    assert find_alone(numbers) is None
    for count in range(1, 7):
        assert find_together(numbers, count) is None


def test_unequal_trips_hang_in_the_model():
    """A convert that leaves out one step of a tile: multiply waits for it for ever."""
    numbers = numbers_of(CONVERT)
    rings, steps = modelled(numbers, 4)
    assert find_in_roles(rings, steps) is None
    steps["convert"].remove(next(step for step in steps["convert"] if step.takes))
    found = find_in_roles(rings, steps)
    assert found is not None
    assert "multiply waits (waits for stage 1 of wide" in found.message


@pytest.mark.parametrize(("end", "count"), [("full_count", 129), ("empty_count", 9)])
def test_a_wrong_count_at_wgmmas_ring_is_found(end, count):
    numbers = numbers_of(CONVERT)
    wide = alone(numbers, numbers.graph.ring("wide"))
    assert find_in_ring(wide) is None
    found = find_in_ring(replace(wide, **{end: count}))
    assert found is not None
    assert found.kind == "deadlock"


def test_a_role_may_keep_a_stage_for_several_steps():
    """Two stages taken before the first goes back, as wgmma does: each is counted once."""
    numbers = numbers_of(PLAIN)
    multiply = numbers.graph.role("multiply")
    assert numbers.sums(multiply, 3) == [
        Step(("xw",)),
        Step(("xw",), releases=("xw",)),
        Step(("xw",), releases=("xw",)),
        Step(releases=("xw",)),
    ]
    assert numbers.sums(multiply, 1) == [Step(("xw",)), Step(releases=("xw",))]


def test_tiles_that_registers_do_not_hold_are_handed_on_in_slabs():
    text = CONVERT.read_text().split("[role.epilogue]")[0].replace('expect = "(x @ w.T)', "#")
    numbers = numbers_of(text)
    epilogue = numbers.graph.role("epilogue")
    # 128 x 128 over 128 threads are 128 elements; of 96 registers 32 are for the rest.
    assert numbers.slabs(epilogue) == 2
    (emitted,) = render(plan(parse_description(text))).values()
    assert "for slab in cutlass.range(2, unroll=1):" in emitted
    assert "store_part(values, slab_of(done, 2, slab), EPILOGUE_WARPS, thread)" in emitted
    assert numbers.slabs(numbers.graph.role("convert")) == 1  # 128 x 64: 64


@pytest.mark.parametrize("backend", ["cute", "pallas"])
def test_blackwell_has_other_tensor_cores(backend):
    text = PLAIN.read_text().replace("sm_90a", "sm_100a").replace('"cute"', f'"{backend}"')
    with pytest.raises(InputError) as caught:
        parse_description(text)
    assert {problem.rule for problem in caught.value.problems} == {"PG278"}
    assert 'Nearest valid choice: "umma"' in str(caught.value)


@pytest.mark.parametrize("seed", range(DRAWN))
def test_random_products_are_written(seed):
    made = plan(description_from_data(product(seed)))
    (text,) = render(made).values()
    for pipe in made.pipelines:
        assert text.count(f"{pipe.name}_ring = pipeline.{pipe.construct}.create(") == 1
    if made.description.role["multiply"].warps:
        assert "warpgroup.fence()" in branch_of(text, "multiply")


COMPILE = """
import importlib, os, sys
sys.path.insert(0, sys.argv[1])
for name in sorted(os.listdir(sys.argv[1])):
    if name.startswith("product_"):
        module = importlib.import_module(name[:-3])
        module.compile_custom()
        print(name[:-3], module.SharedStorage.size_in_bytes(), flush=True)
"""


def test_random_products_compile_with_the_planned_smem(tmp_path):
    found = find_dsl("cute")
    if found.reason:
        pytest.skip(found.reason)
    planned = {}
    for seed in range(COMPILED):
        made = plan(description_from_data(product(seed)))
        planned[made.name] = made.number("smem_bytes").value
        for name, text in render(made).items():
            (tmp_path / name).write_text(text)
    (tmp_path / "run.py").write_text(COMPILE)
    done = subprocess.run(
        [sys.executable, tmp_path / "run.py", tmp_path],
        env={**os.environ, "CUTE_DSL_ARCH": "sm_90a"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    compiled = dict(line.split() for line in done.stdout.splitlines())
    assert {name: int(size) for name, size in compiled.items()} == planned
