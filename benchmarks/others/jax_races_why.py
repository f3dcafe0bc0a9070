# SPDX-License-Identifier: Apache-2.0
"""Why the emulator and JAX's labels disagree: each looked at by hand, in the compiled PTX."""

# (test, status) -> the reason.
_REASONS = {
    ("test_wait_for_barrier_twice", "false alarm"): (
        "Each warp of a warpgroup stores 1, 2 and 3 to one place, and between them no warp waits "
        "for another: one may store 2 before another stores 1. JAX takes the warpgroup as one "
        "thread. The last number is 3 in any case."
    ),
    ("test_race_in_sync_copy_smem_to_gmem_in_cluster", "missed"): (
        "Two CTAs store to one place what they read from shared memory that nothing wrote. Such a "
        "value is undefined, and LLVM leaves the store out: the PTX has no access to global memory."
    ),
}


def why(test: str, status: str) -> str:
    """The reason for a disagreement, or that there is none yet."""
    return _REASONS.get((test, status), "not looked at")
