# SPDX-License-Identifier: Apache-2.0
"""`viz`: the latency model by hand-made numbers, and its page in a headless browser."""

import html
import json
import re
import shutil
import struct
import subprocess
import zlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from pipegen.description_file import load_description
from pipegen.planning import plan
from pipegen.viz.drawing import page, svg
from pipegen.viz.latency import RATES, Rates, rates_for, simulate

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(path for path in (ROOT / "generated").glob("*/*.toml"))
GEMM = ROOT / "generated/cute/gemm_sm90_c1x1.toml"
PAIR = ROOT / "generated/cute/gemm_sm100_pair_c2x1.toml"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def made(path: Path):
    return plan(load_description(path))


def test_the_model_by_hand():
    """128 x 256 x 64 in bf16: 48 KiB a stage are 768 cycles at 64 B, and 1024 cycles of MMA."""
    timeline = simulate(made(GEMM))
    values = {a.name: a.value for a in timeline.assumptions}
    assert values["transfer"] == 49152 // 64 == 768
    assert values["compute"] == 2 * 128 * 256 * 64 // 4096 == 1024
    assert values["epilogue"] == 128 * 256 * 2 // 64 == 1024
    assert timeline.stages == 4
    reads = [hold for hold in timeline.holds if hold.holds == "read"]
    # The first stage is full after issue, transfer and latency; the next ones follow at once.
    assert reads[0].start == 30 + 768 + 700
    assert [hold.start - reads[0].start for hold in reads[:4]] == [0, 1024, 2048, 3072]
    # The producer goes on with step 4 when step 0 is released.
    waits = [span for span in timeline.spans if span.role == "producer" and span.does == "wait"]
    assert (waits[0].step, waits[0].end, waits[0].on) == (4, reads[0].end, "consumer")
    assert "The consumer bounds it" in timeline.verdict()


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ({"load_bytes": 8}, "Loads bound it"),
        ({"latency": 6000}, "Latency bounds it: 4 stages cover 3072 cycles, a load takes 6768"),
        ({}, "The consumer bounds it"),
    ],
)
def test_verdict_follows_the_numbers(rates, words):
    plan_ = made(GEMM)
    assert words in simulate(plan_, rates_for("sm_90a", rates)).verdict()


def test_the_number_of_stages_that_it_names_hides_the_latency():
    """The verdict's advice, tried: with that many stages the consumer waits only at the start."""
    plan_ = made(GEMM)
    rates = rates_for("sm_90a", {"latency": 6000})
    needed = int(re.findall(r"(\d+) stages would hide it", simulate(plan_, rates).verdict())[0])
    main = plan_.pipelines[0]

    def later_waits(stages: int) -> int:
        changed = replace(plan_, pipelines=(replace(main, stages=stages), *plan_.pipelines[1:]))
        spans = simulate(changed, rates).spans
        waits = [s for s in spans if s.role == "consumer" and s.does == "wait" and s.step]
        return sum(span.end - span.start for span in waits)

    assert later_waits(needed) == 0 < later_waits(needed - 2)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_what_must_hold_of_every_timeline(path):
    timeline = simulate(made(path))
    for role in timeline.roles:
        spans = sorted((s for s in timeline.spans if s.role == role), key=lambda s: s.start)
        assert spans, role
        assert all(a.end <= b.start for a, b in pairwise(spans)), role
    for stage in range(timeline.stages):
        holds = sorted((h for h in timeline.holds if h.stage == stage), key=lambda h: h.start)
        assert all(a.end <= b.start for a, b in pairwise(holds))
        assert {h.holds for h in holds} >= {"filling", "read"}
    for step in range(timeline.steps):
        kinds = {h.holds: h for h in timeline.holds if h.step == step}
        assert kinds["filling"].end <= kinds["read"].start
    assert timeline.steps > timeline.stages
    root = ET.fromstring(svg(timeline))
    assert root.tag.endswith("svg")


def test_accumulators_have_a_role_of_their_own_on_blackwell():
    timeline = simulate(made(PAIR))
    assert timeline.roles == ("tma", "mma", "epilogue")
    assert {s.role for s in timeline.spans if s.does == "epilogue"} == {"epilogue"}


def test_numbers_are_on_the_page_and_nothing_is_loaded():
    plan_ = made(GEMM)
    timeline = simulate(plan_)
    text = page(plan_, timeline)
    for assumption in timeline.assumptions:
        assert f"<td>{assumption.name}</td>" in text
        assert html.escape(assumption.why) in text
    assert not re.search(r"<script|<link|<img|@import|url\(h|src=", text)
    assert page(plan_, simulate(plan_)) == text


def test_command_writes_page_and_picture_and_spares_other_files(pipegen, tmp_path):
    shutil.copy(GEMM, "gemm.toml")
    result = pipegen("viz", "gemm.toml", "-o", "out", "--rate", "latency=9000")
    assert result.exit_code == 0, result.output
    assert "Latency bounds it" in result.stdout
    assert "9000" in (tmp_path / "out/gemm.html").read_text()
    ET.parse(tmp_path / "out/gemm.svg")
    assert pipegen("viz", "gemm.toml", "-o", "out").exit_code == 0
    (tmp_path / "out/gemm.svg").write_text("mine")
    refused = pipegen("viz", "gemm.toml", "-o", "out")
    assert refused.exit_code == 2
    assert "is no picture of pipegen's" in refused.stderr
    assert (tmp_path / "out/gemm.svg").read_text() == "mine"


@pytest.mark.parametrize("rate", ["latency", "latency=0", "latency=x", "latncy=3", "latency=-1"])
def test_wrong_rate_is_exit_code_2(pipegen, rate):
    shutil.copy(GEMM, "gemm.toml")
    result = pipegen("viz", "gemm.toml", "--rate", rate)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --rate: ")


def test_rates_are_there_for_every_architecture():
    assert all(isinstance(rates, Rates) for rates in RATES.values())
    with pytest.raises(KeyError):
        rates_for("sm_90a", {"speed": 1})


# In a browser.


@pytest.fixture(scope="module")
def browser() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no headless browser here ({', '.join(BROWSERS)}): the page was not looked at")
    return found


def run_browser(browser: str, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--force-device-scale-factor=1", f"--user-data-dir={folder / 'profile'}", *arguments,
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


# Measures what is drawn: boxes of texts, and whether all is inside the picture.
MEASURE = """<script>
const svg = document.querySelector("svg"), frame = svg.getBoundingClientRect();
const texts = [...svg.querySelectorAll("text")].map(t => {
  const r = t.getBoundingClientRect();
  return {kind: t.getAttribute("class"), text: t.textContent, x: r.left, y: r.top,
          right: r.right, bottom: r.bottom};
});
const steps = [...svg.querySelectorAll("g")].filter(g => g.querySelector("text")).map(g => {
  const r = g.querySelector("rect").getBoundingClientRect();
  const t = g.querySelector("text").getBoundingClientRect();
  return t.left >= r.left - 1 && t.right <= r.right + 1;
});
document.title = "MEASURED" + JSON.stringify({texts, steps, frame: {right: frame.right,
  bottom: frame.bottom, left: frame.left, top: frame.top}, wide: document.body.scrollWidth,
  rows: document.querySelectorAll("table tr").length});
</script></body>"""


@pytest.mark.parametrize("path", [GEMM, PAIR, ROOT / "generated/cute/stream_sm90_tma.toml"],
                         ids=lambda path: path.stem)  # fmt: skip
def test_page_in_a_browser(browser, tmp_path, path):
    plan_ = made(path)
    text = page(plan_, simulate(plan_))
    file = tmp_path / "page.html"
    file.write_text(text.replace("</body>", MEASURE))
    dom = run_browser(browser, tmp_path, "--window-size=1300,1400", "--dump-dom", f"file://{file}")
    found = re.search(r"<title>MEASURED(.*?)</title>", dom, re.DOTALL)
    assert found is not None
    seen = json.loads(html.unescape(found[1]))
    assert seen["wide"] <= 1300
    assert seen["rows"] > 10
    assert all(seen["steps"])
    frame = seen["frame"]
    assert frame["right"] - frame["left"] > 900
    for text_ in seen["texts"]:
        assert frame["left"] <= text_["x"] < text_["right"] <= frame["right"] + 1, text_
        assert frame["top"] - 1 <= text_["y"] < text_["bottom"] <= frame["bottom"] + 1, text_
    for kind in ("label", "tick"):
        boxes = [t for t in seen["texts"] if t["kind"] == kind]
        assert len(boxes) > 2
        for number, a in enumerate(boxes):
            for b in boxes[number + 1 :]:
                apart = a["right"] <= b["x"] or b["right"] <= a["x"]
                assert apart or a["bottom"] <= b["y"] + 4 or b["bottom"] <= a["y"] + 4, (a, b)


def test_picture_in_a_browser_shows_every_colour(browser, tmp_path):
    file = tmp_path / "picture.svg"
    file.write_text(svg(simulate(made(GEMM))))
    shot = tmp_path / "shot.png"
    run_browser(
        browser, tmp_path, "--window-size=1200,400", f"--screenshot={shot}", f"file://{file}"
    )
    colours = count_colours(shot.read_bytes())
    from pipegen.viz.drawing import COLOURS

    for name, colour in COLOURS.items():
        pixel = tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))
        assert colours.get(pixel, 0) > 20, name


def count_colours(png: bytes) -> dict[tuple[int, ...], int]:
    """The pixels of each colour in a PNG of 8 bits a channel, not interlaced."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    channels = {2: 3, 6: 4}[kind]
    assert depth == 8
    data, at = b"", 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += length + 12
    raw, line = zlib.decompress(data), bytearray(width * channels)
    counts: dict[tuple[int, ...], int] = {}
    stride = width * channels
    for row in range(height):
        start = row * (stride + 1)
        line = unfilter(raw[start], raw[start + 1 : start + 1 + stride], line, channels)
        for x in range(0, stride, channels):
            pixel = tuple(line[x : x + 3])
            counts[pixel] = counts.get(pixel, 0) + 1
    return counts


def unfilter(kind: int, row: bytes, above: bytearray, step: int) -> bytearray:
    """One line of a PNG (RFC 2083, section 6)."""
    out = bytearray(row)
    for i in range(len(out)):
        left = out[i - step] if i >= step else 0
        corner = above[i - step] if i >= step else 0
        if kind == 1:
            add = left
        elif kind == 2:
            add = above[i]
        elif kind == 3:
            add = (left + above[i]) // 2
        elif kind == 4:
            guess = left + above[i] - corner
            add = min((left, above[i], corner), key=lambda v: abs(guess - v))
        else:
            add = 0
        out[i] = (out[i] + add) & 255
    return out
