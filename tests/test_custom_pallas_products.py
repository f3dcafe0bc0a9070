# SPDX-License-Identifier: Apache-2.0
"""Custom Pallas graphs with roles that multiply: numbers by hand, barriers, faults, compiling."""

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import environments
import pytest
from interpretable import case
from random_products import product

from pipegen.barriers import find_in_ring
from pipegen.compiling.installed import dsl as find_dsl
from pipegen.description_file import description_from_data, load_description, parse_description
from pipegen.errors import InputError
from pipegen.planning import plan
from pipegen.planning.custom.models import alone, find_alone, find_together
from pipegen.planning.custom.pallas_numbers import PallasProductNumbers
from pipegen.planning.custom.product_numbers import numbers_for
from pipegen.planning.custom.reading import read_graph
from pipegen.rendering import render

GENERATED = Path(__file__).parent.parent / "generated"
CONVERT, TWICE, PLAIN, BIAS = (
    GENERATED / "pallas" / f"pallas_custom_sm90_{name}.toml"
    for name in ("convert_multiply", "multiply_twice", "multiply", "multiply_bias")
)
EXAMPLES = (CONVERT, TWICE, PLAIN, BIAS)
LIMIT_SECONDS = 120  # for one tile, which takes five on an idle machine
WRITTEN, COMPILED = 8, (2, 8)  # random graphs: how many, and which


def numbers_of(read) -> PallasProductNumbers:
    graph = read_graph(plan(read).description)
    assert graph is not None
    found = numbers_for(graph, "sm_90a", "pallas")
    assert isinstance(found, PallasProductNumbers)
    return found


def branch_of(text: str, role: str) -> str:
    """The lines of a role in the emitted kernel."""
    return re.split(r"\n    # ---- |\n\n\ndef ", text.split(f"# ---- {role} -")[1])[0]


def text_of(path: Path) -> str:
    return path.with_suffix(".py").read_text(encoding="utf-8")


def test_convert_multiply_by_hand():
    made = plan(load_description(CONVERT))
    # 64 x 64 of bf16; 128 x 64 of i8, the same as bf16; 128 f32; 64 x 128 of f32 and of bf16.
    assert {
        pipe.name: (
            pipe.stages,
            pipe.stage_bytes,
            pipe.full_arrive_count,
            pipe.empty_arrive_count,
        )
        for pipe in made.pipelines
    } == {
        "x": (4, 8192, 1, 1),
        "w": (4, 8192, 1, 1),
        "wide": (4, 16384, 1, 1),
        "scale": (1, 512, 1, 1),
        "acc": (1, 32768, 1, 1),
        "done": (1, 16384, 1, 1),
    }
    # scale's buffer ends at a multiple of 1024; 15 stages have two barriers of 8 B each.
    stages = 4 * (8192 + 8192 + 16384) + 1024 + 32768 + 16384
    assert made.number("smem_bytes").value == stages + 15 * 16
    # Five warpgroups: 65536 / 640 registers, by 8; 64 x 128 sums over 128 threads.
    assert made.number("launch_registers").value == 96
    assert made.number("multiply_accumulators").value == 64


def test_whole_warpgroups_arrive_and_each_copy():
    bias, plain = plan(load_description(BIAS)), plan(load_description(PLAIN))
    # add has two warpgroups, multiply one; of 128 x 128 multiply has two by itself.
    assert bias.pipeline("product").empty_arrive_count == 2
    assert bias.pipeline("product").full_arrive_count == 1
    # x and w are two copies into one stage.
    assert plain.pipeline("xw").full_arrive_count == 2
    assert plain.pipeline("xw").empty_arrive_count == 2


@pytest.mark.parametrize(
    ("cute", "tile"),
    [
        # Three warpgroups start with 168 registers a thread, four with 128, six with 80.
        ("custom_sm90_multiply", (128, 128, 64, None)),
        ("custom_sm90_multiply_twice", (64, 64, 64, 128)),
    ],
)
def test_what_the_cute_dsl_has_is_described_alike(cute, tile):
    """The same file with another backend; the tile is one that leaves accumulators room."""
    text = (GENERATED / "cute" / f"{cute}.toml").read_text()
    made = plan(parse_description(text.replace('"cute"', '"pallas"')))
    chosen = made.description.tile
    assert (chosen.m, chosen.n, chosen.k, chosen.p) == tile
    assert numbers_of(made.given).fits_registers


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_barriers_of_each_example(path):
    numbers = numbers_of(load_description(path))
    assert find_alone(numbers) is None
    for count in range(1, 6):
        assert find_together(numbers, count) is None


@pytest.mark.parametrize(
    ("ring", "end", "count"), [("xw", "full_count", 1), ("xw", "empty_count", 1)]
)
def test_a_wrong_count_is_found(ring, end, count):
    """One arrival for two copies, or for two warpgroups, and the stage is taken too early."""
    numbers = numbers_of(load_description(PLAIN))
    whole = alone(numbers, numbers.graph.ring(ring))
    assert find_in_ring(whole) is None
    assert find_in_ring(replace(whole, **{end: count})) is not None


def test_a_stage_goes_back_when_the_wgmmas_that_read_it_are_done():
    """No interpreter has a wgmma under way, so the order of the lines is looked at here."""
    multiply = branch_of(text_of(CONVERT), "multiply")
    looped = multiply.index("plgpu.wgmma_wait(1)")
    assert multiply.index("multiply(x_smem") < looped < multiply.index("@pl.when(k > 0)")
    assert looped < multiply.index("release(x_empty, k_step - 1, X_STAGES)")
    last = multiply.index("plgpu.wgmma_wait(0)")
    assert last < multiply.index("release(x_empty, (trip + 1) * tiles_k - 1, X_STAGES)")
    single = branch_of(text_of(BIAS), "multiply")  # one stage: nothing is held
    assert "wgmma_wait(1)" not in single
    assert single.index("wgmma_wait(0)") < single.index("release(x_empty, k_step, X_STAGES)")


FAULTS = {
    "no fence": ("convert", "                plgpu.commit_smem()\n", ""),
    "no wait for a full stage": (
        "multiply",
        "wide_stage = wait(wide_full, k_step, WIDE_STAGES)",
        "wide_stage = lax.rem(k_step, jnp.int32(WIDE_STAGES))",
    ),
}
# One tile in jax's interpreter as interpreters.py completes it.
ONE_TILE = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import interpret_modules, interpreters
interpreters.prepare()
interpret_modules.load(Path(sys.argv[2]), {}).main(["--interpret", "--size", "64,128,64"])
"""


def says_race(python: str, module: Path, log: Path) -> bool:
    """Whether a race is reported: by an exception in one thread, for which others may wait on."""
    with log.open("w") as out:
        running = subprocess.Popen(
            [python, "-c", ONE_TILE, Path(__file__).parent, module],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "NPROC": "16"},
        )
    try:
        for _ in range(2 * LIMIT_SECONDS):
            ended = running.poll() is not None
            if "RACE DETECTED" in log.read_text(errors="replace"):
                return True
            if ended:
                return False
            time.sleep(0.5)
    finally:
        running.kill()
        running.wait()
    raise TimeoutError(log.read_text(errors="replace"))


def test_without_a_fault_there_is_no_race(newest_jax, tmp_path):
    assert not says_race(newest_jax, CONVERT.with_suffix(".py"), tmp_path / "log")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(newest_jax, fault, tmp_path):
    role, old, new = FAULTS[fault]
    text = text_of(CONVERT)
    branch = branch_of(text, role)
    assert branch.count(old) == 1
    planted = tmp_path / "planted.py"
    planted.write_text(text.replace(branch, branch.replace(old, new)))
    assert says_race(newest_jax, planted, tmp_path / "log")


BAD: dict[str, tuple[object, ...]] = {
    "tile.m": (0, -1, 8, 96),
    "tile.n": (0, 24, 512),
    "tile.k": (-1, 8, 48),
    "role.multiply.warps": (1, 2, 3, 32),
    "role.epilogue.kind": ("wgmma", "cp_async", "tma"),
    "pipeline.wide.stages": (0, 33),
    "pipeline.wide.dtype": ("i4", "f32"),
    "pipeline.acc.shape": ("M, K", "N"),
    "tensor.x.dtype": ("i4", "e4m3", "f16"),
    "tensor.scale.shape": ("P", "é"),
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


@pytest.mark.parametrize("seed", range(WRITTEN))
def test_random_products_are_written(seed):
    """Each ring has its two barriers, each role its branch, and no line is too long."""
    made = plan(description_from_data(product(seed, backend="pallas")))
    (text,) = render(made).values()
    for pipe in made.pipelines:
        counts = (pipe.full_arrive_count, pipe.empty_arrive_count)
        upper = pipe.name.upper()
        assert f"{upper}_FULL, {upper}_EMPTY = {counts[0]}, {counts[1]}  #" in text
        assert text.count(f"num_barriers={upper}_STAGES") == 2
    assert text.count("@pl.when(warpgroup") + text.count("@pl.when((warpgroup") == len(made.roles)
    assert max(map(len, text.splitlines())) <= 100


def test_random_products_compile_without_spills(tmp_path):
    found = find_dsl("pallas")
    if found.reason:
        pytest.skip(found.reason)
    for seed in COMPILED:
        made = plan(description_from_data(product(seed, backend="pallas")))
        ((name, text),) = render(made).items()
        (tmp_path / name).write_text(text)
        dump = tmp_path / made.name
        dump.mkdir()
        done = subprocess.run(
            [sys.executable, tmp_path / name, "--compile-only"],
            env={**os.environ, "MOSAIC_GPU_DUMP_PTXAS": "1", "MOSAIC_GPU_DUMP_TO": str(dump)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        (report,) = dump.glob("*.ptxas")
        assert " 0 bytes spill stores" in report.read_text(errors="replace")


def test_a_random_product_is_right_when_interpreted(newest_jax, tmp_path):
    ((name, text),) = render(plan(description_from_data(product(12, backend="pallas")))).items()
    (tmp_path / name).write_text(text)
    (result,) = environments.interpret(newest_jax, [case(tmp_path / name)], tmp_path)
    assert result["verdict"] == "pass", result["said"]
