# SPDX-License-Identifier: Apache-2.0
"""The same modules under other versions of the DSLs: file x version."""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipegen.compiling.advice import spill_advice
from pipegen.compiling.environments import Wanted, code_folder, environment
from pipegen.compiling.module import Module
from pipegen.compiling.result import CompileResult
from pipegen.errors import Problem


@dataclass(frozen=True)
class Column:
    """What became of the modules in one environment; those of another DSL are not in it."""

    name: str
    results: dict[Path, CompileResult]


def compile_under(
    wanted: Wanted,
    modules: Sequence[Module],
    cache_folder: Path | None,
    jobs: int,
    timeout: float,
    progress: Callable[[str, int, int], None],
) -> Column | Problem:
    """Compile the modules of the environment's DSLs in it; a Problem if it cannot be made.

    Without a cache folder the environment is thrown away afterwards.
    """
    served = [module for module in modules if module.dsl in wanted.dsls]
    if not served:
        return Column(wanted.name, {})
    progress(f"installing {wanted.name}", 0, len(served))
    if cache_folder is not None:
        python = environment(wanted, cache_folder / "environments")
        if isinstance(python, Problem):
            return python
        return _compile(wanted, python, served, cache_folder, jobs, timeout, progress)
    with tempfile.TemporaryDirectory(prefix="pipegen-environment-") as name:
        python = environment(wanted, Path(name))
        if isinstance(python, Problem):
            return python
        return _compile(wanted, python, served, None, jobs, timeout, progress)


def _compile(
    wanted: Wanted,
    python: Path,
    modules: Sequence[Module],
    cache_folder: Path | None,
    jobs: int,
    timeout: float,
    progress: Callable[[str, int, int], None],
) -> Column:
    request = {
        "modules": [
            {
                "path": str(module.path.resolve()),
                "text": module.text,
                "backend": module.backend,
                "arch": module.arch,
            }
            for module in modules
        ],
        "jobs": jobs,
        "timeout": timeout,
        "cache_folder": str(cache_folder) if cache_folder else None,
    }
    # Whatever else is on the path could hide the versions under test.
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    results: dict[Path, CompileResult] = {}
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
        subprocess.Popen(
            [str(python), "-m", "pipegen.compiling.elsewhere"],
            env=variables | {"PYTHONPATH": str(code_folder(python))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request))
            process.stdin.close()
            for line in process.stdout:
                sent = json.loads(line)
                module = modules[sent["number"]]
                result = CompileResult.from_dict(sent["result"])
                if result.status == "spills":
                    # Planning needs packages that the environment does not have.
                    told = f"{result.message}. {spill_advice(module.text)}"
                    result = replace(result, message=told)
                results[module.path] = result.from_cache() if sent["cached"] else result
                progress(f"{module.path.name} under {wanted.name}", len(results), len(modules))
            process.wait()
        except BaseException:
            process.terminate()  # it stops its compilers
            process.wait()
            raise
        errors.seek(0)
        said = errors.read().strip()
    for module in modules:
        if module.path not in results:
            message = f"could not be compiled there: {said.splitlines()[-1] if said else 'no word'}"
            results[module.path] = CompileResult("error", message)
    return Column(wanted.name, results)
