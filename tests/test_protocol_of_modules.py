# SPDX-License-Identifier: Apache-2.0
"""What every emitted CuTe DSL kernel keeps to, read from its syntax tree; each check has a control.

A role is a branch at the top of the kernel (`if warp_idx == …:`).
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "generated" / "cute").glob("*.py"))


def kernel_of(tree):
    """The function that runs on the GPU."""
    (kernel,) = (
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel")
    )
    return kernel


def roles_of(kernel):
    """The text of each role's branch."""
    roles = []

    def split(branch):
        roles.append("\n".join(map(ast.unparse, branch.body)))
        if len(branch.orelse) == 1 and isinstance(branch.orelse[0], ast.If):
            split(branch.orelse[0])
        elif branch.orelse:
            roles.append("\n".join(map(ast.unparse, branch.orelse)))

    for node in kernel.body:
        if isinstance(node, ast.If):
            split(node)
    return roles


def faults(text):
    """The faults of a module's text, each in a few words."""
    tree = ast.parse(text)
    roles = roles_of(kernel_of(tree))
    # The CTAs that share a tile's K meet while they add up: in every role, because the cluster's
    # barrier counts all threads.
    shared = "SPLIT_K = " in text
    found = []
    for role in roles:
        for handle in re.findall(r"(\w+)\.(?:producer_)?tail\(", role):
            acquires = re.search(rf"\b{handle}\.(?:\w+_)?acquire\w*\(", role)
            lends = re.search(rf"\b{handle}\b[,)]", role)  # to a function that acquires
            if not (acquires or lends):
                found.append(f"{handle}: tail in a role that does not acquire")
        barriers = r"sync_threads|arch\.barrier\("
        if re.search(barriers if shared else rf"{barriers}|cluster_arrive|cluster_wait", role):
            found.append("a barrier of the block or the cluster in a role")
    if shared and len({tuple(meetings(role)) for role in roles}) > 1:
        found.append("roles that do not meet as often")
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and "elect_one" in ast.unparse(node.items[0]):
            if "cute.copy(" in "\n".join(map(ast.unparse, node.body)):
                found.append("a copy in an elected region")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("CooperativeGroup"):
            if len(node.args) > 2 or node.keywords:
                found.append("CooperativeGroup with an alignment")
        elif isinstance(node, ast.ClassDef) and any(
            "Pipeline" in ast.unparse(b) for b in node.bases
        ):
            found.append("a class derived from a pipeline")
    if clustered(tree) and not meets_at_exit(kernel_of(tree), roles if shared else []):
        found.append("a cluster whose CTAs do not meet before they exit")
    return found


def clustered(tree):
    """Whether the module's cluster has several CTAs."""
    sizes = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = value.elts if isinstance(value, ast.Tuple) else [value]
            for name, each in zip(names, values, strict=False):
                if ast.unparse(name).startswith("CLUSTER_") and isinstance(each, ast.Constant):
                    sizes[ast.unparse(name)] = each.value
    return any(isinstance(size, int) and size > 1 for size in sizes.values())


def meetings(role):
    """The cluster-wide arrives and waits of a role, in the order of its text."""
    return re.findall(r"\bcluster_(arrive|wait)", role)


def meets_at_exit(kernel, roles):
    """Whether the kernel ends with a cluster-wide arrive, the last one of `roles` if any, and wait.

    `roles` are those that arrive by themselves, with other work before the wait that all have.
    """
    last = [ast.unparse(node).split("(")[0] for node in kernel.body[-2:]]
    if roles:
        arrived = all(meetings(role)[-1:] == ["arrive"] for role in roles)
        return arrived and last[1] == "cute.arch.cluster_wait"
    return last == ["cute.arch.cluster_arrive", "cute.arch.cluster_wait"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_an_emitted_kernel_has_none(path):
    assert faults(path.read_text(encoding="utf-8")) == []


def test_many_modules_are_clustered():
    """So that the check of their exit is not empty."""
    assert sum(clustered(ast.parse(path.read_text("utf-8"))) for path in MODULES) > 50


CONTROL = (ROOT / "generated" / "cute" / "gemm_sm90_c2x1.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("was", "becomes", "fault"),
    [
        ("epilogue.producer_tail()", "mainloop_producer.tail()", "tail in a role"),
        ("    cute.arch.cluster_wait()\n", "", "do not meet"),
        (
            "epilogue.producer_tail()",
            "epilogue.producer_tail()\n            cute.arch.sync_threads()",
            "in a role",
        ),
        ("pipeline.Agent.Thread, CONSUMER_THREADS)", "pipeline.Agent.Thread, 8, 8)", "alignment"),
        ("class SharedStorage:", "class SharedStorage(pipeline.PipelineTmaAsync):", "derived"),
    ],
)
def test_a_fault_is_seen(was, becomes, fault):
    assert was in CONTROL
    head, _, tail = CONTROL.rpartition(was)
    assert any(fault in each for each in faults(head + becomes + tail))


@pytest.mark.parametrize(
    ("was", "becomes", "fault"),
    [
        # The warps that load leave out one of the two meetings.
        (
            "        cute.arch.cluster_arrive_relaxed()\n        cute.arch.cluster_wait()\n",
            "",
            "as often",
        ),
        ("    cute.arch.cluster_wait()\n\n\n", "\n\n", "do not meet before"),
    ],
)
def test_a_fault_of_split_k_is_seen(was, becomes, fault):
    text = (ROOT / "generated" / "cute" / "gemm_sm90_split_k4.py").read_text(encoding="utf-8")
    assert was in text
    assert any(fault in each for each in faults(text.replace(was, becomes, 1)))


def test_an_elected_copy_is_seen():
    line = next(line for line in CONTROL.splitlines() if line.strip().startswith("cute.copy(tma"))
    space = line[: len(line) - len(line.lstrip())]
    elected = f"{space}with cute.arch.elect_one():\n{space}    {line.strip()}"
    assert faults(CONTROL.replace(line, elected)) == ["a copy in an elected region"]
