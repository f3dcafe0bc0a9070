# SPDX-License-Identifier: Apache-2.0
"""Plan of the custom kernels that multiply with tcgen05: their graph with every number of it."""

from dataclasses import replace

from pipegen.description import KernelDescription
from pipegen.hardware import TMEM_COLUMNS_MAX
from pipegen.planning.custom.graph import UMMA
from pipegen.planning.custom.pallas_products import pallas_product_values
from pipegen.planning.custom.pallas_umma_numbers import PallasUmmaNumbers
from pipegen.planning.custom.plan import class_of
from pipegen.planning.custom.product_numbers import numbers_for
from pipegen.planning.custom.product_plan import plan_graph
from pipegen.planning.custom.reading import read_graph
from pipegen.planning.custom.umma_numbers import ACCUMULATORS, UmmaNumbers
from pipegen.planning.custom.umma_template import umma_values
from pipegen.planning.formulas import stages_or_given
from pipegen.planning.model import Number, PipelinePlan, Plan
from pipegen.vocabulary import DTYPE

ROW_BYTES = DTYPE["f32"].bytes


def plan_umma(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its tile and keeps the rules."""
    graph = read_graph(description)
    if graph is None:
        raise ValueError(f"no graph to plan: {description.pipeline=}")
    numbers = numbers_for(graph, description.kernel.arch, description.kernel.backend)
    if not isinstance(numbers, UmmaNumbers):
        raise ValueError(f"rule PG278 lets no such graph pass: {description.role=}")
    classes = {ring.name: class_of(ring, description) for ring in graph.rings}
    values = (
        pallas_product_values(description, numbers)
        if isinstance(numbers, PallasUmmaNumbers)
        else umma_values(description, numbers, classes)
    )
    made = plan_graph(given, description, name, template, numbers, classes, values)
    return replace(
        made,
        pipelines=tuple(accumulator_of(numbers, pipe) for pipe in made.pipelines),
        roles=tuple(
            replace(role, does=f"{role.does}{_tmem_words(numbers, role.name)}")
            for role in made.roles
        ),
        numbers=(*_counted(given, numbers, made.numbers), *tmem_numbers(numbers)),
    )


def _tmem_words(numbers: UmmaNumbers, role: str) -> str:
    """What the role that allocates TMEM does beside its work; in Pallas Mosaic GPU does it."""
    if numbers.pallas:
        return ""
    return "; allocates and frees TMEM" if role == numbers.readers[0].name else ""


def accumulator_of(numbers: UmmaNumbers, pipe: PipelinePlan) -> PipelinePlan:
    """A pipeline; of accumulators with the bytes of one, which are in TMEM."""
    if pipe.producer != UMMA:
        return pipe
    columns = numbers.columns(numbers.graph.ring(pipe.name))
    return replace(pipe, stage_bytes=ROW_BYTES * numbers.graph.extents["M"] * columns)


def _counted(
    given: KernelDescription, numbers: UmmaNumbers, found: tuple[Number, ...]
) -> tuple[Number, ...]:
    """The numbers of the graph, with why a ring has so many accumulators."""
    why = f"{ACCUMULATORS}: one fills while the other is read; 1 where TMEM has no more"
    names = {f"{ring.name}_stages": ring.name for ring in numbers.accumulator_rings}
    return tuple(
        (
            replace(each, formula=stages_or_given(given, names[each.name], why))
            if each.name in names
            else each
        )
        for each in found
    )


def tmem_numbers(numbers: UmmaNumbers) -> tuple[Number, ...]:
    """TMEM, and who meets around it: in Pallas that is Mosaic GPU's own."""
    used = " + ".join(
        f"{numbers.stages(r)} * {numbers.columns(r)}" for r in numbers.accumulator_rings
    )
    found = (
        Number(
            "tmem_columns",
            numbers.tmem_columns,
            "columns",
            used,
            f"a power of two from 32, at most {TMEM_COLUMNS_MAX} (PTX, tcgen05.alloc)",
        ),
        Number(
            "piece",
            numbers.piece,
            "columns",
            "of a row at a time, as registers allow and columns divide",
            "that a thread takes from TMEM by one tcgen05.ld",
        ),
    )
    if isinstance(numbers, PallasUmmaNumbers):
        columns, _ = found
        why = "of the sums, the widest block of the tiles that their readers touch in SMEM"
        pieces = "that a body as written has in registers at a time"
        return columns, Number("piece", numbers.piece, "columns", why, pieces)
    return (
        *found,
        Number(
            "tmem_threads",
            numbers.tmem_threads,
            "threads",
            "who takes accumulators, and a warp for each role that multiplies",
            "that meet when TMEM has been allocated",
        ),
    )
