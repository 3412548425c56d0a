"""ncu-bench schema: the JSON Schema of what each command prints with --format json."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import click
from ncu_launch.errors import WrongUsage, near_names

from ncu_tools.cli.options import format_option, show
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

COLUMNS = columns("command schema_version required")


def commands_with_schema() -> list[str]:
    """The commands whose JSON has a schema."""
    found = files(__package__).joinpath("schemas").iterdir()
    return sorted(one.name.removesuffix(".json") for one in found if one.name.endswith(".json"))


def schema_of(command: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a command's JSON. Raises `WrongUsage` for a command without one."""
    known = commands_with_schema()
    if command not in known:
        near = near_names(command, known)
        raise WrongUsage(
            f"There is no schema of {command!r}.",
            f"Near names: {', '.join(near)}." if near else "It is no command that prints a table.",
            "ncu-bench schema lists all.",
        )
    text = files(__package__).joinpath("schemas", f"{command}.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


@click.command()
@click.argument("name", metavar="[COMMAND]", required=False)
@format_option
def command(name: str | None, output_format: str) -> None:
    """Print the JSON Schema of what a command prints with --format json, or list the commands that have one.

    Keys that are named there stay, with their types and units, while schema_version stays; new ones may be added.
    A number has its unit in its key or its schema, null means not known or not collected. An error is the other form:
    it has "error" with code, kind, message, cause and what to type.

    \b
    Example:
      ncu-bench schema
      ncu-bench schema hotspots
    """
    if name is not None:
        click.echo(json.dumps(schema_of(name), indent=1))
        return
    rows = []
    for one in commands_with_schema():
        answer = schema_of(one)["$defs"]["answer"]
        version = answer["properties"]["schema_version"]["const"]
        rows.append({"command": one, "schema_version": version, "required": ", ".join(answer["required"])})
    show(Table("schema", COLUMNS, rows, ["ncu-bench schema COMMAND prints one"]), output_format)
