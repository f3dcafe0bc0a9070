# SPDX-License-Identifier: Apache-2.0
"""Reads and writes description files; turns every fault into a `Problem`, all of a file at once."""

import math
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from pipegen.description import KernelDescription
from pipegen.errors import InputError, Problem, listing, nearest_number, nearest_word
from pipegen.vocabulary import WORD_OF

# A description is a few hundred bytes; anything near this size is some other file.
MAX_BYTES = 1_000_000
# [pipeline.NAME] KEY is the deepest place of the format.
MAX_DEPTH = 20

_PAIR = "an array of two whole numbers"
_WHOLE = "a whole number of at most 2147483647"
_TRUTH = "true, false"
_TYPE_WORDS = {
    "less_than_equal": _WHOLE,
    "greater_than_equal": "a whole number of at least -2147483648",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": _TRUTH,
    "string_type": "a string",
    "string_unicode": "a string of Unicode characters",
    "tuple_type": _PAIR,
    "model_type": "a table",
    "dict_type": "a table",
    "too_short": _PAIR,
    "too_long": _PAIR,
    "missing_tuple": _PAIR,
}


def read_text(path: Path) -> str:
    """The file's text. Raises InputError if it cannot be read, is empty, huge, or not UTF-8."""
    try:
        status = path.stat()
        size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise InputError(Problem(f"is {kind}; a description is a TOML file", file=str(path)))
        if path.suffix == ".py":
            raise InputError(
                Problem(
                    f"is a module; its description is {path.with_suffix('.toml').name}",
                    file=str(path),
                    allowed="a TOML file",
                    nearest=path.with_suffix(".toml").name,
                )
            )
        if size > MAX_BYTES:
            raise InputError(
                Problem(
                    f"is {size:,} bytes; a description is a few hundred bytes",
                    file=str(path),
                    allowed=f"at most {MAX_BYTES:,} bytes",
                )
            )
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(
            Problem(f"cannot be read: {error.strerror or error}", file=str(path))
        ) from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError(
            Problem(
                f"is not UTF-8: byte 0x{raw[error.start]:02x} on line {line}. TOML files are UTF-8",
                file=str(path),
            )
        ) from None
    if not text.strip():
        raise InputError(
            Problem(
                "is empty. The shortest description is a [kernel] table with op, backend and arch",
                file=str(path),
            )
        )
    return text


def parse_description(text: str, file: str = "") -> KernelDescription:
    """The model of a TOML text. Raises InputError with every structural and semantic problem."""
    return description_from_data(_data_of(text, file), file)


def _data_of(text: str, file: str) -> dict[str, Any]:
    """The tables of a TOML text. Raises InputError if it is none."""
    try:
        data = tomllib.loads(text)
        if _depth(data) > MAX_DEPTH:
            raise RecursionError
    except tomllib.TOMLDecodeError as error:
        raise InputError(Problem(f"is not TOML: {error}", file=file)) from None
    except ValueError as error:
        # Python refuses to convert very long numbers.
        raise InputError(Problem(f"is not TOML that we can read: {error}", file=file)) from None
    except RecursionError:
        raise InputError(
            Problem("is not TOML that we can read: nested too deep", file=file)
        ) from None
    return data


def _depth(data: Any) -> int:
    """How deep tables and arrays are nested; counted without recursion."""
    depth, level = 0, [data]
    while level:
        depth += 1
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


def description_from_data(data: Mapping[str, Any], file: str = "") -> KernelDescription:
    """The model of nested plain data (a parsed file, or the options of a command).

    Raises InputError with every problem: those of structure, and, for the keys that are sound,
    those that the rules find.
    """
    from pipegen.rules import find_problems

    try:
        description = KernelDescription.model_validate(data)
    except ValidationError as error:
        structural = problems_of(error, data, file)
        found = list(structural)
        salvaged = _without(data, [entry["loc"] for entry in error.errors()])
        try:
            partial = KernelDescription.model_validate(salvaged)
        except ValidationError:
            raise InputError(found) from None
        broken = frozenset(problem.key for problem in structural)
        found += find_problems(partial, file, broken)
        raise InputError(found) from None
    problems = find_problems(description, file)
    if problems:
        raise InputError(problems)
    return description


def load_description(path: Path | str) -> KernelDescription:
    """Read one description file; a missing `kernel.name` becomes the file's stem.

    Raises InputError with every problem of the file.
    """
    path = Path(path)
    data = _data_of(read_text(path), str(path))
    kernel = data.get("kernel")
    if isinstance(kernel, dict):
        kernel.setdefault("name", path.stem)
    return description_from_data(data, str(path))


def dump_description(description: KernelDescription) -> str:
    """The description as TOML: the keys that were given, no others."""
    import tomlkit

    data = description.model_dump(exclude_unset=True, exclude_none=True)
    document = tomlkit.document()
    document.add("pipegen", data.pop("pipegen", description.pipegen))
    for section, values in data.items():
        if not values:
            continue
        nested = isinstance(next(iter(values.values())), dict)
        table = tomlkit.table(is_super_table=nested)
        for key, value in values.items():
            if isinstance(value, dict):
                inner = tomlkit.table()
                inner.update(_plain(value))
                table.add(key, inner)
            else:
                table.add(key, _plain(value))
        document.add(section, table)
    return tomlkit.dumps(document).strip() + "\n"


def problems_of(error: ValidationError, data: Mapping[str, Any], file: str = "") -> list[Problem]:
    """Each fault that pydantic found as a `Problem`; the branches of one union become one."""
    merged: dict[str, list[Any]] = {}
    for entry in error.errors():
        found: dict[str, Any] = dict(entry)
        if any(isinstance(part, int) for part in entry["loc"]):
            # An element of an array: the fault is the array's.
            found["type"] = "tuple_type"
            value: Any = data
            for part in _key(entry["loc"]).split("."):
                value = value[part]
            found["input"] = value
        merged.setdefault(_key(entry["loc"]), []).append(found)
    return [_problem(key, entries, file) for key, entries in merged.items()]


def _problem(key: str, entries: list[Any], file: str) -> Problem:
    entry = entries[0]
    kind, value = entry["type"], entry["input"]
    section, _, leaf = key.rpartition(".")
    if kind == "extra_forbidden":
        allowed = list(_model_at(section).model_fields)
        nearest = nearest_word(leaf, allowed)
        if not section and leaf in _names_of("pipeline") | _names_of("role"):
            nearest = f"{'pipeline' if leaf in _names_of('pipeline') else 'role'}.{leaf}"
        return Problem("unknown key", key, value, listing(allowed), nearest, file=file)
    if kind == "missing":
        if not section:
            needed = [n for n, f in _model_at(leaf).model_fields.items() if f.is_required()]
            return Problem(
                f"the table [{leaf}] is missing",
                key,
                allowed=f"a table with {listing(needed)}",
                file=file,
            )
        allowed_values = get_args(_model_at(section).model_fields[leaf].annotation)
        usable = usable_words(key, list(allowed_values))
        choices = listing(f'"{value}"' for value in allowed_values if value in usable)
        return Problem(f"the key {leaf} is missing", key, allowed=choices, file=file)
    allowed_words: list[str] = []
    nearest = ""
    for each in entries:
        if each["type"] == "literal_error":
            expected = each["ctx"]["expected"].replace(" or ", ", ").split(", ")
            if all(word.isdigit() for word in expected) and expected != ["1"]:
                return _number_problem(key, value, expected, file)
            allowed_words += [word.strip("'") for word in expected]
        else:
            allowed_words.append(_TYPE_WORDS.get(each["type"], "another kind of value"))
    words = [word for word in allowed_words if word not in _TYPE_WORDS.values()]
    unusable = set(words) - usable_words(key, words)
    words = [word for word in words if word not in unusable]
    allowed_words = [word for word in allowed_words if word not in unusable]
    if isinstance(value, str):
        nearest = value if re.fullmatch(r"[0-9]{1,9}", value) else WORD_OF.get(value.lower(), "")
        nearest = nearest or nearest_word(value, words)
        if not nearest and len(words) == 1:
            nearest = words[0]
    elif isinstance(value, float) and math.isfinite(value):
        nearest = str(round(value))
    if _PAIR in allowed_words:
        nearest = "[2, 1]"
    if allowed_words == [_TRUTH]:
        nearest = "false" if value in (0, "false", "False", "no", "off") else "true"
    message = "not one of the known words" if words and isinstance(value, str) else "wrong type"
    if nearest and nearest in words:
        nearest = f'"{nearest}"'
    choices = listing(f'"{word}"' if word in words else word for word in allowed_words)
    if words == ["1"]:
        choices, nearest, message = "1", "1", "this version of pipegen reads format 1 only"
    return Problem(message, key, value, choices, nearest, file=file)


def _names_of(section: str) -> set[str]:
    """Every name that some kernel has in [pipeline.NAME] or [role.NAME]."""
    from pipegen.planning.families import FAMILIES
    from pipegen.selection_table import templates

    if section == "role":
        return {role for family in FAMILIES.values() for role in family.roles}
    return {name for each in templates() for name, _, _ in each.pipelines}


def _number_problem(key: str, value: object, expected: list[str], file: str) -> Problem:
    """A key that takes a few numbers only."""
    near = expected[0]
    if isinstance(value, int | float) and math.isfinite(value):
        near = nearest_number(int(value), [int(word) for word in expected])
    elif str(value) in expected:
        near = str(value)
    number = isinstance(value, int) and not isinstance(value, bool)
    message = "no such number" if number else "wrong type"
    return Problem(message, key, value, listing(expected), near, file=file)


def usable_words(key: str, words: list[str]) -> set[str]:
    """Those of a key's words that some template takes today; all, if the key is of another kind."""
    from pipegen.rules.pg104_dtypes import FURTHER_OPERANDS, OPERANDS, OUTPUTS_OF_INTEGERS
    from pipegen.rules.pg250_mixed_dtypes import WEIGHTS
    from pipegen.selection_table import kernels

    places = ("kernel.op", "kernel.backend", "kernel.arch", "kernel.style")
    if key in places:
        return {kernel[places.index(key)] for kernel in kernels()} & set(words)
    if key in ("dtype.a", "dtype.b"):
        words_of_a = {word for each in (OPERANDS, *FURTHER_OPERANDS.values()) for word in each}
        return words_of_a | (set(WEIGHTS) if key == "dtype.b" else set())
    return set(OUTPUTS_OF_INTEGERS) if key == "dtype.out" else set(words)


def _key(loc: tuple[int | str, ...]) -> str:
    """The dotted TOML key of a pydantic location, without indices and union branches."""
    model: type[BaseModel] | None = KernelDescription
    parts: list[str] = []
    for part in loc:
        if model is None or not isinstance(part, str):
            break
        parts.append(part)
        model = _child(model, part)
        if model is not None and part in ("pipeline", "role", "tensor") and len(parts) == 1:
            name = next((p for p in loc[1:2] if isinstance(p, str)), None)
            if name is not None:
                return ".".join([part, name, *_leaf(loc[2:3])])
    return ".".join(parts)


def _leaf(loc: tuple[int | str, ...]) -> list[str]:
    return [part for part in loc if isinstance(part, str)]


def _child(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    field = model.model_fields.get(name)
    if field is None:
        return None
    annotation = field.annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        if isinstance(argument, type) and issubclass(argument, BaseModel):
            return argument
    return None


def _model_at(section: str) -> type[BaseModel]:
    model: type[BaseModel] = KernelDescription
    for part in section.split(".")[:1]:
        model = _child(model, part) or model
    return model


def _without(data: Mapping[str, Any], locs: list[tuple[int | str, ...]]) -> dict[str, Any]:
    """A copy of nested data without the faulty keys."""
    copy: dict[str, Any] = {
        key: _without(value, []) if isinstance(value, Mapping) else value
        for key, value in data.items()
    }
    for loc in locs:
        parts = _key(loc).split(".")
        table: Any = copy
        for part in parts[:-1]:
            table = table.get(part) if isinstance(table, dict) else None
        if isinstance(table, dict):
            table.pop(parts[-1], None)
    return copy


def _plain(value: Any) -> Any:
    if isinstance(value, str) and "\n" in value:
        import tomlkit

        return tomlkit.string(value, multiline=True)  # the body of a role, line by line
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return list(value) if isinstance(value, tuple) else value
