# SPDX-License-Identifier: Apache-2.0
"""Renews what docs/custom.md shows of its listings: drawings, errors, and the picture beside it.

    python -m pipegen.custom_docs docs/custom.md [--check]

A text block right behind a listing is the graph as `pipegen plan` draws it, or the errors of a
description that cannot work. The picture is that of the last listing before it.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from pipegen.cli.plan import graph_numbers
from pipegen.description_file import parse_description
from pipegen.errors import InputError
from pipegen.planning import plan
from pipegen.planning.custom.draw import draw_text
from pipegen.planning.custom.picture import draw_svg

LISTING = re.compile(r"```toml\n(.*?)```\n(?:\n?```text\n(.*?)```\n)?", re.DOTALL)
PICTURE = re.compile(r"!\[[^\]]*\]\(([\w.]+\.svg)\)")


def shown(toml: str) -> str:
    """The graph of a description as text, or its errors as the command prints them."""
    try:
        numbers = graph_numbers(plan(parse_description(toml)))
    except InputError as error:
        return "".join(f"error: {problem.paragraph()}\n" for problem in error.problems)
    if numbers is None:
        raise ValueError("the page has a listing without a graph")
    return draw_text(numbers)


def renewed(page: str) -> str:
    """The page with the text block of every listing that has one."""

    def block(match: re.Match[str]) -> str:
        toml, text = match.groups()
        whole = match.group(0)
        return (
            whole if text is None else whole.replace(f"```text\n{text}", f"```text\n{shown(toml)}")
        )

    return LISTING.sub(block, page)


def pictures(page: str) -> dict[str, str]:
    """The pictures that the page shows, by file name."""
    found = {}
    for match in PICTURE.finditer(page):
        toml = LISTING.findall(page[: match.start()])[-1][0]
        numbers = graph_numbers(plan(parse_description(toml)))
        if numbers is not None:
            found[match.group(1)] = draw_svg(numbers, Path(match.group(1)).stem)
    return found


def main(arguments: Sequence[str]) -> int:
    """Write the page and its pictures; with --check, only say whether they are as they would be."""
    path = Path(arguments[0])
    page = path.read_text(encoding="utf-8")
    texts = {path: renewed(page)}
    texts |= {path.parent / name: text for name, text in pictures(page).items()}
    old = [p for p, text in texts.items() if not p.exists() or p.read_text("utf-8") != text]
    if "--check" in arguments:
        for each in old:
            print(f"{each}: not up to date; run `make docs`")
        return 1 if old else 0
    for each in old:
        each.write_text(texts[each], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
