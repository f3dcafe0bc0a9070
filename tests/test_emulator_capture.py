# SPDX-License-Identifier: Apache-2.0
"""Launches are captured without a GPU, and say what the plan and the arrays say.

The references are independent of the capture: the plan computes threads, cluster and SMEM, and
numpy knows the arrays' strides.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipegen.compiling.installed import dsl as find_dsl
from pipegen.description_file import load_description
from pipegen.emulator.launch import TensorMap
from pipegen.emulator.tensor_map import decode_tensor_map
from pipegen.planning import Plan, plan

ROOT = Path(__file__).parent.parent
SMS = 4
# One of each family and way to load; `make emulated` runs them all.
MODULES = {
    "sm_90a": (
        "gemm_sm90_c2x1",
        "gemm_sm90_a_m_b_n_major",
        "gemm_sm90_cp_async",
        "gemm_sm90_pingpong_c2x1",
        "mixed_gemm_sm90_i4_g128_16x64",
        "stream_sm90_tma_row_c2x1",
        "stream_sm90_thread_gather",
        "custom_sm90_many_rings",
    ),
    "sm_100a": (
        "gemm_sm100_c2x1",
        "gemm_sm100_clc_pair_c2x1",
        "gemm_rowsum_sm100_c2x1",
        "mixed_gemm_sm100",
    ),
}
CASES = [(arch, name) for arch, names in MODULES.items() for name in names]

needs_cute = pytest.mark.skipif(
    not find_dsl("cute").versions, reason="nvidia-cutlass-dsl is not installed"
)


def _path(name: str) -> Path:
    return ROOT / "generated" / "cute" / f"{name}.py"


@pytest.fixture(scope="session")
def captured():
    """Module name -> what its self-check launched, from one process an architecture."""
    found = {}
    for arch, names in MODULES.items():
        done = subprocess.run(
            [sys.executable, ROOT / "tests" / "captured.py", arch, *map(str, map(_path, names))],
            capture_output=True,
            text=True,
            check=False,
            env={k: v for k, v in os.environ.items() if not k.startswith("CUTE_")}
            | {"PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found |= {Path(file).stem: entry for file, entry in json.loads(done.stdout).items()}
    return found


@pytest.fixture(scope="session")
def plans():
    """Module name -> its plan."""
    return {name: plan(load_description(_path(name).with_suffix(".toml"))) for _, name in CASES}


@needs_cute
@pytest.mark.parametrize(("arch", "name"), CASES, ids=[name for _, name in CASES])
def test_the_launch_is_as_planned(captured, plans, arch, name):
    """Threads, SMEM and cluster of the plan; CTAs that the SMs hold at once, or one a tile."""
    (launch,) = captured[name]["launches"]
    made: Plan = plans[name]
    asked = made.description.cluster
    cluster = asked.shape if asked and asked.shape else (1, 1)
    assert launch["block"] == [made.number("threads").value, 1, 1]
    assert launch["smem_bytes"] == made.number("smem_bytes").value
    assert launch["cluster"] == [*cluster, 1]
    assert launch["sms"] == SMS
    ctas = math.prod(launch["grid"])
    assert ctas % math.prod(cluster) == 0
    if made.number("grid").value == "persistent":
        blocks = {each.name: each.value for each in made.numbers}.get("blocks_per_sm", 1)
        assert ctas <= SMS * blocks
    elif made.number("grid").value == "a few tiles a block":
        tile, each = made.description.tile, made.number("tiles_per_block").value
        tiles = math.ceil(300 / tile.m / cluster[0]) * math.ceil(264 / tile.n)  # of a cluster
        most = SMS // cluster[0] * made.number("blocks_per_sm").value
        assert ctas == cluster[0] * min(tiles, max(most, math.ceil(tiles / each)))
    else:  # a CTA for each tile of 300 x 264, rounded up to clusters
        tile = made.description.tile
        rows = math.ceil(300 / tile.m / cluster[0]) * cluster[0]
        assert ctas == rows * math.ceil(264 / tile.n / cluster[1]) * cluster[1]


@needs_cute
@pytest.mark.parametrize(("arch", "name"), CASES, ids=[name for _, name in CASES])
def test_nothing_ran(captured, arch, name):
    """Captured only: the self-check finds its poison, which shows that it can fail."""
    assert not captured[name]["passed"]
    assert "FAIL" in captured[name]["said"]


@needs_cute
@pytest.mark.parametrize(("arch", "name"), CASES, ids=[name for _, name in CASES])
def test_tensor_maps_describe_the_arrays(captured, plans, arch, name):
    """Address, sizes and strides are numpy's; a swizzled box is as wide as its swizzle."""
    (launch,) = captured[name]["launches"]
    arrays = launch["arrays"]
    maps = [
        decode_tensor_map(bytes.fromhex(param)) for param in launch["params"] if len(param) == 256
    ]
    copies = [p for p in plans[name].pipelines if "Tma" in p.construct]
    assert bool(maps) == bool(copies), "a map for what TMA copies, and none without"
    for each in maps:
        (array,) = [a for a in arrays.values() if a["address"] == each.address]
        _compare(each, array)
        assert each.box_bytes % 16 == 0
        if each.swizzle:
            assert each.box[0] * each.smem_bits // 8 == each.swizzle


def _compare(found: TensorMap, array: dict) -> None:
    """A map's sizes and strides with an array's, innermost dimension last in numpy."""
    shape, strides = array["shape"][::-1], array["strides"][::-1]
    # The map may see several narrow elements as one wide one: int8 pairs, packed nibbles.
    packed = found.element_bits // 8 // array["width"]
    assert found.sizes[0] == math.ceil(shape[0] / packed)
    rows = [(size, stride) for size, stride in zip(shape[1:], strides[1:], strict=True)]
    rows += [(1, 0)] * (found.rank - 1 - len(rows))
    for size, stride, (wanted, step) in zip(found.sizes[1:], found.strides, rows, strict=True):
        assert size == wanted
        assert stride == step or size == 1


@needs_cute
@pytest.mark.parametrize(("arch", "name"), CASES, ids=[name for _, name in CASES])
def test_buffers_are_the_arguments(captured, arch, name):
    """The ranges that a kernel may touch: each argument, from its first to its last element."""
    (launch,) = captured[name]["launches"]
    buffers = {found: (address, size) for found, address, size in launch["buffers"]}
    assert buffers.keys() == launch["arrays"].keys()
    for found, array in launch["arrays"].items():
        steps = zip(array["shape"], array["strides"], strict=True)
        size = sum((count - 1) * stride for count, stride in steps) + array["width"]
        assert buffers[found] == (array["address"], size)


@needs_cute
def test_parameters_are_passed_by_value(captured):
    """Scalars arrive as the host computed them: a CTA tile count, little endian."""
    (launch,) = captured["gemm_sm90_c2x1"]["launches"]
    # k tiles, clusters along M and N, tiles: ceil(200 / 64), ceil(300 / 256), ceil(264 / 256).
    assert [int.from_bytes(bytes.fromhex(p), "little") for p in launch["params"][-4:]] == [
        4, 2, 2, 4,
    ]  # fmt: skip


@needs_cute
def test_the_ptx_names_source_lines(captured):
    """A finding can say which line of the module it is about."""
    for entry in captured.values():
        assert all(launch["source_lines"] > 50 for launch in entry["launches"])
