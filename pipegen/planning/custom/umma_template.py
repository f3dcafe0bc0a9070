# SPDX-License-Identifier: Apache-2.0
"""The words of templates/cute/custom_multiply_sm100.py.j2 beyond those of `product_template`."""

import textwrap
from typing import Any

from pipegen.description import KernelDescription
from pipegen.hardware import WARP
from pipegen.planning.custom.code import upper
from pipegen.planning.custom.graph import UMMA, Ring
from pipegen.planning.custom.product_template import product_values, walks
from pipegen.planning.custom.products import results
from pipegen.planning.custom.template import WIDTH
from pipegen.planning.custom.umma_numbers import UmmaNumbers

NEVER_RUN = " Compiled and emulated, never run: no Blackwell GPU was at hand when this was written."


def umma_values(
    description: KernelDescription, numbers: UmmaNumbers, classes: dict[str, str]
) -> dict[str, Any]:
    """The template's fields for a description that keeps the rules."""
    graph, readers = numbers.graph, numbers.readers
    values = product_values(description, numbers, classes)
    # Of what a reader does nothing is shared out by warps and lanes.
    sharers = [role for role in graph.roles if role.kind == "thread" and not role.sums]
    touched = [ring for role in readers for ring in (*role.inputs, *role.outputs)]
    issue = [role for role in graph.roles if role.kind == UMMA]
    issuers = f"{WARP} * {len(issue)}" if len(issue) > 1 else f"{WARP}"
    return {
        **values,
        "walks": walks(*results(graph), numbers.nest, "SMEM and TMEM", NEVER_RUN),
        "sharing": [each for each in values["sharing"] if each["upper"] not in map(_upper, issue)],
        "uses_parts": bool(sharers),
        "uses_slabs": any(
            numbers.slabs(role) > 1 or "slab_of(" in (role.body or "") for role in sharers
        ),
        "uses_plain": any(not numbers.swizzled(r) and not r.in_tmem for r in graph.rings),
        "uses_load_global": any(role.reads for role in sharers),
        "uses_store_global": any(role.writes for role in sharers),
        "uses_pieces": any(not ring.in_tmem for ring in touched),
        "uses_load_row": any(role.reads for role in readers),
        "uses_store_row": any(role.writes for role in readers),
        "accumulators": [accumulator_values(numbers, ring) for ring in numbers.accumulator_rings],
        "accumulators_said": textwrap.wrap(tmem_words(numbers), WIDTH),
        "piece": numbers.piece,
        "tmem_threads": numbers.tmem_threads,
        "tmem_formula": f"{numbers.reader_threads} + {issuers}",
        "reader_threads": numbers.reader_threads,
        "reader_formula": f"{WARP} * ({' + '.join(str(role.warps) for role in readers)})",
        "allocator_warp": numbers.first_warp(readers[0]),
    }


def tmem_words(numbers: UmmaNumbers) -> str:
    """The docstring's sentence about TMEM."""
    rings = " and ".join(
        f"{ring.name} is {_several(numbers.stages(ring))} of {numbers.columns(ring)} columns"
        for ring in numbers.accumulator_rings
    )
    return (
        f"{rings} of TMEM. {numbers.readers[0].name} allocates {numbers.tmem_columns} columns, and "
        "frees them when all roles that take accumulators are through. Where another kernel holds "
        "TMEM on the same SM, a CTA waits until enough of it is free."
    )


def _several(accumulators: int) -> str:
    return f"{accumulators} accumulator{'s' * (accumulators > 1)}"


def _upper(role: Any) -> str:
    return upper(role.name)


def accumulator_values(numbers: UmmaNumbers, ring: Ring) -> dict[str, Any]:
    """A ring of accumulators: where in TMEM it begins, and whose MMAs write it."""
    before = numbers.accumulator_rings[: numbers.accumulator_rings.index(ring)]
    sizes = " + ".join(f"{numbers.stages(each)} * {numbers.columns(each)}" for each in before)
    return {
        "name": ring.name,
        "upper": upper(ring.name),
        "column": numbers.first_column(ring),
        "formula": sizes or "the first",
        "tile": f"TILE_{ring.parts[0].dims[-1]}",
        "mma": f"{ring.sources[0]}_mma",
    }
