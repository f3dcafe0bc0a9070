# SPDX-License-Identifier: Apache-2.0
"""The table of jax versions: complete, up to date, and no other than what the tests see here."""

import json
import sys
from pathlib import Path

import pytest
from interpretable import MODULES, beyond

from pipegen.compiling.installed import version_key, version_of

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import jax_versions  # noqa: E402

from pipegen.measuring.code_digest import code_digest  # noqa: E402

RESULTS = json.loads(jax_versions.RESULTS.read_text())


def test_the_readme_has_the_table_of_the_results():
    text = jax_versions.README.read_text()
    assert jax_versions.with_table(text, RESULTS) == text
    wrong = {name: dict(list(modules.items())[1:]) for name, modules in RESULTS.items()}
    assert jax_versions.with_table(text, wrong) != text


@pytest.mark.parametrize("name", RESULTS)
def test_the_results_are_of_every_module_as_it_is(name):
    """After a change: `python benchmarks/jax_versions.py PYTHON...`."""
    jax = version_key(name.removeprefix("jax "))
    found = {module: entry["code"] for module, entry in RESULTS[name].items()}
    assert found == {path.name: code_digest(path) for path in MODULES}
    for path in MODULES:
        entry = RESULTS[name][path.name]
        assert entry["interpreted"] == (beyond(path, jax) or "pass"), path.name
        behind_call = "pallas_call" in path.name and jax >= (0, 11)
        assert entry["compiled"] in (("error",) if behind_call else ("ok", "spills")), path.name


def test_every_version_of_the_facts_is_there():
    assert {name.split(",")[0] for name in RESULTS} == {"jax 0.10.2", "jax 0.11.2", "jax 0.12.0.1"}


def test_the_installed_jax_is_in_the_table():
    here = f"jax {version_of('jax')}"
    if here not in {name.split(",")[0] for name in RESULTS}:
        pytest.skip(f"the table has no {here}: python benchmarks/jax_versions.py {sys.executable}")
    assert version_of("jax") in jax_versions.CI or sys.version_info >= (3, 12)
