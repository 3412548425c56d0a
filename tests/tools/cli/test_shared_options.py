"""What several commands have in common: the selection of launches, and the titles of times."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner
from ncu_launch.errors import WrongUsage

from ncu_tools.cli.option_kinds.selection_options import require_no_dask, selection_options
from ncu_tools.cli.tables.time_titles import with_time_title, with_titles
from ncu_tools.kernels.operator_times import operator_notes, time_title
from ncu_tools.report.table import Column, Table
from ncu_tools.runs.selection import Selection


def selected(*arguments: str) -> Any:
    """What a command with these arguments gets as `only`."""
    got: list[Any] = []

    @click.command()
    @selection_options
    def command(only: Selection | None) -> None:
        got.append(only)

    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    return got[0]


class TestSelectionOptions:
    def test_without_any_there_is_no_selection(self) -> None:
        assert selected() is None

    def test_reach_the_command_together_and_may_be_repeated(self) -> None:
        only = selected("--kernel", "gemm", "--phase", "forward", "--phase", "backward", "--device", "1", "--rank", "0")
        assert isinstance(only, Selection)
        assert [pattern.pattern for pattern in only.kernels] == ["gemm"]
        assert (only.phases, only.devices, only.ranks) == (("forward", "backward"), (1,), (0,))

    def test_points_are_named_by_what_was_varied(self) -> None:
        only = selected("--point", "n=64", "--point", "m=1, n=2")
        assert only.points == ((("n", "64"),), (("m", "1"), ("n", "2")))
        assert only.title == "point n=64 or m=1,n=2"

    def test_are_refused_with_dask_which_shares_out_whole_datasets(self) -> None:
        with pytest.raises(WrongUsage, match="cannot be combined with --dask"):
            require_no_dask(selected("--rank", "0"), "local")
        require_no_dask(None, "local")
        require_no_dask(selected("--rank", "0"), None)


COLUMNS = (Column("kernel", "kernel"), Column("time_ns", "time", "time"), Column("time_ratio", "time ratio"))


class TestTitlesOfTimes:
    @pytest.mark.parametrize(("clocks", "titles"), [
        ({"self CPU"}, ["kernel", "self CPU", "self CPU ratio"]),
        ({"time"}, ["kernel", "time", "time ratio"]),
        ({"self CPU", "self GPU"}, ["kernel", "time", "time ratio"]),
    ])  # fmt: skip
    def test_are_those_of_the_only_clock_there_is(self, clocks: set[str], titles: list[str]) -> None:
        table = with_time_title(Table("hotspots", COLUMNS, [], []), time_title(clocks))
        assert [column.title for column in table.columns] == titles
        assert table.extra.get("time") == (titles[1] if titles[1] != "time" else None)

    def test_change_no_other_column(self) -> None:
        assert [column.name for column in with_titles(COLUMNS, "self GPU")] == [column.name for column in COLUMNS]

    def test_of_operators_come_with_a_note_and_those_of_kernels_with_none(self) -> None:
        (note,) = operator_notes({"self CPU"})
        assert note.startswith("times are self CPU times of PyTorch operators")
        assert operator_notes({"time"}) == []
