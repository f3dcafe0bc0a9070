# SPDX-License-Identifier: Apache-2.0
"""The Python side of the launch library: turns each call of the host half into a `Launch`."""

import ctypes
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pipegen.emulator.capture.arguments import buffers_of
from pipegen.emulator.capture.device import Device
from pipegen.emulator.capture.entry import Parameter, entries, static_shared_bytes
from pipegen.emulator.capture.library import launch_library
from pipegen.emulator.capture.recording import (
    COOPERATIVE,
    PROGRAMMATIC,
    read_config,
    read_cubins,
    read_params,
)
from pipegen.emulator.launch import Buffer, Launch
from pipegen.errors import InputError

_SUCCESS, _NOT_SUPPORTED, _FAILED = 0, 801, 999  # cudaError_t
_STATIC_SHARED = 1  # cuFunctionAttribute: bytes of static SMEM

_LaunchHandler = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p
)
_AttributeHandler = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.POINTER(ctypes.c_int32)
)


@dataclass(frozen=True)
class _Module:
    """What was compiled: its PTX, and the parameters of its entries."""

    ptx: str
    entries: Mapping[str, tuple[Parameter, ...]]


class Capture:
    """Listens to the launch library. `execute` gets each launch while the host half waits.

    Nothing can be raised through the host half: an exception is kept, the host half is told that
    the launch failed, and whoever called it raises what `take_error` returns.
    """

    def __init__(self, device: Device, execute: Callable[[Launch], None], source: str = "") -> None:
        self.device = device
        self.launches: list[Launch] = []
        self._execute = execute
        self._source = source
        self._modules: dict[str, _Module] = {}
        self._images: dict[int, _Module] = {}
        self._lent: Mapping[str, object] = {}
        self._arguments: Mapping[str, object] = {}
        self._error: BaseException | None = None
        # ctypes keeps no reference to a callback that C holds.
        self._callbacks = _LaunchHandler(self._launched), _AttributeHandler(self._asked)
        self._library = ctypes.CDLL(str(launch_library()))

    def listen(self) -> None:
        """Receive what the launch library is asked to launch from now on."""
        self._library.pipegen_listen(*self._callbacks)

    def close(self) -> None:
        """Receive nothing any more: kernels compiled meanwhile fail when they are launched."""
        self._library.pipegen_listen(_LaunchHandler(), _AttributeHandler())

    def add_module(self, cubin: bytes, ptx: str) -> None:
        """Remember the PTX of a compiled module under its machine code."""
        self._modules[_digest(cubin)] = _Module(ptx, entries(ptx))
        self._images.clear()

    def lend(self, arrays: Mapping[str, object]) -> None:
        """Let kernels touch arrays that they get as bare addresses. They are kept alive."""
        self._lent = {**self._lent, **arrays}

    @contextmanager
    def lending(self, arrays: Mapping[str, object]) -> Iterator[None]:
        """Lend arrays for a while."""
        before = self._lent
        self.lend(arrays)
        try:
            yield
        finally:
            self._lent = before

    def calls(self, arguments: Mapping[str, object]) -> None:
        """Say what the next host call's arguments are: their memory is what kernels may touch."""
        self._arguments = arguments

    def take_error(self) -> BaseException | None:
        """The exception of a launch since the last time, if there was one."""
        error, self._error = self._error, None
        return error

    def buffers(self) -> tuple[Buffer, ...]:
        """What a kernel that is launched now may touch."""
        return buffers_of({**self._lent, **self._arguments})

    def _launched(self, image: int, name: bytes, config: int, args: int) -> int:
        try:
            launch = self._read(image, name.decode(), config, args)
            self.launches.append(launch)
            self._execute(launch)
        except BaseException as error:
            self._error = error
            return _FAILED
        return _SUCCESS

    def _asked(
        self, image: int | None, attribute: int, value: "ctypes._Pointer[ctypes.c_int32]"
    ) -> int:
        try:
            answer = self._answer(image, attribute)
            value[0] = answer
        except BaseException as error:
            self._error = error
            return _NOT_SUPPORTED
        return _SUCCESS

    def _answer(self, image: int | None, attribute: int) -> int:
        if image is None:
            answer = self.device.attribute(attribute)
        else:
            module = self._module(image)
            answer = static_shared_bytes(module.ptx) if attribute == _STATIC_SHARED else None
        if answer is None:
            of = "device (cudaDeviceAttr)" if image is None else "kernel (CUfunction_attribute)"
            raise InputError(
                f"the host code asks for attribute {attribute} of the {of}, which the emulator "
                "does not know"
            )
        return answer

    def _read(self, image: int, name: str, config_address: int, args: int) -> Launch:
        module = self._module(image)
        config = read_config(config_address)
        return Launch(
            ptx=module.ptx,
            kernel=name,
            grid=config.grid,
            block=config.block,
            cluster=config.cluster,
            smem_bytes=config.smem_bytes,
            params=read_params(args, module.entries[name]),
            buffers=self.buffers(),
            sms=self.device.sms,
            source=self._source,
            cooperative=config.flag(COOPERATIVE),
            programmatic=config.flag(PROGRAMMATIC),
            attributes=config.attributes,
            order=len(self.launches),
        )

    def _module(self, image: int) -> _Module:
        if image not in self._images:
            digests = map(_digest, read_cubins(image))
            found = next((self._modules[each] for each in digests if each in self._modules), None)
            if found is None:
                raise InputError(
                    "a kernel was launched whose PTX the emulator has not seen: it was compiled "
                    "before the emulator started, or loaded from a file. Compile it inside `with "
                    "pipegen.emulator():`"
                )
            self._images[image] = found
        return self._images[image]


def _digest(image: bytes) -> str:
    return hashlib.sha256(image).hexdigest()
