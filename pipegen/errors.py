# SPDX-License-Identifier: Apache-2.0
"""Faults in the user's input: one paragraph each, all of a file at once, exit code 2."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One fault: where it is, what was given, what is allowed, and the nearest valid choice.

    `file` and `key` say where (a path, and a dotted TOML key such as `pipeline.mainloop.stages`);
    either may be empty. `message` says what is wrong and why. `rule` is a code like `PG202`
    that `pipegen explain` knows, or empty.
    """

    message: str
    key: str = ""
    value: object = None
    allowed: str = ""
    nearest: str = ""
    rule: str = ""
    file: str = ""

    def paragraph(self) -> str:
        """The whole fault as one line of text."""
        place = ": ".join(printable(part) for part in (self.file, self.key) if part)
        if self.key and self.value is not None:
            place += f" = {toml_literal(self.value)}"
        text = f"{place}: {self.message}" if place else self.message
        text = text.rstrip(".") + "."
        if self.allowed:
            text += f" Allowed: {self.allowed}."
        if self.nearest:
            text += f" Nearest valid choice: {self.nearest}."
        if self.rule:
            text += f" [{self.rule}]"
        return printable(text)  # a message may name a table of the user's, whatever it is called

    def as_dict(self) -> dict[str, object]:
        """The fault for `--format json`."""
        return {
            "file": self.file,
            "key": self.key,
            "value": self.value,
            "message": self.message,
            "allowed": self.allowed,
            "nearest": self.nearest,
            "rule": self.rule,
        }


class InputError(ValueError):
    """The input is wrong; carries every problem that was found. The CLI exits with 2."""

    def __init__(self, problems: Iterable[Problem] | Problem | str) -> None:
        if isinstance(problems, str):
            problems = Problem(problems)
        if isinstance(problems, Problem):
            problems = (problems,)
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(problem.paragraph() for problem in self.problems))


def toml_literal(value: object, limit: int = 60) -> str:
    """`value` as TOML would spell it, shortened to `limit` characters."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str):
        text = '"' + printable(value.replace("\\", "\\\\").replace('"', '\\"')) + '"'
    elif isinstance(value, list | tuple):
        text = "[" + ", ".join(toml_literal(item) for item in value) + "]"
    elif isinstance(value, dict):
        text = (
            "{"
            + ", ".join(
                f"{printable(str(key))} = {toml_literal(item)}" for key, item in value.items()
            )
            + "}"
        )
    elif isinstance(value, int) and abs(value) >= 10**limit:
        text = f"a number beyond 10^{limit}"
    else:
        text = str(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def printable(text: str) -> str:
    """The text on one line: what a terminal cannot show becomes an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def listing(choices: Iterable[object]) -> str:
    """Choices as one phrase: `a, b, c`."""
    return ", ".join(str(choice) for choice in choices)


def auto_or(first: int, last: int) -> str:
    """What a key allows that is derived, or given from `first` to `last`."""
    return f'"auto" or {first} to {last}' if first < last else f'"auto" or {last}'


def assignments(values: Mapping[str, object]) -> str:
    """Keys and their values as one phrase: `a = 1 and b = "x"`."""
    words = " and ".join(f"{key} = {toml_literal(value)}" for key, value in values.items())
    return words or "what else is asked for"


def nearest_word(word: object, choices: Sequence[str]) -> str:
    """The choice that is spelled most like `word`, or an empty string if none is close."""
    found = difflib.get_close_matches(str(word).lower(), choices, n=1, cutoff=0.5)
    return found[0] if found else ""


def nearest_number(value: float, choices: Sequence[int]) -> str:
    """The choice closest to `value` (the smaller one of two that are equally close)."""
    return str(min(choices, key=lambda choice: (abs(choice - value), choice))) if choices else ""
