# SPDX-License-Identifier: Apache-2.0
"""Kernels of the quack-kernels wheel: how each is called, and what torch says it should give."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Call = Callable[[], list[tuple[Any, Any]]]  # pairs of (what came out, what is right)


@dataclass(frozen=True)
class QuackCase:
    """A kernel. `call` runs it, and gives what came out beside what torch computes."""

    name: str
    arch: str
    size: str
    call: Call
    sms: int = 4


def _rmsnorm(dtype: torch.dtype, columns: int) -> Call:
    def call() -> list[tuple[Any, Any]]:
        from quack.rmsnorm import rmsnorm_fwd

        x, weight = torch.randn(16, columns).to(dtype), torch.randn(columns)
        out, _, rstd = rmsnorm_fwd(x, weight, store_rstd=True)
        wide = x.float()
        right = torch.rsqrt(wide.pow(2).mean(-1) + 1e-6)
        return [(out, wide * right[:, None] * weight), (rstd, right)]

    return call


def _rmsnorm_backward() -> list[tuple[Any, Any]]:
    from quack.rmsnorm import rmsnorm_bwd

    x, weight = torch.randn(16, 512), torch.randn(512)
    gradient = torch.randn(16, 512)
    rstd = torch.rsqrt(x.pow(2).mean(-1) + 1e-6)
    found = rmsnorm_bwd(x, weight, gradient, rstd)
    leaf, scale = x.clone().requires_grad_(), weight.clone().requires_grad_()
    normed = leaf * torch.rsqrt(leaf.pow(2).mean(-1, keepdim=True) + 1e-6) * scale
    right = torch.autograd.grad(normed, (leaf, scale), gradient)
    return [(found[0], right[0]), (found[1], right[1])]


def _layernorm() -> list[tuple[Any, Any]]:
    from quack.rmsnorm import layernorm_fwd

    x, weight = torch.randn(16, 1024), torch.randn(1024)
    return [
        (layernorm_fwd(x, weight), torch.nn.functional.layer_norm(x, (1024,), weight, eps=1e-6))
    ]


def _softmax(columns: int) -> Call:
    def call() -> list[tuple[Any, Any]]:
        from quack.softmax import softmax_fwd

        x = torch.randn(16, columns)
        return [(softmax_fwd(x), torch.softmax(x, -1))]

    return call


def _softmax_backward() -> list[tuple[Any, Any]]:
    from quack.softmax import softmax_bwd

    y, gradient = torch.softmax(torch.randn(16, 512), -1), torch.randn(16, 512)
    right = y * (gradient - (gradient * y).sum(-1, keepdim=True))
    return [(softmax_bwd(gradient, y), right)]


def _cross_entropy(columns: int) -> Call:
    def call() -> list[tuple[Any, Any]]:
        from quack.cross_entropy import cross_entropy_fwd

        x, target = torch.randn(16, columns), torch.randint(0, columns, (16,))
        loss, lse = cross_entropy_fwd(x, target, return_lse=True)
        right = torch.nn.functional.cross_entropy(x, target, reduction="none")
        return [(loss, right), (lse, torch.logsumexp(x, -1))]

    return call


def _cross_entropy_backward() -> list[tuple[Any, Any]]:
    from quack.cross_entropy import cross_entropy_bwd

    x, target = torch.randn(16, 512), torch.randint(0, 512, (16,))
    gradient, lse = torch.randn(16), torch.logsumexp(x, -1)
    right = torch.softmax(x, -1)
    right[torch.arange(16), target] -= 1
    return [(cross_entropy_bwd(x, target, gradient, lse), right * gradient[:, None])]


def _topk() -> list[tuple[Any, Any]]:
    from quack.topk import topk_fwd

    x = torch.randn(16, 256)
    values, indices = topk_fwd(x, 16)
    right, _ = torch.topk(x, 16)
    return [(values, right), (torch.gather(x, 1, indices.long()), right)]


def _gemm(dtype: torch.dtype, mnk: tuple[int, int, int]) -> Call:
    def call() -> list[tuple[Any, Any]]:
        from quack.gemm_interface import gemm

        m, n, k = mnk
        a, b = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype).T
        return [(gemm(a, b, tuned=False), a.float() @ b.float())]

    return call


def _gemm_activation() -> list[tuple[Any, Any]]:
    from quack.gemm_interface import gemm_act

    a, b = torch.randn(256, 192).to(torch.bfloat16), torch.randn(256, 192).to(torch.bfloat16).T
    before, after = gemm_act(a, b, activation="relu", tuned=False)
    right = a.float() @ b.float()
    return [(before, right), (after, torch.relu(right))]


def _gemm_add() -> list[tuple[Any, Any]]:
    from quack.gemm_interface import gemm_add

    a, b = torch.randn(256, 192).to(torch.bfloat16), torch.randn(256, 192).to(torch.bfloat16).T
    c = torch.randn(256, 256).to(torch.bfloat16)
    return [(gemm_add(a, b, c, tuned=False), a.float() @ b.float() + c.float())]


def cases() -> list[QuackCase]:
    """All that are tried."""
    half, short = torch.bfloat16, torch.float32
    both: list[QuackCase] = []
    for arch in ("sm_90a", "sm_100a"):
        both += [
            QuackCase("gemm", arch, "m=256, n=256, k=192", _gemm(half, (256, 256, 192))),
            QuackCase("gemm, odd sizes", arch, "m=312, n=264, k=136", _gemm(half, (312, 264, 136))),
            QuackCase("gemm_act, relu", arch, "m=256, n=256, k=192", _gemm_activation),
            QuackCase("gemm_add", arch, "m=256, n=256, k=192", _gemm_add),
        ]
    return [
        QuackCase("rmsnorm_fwd", "sm_90a", "16 x 1024", _rmsnorm(short, 1024)),
        QuackCase("rmsnorm_fwd, bf16", "sm_90a", "16 x 1024", _rmsnorm(half, 1024)),
        QuackCase("rmsnorm_fwd, a cluster a row", "sm_90a", "16 x 32768", _rmsnorm(short, 32768)),
        QuackCase("rmsnorm_bwd", "sm_90a", "16 x 512", _rmsnorm_backward),
        QuackCase("layernorm_fwd", "sm_90a", "16 x 1024", _layernorm),
        QuackCase("softmax_fwd", "sm_90a", "16 x 1024", _softmax(1024)),
        QuackCase("softmax_fwd, a cluster a row", "sm_90a", "16 x 65536", _softmax(65536)),
        QuackCase("softmax_bwd", "sm_90a", "16 x 512", _softmax_backward),
        QuackCase("cross_entropy_fwd", "sm_90a", "16 x 1024", _cross_entropy(1024)),
        QuackCase(
            "cross_entropy_fwd, a cluster a row", "sm_90a", "16 x 65536", _cross_entropy(65536)
        ),
        QuackCase("cross_entropy_bwd", "sm_90a", "16 x 512", _cross_entropy_backward),
        QuackCase("topk_fwd", "sm_90a", "16 x 256", _topk),
        *both,
    ]
