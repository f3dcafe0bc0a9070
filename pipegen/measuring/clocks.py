# SPDX-License-Identifier: Apache-2.0
"""How long a GPU works for a launch: by CUDA graphs and events, by CUPTI, or by the host's clock.

graph   launches in a CUDA graph between two events: no time of the host, but the gaps between
        kernels count, as they do for a user
device  CUPTI's time of each kernel, for what no graph takes (JAX) or takes otherwise (a copy)
host    a clock around launches that are already long, or graphs themselves
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

import torch

from pipegen.measuring.operators import Call
from pipegen.measuring.rounds import Sample

CLOCKS = ("graph", "device", "host")
# Launches of a graph: many enough that its own start is nothing, few enough to build quickly.
GRAPH_SECONDS, GRAPH_LAUNCHES = 0.8e-3, 200


@dataclass(frozen=True)
class Entry:
    """What is timed: a call for each set of operands, the wait for all, and the clock it needs.

    `result`: what the first call computes, to be compared with the reference; None if trusted.
    `before_time`: compiles, or allocates, whatever must not be timed or captured.
    """

    calls: Sequence[Call]
    wait: Call = torch.cuda.synchronize
    clock: str = "graph"
    result: Call | None = None
    configuration: str = ""
    keep: list[Any] = field(default_factory=list)


def clock_for(entries: Mapping[str, Entry]) -> str:
    """One clock for all that are compared: the one that the most demanding of them needs."""
    return max((entry.clock for entry in entries.values()), key=CLOCKS.index)


class Timer:
    """Times entries by one clock; what a graph captures is captured once, on the first turn."""

    def __init__(self, entries: Mapping[str, Entry], clock: str) -> None:
        self.entries, self.clock = entries, clock
        self._graphs: dict[str, tuple[Any, int]] = {}
        self._turns = {name: cycle(entry.calls) for name, entry in entries.items()}
        self.launches = max((len(entry.calls) for entry in entries.values()), default=1)

    def sample(self, name: str, repeats: int) -> float:
        """Seconds of one launch, from a turn of about so many."""
        samplers: dict[str, Sample] = {
            "graph": self._graph, "device": self._device, "host": self._host
        }  # fmt: skip
        return samplers[self.clock](name, repeats)

    def _calls(self, name: str, count: int) -> list[Call]:
        return list(islice(self._turns[name], count))

    def _host(self, name: str, repeats: int) -> float:
        self._wait()
        calls = self._calls(name, repeats)
        start = time.perf_counter()
        for call in calls:
            call()
        self._wait()
        return (time.perf_counter() - start) / repeats

    def _wait(self) -> None:
        torch.cuda.synchronize()
        for entry in self.entries.values():
            entry.wait()

    def _device(self, name: str, repeats: int) -> float:
        from torch.profiler import ProfilerActivity, profile

        self._wait()
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            for call in self._calls(name, repeats):
                call()
            self._wait()
        events = [each for each in profiled.events() if each.device_type.name == "CUDA"]
        if len(events) < repeats:
            raise RuntimeError(f"CUPTI saw {len(events)} of {repeats} launches of {name}")
        return float(sum(each.device_time for each in events)) * 1e-6 / repeats

    def _graph(self, name: str, repeats: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if name not in self._graphs:
            self._graphs[name] = self._captured(name)
        graph, launches = self._graphs[name]
        replays = max(1, round(repeats / launches))
        begin.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3 / (launches * replays)

    def _captured(self, name: str) -> tuple[Any, int]:
        """A graph of a millisecond or so, in which each set of operands has its turn."""
        calls = self.entries[name].calls
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for call in calls:
                call()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for call in calls:
            call()
        end.record()
        end.synchronize()
        one = float(begin.elapsed_time(end)) * 1e-3 / len(calls)
        # Whole turns of all sets where they are few; a host that launches slowly makes `one` long.
        count = max(1, min(GRAPH_LAUNCHES, round(GRAPH_SECONDS / one)))
        count = max(count, min(len(calls), GRAPH_LAUNCHES))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in self._calls(name, count):
                call()
        graph.replay()
        torch.cuda.synchronize()
        return graph, count
