# SPDX-License-Identifier: Apache-2.0
"""The process that has the GPU: it takes commands, a JSON object a line, and answers likewise.

    python -m pipegen.measuring.worker

Each answer is one line `@ {"done": …}` or `@ {"error": …}`; before each step that may crash or hang
comes a line `@ {"at": step, "name": who}`, so that whoever watches (`process`) knows whom to blame.
Whatever else is printed is a compiler's or a kernel's, and kept for the report.
"""

import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import torch

from pipegen.measuring import rounds as turns
from pipegen.measuring.checking import fault, verify, wrong
from pipegen.measuring.clocks import Entry, Timer, clock_for
from pipegen.measuring.code_digest import code_digest
from pipegen.measuring.operators import OUTPUTS, Operator, compile_ahead, op_of, use_object
from pipegen.measuring.peers import load_entries
from pipegen.measuring.rotation import copies_for
from pipegen.measuring.rows import COPY, timed_name
from pipegen.measuring.shapes import size_of

COMPILERS = 8  # threads that compile for jax at once; Python's lock leaves more without work


def say(**words: Any) -> None:
    """One line for whoever started this process."""
    sys.stdout.write("@ " + json.dumps(words) + "\n")
    sys.stdout.flush()


class Session:
    """Modules that are loaded, and what is being timed for one size."""

    def __init__(self) -> None:
        self.kernels: dict[str, Operator] = {}
        self.timer: Timer | None = None

    def device(self) -> dict[str, Any]:
        """The GPU, as torch names it."""
        if not torch.cuda.is_available():
            return {"gpu": "", "capability": [0, 0]}
        return {
            "gpu": torch.cuda.get_device_name(),
            "capability": list(torch.cuda.get_device_capability()),
        }

    def verify(self, path: str) -> dict[str, Any]:
        """All sizes that the module's operator checks."""
        module = Path(path)
        kernel: Operator = op_of(module).Operator(module)
        return {
            "out_type": kernel.out_type,
            "code": code_digest(module),
            "rows": verify(kernel),
        }

    def load(self, name: str, path: str, object: str | None) -> dict[str, Any]:
        """Load a module, and compile it if it does not come as an object."""
        say(at="load", name=name)
        module = Path(path)
        op = op_of(module)
        kernel: Operator = op.Operator(module)
        self.kernels[name] = kernel
        if object is not None:
            use_object(kernel, Path(object), module.stem)
        else:
            compile_ahead(kernel)
        return {
            "unit": op.UNIT,
            "peer": op.PEER,
            "out_type": kernel.out_type,
            "code": code_digest(module),
        }

    def prepare(
        self, shape: Sequence[int], names: Sequence[str], peers: Sequence[str]
    ) -> dict[str, Any]:
        """Operands of this size for all; each is checked before it may be timed."""
        self.timer = None
        OUTPUTS.clear()
        torch.cuda.empty_cache()
        size = size_of(tuple(shape))
        first = self.kernels[names[0]]
        say(at="operands", name="")
        operands_of = getattr(first, "timed_operands", first.operands)
        operands = operands_of(size)
        wanted = first.reference(operands)
        moved = sum(each.numel() * each.element_size() for each in operands)
        moved += sum(each.numel() for each in wanted) * 2
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        copies = 1 if getattr(first, "rotates", False) else copies_for(moved, l2)
        sets = [operands, *(operands_of(size) for _ in range(copies - 1))]
        entries: dict[str, Entry] = {}
        out: dict[str, str] = {}
        modules = []
        _compile_together([self.kernels[name] for name in names], operands)
        for name in names:
            say(at="check", name=name)
            try:
                out[name] = fault(self.kernels[name], operands, size, wanted)
                if not out[name]:
                    entries[name] = self._entry(name, sets, size)
                    modules.append(name)
            except Exception as error:
                if _poisoned(error):
                    raise  # no launch of this process works any more: it ends, and names this one
                out[name] = _words(error)
        configurations: dict[str, dict[str, str]] = {}
        for peer in peers:
            say(at="peer", name=peer)
            try:
                found = load_entries(peer)(peer, first, sets, size)
                for word, entry in found.items():
                    name = timed_name(peer, word)
                    say(at="peer", name=peer)
                    result = wrong(first, entry.result(), wanted) if entry.result else ""
                    if result:
                        out[name] = result
                    else:
                        entries[name] = entry
                        configurations.setdefault(peer, {})[word] = name
            except Exception as error:
                if _poisoned(error):
                    raise
                out[peer] = _words(error)
        del wanted
        copy_work = 0
        for word, call in getattr(first, "others", lambda *_: {})(operands, size).items():
            entries[word] = Entry([call])
        if contiguous := getattr(first, "contiguous_copy", None):
            call, copy_work = contiguous(size)
            entries[COPY] = Entry([call])
        clock = clock_for(entries) if entries else "host"
        self.timer = Timer(entries, clock)
        return {
            "modules": modules,
            "peers": configurations,
            "out": {name: why for name, why in out.items() if why},
            "work": first.work(size),
            "clock": clock,
            "copies": copies,
            "copy_work": copy_work,
            "notes": {"others": list(getattr(first, "others", lambda *_: {})(operands, size))},
        }

    def _entry(self, name: str, sets: list[list[Any]], size: dict[str, int]) -> Entry:
        kernel = self.kernels[name]
        launchers = [kernel.launcher(operands, size) for operands in sets]
        waits = [wait for _, wait in launchers]

        def wait() -> None:
            for each in waits:
                each()

        return Entry([call for call, _ in launchers], wait, kernel.clock)

    def time(self, names: Sequence[str], rounds: int, seconds: float) -> dict[str, Any]:
        """Interleaved rounds of these; a first turn of each, which captures, does not count."""
        timer = self.timer
        if timer is None:
            raise RuntimeError("nothing was prepared")

        def first(name: str, repeats: int) -> float:
            say(at="time", name=name)
            return timer.sample(name, repeats)

        repeats = turns.repeats_for(first, names, seconds, timer.launches)
        say(at="rounds", name="")
        return {"figures": turns.interleave(timer.sample, repeats, rounds)}


def _compile_together(kernels: Sequence[Operator], operands: list[Any]) -> None:
    """Compile in threads what jax compiles for a size; what fails here fails again when checked."""
    makers = [maker for kernel in kernels if (maker := _maker(kernel)) is not None]
    with ThreadPoolExecutor(COMPILERS) as pool:
        for _ in as_completed([pool.submit(maker, operands) for maker in makers]):
            say(at="compile", name="")


def _maker(kernel: Operator) -> Callable[[list[Any]], None] | None:
    return getattr(kernel, "compile_for", None) if getattr(kernel, "pallas", False) else None


def _words(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"


def serve() -> None:
    """Commands until the input ends."""
    session = Session()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(session, command.pop("do"))(**command)
        except Exception as error:
            say(error=_words(error))
            if _poisoned(error):
                sys.exit(1)  # after such an error no launch of this process works
            continue
        if any(math.isnan(each) for row in answer.get("figures", {}).values() for each in row):
            answer = {"error": "a clock gave no number"}
        say(done=answer)


def _poisoned(error: BaseException) -> bool:
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return "CUDA error" in str(error)


if __name__ == "__main__":
    serve()
