# SPDX-License-Identifier: Apache-2.0
"""The candidates of a description: other values of the keys that only cost or gain time. Pure.

Each candidate is planned like any description: what the rules refuse is dropped, with the rule that
refused it, and is never compiled.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from pipegen.description import KernelDescription
from pipegen.errors import InputError
from pipegen.planning import plan
from pipegen.planning.defaults import resolve
from pipegen.rendering import render
from pipegen.vocabulary import DTYPE

# What a change of a key costs is time, never the result: these may be searched.
TUNABLE = (
    "tile.m",
    "tile.n",
    "tile.k",
    "cluster.shape",
    "scheduler.consumers",
    "scheduler.raster_group",
    "role.consumer.warpgroups",
    "role.consumer.registers",
    "role.producer.registers",
    "pipeline.mainloop.stages",
    "pipeline.epilogue.stages",
    "stream.blocks_per_sm",
    "reduce.blocks_per_sm",
)
# Of an op: keys that say what it can do. `tile.n` of a reduce is its longest row.
OWN: dict[str, tuple[str, ...]] = {"reduce": ("tile.n",)}
SEARCHED_OPS = ("gemm", "mixed_gemm", "stream", "reduce")
CLUSTERS = ((1, 1), (2, 1), (1, 2))
RASTER_GROUPS = (4, 16, 32)
LARGEST_DEEP_TILE = 128 * 128

Values = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Candidate:
    """Values that differ from the description, by key; the module's name and text."""

    name: str
    values: Values
    text: str

    def as_dict(self) -> dict[str, Any]:
        """The values, for a results file."""
        return {key: list(v) if isinstance(v, tuple) else v for key, v in self.values}


@dataclass(frozen=True)
class Dropped:
    """Values that cannot be, and the rule's reason."""

    values: Values
    code: str
    why: str


@dataclass(frozen=True)
class Space:
    """What there is to try, and what was dropped."""

    candidates: tuple[Candidate, ...]
    dropped: tuple[Dropped, ...]

    def reasons(self) -> dict[str, tuple[int, str]]:
        """How many each rule dropped, most first, and what it said of the first one."""
        counts = Counter(each.code for each in self.dropped)
        first = {each.code: each.why for each in reversed(self.dropped)}
        return {code: (count, first[code]) for code, count in counts.most_common()}


def searched(op: str, keep: Iterable[str] = ()) -> tuple[str, ...]:
    """The keys that a search of this op sets, but for those to keep."""
    kept = {*keep, *OWN.get(op, ())}
    return tuple(key for key in TUNABLE if key not in kept)


def without(description: KernelDescription, keep: Iterable[str] = ()) -> KernelDescription:
    """The description without the keys that a search sets, except those in `keep`."""
    data = description.model_dump(exclude_unset=True)
    for key in searched(description.kernel.op, keep):
        *sections, leaf = key.split(".")
        table: Any = data
        for section in sections:
            table = table.get(section, {})
        table.pop(leaf, None)
    return KernelDescription.model_validate(data)


def with_values(description: KernelDescription, values: Values, name: str) -> KernelDescription:
    """The description with other values, under another name. Raises pydantic.ValidationError."""
    data = description.model_dump(exclude_unset=True)
    data["kernel"]["name"] = name
    for key, value in values:
        *sections, leaf = key.split(".")
        table: Any = data
        for section in sections:
            table = table.setdefault(section, {})
        table[leaf] = value
    return KernelDescription.model_validate(data)


def space_of(
    description: KernelDescription, proposals: Iterable[Values], keep: Sequence[str] = ()
) -> Space:
    """Plan every proposal. Two that give the same module count once: the first one's values stay.

    `keep`: keys whose value in the description stays; proposals that say otherwise are not made.
    """
    base = without(description, keep)
    fixed = set(keep)
    candidates: dict[str, Candidate] = {}
    dropped: list[Dropped] = []
    seen: set[Values] = set()
    for proposal in proposals:
        values = tuple((key, value) for key, value in proposal if key not in fixed)
        if values in seen:
            continue
        seen.add(values)
        name = f"{description.kernel.name or 'kernel'}__{spelled(values)}"
        try:
            (text,) = render(plan(with_values(base, values, name)), formatted=False).values()
        except InputError as error:
            problem = error.problems[0]
            dropped.append(Dropped(values, problem.rule or "-", problem.message))
            continue
        anonymous = _code_of(text, name)
        candidates.setdefault(anonymous, Candidate(name, values, text))
    return Space(tuple(candidates.values()), tuple(dropped))


def _code_of(text: str, name: str) -> str:
    """The text below its header, without its name: what two candidates may have in common."""
    _, _, body = text.replace(name, "").partition('"""')
    return body


def spelled(values: Values) -> str:
    """A candidate's values as a part of a name: `m128_n256_k64_c2x1`."""
    words = []
    for key, value in values:
        short = _SHORT[key]
        if isinstance(value, tuple):
            words.append(short + "x".join(map(str, value)))
        elif key == "scheduler.consumers":
            words.append("pingpong" if value == "ping-pong" else "coop")
        else:
            words.append(f"{short}{value}")
    return "_".join(words) or "as_described"


_SHORT = {
    "tile.m": "m",
    "tile.n": "n",
    "tile.k": "k",
    "cluster.shape": "c",
    "scheduler.consumers": "",
    "scheduler.raster_group": "r",
    "role.consumer.warpgroups": "w",
    "role.consumer.registers": "cr",
    "role.producer.registers": "pr",
    "pipeline.mainloop.stages": "s",
    "pipeline.epilogue.stages": "e",
    "stream.blocks_per_sm": "b",
    "reduce.blocks_per_sm": "b",
}


def proposals(description: KernelDescription, tiles: Sequence[tuple[int, int]]) -> list[Values]:
    """What to try first: every way to run each (M, N) tile; for what moves bytes, tiles and rings.

    Stages, registers and store buffers are what the plan makes of them; `variations` changes them
    for those that turn out to be fast.
    """
    resolved = resolve(description)
    kernel, bits = resolved.kernel, DTYPE[resolved.dtype.a].bits
    if kernel.op not in ("gemm", "mixed_gemm"):
        return list(_moving(kernel.op))
    hopper = kernel.backend == "cute" and kernel.arch == "sm_90a"
    found = []
    for m, n in tiles:
        for depth, cluster, mode in product(_depths(m, n, bits), CLUSTERS, _modes(m, hopper)):
            tile = (("tile.m", m), ("tile.n", n), ("tile.k", depth), ("cluster.shape", cluster))
            if mode != PING_PONG or kernel.op == "gemm":
                found.append((*tile, *mode))
    return found


PING_PONG: Values = (("scheduler.consumers", "ping-pong"),)
ONE_WARPGROUP: Values = (("role.consumer.warpgroups", 1),)


def _modes(m: int, hopper: bool) -> tuple[Values, ...]:
    """Who computes a tile of m rows: the usual warpgroups, one, or two that take turns."""
    if not hopper:
        return ((),)
    return {64: (ONE_WARPGROUP, PING_PONG), 128: ((), PING_PONG)}.get(m, ((),))


def _depths(m: int, n: int, bits: int) -> tuple[int, ...]:
    """K of a stage: rows of 128 bytes; also of 256 for small tiles, whose stages are soon consumed:
    on an H200 one warpgroup was faster with these, and ping-pong without."""
    row, double = 128 * 8 // bits, 256 * 8 // bits
    return (double, row) if m * n <= LARGEST_DEEP_TILE else (row,)


def _moving(op: str) -> Iterator[Values]:
    """Ops that move bytes: the tile, and how many blocks share an SM."""
    rows = (1, 2, 4, 8, 16, 32, 64)
    if op == "reduce":
        for m, blocks in product(rows, (1, 2, 3, 4)):
            yield (("tile.m", m), ("reduce.blocks_per_sm", blocks))
    elif op == "stream":
        for m, n, blocks in product(rows, (64, 128, 256, 512), (1, 2, 3, 4)):
            yield (("tile.m", m), ("tile.n", n), ("stream.blocks_per_sm", blocks))


def variations(candidate: Candidate, stages: int, buffers: int) -> list[Values]:
    """A fast candidate with one value changed: raster, stages, store buffers, registers.

    `stages` and `buffers`: what its plan has.
    """
    given: Mapping[str, Any] = dict(candidate.values)
    found: list[Values] = []

    def change(key: str, value: Any) -> None:
        if given.get(key) != value:
            kept = tuple((k, v) for k, v in candidate.values if k != key)
            found.append((*kept, (key, value)))

    if "tile.k" in given:  # a GEMM
        for group in RASTER_GROUPS:
            change("scheduler.raster_group", group)
        for registers in (24, 56):
            change("role.producer.registers", registers)
    for fewer in {stages - 1, stages - 2} - {0, 1, -1}:
        change("pipeline.mainloop.stages", fewer)
    for other in {2, 4, 8} - {buffers}:
        change("pipeline.epilogue.stages", other)
    return found
