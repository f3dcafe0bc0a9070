# SPDX-License-Identifier: Apache-2.0
"""A stage must be kept as long as wgmma read it, and the ring must be longer than that.

What it checks
    For each operand of a Pallas mainloop: in_flight <= delay_release < stages. in_flight is the
    number of wgmma that are not awaited when their step ends, delay_release the number of steps
    that a stage is kept after its own, stages what max_concurrent_steps becomes.

Why
    wgmma is asynchronous, and the pipeline does not know about it: after step t it fills the stage
    of step t - delay_release again. If a wgmma of that step or of an earlier one is still reading,
    the tensor core multiplies what the next tile left there: a silent race. JAX's interpreter
    cannot show it, because each wgmma is done at once there. And of a ring no longer than
    delay_release, nothing can be loaded ahead: jax refuses it.

Example
    in_flight = 1 with delay_release = 0: the stage is filled again while its wgmma reads it.

Use instead
    Leave both out. A lone warpgroup leaves one wgmma in flight, so that the tensor core has work
    while it waits for a stage; of several, one computes while another waits, and none is left.
    With in_flight alone, delay_release is the same number.
"""

from collections.abc import Iterator

from pipegen.arithmetic import OperandRelease
from pipegen.description import KernelDescription
from pipegen.errors import Problem
from pipegen.planning.release import release_of
from pipegen.planning.smem import smem_of, stage_range

DERIVED = True


def check(description: KernelDescription) -> Iterator[Problem]:
    if smem_of(description) is None:
        return
    stages = description.pipeline["mainloop"].stages
    _, most = stage_range(description)
    ring = most if stages == "auto" else stages
    in_flight, kept = release_of(description)
    most_kept = max(0, ring - 1)
    for key, value in (("in_flight", in_flight), ("delay_release", kept)):
        if not 0 <= value <= most_kept:
            yield Problem(
                f"a stage is kept for at least as many steps as wgmma are in flight, and of {ring} "
                "stages at least one must be free to load ahead",
                f"pipeline.mainloop.{key}",
                value,
                f"0 to {most_kept}",
                str(min(most_kept, max(0, value))),
            )
            return
    # A and B have the same distance: jax takes one delay_release for all inputs of a pipeline.
    fault = OperandRelease("A and B", in_flight, kept, ring).fault
    if fault:
        yield Problem(
            fault,
            "pipeline.mainloop.delay_release",
            kept,
            f"{in_flight} to {most_kept}",
            str(in_flight),
        )
