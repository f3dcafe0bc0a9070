# SPDX-License-Identifier: Apache-2.0
"""The kernel families: what plans the kernels of a template, their defaults and their rules.

A family is what its templates share. selection.toml names each template's family. What only one
family needs is imported when that family is used: nobody waits for the others.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipegen.description import KernelDescription
from pipegen.planning.model import Plan
from pipegen.planning.release import RELEASE_KEYS
from pipegen.planning.variants import template_of

# What the user gave, the same with its defaults, the module's name, the template's file.
Planner = Callable[[KernelDescription, KernelDescription, str, str], Plan]

GEMM_RULES = frozenset(
    ("PG104", "PG105", "PG107", "PG201", "PG203", "PG204", "PG205", "PG401", "PG403", "PG404")
)
GEMM_SM100_RULES = GEMM_RULES | {"PG241", "PG242", "PG411"}
MIXED_RULES = frozenset(
    ("PG201", "PG205", "PG250", "PG251", "PG252", "PG253", "PG254", "PG401", "PG403")
)

# [pipeline.NAME] and [role.NAME] of a custom kernel are the user's own.
PRODUCT_RULES = frozenset(f"PG{number}" for number in (*range(270, 275), 276, 278, 279))
CUSTOM_RULES = frozenset(f"PG{number}" for number in (265, 266, 267, *range(270, 277), 278))
STREAM_RULES = frozenset(("PG210", "PG211", "PG212", "PG213", "PG214"))
TS_STREAM_RULES = frozenset(("PG210", "PG212", "PG290", "PG291", "PG292"))
ROWS_RULES = frozenset(("PG210", "PG280", "PG281", "PG282", "PG283"))
STREAM_THREADS_RULES = STREAM_RULES | {"PG216", "PG217", "PG218"}


def later(module: str, name: str) -> Callable[..., Any]:
    """A function of pipegen.planning, whose module is imported when it is first called."""

    def call(*arguments: Any) -> Any:
        return getattr(importlib.import_module(f"pipegen.planning.{module}"), name)(*arguments)

    call.__name__, call.__module__ = name, f"pipegen.planning.{module}"
    return call


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
    "gemm_sm90": Family(
        ("producer", "consumer"),
        GEMM_RULES,
        later("gemm_defaults", "fill_gemm"),
        later("gemm_sm90_cute", "plan_gemm_sm90_cute"),
    ),
    "gemm_sm90_cp_async": Family(
        ("producer", "consumer"),
        GEMM_RULES | {"PG221", "PG222"},
        later("gemm_cp_async_defaults", "fill_gemm_cp_async"),
        later("gemm_sm90_cp_async", "plan_gemm_sm90_cp_async"),
    ),
    "gemm_sm90_pingpong": Family(
        ("producer", "consumer"),
        GEMM_RULES | {"PG230"},
        later("gemm_defaults", "fill_gemm"),
        later("gemm_sm90_pingpong", "plan_gemm_sm90_pingpong"),
    ),
    "gemm_sm90_split_k": Family(
        ("producer", "consumer"),
        GEMM_RULES | {"PG206"},
        later("gemm_defaults", "fill_gemm"),
        later("gemm_sm90_split_k", "plan_gemm_sm90_split_k"),
    ),
    "gemm_sm100": Family(
        ("tma", "mma", "epilogue"),
        GEMM_SM100_RULES,
        later("gemm_defaults", "fill_gemm"),
        later("gemm_sm100_cute", "plan_gemm_sm100_cute"),
    ),
    "gemm_sm100_clc": Family(
        ("tma", "mma", "epilogue", "scheduler"),
        GEMM_SM100_RULES,
        later("gemm_defaults", "fill_gemm"),
        later("gemm_sm100_cute", "plan_gemm_sm100_cute"),
    ),
    "gemm_rowsum_sm100": Family(
        ("tma", "mma", "epilogue", "statistic"),
        GEMM_SM100_RULES | {"PG260"},
        later("gemm_defaults", "fill_gemm"),
        later("gemm_rowsum_sm100", "plan_gemm_rowsum_sm100"),
    ),
    "gemm_sm90_pallas": Family(
        ("producer", "consumer"),
        GEMM_RULES | {"PG223", "PG301"},
        later("gemm_pallas_defaults", "fill_gemm_pallas"),
        later("gemm_sm90_pallas", "plan_gemm_sm90_pallas"),
        RELEASE_KEYS | {"role.consumer.split", "role.producer.memory_thread_idx"},
    ),
    "gemm_sm90_pallas_pingpong": Family(
        ("producer", "consumer"),
        GEMM_RULES | {"PG230"},
        later("gemm_defaults", "fill_gemm"),
        later("gemm_sm90_pallas_pingpong", "plan_gemm_sm90_pallas_pingpong"),
    ),
    "gemm_sm100_pallas": Family(
        ("tma", "mma", "epilogue"),
        GEMM_RULES | {"PG242", "PG243"},
        later("gemm_defaults", "fill_gemm"),
        later("gemm_sm100_pallas", "plan_gemm_sm100_pallas"),
    ),
    "gemm_sm90_pallas_call": Family(
        ("producer", "consumer"),
        GEMM_RULES,
        later("gemm_sm90_pallas_call", "fill_pallas_call"),
        later("gemm_sm90_pallas_call", "plan_gemm_sm90_pallas_call"),
    ),
    "stream_tma": Family(
        ("producer", "consumer"),
        STREAM_RULES,
        later("stream.defaults", "fill_stream"),
        later("stream.plan", "plan_stream_tma"),
        frozenset(("stream.tiles_per_block",)),
    ),
    "stream_threads": Family(
        ("producer", "consumer"),
        STREAM_THREADS_RULES,
        later("stream.threads_sizes", "fill_stream_threads"),
        later("stream.threads", "plan_stream_threads"),
        frozenset(("stream.tiles_per_block",)),
    ),
    "custom": Family(
        (), CUSTOM_RULES, later("custom.plan", "fill_custom"), later("custom.plan", "plan_custom")
    ),
    "custom_products": Family(
        (),
        PRODUCT_RULES,
        later("custom.product_plan", "fill_products"),
        later("custom.product_plan", "plan_products"),
    ),
    "custom_umma": Family(
        (),
        PRODUCT_RULES | {"PG269"},
        later("custom.product_plan", "fill_products"),
        later("custom.umma_plan", "plan_umma"),
    ),
    "custom_products_pallas": Family(
        (),
        PRODUCT_RULES | {"PG285"},
        later("custom.product_plan", "fill_pallas_products"),
        later("custom.product_plan", "plan_products"),
    ),
    "custom_umma_pallas": Family(
        (),
        PRODUCT_RULES | {"PG269", "PG285"},
        later("custom.product_plan", "fill_pallas_products"),
        later("custom.umma_plan", "plan_umma"),
    ),
    "custom_pallas": Family(
        (),
        CUSTOM_RULES | {"PG277"},
        later("custom.plan", "fill_custom"),
        later("custom.plan", "plan_custom"),
    ),
    "stream_pallas": Family(
        ("producer", "consumer"),
        ROWS_RULES,
        later("rows.defaults", "fill_stream_pallas"),
        later("rows.plan", "plan_rows"),
        frozenset(("stream.tiles_per_block",)),
    ),
    "reduce_pallas": Family(
        ("producer", "consumer"),
        ROWS_RULES,
        later("rows.defaults", "fill_reduce_pallas"),
        later("rows.plan", "plan_rows"),
        frozenset(("reduce.tiles_per_block",)),
    ),
    "ts_gemm_sm90": Family(
        ("producer", "consumer"),
        GEMM_RULES,
        later("gemm_defaults", "fill_gemm"),
        later("task_scheduling.gemm_sm90", "plan_ts_gemm_sm90"),
    ),
    "ts_gemm_sm100": Family(
        ("tma", "mma", "epilogue"),
        GEMM_SM100_RULES,
        later("gemm_defaults", "fill_gemm"),
        later("task_scheduling.gemm_sm100", "plan_ts_gemm_sm100"),
    ),
    "ts_gemm_sm100_clc": Family(
        ("tma", "mma", "epilogue", "scheduler"),
        GEMM_SM100_RULES,
        later("gemm_defaults", "fill_gemm"),
        later("task_scheduling.gemm_sm100", "plan_ts_gemm_sm100"),
    ),
    "ts_stream": Family(
        ("producer", "consumer"),
        TS_STREAM_RULES,
        later("task_scheduling.stream_sizes", "fill_ts_stream"),
        later("task_scheduling.stream", "plan_ts_stream"),
    ),
    "mixed_gemm_sm90": Family(
        ("producer", "consumer"),
        MIXED_RULES,
        later("mixed_defaults", "fill_mixed"),
        later("mixed_sm90_cute", "plan_mixed_sm90_cute"),
    ),
    "mixed_gemm_sm90_pallas": Family(
        ("producer", "consumer"),
        MIXED_RULES,
        later("mixed_defaults", "fill_mixed"),
        later("mixed_sm90_pallas", "plan_mixed_sm90_pallas"),
    ),
    "mixed_gemm_sm100": Family(
        ("tma", "mma", "transform", "epilogue"),
        MIXED_RULES,
        later("mixed_defaults", "fill_mixed"),
        later("mixed_sm100_cute", "plan_mixed_sm100_cute"),
    ),
}


def family_of(description: KernelDescription) -> Family | None:
    """The family of the template that writes the description; None if none does."""
    template = template_of(description)
    return FAMILIES[template.family] if template else None
