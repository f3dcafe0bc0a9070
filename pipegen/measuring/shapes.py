# SPDX-License-Identifier: Apache-2.0
"""Lists of sizes to time: M,N,K as typed, a file, or a list that somebody else chose. Pure.

A list is a TOML file with `source` (who chose it), and `mnk` (arrays of three, two where there is
no K) or `nk` (pairs) with `m` (the rows that go with each pair).
"""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipegen.errors import InputError, Problem, listing, nearest_word

Shape = tuple[int, ...]
_FOLDER = Path(__file__).with_name("shape_lists")
_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class ShapeList:
    """Sizes, and who chose them."""

    name: str
    source: str
    shapes: tuple[Shape, ...]


def parse_shape(text: str) -> Shape:
    """A size from `M,N,K`, `MxNxK` or, where there is no K, `M,N`. Raises InputError."""
    parts = text.replace("x", ",").split(",")
    numbers = tuple(
        int(part) for part in parts if part.strip().isascii() and part.strip().isdigit()
    )
    if len(numbers) != len(parts) or len(numbers) not in (2, 3) or not _sound(numbers):
        raise InputError(
            Problem(
                "is no size", "--shape", text, "M,N,K or M,N, whole numbers from 1 to 2147483647",
                "4096,4096,4096",
            )
        )  # fmt: skip
    return numbers


def _sound(numbers: Iterable[Any]) -> bool:
    return all(
        isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= _LARGEST
        for number in numbers
    )


def list_names() -> list[str]:
    """The lists that come with pipegen."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_list(word: str) -> ShapeList:
    """The list of that name, or in that file. Raises InputError."""
    path = _FOLDER / f"{word}.toml" if word in list_names() else Path(word)
    if path.parent != _FOLDER and not path.is_file():
        raise InputError(
            Problem(
                "is no file, and no list that comes with pipegen", "--shapes", word,
                listing(list_names()), nearest_word(word, list_names()),
            )
        )  # fmt: skip
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(Problem(f"cannot be read: {error}", file=str(path))) from None
    return read_list(path.stem, data, str(path))


def read_list(name: str, data: dict[str, Any], file: str = "") -> ShapeList:
    """The list that a file's data describe. Raises InputError with every fault."""
    known = ("source", "mnk", "nk", "m")
    problems = [
        Problem("unknown key", key, allowed=listing(known), nearest=nearest_word(key, known),
                file=file)
        for key in data if key not in known
    ]  # fmt: skip
    source = data.get("source", "")
    if not isinstance(source, str):
        problems.append(Problem("must be a text: who chose the sizes", "source", source, file=file))
    triples, pairs, rows = (data.get(key, []) for key in ("mnk", "nk", "m"))
    for key, value, lengths in (("mnk", triples, (2, 3)), ("nk", pairs, (2,))):
        good = isinstance(value, list) and all(
            isinstance(each, list) and len(each) in lengths and _sound(each) for each in value
        )
        if not good:
            wanted = "[M, N, K] or [M, N]" if key == "mnk" else "[N, K]"
            problems.append(
                Problem(f"must be an array of {wanted}, numbers from 1", key, value, file=file)
            )
    if not isinstance(rows, list) or not _sound(rows):
        problems.append(Problem("must be an array of numbers from 1", "m", rows, file=file))
    elif isinstance(pairs, list) and bool(pairs) != bool(rows):
        problems.append(Problem("nk and m belong together: each pair with each m", file=file))
    if problems:
        raise InputError(problems)
    shapes = [(m, n, k) for n, k in pairs for m in rows] + [tuple(each) for each in triples]
    if not shapes:
        raise InputError(Problem("has no sizes: mnk, or nk with m", file=file))
    return ShapeList(name, source, tuple(dict.fromkeys(shapes)))


def chosen_shapes(words: Iterable[str], lists: Iterable[str], usual: str = "square") -> list[Shape]:
    """What `--shape` and `--shapes` ask for, each size once; the usual list if they say nothing."""
    shapes = [parse_shape(word) for word in words]
    for name in lists:
        shapes += load_list(name).shapes
    return list(dict.fromkeys(shapes or load_list(usual).shapes))


def shape_text(shape: Shape) -> str:
    """`4096x14336x4096`."""
    return "x".join(map(str, shape))


def size_of(shape: Shape) -> dict[str, int]:
    """The size by its letters, as operators take it."""
    return {"k": 1, **dict(zip("mnk", shape, strict=False)), "l": 1}
