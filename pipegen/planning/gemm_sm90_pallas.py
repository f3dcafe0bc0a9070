# SPDX-License-Identifier: Apache-2.0
from pipegen.description import KernelDescription
from pipegen.planning.model import Plan


def plan_gemm_sm90_pallas(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    raise NotImplementedError
