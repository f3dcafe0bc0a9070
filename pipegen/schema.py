# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of a kernel description."""

from typing import Any

from pipegen.description import KernelDescription


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a description, for editors.

    Of op, backend, architecture and style it offers the words that some template takes.
    """
    from pipegen.description_file import usable_words

    schema = KernelDescription.model_json_schema()
    for key, entry in schema["$defs"]["Kernel"]["properties"].items():
        for choices in (entry, *entry.get("anyOf", ())):
            if "enum" in choices:
                usable = usable_words(f"kernel.{key}", choices["enum"])
                choices["enum"] = [word for word in choices["enum"] if word in usable]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "pipegen kernel description",
    }
