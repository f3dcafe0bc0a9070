# SPDX-License-Identifier: Apache-2.0
"""What the installed CuTe DSL says: signatures, classes, and whether snippets compile.

Run by the tests in a process of its own, with CUTE_DSL_ARCH set. Reads a JSON object from standard
input: `calls` (module and dotted name) and `snippets` (name -> kernel body). Writes one to standard
output. Exit code 77: the DSL is not installed.
"""

import importlib
import inspect
import json
import sys
import tempfile
import textwrap
from pathlib import Path

MODULE = """
import cutlass
import cutlass.cute as cute
from cutlass import pipeline
from cutlass.cute.runtime import make_fake_stream


@cute.kernel
def kernel(tiles: cutlass.Int32):
    warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    smem = cutlass.memory.SmemAllocator()
    barriers = smem.allocate_array(cutlass.Int64, 32)
{body}


@cute.jit
def launch(tiles: cutlass.Int32, stream):
    kernel(tiles).launch(grid=(1, 1, 1), block=(256, 1, 1), stream=stream)


def compile_it():
    cute.compile(launch, cutlass.Int32(4), make_fake_stream())
"""


def signature(module: str, call: str) -> dict[str, bool]:
    """Parameter names of a call, and whether each is required."""
    function = importlib.import_module(module)
    for part in call.split("."):
        function = getattr(function, part)
    return {
        parameter.name: parameter.default is parameter.empty
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    }


def compile_snippet(number: int, body: str, folder: Path) -> str:
    """Empty if the kernel body compiles, else what the DSL says."""
    name = f"snippet_{number}"  # CuTe reads the source again, so it must be in a file
    text = MODULE.format(body=textwrap.indent(body, "    "))
    (folder / f"{name}.py").write_text(text, "utf-8")
    try:
        importlib.import_module(name).compile_it()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def pipeline_type(body: str) -> str:
    """The Task Scheduling type that a snippet's `config` has."""
    from cutlass import pipeline
    from cutlass.experimental.task_scheduling.resources import PipelineConfig

    names = {"pipeline": pipeline, "PipelineConfig": PipelineConfig}
    exec(body, names)
    return str(names["config"].pipeline_type.name)


def main() -> None:
    try:
        from cutlass import pipeline
        from cutlass.experimental.task_scheduling.enums import PipelineType
    except ImportError as error:
        print(error)
        sys.exit(77)
    request = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        compiled = {
            name: compile_snippet(number, body, Path(folder))
            for number, (name, body) in enumerate(request["snippets"].items())
        }
    answer = {
        "signatures": {f"{m}:{c}": signature(m, c) for m, c in request["calls"]},
        "compiled": compiled,
        "types": {name: pipeline_type(body) for name, body in request["configs"].items()},
        "classes": [
            name for name in pipeline.__all__ if hasattr(getattr(pipeline, name), "create")
        ],
        "all_types": [member.name for member in PipelineType],
    }
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
