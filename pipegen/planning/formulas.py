# SPDX-License-Identifier: Apache-2.0
"""How a plan writes down where a number comes from. A formula that is arithmetic must be right."""

from pipegen.arithmetic import align_up
from pipegen.description import KernelDescription
from pipegen.hardware import SWIZZLE_128B_ALIGNMENT

GIVEN = "given"


def stages_or_given(given: KernelDescription, pipeline: str, formula: str) -> str:
    """`given` if the user fixed this pipeline's stages, else the formula."""
    asked = given.pipeline.get(pipeline)
    return formula if asked is None or asked.stages == "auto" else GIVEN


def registers_or_given(given: KernelDescription, role: str, formula: str) -> str:
    """`given` if the user fixed this role's registers, else the formula."""
    asked = given.role.get(role)
    return formula if asked is None or asked.registers is None else GIVEN


def quotient(capacity: int, size: int, value: int, taken: tuple[str, int] = ("", 0)) -> str:
    """How often `size` fits beside what is taken; words where rounding makes it one less."""
    formula, taken_bytes = taken
    if (capacity - taken_bytes) // size != value:
        return f"as many as fit in {capacity} B"
    return f"({capacity} - {formula}) // {size}" if formula else f"{capacity} // {size}"


def of_each(text: str, count: int, sources: str) -> str:
    """`text`, and of how many sources it counts: nothing to say of a single one."""
    return text if count == 1 else f"{text} of each of {count} {sources}"


def aligned_sum(*parts: tuple[str, int]) -> str:
    """A sum of allocations, each of which begins at a multiple of 1024.

    Each part is its own formula and its bytes. A part that the next one's alignment rounds up
    stands as the rounded number.
    """
    unit = SWIZZLE_128B_ALIGNMENT
    return " + ".join(
        text if size % unit == 0 else str(align_up(size, unit)) for text, size in parts
    )


def product(count: int, size: int) -> tuple[str, int]:
    """`count * size` as a part of a sum."""
    return f"{count} * {size}", count * size


def may_read(buffers: int, owned: str) -> str:
    """How many stores may still read SMEM when the oldest of so many buffers is written again."""
    return "none" if buffers == 1 else f"fewer than {owned} buffers ({buffers})"
