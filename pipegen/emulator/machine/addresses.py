# SPDX-License-Identifier: Apache-2.0
"""How addresses are made up: the windows of generic addresses, ranks, and sizes.

PTX ISA, sections "Generic Addressing" (5.1) and "Shared State Space". A shared memory address is
the CTA's rank above bit 24, SMEM_BASE, and the offset that messages tell.
"""

RANK_SHIFT = 24
OFFSET_MASK = (1 << RANK_SHIFT) - 1
SMEM_BASE = 1024  # the first bytes of shared memory are the system's
GRANULE = 16
TMEM_LANES, TMEM_COLUMNS = 128, 512
SHARED_WINDOW = 0x7E << 56
PARAM_WINDOW = 0x7D << 56
LOCAL_WINDOW = 0x7C << 56
WINDOW_MASK = 0xFF << 56
