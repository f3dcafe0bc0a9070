# SPDX-License-Identifier: Apache-2.0
"""What the launchers of the emitted CuTe DSL modules refuse, and what they pack, without a GPU.

A call gets stand-ins for torch tensors; the compiled kernel, the number of clusters and the current
device are replaced. Every refusal stands beside a legal neighbour that passes.
"""

import array
import importlib.util
import math
import re
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from pipegen.compiling.installed import dsl as find_dsl

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(bool(find_dsl("cute").reason), reason="needs the CuTe DSL")

AT_ONCE = 99  # clusters, or CTAs
ADDRESS = 4096


class Tensor:
    """What a launcher asks of a torch tensor."""

    def __init__(self, dtype, shape, strides=None, address=ADDRESS, device=0):
        self.dtype, self.shape, self.address, self.device = dtype, shape, address, device
        row_major = tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))
        self.strides = row_major if strides is None else strides

    def data_ptr(self):
        return self.address

    def get_device(self):
        return self.device

    def stride(self):
        return self.strides

    def but(self, **changes):
        """This tensor with another dtype, shape, strides, address or device."""
        if "shape" not in changes:
            changes.setdefault("strides", self.strides)
        kept = {key: getattr(self, key) for key in ("dtype", "shape", "address", "device")}
        return Tensor(**(kept | changes))


def row_major(dtype, *shape):
    return Tensor(f"torch.{dtype}", shape)


GEMM = {
    "a": row_major("bfloat16", 4, 100, 64),
    "b": row_major("bfloat16", 4, 1000, 64),
    "out": row_major("bfloat16", 4, 100, 1000),
}
GATHER = {
    "a": GEMM["a"].but(shape=(4, 70, 64)),
    "index": row_major("int32", 4, 100),
    "b": GEMM["b"],
    "out": GEMM["out"],
}
MIXED = {
    "a": GEMM["a"],
    "b": row_major("int8", 4, 1000, 64),
    "scale": row_major("float32", 4, 1000),
    "out": GEMM["out"],
}
GROUPS = {  # of 128 along K
    "a": row_major("bfloat16", 4, 100, 256),
    "b": row_major("int8", 4, 1000, 256),
    "scale": row_major("bfloat16", 4, 2, 1000),
    "out": GEMM["out"],
}
ROWSUM = GEMM | {"rowsum": row_major("float32", 4, 100)}
COPY = {"x": row_major("bfloat16", 100, 1000), "out": row_major("bfloat16", 100, 1000)}
ADD = {"x": COPY["x"], "y": COPY["x"], "out": COPY["out"]}
ADD_ROW = {"x": COPY["x"], "y": row_major("bfloat16", 1000), "out": COPY["out"]}
TAKE = {
    "x": row_major("bfloat16", 70, 1000),
    "index": row_major("int32", 100),
    "out": COPY["out"],
}
# One of each host, and of each kernel that includes one.
LEGAL = {
    "gemm_sm90_c2x1": GEMM,
    "gemm_sm90_pingpong_c2x1": GEMM,
    "gemm_sm90_split_k4": GEMM,
    "gemm_sm90_cp_async": GEMM,
    "gemm_sm90_cp_async_align4": GEMM,
    "gemm_sm90_gather": GATHER,
    "gemm_sm100_c2x1": GEMM,
    "gemm_sm100_clc_c2x2": GEMM,
    "gemm_rowsum_sm100_c1x1": ROWSUM,
    "mixed_gemm_sm90": MIXED,
    "mixed_gemm_sm90_g128": GROUPS,
    "mixed_gemm_sm100": MIXED,
    "stream_sm90_tma": COPY,
    "stream_sm90_tma_matrix": ADD,
    "stream_sm90_tma_row": ADD_ROW,
    "stream_sm90_tma_row_c2x1": ADD_ROW,
    "stream_sm90_cp_async": COPY,
    "stream_sm90_cp_async_gather": TAKE,
    "stream_sm90_cp_async_store_align4": COPY,
    "stream_sm90_thread": COPY,
    "stream_sm90_thread_gather": TAKE,
}
BATCHED = [name for name in LEGAL if not name.startswith("stream")]
STREAMS = [name for name in LEGAL if name.startswith("stream")]


@cache
def module_of(name: str) -> ModuleType:
    """An emitted module, imported; `packed` of it is what its last launch packed."""
    path = ROOT / "generated" / "cute" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def launch(monkeypatch):
    """Calls a module's launcher, with any current device; returns the numbers that it packs."""

    def call(name, tensors, current=0):
        module, packed = module_of(name), []
        [compiled] = [each for each in vars(module) if each.startswith("compile_")]

        def record(code, numbers):
            packed.extend(numbers)
            return array.array(code, numbers)

        with monkeypatch.context() as patch:
            for count in ("max_clusters", "max_ctas", "max_blocks"):
                if hasattr(module, count):
                    patch.setattr(module, count, lambda device: AT_ONCE)
            patch.setattr(module, compiled, lambda: lambda problem, stream: None)
            patch.setattr(module, "cudart", SimpleNamespace(cudaGetDevice=lambda: (0, current)))
            patch.setattr(module, "array", SimpleNamespace(array=record))
            getattr(module, name.split("_sm")[0])(*tensors.values(), stream=0)
        return packed

    return call


@pytest.mark.parametrize("name", LEGAL)
def test_it_packs_as_many_numbers_as_the_compiled_side_reads(launch, name):
    source = (ROOT / "generated" / "cute" / f"{name}.py").read_text(encoding="utf-8")
    [count] = re.findall(r"cute\.make_tensor\(problem, cute\.make_layout\((\d+)\)\)", source)
    assert f"# One argument instead of {count}:" in source
    assert len(launch(name, LEGAL[name])) == int(count)
    read = {int(place) for place in re.findall(r"numbers\[(\d+)\]", source)}
    assert max(read) == int(count) - 1


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        (
            "gemm_sm100_c2x1",
            [100, 1000, 64, 4, AT_ONCE, 64, 6400, 64, 64000, 1000, 100000],
        ),
        ("gemm_sm100_clc_c2x2", [100, 1000, 64, 4, 64, 6400, 64, 64000, 1000, 100000]),
    ],
)
def test_clc_packs_no_number_of_clusters(launch, name, numbers):
    """The rest moves up by one place."""
    assert launch(name, GEMM) == [ADDRESS] * 3 + numbers
    module = module_of(name)
    assert (
        hasattr(module, "max_clusters") == hasattr(module, "HardwareInfo") == (AT_ONCE in numbers)
    )


def test_a_gather_packs_the_rows_of_x_last(launch):
    packed = launch("stream_sm90_thread_gather", TAKE)
    assert packed == [100, 1000, AT_ONCE, ADDRESS, ADDRESS, ADDRESS, 1000, 1000, 70]


# --- Where two elements of out would be one -------------------------------------------------------


@pytest.mark.parametrize(
    ("strides", "overlap"),
    [
        ((8, 1000, 1), True),  # batches inside of one another
        ((100000, 8, 1), True),  # rows
        ((99992, 1000, 1), True),  # a batch begins in the last row of the one before
        ((100000, 1000, 1), False),
        ((200000, 1008, 1), False),
        ((1000, 4000, 1), False),  # (M, L, N) in memory
        ((1000, 3992, 1), True),
        ((992, 4000, 1), True),
    ],
)
@pytest.mark.parametrize("name", BATCHED)
def test_elements_of_out_may_not_overlap(launch, name, strides, overlap):
    tensors = LEGAL[name] | {"out": GEMM["out"].but(strides=strides)}
    if not overlap:
        assert launch(name, tensors)
        return
    message = f"out.stride={strides}: elements of out overlap"
    with pytest.raises(ValueError, match=re.escape(message)):
        launch(name, tensors)


@pytest.mark.parametrize("name", STREAMS)
def test_rows_of_out_may_not_overlap(launch, name):
    out = LEGAL[name]["out"]
    for strides in ((8, 1), (992, 1)):
        message = f"out.stride={strides}: elements of out overlap"
        with pytest.raises(ValueError, match=re.escape(message)):
            launch(name, LEGAL[name] | {"out": out.but(strides=strides)})
    for strides in ((1000, 1), (1008, 1)):
        assert launch(name, LEGAL[name] | {"out": out.but(strides=strides)})


@pytest.mark.parametrize("name", BATCHED)
def test_dimensions_of_size_1_overlap_with_nothing(launch, name):
    """One batch and one row, with strides that would be wrong for more."""
    tensors = {
        operand: tensor.but(shape=tensor.shape[1:]) for operand, tensor in LEGAL[name].items()
    }
    assert launch(name, tensors)
    tensors["out"] = Tensor(GEMM["out"].dtype, (1, 100, 1000), (7, 1000, 1))
    assert launch(name, tensors)
    if "index" not in tensors:
        tensors["a"] = tensors["a"].but(shape=(1, *tensors["a"].shape[1:]))
    else:
        tensors["index"] = tensors["index"].but(shape=(1,))
    if "rowsum" in tensors:
        tensors["rowsum"] = tensors["rowsum"].but(shape=(1,))
    tensors["out"] = tensors["out"].but(shape=(1, 1, 1000), strides=(7, 3, 1))
    assert launch(name, tensors)


@pytest.mark.parametrize("name", LEGAL)
def test_elements_of_inputs_may(launch, name):
    """Sliding windows over one row of memory."""
    operand = next(iter(LEGAL[name]))
    windows = LEGAL[name][operand]
    windows = windows.but(strides=(*windows.strides[:-2], 8, 1))
    assert launch(name, LEGAL[name] | {operand: windows})


# --- Where the operands are -----------------------------------------------------------------------


@pytest.mark.parametrize("name", LEGAL)
def test_the_operands_are_on_the_current_device(launch, name):
    elsewhere = {operand: tensor.but(device=1) for operand, tensor in LEGAL[name].items()}
    assert launch(name, elsewhere, current=1)
    for tensors, device, current in ((elsewhere, 1, 0), (LEGAL[name], 0, 1)):
        message = f"out.device={device}: must be the current device, {current}"
        with pytest.raises(ValueError, match=re.escape(message)):
            launch(name, tensors, current)


@pytest.mark.parametrize("device", [1, -1])
@pytest.mark.parametrize("name", LEGAL)
def test_the_operands_are_on_one_gpu(launch, name, device):
    for operand, tensor in LEGAL[name].items():
        message = rf"{operand}\.device={device}.*: must be one GPU"
        with pytest.raises(ValueError, match=message):
            launch(name, LEGAL[name] | {operand: tensor.but(device=device)})


class OnDevice1(np.ndarray):
    """An array that says of itself, through DLPack, that it is on the second GPU."""

    def __dlpack_device__(self):
        return 2, 1


def test_dlpack_takes_the_same_ways(launch):
    """Arrays without `data_ptr`: numpy's are on no GPU, others on the current one or refused."""
    shapes = {"a": (96, 64), "b": (128, 64), "out": (96, 128)}
    arrays = {operand: np.zeros(shape, np.float16) for operand, shape in shapes.items()}
    with pytest.raises(ValueError, match=r"a\.device=-1, .*: must be one GPU \(-1 is none\)"):
        launch("gemm_sm90_f16", arrays)
    arrays = {operand: array.view(OnDevice1) for operand, array in arrays.items()}
    with pytest.raises(ValueError, match=r"out\.device=1: must be the current device, 0"):
        launch("gemm_sm90_f16", arrays)
    sizes = [96, 128, 64, 1, AT_ONCE]
    assert launch("gemm_sm90_f16", arrays, current=1)[3:8] == sizes


# --- Types, addresses, strides, shapes ------------------------------------------------------------


@pytest.mark.parametrize("name", LEGAL)
def test_another_type_is_refused(launch, name):
    for operand, tensor in LEGAL[name].items():
        wanted = tensor.dtype.removeprefix("torch.")
        with pytest.raises(TypeError, match=rf"{operand}\.dtype=torch\.int64: must be {wanted}"):
            launch(name, LEGAL[name] | {operand: tensor.but(dtype="torch.int64")})
        assert launch(name, LEGAL[name] | {operand: tensor.but(dtype=wanted)})  # as numpy names it


@pytest.mark.parametrize("name", LEGAL)
def test_an_address_is_aligned(launch, name):
    """What threads store, and an index, are not: the compiler knows their types."""
    for operand, tensor in LEGAL[name].items():
        if operand in ("index", "rowsum"):
            continue
        with pytest.raises(ValueError, match=rf"{operand} address=0x1002: must be a multiple of"):
            launch(name, LEGAL[name] | {operand: tensor.but(address=ADDRESS + 2)})
        assert launch(name, LEGAL[name] | {operand: tensor.but(address=ADDRESS + 16)})


@pytest.mark.parametrize("name", LEGAL)
def test_a_last_stride_is_1(launch, name):
    for operand, tensor in LEGAL[name].items():
        strides = (*tensor.strides[:-1], 2)
        shown = re.escape(f".stride={strides}")
        with pytest.raises(ValueError, match=f"{operand}.*{shown}: must be"):
            launch(name, LEGAL[name] | {operand: tensor.but(strides=strides)})


@pytest.mark.parametrize("name", [name for name in LEGAL if "align4" not in name])
def test_other_strides_are_multiples_of_16_bytes(launch, name):
    for operand, tensor in LEGAL[name].items():
        if tensor.dtype != "torch.bfloat16" or len(tensor.shape) == 1:
            continue
        for more, right in ((8, True), (4, False), (1, False)):
            batch = [2 * stride for stride in tensor.strides[:-2]]
            strides = (*batch, tensor.strides[-2] + more, 1)
            tensors = LEGAL[name] | {operand: tensor.but(strides=strides)}
            if right:
                assert launch(name, tensors)
                continue
            shown = re.escape(f"{operand}.stride={strides}: must be 1 last")
            with pytest.raises(ValueError, match=shown):
                launch(name, tensors)


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize(
    ("name", "strides", "right"),
    [
        ("gemm_sm90_cp_async", (0, 64, 1), True),  # one matrix for all batches
        ("gemm_sm90_cp_async", (64000, 0, 1), False),  # one row for all rows
        ("gemm_sm90_cp_async", (-64000, 64, 1), False),
        ("gemm_sm90_gather", (0, 64, 1), True),
        ("gemm_sm90_gather", (64000, 0, 1), False),
        ("gemm_sm90_c2x1", (0, 64, 1), False),  # TMA wants it positive
        ("gemm_sm90_c2x1", (64000, 64, 1), True),
    ],
)
def test_which_strides_may_be_0(launch, operand, name, strides, right):
    tensors = LEGAL[name] | {operand: LEGAL[name][operand].but(strides=strides)}
    if right:
        assert launch(name, tensors)
        return
    shown = re.escape(f"{operand}.stride={strides}: must be 1 last, and positive multiples of 8")
    with pytest.raises(ValueError, match=shown):
        launch(name, tensors)


@pytest.mark.parametrize("name", ["gemm_sm90_cp_async", "gemm_sm90_gather", "gemm_sm90_c2x1"])
def test_out_is_not_one_matrix_for_all_batches(launch, name):
    out = GEMM["out"].but(strides=(0, 1000, 1))
    with pytest.raises(ValueError, match=r"out\.stride=\(0, 1000, 1\): "):
        launch(name, LEGAL[name] | {"out": out})


@pytest.mark.parametrize("name", LEGAL)
def test_shapes_fit_one_another(launch, name):
    """Eight more in any dimension of any operand, but for the rows that an index picks from."""
    for operand, tensor in LEGAL[name].items():
        for place in range(len(tensor.shape)):
            size = tensor.shape[place] + 8
            shape = (*tensor.shape[:place], size, *tensor.shape[place + 1 :])
            tensors = LEGAL[name] | {operand: tensor.but(shape=shape)}
            if "index" in tensors and operand in ("a", "x") and place == len(shape) - 2:
                assert launch(name, tensors)
                continue
            with pytest.raises(ValueError, match=r"must be|want"):
                launch(name, tensors)


@pytest.mark.parametrize("name", LEGAL)
def test_nothing_is_empty_or_of_another_rank(launch, name):
    for operand, tensor in LEGAL[name].items():
        for shape in ((0, *tensor.shape[1:]), (2, 2, *tensor.shape)):
            wrong = LEGAL[name] | {operand: tensor.but(shape=shape)}
            with pytest.raises(ValueError, match=rf"{operand}\.shape=.*: must be|want"):
                launch(name, wrong)


@pytest.mark.parametrize("name", [name for name in LEGAL if name not in STREAMS])
def test_n_is_what_tma_stores(launch, name):
    """995 columns in rows of 1000: legal strides, a last piece of less than 16 bytes."""
    tensors = {}
    for operand, tensor in LEGAL[name].items():
        shape = tuple(995 if size == 1000 else size for size in tensor.shape)
        tensors[operand] = tensor.but(shape=shape, strides=tensor.strides)
    with pytest.raises(ValueError, match="N=995: must be a multiple of 8, TMA stores 16 bytes"):
        launch(name, tensors)


def test_scales_are_a_vector_for_each_batch(launch):
    scale = row_major("float32", 4, 1, 1000)
    with pytest.raises(ValueError, match=re.escape("must be (N,) or (L, N), the last dimension")):
        launch("mixed_gemm_sm90", MIXED | {"scale": scale})


# --- The module's own check -----------------------------------------------------------------------


@pytest.mark.parametrize("name", LEGAL)
def test_the_modules_check_looks_below_and_beside_out(name):
    source = (ROOT / "generated" / "cute" / f"{name}.py").read_text(encoding="utf-8")
    check = source[source.index("def check(") : source.index("def main(")]
    assert "around = buffer(m + 1, " in check
    below, beside = ("m:", ":, n:") if name in STREAMS else (":, m:", "..., n:")
    assert f"around[{below}]" in check
    assert f"around[{beside}]" in check


def test_only_a_launch_asks_for_the_current_device():
    """Importing and compiling need no GPU: the question comes after the operands' checks."""
    for name in LEGAL:
        source = (ROOT / "generated" / "cute" / f"{name}.py").read_text(encoding="utf-8")
        launcher = source[source.index(f"\ndef {name.split('_sm')[0]}(") :]
        launcher = launcher[: launcher.index("\ndef reference(")]
        assert source.count("cudart.") == launcher.count("cudart.") == 1
        assert launcher.index("must be one GPU") < launcher.index("cudart.cudaGetDevice()")
