# SPDX-License-Identifier: Apache-2.0
"""The words that templates/cute/custom_multiply.py.j2 puts into its text, beyond the numbers.

What those of tcgen05 have beside them is in `umma_template`.
"""

import textwrap
from typing import Any

from pipegen.description import KernelDescription
from pipegen.hardware import VECTOR_BYTES
from pipegen.planning.custom.code import field_of, upper
from pipegen.planning.custom.graph import UMMA, WGMMA, Part, Ring, RoleNode
from pipegen.planning.custom.product_bodies import product_bodies_of, product_expected
from pipegen.planning.custom.product_code import block_shape, role_lines
from pipegen.planning.custom.product_numbers import ProductNumbers, swizzle_of
from pipegen.planning.custom.products import product_of, results
from pipegen.planning.custom.template import (
    BANNER_END,
    VALUES,
    WIDTH,
    column,
    listing_of_shapes,
    size_words,
)
from pipegen.planning.custom.umma_code import umma_role_lines
from pipegen.planning.custom.umma_numbers import UmmaNumbers
from pipegen.planning.stream.template import ARCHITECTURE
from pipegen.vocabulary import DTYPE

# Rows of tiles walked together, for L2 (planning/gemm_defaults.py has measured it).
RASTER_GROUP = 8
# stmatrix stores 8 x 8 matrices of 16 bits: four or two side by side.
WIDE_MATRICES, MATRIX_COLUMNS = 4, 8


def product_values(
    description: KernelDescription, numbers: ProductNumbers, classes: dict[str, str]
) -> dict[str, Any]:
    """The template's fields for a description that keeps the rules."""
    graph, kernel = numbers.graph, description.kernel
    architecture, gpus, capability_major = ARCHITECTURE[kernel.arch]
    moved = {p.name for role in graph.roles if role.kind == "tma" for p in role.reads}
    stored = {p.name for role in graph.roles if role.kind == "tma_store" for p in role.writes}
    written = [part for part in graph.tensors if part.name in graph.written]
    read = [part for part in graph.tensors if part.name not in graph.written]
    own = any(role.body or role.finish for role in graph.roles)
    derived = {} if own else product_expected(graph)
    symbols = [s for s in "MNKP" if any(s in part.dims for part in graph.tensors)]
    tensors = [
        tensor_values(numbers, part, index, len(symbols), part.name in moved | stored)
        for index, part in enumerate(graph.tensors)
    ]
    rows, columns = results(graph)
    unit = max(
        (VECTOR_BYTES // DTYPE[p.dtype].bytes for p in written if p.name in stored), default=1
    )
    gives_rings = any(role.outputs for role in graph.roles if product_of(role))
    threads = [role for role in graph.roles if role.kind == "thread"]
    mmas = [mma_values(numbers, role) for role in graph.roles if product_of(role)]
    tiles = [f"tiles_{symbol.lower()}" for symbol in (rows, columns, *numbers.nest)]
    given = [each["argument"] for each in tensors] + [each["name"] for each in mmas]
    return {
        "architecture": architecture,
        "gpus": gpus,
        "capability_major": capability_major,
        **size_words(symbols, columns),
        "sizes_packed": len(symbols) + 1,
        "size_of_columns": columns,
        "nvgpu_names": f"OperandMajorMode, cpasync, {'warp, ' if gives_rings else ''}warpgroup",
        "tile_names": ", ".join(f"TILE_{symbol}" for symbol in symbols),
        "tile_sizes": ", ".join(str(graph.extents[symbol]) for symbol in symbols),
        "rows": rows.lower(),
        "columns": columns.lower(),
        "walks": walks(rows, columns, numbers.nest),
        "raster_group": RASTER_GROUP,
        "roles": [role_values(numbers, role, index) for index, role in enumerate(graph.roles)],
        "rings": [ring_values(numbers, ring, classes[ring.name]) for ring in graph.rings],
        "sharing": [
            {"upper": upper(role.name), "warps": role.warps}
            for role in graph.roles
            if role.kind not in ("tma", "tma_store")
        ],
        "mmas": mmas,
        "bodies": product_bodies_of(numbers),
        "tensors": tensors,
        "loads": [each for each in tensors if each["by_tma"] and not each["written"]],
        "stores": [each for each in tensors if each["by_tma"] and each["written"]],
        "uses_tma_store": bool(stored),
        "uses_parts": bool(threads),
        "uses_slabs": any(
            numbers.slabs(role) > 1 or "slab_of(" in (role.body or "") for role in threads
        ),
        "uses_plain": any(not numbers.swizzled(ring) for ring in graph.rings),
        "uses_load_global": any(role.reads for role in threads),
        "uses_store_global": any(role.writes for role in threads),
        "uses_store_sums": gives_rings,
        "uses_store_sums_global": any(role.writes for role in graph.roles if product_of(role)),
        "numbers_packed": len(symbols) + 1 + 2 * len(tensors),
        "kernel_arguments": ", ".join([*given, *tiles, "tiles"]),
        "launch_arguments": ", ".join(
            [
                *(f"tma_{t['name']}" if t["by_tma"] else t["name"] for t in tensors),
                *(each["name"] for each in mmas),
                *tiles,
                "tiles",
            ]
        ),
        "arguments": ", ".join(part.name for part in graph.tensors),
        "check_arguments": ", ".join(
            f'{"outputs" if part.name in graph.written else "inputs"}["{part.name}"]'
            for part in graph.tensors
        ),
        "inputs": [each for each in tensors if not each["written"]],
        "outputs": [each for each in tensors if each["written"]],
        "sizes_taken": sizes_taken(graph.tensors, symbols),
        "wanted_shapes": ", ".join(each["shape"] for each in tensors),
        "read_names": ", ".join(part.name for part in read),
        "written_names": ", ".join(part.name for part in written),
        "expectations": [
            {
                "name": part.name,
                "text": description.tensor[part.name].expect or derived[part.name],
            }
            for part in written
        ],
        "shapes": listing_of_shapes(graph.tensors),
        "unit": unit,
        "whole_columns": unit > 1,
        "exact": False,
        "swaps": False,  # of clusters
        "close": True,
        "tolerance": tolerance(numbers),
        "check_sizes": check_sizes(symbols, columns, unit),
        "walked": [
            {
                "name": f"tiles_{symbol.lower()}",
                "size": symbol.lower(),
                "tile": f"TILE_{symbol}",
            }
            for symbol in (rows, columns, *numbers.nest)
        ],
    }


def walks(
    rows: str, columns: str, nest: tuple[str, ...], where: str = "SMEM", more: str = ""
) -> list[str]:
    """The docstring's sentence about the loops."""
    inner = ", and within it over ".join(f"{symbol} in steps of TILE_{symbol}" for symbol in nest)
    text = (
        f"A CTA takes tiles of TILE_M x TILE_{columns} of the result, one after the other, and for "
        f"each walks over {inner}. Every role has its own loops; rings of {where} stages connect "
        "the roles, each filled as often as its tiles change. What a role computes is its body, a "
        'function under "Yours": replacing it never touches the protocol.'
    )
    if len(nest) > 1:
        text += (
            f" The first product is computed anew for each tile of {columns}: that is wasted work "
            f"where there are many."
        )
    return textwrap.wrap(text + more, WIDTH + 2)


def tolerance(numbers: ProductNumbers) -> str:
    """The relative error that the module's check allows: of the widest rounding on the way."""
    graph = numbers.graph
    taken = {part for role in graph.roles for part in role.reads}
    made = [part for ring in graph.rings for part in ring.parts if part not in taken]
    made += [part for part in graph.tensors if part.name in graph.written]
    return "1e-3" if all(part.dtype == "f32" for part in made) else "1e-2"


def check_sizes(symbols: list[str], columns: str, unit: int) -> str:
    """Sizes of the module's own check: a tile, the smallest, tails everywhere, many tiles."""
    tails = {"M": 1001, "N": 1000, "K": 504, "P": 200}
    odd = {"M": 333, "N": 77, "K": 72, "P": 135}
    many = {"M": 4096, "N": 2048, "K": 512, "P": 1024}
    odd[columns] = -(-odd[columns] // unit) * unit
    smallest = {symbol: unit if symbol == columns else 1 for symbol in symbols}
    rows = [", ".join(f"TILE_{symbol}" for symbol in symbols)]
    rows += [", ".join(str(sizes[s]) for s in symbols) for sizes in (smallest, tails, odd, many)]
    return ", ".join(f"({row})" for row in rows)


def sizes_taken(tensors: tuple[Part, ...], symbols: list[str]) -> list[str]:
    """Where `custom` finds each size."""
    found, lines = set(), []
    for place, part in enumerate(tensors):
        new = [symbol for symbol in part.dims if symbol not in found]
        found |= set(new)
        if len(new) == len(part.dims) == 2:
            lines.append(f"{new[0].lower()}, {new[1].lower()} = shapes[{place}]")
        else:
            lines += [
                f"{symbol.lower()} = shapes[{place}][{part.dims.index(symbol)}]" for symbol in new
            ]
    return lines


def tensor_values(
    numbers: ProductNumbers, part: Part, index: int, symbols: int, by_tma: bool
) -> dict[str, Any]:
    """A tensor of the launch, with the places of its numbers in what `custom` packs."""
    graph = numbers.graph
    count, written = len(graph.tensors), part.name in graph.written
    align = VECTOR_BYTES // DTYPE[part.dtype].bytes
    names, two = [symbol.lower() for symbol in part.dims], len(part.dims) == 2
    align_name, column_vector = f"{upper(part.name)}_ALIGN", part.dims == ("M",)
    last = names[-1]
    rings = [ring for ring in graph.rings for held in ring.parts if held == part]
    rings += [ring for r in graph.roles if part in r.writes for ring in r.inputs if by_tma]
    swizzled = any(numbers.swizzled(ring) for ring in rings)
    layout = f"cute.make_ordered_layout({block_shape(part)}, order=(1, 0))"
    if swizzled:
        kind = swizzle_of(part, graph.extents)
        layout = (
            f"swizzled_layout(SmemLayoutAtomKind.{kind}, {upper(part.name)}_DTYPE, "
            f"{block_shape(part)}, 1)"
        )
    shape = f"({', '.join(names)}{'' if two else ','})"
    longer = f"({names[0]}, longer({last}, {align_name}))" if two else f"({last},)"
    around = f"({names[0]} + 1, longer({last}, {align_name}))" if two else f"({last} + 1,)"
    # A vector is a matrix of one column, or of one row: TMA wants 16 bytes between those.
    stride = (
        f"({part.name}_row, 1)" if two else f"(1, {align})" if column_vector else f"({align}, 1)"
    )
    return {
        "name": part.name,
        "upper": upper(part.name),
        "cutlass": DTYPE[part.dtype].cutlass,
        "torch": DTYPE[part.dtype].torch,
        "align": align,
        "sizes": shape if two else f"({last}, 1)" if column_vector else f"(1, {last})",
        "stride": stride,
        "strided": [f"{part.name}_row"] if two else [],
        "dims": len(part.dims),
        "shape": shape,
        "tile": block_shape(part),
        "layout": layout,
        "address": symbols + 1 + index,
        "row": symbols + 1 + count + index,
        "written": written,
        "by_tma": by_tma,
        "argument": f"tma_{part.name}" if by_tma else f"{part.name}_gmem",
        "buffer": around,
        "cut": f"[:{names[0]}, :{last}]" if two else f"[:{last}]",
        "value": VALUES[part.dtype == "i8", False].format(longer),
        "poison": "77" if part.dtype == "i8" else 'float("nan")',
    }


def mma_values(numbers: ProductNumbers, role: RoleNode) -> dict[str, Any]:
    """A role's tiled MMA, as the launch makes it."""
    product = product_of(role)
    if product is None:
        raise ValueError(f"rule PG278 lets no such role pass: {role}")
    warps = f", {upper(role.name)}_WARPS" if role.kind == WGMMA else ""
    return {
        "name": f"{role.name}_mma",
        "arguments": f"cutlass.{DTYPE[product.a.part.dtype].cutlass}, TILE_{product.columns}, "
        f"{numbers.mma_k(product)}{warps}",
    }


def role_values(numbers: ProductNumbers, role: RoleNode, index: int) -> dict[str, Any]:
    """A role's branch of the kernel and its line in the docstring."""
    first = numbers.first_warp(role)
    last = first + role.warps - 1
    final = index == len(numbers.graph.roles) - 1
    test = f"warp_idx == {first}" if role.warps == 1 else f"warp_idx < {last + 1}"
    warps = f"warp {first}" if role.warps == 1 else f"warps {first} to {last}"
    return {
        "name": role.name,
        "upper": upper(role.name),
        "warps": role.warps,
        "branch": "else:" if final and index else f"{'elif' if index else 'if'} {test}:",
        "banner": f"# ---- {role.name} ".ljust(BANNER_END, "-"),
        "described": column(role.name, f"{warps:<15} {product_does(numbers, role)}"),
        "lines": lines_of(numbers, role),
        "timeline": column(role.name, timeline(numbers, role)),
    }


def lines_of(numbers: ProductNumbers, role: RoleNode) -> list[str]:
    """All lines of a role's branch, of either kind of tensor core."""
    return (
        umma_role_lines(numbers, role)
        if isinstance(numbers, UmmaNumbers)
        else role_lines(numbers, role)
    )


def product_does(numbers: ProductNumbers, role: RoleNode) -> str:
    """What a role does, in one phrase."""
    takes = [part.name for part in role.reads] + [ring.name for ring in role.inputs]
    gives = [ring.name for ring in role.outputs] + [part.name for part in role.writes]
    product = product_of(role)
    if product is not None:
        a, b = field_of(product.a.ring, product.a.part), field_of(product.b.ring, product.b.part)
        each = "tcgen05" if role.kind == UMMA else "a wgmma group"
        return (
            f"multiplies: {a} @ {b}.T -> {', '.join(gives)}, {each} at each step of {product.over}"
        )
    verb = {"tma": "loads by TMA", "tma_store": "stores by TMA"}.get(role.kind, "computes")
    return f"{verb}: {', '.join(takes)} -> {', '.join(gives)}, {numbers.every(role)}"


def timeline(numbers: ProductNumbers, role: RoleNode) -> str:
    """What a role does with a tile, loop by loop."""
    found, multiplies = [], product_of(role) is not None
    later = ", a step later" if multiplies and numbers.release_distance(role) else ""
    for depth in range(len(numbers.nest) + 1):
        takes = [ring.name for ring in role.inputs if numbers.depth(ring) == depth]
        gives = [ring.name for ring in role.outputs if numbers.depth(ring) == depth]
        words = [f"wait {name}" for name in takes]
        words += ["multiply"] if takes and multiplies else []
        words += [f"fill {name}" for name in gives]
        if depth == numbers.depth(role) - multiplies:
            words += [f"store {part.name}" for part in role.writes]
        words += [f"release {name}" for name in takes]
        if words:
            every = f"each step of {numbers.nest[depth - 1]}" if depth else "each tile"
            found.append(f"{every}: {', '.join(words)}{later if takes else ''}")
    return "; ".join(found)


def ring_values(numbers: ProductNumbers, ring: Ring, cls: str) -> dict[str, Any]:
    """A ring's constants, storage, and construction."""
    full, empty = f"{numbers.full_count(ring)} arrives", f"{numbers.empty_count(ring)} arrives"
    full = "1 commit" if ring.in_tmem else full
    if ring.consumer == UMMA:
        empty = f"{numbers.empty_count(ring)} commit{'s' * (len(ring.targets) > 1)}"
    tx_count = numbers.tx_count(ring)
    if tx_count:
        full = f"{numbers.full_count(ring)} x {tx_count} B"
    return {
        "name": ring.name,
        "upper": upper(ring.name),
        "cls": cls,
        "described": column(ring.name, f"{ring.edge}, {numbers.every(ring)}"),
        "comment": textwrap.wrap(f"{ring.name}: {ring.edge}, {numbers.every(ring)}", WIDTH),
        "stages": numbers.stages(ring),
        "full": numbers.full_count(ring),
        "empty": numbers.empty_count(ring),
        "row": f"{ring.name:<20} {cls:<17} {numbers.stages(ring):<7} {full:<16} {empty}",
        "tx": [{"bytes": tx_count, "formula": tx_formula(numbers, ring)}] if tx_count else [],
        "alignment": numbers.buffer_alignment(ring),
        "buffers": [buffer_values(numbers, ring, p) for p in ring.parts if not ring.in_tmem],
    }


def buffer_values(numbers: ProductNumbers, ring: Ring, part: Part) -> dict[str, Any]:
    """What a ring's stages hold of one tensor, and how it lies in SMEM."""
    dtype, tile = DTYPE[part.dtype].cutlass, block_shape(part)
    step = " * ".join(f"TILE_{symbol}" for symbol in part.dims)
    if numbers.part_bytes(part) != numbers.copied_bytes(part):  # a short vector is padded
        step = str(numbers.part_bytes(part) // DTYPE[part.dtype].bytes)
    swizzled = numbers.swizzled(ring)
    kind = swizzle_of(part, numbers.graph.extents) if swizzled else ""
    stages = f"{upper(ring.name)}_STAGES"
    layout = f"plain_layout({tile}, {stages}, {step})"
    if swizzled:
        layout = f"swizzled_layout(SmemLayoutAtomKind.{kind}, cutlass.{dtype}, {tile}, {stages})"
    field = field_of(ring, part)
    view = f"{field}_layout.outer, swizzle={field}_layout.inner" if swizzled else f"{field}_layout"
    return {"field": field, "dtype": dtype, "elements": step, "layout": layout, "view": view}


def tx_formula(numbers: ProductNumbers, ring: Ring) -> str:
    """The bytes of a stage that one TMA warp loads."""
    return " + ".join(
        " * ".join(
            str(size)
            for size in (
                *(numbers.graph.extents[symbol] for symbol in part.dims),
                DTYPE[part.dtype].bytes,
            )
        )
        for part in numbers.own_parts(ring, ring.sources[0])
    )
