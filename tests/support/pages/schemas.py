"""JSON Schemas of commands: made of what commands print in the tests, and held against all that they print there.

`python -m tests.support.pages.schemas` runs the tests and writes the schemas anew. A column is named in a schema if a module
declares it; columns of metrics, of varied arguments and of SQL are of the run, so that no schema can name them.
"""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

import ncu_tools
import ncu_tools.cli
from ncu_tools.report.table import JSON_SCHEMA_VERSION, Column, Table, to_json
from tests.conftest import ROOT

SCHEMAS = ROOT / "ncu_tools" / "cli" / "programs" / "schemas"
COLLECT = "NCU_BENCH_COLLECT_SCHEMAS"
"""Environment variable: the folder in which a process of tests leaves what its commands printed."""
OF_THE_RUN = frozenset({
    "values", "left_out", "columns", "conditions", "point", "arguments", "settings", "missing", "session", "rules",
    "instances", "compiled", "work", "blocks_by", "reported", "skipped", "lines",
})  # fmt: skip
"""Objects whose keys are those of the run: kernels, units, attributes of a session and so on."""
OF_THE_QUESTION = frozenset({"query"})
"""Commands whose columns are those of the SQL that was asked."""
DRAFT = "https://json-schema.org/draft/2020-12/schema"
NAMES = {str: "string", bool: "boolean", type(None): "null", int: "number", float: "number"}


@dataclass
class Structure:
    """What values are: their plain types, the keys of objects with how often each was there, the items of lists."""

    types: set[str] = field(default_factory=set)
    objects: int = 0
    keys: dict[str, Structure] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    items: Structure | None = None

    def add(self, value: Any) -> None:
        """Add one value, as JSON has it."""
        if isinstance(value, dict):
            self.objects += 1
            for key, one in value.items():
                self.keys.setdefault(key, Structure()).add(one)
                self.seen[key] = self.seen.get(key, 0) + 1
        elif isinstance(value, list):
            self.items = self.items or Structure()
            for one in value:
                self.items.add(one)
        else:
            self.types.add(NAMES[type(value)])

    def merge(self, other: Structure) -> None:
        """Add all that another structure has seen."""
        self.types |= other.types
        self.objects += other.objects
        for key, one in other.keys.items():
            self.keys.setdefault(key, Structure()).merge(one)
            self.seen[key] = self.seen.get(key, 0) + other.seen[key]
        if other.items is not None:
            self.items = self.items or Structure()
            self.items.merge(other.items)

    def schema(self, name: str = "") -> dict[str, Any]:
        """The JSON Schema of the values. Whatever may be null in one run may be null in another.

        What was null in every run has the type of the declared column of its name, and none where there is no such column.
        """
        types = {*self.types, "null"} if self.types - {"boolean"} else set(self.types)
        if types == {"null"} and not self.objects and self.items is None:
            types = {"null", _declared_type(name)} if name in declared_columns() else set()
        found: dict[str, Any] = {}
        if self.objects:
            types.add("object")
            if name not in OF_THE_RUN:
                found["properties"] = {key: one.schema(key) for key, one in sorted(self.keys.items())}
                found["required"] = sorted(key for key, count in self.seen.items() if count == self.objects)
        if self.items is not None:
            types.add("array")
            found["items"] = self.items.schema()
        ordered = sorted(types)
        return {"type": ordered[0] if len(ordered) == 1 else ordered, **found} if types else found

    def as_json(self) -> dict[str, Any]:
        """As plain values, for a file."""
        items = None if self.items is None else self.items.as_json()
        keys = {key: one.as_json() for key, one in self.keys.items()}
        return {"types": sorted(self.types), "objects": self.objects, "keys": keys, "seen": self.seen, "items": items}

    @staticmethod
    def of_json(plain: Mapping[str, Any]) -> Structure:
        """From what `as_json` gave."""
        items = None if plain["items"] is None else Structure.of_json(plain["items"])
        keys = {key: Structure.of_json(one) for key, one in plain["keys"].items()}
        return Structure(set(plain["types"]), plain["objects"], keys, dict(plain["seen"]), items)


@cache
def declared_columns() -> dict[str, bool]:
    """Columns that modules declare, and which hold numbers; all others are of the run: metrics, varied arguments, SQL."""
    found: dict[str, bool] = {}
    for column in every_column():
        found[column.name] = found.get(column.name, False) or column.is_number or bool(column.unit)
    return found


def every_column() -> Iterator[Column]:
    """Every column that a module declares, as often as it is declared."""
    for module in pkgutil.walk_packages(ncu_tools.__path__, "ncu_tools."):
        if not module.ispkg:
            for value in vars(import_module(module.name)).values():
                yield from _columns_in(value)


def _columns_in(value: Any) -> Iterator[Column]:
    if isinstance(value, Column):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _columns_in(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _columns_in(one)


@dataclass
class Printed:
    """What one command printed: the structure of its answers, and its columns by name, as its tables have them."""

    answers: Structure = field(default_factory=Structure)
    columns: dict[str, Column] = field(default_factory=dict)

    def take(self, columns: Iterable[Column]) -> None:
        """Add columns of a table. One that has several units has none: the answer's own `columns` say which."""
        for column in columns:
            known = self.columns.setdefault(column.name, Column(column.name, column.title, column.kind, column.unit))
            if known.unit != column.unit:
                self.columns[column.name] = known._replace(unit="")

    def merge(self, other: Printed) -> None:
        """Add what the command printed elsewhere."""
        self.answers.merge(other.answers)
        self.take(other.columns.values())

    def as_json(self) -> dict[str, Any]:
        """As plain values, for a file."""
        return {"answers": self.answers.as_json(), "columns": [list(one[:4]) for one in self.columns.values()]}

    @staticmethod
    def of_json(plain: Mapping[str, Any]) -> Printed:
        """From what `as_json` gave."""
        columns = {one[0]: Column(*one) for one in plain["columns"]}
        return Printed(Structure.of_json(plain["answers"]), columns)


def schema_of_answers(command: str, printed: Printed) -> dict[str, Any]:
    """The schema of a command's JSON, from all that it printed."""
    answers = printed.answers
    answer = answers.schema()
    rows = answers.keys["rows"].items or Structure()
    declared = {} if command in OF_THE_QUESTION else declared_columns()
    known = {name: one for name, one in printed.columns.items() if name in declared and name in rows.keys}
    answer["properties"]["rows"] = {"type": "array", "items": _rows_schema(rows, known)}
    answer["properties"]["schema_version"] = {"const": JSON_SCHEMA_VERSION}
    answer["properties"]["command"] = {"type": "string"}
    units = "the columns of the rows, each with its unit; empty without one"
    answer["properties"]["columns"] = {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "description": units,
    }
    answer["properties"]["notes"] = {"type": "array", "items": {"type": "string"}}
    return {
        "$schema": DRAFT,
        "title": f"ncu-bench {command} --format json",
        "anyOf": [{"$ref": "#/$defs/answer"}, {"$ref": "#/$defs/error"}],
        "$defs": {"answer": answer, "error": ERROR},
    }


ERROR = {
    "type": "object",
    "required": ["command", "error", "schema_version"],
    "properties": {
        "schema_version": {"const": 1},
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


def _declared_type(column: str) -> str:
    return "number" if declared_columns()[column] else "string"


def _rows_schema(rows: Structure, known: Mapping[str, Column]) -> dict[str, Any]:
    properties = {}
    for name, column in sorted(known.items()):
        of_values = rows.keys[name].schema(name)
        unit = {"unit": column.unit} if column.unit else {}
        properties[name] = {**of_values, "title": column.title, **unit}
    required = sorted(name for name in known if rows.seen.get(name) == rows.objects)
    return {"type": "object", "properties": properties, "required": required}


# --------------------------------------------------------------------------------------------- what commands print


class PrintedAnswers:
    """What commands printed as JSON in this process, by command; each is held against its schema at once."""

    def __init__(self) -> None:
        self.by_command: dict[str, Printed] = {}

    def take(self, table: Table) -> Iterator[str]:
        """The JSON of a table, as `to_json` gives it. Raises an assertion error where its schema does not allow it."""
        text = "".join(to_json(table))
        context = click.get_current_context(silent=True)
        if context is not None and context.info_name and not context.info_name.startswith("-"):
            self._take(context, table, json.loads(text))
        yield text

    def _take(self, context: click.Context, table: Table, answer: dict[str, Any]) -> None:
        path = context.command_path.split()
        command = next((word for word in path if word in ncu_tools.cli.COMMANDS), path[-1])
        if command not in ncu_tools.cli.COMMANDS:
            return
        printed = self.by_command.setdefault(command, Printed())
        printed.answers.add(answer)
        printed.take((*table.columns, *table.more))
        if COLLECT not in os.environ:
            require_valid(command, with_some_rows(answer))

    def leave(self) -> None:
        """Write what was printed into the folder that the environment names, if it names one."""
        if COLLECT in os.environ and self.by_command:
            plain = {command: one.as_json() for command, one in self.by_command.items()}
            Path(os.environ[COLLECT], f"{os.getpid()}.json").write_text(json.dumps(plain), "utf-8")


MANY_ROWS = 40


def with_some_rows(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer whose long lists have their first and last rows: to hold thousands against a schema takes seconds."""
    return {
        key: [*value[:MANY_ROWS], *value[-MANY_ROWS:]]
        if isinstance(value, list) and len(value) > 2 * MANY_ROWS
        else value
        for key, value in answer.items()
    }


def require_valid(command: str, answer: Mapping[str, Any]) -> None:
    """Raise an assertion error if the schema of a command does not allow an answer of it."""
    problems = [f"{'/'.join(map(str, one.absolute_path))}: {one.message[:300]}" for one in _problems(command, answer)]
    assert not problems, f"{command} printed what its schema does not allow: {problems[:3]}"


def _problems(command: str, answer: Mapping[str, Any]) -> Iterable[Any]:
    yield from validator_of(command).iter_errors(answer)


@cache
def validator_of(command: str) -> Any:
    """The validator of a command's answers, errors aside."""
    from jsonschema import Draft202012Validator

    schema = json.loads((SCHEMAS / f"{command}.json").read_text("utf-8"))
    return Draft202012Validator({**schema["$defs"]["answer"], "$defs": schema["$defs"]})


# ---------------------------------------------------------------------------------------------------------- writing


def written(folder: Path) -> dict[str, Printed]:
    """What all processes of tests left in a folder."""
    found: dict[str, Printed] = {}
    for path in sorted(folder.glob("*.json")):
        for command, plain in json.loads(path.read_text("utf-8")).items():
            found.setdefault(command, Printed()).merge(Printed.of_json(plain))
    return found


def main() -> None:
    """Run the tests given on the command line (all by default), and write the schemas of what commands printed."""
    with TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"]
        subprocess.run([*words, *sys.argv[1:]], env={**os.environ, COLLECT: folder}, cwd=ROOT, check=False)
        for command, printed in written(Path(folder)).items():
            text = json.dumps(schema_of_answers(command, printed), indent=1, sort_keys=True, ensure_ascii=False)
            (SCHEMAS / f"{command}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
