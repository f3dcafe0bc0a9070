# SPDX-License-Identifier: Apache-2.0
"""Release distance: how long a stage is kept after its step, against how long it is read.

wgmma is asynchronous. A step that ends with n of them not awaited leaves n stages that the tensor
core may still read. `emit_pipeline` fills a stage again `delay_release` steps after its own, and
`emit_pipeline_warp_specialized` releases it then (jax 0.10.2 to 0.12.0.1, mosaic_gpu/pipeline.py).
JAX's interpreter computes each wgmma at once, so that it never sees a stage refilled too early:
the generator has to prove it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class OperandRelease:
    """One operand of a pipeline. All counts in steps.

    `in_flight`: wgmma that read the operand in SMEM and are not awaited when a step ends, of one a
    step; 0 for an operand that the step has read by then (into registers, say). `delay_release`:
    steps that its stage is kept after its own. `stages`: `max_concurrent_steps`.
    """

    operand: str
    in_flight: int
    delay_release: int
    stages: int

    @property
    def distance(self) -> str:
        """The proof with the numbers put in; true if there is no `fault`."""
        return f"{self.in_flight} <= {self.delay_release} < {self.stages}"

    @property
    def fault(self) -> str:
        """Why the operand's stages are not safe; empty if they are.

        After the body of step t, stage t - delay_release is filled again; the wgmma of steps
        t - in_flight + 1 to t may be running. They are different stages if and only if in_flight
        is at most delay_release. A stage is kept delay_release steps beside the one in use: the
        ring must be longer than that, or nothing is ever loaded ahead. JAX cuts the ring to the
        number of steps where that is smaller: each stage is then filled once, and none too early.
        """
        if self.in_flight < 0 or self.delay_release < 0:
            return f"{self.operand}: {self.distance}: neither can be negative"
        if self.in_flight > self.delay_release:
            return (
                f"{self.operand}: when a step ends, up to {self.in_flight} wgmma still read its "
                f"stages, and a stage is filled again {self.delay_release} step(s) after its own: "
                "a silent race"
            )
        if self.delay_release >= self.stages:
            return (
                f"{self.operand}: a stage is kept {self.delay_release} step(s) after its own, and "
                f"of {self.stages} stages none is left to load ahead"
            )
        return ""
