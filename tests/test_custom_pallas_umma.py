# SPDX-License-Identifier: Apache-2.0
"""Custom Pallas graphs with tcgen05: numbers by hand, TMEM, barriers, faults, compiling."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from random_products import product
from test_custom_pallas_products import branch_of, text_of

from pipegen.barriers import find_in_ring
from pipegen.compiling.installed import dsl as find_dsl
from pipegen.description_file import description_from_data, load_description, parse_description
from pipegen.errors import InputError
from pipegen.planning import plan
from pipegen.planning.custom.models import alone, find_alone, find_together
from pipegen.planning.custom.pallas_umma_numbers import PallasUmmaNumbers
from pipegen.planning.custom.product_numbers import numbers_for
from pipegen.planning.custom.reading import read_graph
from pipegen.rendering import render

GENERATED = Path(__file__).parent.parent / "generated"
CONVERT, PLAIN, TWICE = (
    GENERATED / "pallas" / f"pallas_custom_sm100_{name}.toml"
    for name in ("convert_multiply", "multiply", "multiply_twice")
)
EXAMPLES = (CONVERT, PLAIN, TWICE)
WARPGROUP = 128
WRITTEN, COMPILED = 8, 14  # random graphs: how many, and which one: two products, five roles


def numbers_of(read) -> PallasUmmaNumbers:
    graph = read_graph(plan(read).description)
    assert graph is not None
    found = numbers_for(graph, "sm_100a", "pallas")
    assert isinstance(found, PallasUmmaNumbers)
    return found


def test_convert_multiply_by_hand():
    made = plan(load_description(CONVERT))
    # 128 x 64 of bf16, 128 x 64 of i8, the same as bf16; 128 f32; 128 x 128 of f32 and of bf16.
    assert {
        pipe.name: (
            pipe.stages,
            pipe.stage_bytes,
            pipe.full_arrive_count,
            pipe.empty_arrive_count,
        )
        for pipe in made.pipelines
    } == {
        "x": (4, 16384, 1, 1),
        "w": (4, 8192, 1, 1),
        "wide": (4, 16384, 1, 1),
        "scale": (1, 512, 1, 1),
        "acc": (2, 65536, 1, 1),
        "done": (1, 32768, 1, 1),
    }
    # scale's buffer ends at a multiple of 1024; 16 stages have two barriers of 8 B each, and TMEM
    # its address. No accumulator is in SMEM.
    stages = 4 * (16384 + 8192 + 16384) + 1024 + 32768
    assert made.number("smem_bytes").value == stages + 16 * 16 + 4
    assert made.number("tmem_columns").value == 2 * 128
    # Five warpgroups, and 64 columns of bf16 are a swizzle of 128 B.
    assert made.number("threads").value == 5 * 128
    assert made.number("piece").value == 64


def test_two_products_have_an_accumulator_each():
    made = plan(load_description(TWICE))
    # Two of 64 columns and two of 128 are 384, and powers of two are given out.
    assert made.number("tmem_columns").value == 512
    text = text_of(TWICE)
    assert "plgpu.TMEM((TILE_M, SCORES_STAGES * TILE_N), jnp.float32)" in text
    assert "plgpu.TMEM((TILE_M, ACC_STAGES * TILE_P), jnp.float32)" in text
    lines = [line.strip() for line in branch_of(text, "score").splitlines()]
    order = [
        "def _(n):",
        "scores_stage = acquire(scores_empty, n_step, SCORES_STAGES)",
        "def _(k):",
        "plgpu.tcgen05_commit_arrive(ab_empty.at[ab_stage])",
        "plgpu.tcgen05_commit_arrive(scores_full.at[scores_stage])",
    ]
    assert sorted(order, key=lines.index) == order


def test_barriers_of_tcgen05_order_it():
    """Those to which it commits, and those that hand TMEM over; no other."""
    text = text_of(CONVERT)
    wanted = {"X_EMPTY", "WIDE_EMPTY", "ACC_FULL", "ACC_EMPTY"}
    for name in ("X", "W", "WIDE", "SCALE", "ACC", "DONE"):
        for side in (f"{name}_FULL", f"{name}_EMPTY"):
            (line,) = [each for each in text.splitlines() if f"num_arrivals={side}," in each]
            assert ("orders_tensor_core=True" in line) == (side in wanted), line


@pytest.mark.parametrize(
    "name", ["custom_sm100_multiply_twice", "custom_sm100_multiply_two_readers"]
)
def test_what_the_cute_dsl_has_is_described_alike(name):
    text = (GENERATED / "cute" / f"{name}.toml").read_text().replace('"cute"', '"pallas"')
    if "two_readers" in name:
        text = text.replace("n = 80", "n = 96")  # 80 columns of f32 are no whole swizzles of 128 B
    numbers = numbers_of(parse_description(text))
    assert numbers.fits_registers
    ring = numbers.accumulator_rings[-1]
    assert numbers.empty_count(ring) == len(ring.targets)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_barriers_of_each_example(path):
    numbers = numbers_of(load_description(path))
    assert find_alone(numbers) is None
    for count in range(1, 6):
        assert find_together(numbers, count) is None


@pytest.mark.parametrize(
    ("path", "ring", "end", "count"),
    [
        (PLAIN, "xw", "full_count", 1),  # two copies
        (PLAIN, "xw", "empty_count", 2),  # one commit
        (CONVERT, "acc", "full_count", 2),
        (CONVERT, "acc", "empty_count", 4),  # warps do not arrive, the warpgroup does
    ],
)
def test_a_wrong_count_is_found(path, ring, end, count):
    numbers = numbers_of(load_description(path))
    whole = alone(numbers, numbers.graph.ring(ring))
    assert find_in_ring(whole) is None
    assert find_in_ring(replace(whole, **{end: count})) is not None


def expected_mbarriers(numbers: PallasUmmaNumbers) -> Counter:
    """Arrive counts as Mosaic GPU initialises them: its warpgroups and copies arrive by thread.

    One thread arrives for all where tcgen05 commits, and where a barrier orders the tensor core.
    """
    counts: Counter[int] = Counter()
    for ring in numbers.graph.rings:
        by_one = (ring.in_tmem, ring.in_tmem or ring.consumer == "umma")
        each = (numbers.full_count(ring), numbers.empty_count(ring))
        for arrivals, one in zip(each, by_one, strict=True):
            counts[arrivals * (1 if one else WARPGROUP)] += numbers.stages(ring)
    return counts


def compiled(module: Path) -> dict:
    """What `pipegen check` says of a module."""
    found = find_dsl("pallas")
    if found.reason:
        pytest.skip(found.reason)
    done = subprocess.run(
        [sys.executable, "-m", "pipegen", "check", module, "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    (entry,) = json.loads(done.stdout)["modules"]
    assert entry["compile"]["status"] == "ok", entry["compile"]["message"]
    return entry["compile"]


def agrees(report: dict, numbers: PallasUmmaNumbers) -> None:
    """The compiler's SMEM, TMEM and arrive counts are the plan's, and nothing spills."""
    assert report["spill_bytes"] == 0
    assert report["smem_bytes"] == numbers.smem_bytes
    assert report["tmem_columns"] == numbers.tmem_columns
    (kernel,) = report["kernels"]
    assert Counter(kernel["mbarrier_counts"]) == expected_mbarriers(numbers)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_compiler_agrees_with_the_plan(path):
    numbers = numbers_of(load_description(path))
    report = compiled(path.with_suffix(".py"))
    agrees(report, numbers)
    other = numbers_of(load_description(PLAIN if path != PLAIN else CONVERT))
    with pytest.raises(AssertionError):
        agrees(report, other)


def test_a_random_product_compiles_as_planned(tmp_path):
    made = plan(description_from_data(product(COMPILED, "sm_100a", "pallas")))
    ((name, text),) = render(made).items()
    (tmp_path / name).write_text(text)
    agrees(compiled(tmp_path / name), numbers_of(made.given))


@pytest.mark.parametrize("seed", range(WRITTEN))
def test_random_products_are_written(seed):
    """Each ring has its two barriers, each role its branch, and no line is too long."""
    made = plan(description_from_data(product(seed, "sm_100a", "pallas")))
    (text,) = render(made).values()
    for pipe in made.pipelines:
        counts = (pipe.full_arrive_count, pipe.empty_arrive_count)
        upper = pipe.name.upper()
        assert f"{upper}_FULL, {upper}_EMPTY = {counts[0]}, {counts[1]}  #" in text
        assert text.count(f"num_barriers={upper}_STAGES") == 2
    assert text.count("@pl.when(warpgroup") + text.count("@pl.when((warpgroup") == len(made.roles)
    assert max(map(len, text.splitlines())) <= 100


BAD: dict[str, tuple[object, ...]] = {
    "tile.m": (0, -1, 64, 96, 256),
    "tile.n": (0, 24, 512),
    "tile.k": (-1, 8, 48),
    "role.multiply.warps": (1, 8),
    "role.multiply.kind": ("wgmma", "thread"),
    "role.multiply.finish": ("sums = sums",),
    "role.epilogue.kind": ("umma", "cp_async", "tma"),
    "role.epilogue.warps": (1, 8),
    "pipeline.wide.dtype": ("i4", "f32"),
    "pipeline.acc.stages": (0, 9),
    "pipeline.acc.dtype": ("bf16",),
    "pipeline.done.dtype": ("i4",),
    "pipeline.done.shape": ("M", "N"),
    "tensor.x.dtype": ("i4", "e4m3", "f16"),
}


@pytest.mark.parametrize("key", BAD)
def test_a_bad_value_is_refused(key):
    """With a paragraph, whatever else the value breaks on the way."""
    for value in BAD[key]:
        data = load_description(CONVERT).model_dump(exclude_unset=True)
        *sections, leaf = key.split(".")
        table = data
        for section in sections:
            table = table.setdefault(section, {})
        table[leaf] = value
        with pytest.raises(InputError) as caught:
            plan(description_from_data(data))
        assert "Nearest valid choice" in str(caught.value), (key, value)
