# SPDX-License-Identifier: Apache-2.0
import click

from pipegen.cli import print_json


@click.command(epilog="\b\nExample:\n  pipegen schema > pipegen.schema.json")
def command() -> None:
    """Print the JSON Schema of a kernel description, for editors that complete TOML."""
    from pipegen.schema import json_schema

    print_json(json_schema())
