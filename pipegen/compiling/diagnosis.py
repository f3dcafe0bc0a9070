# SPDX-License-Identifier: Apache-2.0
"""What `pipegen doctor` finds out: what is installed, what can run here, what would be missing."""

import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pipegen.compiling.cubin import find_cuobjdump
from pipegen.compiling.installed import DSLS, Dsl, dsl, version_of
from pipegen.compiling.schedule import version_remark

_TIMEOUT_SECONDS = 60
_CUTE = "nvidia-cutlass-dsl"
# What a module of each DSL imports first; run in a process of its own, since it may crash.
_IMPORTS = {
    "cute": "import cutlass.cute",
    "pallas": "from jax.experimental.pallas import mosaic_gpu",
}
_OTHER_PACKAGES = ("nvidia-cuda-cuobjdump", "nvidia-cuda-nvdisasm", "numpy", "torch")
# jax runs with NVIDIA's libraries from packages; cuBLAS stands for all of them.
_CUBLAS = ("nvidia-cublas-cu12", "nvidia-cublas")
_CAPABILITIES = ("9.0", "10.0")
# Version ranges that are known to go wrong, said even when they are not installed.
KNOWN_BAD = (
    "nvidia-cutlass-dsl below 4.6: bulk copies do not elect their lane there, and do from 4.6 on; "
    "a kernel for the one is wrong on the other",
    "nvidia-cutlass-dsl below 4.8 with Task Scheduling: no advance_on_wait for TMA -> threads, "
    "which the Hopper GEMM uses unless told not to",
    "jax below 0.10.2: plgpu.kernel and its scratch are spelled differently",
    "jax 0.10.2 without absl-py: Mosaic GPU imports absl, and jax does not install it",
)


@dataclass(frozen=True)
class Ability:
    """One check, and whether it can run here. `command` would enable it."""

    name: str
    state: Literal["yes", "no", "broken"]
    reason: str = ""
    command: str = ""


def examine() -> dict[str, Any]:
    """Everything `doctor` knows, as one object."""
    gpus = _gpus()
    states = [dsl(name) for name in DSLS]
    with ThreadPoolExecutor() as pool:
        imported = pool.map(lambda state: _import_fault(state.name) if state.usable else "", states)
        faults = dict(zip(DSLS, imported, strict=True))
    packages = {name: version for state in states for name, version in state.versions.items()}
    packages |= {name: version for name in _OTHER_PACKAGES if (version := version_of(name))}
    abilities = [
        Ability("select, plan, generate, freshness", "yes"),
        *(_compiling(state, faults[state.name]) for state in states),
        _scheduling(dsl("cute"), faults["cute"]),
        *_running(gpus, {state.name: state.usable for state in states}),
    ]
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": f"{platform.system()} {platform.machine()}",
        "pipegen": version_of("pipegen"),
        "cutlass_flavour": _flavour(packages),
        "packages": packages,
        "cuobjdump": find_cuobjdump(),
        "gpus": gpus,
        "abilities": [asdict(ability) for ability in abilities],
        "command": one_command(abilities),
        "known_bad": list(KNOWN_BAD),
        "exit_code": 1 if any(ability.state == "broken" for ability in abilities) else 0,
    }


def one_command(abilities: list[Ability]) -> str:
    """One command that adds everything that is missing and can be installed; '' if nothing is."""
    wanted = list(dict.fromkeys(a.command for a in abilities if a.command))
    extras = [
        c.split("[")[1].split("]")[0] for c in wanted if c.startswith("pip install 'pipegen[")
    ]
    others = [c for c in wanted if not c.startswith("pip install 'pipegen[")]
    if extras:
        others.append(f"pip install 'pipegen[{','.join(extras)}]'")
    return " && ".join(others)


def _compiling(state: Dsl, fault: str) -> Ability:
    name = f"compile {state.name} modules (no GPU needed)"
    if not state.usable:
        return Ability(name, "broken" if state.broken else "no", state.reason, state.command)
    if fault:
        return Ability(name, "broken", fault, _reinstall(state.versions))
    return Ability(name, "yes")


def _scheduling(state: Dsl, fault: str) -> Ability:
    """Task Scheduling is part of the CuTe DSL, and changes with each of its versions."""
    from pipegen.rendering import TESTED

    name = "check the schedules of cute-ts modules (no GPU needed)"
    if fault or not state.usable:
        return Ability(name, "no", "cute modules cannot be compiled here")
    said = version_remark(f"# Checked with {TESTED['cute-ts']}.\n", state.versions[_CUTE])
    return Ability(name, "yes", said[0] if said else "")


def _reinstall(versions: dict[str, str]) -> str:
    packages = " ".join(f"{name}=={version}" for name, version in versions.items())
    return f"pip install --force-reinstall {packages}"


def _running(gpus: list[dict[str, str]], usable: dict[str, bool]) -> Iterator[Ability]:
    good = [gpu for gpu in gpus if gpu["compute_capability"] in _CAPABILITIES]
    for name in DSLS:
        title = f"run {name} modules"
        if not good:
            seen = ", ".join(gpu["name"] for gpu in gpus) or "nvidia-smi finds none"
            yield Ability(title, "no", f"no Hopper or Blackwell GPU ({seen})")
        elif not usable[name]:
            yield Ability(title, "no", f"{name} modules cannot be compiled here")
        elif name == "pallas" and not any(map(version_of, _CUBLAS)):
            reason = "jax's CUDA libraries are not installed"
            yield Ability(title, "no", reason, "pip install 'pipegen[pallas-run]'")
        else:
            yield Ability(title, "yes")


def _import_fault(name: str) -> str:
    """What goes wrong when a fresh Python imports the DSL; empty if nothing does."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _IMPORTS[name]],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"`{_IMPORTS[name]}` did not finish in {_TIMEOUT_SECONDS} s"
    if done.returncode == 0:
        return ""
    last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
    return f"`{_IMPORTS[name]}` fails: {last[0] if last else f'exit code {done.returncode}'}"


def _gpus() -> list[dict[str, str]]:
    """The GPUs that nvidia-smi lists; none without it."""
    tool = shutil.which("nvidia-smi")
    if not tool:
        return []
    fields = "name,compute_cap,driver_version,memory.total"
    try:
        done = subprocess.run(
            [tool, f"--query-gpu={fields}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_gpus(done.stdout) if done.returncode == 0 else []


def parse_gpus(text: str) -> list[dict[str, str]]:
    """The GPUs in nvidia-smi's CSV."""
    keys = ("name", "compute_capability", "driver", "memory")
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [dict(zip(keys, row, strict=True)) for row in rows if len(row) == len(keys)]


def _flavour(packages: dict[str, str]) -> str:
    found = [cuda for cuda in ("cu12", "cu13") if f"nvidia-cutlass-dsl-libs-{cuda}" in packages]
    return " and ".join(found)
