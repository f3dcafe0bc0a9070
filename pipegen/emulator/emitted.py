# SPDX-License-Identifier: Apache-2.0
"""Runs the self-check of an emitted CuTe module in the emulator.

The module is taken as it stands, edits included: its own `check` fills the inputs, poisons the
outputs, calls its public function, and compares with its own float64 reference. All that is
replaced is what it gets as `torch`.
"""

import contextlib
import functools
import importlib.util
import inspect
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from pipegen.emulator.session import Session
from pipegen.emulator.tensors import Tensor, TorchLike
from pipegen.errors import InputError


@dataclass(frozen=True)
class Checked:
    """The verdict of one self-check, and what it printed."""

    passed: bool
    said: str


class EmittedModule:
    """An emitted module, loaded for a session: its kernels are compiled and launched in it."""

    def __init__(self, path: Path, session: Session) -> None:
        self._path = path
        self._session = session
        self._module = load_module(path)
        if not callable(getattr(self._module, "check", None)):
            raise InputError(
                f"{path}: has no function `check`, which is how an emitted module is tried. Name "
                "the function to run instead with --entry"
            )
        _name_arrays(self._module, session)

    @property
    def dimensions(self) -> tuple[str, ...]:
        """What sizes `check` must be told: ("m", "n", "k") for a GEMM."""
        parameters = list(inspect.signature(self._module.check).parameters.values())[1:]
        return tuple(p.name for p in parameters if p.default is inspect.Parameter.empty)

    def check(self, sizes: Sequence[int], seed: int = 0) -> Checked:
        """Run the self-check at these sizes; the module's ValueError is the user's InputError."""
        wanted = self.dimensions
        if len(sizes) < len(wanted):
            raise InputError(
                f"{self._path}: --shape has {len(sizes)} sizes, and `check` wants "
                f"{', '.join(wanted)}"
            )
        torch = TorchLike(self._session.device.ordinal, seed)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            try:
                passed = self._module.check(torch, *sizes)
            except ValueError as error:
                if isinstance(error, InputError):
                    raise
                raise InputError(f"{self._path}: {error}") from error
        return Checked(bool(passed), said.getvalue().strip())


def load_module(path: Path) -> ModuleType:
    """Import a file under a name of its own. What it raises is the caller's to report."""
    name = f"pipegen_emulated_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with _beside(path):
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[None]:
    """Let the file import what lies beside it, as it can when it is run."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def _name_arrays(module: ModuleType, session: Session) -> None:
    """Make the module's launchers say which tensors they got, by the names of their parameters.

    A launcher hands bare addresses on; without this no kernel could be told which memory is its.
    """
    for name, function in list(vars(module).items()):
        if isinstance(function, FunctionType) and function.__module__ == module.__name__:
            parameters = inspect.signature(function).parameters
            if "stream" in parameters and name != "launch":
                setattr(module, name, _named(function, session))


def _named(function: Callable[..., Any], session: Session) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        arrays = {name: value for name, value in given.items() if isinstance(value, Tensor)}
        with session.lending(arrays):
            return function(*args, **kwargs)

    return called
