# SPDX-License-Identifier: Apache-2.0
"""Faults, each made by changing the compiled text of a generated kernel in one place."""

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """`change` breaks a PTX text; a run of it must give one of the `kinds` of findings."""

    name: str
    kinds: frozenset[str]
    change: Callable[[str], str]


def _swap(pattern: str, new: str, nth: int = 0) -> Callable[[str], str]:
    """Replace the nth match; it must exist."""

    def change(text: str) -> str:
        matches = list(re.finditer(pattern, text, re.MULTILINE))
        assert len(matches) > nth, f"{pattern} matches {len(matches)} times"
        match = matches[nth]
        return text[: match.start()] + match.expand(new) + text[match.end() :]

    return change


def _mutant(name: str, kinds: str, pattern: str, new: str = "", nth: int = 0) -> Mutant:
    return Mutant(name, frozenset(kinds.split()), _swap(pattern, new, nth))


def _all(name: str, kinds: str, pattern: str, new: str = "") -> Mutant:
    def change(text: str) -> str:
        changed, count = re.subn(pattern, new, text, flags=re.MULTILINE)
        assert count > 0
        return changed

    return Mutant(name, frozenset(kinds.split()), change)


_WAIT = r"mbarrier\.try_wait\.parity\.shared\.b64 P1, \[(%r\d+)\], (%r\d+), 10000000;"
_GO_ON = "setp.eq.u32 P1, 0, 0;"
_INIT = r"mov\.b32 \t(%r\d+), {count};(?=\s*(?:\.loc.*\s*)*mbarrier\.init)"


def _without_end(name: str) -> Mutant:
    """A producer that waits for nothing at its end, in a CTA that does not wait for its peer."""

    def change(text: str) -> str:
        for nth in (4, 3, 2, 1):
            text = _swap(_WAIT, _GO_ON, nth)(text)
        start = text.rindex("barrier.cluster.arrive;")
        end = text.index("barrier.cluster.wait;", start) + len("barrier.cluster.wait;")
        return text[:start] + text[end:]

    return Mutant(name, frozenset(["cta-gone"]), change)


HOPPER_GEMM = (  # gemm_sm90_c2x1: four stages, two CTAs that share B by multicast
    _mutant(
        "empty count one less", "arrive-count race", _INIT.format(count=16), r"mov.b32 \1, 15;"
    ),
    _mutant("empty count one more", "deadlock", _INIT.format(count=16), r"mov.b32 \1, 17;"),
    _mutant("full count one more", "deadlock", _INIT.format(count=1), r"mov.b32 \1, 2;"),
    _mutant("16 bytes less expected", "tx-count", r"(%r\d+), 49152;", r"\1, 49136;"),
    _mutant("16 bytes more expected", "tx-count", r"(%r\d+), 49152;", r"\1, 49168;"),
    _mutant("multicast to one CTA only", "deadlock", r"(%rs\d+), 3;", r"\1, 1;"),
    _mutant("multicast to a third CTA", "outside-cluster", r"(%rs\d+), 3;", r"\1, 7;"),
    _mutant(
        "release before the wait", "race", r"(wgmma\.wait_group\.sync\.aligned \t)1;", r"\g<1>2;"
    ),
    _mutant("producer does not wait", "arrive-count race", _WAIT, _GO_ON),
    _mutant("consumer does not wait", "race", _WAIT, _GO_ON, nth=6),
    _mutant(
        "producer's phase stays",
        "deadlock race arrive-count tx-count phase-wrap",
        r"xor\.b32 \t(%r330), %r330, (%r\d+);",
        r"mov.b32 \1, \1;",
    ),
    _mutant(
        "consumer's phase stays",
        "deadlock race phase-wrap",
        r"xor\.b32 \t(%r463), %r463, (%r\d+);",
        r"mov.b32 \1, \1;",
        nth=1,
    ),
    _all("no proxy fence", "missing-proxy-fence", r"fence\.proxy\.async\.shared::cta;"),
    _mutant(
        "no barrier before the store", "missing-proxy-fence race", r"bar\.sync \t1, 256;", nth=1
    ),
    _all("staging reused too soon", "race", r"cp\.async\.bulk\.wait_group\.read \t3;"),
    _mutant(
        "last stores not waited for",
        "store-pending-at-exit",
        r"cp\.async\.bulk\.wait_group\.read \t0;",
    ),
    _all("barriers not announced", "barrier-not-initialised", r"fence\.mbarrier_init.*;"),
    _mutant("a barrier not initialised", "barrier-not-initialised", r"mbarrier\.init.*;", nth=2),
    _mutant(
        "a barrier initialised twice",
        "barrier-initialised-twice",
        r"(setmaxnreg\.dec.*;)",
        r"\1 mbarrier.init.shared.b64 [%r1], 1;",
    ),
    _mutant(
        "release of the next stage",
        "deadlock arrive-count race",
        r"(mapa\S+ \t%r\d+, )%r(\d+)",
        r"\1%r1",
    ),
    _mutant(
        "consumer waits for stage 0 always",
        "race deadlock",
        r"shl\.b32 \t(%r141), %r461, 3;",
        r"mov.b32 \1, 0;",
    ),
    _mutant(
        "phase starts anew with each tile",
        "deadlock race arrive-count",
        r"^\$L__BB0_10:",
        "$L__BB0_10:\n mov.b32 %r330, 1;",
    ),
    _mutant("B goes where A lies", "race", r"\[(%r\d+)\+66560\]", r"[\1+1024]"),
    _mutant(
        "accumulators read too soon",
        "accumulator-in-flight",
        r"(wgmma\.wait_group\.sync\.aligned \t)0;",
        r"\g<1>1;",
    ),
    _without_end("neither tail nor exit barrier"),
)

BLACKWELL_GEMM = (  # gemm_sm100_clc_pair_c2x1: a CTA pair, launch control, six stages
    _mutant("full count one more", "deadlock", _INIT.format(count=1), r"mov.b32 \1, 2;"),
    _mutant(
        "accumulator released by one warp less",
        "arrive-count race",
        _INIT.format(count=8),
        r"mov.b32 \1, 7;",
    ),
    _mutant("accumulator count one more", "deadlock", _INIT.format(count=8), r"mov.b32 \1, 9;"),
    _mutant(
        "scheduler count too low", "arrive-count", _INIT.format(count=384), r"mov.b32 \1, 352;"
    ),
    _mutant("16 bytes more expected", "tx-count", r"(%r\d+), 65536;", r"\1, 65552;"),
    _mutant("half of the answer expected", "tx-count", r"(%r411), 16;", r"\1, 8;"),
    _mutant(
        "commit to one CTA of the pair", "deadlock", r"mov\.b16 \t(%rs7), 3;", r"mov.b16 \1, 1;"
    ),
    _mutant(
        "stage released before the mma is done",
        "race",
        r"tcgen05\.commit\.\S+ \t\[(%r34)\+48\], %rs1;",
        r"mbarrier.arrive.shared.b64 _, [\1+48], 1; mapa.shared::cluster.u32 %r1, \1, 1; "
        r"mbarrier.arrive.shared::cluster.b64 _, [%r1+48], 1;",
    ),
    _mutant("mma does not wait for its stage", "race", _WAIT, _GO_ON, nth=9),
    _mutant("epilogue does not wait", "race", _WAIT, _GO_ON, nth=12),
    _all("loads not waited for", "tmem-load-not-waited", r"tcgen05\.wait::ld\.sync\.aligned;"),
    _mutant("tensor memory not freed", "tmem-not-freed", r"tcgen05\.dealloc.*;"),
    _mutant(
        "half of it freed", "tmem-allocation", r"(tcgen05\.dealloc\S+ \t%r\d+), %r\d+;", r"\1, 256;"
    ),
    _mutant(
        "300 columns", "tmem-allocation", r"(tcgen05\.alloc\S+ \t\[%r\d+\]), %r\d+;", r"\1, 300;"
    ),
    _all("address read too soon", "race", r"bar\.sync \t2, 160;"),
    _all("no proxy fence", "missing-proxy-fence", r"fence\.proxy\.async\.shared::cta;"),
    _all("barriers not announced", "barrier-not-initialised", r"fence\.mbarrier_init.*;"),
    _mutant(
        "mma by all lanes", "lanes-disagree", r"(not\.pred \t%p28), %p27;", r"mov.pred %p28, 0;"
    ),
)

CP_ASYNC_GEMM = (  # gemm_sm90_cp_async: threads copy, and their copies signal the barrier
    _mutant(
        "arrival before the copies",
        "race",
        r"cp\.async\.mbarrier\.arrive\.noinc\.shared\.b64 \t(\[%r\d+\]);",
        r"mbarrier.arrive.shared.b64 _, \1;",
    ),
    _mutant("producer does not wait", "arrive-count race", _WAIT, _GO_ON),
    _all("no proxy fence", "missing-proxy-fence", r"fence\.proxy\.async\.shared::cta;"),
)
