# SPDX-License-Identifier: Apache-2.0
"""op = "custom": the user's own graph is read, checked, drawn, written, and compiles."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from random_graphs import broken, valid

from pipegen import rendering
from pipegen.compiling.installed import dsl as find_dsl
from pipegen.description_file import description_from_data, load_description, parse_description
from pipegen.errors import InputError
from pipegen.planning import plan
from pipegen.planning.custom.bodies import expected, identity
from pipegen.planning.custom.draw import depths, draw_text
from pipegen.planning.custom.numbers import Numbers
from pipegen.planning.custom.picture import draw_svg
from pipegen.planning.custom.reading import read_graph, split_edge
from pipegen.rendering import render
from pipegen.selection import Selection, select
from pipegen.vendor.header import read_header

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "generated" / "cute").glob("custom_*.toml"))
GRAPHS = 36  # of which the checked-in H200 results are, too

TEN_LINES = """\
pipegen = 1
kernel = { op = "custom", backend = "cute", arch = "sm_90a" }
[tensor]
x = { read = "load" }
out = { write = "store" }
[pipeline]
raw = { edge = "load -> convert" }
wide = { edge = "convert -> compute", dtype = "f32" }
done = { edge = "compute -> store", dtype = "bf16" }
"""


def graph_of(text: str):
    graph = read_graph(parse_description(text))
    assert graph is not None
    return graph


def test_ten_lines_are_enough_for_a_chain_of_four_roles():
    assert len(TEN_LINES.splitlines()) <= 10
    assert TEN_LINES in (ROOT / "README.md").read_text()
    made = plan(parse_description(TEN_LINES))
    assert [role.name for role in made.roles] == ["convert", "compute", "store", "load"]
    assert [pipe.construct for pipe in made.pipelines] == [
        "PipelineTmaAsync",
        "PipelineAsync",
        "PipelineAsync",
    ]
    raw, wide, done = made.pipelines
    # 32 x 256 of bf16, f32 and bf16; one TMA warp, then four warps of 32 threads.
    assert (raw.stage_bytes, wide.stage_bytes, done.stage_bytes) == (16384, 32768, 16384)
    assert (raw.tx_count, raw.full_arrive_count, raw.empty_arrive_count) == (16384, 1, 4)
    assert (wide.tx_count, wide.full_arrive_count, wide.empty_arrive_count) == (None, 128, 4)
    # 18 barriers and three stages of 64 KiB: a fourth would be 262272 B.
    assert [pipe.stages for pipe in made.pipelines] == [3, 3, 3]
    assert made.number("smem_bytes").value == 256 + 3 * 65536


def test_edges_are_read():
    assert split_edge("load -> sum, copy") == (("load",), ("sum", "copy"))
    assert split_edge("left,right->add") == (("left", "right"), ("add",))
    for wrong in ("", "load", "load -> ", "-> sum", "a -> b -> c", "A -> b", "a -> b, b", "a => b"):
        assert split_edge(wrong) is None


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_each_edge_is_of_the_class_that_the_table_has(path):
    made = plan(load_description(path))
    arch = made.description.kernel.arch
    for pipe in made.pipelines:
        if pipe.groups > 1:
            assert f"{pipe.name}_order = pipeline.{pipe.construct}.create(" in text_of(made)
            continue
        found = select(pipe.producer, pipe.consumer, arch=arch, backend="cute")
        assert isinstance(found, Selection)
        assert pipe.construct == found.cls
        assert f"{pipe.name}_ring = pipeline.{found.cls}.create(" in text_of(made)


def text_of(made) -> str:
    (text,) = render(made).values()
    return text


def test_a_tile_with_three_readers_is_released_by_all():
    text = TEN_LINES.replace("load -> convert", "load -> convert, look, see")
    text += '[tensor.a]\nwrite = "look"\n[tensor.b]\nwrite = "see"\n[role.see]\nwarps = 8\n'
    ring = plan(parse_description(text)).pipeline("raw")
    assert ring.empty_arrive_count == 4 + 4 + 8


def test_two_tma_warps_fill_one_stage_with_a_tensor_each():
    made = plan(parse_description("""
            kernel = { op = "custom", backend = "cute", arch = "sm_90a" }
            tensor.x = { read = "left" }
            tensor.y = { read = "right" }
            tensor.out = { write = "add" }
            pipeline.both = { edge = "left, right -> add" }
            """))
    (ring,) = made.pipelines
    assert (ring.full_arrive_count, ring.tx_count, ring.stage_bytes) == (2, 16384, 32768)
    text = text_of(made)
    assert "load_part(both_x, ADD_WARPS, thread) + load_part(both_y, ADD_WARPS, thread)" in text
    assert text.count("both_producer.tail()") == 1


def test_what_has_rows_only_comes_once_a_panel():
    made = plan(load_description(ROOT / "generated/cute/custom_sm90_many_rings.toml"))
    graph = read_graph(made.description)
    assert {ring.name: ring.every for ring in graph.rings} == {
        "x": "tile",
        "v": "panel",
        "b": "tile",
        "w": "tile",
        "seen": "tile",
        "done": "tile",
    }
    assert [part.name for part in graph.role("add").kept] == ["total"]
    assert expected(graph) == {
        "out": "(x + v[:, None] + b + w + z)",
        "total": "(x + b + w + z).sum(1)",
        "again": "x",
    }


def test_a_body_and_its_end_stand_in_the_module_as_they_were_given():
    path = ROOT / "generated" / "cute" / "custom_sm90_top_two.toml"
    description = load_description(path)
    text = path.with_suffix(".py").read_text()
    for given in (description.role["top"].body, description.role["top"].finish):
        for line in given.strip().splitlines():
            assert f"    {line}" in text
    assert "first_kept.fill(-1e30)" in text


def test_the_identity_of_a_role_without_a_full_input_repeats_it():
    role = graph_of("""
        kernel = { op = "custom", backend = "cute", arch = "sm_90a" }
        tensor.v = { read = "load", shape = "M" }
        tensor.out = { write = "spread" }
        pipeline.v = { edge = "load -> spread" }
        """).role("spread")
    assert identity(role) == [
        "values = load_part(v, SPREAD_WARPS, thread)",
        "values = values.broadcast_to((SPREAD_ROWS, VECTOR))",
        "out.store(values.to(out.element_type))",
    ]


def test_the_sum_of_a_vector_that_all_rows_share_is_in_every_row():
    role = graph_of("""
        kernel = { op = "custom", backend = "cute", arch = "sm_90a" }
        tensor.b = { read = "load", shape = "N" }
        tensor.x = { read = "other" }
        tensor.sums = { write = "add", shape = "M", dtype = "f32" }
        tensor.out = { write = "keep" }
        pipeline.b = { edge = "load -> add" }
        pipeline.x = { edge = "other -> keep" }
        """).role("add")
    assert identity(role) == [
        "row_values = load_part(b, ADD_WARPS, thread)",
        "row_values = row_values.broadcast_to((ADD_ROWS, VECTOR))",
        "add_rows(row_values, sums, columns, thread)",
    ]


@pytest.mark.parametrize(("dtype", "step"), [("i8", "128"), ("bf16", ""), ("f32", "")])
def test_every_stage_begins_where_tma_may_write(dtype, step):
    """A vector of 64 bytes is followed by the next stage 128 bytes later."""
    made = plan(parse_description(f"""
            kernel = {{ op = "custom", backend = "cute", arch = "sm_90a" }}
            tile = {{ m = 32, n = 64 }}
            tensor.b = {{ read = "load", shape = "N", dtype = "{dtype}" }}
            tensor.out = {{ write = "spread" }}
            pipeline.b = {{ edge = "load -> spread", stages = 3 }}
            """))
    text = text_of(made)
    padded = f", {step}" if step else ""
    assert f"b_smem = storage.b.get_tensor(stages_layout(1, TILE_N, B_STAGES{padded}))" in text
    assert f"{step or 'TILE_N'} * B_STAGES], 128" in text
    assert made.pipeline("b").stage_bytes % 128 == 0
    assert made.number("smem_bytes").value == 128 + 3 * made.pipeline("b").stage_bytes


def test_depth_decides_whether_two_ways_hang():
    """Rule PG274 names the number of tiles at which the deeper way's ring is full."""
    for stages in (1, 4):
        text = (ROOT / "tests/cases/custom_two_ways/kernel.toml").read_text()
        with pytest.raises(InputError, match=f"with {stages + 1} tiles a panel") as caught:
            plan(parse_description(text.replace("stages = 4", f"stages = {stages}")))
        assert "load -> mean, scale has" in str(caught.value)
    # A second load for the second way: no role needs what another holds back.
    apart = text.replace(
        'x = { edge = "load -> mean, scale", stages = 4 }',
        'x = { edge = "load -> mean", stages = 4 }\ny = { edge = "again -> scale" }',
    ).replace('out = { write = "scale" }', 'out = { write = "scale" }\ny = { read = "again" }')
    assert plan(parse_description(apart)).pipeline("y").stages == 4


def test_registers_that_the_block_has():
    text = TEN_LINES + "[role]\nconvert = { registers = 168 }\ncompute = { registers = 256 }\n"
    text += "store = { registers = 40 }\n"
    # 13 warps start with 128 registers a thread, as 16 would: 1664 together.
    with pytest.raises(InputError, match=r"4 \* 168 \+ 4 \* 256 \+ 4 \* 40 \+ 1 \* 128 = 1984"):
        plan(parse_description(text))
    text = text.replace("256", "232").replace("168", "120").replace("40", "24")
    emitted = text_of(plan(parse_description(text)))
    assert "cute.arch.setmaxregister_decrease(120)" in emitted
    assert "cute.arch.setmaxregister_increase(232)" in emitted
    assert "cute.arch.setmaxregister_decrease(24)" in emitted


def test_the_launch_has_the_registers_that_the_plan_divides(pipegen):
    """ptxas' own report of a kernel in which registers change hands."""
    path = ROOT / "generated" / "cute" / "custom_sm90_registers.toml"
    (entry,) = json.loads(pipegen("check", path, "--format", "json").stdout)["modules"]
    if entry["compile"]["status"] == "skip":
        pytest.skip(entry["compile"]["message"])
    made = plan(load_description(path))
    launch = made.number("launch_registers").value
    assert entry["compile"]["registers"] == launch == 168
    asked = sum(role.threads * (role.registers or launch) for role in made.roles)
    assert asked <= made.number("threads").value * launch


def test_the_graph_as_text_and_as_a_picture(pipegen, tmp_path):
    path = ROOT / "generated" / "cute" / "custom_sm90_many_rings.toml"
    graph = read_graph(plan(load_description(path)).description)
    numbers = Numbers(graph, "sm_90a")
    text = draw_text(numbers)
    assert "x (4 x 8192 B, once a tile) -> copy [thread, 4 warps] -> again" in text
    assert text.count("add (drawn above)") == 4
    picture = ElementTree.fromstring(draw_svg(numbers, "many & more"))
    words = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    for role in graph.roles:
        assert role.name in words
    assert depths(graph)["save"] == 2
    shown = pipegen("plan", path, "--svg", tmp_path / "graph.svg")
    assert shown.exit_code == 0
    assert text.splitlines()[0] in shown.stdout
    assert (tmp_path / "graph.svg").read_text() == draw_svg(numbers, path.stem)


def test_only_a_custom_kernel_has_a_graph_to_draw(pipegen, tmp_path):
    path = ROOT / "generated" / "cute" / "gemm_sm90_c1x1.toml"
    wrong = pipegen("plan", path, "--svg", tmp_path / "graph.svg")
    assert wrong.exit_code == 2
    assert 'only op = "custom" has a graph' in wrong.stderr
    path = ROOT / "generated" / "cute" / "custom_sm90_convert.toml"
    wrong = pipegen("plan", path, "--svg", tmp_path / "no" / "graph.svg")
    assert wrong.exit_code == 2


def test_new_writes_a_line_of_roles(pipegen, tmp_path):
    options = ("--op", "custom", "--backend", "cute", "--arch", "sm_90a", "-o", tmp_path)
    roles = ("--roles", "load, convert, keep", "--dtype", "i8", "--dtype-out", "f32")
    done = pipegen("new", "my_graph", *options, *roles)
    assert done.exit_code == 0, done.stderr
    description = load_description(tmp_path / "my_graph.toml")
    assert [ring.edge for ring in description.pipeline.values()] == [
        "load -> convert",
        "convert -> keep",
    ]
    assert (tmp_path / "my_graph.py").read_text() == text_of(plan(description))
    edge = "pipeline.x.edge=load -> keep"
    own = ("--set", "tensor.x.read=load", "--set", "tensor.out.write=keep", "--set", edge)
    assert pipegen("new", "own_graph", *options, *own).exit_code == 0
    assert list(load_description(tmp_path / "own_graph.toml").pipeline) == ["x"]
    wrong = pipegen("new", "third", *options, "--roles", "load")
    assert wrong.exit_code == 2
    assert "needs two or more different roles" in wrong.stderr


@pytest.fixture
def _unformatted(monkeypatch):
    """Black takes most of a kernel's time, and is not what these tests are about."""
    monkeypatch.setattr(rendering, "format_text", lambda text: text)


@pytest.mark.parametrize("seed", range(120))
@pytest.mark.usefixtures("_unformatted")
def test_random_graphs_are_written(seed):
    data = valid(seed)
    made = plan(description_from_data(data))
    text = text_of(made)
    compile(text, made.name, "exec")
    assert 2 <= len(made.roles) <= 5
    assert 1 <= len(made.pipelines) <= 4
    assert all(pipe.stage_bytes % 128 == 0 for pipe in made.pipelines)
    for name in data["pipeline"]:
        assert text.count(f"{name}_ring = ") == 1


@pytest.mark.parametrize("seed", range(200))
def test_random_faults_are_refused_for_the_right_reason(seed):
    code, data = broken(seed)
    with pytest.raises(InputError) as caught:
        description_from_data(data)
    assert code in str(caught.value)


COMPILE = """
import importlib, os, sys
sys.path.insert(0, sys.argv[1])
for name in sorted(os.listdir(sys.argv[1])):
    if name.startswith("graph_"):
        importlib.import_module(name[:-3]).compile_custom()
        print(name, flush=True)
"""


@pytest.mark.usefixtures("_unformatted")
def test_random_graphs_compile(tmp_path):
    found = find_dsl("cute")
    if found.reason:
        pytest.skip(found.reason)
    for seed in range(GRAPHS):
        for name, text in render(plan(description_from_data(valid(seed)))).items():
            (tmp_path / name).write_text(text)
    (tmp_path / "run.py").write_text(COMPILE)
    done = subprocess.run(
        [sys.executable, tmp_path / "run.py", tmp_path],
        env={**os.environ, "CUTE_DSL_ARCH": "sm_90a"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == GRAPHS


def test_plan_as_json_has_the_rings(pipegen):
    path = ROOT / "generated" / "cute" / "custom_sm90_add_two.toml"
    shown = json.loads(pipegen("plan", path, "--format", "json").stdout)
    assert [ring["construct"] for ring in shown["pipelines"]] == [
        "PipelineTmaAsync",
        "PipelineCpAsync",
    ]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_header_holds_the_bodies_too(path):
    """What is written at the top is enough to write the module again."""
    text = path.with_suffix(".py").read_text()
    again = parse_description(read_header(text).description)
    assert again == load_description(path)


PALLAS = sorted((ROOT / "generated" / "pallas").glob("pallas_custom_*.toml"))
# Graphs that multiply have tests of their own.
ELEMENTWISE = [
    path for path in PALLAS if "sm_90a" in path.read_text() and "wgmma" not in path.read_text()
]
INTERPRETED = [(path.stem, path.read_text()) for path in ELEMENTWISE] + [
    (
        "fan_out_and_in",
        """
        kernel = { op = "custom", backend = "pallas", arch = "sm_90a" }
        tile = { m = 32, n = 64 }
        tensor.x = { read = "load" }
        tensor.y = { read = "other", dtype = "f16" }
        tensor.out = { write = "join", dtype = "f32" }
        tensor.side = { write = "left" }
        pipeline.x = { edge = "load -> left, right", stages = 1 }
        pipeline.a = { edge = "left -> join", stages = 2 }
        pipeline.b = { edge = "right -> join", stages = 3, dtype = "f32" }
        pipeline.y = { edge = "other -> right", stages = 4 }
        """,
    ),
    (
        "two_sources",
        """
        kernel = { op = "custom", backend = "pallas", arch = "sm_90a" }
        tile = { m = 32, n = 64 }
        tensor.x = { read = "left" }
        tensor.y = { read = "right" }
        tensor.out = { write = "add", dtype = "f32" }
        pipeline.both = { edge = "left, right -> add", stages = 2 }
        """,
    ),
    (
        "two_tensors",
        """
        kernel = { op = "custom", backend = "pallas", arch = "sm_90a" }
        tile = { m = 32, n = 64 }
        tensor.x = { read = "load" }
        tensor.y = { read = "load", dtype = "f32" }
        tensor.out = { write = "add", dtype = "f32" }
        pipeline.both = { edge = "load -> add", holds = "x, y", stages = 2 }
        """,
    ),
]


@pytest.mark.parametrize(("name", "text"), INTERPRETED, ids=[name for name, _ in INTERPRETED])
def test_pallas_graphs_are_right_when_interpreted(newest_jax, name, text, tmp_path):
    """Exact, or near float64, without a race and with every barrier at its end."""
    module = tmp_path / f"{name}.py"
    module.write_text(text_of(plan(parse_description(text))))
    done = subprocess.run(
        [newest_jax, module, "--interpret"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NPROC": "16"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    assert done.stdout.count("PASS") >= 2
    assert "RACE" not in done.stdout + done.stderr


@pytest.mark.parametrize("path", PALLAS, ids=lambda path: path.stem)
def test_in_pallas_warpgroups_arrive(path):
    made = plan(load_description(path))
    assert {pipe.construct for pipe in made.pipelines} == {"plgpu.Barrier"}
    graph = read_graph(made.description)
    for ring in graph.rings:
        pipe = made.pipeline(ring.name)
        sources, targets = (list(map(graph.role, ends)) for ends in (ring.sources, ring.targets))
        if ring.producer == "tma":  # each copy for itself
            assert pipe.full_arrive_count == len(ring.parts)
        else:
            assert pipe.full_arrive_count == sum(role.warps // 4 for role in sources)
        assert pipe.empty_arrive_count == sum(role.warps // 4 for role in targets)


WORDS = (
    "",
    "load",
    "work",
    "x",
    "raw",
    "load -> work",
    "work -> load",
    "M",
    "M, N",
    "é",
    "1",
    "a b",
)
WHOLE = (0, -1, 1, 2, 3, 4, 16, 96, 256, 2**31 - 1, 1.5, "auto", True)
BAD: dict[str, tuple[object, ...]] = {
    "tensor.x.shape": (*WORDS, "N", "K, N", 3),
    "tensor.x.dtype": ("bf16", "i4", "i32", "e4m3", "fp8", 8),
    "tensor.x.read": (*WORDS, 1),
    "tensor.x.write": WORDS,
    "tensor.x.tile": ([], [32], [32, 256], [0, 0], [1, 2, 3], ["a"], 32, "32"),
    "tensor.out.expect": (*WORDS, "x", "x.y", "x[", "lambda: x", "torch", "np.x", "\x00"),
    "tensor.two.read": ("load", "work", "save"),
    "tensor.class.read": ("load",),
    "pipeline.raw.edge": (*WORDS, "load, more -> work", "load -> work, save", "work -> work", 1),
    "pipeline.raw.holds": (*WORDS, "x, x", "out", ","),
    "pipeline.raw.dtype": ("f32", "i4", "x"),
    "pipeline.raw.shape": WORDS,
    "pipeline.raw.stages": WHOLE,
    "pipeline.raw.producer": ("tma", "thread", "cp_async", "umma", "clc", "warp"),
    "pipeline.raw.consumer": ("thread", "wgmma", "umma", "umma+thread", "tma_store", "warp"),
    "pipeline.done.dtype": ("f32", "i8", "i4", "e5m2"),
    "pipeline.done.shape": WORDS,
    "pipeline.more.edge": ("load -> save", "save -> load", "work -> new", "new -> work"),
    "role.load.kind": ("tma", "cp_async", "thread", "tma_store", "wgmma", 1),
    "role.work.kind": ("tma", "cp_async", "thread", "tma_store"),
    "role.save.kind": ("tma", "cp_async", "thread", "tma_store"),
    "role.work.warps": WHOLE,
    "role.work.warpgroups": WHOLE,
    "role.work.registers": (*WHOLE, 24, 232, 240),
    "role.work.body": (*WORDS, "pass", "return", "x = (", "if True:\n    pass", "\n", "\x00", 3),
    "role.work.start": (1.0, -1e30, float("inf"), float("nan"), 1, "0"),
    "role.work.finish": ("pass", "", "x ="),
    "tile.m": WHOLE,
    "tile.n": WHOLE,
}


@pytest.mark.parametrize("backend", ["cute", "pallas"])
@pytest.mark.parametrize("key", BAD)
@pytest.mark.usefixtures("_unformatted")
def test_each_key_of_a_graph_at_each_value(key, backend):
    """A paragraph, or a kernel whose text is Python: never a traceback."""
    for value in BAD[key]:
        data = {
            "kernel": {"op": "custom", "backend": backend, "arch": "sm_90a"},
            "tensor": {"x": {"read": "load"}, "out": {"write": "save"}},
            "pipeline": {"raw": {"edge": "load -> work"}, "done": {"edge": "work -> save"}},
        }
        *sections, leaf = key.split(".")
        table = data
        for section in sections:
            table = table.setdefault(section, {})
        table[leaf] = value
        try:
            text = text_of(plan(description_from_data(data)))
        except InputError as error:
            text = f"# {error}".replace("\n", " ").replace("\x00", "")
        compile(text, key, "exec")
