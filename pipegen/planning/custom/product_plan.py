# SPDX-License-Identifier: Apache-2.0
"""Plan of the custom kernels that multiply: the user's graph with every number of it."""

from dataclasses import replace
from typing import Any

from pipegen.arithmetic import align_up
from pipegen.description import KernelDescription
from pipegen.hardware import WARP, WARPGROUP
from pipegen.planning.custom.graph import WGMMA
from pipegen.planning.custom.pallas_numbers import PallasProductNumbers
from pipegen.planning.custom.pallas_products import pallas_product_values
from pipegen.planning.custom.plan import class_of, pipeline_of, ring_numbers, stage_limit
from pipegen.planning.custom.product_numbers import (
    BETWEEN_STAGES,
    OUTER_STAGES,
    ProductNumbers,
    numbers_for,
)
from pipegen.planning.custom.product_template import product_does, product_values
from pipegen.planning.custom.products import product_of, results
from pipegen.planning.custom.reading import read_graph, shape_of
from pipegen.planning.formulas import stages_or_given
from pipegen.planning.model import Number, Plan, RolePlan

# Accumulators of 128 x 128 leave two warpgroups of a full block room; 64 of K are a swizzle's row.
USUAL_TILE = {"M": 128, "N": 128, "K": 64, "P": 128}
# Rows and columns of results in Pallas, from the one with the least traffic on.
PALLAS_TILES = {
    "sm_90a": ((128, 128), (64, 128), (64, 64), (64, 32)),
    "sm_100a": ((128, 128), (128, 64), (128, 32)),
}


def fill_products(data: dict[str, Any]) -> None:
    """The tile, in place: along the symbols that a tensor has."""
    shapes = [shape_of(tensor["shape"]) or () for tensor in data["tensor"].values()]
    for symbol in {symbol for dims in shapes for symbol in dims}:
        key = symbol.lower()
        if data["tile"][key] is None:
            data["tile"][key] = USUAL_TILE[symbol]


def fill_pallas_products(data: dict[str, Any]) -> None:
    """The tile, in place: the largest that fits into the registers that a thread starts with.

    Every role is a warpgroup or more, so more roles leave each thread fewer registers.
    """
    given = dict(data["tile"])
    shapes = [shape_of(tensor["shape"]) or () for tensor in data["tensor"].values()]
    missing = {s for dims in shapes for s in dims if given[s.lower()] is None}
    for rows, columns in PALLAS_TILES[data["kernel"]["arch"]]:
        usual = {"M": rows, "N": columns, "P": columns}
        data["tile"] = given | {s.lower(): usual[s] for s in missing if s in usual}
        fill_products(data)
        graph = read_graph(KernelDescription.model_validate(data))
        if graph is None or not graph.multiplies:
            return
        numbers = numbers_for(graph, data["kernel"]["arch"], data["kernel"]["backend"])
        if isinstance(numbers, PallasProductNumbers) and numbers.fits_registers:
            return


def plan_products(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its tile and keeps the rules."""
    graph = read_graph(description)
    if graph is None:
        raise ValueError(f"no graph to plan: {description.pipeline=}")
    numbers = numbers_for(graph, description.kernel.arch, description.kernel.backend)
    if not isinstance(numbers, ProductNumbers):
        raise ValueError(f"rule PG278 lets no such graph pass: {description.role=}")
    classes = {ring.name: class_of(ring, description) for ring in graph.rings}
    values = (
        pallas_product_values(description, numbers)
        if isinstance(numbers, PallasProductNumbers)
        else product_values(description, numbers, classes)
    )
    return plan_graph(given, description, name, template, numbers, classes, values)


def plan_graph(
    given: KernelDescription,
    description: KernelDescription,
    name: str,
    template: str,
    numbers: ProductNumbers,
    classes: dict[str, str],
    values: dict[str, Any],
) -> Plan:
    """The plan of a graph that multiplies, of either kind of tensor core."""
    graph = numbers.graph
    roles = tuple(
        RolePlan(
            role.name,
            role.warps // 4,
            WARP * role.warps,
            role.registers,
            product_does(numbers, role),
        )
        for role in graph.roles
    )
    return Plan(
        name,
        given,
        description,
        template,
        tuple(pipeline_of(numbers, ring, classes[ring.name]) for ring in graph.rings),
        roles,
        numbers_of(given, numbers),
        limit_of(numbers),
        values,
    )


def limit_of(numbers: ProductNumbers) -> str:
    """What limits the rings of the innermost loop that leave their stages to SMEM."""
    graph = numbers.graph
    given = tuple(
        ring if numbers.depth(ring) == len(numbers.nest) else replace(ring, stages=1)
        for ring in graph.rings
    )
    if all(ring.stages is not None for ring in given):
        return "the description, or how rarely a stage is filled"
    return stage_limit(replace(numbers, graph=replace(graph, rings=given)))


def numbers_of(given: KernelDescription, numbers: ProductNumbers) -> tuple[Number, ...]:
    """Every derived number with its formula."""
    graph, found = numbers.graph, []
    for ring in graph.rings:
        stages, *counts = ring_numbers(given, numbers, ring)
        depth = numbers.depth(ring)
        if depth < len(numbers.nest) and not ring.in_tmem:
            why = f"{BETWEEN_STAGES if depth else OUTER_STAGES}: outside the innermost loop"
            stages = replace(stages, formula=stages_or_given(given, ring.name, why))
        found += [stages, *counts]
    for role in graph.roles:
        if role.kind == WGMMA and (product := product_of(role)) is not None:
            m, columns = graph.extents["M"], graph.extents[product.columns]
            found += [
                Number(
                    f"{role.name}_accumulators",
                    numbers.accumulators(role),
                    "registers",
                    f"{m} * {columns} / ({WARP} * {role.warps})",
                    f"of {numbers.held_registers(role)} that a thread has",
                ),
                Number(
                    f"{role.name}_release_distance",
                    numbers.release_distance(role),
                    "stages",
                    "1 where each ring has two stages or more",
                    "held beside the newest: wgmmas may still read them",
                ),
            ]
    warps = " + ".join(str(role.warps) for role in graph.roles)
    tiles = " + ".join(
        f"{numbers.stages(ring)} * {numbers.stage_bytes(ring)}"
        for ring in graph.rings
        if not ring.in_tmem
    )
    rest = numbers.smem_bytes - sum(
        numbers.stages(ring) * numbers.stage_bytes(ring) for ring in graph.rings
    )
    barriers = 2 * sum(numbers.stages(ring) for ring in graph.rings)
    rows, columns_of_results = results(graph)
    return (
        *found,
        Number("threads", numbers.threads, "threads", f"{WARP} * ({warps})", "a CTA"),
        Number(
            "smem_bytes",
            numbers.smem_bytes,
            "B",
            f"{rest} + {tiles}",
            f"at most {numbers.capacity} B a block, with {barriers} mbarriers",
        ),
        Number(
            "launch_registers",
            numbers.launch_registers,
            "registers",
            f"as many as {align_up(numbers.threads, WARPGROUP)} threads can have",
            "a thread's at launch, at most",
        ),
        Number(
            "grid",
            "persistent",
            "blocks",
            f"min(tiles of {rows} x {columns_of_results}, SMs)",
            "a fixed stride over tiles: as many blocks as the GPU runs at once",
        ),
    )
