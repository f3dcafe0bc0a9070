# SPDX-License-Identifier: Apache-2.0
"""A key must be one that the op uses.

What it checks
    tile.k, layout.a, layout.b, scheduler.raster_group, dtype.acc, dtype.promote_every, the
    registers of roles, producer warpgroups and consumer warps in a stream or reduce kernel; the
    keys of [stream] and [reduce] in all others; in_flight and delay_release of pipelines, split and
    memory_thread_idx of roles, and tiles_per_block, where the template does not have them.
    What describes a graph (tensors, edges, kinds, bodies) in all but a custom kernel, and there
    what only other ops have.

Why
    The kernel would be the same with and without such a key: what it asks for would be ignored,
    silently.

Example
    tile.k = 64 with op = "stream", which has no K.

Use instead
    Leave the key out.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription, Reduce, Stream
from pipegen.errors import Problem
from pipegen.planning.families import family_of

GENERAL = True
# Keys that only some families have (`Family.keys`).
RARE = {"pipeline": ("in_flight", "delay_release"), "role": ("split", "memory_thread_idx")}


def check(description: KernelDescription) -> Iterator[Problem]:
    op = description.kernel.op
    if op == "custom":
        unused = _unused_by_custom(description)
    else:
        unused = _only_of_graphs(description)
        unused |= _unused_without_mma(description) if op in ("stream", "reduce") else {}
        unused |= _unused_sections(description)
    for key, value in unused.items():
        why = f"a {op} kernel has no use for it"
        yield Problem(why, key, value, "no value", "leave the key out")
    for key, value in _of_other_families(description).items():
        if key not in unused:
            why = f"the template that writes this {op} kernel has no use for it"
            yield Problem(why, key, value, "no value", "leave the key out")


def _unused_without_mma(description: KernelDescription) -> dict[str, object]:
    """What was given of the keys that belong to GEMMs."""
    found: dict[str, object] = {}
    if description.tile.k is not None:
        found["tile.k"] = description.tile.k
    for operand, usual in (("a", "k"), ("b", "k")):
        if getattr(description.layout, operand) != usual:
            found[f"layout.{operand}"] = getattr(description.layout, operand)
    if description.scheduler.raster_group is not None:
        found["scheduler.raster_group"] = description.scheduler.raster_group
    if description.dtype.acc != "f32":
        found["dtype.acc"] = description.dtype.acc
    if description.dtype.promote_every:
        found["dtype.promote_every"] = description.dtype.promote_every
    for name, role in description.role.items():
        if role.registers is not None:
            found[f"role.{name}.registers"] = role.registers
    producer, consumer = description.role.get("producer"), description.role.get("consumer")
    if producer and producer.warpgroups is not None:
        found["role.producer.warpgroups"] = producer.warpgroups
    if consumer and consumer.warps != 1:
        found["role.consumer.warps"] = consumer.warps
    return found


def _unused_sections(description: KernelDescription) -> dict[str, object]:
    """What was given of another op's section; rule PG108 speaks about y and body."""
    return {
        f"{op}.{word}": getattr(section, word)
        for op, section in _movers(description).items()
        for word in ("blocks_per_sm", "tiles_per_block")
        if op != description.kernel.op and getattr(section, word) != "auto"
    }


def _movers(description: KernelDescription) -> dict[str, Stream | Reduce]:
    """The sections of the ops that move bytes."""
    return {"stream": description.stream, "reduce": description.reduce}


def _of_other_families(description: KernelDescription) -> dict[str, object]:
    """What was given of the keys that this kernel's family does not have."""
    family = family_of(description)
    found: dict[str, object] = {}
    for section, words in RARE.items():
        for name, entry in getattr(description, section).items():
            for word in words:
                key, value = f"{section}.{name}.{word}", getattr(entry, word)
                if value is not None and family and key not in family.keys:
                    found[key] = value
    for op, moves in _movers(description).items():
        key, each = f"{op}.tiles_per_block", moves.tiles_per_block
        if each != "auto" and family and key not in family.keys:
            found[key] = each
    return found


def _only_of_graphs(description: KernelDescription) -> dict[str, object]:
    """What was given of the keys that describe the user's own graph."""
    found: dict[str, object] = {f"tensor.{name}": "a table" for name in description.tensor}
    found |= {f"order.{name}": "a table" for name in description.order}
    if description.tile.p is not None:
        found["tile.p"] = description.tile.p
    for section, keys in (
        ("pipeline", ("edge", "holds", "dtype", "shape", "credits", "multicast", "peer")),
        ("role", ("kind", "body", "start", "finish", "turn")),
    ):
        for name, entry in getattr(description, section).items():
            for key in keys:
                if getattr(entry, key) is not None:
                    found[f"{section}.{name}.{key}"] = getattr(entry, key)
    return found


def _unused_by_custom(description: KernelDescription) -> dict[str, object]:
    """What was given of the keys that belong to the other ops: anything but its usual value."""
    usual = KernelDescription(kernel=description.kernel)
    found: dict[str, object] = {}
    own = {"pipegen", "kernel", "tile", "tensor", "pipeline", "role", "order", "cluster"}
    for section in KernelDescription.model_fields.keys() - own:
        given, plain = getattr(description, section), getattr(usual, section)
        for key in type(given).model_fields:
            value = getattr(given, key)
            filled_in = section == "dtype" and key == "acc" and value == "f32"
            if value != getattr(plain, key) and not filled_in:
                found[f"{section}.{key}"] = list(value) if isinstance(value, tuple) else value
    if description.cluster.cta_group != 1:
        found["cluster.cta_group"] = description.cluster.cta_group
    shapes = ",".join(tensor.shape for tensor in description.tensor.values())
    for key in ("k", "p"):  # of products
        if getattr(description.tile, key) is not None and key.upper() not in shapes:
            found[f"tile.{key}"] = getattr(description.tile, key)
    for name, ring in description.pipeline.items():
        for key in ("try_ahead", "defer_sync", "expected_tx", "out_specs"):
            if getattr(ring, key):
                found[f"pipeline.{name}.{key}"] = True
        if not ring.advance_on_wait:
            found[f"pipeline.{name}.advance_on_wait"] = False
        if ring.lanes != 1:
            found[f"pipeline.{name}.lanes"] = ring.lanes
    return found
