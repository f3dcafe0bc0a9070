# SPDX-License-Identifier: Apache-2.0
"""Files are written whole or not at all, and nobody's text is destroyed."""

import os

import pytest

from pipegen import files
from pipegen.errors import InputError
from pipegen.vendor.header import header_lines, is_pristine, read_header, sign

TOML = 'pipegen = 1\n\n[kernel]\nop = "gemm"\n'


def emitted(body: str = "x = 1\n") -> str:
    head = header_lines("gemm", "cute", "sm_90a", "cute/t.py.j2", "0123456789ab", "dsl 1", TOML)
    return sign(head + body)


def test_header_round_trip():
    header = read_header(emitted())
    assert header is not None
    assert (header.op, header.backend, header.arch) == ("gemm", "cute", "sm_90a")
    assert header.template == "cute/t.py.j2"
    assert header.description == TOML


def test_pristine_until_edited():
    text = emitted()
    assert is_pristine(text)
    assert not is_pristine(text.replace("x = 1", "x = 2"))
    assert not is_pristine(text + "\n")
    assert not is_pristine("x = 1\n")
    assert read_header("x = 1\n") is None


def test_created_unchanged_updated(tmp_path):
    first, second = emitted("x = 1\n"), emitted("x = 2\n")
    path = tmp_path / "new" / "k.py"
    assert files.write_files(path.parent, {"k.py": first}) == {path: files.Outcome.CREATED}
    before = path.stat().st_mtime_ns
    assert files.write_files(path.parent, {"k.py": first}) == {path: files.Outcome.UNCHANGED}
    assert path.stat().st_mtime_ns == before
    assert files.write_files(path.parent, {"k.py": second}) == {path: files.Outcome.UPDATED}
    assert path.read_text() == second


def test_an_edited_file_is_left_alone_and_nothing_else_is_written(tmp_path):
    edited = emitted().replace("x = 1", "x = 3")
    (tmp_path / "k.py").write_text(edited)
    with pytest.raises(InputError, match="left alone"):
        files.write_files(tmp_path, {"a.py": emitted(), "k.py": emitted("x = 2\n")})
    assert (tmp_path / "k.py").read_text() == edited
    assert not (tmp_path / "a.py").exists()


def test_a_foreign_or_binary_file_is_left_alone(tmp_path):
    (tmp_path / "k.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not text that pipegen wrote"):
        files.write_files(tmp_path, {"k.py": emitted()})
    assert (tmp_path / "k.py").read_bytes() == b"\xff\xfe\x00"


def test_a_failing_write_leaves_nothing_behind(tmp_path, monkeypatch):
    def no_space(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(InputError, match="No space left on device"):
        files.write_files(tmp_path / "a" / "b", {"k.py": emitted(), "l.py": emitted()})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(InputError, match="nothing can be written here"):
        files.write_files(tmp_path / "a" / "b", {"k.py": emitted()})


def test_a_target_that_is_a_folder(tmp_path):
    (tmp_path / "k.py").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        files.write_files(tmp_path, {"k.py": emitted()})


def test_new_files_have_the_usual_mode(tmp_path):
    files.write_files(tmp_path, {"k.py": emitted()})
    (tmp_path / "plain").touch()
    assert (tmp_path / "k.py").stat().st_mode == (tmp_path / "plain").stat().st_mode
