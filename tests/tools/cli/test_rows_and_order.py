"""`--by` says what rows are, `--sort` what they are ordered by."""

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
    ])  # fmt: skip
    def test_are_told_apart_by_their_words(self, arguments: list[str], group: str, order: str) -> None:
        assert given(*arguments) == {"group": group, "order": order}

    def test_name_the_rows_where_a_word_is_neither(self) -> None:
        result = CliRunner().invoke(command(), ["--by", "colour"])
        assert result.exit_code == 2
        assert "'name'" in result.output
        assert "'flops'" not in result.output

    def test_without_orders_leave_only_the_rows(self) -> None:
        assert given("--by", "grid", orders=Words()) == {"group": "grid"}
        assert "--sort" not in CliRunner().invoke(command(orders=Words()), ["--help"]).output

    def test_without_rows_leave_only_the_order(self) -> None:
        assert given("--sort", "flops", rows=Words()) == {"order": "flops"}
        assert "--by" not in CliRunner().invoke(command(rows=Words()), ["--help"]).output

    def test_say_what_is_meant_without_one(self) -> None:
        page = CliRunner().invoke(command(), ["--help"]).output
        assert "[default: name]" in page
        assert "[default: time]" in page

    def test_complete_what_rows_are_and_no_order(self) -> None:
        found = ShellComplete(command(), {}, "it", "_IT").get_completions(["--by"], "")
        assert [one.value for one in found] == ["name", "grid"]


def test_the_words_of_kernels_are_the_groupings_there_are() -> None:
    assert KERNEL_ROWS.words == tuple(GROUPS)


class TestCommands:
    def test_compare_takes_layers_as_rows_and_as_a_flag(self) -> None:
        by, flag = (
            CliRunner().invoke(cli, ["compare", RAW, RAW, *words]) for words in (["--by", "layer"], ["--layers"])
        )
        assert by.output == flag.output
        both = CliRunner().invoke(cli, ["compare", RAW, RAW, "--layers", "--by", "operator"])
        assert isinstance(both.exception, WrongUsage)
        assert "A row is one of operator and layer" in str(both.exception)
