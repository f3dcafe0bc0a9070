# SPDX-License-Identifier: Apache-2.0
"""Templates read as their output with holes, and the emitted files are what they promise."""

import ast
import functools
import re
import shutil
import sys
from pathlib import Path

import black
import jinja2
import pytest

from pipegen import rendering
from pipegen.description_file import load_description
from pipegen.generating import find_descriptions, generate_one
from pipegen.planning import plan
from pipegen.planning.variants import option_value, template_of
from pipegen.rendering import _context, _environment, _sources, render
from pipegen.selection_table import kernels
from pipegen.vendor.header import is_pristine, read_header
from pipegen.vocabulary import OPTIONS

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "templates").rglob("*.j2"))
TEMPLATES = [path for path in SOURCES if path.parent.name != "parts"]
DESCRIPTIONS = find_descriptions([ROOT / "generated"])
EMITTED = sorted((ROOT / "generated").rglob("*.py"))


def name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("template", SOURCES, ids=name)
def test_template_keeps_the_house_rules(template):
    text = template.read_text(encoding="utf-8")
    assert text.startswith("{#"), "a comment on top lists the fields that the template reads"
    assert text.count("{#") == 1
    assert not re.search(r"\{[%{]-|-[%}]\}", text), "no dash tags"
    assert not re.search(r"\{% *(set|macro|import)\b", text)
    depth = 0
    for line in text.splitlines():
        if "{%" in line:
            assert re.fullmatch(r" *\{%[^%]*%\}", line), f"a tag stands alone: {line}"
            depth += bool(re.match(r" *\{% *if\b", line))
            depth -= "endif" in line
            assert depth <= 1, f"no nested ifs: {line}"
            bare = re.sub(r'"[^"]*"', "", line.strip("{%} "))
            assert not re.search(r"[-+*/<>]", bare), f"no arithmetic: {line}"
        for hole in re.findall(r"\{\{(.*?)\}\}", line):
            bare = re.sub(r'"[^"]*"', "", hole)
            assert not re.search(r"[-+*/%]", bare), f"no arithmetic: {hole}"


@pytest.mark.parametrize("description", DESCRIPTIONS, ids=name)
def test_black_rewraps_and_fixes_nothing_else(description):
    """Black may join or break lines; blank lines and indentation are the template's own.

    But for those around nested functions, which come with what fills a hole: a role's steps, or a
    body of the user's. What black made of it is the checked-in file, beneath its header.
    """
    made = planned(description)
    raw = _environment().get_template(made.template).render(_context(made))
    _, docstring, body = description.with_suffix(".py").read_text("utf-8").partition('"""')
    assert blank_structure(raw) == blank_structure(docstring + body)


def test_black_that_moves_a_blank_line_is_seen():
    raw = "x = 1\n\n\n\ny = 2\n"
    assert blank_structure(raw) != blank_structure(black.format_str(raw, mode=black.Mode()))


def blank_structure(text: str) -> list[tuple[int, str]]:
    """For each line that begins a statement or follows a blank: blanks before it, its indent."""
    lines = text.splitlines()
    left_out = around_nested_functions(text, lines)
    found = []
    blanks = 0
    for number, line in enumerate(lines):
        if not line.strip():
            blanks += 1
            continue
        if blanks and number not in left_out:
            found.append((blanks, re.match(" *", line)[0] + line.split()[0].split("(")[0]))
        blanks = 0
    return found


def around_nested_functions(text: str, lines: list[str]) -> set[int]:
    """Indices of the lines that begin a nested function, with its comment, or follow one."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.col_offset:
            first = min(node.lineno, *(each.lineno for each in node.decorator_list or [node])) - 1
            while lines[first - 1].lstrip().startswith("#"):
                first -= 1
            after = (i for i in range(node.end_lineno, len(lines)) if lines[i].strip())
            found |= {first, next(after, len(lines))}
    return found


@pytest.mark.parametrize("template", TEMPLATES, ids=name)
def test_every_branch_is_reached_by_some_case(template):
    """Each `if` of a template is true for some checked-in description and false for another."""
    relative = str(template.relative_to(ROOT / "templates"))
    source = template.read_text(encoding="utf-8")
    plans = [made for made in map(planned, DESCRIPTIONS) if source in sources(made.template)]
    assert relative in {made.template for made in plans}, "a template without a case"
    for condition in set(re.findall(r"\{% *(?:el)?if (.*?) *%\}", source)):
        expression = _environment().compile_expression(condition, undefined_to_none=False)
        values = {bool(expression(**_context(made))) for made in plans}
        assert values == {True, False}, f"`{condition}` is always {values}"


# Of a template with all that it includes, which may be another template.
sources = functools.cache(_sources)


@functools.cache
def planned(description: Path):
    return plan(load_description(description))


def test_every_template_has_a_row_and_every_row_a_case():
    listed = {template.file for each in kernels().values() for template in each}
    assert listed == {str(path.relative_to(ROOT / "templates")) for path in TEMPLATES}
    cases = {
        (d.kernel.op, d.kernel.backend, d.kernel.arch, d.kernel.style)
        for d in (planned(path).description for path in DESCRIPTIONS)
    }
    assert cases == set(kernels())


def test_every_kernel_of_the_table_and_each_value_of_its_options_has_a_case():
    wanted = {
        (template, option, value)
        for variants in kernels().values()
        for template in variants
        for option, values in (*template.options, ("kernel.style", template.styles))
        for value in values
    }
    found = set()
    for path in DESCRIPTIONS:
        description = planned(path).description
        template = template_of(description)
        found |= {(template, option, option_value(description, option)) for option in OPTIONS}
        found.add((template, "kernel.style", description.kernel.style))
    assert wanted <= found


@pytest.mark.parametrize("description", DESCRIPTIONS, ids=name)
def test_the_checked_in_file_is_what_the_templates_write(description):
    """Golden: `make golden` renews it, a reviewer reads the diff."""
    for path, text in generate_one(description).items():
        assert path.read_text(encoding="utf-8") == text
        assert is_pristine(text)


def test_rendering_twice_is_identical():
    for description in DESCRIPTIONS[:3]:
        made = planned(description)
        assert render(made) == render(made)


def test_a_part_counts_in_the_digest_of_those_that_include_it(tmp_path, monkeypatch):
    """An edit of a part makes the modules of its templates stale, and no others."""
    shutil.copytree(ROOT / "templates", tmp_path / "templates")
    names = sorted({template.file for each in kernels().values() for template in each})
    before = {each: rendering.template_digest(each) for each in names}
    monkeypatch.setattr(rendering, "template_folder", lambda: tmp_path / "templates")
    part = tmp_path / "templates" / "parts" / "cute_gemm_host.py.j2"
    part.write_text(part.read_text() + "\n")
    changed = {each for each in names if rendering.template_digest(each) != before[each]}
    assert {"cute/gemm_sm90.py.j2", "cute/gemm_sm100.py.j2"} <= changed
    assert all(each.startswith(("cute/gemm_sm", "cute_ts/gemm_sm")) for each in changed)


def test_every_part_is_included():
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES)
    for part in (ROOT / "templates" / "parts").glob("*.j2"):
        assert f'include "parts/{part.name}"' in text


def test_a_template_that_reads_an_unknown_field_fails():
    with pytest.raises(jinja2.UndefinedError):
        _environment().from_string("{{ no_such_field }}").render()


@pytest.mark.parametrize("path", EMITTED, ids=name)
def test_an_emitted_file_keeps_its_promises(path):
    text = path.read_text(encoding="utf-8")
    header = read_header(text)
    assert header is not None
    tree = ast.parse(text)
    docstring = ast.get_docstring(tree) or ""
    for heading in ("Roles", "Pipelines", "Timeline", "Constraints", "Run"):
        assert heading in docstring, heading
    imported = {
        (node.names[0].name if isinstance(node, ast.Import) else str(node.module)).split(".")[0]
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    cutlass = {"cutlass", "cuda"}
    dsl = {"cute": cutlass, "cute-ts": cutlass, "pallas": {"jax", "numpy"}}[header.backend]
    assert imported <= dsl | sys.stdlib_module_names, imported
    assert "pipegen" not in imported
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert {header.op, "reference", "main"} <= functions
    assert black.format_str(text, mode=black.Mode(line_length=100)) == text
    assert max(map(len, text.splitlines())) <= 100
    assert "/tmp/" not in text
    assert not re.search(r"\b20\d\d-\d\d-\d\d\b", text), "no timestamps"


@pytest.mark.parametrize("path", EMITTED, ids=name)
def test_an_emitted_file_does_not_branch_on_what_was_decided(path):
    """No condition is made of constants alone: their answer is known when the file is written."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for each in node.targets
        for target in ast.walk(each)
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            names = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
            assert names, ast.unparse(node.test)
            assert not names <= constants, ast.unparse(node.test)
