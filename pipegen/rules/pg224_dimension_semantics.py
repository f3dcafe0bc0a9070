# SPDX-License-Identifier: Apache-2.0
"""A pallas_call must have a sequential dimension: K, along which it pipelines.

What it checks
    dimension_semantics.k and dimension_semantics.tile of the style pallas-call; that no other
    kernel is given them.

Why
    pl.pallas_call makes one emit_pipeline of the dimensions marked "sequential", and a CUDA grid of
    the parallel ones. Without a sequential dimension there is no pipeline: no copy overlaps
    anything. K must be the one: CTAs that split K would each store their part of a sum over the
    others'. Output tiles must be parallel: the accumulator starts at zero once for each CTA.

Example
    k = "parallel", tile = "parallel": no dimension is sequential.

Use instead
    k = "sequential", tile = "parallel", which is what is meant if [dimension_semantics] is left
    out.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem

GENERAL = True


def check(description: KernelDescription) -> Iterator[Problem]:
    asked = description.dimension_semantics
    if description.kernel.style != "pallas-call":
        for key, value in asked.model_dump(exclude_none=True).items():
            yield Problem(
                'only kernels with kernel.style = "pallas-call" have it',
                f"dimension_semantics.{key}",
                value,
                "no value",
                "leave the key out",
            )
        return
    if asked.k == "parallel":
        yield Problem(
            (
                "no dimension is sequential, so that pallas_call would pipeline nothing"
                if asked.tile == "parallel"
                else "the CTAs that split K would store their parts over each other's"
            ),
            "dimension_semantics.k",
            asked.k,
            '"sequential"',
            '"sequential"',
        )
    if asked.tile == "sequential":
        yield Problem(
            "the accumulator starts at zero once for each CTA, which computes one tile",
            "dimension_semantics.tile",
            asked.tile,
            '"parallel"',
            '"parallel"',
        )
