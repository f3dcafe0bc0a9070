# SPDX-License-Identifier: Apache-2.0
"""Launches of hand-written PTX on numpy arrays, for tests of single instructions."""

import struct

import numpy as np

from pipegen.emulator.launch import Buffer, Launch

HEAD = """.version 8.8
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry kernel({parameters})
{{
    .reg .pred %p<20>;
    .reg .b16 %h<20>;
    .reg .b32 %r<300>;
    .reg .b64 %d<40>;
"""


def kernel(body: str, parameters: int) -> str:
    """A whole PTX text around a body; parameters are 64-bit addresses, in %d0, %d1, …"""
    names = ", ".join(f".param .u64 p{n}" for n in range(parameters))
    loads = "".join(f"    ld.param.b64 %d{n}, [p{n}];\n" for n in range(parameters))
    return HEAD.format(parameters=names) + loads + body + "\n    ret;\n}\n"


def launch_of(
    body: str,
    *arrays: np.ndarray,
    threads: int = 32,
    ctas: int = 1,
    cluster: int = 1,
    smem: int = 8192,
) -> Launch:
    """A launch of a body whose parameters are the arrays' addresses."""
    buffers = tuple(
        Buffer(array.ctypes.data, array.nbytes, f"array{n}") for n, array in enumerate(arrays)
    )
    return Launch(
        ptx=kernel(body, len(arrays)),
        kernel="kernel",
        grid=(ctas, 1, 1),
        block=(threads, 1, 1),
        cluster=(cluster, 1, 1),
        smem_bytes=smem,
        params=tuple(struct.pack("<Q", array.ctypes.data) for array in arrays),
        buffers=buffers,
        sms=132,
    )


def store_by_lane(register: str, array: int = 0, bits: int = 32) -> str:
    """PTX that stores a register of each thread to array[tid]."""
    return f"""
    mov.u32 %r290, %tid.x;
    mul.wide.u32 %d30, %r290, {bits // 8};
    add.s64 %d30, %d30, %d{array};
    st.global.b{bits} [%d30], {register};
"""
