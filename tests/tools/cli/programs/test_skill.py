"""The skill for assistants: where it is installed, and that each command in it exists."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import yaml

from tests.support.called_here import called_here
from tests.support.pages.options_page import commands

SKILL = files("ncu_tools.cli.programs").joinpath("skills", "ncu-bench", "SKILL.md").read_text("utf-8")


def test_it_is_one_folder_that_replaces_an_older_copy(tmp_path: Path) -> None:
    path = tmp_path / "skills" / "ncu-bench" / "SKILL.md"
    for _ in range(2):
        done = called_here("mcp", "--skill", "skills", cwd=tmp_path)
        assert (done.code, done.out) == (0, "wrote skills/ncu-bench/SKILL.md\n")
        assert path.read_text("utf-8") == SKILL
        path.write_text("older", "utf-8")


def test_a_file_in_its_place_is_said(tmp_path: Path) -> None:
    (tmp_path / "skills").touch()
    assert called_here("mcp", "--skill", "skills", cwd=tmp_path).code != 0


def test_its_front_matter_has_the_name_of_its_folder_and_says_when_to_use_it() -> None:
    _, front, text = SKILL.split("---\n", 2)
    known = yaml.safe_load(front)
    assert known["name"] == "ncu-bench"
    assert 100 < len(known["description"]) <= 1024
    assert "Use when" in known["description"]
    assert len(text.splitlines()) < 100


def test_each_command_in_it_exists_with_its_options() -> None:
    known = commands()
    found = re.findall(r"`ncu-bench (\w+) ([^`]*)`", SKILL)
    assert len(found) >= 8
    for name, words in found:
        options = {
            option for view, one in known.items() if view.split()[0] == name for p in one.params for option in p.opts
        }
        assert set(re.findall(r"(?<!\S)--[a-z][a-z-]+", words)) <= options, (name, words)
