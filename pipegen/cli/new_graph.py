# SPDX-License-Identifier: Apache-2.0
"""`pipegen new --op custom`: first graphs, and what can be added to one. Data only, no questions.

The data is a description's; functions that add to it give back new data.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

USUAL_ROLES = "load, convert, compute, store"
GRAPHS = ("line", "product", "two-products")
PRODUCT_KINDS = ("wgmma", "umma")  # of a role that multiplies: one of them, by the architecture

Data = dict[str, Any]


def graph_data(
    roles: Sequence[str], dtype: str, dtype_out: str, stage_types: Sequence[str], stages: Any
) -> Data:
    """Tensors and pipelines of a line of roles: the first reads x, the last writes out.

    `stage_types`: what each role but the first and the last writes into its stages.
    """
    types = iter(stage_types)
    rings: Data = {}
    for index, (source, target) in enumerate(pairwise(roles)):
        ring: Data = {"edge": f"{source} -> {target}"}
        if index:
            ring["dtype"] = next(types, dtype)
        if stages not in (None, "auto"):
            ring["stages"] = stages
        rings[f"{source}_tiles"] = ring
    return {
        "tensor": {
            "x": {"dtype": dtype, "read": roles[0]},
            "out": {"dtype": dtype_out, "write": roles[-1]},
        },
        "pipeline": rings,
    }


def usual_types(roles: Sequence[str], dtype: str) -> list[str]:
    """What the roles of a line fill their stages with: f32 between them, `dtype` at the end."""
    middle = len(roles) - 2
    return ["f32"] * (middle - 1) + [dtype] * min(middle, 1)


def product_data(kind: str, dtype: str, dtype_b: str, dtype_out: str, epilogue: bool) -> Data:
    """out = x @ w.T; w of another type is converted on its way; `epilogue`: a body and a store."""
    converts = dtype_b != dtype
    pipeline: Data = {"x": {"edge": "load -> multiply"}}
    if converts:
        pipeline["w"] = {"edge": "load -> convert"}
        pipeline["wide"] = {"edge": "convert -> multiply", "dtype": dtype}
    else:
        pipeline = {"xw": {"edge": "load -> multiply", "holds": "x, w"}}
    role: Data = {"multiply": {"kind": kind}}
    if epilogue:
        pipeline["acc"] = {"edge": "multiply -> epilogue"}
        pipeline["done"] = {"edge": "epilogue -> store", "dtype": dtype_out}
        role["store"] = {"kind": "tma_store"}
    return {
        "tensor": {
            "x": {"shape": "M, K", "dtype": dtype, "read": "load"},
            "w": {"shape": "N, K", "dtype": dtype_b, "read": "load"},
            "out": {
                "shape": "M, N", "dtype": dtype_out, "write": "store" if epilogue else "multiply"
            },
        },
        "pipeline": pipeline,
        "role": role,
    }  # fmt: skip


def two_products_data(kind: str, dtype: str, dtype_out: str) -> Data:
    """out = (a @ b.T) @ c.T: the second product's operand is the first's result."""
    return {
        "tile": {"n": 64},
        "tensor": {
            "a": {"shape": "M, K", "dtype": dtype, "read": "load"},
            "b": {"shape": "N, K", "dtype": dtype, "read": "load"},
            "c": {"shape": "P, N", "dtype": dtype, "read": "load"},
            "out": {"shape": "M, P", "dtype": dtype_out, "write": "store"},
        },
        "pipeline": {
            "ab": {"edge": "load -> score", "holds": "a, b"},
            "c": {"edge": "load -> second"},
            "between": {"edge": "score -> second", "dtype": dtype},
            "done": {"edge": "second -> store", "dtype": dtype_out},
        },
        "role": {
            "score": {"kind": kind},
            "second": {"kind": kind},
            "store": {"kind": "tma_store"},
        },
    }


def first_graph(options: Mapping[str, Any]) -> Data:
    """The graph that the options say, or of the usual roles; none where `--set` gives one."""
    from pipegen.cli.new import number_or_word
    from pipegen.errors import InputError, Problem, listing, nearest_word

    if options.get("graph_data") is not None:  # what was answered
        made: Data = deepcopy(options["graph_data"])
        return made
    if options["graph"] not in (None, *GRAPHS):
        word = str(options["graph"])
        nearest = nearest_word(word, GRAPHS) or GRAPHS[0]
        raise InputError(
            Problem(
                f"no such graph, got {word!r}",
                "",
                file="--graph",
                allowed=listing(GRAPHS),
                nearest=nearest,
            )
        )
    if options["roles"] is not None and options["graph"] in GRAPHS[1:]:
        raise InputError(
            Problem(
                f"roles in a line are no graph of products, got {options['roles']!r}",
                file="--roles",
                allowed="--graph line, or no --roles",
                nearest="--graph line",
            )
        )
    given = any(setting.startswith(("tensor.", "pipeline.")) for setting in options["settings"])
    if given and options["roles"] is None and options["graph"] is None:
        return {}
    dtype = options["dtype"] or "bf16"
    dtype_out = options["dtype_out"] or dtype
    if options["graph"] in ("product", "two-products"):
        kind = PRODUCT_KINDS[1 if options["arch"] == "sm_100a" else 0]
        if options["graph"] == "product":
            return product_data(kind, dtype, options["dtype_b"] or dtype, dtype_out, True)
        return two_products_data(kind, dtype, dtype_out)
    stages = None if options["stages"] is None else number_or_word(options["stages"])
    roles = roles_of(options["roles"] or USUAL_ROLES)
    types = options.get("stage_types") or usual_types(roles, dtype_out)
    return graph_data(roles, dtype, dtype_out, types, stages)


def roles_of(text: str) -> list[str]:
    """The roles of `load, compute, store`. Raises InputError if there are no two of them."""
    from pipegen.errors import InputError, Problem

    roles = [name.strip() for name in text.split(",") if name.strip()]
    if len(roles) < 2 or len(set(roles)) < len(roles):
        raise InputError(
            Problem(
                f"needs two or more different roles, with commas between, got {text!r}",
                file="--roles",
                allowed=USUAL_ROLES,
                nearest=USUAL_ROLES,
            )
        )
    return roles


def with_input(data: Data, name: str, shape: str, dtype: str, taker: str, how: str) -> Data:
    """One more tensor for the role `taker`: `how` a role of its own loads it, or `own`."""
    made = deepcopy(data)
    tensor = made["tensor"]
    # What is written stays last, as in a call of the kernel.
    written = {key: tensor.pop(key) for key in list(tensor) if "write" in tensor[key]}
    loader = taker if how == "own" else f"load_{name}"
    tensor[name] = {"shape": shape, "dtype": dtype, "read": loader}
    tensor |= written
    if how != "own":
        made["pipeline"] = {name: {"edge": f"{loader} -> {taker}"}, **made["pipeline"]}
        if how != "tma":
            made.setdefault("role", {})[loader] = {"kind": how}
    return made


def with_reader(data: Data, ring: str, role: str, name: str, shape: str, dtype: str) -> Data:
    """One more role that takes the tiles of a ring, and writes a tensor of its own."""
    made = deepcopy(data)
    made["pipeline"][ring]["edge"] += f", {role}"
    made["tensor"][name] = {"shape": shape, "dtype": dtype, "write": role}
    return made


def with_order(
    data: Data, role: str, groups: int | None, depth: int = 1, hands_on: bool = False
) -> Data:
    """Groups of a role that take turns; `groups` None: two roles in its place.

    With two parts, or something to hand on, there is a turn: a place for what you write.
    """
    made = with_bodies(data, [role], "turn") if depth > 1 or hands_on else deepcopy(data)
    names = [role]
    if groups is None:
        names = [f"{role}_even", f"{role}_odd"]
        for ring in made["pipeline"].values():
            ring["edge"] = replaced(ring["edge"], role, ", ".join(names))
        given = made.get("role", {}).pop(role, {})
        for name in names:
            made.setdefault("role", {})[name] = {
                key: (
                    value.replace(f"{role.upper()}_", f"{name.upper()}_")
                    if isinstance(value, str)
                    else value
                )
                for key, value in given.items()
            }
    order: Data = {"roles": ", ".join(names)}
    if groups is not None:
        order["groups"] = groups
    if depth > 1:
        order["depth"] = depth
    if hands_on:
        order["shape"] = "M"
    made.setdefault("order", {})[f"turns_of_{role}"] = order
    return made


def with_feedback(data: Data, source: str, target: str, credits: int) -> Data:
    """A ring from a role back to an earlier one, whose body does not use it yet."""
    made = with_bodies(data, [target, source], "")
    ring = f"{source}_back"
    made["pipeline"][ring] = {
        "edge": f"{source} -> {target}", "dtype": "f32", "stages": credits, "credits": credits
    }  # fmt: skip
    warps = f"{source.upper()}_WARPS"
    value = first_input(data, source)
    made["role"][source]["body"] += f"store_part({value}, {ring}, {warps}, thread)\n"
    note = f"# {ring}: what the tile before has left; zeros at first. Yours to use.\n"
    made["role"][target]["body"] = note + made["role"][target]["body"]
    return made


def with_cluster(data: Data, shape: Sequence[int]) -> Data:
    """Two CTAs that work together, along M or along N."""
    return {**deepcopy(data), "cluster": {"shape": list(shape)}}


def with_flag(data: Data, ring: str, key: str) -> Data:
    """A ring with `peer` or `multicast`."""
    made = deepcopy(data)
    made["pipeline"][ring][key] = True
    return made


def with_bodies(data: Data, roles: Iterable[str], turn: str) -> Data:
    """The identity of each role, written out as its body, and what is then expected.

    `turn`: also an ordered part, which does nothing yet.
    """
    from pipegen.planning.custom.bodies import expected, identity

    made, graph = deepcopy(data), graph_of(data)
    for name, text in expected(graph).items():
        made["tensor"][name].setdefault("expect", text)
    for name in roles:
        entry = made.setdefault("role", {}).setdefault(name, {})
        body = entry.get("body") or "\n".join(identity(graph.role(name)))
        entry["body"] = body.strip("\n") + "\n"
        if turn:
            entry.setdefault("turn", "pass  # in the order of the tiles: yours\n")
    return made


def graph_of(data: Data) -> Any:
    """The graph of a description that is valid."""
    from pipegen.description import KernelDescription
    from pipegen.planning.custom.reading import read_graph
    from pipegen.planning.defaults import resolve

    graph = read_graph(resolve(KernelDescription.model_validate(data)))
    if graph is None:
        raise ValueError("a description that has no graph")
    return graph


def first_input(data: Data, role: str) -> str:
    """The first thing that a role takes, as its body loads it."""
    from pipegen.planning.custom.code import field_of

    node = graph_of(data).role(role)
    ring = node.inputs[0]
    return f"load_part({field_of(ring, ring.parts[0])}, {role.upper()}_WARPS, thread)"


def replaced(edge: str, role: str, names: str) -> str:
    """An edge in which a role has other names."""
    sides = [[word.strip() for word in side.split(",")] for side in edge.split("->")]
    return " -> ".join(", ".join(names if w == role else w for w in side) for side in sides)


def valid(data: Data) -> bool:
    """Whether the rules let a description pass."""
    from pipegen.description_file import description_from_data
    from pipegen.errors import InputError

    try:
        description_from_data(data)
    except InputError:
        return False
    return True
