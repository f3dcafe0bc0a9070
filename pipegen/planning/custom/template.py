# SPDX-License-Identifier: Apache-2.0
"""The words that templates/cute/custom.py.j2 puts into its text, beyond the plan's numbers."""

import textwrap
from typing import Any

from pipegen.description import KernelDescription
from pipegen.hardware import VECTOR_BYTES
from pipegen.planning.custom.bodies import bodies_of, expected
from pipegen.planning.custom.clusters import cluster_values, ring_fields
from pipegen.planning.custom.code import field_of, tile_shape, upper
from pipegen.planning.custom.graph import Part, Ring, RoleNode
from pipegen.planning.custom.numbers import Numbers
from pipegen.planning.custom.tables import ring_table
from pipegen.planning.custom.turns import order_values, role_code, said_of
from pipegen.planning.stream.template import ARCHITECTURE
from pipegen.vocabulary import DTYPE

BANNER_END = 92
WIDTH = 96
# How the check makes its inputs, by (i8, exact): small integers where every sum is exact.
VALUES = {
    (False, True): 'torch.randint(-4, 5, {}, device="cuda")',
    (True, True): 'torch.randint(-4, 5, {}, device="cuda")',
    (False, False): 'torch.randn({}, device="cuda")',
    (True, False): 'torch.randint(-100, 101, {}, device="cuda")',
}


def template_values(
    description: KernelDescription, numbers: Numbers, classes: dict[str, str]
) -> dict[str, Any]:
    """The template's fields for a description that keeps the rules."""
    graph, kernel = numbers.graph, description.kernel
    architecture, gpus, capability_major = ARCHITECTURE[kernel.arch]
    moved = {p.name for role in graph.roles if role.kind == "tma" for p in role.reads}
    stored = {p.name for role in graph.roles if role.kind == "tma_store" for p in role.writes}
    own = any(role.body or role.finish for role in graph.roles)
    tensors = [
        tensor_values(
            part,
            index,
            len(graph.tensors),
            part.name in moved | stored,
            part.name in graph.written,
            not own,
        )
        for index, part in enumerate(graph.tensors)
    ]
    read = [part for part in graph.tensors if part.name not in graph.written]
    written = [part for part in graph.tensors if part.name in graph.written]
    said = all(description.tensor[part.name].expect for part in written)
    derived = {} if own or said else expected(graph)
    expectations = {
        part.name: description.tensor[part.name].expect or derived[part.name] for part in written
    }
    narrow = [p for p in written if p.name in stored and "N" in p.dims]
    unit = max((VECTOR_BYTES // DTYPE[part.dtype].bytes for part in narrow), default=1)
    kinds = {role.kind for role in graph.roles}
    keeps = any(role.kept for role in graph.roles) or any(order.state for order in graph.orders)
    shared = {part.name for ring in graph.rings if ring.multicast for part in ring.parts}
    loads = any(role.kind == "thread" and role.reads for role in graph.roles)
    parts = any(
        role.kind == "thread" and (role.reads or set(role.writes) - set(role.kept))
        for role in graph.roles
    )
    return {
        "architecture": architecture,
        "gpus": gpus,
        "capability_major": capability_major,
        "compiled_only": kernel.arch == "sm_100a",
        "roles": [role_values(numbers, role, index) for index, role in enumerate(graph.roles)],
        "rings": [ring_values(numbers, ring, classes[ring.name]) for ring in graph.rings],
        "sharing": [
            {"upper": upper(role.name), "warps": role.warps, "rows": numbers.warp_rows(role)}
            for role in graph.roles
            if role.kind in ("thread", "cp_async")
        ],
        "bodies": bodies_of(graph),
        "tensors": tensors,
        "loads": [each for each in tensors if each["name"] in moved - shared],
        "shared_loads": [each for each in tensors if each["name"] in shared],
        "stores": [each for each in tensors if each["by_tma"] and each["written"]],
        "uses_tma": bool(moved or stored),
        "uses_tma_load": bool(moved - shared),
        "uses_tma_store": bool(stored),
        "uses_cp_async": "cp_async" in kinds,
        "uses_load_global": loads,
        "uses_parts": parts,
        "uses_store_global": any(
            role.kind == "thread" and set(role.writes) - set(role.kept) for role in graph.roles
        ),
        "keeps": keeps,
        "sums_rows": any(
            role.kept and (not role.body or "add_rows(" in role.body) for role in graph.roles
        ),
        "numbers_packed": 3 + 2 * len(tensors),
        "kernel_arguments": ", ".join(
            [*(each["argument"] for each in tensors), "columns", "panels", "tiles"]
        ),
        **cluster_values(
            numbers,
            ", ".join(
                [
                    *(f"tma_{t['name']}" if t["by_tma"] else t["name"] for t in tensors),
                    *("columns", "panels", "tiles"),
                ]
            ),
        ),
        "orders": [
            {**order_values(numbers, order), "described": column(order.name, said_of(order))}
            for order in graph.orders
        ],
        "swaps": "of_peer(" in "".join(expectations.values()),
        "ring_table": ring_table(numbers, classes),
        "hands_on": any(order.state for order in graph.orders),
        "arguments": ", ".join(part.name for part in graph.tensors),
        "check_arguments": ", ".join(
            f'{"outputs" if part.name in graph.written else "inputs"}["{part.name}"]'
            for part in graph.tensors
        ),
        "inputs": [each for each in tensors if not each["written"]],
        "outputs": [each for each in tensors if each["written"]],
        **size_words(["M", "N"], "N"),
        "sizes_taken": [f"m, n = shapes[{[len(part.dims) for part in graph.tensors].index(2)}]"],
        "wanted_shapes": ", ".join(each["shape"] for each in tensors),
        "read_names": ", ".join(part.name for part in read),
        "written_names": ", ".join(part.name for part in written),
        "expectations": [{"name": name, "text": text} for name, text in expectations.items()],
        "shapes": listing_of_shapes(graph.tensors),
        "unit": unit,
        "whole_columns": unit > 1,
        "exact": not own,
        "close": own,
        "tolerance": "1e-5" if all(part.dtype == "f32" for part in written) else "1e-2",
        "check_sizes": (
            f"(TILE_M, TILE_N), (1, {unit}), (1001, 1008), (333, 4112), (4096, 4096)"
            if unit > 1
            else "(TILE_M, TILE_N), (1, 1), (1001, 1001), (333, 4099), (4096, 4096)"
        ),
        "cache_modifier": cache_modifier(numbers),
    }


def size_words(symbols: list[str], columns: str) -> dict[str, str]:
    """The emitted host side's words for its sizes; `columns` are those of what TMA stores."""
    names = [symbol.lower() for symbol in symbols]
    said = [f"{symbol}={{{symbol.lower()}}}" for symbol in symbols]
    return {
        "symbol_names": ", ".join(names),
        "symbol_arguments": ", ".join(f"{name}: int" for name in names),
        "sizes_said": f"{', '.join(said[:-1])} and {said[-1]}",
        "sizes_printed": sizes_printed(names),
        "size_metavar": ",".join(symbols),
        "stored_columns": columns.lower(),
        "columns_said": f"{columns}={{{columns.lower()}}}",
    }


def column(name: str, text: str) -> list[str]:
    """A name, and beside it a text in as many lines as it needs."""
    lines = textwrap.wrap(text, WIDTH - 21, break_long_words=False, break_on_hyphens=False)
    return [f"{name if index == 0 else '':<20} {line}" for index, line in enumerate(lines)]


def listing_of_shapes(tensors: tuple[Part, ...]) -> list[str]:
    """`x is (M, N), v is (M,).`, in as many lines as it needs."""
    words = [f"{p.name} is ({', '.join(p.dims)}{',' if len(p.dims) == 1 else ''})" for p in tensors]
    return textwrap.wrap(f"{', '.join(words)}.", WIDTH)


def cache_modifier(numbers: Numbers) -> str:
    """.cg goes past L1 and takes 16 bytes only; .ca takes 4, 8 and 16 (PTX, "cp.async")."""
    sizes = {
        numbers.graph.tile[1] // 32 * DTYPE[part.dtype].bytes
        for role in numbers.graph.roles
        if role.kind == "cp_async"
        for part in role.reads
    }
    return "cg" if sizes == {VECTOR_BYTES} else "ca"


def tensor_values(
    part: Part, index: int, count: int, by_tma: bool, written: bool, exact: bool
) -> dict[str, Any]:
    """A tensor of the launch, with the places of its numbers in what `custom` packs."""
    rows = "rows" if "M" in part.dims else "1"
    columns = "columns" if "N" in part.dims else "1"
    align = VECTOR_BYTES // DTYPE[part.dtype].bytes
    row = f"{part.name}_row" if len(part.dims) == 2 else "1"
    # A vector is a matrix of one column, or of one row: TMA wants 16 bytes between those.
    stride = {("M", "N"): f"({row}, 1)", ("M",): f"(1, {align})", ("N",): f"({align}, 1)"}
    align_name, two = f"{upper(part.name)}_ALIGN", len(part.dims) == 2
    return {
        "name": part.name,
        "upper": upper(part.name),
        "cutlass": DTYPE[part.dtype].cutlass,
        "torch": DTYPE[part.dtype].torch,
        "dtype": part.dtype,
        "align": align,
        "sizes": f"({rows}, {columns})",
        "stride": stride[part.dims],
        "strided": [f"{part.name}_row"] if len(part.dims) == 2 else [],
        "dims": len(part.dims),
        "shape": "(m, n)" if len(part.dims) == 2 else "(m,)" if part.dims == ("M",) else "(n,)",
        "symbols": f"({', '.join(part.dims)}{',' if len(part.dims) == 1 else ''})",
        "tile": tile_shape(part),
        "address": 3 + index,
        "row": 3 + count + index,
        "written": written,
        "by_tma": by_tma,
        "argument": f"tma_{part.name}" if by_tma else f"{part.name}_gmem",
        "buffer": f"(m + 1, longer(n, {align_name}))" if two else "(m + n + 1,)",
        "cut": "[:m, :n]" if two else "[:m]" if part.dims == ("M",) else "[:n]",
        "value": VALUES[part.dtype == "i8", exact].format(
            f"(m, longer(n, {align_name}))" if two else "(m + n,)"
        ),
        "poison": "77" if part.dtype == "i8" else 'float("nan")',
    }


def role_values(numbers: Numbers, role: RoleNode, index: int) -> dict[str, Any]:
    """A role's branch of the kernel and its line in the docstring."""
    from pipegen.planning.custom.plan import does

    code = role_code(numbers, role)
    first = numbers.first_warp(role)
    last = first + role.block_warps - 1
    branch = "if" if index == 0 else "elif"
    final = index == len(numbers.graph.roles) - 1
    test = f"warp_idx == {first}" if role.block_warps == 1 else f"warp_idx < {last + 1}"
    warps = f"warp {first}" if role.block_warps == 1 else f"warps {first} to {last}"
    return {
        "name": role.name,
        "loop": code.loop,
        "branch": "else:" if final and index else f"{branch} {test}:",
        "banner": f"# ---- {role.name} ".ljust(BANNER_END, "-"),
        "described": column(role.name, f"{warps:<15} {does(role)}"),
        "setup": code.setup,
        "panel_start": code.panel_start,
        "tile_loop": code.tile_loop,
        "panel_end": code.panel_end,
        "tails": code.tails,
        "timeline": column(role.name, timeline(role)),
    }


def timeline(role: RoleNode) -> str:
    """What a role does with a panel, in turn."""

    def words(level: str) -> str:
        takes = [f"wait {ring.name}" for ring in role.inputs if ring.every == level]
        fills = [f"fill {ring.name}" for ring in role.outputs if ring.every == level]
        gives = [f"release {ring.name}" for ring in role.inputs if ring.every == level]
        stores = [f"store {part.name}" for part in role.writes if part.every == level]
        return ", ".join([*takes, *fills, *stores, *gives])

    panel, tile = words("panel"), words("tile")
    each = f"each tile: {tile}" if tile else ""
    return "; ".join(word for word in (f"a panel: {panel}" if panel else "", each) if word)


def ring_values(numbers: Numbers, ring: Ring, cls: str) -> dict[str, Any]:
    """A ring's constants, storage, and construction."""
    tx_count = numbers.tx_count(ring)
    return {
        "name": ring.name,
        "upper": upper(ring.name),
        "cls": cls,
        "comment": textwrap.wrap(f"{ring.name}: {ring.edge}", WIDTH),
        "stages": numbers.stages(ring),
        "full": numbers.full_count(ring),
        "empty": numbers.empty_count(ring),
        "fields": ring_fields(ring),
        "credits": [ring.credits] if ring.credits else [],
        "tx": [{"bytes": tx_count, "formula": tx_formula(numbers, ring)}] if tx_count else [],
        "buffers": [
            {
                "field": field_of(ring, part),
                "dtype": DTYPE[part.dtype].cutlass,
                "tile": tile_shape(part)[1:-1],
                "size": stage_step(numbers, part) or plain_size(part),
                "step": "".join(f", {step}" for step in [stage_step(numbers, part)] if step),
            }
            for part in ring.parts
        ],
    }


def plain_size(part: Part) -> str:
    """Elements of a tile, as the emitted file says it."""
    return tile_shape(part)[1:-1].replace(", ", " * ").replace("1 * ", "").replace(" * 1", "")


def stage_step(numbers: Numbers, part: Part) -> str:
    """Elements from a stage to the next where a short vector is padded; empty where none is."""
    size = numbers.part_bytes(part)
    padded = size != numbers.copied_bytes(part)
    return str(size // DTYPE[part.dtype].bytes) if padded else ""


def tx_formula(numbers: Numbers, ring: Ring) -> str:
    """The bytes of a stage that one TMA warp loads."""
    m, n = numbers.graph.tile
    return " + ".join(
        " * ".join(
            str(size)
            for size in (
                *((m,) if "M" in part.dims else ()),
                *((n,) if "N" in part.dims else ()),
                DTYPE[part.dtype].bytes,
            )
        )
        for part in numbers.own_parts(ring, ring.sources[0])
    )


def sizes_printed(names: list[str]) -> str:
    """A check's sizes in its f-string, with their names where the line has room for them."""
    if len(names) <= 3:
        return " ".join(f"{{{name}=}}" for name in names)
    return ",".join(f"{{{name}}}" for name in names)
