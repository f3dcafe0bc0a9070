# SPDX-License-Identifier: Apache-2.0
"""The picture of a `pipegen bench` report: rates over arithmetic intensity, and ratios by size.

`plot_data` decides what is drawn, and is pure; `draw` draws it with matplotlib, an optional extra
that is imported here and nowhere else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipegen.errors import InputError, Problem
from pipegen.measuring.report import shape_of

SUFFIXES = (".svg", ".png")
# Dense bf16 and HBM by the vendor's data sheet, in TFLOP/s and TB/s: the roof, not a promise.
PEAKS = {"H200": (989.0, 4.8), "H100": (989.0, 3.35), "B200": (2250.0, 8.0)}
OPERATION_UNIT = "TFLOP/s"
ROOF_POINTS = 100


@dataclass(frozen=True)
class Line:
    """One of those compared: what it is called, and its value at each place on the x axis."""

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]


@dataclass(frozen=True)
class PlotData:
    """Both pictures. `roof`: rate and bandwidth of the GPU, None if it is not known; intensities
    are operations a byte of operands and result, read and written once."""

    unit: str
    sizes: tuple[str, ...]
    rates: tuple[Line, ...]
    ratios: tuple[Line, ...]
    spreads: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    roof: tuple[float, float] | None = None
    title: str = ""


def intensity(row: Mapping[str, Any], bytes_each: float = 2.0) -> float:
    """Operations of a GEMM for each byte that must move: A, B and the result, once."""
    m, n, k = row["m"], row["n"], row["k"]
    return float(2 * m * n * k / (bytes_each * (m * k + n * k + m * n)))


def roof_of(gpu: str) -> tuple[float, float] | None:
    """The GPU's peak rate and bandwidth; None if its name is not known."""
    return next((peak for name, peak in PEAKS.items() if name in gpu), None)


def roof_at(roof: tuple[float, float], operations_a_byte: float) -> float:
    """The most that can be reached at an intensity, in TFLOP/s."""
    return min(roof[0], roof[1] * operations_a_byte)


def plot_data(report: Mapping[str, Any]) -> PlotData:
    """What is drawn of a report. Raises InputError if nothing was timed."""
    rows = [row for row in report["rows"] if "best" in row]
    if not rows:
        raise InputError("nothing was timed, so there is nothing to draw")
    operations = report["unit"] == OPERATION_UNIT
    where = [intensity(row) if operations else float(i) for i, row in enumerate(rows)]
    rates = [Line("best module", tuple(where), tuple(row["rate"] for row in rows))]
    ratios, spreads = [], {}
    for peer in report["peers"]:
        present = [i for i, row in enumerate(rows) if peer in row["peers"]]
        if not present:
            continue
        each = [rows[i]["peers"][peer] for i in present]
        rates.append(
            Line(peer, tuple(where[i] for i in present), tuple(row["rate"] for row in each))
        )
        places = tuple(float(i) for i in present)
        ratios.append(Line(peer, places, tuple(row["ratio"] for row in each)))
        spreads[peer] = tuple((row["ratio_low"], row["ratio_high"]) for row in each)
    gpu = report["device"].get("gpu", "")
    return PlotData(
        report["unit"],
        tuple(shape_of(row) for row in rows),
        tuple(rates),
        tuple(ratios),
        spreads,
        roof_of(gpu) if operations else None,
        f"{report['op']}, {gpu}, {report['date']}",
    )


def check_target(path: Path) -> None:
    """Raises InputError for a file that is no picture, and if matplotlib is missing."""
    if path.suffix not in SUFFIXES:
        raise InputError(
            Problem("is no picture's name", "--plot", str(path), ", ".join(SUFFIXES), "bench.svg")
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError(
            "--plot needs a package that is not installed: pip install 'pipegen[plot]', or "
            "matplotlib"
        ) from None


FAR = 2.0  # a ratio from which on their axis is logarithmic


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Draw the report into an .svg or .png. Raises InputError if that cannot be."""
    check_target(path)
    data = plot_data(report)
    import matplotlib

    # The same figures give the same file.
    matplotlib.rcParams["svg.hashsalt"] = "pipegen"
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text: a smaller file, and searchable
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(11, 8), layout="constrained")
    above, below = figure.subplots(2, 1)
    figure.suptitle(data.title)
    _draw_rates(above, data)
    _draw_ratios(below, data)
    try:
        if path.suffix == ".svg":
            figure.savefig(path, metadata={"Date": None})
        else:
            figure.savefig(path, dpi=150)
    except OSError as error:
        raise InputError(
            Problem(f"cannot be written: {error.strerror or error}", file=str(path))
        ) from None


def _draw_rates(axes: Any, data: PlotData) -> None:
    for line in data.rates:
        axes.plot(line.xs, line.ys, "o", label=line.name, alpha=0.8)
    axes.set_ylabel(data.unit)
    if data.unit == OPERATION_UNIT:
        axes.set_xscale("log")
        axes.set_xlabel("operations a byte of operands and result")
        if data.roof is not None:
            most = max(max(line.xs) for line in data.rates)
            least = min(min(line.xs) for line in data.rates)
            steps = [i / ROOF_POINTS for i in range(ROOF_POINTS + 1)]
            xs = [least * (most / least) ** step for step in steps]
            roof = [roof_at(data.roof, x) for x in xs]
            axes.plot(xs, roof, "k-", linewidth=1, label="roofline (data sheet)")
    else:
        axes.set_xticks(range(len(data.sizes)), data.sizes, rotation=60, ha="right", fontsize=7)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()


def _draw_ratios(axes: Any, data: PlotData) -> None:
    for line in data.ratios:
        low = [y - low for y, (low, _) in zip(line.ys, data.spreads[line.name], strict=True)]
        high = [top - y for y, (_, top) in zip(line.ys, data.spreads[line.name], strict=True)]
        spread = [[max(0.0, each) for each in low], [max(0.0, each) for each in high]]
        axes.errorbar(line.xs, line.ys, spread, fmt="o", capsize=3, label=f"to {line.name}")
    axes.axhline(1.0, color="k", linewidth=1)
    axes.set_ylabel("ratio (above 1: faster)")
    if max((y for line in data.ratios for y in line.ys), default=1.0) > FAR:
        # What is near 1 stays apart beside what is far from it.
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:.3g}")
    axes.set_xticks(range(len(data.sizes)), data.sizes, rotation=60, ha="right", fontsize=7)
    axes.grid(alpha=0.3)
    if data.ratios:
        axes.legend()
