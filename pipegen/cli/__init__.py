# SPDX-License-Identifier: Apache-2.0
"""The `pipegen` command. Each subcommand is a module that is imported only when it is called."""

import importlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from pipegen.errors import InputError

# name -> one line for `pipegen --help`, so that help need not import the commands.
COMMANDS: dict[str, str] = {
    "table": "Show the selection table: who fills, who empties, which class.",
    "select": "Name the class for one producer and consumer, and why.",
    "new": "Write a description and its kernel from options or questions.",
    "init": "Make a project: pipegen.toml, for a lock and updates.",
    "generate": "Write the kernels of the project, or of PATHs.",
    "plan": "Show every derived number of a description with its formula.",
    "check": "Check that kernels are fresh and compile (no GPU needed).",
    "emulate": "Run a CuTe kernel's PTX on the CPU, and say what is wrong.",
    "verify": "Emulate emitted kernels where protocols break: ring wraps, edges.",
    "diff": "Show what an update would change in the project's kernels.",
    "update": "Merge what is new into the project's kernels, edits and all.",
    "run": "Run modules' own checks on this machine's GPU.",
    "bench": "Time modules against cuBLAS and others, on a GPU.",
    "tune": "Search for the fastest values of a description, on a GPU.",
    "export": "Compile a CuTe module ahead of time: object and C header.",
    "viz": "Draw a pipeline: roles over time, stages, who waits.",
    "explain": "Explain a class, a term or a rule.",
    "schema": "Print the JSON Schema of the description.",
    "doctor": "Show what is installed and which checks can run here.",
    "completion": "Print a shell's completion script.",
}


class LazyGroup(click.Group):
    """A click group that imports `pipegen.cli.NAME` on first use of NAME."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"pipegen.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from pipegen.errors import nearest_word

            nearest = nearest_word(args[0], list(COMMANDS))
            hint = f" Nearest: {nearest}." if nearest else ""
            ctx.fail(f"no command {args[0]!r}. Allowed: {', '.join(COMMANDS)}.{hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InputError as error:
            for problem in error.problems:
                click.echo(f"error: {problem.paragraph()}", err=True)
            ctx.exit(2)


EPILOG = """\b
Examples:
  pipegen select tma wgmma --arch sm_90a --backend cute
  pipegen new my_gemm --op gemm --backend cute --arch sm_90a -o kernels
  pipegen check kernels
"""


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pipegen")
def main() -> None:
    """Write GPU kernels that stream tiles through a ring buffer of SMEM stages.

    Describe who fills a stage and who empties it; pipegen picks the pipeline class, computes every
    count, and writes one readable, standalone module in the CuTe DSL or JAX Pallas.
    """


def print_json(data: object) -> None:
    """Write `data` to standard output as JSON, two spaces a level."""
    json.dump(data, sys.stdout, indent=2, sort_keys=False)
    sys.stdout.write("\n")


def show_diff(folder: Path, files: dict[str, str]) -> None:
    """Print a unified diff from what is on disk to `files`."""
    import difflib

    for name, text in files.items():
        path = folder / name
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        lines = difflib.unified_diff(
            old.splitlines(keepends=True), text.splitlines(keepends=True), str(path), str(path)
        )
        click.echo("".join(lines), nl=False)


def console(stderr: bool = False) -> Any:
    """A rich console: colours in a terminal, plain text in a pipe, 160 columns or $COLUMNS wide."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else int(os.environ.get("COLUMNS") or 160)
    return Console(stderr=stderr, width=width, highlight=False)


def run() -> None:
    """The command as a process: a closed pipe ends it quietly, a full disk with a word."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        try:
            main(prog_name="pipegen")
        finally:
            sys.stdout.flush()
    except OSError as error:
        sys.stderr.write(f"error: standard output: {error.strerror or error}\n")
        # The interpreter would try to flush once more, and complain.
        os._exit(2)
