# SPDX-License-Identifier: Apache-2.0
"""CTA pairs exist on Blackwell only, and no template has them yet.

What it checks
    cluster.cta_group: 1. The architecture allows 2 on sm_100a; no template does so far.

Why
    cta_group 2 is a mode of tcgen05: two CTAs of a cluster compute one tile together (PTX ISA,
    "tcgen05", .cta_group). wgmma has nothing like it.

Example
    cta_group = 2 with arch = "sm_90a".

Use instead
    cluster.shape = [2, 1]: two CTAs share B by multicast.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem


def check(description: KernelDescription) -> Iterator[Problem]:
    group, arch = description.cluster.cta_group, description.kernel.arch
    if group == 1:
        return
    if arch == "sm_90a":
        why = "tcgen05 CTA pairs do not exist on Hopper"
    elif group == 2:
        why = f"{arch} has CTA pairs, but no template uses them yet"
    else:
        why = "no such CTA group"
    yield Problem(why, "cluster.cta_group", group, "1", "1")
