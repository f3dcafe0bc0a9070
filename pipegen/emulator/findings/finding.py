# SPDX-License-Identifier: Apache-2.0
"""A finding: its kind, one paragraph, and the places in PTX and source that it is about."""

from dataclasses import dataclass, field

# Kind -> what it means, in a few words.
KINDS = {
    "deadlock": "no warp can go on, and some have not ended",
    "arrive-count": "more arrivals in a phase than the barrier was initialised for",
    "tx-count": "bytes announced and bytes delivered do not add up",
    "barrier-not-initialised": "an mbarrier is used before its mbarrier.init",
    "barrier-initialised-twice": "an mbarrier in use is initialised again",
    "barrier-count": "an mbarrier is initialised with a count out of range",
    "cta-gone": "a signal or an access to the shared memory of a CTA that has ended",
    "phase-wrap": "a barrier completed two phases before a waiter saw the first",
    "outside-cluster": "a shared memory address of a CTA that the cluster does not have",
    "race": "two accesses to the same memory that nothing orders",
    "missing-proxy-fence": "generic writes reach an asynchronous access without a proxy fence",
    "store-pending-at-exit": "a CTA ends while its bulk stores still read shared memory",
    "tmem-not-freed": "a CTA ends with tensor memory allocated",
    "tmem-allocation": "tensor memory is allocated, freed or used against its rules",
    "out-of-bounds": "an access outside the buffers, the shared memory or the tensor memory",
    "misaligned": "an address that is not a multiple of what the access needs",
    "accumulator-in-flight": "registers of a wgmma are used before it is waited for",
    "tmem-load-not-waited": "tensor memory is reused after a tcgen05.ld without a wait for it",
    "lanes-disagree": "lanes of a warp give different operands where one is needed",
    "named-barrier": "a named barrier is used with different thread counts",
    "limit": "the run was stopped by its limit of instructions",
}


@dataclass(frozen=True)
class Place:
    """Where: the CTA's rank in its cluster, the warp, the PTX line, and the source line or 0."""

    cluster: tuple[int, int, int]
    cta: int
    warp: int
    ptx_line: int
    ptx: str
    source_line: int = 0

    def __str__(self) -> str:
        source = f", source line {self.source_line}" if self.source_line else ""
        return f"CTA {self.cta} warp {self.warp} (PTX line {self.ptx_line}{source}: {self.ptx})"


@dataclass(frozen=True)
class Finding:
    """One fault. `kind` is a key of KINDS; `places` has the instruction at fault first."""

    kind: str
    message: str
    places: tuple[Place, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass
class Findings:
    """Collects findings; one fault in a loop is told once."""

    found: list[Finding] = field(default_factory=list)
    limit: int = 50
    _seen: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)

    def add(self, finding: Finding) -> None:
        """Keep it, unless the same instructions gave the same kind before."""
        key = finding.kind, tuple(place.ptx_line for place in finding.places)
        if key not in self._seen and len(self.found) < self.limit:
            self._seen.add(key)
            self.found.append(finding)
