# SPDX-License-Identifier: Apache-2.0
"""JAX's labelled race tests: how they are run unmodified, in the emulator instead of JAX's own.

JAX tests the race detection of its GPU interpreter with kernels of which each test says whether
they race. Here a test's file is imported as it is, and three of its names are replaced: the
interpreter's parameters, so that Mosaic GPU compiles the kernels; the interpreter, whose answer is
the emulator's; and `plgpu.kernel`, which calls the kernels' unchanged functions so that Mosaic GPU
can compile them (`Compilable`). What a test then asserts of the answer is its label.
"""

import functools
import importlib.util
import re
import sys
import types
import unittest
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

TESTS = Path("tests/pallas")
LANES = 128  # threads of a warpgroup: each gets one element of the narrowest array


@dataclass(frozen=True)
class TestFile:
    """A file of tests.

    `widened`: whether its arrays are (as too narrow for copies); with two values the second is for
    what does not compile with the first. `having`: what the text of a test with a label has.
    """

    name: str
    arch: str
    widened: tuple[bool, ...]
    having: str = ""


FILES = (
    TestFile("gpu_pallas_interpret_race_detection_test.py", "sm_90a", (True,)),
    TestFile("gpu_pallas_interpret_cluster_barrier_test.py", "sm_90a", (True,)),
    TestFile("gpu_pallas_interpret_tcgen05_race_detection_test.py", "sm_100a", (False,)),
    TestFile("gpu_pallas_interpret_test.py", "sm_90a", (False, True), "get_races()"),
)


class Answer:
    """What the interpreter is asked: whether there are races. What a test asserts is its label."""

    def __init__(self) -> None:
        self.expected: bool | None = None


@dataclass
class Compilable:
    """`plgpu.kernel` for kernels that were written for the interpreter only.

    - Mosaic GPU copies no single elements: with `widened`, each array gets a last dimension of 128,
      along which inputs are repeated, and of which the result is the first. The kernels address
      their arrays by the dimensions that they know, and are not changed.
    - It allocates no scratch in global memory: that becomes a second output.
    """

    widened: bool
    real: Callable[..., Any]
    global_memory: Any

    def __call__(
        self,
        body: Any = None,
        *,
        out_type: Any,
        scratch_types: Mapping[str, Any] | None = None,
        interpret: Any = None,
        **options: Any,
    ) -> Any:
        import jax
        import jax.numpy as jnp

        given = {"out_type": out_type, "scratch_types": scratch_types, **options}
        if body is None:
            return functools.partial(self, **given)
        wide = (LANES,) if self.widened else ()
        scratch = dict(scratch_types or {})
        in_global = {
            name: kind
            for name, kind in scratch.items()
            if getattr(kind, "memory_space", None) == self.global_memory
        }
        outputs = [
            jax.ShapeDtypeStruct((*each.shape, *wide), each.dtype)
            for each in (out_type, *in_global.values())
        ]
        others = {
            name: self._widened(kind) for name, kind in scratch.items() if name not in in_global
        }

        def call(*arguments: Any) -> Any:
            arrays = [jnp.asarray(each) for each in arguments]
            if wide:
                arrays = [jnp.broadcast_to(a[..., None], (*a.shape, LANES)) for a in arrays]
            first = len(arrays) + 1

            def adapted(*refs: Any, **rest: Any) -> None:
                body(*refs[:first], **dict(zip(in_global, refs[first:], strict=True)), **rest)

            made = self.real(adapted, out_type=tuple(outputs), scratch_types=others, **options)
            result = made(*arrays)[0]
            return result[..., 0] if wide else result

        return call

    def _widened(self, kind: Any) -> Any:
        if not self.widened or not hasattr(kind, "memory_space"):
            return kind
        return kind.memory_space((*kind.shape, LANES), kind.dtype)


@contextmanager
def filling() -> Iterator[None]:
    """While this lasts, a scalar that is stored to a whole array fills it."""
    import jax.numpy as jnp
    from jax._src.state import primitives

    plain = primitives.ref_set

    def ref_set(ref: Any, index: Any, value: Any, *more: Any, **options: Any) -> Any:
        if index is Ellipsis and getattr(value, "shape", ()) == () and ref.shape:
            value = jnp.full(ref.shape, value, ref.dtype)
        return plain(ref, index, value, *more, **options)

    with mock.patch.object(primitives, "ref_set", ref_set):
        yield


def load(path: Path, answer: Answer) -> tuple[ModuleType, Compilable]:
    """A file of tests, imported, and the kernels' wrapper in it; `answer` is what its tests will be
    told of races. ValueError for a file that has nothing of race tests."""
    import absl.flags
    from jax.experimental.pallas import mosaic_gpu as plgpu

    if not absl.flags.FLAGS.is_parsed():
        absl.flags.FLAGS([path.name])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    missing = [
        name
        for name in ("mosaic_interpret", "InterpretParams", "plgpu")
        if name not in vars(module)
    ]
    if missing:
        raise ValueError(f"{path} imports no {', '.join(missing)}: it is no file of race tests")
    callbacks = types.SimpleNamespace(reset_gpu_interpret_mode_state=lambda: None)
    races = types.SimpleNamespace(races_found=answer)
    compilable = Compilable(False, plgpu.kernel, plgpu.GMEM)
    replaced: dict[str, Any] = {
        "mosaic_interpret": types.SimpleNamespace(get_races=lambda: races, gpu_callbacks=callbacks),
        "InterpretParams": _compiled,
        "plgpu": types.SimpleNamespace(**{**vars(plgpu), "kernel": compilable}),
    }
    vars(module).update(replaced)
    return module, compilable


def _compiled(skip_floating_point_ops: bool = False, **options: Any) -> bool:
    """In the place of the interpreter's parameters: whether to interpret."""
    if skip_floating_point_ops:
        raise unittest.SkipTest("expects what the interpreter makes without arithmetic")
    return False


@dataclass
class Case:
    """A test with its parameters. `run` returns its label, True for a race, None if it says none;
    AssertionError if its numbers are wrong, and whatever else the kernel raises."""

    test: str
    parameters: str
    run: Callable[[], bool | None] = field(repr=False)


def cases(module: ModuleType, wanted: str, answer: Answer) -> list[Case]:
    """All cases of the test methods of a module whose name is `wanted`."""
    from jax._src import test_util

    found = []
    for kind in list(vars(module).values()):
        if not isinstance(kind, type) or not issubclass(kind, test_util.JaxTestCase):
            continue
        names = (name for name in dir(kind) if re.fullmatch(f"{wanted}\\d*", name))
        for name in sorted(names, key=lambda name: (len(name), name)):
            parameters = _parameters(getattr(kind, name))
            run = functools.partial(_run, kind, name, answer)
            found.append(Case(wanted, parameters, run))
    return found


def _parameters(method: Any) -> str:
    """The parameters of a test that absl made of a parameterized one."""
    for cell in getattr(method, "__closure__", None) or ():
        if isinstance(cell.cell_contents, Mapping):
            return ", ".join(f"{k}={_short(v)}" for k, v in cell.cell_contents.items())
        if isinstance(cell.cell_contents, tuple | list):
            return ", ".join(map(_short, cell.cell_contents))
    return ""


def _short(value: Any) -> str:
    switch = getattr(value, "warp_specialize", None)
    return repr(value if switch is None else switch)


def _run(kind: Any, name: str, answer: Answer) -> bool | None:
    answer.expected = None
    test = kind(name)
    plain = {each: getattr(test, each) for each in ("assertTrue", "assertFalse", "assertEqual")}

    def asserted(which: str, label: Callable[..., bool], value: Any, *more: Any) -> None:
        if value is answer:
            answer.expected = label(*more)
        else:
            plain[which](value, *more)

    @contextmanager
    def raises(*expected: Any) -> Iterator[None]:
        answer.expected = True  # of a kernel that the interpreter stops
        yield

    test.assertTrue = functools.partial(asserted, "assertTrue", lambda *_: True)
    test.assertFalse = functools.partial(asserted, "assertFalse", lambda *_: False)
    test.assertEqual = functools.partial(asserted, "assertEqual", lambda wanted, *_: bool(wanted))
    test.assertRaisesRegex = raises
    test.setUp()
    with filling():
        getattr(test, name)()
    return answer.expected
