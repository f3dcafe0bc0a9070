# SPDX-License-Identifier: Apache-2.0
from typing import Any

import click

from pipegen.cli import console, print_json

EPILOG = """\b
Examples:
  pipegen doctor
  pipegen doctor --format json
"""

_STYLES = {"yes": "green", "no": "yellow", "broken": "red"}


@click.command(epilog=EPILOG)
@click.option(
    "--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def command(output: str) -> None:
    """Show what is installed, which checks can run here, and what would enable the others.

    Exit code 1: something that is installed is broken. Missing things are no fault.
    """
    from pipegen.compiling.diagnosis import examine

    found = examine()
    if output == "json":
        print_json(found)
    else:
        _print(found)
    raise SystemExit(found["exit_code"])


def _print(found: dict[str, Any]) -> None:
    rows = {
        "python": f"{found['python']} ({found['platform']})",
        "pipegen": found["pipegen"] or "from its source folder",
        **found["packages"],
        "cuobjdump": found["cuobjdump"] or "not found",
        "GPU": ", ".join(f"{gpu['name']} (driver {gpu['driver']})" for gpu in found["gpus"]),
    }
    if found["cutlass_flavour"]:
        rows["nvidia-cutlass-dsl"] += f" ({found['cutlass_flavour']} libraries)"
    out = console()

    def show(text: str, style: str = "") -> None:
        out.print(text, style=style, markup=False, soft_wrap=True)

    show("Installed", "bold")
    for name, value in rows.items():
        show(f"  {name:<{max(map(len, rows))}}  {value or 'none'}")
    show("\nChecks", "bold")
    for ability in found["abilities"]:
        reason = f": {ability['reason']}" if ability["reason"] else ""
        show(f"  {ability['state']:<6}  {ability['name']}{reason}", _STYLES[ability["state"]])
    show("\nKnown to go wrong", "bold")
    for line in found["known_bad"]:
        show(f"  {line}")
    if found["command"]:
        show("\nTo add what is missing", "bold")
        show(f"  {found['command']}")
