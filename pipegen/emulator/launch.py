# SPDX-License-Identifier: Apache-2.0
"""One kernel launch as plain data: what the capture writes and the machine reads.

Nothing here imports a DSL, numpy or the other halves of the emulator. All addresses are those of
this process: the arrays of the call are the machine's global memory, read and written in place.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Buffer:
    """A range of host memory that a launch may read and write as global memory.

    `address` is the first byte, `bytes` the length, `name` what a message calls it (the
    argument's name where it is known). Global accesses outside all buffers are faults.
    """

    address: int
    bytes: int
    name: str

    @property
    def end(self) -> int:
        """The address after the last byte."""
        return self.address + self.bytes


@dataclass(frozen=True)
class TensorMap:
    """The 128 opaque bytes of a tensor map (CUtensorMap), decoded.

    `address`: of element 0 in this process, a multiple of 16. `dtype`: PTX-like name ("u8", "u16",
    "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz",
    "b4x16", "b4x16_p64", "b6x16_p32"); `element_bits`: in global memory. `sizes`, `box` and
    `element_strides` are in elements, innermost dimension first, `rank` entries each (a box
    of 64 with element stride 2 holds every second of 64 elements: 32); `strides` are in bytes, for
    dimensions 1 and up (`rank` - 1 entries): dimension 0 is contiguous.
    `interleave`: "none", "16B" or "32B". `swizzle`: bytes of the pattern's span, 0 for none, 32,
    64 or 128; `swizzle_atom`: bytes moved as one (16, or 32 or 64 with the 128 B swizzle);
    `swizzle_flip`: the "32B atom, flip 8B" form. `l2_promotion`: bytes, 0, 64, 128 or 256.
    `oob_nan`: out-of-bounds elements read as NaN instead of zero.

    The fields follow `cuTensorMapEncodeTiled` of the CUDA driver API (section "Tensor Map Object
    Management") and the PTX ISA, section "Tensors".
    """

    address: int
    dtype: str
    element_bits: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: str = "none"
    swizzle: int = 0
    swizzle_atom: int = 16
    swizzle_flip: bool = False
    l2_promotion: int = 0
    oob_nan: bool = False

    @property
    def rank(self) -> int:
        """Dimensions, 1 to 5."""
        return len(self.sizes)

    @property
    def element_bytes(self) -> float:
        """Bytes an element takes in global memory; 0.5 for the 4-bit types."""
        return self.element_bits / 8

    @property
    def smem_bits(self) -> int:
        """Bits an element takes in SMEM: the padded types fill 16 bytes with 16 elements."""
        return 8 if self.dtype in ("b4x16_p64", "b6x16_p32") else self.element_bits

    @property
    def box_bytes(self) -> int:
        """Bytes of one whole box in SMEM, which is also what it completes on an mbarrier."""
        elements = 1
        for extent, step in zip(self.box, self.element_strides, strict=True):
            elements *= -(-extent // step)
        return elements * self.smem_bits // 8


@dataclass(frozen=True)
class Launch:
    """One `cudaLaunchKernelEx`, with all that is needed to execute it.

    `ptx`: the text of the module that holds `kernel` (the mangled entry name). `grid`, `block` and
    `cluster` are (x, y, z): CTAs, threads, CTAs; `grid` counts CTAs, not clusters. `smem_bytes`:
    dynamic shared memory of a CTA. `params`: the raw bytes of each `.param` of the entry, in
    order, each of the size that the PTX declares (a 128-byte one that is 64-byte aligned may be a
    tensor map: `decode_tensor_map`). `buffers`: what the machine may touch as global memory.
    `sms`: how many SMs the host code was told the device has. `source`: file or name, for
    messages. `cooperative`, `programmatic`: launch attributes 2 and 6 (`cudaLaunchAttributeID`
    of the CUDA runtime API); `attributes` holds every attribute as (id, raw 64-byte value).
    `order`: 0 for the first launch of a capture, and so on. `by_mosaic`: Mosaic GPU compiled it,
    which relies on two things that Blackwell does and the PTX ISA does not say: a warp's lanes 0 to
    31 of tensor memory are those of its own quarter, and bits 46 to 48 of a matrix descriptor may
    be 0. `barriers`: (offset in shared memory, what the source calls the mbarrier there), where
    that is known by other means than the lines of the PTX.
    """

    ptx: str
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    smem_bytes: int
    params: tuple[bytes, ...]
    buffers: tuple[Buffer, ...]
    sms: int
    source: str = ""
    cooperative: bool = False
    programmatic: bool = False
    attributes: tuple[tuple[int, bytes], ...] = field(default=(), repr=False)
    order: int = 0
    by_mosaic: bool = False
    barriers: tuple[tuple[int, str], ...] = ()

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        x, y, z = self.block
        return x * y * z

    @property
    def ctas(self) -> int:
        """CTAs of the grid."""
        x, y, z = self.grid
        return x * y * z

    @property
    def cluster_ctas(self) -> int:
        """CTAs of a cluster."""
        x, y, z = self.cluster
        return x * y * z
