# SPDX-License-Identifier: Apache-2.0
"""The report of `check` for programs: JSON, GitHub annotations, JUnit and SARIF.

A format is a function from a Report to text; each sees modules, findings, skips and problems, and
decides nothing. A new one is one more entry of FORMATS.
"""

import json
from collections.abc import Callable
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from pipegen.compiling.matrix import Column
from pipegen.compiling.result import CompileResult
from pipegen.emulator.verifying import Verified
from pipegen.report import Finding, ModuleReport, Report, as_text, title_of


def as_json(report: Report) -> str:
    """The report as one JSON object."""
    return json.dumps(report.as_dict(), indent=2) + "\n"


def as_github(report: Report) -> str:
    """Workflow commands, which GitHub shows beside the lines of a pull request."""
    lines = [
        _annotation(finding.level, finding.title, finding.message, str(finding.path))
        for finding in report.findings()
    ]
    for skip in report.skips:
        lines.append(
            _annotation("error" if skip.required else "notice", "skipped", skip.sentence())
        )
    for problem in report.problems:
        lines.append(_annotation("error", "wrong input", problem.paragraph(), problem.file))
    return "\n".join([*lines, report.summary()]) + "\n"


def as_junit(report: Report) -> str:
    """JUnit XML: a test suite of each module, a test case of each check.

    Warnings and notices do not fail a test; they are its output.
    """
    from xml.etree import ElementTree as ET

    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    root = ET.Element("testsuites", name="pipegen check")
    for module in report.modules:
        _suite(root, module, counts, {skip.check: skip.sentence() for skip in report.skips})
    for column in report.columns:
        _column(root, column, counts)
    if report.problems:
        suite = ET.SubElement(root, "testsuite", name="input")
        for problem in report.problems:
            counts["tests"] += 1
            counts["errors"] += 1
            case = ET.SubElement(
                suite, "testcase", classname="input", name=_xml(problem.file or "the call")
            )
            error = ET.SubElement(case, "error", message="wrong input", type="InputError")
            error.text = _xml(problem.paragraph())
        number = str(len(report.problems))
        suite.attrib.update(tests=number, failures="0", errors=number, skipped="0")
    root.attrib.update({key: str(value) for key, value in counts.items()})
    ET.indent(root)
    text: str = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _suite(root: Any, module: ModuleReport, counts: dict[str, int], skips: dict[str, str]) -> None:
    from xml.etree import ElementTree as ET

    path = str(module.path)
    suite = ET.SubElement(root, "testsuite", name=_xml(path))
    findings = list(module.findings())
    totals = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for check, result in module.checks.items():
        totals["tests"] += 1
        seconds = getattr(result, "seconds", 0.0)
        case = ET.SubElement(
            suite, "testcase", classname=_xml(path), name=check, file=_xml(path),
            time=f"{seconds:.3f}",
        )  # fmt: skip
        mine = [finding for finding in findings if finding.check == check]
        errors = [finding for finding in mine if finding.level == "error"]
        if errors:
            totals["failures"] += 1
            failure = ET.SubElement(
                case, "failure", message=_xml(errors[0].title), type=errors[0].code
            )
            failure.text = _xml("\n".join(finding.message for finding in errors))
        elif isinstance(result, CompileResult | Verified) and result.status == "skipped":
            totals["skipped"] += 1
            reason = result.message or "; ".join(skips.values())
            ET.SubElement(case, "skipped", message=_xml(reason))
        remarks = [f"{f.title}: {f.message}" for f in mine if f.level != "error"]
        if remarks:
            ET.SubElement(case, "system-out").text = _xml("\n".join(remarks))
    suite.attrib.update({key: str(value) for key, value in totals.items()})
    for key, value in totals.items():
        counts[key] += value


def _column(root: Any, column: Column, counts: dict[str, int]) -> None:
    """The modules under other versions of a DSL: a suite of the versions' name."""
    from xml.etree import ElementTree as ET

    failed = sum(result.failed for result in column.results.values())
    suite = ET.SubElement(
        root, "testsuite", name=_xml(column.name), tests=str(len(column.results)),
        failures=str(failed), errors="0", skipped="0",
    )  # fmt: skip
    counts["tests"] += len(column.results)
    counts["failures"] += failed
    for path, result in column.results.items():
        case = ET.SubElement(
            suite, "testcase", classname=_xml(column.name), name=_xml(str(path)),
            time=f"{result.seconds:.3f}",
        )  # fmt: skip
        if result.failed:
            failure = ET.SubElement(
                case, "failure", message=_xml(title_of(result.status)), type=result.status
            )
            failure.text = _xml(result.message)


def _xml(text: str) -> str:
    """The text without the characters that XML 1.0 cannot hold."""
    return "".join(
        c if c in "\t\n\r" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c > "\uffff"
        else "?"
        for c in text
    )  # fmt: skip


SARIF_VERSION = "2.1.0"
_SARIF_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_SARIF_LEVELS = {"error": "error", "warning": "warning", "notice": "note"}


def as_sarif(report: Report) -> str:
    """SARIF 2.1.0, for code scanning: one run, a rule for each kind of finding."""
    from pipegen import __version__

    findings = report.findings()
    codes = sorted({finding.code for finding in findings})
    rules = [
        {
            "id": code,
            "name": "".join(word.capitalize() for word in code.split("-")),
            "shortDescription": {"text": title_of(code)},
        }
        for code in codes
    ]
    notifications = [
        {
            "level": "error" if skip.required else "warning",
            "message": {"text": skip.sentence()},
        }
        for skip in report.skips
    ]
    for problem in report.problems:
        notification: dict[str, Any] = {
            "level": "error",
            "message": {"text": problem.paragraph()},
        }
        if problem.file:
            notification["locations"] = [_sarif_location(problem.file)]
        notifications.append(notification)
    run = {
        "tool": {
            "driver": {"name": "pipegen", "version": str(__version__), "rules": rules},
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not report.problems,
                "exitCode": report.exit_code,
                "toolExecutionNotifications": notifications,
            }
        ],
        "results": [_sarif_result(finding, codes.index(finding.code)) for finding in findings],
    }
    log = {"$schema": _SARIF_SCHEMA, "version": SARIF_VERSION, "runs": [run]}
    return json.dumps(log, indent=2) + "\n"


def _sarif_result(finding: Finding, rule: int) -> dict[str, Any]:
    return {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _SARIF_LEVELS[finding.level],
        "message": {"text": f"{finding.title}: {finding.message}"},
        "locations": [_sarif_location(str(finding.path))],
        # Stable over runs, so that a finding that stays is not reported as a new one.
        "partialFingerprints": {"pipegen/v1": f"{finding.check}:{finding.code}:{finding.path}"},
    }


def _sarif_location(path: str) -> dict[str, Any]:
    uri = quote(PurePath(path).as_posix())
    if PurePath(path).is_absolute():
        uri = f"file://{uri}"
    return {
        "physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}},
    }


FORMATS: dict[str, Callable[[Report], str]] = {
    "text": as_text,
    "json": as_json,
    "github": as_github,
    "junit": as_junit,
    "sarif": as_sarif,
}


def _annotation(level: str, title: str, message: str, path: str = "") -> str:
    """One workflow command. The values are escaped as GitHub's runner undoes it."""
    properties = {"file": path, "line": "1" if path else "", "title": title}
    written = ",".join(
        f"{key}={_escape(value, True)}" for key, value in properties.items() if value
    )
    return f"::{level} {written}::{_escape(message)}"


def _escape(text: str, is_property: bool = False) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if is_property else text
