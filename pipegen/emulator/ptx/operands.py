# SPDX-License-Identifier: Apache-2.0
"""Reads the operands of an instruction: registers, constants, names, vectors, addresses, pairs."""

import re
import struct
from typing import Protocol

from pipegen.emulator.ptx.constants import constant
from pipegen.emulator.ptx.ir import (
    Address,
    Immediate,
    Operand,
    Pair,
    PtxError,
    Register,
    Symbol,
    Vector,
)

_NAME = re.compile(r"[A-Za-z_$%][\w$]*(?:\.[xyzw](?![\w$]))?")
_NUMBER = re.compile(
    r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|-?0[xX][0-9a-fA-F]+U?|-?\d[\d.eE]*U?"
)
_EXPRESSION = re.compile(r"[^,{}\[\]]+")


class Names(Protocol):
    """What a body knows of its names, and the line that is read."""

    line: int

    def register(self, name: str) -> Register | None:
        """The register of this name, or None."""

    def label(self, name: str) -> str:
        """A label's name, unique among all scopes."""


class Operands:
    """Reads the operands of one instruction."""

    def __init__(self, text: str, body: "Names") -> None:
        self.text = text
        self.at = 0
        self.body = body

    def all(self) -> tuple[Operand, ...]:
        return self._list("") if self.text else ()

    def _list(self, closing: str) -> tuple[Operand, ...]:
        found: list[Operand] = []
        while True:
            found.append(self._one())
            self._space()
            char = self.text[self.at : self.at + 1]
            if char == closing:
                self.at += 1
                return tuple(found)
            if char != ",":
                raise self._error("operands that the reader does not know")
            self.at += 1

    def _space(self) -> None:
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1

    def _error(self, message: str) -> PtxError:
        return PtxError(message, self.body.line, self.text[:80])

    def _one(self) -> Operand:
        self._space()
        first = self._simple()
        self._space()
        if self.text[self.at : self.at + 1] == "|":
            self.at += 1
            self._space()
            return Pair(first, self._simple())
        return first

    def _simple(self) -> Operand:
        char = self.text[self.at : self.at + 1]
        if char == "{":
            self.at += 1
            return Vector(self._list("}"))
        if char == "[":
            self.at += 1
            return self._address()
        if char in ("(", "~"):
            return self._expression()
        if match := _NUMBER.match(self.text, self.at):
            self.at = match.end()
            return _number(match[0])
        if match := _NAME.match(self.text, self.at):
            self.at = match.end()
            name = match[0]
            register = self.body.register(name)
            return register if register is not None else Symbol(self.body.label(name))
        raise self._error("an operand that the reader does not know")

    def _expression(self) -> Operand:
        """A constant expression of integers, up to the next comma (PTX ISA, "Constants")."""
        match = _EXPRESSION.match(self.text, self.at)
        value = match and constant(match[0])
        if match is None or value is None:
            raise self._error("a constant expression that the reader does not know")
        self.at = match.end()
        return Immediate(value)

    def _address(self) -> Operand:
        base = self._simple()
        self._space()
        offset = 0
        if self.text[self.at : self.at + 1] in "+-":
            sign = -1 if self.text[self.at] == "-" else 1
            self.at += 1
            self._space()
            number = _NUMBER.match(self.text, self.at)
            if number is None:
                raise self._error("an address whose offset is not a number")
            self.at = number.end()
            offset = sign * _number(number[0]).value
            self._space()
        rest: tuple[Operand, ...] = ()
        char = self.text[self.at : self.at + 1]
        self.at += 1
        if char == ",":
            rest = self._list("]")
        elif char != "]":
            raise self._error("an address that the reader does not know")
        return Address(base, offset, rest)


def _number(text: str) -> Immediate:
    text = text.rstrip("U")
    if text[:2] in ("0f", "0F"):
        return Immediate(int(text[2:], 16), 32)
    if text[:2] in ("0d", "0D"):
        return Immediate(int(text[2:], 16), 64)
    if any(char in text for char in ".eE") and not text.lower().lstrip("-").startswith("0x"):
        return Immediate(struct.unpack("<Q", struct.pack("<d", float(text)))[0], 64)
    return Immediate(int(text, 0) if not text.lstrip("-").isdigit() else int(text))
