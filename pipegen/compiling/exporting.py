# SPDX-License-Identifier: Apache-2.0
"""Ahead of time: a CuTe module's kernel and launcher as an object file with a C header.

Compiled in a process of its own, by the DSL's `export_to_c`; no GPU is needed. The process is this
file, run with the module's path.
"""

import contextlib
import sys
import tempfile
import threading
from pathlib import Path

from pipegen.compiling.installed import dsl
from pipegen.compiling.module import Module
from pipegen.compiling.process import Outcome, run
from pipegen.compiling.result import CompileResult
from pipegen.compiling.worker import compile_environment, judged, last_lines
from pipegen.errors import InputError, Problem
from pipegen.vendor.header import read_header

_ELF = b"\x7fELF"


def export(module: Module, output: Path, timeout: float) -> tuple[Path, Path]:
    """Write NAME.o and NAME.h for the module into `output`; both are replaced whole.

    Raises InputError if the module cannot be exported.
    """
    if module.dsl != "cute":
        raise InputError(
            Problem(
                "is a Pallas module: jax.export keeps such a function, and this command is for "
                "modules in the CuTe DSL",
                file=str(module.path),
            )
        )
    if read_header(module.text) is None:
        raise InputError(Problem("has no pipegen header", file=str(module.path)))
    state = dsl("cute")
    if not state.usable:
        raise InputError(f"exporting needs the CuTe DSL: {state.reason}; {state.command}")
    name = module.path.stem
    _, outcome, contents = compile_object(module, timeout)
    if len(contents) < 2:
        why = "took too long" if outcome.returncode is None else "was not exported"
        raise InputError(Problem(f"{why}. {last_lines(outcome.output)}", file=str(module.path)))
    if not contents[0].startswith(_ELF):
        raise InputError(Problem("was exported as no object file", file=str(module.path)))
    targets = output / f"{name}.o", output / f"{name}.h"
    _write(output, dict(zip(targets, contents, strict=True)))
    return targets


def compile_object(
    module: Module, timeout: float, cancel: threading.Event | None = None
) -> tuple[CompileResult, Outcome, list[bytes]]:
    """Compile a CuTe module once: the verdict, the process' end, and the object and its header.

    The last is empty if there is none. Needs no GPU, and uses none.
    """
    name = module.path.stem
    with tempfile.TemporaryDirectory(prefix="pipegen-export-") as place:
        folder = Path(place)
        (folder / "dump").mkdir()
        (folder / "out").mkdir()
        outcome = run(
            [sys.executable, __file__, str(module.path.resolve()), str(folder / "out"), name],
            compile_environment(module, folder / "dump", folder),
            folder,
            timeout,
            cancel,
        )
        made = [folder / "out" / f"{name}{suffix}" for suffix in (".o", ".h")]
        whole = outcome.returncode == 0 and all(path.is_file() for path in made)
        contents = [path.read_bytes() for path in made] if whole else []
        return judged(module, outcome, folder / "dump", timeout), outcome, contents


def _write(folder: Path, files: dict[Path, bytes]) -> None:
    temporary: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, data in files.items():
            temporary.append(path.with_name(f".{path.name}.tmp"))
            temporary[-1].write_bytes(data)
        for path in files:
            path.with_name(f".{path.name}.tmp").replace(path)
    except OSError as error:
        for path in temporary:
            with contextlib.suppress(OSError):
                path.unlink()
        raise InputError(
            Problem(f"cannot be written: {error.strerror}", file=str(folder))
        ) from None


def _main(module_path: str, folder: str, name: str) -> None:
    """In the process: import the module, compile its launcher, and export it."""
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, module_path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    makers = [key for key in vars(module) if key.startswith("compile_")]
    if len(makers) != 1:
        sys.exit(f"{module_path} has {len(makers)} functions called compile_…, and should have one")
    compiled = getattr(module, makers[0])()
    compiled.export_to_c(folder, name, name)


if __name__ == "__main__":
    _main(*sys.argv[1:])
