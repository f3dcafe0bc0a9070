# SPDX-License-Identifier: Apache-2.0
"""Custom graphs with tcgen05: numbers by hand, TMEM, barriers, planted faults, compiling."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from random_products import product
from test_custom_products import COMPILE, branch_of, modelled, text_of

from pipegen.barriers import find_in_ring, find_in_roles
from pipegen.barriers.plans import find_in_plan
from pipegen.barriers.rings import Step
from pipegen.compiling.installed import dsl as find_dsl
from pipegen.description_file import description_from_data, load_description, parse_description
from pipegen.emulator.cases import output_tiles
from pipegen.errors import InputError
from pipegen.planning import plan
from pipegen.planning.custom.draw import draw_text
from pipegen.planning.custom.models import alone, find_alone, find_together
from pipegen.planning.custom.picture import draw_svg
from pipegen.planning.custom.product_bodies import product_expected
from pipegen.planning.custom.reading import read_graph
from pipegen.planning.custom.umma_numbers import UmmaNumbers
from pipegen.rendering import render

GENERATED = Path(__file__).parent.parent / "generated" / "cute"
PLAIN = GENERATED / "custom_sm100_multiply.toml"
CONVERT = GENERATED / "custom_sm100_convert_multiply.toml"
TWICE = GENERATED / "custom_sm100_multiply_twice.toml"
BOTH = GENERATED / "custom_sm100_multiply_two_readers.toml"
EXAMPLES = (PLAIN, CONVERT, TWICE, BOTH)
DRAWN, COMPILED = 12, 2  # random graphs


def numbers_of(given) -> UmmaNumbers:
    read = load_description(given) if isinstance(given, Path) else parse_description(given)
    graph = read_graph(plan(read).description)
    assert graph is not None
    return UmmaNumbers(graph, "sm_100a")


def test_convert_multiply_by_hand():
    made = plan(load_description(CONVERT))
    # 128 x 64 of bf16, 128 x 64 of i8, the same as bf16; 128 f32; 128 x 128 of f32 and of bf16.
    wanted = {
        "x": ("PipelineTmaUmma", 4, 16384, 16384, 1, 1),
        "w": ("PipelineTmaAsync", 4, 8192, 8192, 1, 4),
        "wide": ("PipelineAsyncUmma", 4, 16384, None, 128, 1),
        "scale": ("PipelineTmaAsync", 1, 512, 512, 1, 4),
        "acc": ("PipelineUmmaAsync", 2, 65536, None, 1, 4),
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
    # 32 barriers and TMEM's address before 1024; x to 66560, w to 99328, wide (97 * 1024) to
    # 164864, scale to 165376; done from 165888. No accumulator is in SMEM.
    assert made.number("smem_bytes").value == 165888 + 32768
    assert made.number("tmem_columns").value == 256
    # Who takes sums, and the warp that multiplies.
    assert made.number("tmem_threads").value == 128 + 32
    assert made.number("threads").value == 32 * (4 + 4 + 1 + 1 + 1)


def test_multiply_twice_by_hand():
    made = plan(load_description(TWICE))
    pairs = {pipe.name: (pipe.producer, pipe.consumer) for pipe in made.pipelines}
    assert pairs == {
        "ab": ("tma", "umma"),
        "c": ("tma", "umma"),
        "scores": ("umma", "thread"),
        "between": ("thread", "umma"),
        "acc": ("umma", "thread"),
    }
    # Two of 64 and two of 128 columns are 384, and powers of two are given out.
    assert made.number("tmem_columns").value == 512
    numbers = numbers_of(TWICE)
    rings = {ring.name: ring for ring in numbers.accumulator_rings}
    assert [numbers.first_column(rings[name]) for name in ("scores", "acc")] == [0, 128]
    assert numbers.tmem_threads == 2 * 128 + 2 * 32
    assert numbers.reader_threads == 2 * 128
    # 2 * (4 + 2 + 2 + 2 + 2) barriers and the address before 1024.
    assert made.number("smem_bytes").value == 1024 + 4 * 24576 + 2 * 16384 + 2 * 16384


@pytest.mark.parametrize(
    ("columns", "stages", "wanted", "allocated"),
    [(32, '"auto"', 2, 64), (256, '"auto"', 2, 512), (256, "1", 1, 256), (80, "3", 3, 256)],
)
def test_accumulators_and_the_columns_they_take(columns, stages, wanted, allocated):
    text = CONVERT.read_text().replace(
        '"multiply -> epilogue"', f'"multiply -> epilogue", stages = {stages}'
    )
    text = text.replace("[tensor]", f"[tile]\nn = {columns}\n[tensor]", 1)
    if columns == 80:  # 80 columns of i8 are no part of a warp: straight from TMA
        text = text.replace('dtype = "i8", ', "").replace("load -> convert", "load -> multiply")
        text = text.replace('wide = { edge = "convert -> multiply", dtype = "bf16" }\n', "")
    numbers = numbers_of(text)
    assert numbers.stages(numbers.graph.ring("acc")) == wanted
    assert numbers.tmem_columns == allocated
    assert numbers.piece == (16 if columns == 80 else 32)


def test_the_roles_that_take_sums_begin_at_warp_0_and_the_first_allocates():
    numbers = numbers_of(TWICE)
    assert [role.name for role in numbers.readers] == ["round", "epilogue"]
    assert [numbers.first_warp(role) for role in numbers.readers] == [0, 4]
    text = text_of(TWICE)
    assert text.count("tmem.allocate(TMEM_COLUMNS)") == text.count("tmem.free(tmem_ptr)") == 1
    assert "tmem.allocate(" in branch_of(text, "round")
    for role in ("round", "epilogue"):  # both have read, then one frees
        branch = branch_of(text, role)
        assert "NamedBarrier(FREE_BARRIER, READER_THREADS).arrive_and_wait()" in branch
    for role in ("round", "epilogue", "score", "second"):
        assert "tmem.wait_for_alloc()" in branch_of(text, role)


def test_an_accumulator_stays_open_over_a_sum():
    numbers = numbers_of(TWICE)
    score, second = (numbers.graph.role(name) for name in ("score", "second"))
    step = Step(("ab",), releases=("ab",))
    once = [Step(fills=("scores",)), step, step, Step(commits=("scores",))]
    assert numbers.loop(score, 1, 2) == once
    assert [each for each in numbers.loop(score, 0, 2) if each != Step()] == 2 * once
    assert numbers.loop(second, 0, 1) == [
        Step(fills=("acc",)),
        Step(("c", "between"), releases=("c", "between")),
        Step(commits=("acc",)),
    ]
    lines = [line.strip() for line in branch_of(text_of(TWICE), "score").splitlines()]
    order = [
        "for n in cutlass.range(tiles_n, unroll=1):",
        "scores_stage = scores_producer.acquire_and_advance()",
        "score_mma.set(tcgen05.Field.ACCUMULATE, False)",
        "for _ in cutlass.range(tiles_k, unroll=1):",
        "ab_stage.release()",
        "scores_stage.commit()",
    ]
    assert sorted(order, key=lines.index) == order


def test_what_threads_write_is_published_to_tcgen05():
    fence = 'cute.arch.fence_proxy("async.shared", space="cta")'
    convert, between = branch_of(text_of(CONVERT), "convert"), branch_of(text_of(TWICE), "round")
    assert convert.index("convert(\n") < convert.index(fence) < convert.index("wide_stage.commit()")
    assert between.index(fence) < between.index("between_stage.commit()")
    # The load has come back before the accumulator is given away: in the body, before the release.
    text = text_of(CONVERT)
    assert text.index("cute.copy(load,") < text.index("fence_view_async_tmem_load()")
    epilogue = branch_of(text, "epilogue")
    assert epilogue.index("epilogue(\n") < epilogue.index("acc_stage.release()")
    # TMA's bytes complete the barrier of a ring to tcgen05.
    load = branch_of(text, "load")
    assert "x_stage.commit()" not in load
    assert "w_stage.commit()" in load


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_barriers_of_each_example(path):
    numbers = numbers_of(path)
    assert find_alone(numbers) is None
    for count in range(1, 7):
        assert find_together(numbers, count) is None
    found, skipped = find_in_plan(plan(load_description(path)))
    assert (found, skipped) == ([], [])


@pytest.mark.parametrize(
    ("ring", "end", "count"),
    [
        ("wide", "full_count", 129),
        ("wide", "empty_count", 2),
        ("acc", "full_count", 2),
        ("acc", "empty_count", 5),
        ("x", "empty_count", 2),
    ],
)
def test_a_wrong_count_is_found_in_the_model(ring, end, count):
    numbers = numbers_of(CONVERT)
    model = alone(numbers, numbers.graph.ring(ring))
    assert find_in_ring(model) is None
    found = find_in_ring(replace(model, **{end: count}))
    assert found is not None
    assert found.kind == "deadlock"


def test_a_missing_commit_hangs_in_the_model():
    numbers = numbers_of(CONVERT)
    rings, steps = modelled(numbers, 3)
    assert find_in_roles(rings, steps) is None
    steps["multiply"].remove(Step(commits=("acc",)))
    found = find_in_roles(rings, steps)
    assert found is not None
    assert "epilogue waits (waits for stage 0 of acc, lap 0" in found.message


def test_the_emulator_fills_every_accumulator_again():
    assert output_tiles(plan(load_description(CONVERT))) == 3
    assert output_tiles(plan(load_description(GENERATED / "custom_sm90_multiply.toml"))) == 2


FAULTS = {
    "count": ("ACC_FULL, ACC_EMPTY = 1, 4", "ACC_FULL, ACC_EMPTY = 1, 5", "PG310"),
    "commit": ("            acc_stage.commit()\n", "", "PG310"),
    "free": ("        tmem.free(tmem_ptr)\n", "", "PG330"),
    "columns": ("TMEM_COLUMNS = 256", "TMEM_COLUMNS = 128", "PG331"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_by_the_emulator(fault, tmp_path):
    if reason := find_dsl("cute").reason:
        pytest.skip(reason)
    was, becomes, finding = FAULTS[fault]
    text = text_of(CONVERT)
    assert text.count(was) == 1
    module = tmp_path / "planted.py"
    module.write_text(text.replace(was, becomes))
    command = [sys.executable, "-m", "pipegen", "emulate", str(module)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1, done.stderr
    assert f"\n{finding} " in done.stdout


def test_the_drawing_says_what_is_in_tmem():
    numbers = numbers_of(TWICE)
    drawn = draw_text(numbers)
    assert "-> score [umma, 1 warp]" in drawn
    assert "scores (2 x 64 columns, at each step of N) -> round [thread, 4 warps]" in drawn
    assert "2 x 128 columns" in draw_svg(numbers, "twice")


def test_what_is_expected_of_bodies_as_written():
    assert product_expected(numbers_of(TWICE).graph) == {"out": "((a @ b.T) @ c.T)"}
    assert product_expected(numbers_of(CONVERT).graph) == {"out": "(scale + (x @ w.T))"}


def test_each_architecture_has_its_own_kind():
    for path, arch, other in ((PLAIN, "sm_90a", "wgmma"), (TWICE, "sm_90a", "wgmma")):
        with pytest.raises(InputError) as caught:
            parse_description(path.read_text().replace("sm_100a", arch))
        assert {problem.rule for problem in caught.value.problems} == {"PG278"}
        assert f'Nearest valid choice: "{other}"' in str(caught.value)


@pytest.mark.parametrize("seed", range(DRAWN))
def test_random_products_are_written(seed):
    made = plan(description_from_data(product(seed, "sm_100a")))
    (text,) = render(made).values()
    for pipe in made.pipelines:
        assert text.count(f"{pipe.name}_ring = pipeline.{pipe.construct}.create(") == 1
    assert find_in_plan(made)[0] == []
    assert "tcgen05.Field.ACCUMULATE, False" in branch_of(text, "multiply")
    assert text.count("tmem.free(tmem_ptr)") == 1


def test_random_products_compile_with_the_planned_smem(tmp_path):
    if reason := find_dsl("cute").reason:
        pytest.skip(reason)
    planned = {}
    for seed in range(COMPILED):
        made = plan(description_from_data(product(seed, "sm_100a")))
        planned[made.name] = made.number("smem_bytes").value
        for name, text in render(made).items():
            (tmp_path / name).write_text(text)
    (tmp_path / "run.py").write_text(COMPILE)
    done = subprocess.run(
        [sys.executable, tmp_path / "run.py", tmp_path],
        env={**os.environ, "CUTE_DSL_ARCH": "sm_100a"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    compiled = dict(line.split() for line in done.stdout.splitlines())
    assert {name: int(size) for name, size in compiled.items()} == planned


@pytest.mark.parametrize("name", ["PipelineTmaUmma", "PipelineAsyncUmma", "PipelineUmmaAsync"])
def test_the_classes_know_the_role(name, pipegen):
    said = " ".join(pipegen("explain", name).stdout.split())
    assert "a role of kind umma is the umma end" in said
