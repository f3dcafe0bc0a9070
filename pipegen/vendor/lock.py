# SPDX-License-Identifier: Apache-2.0
"""The lock: what pipegen wrote last into each module of a project, and from what.

`pipegen.lock` holds digests. The pristine text itself, the base of a three-way merge, is kept
beside the module as `.base/NAME.py.txt`: not a .py file, so that no formatter or linter changes it.
Both belong into version control.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pipegen.errors import InputError, Problem
from pipegen.vendor.header import digest, read_header

VERSION = 1
BASE_FOLDER = ".base"
_HEAD = """\
# What `pipegen` wrote into each module, and from what. Commit it, and the .base folders with the
# pristine texts: `pipegen update` merges with them. Written by pipegen; no need to edit it.
"""


@dataclass(frozen=True)
class Entry:
    """One module. Digests are the first 12 hex digits of SHA-256; paths start at the project."""

    description: str
    description_digest: str
    template: str
    template_digest: str
    text_digest: str
    pipegen: str


@dataclass(frozen=True)
class Lock:
    """Module (as the project spells it) -> its entry."""

    entries: Mapping[str, Entry]


def entry_for(description: str, text: str, version: str) -> Entry:
    """The entry of a module whose pristine text is `text`. It must have pipegen's header."""
    header = read_header(text)
    if header is None:
        raise ValueError("a rendered module has a header")
    return Entry(
        description=description,
        description_digest=digest(header.description),
        template=header.template,
        template_digest=header.template_digest,
        text_digest=digest(text),
        pipegen=version,
    )


def base_path(module: Path) -> Path:
    """Where the pristine text of a module is kept."""
    return module.parent / BASE_FOLDER / f"{module.name}.txt"


def module_of(base: Path) -> Path:
    """The module that a pristine text belongs to."""
    return base.parent.parent / base.name.removesuffix(".txt")


def dump_lock(lock: Lock) -> str:
    """The lock as TOML: sorted, so that a merge of two branches touches few lines."""
    parts = [_HEAD + f"version = {VERSION}\n"]
    for path in sorted(lock.entries):
        fields = {"path": path, **asdict(lock.entries[path])}
        # A JSON string is a TOML basic string.
        lines = [
            f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()
        ]
        parts.append("\n[[file]]\n" + "\n".join(lines) + "\n")
    return "".join(parts)


def read_lock(path: Path) -> Lock:
    """The lock at `path`; an empty one if there is none. Raises InputError if it is broken."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return Lock({})
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(f"cannot be read: {error}", file=str(path))) from None
    try:
        return _parse(text)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            Problem(
                f"is no lock of pipegen ({error}); take the committed one back "
                f"(`git checkout -- {path.name}`), or remove it: `pipegen generate` writes it anew",
                file=str(path),
            )
        ) from None


def _parse(text: str) -> Lock:
    data = tomllib.loads(text)
    if data.get("version") != VERSION:
        raise ValueError(f"version {data.get('version')!r}, this pipegen reads {VERSION}")
    entries: dict[str, Entry] = {}
    for item in data.get("file", []):
        fields = dict(item)
        path = fields.pop("path")
        if not all(isinstance(value, str) for value in (path, *fields.values())):
            raise ValueError("an entry holds something else than text")
        entries[path] = Entry(**fields)
    return Lock(entries)


def read_base(module: Path, entry: Entry | None) -> str | None:
    """The pristine text of a module; None if it is not there or is not the lock's any more."""
    if entry is None:
        return None
    try:
        text = base_path(module).read_bytes().decode("utf-8").replace("\r\n", "\n")  # by git
    except (OSError, UnicodeDecodeError):
        return None
    return text if digest(text) == entry.text_digest else None
