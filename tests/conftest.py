# SPDX-License-Identifier: Apache-2.0
"""Shared fixtures; the last lines of a run count the skips by reason."""

import os
import sys
from collections import Counter
from pathlib import Path

import environments
import pytest
from click.testing import CliRunner, Result

from pipegen.cli import main

ROOT = Path(__file__).parent.parent
# Commands are tested as in a pipe; pytest-xdist sets its own terminal's width for its workers.
os.environ.pop("COLUMNS", None)


@pytest.fixture
def pipegen(tmp_path, monkeypatch):
    """Run the command in an empty folder: `pipegen("plan", "x.toml")` -> click's Result."""
    monkeypatch.chdir(tmp_path)

    def run(*args: object) -> Result:
        return CliRunner().invoke(main, [str(arg) for arg in args], catch_exceptions=False)

    return run


@pytest.fixture(scope="session")
def newest_jax(request):
    """A Python whose jax interprets TMEM and clusters (0.11 and later); a skip without one."""
    try:
        if environments.jax_version(sys.executable) >= (0, 11):
            return sys.executable
    except ValueError:
        pass  # no jax at all
    python, reason = environments.newest_jax(request.config.cache.mkdir("newest-jax"))
    if reason:
        pytest.skip(reason)
    return python


def pytest_terminal_summary(terminalreporter):
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2] for report in skipped)
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped {count}: {reason}")
