"""The schemas of what commands print as JSON: they exist, describe every sample, and keep what was released."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.profile.doctor import Models

from ncu_tools.cli.programs.schema import TABLES, listed_keys, schema_of
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import JSON_SCHEMA_VERSION, Table
from tests.conftest import SAMPLES
from tests.support.called_here import called_here
from tests.support.nightly import one_in
from tests.support.pages.options_page import commands
from tests.support.pages.schemas import RELEASED, lines_of, require_listed, require_valid
from tests.support.reports import sample_files


def commands_that_print_json() -> list[str]:
    """The names of commands and views with JSON, each once: `kernel --part samples` and `--part balance` are samples."""
    printing = [one for one in commands().values() if any("json" in getattr(p.type, "choices", ()) for p in one.params)]
    return sorted({one.name or "" for one in printing})


def test_every_command_that_prints_json_has_a_schema() -> None:
    assert commands_that_print_json() == sorted(TABLES)


@pytest.mark.parametrize("sample", one_in(6, sample_files()), ids=lambda path: path.name)
def test_what_commands_print_of_a_sample_is_what_their_schemas_describe(sample: Any) -> None:
    for command in ("hotspots", "roofline", "kernel", "report", "source"):
        answer = json.loads(called_here(command, str(sample), "--format", "json", cwd=SAMPLES).out)
        if "error" not in answer:
            require_valid(answer["command"], answer)
        else:
            assert (
                answer["error"]["kind"]
                in schema_of("hotspots")["$defs"]["error"]["properties"]["error"]["properties"]["kind"]["enum"]
            )


def test_the_schema_of_estimate_describes_runs_and_tables_of_operators_too(tmp_path: Path) -> None:
    (tmp_path / "ops.csv").write_text("op,dtype,m,n,k\ngemm,bf16,64,64,64\n", encoding="utf-8")
    for words in ([str(SAMPLES / "d01-wide-raw.csv")], ["--ops", "ops.csv"]):
        printed = called_here("estimate", *words, "--machine", "l4", "--format", "json", cwd=tmp_path).out
        require_valid("estimate", json.loads(printed))


@pytest.mark.slow
def test_what_doctor_prints_here_is_what_its_schema_describes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncu_launch.profile.doctor.ask_models", Models)  # else a process imports PyTorch
    require_valid("doctor", json.loads(called_here("doctor", "--format", "json", cwd=SAMPLES).out))


def test_an_answer_without_a_key_that_is_always_there_is_not_valid() -> None:
    answer = json.loads(
        called_here("hotspots", str(SAMPLES / "d04-long-metrics.csv"), "--format", "json", cwd=SAMPLES).out
    )
    require_valid("hotspots", answer)
    del answer["rows"][0]["kernel"]
    with pytest.raises(AssertionError, match="kernel"):
        require_valid("hotspots", answer)
    answer["rows"][0]["kernel"] = 7
    with pytest.raises(AssertionError, match="7 is not of type"):
        require_valid("hotspots", answer)


def test_a_number_of_a_row_has_its_unit_in_the_schema() -> None:
    rows = schema_of("hotspots")["$defs"]["answer"]["properties"]["rows"]["items"]["properties"]
    assert (rows["time_total_ns"]["unit"], rows["dram_bytes"]["unit"]) == ("ns", "byte")
    assert rows["dram_bytes"]["type"] == ["null", "number"]


def names_in(schema: dict[str, Any]) -> Iterator[str]:
    for name, value in schema.get("properties", {}).items():
        yield name
        yield from names_in(value)
    yield from names_in(schema["items"]) if "items" in schema else ()


@pytest.mark.parametrize("command", list(TABLES))
def test_a_schema_names_keys_of_the_command_and_none_of_a_run(command: str) -> None:
    """Names of kernels, units, metrics and devices have dots, spaces or capitals."""
    found = set(names_in(schema_of(command)["$defs"]["answer"]))
    assert {name for name in found if not re.fullmatch("[a-z][a-z0-9_]*", name)} == set()


def test_the_command_lists_the_schemas_and_prints_one() -> None:
    listed = json.loads(called_here("mcp", "--schema", "--format", "json", cwd=SAMPLES).out)
    assert [row["command"] for row in listed["rows"]] == list(TABLES)
    assert json.loads(called_here("mcp", "--schema", "hotspots", cwd=SAMPLES).out) == schema_of("hotspots")
    wrong = called_here("mcp", "--schema", "hotspot", cwd=SAMPLES)
    assert wrong.code == 2
    assert "Near names: hotspots." in wrong.err


# --------------------------------------------------------------------------------------------- what was released


def broken(released: dict[str, Any], now: dict[str, Any], path: str = "") -> Iterator[str]:
    """What a program written for a released schema would not find, or not as it was."""
    lost = set(_types(now)) - set(_types(released))
    if lost and _types(released):
        yield f"{path}: may be {sorted(lost)} now"
    for key in set(released.get("required", ())) - set(now.get("required", ())):
        yield f"{path}/{key}: is not always there any more"
    for key, value in released.get("properties", {}).items():
        if key not in now.get("properties", {}):
            yield f"{path}/{key}: is gone"
        else:
            yield from broken(value, now["properties"][key], f"{path}/{key}")
    if released.get("unit", now.get("unit")) != now.get("unit"):
        yield f"{path}: its unit was {released.get('unit')} and is {now.get('unit')}"
    if released.get("items") and now.get("items"):
        yield from broken(released["items"], now["items"], f"{path}[]")


def _types(schema: dict[str, Any]) -> list[str]:
    found = schema.get("type", [])
    return [found] if isinstance(found, str) else list(found)


@pytest.mark.parametrize("command", TABLES)
def test_a_schema_keeps_what_the_released_one_promised_or_has_a_new_version(command: str) -> None:
    released = listed_keys((RELEASED / f"{JSON_SCHEMA_VERSION}.txt").read_text("utf-8"))
    assert list(broken(released.get(command, {}), schema_of(command)["$defs"]["answer"])) == []


def test_a_lost_key_another_unit_and_a_new_type_break_a_schema() -> None:
    before = {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "number", "unit": "ns"}, "b": {"type": "string"}},
    }
    after = {"type": "object", "properties": {"a": {"type": ["number", "string"], "unit": "s"}}}
    assert len(list(broken(before, after))) == 4
    assert list(broken(before, before)) == []


def test_a_list_of_keys_says_what_is_always_there_its_types_lists_and_unit() -> None:
    lines = [
        "x object", " a* number?", " b*[] boolean", " c object?", "  d[][] number|string? ns", "  e string", " f any",
        " g array|object?", "  h string", "  [] object", "   i number",
    ]  # fmt: skip
    found = listed_keys("# a comment\n" + "\n".join(lines))["x"]
    assert found["required"] == ["a", "b"]
    assert found["properties"]["a"] == {"type": ["null", "number"]}
    assert found["properties"]["b"] == {"type": "array", "items": {"type": "boolean"}}
    inner = found["properties"]["c"]["properties"]["d"]
    assert inner["unit"] == "ns"
    assert inner["items"]["items"] == {"type": ["null", "number", "string"]}
    assert found["properties"]["g"]["items"]["properties"] == {"i": {"type": "number"}}
    assert ["x object", *lines_of(found)] == lines


def test_a_key_that_no_list_names_is_noticed() -> None:
    answer = json.loads(called_here("hotspots", "d04-long-metrics.csv", "--format", "json", cwd=SAMPLES).out)
    require_listed("hotspots", Table("hotspots", (), []), answer)
    answer["head"]["another"] = 1
    with pytest.raises(AssertionError, match="/head/another"):
        require_listed("hotspots", Table("hotspots", (), []), answer)
    with pytest.raises(AssertionError, match="offset"):
        require_listed("hotspots", Table("hotspots", columns("offset"), []), {})
