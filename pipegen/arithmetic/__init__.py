# SPDX-License-Identifier: Apache-2.0
"""The numbers of a pipelined kernel as pure functions. Sizes in bytes unless a name says so.

Sources, short names used below:
  DSL: `cutlass/pipeline/{sm90,sm100,helpers}.py` of nvidia-cutlass-dsl 4.8.1.
  PTX: PTX ISA 8.8, the section named.
  CUDA: CUDA C++ Programming Guide, "Compute Capabilities".
"""

from pipegen.arithmetic.arrivals import (
    clc_consumer_arrive_count,
    cp_async_producer_arrive_count,
    elected_consumer_arrive_count,
    multi_consumer_arrive_count,
    multicast_partners,
    order_arrive_count,
    thread_producer_arrive_count,
    tma_consumer_arrive_count,
    umma_consumer_arrive_count,
)
from pipegen.arithmetic.copies import COPY_OVERHEAD, RowCopies, row_copies
from pipegen.arithmetic.registers import (
    accumulator_registers,
    blocks_per_sm,
    consumer_registers,
    launch_registers,
    pallas_consumer_registers,
    setmaxnreg_valid,
)
from pipegen.arithmetic.release import OperandRelease
from pipegen.arithmetic.sizes import (
    align_up,
    exchange_bytes,
    operand_stage_bytes,
    order_barrier_bytes,
    ring_barrier_bytes,
    tile_bytes,
)
from pipegen.arithmetic.smem import SmemSplit, fewest_store_buffers, smem_bytes, split_smem
from pipegen.arithmetic.tmem import most_accumulators, tmem_columns

__all__ = [
    "COPY_OVERHEAD",
    "OperandRelease",
    "RowCopies",
    "SmemSplit",
    "accumulator_registers",
    "align_up",
    "blocks_per_sm",
    "clc_consumer_arrive_count",
    "consumer_registers",
    "cp_async_producer_arrive_count",
    "elected_consumer_arrive_count",
    "exchange_bytes",
    "fewest_store_buffers",
    "launch_registers",
    "most_accumulators",
    "multi_consumer_arrive_count",
    "multicast_partners",
    "operand_stage_bytes",
    "order_arrive_count",
    "order_barrier_bytes",
    "pallas_consumer_registers",
    "ring_barrier_bytes",
    "row_copies",
    "setmaxnreg_valid",
    "smem_bytes",
    "split_smem",
    "thread_producer_arrive_count",
    "tile_bytes",
    "tma_consumer_arrive_count",
    "tmem_columns",
    "umma_consumer_arrive_count",
]
