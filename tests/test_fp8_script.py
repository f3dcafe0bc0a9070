# SPDX-License-Identifier: Apache-2.0
"""benchmarks/fp8.py, with measurers whose kernels take the seconds that they are told."""

import importlib.util
import sys
from pathlib import Path

import pytest

from pipegen.measuring.protocol import Prepared

ROOT = Path(__file__).parent.parent
CUTE = ROOT / "generated" / "cute"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("fp8", ROOT / "benchmarks" / "fp8.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Fake:
    def __init__(self, seconds, asked):
        self.seconds, self.asked, self.lost = seconds, asked, {}

    def prepare(self, shape, entrants, peers):
        names = tuple(entrant.name for entrant in entrants)
        return Prepared(names, {peer: {"": peer} for peer in peers}, {}, 8 * 10**12, "graph", 2)

    def time(self, names, rounds, seconds):
        self.asked.append(names[0])
        return {name: [self.seconds[name]] * rounds for name in names}


def test_types_take_turns_and_the_fastest_of_each_are_compared(script):
    modules = [CUTE / f"gemm_sm90_{name}.py" for name in ("e4m3", "pingpong_e4m3", "c2x1")]
    groups = script.by_type(modules)
    assert {word: [each.name for each in group] for word, group in groups.items()} == {
        "e4m3": ["gemm_sm90_e4m3", "gemm_sm90_pingpong_e4m3"],
        "bf16": ["gemm_sm90_c2x1"],
    }
    asked = []
    fakes = {
        "e4m3": Fake({"gemm_sm90_e4m3": 2.0, "gemm_sm90_pingpong_e4m3": 1.0, "cublas": 0.5}, asked),
        "bf16": Fake({"gemm_sm90_c2x1": 1.9, "cublas": 1.9}, asked),
    }
    row = script.together(fakes, groups, (4, 8, 16), 3, 0.01)
    assert asked == ["gemm_sm90_e4m3", "gemm_sm90_c2x1"] * 3
    assert row["rows"]["e4m3"]["best"] == "gemm_sm90_pingpong_e4m3"
    assert row["rows"]["e4m3"]["peers"]["cublas"]["ratio"] == 0.5
    assert row["rows"]["bf16"]["rate"] == pytest.approx(8 / 1.9)
    assert row["ratio"]["bf16"]["ratio"] == pytest.approx(1.9)
