# SPDX-License-Identifier: Apache-2.0
"""Turns what the machine notices into findings, with the places in PTX and source."""

from typing import TYPE_CHECKING

from pipegen.emulator.findings import Finding, Findings, Place
from pipegen.emulator.findings.clocks import GENERIC, PER_WARP
from pipegen.emulator.findings.global_accesses import Access
from pipegen.emulator.findings.naming import Names
from pipegen.emulator.findings.shadow import Conflict
from pipegen.emulator.machine.addresses import SMEM_BASE, TMEM_COLUMNS
from pipegen.emulator.machine.program import Program
from pipegen.emulator.ptx.writing import shortened

if TYPE_CHECKING:
    from pipegen.emulator.machine.state import Cta, Warp


class Reporter:
    """The findings of a run of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.findings = Findings()
        self._loads_told: set[int] = set()
        self.source_names = Names(program.instructions, program.module.files)

    def role(self, warp: "Warp") -> str:
        """The role of a warp, by the banners of the source, or an empty string."""
        at, executed = 0, []
        for visits, length in zip(warp.visits, self.program.lengths, strict=True):
            executed += [(n, visits) for n in range(at, at + length)]
            at += length
        return self.source_names.role(executed)

    def place(self, cta: "Cta", warp: int, at: int) -> Place:
        """A place for a finding. `warp` is the number in the cluster; `at` -1 is none."""
        number = warp % cta.cluster.warps_per_cta
        rank = warp // cta.cluster.warps_per_cta
        if at < 0:
            return Place(cta.cluster.id, rank, number, 0, "end")
        instruction = self.program.instructions[at]
        source = instruction.location.line if instruction.location else 0
        return Place(
            cta.cluster.id, rank, number, instruction.line, shortened(instruction, 80), source
        )

    def report(self, kind: str, message: str, places: "list[tuple[Cta, int, int]]") -> None:
        """Add a finding."""
        found = tuple(self.place(*each) for each in places)
        self.findings.add(Finding(kind, message, found))

    def race(
        self, w: "Warp", cta: "Cta", conflict: Conflict, at: int, what: str, tensor: bool = False
    ) -> None:
        """A conflict of w's instruction with an earlier access."""
        if tensor:
            column = conflict.granule % TMEM_COLUMNS
            where = f"TMEM column {column} of CTA {cta.rank}"
        else:
            offset = conflict.granule * 16 - SMEM_BASE
            where = f"SMEM at offset {offset:#x} of CTA {cta.rank}"
        earlier = self.program.instructions[conflict.at]
        did = "written" if conflict.earlier_wrote else "read"
        text = (
            f"{self.program.names[at]} {what} {where}, which was {did} by PTX line {earlier.line}"
        )
        places = [(w.cta, w.global_id, at), (cta, self._warp_of(cta, conflict.agent), conflict.at)]
        if conflict.fence:
            kind, end = "missing-proxy-fence", ", with no fence.proxy.async between"
        elif tensor and not conflict.earlier_wrote and self._only_wait_is_missing(w, conflict):
            if conflict.at in self._loads_told:
                return  # one fault, however many products overwrite the columns
            self._loads_told.add(conflict.at)
            kind = "tmem-load-not-waited"
            own = conflict.agent % w.cluster.agents.warps == w.global_id
            end = (
                ", without a tcgen05.wait::ld between"
                if own
                else ": its warp signalled after the load, but without a tcgen05.wait::ld before"
            )
        else:
            kind, end = "race", ", and nothing orders the two"
        self.report(kind, text + end, places)

    def race_in_global(self, w: "Warp", earlier: Access, at: int, does: str, did: str) -> None:
        """Two accesses to the same global memory: w "reads" or "writes" what was "written"…"""
        line = self.program.instructions[earlier.at].line
        # An mbarrier's agent stands for copies that complete on it.
        warps = w.cluster.agents.warps
        by_warp = earlier.agent < PER_WARP * warps
        warp = earlier.agent % warps if by_warp else w.global_id
        who = f"warp {warp % w.cluster.warps_per_cta}" if by_warp else "a copy"
        if by_warp and earlier.agent >= warps:
            who = f"an asynchronous operation of {who}"
        if earlier.cluster != w.cluster.number:
            who = f"{who} of another cluster"
        self.report(
            "race",
            f"{self.program.names[at]} {does} global memory that {who} has {did} (PTX line "
            f"{line}), and nothing orders the two",
            [(w.cta, w.global_id, at), (w.cta, warp, earlier.at)],
        )

    def _only_wait_is_missing(self, w: "Warp", conflict: Conflict) -> bool:
        """Whether w knows of what a warp did after its tcgen05.ld, and only not that it ended."""
        agents = w.cluster.agents
        warp = w.cluster.warps[conflict.agent % agents.warps]
        if conflict.agent != agents.tensor_loads(warp.global_id):
            return False
        loaded = warp.tensor_loads[conflict.granule % TMEM_COLUMNS]
        return bool(loaded and w.clock[GENERIC, warp.agent] >= loaded)

    def _warp_of(self, cta: "Cta", agent: int) -> int:
        warps = cta.cluster.agents.warps
        return agent % warps if agent < PER_WARP * warps else cta.rank * cta.cluster.warps_per_cta
