# SPDX-License-Identifier: Apache-2.0
"""What all tables of a description share, and those of a custom graph."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from pipegen.vocabulary import DtypeName


def alias(table: dict[str, str]) -> BeforeValidator:
    return BeforeValidator(lambda word: table.get(word, word) if isinstance(word, str) else word)


def pair(value: Any) -> Any:
    # TOML and JSON have arrays only; the model holds tuples, so that it stays hashable.
    return tuple(value) if isinstance(value, list) else value


# Nothing that a kernel counts needs more than 31 bits.
Whole = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]


class Section(BaseModel):
    """One table of the file: frozen, no unknown keys, no silent conversions."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Tensor(Section):
    """`[tensor.NAME]`, for op = "custom": a matrix, or a vector, in GMEM."""

    shape: str = Field(
        default="M, N", description='Its sizes: "M, N", "M" or "N"; of products also K and P.'
    )
    dtype: DtypeName = Field(default="bf16", description="Element type.")
    read: str | None = Field(default=None, description="The role that reads it.")
    write: str | None = Field(default=None, description="The role that writes it.")
    tile: Annotated[tuple[Whole, ...], BeforeValidator(pair)] | None = Field(
        default=None, description="Elements of a tile; those of [tile] by default."
    )
    expect: str | None = Field(
        default=None,
        description="What is written, as a torch expression of float64 tensors by their names.",
    )


class Order(Section):
    """`[order.NAME]`, for op = "custom": groups that alternate tiles, one after the other."""

    roles: str = Field(
        description='The groups, in the order of their turns: "even, odd"; or one role of several.'
    )
    groups: Whole | None = Field(
        default=None, description="Groups of the one role, each of its number of warps."
    )
    depth: Whole = Field(
        default=1,
        description="Ordered parts of a tile: 1, the turn alone; 2, the body too, each in turn.",
    )
    shape: str | None = Field(
        default=None,
        description='What a turn hands on to the next: "M", a number for each row; or nothing.',
    )
    start: float = Field(
        default=0.0, description="What a panel's first turn finds in what is handed on."
    )
