# SPDX-License-Identifier: Apache-2.0
"""Pallas modules in the emulator: one of each template is right, and planted faults are found."""

import ctypes
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from pipegen.compiling.installed import dsl
from pipegen.emulator.capture.entry import Parameter
from pipegen.emulator.mosaic.host_code import HostCodeError, functions, run_function
from pipegen.emulator.mosaic.runtime import run_host_code
from pipegen.emulator.ptx.parsing import parse
from pipegen.emulator.tensor_map import decode_tensor_map

ROOT = Path(__file__).parent.parent
PALLAS = ROOT / "generated" / "pallas"

needs_pallas = pytest.mark.skipif(not dsl("pallas").usable, reason=dsl("pallas").reason)

# One module of each template, by architecture.
RIGHT = {
    "sm_90a": (
        "pallas_gemm_sm90_ws_c2x1",
        "pallas_gemm_sm90_emit_pipeline",
        "pallas_gemm_sm90_pallas_call",
        "pallas_mixed_gemm_sm90_16x64",
        "pallas_stream_sm90_ws",
        "pallas_stream_sm90_emit_pipeline",
        "pallas_reduce_sm90_ws",
        "pallas_reduce_sm90_emit_pipeline",
        "pallas_custom_sm90_convert",
    ),
    "sm_100a": (
        "pallas_gemm_sm100",
        "pallas_gemm_sm100_clc",
        "pallas_gemm_sm100_pair",
        "pallas_gemm_sm100_pair_clc",
    ),
}
SMALL = {"m": 504, "n": 248, "k": 440}
# (what is broken, module, text and what takes its place, sizes) -> the code of the finding, and
# words of it.
BROKEN = {
    "sm_90a": (
        (
            "the store is not published",
            "pallas_gemm_sm90_ws",
            ["            plgpu.commit_smem()\n", ""],
            ("PG3", "async proxy"),
        ),
        (
            "one arrival too many",
            "pallas_gemm_sm90_ws",
            ["plgpu.Barrier(num_arrivals=2, num_barriers=MAINLOOP_STAGES)", "TOO_MANY"],
            ("PG310", "of 3 arrivals"),
        ),
    ),
    "sm_100a": (),
}


def run(arch: str, wanted: dict[str, object]) -> dict[str, dict[str, object]]:
    """What the emulator says of each."""
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "emulated_pallas.py", arch, json.dumps(wanted)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
