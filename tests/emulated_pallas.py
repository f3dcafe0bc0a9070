# SPDX-License-Identifier: Apache-2.0
"""Emulates Pallas modules in one process: `python emulated_pallas.py ARCH WANTED`.

A process of its own for each architecture: Mosaic GPU keeps its target. WANTED is JSON: for each
name a file, replacements of its text ([old, new], each once), and sizes, or none for the module's
own. Prints JSON: for each name the trial, or why there is none.
"""

import json
import sys
import tempfile
from pathlib import Path

from pipegen.description_file import parse_description
from pipegen.emulator.cases import Case, default_case
from pipegen.emulator.trying import How, try_module
from pipegen.errors import InputError
from pipegen.planning import plan
from pipegen.vendor.header import read_header

SMS = 2


def broken(file: Path, replacements: list[list[str]], folder: Path) -> Path:
    """The file, or a copy with its text changed in these places."""
    if not replacements:
        return file
    text = file.read_text("utf-8")
    for old, new in replacements:
        assert text.count(old) == 1, (file.name, old, text.count(old))
        text = text.replace(old, new)
    copy = folder / file.name
    copy.write_text(text, "utf-8")
    return copy


def emulated(arch: str, file: Path, sizes: dict[str, int]) -> dict[str, object]:
    """What came of one module."""
    if sizes:
        case = Case("asked for", sizes, SMS)
    else:
        header = read_header(file.read_text("utf-8"))
        case = default_case(plan(parse_description(header.description, file.name)))
    try:
        (trial,) = try_module(file, arch, [case], How())
    except InputError as error:
        return {"refused": str(error)}
    return trial.as_dict()


def main(arch: str, wanted: str) -> None:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (file, replacements, sizes) in json.loads(wanted).items():
            copy = broken(Path(file), replacements, Path(folder))
            found[name] = emulated(arch, copy, sizes)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
