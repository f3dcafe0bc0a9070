# SPDX-License-Identifier: Apache-2.0
"""CTA pairs exist on Blackwell only, and not in every template.

What it checks
    cluster.cta_group: 1; or 2 on sm_100a, where the template is written for pairs.

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
from pipegen.errors import Problem, listing
from pipegen.planning.variants import template_of

GENERAL = True


def check(description: KernelDescription) -> Iterator[Problem]:
    group, arch = description.cluster.cta_group, description.kernel.arch
    template = template_of(description)
    allowed = template.values("cluster.cta_group") if template else (1,)
    if group in allowed:
        return
    if arch == "sm_90a":
        why = "tcgen05 CTA pairs do not exist on Hopper"
    elif group == 2:
        why = f"{arch} has CTA pairs, but no template uses them yet"
    else:
        why = "no such CTA group"
    yield Problem(
        why,
        "cluster.cta_group",
        group,
        listing(allowed),
        str(2 if group > 1 and 2 in allowed else 1),
    )
