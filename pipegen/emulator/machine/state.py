# SPDX-License-Identifier: Apache-2.0
"""What exists while a kernel runs: clusters, their CTAs, and the CTAs' warps.

PTX ISA, chapters "Programming Model" (grid, cluster, CTA), "State Spaces" and "Special Registers".
A shared memory address holds the CTA's rank in the cluster above bit 24, which makes every
shared::cta address a shared::cluster address too (section "Shared State Space").
"""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from pipegen.emulator.findings.cells import Cells, CellShadow, Footprint
from pipegen.emulator.findings.clocks import ASYNC, GENERIC, Agents, Issued
from pipegen.emulator.findings.shadow import Shadow
from pipegen.emulator.machine.addresses import (
    GRANULE,
    OFFSET_MASK,
    RANK_SHIFT,
    SMEM_BASE,
    TMEM_COLUMNS,
    TMEM_LANES,
)
from pipegen.emulator.machine.barriers import Mbarrier
from pipegen.emulator.machine.values import FULL, LANE_IDS, UINT, WARP, Array, Value, simplified
from pipegen.emulator.ptx.ir import PtxError

if TYPE_CHECKING:
    from pipegen.emulator.machine.running import Machine

Triple = tuple[int, int, int]


class Cluster:
    """CTAs that run together. `id` is (x, y, z) in clusters, `number` counts launches."""

    def __init__(self, machine: "Machine", place: Triple, number: int) -> None:
        self.machine = machine
        self.id, self.number = place, number
        launch = machine.launch
        self.warps_per_cta = -(-launch.threads // WARP)
        count = launch.cluster_ctas
        self.agents = Agents(count, self.warps_per_cta, machine.program.barriers)
        self.ctas = [Cta(self, rank) for rank in range(count)]
        self.warps = [warp for cta in self.ctas for warp in cta.warps]
        self.arrived: set[int] = set()
        self.waiting: list[Warp] = []
        self.barrier_phase = 0
        self.barrier_clock = self.agents.clock()
        self.barrier_seen = self.barrier_clock
        self.barrier_ended: Array = np.zeros(self.agents.count, np.int64)
        self.barrier_ended_seen = self.barrier_ended
        self.running = len(self.warps)
        self.tensor_issuers: list[Warp] = []  # that have issued a tcgen05.mma or .cp


class Cta:
    """One CTA: its shared memory, barriers and tensor memory."""

    def __init__(self, cluster: Cluster, rank: int) -> None:
        self.cluster, self.rank = cluster, rank
        self.machine = machine = cluster.machine
        launch = machine.launch
        x, y, _ = launch.cluster
        self.place = (rank % x, rank // x % y, rank // (x * y))
        self.id = tuple(
            c * n + p for c, n, p in zip(cluster.id, launch.cluster, self.place, strict=True)
        )
        self.smem_end = SMEM_BASE + machine.program.static_smem(launch.smem_bytes)
        size = -(-self.smem_end // 128) * 128
        # What nobody wrote reads as NaN in every format.
        self.smem: Array = np.full(size, 0xFF, np.uint8)
        self.views = {n: self.smem.view(UINT[8 * n]) for n in (1, 2, 4, 8)}
        self.rows = self.smem.reshape(-1, GRANULE)
        self.shadow = self._shadow("shared", size // GRANULE, 2 * cluster.agents.warps)
        # In a run without data: the granules whose data was left out, how often some were written
        # with data all the same, and by footprint what that count was when it was left out last.
        self.left_out: Array | None = None
        if machine.sync_only:
            self.left_out = np.zeros(size // GRANULE, bool)
        self.written_with_data = 0
        self._left_out: dict[Footprint, int] = {}
        self.barriers: dict[int, Mbarrier] = {}
        self.named: dict[int, Any] = {}
        self.tmem_taken: dict[int, int] = {}
        self._tmem: Array | None = None
        self._tmem_shadow: Shadow | CellShadow | None = None
        self.tensor_queue: deque[Any] = deque()
        self.groups: dict[int, Any] = {}
        # Agent -> (epoch, at, warp): what others wrote here or signalled, and what they read.
        self.remote: dict[int, tuple[int, int, int]] = {}
        self.remote_reads: dict[int, tuple[int, int, int]] = {}
        self.tmem_closed = False
        self.tmem_waiting: list[Warp] = []
        # Of a pair's allocation: the warp that waits for the other CTA's, and what it was given.
        self.tmem_asked: Warp | None = None
        self.tmem_granted: int | None = None
        self.bulk_pending: list[Warp] = []
        self.exited = False
        self.exit_clock: Array | None = None
        self.exit_ended: Array | None = None
        self.warps = [Warp(self, number) for number in range(cluster.warps_per_cta)]
        self.running = len(self.warps)

    @property
    def tmem(self) -> Array:
        """Tensor memory: 128 lanes of 512 columns of 32 bits."""
        if self._tmem is None:
            self._tmem = np.full((TMEM_LANES, TMEM_COLUMNS), 0xFFFF_FFFF, np.uint32)
        return self._tmem

    @property
    def tmem_shadow(self) -> Shadow | CellShadow:
        """The shadow of tensor memory: granule = lane // 32 * 512 + column."""
        if self._tmem_shadow is None:
            self._tmem_shadow = self._shadow("tensor", 4 * TMEM_COLUMNS, 0)
        return self._tmem_shadow

    def _shadow(self, space: str, granules: int, generic: int) -> Shadow | CellShadow:
        agents = self.cluster.agents.count
        if not self.machine.sync_only:
            return Shadow(granules, agents, generic)
        known = self.machine.program.cells
        cells = known.get((space, self.smem_end))
        if cells is None:
            cells = known[space, self.smem_end] = Cells(granules)
        return CellShadow(cells, agents, generic)

    @property
    def cells(self) -> Cells:
        """How shared memory is cut, in a run without data."""
        assert isinstance(self.shadow, CellShadow)
        return self.shadow.cells

    def footprint(self, where: Any, bytes_: Any) -> Footprint:
        """What stands for an access that comes again, in a run without data."""
        return self.cells.footprint(where, bytes_)

    def leave_out(self, where: Any) -> None:
        """Note that data of granules, or of a footprint, is not written."""
        if self.left_out is None:
            return
        if type(where) is not Footprint:
            self.left_out[where] = True
        elif self._left_out.get(where) != self.written_with_data:
            self._left_out[where] = self.written_with_data
            self.left_out[where.where] = True


class Warp:
    """32 threads of a CTA that share one program counter."""

    def __init__(self, cta: Cta, number: int) -> None:
        self.cta, self.number = cta, number
        self.cluster, self.machine = cta.cluster, cta.machine
        self.global_id = self.agent = cta.rank * self.cluster.warps_per_cta + number
        self.clock: Array = self.cluster.agents.clock()
        self.clock[GENERIC, self.agent] = 1
        # Of each agent the epoch up to which its reads have ended, as far as this warp knows.
        self.ended: Array = np.zeros(self.cluster.agents.count, np.int64)
        threads = self.machine.launch.threads - number * WARP
        self.mask = FULL if threads >= WARP else (1 << threads) - 1
        self.exited = 0
        self.parked = False
        self.done = False
        self.out_of_patience = False
        self.waiting: tuple[Mbarrier, int, int, int] | None = None
        self.blocked: tuple[str, int] | None = None
        self.generator: Iterator[None] = iter(())
        self.visits = [0] * len(self.machine.program.lengths)
        self.bulk: deque[Any] = deque()  # committed groups of bulk stores
        self.bulk_open: list[Any] = []
        self.bulk_epoch = 0
        self.copies: deque[Any] = deque()
        self.copies_open: list[Any] = []
        self.copy_epoch = 0
        self.tensor_stores: list[Any] = []
        self.loaded_epoch = 0  # of the tcgen05.ld that have been waited for
        self.stored_epoch = 0  # of the tcgen05.st
        self.tensor_issued = Issued()
        # Of each column of tensor memory: this warp's epoch when it last loaded it.
        self.tensor_loads: Array = np.zeros(TMEM_COLUMNS, np.int64)
        self.cluster_arrived = False
        self.cluster_phase = 0
        self.released: Array | None = None
        self.waiting_forever = False
        self.local: Array | None = None
        self.wgmma_commits: list[int] = []
        self.wgmma_issued = 0

    def tick(self) -> None:
        """What this warp does from now on is not known to those it has signalled."""
        self.clock[GENERIC, self.agent] += 1

    def fence(self) -> None:
        """A proxy fence: all that this warp knows of is now good for asynchronous reads, too."""
        np.maximum(self.clock[ASYNC], self.clock[GENERIC], out=self.clock[ASYNC])
        self.clock[GENERIC, self.agent] += 1

    def repeats(self, agent: int, at: int, earlier: int) -> bool:
        """Whether a write at `at` is the one at `earlier` again, by a warp of the same warpgroup.

        Compilers let each thread of a warpgroup store a value that all of them have: where the
        memory does not change, it is no matter which comes last.
        """
        warps = self.cluster.warps_per_cta
        group, mine = (divmod(n, warps) for n in (agent, self.agent))
        same_group = (group[0], group[1] // 4) == (mine[0], mine[1] // 4)
        return at == earlier and agent < self.cluster.agents.warps and same_group

    def park(self) -> None:
        """Do not run again until someone wakes this warp."""
        self.parked = True

    def report(
        self, kind: str, message: str, at: int, others: list[tuple[Cta, int, int]] | None = None
    ) -> None:
        """A finding at this warp's instruction `at`."""
        self.machine.report(kind, message, [(self.cta, self.global_id, at), *(others or [])])

    def shared_place(self, address: int, at: int) -> tuple[Cta | None, int]:
        """(CTA, offset) of a shared memory address; None if there is no such place."""
        rank, offset = address >> RANK_SHIFT, address & OFFSET_MASK
        if rank == self.cta.rank:
            cta = self.cta
        elif rank < len(self.cluster.ctas):
            cta = self.cluster.ctas[rank]
            if cta.exited:
                self.report("cta-gone", f"CTA {rank} of the cluster has ended", at)
                return None, 0
        else:
            self.report(
                "outside-cluster",
                f"SMEM address {address:#x} is of CTA {rank}; the cluster has "
                f"{len(self.cluster.ctas)}",
                at,
            )
            return None, 0
        if not SMEM_BASE <= offset < cta.smem_end:
            self.report(
                "out-of-bounds",
                f"SMEM offset {offset - SMEM_BASE:#x}: CTA {rank} has "
                f"{cta.smem_end - SMEM_BASE:#x} B",
                at,
            )
            return None, 0
        return cta, offset

    def barrier(self, address: int, at: int, by_copy: bool = False) -> Mbarrier | None:
        """The mbarrier at an address; a finding and None if there is none.

        `by_copy`: it is not this warp that signals it, but asynchronous work that it issues. Then
        nothing of this warp itself reaches the other CTA, and the caller notes what does.
        """
        cta, offset = self.shared_place(address, at)
        if cta is None:
            return None
        barrier = cta.barriers.get(offset)
        if barrier is None:
            self.report(
                "barrier-not-initialised",
                f"no mbarrier was initialised at SMEM offset "
                f"{offset - SMEM_BASE:#x} of CTA {cta.rank}",
                at,
            )
            return None
        if self.clock[GENERIC, barrier.init_by] < barrier.init_epoch and (
            barrier.init_by != self.agent
        ):
            self.report(
                "barrier-not-initialised",
                f"nothing orders the initialisation of {barrier.describe()} before this use",
                at,
                [(cta, barrier.init_by, barrier.init_at)],
            )
        if cta is not self.cta and not by_copy:
            self.signals(cta, self.agent, int(self.clock[GENERIC, self.agent]), at)
        return barrier

    def signals(self, cta: Cta, agent: int, epoch: int, at: int, reads: bool = False) -> None:
        """Note that something of this warp reaches another CTA, which must not end before."""
        (cta.remote_reads if reads else cta.remote)[agent] = (epoch, at, self.global_id)

    def symbol(self, name: str, line: int) -> Value:
        """The value of a special register, or the address of a variable."""
        if name.startswith("%"):
            return self._special(name, line)
        offset = self.machine.program.variables.get(name)
        if offset is None:
            raise PtxError(f"no variable {name}", line)
        return self.cta.rank << RANK_SHIFT | SMEM_BASE + offset

    def _special(self, name: str, line: int) -> Value:
        launch = self.machine.launch
        base, _, axis = name[1:].partition(".")
        n = {"x": 0, "y": 1, "z": 2}.get(axis)
        if n is not None:
            if base == "tid":
                return self._thread(n)
            clusters = self.machine.clusters_shape
            triples: dict[str, tuple[int, ...]] = {
                "ntid": launch.block,
                "ctaid": self.cta.id,
                "nctaid": launch.grid,
                "cluster_ctaid": self.cta.place,
                "cluster_nctaid": launch.cluster,
                "clusterid": self.cluster.id,
                "nclusterid": clusters,
            }
            if base in triples:
                return triples[base][n]
        singles: dict[str, Value] = {
            "laneid": LANE_IDS,
            "warpid": self.number,
            "nwarpid": len(self.cta.warps),
            "cluster_ctarank": self.cta.rank,
            "cluster_nctarank": launch.cluster_ctas,
            "dynamic_smem_size": launch.smem_bytes,
            "total_smem_size": self.cta.smem_end - SMEM_BASE,
            "smid": self.cta.rank,
            "nsmid": launch.sms,
            "lanemask_eq": np.uint32(1) << LANE_IDS,
            "lanemask_lt": (np.uint32(1) << LANE_IDS) - np.uint32(1),
            "lanemask_gt": ~((np.uint32(2) << LANE_IDS) - np.uint32(1)),
            "is_explicit_cluster": FULL,
        }
        if base not in singles or axis:
            raise PtxError(f"special register {name}, which the emulator does not know", line)
        return singles[base]

    def _thread(self, axis: int) -> Value:
        x, y, _ = self.machine.launch.block
        thread = LANE_IDS + np.uint32(self.number * WARP)
        along = (thread % x, thread // x % y, thread // (x * y))[axis].astype(np.uint32)
        return simplified(along, self.mask)
