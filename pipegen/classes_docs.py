# SPDX-License-Identifier: Apache-2.0
"""Writes a page for each class from the table: `python -m pipegen.classes_docs FOLDER [--check]`.

`--check` writes nothing: exit code 1 if a page differs from what would be written.
"""

import re
import sys
from pathlib import Path

from pipegen.explanations import ClassEntry, classes, emitted_examples
from pipegen.prose import sentence
from pipegen.protocols import Protocol
from pipegen.selection_table import Row

_NOTE = (
    "<!-- Written from pipegen/selection.toml and protocols.toml by `make docs`: edit there. -->"
)
_BACKENDS = {
    "cute": "CuTe DSL",
    "cute-ts": "CuTe DSL Task Scheduling",
    "pallas": "JAX Pallas (Mosaic GPU)",
}


def pages() -> dict[str, str]:
    """File name -> text of every page, the list of classes among them."""
    made = {page_name(entry): _page(entry) for entry in classes()}
    return {"README.md": _list(), **made}


def page_name(entry: ClassEntry) -> str:
    """The file of a class."""
    return re.sub(r"\W+", "_", entry.name) + ".md"


def _list() -> str:
    lines = [
        _NOTE, "", "# Classes", "",
        "A page for each class or construct of the selection table. `pipegen explain NAME` prints "
        "the same.", "",
        "| class | pairs | backend |", "| --- | --- | --- |",
    ]  # fmt: skip
    for entry in classes():
        backends = ", ".join(dict.fromkeys(_BACKENDS[row.backend] for row in entry.rows))
        lines.append(f"| [`{entry.name}`]({page_name(entry)}) | {entry.short} | {backends} |")
    return "\n".join(lines) + "\n"


def _page(entry: ClassEntry) -> str:
    parts = [f"{_NOTE}\n\n# {entry.name}\n"]
    if entry.protocol:
        parts.append(_protocol(entry.protocol))
    parts += [_row(row, len(entry.rows) > 1) for row in entry.rows]
    return "\n".join(parts)


def _protocol(protocol: Protocol) -> str:
    lines = [
        "## The states of a stage", "",
        f"- full barrier: {protocol.full}", f"- empty barrier: {protocol.empty}", "",
        "| stage | full | empty | until |", "| --- | --- | --- | --- |",
    ]  # fmt: skip
    lines += [f"| {s.stage} | {s.full} | {s.empty} | {s.until} |" for s in protocol.states]
    return "\n".join(lines) + "\n"


def _row(row: Row, several: bool) -> str:
    title = f"## {row.pair}" + (f" ({_BACKENDS[row.backend]})" if several else "")
    lines = [
        title, "", row.why, "",
        f"Architectures: {', '.join(row.archs)}. Used for: {sentence(row.operator)}", "",
        f"Called as `{row.module}.{row.call}`:", "",
        "| argument | must be given | rule |", "| --- | --- | --- |",
    ]  # fmt: skip
    for argument in row.arguments:
        rule = argument.rule.replace("|", "\\|")
        lines.append(f"| `{argument.name}` | {'yes' if argument.required else 'no'} | {rule} |")
    lines += ["", "Take care:", "", *(f"- {caution}" for caution in row.cautions)]
    lines += ["", "```python", row.example, "```"]
    examples = emitted_examples(row)
    if examples:
        links = ", ".join(f"[`{Path(path).name}`](../../{path})" for path in examples)
        lines += ["", f"Emitted kernels that use it: {links}."]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write the pages, or compare them; pages of classes that are gone count, too."""
    folder, *options = arguments
    place = Path(folder)
    made = pages()
    found = {path.name: path.read_text("utf-8") for path in sorted(place.glob("*.md"))}
    if "--check" in options:
        drift = sorted(n for n in {*made, *found} if made.get(n) != found.get(n))
        print("\n".join(f"{place / name}: run `make docs`" for name in drift))
        return 1 if drift else 0
    place.mkdir(parents=True, exist_ok=True)
    for name in found.keys() - made.keys():
        (place / name).unlink()
    for name, text in made.items():
        (place / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
