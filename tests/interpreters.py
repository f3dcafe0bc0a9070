# SPDX-License-Identifier: Apache-2.0
"""What the tests need of jax's GPU interpreter beyond its public part, for each jax.

Private names of jax are read here and nowhere else in the tests. The interpreter is given what it
lacks:

  wgmma reads   No version compares wgmma's reads of SMEM with the copies that write it (0.10.2 to
                0.12.0.1): a stage released too early would pass. Here each read is reported to the
                race detector, as the interpreter does for tcgen05.
  transposes    0.10.2 knows no transposed operand of wgmma, later versions do.
  layout_cast   Registers have no layouts in it: in 0.10.2 a change of one is nothing, too.
  predicates    No version knows a store with a predicate, which a pipeline with out_specs makes:
                from 0.11 on it is looked at here, and a store whose predicate is false left out.
  threads       A module may ask for more of XLA's threads before its first computation. Here others
                ran before it in the same process, and NPROC has given enough to all.
  edges         0.10.2 stops at a copy that goes beyond an array, and drops a store that does. TMA
                reads zeros there and leaves out the rest, as later versions have it.
"""

import functools
from typing import Any

import jax
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu

try:
    from jax._src.interpreters import mlir
    from jax._src.pallas.mosaic_gpu import core as mosaic_gpu_core
    from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks
    from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams
    from jax._src.state.types import TransposeTransform
except ImportError as error:
    raise ImportError(f"jax {jax.__version__} keeps its GPU interpreter elsewhere") from error

PUBLIC = hasattr(plgpu, "InterpretGPUParams")


def prepare() -> None:
    """Gives the interpreter what it lacks, and jax 0.10.2 its public name."""
    update = jax.config.update

    def update_but_for_threads(name: str, value: Any) -> None:
        if name != "jax_num_cpu_devices":
            update(name, value)

    jax.config.update = update_but_for_threads
    if PUBLIC:
        gpu_callbacks.wgmma = functools.partial(_checked_wgmma, gpu_callbacks.wgmma)
        store = functools.partial(_predicated_store, gpu_callbacks.copy_smem_to_gmem)
        gpu_callbacks.copy_smem_to_gmem = store
        return
    gpu_callbacks.wgmma = _wgmma_of_jax_0_10
    mlir.register_lowering(mosaic_gpu_core.layout_cast_p, lambda _, value, **__: [value])
    gpu_callbacks._handle_out_of_bounds_read = _zeros_beyond_the_edge
    memory = gpu_callbacks.memory.GPUSharedMemory
    memory.store_buffer_content = _stores_up_to_the_edge(memory.store_buffer_content)
    plgpu.InterpretGPUParams = InterpretGPUParams


def races_found() -> bool:
    """Whether a race was found since the last `reset`."""
    return bool(gpu_callbacks.get_races().races_found)


def reset() -> None:
    """Forgets everything; due after an exception in an interpreted kernel."""
    gpu_callbacks.reset_gpu_interpret_mode_state()


def _key(words: Any) -> Any:
    return gpu_callbacks.HostAllocationKey.from_array(words)


def _transforms(transforms: tuple[Any, ...]) -> tuple[Any, ...]:
    """What selects a part of the buffer, in Python numbers."""
    found: tuple[Any, ...] = jax.tree.map(int, gpu_callbacks._remove_noop_transforms(transforms))
    return found


def _checked_wgmma(original: Any, **arguments: Any) -> Any:
    """jax 0.11 and later: the interpreter's wgmma, and its reads for the race detector."""
    memory, thread = gpu_callbacks._get_shared_memory(), arguments["thread"]
    if memory.detect_races:
        with memory.lock:
            # An event of its own: what this thread signals from here on comes after the reads.
            memory.clocks[thread].inc(memory.all_concurrent_threads[thread])
            clock = memory.clocks[thread].copy()
        for operand in ("a", "b"):
            key = _key(arguments[f"{operand}_allocation_key_as_array"])
            access = memory.access(key, _transforms(arguments[f"{operand}_transforms"]))
            # wgmma reads SMEM through the async proxy.
            gpu_callbacks.get_races().check_read(
                thread, clock.async_smem_clock, key, access, arguments["source_info"]
            )
    return original(**arguments)


def _predicated_store(original: Any, *, token: Any, predicate: Any, **arguments: Any) -> Any:
    """jax 0.11 and later: the interpreter's store, unless its predicate is false."""
    if predicate is not None and not bool(np.asarray(predicate)):
        return token
    return original(token=token, predicate=None, **arguments)


def _wgmma_of_jax_0_10(
    *,
    token: Any,
    device_id: Any,
    grid_point_coords: Any,
    thread_id: Any,
    acc_allocation_key_as_array: Any,
    acc_transforms: Any,
    acc_dtype: Any,
    a_allocation_key_as_array: Any,
    a_transforms: Any,
    b_allocation_key_as_array: Any,
    b_transforms: Any,
    source_info: Any = None,
) -> Any:
    """jax 0.10.2: acc += a @ b, where a and b may be transposed views."""
    device, thread = int(device_id), int(thread_id)
    memory = gpu_callbacks._get_shared_memory()
    whole = memory.get_global_thread_id(device, thread)

    def read(words: Any, transforms: Any, check: bool) -> tuple[Any, Any, Any]:
        chosen = _transforms(transforms)
        turned = [each for each in chosen if isinstance(each, TransposeTransform)]
        assert turned in ([], list(chosen[-1:])), f"a transpose that is not the last: {chosen}"
        part = gpu_callbacks.interpret_utils.to_range(chosen[: len(chosen) - len(turned)])
        value, _, clock = memory.get_buffer_content(_key(words), part, whole)
        if check and memory.detect_races:
            gpu_callbacks.get_races().check_read(
                device, thread, clock, _key(words), part, source_info=source_info
            )
        return value.transpose(turned[0].permutation) if turned else value, _key(words), part

    a, _, _ = read(a_allocation_key_as_array, a_transforms, True)
    b, _, _ = read(b_allocation_key_as_array, b_transforms, True)
    acc, key, part = read(acc_allocation_key_as_array, acc_transforms, False)
    memory.store_buffer_content(key, part, acc + np.matmul(a, b, dtype=acc_dtype), whole)
    return token


def _zeros_beyond_the_edge(
    inside: Any, full_shape: tuple[int, ...], _shape: Any, dtype: Any, *_: Any
) -> Any:
    """jax 0.10.2: what a copy reads, `inside` of it within the array (None if nothing is)."""
    found = np.zeros(full_shape, dtype)
    if inside is not None:
        found[tuple(slice(size) for size in inside.shape)] = inside
    return found


def _stores_up_to_the_edge(store: Any) -> Any:
    """jax 0.10.2: a store of the part that lies within the array."""

    def cut(self: Any, key: Any, part: Any, value: Any, *others: Any, **options: Any) -> Any:
        sizes = self.mem[key].logical_shape
        kept = []
        for size, place in zip(sizes, part, strict=False):
            if isinstance(place, slice):
                assert place.step in (None, 1)
                stop = max(place.start, min(place.stop, size))
                kept.append((slice(place.start, stop), slice(0, stop - place.start)))
            else:
                kept.append((place, None))
        value = value[tuple(inside for _, inside in kept if inside is not None)]
        return store(self, key, tuple(place for place, _ in kept), value, *others, **options)

    return cut
