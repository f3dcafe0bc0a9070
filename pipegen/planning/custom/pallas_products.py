# SPDX-License-Identifier: Apache-2.0
"""A custom graph that multiplies in Pallas: the words of its template, bodies and numbers."""

import textwrap
from typing import Any

from pipegen.description import KernelDescription
from pipegen.planning.custom.bodies import Body
from pipegen.planning.custom.code import arguments_of, field_of, upper
from pipegen.planning.custom.graph import UMMA, WGMMA, Part, Ring, RoleNode
from pipegen.planning.custom.pallas import arrivals_row
from pipegen.planning.custom.pallas_numbers import PallasProductNumbers
from pipegen.planning.custom.pallas_product_code import role_lines
from pipegen.planning.custom.pallas_umma_code import multiply_body, reader_identity, scratch_of
from pipegen.planning.custom.pallas_umma_numbers import PallasUmmaNumbers
from pipegen.planning.custom.product_bodies import made_parts, product_expected
from pipegen.planning.custom.product_template import (
    RASTER_GROUP,
    product_does,
    timeline,
    walks,
)
from pipegen.planning.custom.products import product_of, results
from pipegen.planning.custom.template import BANNER_END, WIDTH, column, listing_of_shapes
from pipegen.planning.custom.umma_template import NEVER_RUN
from pipegen.planning.pallas_check_limits import product_limits
from pipegen.planning.stream.template import ARCHITECTURE
from pipegen.vocabulary import DTYPE

# How the check makes its inputs.
VALUES = {
    True: "rng.integers(-100, 101, {})",
    False: "rng.standard_normal({}, np.float32)",
}


def pallas_product_values(
    description: KernelDescription, numbers: PallasProductNumbers
) -> dict[str, Any]:
    """The fields of templates/pallas/custom_multiply.py.j2."""
    graph, kernel = numbers.graph, description.kernel
    architecture, gpus, major = ARCHITECTURE[kernel.arch]
    read = [part for part in graph.tensors if part.name not in graph.written]
    written = [part for part in graph.tensors if part.name in graph.written]
    own = any(role.body or role.finish for role in graph.roles)
    derived = {} if own else product_expected(graph)
    symbols = [s for s in "MNKP" if any(s in part.dims for part in graph.tensors)]
    rows, columns = results(graph)
    staged = [p for role in graph.roles if role.kind != "tma_store" for p in role.writes]
    bodies = [body for role in graph.roles for body in bodies_of(role)]
    text = "\n".join(line for body in bodies for line in body.lines)
    used = [name for name in ("across_rows", "across_columns") if f"{name}(" in text]
    made = [p for ring in graph.rings for p in ring.parts if p not in read] + written
    umma = isinstance(numbers, PallasUmmaNumbers)
    where = ("SMEM and TMEM", NEVER_RUN) if umma else ()
    return {
        "architecture": architecture,
        "gpus": gpus,
        "capability_major": major,
        "tile_names": ", ".join(f"TILE_{symbol}" for symbol in symbols),
        "tile_sizes": ", ".join(str(graph.extents[symbol]) for symbol in symbols),
        "rows": rows.lower(),
        "columns": columns.lower(),
        "walks": walks(rows, columns, numbers.nest, *where),
        "umma": umma,
        "core": "tcgen05" if umma else "wgmma",
        "sm_count": 148 if umma else 132,
        "pieces": [numbers.piece] if isinstance(numbers, PallasUmmaNumbers) else [],
        "raster_group": RASTER_GROUP,
        "roles": [role_values(numbers, role) for role in graph.roles],
        "rings": [ring_values(numbers, ring) for ring in graph.rings],
        "row_sizes": [
            {"upper": upper(role.name), "rows": numbers.rows(role), "symbol": symbol}
            for role in graph.roles
            for symbol in [numbers.rows_symbol(role)]
            if role.kind == WGMMA or (role.kind == "thread" and numbers.warpgroups(role) > 1)
        ],
        "staged": [{"upper": upper(p.name), **buffer_values(numbers, p)} for p in staged],
        "bodies": bodies,
        "uses_across_rows": "across_rows" in used,
        "uses_across_columns": "across_columns" in used,
        "uses_load": bool(used),
        "uses_numpy": any("np." in (tensor.expect or "") for tensor in description.tensor.values()),
        "tensors": [tensor_values(numbers, part) for part in graph.tensors],
        "inputs": [tensor_values(numbers, part) for part in read],
        "outputs": [tensor_values(numbers, part) for part in written],
        "kernel_arguments": ", ".join(
            [
                *(f"{part.name}_gmem" for part in (*read, *written)),
                *(
                    f"{field_of(ring, part)}_{'tmem' if ring.in_tmem else 'smem'}"
                    for ring in graph.rings
                    for part in ring.parts
                ),
                *(f"{part.name}_buffer" for part in staged),
                *(f"{ring.name}_{side}" for ring in graph.rings for side in ("full", "empty")),
            ]
        ),
        "counts": counts(numbers, (*written, *read)),
        "sizes_taken": sizes_taken(read, [s for s in symbols if s in (rows, columns)]),
        "read_names": ", ".join(part.name for part in read),
        "read_types": ", ".join([*(f"{upper(part.name)}_DTYPE" for part in read), ""]).strip(),
        "read_shapes": ", ".join([*(shape_of(part) for part in read), ""]).strip(),
        "written_names": ", ".join(part.name for part in written),
        "shapes": listing_of_shapes(graph.tensors),
        "sizes": ", ".join(symbol.lower() for symbol in symbols),
        "size_arguments": ", ".join(f"{symbol.lower()}: int" for symbol in symbols),
        "size_metavar": ",".join(symbols),
        "sizes_printed": " ".join(f"{{{symbol.lower()}=}}" for symbol in symbols),
        "compiled_size": ", ".join("4096" for _ in symbols),
        "interpreted_sizes": sizes_listed(symbols, numbers, [(1,) * 4, (3, 2, 5, 2)]),
        "many_sizes": sizes_listed(symbols, numbers, [(33, 5, 3, 7)]),
        "warpgroup_count": sum(numbers.warpgroups(role) for role in graph.roles),
        "expectations": [
            {
                "name": part.name,
                "text": description.tensor[part.name].expect or derived[part.name],
            }
            for part in written
        ],
        **product_limits(f32=all(part.dtype == "f32" for part in made)),
    }


def sizes_taken(read: list[Part], symbols: list[str]) -> str:
    """How `launch` finds these sizes: `m, n = x.shape[0], w.shape[0]`."""
    places = []
    for symbol in symbols:
        part = next(part for part in read if symbol in part.dims)
        places.append(f"{part.name}.shape[{part.dims.index(symbol)}]")
    return f"{', '.join(symbol.lower() for symbol in symbols)} = {', '.join(places)}"


def sizes_listed(
    symbols: list[str], numbers: PallasProductNumbers, tiles: list[tuple[int, ...]]
) -> str:
    """Sizes of the module's own check: whole tiles, or some less than so many, so that all end."""
    rest = {"M": 5, "N": 9, "K": 13, "P": 3}
    rows = []
    for counts_of in tiles:
        row = []
        for symbol, count in zip("MNKP", counts_of, strict=True):
            if symbol in symbols:
                size = f"TILE_{symbol}" if count == 1 else f"TILE_{symbol} * {count}"
                row.append(size if count == 1 else f"{size} - {rest[symbol]}")
        rows.append(f"({', '.join(row)})")
    return ", ".join(rows)


def counts(numbers: PallasProductNumbers, parts: tuple[Part, ...]) -> list[dict[str, str]]:
    """The numbers of tiles along each symbol that is walked over, from the kernel's arrays."""
    found = []
    for symbol in (*results(numbers.graph), *numbers.nest):
        part = next(part for part in parts if symbol in part.dims)
        found.append(
            {
                "name": f"tiles_{symbol.lower()}",
                "array": f"{part.name}_gmem",
                "axis": str(part.dims.index(symbol)),
                "tile": f"TILE_{symbol}",
            }
        )
    return found


def shape_of(part: Part) -> str:
    """`(m, k)`"""
    names = [symbol.lower() for symbol in part.dims]
    return f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"


def tensor_values(numbers: PallasProductNumbers, part: Part) -> dict[str, Any]:
    """A tensor's names, sizes and the blocks that its copies want whole."""
    two = len(part.dims) == 2
    block = str(numbers.block(part)) if two else f"(TILE_{part.dims[0]},)"
    return {
        "name": part.name,
        "upper": upper(part.name),
        "jax": DTYPE[part.dtype].jax,
        "symbols": "".join(part.dims),
        "shape": shape_of(part),
        "block": block,
        "cut": ", ".join(f":{symbol.lower()}" for symbol in part.dims),
        "value": VALUES[part.dtype == "i8"].format(shape_of(part)),
    }


def buffer_values(numbers: PallasProductNumbers, part: Part) -> dict[str, Any]:
    """A tile in SMEM: its shape, and how TMA and wgmma want it to lie."""
    shape = ", ".join(f"TILE_{symbol}" for symbol in part.dims)
    layout = ""
    if len(part.dims) == 2:
        layout = f", transforms=swizzled({numbers.block(part)[1]}, {numbers.swizzle(part)})"
    return {"shape": shape, "jax": DTYPE[part.dtype].jax, "layout": layout}


def ring_values(numbers: PallasProductNumbers, ring: Ring) -> dict[str, Any]:
    """A ring's constants, buffers and barriers."""
    full, empty = numbers.full_count(ring), numbers.empty_count(ring)
    fills = {"tma": "copies", UMMA: "commits"}.get(ring.producer, "warpgroups")
    empties = "commits" if ring.consumer == UMMA else "warpgroups"
    # Of a barrier to which tcgen05 commits, or which hands TMEM over.
    ordered = ", orders_tensor_core=True"
    return {
        "name": ring.name,
        "upper": upper(ring.name),
        "described": column(ring.name, f"{ring.edge}, {numbers.every(ring)}"),
        "comment": textwrap.wrap(f"{ring.name}: {ring.edge}, {numbers.every(ring)}", WIDTH),
        "stages": numbers.stages(ring),
        "full": full,
        "empty": empty,
        "fills": fills,
        "empties": empties,
        "full_ordered": ordered if ring.in_tmem else "",
        "empty_ordered": ordered if ring.in_tmem or ring.consumer == UMMA else "",
        "row": arrivals_row(numbers, ring, fills, empties),
        "buffers": [buffer_values(numbers, part) for part in ring.parts if not ring.in_tmem],
        "accumulators": [scratch_of(ring)] if ring.in_tmem else [],
    }


def role_values(numbers: PallasProductNumbers, role: RoleNode) -> dict[str, Any]:
    """A role's branch of the kernel and its line in the docstring."""
    first, count = numbers.first_warp(role) // 4, numbers.warpgroups(role)
    last = first + count - 1
    place = f"warpgroup {first}" if count == 1 else f"warpgroups {first} to {last}"
    test = f"warpgroup == {first}"
    if count > 1:
        test = (
            f"(warpgroup >= {first}) & (warpgroup <= {last})" if first else f"warpgroup <= {last}"
        )
    return {
        "name": role.name,
        "test": test,
        "banner": f"# ---- {role.name} ".ljust(BANNER_END, "-"),
        "described": column(role.name, f"{place:<17} {product_does(numbers, role)}"),
        "timeline": column(role.name, timeline(numbers, role)),
        "lines": role_lines(numbers, role),
    }


def bodies_of(role: RoleNode) -> list[Body]:
    """The functions of a role that computes; one that multiplies ends each tile in another."""
    product = product_of(role)
    if product is None:
        return [_body(role)] if role.kind == "thread" else []
    a, b = (field_of(each.ring, each.part) for each in (product.a, product.b))
    if role.kind == UMMA:
        said = [f"{a}: a stage, {_tile(product.a.part)}", f"{b}: a stage, {_tile(product.b.part)}"]
        return [multiply_body(role, product, _given(role.body), said)]
    what = "Yours" if role.body else f"Yours; as written, sums += {a} @ {b}.T by wgmma"
    ended = "Yours" if role.finish else "Yours; as written it does, and costs, nothing"
    return [
        Body(
            role.name,
            f"{a}, {b}, sums",
            [
                f"{what}.",
                "",
                f"{a}: a stage, {_tile(product.a.part)}; of several warpgroups each has its rows",
                f"{b}: a stage, {_tile(product.b.part)}",
                "sums: this warpgroup's f32 accumulators, which wgmma adds to",
            ],
            _given(role.body) or [f"plgpu.wgmma(sums, {a}, {b}.T)"],
        ),
        Body(
            f"{role.name}_finish",
            "sums, row, column",
            [
                f"{ended}.",
                "",
                "Ends a tile: what is in sums then is given on. sums[i, j] belongs to row + i and",
                "column + j of the whole product, which may lie outside at an edge.",
            ],
            [*_given(role.finish), "return sums"],
        ),
    ]


def _given(text: str | None) -> list[str]:
    return textwrap.dedent(text).strip().splitlines() if text else []


def _tile(part: Part) -> str:
    return f"({', '.join(f'TILE_{symbol}' for symbol in part.dims)}) {part.dtype}"


def _body(role: RoleNode) -> Body:
    """A role of threads: refs of stages and of what is then stored."""
    held = [(field_of(ring, part), part) for ring in role.inputs for part in ring.parts]
    sums = {field_of(ring, part) for ring in role.sums for part in ring.parts}
    words = [
        f"{name}: a stage to read, {_tile(part)}"
        + (" in TMEM, by plgpu.async_load_tmem" if name in sums else "")
        for name, part in held
    ]
    words += [f"{part.name}: to read, {_tile(part)} in GMEM" for part in role.reads]
    made = [(field_of(ring, part), part) for ring in role.outputs for part in ring.parts]
    made += [(part.name, part) for part in role.writes]
    words += [f"{name}: to write, {_tile(part)}" for name, part in made]
    if role.warps > 4:
        words += ["", "Of several warpgroups each has its rows of these."]
    what = "Yours" if role.body else "Yours; as written, the identity"
    return Body(
        role.name,
        ", ".join(arguments_of(role)),
        [f"{what}.", "", *words],
        _given(role.body) or (reader_identity(role) if role.sums else _identity(role)),
    )


def _identity(role: RoleNode) -> list[str]:
    """The sum of what a role takes, given on; a vector is repeated along the other dimension."""
    taken = [(field_of(ring, part), part) for ring in role.inputs for part in ring.parts]
    taken += [(part.name, part) for part in role.reads]
    made = made_parts(role)
    names = [field_of(ring, part) for ring in role.outputs for part in ring.parts]
    names += [part.name for part in role.writes]

    def word(name: str, part: Part) -> str:
        if len(part.dims) == 2:
            return f"{name}[...].astype(jnp.float32)"
        along = "columns" if part.dims[0] == made[0].dims[0] else "rows"
        return f"across_{along}({name}, {names[0]}.shape).astype(jnp.float32)"

    lines = [f"values = {' + '.join(word(name, part) for name, part in taken)}"]
    return [*lines, *(f"{name}[...] = values.astype({name}.dtype)" for name in names)]
