# SPDX-License-Identifier: Apache-2.0
"""The report of `check`: counts, wording, exit codes and each format, from made-up results."""

import json
from pathlib import Path

import pytest

from pipegen.compiling.freshness import Fresh
from pipegen.compiling.result import CompileResult, Kernel
from pipegen.errors import Problem
from pipegen.report import ModuleReport, Report, Skip, rich_table
from pipegen.report_formats import FORMATS

KERNEL = Kernel(
    "k_0",
    arch="sm_90a",
    registers=168,
    spill_stores=0,
    spill_loads=0,
    stack_bytes=0,
    smem_bytes=230400,
    smem_needed=230400,
    threads=384,
)
WELL = CompileResult("ok", kernels=(KERNEL,), seconds=2.345)
INJECTED = "(C7519) warpgroup.arrive is injected in around line 7 by compiler"


def module(fresh: str = "fresh", compiled: CompileResult | None = WELL) -> ModuleReport:
    message = "" if fresh == "fresh" else f"is {fresh}"
    return ModuleReport(
        Path("kernels/gemm.py"), "cute", "sm_90a", Fresh(fresh, message), compiled  # type: ignore[arg-type]
    )


def skip(required: bool) -> Skip:
    return Skip("pallas", 2, "jax is not installed", "pip install 'pipegen[pallas]'", required)


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (Report([module()]), 0),
        (Report([module("edited")]), 0),
        (Report([module("pristine")]), 0),
        (Report([module("stale")]), 1),
        (Report([module("missing", None)]), 1),
        (Report([module(compiled=CompileResult("spills", "spills"))]), 1),
        (Report([module(compiled=CompileResult("timeout", "hangs"))]), 1),
        (Report([module(compiled=CompileResult("ok", "a remark"))]), 0),
        (Report([module(compiled=CompileResult("ok", advisories=("(C7508) look",)))]), 0),
        (Report([module(compiled=CompileResult("skipped"))], [skip(False)]), 0),
        (Report([module(compiled=CompileResult("skipped"))], [skip(True)]), 1),
        (Report([module()], problems=[Problem("does not exist", file="x")]), 2),
        (Report([module("stale")], problems=[Problem("does not exist", file="x")]), 2),
    ],
)
def test_exit_code(report: Report, code: int) -> None:
    assert report.exit_code == code
    assert report.as_dict()["exit_code"] == code


@pytest.mark.parametrize(
    "status", ["error", "crash", "no-kernel", "wrong-arch", "serialized", "smem"]
)
def test_every_bad_ending_fails_the_run(status: str) -> None:
    report = Report([module(compiled=CompileResult(status, "why"))])  # type: ignore[arg-type]
    assert report.exit_code == 1
    (finding,) = report.findings()
    assert (finding.code, finding.level, finding.message) == (status, "error", "why")
    assert finding.title != status


def test_json_shape() -> None:
    data = json.loads(FORMATS["json"](Report([module()], [skip(False)])))
    assert data == {
        "modules": [
            {
                "path": "kernels/gemm.py",
                "backend": "cute",
                "arch": "sm_90a",
                "fresh": "fresh",
                "fresh_message": "",
                "edited": False,
                "compile": {
                    "status": "ok",
                    "registers": 168,
                    "spill_bytes": 0,
                    "stack_bytes": 0,
                    "smem_bytes": 230400,
                    "tmem_columns": None,
                    "seconds": 2.35,
                    "cached": False,
                    "kernels": [json.loads(json.dumps(KERNEL.as_dict()))],
                    "advisories": [],
                    "schedules": [],
                    "message": "",
                },
            }
        ],
        "counts": {
            "modules": 1,
            "failed": 0,
            "fresh": 1,
            "pristine": 0,
            "edited": 0,
            "stale": 0,
            "missing": 0,
            "orphan": 0,
            "conflicted": 0,
            "compiled": 1,
            "compile_failed": 0,
            "skipped": 0,
            "cached": 0,
        },
        "skips": [
            {
                "check": "pallas",
                "count": 2,
                "reason": "jax is not installed",
                "command": "pip install 'pipegen[pallas]'",
                "required": False,
            }
        ],
        "problems": [],
        "versions": [],
        "exit_code": 0,
    }


def test_counts_of_a_mixed_run() -> None:
    report = Report(
        [
            module(),
            module("edited", WELL.from_cache()),
            module("pristine"),
            module("stale", CompileResult("spills", "spills")),
            module("missing", None),
            module(compiled=CompileResult("skipped")),
        ],
        [skip(False)],
    )
    assert report.counts() == {
        "modules": 6,
        "failed": 2,
        "fresh": 2,
        "pristine": 1,
        "edited": 1,
        "stale": 1,
        "missing": 1,
        "orphan": 0,
        "conflicted": 0,
        "compiled": 3,
        "compile_failed": 1,
        "skipped": 1,
        "cached": 1,
    }
    assert report.summary() == (
        "6 modules: 3 compiled (1 from the cache), 2 fresh, 1 pristine, 1 edited, 1 stale, "
        "1 missing, 1 failed the compile check, 1 SKIPPED"
    )


def test_text_has_a_line_for_each_module_and_says_skips_aloud() -> None:
    stale = module("stale", CompileResult("skipped"))
    assert FORMATS["text"](Report([module(), stale], [skip(False)])).splitlines() == [
        "kernels/gemm.py  cute  sm_90a  fresh  ok       168 registers  0 B spilled  230400 B SMEM"
        "  2.3 s",
        "kernels/gemm.py  cute  sm_90a  stale  skipped",
        "error: kernels/gemm.py: stale: is stale",
        "skipped: 2 modules were not compiled (pallas): jax is not installed. To enable: "
        "pip install 'pipegen[pallas]'",
        "2 modules: 1 compiled, 1 fresh, 1 stale, 1 SKIPPED",
    ]


def test_notice_is_said_and_fails_nothing() -> None:
    fresh = Fresh("pristine", "a newer template exists", notice=True)
    report = Report([ModuleReport(Path("v.py"), "cute", "sm_90a", fresh, WELL)])
    assert report.exit_code == 0
    assert report.counts()["failed"] == 0
    assert "notice: v.py: pristine: a newer template exists\n" in FORMATS["text"](report)
    annotation = "::notice file=v.py,line=1,title=pristine::a newer template exists"
    assert FORMATS["github"](report).splitlines()[0] == annotation
    assert report.as_dict()["modules"][0]["fresh"] == "pristine"


def test_unknown_numbers_are_not_zero() -> None:
    unknown = CompileResult("ok", kernels=(Kernel("k_0"),))
    line = FORMATS["text"](Report([module(compiled=unknown)])).splitlines()[0]
    assert "? registers  ? B spilled  ? B SMEM" in line


def test_harmless_advisory_is_kept_out_of_the_text_but_in_the_json() -> None:
    report = Report([module(compiled=CompileResult("ok", advisories=(INJECTED, "(C7508) look")))])
    assert [finding.message for finding in report.findings()] == ["(C7508) look"]
    assert report.as_dict()["modules"][0]["compile"]["advisories"] == [INJECTED, "(C7508) look"]


def test_github_annotations_are_escaped() -> None:
    failed = CompileResult("error", "100% wrong:\nline two")
    report = Report(
        [ModuleReport(Path("a,b/c:d.py"), "cute", "sm_90a", None, failed)],
        [skip(False)],
        [Problem("does not exist", file="nowhere")],
    )
    assert FORMATS["github"](report).splitlines() == [
        "::error file=a%2Cb/c%3Ad.py,line=1,title=does not compile::100%25 wrong:%0Aline two",
        "::notice title=skipped::2 modules were not compiled (pallas): jax is not installed. "
        "To enable: pip install 'pipegen[pallas]'",
        "::error file=nowhere,line=1,title=wrong input::nowhere: does not exist.",
        "1 module: 0 compiled, 1 failed the compile check, 1 problem with the input",
    ]


def test_required_skip_is_an_error_in_each_format() -> None:
    report = Report([module(compiled=CompileResult("skipped"))], [skip(True)])
    assert "error: 2 modules were not compiled" in FORMATS["text"](report)
    assert "::error title=skipped::2 modules" in FORMATS["github"](report)
    assert json.loads(FORMATS["json"](report))["skips"][0]["required"] is True


def test_terminal_table_folds_long_paths_and_keeps_numbers() -> None:
    from rich.console import Console

    console = Console(width=100, file=None, record=True, force_terminal=False)
    long = ModuleReport(Path("kernels/" + "deep/" * 20 + "gemm.py"), "cute", "sm_90a", None, WELL)
    with console.capture() as captured:
        console.print(rich_table(Report([long])))
    text = captured.get()
    assert " 168 " in text
    assert " 230400 B " in text
    assert all(len(line) <= 100 for line in text.splitlines())


def test_result_survives_its_own_json() -> None:
    again = CompileResult.from_dict(json.loads(json.dumps(WELL.as_dict())))
    assert again.as_dict() == WELL.as_dict()
