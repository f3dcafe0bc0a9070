# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's CuTe DSL examples: which of their entry points are called, and with what.

Each is called as its file's own command line would do it, at a small size, and checks itself
against torch. Types are named; `arguments` turns the names into the DSL's.
"""

import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

EXAMPLES = Path("examples/python/CuTeDSL/cute")


@dataclass(frozen=True)
class Example:
    """`entry` of the file at `path` (under EXAMPLES), on an emulated GPU with `sms` SMs."""

    path: str
    arch: str
    entry: str
    arguments: dict[str, Any] = field(default_factory=dict)
    sms: int = 1
    label: str = ""

    @property
    def name(self) -> str:
        return f"{self.path.removesuffix('.py')}{f' ({self.label})' if self.label else ''}"

    @property
    def size(self) -> str:
        """The arguments that are sizes, for people."""
        sizes = {k: v for k, v in self.arguments.items() if not isinstance(v, str | bool | float)}
        return ", ".join(f"{key}={value}" for key, value in sizes.items())


def _gemm(mnkl: tuple[int, ...], ab: str = "Float16", out: str = "Float16", **more: Any) -> dict:
    return {
        "mnkl": mnkl,
        "ab_dtype": ab,
        "c_dtype": out,
        "acc_dtype": "Float32",
        "a_major": "k",
        "b_major": "k",
        "c_major": "n",
        **more,
    }


def _hopper(mnkl: tuple[int, ...], **more: Any) -> dict:
    found = _gemm(mnkl, **more)
    ab = found.pop("ab_dtype")
    return {"a_dtype": ab, "b_dtype": ab, **found}


def _blackwell_gemms() -> list[Example]:
    one = ("one CTA", (128, 128), (1, 1), False, False)
    pair_store = ("a pair, TMA store", (256, 128), (2, 1), True, True)
    multicast = ("pairs, multicast", (256, 128), (2, 2), True, True)
    found = []
    for name, forms in (
        ("dense_gemm", (one, pair_store)),
        ("dense_gemm_software_pipeline", (pair_store,)),
        ("dense_gemm_persistent", (one, pair_store, multicast)),
        ("dense_gemm_persistent_prefetch", (multicast,)),
        ("dense_gemm_persistent_dynamic", (one, multicast)),
    ):
        path = f"blackwell/kernel/dense_gemm/{name}.py"
        for label, tile, cluster, pair, tma in forms:
            size = (2 * tile[0] * cluster[0] // (2 if pair else 1), tile[1] * cluster[1], 320, 1)
            arguments = _gemm(
                size,
                mma_tiler_mn=tile,
                cluster_shape_mn=cluster,
                use_2cta_instrs=pair,
                use_tma_store=tma,
            )
            sms = cluster[0] * cluster[1]
            found.append(Example(path, "sm_100a", "run", arguments, sms, label))
    return found


def _hopper_gemms() -> list[Example]:
    found = []
    for name in ("dense_gemm", "dense_gemm_persistent"):
        path = f"hopper/kernel/dense_gemm/{name}.py"
        for cluster in ((1, 1), (2, 1), (2, 2)):
            size = (256 * cluster[0], 128 * cluster[1], 520, 1)
            arguments = _hopper(size, tile_shape_mn=(128, 128), cluster_shape_mn=cluster)
            arguments |= {"tolerance": 0.1, "warmup_iterations": 0, "iterations": 1}
            arguments |= {"skip_ref_check": False}
            label = f"clusters of {cluster[0]} x {cluster[1]}"
            found.append(Example(path, "sm_90a", "run", arguments, cluster[0] * cluster[1], label))
    fp8 = {"tile_shape_mn": (128, 128), "cluster_shape_mn": (1, 1)}
    path = "hopper/kernel/dense_gemm/dense_gemm_fp8_2xacc.py"
    found.append(
        Example(
            path,
            "sm_90a",
            "run",
            {"mnkl": (256, 128, 512, 1), "c_dtype": "BFloat16", "swizzle_size": 1}
            | {"raster_along_m": True, "mma_promotion_interval": 4}
            | {"scale_a_val": 1.0, "scale_b_val": 1.0, "tolerance": 0.1}
            | fp8,
        )
    )
    return found


def examples() -> list[Example]:
    """All that are tried."""
    tutorials = [
        Example(
            f"blackwell/tutorial/tutorial_gemm/fp16_gemm_{n}.py",
            "sm_100a",
            "run_dense_gemm",
            {"mnk": size, "tolerance": 0.1},
            sms,
        )
        for n, size, sms in (
            ("0", (128, 256, 384), 1),
            ("1", (256, 256, 384), 2),
            ("2", (256, 256, 384), 2),
            ("3", (512, 512, 384), 4),
            ("3_1", (512, 512, 384), 4),
            ("4", (512, 512, 384), 4),
            ("5", (512, 512, 384), 4),
        )
    ]
    copies = [
        Example(
            f"blackwell/tutorial/tutorial_tma/tma_v{n}.py",
            "sm_100a",
            "run_tma_copy" if n == 0 else "run_transpose",
            {"M": 256, "N": 256, "num_warmup": 1, "num_iters": 1}
            | ({"max_active_clusters": 1} if n == 2 else {}),
        )
        for n in range(3)
    ]
    others = [
        Example(
            "hopper/kernel/cta_norm/cta_norm.py",
            "sm_90a",
            "run_layernorm",
            {"M": 8, "N": 1024, "threads_per_cta": 128, "norm_type": kind, "dtype": "Float32"}
            | {"benchmark": False},
            4,
            kind,
        )
        for kind in ("layer", "rms")
    ] + [
        Example(
            "ampere/kernel/dense_gemm/tensorop_gemm.py",
            "sm_90a",
            "run",
            _gemm((256, 128, 192, 1), atom_layout_mnk=(2, 2, 1), tolerance=0.1),
            4,
        ),
        Example(
            "ampere/kernel/elementwise/elementwise_add.py",
            "sm_90a",
            "run_elementwise_add",
            {"M": 64, "N": 512, "dtype": "Float32"},
            4,
        ),
        Example(
            "hopper/kernel/attention/fmha.py",
            "sm_90a",
            "run",
            {"q_shape": (1, 128, 2, 64), "k_shape": (1, 192, 2, 64), "in_dtype": "Float16"}
            | {"out_dtype": "Float16", "qk_acc_dtype": "Float32", "pv_acc_dtype": "Float32"}
            | {"mma_tiler_mn": (64, 64), "is_persistent": False, "is_causal": False}
            | {"bottom_right_align": False, "scale_q": 1.0, "scale_k": 1.0, "scale_v": 1.0}
            | {"inv_scale_o": 1.0, "scale_softmax": 0.0, "window_size": (-1, -1)}
            | {"tolerance": 0.1, "warmup_iterations": 0, "iterations": 1}
            | {"skip_ref_check": False, "use_cold_l2": False},
            4,
        ),
    ]
    return [*_hopper_gemms(), *_blackwell_gemms(), *tutorials, *copies, *others]


def load(checkout: Path, path: str) -> ModuleType:
    """Import an example's file as it is."""
    file = checkout / EXAMPLES / path
    # Its directory, and the root from which examples import each other.
    sys.path[:0] = [str(file.parent), str(checkout / EXAMPLES.parent)]
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def arguments(example: Example) -> dict[str, Any]:
    """With the DSL's types in the place of their names."""
    import cutlass

    return {
        key: getattr(cutlass, value) if key.endswith("dtype") else value
        for key, value in example.arguments.items()
    }
