# SPDX-License-Identifier: Apache-2.0
import click

SHELLS = ("bash", "zsh", "fish")
EPILOG = """\b
Examples:
  pipegen completion bash > ~/.local/share/bash-completion/completions/pipegen
  pipegen completion zsh > ~/.zfunc/_pipegen
  pipegen completion fish > ~/.config/fish/completions/pipegen.fish
"""


@click.command(epilog=EPILOG)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the script that makes SHELL complete commands, options and their values."""
    from click.shell_completion import get_completion_class

    from pipegen.cli import main

    found = get_completion_class(shell)
    assert found is not None  # click has all of SHELLS
    # `source` would ask the shell for its version first, and that shell need not be here.
    made = found(main, {}, "pipegen", "_PIPEGEN_COMPLETE")
    click.echo(made.source_template % made.source_vars())
