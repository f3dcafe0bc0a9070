# SPDX-License-Identifier: Apache-2.0
"""How many sets of operands take turns, so that none is in L2 when its turn comes. Pure."""

MOST_COPIES = 64


def copies_for(bytes_moved: int, l2_bytes: int) -> int:
    """Sets of operands of so many bytes: together at least twice L2, as a model's layers are.

    One where a set alone is as much. Few small sets are enough: 64 of a kernel that moves less than
    2 MB stay in L2, and such a kernel measures its launch anyway.
    """
    if bytes_moved <= 0:
        return 1
    return max(1, min(MOST_COPIES, -(-2 * l2_bytes // bytes_moved)))
