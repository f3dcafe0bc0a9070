# SPDX-License-Identifier: Apache-2.0
"""Creates pipelines of the installed CuTe DSL while tracing a kernel; prints their counts as JSON.

    CUTE_DSL_ARCH=sm_100a python tests/trace_counts.py '[["PipelineTmaUmma", {...}], ...]'

Each request is a class, the sizes of its groups, and the cluster as (V, M, N). With
enable_multicast_signaling the class itself derives the arrivals from the warps and the cluster.
"""

import json
import sys

import cutlass
from cutlass import cute, pipeline

requests = json.loads(sys.argv[1])
found = []


def group(threads):
    return pipeline.CooperativeGroup(pipeline.Agent.Thread, threads)


def create(name, ask, storage):
    """The pipeline that a request describes."""
    made = {"barrier_storage": storage, "defer_sync": True}
    if name == "PipelineOrder":
        groups = {"depth": ask["depth"], "length": ask["length"], "group_id": 0}
        return pipeline.PipelineOrder.create(
            **made, **groups, producer_group=group(ask["producer"])
        )
    made |= {"num_stages": ask["stages"], "producer_group": group(ask["producer"])}
    if "cluster" in ask:
        v, m, n = ask["cluster"]
        made["cta_layout_vmnk"] = cute.make_layout((v, m, n, 1))
    if "tx_count" in ask:
        made["tx_count"] = ask["tx_count"]
    if "consumer_umma" in ask:
        made |= {
            "consumer_group_umma": group(ask["consumer_umma"]),
            "consumer_group_async": group(ask["consumer_async"]),
        }
    else:
        made["consumer_group"] = group(ask["consumer"])
    if ask.get("derive"):
        made["enable_multicast_signaling"] = True
        made["mcast_mode_mn"] = tuple(ask.get("mcast_mode", (1, 1)))
    return getattr(pipeline, name).create(**made)


def counts(made):
    """Arrive counts and bytes that a pipeline's barriers are initialised with."""
    full = made.sync_object_full
    empty = getattr(made, "sync_object_empty", None)
    return {
        "full": int(full.arrive_count),
        "empty": int(empty.arrive_count) if empty is not None else None,
        "tx_count": int(full.tx_count),
        "barriers": int(full.num_stages) * (2 if empty is not None else 1),
    }


@cute.kernel
def kernel():
    storage = cutlass.memory.SmemAllocator().allocate_array(cutlass.Int64, 64)
    for name, ask in requests:
        found.append(counts(create(name, ask, storage)))


@cute.jit
def trace():
    kernel().launch(grid=(1, 1, 1), block=(128, 1, 1))


cute.compile(trace)
print("COUNTS " + json.dumps(found))
