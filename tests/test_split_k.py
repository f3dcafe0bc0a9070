# SPDX-License-Identifier: Apache-2.0
"""The GEMM with split K: its numbers, derived by hand, its shares of K and of the tile, and the
meetings of its cluster, as the emitted files have them."""

import ast
import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_planning import check_formulas

import pipegen as api
from pipegen.arithmetic import exchange_bytes
from pipegen.barriers.machine import Barrier, Op, System, explore
from pipegen.barriers.plans import find_in_plan
from pipegen.description_file import description_from_data, load_description
from pipegen.errors import InputError
from pipegen.hardware import HARDWARE, MBARRIER_TX_LIMIT

ROOT = Path(__file__).parent.parent
EMITTED = sorted((ROOT / "generated" / "cute").glob("gemm_sm90_split_k*.py"))
CLUSTERS = [(1, 1), (2, 1), (1, 2), (2, 2)]


def planned(split_k, **sections):
    kernel = {"op": "gemm", "backend": "cute", "arch": "sm_90a"}
    scheduler = {"split_k": split_k}
    return api.plan(description_from_data({"kernel": kernel, "scheduler": scheduler, **sections}))


def values(made, names):
    return {name: made.number(name).value for name in names}


def test_four_ctas_share_a_tile():
    made = planned(4, tile={"m": 128, "n": 144, "k": 64})
    assert made.template == "cute/gemm_sm90_split_k.py.j2"
    assert made.description.cluster.shape == (1, 1)  # nobody shares loads: nobody has the same K
    expected = {
        "tx_count": 34816,  # (128 + 144) * 64 * 2
        "mainloop_empty_arrive_count": 8,  # the warps of two warpgroups, of this CTA alone
        "epi_buffer_bytes": 4096,  # 128 * 16 * 2: the narrowest subtiles, to share them well
        "epi_subtiles": 9,  # 144 / 16
        "own_subtiles": 3,  # CTA 0 has 0, 4 and 8; the others two
        "cluster_ctas": 4,
        "exchange_bytes": 73728,  # 128 * 144 * 4
        # (232448 - 1024 - 2 * 4096) / 34816 = 6.4; 22528 B are left, and no CTA has more than 3.
        "mainloop_stages": 6,
        "epilogue_buffers": 3,
        "smem_bytes": 222208,  # 1024 + 6 * 34816 + 3 * 4096
        "accumulator_registers": 72,  # 128 * 144 / 256
    }
    assert values(made, expected) == expected
    assert check_formulas(made) >= 15


def test_more_ctas_than_subtiles():
    """64 x 48 has 3 subtiles: two of five CTAs add to the sums, and store nothing."""
    made = planned(5, tile={"m": 64, "n": 48, "k": 128})
    expected = {"epi_subtiles": 3, "own_subtiles": 1, "epilogue_buffers": 1, "cluster_ctas": 5}
    assert values(made, expected) == expected


def test_tiles_that_share_loads_have_their_own_parts():
    made = planned(2, cluster={"shape": [2, 2]})
    expected = {
        "mainloop_empty_arrive_count": 24,  # 8 warps of the 3 CTAs with the same part of K
        "cluster_ctas": 8,
        "own_subtiles": 8,  # 256 / 16 / 2
    }
    assert values(made, expected) == expected


def test_without_split_k_nothing_changes():
    made = planned(1)
    assert made.template == "cute/gemm_sm90.py.j2"
    assert made.description.cluster.shape == (2, 1)
    assert values(made, ["epi_buffer_bytes"]) == {"epi_buffer_bytes": 8192}  # 128 * 32 * 2


@settings(max_examples=150)
@given(
    split_k=st.integers(-1, 9),
    m=st.sampled_from([64, 128, 256]),
    n=st.integers(1, 17).map(lambda i: 16 * i),
    k=st.sampled_from([16, 32, 64, 128, 256]),
    cluster=st.sampled_from(CLUSTERS),
    a=st.sampled_from(["bf16", "f16", "e4m3", "e5m2"]),
    out=st.sampled_from(["f32", "bf16", "f16"]),
    stages=st.one_of(st.just("auto"), st.integers(0, 12)),
    buffers=st.one_of(st.just("auto"), st.integers(1, 8)),
)
def test_every_plan_fits_the_machine(split_k, m, n, k, cluster, a, out, stages, buffers):
    """Whatever is asked for: a refusal, or a plan within every limit of the hardware."""
    try:
        made = planned(
            split_k,
            dtype={"a": a, "out": out},
            tile={"m": m, "n": n, "k": k},
            cluster={"shape": cluster},
            pipeline={"mainloop": {"stages": stages}, "epilogue": {"stages": buffers}},
        )
    except InputError:
        return
    value = {number.name: number.value for number in made.numbers}
    check_formulas(made)
    hardware = HARDWARE["sm_90a"]
    assert 1 <= split_k <= 8
    assert value["smem_bytes"] <= hardware.smem_per_block
    assert value["tx_count"] < MBARRIER_TX_LIMIT
    assert value["accumulator_registers"] + 40 <= value["consumer_registers"]
    if split_k == 1:
        return
    assert cluster[0] * cluster[1] * split_k <= hardware.max_cluster
    assert value["exchange_bytes"] == exchange_bytes(m, n) == 4 * m * n
    assert value["exchange_bytes"] <= value["mainloop_stages"] * value["tx_count"]
    assert value["own_subtiles"] * split_k >= value["epi_subtiles"]
    assert (value["own_subtiles"] - 1) * split_k < value["epi_subtiles"]
    assert value["epilogue_buffers"] <= value["own_subtiles"]


# ---- The emitted files ---------------------------------------------------------------------------


def emitted(path, *names):
    """Values of constants of an emitted file; its kernel as a syntax tree."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets = node.targets[0]
            if isinstance(targets, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(targets.elts, node.value.elts, strict=True)
            else:
                pairs = [(targets, node.value)]
            constants |= {
                name.id: value.value for name, value in pairs if isinstance(value, ast.Constant)
            }
    kernel = next(node for node in tree.body if getattr(node, "name", "") == "gemm_kernel")
    return kernel, *(constants[name] for name in names)


def parts_of_k(kernel, k_tiles, split_k):
    """The K tiles of each CTA, from the kernel's own line."""
    (line,) = (
        node
        for node in ast.walk(kernel)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "(k_begin, k_end)"
    )
    code = compile(ast.Expression(line.value), "kernel", "eval")
    ranges = [
        eval(code, {"part": part, "k_tiles": k_tiles, "SPLIT_K": split_k})
        for part in range(split_k)
    ]
    return [range(begin, end) for begin, end in ranges]


@pytest.mark.parametrize("path", EMITTED, ids=lambda path: path.stem)
@pytest.mark.parametrize("k_tiles", [1, 2, 5, 7, 8, 112, 113, 2**27])
def test_every_k_tile_has_one_cta(path, k_tiles):
    """Also with fewer K tiles than CTAs; nobody has more than one tile more than another."""
    kernel, split_k = emitted(path, "SPLIT_K")
    parts = parts_of_k(kernel, k_tiles, split_k)
    assert (parts[0].start, parts[-1].stop) == (0, k_tiles)
    assert all(one.stop == following.start for one, following in itertools.pairwise(parts))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert split_k * k_tiles < 2**31  # the kernel's integers


def meetings(body):
    """Arrives and waits at the cluster's barrier, in the order of a role's statements."""
    calls = [node for each in body for node in ast.walk(each) if isinstance(node, ast.Call)]
    names = [(node.lineno, ast.unparse(node.func).rpartition(".")[2]) for node in calls]
    return [name for _, name in sorted(names) if name.startswith("cluster_")]


def roles_of(kernel):
    """The statements of producer and of consumers, and what both do after that."""
    (roles,) = (
        index
        for index, node in enumerate(kernel.body)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "warpgroup_idx == 0"
    )
    branch = kernel.body[roles]
    after = kernel.body[roles + 1 :]
    return [*branch.body, *after], [*branch.orelse, *after]


def exchange_fault(kernel, threads, consumer_threads, split_k):
    """What the model of the barriers finds in the exchange, in any order of events.

    The hardware's barrier of a cluster counts every thread: here warps, of at most three CTAs,
    which show what eight do. After its n-th wait a role reads what others wrote before their n-th
    arrive (the sums), or leaves, which others have read before their arrive.
    """
    consumer_warps, loader_warps = consumer_threads // 32, (threads - consumer_threads) // 32
    ctas = range(min(split_k, 3))
    producers, consumers = map(meetings, roles_of(kernel))
    arrives = [index for index, name in enumerate(consumers) if name.startswith("cluster_arrive")]
    names = [(f"{role} {cta}", role) for cta in ctas for role in ("producers", "consumers")]
    others = [index for index, (_, role) in enumerate(names) if role == "consumers"]
    agents = []
    for name, role in names:
        ops, waits = [], 0
        for call in producers if role == "producers" else consumers:
            if call.startswith("cluster_arrive"):
                warps = loader_warps if role == "producers" else consumer_warps
                ops.append(Op("arrive", 0, warps, "arrives"))
                continue
            come = arrives[waits] + 1 if waits < len(arrives) else len(consumers) + 1
            after = tuple((other, come) for other in others)
            ops.append(Op("wait", 0, waits % 2, f"waits for meeting {waits}", after))
            waits += 1
        agents.append((name, tuple(ops)))
    barrier = Barrier("the cluster's barrier", len(ctas) * (consumer_warps + loader_warps))
    found = explore(System((barrier,), tuple(agents)))
    return found.kind if found else ""


@pytest.mark.parametrize("path", EMITTED, ids=lambda path: path.stem)
def test_the_cluster_meets_twice(path):
    """Nobody reads sums that are not there, or leaves while its sums are read."""
    kernel, *numbers = emitted(path, "THREADS", "CONSUMER_THREADS", "SPLIT_K")
    assert exchange_fault(kernel, *numbers) == ""
    assert lasts_as_long_as_it_is_read(kernel)


@pytest.mark.parametrize("role", ["producers", "consumers"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_meeting_less_is_found(role, which):
    """Each arrive and wait of the two roles, taken out one by one."""
    kernel, *numbers = emitted(EMITTED[0], "THREADS", "CONSUMER_THREADS", "SPLIT_K")
    roles = next(node for node in kernel.body if isinstance(node, ast.If))
    body = roles.body if role == "producers" else roles.orelse
    calls = [
        node for node in body if isinstance(node, ast.Expr) and "cluster_" in ast.unparse(node)
    ]
    assert len(calls) == 3
    body.remove(calls[which])
    assert exchange_fault(kernel, *numbers) in ("deadlock", "race")


def test_who_leaves_without_waiting_is_found():
    (kernel,) = emitted(EMITTED[0])
    assert "cluster_wait" in ast.unparse(kernel.body.pop())
    roles = next(node for node in kernel.body if isinstance(node, ast.If))
    assert meetings(roles.orelse)[-1] == "cluster_arrive_relaxed"
    assert lasts_as_long_as_it_is_read(kernel) is False


def lasts_as_long_as_it_is_read(kernel):
    """Whether a CTA's last step is to wait for the others' last arrive."""
    return all(meetings(role)[-1:] == ["cluster_wait"] for role in roles_of(kernel))


@pytest.mark.parametrize("path", EMITTED, ids=lambda path: path.stem)
def test_the_model_of_the_ring_finds_nothing(path):
    found, _ = find_in_plan(api.plan(load_description(path.with_suffix(".toml"))))
    assert found == []
