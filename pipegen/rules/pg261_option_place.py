# SPDX-License-Identifier: Apache-2.0
"""An option must stand where it means something.

What it checks
    try_ahead, defer_sync, expected_tx, advance_on_wait and lanes: in [pipeline.mainloop] only.
    warps: in [role.producer] only.

Why
    The options change how the mainloop's ring is filled and read. The other pipelines have no
    template that writes them: an epilogue of TMA stores, for one, has no barrier to ask. The model
    has the keys in every such table, so without this rule they would be ignored, silently.

Example
    [pipeline.epilogue] with try_ahead = true.

Use instead
    The same key in [pipeline.mainloop], or leave it out.
"""

from collections.abc import Iterator

from pipegen.description import KernelDescription
from pipegen.errors import Problem, toml_literal
from pipegen.vocabulary import OPTIONS

GENERAL = True


def check(description: KernelDescription) -> Iterator[Problem]:
    # Of a custom kernel each role has its own number of warps (rule PG273).
    sections = ("pipeline",) if description.kernel.op == "custom" else ("pipeline", "role")
    for section in sections:
        words = {key.rpartition(".")[2] for key in OPTIONS if key.startswith(f"{section}.")}
        for name, entry in getattr(description, section).items():
            for word in sorted(words):
                key = f"{section}.{name}.{word}"
                usual = type(entry).model_fields[word].default
                value = getattr(entry, word)
                if key not in OPTIONS and value != usual:
                    places = [each for each in OPTIONS if each.endswith(f".{word}")]
                    yield Problem(
                        f"no template has this option here, only as {places[0]}",
                        key,
                        value,
                        toml_literal(usual),
                        toml_literal(usual),
                    )
