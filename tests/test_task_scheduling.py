# SPDX-License-Identifier: Apache-2.0
"""Task Scheduling: the plan agrees with what it computes, and a broken schedule is caught."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipegen.compiling.cache import CompileCache, default_folder
from pipegen.compiling.installed import dsl
from pipegen.compiling.module import Module, read_module
from pipegen.compiling.pool import compile_all
from pipegen.compiling.result import CompileResult
from pipegen.compiling.schedule import Schedule, remarks, version_remark
from pipegen.description_file import load_description
from pipegen.planning import plan
from pipegen.planning.task_scheduling.layout import Region, lay_out
from pipegen.report import ModuleReport, Report, as_text

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "generated" / "cute_ts"
COMPARED = ("ts_gemm_sm90", "ts_stream_sm90_lanes", "ts_gemm_sm100_clc_pair_try")

# A module, what is broken in it (text -> text), the check that says so, and a part of its words.
BROKEN = {
    "release before wait": (
        "ts_stream_sm90",
        [("            inputs.wait()\n",
          "            inputs.release()\n            inputs.wait()\n"),
         ("            x = inputs.read_x()\n            inputs.release()\n",
          "            x = inputs.read_x()\n")],
        "verify work group bracketing",
        "missing ConsumerRelease after ConsumerWork",
    ),
    "work before wait": (
        "ts_stream_sm90",
        [("            inputs.wait()\n            x = inputs.read_x()\n",
          "            x = inputs.read_x()\n            inputs.wait()\n")],
        "verify work group bracketing",
        "before ConsumerWait",
    ),
    "missing commit": (
        "ts_stream_sm90",
        [("            outputs.commit()\n", "")],
        "",
        "outputs",
    ),
    "missing release at the end of a tile": (
        "ts_gemm_sm90",
        [("            mainloop.finish()\n            mainloop.release()\n",
          "            mainloop.finish()\n")],
        "the schedule table",
        "ProducerAcquire from mainloop not matched by ConsumerRelease",
    ),
    "one stage for a wait that runs ahead": (
        "ts_gemm_sm90",
        [("MAINLOOP_STAGES = 4", "MAINLOOP_STAGES = 1")],
        "the search through all orders",
        "deadlock",
    ),
    "too few bytes": (
        "ts_stream_sm90",
        [("STAGE_BYTES = 16384", "STAGE_BYTES = 8192")],
        "the bytes of a stage",
        "num_bytes = 8192 B, and its TMA copies bring 16384 B",
    ),
    "bytes of one CTA for a pair": (
        "ts_gemm_sm100_pair_try",
        [("STAGE_BYTES = 65536", "STAGE_BYTES = 32768")],
        "the bytes of a stage",
        "num_bytes = 32768 B, and its TMA copies bring 65536 B",
    ),
    "aliased SMEM": (
        "ts_stream_sm90",
        [("    smem.compute_layout()\n",
          "    smem.add_alias_group([[in_ring], [out_ring]])\n    smem.compute_layout()\n")],
        "the search through all orders",
        "aliasing race",
    ),
    "wrong arrive count": (
        "ts_gemm_sm90",
        [("EMPTY_ARRIVES = 8", "EMPTY_ARRIVES = 256 + 1")],
        "verify pipeline thread counts",
        "does not match expected 8",
    ),
    "launch before the wait for the grid before": (
        "ts_gemm_sm90_try_pdl",
        [("        grid_before.wait_griddep()\n", ""),
         ("        grid_after.launch_griddep()\n",
          "        grid_after.launch_griddep()\n        grid_before.wait_griddep()\n")],
        "",
        "wait",
    ),
}  # fmt: skip


def module_of(name: str, text: str = "") -> Module:
    path = FOLDER / f"{name}.py"
    module = read_module(path, text or path.read_text(encoding="utf-8"))
    assert isinstance(module, Module)
    return module


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The results of the compared modules and of the broken ones, by their names."""
    if reason := dsl("cute").reason:
        pytest.skip(f"{reason}; pip install 'pipegen[cute]' enables this check")
    modules = {name: module_of(name) for name in COMPARED}
    folder = tmp_path_factory.mktemp("broken")
    for kind, (name, changes, _, _) in BROKEN.items():
        text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
        for before, after in changes:
            assert text.count(before) == 1, (kind, before)
            text = text.replace(before, after)
        path = folder / f"{kind.replace(' ', '_')}.py"
        path.write_text(text, encoding="utf-8")
        module = read_module(path, text)
        assert isinstance(module, Module)
        modules[kind] = module
    cache = CompileCache(default_folder())
    results = compile_all(list(modules.values()), cache, 2, 300, lambda *_: None, state=dsl)
    return dict(zip(modules, results, strict=True))


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_schedule_is_caught(compiled, kind):
    """Each kind of fault, by the check that is there for it, as a finding that fails the run."""
    result, (_, _, check, words) = compiled[kind], BROKEN[kind]
    assert result.status == "schedule", result.message
    assert result.failed
    assert check in result.message
    assert words in result.message
    report = Report([ModuleReport(Path("kernel.py"), "cute-ts", "sm_90a", None, result)])
    assert report.exit_code == 1
    assert "has a wrong schedule" in as_text(report)


@pytest.mark.parametrize("name", COMPARED)
def test_the_plan_agrees_with_task_scheduling(compiled, name):
    """Stages, bytes, arrive counts, the place of each allocation, barriers and TMEM."""
    result = compiled[name]
    assert result.status == "ok", result.message
    (schedule,) = result.schedules
    made = plan(load_description(FOLDER / f"{name}.toml"))
    stream = made.description.kernel.op == "stream"
    names = {"scheduler": "tiles"}
    names |= {"mainloop": "inputs", "epilogue": "outputs"} if stream else {}
    for pipeline in made.pipelines:
        computed = schedule.pipelines.pop(names.get(pipeline.name, pipeline.name))
        assert computed == {
            "type": pipeline.construct,
            "stages": pipeline.stages,
            "bytes": pipeline.tx_count or 0,
            "producers": pipeline.full_arrive_count,
            "consumers": pipeline.empty_arrive_count,
        }
    assert not schedule.pipelines
    layout = ", ".join(f"{each['name']} at {each['offset']}" for each in schedule.smem)
    assert layout == made.number("smem_layout").value
    assert schedule.smem_bytes == made.number("smem_bytes").value == result.smem_bytes
    assert schedule.barrier_bytes == made.number("mbarrier_bytes").value
    columns = [number.value for number in made.numbers if number.name == "tmem_columns"]
    assert [each["columns"] for each in schedule.tmem] == columns
    mainloop = made.pipeline("mainloop")
    assert schedule.bytes == {names.get("mainloop", "mainloop"): mainloop.tx_count}


@pytest.mark.parametrize("name", COMPARED)
def test_every_order_was_tried(compiled, name):
    """The verdict, the table and the layout are in the report, as text and as JSON."""
    result = compiled[name]
    (schedule,) = result.schedules
    assert schedule.states > 50
    assert not schedule.stopped
    assert (schedule.deadlocks, schedule.races, schedule.launch_orders) == (0, 0, 0)
    assert "Full (Head + Loop + Tail)" in schedule.table
    assert "load" in schedule.table
    again = CompileResult.from_dict(json.loads(json.dumps(result.as_dict())))
    assert again.schedules == result.schedules
    report = Report([ModuleReport(Path("kernel.py"), "cute-ts", "sm_90a", None, result)])
    assert "no deadlock, no race; SMEM" in as_text(report)


def test_a_search_that_stopped_proves_nothing():
    """Neither a finding nor silence: a warning that says what was not proved."""
    stopped = Schedule(states=1_000_000, stopped=True)
    assert "not proved" in stopped.sentence()
    said = remarks((stopped,), "# Checked with nvidia-cutlass-dsl 4.8.1.\n", "4.8.1")
    assert len(said) == 1
    assert "not proved" in said[0]
    result = CompileResult("ok", advisories=said, schedules=(stopped,))
    report = Report([ModuleReport(Path("kernel.py"), "cute-ts", "sm_90a", None, result)])
    assert report.exit_code == 0
    assert [finding.level for finding in report.findings()] == ["warning"]
    assert "safe" not in as_text(report)
    assert "no deadlock" not in as_text(report)


def test_bytes_that_were_not_counted_are_said_to_be():
    uncounted = Schedule(bytes={"mainloop": None})
    (said,) = remarks((uncounted,), "", "4.8.1")
    assert said.startswith("mainloop: the bytes of a stage were not counted")


@pytest.mark.parametrize(
    ("installed", "word"), [("4.7.1", "older"), ("4.9.0", "newer"), ("4.8.1", "")]
)
def test_another_version_than_the_template_was_checked_with(installed, word):
    said = version_remark("# Checked with nvidia-cutlass-dsl 4.8.1.\n", installed)
    assert len(said) == bool(word)
    assert all(word in each and installed in each and "4.8.1" in each for each in said)


def test_a_module_without_header_is_known_by_its_imports():
    text = "from cutlass.experimental.task_scheduling.task import Task\n--compile-only\n"
    module = read_module(Path("kernel.py"), text)
    assert isinstance(module, Module)
    assert module.backend == "cute-ts"
    assert module.schedules_tasks
    assert module.dsl == "cute"


def test_the_layout_is_the_allocators():
    """Widest alignment first, each region aligned, barriers of 16 B a stage behind them all."""
    layout = lay_out((Region("small", 4, 4), Region("a", 1000, 128), Region("b", 64, 128)), (2, 3))
    assert [(region.name, offset) for region, offset in layout.offsets] == [
        ("a", 0), ("b", 1024), ("small", 1088)
    ]  # fmt: skip
    assert layout.data_bytes == 1092
    assert layout.barrier_bytes == 5 * 16
    assert layout.total_bytes == 1096 + 80


def test_the_layout_agrees_with_the_library():
    """The same for what Task Scheduling's own allocator makes of many sizes."""
    if reason := dsl("cute").reason:
        pytest.skip(f"{reason}; pip install 'pipegen[cute]' enables this check")
    memory = pytest.importorskip("cutlass.experimental.task_scheduling.memory")
    for sizes in (((100, 16), (7, 4), (3000, 1024)), ((64, 128), (64, 128)), ((5, 8), (1, 1024))):
        allocator = memory.SmemAllocator()
        made = [memory.SmemAllocation(str(i), s, a) for i, (s, a) in enumerate(sizes)]
        for allocation in made:
            allocator.add(allocation)
        allocator.compute_layout()
        layout = lay_out([Region(str(i), s, a) for i, (s, a) in enumerate(sizes)], ())
        assert {r.name: o for r, o in layout.offsets} == {a.name: a.offset for a in made}
        assert layout.data_bytes == allocator.total_smem_bytes


def test_a_module_prints_nothing_when_it_is_imported_and_compiled(compiled):
    """Task Scheduling prints its tables unless told not to."""
    script = "import runpy; runpy.run_path({!r})['compile_stream']()"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script.format(str(FOLDER / "ts_stream_sm90.py"))],
        env={**os.environ, "CUTE_DSL_ARCH": "sm_90a", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_page_of_the_three_forms_is_up_to_date():
    """`python benchmarks/task_scheduling_page.py docs/task_scheduling.md` writes it."""
    page = ROOT / "benchmarks" / "task_scheduling_page.py"
    done = subprocess.run(
        [sys.executable, str(page), "/dev/stdout"], capture_output=True, text=True, check=True
    )
    assert done.stdout == (ROOT / "docs" / "task_scheduling.md").read_text(encoding="utf-8")
