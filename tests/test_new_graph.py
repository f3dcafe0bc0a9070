# SPDX-License-Identifier: Apache-2.0
"""`pipegen new --op custom`: the questions in a terminal, and the graphs that come of them."""

import ast
import tomllib
from itertools import combinations_with_replacement

import pytest
from click.testing import CliRunner
from terminal import answer_in_a_terminal

from pipegen import rendering
from pipegen.cli import graph_additions, main, new_graph
from pipegen.cli.graph_additions import ADDITIONS, Asked
from pipegen.description_file import description_from_data, load_description
from pipegen.planning import plan
from pipegen.planning.custom.bodies import expected
from pipegen.planning.custom.reading import read_graph
from pipegen.rendering import render
from pipegen.vocabulary import DTYPES

CUSTOM = ["asked", "--op", "custom", "--backend", "cute"]
LINE = [""] * 10  # architecture, style, line, roles, four types, tile, stages


@pytest.fixture(autouse=True)
def _unformatted(monkeypatch):
    """Formatting takes as long as all the rest."""
    monkeypatch.setattr(rendering, "format_text", lambda text: text)


def graph_of(path):
    graph = read_graph(plan(load_description(path)).description)
    assert graph is not None
    return graph


@pytest.fixture
def answered(tmp_path, monkeypatch):
    """Answers typed in this process, as if it were a terminal; what was shown, and the graph."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pipegen.cli.new._interactive", lambda: True)

    def run(arguments, answers):
        typed = "\n".join(answers) + "\n" * 30
        done = CliRunner().invoke(main, ["new", *arguments], input=typed, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert "not added" not in done.output
        return done.output, graph_of(tmp_path / "asked.toml")

    return run


def test_enter_to_all_is_load_convert_compute_store(tmp_path):
    """The ten lines of README, with a name for each ring."""
    shown = answer_in_a_terminal(CUSTOM, [], tmp_path)
    graph = graph_of(tmp_path / "asked.toml")
    assert [ring.edge for ring in graph.rings] == [
        "load -> convert",
        "convert -> compute",
        "compute -> store",
    ]
    assert [ring.parts[0].dtype for ring in graph.rings] == ["bf16", "f32", "bf16"]
    assert "convert_tiles (3 x 32768 B, once a tile) -> compute [thread, 4 warps]" in shown
    assert "order: groups that take the tiles in turn" in shown


def test_everything_a_line_can_have(answered, tmp_path):
    """An input, a reader, groups with two parts that hand on, each asked for in a few words."""
    answers = [
        *LINE,
        *("input", "bias", "compute", "f32", "N", ""),
        *("reader", "compute_tiles", "", "", "", "M"),
        *("order", "convert", "n", "3", "2", "y"),
    ]
    _, graph = answered(CUSTOM, answers)
    assert graph.ring("bias").edge == "load_bias -> compute"
    assert graph.ring("compute_tiles").targets == ("store", "look")
    (order,) = graph.orders
    assert (order.roles, order.groups, order.depth) == (("convert",), 3, 2)
    assert order.state is not None
    data = tomllib.loads((tmp_path / "asked.toml").read_text())
    assert data["role"]["convert"]["turn"].startswith("pass")
    assert data["tensor"]["look_out"]["expect"] == "(bias + x).sum(1)"
    ast.parse((tmp_path / "asked.py").read_text())


def test_two_roles_in_turn_and_two_ctas(answered):
    answers = [
        *LINE,
        *("order", "compute", "y", "", ""),
        *("cluster", "2,1", "convert_tiles", ""),
    ]
    _, graph = answered(CUSTOM, answers)
    assert graph.orders[0].roles == ("compute_even", "compute_odd")
    assert graph.cluster == (2, 1)
    assert [ring.name for ring in graph.rings if ring.peer] == ["convert_tiles"]


def test_a_ring_that_leads_back(answered):
    answers = [*LINE, "feedback", "compute -> convert", "2"]
    shown, graph = answered(CUSTOM, answers)
    assert "2 full at first" in shown
    assert graph.ring("compute_back").credits == 2
    assert "compute_back: what the tile before has left" in graph.role("convert").body


def test_products(answered, tmp_path):
    """Operands, K, a role that converts, an epilogue; then P."""
    answers = ["", "", "product", "f16", "i8", "y", "f32", "128,128,32"]
    shown, graph = answered(CUSTOM, answers)
    assert "at each step of K) -> convert" in shown
    assert (graph.tile, graph.depths) == ((128, 128), (32, 0))
    assert graph.role("multiply").kind == "wgmma"
    assert graph.ring("wide").parts[0].dtype == "f16"
    for written in tmp_path.iterdir():
        written.unlink()
    _, again = answered([*CUSTOM, "--graph", "two-products"], [])
    assert again.depths == (64, 128)


def test_a_wrong_size_is_asked_again(tmp_path):
    shown = answer_in_a_terminal(CUSTOM, [*LINE[:8], "33,256", "32,128", "0", "2"], tmp_path)
    assert "tile.m = 33" in shown
    assert "load -> convert is a ring buffer" in shown
    graph = graph_of(tmp_path / "asked.toml")
    assert graph.tile == (32, 128)
    assert {ring.stages for ring in graph.rings} == {2}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--graph", "prod"), "--graph: no such graph, got 'prod'"),
        (("--graph", "product", "--roles", "a,b"), "--roles: roles in a line are no graph of"),
        (("--graph", "product", "--tile", "128,128"), "--tile: needs 3 whole numbers"),
        (("--graph", "two-products", "--tile", "128,64,64"), "--tile: needs 4 whole numbers"),
        (("--graph", "product", "--set", "order.turns.roles=epilogue"), "order.turns"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_wrong_options_are_named(pipegen, tmp_path, options, said):
    done = pipegen("new", "k", "--op", "custom", "--backend", "cute", "--arch", "sm_90a", *options)
    assert done.exit_code == 2
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


def test_without_questions_by_options_and_settings(pipegen, tmp_path):
    """Each table of a graph by --set, on top of a first graph or instead of it."""
    hopper = ("--op", "custom", "--backend", "cute", "--arch", "sm_90a")
    settings = ("order.turns.roles=convert", "order.turns.groups=2", "tensor.y.read=convert")
    words = [word for setting in settings for word in ("--set", setting)]
    assert pipegen("new", "turns", *hopper, "--graph", "line", *words).exit_code == 0
    assert graph_of(tmp_path / "turns.toml").orders[0].groups == 2
    done = pipegen("new", "gemm", *hopper, "--graph", "product", "--dtype-b", "i8",
                   "--tile", "128,64,32", "--set", "tensor.bias.read=epilogue",
                   "--set", "tensor.bias.shape=N")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert [part.name for part in graph_of(tmp_path / "gemm.toml").role("epilogue").reads]
    own = ("tensor.x.read=load", "tensor.out.write=keep", "pipeline.x.edge=load -> keep")
    words = [word for setting in own for word in ("--set", setting)]
    assert pipegen("new", "own", *hopper, *words).exit_code == 0
    assert [ring.edge for ring in graph_of(tmp_path / "own.toml").rings] == ["load -> keep"]


# ---- Every addition to every graph, by the functions behind the questions -----------------------


def asked(arch: str, roles: str = "load, convert, compute, store") -> Asked:
    def whole(tables):
        kernel = {"op": "custom", "backend": "cute", "arch": arch, "name": "k"}
        return {"pipegen": 1, "kernel": kernel, **tables}

    names = new_graph.roles_of(roles)
    types = new_graph.usual_types(names, "bf16")
    tables = new_graph.graph_data(names, "bf16", "bf16", types, None)
    return Asked(tables, whole, [word for word in DTYPES if word != "i4"])


@pytest.mark.parametrize(("first", "second"), list(combinations_with_replacement(ADDITIONS, 2)))
def test_two_additions_one_after_the_other(first, second, monkeypatch):
    """What is offered is valid, and what it is expected to write follows from identity bodies."""
    monkeypatch.setattr(graph_additions, "choose", lambda _, choices, default=None: choices[-1])
    monkeypatch.setattr(graph_additions, "new_name", lambda _, __, usual: usual[1])
    monkeypatch.setattr("click.prompt", lambda *_, type, **__: type.max)
    monkeypatch.setattr("click.confirm", lambda *_, **__: True)
    graph = asked("sm_100a")
    for word in (first, second):
        fits, make = ADDITIONS[word]
        if fits(graph):
            tables = make(graph)
            if graph.fits(tables):
                graph.tables = tables
    made = plan(description_from_data(graph.whole(graph.tables)))
    assert ast.parse("".join(render(made).values()))
    read = read_graph(made.description)
    known = {} if read.feeds_back else expected(read)
    for name, text in known.items():
        assert graph.tables["tensor"][name].get("expect", text) == text


def test_a_product_is_offered_where_there_is_a_template():
    data = new_graph.product_data("wgmma", "bf16", "bf16", "bf16", True)
    assert new_graph.valid(asked("sm_90a").whole(data))
    assert not new_graph.valid(asked("sm_100a").whole(data))
