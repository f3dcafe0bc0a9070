# SPDX-License-Identifier: Apache-2.0
"""The selection table as frozen dataclasses: rows, reasons, templates. Read once."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pipegen.vocabulary import ARCHS, BACKENDS, OPS, OPTIONS, STYLES

CTA_GROUPS = (1, 2)


@dataclass(frozen=True)
class Argument:
    """One argument that the kernel passes, with the rule for its value."""

    name: str
    rule: str
    required: bool


@dataclass(frozen=True)
class Row:
    """One pair of the table and the class or construct it selects."""

    cls: str
    backend: str
    producer: str  # empty for ordered groups, which hand over a turn and no data
    consumer: str
    also_consumer: tuple[str, ...]  # accepted on sm_90a, and the same thing there
    pair: str
    archs: tuple[str, ...]
    styles: tuple[str, ...]
    cta_groups: tuple[int, ...]
    module: str
    call: str
    operator: str
    why: str
    arguments: tuple[Argument, ...]
    cautions: tuple[str, ...]
    caution_keys: tuple[str, ...]
    example: str

    def accepts(self, producer: str, consumer: str, arch: str) -> bool:
        """Whether this row is the class of the pair on `arch`."""
        if not self.producer or arch not in self.archs or producer != self.producer:
            return False
        return consumer == self.consumer or (arch == "sm_90a" and consumer in self.also_consumer)

    def emitted_by(self, template: "Template", arch: str) -> bool:
        """Whether a kernel of the template has this row's class."""
        if not self.producer:
            return template.turns == self.cls
        return any(
            self.accepts(producer, consumer, arch)
            for name, producer, consumer in template.pipelines
            if name not in template.own_barriers
        )

    def cta_groups_on(self, arch: str) -> tuple[int, ...]:
        """CTA group sizes on `arch`; pairs belong to tcgen05."""
        return self.cta_groups if arch != "sm_90a" else (1,)


@dataclass(frozen=True)
class Impossible:
    """Why some pairs have no row. An empty field matches everything."""

    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    archs: tuple[str, ...]
    backends: tuple[str, ...]
    cta_groups: tuple[int, ...]
    reason: str

    def matches(
        self, producer: str, consumer: str, arch: str, backend: str, cta_group: int
    ) -> bool:
        """Whether this entry speaks about the pair."""
        return (
            (not self.producers or producer in self.producers)
            and (not self.consumers or consumer in self.consumers)
            and (not self.archs or arch in self.archs)
            and (not self.backends or backend in self.backends)
            and (not self.cta_groups or cta_group in self.cta_groups)
        )


@dataclass(frozen=True)
class Template:
    """One kernel that a template file writes: the pairs of its pipelines, and its options.

    `family` names the planner, defaults and rules (`pipegen.planning.families`). `options` lists
    the values of option keys (`pipegen.vocabulary.OPTIONS`) that this kernel has; an option that is
    not listed has its usual value only. A file may write several kernels.
    """

    file: str
    family: str
    backend: str
    archs: tuple[str, ...]
    op: str
    styles: tuple[str, ...]
    pipelines: tuple[tuple[str, str, str], ...]  # name, producer, consumer
    options: tuple[tuple[str, tuple[object, ...]], ...] = ()
    turns: str = ""  # the class that orders groups; they hand over a turn and have no pair
    example: str = ""  # path of an emitted module in the repository
    own_barriers: tuple[str, ...] = ()  # pipelines of no class: the text declares their barriers
    kinds: tuple[str, ...] = ()  # role kinds of which a custom graph must have one to be its

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Producer and consumer of each pipeline."""
        return tuple((producer, consumer) for _, producer, consumer in self.pipelines)

    def values(self, option: str) -> tuple[object, ...]:
        """The values of an option that this kernel has; the usual one first where it has it."""
        return dict(self.options).get(option, (OPTIONS[option],))

    @property
    def exists(self) -> bool:
        """Whether the file is there; one that is only planned makes nothing ready."""
        return (template_folder() / self.file).is_file()


def rows(backend: str | None = None, arch: str | None = None) -> tuple[Row, ...]:
    """The rows of the table, in its order."""
    return tuple(
        row for row in _rows() if backend in (None, row.backend) and (not arch or arch in row.archs)
    )


@cache
def templates() -> tuple[Template, ...]:
    """Every template the table knows, also planned ones."""
    return tuple(
        Template(
            file=entry["file"],
            family=entry["family"],
            backend=entry["backend"],
            archs=tuple(entry["archs"]),
            op=entry["op"],
            styles=tuple(entry["styles"]),
            pipelines=tuple((name, *pair) for name, pair in entry["pipelines"].items()),
            options=tuple((key, tuple(values)) for key, values in entry.get("options", {}).items()),
            turns=entry.get("turns", ""),
            example=entry.get("example", ""),
            kinds=tuple(entry.get("kinds", ())),
            own_barriers=tuple(entry.get("own_barriers", ())),
        )
        for entry in _document()["template"]
    )


@cache
def kernels() -> dict[tuple[str, str, str, str], tuple[Template, ...]]:
    """The templates that exist, by (op, backend, arch, style); the usual kernel first of each."""
    found: dict[tuple[str, str, str, str], tuple[Template, ...]] = {}
    for template in templates():
        if template.exists:
            for arch in template.archs:
                for style in template.styles:
                    key = (template.op, template.backend, arch, style)
                    found[key] = (*found.get(key, ()), template)
    return dict(sorted(found.items(), key=lambda item: _rank(item[0])))


def _rank(key: tuple[str, str, str, str]) -> tuple[int, ...]:
    # The order of the vocabulary, in which a default comes before its alternatives.
    op, backend, arch, style = key
    return (OPS.index(op), BACKENDS.index(backend), ARCHS.index(arch), STYLES[backend].index(style))


@cache
def impossible() -> tuple[Impossible, ...]:
    """The reasons for pairs without a row, in the order in which they are tried."""
    return tuple(
        Impossible(
            producers=tuple(entry.get("producers", ())),
            consumers=tuple(entry.get("consumers", ())),
            archs=tuple(entry.get("archs", ())),
            backends=tuple(entry.get("backends", ())),
            cta_groups=tuple(entry.get("cta_groups", ())),
            reason=entry["reason"],
        )
        for entry in _document()["impossible"]
    )


def cautions() -> dict[str, str]:
    """Every caution by its key."""
    return dict(_document()["caution"])


def template_folder() -> Path:
    """Where the templates are: inside an installed package, or at the top of the repository."""
    installed = Path(__file__).parent / "templates"
    return installed if installed.is_dir() else Path(__file__).parent.parent / "templates"


@cache
def _document() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("selection.toml").read_text(encoding="utf-8"))


@cache
def _rows() -> tuple[Row, ...]:
    document = _document()
    return tuple(_row(entry, document) for entry in document["row"])


def _row(entry: dict[str, Any], document: dict[str, Any]) -> Row:
    rules = document["shared"][entry["backend"]] | entry.get("rule", {})
    producer, consumer = entry.get("producer", ""), entry.get("consumer", "")
    return Row(
        cls=entry["class"],
        backend=entry["backend"],
        producer=producer,
        consumer=consumer,
        also_consumer=tuple(entry.get("also_consumer", ())),
        pair=entry.get("pair") or f"{producer} -> {consumer}",
        archs=tuple(entry["archs"]),
        styles=tuple(entry.get("styles", STYLES[entry["backend"]])),
        cta_groups=tuple(entry.get("cta_groups", CTA_GROUPS)),
        module=entry["module"],
        call=entry["call"],
        operator=entry["operator"],
        why=entry["why"],
        arguments=tuple(
            Argument(name, rules[name], required)
            for names, required in ((entry["must"], True), (entry["may"], False))
            for name in names
        ),
        cautions=tuple(document["caution"][key] for key in entry["cautions"]),
        caution_keys=tuple(entry["cautions"]),
        example=entry["example"].strip("\n"),
    )
