# SPDX-License-Identifier: Apache-2.0
"""The GPU, its driver and the packages that figures belong to; its clock and power meanwhile."""

import contextlib
import platform
import statistics
import subprocess
import threading
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = ("torch", "jax", "jaxlib", "nvidia-cutlass-dsl", "numpy")
_FACTS = "name,driver_version,clocks.max.sm,power.limit"
_SAMPLES = ("clocks.sm", "power.draw", "temperature.gpu")
_UNITS = ("MHz", "W", "°C")
_EVERY_SECONDS = 0.1
_NAMES = ("sm_clock", "power", "temperature")


def query(fields: str, units: bool = True) -> str:
    """What nvidia-smi says of the first GPU; empty where there is none."""
    form = "csv,noheader" if units else "csv,noheader,nounits"
    try:
        found = subprocess.run(
            ["nvidia-smi", f"--query-gpu={fields}", f"--format={form}", "--id=0"],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def machine() -> dict[str, str]:
    """The GPU, the driver and the packages."""
    facts = {"gpu": query(_FACTS), "python": platform.python_version()}
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    return facts


def no_gpu() -> str:
    """Why nothing can be measured here, as far as can be seen without torch; or nothing."""
    return "" if query("name") else "nvidia-smi finds no GPU"


def spread(samples: list[tuple[float, ...]]) -> dict[str, dict[str, float]]:
    """Least, median and most of each quantity that was sampled. Pure."""
    found = {}
    for name, unit, values in zip(_NAMES, _UNITS, zip(*samples, strict=True), strict=False):
        found[f"{name} ({unit})"] = {
            "least": min(values),
            "median": statistics.median(values),
            "most": max(values),
        }
    return found


class Gauge:
    """Samples clock, power and temperature ten times a second, as long as it is open."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, ...]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "Gauge":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(timeout=25)

    def _sample(self) -> None:
        read = _nvml() or _smi
        while not self._end.wait(_EVERY_SECONDS):
            with contextlib.suppress(Exception):
                if values := read():
                    self._samples.append(values)

    def taken(self) -> dict[str, dict[str, float]]:
        """The spread of the samples so far; they begin anew."""
        samples, self._samples = self._samples, []
        return spread(samples) if samples else {}


def _smi() -> tuple[float, ...] | None:
    words = query(",".join(_SAMPLES), units=False).split(",")
    try:
        return tuple(float(word) for word in words)
    except ValueError:
        return None


def _nvml() -> Any:
    """Reads by NVML where its Python package is installed: a call costs microseconds."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    except Exception:
        return None

    def read() -> tuple[float, ...]:
        return (
            float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
        )

    return read
