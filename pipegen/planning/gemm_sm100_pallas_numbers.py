# SPDX-License-Identifier: Apache-2.0
"""Every derived number of the Pallas Blackwell GEMMs, with its formula and its source."""

from pipegen.arithmetic import multicast_partners, tmem_columns
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, MMA_K_BYTES, SWIZZLE_128B_ALIGNMENT, WARPGROUP
from pipegen.planning.formulas import aligned_sum, product, quotient, stages_or_given
from pipegen.planning.model import Number
from pipegen.planning.smem_budget import SmemBudget
from pipegen.planning.smem_pallas import MOST_STAGES
from pipegen.planning.smem_sm100 import accumulators_of, cta_group_of
from pipegen.planning.smem_sm100_pallas import (
    ANSWER_BYTES,
    ANSWERS,
    TMEM_ADDRESS_BYTES,
    shared_cluster,
    takes_answers,
)
from pipegen.vocabulary import DTYPE

# Read in the PTX of all three jax versions (Warpgroup semantics): a copy arrives 128 times and arms
# its bytes in as many shares; from a warp, each of its 32 threads arrives 4 times.
FULL_ARRIVALS = 2 * WARPGROUP
LOOP_WARPGROUPS = 3  # that take part in the scheduling loop


def answer_arrive_counts(cta_group: int) -> tuple[int, int]:
    """Arrivals that fill and that empty an answer (read in the PTX of all three jax versions).

    All threads of a CTA arrive for its answer. Alone, they empty it too; in a cluster one of each
    warpgroup of each CTA does, in every CTA.
    """
    threads = LOOP_WARPGROUPS * WARPGROUP
    return threads, threads if cta_group == 1 else LOOP_WARPGROUPS * cta_group


def gemm_sm100_pallas_numbers(
    given: KernelDescription, description: KernelDescription, budget: SmemBudget
) -> tuple[Number, ...]:
    """Numbers in the order in which `pipegen plan` prints them."""
    m, n, k = (size or 0 for size in (description.tile.m, description.tile.n, description.tile.k))
    dtype = description.dtype
    a, b, out = (DTYPE[str(word)] for word in (dtype.a, dtype.b, dtype.out))
    group, accumulators = cta_group_of(description), accumulators_of(description)
    columns, split = tmem_columns(accumulators, n), budget.split
    epi_m, epi_n = budget.epi_tile_mn
    per_cta = f"{budget.a_bytes} + {budget.b_bytes}"
    b_rows = f"{n}" if group == 1 else f"{n} / 2"
    numbers = [
        Number("a_stage_bytes", budget.a_bytes, "B", f"{m} * {k} * {a.bytes}", "dense A tile"),
        Number("b_stage_bytes", budget.b_bytes, "B", f"{b_rows} * {k} * {b.bytes}", "dense B tile"),
        Number(
            "tx_count",
            group * budget.stage_bytes,
            "B",
            per_cta if group == 1 else f"2 * ({per_cta})",
            "armed by the copies themselves; in a pair at the leader's barrier",
        ),
        Number(
            "mainloop_full_arrive_count",
            FULL_ARRIVALS,
            "arrivals",
            "2 * 128",
            "a copy arrives 128 times, each with a share of its bytes (read in the PTX)",
        ),
        Number(
            "mainloop_empty_arrive_count",
            1,
            "arrivals",
            "1 commit" if group == 1 else "1 commit of the leader, in both CTAs",
            "PTX ISA, tcgen05.commit",
        ),
        Number(
            "accumulator_full_arrive_count",
            1,
            "arrivals",
            "1 commit" if group == 1 else "1 commit of the leader, in both CTAs",
            "PTX ISA, tcgen05.commit",
        ),
        Number(
            "accumulator_empty_arrive_count",
            group,
            "arrivals",
            "1 thread of the epilogue warpgroup" + (" of both CTAs" if group == 2 else ""),
            "Barrier(orders_tensor_core=True): one arrival of a warpgroup, after a fence",
        ),
        Number(
            "accumulator_buffers",
            accumulators,
            "buffers",
            stages_or_given(given, "accumulator", str(accumulators)),
            "the epilogue reads one while the MMAs fill the next",
        ),
        Number(
            "tmem_columns",
            columns,
            "columns",
            (
                f"{accumulators} * {n}"
                if accumulators * n == columns
                else f"{accumulators} * {n} up to a power of two"
            ),
            "PTX ISA, tcgen05.alloc: a power of two from 32 to 512",
        ),
        Number(
            "epi_buffer_bytes",
            budget.buffer_bytes,
            "B",
            f"{epi_m} * {epi_n} * {out.bytes}",
            "one store",
        ),
        Number("epi_subtiles", budget.subtiles, "stores", f"{n} / {epi_n}", "of a tile"),
        Number(
            "mainloop_stages",
            split.stages,
            "stages",
            stages_or_given(given, "mainloop", _stage_formula(budget)),
            "as many as fit beside the store buffers",
        ),
        Number(
            "epilogue_buffers",
            split.store_buffers,
            "buffers",
            stages_or_given(given, "epilogue", "the smallest of 2 to 8 that divides the stores"),
            "one is written while another is read",
        ),
        *_smem(description, budget),
        *_launch(description),
        Number(
            "mma_per_stage",
            k * a.bytes // MMA_K_BYTES,
            "instructions",
            f"{k} * {a.bytes} / {MMA_K_BYTES}",
            "PTX ISA, tcgen05.mma: K is 32 bytes of the operand type",
        ),
        Number("blocks_per_sm", 1, "blocks", "1", "SMEM and TMEM fill an SM"),
    ]
    if group == 2:
        why = "PTX ISA, tcgen05.mma, .cta_group::2: each CTA holds half of the rows"
        numbers.append(Number("mma_m", 2 * m, "rows", f"2 * {m}", why))
    return tuple(numbers)


def _stage_formula(budget: SmemBudget) -> str:
    split = budget.split
    if split.stages == MOST_STAGES:
        return str(MOST_STAGES)
    taken = split.store_buffers * budget.buffer_bytes
    return quotient(budget.capacity, budget.stage_bytes + 16, split.stages, (str(taken), taken))


def _smem(description: KernelDescription, budget: SmemBudget) -> tuple[Number, ...]:
    split, answers = budget.split, ANSWERS if takes_answers(description) else 0
    parts = [product(split.stages, size) for size in (budget.a_bytes, budget.b_bytes)]
    if all(size % SWIZZLE_128B_ALIGNMENT == 0 for _, size in parts):
        parts = [product(split.stages, budget.stage_bytes)]
    parts.append(product(split.store_buffers, budget.buffer_bytes))
    parts += [product(answers, ANSWER_BYTES)] if answers else []
    rings = f"{split.stages} + {accumulators_of(description)}" + (
        f" + {ANSWERS}" if answers else ""
    )
    shared = shared_cluster(description) != (1, 1)
    released = f" + 8 * {split.stages}" if shared else ""
    return (
        Number(
            "barrier_bytes",
            split.barrier_bytes,
            "B",
            f"2 * 8 * ({rings}){released} + {TMEM_ADDRESS_BYTES}",
            "8 B each, and the address of TMEM",
        ),
        Number(
            "smem_bytes",
            split.total_bytes,
            "B",
            f"{aligned_sum(*parts)} + {split.barrier_bytes}",
            f"at most {budget.capacity} B a block (CUDA, Compute Capabilities)",
        ),
    )


def _released(cluster: tuple[int, int]) -> tuple[Number, ...]:
    if cluster == (1, 1):
        return ()
    m, n = cluster
    return (
        Number(
            "mainloop_released_arrive_count",
            multicast_partners(cluster),
            "arrivals",
            f"{m} + {n} - 1",
            "ClusterBarrier: one arrive of each CTA that shares a tile with this one",
        ),
    )


def _launch(description: KernelDescription) -> tuple[Number, ...]:
    group, hardware = cta_group_of(description), HARDWARE[description.kernel.arch]
    if not takes_answers(description):
        cluster = shared_cluster(description)
        warpgroups = 2 if cluster == (1, 1) else 3
        return (
            Number(
                "threads",
                warpgroups * WARPGROUP,
                "threads",
                f"128 * {warpgroups}",
                "a Pallas thread is 128 threads",
            ),
            Number(
                "grid",
                "persistent",
                "blocks",
                f"{hardware.sm_count} on a B200: one block an SM",
                "a fixed stride: each block takes every grid-th tile",
            ),
            *_released(cluster),
        )
    full, empty = answer_arrive_counts(group)
    return (
        Number("threads", full, "threads", "128 * 3", "a Pallas thread is 128 threads"),
        Number(
            "grid",
            "dynamic",
            "blocks",
            "tiles" if group == 1 else "2 * tiles of a pair",
            "cluster launch control: running clusters cancel waiting ones and do their work",
        ),
        Number(
            "scheduler_full_arrive_count",
            full,
            "arrivals",
            f"{LOOP_WARPGROUPS} * 128",
            "plgpu.try_cluster_cancel: all threads, one with the answer's 16 B (read in the PTX)",
        ),
        Number(
            "scheduler_empty_arrive_count",
            empty,
            "arrivals",
            f"{LOOP_WARPGROUPS} * 128" if group == 1 else f"{LOOP_WARPGROUPS} * {group}",
            "alone: all threads; in a pair: warpgroups times CTAs (read in the PTX)",
        ),
        Number("answer_bytes", ANSWER_BYTES, "B", "16", "PTX ISA, clusterlaunchcontrol.try_cancel"),
    )
