"""How much of the time is in no category, and what the note on it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ncu_tools.cli import run
from ncu_tools.kernels.names.uncategorised import Uncategorised, notes_on_other
from tests.conftest import SAMPLES
from tests.support.launches import launch, table
from tests.support.ran import below_head

FFT = "void vector_fft<4096, EPT<32>, 1, 4, 70, 0, 2, 0, unsigned int, float>(float)"


def test_nothing_is_said_where_every_kernel_has_a_category_or_no_time_is_known() -> None:
    assert notes_on_other(table(launch("sgemm", ns=10.0))) == []
    assert notes_on_other(table(launch("own_kernel"))) == []


def test_the_share_and_the_largest_names_are_said() -> None:
    launches = table(*(launch(f"void own{n}<float>(float)", ns=10.0 - n) for n in range(6)), launch("sgemm", ns=55.0))
    (note,) = notes_on_other(launches)
    assert note == (
        "45.0 % of the time is in kernels whose names say no category: own0 10.0 %, own1 9.0 %, own2 8.0 %, own3 7.0 %, "
        "2 more 11.0 %"
    )


def test_recognised_kinds_without_a_category_are_named() -> None:
    launches = table(launch(FFT, ns=25.0), launch("sgemm", ns=75.0))
    assert notes_on_other(launches) == ["25.0 % of the time is of kinds that are no category: FFT 25.0 %"]


def test_failed_launches_count_for_nothing_and_averages_for_all_their_launches() -> None:
    launches = table(
        launch("own", ns=10.0, failed=True), launch("own", ns=10.0, invocations=3), launch("sgemm", ns=30.0)
    )
    assert notes_on_other(launches)[0].startswith("50.0 % of the time")


def test_two_parts_say_the_same_as_the_whole() -> None:
    one, other = table(launch("own", ns=10.0), launch(FFT, ns=5.0)), table(launch("own", ns=30.0), launch("mm", ns=5.0))
    whole = Uncategorised()
    for part in (one, other):
        found = Uncategorised()
        found.add(part)
        whole.merge(found)
    assert whole.seconds == pytest.approx(50e-9)
    assert whole.times(is_kind=False) == pytest.approx({"own": 40e-9})
    assert whole.times(is_kind=True) == pytest.approx({"FFT": 5e-9})


class TestCommands:
    def test_hotspots_by_category_has_a_row_for_each_whose_times_are_those_of_the_run(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        answers = []
        for by in ("category", "name"):
            assert run(["hotspots", str(SAMPLES / "d01-wide-raw.csv"), "--by", by, "--format", "json"]) == 0
            answers.append(json.loads(capsys.readouterr().out)["rows"])
        categories, kernels = answers
        assert [row["kernel"] for row in categories] == ["GEMM", "element-wise", "softmax"]
        for field in ("time_total_ns", "launches", "flops", "dram_bytes"):
            assert sum(row[field] for row in categories) == pytest.approx(sum(row[field] for row in kernels))

    def test_the_title_of_rows_is_category(self, capsys: pytest.CaptureFixture[str]) -> None:
        for command in ("hotspots", "roofline"):
            run([command, str(SAMPLES / "d01-wide-raw.csv"), "--by", "category"])
            assert below_head(capsys.readouterr().out).split()[0] == "category"

    @pytest.mark.parametrize("command", [["hotspots"], ["roofline"], ["roofline", "--levels", "dram,l2"]])
    @pytest.mark.parametrize("in_parquet", [False, True])
    def test_a_note_says_how_much_is_in_none(
        self, command: list[str], in_parquet: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        report = str(SAMPLES / "d12-range-nvtx.csv")
        if in_parquet:
            assert run(["parse", report, "-o", str(tmp_path / "launches.parquet")]) == 0
            report = str(tmp_path / "launches.parquet")
        assert run([command[0], report, "--by", "category", *command[1:]]) == 0
        note = "100.0 % of the time is in kernels whose names say no category: range 100.0 %"
        assert capsys.readouterr().err.count(note) == 1
