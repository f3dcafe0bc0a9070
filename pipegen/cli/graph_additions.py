# SPDX-License-Identifier: Apache-2.0
"""What `pipegen new --op custom` can add to a graph, in a terminal.

Each addition has a function that says which of its choices pass, and one that asks.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import click

from pipegen.cli import new_graph
from pipegen.cli.new_graph import Data

NOTHING = "nothing"
WAYS = ("tma", "cp_async", "thread", "own")
SHAPES = {"matrix": "M, N", "M": "M", "N": "N"}  # as typed: in the description

# What can be added to a graph, by the word that is typed.
Addition = Callable[["Asked"], Data | None]


class Asked:
    """A graph while it is being asked for. `whole` makes a description's data of its tables."""

    def __init__(self, tables: Data, whole: Callable[[Data], Data], types: Sequence[str]) -> None:
        self.tables, self._whole, self.types = tables, whole, list(types)
        self._known: dict[str, bool] = {}

    def whole(self, tables: Data) -> Data:
        """A description's data, with the kernel's own table."""
        return self._whole(tables)

    def fits(self, tables: Data) -> bool:
        """Whether the rules let a graph pass."""
        key = json.dumps(tables, sort_keys=True)
        if key not in self._known:
            self._known[key] = new_graph.valid(self._whole(tables))
        return self._known[key]

    def graph(self) -> Any:
        return new_graph.graph_of(self._whole(self.tables))

    @property
    def written_out(self) -> bool:
        """Whether what is expected stands in the description: it would not follow any more."""
        return any("expect" in tensor for tensor in self.tables["tensor"].values())

    def bodies(self) -> list[str]:
        """The roles that compute, in the order of the edges."""
        roles = {role.name: role for role in self.graph().roles}
        named = [name for ring in self.graph().rings for name in (*ring.sources, *ring.targets)]
        return [name for name in dict.fromkeys(named) if roles[name].kind == "thread"]

    def added(self, change: Callable[..., Data], *arguments: Any) -> Data:
        """The tables with a change, which needs the whole description."""
        made = change(self._whole(self.tables), *arguments)
        return {key: made[key] for key in made if key not in ("pipegen", "kernel")}


def choose(question: str, choices: Sequence[str], default: str | None = None) -> str:
    """One of several words; the only one without a question."""
    if len(choices) == 1:
        return choices[0]
    proposed = default if default in choices else choices[0]
    return str(click.prompt(question, type=click.Choice(choices), default=proposed))


def new_name(asked: Asked, question: str, usual: Sequence[str]) -> str:
    """A name that nothing else has."""
    taken = {*asked.tables["tensor"], *asked.tables["pipeline"]}
    taken |= {role.name for role in asked.graph().roles}

    def free(answer: str) -> str:
        answer = answer.strip()
        if answer in taken or not answer.isidentifier() or answer != answer.lower():
            raise click.UsageError(f"{answer!r}: needs a name in lower case that is not taken yet")
        return answer

    proposed = next(name for name in usual if name not in taken)
    return str(click.prompt(question, default=proposed, value_proc=free))


def letters(word: str) -> list[str]:
    """Names to propose: word, word2, ..."""
    return [word, *(f"{word}{number}" for number in range(2, 30))]


def takers(asked: Asked) -> list[str]:
    """The roles that can take one more input. Bodies that are written out would not use it."""
    if asked.written_out:
        return []
    name = next(n for n in ("y", *letters("y")) if n not in asked.tables["tensor"])
    return [
        role
        for role in asked.bodies()
        if any(asked.fits(asked.added(new_graph.with_input, name, s, "bf16", role, "tma"))
               for s in SHAPES.values())
    ]  # fmt: skip


def add_input(asked: Asked) -> Data:
    roles = takers(asked)
    name = new_name(asked, "Name of the tensor", letters("y"))
    taker = choose("The role that takes it", roles, roles[0])
    dtype = choose("Its type", asked.types, "bf16")

    def fits(shape: str, how: str) -> bool:
        return asked.fits(asked.added(new_graph.with_input, name, shape, dtype, taker, how))

    shapes = [word for word, shape in SHAPES.items() if any(fits(shape, how) for how in WAYS)]
    shape = SHAPES[choose("Its shape (M: one for a row; N: for a column)", shapes or [*SHAPES])]
    ways = [how for how in WAYS if fits(shape, how)]
    how = choose("How it is loaded (own: by that role itself)", ways or WAYS, "tma")
    return asked.added(new_graph.with_input, name, shape, dtype, taker, how)


def readable(asked: Asked) -> list[str]:
    """The rings of which a further role may take the tiles."""
    if asked.written_out:
        return []
    tables, free = asked.tables, letters("look")
    role = next(n for n in free if all(n not in r["edge"] for r in tables["pipeline"].values()))
    return [
        ring
        for ring in tables["pipeline"]
        if asked.fits(asked.added(new_graph.with_reader, ring, role, f"{role}_out", "M, N", "bf16"))
    ]


def add_reader(asked: Asked) -> Data:
    rings = readable(asked)
    ring = choose("The ring that it reads", rings)
    role = new_name(asked, "Name of the role", letters("look"))
    name = new_name(asked, "The tensor that it writes", letters(f"{role}_out"))
    dtype = choose("Its type", asked.types, "bf16")
    shapes = [
        word
        for word, shape in SHAPES.items()
        if asked.fits(asked.added(new_graph.with_reader, ring, role, name, shape, dtype))
    ]
    shape = SHAPES[choose("Its shape (M: a sum for each row)", shapes or [*SHAPES])]
    return asked.added(new_graph.with_reader, ring, role, name, shape, dtype)


def turners(asked: Asked) -> list[str]:
    """The roles of which several groups can take turns."""
    if asked.graph().feeds_back:
        return []
    ordered = {n for o in asked.graph().orders for n in o.roles}
    return [
        role
        for role in asked.bodies()
        if role not in ordered and asked.fits(asked.added(new_graph.with_order, role, 2))
    ]


def add_order(asked: Asked) -> Data:
    role = choose("The role of which several groups take turns", turners(asked))
    groups: int | None = 2
    if asked.fits(asked.added(new_graph.with_order, role, None)):
        two = click.confirm("Two roles, each with a body of its own", default=False)
        groups = None if two else groups
    if groups:
        groups = click.prompt("Groups", type=click.IntRange(2, 8), default=2)
    depth = click.prompt(
        "Ordered parts of a tile (1: the turn; 2: the body, then the turn)",
        type=click.IntRange(1, 2),
        default=1,
    )
    hands_on = click.confirm("Hand a number for each row on to the next turn", default=False)
    return asked.added(new_graph.with_order, role, groups, depth, hands_on)


def circles(asked: Asked) -> list[tuple[str, str]]:
    """(source, target) of rings that may lead back."""
    if asked.graph().feeds_back or asked.graph().orders:
        return []
    bodies = asked.bodies()
    return [
        (source, target)
        for index, target in enumerate(bodies)
        for source in reversed(bodies[index + 1 :])
        if asked.fits(asked.added(new_graph.with_feedback, source, target, 1))
    ]


def add_feedback(asked: Asked) -> Data:
    ways = {f"{source} -> {target}": (source, target) for source, target in circles(asked)}
    source, target = ways[choose("From which role to which", list(ways))]
    credits = click.prompt(
        "Tiles until it comes back (credits: stages full of zeros at first)",
        type=click.IntRange(1, 8),
        default=1,
    )
    return asked.added(new_graph.with_feedback, source, target, credits)


def clusters(asked: Asked) -> list[str]:
    """The shapes of two CTAs that pass."""
    if "cluster" in asked.tables:
        return []
    shapes = ("2,1", "1,2")
    return [
        shape
        for shape in shapes
        if asked.fits(asked.added(new_graph.with_cluster, [int(n) for n in shape.split(",")]))
    ]


def add_cluster(asked: Asked) -> Data:
    shape = choose("CTAs along M,N (2,1: a panel each; 1,2: they share one)", clusters(asked))
    made = asked.added(new_graph.with_cluster, [int(n) for n in shape.split(",")])
    for key, question in (
        ("peer", "A ring whose stages are the other CTA's"),
        ("multicast", "A ring that both load, a half each"),
    ):
        rings = [r for r in made["pipeline"] if asked.fits(new_graph.with_flag(made, r, key))]
        if rings and not (key == "peer" and asked.written_out):  # it changes what is expected
            ring = choose(question, [NOTHING, *rings], NOTHING)
            made = made if ring == NOTHING else new_graph.with_flag(made, ring, key)
    return made


SAID = {
    "input": "one more tensor that a role takes, with a ring of its own",
    "reader": "one more role that takes the tiles of a ring, and writes a tensor",
    "order": "groups that take the tiles in turn",
    "feedback": "a ring that leads back, with credits",
    "cluster": "two CTAs together: rings of the other CTA, loads for both",
}
ADDITIONS: dict[str, tuple[Callable[[Asked], Any], Addition]] = {
    "input": (takers, add_input),
    "reader": (readable, add_reader),
    "order": (turners, add_order),
    "feedback": (circles, add_feedback),
    "cluster": (clusters, add_cluster),
}
