# SPDX-License-Identifier: Apache-2.0
"""The lines of each role of a custom kernel in the CuTe DSL: its moves, and its place in the rings.

Names of the emitted file: NAME_ring, NAME_producer, NAME_consumer and NAME_stage of a ring,
NAME_smem of what its stages hold, NAME_gmem or tma_NAME of a tensor, NAME_part of a thread's part.
"""

from dataclasses import dataclass

from pipegen.planning.custom.graph import UMMA, WGMMA, Graph, Part, Ring, RoleNode
from pipegen.planning.custom.numbers import Numbers


@dataclass(frozen=True)
class RoleCode:
    """The lines of a role around its loops, and in them: `tile_loop` has one body or none.

    `loop`: the head of the outer loop, over panels, or over the tiles of a group in turn.
    """

    setup: list[str]
    panel_start: list[str]
    tile_loop: list[list[str]]
    panel_end: list[str]
    tails: list[str]
    loop: str = "for panel in cutlass.range(first, panels, step, unroll=1):"


def upper(name: str) -> str:
    """The constant's spelling of a name."""
    return name.upper()


def tile_shape(part: Part) -> str:
    """The shape of a tile in the emitted file: a vector has one row or one column."""
    return f"({'TILE_M' if 'M' in part.dims else '1'}, {'TILE_N' if 'N' in part.dims else '1'})"


def field_of(ring: Ring, part: Part) -> str:
    """The name of a ring's buffer, and of a body's argument for one of its stages."""
    return ring.name if len(ring.parts) == 1 else f"{ring.name}_{part.name}"


def stage_of(ring: Ring, part: Part, fills: bool = False) -> str:
    """One stage of a ring's buffer; who fills a peer's ring does so in the other CTA's SMEM."""
    where = "peer" if fills and ring.peer else "smem"
    return f"{field_of(ring, part)}_{where}[None, None, {ring.name}_stage.index]"


def waits(ring: Ring) -> list[str]:
    """The wait for a full stage."""
    lines = [f"{ring.name}_stage = {ring.name}_consumer.wait_and_advance()"]
    if ring.peer:
        lines += [
            "# The other CTA has written the stage: what it wrote must be seen from here.",
            "cute.arch.fence_acq_rel_cluster()",
        ]
    return lines


def place_of(part: Part, role: RoleNode) -> str:
    """The place of a thread's part of a GMEM tile, in units of such parts."""
    m = f"panel * {upper(role.name)}_WARPS + thread // 32" if "M" in part.dims else "0"
    n = "tile * 32 + thread % 32" if "N" in part.dims else "0"
    return f"{m}, {n}"


def fragment_shape(part: Part, role: RoleNode) -> str:
    """The shape of a thread's part of a GMEM tile."""
    rows = f"{upper(role.name)}_ROWS" if "M" in part.dims else "1"
    return f"({rows}, {'VECTOR' if 'N' in part.dims else '1'})"


def role_code(numbers: Numbers, role: RoleNode) -> RoleCode:
    """All lines of a role."""
    build = {"tma": _tma, "cp_async": _cp_async, "tma_store": _tma_store}.get(role.kind, _thread)
    return build(numbers, role)


def at_level(rings: tuple[Ring, ...], role: RoleNode, level: str) -> tuple[Ring, ...]:
    """The rings that come once a panel, or once a tile."""
    return tuple(ring for ring in rings if ring.every == level)


def setup_of(numbers: Numbers, role: RoleNode, own_threads: bool) -> list[str]:
    """A role's ends of its rings, its threads, and its registers."""
    lines = [f"{ring.name}_consumer = {ring.name}_ring.make_consumer()" for ring in role.inputs]
    lines += [f"{ring.name}_producer = {ring.name}_ring.make_producer()" for ring in role.outputs]
    first_warp = numbers.first_warp(role)
    if own_threads:
        lines.append(f"thread = {own_thread(role, 32 * first_warp)}")
    if role.registers:
        lines.append(f"# {role.registers} registers a thread, from what the launch gave to all.")
        lines.append(setmaxnreg(numbers, role))
    return lines


def own_thread(role: RoleNode, first: int) -> str:
    """A thread's place in its role, or in its group of the role."""
    if role.groups == 1:
        return f"thread_idx - {first}" if first else "thread_idx"
    return (
        f"{f'(thread_idx - {first})' if first else 'thread_idx'} % (32 * {upper(role.name)}_WARPS)"
    )


def setmaxnreg(numbers: Numbers, role: RoleNode) -> str:
    """Whether the role gives registers or takes some, against what a thread starts with."""
    word = "decrease" if role.registers <= numbers.launch_registers else "increase"
    return f"cute.arch.setmaxregister_{word}({role.registers})"


def tails_of(role: RoleNode) -> list[str]:
    """Of several sources of a ring the first waits until all its stages have been released.

    Groups in turn need not: their stages are released by threads of their own CTA.
    """
    owned = [r for r in role.outputs if r.sources[0] == role.name and not role.order]
    if not owned:
        return []
    note = "# Leaves no arrive pending: waits until every stage has been released."
    return [note, *(f"{ring.name}_producer.tail()" for ring in owned)]


def _levels(
    role: RoleNode,
    start: list[str],
    tile: list[str],
    end: list[str],
    setup: list[str],
    tails: list[str],
) -> RoleCode:
    """A role with a loop over tiles, or one whose steps are panels."""
    return RoleCode(setup, start, [tile] if role.every == "tile" else [], end, tails)


def _tma(numbers: Numbers, role: RoleNode) -> RoleCode:
    setup = setup_of(numbers, role, False)
    for ring in role.outputs:
        for part in numbers.own_parts(ring, role.name):
            field = field_of(ring, part)
            half = ", rank, 2" if ring.multicast else ""
            setup.append(
                f"{field}_to, {field}_from = partition_tma(tma_{part.name}, {field}_smem, "
                f"{tile_shape(part)}{half})"
            )

    def loads(ring: Ring) -> list[str]:
        lines = [f"{ring.name}_stage = {ring.name}_producer.acquire_and_advance()"]
        mask = ", mcast_mask=cutlass.Int16(3)" if ring.multicast else ""
        for part in numbers.own_parts(ring, role.name):
            field = field_of(ring, part)
            place = f"{'panel' if 'M' in part.dims else '0'}, {'tile' if 'N' in part.dims else '0'}"
            lines.append(f"{field}_tile = {field}_from[None, {place}]")
            lines.append(
                f"cute.copy(tma_{part.name}.atom, {field}_tile, "
                f"{field}_to[None, {ring.name}_stage.index], "
                f"tma_bar_ptr={ring.name}_stage.barrier{mask})"
            )
        return [*lines, f"{ring.name}_stage.commit()"]

    start = [line for ring in at_level(role.outputs, role, "panel") for line in loads(ring)]
    tile = [line for ring in at_level(role.outputs, role, "tile") for line in loads(ring)]
    return _levels(role, start, tile, [], setup, tails_of(role))


def _cp_async(numbers: Numbers, role: RoleNode) -> RoleCode:
    tile = []
    for ring in role.outputs:
        tile.append(f"{ring.name}_stage = {ring.name}_producer.acquire_and_advance()")
        for part in numbers.own_parts(ring, role.name):
            target = f"part_of({stage_of(ring, part)}, {upper(role.name)}_WARPS, thread)"
            tile.append(f"copy_global({part.name}_gmem, {target}, {place_of(part, role)})")
        tile.append(f"{ring.name}_stage.commit()")
    setup = setup_of(numbers, role, True)
    return _levels(role, [], tile, [], setup, tails_of(role))


def _tma_store(numbers: Numbers, role: RoleNode) -> RoleCode:
    ring, out = role.inputs[0], role.writes[0]
    held = ring.parts[0]
    field = field_of(ring, held)
    place = f"{'panel' if 'M' in out.dims else '0'}, {'tile' if 'N' in out.dims else '0'}"
    setup = [
        *setup_of(numbers, role, False),
        f"{out.name}_from, {out.name}_to = partition_tma(tma_{out.name}, {field}_smem, "
        f"{tile_shape(out)})",
        "# One group of stores at a time: the next begins when this one has read its stage.",
        "group = pipeline.CooperativeGroup(pipeline.Agent.Thread, 32)",
        "stores = pipeline.PipelineTmaStore.create(num_stages=1, producer_group=group)",
    ]
    lines = [f"{ring.name}_stage = {ring.name}_consumer.wait_and_advance()"]
    if ring.producer == "cp_async":
        lines += [
            "# Other threads' cp.async have written the stage: TMA reads through another proxy.",
            'cute.arch.fence_proxy("async.shared", space="cta")',
        ]
    lines += [
        f"cute.copy(tma_{out.name}.atom, {out.name}_from[None, {ring.name}_stage.index], "
        f"{out.name}_to[None, {place}])",
        "stores.producer_commit()",
        "stores.producer_acquire()",
        "cute.arch.sync_warp()",
        *release(ring),
    ]
    start, tile = ([], lines) if role.every == "tile" else (lines, [])
    return _levels(role, start, tile, [], setup, ["stores.producer_tail()"])


def release(ring: Ring) -> list[str]:
    """One arrive of each warp: the TMA class chooses the lane itself, the others do not."""
    if ring.producer == "tma":
        return [f"{ring.name}_stage.release()"]
    return ["with cute.arch.elect_one():", f"    {ring.name}_stage.release()"]


def arguments_of(role: RoleNode) -> list[str]:
    """The arguments of a role's body, in order: what it takes, then what it gives."""
    given = [field_of(ring, part) for ring in role.inputs for part in ring.parts]
    made = [field_of(ring, part) for ring in role.outputs for part in ring.parts]
    return [*given, *(p.name for p in role.reads), *made, *(p.name for p in role.writes)]


def _thread(numbers: Numbers, role: RoleNode) -> RoleCode:
    kept = role.kept
    setup = setup_of(numbers, role, True)
    parts = [part for part in (*role.reads, *role.writes) if part not in kept]
    for part in parts:
        setup.append(
            f"{part.name}_part = make_part({fragment_shape(part, role)}, "
            f"{upper(part.name)}_DTYPE)"
        )
    for part in kept:
        setup.append(
            f"{part.name}_kept = cute.make_rmem_tensor({upper(role.name)}_ROWS, cutlass.Float32)"
        )
    panel_in = at_level(role.inputs, role, "panel") if role.every == "tile" else ()
    panel_out = at_level(role.outputs, role, "panel") if role.every == "tile" else ()
    inputs = tuple(ring for ring in role.inputs if ring not in panel_in)
    outputs = tuple(ring for ring in role.outputs if ring not in panel_out)

    start = [line for ring in outputs for line in lend(numbers, role, ring)]
    start += [line for ring in panel_in for line in waits(ring)]
    start += [f"{part.name}_kept.fill({float(role.start or 0.0)!r})" for part in kept]

    step = [line for ring in inputs for line in waits(ring)]
    step += [f"{ring.name}_stage = {ring.name}_producer.acquire_and_advance()" for ring in outputs]
    step += [
        f"load_global({part.name}_gmem, {part.name}_part, {place_of(part, role)})"
        for part in role.reads
    ]
    step.append(f"{role.name}({', '.join(call_arguments(role))})")
    step += [line for ring in outputs for line in commit(numbers.graph, ring)]
    step += [
        f"store_global({part.name}_part, {part.name}_gmem, {place_of(part, role)})"
        for part in role.writes
        if part not in kept
    ]
    step += give_back(inputs)

    end = [line for ring in inputs for line in settle(ring)]
    if kept:
        end.append(f"{role.name}_finish({', '.join(f'{p.name}_kept' for p in kept)}, thread)")
    for ring in panel_out:
        end.append(f"{ring.name}_stage = {ring.name}_producer.acquire_and_advance()")
        end += [
            (
                f"send_kept({part.name}_kept, {stage_of(ring, part, True)}, "
                f"{upper(role.name)}_WARPS, thread)"
                if ring.peer
                else f"store_kept({part.name}_kept, {stage_of(ring, part)}, thread // 32, thread)"
            )
            for part in ring.parts
        ]
        end += commit(numbers.graph, ring)
    end += [
        f"store_kept({part.name}_kept, {part.name}_gmem, {place_of(part, role)[:-3]}, thread)"
        for part in role.writes
        if part in kept
    ]
    end += give_back(panel_in)
    if role.every == "panel":
        return RoleCode(setup, step, [], [], tails_of(role))
    return RoleCode(setup, start, [step], end, tails_of(role))


def call_arguments(role: RoleNode) -> list[str]:
    """What the kernel hands to a role's body."""
    kept = role.kept
    given = [stage_of(ring, part) for ring in role.inputs for part in ring.parts]
    made = [
        f"{part.name}_kept" if part in kept else stage_of(ring, part, True)
        for ring in role.outputs
        for part in ring.parts
    ]
    reads = [f"{part.name}_part" for part in role.reads]
    writes = [f"{part.name}_{'kept' if part in kept else 'part'}" for part in role.writes]
    columns = ["columns - tile * TILE_N"] if role.every == "tile" else []
    return [*given, *reads, *made, *writes, *columns, "thread"]


def lend(numbers: Numbers, role: RoleNode, ring: Ring) -> list[str]:
    """Before a panel's first tile: the stages of a ring with credits that are full of zeros."""
    if not ring.credits:
        return []
    part = ring.parts[0]
    rows = f"{upper(role.name)}_ROWS" if "M" in part.dims else "1"
    return [
        f"# What {ring.edge} holds before the first tile.",
        f"for _ in cutlass.range({upper(ring.name)}_CREDITS, unroll=1):",
        f"    {ring.name}_stage = {ring.name}_producer.acquire_and_advance()",
        f"    zeros = cute.full(({rows}, VECTOR), 0.0, cutlass.Float32)",
        f"    store_part(zeros, {stage_of(ring, part)}, {upper(role.name)}_WARPS, thread)",
        *(f"    {line}" for line in commit(numbers.graph, ring)),
    ]


def settle(ring: Ring) -> list[str]:
    """Behind a panel's last tile: what a ring with credits still holds."""
    if not ring.credits:
        return []
    return [
        "# Nobody needs what the last tiles have fed back.",
        f"for _ in cutlass.range({upper(ring.name)}_CREDITS, unroll=1):",
        *(f"    {line}" for line in (*waits(ring), "cute.arch.sync_warp()", *release(ring))),
    ]


def commit(graph: Graph, ring: Ring) -> list[str]:
    """Every thread publishes its own part; for TMA or wgmma to read, through their proxy first."""
    kinds = {graph.role(target).kind for target in ring.targets}
    if kinds & {"tma_store", WGMMA, UMMA}:
        reader = "wgmma" if WGMMA in kinds else "tcgen05" if UMMA in kinds else "TMA"
        return [
            f"# {reader} reads the stage through the async proxy: publish to it first.",
            'cute.arch.fence_proxy("async.shared", space="cta")',
            f"{ring.name}_stage.commit()",
        ]
    if ring.peer:
        return [
            "# The arrive orders nothing for the other CTA's threads: its scope is this CTA.",
            "cute.arch.fence_acq_rel_cluster()",
            f"{ring.name}_stage.commit()",
        ]
    return [f"{ring.name}_stage.commit()"]


def give_back(rings: tuple[Ring, ...]) -> list[str]:
    """All lanes have read: then one arrive a warp."""
    if not rings:
        return []
    lines = []
    if any(ring.producer == "tma" for ring in rings):
        lines += [
            "# The next load writes through the async proxy: all reads must be done before it.",
            'cute.arch.fence_proxy("async.shared", space="cta")',
        ]
    if any(ring.peer for ring in rings):
        lines.append("cute.arch.fence_acq_rel_cluster()  # as before a commit")
    lines.append("cute.arch.sync_warp()")
    return lines + [line for ring in rings for line in release(ring)]
