# SPDX-License-Identifier: Apache-2.0
"""The selection table as Markdown: the README's short table, and all of it for `docs/`.

`python -m pipegen.selection_docs README.md docs/selection.md` rewrites the table between the
markers of the first file and writes the second; `--check` changes nothing and fails on drift.
"""

import sys
from pathlib import Path

from pipegen.errors import InputError, Problem, listing
from pipegen.protocols import protocols
from pipegen.selection import Row, row_status, rows
from pipegen.vocabulary import ARCHS, BACKENDS

START = "<!-- selection table -->"
END = "<!-- /selection table -->"

TITLES = {
    "cute": "CuTe DSL (`cutlass.pipeline`)",
    "cute-ts": "CuTe DSL Task Scheduling (`cutlass.experimental.task_scheduling`)",
    "pallas": "JAX Pallas (Mosaic GPU)",
}
HEADINGS = ("producer", "consumer", "class", "architectures", "typical operator", "status")


def cells(row: Row, arch: str | None = None) -> tuple[str, ...]:
    """One row as plain text, in the order of `HEADINGS`."""
    archs = (arch,) if arch else row.archs
    if row.producer:
        also = f" (also {listing(row.also_consumer)})" if row.also_consumer else ""
        producer, consumer = row.producer, row.consumer + also
    else:
        producer, consumer = row.pair, ""
    ready = [place for place in archs if row_status(row, place) == "ready"]
    if not ready:
        status = "planned"
    elif len(ready) == len(archs):
        status = "ready"
    else:
        status = f"ready on {listing(ready)}"
    return producer, consumer, row.cls, listing(archs), row.operator, status


def table_markdown(backend: str | None = None, arch: str | None = None) -> str:
    """One table for each backend, ready for a README."""
    parts = []
    for name in (backend,) if backend else BACKENDS:
        lines = [
            f'**{TITLES[name]}**, `backend = "{name}"`',
            "",
            f"| {' | '.join(HEADINGS)} |",
            f"|{' --- |' * len(HEADINGS)}",
        ]
        for row in rows(name, arch):
            producer, consumer, cls, *rest = cells(row, arch)
            lines.append(f"| {' | '.join([producer, consumer, f'`{cls}`', *rest])} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def reference_markdown() -> str:
    """The whole table with reasons, arguments, cautions and examples, for `docs/selection.md`."""
    parts = [
        "<!-- Written by `python -m pipegen.selection_docs`; edit pipegen/selection.toml. -->",
        "# Which class for which pair",
        "Who fills a stage (the producer) and who empties it (the consumer) decide the class. "
        "`pipegen select PRODUCER CONSUMER` prints one entry of this page, or why there is none. "
        "*planned* means that no template emits the pair yet.",
        table_markdown().rstrip("\n"),
    ]
    for backend in BACKENDS:
        parts.append(f"## {TITLES[backend]}")
        parts += [_entry(row) for row in rows(backend)]
    return "\n\n".join(parts) + "\n"


def _entry(row: Row) -> str:
    lines = [f"### {row.pair}: `{row.cls}`", "", row.why, ""]
    lines.append(f"- Used for: {row.operator}")
    lines.append(f"- Architectures: {listing(row.archs)}")
    if row.backend == "pallas":
        lines.append(f"- Style: {listing(row.styles)}")
    status = [f"{place} {row_status(row, place)}" for place in ARCHS if place in row.archs]
    lines += [f"- Status: {listing(status)}", "", f"`{row.module}`, `{row.call}`:", ""]
    lines += ["| argument | value |", "| --- | --- |"]
    lines += [
        f"| `{argument.name}`{'' if argument.required else ' (optional)'} | {argument.rule} |"
        for argument in row.arguments
    ]
    protocol = protocols().get(row.cls)
    if protocol:
        lines += [
            "",
            f"Arrive counts: full barrier {protocol.full}; empty barrier {protocol.empty}.",
        ]
        lines += [
            "",
            "| stage | full barrier | empty barrier | until |",
            "| --- | --- | --- | --- |",
        ]
        lines += [f"| {s.stage} | {s.full} | {s.empty} | {s.until} |" for s in protocol.states]
    lines += ["", "Take care:", ""]
    lines += [f"- {caution}" for caution in row.cautions]
    lines += ["", "```python", row.example, "```"]
    return "\n".join(lines)


def update_between_markers(text: str, table: str, file: str = "README.md") -> str:
    """`text` with `table` between the two markers."""
    start, end = text.find(START), text.find(END)
    if start < 0 or end < start:
        raise InputError(
            Problem(
                f"the table's markers are missing; put {START} and {END} on lines of their own",
                file=file,
            )
        )
    return f"{text[: start + len(START)]}\n{table.rstrip()}\n{text[end:]}"


def find_drift(readme: Path, reference: Path) -> list[str]:
    """The files that no longer show the table as it is; empty if all is well."""
    wanted = {
        readme: update_between_markers(readme.read_text("utf-8"), table_markdown(), str(readme)),
        reference: reference_markdown(),
    }
    return [
        str(path)
        for path, text in wanted.items()
        if not path.is_file() or path.read_text("utf-8") != text
    ]


def write(readme: Path, reference: Path) -> None:
    """Bring both files up to date."""
    text = update_between_markers(readme.read_text("utf-8"), table_markdown(), str(readme))
    readme.write_text(text, "utf-8")
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(reference_markdown(), "utf-8")


def main(arguments: list[str]) -> int:
    """Write, or with `--check` only compare; the exit code is 1 on drift."""
    check = "--check" in arguments
    paths = [Path(argument) for argument in arguments if argument != "--check"]
    if len(paths) != 2:
        print("usage: python -m pipegen.selection_docs [--check] README.md docs/selection.md")
        return 2
    if not check:
        write(*paths)
        return 0
    drifted = find_drift(*paths)
    for path in drifted:
        print(f"{path}: the selection table has changed; run python -m pipegen.selection_docs")
    return 1 if drifted else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
