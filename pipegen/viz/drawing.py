# SPDX-License-Identifier: Apache-2.0
"""The timeline as SVG, and the page around it: one file, no script, nothing loaded."""

from collections.abc import Callable, Sequence
from html import escape

from pipegen.planning import Plan
from pipegen.viz.latency import Span, Timeline

MARK = "pipegen viz"
WIDTH = 1200
_LEFT, _RIGHT, _TOP = 130, 20, 34
_ROW, _GAP = 26, 8
_TICKS = 8
# Fills, dark enough on white for black text on the light ones; the legend names each.
COLOURS = {
    "issue": "#3b6ea8",
    "wait": "#e7e7e7",
    "work": "#2f8f5b",
    "epilogue": "#8d6bb1",
    "filling": "#a9c7e8",
    "full": "#f2c14e",
    "read": "#7cc49a",
}
_WORDS = {
    "issue": "issues loads",
    "wait": "waits",
    "work": "consumes a stage",
    "epilogue": "epilogue",
    "filling": "stage: load on its way",
    "full": "stage: full, waits to be read",
    "read": "stage: being read",
}


def svg(timeline: Timeline) -> str:
    """Roles over time on top, the ring's stages below, arrows from a release to its acquire."""
    rows = {role: number for number, role in enumerate(timeline.roles)}
    first_stage = len(rows)
    height = _TOP + (len(rows) + timeline.stages) * (_ROW + _GAP) + _GAP + 40
    scale = (WIDTH - _LEFT - _RIGHT) / timeline.end

    def x(cycle: int) -> float:
        return round(_LEFT + cycle * scale, 1)

    def y(row: int) -> int:
        return _TOP + row * (_ROW + _GAP) + (_GAP if row >= first_stage else 0)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12" role="img">',
        f"<title>{MARK}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        '<defs><marker id="head" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="5" '
        'markerHeight="5" orient="auto"><path d="M0 0L6 3L0 6z" fill="#b03030"/></marker></defs>',
    ]
    bottom = y(first_stage + timeline.stages) - _GAP
    for cycle in _ticks(timeline.end):
        parts.append(
            f'<line x1="{x(cycle)}" y1="{_TOP - 6}" x2="{x(cycle)}" y2="{bottom}" '
            f'stroke="#dddddd"/><text class="tick" x="{x(cycle)}" y="{_TOP - 12}" '
            f'text-anchor="middle" fill="#555555">{cycle}</text>'
        )
    for role, row in rows.items():
        parts.append(_label(role, y(row)))
    for stage in range(timeline.stages):
        parts.append(_label(f"stage {stage}", y(first_stage + stage)))
    for span in timeline.spans:
        parts.append(
            _box(x(span.start), y(rows[span.role]), x(span.end), COLOURS[span.does],
                 _span_words(span), str(span.step) if span.does == "work" else "")
        )  # fmt: skip
    for hold in timeline.holds:
        words = f"stage {hold.stage}, step {hold.step}: {_WORDS[hold.holds]}, "
        words += f"cycles {hold.start} to {hold.end}"
        parts.append(
            _box(x(hold.start), y(first_stage + hold.stage), x(hold.end), COLOURS[hold.holds],
                 words, str(hold.step))
        )  # fmt: skip
    parts += _arrows(timeline, x, y, rows)
    parts.append(
        f'<text x="{_LEFT}" y="{height - 10}" fill="#555555">cycles of one SM; numbers in the '
        "boxes are steps of K (or tiles); red: a stage that was released lets a waiting producer "
        "go on</text></svg>"
    )
    return "\n".join(parts) + "\n"


def _arrows(
    timeline: Timeline, x: Callable[[int], float], y: Callable[[int], int], rows: dict[str, int]
) -> list[str]:
    """From the consumer's release of a stage to the producer that waited for it."""
    producer, consumer = timeline.roles[:2]
    return [
        f'<line class="release" x1="{x(span.end)}" y1="{y(rows[consumer])}" x2="{x(span.end)}" '
        f'y2="{y(rows[producer]) + _ROW}" stroke="#b03030" stroke-width="1.5" '
        'marker-end="url(#head)"/>'
        for span in timeline.spans
        if span.does == "wait" and span.role == producer
    ]


def _ticks(end: int) -> list[int]:
    step = max(1, end // _TICKS)
    magnitude = 10 ** (len(str(step)) - 1)
    step = max(1, step // magnitude * magnitude)
    return list(range(0, end + 1, step))


def _label(text: str, top: int) -> str:
    return (
        f'<text class="label" x="{_LEFT - 10}" y="{top + _ROW - 8}" text-anchor="end">'
        f"{escape(text)}</text>"
    )


def _box(left: float, top: int, right: float, colour: str, words: str, text: str) -> str:
    width = max(0.5, round(right - left, 1))
    inside = ""
    if text and width >= 8 * len(text) + 4:
        middle = round(left + width / 2, 1)
        inside = (
            f'<text class="step" x="{middle}" y="{top + _ROW - 8}" text-anchor="middle" '
            f'fill="#000000">{escape(text)}</text>'
        )
    return (
        f'<g><title>{escape(words)}</title><rect x="{left}" y="{top}" width="{width}" '
        f'height="{_ROW}" fill="{colour}" stroke="#ffffff" stroke-width="0.5"/>{inside}</g>'
    )


def _span_words(span: Span) -> str:
    on = f" for {span.on}" if span.on else ""
    return (
        f"{span.role}, step {span.step}, stage {span.stage}: {_WORDS[span.does]}{on}, cycles "
        f"{span.start} to {span.end}"
    )


_STYLE = """\
body { font-family: sans-serif; margin: 24px; color: #111; max-width: 1250px; }
table { border-collapse: collapse; margin: 8px 0 20px; }
th, td { border-bottom: 1px solid #ccc; padding: 3px 14px 3px 0; text-align: left;
  vertical-align: top; font-size: 14px; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.legend span { display: inline-block; margin-right: 18px; font-size: 13px; }
.legend i { display: inline-block; width: 14px; height: 14px; margin-right: 6px;
  vertical-align: -2px; }
svg { max-width: 100%; height: auto; }
"""


def page(plan: Plan, timeline: Timeline) -> str:
    """The whole page: the picture, its legend, who waits, and every number of the model."""
    kernel = plan.description.kernel
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{_WORDS[word]}</span>'
        for word, colour in COLOURS.items()
    )
    waits = [
        (role, str(timeline.busy(role)), str(timeline.waited(role)), _on(timeline, role))
        for role in timeline.roles
    ]
    model = [(a.name, str(a.value), a.unit, a.why) for a in timeline.assumptions]
    pipelines = [
        (
            p.name,
            f"{p.producer} -> {p.consumer}",
            p.construct,
            str(p.stages),
            str(p.stage_bytes),
            p.filled_by,
            p.emptied_by,
        )
        for p in plan.pipelines
    ]
    roles = [(r.name, str(r.threads), r.does) for r in plan.roles]
    title = f"{escape(plan.name)}: {kernel.op}, {kernel.backend}, {kernel.arch}"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta name="generator" content="{MARK}">\n<style>\n{_STYLE}</style></head><body>\n'
        f"<h1>{title}</h1>\n<p>{escape(timeline.verdict())}</p>\n"
        f'{svg(timeline)}<p class="legend">{legend}</p>\n'
        "<h2>Who waits for whom</h2>\n"
        + _table(("role", "cycles at work", "cycles waiting", "waits for"), waits, (1, 2))
        + "<h2>The model's numbers</h2>\n<p>A model, no measurement: one SM, loads in order, each "
        "stage the same. Change a number with <code>--rate NAME=VALUE</code>.</p>\n"
        + _table(("number", "value", "unit", "from"), model, (1,))
        + "<h2>Pipelines</h2>\n"
        + _table(
            ("name", "pair", "class", "stages", "B a stage", "filled by", "emptied by"),
            pipelines, (3, 4),
        )
        + "<h2>Roles</h2>\n"
        + _table(("role", "threads", "does"), roles, (1,))
        + f"<p>What limits the stages: {escape(plan.stage_limit)}.</p>\n</body></html>\n"
    )  # fmt: skip


def _on(timeline: Timeline, role: str) -> str:
    names = {s.on for s in timeline.spans if s.role == role and s.does == "wait"}
    return ", ".join(sorted(names)) or "nobody"


def _table(
    heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], numeric: tuple[int, ...]
) -> str:
    def cell(number: int, text: str) -> str:
        kind = ' class="number"' if number in numeric else ""
        return f"<td{kind}>{escape(text)}</td>"

    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "\n".join(
        "<tr>" + "".join(cell(number, text) for number, text in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>\n{body}\n</table>\n"
