# SPDX-License-Identifier: Apache-2.0
"""What compiling one module told."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from pipegen.compiling.schedule import Schedule

Status = Literal[
    "ok",
    "error",
    "crash",
    "timeout",
    "no-kernel",
    "wrong-arch",
    "spills",
    "serialized",
    "smem",
    "tmem",
    "schedule",
    "skipped",
]
_COMPLETED = ("ok", "wrong-arch", "spills", "serialized", "smem", "tmem", "schedule")


@dataclass(frozen=True)
class Kernel:
    """One kernel of a module, as the compiler reports it. None: the compiler did not say.

    Registers and stack are per thread, SMEM is what one block asks for at launch, TMEM what its
    `tcgen05.alloc` take together, in columns of 128 lanes x 32 bits. `mbarrier_counts`
    are the arrive counts that mbarriers are initialised with, one entry a barrier, and
    `expected_bytes` the constant tx counts of the arrivals that arm a barrier (PTX of both DSLs).
    """

    name: str
    arch: str = ""
    registers: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None
    stack_bytes: int | None = None
    smem_bytes: int | None = None
    smem_needed: int | None = None
    tmem_columns: int | None = None
    threads: int | None = None
    barriers: int | None = None
    tensor_core_instructions: int = 0
    mbarrier_counts: tuple[int, ...] = ()
    expected_bytes: tuple[int, ...] = ()

    @property
    def spill_bytes(self) -> int | None:
        """Bytes of registers that went to memory: the larger of what is stored and loaded."""
        known = [n for n in (self.spill_stores, self.spill_loads) if n is not None]
        return max(known, default=None)

    def as_dict(self) -> dict[str, Any]:
        """The kernel for JSON."""
        return {**asdict(self), "spill_bytes": self.spill_bytes}


@dataclass(frozen=True)
class CompileResult:
    """The verdict on one module: a status, one paragraph, and numbers for each kernel."""

    status: Status
    message: str = ""
    kernels: tuple[Kernel, ...] = ()
    advisories: tuple[str, ...] = ()
    seconds: float = 0.0
    cached: bool = False
    schedules: tuple[Schedule, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether this is a finding."""
        return self.status not in ("ok", "skipped")

    @property
    def completed(self) -> bool:
        """Whether the compiler came to its end, so that the next run would end the same way.

        An error may be of the machine or of the place: no module, no disk, a path.
        """
        return self.status in _COMPLETED

    @property
    def registers(self) -> int | None:
        """Registers a thread of the hungriest kernel."""
        return _largest(kernel.registers for kernel in self.kernels)

    @property
    def spill_bytes(self) -> int | None:
        """Bytes spilled by the worst kernel."""
        return _largest(kernel.spill_bytes for kernel in self.kernels)

    @property
    def stack_bytes(self) -> int | None:
        """Bytes of local memory a thread of the worst kernel has."""
        return _largest(kernel.stack_bytes for kernel in self.kernels)

    @property
    def smem_bytes(self) -> int | None:
        """SMEM a block of the hungriest kernel asks for."""
        return _largest(kernel.smem_bytes for kernel in self.kernels)

    @property
    def tmem_columns(self) -> int | None:
        """Columns of TMEM that the hungriest kernel allocates."""
        return _largest(kernel.tmem_columns for kernel in self.kernels)

    def as_dict(self) -> dict[str, Any]:
        """The result for JSON."""
        return {
            "status": self.status,
            "registers": self.registers,
            "spill_bytes": self.spill_bytes,
            "stack_bytes": self.stack_bytes,
            "smem_bytes": self.smem_bytes,
            "tmem_columns": self.tmem_columns,
            "seconds": round(self.seconds, 2),
            "cached": self.cached,
            "kernels": [kernel.as_dict() for kernel in self.kernels],
            "advisories": list(self.advisories),
            "schedules": [schedule.as_dict() for schedule in self.schedules],
            "message": self.message,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "CompileResult":
        """The result that `as_dict` described. Raises KeyError or TypeError if it did not."""
        kernels = []
        for entry in data["kernels"]:
            fields = dict(entry)
            del fields["spill_bytes"]
            for name in ("mbarrier_counts", "expected_bytes"):
                fields[name] = tuple(fields[name])
            kernels.append(Kernel(**fields))
        return cls(
            status=data["status"],
            message=str(data["message"]),
            kernels=tuple(kernels),
            advisories=tuple(data["advisories"]),
            seconds=float(data["seconds"]),
            schedules=tuple(map(Schedule.from_dict, data["schedules"])),
        )

    def from_cache(self) -> "CompileResult":
        """The same result, marked as not measured now."""
        return replace(self, cached=True)


def _largest(numbers: Iterable[int | None]) -> int | None:
    return max((n for n in numbers if n is not None), default=None)
