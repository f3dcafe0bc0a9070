# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: with `--pipegen`, each vendored kernel is a test of each check.

    pytest --pipegen                  fresh and compile, for the kernels below the collected folders
    pytest --pipegen-level fresh      without a compiler

A description gives `gemm.toml::fresh`, an emitted module `gemm.py::compile`. In a project, orphans
are items of the project file. What cannot be compiled here is skipped with its reason.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pipegen.report import ModuleReport, Report

_LEVELS = ("fresh", "compile")


class CheckFailed(Exception):
    """A check found something; the words are the report's."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--pipegen` and the ini key `pipegen`."""
    group = parser.getgroup("pipegen", "vendored kernels")
    group.addoption(
        "--pipegen", action="store_true", help="Check vendored kernels: fresh, and compile."
    )
    # A flag and an option: a level that may be left out would swallow the path after it.
    group.addoption(
        "--pipegen-level",
        choices=_LEVELS,
        default=None,
        help="Check vendored kernels as far as this: fresh, or compile.",
    )
    parser.addini("pipegen", "as --pipegen-level: fresh or compile; empty: no checks", default="")


def _level(config: pytest.Config) -> str:
    level = config.getoption("--pipegen-level") or config.getini("pipegen") or ""
    if config.getoption("--pipegen") and not level:
        level = "compile"
    if level and level not in _LEVELS:
        raise pytest.UsageError(f"pipegen = {level!r}: no such level. Allowed: fresh, compile.")
    return str(level)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collects descriptions, emitted modules, and the project's file for its orphans."""
    if file_path.suffix not in (".toml", ".py"):
        return None
    level = _level(parent.config)
    if not level:
        return None
    from pipegen.searching import is_description, is_module
    from pipegen.vendor.project import OWN_FILE, SHARED_FILE

    if file_path.name in (OWN_FILE, SHARED_FILE):
        return Kernels.from_parent(parent, path=file_path, checks=("project",))
    try:
        if file_path.suffix == ".toml" and is_description(file_path):
            return Kernels.from_parent(parent, path=file_path, checks=("fresh",))
        if file_path.suffix == ".py" and is_module(file_path) and level == "compile":
            return Kernels.from_parent(parent, path=file_path, checks=("compile",))
    except OSError:
        return None
    return None


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> pytest.Collector | None:
    """A kernel that is named on the command line is checked, not imported as a test module."""
    if not _level(parent.config):
        return None
    from pipegen.searching import is_module

    if not is_module(module_path):
        return None
    return Kernels.from_parent(parent, path=module_path, checks=())


class Kernels(pytest.File):
    """A file that checks apply to."""

    def __init__(self, checks: tuple[str, ...], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.checks = checks

    @classmethod
    def from_parent(cls, parent: Any, **kwargs: Any) -> "Kernels":
        """pytest's way of making a node."""
        made: Kernels = super().from_parent(parent, **kwargs)
        return made

    def collect(self) -> Iterable["Kernel"]:
        """One item for each check."""
        for check in self.checks:
            if check != "project":
                yield Kernel.from_parent(self, name=check, check=check)
            elif _is_project(self.path):
                yield Kernel.from_parent(self, name="orphans", check=check)


class Kernel(pytest.Item):
    """One check of one file."""

    def __init__(self, check: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.check = check
        self.add_marker("pipegen")

    @classmethod
    def from_parent(cls, parent: Any, **kwargs: Any) -> "Kernel":
        """pytest's way of making a node."""
        made: Kernel = super().from_parent(parent, **kwargs)
        return made

    def runtest(self) -> None:
        """Run the check; raises CheckFailed with what it found."""
        report = _report(self.path, self.check)
        if report.problems:
            raise CheckFailed("\n".join(problem.paragraph() for problem in report.problems))
        looked_at = [module for module in report.modules if self._is_mine(module)]
        errors = [
            f"{finding.path}: {finding.title}: {finding.message}"
            for module in looked_at
            for finding in module.findings()
            if finding.level == "error"
        ]
        if errors:
            raise CheckFailed("\n".join(errors))
        if self.check == "compile" and any(
            module.compiled and module.compiled.status == "skipped" for module in looked_at
        ):
            pytest.skip("; ".join(skip.sentence() for skip in report.skips))

    def _is_mine(self, module: "ModuleReport") -> bool:
        if self.check == "project":
            return module.fresh is not None and module.fresh.state == "orphan"
        return self.check == "fresh" or module.path.resolve() == self.path.resolve()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """A finding is told in words, without a traceback."""
        if isinstance(excinfo.value, CheckFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where pytest says that the item is."""
        return self.path, 0, f"pipegen {self.check}: {self.path.name}"


def pytest_configure(config: pytest.Config) -> None:
    """Declares the mark that the items carry. Raises UsageError for a wrong level."""
    _level(config)
    config.addinivalue_line("markers", "pipegen: a check of a vendored kernel")


def _is_project(path: Path) -> bool:
    from pipegen.errors import InputError
    from pipegen.vendor.project import read_project

    try:
        return read_project(path) is not None
    except InputError:
        return True  # running the item says what is wrong


def _report(path: Path, check_name: str) -> "Report":
    from pipegen.compiling.cache import default_folder
    from pipegen.compiling.checking import check
    from pipegen.errors import InputError
    from pipegen.report import Report
    from pipegen.vendor.project import find_project

    try:
        return check(
            () if check_name == "project" else (path,),
            cache_folder=default_folder(),
            project=find_project(path.parent),
            level="compile" if check_name == "compile" else "fresh",
        )
    except InputError as error:
        return Report(problems=list(error.problems))
