"""Two runs of one program are joined to one table of launches, or reported as not matching."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.parse import parse as parsing
from ncu_parsers.parse.parse import parse, parse_into
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.parse.two_run_join import join_runs
from ncu_parsers.report_data.report import Launch, Metric

BYTES, ADDS = "dram__bytes.sum", "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"


def launch(name: str, number: float, metric: str, process: int, **more: object) -> Launch:
    made = Launch(name, process_id=process, grid=(1, 1, 1), block=(32, 1, 1), **more)  # type: ignore[arg-type]
    made.metrics[metric] = Metric(number, 1.0, "")
    return made


def runs(names: list[str], again: list[str]) -> tuple[list[Launch], list[Launch]]:
    """Two runs in which the counter of each launch is its index among launches of that name."""
    first: list[Launch] = []
    second: list[Launch] = []
    for metric, process, order, into in ((BYTES, 1, names, first), (ADDS, 2, again, second)):
        for number, name in enumerate(order):
            into.append(launch(name, order[:number].count(name), metric, process))
    return first, second


@given(st.lists(st.sampled_from("abc"), max_size=30), st.randoms())
def test_launches_of_a_kernel_are_matched_in_order_whatever_the_order_of_kernels(
    names: list[str], chance: random.Random
) -> None:
    again = names.copy()
    chance.shuffle(again)
    first, second = runs(names, again)
    joined = join_runs(first, second)
    assert joined.mismatch == ""
    assert joined.matched == len(names)
    for one in first:
        assert one.metrics[BYTES].value == one.metrics[ADDS].value
        assert one.process_id == 1


def test_a_kernel_launched_more_often_in_the_second_run_is_named_and_not_joined() -> None:
    first, second = runs(["a", "b", "b"], ["a", "b", "b", "b"])
    joined = join_runs(first, second)
    assert joined.matched == 1
    assert "b 2 and 3 launches" in joined.mismatch
    assert "not deterministic" in joined.mismatch
    assert [ADDS in one.metrics for one in first] == [True, False, False]


def test_a_kernel_only_in_the_second_run_is_a_mismatch() -> None:
    first, second = runs(["a"], ["a", "z"])
    assert "z 0 and 1 launches" in join_runs(first, second).mismatch


def test_an_aborted_second_run_joins_the_launches_that_it_has() -> None:
    first, second = runs(["a", "b", "b"], ["a", "b"])
    joined = join_runs(first, second, ended_early=True)
    assert joined == type(joined)(2, "")
    assert [ADDS in one.metrics for one in first] == [True, True, False]


def test_shape_and_range_distinguish_launches() -> None:
    first = [
        launch("a", 1, BYTES, 1, nvtx_path=("forward",)),
        launch("a", 2, BYTES, 1, nvtx_path=("backward",)),
    ]
    second = [
        launch("a", 2, ADDS, 2, nvtx_path=("backward",)),
        launch("a", 1, ADDS, 2, nvtx_path=("forward",)),
    ]
    assert join_runs(first, second).mismatch == ""
    assert [one.metrics[ADDS].value for one in first] == [1, 2]
    second[0].grid = (2, 1, 1)
    assert join_runs([launch("a", 2, BYTES, 1, nvtx_path=("backward",))], second[:1]).mismatch


def test_a_launch_that_failed_in_either_run_failed() -> None:
    first, second = runs(["a"], ["a"])
    second[0].failed = True
    join_runs(first, second)
    assert first[0].failed


class TestARunFolderWithoutTables:
    """A run of `profile` that was stopped before it wrote them leaves the reports of its two runs."""

    @staticmethod
    def folder(
        path: Path, first: list[str], second: list[str], replayed: Sequence[str] = (), under: str = "reports"
    ) -> list[str]:
        (path / under).mkdir()
        for name, process, metric, kernels in (
            ("ncu.csv", 1, BYTES, first),
            ("ncu-instructions.csv", 2, ADDS, second),
            ("ncu-replayed.csv", 3, BYTES, replayed),
        ):
            if not kernels:
                continue
            lines = [
                f'"ID","Process ID","Kernel Name","Block Size","Grid Size","Device","CC","{metric}"',
                '"","","","","","","",""',
                *(
                    f'"{number}","{process}","{kernel}","(32, 1, 1)","(1, 1, 1)","0","9.0","{number + 1}"'
                    for number, kernel in enumerate(kernels)
                ),
            ]
            (path / under / name).write_text("\n".join(lines) + "\n", "utf-8")
        return [str(path)]

    def test_has_each_launch_once_with_the_counters_of_both_runs(self, tmp_path: Path) -> None:
        parsed = parse(find_sources(self.folder(tmp_path, ["a", "b", "a"], ["a", "b", "a"])))
        assert parsed.table is not None
        assert parsed.table.column("kernel_name").to_pylist() == ["a", "b", "a"]
        assert parsed.table.column(BYTES).to_pylist() == parsed.table.column(ADDS).to_pylist() == [1, 2, 3]
        assert any("3 of 3 launches were collected in two runs of the program" in note for note in parsed.notes)

    def test_whose_second_run_was_stopped_keeps_the_launches_of_the_first(self, tmp_path: Path) -> None:
        parsed = parse(find_sources(self.folder(tmp_path, ["a", "b", "a"], ["a"])))
        assert parsed.table is not None
        assert parsed.table.column(ADDS).to_pylist() == [1, None, None]
        assert not any("not deterministic" in note for note in parsed.notes)

    def test_whose_second_run_launched_more_says_that_the_counters_do_not_belong_together(self, tmp_path: Path) -> None:
        parsed = parse(find_sources(self.folder(tmp_path, ["a"], ["a", "a"])))
        assert parsed.table is not None
        assert len(parsed.table) == 1
        assert any("not deterministic" in note for note in parsed.notes)

    def test_whose_two_runs_were_being_replaced_by_one_has_the_launches_of_that_alone(self, tmp_path: Path) -> None:
        parsed = parse(find_sources(self.folder(tmp_path, ["a", "b", "a"], ["a", "c", "a"], replayed=["a", "b"])))
        assert parsed.table is not None
        assert parsed.table.column("kernel_name").to_pylist() == ["a", "b"]
        assert set(parsed.table.column("process_id").to_pylist()) == {3}
        assert any("ncu-replayed.csv is of the run that replaces" in note for note in parsed.notes)

    def test_is_read_alike_where_reports_are_large(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        sources = find_sources(self.folder(tmp_path, ["a", "b"], ["a", "b"]))
        monkeypatch.setattr(parsing, "STREAMED_FROM_BYTES", 1)
        assert parse_into(tmp_path / "out.parquet", sources).table is not None

    def test_is_no_reason_to_join_other_files_or_with_separate(self, tmp_path: Path) -> None:
        sources = find_sources(self.folder(tmp_path, ["a"], ["a"]))
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        kept = parse(sources, join=False).table
        other = parse(find_sources(self.folder(elsewhere, ["a"], ["a"], under="kept"))).table
        assert kept is not None
        assert other is not None
        assert len(kept) == len(other) == 2
