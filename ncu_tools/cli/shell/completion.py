"""ncu-bench completion, for one release: the script by which click completes in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class
from ncu_launch.errors import WrongUsage

from ncu_tools.cli.shell import COMPLETE


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")), default="bash")
@click.option("--install", is_flag=True)
def command(shell: str, install: bool) -> None:
    """Print the script of a shell, as _NCU_BENCH_COMPLETE=bash_source ncu-bench does."""
    asked = f"{COMPLETE}={shell}_source ncu-bench"
    if install:
        raise WrongUsage("The script is not installed any more.", advice=f'Add to the start-up file: eval "$({asked})"')
    click.echo(f"ncu-bench completion has a new name: {asked}", err=True)
    kind = get_completion_class(shell)
    assert kind is not None  # click knows these three  # noqa: S101
    click.echo(kind(click.get_current_context().find_root().command, {}, "ncu-bench", COMPLETE).source(), nl=False)
