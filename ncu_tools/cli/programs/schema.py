"""ncu-bench mcp --schema: the JSON Schema of each command's --format json output.

Columns of rows belong to the command's tables, as the registry describes them. All other keys, and the columns that are
always present, are in `json_keys.txt`: a key per line, below its parent key, with * if it is always present, [] if it
holds a list, its types with ? if it may be null, and its unit. Columns of the registry have the registry's type.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.resources import files
from typing import Any

import click
from ncu_launch.errors import WrongUsage, near_names

from ncu_tools.cli.options import format_option, show
from ncu_tools.report.columns.registry import Entry, columns, entry, table_columns
from ncu_tools.report.table import JSON_SCHEMA_VERSION, Column, Table

COLUMNS = columns("command schema_version required")
KEYS = "json_keys.txt"
BENCH = "cli.collecting.bench cli.collecting.profiled_points cli.collecting.sampled_power cli.collecting.bench_against"
HOTSPOTS = (
    "cli.reading.hotspots cli.tables.hotspots.places cli.tables.hotspots.locations "
    "cli.tables.hotspots.compiled_kernels cli.reading.mix cli.tables.hotspots.rules_of_run"
)
TABLES = {
    "advise": "cli.reading.advise cli.tables.advice.change_text",
    "arrivals": "cli.reading.arrivals",
    "bench": BENCH,
    "binary": "cli.reading.binaries.kernel_code",
    "check": "cli.collecting.model_check",
    "code_advice": "cli.reading.binaries.advise_code",
    "code_places": "cli.reading.binaries.source_code",
    "compare": "cli.comparing.compare cli.tables.compare.bench_points cli.tables.compare.kernels_and_layers "
    "cli.tables.compare.places",
    "compare_code": "cli.comparing.compare_code",
    "digest": "cli.reading.digest",
    "doctor": "cli.collecting.doctor",
    "estimate": "cli.collecting.estimate cli.tables.expected_operators cli.tables.carried_runs",
    "expected": "cli.comparing.expected cli.comparing.expected_ranges report.html.expected_content",
    "export": "cli.reading.export",
    "history": "cli.comparing.history",
    "hotspots": HOTSPOTS,
    "join": "cli.reading.join",
    "levers": "report.step_advice_table",
    "kernel": "cli.reading.inside.kernel cli.tables.kernel.against_table cli.tables.kernel.explanation_table",
    "layers": "cli.reading.layers",
    "machines": "cli.collecting.machines",
    "metrics": "cli.collecting.metrics",
    "mix": "cli.reading.mix cli.tables.hotspots.places",
    "parse": "cli.reading.parse cli.tables.binary_report",
    "profile": f"{HOTSPOTS} {BENCH}",
    "query": "",
    "range_lines": "cli.reading.inside.range_source",
    "roofline": "cli.reading.roofline cli.reading.inside.instruction_roofline",
    "rules": "cli.tables.hotspots.rules_of_run",
    "samples": "cli.reading.inside.samples cli.reading.inside.balance cli.reading.sampled_gpus",
    "scaling": "cli.collecting.scaling",
    "schema": "cli.programs.schema",
    "series": "cli.collecting.series",
    "skew": "cli.reading.skew",
    "source": "report.source_table",
    "timeline": "report.timeline_parts",
    "inside": "report.warp_tables cli.reading.inside.in_time",
    "warp_levers": "cli.reading.inside.warp_advice",
    "warp_ranges": "cli.reading.inside.warp_ranges_file",
}
"""Command -> the modules whose columns its rows can have."""
ERROR = {
    "type": "object",
    "required": ["command", "error", "schema_version"],
    "properties": {
        "schema_version": {"const": JSON_SCHEMA_VERSION},
        "command": {"type": "string"},
        "error": {
            "type": "object",
            "required": ["cause", "code", "kind", "message", "to_type"],
            "properties": {
                "code": {"type": "integer", "description": "the exit code"},
                "kind": {"enum": ["failed", "wrong_usage"]},
                "message": {"type": "string"},
                "cause": {"type": ["null", "string"]},
                "to_type": {"type": ["null", "string"]},
            },
        },
    },
}
OF_EVERY_ANSWER = {
    "schema_version": {"const": JSON_SCHEMA_VERSION},
    "command": {"type": "string"},
    "columns": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "description": "the columns of the rows, each with its unit; empty without one",
    },
    "notes": {"type": "array", "items": {"type": "string"}},
}

Schema = dict[str, Any]


def schema_of(command: str) -> Schema:
    """The JSON Schema (draft 2020-12) of a command's JSON. Raises `WrongUsage` for a command without one."""
    if command not in TABLES:
        near = near_names(command, TABLES)
        raise WrongUsage(
            f"There is no schema of {command!r}.",
            f"Near names: {', '.join(near)}." if near else "It is no command that prints a table.",
            "ncu-bench mcp --schema lists all.",
        )
    answer = listed_keys(files(__package__).joinpath(KEYS).read_text("utf-8"))[command]
    answer["properties"] |= OF_EVERY_ANSWER
    answer["required"] = sorted({*answer["required"], *OF_EVERY_ANSWER})
    rows = answer["properties"]["rows"]["items"]
    rows["properties"] = _described(columns_in(TABLES[command].split()), rows.get("properties", {}))
    if command == "kernel":  # its hotspot is a row of hotspots
        hotspot = answer["properties"]["hotspot"]
        hotspot["properties"] = _described(table_columns("hotspots"), hotspot["properties"])
    if command in ("bench", "profile"):
        _add_columns_of_points(rows["properties"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"ncu-bench {command} --format json",
        "anyOf": [{"$ref": "#/$defs/answer"}, {"$ref": "#/$defs/error"}],
        "$defs": {"answer": answer, "error": ERROR},
    }


def columns_in(modules: Iterable[str]) -> Iterator[Column]:
    """The registry columns used by tables of these modules of `ncu_tools`, with repeats."""
    for module in modules:
        for value in vars(import_module(f"ncu_tools.{module}")).values():
            yield from (one for one in _columns_of(value) if one.key)


def _columns_of(value: Any) -> Iterator[Column]:
    if isinstance(value, Column):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _columns_of(one)
    elif isinstance(value, dict):
        yield from _columns_of(list(value.values()))


def _described(found: Iterable[Column], listed: dict[str, Schema]) -> dict[str, Schema]:
    """The columns as properties of a row; `listed` are the ones with types in the list of keys.

    A column with several units has none: the `columns` of each answer give them.
    """
    result: dict[str, Schema] = {}
    for one in found:
        of_column = schema_of_column(entry(one.key))
        known = result.setdefault(one.name, of_column | listed.get(one.name, {}))
        if known.get("unit") != of_column.get("unit"):
            known.pop("unit", None)
    return dict(sorted((listed | result).items()))


def schema_of_column(known: Entry) -> Schema:
    """The schema of a column's values. Lists and booleans are nullable only if the list of keys says so."""
    types = known.json_type if known.json_type in ("array", "boolean") else ["null", known.json_type]
    unit = {"unit": known.unit} if known.unit else {}
    return {"type": types, "title": known.title, "description": known.meaning, **unit}


def _add_columns_of_points(rows: dict[str, Schema]) -> None:
    """Add the columns of the file of measured points, of which `bench` prints all."""
    from ncu_parsers.schema.bench_table import COLUMNS as ALL

    for one in ALL:
        kinds = {"int": "number", "float": "number", "double": "number", "list": "array", "bool": "boolean"}
        kind = next((kind for start, kind in kinds.items() if str(one.type).startswith(start)), "string")
        described = {"type": ["null", kind], "description": one.meaning} | ({"unit": one.unit} if one.unit else {})
        rows[one.name] = described | rows.get(one.name, {})


def listed_keys(text: str) -> dict[str, Schema]:
    """The schemas of answers described by a list of keys, by command."""
    root: Schema = {}
    path = [root]
    for line in text.splitlines():
        bare = line.lstrip()
        if not bare or bare.startswith("#"):
            continue
        word, _, types = bare.partition(" ")
        types, _, unit = types.partition(" ")
        del path[len(line) - len(bare) + 1 :]
        holder, found = path[-1], _types(types)
        path.append(found)
        name, *lists = word.split("[]")
        for _ in lists if name else lists[1:]:
            found = {"type": "array", "items": found}
        found |= {"unit": unit} if unit else {}
        if not name:
            holder["items"] = found
            continue
        holder.setdefault("properties", {})[name.rstrip("*")] = found
        holder.setdefault("required", []).extend([name.rstrip("*")] if name.endswith("*") else [])
    commands: dict[str, Schema] = root["properties"]
    return commands


def _types(words: str) -> Schema:
    """The types of "number|string?"; {} for "any", and for a registry column, which has none in the list."""
    names = [*words.removesuffix("?").split("|"), *(["null"] if words.endswith("?") else [])]
    if names in ([""], ["any"]):
        return {}
    return {"type": names[0] if len(names) == 1 else sorted(names)}


@click.command()
@click.option("--schema", "name", flag_value="", is_flag=False, metavar="[NAME]", help="Schema of these answers.")
@format_option
def command(name: str, output_format: str) -> None:
    """Print the JSON Schema of a command's --format json output, or list the names that have one.

    NAME is a command or one of its views, as under "command" in the answer: hotspots, layers, digest. Keys keep their
    names, types and units as long as schema_version stays the same; new keys may be added. The unit of a number is in
    its key or its schema; null means unknown or not collected. A failed command prints "error" instead, with code,
    kind, message, cause and what to type.

    \b
    Example:
      ncu-bench mcp --schema
      ncu-bench mcp --schema hotspots
    """
    if name:
        click.echo(json.dumps(schema_of(name), indent=1, ensure_ascii=False))
        return
    rows = []
    for one in TABLES:
        answer = schema_of(one)["$defs"]["answer"]
        rows.append({
            "command": one, "schema_version": JSON_SCHEMA_VERSION, "required": ", ".join(answer["required"]),
        })  # fmt: skip
    show(Table("schema", COLUMNS, rows, ["ncu-bench mcp --schema NAME prints one"]), output_format)
