# SPDX-License-Identifier: Apache-2.0
"""Runs JAX's labelled race tests in pipegen's emulator, and compares what is found with the labels.

    python benchmarks/emulate_jax_races.py --jax CHECKOUT --json benchmarks/emulated_jax_races.json

JAX tests the race detection of its GPU interpreter with some hundred kernels, and says of each
whether it races. CHECKOUT is a clone of JAX (or a folder with its tests/pallas), of which nothing
is copied; jax is the one that is installed. The kernels are compiled by Mosaic GPU, which refuses
many that only the interpreter runs: those are counted, with its reason. How a test's file is run
without a change is in others/jax_races.py, and why the two disagree where they do in
others/jax_races_why.py. Needs no GPU.
"""

import argparse
import ast
import json
import os
import subprocess
import sys
import unittest
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]  # these belong to this checkout's pipegen

POLICIES = ("late", "random", "early")
# What a label is about. The rest of what the emulator finds says that a kernel is wrong, too, but
# not that it races.
RACES = {"race", "missing-proxy-fence", "tmem-load-not-waited", "store-pending-at-exit"}
Told = dict[str, Any]


class Watched:
    """Executes launches under several schedules, and keeps what was found.

    `aside`: that tensor memory is freed before a load from it has been waited for. The labels are
    about accesses of the kernel's body, and freeing is not in it.
    """

    def __init__(self, schedules: int) -> None:
        self.schedules = schedules
        self.launches = 0
        self.findings: dict[str, str] = {}
        self.aside: set[str] = set()

    def execute(self, launch: Any) -> None:
        """Of the emulator: each launch. A finding does not stop the test that is watched."""
        import ctypes

        from pipegen.emulator.finding_docs import code_of
        from pipegen.emulator.machine import run

        self.launches += 1
        before = [(b.address, ctypes.string_at(b.address, b.bytes)) for b in launch.buffers]
        for schedule in range(self.schedules):
            for address, raw in before:
                ctypes.memmove(address, raw, len(raw))
            result = run(launch, seed=schedule, late=POLICIES[schedule % 3])
            for finding in result.findings:
                code = f"{code_of(finding.kind)} {finding.kind}"
                if " frees TMEM column" in finding.message:
                    self.aside.add(code)
                else:
                    self.findings.setdefault(code, finding.message)

    def told(self) -> Told:
        found: Told = {"findings": sorted(self.findings)}
        return found | ({"freed_too_soon": sorted(self.aside)} if self.aside else {})


def run_case(run: Callable[[], bool | None], arch: str, schedules: int) -> Told:
    """One case: what its label is, what was found, and whether that agrees."""
    from pipegen.emulator.ptx.ir import PtxError
    from pipegen.emulator.session import capturing
    from pipegen.errors import InputError

    watched = Watched(schedules)
    session: Any = None
    try:
        with capturing(watched.execute, arch, dsl="pallas") as session:
            expected = run()
    except unittest.SkipTest as error:
        status = {"status": "no label" if watched.launches else "skipped", "said": str(error)}
        return {**status, **watched.told()}
    except AssertionError as error:
        return {"status": "wrong numbers", "said": _shortened(error), **watched.told()}
    except Exception as error:
        ours = (session and session._capture.take_error()) or error
        refused = watched.launches or isinstance(ours, PtxError | InputError)
        status = "not emulated" if refused else "not compiled"
        return {"status": status, "said": _shortened(ours)}
    if expected is None:
        return {"status": "no label", **watched.told()}
    return {"status": compare(expected, list(watched.findings)), "race": expected, **watched.told()}


def compare(expected: bool, findings: list[str]) -> str:
    """ "agrees", "other finding" (a race was expected, and the kernel is wrong in another way),
    "missed" or "false alarm"."""
    if not findings:
        return "missed" if expected else "agrees"
    if not expected:
        return "false alarm"
    kinds = {each.split()[1] for each in findings}
    return "agrees" if kinds & RACES else "other finding"


def _shortened(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) < 200 else text[:200] + "…"


def run_method(path: Path, test: str, schedules: int) -> list[Told]:
    """All cases of one test method, in this process."""
    from others import jax_races

    (file,) = (each for each in jax_races.FILES if each.name == path.name)
    os.environ["JAX_PLATFORMS"] = "cpu"
    answer = jax_races.Answer()
    module, compilable = jax_races.load(path, answer)
    found = []
    for case in jax_races.cases(module, test, answer):
        tried = []
        for compilable.widened in file.widened:
            tried.append(run_case(case.run, file.arch, schedules))
            if tried[-1]["status"] != "not compiled":
                break
        told = tried[0] if tried[-1]["status"] == "not compiled" else tried[-1]
        of = {"file": file.name, "test": test, "arch": file.arch}
        found.append({**of, "case": case.parameters, **told})
    return found


def methods(path: Path, having: str) -> list[str]:
    """The test methods of a file whose text has this, in order; nothing is imported."""
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    return [
        each.name
        for kind in tree.body
        if isinstance(kind, ast.ClassDef)
        for each in kind.body
        if isinstance(each, ast.FunctionDef) and each.name.startswith("test")
        if having in (ast.get_source_segment(text, each) or "")
    ]


def in_a_process(path: Path, test: str, arguments: argparse.Namespace) -> list[Told]:
    """A method's cases: Mosaic GPU keeps its architecture for as long as the process lives."""
    command = [sys.executable, __file__, "--file", str(path), "--test", test]
    command += ["--schedules", str(arguments.schedules)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=arguments.limit, check=False
        )
        told: list[Told] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        said = f"in {arguments.limit:.0f} s"
        return [{"file": path.name, "test": test, "status": "no end", "said": said}]
    except (IndexError, ValueError):
        said = " ".join(done.stderr[-300:].split())
        return [{"file": path.name, "test": test, "status": "no end", "said": said}]
    return told


def grouped(cases: list[Told]) -> list[Told]:
    """Cases of one test of which the same is told, as one entry with their parameters."""
    groups: dict[str, Told] = {}
    for each in cases:
        rest = {key: value for key, value in each.items() if key != "case"}
        group = groups.setdefault(json.dumps(rest, sort_keys=True), {**rest, "cases": []})
        group["cases"].append(each.get("case", ""))
    return list(groups.values())


def report(arguments: argparse.Namespace, cases: list[Told]) -> Told:
    """What is written: versions, how many of each status, and the cases."""
    from others.jax_races_why import why

    counts: dict[str, int] = {}
    for each in cases:
        counts[each["status"]] = counts.get(each["status"], 0) + 1
    results = grouped([each for each in cases if each["status"] != "skipped"])
    for each in results:
        if each["status"] in ("missed", "false alarm", "other finding"):
            each["why"] = why(each["test"], each["status"])
    return {
        "command": "python benchmarks/emulate_jax_races.py --jax CHECKOUT --json …",
        "date": datetime.now(UTC).date().isoformat(),
        "schedules": arguments.schedules,
        "jax": version("jax"),
        "tests of jax": arguments.commit,
        "counts": dict(sorted(counts.items())),
        "results": results,
    }


def main() -> int:
    from emulate_others import commit_of
    from others import jax_races

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jax", type=Path, help="a checkout of JAX")
    parser.add_argument("--commit", help="its commit, where it is no git repository")
    parser.add_argument("--only", default="", help="tests whose name has this")
    parser.add_argument("--schedules", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--limit", type=float, default=900, help="seconds a test may take")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--test", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.file is not None:
        print(json.dumps(run_method(arguments.file, arguments.test, arguments.schedules)))
        return 0
    if arguments.jax is None:
        parser.error("--jax CHECKOUT is missing: a clone of JAX, whose tests are run")
    arguments.commit = arguments.commit or commit_of(arguments.jax)
    wanted: list[tuple[Path, str]] = []
    for file in jax_races.FILES:
        path = arguments.jax / jax_races.TESTS / file.name
        if not path.is_file():
            parser.error(f"{path}: no such file; --jax must name a clone of JAX")
        tests = methods(path, file.having)
        wanted += [(path, test) for test in tests if arguments.only in test]
    cases: list[Told] = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for told in pool.map(lambda each: in_a_process(*each, arguments), wanted):
            cases += told
            for each in grouped(told):
                found = ", ".join(each.get("findings", [])) or each.get("said", "")
                print(each["status"], len(each["cases"]), each["test"], found, flush=True)
    made = report(arguments, cases)
    print(", ".join(f"{count} {status}" for status, count in made["counts"].items()))
    if arguments.json is not None:
        text = json.dumps(made, indent=1, ensure_ascii=False)
        arguments.json.write_text(text + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
