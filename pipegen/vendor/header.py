# SPDX-License-Identifier: Apache-2.0
"""The comment block on top of an emitted file: where it came from, and whether it was edited.

The block holds the description (enough to write the file again), the template's digest, and a
digest of the file's own text as pipegen wrote it. A file whose text still has that digest is
pristine: it can be replaced without losing anybody's work.
"""

import hashlib
import re
from dataclasses import dataclass

DIGEST_LENGTH = 12
_UNSIGNED = "0" * DIGEST_LENGTH
_LINE = re.compile(
    r"^# pipegen: (?P<op>\w+) \| (?P<backend>[\w-]+) \| (?P<arch>\w+)\n"
    r"# template: (?P<template>\S+) (?P<template_digest>[0-9a-f]{12})\n"
    r"# text: (?P<text_digest>[0-9a-f]{12})$",
    re.MULTILINE,
)
_DESCRIPTION = re.compile(r"^# description:\n((?:#(?:   .*)?\n)*)", re.MULTILINE)
# The header stands on the first lines; a look-alike further down is somebody's text.
_SEARCHED = 8192


@dataclass(frozen=True)
class Header:
    """What the header of an emitted file says."""

    op: str
    backend: str
    arch: str
    template: str
    template_digest: str
    text_digest: str
    description: str


def digest(text: str) -> str:
    """The first 12 hex digits of the text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def header_lines(
    op: str, backend: str, arch: str, template: str, template_digest: str, tested: str, toml: str
) -> str:
    """The header as comment lines, not signed yet (see `sign`)."""
    description = "".join(f"#   {line}".rstrip() + "\n" for line in toml.strip().splitlines())
    return (
        "# SPDX-License-Identifier: Apache-2.0\n"
        f"# pipegen: {op} | {backend} | {arch}\n"
        f"# template: {template} {template_digest}\n"
        f"# text: {_UNSIGNED}\n"
        "# Yours to edit: `pipegen check` tells an edited file from a stale one, and keeps both.\n"
        f"# Checked with {tested}.\n"
        "# description:\n"
        f"{description}"
    )


def sign(text: str) -> str:
    """Put the digest of the whole text (with the digest's own place zeroed) into the header."""
    return text.replace(f"# text: {_UNSIGNED}\n", f"# text: {digest(text)}\n", 1)


def read_header(text: str) -> Header | None:
    """The header of an emitted file, or None if the text has none."""
    head = text[:_SEARCHED]
    match = _LINE.search(head)
    if match is None:
        return None
    found = _DESCRIPTION.search(head)
    lines = found[1].splitlines() if found else []
    description = "".join(line[4:] + "\n" for line in lines)
    return Header(description=description, **match.groupdict())


def is_pristine(text: str) -> bool:
    """Whether the text is exactly what pipegen wrote (its digest still fits)."""
    match = _LINE.search(text[:_SEARCHED])
    if match is None:
        return False
    start, end = match.span("text_digest")
    return digest(text[:start] + _UNSIGNED + text[end:]) == match["text_digest"]
