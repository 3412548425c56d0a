"""What commands print as JSON in the tests is held against their schemas; and the list of keys of a release.

`python -m tests.support.pages.schemas` writes the list of the schemas as they are, to be kept when a version is released.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import click

from ncu_tools.cli.programs.schema import OF_EVERY_ANSWER, TABLES, schema_of
from ncu_tools.report.table import JSON_SCHEMA_VERSION, Table, to_json
from tests.conftest import ROOT

RELEASED = ROOT / "tests" / "released" / "schemas"
MANY_ROWS = 40


class PrintedAnswers:
    """Holds what commands print as JSON in this process against their schemas, at once."""

    def take(self, table: Table) -> Iterator[str]:
        """The JSON of a table, as `to_json` gives it. Raises an assertion error where its schema does not allow it."""
        text = "".join(to_json(table))
        context = click.get_current_context(silent=True)
        command = (context.command.name or "") if context is not None else ""
        if command in TABLES:
            answer = with_some_rows(json.loads(text))
            require_valid(command, answer)
            require_listed(command, table, answer)
        yield text


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
    found = validator_of(command).iter_errors(answer)
    problems = [f"{'/'.join(map(str, one.absolute_path))}: {one.message[:300]}" for one in found]
    assert not problems, f"{command} printed what its schema does not allow: {problems[:3]}"


def require_listed(command: str, table: Table, answer: Mapping[str, Any]) -> None:
    """Raise an assertion error if an answer has keys, or columns of the registry, that the command's schema lacks."""
    schema = validator_of(command).schema
    rows = schema["properties"]["rows"]["items"]["properties"]
    lacking = [one.name for one in (*table.columns, *table.more) if one.key and one.name not in rows]
    lacking += unlisted(schema, {key: value for key, value in answer.items() if key != "rows"})
    assert not lacking, f"json_keys.txt, or TABLES of schema.py, lacks for {command}: {sorted(set(lacking))}"


def unlisted(schema: Mapping[str, Any], value: Any, path: str = "") -> Iterator[str]:
    """The keys of a value that its schema does not name; an object of which it names none has keys of the run."""
    if isinstance(value, list):
        for one in value:
            yield from unlisted(schema.get("items", {}), one, f"{path}[]")
    elif isinstance(value, dict) and "properties" in schema:
        for key, one in value.items():
            if key in schema["properties"]:
                yield from unlisted(schema["properties"][key], one, f"{path}/{key}")
            else:
                yield f"{path}/{key}"


@cache
def validator_of(command: str) -> Any:
    """The validator of a command's answers, errors aside."""
    from jsonschema import Draft202012Validator

    schema = schema_of(command)
    return Draft202012Validator({**schema["$defs"]["answer"], "$defs": schema["$defs"]})


def lines_of(schema: Mapping[str, Any], depth: int = 1) -> Iterator[str]:
    """The properties of a schema as lines of a list of keys, as `listed_keys` reads them."""
    for name, one in sorted(schema.get("properties", {}).items()):
        word, inner = name + "*" * (name in schema.get("required", ())), one
        while inner.get("type") == "array":
            word, inner = f"{word}[]", inner.get("items", {})
        yield " ".join(filter(None, (" " * depth + word, types_of(inner), one.get("unit"))))
        yield from lines_of(inner, depth + 1)
    if "items" in schema:
        yield f"{' ' * depth}[] {types_of(schema['items'])}"
        yield from lines_of(schema["items"], depth + 1)


def types_of(schema: Mapping[str, Any]) -> str:
    """The types of a schema, as `listed_keys` reads them."""
    types = schema.get("type", "any")
    found = [types] if isinstance(types, str) else types
    return "|".join(sorted(one for one in found if one != "null")) + "?" * ("null" in found)


def main() -> None:
    """Write the list of keys of all commands, as they are to be released."""
    lines: list[str] = []
    for command in TABLES:
        answer = schema_of(command)["$defs"]["answer"]
        own = {key: one for key, one in answer["properties"].items() if key not in OF_EVERY_ANSWER}
        lines += [f"{command} object", *lines_of({**answer, "properties": own})]
    (RELEASED / f"{JSON_SCHEMA_VERSION}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
