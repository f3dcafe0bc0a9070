# SPDX-License-Identifier: Apache-2.0
"""Which emitted Pallas modules which jax interprets, and the cases that the tests run."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipegen.description_file import load_description
from pipegen.planning import plan
from pipegen.selection_table import templates

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "generated" / "pallas").glob("*.py"))
# Other depths of the ring, for one module of each template.
DEPTHS = (2, 3)
# Of the kernels whose blocks take a few tiles: so many that the ring wraps around.
WRAPPING = {"TILES_PER_BLOCK": 16}
_RING = re.compile(r"^(?!EPI_)(\w*STAGES) = (\d+)", re.MULTILINE)


def beyond(path: Path, jax: tuple[int, ...]) -> str:
    """Why that version of jax has no interpreter for a module; empty if it has one."""
    description = plan(load_description(path.with_suffix(".toml"))).description
    text = path.read_text("utf-8")
    if description.cluster.cta_group == 2:
        return "no interpreter runs the MMAs of a CTA pair"
    if jax >= (0, 11):
        return ""
    if has_out_specs(path):
        return "jax 0.10 interprets no predicated store, which out_specs make"
    if "TMEM" in text:
        return "jax 0.10 interprets no TMEM"
    op = description.kernel.op
    if op == "mixed_gemm" or (op == "custom" and "plgpu.load(" in text):
        return "jax 0.10 interprets no plgpu.load"
    if max(description.cluster.shape or (1, 1)) > 1:
        return "jax 0.10 interprets no cluster barriers"
    if description.kernel.style == "pallas-call":
        return "jax 0.10 interprets no pallas_call with index maps"
    return ""


def has_out_specs(path: Path) -> bool:
    """Whether a module's pipeline writes back by itself: `--interpret` says SKIP then."""
    epilogue = load_description(path.with_suffix(".toml")).pipeline.get("epilogue")
    return bool(epilogue and epilogue.out_specs)


def is_example(path: Path) -> bool:
    """Whether a module is the one that its template names."""
    examples = {template.example for template in templates() if template.backend == "pallas"}
    return path.is_relative_to(ROOT) and str(path.relative_to(ROOT)) in examples


def cases(jax: tuple[int, ...], every: bool = True) -> Iterator[dict[str, Any]]:
    """Every module as it stands (or the example of each template); examples with other depths."""
    for path in MODULES:
        if beyond(path, jax) or not (every or is_example(path)):
            continue
        yield case(path)
        ring = _RING.search(path.read_text("utf-8"))
        if every and ring and is_example(path):
            for depth in DEPTHS:
                if depth != int(ring[2]):
                    yield case(path, {ring[1]: depth})


def case(path: Path, constants: dict[str, Any] | None = None) -> dict[str, Any]:
    """One module, with other values of some of its constants, and how it is run.

    A block of more tiles than stages fills each stage again: with fewer there is little to race.
    """
    wraps = {
        name: most for name, most in WRAPPING.items() if f"{name} = " in path.read_text("utf-8")
    }
    beside = path.with_suffix(".toml").is_file()
    through = "launch" if beside and has_out_specs(path) else "main"
    return {"module": str(path), "set": wraps | (constants or {}), "through": through}
