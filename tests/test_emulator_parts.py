# SPDX-License-Identifier: Apache-2.0
"""Parts of the emulator's capture that need no DSL: library, PTX entries, buffers, tensors."""

import ctypes
import dataclasses
import struct
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest

from pipegen.emulator.capture import library
from pipegen.emulator.capture.arguments import buffers_of, byte_range
from pipegen.emulator.capture.device import make_device
from pipegen.emulator.capture.entry import Parameter, entries, static_shared_bytes
from pipegen.emulator.capture.hooks import session_arch
from pipegen.emulator.capture.recording import read_config, read_cubins, read_params
from pipegen.emulator.tensors import Tensor, TorchLike
from pipegen.emulator.tensors.dtypes import DTYPES
from pipegen.errors import InputError

# ---- The launch library --------------------------------------------------------------------------


def test_the_library_is_built_once(tmp_path):
    """The second call finds it; no temporary folder stays beside it."""
    built = library.launch_library.__wrapped__(tmp_path)
    stamp = built.stat().st_mtime_ns
    assert library.launch_library.__wrapped__(tmp_path) == built
    assert built.stat().st_mtime_ns == stamp
    assert list(built.parent.iterdir()) == [built]


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path):
    """A file where the folder should be: the library is built elsewhere."""
    (tmp_path / "emulator").write_text("")
    built = library.launch_library.__wrapped__(tmp_path)
    assert built.exists()
    assert tmp_path not in built.parents


def test_without_a_compiler_one_paragraph_says_what_to_do(tmp_path, monkeypatch):
    """No compiler on the PATH, and one that CC names wrongly."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(InputError, match=r"needs a C compiler once.*tried cc, gcc, clang on the"):
        library.launch_library.__wrapped__(tmp_path)
    monkeypatch.setenv("CC", "no-such-cc")
    with pytest.raises(InputError, match="tried CC=no-such-cc and cc"):
        library.launch_library.__wrapped__(tmp_path)


def test_what_a_compiler_says_is_told(tmp_path, monkeypatch):
    """A compiler that fails."""
    failing = tmp_path / "cc"
    failing.write_text("#!/bin/sh\necho 'it is too old' >&2\nexit 3\n")
    failing.chmod(0o755)
    monkeypatch.setenv("CC", str(failing))
    with pytest.raises(InputError, match=r"exit code 3\).*it is too old"):
        library.launch_library.__wrapped__(tmp_path / "cache")


def test_nobody_listening_is_an_error(tmp_path):
    """A kernel that is launched outside an emulator fails: it must not seem to have run."""
    loaded = ctypes.CDLL(str(library.launch_library()))
    handle = ctypes.c_void_p()
    assert loaded._cudaLibraryLoadData(ctypes.byref(handle), ctypes.c_void_p(16)) == 801
    assert loaded._cudaLaunchKernelEx(ctypes.byref(handle), ctypes.byref(handle), None) == 801
    loaded._cudaGetErrorName.restype = ctypes.c_char_p
    assert loaded._cudaGetErrorName(801) == b"cudaErrorNotSupported"


# ---- What C hands over ---------------------------------------------------------------------------


def test_a_configuration_is_read():
    """Words as the CUDA runtime lays them out; a cluster, and a flag that is set."""
    value = struct.pack("<3I", 2, 1, 4).ljust(64, b"\0")
    attributes = struct.pack("<I4x", 4) + value + struct.pack("<I4xI", 6, 1).ljust(72, b"\0")
    place = ctypes.create_string_buffer(attributes, len(attributes))
    raw = struct.pack("<6I", 4, 2, 8, 384, 1, 1)
    raw += struct.pack("<QQQI4x", 230400, 0, ctypes.addressof(place), 2)
    buffer = ctypes.create_string_buffer(raw, len(raw))
    config = read_config(ctypes.addressof(buffer))
    assert (config.grid, config.block, config.smem_bytes) == ((4, 2, 8), (384, 1, 1), 230400)
    assert config.cluster == (2, 1, 4)
    assert config.flag(6)
    assert not config.flag(2)


def test_parameters_are_copied():
    """Each of its own size, through an array of pointers."""
    first, second = ctypes.c_uint32(7), ctypes.create_string_buffer(b"abcdefgh", 8)
    pointers = (ctypes.c_void_p * 2)(ctypes.addressof(first), ctypes.addressof(second))
    sizes = Parameter("a", 4, 4), Parameter("b", 8, 8)
    assert read_params(ctypes.addressof(pointers), sizes) == (b"\x07\0\0\0", b"abcdefgh")
    assert read_params(0, ()) == ()


def test_cubins_of_a_fat_binary():
    """An entry that is no cubin is left out; one cubin alone is taken, too; others are refused."""
    elf = bytearray(b"\x7fELF".ljust(64, b"\0") + b"x" * 40)
    struct.pack_into("<2Q", elf, 32, 0, 64)
    struct.pack_into("<4H", elf, 54, 0, 0, 20, 2)
    entry = struct.pack("<HHIQ", 2, 0x101, 24, len(elf)) + b"\0" * 8 + elf
    other = struct.pack("<HHIQ", 1, 0x101, 16, 5) + b"ptx.."
    fat = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) + len(other)) + other + entry
    for image in (fat, bytes(elf)):
        place = ctypes.create_string_buffer(image, len(image))
        assert read_cubins(ctypes.addressof(place)) == (bytes(elf),)
    place = ctypes.create_string_buffer(b"no module" * 10)
    with pytest.raises(ValueError, match="neither a cubin nor a fat binary"):
        read_cubins(ctypes.addressof(place))


# ---- PTX -----------------------------------------------------------------------------------------

PTX = """
.extern .shared .align 1024 .b8 dynamic[];
.shared .align 16 .b8 flags[20];
.shared .u64 one;
.visible .entry kernel(
    .param .align 64 .b8 kernel_param_0[128],
    .param .u64 .ptr .global .align 16 kernel_param_1,
    .param .f32 kernel_param_2,
    .param .align 4 .b8 kernel_param_3[12]
)
.reqntid 384
{ ret; }
.entry empty() { ret; }
"""


def test_parameters_of_entries():
    """Sizes and alignments as declared; a pointer is 8 bytes."""
    found = entries(PTX)
    assert [(p.bytes, p.align) for p in found["kernel"]] == [(128, 64), (8, 8), (4, 4), (12, 4)]
    assert found["empty"] == ()
    with pytest.raises(ValueError, match="k: cannot read the parameter"):
        entries(".entry k(.param .texref t)")


def test_static_smem_is_summed_with_alignment():
    """20 bytes, then 8 at the next multiple of 8; dynamic SMEM is not counted."""
    assert static_shared_bytes(PTX) == 32


# ---- Buffers -------------------------------------------------------------------------------------


class Pair(NamedTuple):
    left: object
    right: object


@dataclasses.dataclass
class Box:
    inside: object


def test_buffers_of_nested_arguments():
    """Arrays by their place; the same memory twice is one buffer; numbers are none."""
    a = np.zeros((4, 6), np.float32)
    view = a[:, :5]
    torch = TorchLike()
    tensor = torch.zeros(3, 8)[:, 2:7]
    arguments = {"a": a, "same": a, "x": [Pair(view, 3)], "box": Box({"t": tensor}), "n": 7}
    found = {buffer.name: (buffer.address, buffer.bytes) for buffer in buffers_of(arguments)}
    assert found == {
        "a and same": (a.ctypes.data, 96),
        "x[0].left": (a.ctypes.data, 3 * 24 + 20),
        "box.inside['t']": (tensor.data_ptr(), (2 * 8 + 5) * 4),
    }


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [((3, 4), (32, 4), (1000, 80)), ((3,), (-8,), (984, 20)), ((0, 4), (32, 4), (1000, 0))],
)
def test_the_range_of_a_strided_array(shape, strides, expected):
    """Gaps included; a negative stride reaches down; without elements there is nothing."""
    assert byte_range(1000, shape, strides, 4) == expected


# ---- Device and architecture ---------------------------------------------------------------------


def test_the_device_answers_what_is_known():
    """SMs as asked for, SMEM of the architecture, and no guess."""
    device = make_device("sm_90a", 6)
    assert (device.attribute(16), device.attribute(97)) == (6, 232448)
    assert device.capability == (9, 0)
    assert make_device("sm_100a").capability == (10, 0)
    assert make_device("sm_100a").sms == 148
    assert device.attribute(12345) is None
    assert [device.max_active_clusters(n) for n in (1, 2, 4, 8)] == [6, 3, 1, 1]
    with pytest.raises(InputError, match="the emulator knows"):
        make_device("sm_80")
    with pytest.raises(InputError, match="at least one SM"):
        make_device("sm_90a", 0)


def test_an_architecture_must_be_known(monkeypatch):
    """Asked for, or set; another one than cutlass was imported with is an error."""
    monkeypatch.setenv("CUTE_DSL_ARCH", "")  # remembered, and restored after the test
    monkeypatch.delitem(sys.modules, "cutlass", raising=False)
    with pytest.raises(InputError, match="must know the architecture"):
        session_arch(None)
    assert session_arch("sm_90a") == "sm_90a"
    assert session_arch(None) == "sm_90a"
    monkeypatch.setitem(sys.modules, "cutlass", object())
    with pytest.raises(InputError, match="imported CUTE_DSL_ARCH=sm_90a and must be compiled for"):
        session_arch("sm_100a")


def test_the_package_is_light():
    """`import pipegen` knows the emulator, and pays for numpy only when it is used."""
    code = (
        "import sys, pipegen; assert callable(pipegen.emulator); assert 'numpy' not in sys.modules;"
        "import pipegen.cli.emulate, pipegen.cli.verify; assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- Tensors -------------------------------------------------------------------------------------


def test_bf16_rounds_to_nearest_even():
    """Against the definition: the nearest of the two neighbours, ties to the even one."""
    dtype = DTYPES["bfloat16"]
    bits = np.arange(0x3F00, 0x4100, dtype=np.uint16)
    values = dtype.decode(bits)
    np.testing.assert_array_equal(dtype.encode(values), bits)
    halves = (values[:-1].astype(np.float64) + values[1:]) / 2
    even = np.where(bits[:-1] % 2 == 0, bits[:-1], bits[1:])
    np.testing.assert_array_equal(dtype.encode(halves), even)
    special = np.array([np.inf, -np.inf, np.nan, -0.0], np.float32)
    np.testing.assert_array_equal(dtype.decode(dtype.encode(special)), special)


@pytest.mark.parametrize(("name", "largest"), [("float8_e4m3fn", 448), ("float8_e5m2", 57344)])
def test_f8_codes_are_their_own_rounding(name, largest):
    """Every finite code comes back; halfway goes to the even one; beyond the largest, none."""
    dtype = DTYPES[name]
    codes = np.arange(256, dtype=np.uint8)
    values = dtype.decode(codes)
    finite = np.isfinite(values)
    assert np.nanmax(np.where(finite, values, 0)) == largest
    np.testing.assert_array_equal(dtype.encode(values[finite]), codes[finite])
    positive = codes[:128][finite[:128]]
    halves = (values[positive[:-1]] + values[positive[1:]]) / 2
    even = np.where(positive[:-1] % 2 == 0, positive[:-1], positive[1:])
    np.testing.assert_array_equal(dtype.encode(halves), even)
    assert not np.isfinite(dtype.decode(dtype.encode(np.array([largest * 2.0, np.nan])))).any()


def test_a_tensor_says_that_it_is_on_a_gpu():
    """What a launcher reads: address, device, strides in elements, aligned as a GPU's."""
    torch = TorchLike(device=3, seed=1)
    whole = torch.randn(2, 5, 24, device="cuda").to(torch.bfloat16)
    view = whole[:, :4, :17]
    assert (view.get_device(), view.shape, view.stride()) == (3, (2, 4, 17), (120, 24, 1))
    assert view.data_ptr() == whole.data_ptr()
    assert view.data_ptr() % 256 == 0
    assert str(view.dtype) == "torch.bfloat16"
    again = TorchLike(device=3, seed=1).randn(2, 5, 24).to(torch.bfloat16)
    assert torch.equal(whole, again)


def test_the_torch_of_self_checks():
    """Each operation against numpy."""
    torch = TorchLike(seed=2)
    x = torch.randn(3, 6)
    n = x.numbers
    np.testing.assert_array_equal((x.double() @ x.double().mT).numbers, n.astype(float) @ n.T)
    np.testing.assert_array_equal((x + 0.5).numbers, n + np.float32(0.5))
    np.testing.assert_array_equal(x.sum(1).numbers, n.sum(1))
    np.testing.assert_array_equal(x.topk(2, 1)[0].numbers, -np.sort(-n, 1)[:, :2])
    index = torch.randint(3, (4,), dtype=torch.int32)
    np.testing.assert_array_equal(x[index.long()].numbers, n[index.numbers])
    rows = index.unsqueeze(-1).expand(4, 6).long()
    np.testing.assert_array_equal(x.gather(-2, rows).numbers, n[index.numbers])
    packed = torch.full((2, 2), 0, dtype=torch.uint8).random_(0, 256)
    nibbles = (packed.unsqueeze(-1) >> packed.new_tensor([0, 4])).flatten(-2) & 15
    split = np.stack([packed.numbers & 15, packed.numbers >> 4], -1).reshape(2, 4)
    np.testing.assert_array_equal(nibbles.numbers, split)
    np.testing.assert_array_equal(x.repeat_interleave(2, 0).numbers, n.repeat(2, 0))
    unit = x * torch.rsqrt(x.square().sum(1, keepdim=True))
    np.testing.assert_allclose(np.linalg.norm(unit.numbers, axis=1), 1, rtol=1e-6)
    moved = torch.nn.functional.pad(x, (2, -1))
    np.testing.assert_array_equal(moved.numbers, np.pad(n, ((0, 0), (2, 0)))[:, :-1])
    np.testing.assert_array_equal((1 - x).numbers, 1 - n)
    np.testing.assert_array_equal((2.0 ** x.cumsum(1)).numbers, 2.0 ** n.cumsum(1))
    np.testing.assert_array_equal(torch.where(x > 0, x, -x).numbers, np.abs(n))
    out = torch.full((3, 6), float("nan")).to(torch.float16)
    assert out.isnan().all().item()
    out.copy_(x)
    assert not out.isnan().any()
    assert isinstance(x.norm().item(), float)


def test_what_the_stand_in_lacks_is_named():
    """A self-check that was edited may want more: the error says of what."""
    with pytest.raises(AttributeError, match=r"no `torch\.svd`"):
        TorchLike().svd  # noqa: B018
    with pytest.raises(AttributeError, match="tensors have no `svd`"):
        Tensor.of([1.0]).svd  # noqa: B018
