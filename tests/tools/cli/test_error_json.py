"""Errors of commands that were asked for JSON: one JSON object on standard output in every case."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ncu_tools.cli.shell.error_json import asks_for_json, error_json
from tests.conftest import SAMPLES
from tests.support.called_here import called_here


def test_an_error_is_json_with_its_code_what_happened_and_what_to_type(tmp_path: Path) -> None:
    found = called_here("hotspots", "nowhere.csv", "--format", "json", cwd=tmp_path)
    told = json.loads(found.out)
    assert told["command"] == "hotspots"
    assert told["error"]["code"] == found.code == 1
    assert told["error"]["kind"] == "failed"
    assert "nowhere.csv does not exist" in told["error"]["message"]
    assert told["error"]["to_type"]
    assert "Error: nowhere.csv does not exist" in found.err


@pytest.mark.parametrize("words", [("--format", "json"), ("--format=json",)])
def test_wrong_usage_is_json_too(words: tuple[str, ...], tmp_path: Path) -> None:
    found = called_here("roofline", "--nothing", *words, cwd=tmp_path)
    assert (json.loads(found.out)["error"]["kind"], found.code) == ("wrong_usage", 2)


def test_without_json_an_error_leaves_standard_output_empty(tmp_path: Path) -> None:
    assert called_here("hotspots", "nowhere.csv", cwd=tmp_path).out == ""


def test_an_error_after_the_json_of_a_table_does_not_add_a_second_object() -> None:
    """A gate that is refused ends the command after its table."""
    base, new = str(SAMPLES / "d04-long-metrics.csv"), str(SAMPLES / "d02-long-rules.csv")
    words = ("compare", base, new, "--anyway", "--fail-on", "kernel:nothing_is_called_so:time>5%", "--format", "json")
    found = called_here(*words, cwd=SAMPLES)
    assert found.code != 0
    json.loads(found.out)


def test_the_last_word_of_a_line_asks_for_nothing() -> None:
    assert not asks_for_json(["hotspots", "--format"])
    assert not asks_for_json([])
    assert json.loads(error_json("", 3, "x"))["error"]["kind"] == "failed"
