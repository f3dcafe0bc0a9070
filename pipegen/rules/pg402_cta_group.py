# SPDX-License-Identifier: Apache-2.0
"""CTA pairs exist on Blackwell only.

What it checks
    cluster.cta_group: 1, or 2 on sm_100a.

Why
    cta_group 2 is a mode of tcgen05: two CTAs of a cluster compute one tile together (PTX ISA,
    "tcgen05", .cta_group). wgmma has nothing like it.

Example
    cta_group = 2 with arch = "sm_90a".

Use instead
    On Hopper cluster.shape = [2, 1]: two CTAs share B by multicast.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem


def check(description: KernelDescription) -> Iterator[Problem]:
    group, arch = description.cluster.cta_group, description.kernel.arch
    allowed = (1,) if arch == "sm_90a" else (1, 2)
    if group not in allowed:
        why = (
            "tcgen05 CTA pairs do not exist on Hopper" if arch == "sm_90a" else "no such CTA group"
        )
        yield Problem(
            why, "cluster.cta_group", group, " or ".join(map(str, allowed)), str(allowed[-1])
        )
