"""What is named in place of a guessed word can be typed."""

from __future__ import annotations

import shlex

import click

from ncu_tools.cli import COMMANDS as TYPED
from ncu_tools.cli.guessed_words import COMMANDS, OPTIONS, VALUES
from ncu_tools.cli.old_names import OLD_NAMES
from tests.conftest import SAMPLES
from tests.support.pages.examples import misunderstood
from tests.support.pages.options_page import options
from tests.support.ran import ran


def test_every_command_that_is_named_is_understood() -> None:
    said = {words: misunderstood(shlex.split(words)) for words in COMMANDS.values()}
    assert {words: why for words, why in said.items() if why} == {}


def test_every_command_in_place_of_an_option_or_a_value_is_understood() -> None:
    said = [*OPTIONS.values(), *(words for guesses in VALUES.values() for words in guesses.values())]
    named = [shlex.split(words.replace(" N", " 1"))[1:] for words in said if words.startswith("ncu-bench ")]
    assert [why for why in map(misunderstood, named) if why] == []


def test_one_launch_is_shown_by_kernel_and_all_of_them_by_query() -> None:
    report = str(SAMPLES / "d01-wide-raw.csv")
    assert "ncu-bench kernel REPORT --launch N" in ran("hotspots", report, "--launch", "1").stderr
    assert 'ncu-bench query REPORT "SELECT launch_id,' in ran("hotspots", report, "--by", "launch").stderr


def test_every_option_and_value_that_is_named_exists() -> None:
    known = {name for names in options() for name in names.split(", ")}
    named = [words for one in OPTIONS.values() for words in one.split("; ") if words.startswith("-")]
    assert {words.split()[0] for words in named} <= known
    for option, guesses in VALUES.items():
        kinds = [
            one.type for names, found in options().items() if option in names.split(", ") for one in found.values()
        ]
        taken = {choice for kind in kinds if isinstance(kind, click.Choice) for choice in kind.choices}
        assert {words for words in guesses.values() if " " not in words} <= taken


def test_no_guessed_command_exists() -> None:
    assert COMMANDS.keys().isdisjoint([*TYPED, *OLD_NAMES])


def test_a_report_without_a_command_is_told_the_first_one_to_type() -> None:
    report = str(SAMPLES / "d01-wide-raw.csv")
    assert f"Type: ncu-bench hotspots {report}." in ran(report).stderr
    assert "Type:" not in ran("no-such-report.csv").stderr
