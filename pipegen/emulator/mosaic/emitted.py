# SPDX-License-Identifier: Apache-2.0
"""Runs the self-check of an emitted Pallas module in the emulator, as `python FILE --size` does.

The module is taken as it stands, edits included: its own `main` finds a GPU, fills the inputs,
calls its public function, and compares with its own float64 reference. Outputs are poisoned, and
memory that the kernel does not write stays NaN.
"""

import contextlib
import inspect
import io
from collections.abc import Sequence
from pathlib import Path

from pipegen.emulator.emitted import Checked, load_module
from pipegen.emulator.mosaic.hooks import own_errors
from pipegen.emulator.session import Session
from pipegen.errors import InputError


class PallasModule:
    """An emitted Pallas module, loaded for a session: its kernels are compiled and run in it."""

    def __init__(self, path: Path, session: Session) -> None:
        self._path = path
        self._session = session
        self._module = load_module(path)
        for name in ("main", "check"):
            if not callable(getattr(self._module, name, None)):
                raise InputError(
                    f"{path}: has no function `{name}`, which is how an emitted module is tried. "
                    "Name the function to run instead with --entry"
                )

    @property
    def dimensions(self) -> tuple[str, ...]:
        """What sizes `--size` must be told: ("m", "n", "k") for a GEMM."""
        parameters = list(inspect.signature(self._module.check).parameters.values())[1:]
        return tuple(p.name for p in parameters if p.default is inspect.Parameter.empty)

    def check(self, sizes: Sequence[int], seed: int = 0) -> Checked:
        """Run the self-check at these sizes; its inputs are the same for every seed.

        InputError for sizes that the module refuses.
        """
        wanted = self.dimensions
        if len(sizes) < len(wanted):
            raise InputError(
                f"{self._path}: --shape has {len(sizes)} sizes, and `check` wants "
                f"{', '.join(wanted)}"
            )
        said, complained = io.StringIO(), io.StringIO()
        given = ["--size", ",".join(map(str, sizes))]
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
            try:
                with own_errors(self._session._capture):
                    code = self._module.main(given)
            except SystemExit as error:
                why = complained.getvalue().strip().splitlines() or ["it gave no reason"]
                raise InputError(
                    f"{self._path}: {' '.join(given)} is refused: {why[-1]}"
                ) from error
            except (TypeError, ValueError) as error:
                if isinstance(error, InputError):
                    raise
                raise InputError(f"{self._path}: {error}") from error
        return Checked(code == 0, said.getvalue().strip())
