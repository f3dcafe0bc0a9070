# SPDX-License-Identifier: Apache-2.0
"""The same launch of each sm_90a module in the emulator and on a GPU: are the bits the same?

    python benchmarks/emulated_against_gpu.py emulate FOLDER generated/*/*sm90*.py
    python benchmarks/emulated_against_gpu.py run FOLDER --json benchmarks/emulated_against_gpu.json

`emulate` needs no GPU: it runs each module's own check in the emulator and writes what its launcher
got, and what was in that memory afterwards, to FOLDER/MODULE.npz. `run` gives the launcher the same
bytes, laid out alike, on a GPU, and compares all the memory, padding too, byte by byte. Of a Pallas
module it is the public function's arguments and results: where they lie is XLA's matter. Where the
order of sums differs, bits may; then the largest error relative to the rms says by how much. What
the emulator found beside the numbers is told by its rule's code. Exit code 1 if a module cannot be
compared, or differs by more than its output type rounds.
"""

import argparse
import functools
import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]  # this checkout's pipegen, and what is here

import pallas_calls  # noqa: E402

from pipegen.measuring.code_digest import code_digest  # noqa: E402

ALIGNMENT = 256  # of a GPU's allocations, and of the emulator's tensors
# Half a unit in the last place, relative to the element; for f32 sums of another order far more.
ROUNDING = {"bfloat16": 2**-8, "float16": 2**-11, "float32": 2**-16, "int32": 0.0, "int8": 0.0}
# Hopper's tensor core keeps about 14 bits of a sum of 8-bit floats, and cuts the rest at each step
# of 32 elements; the emulator sums in f32.
FP8_STEP, FP8_CUT = 32, 2**-13


@dataclass(frozen=True)
class Memory:
    """An argument of a launcher: where its elements lie, and the bytes from the first to the last.

    `lead`: how far the first byte is behind a multiple of ALIGNMENT. `strides`: in elements.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    lead: int
    before: np.ndarray[Any, Any]
    after: np.ndarray[Any, Any]


def bytes_of(stored: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A view of all bytes from an array's first element to its last, gaps included."""
    low, high = np.lib.array_utils.byte_bounds(stored)
    whole = stored
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    start, _ = np.lib.array_utils.byte_bounds(whole)
    return whole.reshape(-1).view(np.uint8)[low - start : high - start]


# ---- In the emulator -----------------------------------------------------------------------------
def record(path: Path, folder: Path) -> None:
    """Emulate a module's check at `pipegen emulate`'s size; keep its first launch."""
    from pipegen.description_file import parse_description
    from pipegen.emulator.cases import default_case
    from pipegen.emulator.emitted import EmittedModule
    from pipegen.emulator.finding_docs import code_of
    from pipegen.emulator.machine import run
    from pipegen.emulator.session import capturing
    from pipegen.planning import plan
    from pipegen.vendor.header import read_header

    header = read_header(path.read_text("utf-8"))
    assert header is not None, path
    case = default_case(plan(parse_description(header.description, str(path))))
    known = {"code": code_digest(path), "path": str(path), "sizes": case.sizes}
    target = folder / f"{path.stem}.npz"
    if header.backend == "pallas":
        made, codes = pallas_calls.record(path, header.arch, header.op, case.sizes, case.sms)
        facts = {**known, "findings": codes, "function": header.op, "pallas": True}
        pallas_calls.save(target, facts, made[0])
        return
    calls: list[tuple[str, dict[str, Memory]]] = []
    codes: set[str] = set()

    def execute(launch: Any) -> None:
        codes.update(code_of(finding.kind) for finding in run(launch).findings)

    with capturing(execute, header.arch, case.sms, str(path)) as session:
        emitted = EmittedModule(path, session)
        module = sys.modules[f"pipegen_emulated_{path.stem}"]
        for name, function in list(vars(module).items()):
            own = isinstance(function, FunctionType) and function.__module__ == module.__name__
            if own and name != "launch" and "stream" in inspect.signature(function).parameters:
                setattr(module, name, recording(function, calls))
        checked = emitted.check(list(case.sizes.values()))
    if not checked.passed or not calls:
        raise SystemExit(checked.said or "no launcher was called")
    function_name, memory = calls[0]
    facts = {
        **known,
        "findings": sorted(codes),
        "function": function_name,
        "arguments": {
            name: {"dtype": each.dtype, "shape": each.shape, "strides": each.strides,
                   "lead": each.lead}
            for name, each in memory.items()
        },
    }  # fmt: skip
    arrays = {f"{name}.before": each.before for name, each in memory.items()}
    arrays |= {f"{name}.after": each.after for name, each in memory.items()}
    np.savez_compressed(target, facts=json.dumps(facts), **arrays)


def recording(
    function: Callable[..., Any], calls: list[tuple[str, dict[str, Memory]]]
) -> Callable[..., Any]:
    """The function, which also notes its tensors' memory before and after each call."""
    from pipegen.emulator.tensors import Tensor

    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        tensors = {name: each for name, each in given.items() if isinstance(each, Tensor)}
        if other := given.keys() - tensors.keys() - {"stream"}:
            raise SystemExit(f"{function.__name__} also takes {other}: not a launch of tensors")
        before = {name: bytes_of(each.stored).copy() for name, each in tensors.items()}
        result = function(*args, **kwargs)
        calls.append(
            (
                function.__name__,
                {
                    name: Memory(
                        each.dtype.name,
                        each.shape,
                        each.stride(),
                        each.data_ptr() % ALIGNMENT,
                        before[name],
                        bytes_of(each.stored).copy(),
                    )
                    for name, each in tensors.items()
                },
            )
        )
        return result

    return called


# ---- On a GPU ------------------------------------------------------------------------------------
def read(path: Path) -> tuple[dict[str, Any], dict[str, Memory]]:
    """What `record` wrote."""
    with np.load(path) as saved:
        facts = json.loads(str(saved["facts"]))
        memory = {
            name: Memory(
                each["dtype"],
                tuple(each["shape"]),
                tuple(each["strides"]),
                each["lead"],
                saved[f"{name}.before"],
                saved[f"{name}.after"],
            )
            for name, each in facts["arguments"].items()
        }
    return facts, memory


def compare(recorded: Path) -> dict[str, Any]:
    """Launch on the GPU what was recorded, and compare the memory."""
    with np.load(recorded) as saved:
        if json.loads(str(saved["facts"])).get("pallas"):
            return compare_calls(recorded)
    import torch

    from pipegen.emulator.emitted import load_module

    facts, memory = read(recorded)
    path = ROOT / facts["path"]
    module = load_module(path)
    buffers, tensors = {}, {}
    for name, each in memory.items():
        buffers[name] = torch.empty(each.lead + len(each.before), dtype=torch.uint8, device="cuda")
        used = buffers[name][each.lead :]
        used.copy_(torch.from_numpy(each.before))
        dtype = getattr(torch, each.dtype)
        elements = used[: len(used) // dtype.itemsize * dtype.itemsize].view(dtype)
        tensors[name] = elements.as_strided(each.shape, each.strides, elements.storage_offset())
    getattr(module, facts["function"])(**tensors)
    torch.cuda.synchronize()
    cut = sum_cut(memory, facts["sizes"])
    rows = {
        name: difference(each, buffers[name][each.lead :].cpu().numpy(), cut)
        for name, each in memory.items()
    }
    changed = {
        name: rows[name] for name, each in memory.items() if not same(each.before, each.after)
    }
    untouched = all(
        rows[name]["same_bits"] for name in memory if name not in changed
    )  # inputs are as they were
    return {
        "module": path.name,
        "code": facts["code"],
        "sizes": facts["sizes"],
        "findings": facts["findings"],
        "outputs": changed,
        "passed": bool(changed)
        and untouched
        and facts["code"] == code_digest(path)
        and all(each["passed"] for each in changed.values()),
    }


def compare_calls(recorded: Path) -> dict[str, Any]:
    """Call on the GPU what was called in the emulator, and compare the results."""
    from pipegen.emulator.emitted import load_module

    facts, call = pallas_calls.read(recorded)
    path = ROOT / facts["path"]
    found = pallas_calls.again(getattr(load_module(path), facts["function"]), call)
    arguments = {name: memory_of(each) for name, each in call[0].items()}
    cut = sum_cut(arguments, facts["sizes"])
    outputs = {
        f"result {n}": difference(memory_of(wanted), np.frombuffer(got.tobytes(), np.uint8), cut)
        for n, (wanted, got) in enumerate(zip(call[1], found, strict=True))
    }
    return {
        "module": path.name,
        "code": facts["code"],
        "sizes": facts["sizes"],
        "findings": facts["findings"],
        "outputs": outputs,
        "passed": facts["code"] == code_digest(path)
        and all(each["passed"] for each in outputs.values()),
    }


def memory_of(array: np.ndarray[Any, Any]) -> Memory:
    """An array as dense memory that holds it."""
    held = np.frombuffer(array.tobytes(), np.uint8)
    return Memory(array.dtype.name, array.shape, (), 0, held, held)


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays of bytes are the same."""
    return bool(np.array_equal(a, b))


def sum_cut(memory: dict[str, Memory], sizes: dict[str, int]) -> float:
    """What the tensor core may lose of a sum over K, relative to the rms of the sums."""
    if not any(each.dtype.startswith("float8") for each in memory.values()):
        return 0.0
    return -(-sizes["k"] // FP8_STEP) * FP8_CUT


def difference(memory: Memory, found: np.ndarray[Any, Any], cut: float = 0.0) -> dict[str, Any]:
    """How the bytes that a GPU left differ from the emulator's; a NaN is equal to any NaN.

    `cut`: what they may differ by besides two roundings.
    """
    from pipegen.emulator.tensors.dtypes import DTYPES

    if same(memory.after, found):
        return {"dtype": memory.dtype, "same_bits": True, "error": 0.0, "passed": True}
    dtype = DTYPES[memory.dtype]
    size = len(found) // dtype.storage.itemsize * dtype.storage.itemsize
    wanted, got = (
        dtype.decode(each[:size].view(dtype.storage)).astype(np.float64)
        for each in (memory.after, found)
    )
    both = ~(np.isnan(wanted) & np.isnan(got))
    wanted, got = wanted[both], got[both]
    rms = float(np.sqrt(np.mean(wanted**2))) or 1.0
    error = float((np.abs(got - wanted) / np.maximum(np.abs(wanted), rms)).max(initial=0.0))
    if np.isnan(error):
        error = float("inf")
    limit = ROUNDING.get(memory.dtype, 2**-8)
    return {
        "dtype": memory.dtype,
        "same_bits": False,
        "different": int((got != wanted).sum()),
        "error": error,
        "passed": error <= 2 * limit + cut,
    }


# ---- All of them ---------------------------------------------------------------------------------
def children(commands: Sequence[list[str]], jobs: int, limit: float) -> Iterator[tuple[int, str]]:
    """The exit code and the output of each command, in order; 124 for one that found no end."""

    def one(arguments: list[str]) -> tuple[int, str]:
        command = [sys.executable, __file__, *arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return 124, f"no end within {limit:.0f} s"
        return done.returncode, done.stdout if done.returncode == 0 else done.stderr[-600:]

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(one, commands)


def emulate_all(folder: Path, modules: Sequence[Path], jobs: int, limit: float) -> int:
    """Record every module; the number of those that could not be."""
    folder.mkdir(parents=True, exist_ok=True)
    commands = [["record", str(folder), str(module)] for module in modules]
    failed = 0
    for module, (code, said) in zip(modules, children(commands, jobs, limit), strict=True):
        failed += code != 0
        print("PASS" if code == 0 else f"FAIL {said}", module.name, flush=True)
    return failed


def run_all(folder: Path, target: Path, jobs: int, limit: float, *, add: bool = False) -> int:
    """Compare everything in the folder; the number of modules that do not agree. `add`: into what
    the file has of other modules."""
    recorded = sorted(folder.glob("*.npz"))
    results = []
    for path, (code, said) in zip(
        recorded, children([["compare", str(path)] for path in recorded], jobs, limit), strict=True
    ):
        result = json.loads(said.splitlines()[-1]) if code == 0 else None
        results.append(result or {"module": f"{path.stem}.py", "passed": False, "said": said})
        bits = all(each["same_bits"] for each in results[-1].get("outputs", {}).values())
        verdict = "PASS" if results[-1]["passed"] else "FAIL"
        print(verdict, f"{path.stem}.py", "same bits" if result and bits else said, flush=True)
    bad = sum(not result["passed"] for result in results)
    if add:
        own = {result["module"] for result in results}
        known = json.loads(target.read_text("utf-8"))["results"]
        results = [*results, *(each for each in known if each["module"] not in own)]
        results.sort(key=lambda each: str(each["module"]))
    report = {
        "command": "python benchmarks/emulated_against_gpu.py run FOLDER --json "
        "benchmarks/emulated_against_gpu.json",
        "date": datetime.now(UTC).date().isoformat(),
        "results": results,
    }
    target.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("emulate", "run"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
        command.add_argument("--jobs", type=int, default=2)
        command.add_argument("--limit", type=float, default=240, help="seconds for a module")
        if name == "emulate":
            command.add_argument("modules", nargs="+", type=Path)
        else:
            command.add_argument("--json", type=Path, required=True)
            command.add_argument("--add", action="store_true", help="to what the file has")
    # The two that run in a process of their own, for one module.
    one = commands.add_parser("record")
    one.add_argument("folder", type=Path)
    one.add_argument("module", type=Path)
    commands.add_parser("compare").add_argument("recorded", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "record":
        record(arguments.module, arguments.folder)
        return 0
    if arguments.command == "compare":
        print(json.dumps(compare(arguments.recorded)))
        return 0
    if arguments.command == "emulate":
        failed = emulate_all(arguments.folder, arguments.modules, arguments.jobs, arguments.limit)
    else:
        failed = run_all(
            arguments.folder, arguments.json, arguments.jobs, arguments.limit, add=arguments.add
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
