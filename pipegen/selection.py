# SPDX-License-Identifier: Apache-2.0
"""Which class a producer and a consumer select, and why. The table is `selection.toml`.

`select` answers with a `Selection`, or with a `Refusal` that says why and what is nearest.
Words that are in no vocabulary raise `InputError`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pipegen.errors import InputError, Problem, listing, nearest_word
from pipegen.selection_nearest import nearest
from pipegen.selection_table import CTA_GROUPS, Row, Template, impossible, rows, templates
from pipegen.vocabulary import (
    ARCH_ALIASES,
    ARCHS,
    BACKENDS,
    CONSUMER_ALIASES,
    CONSUMERS,
    PRODUCER_ALIASES,
    PRODUCERS,
    STYLES,
)

__all__ = [
    "Refusal",
    "Request",
    "Row",
    "Selection",
    "known_words",
    "row_status",
    "rows",
    "select",
    "select_all",
    "table",
]

Status = Literal["ready", "planned"]

# Each end may be named at the wrong side; such a pair is impossible, not misspelled.
WORDS: tuple[str, ...] = tuple(dict.fromkeys((*PRODUCERS, *CONSUMERS)))


@dataclass(frozen=True)
class Selection:
    """The class of one pair, on one architecture, in one backend and style."""

    row: Row
    producer: str
    consumer: str
    arch: str
    style: str
    cta_group: int = 1

    @property
    def cls(self) -> str:
        return self.row.cls

    @property
    def backend(self) -> str:
        return self.row.backend

    @property
    def templates(self) -> tuple[Template, ...]:
        """Templates that exist and emit this pair: for wgmma, those whose threads issue it."""
        return tuple(
            template
            for template in _templates_of(self.row, self.arch, self.style)
            if template.exists
            and (self.consumer != "wgmma" or (self.producer, "wgmma") in template.pairs)
        )

    @property
    def status(self) -> Status:
        """`ready` if pipegen can emit it today, else `planned`."""
        return "ready" if self.templates else "planned"

    @property
    def status_text(self) -> str:
        """The status as a sentence that says what can be emitted."""
        if not self.templates:
            return "planned: no template emits it yet, so pipegen cannot generate it"
        ops = dict.fromkeys(template.op for template in self.templates)
        files = listing(dict.fromkeys(template.file for template in self.templates))
        return f"ready: pipegen emits it (op {listing(ops)}; {files})"

    @property
    def label(self) -> str:
        """Pair and place in one phrase."""
        pair = f"{self.producer} -> {self.consumer}" if self.producer else self.row.pair
        place = [self.arch, self.backend]
        if len(STYLES[self.backend]) > len(self.row.styles):
            place.append(self.style)
        if self.cta_group != 1:
            place.append(f"cta_group {self.cta_group}")
        return f"{pair} ({listing(place)})"

    def as_dict(self) -> dict[str, object]:
        """For `--format json`; `table` and `select` print the same object."""
        row = self.row
        return {
            "class": row.cls,
            "backend": row.backend,
            "arch": self.arch,
            "producer": self.producer or None,
            "consumer": self.consumer or None,
            "pair": row.pair,
            "style": self.style,
            "styles": list(row.styles),
            "cta_group": self.cta_group,
            "cta_groups": list(row.cta_groups_on(self.arch)),
            "reason": row.why,
            "status": self.status,
            "templates": list(dict.fromkeys(template.file for template in self.templates)),
            "operator": row.operator,
            "module": row.module,
            "call": row.call,
            "arguments": [
                {"name": a.name, "required": a.required, "rule": a.rule} for a in row.arguments
            ],
            "cautions": list(row.cautions),
        }


@dataclass(frozen=True)
class Request:
    """A pair and the place it is wanted in; None where any will do."""

    producer: str
    consumer: str
    arch: str | None = None
    backend: str | None = None
    style: str | None = None
    cta_group: int = 1

    @property
    def label(self) -> str:
        """Pair and place in one phrase."""
        place = [word for word in (self.arch, self.backend, self.style) if word]
        if self.cta_group != 1:
            place.append(f"cta_group {self.cta_group}")
        return f"{self.producer} -> {self.consumer}" + (f" ({listing(place)})" if place else "")


@dataclass(frozen=True)
class Refusal:
    """There is no class for the pair: why, and the valid pairs that are nearest, best first."""

    request: Request
    reason: str
    nearest: tuple[Selection, ...]

    def as_dict(self) -> dict[str, object]:
        """For `--format json`: the keys of a selection, with no class."""
        return {
            "class": None,
            "backend": self.request.backend,
            "arch": self.request.arch,
            "producer": self.request.producer,
            "consumer": self.request.consumer,
            "style": self.request.style,
            "cta_group": self.request.cta_group,
            "reason": self.reason,
            "status": "impossible",
            "nearest": [
                {
                    "class": near.cls,
                    "backend": near.backend,
                    "arch": near.arch,
                    "producer": near.producer,
                    "consumer": near.consumer,
                    "style": near.style,
                    "cta_group": near.cta_group,
                    "status": near.status,
                }
                for near in self.nearest
            ],
        }


def select(
    producer: str,
    consumer: str,
    arch: str | None = None,
    backend: str | None = None,
    style: str | None = None,
    cta_group: int = 1,
) -> Selection | Refusal:
    """The class for one pair. What is left out is the first that applies, in vocabulary order."""
    found = select_all(producer, consumer, arch, backend, style, cta_group)
    return found if isinstance(found, Refusal) else found[0]


def select_all(
    producer: str,
    consumer: str,
    arch: str | None = None,
    backend: str | None = None,
    style: str | None = None,
    cta_group: int = 1,
) -> tuple[Selection, ...] | Refusal:
    """Every class for one pair: one for each architecture, backend and style that is left out.

    Where several styles share a row, it appears once, with the backend's default style.
    """
    request = known_words(Request(producer, consumer, arch, backend, style, cta_group))
    found = tuple(
        replace(
            selection,
            producer=request.producer,
            consumer=request.consumer,
            cta_group=request.cta_group,
        )
        for selection in _selections(request.style)
        if selection.row.accepts(request.producer, request.consumer, selection.arch)
        and request.arch in (None, selection.arch)
        and request.backend in (None, selection.backend)
        and request.cta_group in selection.row.cta_groups_on(selection.arch)
    )
    return found or Refusal(
        request, _reason(request), nearest(request, _candidates(request.cta_group))
    )


def table(backend: str | None = None, arch: str | None = None) -> tuple[Selection, ...]:
    """Every row on every architecture it exists on, in the row's first style."""
    return tuple(
        Selection(row, row.producer, row.consumer, place, row.styles[0])
        for row in rows(backend, arch)
        for place in row.archs
        if arch in (None, place)
    )


def row_status(row: Row, arch: str) -> Status:
    """`ready` if a template emits the row on `arch` in any style."""
    return (
        "ready"
        if any(t.exists for s in row.styles for t in _templates_of(row, arch, s))
        else ("planned")
    )


def arch_word(word: str) -> str:
    """The architecture's own name for an alias such as `hopper`; other words come back as given."""
    word = word.strip().lower().replace("-", "_")
    return ARCH_ALIASES.get(word, word)


def end_word(word: str) -> str:
    """A producer's or consumer's own name for a spelling such as `cp.async` or `tcgen05+thread`."""
    word = word.strip().lower().replace(".", "_").replace("-", "_")
    aliases = PRODUCER_ALIASES | CONSUMER_ALIASES
    parts = [aliases.get(part.strip(), part.strip()) for part in word.split("+")]
    return "+".join(sorted(parts, reverse=True))  # "umma+thread", as the vocabulary orders it


def known_words(given: Request) -> Request:
    """The request in the vocabulary's own words; every unknown one in one `InputError`."""

    def plain(word: str | None) -> str | None:
        return word.strip().lower().replace("_", "-") if word else None

    words = Request(
        end_word(given.producer),
        end_word(given.consumer),
        arch_word(given.arch) if given.arch else None,
        plain(given.backend),
        plain(given.style),
        given.cta_group,
    )
    problems: list[Problem] = []

    def check(key: str, allowed: Sequence[object], known: Sequence[object] = ()) -> None:
        word = getattr(words, key)
        if word is not None and word not in (known or allowed):
            near = nearest_word(word, [str(choice) for choice in allowed])
            problems.append(
                Problem(f"unknown {key}", key, getattr(given, key), listing(allowed), near)
            )

    check("producer", PRODUCERS, WORDS)
    check("consumer", CONSUMERS, WORDS)
    check("arch", ARCHS)
    check("backend", BACKENDS)
    backends = (words.backend,) if words.backend in STYLES else BACKENDS
    check("style", tuple(dict.fromkeys(s for b in backends for s in STYLES[str(b)])))
    check("cta_group", CTA_GROUPS)
    if problems:
        raise InputError(problems)
    return words


def _selections(style: str | None = None) -> Iterator[Selection]:
    """Every valid selection: by architecture, then backend, then style."""
    for arch in ARCHS:
        for backend in BACKENDS:
            for wanted in (style,) if style else STYLES[backend]:
                for row in rows(backend, arch):
                    # Without a style, a row that many styles share is listed under its first.
                    if wanted in row.styles and (style or wanted == row.styles[0]):
                        yield Selection(row, row.producer, row.consumer, arch, wanted)


def _templates_of(row: Row, arch: str, style: str) -> tuple[Template, ...]:
    return tuple(
        template
        for template in templates()
        if template.backend == row.backend
        and arch in template.archs
        and style in template.styles
        and row.emitted_by(template, arch)
    )


def _reason(request: Request) -> str:
    """Why there is no row; where it depends on what was left out, each place's own reason."""
    archs = [request.arch] if request.arch else list(ARCHS)
    style = request.style
    backends = [b for b in BACKENDS if not style or style in STYLES[b]]
    if request.backend:
        backends = [request.backend]
    reasons = {(a, b): _one_reason(request, a, b) for a in archs for b in backends}
    where: dict[str, list[str]] = {}
    for arch in archs:
        alike = len({reasons[arch, backend] for backend in backends}) == 1
        for backend in backends[:1] if alike else backends:
            words = ("" if request.arch else arch, "" if alike else backend)
            where.setdefault(reasons[arch, backend], []).append(" ".join(filter(None, words)))
    if len(where) == 1:
        return next(iter(where))
    return "; ".join(f"{listing(places)}: {reason}" for reason, places in where.items())


def _one_reason(request: Request, arch: str, backend: str) -> str:
    producer, consumer, style = request.producer, request.consumer, request.style
    usable = [row for row in rows(backend, arch) if row.accepts(producer, consumer, arch)]
    if style and usable and all(style not in row.styles for row in usable):
        styles = dict.fromkeys(s for row in usable for s in row.styles)
        return f"{backend} has a construct for it, but in another style: {listing(styles)}"
    for entry in impossible():
        if entry.matches(producer, consumer, arch, backend, request.cta_group):
            return entry.reason
    raise AssertionError(f"no reason for {request.label}")


def _candidates(cta_group: int) -> Iterator[Selection]:
    for found in _selections():
        row, arch = found.row, found.arch
        for consumer in (row.consumer, *(row.also_consumer if arch == "sm_90a" else ())):
            for group in dict.fromkeys((cta_group, 1)):
                if row.producer and group in row.cta_groups_on(arch):
                    yield replace(found, consumer=consumer, cta_group=group)
