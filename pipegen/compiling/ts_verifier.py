# SPDX-License-Identifier: Apache-2.0
"""Compiles a Task Scheduling module with all of its checks on, and writes down what they found.

    python ts_verifier.py REPORT MODULE

Runs MODULE with --compile-only, in this process. Each TaskManager that it makes runs Task
Scheduling's own checks, those too that the module has switched off, over as many steps of a loop of
unknown length as it takes to go round its deepest ring; and the bytes that a stage's TMA copies
bring are added up, which Task Scheduling leaves to the author. REPORT is a JSON file: a list with
one entry for each TaskManager. Imports no pipegen: it runs in environments that have none.

The search through all orders is Task Scheduling's, made smaller without losing an order in which
something goes wrong: steps that neither wait nor let another task go on are left out, unless they
touch memory that two resources share. Rings deeper than MODELLED_STAGES are searched with so many.
"""

import contextlib
import dataclasses
import io
import json
import runpy
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

from cutlass import cute as _cute
from cutlass.base_dsl import dsl as _dsl
from cutlass.experimental.task_scheduling import exhaustive_checker as _exhaustive_checker
from cutlass.experimental.task_scheduling import task_manager as _task_manager
from cutlass.experimental.task_scheduling.enums import ScheduleStage
from cutlass.experimental.task_scheduling.resources import (
    PdlLaunchBarrier,
    PdlWaitBarrier,
    WorkQueue,
)
from cutlass.experimental.task_scheduling.task import Task as _Task

# What is wrapped below.
cute: Any = _cute
base_dsl: Any = _dsl
exhaustive_checker: Any = _exhaustive_checker
task_manager: Any = _task_manager
Task: Any = _Task

MODELLED_STAGES = 8
_PROTOCOL = (
    ScheduleStage.ProducerAcquire,
    ScheduleStage.ProducerCommit,
    ScheduleStage.ConsumerWait,
    ScheduleStage.ConsumerRelease,
)
_RING = ("TmaAsync", "TmaUmma")  # pipelines whose full barrier counts bytes


class Reports:
    """What is known of each TaskManager so far; the last one is being made or run."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.entries: list[dict[str, Any]] = []

    @property
    def current(self) -> dict[str, Any]:
        return self.entries[-1]

    def begin(self) -> None:
        self.entries.append(
            {
                "searches": [], "left_out": [], "failed": "", "message": "", "warnings": [],
                "table": "", "smem": [], "barrier_bytes": 0, "smem_bytes": 0, "tmem": [],
                "bytes": {}, "pipelines": {}, "steps": 1, "check": "", "searched_stages": {},
                "shared_memory": False,
            }
        )  # fmt: skip

    def write(self) -> None:
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(self.entries, file)


def modelled_stages(config: Any) -> int:
    """The stages that a ring is searched with: its own, or as many lanes as go into the limit."""
    stride: int = config.max_interleave_stride
    most = max(MODELLED_STAGES // stride, 1) * stride
    return min(int(config.num_stages), most)


@contextlib.contextmanager
def modelled(tasks: Any, entry: dict[str, Any]) -> Iterator[None]:
    """Deep rings are shallower inside."""
    resources = {id(r): r for t in tasks for r in (*t.src_resources, *t.dst_resources)}.values()
    configs = [(r, r.pipeline_config) for r in resources if r.pipeline_config is not None]
    try:
        for resource, config in configs:
            stages = modelled_stages(config)
            entry["searched_stages"][resource.name] = stages
            resource.pipeline_config = dataclasses.replace(config, num_stages=stages)
        entry["steps"] = max(entry["searched_stages"].values(), default=1) + 1
        yield
    finally:
        for resource, config in configs:
            resource.pipeline_config = config


def install_loops(reports: Reports) -> None:
    """What is searched of a task: enough steps of its loop, and of these what can matter."""
    expand, variant = exhaustive_checker.expand_loop, exhaustive_checker._expand_task_for_check

    def expand_loop(task: Any, dynamic_domain_fallback: int = 1, **more: Any) -> Any:
        # A loop of unknown length goes round the deepest ring, and one step further.
        steps = max(dynamic_domain_fallback, reports.current["steps"])
        return expand(task, dynamic_domain_fallback=steps, **more)

    def expand_task_for_check(task: Any, *arguments: Any, **options: Any) -> Any:
        shared = reports.current["shared_memory"]
        entries = variant(task, *arguments, **options)
        return [entry for entry in entries if matters(entry, shared)]

    exhaustive_checker.expand_loop = expand_loop
    exhaustive_checker._expand_task_for_check = expand_task_for_check


def matters(entry: Any, shared: bool) -> bool:
    """Whether a step can block, let another task go on, or touch memory of two resources."""
    resource, stage = entry[0], entry[1]
    if isinstance(resource, (PdlWaitBarrier, PdlLaunchBarrier)):
        return True
    if isinstance(resource, WorkQueue):
        return False  # not searched: its barriers are the library's
    if stage in (ScheduleStage.ConsumerWork, ScheduleStage.ProducerWork):
        return shared
    return stage in _PROTOCOL


def install_search(reports: Reports) -> None:
    """Record each search."""
    original = exhaustive_checker.check_all_interleavings

    def check_all_interleavings(tasks: Any, **options: Any) -> Any:
        entry = reports.current
        busy = [task for task in tasks if _takes_part(task)]
        entry["left_out"] = [task.name for task in tasks if not _takes_part(task)]
        resources = exhaustive_checker._collect_resources(busy)
        entry["shared_memory"] = bool(exhaustive_checker.build_alias_info(resources)[0])
        options["verbose"] = False
        with modelled(busy, entry):
            result = original(busy, **options)
        races = [
            f"{race.writer_task} writes {race.writer_resource} while {race.victim_task} has "
            f"{race.victim_resource} ({race.victim_access}; {race.overlap_desc})"
            for race in result.race_states
        ]
        entry["searches"].append(
            {
                "tiles": options.get("num_tiles", 1),
                "skipped_tile": options.get("skipped_tile", False),
                "states": result.states_explored,
                "deadlocks": len(result.deadlock_states),
                "races": races,
                "launch_orders": len(result.pdl_order_states),
                "stopped": bool(result.hit_state_limit),
            }
        )
        return result

    exhaustive_checker.check_all_interleavings = check_all_interleavings


def _takes_part(task: Any) -> bool:
    return any(
        not isinstance(r, WorkQueue)
        for r in (*task.src_resources, *task.dst_resources)
        if r.pipeline_config is not None or isinstance(r, (PdlWaitBarrier, PdlLaunchBarrier))
    )


def install_manager(reports: Reports) -> None:
    """All checks of every TaskManager, its table kept, and its layout."""
    original = task_manager.TaskManager.__init__
    run_check = task_manager.TaskManager._run_check

    def init(self: Any, tasks: Any, *arguments: Any, **options: Any) -> None:
        reports.begin()
        entry = reports.current
        options |= {
            "verbose": True, "exhaustive_deadlock_race_check": True, "skip_validation": False,
        }  # fmt: skip
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                original(self, tasks, *arguments, **options)
        except (ValueError, RuntimeError, AssertionError, TypeError) as error:
            entry["failed"] = entry["check"] or "construction"
            entry["message"] = f"{type(error).__name__}: {error}"
            raise
        finally:
            entry["table"] = printed.getvalue()
            entry["warnings"] = [
                str(w.message) for w in said if "Exhaustive checker hit" not in str(w.message)
            ]
            _note_layout(entry, self, tasks)

    def check(self: Any, check_fn: Any) -> None:
        reports.current["check"] = getattr(check_fn, "__name__", "check").strip("_")
        run_check(self, check_fn)

    task_manager.TaskManager.__init__ = init
    task_manager.TaskManager._run_check = check


def _note_layout(entry: dict[str, Any], manager: Any, tasks: Any) -> None:
    smem = getattr(manager, "_smem_allocator", None)
    tmem = getattr(manager, "_tmem_allocator", None)
    if smem is not None:
        entry["smem"] = [
            {"name": a.name, "bytes": a.size_bytes, "alignment": a.alignment, "offset": a.offset}
            for a in _allocations(smem)
        ]
        entry["barrier_bytes"] = smem.barrier_smem_bytes
        entry["smem_bytes"] = -(-smem.total_smem_bytes // 8) * 8 + smem.barrier_smem_bytes
    if tmem is not None:
        entry["tmem"] = [
            {"name": a.name, "columns": a.num_columns, "offset": a.offset}
            for a in _allocations(tmem)
        ]
    resources = {id(r): r for t in tasks for r in (*t.src_resources, *t.dst_resources)}
    for resource in resources.values():
        config = resource.pipeline_config
        if config is not None:
            entry["pipelines"][resource.name] = {
                "type": config.pipeline_type.value,
                "stages": config.num_stages,
                "bytes": config.num_bytes,
                "producers": config.producer_group.size,
                "consumers": config.consumer_group.size,
            }


def _allocations(allocator: Any) -> list[Any]:
    found = {id(a): a for a in allocator._allocations}
    found |= {id(a): a for g in allocator._alias_groups for phase in g for a in phase}
    return sorted(found.values(), key=lambda a: a.offset)


class WrongBytes(ValueError):
    """A stage's copies bring other bytes than its barrier is armed with."""


def install_bytes(reports: Reports) -> None:
    """Add up what the copies of a stage bring, from its acquire to its commit."""
    loading: list[Any] = []  # the resource whose work method is being traced
    brought: dict[int, int] = {}
    foreign: set[int] = set()  # resources whose copies are not cute.copy
    copy, work = cute.copy, Task._producer_work
    acquire, commit = Task._producer_acquire, Task._producer_commit

    def counted_copy(atom: Any, source: Any, target: Any, *arguments: Any, **options: Any) -> Any:
        if loading and options.get("tma_bar_ptr") is not None:
            key = id(loading[-1])
            if options.get("mcast_mask") is not None:
                foreign.add(key)  # others' copies land here, too
            size = cute.size_in_bytes(target.element_type, target.layout)
            if isinstance(size, int):
                brought[key] = brought.get(key, 0) + size
            else:
                foreign.add(key)
        return copy(atom, source, target, *arguments, **options)

    def counted_work(self: Any, resource: Any, *arguments: Any, **options: Any) -> Any:
        loading.append(resource)
        try:
            return work(self, resource, *arguments, **options)
        finally:
            loading.pop()

    def counted_acquire(self: Any, resource: Any, *arguments: Any, **options: Any) -> Any:
        brought[id(resource)] = 0
        return acquire(self, resource, *arguments, **options)

    def counted_commit(self: Any, resource: Any, *arguments: Any, **options: Any) -> Any:
        config = resource.pipeline_config
        if config is not None and config.pipeline_type.value in _RING:
            _judge_bytes(reports, resource, brought.get(id(resource), 0), id(resource) in foreign)
        return commit(self, resource, *arguments, **options)

    cute.copy = counted_copy
    Task._producer_work = counted_work
    Task._producer_acquire = counted_acquire
    Task._producer_commit = counted_commit


def _judge_bytes(reports: Reports, resource: Any, brought: int, foreign: bool) -> None:
    config = resource.pipeline_config
    ctas = config.cta_layout_vmnk[0] if isinstance(config.cta_layout_vmnk, tuple) else 1
    if foreign or not brought:
        reports.current["bytes"][resource.name] = None  # by other means than cute.copy
        return
    # In a pair the copies of both CTAs count at the leader's barrier.
    total = brought * (ctas if config.pipeline_type.value == "TmaUmma" else 1)
    reports.current["bytes"][resource.name] = total
    if total != config.num_bytes:
        entry = reports.current
        entry["failed"] = "bytes_of_a_stage"
        happens = "waits for ever" if total < config.num_bytes else "reads before all has landed"
        entry["message"] = (
            f"{resource.name}: a stage is armed with num_bytes = {config.num_bytes} B, and its TMA "
            f"copies bring {total} B: its reader {happens}"
        )
        raise WrongBytes(entry["message"])


def leave_out_places() -> None:
    """Do not find each operation's place in the source, which ptxas' remarks switch on.

    Under Task Scheduling's deep stacks that takes half of the time, and only the remarks' own place
    would come of it, which is the same for all: the launcher. Without remarks it is off, too.
    """
    if hasattr(base_dsl, "_set_enable_frame_filtering"):
        base_dsl._set_enable_frame_filtering = lambda _: None


def main(arguments: list[str]) -> int:
    path, module = arguments
    leave_out_places()
    reports = Reports(path)
    install_loops(reports)
    install_search(reports)
    install_manager(reports)
    install_bytes(reports)
    sys.argv = [module, "--compile-only"]
    try:
        runpy.run_path(module, run_name="__main__")
    except SystemExit as end:
        reports.write()
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        reports.write()
        traceback.print_exc()
        return 1
    reports.write()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
