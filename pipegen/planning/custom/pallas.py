# SPDX-License-Identifier: Apache-2.0
"""A custom graph in Pallas: plgpu.kernel with explicit barriers, one warpgroup a role."""

import textwrap
from typing import Any

from pipegen.description import KernelDescription
from pipegen.planning.custom import pallas_turns as turns
from pipegen.planning.custom.bodies import Body, expected
from pipegen.planning.custom.code import arguments_of, field_of, upper
from pipegen.planning.custom.graph import Part, Ring, RoleNode
from pipegen.planning.custom.numbers import Numbers
from pipegen.planning.custom.template import BANNER_END, WIDTH, column, timeline
from pipegen.planning.pallas_check_limits import custom_limits
from pipegen.planning.stream.template import ARCHITECTURE
from pipegen.vocabulary import DTYPE

CONSTRUCT = "plgpu.Barrier"
PLACE = "rows, columns"


def pallas_values(description: KernelDescription, numbers: Numbers) -> dict[str, Any]:
    """The fields of templates/pallas/custom.py.j2 for a description that keeps the rules."""
    from pipegen.planning.custom.plan import does

    graph, kernel = numbers.graph, description.kernel
    architecture, gpus, major = ARCHITECTURE[kernel.arch]
    own = any(role.body for role in graph.roles)
    derived = {} if own else expected(graph)
    read = [part for part in graph.tensors if part.name not in graph.written]
    written = [part for part in graph.tensors if part.name in graph.written]
    return {
        "architecture": architecture,
        "gpus": gpus,
        "capability_major": major,
        "sm_count": {"9": 132, "10": 148}[str(major)],
        "compiled_only": kernel.arch == "sm_100a",
        "roles": [
            {
                "name": role.name,
                "test": test_of(numbers, role),
                "banner": f"# ---- {role.name} ".ljust(BANNER_END, "-"),
                "described": column(role.name, f"{place_of(numbers, role)}  {does(role)}"),
                "timeline": column(role.name, timeline(role)),
                "lines": turns.role_lines(numbers, role) if role.order else role_lines(role),
                "tails": turns.tails(numbers, role) if role.order else role_tails(role),
            }
            for role in graph.roles
        ],
        **turns.template_values(numbers),
        "rings": [ring_values(numbers, ring) for ring in graph.rings],
        "staged": [
            {"upper": upper(part.name), "shape": turns.buffer_shape(role)}
            for role in graph.roles
            if role.kind == "thread"
            for part in role.writes
        ],
        "bodies": [
            body
            for role in graph.roles
            if role.kind == "thread"
            for body in (body_of(role), *turns.bodies(role))
        ],
        "tensors": [tensor_values(part) for part in graph.tensors],
        "inputs": [tensor_values(part) for part in read],
        "outputs": [tensor_values(part) for part in written],
        "kernel_arguments": ", ".join(
            [
                *(f"{part.name}_gmem" for part in (*read, *written)),
                *(f"{field_of(ring, part)}_smem" for ring in graph.rings for part in ring.parts),
                *(
                    f"{part.name}_buffer"
                    for role in graph.roles
                    if role.kind == "thread"
                    for part in role.writes
                ),
                *(f"{order.name}_smem" for order in graph.orders if order.state),
                *(f"{ring.name}_{side}" for ring in graph.rings for side in ("full", "empty")),
                *(f"{order.name}_turns" for order in graph.orders),
            ]
        ),
        "read_names": ", ".join(part.name for part in read),
        "written_names": ", ".join(part.name for part in written),
        "first_written": written[0].name,
        "read_first": read[0].name,
        "read_types": ", ".join([*(f"{upper(part.name)}_DTYPE" for part in read), ""]).strip(),
        "role_count": sum(role.groups for role in graph.roles),
        "expectations": [
            {
                "name": part.name,
                "text": description.tensor[part.name].expect or derived[part.name],
            }
            for part in written
        ],
        "uses_numpy": any("np." in (each.expect or "") for each in description.tensor.values()),
        "exact": not own,
        "close": own,
        **custom_limits(f32=all(part.dtype == "f32" for part in written)),
    }


def place_of(numbers: Numbers, role: RoleNode) -> str:
    """`warpgroup 0`, or `warpgroups 0 to 1` of groups in turn."""
    first = numbers.first_warp(role) // 4
    several = f"warpgroups {first} to {first + role.groups - 1}"
    return several if role.groups > 1 else f"warpgroup {first}"


def test_of(numbers: Numbers, role: RoleNode) -> str:
    """Whether a warpgroup is of the role."""
    first = numbers.first_warp(role) // 4
    last = first + role.groups - 1
    if role.groups == 1:
        return f"role == {first}"
    return f"(role >= {first}) & (role <= {last})" if first else f"role <= {last}"


def tensor_values(part: Part) -> dict[str, Any]:
    """A tensor's names."""
    return {"name": part.name, "upper": upper(part.name), "jax": DTYPE[part.dtype].jax}


ONE = {"copies": "copy", "warpgroups": "warpgroup", "commits": "commit"}


def arrivals_row(numbers: Numbers, ring: Ring, fills: str, empties: str) -> str:
    """A ring's line in the docstring's table: its stages, and what fills and empties one."""
    full, empty = numbers.full_count(ring), numbers.empty_count(ring)
    fills, empties = (
        f"{count} {ONE[word] if count == 1 else word}"
        for count, word in ((full, fills), (empty, empties))
    )
    return f"{ring.name:<20} {numbers.stages(ring):<7} {fills}, {empties}"


def ring_values(numbers: Numbers, ring: Ring) -> dict[str, Any]:
    """A ring's constants, buffers and barriers."""
    return {
        "name": ring.name,
        "upper": upper(ring.name),
        "described": column(ring.name, ring.edge),
        "comment": textwrap.wrap(f"{ring.name}: {ring.edge}", WIDTH),
        "stages": numbers.stages(ring),
        "full": numbers.full_count(ring),
        "empty": numbers.empty_count(ring),
        "row": arrivals_row(
            numbers, ring, "copies" if ring.producer == "tma" else "warpgroups", "warpgroups"
        ),
        "buffers": [
            {"field": field_of(ring, part), "jax": DTYPE[part.dtype].jax} for part in ring.parts
        ],
    }


def slot(ring: Ring, part: Part) -> str:
    """One stage of a ring's buffer."""
    return f"{field_of(ring, part)}_smem.at[{ring.name}_stage]"


def role_lines(role: RoleNode) -> list[str]:
    """A role's loop over all tiles of its CTA."""
    return ["@pl.loop(0, trips)", "def _(step):", *(f"    {line}" for line in role_steps(role))]


def role_steps(role: RoleNode) -> list[str]:
    """What a role does with the tile that comes step-th."""
    lines = [
        f"{r.name}_stage = wait({r.name}_full, step, {upper(r.name)}_STAGES)" for r in role.inputs
    ]
    lines += [
        f"{r.name}_stage = acquire({r.name}_empty, step, {upper(r.name)}_STAGES)"
        for r in role.outputs
    ]
    if role.kind == "tma":
        for ring in role.outputs:
            lines += [
                f"plgpu.copy_gmem_to_smem({part.name}_gmem.at[place(step)], {slot(ring, part)}, "
                f"{ring.name}_full.at[{ring.name}_stage])"
                for part in ring.parts
                if part in role.reads
            ]
        return lines
    if role.kind == "tma_store":
        ring, out = role.inputs[0], role.writes[0]
        return [
            *lines,
            f"plgpu.copy_smem_to_gmem({slot(ring, ring.parts[0])}, "
            f"{out.name}_gmem.at[place(step)])",
            "plgpu.wait_smem_to_gmem(0, wait_read_only=True)",
            f"plgpu.barrier_arrive({ring.name}_empty.at[{ring.name}_stage])",
        ]
    given = [slot(ring, part) for ring in role.inputs for part in ring.parts]
    made = [slot(ring, part) for ring in role.outputs for part in ring.parts]
    buffers = [f"{part.name}_buffer" for part in role.writes]
    if buffers:
        lines.append("# The last stores have read their buffers.")
        lines.append("plgpu.wait_smem_to_gmem(0, wait_read_only=True)")
    lines.append(f"{role.name}({', '.join([*given, *made, *buffers])})")
    lines.append("# Publishes to the other warpgroups, and to TMA, which is another proxy.")
    lines.append("plgpu.commit_smem()")
    lines += [f"plgpu.barrier_arrive({r.name}_full.at[{r.name}_stage])" for r in role.outputs]
    lines += [f"plgpu.barrier_arrive({r.name}_empty.at[{r.name}_stage])" for r in role.inputs]
    lines += [
        f"plgpu.copy_smem_to_gmem({part.name}_buffer, {part.name}_gmem.at[place(step)])"
        for part in role.writes
    ]
    return lines


def role_tails(role: RoleNode) -> list[str]:
    """Every arrival is waited for, and every store, before the kernel ends."""
    lines = [f"tail({ring.name}_empty, {upper(ring.name)}_STAGES)" for ring in role.outputs]
    return [*lines, *(["plgpu.wait_smem_to_gmem(0)"] if role.writes else [])]


def body_of(role: RoleNode) -> Body:
    """The function that a role computes with: refs of stages, and of what is then stored."""
    names = arguments_of(role)
    made = [field_of(ring, part) for ring in role.outputs for part in ring.parts]
    made += [part.name for part in role.writes]
    given = [name for name in names if name not in made]
    if role.body:
        lines = textwrap.dedent(role.body).strip().splitlines()
    else:
        lines = [f"values = {' + '.join(f'{name}[...].astype(jnp.float32)' for name in given)}"]
        lines += [f"{name}[...] = values.astype({name}.dtype)" for name in made]
    what = "Yours" if role.body else "Yours; as written, the identity"
    words = [f"{name}: a stage to read" for name in given]
    words += [f"{name}: a tile to write" for name in made]
    return Body(role.name, ", ".join(names), [f"{what}.", "", *words], lines)
