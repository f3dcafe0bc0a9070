# SPDX-License-Identifier: Apache-2.0
"""Reads from PTX what a launch needs: an entry's parameters, and the static SMEM of the module.

PTX ISA, "Kernel Function Parameters" and "State Space + Type + Variable Name".
"""

import re
from dataclasses import dataclass

_TYPE_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}
_ENTRY = re.compile(r"\.entry\s+(?P<name>[\w$]+)\s*\((?P<params>[^)]*)\)")
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(?P<before>\d+)\s+)?\.(?P<kind>[bfsu])(?P<bits>\d+)"
    r"(?:\s+\.ptr(?:\s*\.\w+)*(?:\s+\.align\s+\d+)?)?"
    r"\s+(?P<name>[\w$%]+)\s*(?:\[(?P<count>\d+)\])?"
)
_SHARED = re.compile(
    r"^\s*(?:\.visible\s+|\.weak\s+)?\.shared\s+(?:\.align\s+(?P<align>\d+)\s+)?"
    r"\.[bfsu](?P<bits>\d+)\s+[\w$]+\s*(?:\[(?P<count>\d*)\])?",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Parameter:
    """One `.param` of an entry: its name, bytes and alignment in bytes."""

    name: str
    bytes: int
    align: int


def entries(ptx: str) -> dict[str, tuple[Parameter, ...]]:
    """Entry name -> its parameters, in order. ValueError for a declaration that is not known."""
    return {
        match["name"]: tuple(_parameters(match["name"], match["params"]))
        for match in _ENTRY.finditer(ptx)
    }


def static_shared_bytes(ptx: str) -> int:
    """Bytes of the module's `.shared` variables, each aligned; dynamic SMEM (`[]`) is not one."""
    end = 0
    for match in _SHARED.finditer(ptx):
        width = int(match["bits"]) // 8
        if match["count"] == "":
            continue
        align = int(match["align"] or width)
        end = -(-end // align) * align + width * int(match["count"] or 1)
    return end


def _parameters(entry: str, text: str) -> list[Parameter]:
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _PARAM.fullmatch(part)
        if match is None or match["bits"] not in _TYPE_BYTES:
            raise ValueError(f"{entry}: cannot read the parameter {part!r}")
        width = _TYPE_BYTES[match["bits"]]
        align = int(match["before"] or width)
        found.append(Parameter(match["name"], width * int(match["count"] or 1), align))
    return found
