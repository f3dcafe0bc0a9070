# SPDX-License-Identifier: Apache-2.0
"""Compiles modules in another environment: `python -m pipegen.compiling.elsewhere` is run there.

A request comes as JSON on standard input, one line of JSON a result goes to standard output. Needs
the standard library alone, since the environment has nothing else of what pipegen needs.
"""

import json
import signal
import sys
from pathlib import Path
from typing import Any

from pipegen.compiling.cache import CompileCache
from pipegen.compiling.installed import Dsl
from pipegen.compiling.module import Module
from pipegen.compiling.pool import compile_all
from pipegen.compiling.result import CompileResult


def main() -> None:
    """Read the request, compile, print the results."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    request: dict[str, Any] = json.load(sys.stdin)
    modules = [
        Module(Path(entry["path"]), entry["text"], entry["backend"], entry["arch"], True)
        for entry in request["modules"]
    ]
    numbers = {module.path: number for number, module in enumerate(modules)}

    def tell(module: Module, result: CompileResult) -> None:
        print(json.dumps({"number": numbers[module.path], **_as_sent(result)}), flush=True)

    folder = request["cache_folder"]
    compile_all(
        modules,
        CompileCache(Path(folder) if folder else None),
        request["jobs"],
        request["timeout"],
        tell,
        # Whether an old version can do it is the question.
        state=Dsl,
    )


def _as_sent(result: CompileResult) -> dict[str, Any]:
    return {"result": result.as_dict(), "cached": result.cached}


if __name__ == "__main__":
    main()
