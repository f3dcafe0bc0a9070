# SPDX-License-Identifier: Apache-2.0
"""A measurer for tests of a search: kernels take what a formula says; no GPU, no torch.

`FakeGpu` has no faults. `Faulty` also has a candidate that is wrong, one that hangs when prepared,
and one that hangs when timed. Jobs name them as `fake_gpu:FakeGpu`, so that other processes, and a
cluster's workers, find them.
"""

import re
from typing import ClassVar

from pipegen.measuring.protocol import Prepared
from pipegen.tuning.order import tile_cost

PEER_SECONDS = 1e-3


def tile_of(name):
    """The tile in a candidate's name; that of the default description if it has none."""
    found = re.search(r"__m(\d+)_n(\d+)", name)
    return (int(found[1]), int(found[2])) if found else (128, 256)


def seconds_of(shape, name):
    """A little less for each register group fewer, so that neighbours differ."""
    raster = re.search(r"_r(\d+)", name)
    return (
        tile_cost(shape, *tile_of(name), 132) * 1e-5 * (0.9 if raster and raster[1] == "16" else 1)
    )


class FakeGpu:
    measured: ClassVar[list] = []  # shapes, in the order of the calls; of this process

    def __init__(self, limit):
        self.lost, self.shape = {}, (1, 1, 1)

    def device(self):
        return {"gpu": "Fake GPU"}

    def faults(self, names):
        return {}

    def late(self, names):
        return {}

    def prepare(self, shape, entrants, peers):
        FakeGpu.measured.append(shape)
        self.shape = shape
        for entrant in entrants:
            assert entrant.path.read_text("utf-8").startswith("# SPDX")
            assert entrant.object is None or entrant.object.read_bytes()
        names = [entrant.name for entrant in entrants]
        out = self.faults(names)
        ready = tuple(name for name in names if name not in out)
        m, n, k = shape
        known = {peer: {"": peer} for peer in peers}
        return Prepared(ready, known, out, 2 * m * n * k, "graph", 2)

    def time(self, names, rounds, seconds):
        late = self.late(names)
        self.lost |= late
        figures = {}
        for name in names:
            if name not in late:
                known = "__" in name
                figures[name] = [seconds_of(self.shape, name) if known else PEER_SECONDS] * rounds
        return figures


class Faulty(FakeGpu):
    def faults(self, names):
        found = {name: "wrong: relative error 1.0e+00" for name in names if "_n48_" in name}
        return found | {name: "said nothing for 30 s: a hang?" for name in names if "_n80_" in name}

    def late(self, names):
        return {name: "the process ended: SIGSEGV" for name in names if "_n96_" in name}
