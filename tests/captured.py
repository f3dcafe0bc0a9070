# SPDX-License-Identifier: Apache-2.0
"""Captures the launches of emitted modules and prints them: `python captured.py ARCH FILE...`.

A process of its own for each architecture: the DSL reads its target when it is imported. Prints
JSON: for each file, what its self-check launches, and the arrays that it hands to its launcher.
"""

import json
import sys
from pathlib import Path

from pipegen.emulator.capture.capture import Capture
from pipegen.emulator.emitted import EmittedModule
from pipegen.emulator.session import captured_launches

SMS = 4
SIZES = {"m": 300, "n": 264, "k": 200}


def arrays_of(capture: Capture) -> dict[str, object]:
    """Name -> address, shape, strides in bytes and element type of what was lent."""
    return {
        name: {
            "address": tensor.data_ptr(),
            "shape": tensor.shape,
            "strides": tensor.stored.strides,
            "dtype": tensor.dtype.name,
            "width": tensor.element_size(),
        }
        for name, tensor in capture._lent.items()
    }


def main(arch: str, files: list[str]) -> None:
    found: dict[str, object] = {}
    with captured_launches(arch, sms=SMS) as session:
        capture = session._capture
        for file in files:
            lent: list[dict[str, object]] = []
            capture._execute = lambda launch, lent=lent: lent.append(arrays_of(capture))
            module = EmittedModule(Path(file), session)
            before = len(session.launches)
            checked = module.check([SIZES[name] for name in module.dimensions])
            found[file] = {
                "passed": checked.passed,
                "said": checked.said,
                "launches": [
                    {
                        "kernel": launch.kernel,
                        "grid": launch.grid,
                        "block": launch.block,
                        "cluster": launch.cluster,
                        "smem_bytes": launch.smem_bytes,
                        "params": [param.hex() for param in launch.params],
                        "buffers": [[b.name, b.address, b.bytes] for b in launch.buffers],
                        "sms": launch.sms,
                        "order": launch.order,
                        "source_lines": launch.ptx.count("\t.loc\t"),
                        "arrays": arrays,
                    }
                    for launch, arrays in zip(session.launches[before:], lent, strict=True)
                ],
            }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
