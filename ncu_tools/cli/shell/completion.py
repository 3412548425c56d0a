"""ncu-bench completion: the script by which a shell completes what is typed, printed or installed."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import NamedTuple

import click
from click.shell_completion import get_completion_class
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.atomic_files import replacing

from ncu_tools.cli.shell import COMPLETE

PROGRAM = "ncu-bench"
SHELLS = ("bash", "zsh", "fish")
COMPINIT = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }\n"
"""Completion has to be on in zsh before a script may add to it."""


class ScriptPlace(NamedTuple):
    """Where a shell takes a script from: its file, and the start-up file that has to name it; None if none has to."""

    script: Path
    start_up: Path | None


@click.command()
@click.argument("shell", required=False, type=click.Choice(SHELLS))
@click.option("--install", is_flag=True, help="Write it where the shell finds it, and name it in its start-up file.")
def command(shell: str | None, install: bool) -> None:
    """Complete commands, options and their values in bash (from 4.4), zsh and fish.

    Values are machines, chips, groups of metrics, models and files, and behind --kernel the kernels of a run folder
    that stands before it in the line. Without a shell it is yours, by $SHELL. The script is printed, to be sourced; or
    with --install kept below ~/.config, and one line is added to ~/.bashrc or ~/.zshrc that sources it.

    \b
    Example:
      ncu-bench completion --install
      source <(ncu-bench completion bash)
      ncu-bench completion fish > ~/.config/fish/completions/ncu-bench.fish
    """
    shell = shell or shell_of(os.environ.get("SHELL", ""))
    text = script_for(shell)
    if not install:
        click.echo(text, nl=False)
        return
    place = place_of(shell)
    try:
        added = _installed(text, place)
    except OSError as error:
        raise NcuBenchError(
            f"The completion could not be installed: {error.filename or place.script}: {error.strerror or error}.",
            advice=f"Put it where you may write: {PROGRAM} completion {shell} > FILE, and source that in your shell.",
        ) from error
    click.echo(f"Completion for {shell} was written to {place.script}.")
    if place.start_up is not None:
        click.echo(f"{place.start_up} {'now sources it' if added else 'sources it already'}.")
    click.echo("It works in every new shell.")


def shell_of(path: str) -> str:
    """The shell of a path such as /bin/bash. Raises `WrongUsage` for one that cannot be completed in."""
    shell = Path(path).name
    if shell not in SHELLS:
        raise WrongUsage(
            f"It is not known which shell is to be completed in: $SHELL is {path or 'not set'}.",
            f"There is completion for {', '.join(SHELLS)}.",
            f"Name it: {PROGRAM} completion bash",
        )
    return shell


def script_for(shell: str) -> str:
    """The script that makes a shell ask this program for completions."""
    kind = get_completion_class(shell)
    assert kind is not None  # one of `SHELLS`, which click knows  # noqa: S101
    text = kind(click.get_current_context().find_root().command, {}, PROGRAM, COMPLETE).source().strip() + "\n"
    if shell == "zsh":  # the first line is for zsh's own search of scripts
        first, _, rest = text.partition("\n")
        return f"{first}\n{COMPINIT}{rest}"
    return text


def place_of(shell: str) -> ScriptPlace:
    """Where `shell` takes the script from, by the user's settings."""
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    if shell == "fish":
        return ScriptPlace(settings / "fish" / "completions" / f"{PROGRAM}.fish", None)
    home = Path(os.environ.get("ZDOTDIR") or Path.home()) if shell == "zsh" else Path.home()
    return ScriptPlace(settings / PROGRAM / f"completion.{shell}", home / f".{shell}rc")


def _installed(text: str, place: ScriptPlace) -> bool:
    """Write the script, and add the line that sources it; whether the line was added."""
    place.script.parent.mkdir(parents=True, exist_ok=True)
    with replacing(place.script) as temporary:
        temporary.write_text(text, encoding="utf-8")
    if place.start_up is None:
        return False
    line = f"source {shlex.quote(str(place.script))}"
    before = place.start_up.read_text("utf-8", errors="replace") if place.start_up.exists() else ""
    if line in before.splitlines():
        return False
    # Added to, and not replaced by a new file: it may be a link to a file that the user keeps elsewhere.
    with place.start_up.open("a", encoding="utf-8") as file:
        file.write(f"{'' if before.endswith(chr(10)) or not before else chr(10)}{line}\n")
    return True
