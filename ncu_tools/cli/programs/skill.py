"""ncu-bench mcp --skill: install the instructions for assistants that tune kernels."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

NAME = "ncu-bench"
FILE = "SKILL.md"


@click.command()
@click.option(
    "--skill", "folder", required=True, type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Install the skill into this folder of skills.",
)  # fmt: skip
def command(folder: Path) -> None:
    """Install the skill for assistants that tune kernels: DIR/ncu-bench/SKILL.md says what to run, how to read it, and
    when to stop.

    DIR is the folder in which the assistant looks for skills, as its documentation names it. An older copy is replaced.

    \b
    Example:
      ncu-bench mcp --skill .assistant/skills
    """
    from ncu_launch.files.atomic_files import write_bytes_atomically

    path = folder / NAME / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_atomically(path, files(__package__).joinpath("skills", NAME, FILE).read_bytes())
    click.echo(f"wrote {path}")
