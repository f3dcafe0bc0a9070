# SPDX-License-Identifier: Apache-2.0
"""Reads what ptxas says about a kernel (`-v`), however it was wrapped, indented or coloured."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pipegen.compiling.result import Kernel

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)' for '(?P<arch>\w+)'")
_STACK = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads"
)
_USED = re.compile(r"Used (?P<registers>\d+) registers(?:, used (?P<barriers>\d+) barriers)?")
_ADVISORY = re.compile(
    r"ptxas info : (?P<code>\(C\d+\)) (?P<info>.+?)(?= ptxas (?:info|warning|error)\b|$)"
    r"|ptxas warning : (?P<warning>.+?)(?= ptxas (?:info|warning|error)\b|$)"
)
_IN_FUNCTION = re.compile(r",? in (?:the )?function '[^']*'")
# ptxas says this with several codes (C7510 and the next ones), one for each reason.
_SERIALIZED = re.compile(r"wgmma\S* instructions are serialized")


@dataclass(frozen=True)
class PtxasReport:
    """Kernels and advisories of one or more ptxas runs."""

    kernels: tuple[Kernel, ...] = ()
    advisories: tuple[str, ...] = field(default=())

    @property
    def serialized(self) -> str:
        """The advisory that says that wgmma lost its asynchrony, or an empty string."""
        return next((text for text in self.advisories if _SERIALIZED.search(text)), "")


def plain(text: str) -> str:
    """The text without terminal colours."""
    return _ANSI.sub("", text)


def parse_ptxas(text: str) -> PtxasReport:
    """Every entry function that the text reports on, and what ptxas advised.

    A function that ptxas did not inline is counted with the kernel it is reported after.
    """
    # The DSL wraps the report to the width of its own messages: only the words are reliable.
    flat = " ".join(plain(text).split())
    kernels: list[Kernel] = []
    starts = [match.start() for match in _ENTRY.finditer(flat)]
    for start, end in itertools.pairwise([*starts, len(flat)]):
        kernels.append(_kernel(flat[start:end]))
    return PtxasReport(tuple(_unique(kernels)), tuple(dict.fromkeys(_advisories(flat))))


def _kernel(part: str) -> Kernel:
    entry = _ENTRY.match(part)
    assert entry is not None
    kernel = Kernel(entry["name"], arch=entry["arch"])
    frames = list(_STACK.finditer(part))
    if frames:
        kernel = replace(
            kernel,
            stack_bytes=max(int(frame["stack"]) for frame in frames),
            spill_stores=sum(int(frame["stores"]) for frame in frames),
            spill_loads=sum(int(frame["loads"]) for frame in frames),
        )
    used = _USED.search(part)
    if used:
        kernel = replace(
            kernel,
            registers=int(used["registers"]),
            barriers=int(used["barriers"]) if used["barriers"] else None,
        )
    return kernel


def _advisories(flat: str) -> Iterator[str]:
    for match in _ADVISORY.finditer(flat):
        text = f"{match['code']} {match['info']}" if match["code"] else match["warning"]
        # The DSL's own words may follow the report on the same flattened line.
        text = re.split(r" (?:-->|suggestion:)", text)[0]
        yield _IN_FUNCTION.sub("", text).strip()


def _unique(kernels: list[Kernel]) -> list[Kernel]:
    """The DSL repeats a report under each of its remarks: keep one of each."""
    return list(dict.fromkeys(kernels))
