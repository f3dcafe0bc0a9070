# SPDX-License-Identifier: Apache-2.0
"""What a measurer can be asked, whoever measures: a process with a GPU, or a test's fake."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class Entrant:
    """A module that takes part: its name in the results, its file, and the object it was compiled
    to, if it was. `symbol`: the module's name in the object."""

    name: str
    path: Path
    object: Path | None = None


@dataclass(frozen=True)
class Prepared:
    """Who takes part in a size: what is left of the entrants, the peers' configurations (peer ->
    word -> timed name), and why the others do not (name -> reason)."""

    modules: tuple[str, ...]
    peers: Mapping[str, Mapping[str, str]]
    out: Mapping[str, str]
    work: int
    clock: str
    copies: int
    copy_work: int = 0
    notes: Mapping[str, Any] = field(default_factory=dict)


class Measurer(Protocol):
    """Times modules on one device, size by size."""

    def device(self) -> dict[str, Any]:
        """What the figures belong to: at least `gpu`, its name."""

    def prepare(
        self, shape: tuple[int, ...], entrants: Sequence[Entrant], peers: Sequence[str]
    ) -> Prepared:
        """Load everything, give it operands of this size, and see that each result is right.

        Who crashes, hangs or is wrong is out, with the reason, and the others go on.
        """

    def time(self, names: Sequence[str], rounds: int, seconds: float) -> dict[str, list[float]]:
        """Seconds of one launch, a figure a round, in interleaved turns of about `seconds`.

        Who crashes or hangs now is missing in what is returned, and in `lost` with the reason.
        """

    lost: dict[str, str]
