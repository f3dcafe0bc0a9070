# SPDX-License-Identifier: Apache-2.0
"""The compile check: real kernels of both DSLs, compilers that misbehave, and the cache."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sample_modules import CUTE, CUTE_SPILLS, PALLAS, REPORT, elf, header, pretender

from pipegen.compiling import cache as caching
from pipegen.compiling import cubin, installed, pool, worker
from pipegen.compiling.cache import CompileCache, compile_key
from pipegen.compiling.installed import Dsl, dsl
from pipegen.compiling.launch import Smem, cute_launches, mosaic_launches
from pipegen.compiling.module import Module, read_module
from pipegen.compiling.process import describe_signal, run
from pipegen.compiling.ptxas import parse_ptxas
from pipegen.compiling.result import CompileResult, Kernel
from pipegen.compiling.worker import compile_module
from pipegen.errors import Problem

needs_cute = pytest.mark.skipif(
    not dsl("cute").usable, reason=f"{dsl('cute').reason}: {dsl('cute').command}"
)
needs_pallas = pytest.mark.skipif(
    not dsl("pallas").usable, reason=f"{dsl('pallas').reason}: {dsl('pallas').command}"
)


def made(folder: Path, text: str, name: str = "module.py") -> Module:
    """The text as a module in a file."""
    path = folder / name
    path.write_text(text)
    module = read_module(path, text)
    assert isinstance(module, Module), module
    return module


def usable(name: str) -> Dsl:
    """A DSL state that lets every module through."""
    return Dsl(name)


# Real kernels. One run compiles them all, as `check` would.


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CompileResult]:
    folder = tmp_path_factory.mktemp("real")
    texts = {
        "cute": header("cute") + CUTE,
        "spills": header("cute") + CUTE_SPILLS,
        "pallas": header("pallas") + PALLAS,
        # The file's own idea of its architecture is not the header's.
        "other_arch": header("cute", "sm_100a") + "import os\n"
        'os.environ["CUTE_DSL_ARCH"] = "sm_90a"\n' + CUTE,
        "wrong": header("cute") + CUTE.replace("63 - thread", "63 - nothing"),
    }
    modules = {name: made(folder, text, f"{name}.py") for name, text in texts.items()}
    results = pool.compile_all(list(modules.values()), CompileCache(None), jobs=2)
    return dict(zip(modules, results, strict=True))


@needs_cute
def test_cute_module_reports_its_resources(compiled: dict[str, CompileResult]) -> None:
    result = compiled["cute"]
    assert result.status == "ok", result.message
    (kernel,) = result.kernels
    assert kernel.arch == "sm_90a"
    assert kernel.threads == 64
    assert kernel.registers in range(8, 65)
    assert (result.spill_bytes, result.stack_bytes) == (0, 0)
    # 33 floats are 132 B; the next multiple of 1024 is 1024; 64 floats are 256 B.
    assert result.smem_bytes == kernel.smem_needed == 1024 + 256


@needs_cute
def test_cute_module_that_spills_fails_with_numbers(compiled: dict[str, CompileResult]) -> None:
    result = compiled["spills"]
    if installed.version_key(installed.version_of("nvidia-cutlass-dsl")) < (4, 8):
        pytest.skip("this DSL does not print what ptxas says")
    assert result.status == "spills"
    assert result.registers == 64
    assert result.spill_bytes
    assert f"{result.kernels[0].spill_stores} B of spill stores" in result.message


@needs_cute
def test_module_compiled_for_another_architecture_fails(compiled: dict[str, CompileResult]) -> None:
    result = compiled["other_arch"]
    assert result.status == "wrong-arch"
    assert result.message == "is for sm_100a, but was compiled for sm_90a"


@needs_cute
def test_compile_error_shows_the_compilers_words(compiled: dict[str, CompileResult]) -> None:
    result = compiled["wrong"]
    assert result.status == "error"
    assert "nothing" in result.message
    assert not result.completed


@needs_pallas
def test_pallas_module_reports_its_resources(compiled: dict[str, CompileResult]) -> None:
    result = compiled["pallas"]
    assert result.status == "ok", result.message
    (kernel,) = result.kernels
    assert kernel.arch == "sm_90a"
    assert kernel.threads == 128
    assert kernel.registers in range(8, 256)
    assert (result.spill_bytes, result.stack_bytes) == (0, 0)
    # The tile, 128 x 64 floats, and one mbarrier.
    assert result.smem_bytes == 128 * 64 * 4 + 8


def test_missing_dsl_is_a_skip(tmp_path: Path) -> None:
    module = made(tmp_path, pretender())
    state = Dsl("cute", reason="nvidia-cutlass-dsl is not installed", command="pip install it")
    (result,) = pool.compile_all([module], CompileCache(None), 1, state=lambda _: state)
    assert (result.status, result.message) == ("skipped", "nvidia-cutlass-dsl is not installed")
    assert not result.failed


# Compilers that misbehave.


def test_pretender_passes(tmp_path: Path) -> None:
    """The stand-in that the tests below break must itself be well."""
    result = compile_module(made(tmp_path, pretender()))
    assert result.status == "ok", result.message
    assert (result.registers, result.spill_bytes, result.smem_bytes) == (168, 0, None)


def test_hanging_module_is_stopped_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "child"
    text = header() + (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        "print('still compiling', flush=True)\n"
        "time.sleep(60)\n"
    )
    result = compile_module(made(tmp_path, text), timeout=1.5)
    assert result.status == "timeout"
    assert result.message.startswith("did not finish in 1.5 s")
    assert "still compiling" in result.message
    assert result.seconds < 10
    assert not result.completed
    assert not alive(int(note.read_text()))


def test_child_left_behind_by_a_module_that_ended_is_stopped(tmp_path: Path) -> None:
    note = tmp_path / "child"
    text = pretender() + (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
    )
    result = compile_module(made(tmp_path, text))
    assert result.status == "ok"
    assert result.seconds < 10
    assert not alive(int(note.read_text()))


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    for _ in range(50):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        if state in "ZX":
            return False
        time.sleep(0.02)
    return True


def test_crash_is_a_finding_with_its_signal(tmp_path: Path) -> None:
    text = header() + "import ctypes\nprint('here', flush=True)\nctypes.string_at(0)\n"
    result = compile_module(made(tmp_path, text))
    assert result.status == "crash"
    assert "SIGSEGV (signal 11)" in result.message
    assert "here" in result.message
    assert not result.completed


def test_kill_without_a_word_is_a_finding(tmp_path: Path) -> None:
    text = header() + "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    result = compile_module(made(tmp_path, text))
    assert result.status == "crash"
    assert result.message == "the compiler died of SIGKILL (signal 9). It printed nothing."


def test_exit_code_without_a_word_is_a_finding(tmp_path: Path) -> None:
    result = compile_module(made(tmp_path, header() + "raise SystemExit(3)\n"))
    assert (result.status, result.message) == ("error", "exit code 3. It printed nothing.")


def test_exit_code_0_without_a_cubin_is_a_finding(tmp_path: Path) -> None:
    result = compile_module(made(tmp_path, header() + "print('all is well')\n"))
    assert result.status == "no-kernel"


def test_ptx_without_a_cubin_is_a_finding(tmp_path: Path) -> None:
    text = pretender().replace("'k.cubin'", "'k.other'")
    assert compile_module(made(tmp_path, text)).status == "no-kernel"


def test_pallas_without_a_ptxas_report_is_a_finding(tmp_path: Path) -> None:
    result = compile_module(made(tmp_path, header("pallas") + "print('well')\n"))
    assert result.status == "no-kernel"


def test_pallas_kernel_for_another_architecture_is_a_finding(tmp_path: Path) -> None:
    text = header("pallas", "sm_100a") + (
        "import os, pathlib\n"
        'dump = pathlib.Path(os.environ["MOSAIC_GPU_DUMP_TO"])\n'
        f"(dump / 'k.ptxas').write_text({REPORT.format(stores=0, loads=0)!r})\n"
    )
    result = compile_module(made(tmp_path, text))
    assert result.status == "wrong-arch"
    assert result.message == "is for sm_100a, but was compiled for sm_90a"


def test_cubin_of_another_architecture_is_a_finding(tmp_path: Path) -> None:
    result = compile_module(made(tmp_path, pretender("sm_100a", report="{stores}{loads}")))
    assert result.status == "wrong-arch"
    assert "sm_100a" in result.message


def test_spills_are_a_finding(tmp_path: Path) -> None:
    result = compile_module(made(tmp_path, pretender(stores=24)))
    assert (result.status, result.spill_bytes) == ("spills", 24)
    assert "24 B of spill stores" in result.message


SERIALIZED = (
    "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are "
    "serialized due to insufficient register resources for the wgmma pipeline in the function "
    "'k_0'\n"
)


def test_serialized_wgmma_is_a_finding(tmp_path: Path) -> None:
    result = compile_module(made(tmp_path, pretender(report=SERIALIZED + REPORT)))
    assert result.status == "serialized"
    assert "insufficient register resources" in result.message


IR = """\
!smem_i8 = !cute.memref<i8, smem, align<8>, "132:1">
!smem_i8_1 = !cute.memref<i8, smem, align<1024>, "{bytes}:1">
    cuda.kernel @k_0(%arg0: !memref) attributes {{}} {{
      %2 = arith.constant 7 : i64
      %smem = cute.memref.alloca() {{smem.partition_id = 1 : i32}} : !smem_i8
      %smem_3 = cute.memref.alloca() {{smem.partition_id = 1 : i32}} : !smem_i8_1
    }}
  func.func @host(%arg0: !memref) -> i32 {{
    {value}
    %4 = cuda.launch_cfg.create<max_attrs = 17 : i32> (blockDim = (%c, %c, %c), \
dynamicSmemBytes = %2, gridDim = (%c, %c, %c), stream = %s) : i32 -> !cuda.launch_cfg
    %5 = cuda.launch_ex @kernels::@k_0<%4> (%arg0) : !cuda.launch_cfg -> !cuda.result
  }}
"""
AUTOMATIC = "%2 = cute.kernel_smem_size @kernels::@k_0 : i64"


def test_smem_over_the_limit_is_a_finding(tmp_path: Path) -> None:
    ir = IR.format(bytes=232448, value=AUTOMATIC)
    result = compile_module(made(tmp_path, pretender(ir=ir)))
    assert (result.status, result.smem_bytes) == ("smem", 1024 + 232448)
    assert "a block on sm_90a has at most 232448 B" in result.message


def test_launch_that_gives_too_little_smem_is_a_finding(tmp_path: Path) -> None:
    ir = IR.format(bytes=400, value="%2 = arith.constant 1024 : i64")
    result = compile_module(made(tmp_path, pretender(ir=ir)))
    assert result.status == "smem"
    assert "gives 1024 B of SMEM, but the kernel's storage takes 1424 B" in result.message


def test_file_that_lost_compile_only_is_a_finding(tmp_path: Path) -> None:
    text = header().replace("--compile-only", "nothing")
    assert compile_module(made(tmp_path, text)).status == "error"


def test_one_bad_module_does_not_end_the_run(tmp_path: Path) -> None:
    texts = {
        "crash.py": header() + "import ctypes\nctypes.string_at(0)\n",
        "hang.py": header() + "while True:\n    pass\n",
        "well.py": pretender(),
    }
    modules = [made(tmp_path, text, name) for name, text in texts.items()]
    results = pool.compile_all(modules, CompileCache(None), 3, timeout=2.5, state=usable)
    assert [result.status for result in results] == ["crash", "timeout", "ok"]


def test_no_process_to_be_had_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(worker, "run", refuse)
    (result,) = pool.compile_all([made(tmp_path, pretender())], CompileCache(None), 1, state=usable)
    assert (result.status, result.completed) == ("error", False)
    assert "no more processes" in result.message


def test_result_that_cannot_be_read_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "parse_ptxas", lambda _: 1 / 0)
    (result,) = pool.compile_all([made(tmp_path, pretender())], CompileCache(None), 1, state=usable)
    assert (result.status, result.completed) == ("error", False)
    assert "ZeroDivisionError" in result.message


def test_interrupt_stops_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = tmp_path / "pid"
    text = header() + (
        f"import os, time\nopen({str(note)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    )

    def interrupted(*_args: object, **_kwargs: object) -> None:
        while not (note.exists() and note.read_text()):
            time.sleep(0.02)
        raise KeyboardInterrupt

    monkeypatch.setattr(pool, "wait", interrupted)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        pool.compile_all([made(tmp_path, text)], CompileCache(None), 1, state=usable)
    assert time.monotonic() - start < 10
    assert not alive(int(note.read_text()))


def test_endless_output_is_bounded_and_its_end_is_kept(tmp_path: Path) -> None:
    code = "print('x' * 20_000_000)\nprint('the end')"
    outcome = run([sys.executable, "-c", code], os.environ, tmp_path, 30)
    assert outcome.returncode == 0
    assert len(outcome.output) <= 8 * 2**20
    assert outcome.output.endswith("the end\n")


def test_module_runs_in_a_clean_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the user's shell says to the compilers must not change a verdict."""
    monkeypatch.setenv("CUTE_DSL_DRYRUN", "1")
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/somewhere")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    text = header() + (
        "import os, sys\n"
        "names = ('CUTE_DSL_DRYRUN', 'XLA_FLAGS', 'CUDA_VISIBLE_DEVICES', 'CUTE_DSL_ARCH')\n"
        "sys.exit(str([os.environ.get(name) for name in names] + sys.argv[1:]))\n"
    )
    result = compile_module(made(tmp_path, text))
    assert "[None, None, '', 'sm_90a', '--compile-only']" in result.message


def test_signal_without_a_name() -> None:
    assert describe_signal(-signal.SIGSEGV) == "SIGSEGV (signal 11)"
    assert describe_signal(-250) == "signal 250"


# What a file is for.


def test_header_decides_before_imports(tmp_path: Path) -> None:
    text = header("pallas", "sm_100a") + "import cutlass\n"
    module = read_module(tmp_path / "m.py", text)
    assert isinstance(module, Module)
    assert (module.backend, module.arch, module.dsl) == ("pallas", "sm_100a", "pallas")


@pytest.mark.parametrize(
    ("line", "backend"),
    [
        ("import cutlass.cute as cute", "cute"),
        ("    from cutlass import pipeline", "cute"),
        ("from jax.experimental.pallas import mosaic_gpu as plgpu", "pallas"),
        ("from jax.experimental import pallas as pl", "pallas"),
    ],
)
def test_imports_decide_without_a_header(line: str, backend: str) -> None:
    module = read_module(Path("m.py"), f"{line}\n# --compile-only\n", "sm_100a")
    assert isinstance(module, Module)
    assert (module.backend, module.arch, module.has_header) == (backend, "sm_100a", False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import numpy\n# --compile-only\n", "imports neither"),
        ("import cutlass\nfrom jax.experimental import pallas\n", "imports both"),
        ("import cutlass\n", "does not offer --compile-only"),
        (header("tilelang"), "backend 'tilelang'"),
    ],
)
def test_file_that_cannot_be_compiled_is_a_problem(text: str, words: str) -> None:
    problem = read_module(Path("m.py"), text)
    assert isinstance(problem, Problem)
    assert words in problem.paragraph()


# What the compilers print.


def test_ptxas_report_is_read_through_wrapping_colour_and_repetition() -> None:
    wrapped = "\x1b[96mremark[ptxas info]:\x1b[0m ptxas output: " + REPORT.format(
        stores=1568, loads=1112
    ).replace("entry function ", "entry function\n          ").replace(
        "    0 bytes", "ptxas         .     1032 bytes"
    )
    report = parse_ptxas(wrapped + wrapped)
    (kernel,) = report.kernels
    assert kernel == Kernel(
        "k_0",
        arch="sm_90a",
        registers=168,
        spill_stores=1568,
        spill_loads=1112,
        stack_bytes=1032,
        barriers=2,
    )
    assert kernel.spill_bytes == 1568
    assert report.advisories == ()


def test_ptxas_reports_of_two_kernels_are_kept_apart() -> None:
    second = REPORT.replace("k_0", "k_1").replace("168", "40")
    report = parse_ptxas((REPORT + second).format(stores=0, loads=0))
    assert [(k.name, k.registers) for k in report.kernels] == [("k_0", 168), ("k_1", 40)]


def test_function_that_was_not_inlined_counts_with_its_kernel() -> None:
    more = (
        "ptxas info    : Function properties for helper\n"
        "    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n"
    )
    (kernel,) = parse_ptxas(REPORT.format(stores=0, loads=0) + more).kernels
    assert (kernel.stack_bytes, kernel.spill_stores, kernel.spill_loads) == (16, 8, 4)


def test_advisories_lose_the_mangled_names() -> None:
    text = SERIALIZED + (
        "ptxas info    : (C7519) warpgroup.arrive is injected in around line 653 by compiler to "
        "allow use of registers in GMMA in function 'k_0'\n"
        "ptxas warning : Registers are spilled to local memory in function 'k_0', 8 bytes spill "
        "stores, 8 bytes spill loads\n"
    )
    report = parse_ptxas(text + REPORT)
    assert len(report.advisories) == 3
    assert report.serialized == report.advisories[0]
    assert not any("k_0" in advisory for advisory in report.advisories)
    assert parse_ptxas(REPORT).serialized == ""


@pytest.mark.parametrize(
    ("data", "arch"),
    [
        (elf(0x5A0D5A, 7), "sm_90a"),
        (elf(0x5A055A, 7), "sm_90"),
        (elf(0x600640A, 8), "sm_100a"),
        (elf(0x6006402, 8), "sm_100"),
        (elf(0x600780A, 8), "sm_120a"),
        (elf(0x5A0D5A, 9), ""),
        (elf(0x5A0D5A, 7, machine=62), ""),
        (b"\x7fELF", ""),
        (b"", ""),
    ],
)
def test_architecture_of_a_cubin(data: bytes, arch: str) -> None:
    assert cubin.cubin_arch(data) == arch


def test_ptx_tells_threads_and_tensor_core_instructions() -> None:
    ptx = (
        ".target sm_90a\n.visible .entry a(\n)\n.reqntid 128, 2, 1\n{\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32 {};\n}\n"
        ".visible .entry b(\n)\n.maxntid 384\n{\n}\n"
    )
    first, second = cubin.ptx_kernels(ptx)
    assert (first.threads, first.tensor_core_instructions) == (256, 1)
    assert (second.threads, second.tensor_core_instructions) == (384, 0)


def test_cuobjdump_report_is_read() -> None:
    text = (
        "Resource usage:\n Common:\n  GLOBAL:0\n Function k_0:\n"
        "  REG:168 STACK:400 SHARED:1024 LOCAL:0 CONSTANT[0]:1176 TEXTURE:0 SURFACE:0 SAMPLER:0\n"
    )
    assert cubin.parse_resource_usage(text) == [Kernel("k_0", registers=168, stack_bytes=400)]


def test_without_the_dsls_report_the_cubin_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DSL 4.6 and 4.7 do not print what ptxas says."""
    silent = pretender(report="{stores}{loads}")
    monkeypatch.setattr(worker, "resource_usage", lambda _: [Kernel("k_0", "", 90, stack_bytes=0)])
    result = compile_module(made(tmp_path, silent))
    assert (result.status, result.registers, result.spill_bytes) == ("ok", 90, 0)
    monkeypatch.setattr(worker, "resource_usage", lambda _: [Kernel("k_0", "", 90, stack_bytes=8)])
    result = compile_module(made(tmp_path, silent))
    assert (result.status, result.spill_bytes) == ("ok", None)
    assert "8 B of stack a thread: spills or an array" in result.message
    monkeypatch.setattr(worker, "resource_usage", lambda _: [])
    result = compile_module(made(tmp_path, silent))
    assert (result.status, result.registers) == ("ok", None)
    assert "pip install nvidia-cuda-cuobjdump" in result.message


def test_cuobjdump_that_fails_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cubin, "find_cuobjdump", lambda: str(tmp_path / "missing"))
    assert cubin.resource_usage(tmp_path / "k.cubin") == []
    monkeypatch.setattr(cubin, "find_cuobjdump", lambda: "")
    assert cubin.resource_usage(tmp_path / "k.cubin") == []


def test_cute_launch_takes_the_size_of_the_allocations() -> None:
    """132 B, then 400 B from the next multiple of 1024; `%2` of the kernel is another value."""
    ir = IR.format(bytes=400, value=AUTOMATIC)
    assert cute_launches(ir) == {"k_0": Smem(given=1424, needed=1424)}


def test_cute_launch_with_its_own_number() -> None:
    value = "%9 = arith.constant 4096 : i32\n    %2 = arith.extsi %9 : i32 to i64"
    ir = IR.format(bytes=400, value=value)
    assert cute_launches(ir) == {"k_0": Smem(given=4096, needed=1424)}


def test_cute_launch_with_a_computed_number_is_unknown() -> None:
    ir = IR.format(bytes=400, value="%2 = arith.muli %arg1, %arg2 : i64")
    assert cute_launches(ir) == {"k_0": Smem(given=None, needed=1424)}
    ir = IR.format(bytes=400, value=AUTOMATIC).replace('"132:1"', '"(8,16):(16,1)"')
    assert cute_launches(ir) == {"k_0": Smem(given=None, needed=None)}


def test_mosaic_launch_is_read_from_the_pass_that_still_names_the_number() -> None:
    log = [
        "%1 = gpu.launch async [%0] dynamic_shared_memory_size %c1_i32 {\n",
        "%1 = gpu.launch_func async [%5] @k::@k_0 blocks in (%c1) threads in (%c128) "
        "dynamic_shared_memory_size %c32776_i32 args(%16 : !llvm.ptr)\n",
        "%1 = gpu.launch_func async [%5] @k::@k_0 blocks in (%9) threads in (%8) "
        "dynamic_shared_memory_size %6 args(%16 : !llvm.ptr)\n",
    ]
    assert mosaic_launches(log) == {"k_0": Smem(given=32776)}
    assert mosaic_launches(log[2:]) == {}


# The cache.


@pytest.fixture
def counting(tmp_path: Path) -> tuple[Module, Path]:
    """A module that leaves a mark each time it is compiled."""
    runs = tmp_path / "runs"
    return made(tmp_path, pretender() + f"open({str(runs)!r}, 'a').write('x')\n"), runs


def compile_once(module: Module, cache: CompileCache) -> CompileResult:
    (result,) = pool.compile_all([module], cache, 1, state=usable)
    return result


def test_second_run_is_read_from_the_cache(tmp_path: Path, counting: tuple[Module, Path]) -> None:
    module, runs = counting
    cache = CompileCache(tmp_path / "cache")
    first, second = compile_once(module, cache), compile_once(module, cache)
    assert (first.cached, second.cached) == (False, True)
    assert runs.read_text() == "x"
    assert first.as_dict() | {"cached": True} == second.as_dict()


def test_cached_failure_stays_a_failure(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path / "cache")
    module = made(tmp_path, pretender(stores=24))
    first, second = compile_once(module, cache), compile_once(module, cache)
    assert (second.cached, second.status, second.message) == (True, "spills", first.message)


@pytest.mark.parametrize(
    "ending",
    [
        "import time\ntime.sleep(60)\n",
        "import os\nos.abort()\n",
        "import a_module_that_is_not_there\n",
        "raise RuntimeError(__file__)\n",
        "print('no kernel')\n",
    ],
)
def test_only_what_was_compiled_to_the_end_is_cached(tmp_path: Path, ending: str) -> None:
    cache = CompileCache(tmp_path / "cache")
    module = made(tmp_path, header() + ending)
    (result,) = pool.compile_all([module], cache, 1, timeout=1, state=usable)
    assert result.failed
    assert cache.get(module) is None


@pytest.mark.parametrize("helper", ["helper.py", "helper/__init__.py", "helper/deep/part.py"])
def test_what_a_module_imports_from_its_folder_is_in_the_key(tmp_path: Path, helper: str) -> None:
    module = made(tmp_path, pretender() + "def f():\n    from helper import first\n")
    alone = compile_key(module)
    path = tmp_path / helper
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("import second\n")
    with_first = compile_key(module)
    (tmp_path / "second.py").write_text("import helper, module\n")
    with_second = compile_key(module)
    (tmp_path / "second.py").write_text("raise RuntimeError\n")
    broken = compile_key(module)
    (tmp_path / "unrelated.py").write_text("x = 1\n")
    assert len({alone, with_first, with_second, broken}) == 4
    assert compile_key(module) == broken
    (tmp_path / "second.py").write_text("import (\n")
    assert compile_key(module) != broken


@pytest.mark.parametrize(
    "line",
    [
        "import helper",
        "import os, helper.deep as h",
        "    from helper.deep import x",
        "from helper import (",
        "if True: import helper",
        "x = 1; import helper  # why",
        "import os, \\\n    helper",
        "try: from helper import x",
    ],
)
def test_every_form_of_an_import_is_seen(line: str) -> None:
    assert "helper" in caching._import_names(f"x = 0\n{line}\ny = 1\n")


def test_words_that_are_no_import_name_nothing() -> None:
    text = "important = helper\n# import helper\nx = {'a': 1}  # from helper import x\n"
    assert caching._import_names(text) == set()


def test_broken_import_is_seen_through_the_cache(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path / "cache")
    helper = tmp_path / "helper.py"
    helper.write_text("x = 1\n")
    module = made(tmp_path, pretender() + "import helper\n")
    assert compile_once(module, cache).status == "ok"
    assert compile_once(module, cache).cached
    helper.write_text("raise RuntimeError('boom')\n")
    failed = compile_once(module, cache)
    assert (failed.status, failed.cached) == ("error", False)
    helper.write_text("x = 1\n")
    assert (compile_once(module, cache).status, cache.get(module) is None) == ("ok", False)


def test_no_cache_keeps_nothing(counting: tuple[Module, Path]) -> None:
    module, runs = counting
    for _ in range(2):
        assert not compile_once(module, CompileCache(None)).cached
    assert runs.read_text() == "xx"


def test_corrupt_entry_is_ignored_and_written_anew(
    tmp_path: Path, counting: tuple[Module, Path]
) -> None:
    module, runs = counting
    cache = CompileCache(tmp_path / "cache")
    compile_once(module, cache)
    (entry,) = (tmp_path / "cache").glob("**/*.json")
    whole = json.loads(entry.read_text())
    broken: list[str | bytes] = [
        b"",
        b"\xff\xfe",
        "[]",
        entry.read_text()[:-20],
        json.dumps(whole | {"key": "another"}),
        json.dumps(whole | {"value": []}),
        json.dumps(whole | {"value": whole["value"] | {"kernels": 3}}),
        json.dumps(whole | {"value": whole["value"] | {"kernels": [{"spill_bytes": 0}]}}),
    ]
    for index, text in enumerate(broken):
        entry.write_bytes(text if isinstance(text, bytes) else text.encode())
        assert not compile_once(module, cache).cached
        assert runs.read_text() == "x" * (index + 2)
        assert compile_once(module, cache).cached


def test_cache_that_cannot_be_written_only_costs_time(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    cache = CompileCache(blocked)
    module = made(tmp_path, pretender())
    assert compile_once(module, cache).status == "ok"
    assert not compile_once(module, cache).cached


def test_key_depends_on_everything_that_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = made(tmp_path, pretender())
    keys = [compile_key(module)]

    def changed() -> bool:
        keys.append(compile_key(module))
        return keys[-1] != keys[-2]

    assert not changed()
    assert compile_key(made(tmp_path, pretender() + "\n")) != keys[0]
    # Without a header the architecture is not in the text.
    assert compile_key(replace(module, arch="sm_100a")) != keys[0]
    assert compile_key(replace(module, backend="pallas")) != keys[0]
    monkeypatch.setattr(caching, "dsl", lambda _: Dsl("cute", {"nvidia-cutlass-dsl": "9.9"}))
    assert changed()
    monkeypatch.setattr(caching, "dsl", lambda _: Dsl("cute", {"nvidia-cutlass-dsl": "9.10"}))
    assert changed()
    monkeypatch.setattr(caching, "version_of", lambda _: "99")
    assert changed()
    monkeypatch.setattr(sys, "version", "4.0")
    assert changed()
    monkeypatch.setattr(caching, "_sources", lambda *_: "other sources")
    assert changed()
    # Another place is the same module.
    moved = made(tmp_path, module.text, "elsewhere.py")
    assert compile_key(moved) == keys[-1]


def test_two_runs_at_once_share_a_cache(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path / "cache")
    module = made(tmp_path, pretender())
    result = compile_module(module)
    threads = [threading.Thread(target=cache.put, args=(module, result)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.get(module) is not None
    assert not list((tmp_path / "cache").glob("**/*.tmp"))


def test_cache_folder_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert caching.default_folder() == tmp_path / "pipegen"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert caching.default_folder() == tmp_path / ".cache" / "pipegen"


def test_parent_imports_no_dsl() -> None:
    code = (
        "import sys, pipegen.compiling.checking, pipegen.compiling.diagnosis\n"
        "sys.exit(str([m for m in ('cutlass', 'jax', 'jaxlib') if m in sys.modules]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"
