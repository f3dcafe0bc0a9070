# SPDX-License-Identifier: Apache-2.0
"""What modules are compared with: each peer is a name, the packages it needs, and a file here.

This file imports none of them. A peer's own file has

    def entries(operator, operands_of, size) -> dict[str, Entry]

with an entry for each configuration ("" for a peer that has only one); the fastest counts, as a
user would choose it. Besides these names, `MODULE:FUNCTION` is a function of the user's own.
"""

import importlib
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pipegen.errors import InputError, Problem, listing, nearest_word

_OWN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Peer:
    """A peer: what it is, the ops it knows (none: all), what it needs, and its file here."""

    name: str
    title: str
    ops: tuple[str, ...]
    packages: tuple[str, ...]
    home: str


# What people call a peer, and what stands in the output.
PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(
            "cublas", "cuBLAS through torch: mm, for fp8 _scaled_mm, for integers _int_mm",
            ("gemm", "mixed_gemm"), ("torch",), "usual",
        ),
        Peer(
            "torch", "torch's own operation for the op: copy_, add, index_select, mm", (),
            ("torch",), "usual",
        ),
        Peer("jnp.dot", "jax.numpy.dot in jax.jit", ("gemm",), ("jax",), "jnp_dot"),
        Peer(
            "hopper_matmul_mgpu", "JAX's own Hopper GEMM, the best of several configurations",
            ("gemm",), ("jax",), "hopper_matmul",
        ),
        Peer(
            "quack", "quack.gemm_interface.gemm, tuned by itself", ("gemm",),
            ("quack-kernels", "torch"), "quack",
        ),
    )
}  # fmt: skip


def is_own(name: str) -> bool:
    """Whether the name is a function of the user's: `package.module:function`."""
    return _OWN.fullmatch(name) is not None


def check_peer(name: str, op: str) -> Problem | None:
    """Why `--against NAME` cannot be for modules of this op; None if it can."""
    if is_own(name):
        return None
    peer = PEERS.get(name)
    usable = [each.name for each in PEERS.values() if not each.ops or op in each.ops]
    allowed = f"{listing(usable)}, or MODULE:FUNCTION"
    if peer is None:
        return Problem("no such peer", "--against", name, allowed, nearest_word(name, list(PEERS)))
    if peer.ops and op not in peer.ops:
        return Problem(f"has nothing to compare a {op} with", "--against", name, allowed, usable[0])
    return None


def checked_peers(names: list[str], ops: set[str]) -> list[str]:
    """The names, each once. Raises InputError with every one that cannot be."""
    found = [check_peer(name, op) for name in dict.fromkeys(names) for op in sorted(ops)]
    problems = [problem for problem in found if problem is not None]
    if problems:
        raise InputError(problems)
    return list(dict.fromkeys(names))


def usual_peer(op: str) -> str:
    """The peer of an op where nobody names one."""
    return "cublas" if op in ("gemm", "mixed_gemm") else "torch"


def packages_of(name: str) -> tuple[str, ...]:
    """The packages that a peer needs; nobody knows those of the user's own function."""
    peer = PEERS.get(name)
    return peer.packages if peer else ()


def version_text(name: str) -> str:
    """The peer's packages with their versions, as the results name them."""
    texts = []
    for package in packages_of(name):
        try:
            texts.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            texts.append(f"{package} is not installed")
    return ", ".join(texts)


def load_entries(name: str) -> Any:
    """The `entries` function of a peer's file. Raises ImportError where a package is missing."""
    home = "own" if is_own(name) else PEERS[name].home
    return importlib.import_module(f"pipegen.measuring.peers.{home}").entries
