# SPDX-License-Identifier: Apache-2.0
"""The description model, its files and its schema."""

import errno
import os
from pathlib import Path

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pipegen as api
from pipegen.description_file import MAX_BYTES, description_from_data, dump_description
from pipegen.errors import InputError, Problem
from pipegen.vocabulary import ARCHS, BACKENDS, OPS

SHORTEST = '[kernel]\nop = "gemm"\nbackend = "cute"\narch = "sm_90a"\n'


def test_the_shortest_description_is_a_kernel_with_defaults():
    made = api.plan(api.parse_description(SHORTEST))
    assert made.description.kernel.style == "participants"
    assert made.description.dtype.out == "bf16"
    assert made.pipeline("mainloop").construct == "PipelineTmaAsync"


def test_python_and_toml_say_the_same():
    python = api.KernelDescription(
        pipegen=1,
        kernel=api.Kernel(op="gemm", backend="cute", arch="sm_90a"),
        tile=api.Tile(m=128, n=128, k=64),
        cluster=api.Cluster(shape=(1, 2)),
        pipeline={"mainloop": api.Pipeline(stages=3)},
    )
    toml = (
        "pipegen = 1\n"
        + SHORTEST
        + (
            "[tile]\nm = 128\nn = 128\nk = 64\n[cluster]\nshape = [1, 2]\n"
            "[pipeline.mainloop]\nstages = 3\n"
        )
    )
    assert api.parse_description(toml) == python
    assert api.parse_description(dump_description(python)) == python


def test_a_python_description_that_breaks_a_rule_raises_input_error():
    wrong = api.KernelDescription(
        kernel=api.Kernel(op="gemm", backend="cute", arch="sm_90a"),
        cluster=api.Cluster(shape=(2, 3)),
    )
    with pytest.raises(InputError, match=r"cluster\.shape = \[2, 3\].*Nearest.*\[2, 2\]"):
        api.plan(wrong)


@pytest.mark.parametrize(("word", "arch"), [("sm90", "sm_90a"), ("hopper", "sm_90a")])
def test_architectures_have_nicknames(word, arch):
    text = SHORTEST.replace("sm_90a", word)
    assert api.parse_description(text).kernel.arch == arch


def test_a_description_without_a_name_takes_the_file_name(tmp_path):
    path = tmp_path / "fast_gemm.toml"
    path.write_text(SHORTEST)
    assert api.load_description(path).kernel.name == "fast_gemm"
    bad = tmp_path / "fast-gemm.toml"
    bad.write_text(SHORTEST)
    with pytest.raises(InputError, match=r'kernel\.name = "fast-gemm".*"fast_gemm"'):
        api.load_description(bad)


def test_a_python_description_without_a_name_is_named_after_what_it_is():
    made = api.plan(api.parse_description(SHORTEST))
    assert made.name == "sm90_gemm_tma_wgmma_s4_c2x1"


def write(path, content: bytes):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n  \n", "is empty"),
        (SHORTEST.encode() + b"# caf\xe9\n", r"is not UTF-8: byte 0xe9 on line 5\."),
        (b"x" * (10 * 1024 * 1024), "is 10,485,760 bytes"),
        (b"\x00\x01\x02", "is not TOML"),
        (b"[kernel\n", r"is not TOML.*at line 1"),
        (b"a = " + b"[" * 20000, "is not TOML"),
        (b".".join([b"a"] * 3000) + b" = 1\n", "nested too deep"),
        (b"[tile]\nm = " + b"9" * 5000, "is not TOML that we can read"),
    ],
    ids=[
        *("empty", "blank", "latin-1", "10 MB", "binary", "syntax", "nested", "dotted"),
        "5000 digits",
    ],
)
def test_files_that_are_no_description(tmp_path, pipegen, content, message):
    path = write(tmp_path / "k.toml", content)
    with pytest.raises(InputError, match=message) as caught:
        api.load_description(path)
    assert len(caught.value.problems) == 1
    result = pipegen("plan", path)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        api.load_description(tmp_path / "none.toml")
    with pytest.raises(InputError, match="is a folder"):
        api.load_description(tmp_path)


@pytest.mark.parametrize("word", ["inf", "-inf", "nan", "1e400", "2147483648", "0x" + "f" * 5000])
@pytest.mark.parametrize(
    "key", ["[tile]\nm", "[pipeline.mainloop]\nstages", "[cluster]\nshape", "[dtype]\na"]
)
def test_numbers_that_are_no_size(word, key):
    with pytest.raises(InputError) as caught:
        api.parse_description(f"{SHORTEST}{key} = {word}\n")
    assert max(len(problem.paragraph()) for problem in caught.value.problems) < 400


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "k.toml")
    with pytest.raises(InputError, match="no regular file"):
        api.load_description(tmp_path / "k.toml")


def test_a_module_is_pointed_to_its_description(tmp_path):
    path = write(tmp_path / "k.py", b"x = 1\n")
    with pytest.raises(InputError, match=r"is a module; its description is k\.toml"):
        api.load_description(str(path))


def test_a_byte_order_mark_is_no_fault(tmp_path):
    path = write(tmp_path / "k.toml", b"\xef\xbb\xbf" + SHORTEST.encode())
    assert api.load_description(path).kernel.op == "gemm"


def test_an_unreadable_file(tmp_path, monkeypatch):
    path = write(tmp_path / "k.toml", SHORTEST.encode())

    def denied(self):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(InputError, match="Permission denied"):
        api.load_description(path)


def test_a_size_at_the_limit_is_read(tmp_path):
    text = SHORTEST + "#" * (MAX_BYTES - len(SHORTEST))
    assert api.load_description(write(tmp_path / "k.toml", text.encode())).kernel.op == "gemm"


def test_an_array_with_a_wrong_element_is_shown_whole():
    data = {
        "kernel": {"op": "gemm", "backend": "cute", "arch": "sm_90a"},
        "cluster": {"shape": [2.0, 1]},
    }
    with pytest.raises(InputError, match=r"cluster\.shape = \[2\.0, 1\]: wrong type"):
        description_from_data(data)


def test_schema_accepts_what_the_model_accepts():
    schema = api.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    good = {
        "pipegen": 1,
        "kernel": {"op": "gemm", "backend": "cute", "arch": "sm_90a"},
        "cluster": {"shape": [2, 1]},
        "pipeline": {"mainloop": {"stages": "auto"}},
    }
    assert validator.is_valid(good)
    description_from_data(good)
    for key, value in (
        ("kernel", {"op": "gemm", "backend": "cute"}),
        ("kernel", {"op": "gem", "backend": "cute", "arch": "sm_90a"}),
        ("tile", {"m": "128"}),
        ("tile", {"mm": 128}),
        ("cluster", {"shape": 3}),
        ("pipegen", 2),
        ("pipeline", {"mainloop": {"stages": "four"}}),
        ("bogus", 1),
    ):
        bad = {**good, key: value}
        assert not validator.is_valid(bad), bad
        with pytest.raises(InputError):
            description_from_data(bad)


words = st.text("ab\n\"'. é", max_size=6)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=6,
)
sections = st.sampled_from(
    ["pipegen", "kernel", "dtype", "layout", "tile", "cluster", "pipeline", "role", "scheduler"]
)
KEYS = (
    "op backend arch name style a b out m n k shape cta_group mainloop epilogue stages producer "
    "consumer registers"
)
keys = st.sampled_from(KEYS.split())
kernels = st.fixed_dictionaries(
    {
        "op": st.sampled_from(OPS),
        "backend": st.sampled_from(BACKENDS),
        "arch": st.sampled_from(ARCHS),
    },
    optional={"name": words, "style": words},
)
tables = st.dictionaries(keys, st.one_of(values, st.dictionaries(keys, values, max_size=3)))


@example({"pipeline": {"\n": {}}}, {"op": "stream", "backend": "cute", "arch": "sm_90a"})
@settings(deadline=None)  # the first description imports the rules
@given(st.dictionaries(sections, st.one_of(values, tables), max_size=6), kernels)
def test_any_data_gives_a_description_or_paragraphs(data, kernel):
    """Whatever the file holds, the user gets paragraphs, never a traceback."""
    data = data if "kernel" in data else {**data, "kernel": kernel}
    problems: tuple[Problem, ...] = ()
    try:
        description_from_data(data, "f.toml")
    except InputError as error:
        problems = error.problems
        assert problems
    for problem in problems:
        assert problem.paragraph().startswith("f.toml: ")
        assert "\n" not in problem.paragraph()
