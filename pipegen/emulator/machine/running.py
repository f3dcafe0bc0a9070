# SPDX-License-Identifier: Apache-2.0
"""Runs a launch: schedules its warps and asynchronous operations until all have ended.

One warp runs at a time, until it must wait or chance lets another go on. `late` says when
asynchronous operations complete: "late" when nothing else can happen, "early" at their issue,
"random" in between; waits that name their operations (groups) complete them at the latest.
"""

import itertools
import operator
import random
import time
from dataclasses import dataclass, field
from typing import Literal

from pipegen.emulator.findings import Finding
from pipegen.emulator.findings.deadlock import deadlock
from pipegen.emulator.findings.global_accesses import GlobalAccesses
from pipegen.emulator.launch import Launch
from pipegen.emulator.machine import clusters, endings
from pipegen.emulator.machine.async_copies import Operation
from pipegen.emulator.machine.global_memory import GlobalMemory
from pipegen.emulator.machine.program import Program, program_of
from pipegen.emulator.machine.reporting import Reporter
from pipegen.emulator.machine.shared_memory import DataNeeded
from pipegen.emulator.machine.state import Cluster, Cta, Triple, Warp
from pipegen.emulator.machine.tensor_copies import Tensor
from pipegen.emulator.machine.values import NotUniform
from pipegen.emulator.ptx.ir import PtxError
from pipegen.emulator.ptx.writing import shortened
from pipegen.emulator.tensor_map import decode_tensor_map

Policy = Literal["late", "early", "random"]
_CHECK_EVERY = 4096
_SWITCH = 0.25  # chance that a warp is suspended after an operation that others may see
_COMPLETE = 0.2  # chance that an operation completes before the next warp runs, policy "random"


@dataclass(frozen=True)
class Limits:
    """When to give up: warp instructions of the whole run; clusters that run at once."""

    instructions: int = 200_000_000
    clusters: int = 2


@dataclass(frozen=True)
class Result:
    """What a run gave.

    `instructions` counts those that warps executed, `by_warp` those of each warp number of a CTA,
    over all CTAs. `clusters` counts launched clusters; cluster launch control may cancel others.
    """

    findings: tuple[Finding, ...]
    instructions: int
    seconds: float
    by_warp: dict[int, int] = field(default_factory=dict)
    clusters: int = 0

    @property
    def rate(self) -> float:
        """Warp instructions per second."""
        return self.instructions / self.seconds if self.seconds else 0.0


def run(
    launch: Launch,
    *,
    seed: int = 0,
    late: bool | Policy = "random",
    sync_only: bool = False,
    limits: Limits | None = None,
) -> Result:
    """Execute the launch on its buffers.

    `seed` picks the schedule. `late`: True is "late", False is "early". `sync_only` leaves out data
    and arithmetic, and global memory is not written; a kernel whose protocol depends on data that
    threads put into shared memory is run with data all the same. Raises
    PtxError for an instruction that the emulator does not know, before anything runs.
    """
    policy: Policy = late if isinstance(late, str) else "late" if late else "early"
    started = time.perf_counter()
    limits = limits or Limits()
    try:
        program = program_of(launch.ptx, launch.kernel, sync_only)
        machine = Machine(launch, program, seed, policy, sync_only, limits)
        machine.run()
    except DataNeeded:
        # Its protocol reads data from shared memory: nothing can be left out.
        program = program_of(launch.ptx, launch.kernel)
        machine = Machine(launch, program, seed, policy, False, limits)
        machine.run()
    return Result(
        findings=tuple(machine.findings.found),
        instructions=sum(machine.counts.values()),
        seconds=time.perf_counter() - started,
        by_warp=dict(sorted(machine.counts.items())),
        clusters=machine.launched,
    )


class Machine(Reporter):
    """The state of one run."""

    def __init__(
        self,
        launch: Launch,
        program: Program,
        seed: int,
        policy: Policy,
        sync_only: bool,
        limits: Limits,
    ) -> None:
        super().__init__(program)
        self.launch = launch
        self.policy, self.sync_only, self.limits = policy, sync_only, limits
        self.random = random.Random(seed).random
        self.memory = GlobalMemory(launch.buffers)
        self.parameters = self._pack_parameters()
        pairs = zip(launch.grid, launch.cluster, strict=True)
        shape = [grid // cluster for grid, cluster in pairs]
        self.clusters_shape: Triple = (shape[0], shape[1], shape[2])
        ranges = (range(n) for n in reversed(self.clusters_shape))
        self.waiting: list[Triple] = [(x, y, z) for z, y, x in itertools.product(*ranges)]
        self.waiting.reverse()  # taken from the end
        self.active: list[Cluster] = []
        self.runnable: list[Warp] = []
        self.pending: list[Operation] = []
        self.counts: dict[int, int] = {}
        self.launched = 0
        self._tensors: dict[tuple[int, bool], Tensor] = {}
        self.accesses: dict[int, GlobalAccesses] = {}  # of each buffer, by its address
        self._stopped = False

    def _pack_parameters(self) -> bytes:
        kernel = self.program.kernel
        sizes = [p.bytes for p in kernel.parameters]
        if sizes != [len(raw) for raw in self.launch.params]:
            given = [len(raw) for raw in self.launch.params]
            raise PtxError(f"{kernel.name} takes parameters of {sizes} B, the launch has {given}")
        end = max((p.offset + p.bytes for p in kernel.parameters), default=0)
        packed = bytearray(end)
        for parameter, raw in zip(kernel.parameters, self.launch.params, strict=True):
            packed[parameter.offset : parameter.offset + parameter.bytes] = raw
        return bytes(packed)

    # --- the schedule ---

    def run(self) -> None:
        """Until nothing is left to do, or nothing can go on."""
        steps = 0
        self._launch_more()
        for at in self.program.in_flight[: len(self.active)]:
            warp = self.active[0].warps[0]
            self.report(
                "accumulator-in-flight",
                f"{self.program.names[at]} reads an accumulator of a wgmma before a "
                "wgmma.wait_group for it, on some way through the code",
                [(warp.cta, warp.global_id, at)],
            )
        while not self._stopped:
            steps += 1
            if steps % _CHECK_EVERY == 0 and self._too_long():
                break
            if self.pending and (not self.runnable or self._completes_early()):
                self._complete_one()
            elif self.runnable:
                self._step()
            elif not self._make_progress():
                break
        for cluster in self.active:
            self._count(cluster)

    def _completes_early(self) -> bool:
        return self.policy == "random" and self.random() < _COMPLETE

    def _complete_one(self) -> None:
        n = int(self.random() * len(self.pending))
        self.pending[n], self.pending[-1] = self.pending[-1], self.pending[n]
        self.pending.pop().complete()

    def _step(self) -> None:
        n = int(self.random() * len(self.runnable))
        warp = self.runnable[n]
        try:
            next(warp.generator)
        except StopIteration:
            self._remove(n)
            self._ended(warp)
        except (PtxError, DataNeeded):
            raise
        except Exception as error:
            raise self._located(warp, error) from error
        else:
            if warp.parked:
                self._remove(n)

    def _remove(self, n: int) -> None:
        self.runnable[n] = self.runnable[-1]
        self.runnable.pop()

    def _located(self, warp: Warp, error: Exception) -> PtxError:
        """An error of the machine with the PTX line at which it came up."""
        trace, line = error.__traceback__, 0
        while trace is not None:
            if trace.tb_frame.f_code.co_filename.startswith("<ptx "):
                line = self.program.line_of.get(trace.tb_lineno, 0)
            trace = trace.tb_next
        text = next((shortened(i) for i in self.program.instructions if i.line == line), "")
        if isinstance(error, NotUniform):
            return PtxError(f"lanes of warp {warp.number} disagree ({error})", line, text)
        what = f"warp {warp.number}: {type(error).__name__}: {error}"
        return PtxError(what, line, text)

    def _make_progress(self) -> bool:
        """Nothing can run. Launch a cluster, end the patience of a wait, or find a deadlock."""
        if self._launch_more():
            return True
        impatient = [
            warp
            for cluster in self.active
            for warp in cluster.warps
            if warp.waiting is not None and not warp.waiting_forever
        ]
        if impatient:
            for warp in impatient:
                if warp.waiting is not None:
                    warp.waiting[0].waiters.remove(warp)
                warp.out_of_patience = True
                self.wake(warp)
            return True
        if self.active:
            endings.unbalanced(self)
            self.findings.add(deadlock(self))
        return False

    def _launch_more(self) -> bool:
        room = len(self.waiting) if self.launch.cooperative else self.limits.clusters
        launched = False
        while self.waiting and len(self.active) < room:
            cluster = Cluster(self, self.waiting.pop(), self.launched)
            self.launched += 1
            self.active.append(cluster)
            for warp in cluster.warps:
                warp.generator = self.program.function(warp)
                self.runnable.append(warp)
            launched = True
        return launched

    def cancel_launch(self) -> Triple | None:
        """A cluster that will not be launched, for cluster launch control; None if all are."""
        return self.waiting.pop() if self.waiting else None

    def _ended(self, warp: Warp) -> None:
        warp.done = True
        cta, cluster = warp.cta, warp.cluster
        cta.running -= 1
        cluster.running -= 1
        if warp.bulk or warp.bulk_open:
            cta.bulk_pending.append(warp)
        if cta.running == 0:
            endings.cta_ended(self, cta)
        if cluster.running == 0:
            endings.cluster_ended(self, cluster)
            self.active.remove(cluster)
            self._count(cluster)
            self._launch_more()
        else:
            clusters.complete_if_all(warp)

    def _count(self, cluster: Cluster) -> None:
        for warp in cluster.warps:
            executed = sum(map(operator.mul, warp.visits, self.program.lengths))
            self.counts[warp.number] = self.counts.get(warp.number, 0) + executed

    def _too_long(self) -> bool:
        lengths = self.program.lengths
        running = sum(
            v * n
            for c in self.active
            for w in c.warps
            for v, n in zip(w.visits, lengths, strict=True)
        )
        total = running + sum(self.counts.values())
        if total <= self.limits.instructions:
            return False
        message = f"stopped after {total} instructions of warps"
        self.findings.add(Finding("limit", message))
        return True

    # --- what the chapters call ---

    def pause(self) -> bool:
        """Whether a warp that has done something visible is suspended for others to run."""
        return self.random() < _SWITCH

    def eager(self) -> bool:
        """Whether an operation that is waited for by its issuer completes at its issue."""
        if self.policy == "random":
            return self.random() < _SWITCH
        return self.policy == "early"

    def issue(self, operation: Operation) -> None:
        """Let an operation complete on its own some time."""
        if self.policy == "early":
            operation.complete()
        else:
            self.pending.append(operation)

    def wake(self, warp: Warp) -> None:
        """A parked warp can go on."""
        if warp.parked:
            warp.parked = False
            warp.blocked = None
            self.runnable.append(warp)

    def alive(self, w: Warp, cta: Cta, at: int, what: str) -> bool:
        """Whether a CTA still runs; a finding if something reaches it after its end."""
        if cta.exited:
            w.report("cta-gone", f"{what} reaches CTA {cta.rank} after its end", at)
        return not cta.exited

    def tensor(self, address: int, in_parameters: bool) -> Tensor:
        """The tensor of a tensor map in the parameters, or in global memory."""
        found = self._tensors.get((address, in_parameters))
        if found is None:
            if in_parameters:
                raw = self.parameters[address : address + 128]
            else:
                region = self.memory.find(address, address + 128)
                if region is None:
                    raise PtxError(f"no buffer holds a tensor map at {address:#x}")
                start = address - region.start
                raw = region.bytes[start : start + 128].tobytes()
            tensor_map = decode_tensor_map(raw)
            found = Tensor(tensor_map, f"at {address:#x}")
            end = tensor_map.address + found.extent
            if self.memory.find(tensor_map.address, end) is None:
                where = self.memory.nearest(tensor_map.address)
                self.report(
                    "out-of-bounds",
                    f"a tensor map describes bytes {tensor_map.address:#x} to {end:#x}, which no "
                    f"buffer holds as a whole ({where})",
                    [],
                )
                raise PtxError("a tensor map describes memory that no buffer holds")
            self._tensors[address, in_parameters] = found
        return found
