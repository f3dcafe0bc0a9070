# SPDX-License-Identifier: Apache-2.0
"""Plan of the custom kernels: the user's graph with every number of it."""

from collections.abc import Iterable
from typing import Any

from pipegen.arithmetic import align_up
from pipegen.description import KernelDescription
from pipegen.hardware import WARP, WARPGROUP
from pipegen.planning.custom.graph import UMMA, Graph, Order, Ring, RoleNode
from pipegen.planning.custom.numbers import MOST_AUTO_STAGES, NAMED_BARRIERS, Numbers
from pipegen.planning.custom.pallas import CONSTRUCT, pallas_values
from pipegen.planning.custom.reading import read_graph
from pipegen.planning.custom.template import template_values
from pipegen.planning.formulas import stages_or_given
from pipegen.planning.model import Number, PipelinePlan, Plan, RolePlan
from pipegen.selection import Refusal, select
from pipegen.selection_table import rows

USUAL_TILE = (32, 256)
STATE_TILE = (64, 128)  # in Pallas, where a number of each row is handed on: wgmma's layout


def fill_custom(data: dict[str, Any]) -> None:
    """The tile, in place. What else is left out follows from the graph (`reading`)."""
    tile = data["tile"]
    hands_on = any(order["shape"] for order in data["order"].values())
    usual = STATE_TILE if hands_on and data["kernel"]["backend"] == "pallas" else USUAL_TILE
    tile["m"] = usual[0] if tile["m"] is None else tile["m"]
    tile["n"] = usual[1] if tile["n"] is None else tile["n"]


def class_of(ring: Ring, description: KernelDescription) -> str:
    """The class that the selection table has for an edge; in Pallas its barriers stand alone."""
    kernel = description.kernel
    if kernel.backend == "pallas":
        return CONSTRUCT
    found = select(ring.producer, ring.consumer, arch=kernel.arch, backend=kernel.backend)
    if isinstance(found, Refusal):
        raise ValueError(f"rule PG271 lets no such edge pass: {ring.edge}, {found.reason}")
    return found.cls


def plan_custom(
    given: KernelDescription, description: KernelDescription, name: str, template: str
) -> Plan:
    """Every number of the kernel. `description` has its tile and keeps the rules."""
    graph = read_graph(description)
    if graph is None:
        raise ValueError(f"no graph to plan: {description.pipeline=}")
    numbers = Numbers(graph, description.kernel.arch, description.kernel.backend)
    pallas = description.kernel.backend == "pallas"
    classes = {ring.name: class_of(ring, description) for ring in graph.rings}
    pipelines = (
        *(pipeline_of(numbers, ring, classes[ring.name]) for ring in graph.rings),
        *(order_pipeline(numbers, order) for order in graph.orders),
    )
    return Plan(
        name,
        given,
        description,
        template,
        pipelines,
        tuple(role_of(graph, role) for role in graph.roles),
        numbers_of(given, numbers),
        stage_limit(numbers),
        (
            pallas_values(description, numbers)
            if pallas
            else template_values(description, numbers, classes)
        ),
    )


FILLED_BY = {
    "tma": "the TMA copies of {warps}, which arm the barrier with their bytes",
    "cp_async": "cp.async of every thread of {warps}, each of which commits every stage",
    "thread": "every thread of {warps}, from its body; each commits every stage",
    UMMA: "the MMAs of {warps}, whose tcgen05.commit arrives when they are done",
}


def pipeline_of(numbers: Numbers, ring: Ring, cls: str) -> PipelinePlan:
    """One ring, with its barriers' counts."""
    filled = FILLED_BY[ring.producer]
    if numbers.pallas:
        pallas = {"tma": "the copies of {warps}, each with its bytes", UMMA: filled}
        filled = pallas.get(ring.producer, "each warpgroup of {warps}, from its body")
    return PipelinePlan(
        name=ring.name,
        producer=ring.producer,
        consumer=ring.consumer,
        construct=cls,
        stages=numbers.stages(ring),
        stage_bytes=numbers.stage_bytes(ring),
        tx_count=numbers.tx_count(ring),
        full_arrive_count=numbers.full_count(ring),
        empty_arrive_count=numbers.empty_count(ring),
        filled_by=filled.format(warps=" and ".join(ring.sources)),
        emptied_by=emptied_by(ring, numbers.pallas),
    )


def emptied_by(ring: Ring, pallas: bool) -> str:
    """Who says that a stage has been read."""
    readers = " and ".join(ring.targets)
    if ring.consumer == UMMA:
        return f"a tcgen05.commit of {readers}, which arrives when its MMAs have read"
    if pallas:
        return f"each warpgroup of {readers}, once it has read"
    return f"one lane of each warp of {readers}, once it has read"


def order_pipeline(numbers: Numbers, order: Order) -> PipelinePlan:
    """An order's turns, which have a barrier for each group and part."""
    pallas = numbers.pallas
    who = "each warpgroup" if pallas else "every thread of a group"
    return PipelinePlan(
        name=order.name,
        producer="thread",
        consumer="thread",
        construct=CONSTRUCT if pallas else turns_class(numbers.arch),
        stages=order.depth,
        stage_bytes=0 if order.state is None else numbers.part_bytes(order.state),
        tx_count=None,
        full_arrive_count=numbers.turn_count(order),
        empty_arrive_count=None,
        filled_by=f"{who} of {', '.join(order.roles)}, when it has had its turn",
        emptied_by="nobody: the next group waits for its own barrier",
        groups=order.groups,
    )


def turns_class(arch: str) -> str:
    """The class that the selection table has for groups that take turns."""
    return next(row.cls for row in rows("cute", arch) if row.pair == "ordered groups")


def does(role: RoleNode) -> str:
    """What a role does, in one phrase."""
    verbs = {"tma": "loads by TMA", "cp_async": "copies by cp.async", "tma_store": "stores by TMA"}
    takes = [part.name for part in role.reads] + [ring.name for ring in role.inputs]
    gives = [ring.name for ring in role.outputs] + [part.name for part in role.writes]
    verb = verbs.get(role.kind, "computes")
    return f"{verb}: {', '.join(takes)} -> {', '.join(gives)}, once a {role.every}"


def role_of(graph: Graph, role: RoleNode) -> RolePlan:
    """One role with its threads."""
    return RolePlan(
        role.name, role.block_warps // 4, WARP * role.block_warps, role.registers, does(role)
    )


def stage_limit(numbers: Numbers) -> str:
    """What limits the rings that leave their stages to SMEM."""
    auto = [ring.name for ring in numbers.graph.rings if ring.stages is None]
    if not auto:
        return "the description"
    more = numbers.total(numbers.auto_stages + 1)
    if numbers.auto_stages == MOST_AUTO_STAGES:
        return f"{MOST_AUTO_STAGES} hide the latency of a load; {', '.join(auto)} may ask for more"
    return (
        f"SMEM: {numbers.auto_stages + 1} stages of {', '.join(auto)} would take {more} B of "
        f"{numbers.capacity} B"
    )


def numbers_of(given: KernelDescription, numbers: Numbers) -> tuple[Number, ...]:
    """Every derived number with its formula."""
    graph, found = numbers.graph, []
    for ring in graph.rings:
        found += ring_numbers(given, numbers, ring)
    warps = " + ".join(str(role.block_warps) for role in graph.roles)
    sizes = " + ".join(
        f"{numbers.stages(ring)} * {numbers.stage_bytes(ring)}" for ring in graph.rings
    )
    barriers = 2 * sum(numbers.stages(ring) for ring in graph.rings)
    barriers += sum(order.depth * order.groups for order in graph.orders)
    bytes_of_barriers = numbers.smem_bytes - sum(
        numbers.stages(ring) * numbers.stage_bytes(ring) for ring in graph.rings
    )
    meeting = sum(role.groups for role in graph.roles if role.kind == "thread" and role.warps > 1)
    for order in graph.orders:
        each = numbers.turn_count(order)
        found.append(
            Number(
                f"{order.name}_arrive_count",
                each,
                "arrivals",
                "1" if numbers.pallas else f"{WARP} * {graph.role(order.roles[0]).warps}",
                f"{'each' if numbers.pallas else 'each thread of one'} of {order.groups} groups "
                "gives its turn on",
            )
        )
    return (
        *found,
        Number(
            "vector", graph.tile[1] // WARP, "elements", f"{graph.tile[1]} / {WARP}", "a lane's"
        ),
        Number("threads", numbers.threads, "threads", f"{WARP} * ({warps})", "a CTA"),
        Number(
            "smem_bytes",
            numbers.smem_bytes,
            "B",
            f"{bytes_of_barriers} + {sizes}",
            f"at most {numbers.capacity} B a block, with {barriers} mbarriers",
        ),
        Number(
            "launch_registers",
            numbers.launch_registers,
            "registers",
            f"as many as {align_up(numbers.threads, WARPGROUP)} threads can have",
            "a thread's at launch, at most",
        ),
        Number(
            "named_barriers",
            meeting,
            "barriers",
            f"{meeting} roles of several warps",
            f"at most {NAMED_BARRIERS} beside __syncthreads; a body may meet at its own",
        ),
        Number(
            "grid",
            "persistent",
            "blocks",
            "min(panels, SMs)",
            "a fixed stride over panels: as many blocks as the GPU runs at once",
        ),
    )


def ring_numbers(given: KernelDescription, numbers: Numbers, ring: Ring) -> list[Number]:
    """The counts and the bytes of one ring."""
    full, empty = count_formulas(numbers, ring)
    words = {
        "tma": "one lane of each warp that acquires",
        "pallas": (
            "each copy for itself"
            if ring.producer == "tma"
            else "a warpgroup of Mosaic GPU arrives as one"
        ),
        UMMA: "a tcgen05.commit",
    }
    whose = "each warpgroup" if numbers.pallas else "one lane of each warp"
    if ring.consumer == UMMA:
        whose = "a tcgen05.commit of each role"
    return [
        Number(
            f"{ring.name}_stages",
            numbers.stages(ring),
            "stages",
            stages_or_given(given, ring.name, "as many as fit, at most 4"),
            f"of {numbers.stage_words(ring)}",
        ),
        Number(
            f"{ring.name}_full_arrive_count",
            numbers.full_count(ring),
            "arrivals",
            full,
            words.get(
                "pallas" if numbers.pallas and not ring.in_tmem else ring.producer,
                "every thread that commits",
            ),
        ),
        Number(
            f"{ring.name}_empty_arrive_count",
            numbers.empty_count(ring),
            "arrivals",
            empty,
            f"{whose} that releases{', in both CTAs' if ring.multicast else ''}",
        ),
    ]


def count_formulas(numbers: Numbers, ring: Ring) -> tuple[str, str]:
    """How a stage's two arrive counts come about; of groups in turn one comes to a stage."""
    graph = numbers.graph
    sources, targets = (graph.at_a_time(ends) for ends in (ring.sources, ring.targets))
    full = sum_of(numbers.commit_arrivals(ring, source) for source in sources)
    if ring.producer in ("thread", "cp_async") and not numbers.pallas:  # every thread
        warps = sum_of(graph.role(source).warps for source in sources)
        full = f"{WARP} * ({warps})" if len(sources) > 1 else f"{WARP} * {warps}"
    empty = sum_of(numbers.release_arrivals(target) for target in targets)
    if ring.multicast:
        empty = f"2 * ({empty})" if len(targets) > 1 else f"2 * {empty}"
    return full, empty


def sum_of(terms: Iterable[int]) -> str:
    """`4 + 4`"""
    return " + ".join(map(str, terms))
