# SPDX-License-Identifier: Apache-2.0
"""The candidates of a description: other values of the keys that only cost or gain time. Pure.

Each candidate is planned like any description: what the rules refuse is dropped, with the rule that
refused it, and is never compiled.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pipegen.description import KernelDescription
from pipegen.errors import InputError
from pipegen.planning import plan
from pipegen.rendering import render

# What a change of a key costs is time, never the result: these may be searched.
TUNABLE = (
    "tile.m",
    "tile.n",
    "tile.k",
    "cluster.shape",
    "scheduler.consumers",
    "scheduler.raster_group",
    "scheduler.split_k",
    "role.consumer.warpgroups",
    "role.consumer.registers",
    "role.producer.registers",
    "pipeline.mainloop.stages",
    "pipeline.epilogue.stages",
    "stream.blocks_per_sm",
    "reduce.blocks_per_sm",
    "stream.tiles_per_block",
    "reduce.tiles_per_block",
)
# Of an op: keys that say what it can do. `tile.n` of a reduce is its longest row.
OWN: dict[str, tuple[str, ...]] = {"reduce": ("tile.n",)}
SEARCHED_OPS = ("gemm", "mixed_gemm", "stream", "reduce")

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


class Planner:
    """Makes candidates of proposals: each is planned once, and a refusal is kept with its rule.

    Two that give the same module are one candidate: the first one's values stay. `keep`: keys whose
    value in the description stays; what a proposal says of them is left out.
    """

    def __init__(self, description: KernelDescription, keep: Sequence[str] = ()) -> None:
        self.dropped: list[Dropped] = []
        self._description, self._keep = description, frozenset(keep)
        self._base = without(description, keep)
        self._known: dict[Values, Candidate | None] = {}
        self._by_code: dict[str, Candidate] = {}

    def candidate(self, proposal: Values) -> Candidate | None:
        """The candidate with these values; None if a rule refuses them."""
        values = tuple((key, value) for key, value in proposal if key not in self._keep)
        if values not in self._known:
            self._known[values] = self._planned(values)
        return self._known[values]

    def first(self, proposals: Sequence[Values], most: int) -> tuple[list[Candidate], int]:
        """The first `most` candidates, and how many proposals were not looked at any more."""
        found: dict[str, Candidate] = {}
        for number, proposal in enumerate(proposals):
            if len(found) == most:
                return list(found.values()), len(proposals) - number
            if (candidate := self.candidate(proposal)) is not None:
                found.setdefault(candidate.name, candidate)
        return list(found.values()), 0

    def _planned(self, values: Values) -> Candidate | None:
        name = f"{self._description.kernel.name or 'kernel'}__{spelled(values)}"
        try:
            made = plan(with_values(self._base, values, name))
            (text,) = render(made, formatted=False).values()
        except InputError as error:
            problem = error.problems[0]
            self.dropped.append(Dropped(values, problem.rule or "-", problem.message))
            return None
        return self._by_code.setdefault(_code_of(text, name), Candidate(name, values, text))


def reasons(dropped: Sequence[Dropped]) -> dict[str, tuple[int, str]]:
    """How many each rule dropped, most first, and what it said of the first one."""
    counts = Counter(each.code for each in dropped)
    first = {each.code: each.why for each in reversed(dropped)}
    return {code: (count, first[code]) for code, count in counts.most_common()}


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
    "scheduler.split_k": "split",
    "role.consumer.warpgroups": "w",
    "role.consumer.registers": "cr",
    "role.producer.registers": "pr",
    "pipeline.mainloop.stages": "s",
    "pipeline.epilogue.stages": "e",
    "stream.blocks_per_sm": "b",
    "reduce.blocks_per_sm": "b",
    "stream.tiles_per_block": "t",
    "reduce.tiles_per_block": "t",
}
