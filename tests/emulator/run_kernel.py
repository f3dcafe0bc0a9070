# SPDX-License-Identifier: Apache-2.0
"""Runs a generated kernel and its mutants, and prints what came out as JSON.

A process of its own for each architecture: the DSL reads its target when it is imported.
"""

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import mutants

from pipegen.emulator.emitted import EmittedModule
from pipegen.emulator.launch import Launch
from pipegen.emulator.machine import Limits, run
from pipegen.emulator.session import capturing

ROOT = Path(__file__).parent.parent.parent
POLICIES = ("late", "random", "early")
LIMITS = Limits(instructions=1_000_000)


def main(request: dict) -> dict:
    """`request`: name, arch, sizes, schedules, sync (how many without data), table (or "")."""
    told: dict = {
        "passed": [],
        "runs": [],
        "sync": [],
        "calls": [],
        "broken": {},
        "broken_sync": {},
        "messages": {},
    }
    table = getattr(mutants, request["table"]) if request["table"] else ()

    def execute(launch: Launch) -> None:
        seed = len(told["runs"])
        if seed + 1 == request["schedules"]:
            _break(launch, table, told)
            for n in range(request["sync"]):
                told["sync"].append(_as_json(run(launch, seed=n, sync_only=True)))
            if request["sync"]:
                told["calls"] = [_calls(launch, sync_only) for sync_only in (False, True)]
        # Last, so that the self-check sees what the unbroken kernel wrote.
        told["runs"].append(_as_json(run(launch, seed=seed, late=POLICIES[seed % 3])))

    with capturing(execute, arch=request["arch"], sms=2) as session:
        module = EmittedModule(ROOT / "generated" / "cute" / f"{request['name']}.py", session)
        for seed in range(request["schedules"]):
            told["passed"].append(module.check(request["sizes"], seed=seed).passed)
    return told


def _break(launch: Launch, table, told: dict) -> None:
    for mutant in table:
        broken = replace(launch, ptx=mutant.change(launch.ptx))
        result = run(broken, seed=1, late="random", limits=LIMITS)
        told["broken"][mutant.name] = sorted({finding.kind for finding in result.findings})
        told["messages"][mutant.name] = "\n".join(map(str, result.findings))
        result = run(broken, seed=1, late="random", limits=LIMITS, sync_only=True)
        told["broken_sync"][mutant.name] = sorted({finding.kind for finding in result.findings})


def _calls(launch: Launch, sync_only: bool) -> dict:
    """How often a run calls: all functions, and those of the shadow that works by granules."""
    run(launch, seed=0, sync_only=sync_only)  # translating is not counted, nor what is kept of it
    counts: Counter = Counter()

    def count(frame, event, _) -> None:
        if event in ("call", "c_call"):
            counts["all"] += 1
        if event == "call" and frame.f_code.co_filename.endswith("findings/shadow.py"):
            counts["by_granules"] += 1

    sys.setprofile(count)
    try:
        result = run(launch, seed=0, late="random", sync_only=sync_only)
    finally:
        sys.setprofile(None)
    instructions = sum(result.by_warp.values())
    return {"each": counts["all"] / instructions, "by_granules": counts["by_granules"]}


def _as_json(result) -> dict:
    return {"findings": list(map(str, result.findings)), "by_warp": list(result.by_warp.values())}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
