# SPDX-License-Identifier: Apache-2.0
"""Writes the description's reference: `python -m pipegen.description_docs FILE [--check]`."""

import json
import sys
from pathlib import Path
from typing import Any

from pipegen.schema import json_schema

_INTRODUCTION = """\
<!-- Written from pipegen/description.py by `make docs`: edit there. -->

# The description

A TOML file with these tables. Everything but `op`, `backend` and `arch` has a default, and
`pipegen plan FILE` shows what each default became. `pipegen schema` prints the same as a JSON
Schema, for editors. What goes together is for the rules: see [rules.md](rules.md).

```toml
pipegen = 1

[kernel]
op = "gemm"
backend = "cute"
arch = "sm_90a"
```
"""


def description_markdown() -> str:
    """The whole page."""
    schema = json_schema()
    parts = [_INTRODUCTION]
    for key, entry in schema["properties"].items():
        named = _table_of(entry, schema)
        if named is None:
            parts.append(f"## `{key}`\n\n{entry['description']} {_values(entry, schema)}\n")
            continue
        table, several = named
        title = f"[{key}.NAME]" if several else f"[{key}]"
        about = table.get("description", "").split("\n")[0].partition(": ")[2]
        about = about[:1].upper() + about[1:]
        parts.append(f"## `{title}`\n\n{about}\n\n{_keys(table, schema)}")
    return "\n".join(parts)


def _table_of(entry: dict[str, Any], schema: dict[str, Any]) -> tuple[dict[str, Any], bool] | None:
    """The table behind a top-level key, and whether there is one for each name; None: a value."""
    further = entry.get("additionalProperties")
    if isinstance(further, dict) and "$ref" in further:
        return _resolved(further, schema), True
    if "$ref" in entry:
        return _resolved(entry, schema), False
    return None


def _resolved(entry: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema["$defs"][entry["$ref"].rsplit("/", 1)[-1]]
    return found


def _keys(table: dict[str, Any], schema: dict[str, Any]) -> str:
    lines = ["| key | values | default | |", "| --- | --- | --- | --- |"]
    required = table.get("required", [])
    for key, entry in table["properties"].items():
        default = "required" if key in required else _default(entry)
        about = entry.get("description", "").replace("|", "\\|")
        lines.append(f"| `{key}` | {_values(entry, schema)} | {default} | {about} |")
    return "\n".join(lines) + "\n"


def _default(entry: dict[str, Any]) -> str:
    value = entry.get("default")
    return "derived" if value is None else f"`{json.dumps(value)}`"


def _values(entry: dict[str, Any], schema: dict[str, Any]) -> str:
    """What a value may be, in words."""
    if "$ref" in entry:
        return _values(_resolved(entry, schema), schema)
    if "anyOf" in entry:
        words = [_values(e, schema) for e in entry["anyOf"] if e.get("type") != "null"]
        return " or ".join(dict.fromkeys(words))
    if "enum" in entry:
        return ", ".join(f"`{json.dumps(word)}`" for word in entry["enum"])
    if "const" in entry:
        return f"`{json.dumps(entry['const'])}`"
    if entry["type"] == "array":
        pair = len(entry.get("prefixItems", [])) == 2
        return "a list of two whole numbers" if pair else "a list of whole numbers"
    kinds = {
        "integer": "a whole number",
        "number": "a number",
        "string": "text",
        "boolean": "`true`, `false`",
    }
    return kinds[entry["type"]]


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is what would be written."""
    file, *options = arguments
    made = description_markdown()
    if "--check" in options:
        return int(Path(file).read_text("utf-8") != made)
    Path(file).write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
