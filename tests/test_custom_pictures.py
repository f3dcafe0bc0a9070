# SPDX-License-Identifier: Apache-2.0
"""op = "custom": the graph as text and as SVG, and the formulas that `pipegen plan` shows."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations
from pathlib import Path

import pytest
from random_graphs import valid as random_graph
from random_orders import valid as random_order

from pipegen.description_file import description_from_data, load_description
from pipegen.planning import plan
from pipegen.planning.custom.draw import draw_text
from pipegen.planning.custom.numbers import Numbers
from pipegen.planning.custom.picture import draw_svg
from pipegen.planning.custom.product_numbers import numbers_for
from pipegen.planning.custom.reading import read_graph

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "generated").rglob("*custom_*.toml"))
SVG = "{http://www.w3.org/2000/svg}"
CUTE = ROOT / "generated" / "cute"


def numbers_of(description) -> Numbers:
    kernel = description.kernel
    graph = read_graph(plan(description).description)
    assert graph is not None
    return numbers_for(graph, kernel.arch, kernel.backend)


def picture_of(numbers: Numbers) -> ElementTree.Element:
    return ElementTree.fromstring(draw_svg(numbers, "a graph"))


def words_of(picture: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in picture.iter(f"{SVG}text")]


def boxes_of(picture: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    """(left, top, right, bottom) of every box; neither the background nor the frames."""
    found = []
    for each in picture.iter(f"{SVG}rect"):
        if each.get("rx") in ("6", "14"):
            x, y, width, height = (float(each.get(k, "")) for k in ("x", "y", "width", "height"))
            found.append((x, y, x + width, y + height))
    return found


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_formulas_of_counts_make_their_values(path):
    """What is counted of groups in turn, of both CTAs of a cluster, of warpgroups in Pallas."""
    made = plan(load_description(path))
    counts = [number for number in made.numbers if number.name.endswith("_arrive_count")]
    assert counts
    for number in counts:
        assert re.fullmatch(r"[\d +*()]+", number.formula)
        assert eval(number.formula) == number.value, number.name


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_both_drawings_have_all_of_a_graph(path):
    numbers = numbers_of(load_description(path))
    graph, text = numbers.graph, draw_text(numbers)
    words = words_of(picture_of(numbers))
    for role in graph.roles:
        assert role.name in words
        assert f"{role.name} [" in text
    for ring in graph.rings:
        assert ring.name in words
        assert f"{ring.name} (" in text
        for holds, said in (
            (ring.peer, "of the other CTA"),
            (ring.multicast, "for both CTAs"),
            (ring.credits, f"{ring.credits} full at first"),
        ):
            assert (said in text) >= bool(holds)
            assert (said in words) >= bool(holds)
    for order in graph.orders:
        assert any(line.startswith(f"{order.name}: ") for line in text.splitlines())
        assert any(word.startswith(f"{order.name}: in turn") for word in words)
    said = f"cluster of {graph.cluster[0]} x {graph.cluster[1]} CTAs: "
    assert (said in text) == graph.clustered
    assert any(word.startswith(said) for word in words) == graph.clustered


def drawn() -> list[tuple[str, Numbers]]:
    """All examples, and random graphs of every kind."""
    found = [(path.stem, numbers_of(load_description(path))) for path in EXAMPLES]
    for seed in range(15):
        for make in (random_graph, random_order):
            description = description_from_data(make(seed))
            found.append((f"{make.__module__} {seed}", numbers_of(description)))
    return found


def test_no_box_lies_on_another_or_outside_and_no_line_goes_through_one():
    for name, numbers in drawn():
        picture = picture_of(numbers)
        boxes = boxes_of(picture)
        assert len(boxes) == len(numbers.graph.roles) + len(numbers.graph.rings)
        width, height = float(picture.get("width", "")), float(picture.get("height", ""))
        for left, top, right, bottom in boxes:
            assert 0 < left < right < width, name
            assert 0 < top < bottom < height, name
        for one, other in combinations(boxes, 2):
            apart = one[2] <= other[0] or other[2] <= one[0]
            assert apart or one[3] <= other[1] or other[3] <= one[1], name
        for line in picture.iter(f"{SVG}path"):
            for x, y in passed(line.get("d", "")):
                inside = [b for b in boxes if b[0] + 1 < x < b[2] - 1 and b[1] + 1 < y < b[3] - 1]
                assert not inside, name


def passed(path: str) -> list[tuple[float, float]]:
    """Points on a path: of its curve, whose ends are level, and of its straight lines."""
    points: list[tuple[float, float]] = []
    for command, text in re.findall(r"([MCHVL])([^MCHVLz]*)", path):
        numbers = [float(word) for word in text.split()]
        if command in "ML":
            points.append((numbers[0], numbers[1]))
        elif command == "C":
            (x0, y0), (x1, y1) = points[-1], (numbers[4], numbers[5])
            for t in (k / 20 for k in range(1, 21)):
                third = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3]
                xs, ys = (x0, numbers[0], numbers[2], x1), (y0, numbers[1], numbers[3], y1)
                points.append(tuple(sum(map(float.__mul__, third, v)) for v in (xs, ys)))  # type: ignore[arg-type]
        else:
            x0, y0 = points[-1]
            x1, y1 = (numbers[0], y0) if command == "H" else (x0, numbers[0])
            points += [(x0 + (x1 - x0) * k / 20, y0 + (y1 - y0) * k / 20) for k in range(1, 21)]
    return points


def test_groups_in_turn_are_framed_together():
    numbers = numbers_of(load_description(CUTE / "custom_sm100_two_exponentials.toml"))
    picture = picture_of(numbers)
    (frame,) = [r for r in picture.iter(f"{SVG}rect") if r.get("stroke") == "#b06000"]
    top, bottom = float(frame.get("y", "")), float(frame.get("y", "")) + float(frame.get("height"))
    left, right = float(frame.get("x", "")), float(frame.get("x", "")) + float(frame.get("width"))
    inside = [b for b in boxes_of(picture) if left < b[0] and b[2] < right]
    inside = [b for b in inside if top < b[1] and b[3] < bottom]
    assert len(inside) == 2
    assert "halo: unit, polynomial in turn; hands on f32 for each of 32 rows" in draw_text(numbers)
    parts = numbers_of(load_description(CUTE / "custom_sm100_running_logsumexp.toml"))
    assert "left: 2 groups of scan in turn, two ordered parts: the body and the turn" in draw_text(
        parts
    )
    assert "left: in turn, body and turn, hands on f32 a row" in words_of(picture_of(parts))
