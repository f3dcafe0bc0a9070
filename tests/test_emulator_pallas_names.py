# SPDX-License-Identifier: Apache-2.0
"""Findings in Pallas kernels name an mbarrier as the kernel does, or say no name."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pipegen.compiling.installed import dsl
from pipegen.emulator.mosaic import barrier_names
from pipegen.emulator.mosaic.barrier_names import named

ROOT = Path(__file__).parent.parent
needs_pallas = pytest.mark.skipif(not dsl("pallas").usable, reason=dsl("pallas").reason)


@pytest.mark.parametrize(
    ("name", "others", "in_pipeline", "expected"),
    [
        ("x_full", ["x_full", "x_empty"], False, "x_full"),
        ("stages['in_smem_barrier_ref']", [], False, "stages: inputs loaded"),
        ("stages['flat_produced_barrier_refs'][0]", [], False, "stages: inputs loaded"),
        (
            "stages['flat_consumed_barrier_refs'][1]",
            [f"stages['flat_consumed_barrier_refs'][{n}]" for n in (0, 1)],
            False,
            "stages: input 1 consumed",
        ),
        (
            "flat_consumed_barrier_refs[0]",
            ["flat_consumed_barrier_refs[0]", "flat_produced_barrier_refs[0]"],
            True,
            "emit_pipeline_warp_specialized: inputs consumed",
        ),
        ("", [""], True, "emit_pipeline: inputs loaded"),
        # Nothing says which of two it is, and a user's scope without names says nothing at all.
        ("", ["", ""], True, ""),
        ("", [""], False, ""),
    ],
)
def test_what_a_barrier_is_called(name, others, in_pipeline, expected):
    assert named(name, others or [name], in_pipeline) == expected


def test_stages_are_numbered_and_scopes_that_share_a_place_are_both_told():
    names: dict[int, str] = {}
    barrier_names._note(names, 64, "ring", (2,))
    barrier_names._note(names, 80, "done", (1,))
    barrier_names._note(names, 88, "grid", (2, 3))
    barrier_names._note(names, 80, "done", (1,))
    barrier_names._note(names, 64, "", (1,))
    barrier_names._note(names, 72, "later", (1,))
    assert names[64] == "ring, stage 0 of 2"
    assert names[72] == "ring, stage 1 of 2 or later"
    assert names[80] == "done"
    assert names[88 + 4 * 8] == "grid, stage (1, 1) of 2 x 3"


def test_a_jax_that_is_not_as_expected_gives_no_names(monkeypatch):
    def absent(name: str) -> SimpleNamespace:
        return SimpleNamespace(ModuleContext=SimpleNamespace())

    monkeypatch.setattr(barrier_names.importlib, "import_module", absent)
    with barrier_names.noting_barriers() as names:
        pass
    assert names == {}


# The ring's second stage is never filled; the pipeline's first input is never given back.
KERNELS = """
import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import pipegen


def fill(x_gmem, out_gmem, buffer, ring, done):
    plgpu.copy_gmem_to_smem(x_gmem, buffer, ring.at[0])
    plgpu.barrier_wait(ring.at[0])
    plgpu.barrier_arrive(done)
    plgpu.barrier_wait(ring.at[1])
    out_gmem[...] = buffer[...]


def copied(gmem, out_gmem):
    def step(index, x_smem, y_smem, *consumed):
        plgpu.barrier_arrive(consumed[1])

    spec = plgpu.BlockSpec((128,), lambda step: (step,))
    plgpu.emit_pipeline_warp_specialized(
        step,
        grid=(4,),
        in_specs=[spec, spec],
        max_concurrent_steps=2,
        num_compute_wgs=1,
        memory_registers=40,
        wg_axis="warpgroup",
        manual_consumed_barriers=True,
    )(gmem, gmem)


def summed(gmem, out_gmem):
    def step(index, x_smem):
        pass

    spec = plgpu.BlockSpec((128,), lambda step: (step,))
    plgpu.emit_pipeline(step, grid=(4,), in_specs=[spec], max_concurrent_steps=3)(gmem)


short = jax.ShapeDtypeStruct((128,), jnp.float32)
scratch = {
    "buffer": plgpu.SMEM((128,), jnp.float32),
    "ring": plgpu.Barrier(num_barriers=2),
    "done": plgpu.Barrier(),
}
threads = {"num_threads": 2, "thread_name": "warpgroup"}
for kernel, size in (
    (plgpu.kernel(fill, out_type=short, scratch_types=scratch), 128),
    (plgpu.kernel(copied, out_type=short, **threads), 512),
    (plgpu.kernel(summed, out_type=short), 512),
):
    try:
        with pipegen.emulator(arch="sm_90a", dsl="pallas") as emulated:
            kernel(jnp.zeros(size, jnp.float32))
    except pipegen.EmulationError as error:
        print(*(finding.message for finding in error.findings))
    print(emulated.launches[0].barriers)
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> list[str]:
    file = tmp_path_factory.mktemp("names") / "mine.py"
    file.write_text(KERNELS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@needs_pallas
def test_a_users_own_barrier_has_the_name_of_its_scratch(said):
    """The one of two arrays, and its stage, that the warps wait for in vain."""
    message = said[0]
    assert "(ring, stage 1 of 2), in phase 0 with 0 of 128 arrivals" in message
    assert "stage 0 of 2" not in message


@needs_pallas
def test_barriers_of_jaxs_pipelines_are_named_by_what_arrives_on_them(said):
    message = said[2]
    assert "(emit_pipeline_warp_specialized: input 0 consumed, stage 0 of 2)" in message
    assert "input 1 consumed" not in message
    assert "emit_pipeline: inputs loaded, stage 2 of 3" in said[-1]


@needs_pallas
def test_names_are_only_claimed_where_each_barrier_has_one():
    """A place without a name: Mosaic GPU puts its mbarriers elsewhere than is thought."""
    sys.path.insert(0, str(ROOT / "tests" / "emulator"))
    try:
        from small_kernels import launch_of
    finally:
        sys.path.pop(0)
    from dataclasses import replace

    from pipegen.emulator.machine import run

    body = """
    mov.b32 %r2, smem; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 ret;
    mbarrier.init.shared.b64 [%r2], 1; mbarrier.init.shared.b64 [%r2+8], 1;
    AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra AGAIN;
    """
    launch = launch_of(body, np.zeros(4, np.uint32))
    both = replace(launch, barriers=((0, "ring, stage 0 of 2"), (8, "ring, stage 1 of 2")))
    one = replace(launch, barriers=((0, "ring"),))
    told = [run(each).findings[0].message for each in (both, one)]
    assert "offset 0x0 of CTA 0 (ring, stage 0 of 2)" in told[0]
    assert "(ring" not in told[1]
