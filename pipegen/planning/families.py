# SPDX-License-Identifier: Apache-2.0
"""The kernel families: what plans the kernels of a template, their defaults and their rules.

A family is what its templates share. selection.toml names each template's family.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipegen.description import KernelDescription
from pipegen.planning.custom.plan import fill_custom, plan_custom
from pipegen.planning.custom.product_plan import fill_products, plan_products
from pipegen.planning.gemm_cp_async_defaults import fill_gemm_cp_async
from pipegen.planning.gemm_defaults import fill_gemm
from pipegen.planning.gemm_pallas_defaults import fill_gemm_pallas
from pipegen.planning.gemm_rowsum_sm100 import plan_gemm_rowsum_sm100
from pipegen.planning.gemm_sm90_cp_async import plan_gemm_sm90_cp_async
from pipegen.planning.gemm_sm90_cute import plan_gemm_sm90_cute
from pipegen.planning.gemm_sm90_pallas import plan_gemm_sm90_pallas
from pipegen.planning.gemm_sm90_pallas_call import fill_pallas_call, plan_gemm_sm90_pallas_call
from pipegen.planning.gemm_sm90_pingpong import plan_gemm_sm90_pingpong
from pipegen.planning.gemm_sm100_cute import plan_gemm_sm100_cute
from pipegen.planning.gemm_sm100_pallas import plan_gemm_sm100_pallas
from pipegen.planning.mixed_defaults import fill_mixed
from pipegen.planning.mixed_sm90_cute import plan_mixed_sm90_cute
from pipegen.planning.mixed_sm90_pallas import plan_mixed_sm90_pallas
from pipegen.planning.mixed_sm100_cute import plan_mixed_sm100_cute
from pipegen.planning.model import Plan
from pipegen.planning.release import RELEASE_KEYS
from pipegen.planning.rows.defaults import fill_reduce_pallas, fill_stream_pallas
from pipegen.planning.rows.plan import plan_rows
from pipegen.planning.stream.defaults import fill_stream
from pipegen.planning.stream.plan import plan_stream_tma
from pipegen.planning.stream.threads import plan_stream_threads
from pipegen.planning.stream.threads_sizes import fill_stream_threads
from pipegen.planning.variants import template_of

# What the user gave, the same with its defaults, the module's name, the template's file.
Planner = Callable[[KernelDescription, KernelDescription, str, str], Plan]

GEMM_RULES = frozenset(
    ("PG104", "PG105", "PG107", "PG201", "PG203", "PG204", "PG205", "PG401", "PG403")
)
GEMM_SM100_RULES = GEMM_RULES | {"PG241", "PG242", "PG411"}
MIXED_RULES = frozenset(
    ("PG201", "PG205", "PG250", "PG251", "PG252", "PG253", "PG254", "PG401", "PG403")
)

# [pipeline.NAME] and [role.NAME] of a custom kernel are the user's own.
PRODUCT_RULES = frozenset(f"PG{number}" for number in (*range(270, 275), 276, 278, 279))
CUSTOM_RULES = frozenset(f"PG{number}" for number in (265, 266, 267, *range(270, 277), 278))
STREAM_RULES = frozenset(("PG210", "PG211", "PG212", "PG213", "PG214"))
ROWS_RULES = frozenset(("PG210", "PG280", "PG281", "PG282", "PG283"))
STREAM_THREADS_RULES = STREAM_RULES | {"PG216", "PG217", "PG218"}


@dataclass(frozen=True)
class Family:
    """`roles`: the roles that a description may override. `rules`: those that hold beside the
    general ones (`pipegen.rules`). `fill`: fills defaults into a description's data, in place.
    `keys`: of the keys that only some families have, this one's (rule PG215)."""

    roles: tuple[str, ...]
    rules: frozenset[str]
    fill: Callable[[dict[str, Any]], None]
    plan: Planner
    keys: frozenset[str] = frozenset()


FAMILIES: dict[str, Family] = {
    "gemm_sm90": Family(("producer", "consumer"), GEMM_RULES, fill_gemm, plan_gemm_sm90_cute),
    "gemm_sm90_cp_async": Family(
        ("producer", "consumer"),
        GEMM_RULES | {"PG221", "PG222"},
        fill_gemm_cp_async,
        plan_gemm_sm90_cp_async,
    ),
    "gemm_sm90_pingpong": Family(
        ("producer", "consumer"), GEMM_RULES | {"PG230"}, fill_gemm, plan_gemm_sm90_pingpong
    ),
    "gemm_sm100": Family(
        ("tma", "mma", "epilogue"), GEMM_SM100_RULES, fill_gemm, plan_gemm_sm100_cute
    ),
    "gemm_sm100_clc": Family(
        ("tma", "mma", "epilogue", "scheduler"), GEMM_SM100_RULES, fill_gemm, plan_gemm_sm100_cute
    ),
    "gemm_rowsum_sm100": Family(
        ("tma", "mma", "epilogue", "statistic"),
        GEMM_SM100_RULES | {"PG260"},
        fill_gemm,
        plan_gemm_rowsum_sm100,
    ),
    "gemm_sm90_pallas": Family(
        ("producer", "consumer"),
        GEMM_RULES | {"PG223", "PG301"},
        fill_gemm_pallas,
        plan_gemm_sm90_pallas,
        RELEASE_KEYS | {"role.consumer.split", "role.producer.memory_thread_idx"},
    ),
    "gemm_sm100_pallas": Family(
        ("tma", "mma", "epilogue"),
        GEMM_RULES | {"PG242", "PG243"},
        fill_gemm,
        plan_gemm_sm100_pallas,
    ),
    "gemm_sm90_pallas_call": Family(
        ("producer", "consumer"), GEMM_RULES, fill_pallas_call, plan_gemm_sm90_pallas_call
    ),
    "stream_tma": Family(("producer", "consumer"), STREAM_RULES, fill_stream, plan_stream_tma),
    "stream_threads": Family(
        ("producer", "consumer"), STREAM_THREADS_RULES, fill_stream_threads, plan_stream_threads
    ),
    "custom": Family((), CUSTOM_RULES, fill_custom, plan_custom),
    "custom_products": Family((), PRODUCT_RULES, fill_products, plan_products),
    "custom_pallas": Family((), CUSTOM_RULES | {"PG277"}, fill_custom, plan_custom),
    "stream_pallas": Family(("producer", "consumer"), ROWS_RULES, fill_stream_pallas, plan_rows),
    "reduce_pallas": Family(("producer", "consumer"), ROWS_RULES, fill_reduce_pallas, plan_rows),
    "mixed_gemm_sm90": Family(
        ("producer", "consumer"), MIXED_RULES, fill_mixed, plan_mixed_sm90_cute
    ),
    "mixed_gemm_sm90_pallas": Family(
        ("producer", "consumer"), MIXED_RULES, fill_mixed, plan_mixed_sm90_pallas
    ),
    "mixed_gemm_sm100": Family(
        ("tma", "mma", "transform", "epilogue"), MIXED_RULES, fill_mixed, plan_mixed_sm100_cute
    ),
}


def family_of(description: KernelDescription) -> Family | None:
    """The family of the template that writes the description; None if none does."""
    template = template_of(description)
    return FAMILIES[template.family] if template else None
