# SPDX-License-Identifier: Apache-2.0
"""Verifies one emitted module in a process of its own: `python -m pipegen.emulator.worker FILE`.

The options follow as one JSON object: the fields of `How`, and `timeout` is the parent's. Prints
one line of JSON, marked, after whatever the module printed: the trials, or why there are none.
"""

import json
import sys
from pathlib import Path

from pipegen.description_file import parse_description
from pipegen.emulator.cases import verify_cases
from pipegen.emulator.verdict import MARK
from pipegen.errors import InputError
from pipegen.planning import plan
from pipegen.vendor.header import read_header


def main(file: str, options: str) -> None:
    """Print the marked line."""
    from pipegen.emulator.trying import How, try_module

    path = Path(file)
    answer: dict[str, object]
    try:
        header = read_header(path.read_text("utf-8"))
        if header is None:
            raise InputError(f"{path}: has no pipegen header, so nothing says which sizes to try")
        made = plan(parse_description(header.description, str(path)))
        how = How(**json.loads(options))
        trials = try_module(path, header.arch, verify_cases(made), how)
        answer = {"trials": [trial.as_dict() for trial in trials]}
    except InputError as error:
        answer = {"problem": "; ".join(p.paragraph() for p in error.problems)}
    print(f"\n{MARK}{json.dumps(answer)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
