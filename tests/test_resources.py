# SPDX-License-Identifier: Apache-2.0
"""TMEM and spills in the report of `pipegen check`, and what it suggests against spills."""

import json
from pathlib import Path

import pytest
from sample_modules import pretender
from test_compiling import made, needs_pallas

from pipegen.compiling.advice import spill_advice
from pipegen.compiling.cubin import ptx_kernels
from pipegen.compiling.result import CompileResult, Kernel
from pipegen.compiling.worker import compile_module
from pipegen.report import ModuleReport, Report, as_text

ROOT = Path(__file__).parent.parent
ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], {columns};"
ENTRY = ".version 8.8\n.target sm_100a\n.visible .entry k_0(\n)\n{{\n{body}\nret; }}\n"
HEAD = '[kernel]\nop = "gemm"\nbackend = "{backend}"\narch = "sm_90a"\n'


@pytest.mark.parametrize(
    ("body", "columns"),
    [
        ("", 0),
        (ALLOC.format(columns=512), 512),
        ("mov.b32 %r24, 256;\n" + ALLOC.format(columns="%r24"), 256),
        (ALLOC.format(columns=256) + "\n" + ALLOC.format(columns=32), 288),
        # A number that only the running kernel knows.
        ("ld.param.u32 %r24, [p];\n" + ALLOC.format(columns="%r24"), None),
    ],
)
def test_tmem_is_read_from_the_ptx(body: str, columns: int | None) -> None:
    (kernel,) = ptx_kernels(ENTRY.format(body=body))
    assert kernel.tmem_columns == columns


def test_the_report_shows_tmem_where_there_is_some() -> None:
    def row(columns: int) -> str:
        kernel = Kernel("k", "sm_100a", 64, 0, 0, 0, 1024, tmem_columns=columns)
        result = CompileResult("ok", kernels=(kernel,))
        return as_text(Report([ModuleReport(Path("a.py"), "pallas", "sm_100a", None, result)]))

    assert "1024 B SMEM + 512 columns of TMEM" in row(512)
    assert "TMEM" not in row(0)
    kernel = Kernel("k", tmem_columns=512)
    result = CompileResult("ok", kernels=(kernel,))
    again = CompileResult.from_dict(json.loads(json.dumps(result.as_dict())))
    assert again.tmem_columns == result.as_dict()["tmem_columns"] == 512


@pytest.mark.parametrize(("each", "status"), [(256, "ok"), (512, "tmem")])
def test_more_tmem_than_there_is_would_wait_for_ever(
    tmp_path: Path, each: int, status: str
) -> None:
    """Two allocations: ptxas takes any, and the second waits for columns that never come."""
    text = pretender("sm_100a").replace("| sm_90a", "| sm_100a")
    twice = ALLOC.format(columns=each) * 2
    assert text.count("{ ret; }") == 1
    result = compile_module(made(tmp_path, text.replace("{ ret; }", f"{{ {twice} ret; }}")))
    assert result.status == status, result.message
    assert ("wait for ever" in result.message) == (status == "tmem")


def headed(description: str, backend: str = "pallas") -> str:
    """A module's header with a description."""
    zeros = "0" * 12
    lines = "".join(
        f"#   {line}\n" for line in (HEAD.format(backend=backend) + description).splitlines()
    )
    return (
        f"# pipegen: gemm | {backend} | sm_90a\n# template: none.py.j2 {zeros}\n# text: {zeros}\n"
        f"# description:\n{lines}"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            headed("[role.producer]\nregisters = 24\n"),
            ["role.producer.registers = 56 (memory_registers), now 24", "tile.n = 128, now 256"],
        ),
        (
            headed(""),
            ["role.producer.registers = 40 or 72 (memory_registers), now 56", "tile.n = 128"],
        ),
        (
            headed("[role.consumer]\nwarpgroups = 1\n"),
            ["role.consumer.warpgroups = 2, now 1: each holds 64 registers", "tile.n = 64"],
        ),
        (headed("", "cute"), ["tile.n = 128, now 256: the accumulator takes 128 registers"]),
        ("print(1)\n", ["a smaller tile, more warpgroups, or another split of the registers"]),
        (headed("[tile]\nm = [\n"), ["a smaller tile, more warpgroups"]),
    ],
)
def test_advice_names_keys_of_the_description(text: str, words: list[str]) -> None:
    advice = spill_advice(text)
    for each in words:
        assert each in advice
    if "emit" in text or "cute" in text:
        assert "memory_registers" not in advice


def test_one_stream_has_no_memory_warpgroup() -> None:
    advice = spill_advice(headed("").replace('"sm_90a"', '"sm_90a"\n#   style = "emit-pipeline"'))
    assert "memory_registers" not in advice
    assert "tile.n = 64, now 128" in advice


@needs_pallas
def test_a_description_that_spills_is_a_finding_with_advice(pipegen) -> None:
    """24 registers are too few for the memory warpgroup of a cluster; the advice is right."""
    text = HEAD.format(backend="pallas") + "[cluster]\nshape = [2, 1]\n[role.producer]\n"
    statuses = {}
    for registers in (24, 56):
        name = f"kernel_{registers}"
        Path(f"{name}.toml").write_text(f"pipegen = 1\n{text}registers = {registers}\n")
    assert pipegen("generate", ".").exit_code == 0
    done = pipegen("check", ".", "--format", "json", "--no-cache")
    assert done.exit_code == 1
    for entry in json.loads(done.stdout)["modules"]:
        statuses[Path(entry["path"]).stem] = entry["compile"]
    assert statuses["kernel_24"]["status"] == "spills"
    assert statuses["kernel_24"]["spill_bytes"] > 0
    assert "role.producer.registers = 56 (memory_registers)" in statuses["kernel_24"]["message"]
    assert statuses["kernel_56"]["status"] == "ok", statuses["kernel_56"]["message"]
