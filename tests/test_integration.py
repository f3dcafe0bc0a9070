# SPDX-License-Identifier: Apache-2.0
"""What an emitted module offers to torch, to jax and to C, as far as it shows without a GPU.

On an H200: benchmarks/integration.py.
"""

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipegen.compiling.installed import dsl
from pipegen.description_file import load_description
from pipegen.planning import plan
from pipegen.planning.integration import torch_op

ROOT = Path(__file__).parent.parent
OFFERING = sorted((ROOT / "generated/cute").glob("*_torch*.toml"))
FOR_JAX = [path for path in OFFERING if path.stem.endswith("_jax")]


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_only_modules_that_were_asked_for_it_have_the_lines():
    assert len(OFFERING) >= 13
    assert len(FOR_JAX) >= 5
    for path in (ROOT / "generated/cute").glob("*.py"):
        wanted = load_description(path.with_suffix(".toml")).integration
        assert ("torch_op" in functions(path)) == wanted.torch, path.name
        assert ("jax_gemm" in functions(path)) == wanted.jax, path.name


@pytest.mark.parametrize("path", OFFERING, ids=lambda path: path.stem)
def test_operator_takes_what_the_function_takes(path):
    """The inputs of the operator are those of the module's function before `out`."""
    tree = ast.parse(path.with_suffix(".py").read_text(encoding="utf-8"))
    op = load_description(path).kernel.op
    (function,) = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == op]
    names = [argument.arg for argument in function.args.args]
    made = torch_op(plan(load_description(path)).description)
    assert made is not None
    assert made.inputs.split(", ") == names[: names.index("out")]


def test_op_without_an_operator_is_refused_by_name(pipegen, tmp_path):
    (tmp_path / "k.toml").write_text(
        'pipegen = 1\n[kernel]\nop = "gemm_rowsum"\nbackend = "cute"\narch = "sm_100a"\n'
        "[integration]\ntorch = true\n"
    )
    result = pipegen("plan", "k.toml")
    assert result.exit_code == 2
    assert "integration.torch = true" in result.stderr
    assert "[PG108]" in result.stderr


@pytest.mark.parametrize("path", OFFERING, ids=lambda path: path.stem)
def test_torch_traces_the_operator(path):
    """The schema, and the fake that torch.compile traces with; the kernel needs a GPU."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    code = (
        "import json, sys, importlib, torch\n"
        "from torch._subclasses.fake_tensor import FakeTensorMode\n"
        "module = importlib.import_module(sys.argv[1])\n"
        "op = module.torch_op()\n"
        "assert op is module.torch_op()\n"
        "with FakeTensorMode():\n"
        "    args = [torch.empty(*shape, dtype=getattr(torch, dtype), device='cuda')\n"
        "            for shape, dtype in json.loads(sys.argv[2])]\n"
        "    out = op(*args)\n"
        "print(tuple(out.shape), out.dtype, op._opoverload._schema)\n"
    )
    description = plan(load_description(path)).description
    arguments = {
        "gemm": [([3, 64, 128], "bfloat16"), ([3, 256, 128], "bfloat16")],
        "mixed_gemm": [([64, 128], "bfloat16"), ([256, 128], "int8"), ([256], "float32")],
        "stream": [([64, 128], "bfloat16")],
    }[description.kernel.op]
    if description.layout.a == "m":
        arguments = [([3, 128, 64], "bfloat16"), ([3, 128, 256], "bfloat16")]
    if description.stream.y == "row":
        arguments.append(([128], "bfloat16"))
    if description.layout.gather:
        arguments.append(([64], "int32"))
    done = subprocess.run(
        [sys.executable, "-c", code, path.stem, json.dumps(arguments)],
        cwd=path.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shapes = {"gemm": "(3, 64, 256)", "mixed_gemm": "(64, 256)", "stream": "(64, 128)"}
    assert done.stdout.startswith(f"{shapes[description.kernel.op]} torch.bfloat16")


LOWER = """
import importlib, json, sys
import jax, jax.numpy as jnp
module = importlib.import_module(sys.argv[1])
module.max_clusters = lambda device: 132  # asked of the GPU otherwise
def shaped(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)
def lowered(*arguments):
    call = jax.jit(lambda a, b: module.jax_gemm(a, b + 0) * 2)
    return call.trace(*arguments).lower(lowering_platforms=("cuda",))
a, b = json.loads(sys.argv[2])
text = lowered(shaped(*a), shaped(*b)).as_text()
print(text.count("custom_call"), "CuteDSL" in text, len(text) > 20000)
result = jax.eval_shape(module.jax_gemm, shaped(*a), shaped(*b))
print(result.shape, result.dtype)
print(jax.eval_shape(module.jax_gemm, shaped(*a[1:]), shaped(*b[1:])).shape)
for wrong in ((a, [*b[:1], b[1] + 8, b[2] + 8]), (a, [*b[:2], b[2] - 1])):
    try:
        lowered(*(shaped(*shape) for shape in wrong))
    except ValueError as error:
        print("refused", error)
"""


@pytest.mark.parametrize("path", FOR_JAX, ids=lambda path: path.stem)
def test_jit_of_jax_holds_the_compiled_kernel(path):
    """Lowered for a GPU that need not be here: the kernel is compiled and stands in the call."""
    for state in (dsl("cute"), dsl("pallas")):
        if not state.usable:
            pytest.skip(f"{state.name}: {state.reason}")
    description = load_description(path)
    shapes = [[2, 64, 128], [2, 256, 128]]
    if description.layout.a == "m":
        shapes = [[2, 128, 64], [2, 128, 256]]
    done = subprocess.run(
        [sys.executable, "-c", LOWER, path.stem, json.dumps(shapes)],
        cwd=path.parent,
        env=os.environ | {"CUTE_DSL_ARCH": description.kernel.arch, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines[0] == "1 True True"
    assert lines[1] == "(2, 64, 256) bfloat16"
    assert lines[2] == "(64, 256)"
    assert len([line for line in lines if line.startswith("refused")]) == 2


def test_export_writes_an_object_and_a_header(pipegen, tmp_path):
    state = dsl("cute")
    if not state.usable:
        pytest.skip(f"cute: {state.reason}")
    module = ROOT / "generated/cute/gemm_sm90_c1x1.py"
    result = pipegen("export", module, "-o", "build")
    assert result.exit_code == 0, result.output
    assert result.stdout == "wrote build/gemm_sm90_c1x1.o\nwrote build/gemm_sm90_c1x1.h\n"
    made = (tmp_path / "build/gemm_sm90_c1x1.o").read_bytes()
    assert made.startswith(b"\x7fELF")
    assert b"_mlir_gemm_sm90_c1x1_cuda_init" in made
    header = (tmp_path / "build/gemm_sm90_c1x1.h").read_text()
    assert (
        "cute_dsl_gemm_sm90_c1x1_wrapper(gemm_sm90_c1x1_Kernel_Module_t *module, void *" in header
    )
    assert sorted(path.name for path in (tmp_path / "build").iterdir()) == [
        "gemm_sm90_c1x1.h",
        "gemm_sm90_c1x1.o",
    ]


def test_what_cannot_be_exported_is_a_paragraph(pipegen, tmp_path):
    pallas = pipegen("export", ROOT / "generated/pallas/pallas_gemm_sm90_ws.py")
    assert pallas.exit_code == 2
    assert "is a Pallas module" in pallas.stderr
    assert pipegen("export", "nowhere.py").exit_code == 2
    if dsl("cute").usable:
        text = (ROOT / "generated/cute/gemm_sm90_c1x1.py").read_text()
        (tmp_path / "broken.py").write_text(text + "\nraise RuntimeError('edited badly')\n")
        broken = pipegen("export", "broken.py")
        assert broken.exit_code == 2
        assert "edited badly" in broken.stderr
    assert not list(tmp_path.glob("*.o"))
