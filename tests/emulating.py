# SPDX-License-Identifier: Apache-2.0
"""Emulates emitted modules of one architecture, all in one process, which imports the DSL once.

    python tests/emulating.py FILE…

Prints a line of JSON for each: its file, whether all was right, and the kinds of its faults.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def emulate(folder: Path, modules: Mapping[str, str], *sizes: int) -> dict[str, dict[str, Any]]:
    """What the emulator says of each module, by its name; `modules` are their texts."""
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    files = [str(folder / f"{name}.py") for name in modules]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("CUTE_")}
    done = subprocess.run(
        [sys.executable, __file__, ",".join(map(str, sizes)), *files],
        capture_output=True, text=True, check=False, env=kept | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line[1:]) for line in done.stdout.splitlines() if line.startswith(">")]
    assert len(lines) == len(modules), done.stdout
    return dict(zip(modules, lines, strict=True))


def main(sizes: str, *files: str) -> None:
    from pipegen.cli.emulate import _case
    from pipegen.emulator.trying import How, try_module

    shape = tuple(int(size) for size in sizes.split(",") if size)
    for file in files:
        arch, case = _case(Path(file), shape, None)
        (trial,) = try_module(Path(file), arch, [case], How())
        said = {"ok": trial.ok, "faults": [fault.kind for fault in trial.faults]}
        print(">" + json.dumps({**said, "passed": trial.passed, "sizes": trial.sizes}))


if __name__ == "__main__":
    main(*sys.argv[1:])
