# SPDX-License-Identifier: Apache-2.0
"""Remembers results by what they depend on: texts and versions, never times or places.

One JSON file an entry. An entry that cannot be read is treated as absent and written anew; a
cache that cannot be written only costs time.
"""

import contextlib
import hashlib
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from pipegen.compiling.cubin import CUOBJDUMP_DISTRIBUTION, find_cuobjdump
from pipegen.compiling.installed import dsl, version_of
from pipegen.compiling.module import Module
from pipegen.compiling.result import CompileResult

_PACKAGE = Path(__file__).resolve().parent.parent


def default_folder() -> Path:
    """The user's cache folder (XDG), with pipegen's part of it."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The specification tells to ignore a relative path.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "pipegen"


class Cache:
    """Entries of one kind below a folder. With `folder` None nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(self, key: str) -> dict[str, Any] | None:
        """The entry, or None if there is none that can be read."""
        if self._folder is None:
            return None
        try:
            entry = json.loads(self._path(key).read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(entry, dict) or entry.get("key") != key:
            return None
        value = entry.get("value")
        return value if isinstance(value, dict) else None

    def put(self, key: str, value: dict[str, Any]) -> None:
        """Keep `value`. A reader sees the old entry or the new one, never half of one."""
        if self._folder is None:
            return
        path = self._path(key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    json.dump({"key": key, "value": value}, file)
                os.replace(name, path)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise

    def _path(self, key: str) -> Path:
        assert self._folder is not None
        return self._folder / key[:2] / f"{key}.json"


class CompileCache:
    """Compile results of modules."""

    def __init__(self, folder: Path | None) -> None:
        self._cache = Cache(folder / "compile" if folder else None)

    def get(self, module: Module) -> CompileResult | None:
        """The result of an earlier run with the same sources and the same compilers."""
        value = self._cache.get(compile_key(module))
        if value is None:
            return None
        try:
            return CompileResult.from_dict(value).from_cache()
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def put(self, module: Module, result: CompileResult) -> None:
        """Keep the result if the compiler came to its end."""
        if result.completed:
            self._cache.put(compile_key(module), result.as_dict())


def compile_key(module: Module) -> str:
    """Everything that decides how compiling a module ends.

    An emitted module imports its DSL and the standard library only; an owner may have added
    imports of files beside it, so these count, and theirs. What is imported by a name that is
    computed, or from elsewhere on the path, does not.
    """
    return key_of(
        module.text,
        *_imported(module),
        module.backend,
        module.arch,
        *(f"{name} {version}" for name, version in sorted(dsl(module.dsl).versions.items())),
        f"{CUOBJDUMP_DISTRIBUTION} {version_of(CUOBJDUMP_DISTRIBUTION)} {bool(find_cuobjdump())}",
        f"python {sys.version} {platform.machine()}",
        _sources(_PACKAGE, "compiling/*.py", "hardware.py"),
    )


def verify_key(module: Module, options: str) -> str:
    """Everything that decides what the emulator finds in a module: it, the sizes, the machine."""
    return key_of(
        compile_key(module), options, _sources(_PACKAGE, "**/*.py", "**/*.c", "**/*.toml")
    )


def _imported(module: Module) -> Iterable[str]:
    """Names and digests of the files beside a module that it imports, and that those import."""
    folder = module.path.parent
    done = {module.path}
    texts = [module.text]
    while texts:
        for name in sorted(_import_names(texts.pop())):
            for path in [folder / f"{name}.py", *sorted((folder / name).glob("**/*.py"))]:
                if path in done or not path.is_file():
                    continue
                done.add(path)
                try:
                    text = path.read_text("utf-8", "replace")
                except OSError:
                    text = ""
                yield path.relative_to(folder).as_posix()
                yield hashlib.sha256(text.encode()).hexdigest()
                texts.append(text)


# An import statement's beginning: at a line's start, or after a one-liner's colon or semicolon.
_IMPORT = re.compile(r"(?:^|[:;])[ \t\f]*(?:from\s+(\w+)|import\s+([^;#]*))")


def _import_names(text: str) -> set[str]:
    """The first parts of the names that the import statements of a source mention.

    Read line by line, which is ten times quicker than a syntax tree; lines of a docstring that look
    like imports count too, and a file that they name is one file too many in the key, no more.
    """
    names: set[str] = set()
    joined = text.removeprefix("\ufeff").replace("\\\n", " ")
    for line in joined.splitlines():
        if "import" not in line:
            continue
        for package, listed in _IMPORT.findall(line):
            names.update([package] if package else [])
            names.update(
                part.split(".")[0].split()[0] for part in listed.split(",") if part.strip()
            )
    return names


def render_key(description: Path, text: str, template_root: Path) -> str:
    """Everything that decides what a description's files look like."""
    return key_of(
        description.name,
        text,
        *(f"{name} {version_of(name)}" for name in ("black", "jinja2", "pydantic", "tomlkit")),
        f"python {sys.version}",
        _sources(_PACKAGE, "**/*.py", "**/*.toml"),
        _sources(template_root, "**/*"),
    )


def key_of(*parts: str) -> str:
    """One hex digest of several texts; no two lists of texts share one."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@cache
def _sources(folder: Path, *patterns: str) -> str:
    """A digest of the files under a folder, names and contents."""
    return key_of(*(item for pattern in patterns for item in _contents(folder, pattern)))


def _contents(folder: Path, pattern: str) -> Iterable[str]:
    for path in sorted(folder.glob(pattern)):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(folder).as_posix()
            yield hashlib.sha256(path.read_bytes()).hexdigest()
