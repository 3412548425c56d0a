"""ncu-bench mcp: a server for chat assistants and other programs, by the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path

import click
from ncu_launch.errors import NcuBenchError

from ncu_tools.cli.views import Verb


@click.command(cls=Verb)
@click.option("--root", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Read only what lies here.")
@click.option("--allow-profile", is_flag=True, help="Let clients run models under a profiler, which executes them.")
@click.option(
    "--log", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.md",
    help="Let `advise` with `against` append each change to this log below DIR, which `history` then reads.",
)  # fmt: skip
def command(root: Path, allow_profile: bool, log: Path | None) -> None:
    """Serve the reports and runs of a folder to chat assistants and programs that speak MCP, on standard input.

    Tools: runs, digest, hotspots, kernel, source, advise, compare, history, query (read-only SQL) and roofline (a
    picture). Nothing outside DIR is read, links out of it included, nothing is written but the log, and no program is
    run unless --allow-profile is given. Answers are bounded, with a cursor for the rest. Needs the official SDK (pip
    install '.[mcp]').

    \b
    Example:
      ncu-bench mcp --root profiles/
      ncu-bench mcp --root profiles/ --log profiles/log.md
      ncu-bench mcp --skill .assistant/skills
    """
    try:
        from ncu_tools.cli.programs.served_tools import server_of
    except ImportError as error:
        raise NcuBenchError(
            "The server needs the Python SDK of the Model Context Protocol, version 2 or newer.",
            f"It could not be imported: {error}.",
            "Install it with: pip install '.[mcp]'",
        ) from error
    from ncu_tools.cli.programs.served_folder import ServedFolder

    folder = ServedFolder(root)
    where = folder.new_file(log) if log is not None else None
    server_of(folder, allow_profile=allow_profile, log=where).run("stdio")
