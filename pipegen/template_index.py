# SPDX-License-Identifier: Apache-2.0
"""Which template writes which kernel. The key is (op, backend, arch, style)."""

from pathlib import Path

TEMPLATES: dict[tuple[str, str, str, str], str] = {
    ("gemm", "cute", "sm_90a", "participants"): "cute/gemm_sm90.py.j2",
    ("gemm", "cute", "sm_90a", "explicit-state"): "cute/gemm_sm90.py.j2",
    ("gemm", "pallas", "sm_90a", "warp-specialized"): "pallas/gemm_sm90_warp_specialized.py.j2",
    ("gemm", "pallas", "sm_90a", "emit-pipeline"): "pallas/gemm_sm90_emit_pipeline.py.j2",
}


def template_root() -> Path:
    """The folder of templates: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"
