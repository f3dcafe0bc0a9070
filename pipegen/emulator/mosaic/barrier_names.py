# SPDX-License-Identifier: Apache-2.0
"""What a Pallas kernel calls its mbarriers, noted while Pallas lowers it (jax 0.10 to 0.12).

Mosaic GPU puts all mbarriers behind the kernel's scratch in shared memory, in the order of
`ModuleContext.runtime_barriers`; each `run_scoped` then reserves an array of them for each of its
barrier parameters. `plgpu.kernel` is a `run_scoped` of its scratch, so that a parameter's name is
the key in `scratch_types` or the name in the kernel's signature. The arrays of JAX's own pipelines
are known by the names that those have in jax/_src/pallas/mosaic_gpu/pipeline.py.
"""

import importlib
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

_BYTES = 8  # of an mbarrier
_PIPELINES = "pallas/mosaic_gpu/pipeline.py"
# Of a pipeline of warp-specialized threads: the barriers that a copy and a consumer arrive on.
_SIDES = {
    "flat_produced_barrier_refs": "loaded",
    "in_smem_barrier_ref": "loaded",
    "flat_consumed_barrier_refs": "consumed",
}
_IN_PIPELINE = re.compile(
    rf"(?P<prefix>.*?)(\['|\.)?(?P<array>{'|'.join(_SIDES)})('\])?(\[(?P<input>\d+)\])?"
)

Names = dict[int, str]


@contextmanager
def noting_barriers() -> Iterator[Names]:
    """While this lasts, lowering a Pallas kernel fills SMEM offset -> the mbarrier's name.

    Where this jax is not as expected, there are no names, and findings have offsets alone.
    """
    names: Names = {}
    with ExitStack() as stack:
        try:
            for manager in _hooks(names):
                stack.enter_context(manager)
        except (ImportError, AttributeError, KeyError):
            stack.close()
        yield names


def _hooks(names: Names) -> list[Any]:
    lowering: Any = importlib.import_module("jax._src.pallas.mosaic_gpu.lowering")
    core: Any = importlib.import_module("jax._src.pallas.mosaic_gpu.core")
    primitives: Any = importlib.import_module("jax._src.pallas.primitives")
    kinds = (core.BarrierType, core.ClusterBarrierType)
    for needed in ("runtime_barriers", "smem_requested_bytes"):
        lowering.ModuleContext.__dataclass_fields__[needed]  # KeyError: a jax that has it elsewhere
    scopes: list[Iterator[tuple[str, tuple[int, ...]]]] = []
    places: dict[int, dict[int, int]] = {}  # of a module: id of an array -> its first offset
    alive: list[Any] = []  # what has those ids
    plain_reserve = lowering.ModuleContext.reserve_barrier

    @contextmanager
    def reserve(context: Any, barrier: Any) -> Iterator[Any]:
        offsets = places.get(id(context))
        if offsets is None:
            arrays = list(itertools.chain.from_iterable(context.runtime_barriers.values()))
            counts = [_count(kind) for kind, refs in context.runtime_barriers.items() for _ in refs]
            starts = itertools.accumulate(counts, initial=context.smem_requested_bytes // _BYTES)
            pairs = zip(arrays, starts, strict=False)  # the last start is the end
            offsets = places[id(context)] = {id(ref): start * _BYTES for ref, start in pairs}
            alive.append((context, arrays))
        with plain_reserve(context, barrier) as reference:
            scope = scopes[-1] if scopes else iter(())
            found = next(scope, None)
            if found is not None and id(reference) in offsets:
                _note(names, offsets[id(reference)], *found)
            yield reference

    def scoped(plain: Callable[..., Any]) -> Callable[..., Any]:
        def rule(context: Any, *arguments: Any, jaxpr: Any, **more: Any) -> Any:
            scopes.append(iter(_parameters(jaxpr, kinds)))
            try:
                return plain(context, *arguments, jaxpr=jaxpr, **more)
            finally:
                scopes.pop()

        return rule

    hooks: list[Any] = [mock.patch.object(lowering.ModuleContext, "reserve_barrier", reserve)]
    for rules in lowering.mosaic_lowering_rules.values():
        if primitives.run_scoped_p in rules:
            changed = {primitives.run_scoped_p: scoped(rules[primitives.run_scoped_p])}
            hooks.append(mock.patch.dict(rules, changed))
    return hooks


def _count(kind: Any) -> int:
    """How many mbarriers an array of Mosaic GPU's Barrier or ClusterBarrier has."""
    count = getattr(kind, "num_barriers", 0)
    return math.prod(count) if isinstance(count, tuple) else int(count)


def _parameters(jaxpr: Any, kinds: tuple[type, ...]) -> list[tuple[str, tuple[int, ...]]]:
    """(name, shape) of the barrier parameters of a scope, in order; "" for what has no name."""
    given = jaxpr.debug_info.arg_names or ()
    if len(given) != len(jaxpr.invars):
        given = ("",) * len(jaxpr.invars)
    inside = _PIPELINES in str(jaxpr.debug_info.func_src_info).replace("\\", "/")
    found = [
        (str(name), tuple(var.aval.shape))
        for name, var in zip(given, jaxpr.invars, strict=True)
        if isinstance(var.aval.dtype, kinds)
    ]
    return [(named(name, [n for n, _ in found], inside), shape) for name, shape in found]


def named(name: str, all_names: Sequence[str], in_pipeline: bool) -> str:
    """What a finding calls a barrier parameter; `all_names`: the scope's, `in_pipeline`: JAX's own.

    ("x_full", …) is "x_full"; ("stages['flat_consumed_barrier_refs'][1]", …) is "stages: input 1
    consumed"; without a name inside a pipeline it is its only array, which its copies arrive on.
    """
    match = _IN_PIPELINE.fullmatch(name)
    if match is None:
        if in_pipeline:
            return "emit_pipeline: inputs loaded" if len(all_names) == 1 else ""
        return name
    alike = [
        found
        for found in map(_IN_PIPELINE.fullmatch, all_names)
        if found and (found["prefix"], found["array"]) == (match["prefix"], match["array"])
    ]
    which = f"input {match['input']}" if len(alike) > 1 else "inputs"
    of = match["prefix"] or "emit_pipeline_warp_specialized"
    return f"{of}: {which} {_SIDES[match['array']]}"


def _note(names: Names, offset: int, name: str, shape: tuple[int, ...]) -> None:
    """Name each mbarrier of an array. What several scopes reserve in turn has all their names."""
    if not name:
        return
    count = math.prod(shape)
    for number in range(count):
        text = name
        if len(shape) > 1:
            text = f"{name}, stage {_index(number, shape)} of {' x '.join(map(str, shape))}"
        elif count > 1:
            text = f"{name}, stage {number} of {count}"
        at = offset + _BYTES * number
        before = names.get(at, text)
        names[at] = before if text in before.split(" or ") else f"{before} or {text}"


def _index(number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    found: list[int] = []
    for extent in reversed(shape):
        number, place = divmod(number, extent)
        found.append(place)
    return tuple(reversed(found))
