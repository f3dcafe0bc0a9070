# SPDX-License-Identifier: Apache-2.0
"""Turns a plan into the emitted text: Jinja2, then black, then the signed header."""

import re
import textwrap
from functools import cache
from typing import Any

from pipegen.description_file import dump_description
from pipegen.planning.integration import torch_op
from pipegen.planning.model import Plan
from pipegen.selection_table import template_folder
from pipegen.vendor.header import digest, header_lines, sign

LINE_LENGTH = 100
# The DSL versions that the templates of a backend are compiled with in CI.
TESTED = {
    "cute": "nvidia-cutlass-dsl 4.8.1",
    "cute-ts": "nvidia-cutlass-dsl 4.8.1",
    "pallas": "jax 0.10.2, 0.11.2 and 0.12.0.1",
}
# Of a template that not all of these compile.
TESTED_ALONE = {
    "pallas/gemm_sm90_pallas_call.py.j2": "jax 0.10.2; interpreted with 0.11.2 and 0.12.0.1",
}


def render(plan: Plan, formatted: bool = True) -> dict[str, str]:
    """The kernel's files: path (relative) -> text. The same plan gives the same text, always.

    `formatted = False` leaves black out, which takes 95% of the time: the same code, for a file
    that nobody reads.
    """
    kernel = plan.description.kernel
    header = header_lines(
        kernel.op,
        kernel.backend,
        kernel.arch,
        plan.template,
        template_digest(plan.template),
        TESTED_ALONE.get(plan.template, TESTED[kernel.backend]),
        dump_description(plan.given),
    )
    body = _environment().get_template(plan.template).render(_context(plan))
    text = header + body
    return {f"{plan.name}.py": sign(format_text(text) if formatted else text)}


def template_digest(template: str) -> str:
    """The digest of a template's source with all that it includes."""
    return digest("\n".join(_sources(template)))


def _sources(template: str) -> list[str]:
    source = (template_folder() / template).read_text(encoding="utf-8")
    included = re.findall(r'{% include "([^"]+)" %}', source)
    return [source, *(text for part in included for text in _sources(part))]


def format_text(text: str) -> str:
    """The text as black writes it."""
    import black

    return black.format_str(text, mode=black.Mode(line_length=LINE_LENGTH))


def _context(plan: Plan) -> dict[str, Any]:
    """What a template sees: the plan, and short names for its parts."""
    resolved = plan.description
    return {
        "name": plan.name,
        "plan": plan,
        "kernel": resolved.kernel,
        "layout": resolved.layout,
        "tile": resolved.tile,
        "raster_group": resolved.scheduler.raster_group,
        "integration": resolved.integration,
        "torch_op": torch_op(resolved),
        "pipeline": {pipeline.name: pipeline for pipeline in plan.pipelines},
        "role": {role.name: role for role in plan.roles},
        "number": {number.name: number for number in plan.numbers},
        **plan.values,
    }


@cache
def _environment() -> Any:
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template_folder()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Python text, not HTML
    )
    made.filters["wrapped"] = wrapped
    return made


def wrapped(text: str) -> str:
    """A paragraph whose words differ from file to file, in lines of 100 columns."""
    return textwrap.fill(" ".join(text.split()), 100) + "\n"
