# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import click

EPILOG = """\b
Examples:
  pipegen init                        descriptions below kernels/, modules beside them
  pipegen init descriptions --output src/mylib/kernels
"""

_TEXT = """\
# The kernels that this project vendors: see `pipegen generate --help`.

# Files, folders or patterns, relative to this file.
descriptions = [{descriptions}]
{output}
# The architectures that the project ships for; a description for another one is refused.
# archs = ["sm_90a"]

# Under these versions `pipegen check --versions` compiles, too, each in an environment of its own.
# versions = ["nvidia-cutlass-dsl==4.8.1"]
"""


@click.command(epilog=EPILOG)
@click.argument("descriptions", nargs=-1)
@click.option("--output", default="", help="Folder for the modules; left out, beside each.")
def command(descriptions: tuple[str, ...], output: str) -> None:
    """Make a project: write pipegen.toml, which lists the DESCRIPTIONS.

    In a project `pipegen generate` keeps a lock (pipegen.lock) and the pristine text of each module
    (.base): commit both, and `pipegen update` merges what is new into your edited files.
    """
    import json
    import tomllib

    from pipegen.errors import InputError, Problem
    from pipegen.vendor.project import OWN_FILE, find_project, project_from

    project = find_project()
    if project is not None and project.folder.absolute() == Path.cwd():
        raise InputError(Problem("is there already", file=str(project.file)))
    names = descriptions or ("kernels",)
    text = _TEXT.format(
        descriptions=", ".join(json.dumps(name) for name in names),
        output=f"\n# Where the modules go.\noutput = {json.dumps(output)}\n" if output else "",
    )
    path = Path(OWN_FILE)
    project_from(path, tomllib.loads(text))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InputError(Problem(f"cannot be written: {error.strerror}", file=str(path))) from None
    click.echo(f"created   {path}")
    if any(Path(name).exists() for name in names):
        click.echo("next: pipegen generate")
    else:
        click.echo(
            f"next: pipegen new my_gemm --op gemm --backend cute --arch sm_90a -o {names[0]}"
        )
