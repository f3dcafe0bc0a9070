# SPDX-License-Identifier: Apache-2.0
"""How a mixed GEMM's SMEM and TMEM are used. Bytes, but for columns of TMEM."""

from pipegen.arithmetic import (
    fewest_store_buffers,
    operand_stage_bytes,
    ring_barrier_bytes,
    smem_bytes,
    split_smem,
    tile_bytes,
)
from pipegen.description import KernelDescription
from pipegen.hardware import HARDWARE, TMEM_COLUMNS_MAX
from pipegen.planning.smem_budget import SmemBudget
from pipegen.vocabulary import DTYPE

FEWEST_STAGES = 2
MAX_STORE_BUFFERS = 4
# Tokens of one epilogue store: four buffers of them leave the ring its stages.
EPILOGUE_TOKENS = (32, 16)
TMEM_ADDRESS_BYTES = 4
ACCUMULATORS = 2  # one is read by the epilogue while the other is filled
# Converted tiles in TMEM: more than this only wait for the tensor core.
MAX_TRANSFORM_STAGES = 4
# Of a channel's weights in a stage: one swizzle, 32, 64 or 128 bytes, by which CuTe's threads find
# their part with one XOR; Mosaic GPU finds it in several swizzles as well.
ROW_BYTES = {"cute": (32, 64, 128), "pallas": (32, 64, 128, 256, 512)}


def depths(backend: str, weight_bits: int) -> tuple[int, ...]:
    """Depth of a stage in elements of K."""
    return tuple(row * 8 // weight_bits for row in ROW_BYTES[backend])


def epilogue_tile(description: KernelDescription, warpgroups: int) -> tuple[int, int]:
    """Tokens and channels that are stored at once: 64 channels for each consumer warpgroup of a
    Hopper kernel, the 128 lanes of TMEM in a Blackwell one."""
    m = description.tile.m or 0
    channels = 128 if description.kernel.arch == "sm_100a" else 64 * warpgroups
    return next((tokens for tokens in EPILOGUE_TOKENS if m % tokens == 0), m), channels


def transform_columns(description: KernelDescription) -> int:
    """TMEM columns of one converted tile: two 16-bit weights a column."""
    return (description.tile.k or 0) // 2


def most_transform_stages(description: KernelDescription) -> int:
    """Converted tiles that fit in TMEM beside the accumulators."""
    left = TMEM_COLUMNS_MAX - ACCUMULATORS * (description.tile.m or 0)
    return max(0, left) // max(1, transform_columns(description))


def transform_stages(description: KernelDescription) -> int:
    """Converted tiles that the kernel keeps."""
    transform = description.pipeline.get("transform")
    if transform is not None and transform.stages != "auto":
        return transform.stages
    return min(MAX_TRANSFORM_STAGES, most_transform_stages(description))


def mixed_budget(description: KernelDescription, warpgroups: int) -> SmemBudget:
    """The SMEM budget of a mixed GEMM with its defaults filled in."""
    m, n, k = (size or 0 for size in (description.tile.m, description.tile.n, description.tile.k))
    a_bits, b_bits = DTYPE[description.dtype.a].bits, DTYPE[str(description.dtype.b)].bits
    a_bytes, b_bytes = operand_stage_bytes((m, n, k), a_bits, b_bits)
    scale_bytes = tile_bytes(n, 1, a_bits) if description.dtype.scale_group else 0
    operands = (a_bytes, b_bytes, scale_bytes)
    epi_m, epi_n = epilogue_tile(description, warpgroups)
    buffer_bytes = tile_bytes(epi_m, epi_n, DTYPE[str(description.dtype.out)].bits)
    subtiles = -(-m // epi_m) * -(-n // epi_n)
    capacity = HARDWARE[description.kernel.arch].smem_per_block
    # On Blackwell A and B arrive on their own, and TMEM's two pipelines have barriers as well.
    rings, other_bytes = 1, 0
    if description.kernel.arch == "sm_100a":
        in_tmem = max(0, transform_stages(description)) + ACCUMULATORS
        rings, other_bytes = 2, ring_barrier_bytes(in_tmem) + TMEM_ADDRESS_BYTES
    stages, buffers = (description.pipeline[name].stages for name in ("mainloop", "epilogue"))
    split = split_smem(
        capacity,
        operands,
        buffer_bytes,
        subtiles,
        MAX_STORE_BUFFERS,
        None if stages == "auto" else stages,
        None if buffers == "auto" else buffers,
        other_bytes,
        rings,
    )
    least = max(split.stages, FEWEST_STAGES)
    most_buffers = min(subtiles, capacity // buffer_bytes)
    return SmemBudget(
        capacity=capacity,
        a_bytes=a_bytes,
        b_bytes=b_bytes,
        buffer_bytes=buffer_bytes,
        epi_tile_mn=(epi_m, epi_n),
        subtiles=subtiles,
        split=split,
        buffer_choices=tuple(
            b
            for b in range(fewest_store_buffers(subtiles), most_buffers + 1)
            if smem_bytes(operands, buffer_bytes, least, b, other_bytes, rings) <= capacity
        ),
        scale_bytes=scale_bytes,
    )
