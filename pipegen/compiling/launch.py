# SPDX-License-Identifier: Apache-2.0
"""Finds the SMEM of a launch in the DSLs' intermediate text; a cubin does not hold it.

Dynamic SMEM is a number in the launch, on the host's side. CuTe names it in the IR it dumps
(`CUTE_DSL_KEEP=ir`), Mosaic GPU in the log of its passes.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Smem:
    """Bytes of dynamic SMEM: what the launch gives, and what the kernel's storage takes."""

    given: int | None
    needed: int | None = None


_KERNEL = re.compile(r"cuda\.kernel @(?P<name>[\w$.]+)\(")
_TYPE = re.compile(r"^(?P<alias>!\w+) = (?P<type>!cute\.memref<.*>)$", re.MULTILINE)
_ALLOCA = re.compile(
    r"cute\.memref\.alloca\(\).* : (?P<type>!\w+|!cute\.memref<.*>)$", re.MULTILINE
)
_BYTES = re.compile(r'!cute\.memref<i8, smem, (?:align<(?P<align>\d+)>, )?"(?P<count>\d+):1">')
_CONFIG = re.compile(
    r"(?P<config>%\w+) = cuda\.launch_cfg\.create.*dynamicSmemBytes = (?P<value>%\w+)"
)
_LAUNCH = re.compile(r"cuda\.launch_ex @[\w$.]+::@(?P<name>[\w$.]+)<(?P<config>%\w+)>")
_BODY_END = re.compile(r"^ *(?:cuda\.kernel|func\.func) ", re.MULTILINE)
_MOSAIC_LAUNCH = re.compile(
    r"gpu\.launch_func .*?@[\w$.]+::@(?P<name>[\w$.]+) .*"
    r"dynamic_shared_memory_size %c(?P<bytes>\d+)_i\d+\b"
)


def cute_launches(ir: str) -> dict[str, Smem]:
    """Kernel name -> SMEM, from the CuTe DSL's IR.

    A launch without a number of its own takes `cute.kernel_smem_size`, which a later pass
    replaces by the size of the kernel's allocations, one after the other, each aligned.
    """
    types = {match["alias"]: match["type"] for match in _TYPE.finditer(ir)}
    needed: dict[str, int | None] = {}
    ends = [match.start() for match in _BODY_END.finditer(ir)] + [len(ir)]
    for head in _KERNEL.finditer(ir):
        body = ir[head.end() : next(end for end in ends if end >= head.end())]
        needed[head["name"]] = _stacked(
            types.get(match["type"], match["type"]) for match in _ALLOCA.finditer(body)
        )
    found = {name: Smem(given=None, needed=size) for name, size in needed.items()}
    for config in _CONFIG.finditer(ir):
        launches = _LAUNCH.finditer(ir, config.end())
        name = next((m["name"] for m in launches if m["config"] == config["config"]), "")
        if name in found:
            given = _value(ir[: config.start()], config["value"], needed)
            before = found[name].given
            # Launched twice: the smaller number is the one that may be too small.
            smallest = given if before is None or given is None else min(before, given)
            found[name] = Smem(smallest, needed[name])
    return found


def mosaic_launches(log: Iterable[str]) -> dict[str, Smem]:
    """Kernel name -> SMEM, from the lines of Mosaic GPU's pass log (tens of megabytes)."""
    found: dict[str, Smem] = {}
    for line in log:
        if "gpu.launch_func" in line:
            match = _MOSAIC_LAUNCH.search(line)
            if match is None:
                if found:
                    break  # a later pass: the constants have lost their telling names
                continue
            found.setdefault(match["name"], Smem(int(match["bytes"])))
    return found


def _value(before: str, name: str, needed: dict[str, int | None]) -> int | None:
    """The number behind an SSA name: a constant, or the size of a kernel's allocations.

    `before` is the IR up to the use: names repeat in each function, the last one is meant.
    """
    for _ in range(4):
        definitions = re.findall(rf"^ *{re.escape(name)} = (.*)$", before, re.MULTILINE)
        if not definitions:
            return None
        text = definitions[-1]
        if match := re.match(r"arith\.constant (\d+) : i(?:32|64)", text):
            return int(match[1])
        if match := re.match(r"cute\.kernel_smem_size @[\w$.]+::@([\w$.]+)", text):
            return needed.get(match[1])
        match = re.match(r"arith\.ext[su]i (%\w+)", text)
        if match is None:
            return None
        name = match[1]
    return None


def _stacked(types: Iterable[str]) -> int | None:
    """The end of the last allocation when each starts at the next multiple of its alignment."""
    end = 0
    for text in types:
        if "smem" not in text.split('"')[0]:
            continue
        match = _BYTES.fullmatch(text)
        if match is None:
            return None
        align = int(match["align"] or 1)
        end = -(-end // align) * align + int(match["count"])
    return end
