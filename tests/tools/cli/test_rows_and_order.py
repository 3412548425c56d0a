"""`--by` says what rows are, `--sort` what they are ordered by; orders under `--by` and `--group` are the old words."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from ncu_launch.errors import WrongUsage

from ncu_tools.cli import cli
from ncu_tools.cli.option_kinds.rows_and_order import KERNEL_ROWS, Words, rows_and_order
from ncu_tools.kernels.kernel_row import GROUPS
from tests.conftest import ROOT

RAW = str(ROOT / "sample_reports" / "d01-wide-raw.csv")
ROWS = Words(("name", "grid"), "What a row is.", "name")
ORDER = Words(("time", "flops"), "What rows are ordered by.", "time")


def command(rows: Words = ROWS, orders: Words = ORDER) -> click.Command:
    @click.command()
    @rows_and_order(rows, orders)
    def found(**given: Any) -> None:
        click.echo(json.dumps(given))

    return found


def given(*arguments: str, rows: Words = ROWS, orders: Words = ORDER) -> dict[str, Any]:
    result = CliRunner().invoke(command(rows, orders), arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.output)
    return answer


class TestByAndSort:
    @pytest.mark.parametrize(("arguments", "group", "order"), [
        ([], "name", "time"),
        (["--by", "grid"], "grid", "time"),
        (["--sort", "flops"], "name", "flops"),
        (["--by", "grid", "--sort", "flops"], "grid", "flops"),
        (["--by", "flops"], "name", "flops"),
        (["--group", "grid"], "grid", "time"),
        (["--by", "flops", "--group", "grid"], "grid", "flops"),
        (["--by", "flops", "--sort", "flops"], "name", "flops"),
    ])  # fmt: skip
    def test_are_told_apart_by_their_words(self, arguments: list[str], group: str, order: str) -> None:
        assert given(*arguments) == {"group": group, "order": order}

    @pytest.mark.parametrize("arguments", [["--by", "flops", "--sort", "time"], ["--by", "grid", "--group", "name"]])
    def test_are_refused_where_two_words_contradict(self, arguments: list[str]) -> None:
        with pytest.raises(WrongUsage, match="takes one word, and was given"):
            CliRunner().invoke(command(), arguments, catch_exceptions=False)

    def test_name_the_rows_where_a_word_is_neither(self) -> None:
        result = CliRunner().invoke(command(), ["--by", "colour"])
        assert result.exit_code == 2
        assert "'name'" in result.output
        assert "'flops'" not in result.output

    def test_without_orders_leave_only_the_rows(self) -> None:
        assert given("--by", "grid", orders=Words()) == {"group": "grid"}
        assert "--sort" not in CliRunner().invoke(command(orders=Words()), ["--help"]).output

    def test_without_rows_take_an_order_under_the_old_name(self) -> None:
        assert given("--by", "flops", rows=Words()) == {"order": "flops"}
        assert "--by" not in CliRunner().invoke(command(rows=Words()), ["--help"]).output

    def test_hide_the_old_option_and_say_what_is_meant_without_one(self) -> None:
        page = CliRunner().invoke(command(), ["--help"]).output
        assert "--group" not in page
        assert "[default: name]" in page
        assert "[default: time]" in page

    def test_complete_what_rows_are_and_no_order(self) -> None:
        found = ShellComplete(command(), {}, "it", "_IT").get_completions(["--by"], "")
        assert [one.value for one in found] == ["name", "grid"]


def test_the_words_of_kernels_are_the_groupings_there_are() -> None:
    assert KERNEL_ROWS.words == tuple(GROUPS)


class TestCommands:
    @pytest.mark.parametrize(("old", "new"), [
        (["hotspots", RAW, "--by", "headroom"], ["hotspots", RAW, "--sort", "headroom"]),
        (["hotspots", RAW, "--by", "dram", "--group", "grid"], ["hotspots", RAW, "--by", "grid", "--sort", "dram"]),
        (["roofline", RAW, "--group", "short"], ["roofline", RAW, "--by", "short"]),
        (["compare", RAW, RAW, "--by", "time"], ["compare", RAW, RAW, "--sort", "time"]),
    ])  # fmt: skip
    def test_answer_the_same_to_old_and_new_words(self, old: list[str], new: list[str]) -> None:
        before, after = (CliRunner().invoke(cli, [*words, "--format", "json"]) for words in (old, new))
        assert before.exit_code == 0, before.output
        assert before.stdout == after.stdout

    def test_compare_takes_layers_as_rows_and_as_a_flag(self) -> None:
        by, flag = (
            CliRunner().invoke(cli, ["compare", RAW, RAW, *words]) for words in (["--by", "layer"], ["--layers"])
        )
        assert by.output == flag.output
        both = CliRunner().invoke(cli, ["compare", RAW, RAW, "--layers", "--by", "operator"])
        assert isinstance(both.exception, WrongUsage)
        assert "A row is one of operator and layer" in str(both.exception)
