# SPDX-License-Identifier: Apache-2.0
"""Rewrites the golden files: `make golden`. Review the diff; CI never runs this."""

from pathlib import Path

from test_error_cases import CASES, paragraphs

from pipegen.files import write_files
from pipegen.generating import find_descriptions, generate_one

ROOT = Path(__file__).parent.parent


def main() -> None:
    for case in CASES:
        (case / "errors.txt").write_text(paragraphs(case), encoding="utf-8")
    for description in find_descriptions([ROOT / "generated"]):
        for path, text in generate_one(description).items():
            write_files(path.parent, {path.name: text})


if __name__ == "__main__":
    main()
