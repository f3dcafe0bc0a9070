# SPDX-License-Identifier: Apache-2.0
"""The GPU that the host code is told about: what it asks, answered from `pipegen.hardware`."""

from dataclasses import dataclass

from pipegen.errors import InputError, listing
from pipegen.hardware import HARDWARE, Hardware


@dataclass(frozen=True)
class Device:
    """An emulated GPU. `sms`: how many SMs it claims; few make a persistent kernel loop.

    `ordinal` is its CUDA device number: each device of a process has its own, because modules keep
    what they once asked about a number.
    """

    hardware: Hardware
    sms: int
    ordinal: int = 0

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability: (9, 0) for sm_90a."""
        digits = self.hardware.arch.removeprefix("sm_").rstrip("af")
        return int(digits[:-1]), int(digits[-1])

    def attribute(self, number: int) -> int | None:
        """The value of a `cudaDeviceAttr`, or None for one that the emulator does not know."""
        hardware = self.hardware
        major, minor = self.capability
        return {
            1: 1024,  # max threads per block
            8: 49152,  # shared memory per block, without the opt-in
            10: 32,  # warp size
            12: hardware.registers_per_sm,  # registers per block
            16: self.sms,  # multiprocessor count
            39: hardware.max_threads_per_sm,
            75: major,
            76: minor,
            81: hardware.smem_per_sm,
            82: hardware.registers_per_sm,
            95: 1,  # cooperative launch
            97: hardware.smem_per_block,  # shared memory per block, with the opt-in
            106: hardware.max_blocks_per_sm,
            111: hardware.smem_reserved_per_block,
        }.get(number)

    def max_active_clusters(self, ctas: int) -> int:
        """Clusters of so many CTAs that run at once, with one CTA an SM; at least one."""
        return max(1, self.sms // ctas)


def make_device(arch: str, sms: int | None = None, ordinal: int = 0) -> Device:
    """The device of an architecture; `sms` None is what the real one has. InputError if unknown."""
    if arch not in HARDWARE:
        raise InputError(f"the emulator knows {listing(HARDWARE)}, not {arch!r}")
    hardware = HARDWARE[arch]
    if sms is not None and sms < 1:
        raise InputError(f"sms={sms}: an emulated GPU has at least one SM")
    return Device(hardware, sms if sms is not None else hardware.sm_count, ordinal)
