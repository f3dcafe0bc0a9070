# SPDX-License-Identifier: Apache-2.0
"""Whether an emitted file is still what its description and pipegen's template would give."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipegen.compiling.cache import Cache, render_key

# Against a description: fresh, missing, stale, edited, conflicted; by the header alone: pristine,
# edited, conflicted; by the lock of a project: orphan.
Freshness = Literal["fresh", "missing", "stale", "edited", "conflicted", "orphan", "pristine"]
TROUBLE = ("missing", "stale", "conflicted", "orphan")


@dataclass(frozen=True)
class Fresh:
    """One file's freshness, and one sentence if there is something to say."""

    state: Freshness
    message: str = ""
    # Whether the message is worth a line although nothing is wrong.
    notice: bool = False
    # Whether the owner changed the text, whatever else is to say.
    edited: bool = False
    # Whether this run takes an edit for a finding.
    forbidden: bool = False

    @property
    def failed(self) -> bool:
        """Whether this is a finding. An edit is not: the file is its owner's."""
        return self.state in TROUBLE or self.forbidden


def judge(current: str | None, rendered: str, kept: str | None = None, lock: bool = False) -> Fresh:
    """The freshness of `current` (None: no such file) against what would be written today.

    `kept` is the pristine text beside the lock of a project, if that has it; `lock` says that there
    is a project, so that `pipegen update` can merge.
    """
    from pipegen.vendor.header import is_pristine, read_header
    from pipegen.vendor.updating import base_of

    if current is None:
        return Fresh(
            "missing",
            "its description is there, the file is not: run `pipegen generate`, or remove the "
            "description",
        )
    if found := _conflict(current):
        return found
    if current == rendered:
        return Fresh("fresh")
    mine, today = read_header(current), read_header(rendered)
    if mine is None and kept is None:
        return Fresh(
            "stale",
            "has no pipegen header, so nothing says which description and template it came from; "
            "move it away and run `pipegen generate`, or remove the description",
        )
    if is_pristine(current):
        return Fresh("stale", f"{_change(mine, today)}; nobody edited it: run `pipegen generate`")
    base = base_of(current, kept, rendered)
    if base == rendered:
        message = "edited by its owner; description and template are current"
        return Fresh("edited", message, edited=True)
    before = read_header(base) if base is not None else mine
    changed = _change(before, today)
    if base is not None and lock:
        how = "and the file was edited: `pipegen update` merges the two"
    elif lock:
        how = (
            "and the file was edited, but the pristine text it came from is not in .base, or does "
            "not fit pipegen.lock: take both from version control, then run `pipegen update`"
        )
    else:
        how = (
            "and the file was edited: take over by hand what a fresh copy has (`pipegen generate` "
            "will not overwrite it)"
        )
    return Fresh("stale", f"{changed}, {how}", edited=True)


def _conflict(current: str) -> Fresh | None:
    """The state of a text with the marks of a conflict in it."""
    from pipegen.vendor.merging import conflicts

    lines = conflicts(current)
    if not lines:
        return None
    where = ", ".join(map(str, lines))
    return Fresh(
        "conflicted",
        f"marks of a conflict on line {where}: choose a side and remove the marks",
        edited=True,
    )


def judge_alone(current: str) -> Fresh | None:
    """What the header of a module without a description beside it tells; None: no header.

    Whoever keeps only the module took it over as it is: a newer template is no failure then.
    """
    from pipegen.vendor.header import is_pristine, read_header

    header = read_header(current)
    if header is None:
        return None
    if found := _conflict(current):
        return found
    newer = _newer(header.description, header.template_digest)
    if is_pristine(current):
        message = newer or "as pipegen wrote it; no description beside it"
        return Fresh("pristine", message, bool(newer))
    message = newer or "edited by its owner; no description beside it"
    return Fresh("edited", message, bool(newer), edited=True)


def _newer(description: str, template_digest: str) -> str:
    """A sentence if this pipegen would not use the template that the header names."""
    from pipegen.description_file import parse_description
    from pipegen.errors import InputError
    from pipegen.planning import plan
    from pipegen.rendering import template_digest as digest_today

    if not description:
        return ""
    try:
        template = plan(parse_description(description)).template
    except InputError:
        return "this pipegen does not accept the description in its header any more"
    if digest_today(template) == template_digest:
        return ""
    return (
        "a newer template exists; to see what it gives, save the description in the header as a "
        "TOML file in another folder and run `pipegen generate` there"
    )


def _change(mine: object, today: object) -> str:
    """What moved on since the file was written."""
    changed = [
        word
        for word, field in (("description", "description"), ("template", "template_digest"))
        if getattr(mine, field, None) != getattr(today, field, None)
    ]
    return f"its {' and '.join(changed)} changed" if changed else "pipegen writes it differently"


class Renderer:
    """Renders descriptions, and remembers the texts: formatting takes most of a second."""

    def __init__(
        self,
        folder: Path | None,
        render: Callable[[Path], dict[Path, str]] | None = None,
    ) -> None:
        self._cache = Cache(folder / "render" if folder else None)
        self._render = render

    def files(self, description: Path) -> dict[Path, str]:
        """The files the description stands for, and their texts.

        Raises InputError if the description is wrong.
        """
        from pipegen.selection_table import template_folder

        try:
            text = description.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return self._generate(description)  # which says what is wrong
        key = render_key(description, text, template_folder())
        known = self._cache.get(key)
        if known is not None and all(isinstance(value, str) for value in known.values()):
            return {description.parent / name: str(value) for name, value in known.items()}
        files = self._generate(description)
        if all(path.parent == description.parent for path in files):
            self._cache.put(key, {path.name: value for path, value in files.items()})
        return files

    def _generate(self, description: Path) -> dict[Path, str]:
        if self._render is not None:
            return self._render(description)
        from pipegen.generating import generate_one

        return generate_one(description)
