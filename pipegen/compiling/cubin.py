# SPDX-License-Identifier: Apache-2.0
"""Reads cubins and PTX: the architecture they are for, their kernels, their resources."""

import importlib.metadata
import itertools
import re
import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path

from pipegen.compiling.result import Kernel

CUOBJDUMP_DISTRIBUTION = "nvidia-cuda-cuobjdump"
_EM_CUDA = 190
_TARGET = re.compile(r"^\.target\s+(\w+)", re.MULTILINE)
_ENTRY = re.compile(r"^\s*(?:\.visible\s+)?\.entry\s+([\w$]+)", re.MULTILINE)
_THREADS = re.compile(r"^\.(?:reqntid|maxntid)\s+(\d+)(?:,\s*(\d+))?(?:,\s*(\d+))?", re.MULTILINE)
# One tensor core instruction: wgmma of Hopper, tcgen05.mma of Blackwell.
_TENSOR_CORE = re.compile(r"\b(?:wgmma\.mma_async|tcgen05\.mma)\.")
_MBARRIER_INIT = re.compile(r"\bmbarrier\.init\.\S+\s+\[[^\]]+\],\s*([\w%]+);")
_EXPECT_TX = re.compile(r"\bmbarrier\.arrive\.expect_tx\.[^;]*,\s*([\w%]+);")
_TMEM_ALLOC = re.compile(r"\btcgen05\.alloc\.[^;]*,\s*([\w%]+);")
_MOVED = re.compile(r"\bmov\.[bu]32\s+(%r\d+),\s*(\d+);")
_USAGE = re.compile(
    r"Function (?P<name>\S+):\s+REG:(?P<registers>\d+) STACK:(?P<stack>\d+) SHARED:\d+ "
    r"LOCAL:(?P<local>\d+)"
)


def cubin_arch(data: bytes) -> str:
    """The architecture in an ELF's header (`sm_90a`), or an empty string for any other bytes.

    Observed in the output of ptxas 12.8 to 13.4: ELF ABI version 7 keeps the SM number in the low
    byte of e_flags and "architecture-specific" in bit 11, version 8 in the second byte and bit 3.
    """
    if len(data) < 52 or data[:4] != b"\x7fELF" or data[4] != 2:
        return ""
    (machine,) = struct.unpack_from("<H", data, 18)
    (flags,) = struct.unpack_from("<I", data, 48)
    if machine != _EM_CUDA:
        return ""
    if data[8] == 7:
        number, specific = flags & 0xFF, flags & 0x800
    elif data[8] == 8:
        number, specific = flags >> 8 & 0xFF, flags & 0x8
    else:
        return ""
    return f"sm_{number}{'a' if specific else ''}"


def ptx_arch(ptx: str) -> str:
    """The `.target` of a PTX text, or an empty string."""
    match = _TARGET.search(ptx)
    return match[1] if match else ""


def ptx_kernels(ptx: str) -> list[Kernel]:
    """The entry functions of a PTX text with their threads and tensor core instructions."""
    starts = [match.start() for match in _ENTRY.finditer(ptx)]
    kernels = []
    for start, end in itertools.pairwise([*starts, len(ptx)]):
        body = ptx[start:end]
        found = _THREADS.search(body)
        threads = None
        if found:
            threads = int(found[1]) * int(found[2] or 1) * int(found[3] or 1)
        kernels.append(
            Kernel(
                _ENTRY.findall(body)[0],
                arch=ptx_arch(ptx),
                threads=threads,
                tensor_core_instructions=len(_TENSOR_CORE.findall(body)),
                mbarrier_counts=_immediates(_MBARRIER_INIT, body),
                expected_bytes=_immediates(_EXPECT_TX, body),
                tmem_columns=_tmem_columns(body),
            )
        )
    return kernels


def _tmem_columns(body: str) -> int | None:
    """Columns of TMEM that all allocations of a kernel take; None if one is not a constant."""
    columns = _immediates(_TMEM_ALLOC, body)
    return sum(columns) if len(columns) == len(_TMEM_ALLOC.findall(body)) else None


def _immediates(pattern: re.Pattern[str], body: str) -> tuple[int, ...]:
    """The constants that an instruction is given, in the order of the text; others are left out."""
    moved = dict(_MOVED.findall(body))
    words = (moved.get(word, word) for word in pattern.findall(body))
    return tuple(int(word) for word in words if word.isdigit())


@cache
def find_cuobjdump() -> str:
    """The path of cuobjdump: from its package if that is installed, else from PATH, else ''."""
    try:
        files = importlib.metadata.files(CUOBJDUMP_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name in ("cuobjdump", "cuobjdump.exe"):
            path = Path(str(file.locate())).resolve()
            if path.is_file():
                return str(path)
    return shutil.which("cuobjdump") or ""


def resource_usage(cubin: Path) -> list[Kernel]:
    """Registers and stack of each kernel in a cubin, as cuobjdump tells; empty if it cannot.

    cuobjdump does not tell spills from local arrays: both are in the stack frame.
    """
    tool = find_cuobjdump()
    if not tool:
        return []
    try:
        done = subprocess.run(
            [tool, "-res-usage", str(cubin)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_resource_usage(done.stdout)


def parse_resource_usage(text: str) -> list[Kernel]:
    """The kernels in the output of `cuobjdump -res-usage`."""
    return [
        Kernel(
            match["name"],
            registers=int(match["registers"]),
            stack_bytes=int(match["stack"]) + int(match["local"]),
        )
        for match in _USAGE.finditer(text)
    ]
