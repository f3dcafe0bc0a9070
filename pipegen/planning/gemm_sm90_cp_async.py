# SPDX-License-Identifier: Apache-2.0
"""Plan of the Hopper GEMM without TMA loads: cp.async -> wgmma mainloop, with or without a gather.

Beside the mainloop's producer it is the GEMM that loads by TMA, whose plan it takes over.
"""

from dataclasses import replace
from typing import Any

from pipegen.arithmetic import (
    COPY_OVERHEAD,
    RowCopies,
    cp_async_producer_arrive_count,
    elected_consumer_arrive_count,
    row_copies,
)
from pipegen.description import KernelDescription
from pipegen.hardware import SETMAXNREG_STEP, SWIZZLE_BYTES, WARP, WARPGROUP
from pipegen.planning.formulas import registers_or_given
from pipegen.planning.gemm_sm90_cute import plan_gemm_sm90_cute
from pipegen.planning.gemm_sm90_cute_template import TMA_ALIGNMENT
from pipegen.planning.model import Number, Plan
from pipegen.vocabulary import DTYPE

WHY = {
    16: (
        "The addresses are each thread's own: the form to start from where what you need is no box "
        "that\nTMA could load."
    ),
    8: (
        "TMA wants rows that begin at multiples of 16 bytes; these may begin at multiples of 8. "
        "Smaller\ncopies are slower: pad the rows where you can."
    ),
    4: (
        "TMA wants rows that begin at multiples of 16 bytes; these may begin at multiples of 4. "
        "Smaller\ncopies are slower: pad the rows where you can."
    ),
}


def plan_gemm_sm90_cp_async(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its defaults filled in and keeps the rules."""
    base = plan_gemm_sm90_cute(given, description, name, template)
    tile = description.tile
    copies = row_copies(
        (tile.m or 0, tile.n or 0), DTYPE[description.dtype.a].bits, description.layout.alignment
    )
    mainloop, epilogue = base.pipelines
    producer, consumer = base.roles
    warps = consumer.threads // WARP
    mainloop = replace(
        mainloop,
        producer="cp_async",
        construct="PipelineCpAsync",
        tx_count=None,
        full_arrive_count=cp_async_producer_arrive_count(producer.threads // WARP),
        empty_arrive_count=elected_consumer_arrive_count(warps),
        filled_by="cp.async copies of one A and one B tile, a part by each producer thread",
        emptied_by="one elected lane of each consumer warp, one step after its wgmma",
    )
    does = "every thread issues cp.async copies of its rows"
    return replace(
        base,
        pipelines=(mainloop, epilogue),
        roles=(replace(producer, does=does), consumer),
        numbers=_numbers(base, description, copies, warps),
        values={**base.values, **_words(description, copies)},
    )


def _numbers(
    base: Plan, description: KernelDescription, copies: RowCopies, warps: int
) -> tuple[Number, ...]:
    """The TMA kernel's numbers, but for what belongs to TMA, and the copies'."""
    tile, alignment = description.tile, description.layout.alignment
    rows = copies.a_rows + copies.b_rows
    needed = 2 * rows + COPY_OVERHEAD
    registers = f"2 * {rows} + {COPY_OVERHEAD}"
    if needed % SETMAXNREG_STEP:
        step = SETMAXNREG_STEP
        registers = f"({registers} + {step - 1}) // {step} * {step}"
    dense = base.number("tx_count")
    element = DTYPE[description.dtype.a].bytes
    per_row = SWIZZLE_BYTES // alignment // copies.copies_per_row
    copied = f"{copies.a_rows} + {copies.b_rows}"
    if copies.copies_per_row > 1:
        copied = f"({copied}) * {copies.copies_per_row}"
    replaced = {
        "tx_count": Number(
            "stage_bytes", dense.value, "B", dense.formula, "an A and a B tile; no tx_count"
        ),
        "mainloop_full_arrive_count": Number(
            "mainloop_full_arrive_count",
            cp_async_producer_arrive_count(WARPGROUP // WARP),
            "arrivals",
            "1 of each of 128 producer threads",
            "cutlass.pipeline.PipelineCpAsync.producer_commit: cp.async.mbarrier.arrive.noinc",
        ),
        "mainloop_empty_arrive_count": Number(
            "mainloop_empty_arrive_count",
            elected_consumer_arrive_count(warps),
            "arrivals",
            f"{warps} consumer warps",
            "cutlass.pipeline.PipelineAsync.consumer_release: 1 a call, under elect_one",
        ),
        "producer_registers": Number(
            "producer_registers",
            base.number("producer_registers").value,
            "registers a thread",
            registers_or_given(base.given, "producer", registers),
            "setmaxnreg: the address of each row of a thread, and the rest",
        ),
        "grid": replace(base.number("grid"), formula="min(tiles, SMs)"),
    }
    kept = [replaced.get(each.name, each) for each in base.numbers]
    return (
        *(each for each in kept if each.name != "multicast_partners"),
        Number(
            "copy_elements", copies.elements, "elements", f"{alignment} / {element}", "cp.async"
        ),
        Number(
            "threads_per_row",
            copies.threads_per_row,
            "threads",
            f"{per_row * copies.elements} / {copies.elements}",
            "side by side on a row of 128 B, or on half of one",
        ),
        Number(
            "rows_per_pass",
            copies.rows_per_pass,
            "rows",
            f"{WARPGROUP} / {copies.threads_per_row}",
            "a multiple of 8, after which the 128 B swizzle repeats",
        ),
        Number("a_passes", copies.a_rows, "rows a thread", f"{tile.m} / {copies.rows_per_pass}"),
        Number("b_passes", copies.b_rows, "rows a thread", f"{tile.n} / {copies.rows_per_pass}"),
        Number("copies_per_stage", copies.copies, "copies a thread", copied, "cp.async"),
    )


def _words(description: KernelDescription, copies: RowCopies) -> dict[str, Any]:
    """The template's own fields."""
    alignment, gather = description.layout.alignment, description.layout.gather
    halves = copies.copies_per_row > 1
    return {
        "alignment": alignment,
        # L1 takes 4 and 8 bytes only through its cache (PTX ISA, "cp.async", .cg and .ca).
        "cache": "cg" if alignment == 16 else "ca",
        "arguments": "a, index, b" if gather else "a, b",
        "why": WHY[alignment],
        "row_or_half": "half a row of a stage" if halves else "one row of a stage",
        "halves": halves,
        "aligned": alignment == TMA_ALIGNMENT,
        "narrow": alignment < TMA_ALIGNMENT,
        "gather": gather,
        "plain": not gather,
    }
