"""`maad completion`: what a shell needs to complete commands and flags."""

from __future__ import annotations

import click

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  eval "$(maad completion bash)"     in ~/.bashrc
    zsh:   eval "$(maad completion zsh)"      in ~/.zshrc
    fish:  maad completion fish | source      in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    completion = get_completion_class(shell)
    assert completion is not None
    click.echo(completion(ctx.find_root().command, {}, "maad", "_MAAD_COMPLETE").source())
