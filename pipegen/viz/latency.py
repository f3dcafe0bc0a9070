# SPDX-License-Identifier: Apache-2.0
"""A simple latency model of a plan: when each stage is filled, full, read and empty again.

Not a simulator. It answers one question: with these stages, who waits for whom? One SM, one ring
buffer, loads that arrive in order: `transfer` cycles each on the wire, `latency` later in SMEM. The
consumer takes `compute` cycles a stage, and `epilogue` cycles after the last stage of an output
tile (in a role of its own, where the plan has an accumulator pipeline).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pipegen.planning import Plan

Does = Literal["issue", "wait", "work", "epilogue"]
Holds = Literal["filling", "full", "read"]


@dataclass(frozen=True)
class Rates:
    """What the model assumes of one SM, per cycle, and the latency of a load in cycles."""

    flops: int
    load_bytes: int
    store_bytes: int
    smem_bytes: int
    latency: int
    issue: int


# Dense 16-bit FLOPs a cycle and SM: the data sheets' peak / (SMs x boost clock), rounded to a power
# of two. Bytes: one L2 sector port of 64 B a cycle, and SMEM's 128 B a cycle. Latencies are round
# figures of the size that microbenchmarks of TMA from L2 report. All can be set (`--rate`).
RATES: Mapping[str, Rates] = {
    "sm_90a": Rates(4096, 64, 64, 128, 700, 30),
    "sm_100a": Rates(8192, 64, 64, 128, 800, 30),
}
_FLOPS_FACTOR = {"e4m3": 2, "e5m2": 2}
_DTYPE_BYTES = {"f32": 4, "bf16": 2, "f16": 2}
_MOST_STEPS = 48


@dataclass(frozen=True)
class Assumption:
    """One number of the model, with where it comes from."""

    name: str
    value: int
    unit: str
    why: str


@dataclass(frozen=True)
class Span:
    """What a role does from `start` to `end` (cycles), for the step and stage it is about."""

    role: str
    does: Does
    start: int
    end: int
    step: int
    stage: int
    on: str = ""  # whom a wait waits for


@dataclass(frozen=True)
class Hold:
    """What a stage holds from `start` to `end`."""

    stage: int
    holds: Holds
    start: int
    end: int
    step: int


@dataclass(frozen=True)
class Timeline:
    """The whole picture: spans of roles, holds of stages, and the numbers behind them."""

    roles: tuple[str, ...]
    stages: int
    spans: tuple[Span, ...]
    holds: tuple[Hold, ...]
    assumptions: tuple[Assumption, ...]
    steps: int
    steps_a_tile: int

    @property
    def end(self) -> int:
        """The last cycle."""
        return max(span.end for span in self.spans)

    def waited(self, role: str) -> int:
        """Cycles that a role waits, once the ring has been filled for the first time."""
        return sum(s.end - s.start for s in self.spans if s.role == role and s.does == "wait")

    def busy(self, role: str) -> int:
        """Cycles that a role works."""
        return sum(s.end - s.start for s in self.spans if s.role == role and s.does != "wait")

    def verdict(self) -> str:
        """One sentence: what bounds the steady state."""
        values = {a.name: a.value for a in self.assumptions}
        compute, transfer = values["compute"], values["transfer"]
        needed = -(-(values["latency"] + transfer) // max(compute, transfer)) + 1
        if transfer > compute:
            return (
                f"Loads bound it: a stage takes {transfer} cycles on the wire and {compute} to "
                "consume. More stages do not help; larger tiles or a cluster that shares loads do."
            )
        if self.stages < needed:
            return (
                f"Latency bounds it: {self.stages} stages cover "
                f"{(self.stages - 1) * compute} cycles, a load takes "
                f"{values['latency'] + transfer}. {needed} stages would hide it."
            )
        return (
            f"The consumer bounds it: {self.stages} stages hide a load of "
            f"{values['latency'] + transfer} cycles behind {compute} cycles a stage."
        )


def rates_for(arch: str, changes: Mapping[str, int]) -> Rates:
    """The architecture's rates with some of them replaced. KeyError for a name that is none."""
    from dataclasses import asdict

    values = asdict(RATES[arch])
    for name, value in changes.items():
        if name not in values:
            raise KeyError(name)
        values[name] = value
    return Rates(**values)


def assumptions(plan: Plan, rates: Rates, steps_a_tile: int) -> tuple[Assumption, ...]:
    """The numbers of the model for a plan."""
    description = plan.description
    main = plan.pipelines[0]
    tile = description.tile
    if main.consumer in ("wgmma", "umma", "umma+thread") and tile.k:
        factor = _FLOPS_FACTOR.get(description.dtype.a, 1)
        work = 2 * (tile.m or 0) * (tile.n or 0) * tile.k
        compute = work // (rates.flops * factor)
        how = f"2 x {tile.m} x {tile.n} x {tile.k} / {rates.flops * factor} FLOP a cycle"
    else:
        compute = main.stage_bytes // rates.smem_bytes
        how = f"{main.stage_bytes} B / {rates.smem_bytes} B a cycle from SMEM"
    out = _DTYPE_BYTES.get(description.dtype.out or "bf16", 2) * (tile.m or 0) * (tile.n or 0)
    loaded = main.stage_bytes
    share = _multicast_share(plan)
    shared = f", of which a cluster loads {share:.0%} here" if share < 1 else ""
    return (
        Assumption(
            "transfer", max(1, int(loaded * share) // rates.load_bytes), "cycles",
            f"{loaded} B a stage{shared}, / {rates.load_bytes} B a cycle",
        ),
        Assumption("latency", rates.latency, "cycles", "assumed, from issue to SMEM"),
        Assumption("compute", max(1, compute), "cycles", how),
        Assumption(
            "epilogue", max(1, out // rates.store_bytes), "cycles",
            f"{out} B of output / {rates.store_bytes} B a cycle",
        ),
        Assumption("issue", rates.issue, "cycles", "assumed, to issue the loads of a stage"),
        Assumption("steps_a_tile", steps_a_tile, "stages", "drawn for an output tile"),
    )  # fmt: skip


def _multicast_share(plan: Plan) -> float:
    """The part of a stage that this CTA loads itself; the rest comes by multicast."""
    m, n = plan.description.cluster.shape or (1, 1)
    # The halves of a pair are in its stage's bytes already.
    m //= plan.description.cluster.cta_group
    tile = plan.description.tile
    if m * n <= 1 or not (tile.m and tile.n and tile.k):
        return 1.0
    # A is shared by the CTAs along N, B by those along M; equal element sizes are close enough.
    return (tile.m / n + tile.n / m) / (tile.m + tile.n)


def simulate(plan: Plan, rates: Rates | None = None) -> Timeline:
    """Run the model over a few output tiles: enough to see the ring go round twice."""
    rates = rates or RATES[plan.description.kernel.arch]
    main = plan.pipelines[0]
    stages = main.stages
    has_k = bool(plan.description.tile.k) and main.name == "mainloop"
    steps_a_tile = min(max(stages + 2, 4), max(_MOST_STEPS, stages + 2) // 2) if has_k else 1
    steps = 2 * steps_a_tile if has_k else max(min(3 * stages, _MOST_STEPS), stages + 2)
    numbers = assumptions(plan, rates, steps_a_tile)
    cycles = {number.name: number.value for number in numbers}
    producer, consumer, drain = _role_names(plan)
    spans: list[Span] = []
    holds: list[Hold] = []
    empty = [0] * stages
    accumulators = [0] * (_accumulators(plan) or 1)
    at = wire = consumed = drained = 0
    for step in range(steps):
        stage = step % stages
        if empty[stage] > at:
            spans.append(Span(producer, "wait", at, empty[stage], step, stage, consumer))
            at = empty[stage]
        start = at
        at += cycles["issue"]
        spans.append(Span(producer, "issue", start, at, step, stage))
        wire = max(wire, at) + cycles["transfer"]
        full = wire + cycles["latency"]
        holds.append(Hold(stage, "filling", start, full, step))
        tile, within = divmod(step, steps_a_tile)
        if drain and within == 0:
            free = accumulators[tile % len(accumulators)]
            if free > consumed:
                spans.append(Span(consumer, "wait", consumed, free, step, stage, drain))
                consumed = free
        begin = max(consumed, full)
        if begin > consumed:
            spans.append(Span(consumer, "wait", consumed, begin, step, stage, producer))
        if begin > full:
            holds.append(Hold(stage, "full", full, begin, step))
        consumed = begin + cycles["compute"]
        spans.append(Span(consumer, "work", begin, consumed, step, stage))
        holds.append(Hold(stage, "read", begin, consumed, step))
        empty[stage] = consumed
        if within == steps_a_tile - 1:
            role = drain or consumer
            first = max(consumed, drained) if drain else consumed
            if drain and first > drained:
                spans.append(Span(drain, "wait", drained, first, step, stage, consumer))
            last = first + cycles["epilogue"]
            spans.append(Span(role, "epilogue", first, last, step, stage))
            if drain:
                drained = accumulators[tile % len(accumulators)] = last
            else:
                consumed = last
    roles = (producer, consumer, drain) if drain else (producer, consumer)
    return Timeline(roles, stages, tuple(spans), tuple(holds), numbers, steps, steps_a_tile)


def _accumulators(plan: Plan) -> int:
    """Accumulator buffers that a role of its own drains; 0: the consumer drains its registers."""
    return next((p.stages for p in plan.pipelines if p.name == "accumulator"), 0)


def _role_names(plan: Plan) -> tuple[str, str, str]:
    """Who fills, who consumes, and who drains the accumulator (empty: the consumer itself)."""
    main = plan.pipelines[0]
    names = [role.name for role in plan.roles]
    producer = next((n for n in names if n in ("producer", "tma", "load")), f"{main.producer}")
    consumer = next((n for n in names if n in ("consumer", "mma", "compute")), f"{main.consumer}")
    if consumer == producer:
        consumer = f"{consumer} ({main.consumer})"
    drain = (
        next((n for n in names if n in ("epilogue", "store")), "") if _accumulators(plan) else ""
    )
    return producer, consumer, drain
