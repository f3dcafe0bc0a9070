# SPDX-License-Identifier: Apache-2.0
"""A Pallas stream or reduce kernel must have consumer warpgroups that its pipeline allows.

What it checks
    role.consumer.warpgroups: 1 with emit-pipeline and with out_specs, else 1 to 3. cluster.shape:
    none.

Why
    `emit_pipeline` belongs in a kernel of one warpgroup.
    `emit_pipeline_warp_specialized` refuses out_specs with several compute warpgroups, which would
    each store the same buffer, and does not make them wait for each other (jax 0.10.2 to 0.12.0.1,
    mosaic_gpu/pipeline.py). Four and the memory warpgroup would leave a thread too few registers.
    Nothing is shared between CTAs, and `emit_pipeline` refuses collective_axes.

Example
    warpgroups = 2 with out_specs = true.

Use instead
    out_specs = false, which is the default: the step stores, and each warpgroup has buffers of its
    own.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, listing, nearest_number
from pipegen.planning.rows.sizes import has_out_specs, is_warp_specialized


def check(description: KernelDescription) -> Iterator[Problem]:
    warpgroups, shape = description.role["consumer"].warpgroups or 0, description.cluster.shape
    allowed: tuple[int, ...] = (1,)
    why = "emit_pipeline runs in one warpgroup, which loads, computes and stores"
    if is_warp_specialized(description):
        why = "out_specs allow one compute warpgroup: several would each store the same buffer"
        if not has_out_specs(description):
            allowed, why = (1, 2, 3), "a block has 1 to 3 consumer warpgroups beside the producer"
    if warpgroups not in allowed:
        yield Problem(
            why,
            "role.consumer.warpgroups",
            warpgroups,
            listing(allowed),
            nearest_number(warpgroups, allowed),
        )
    if shape not in (None, (1, 1)):
        yield Problem(
            "no CTA shares a tile with another in this kernel",
            "cluster.shape",
            list(shape or ()),
            "[1, 1]",
            "leave the key out",
        )
