"""The raw page as the window of Nsight Compute exports it: a row for each property, a column for each launch."""

from __future__ import annotations

from pathlib import Path

import pytest
from ncu_parsers.detect.text_reader import read_report
from ncu_parsers.parse.parse import parse
from ncu_parsers.report_data import report as kinds
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Report
from ncu_parsers.sources.sources import Source

from tests.conftest import SAMPLES

PAGE = """\
\ufeffID,0,1
Estimated Speedup [%],83.01,0
Function Name,gemv,relu
Demangled Name,gemv..,relu..
Original Demangled Name,"gemv(int, float *)",relu(int)
Process,[317650] python3.10,[317650] python3.10
Grid Size," 4096,    8,    1","    1,    1,    1"
Block Size [block],"   32,    1,    1","  256,    1,    1"
gpu__time_duration.sum [us],296.74,4.02
smsp__inst_executed.sum [inst],"4,582,703,104 {415}",17
dram__throughput.avg.pct_of_peak_sustained_elapsed [%],{449},{449}
"""


def read(folder: Path, text: str) -> Report:
    (folder / "page.csv").write_text(text, "utf-8")
    return read_report(Source(str(folder / "page.csv")))


def test_each_column_is_a_launch_and_each_row_a_property_or_a_metric_in_its_unit(tmp_path: Path) -> None:
    gemv, relu = read(tmp_path, PAGE).launches
    assert (gemv.launch_id, gemv.process_id, gemv.kernel_name, gemv.kernel_short) == (
        0, 317650, "gemv(int, float *)", "gemv",
    )  # fmt: skip
    assert (gemv.grid, gemv.block, relu.block) == ((4096, 8, 1), (32, 1, 1), (256, 1, 1))
    assert [launch.metrics["gpu__time_duration.sum"].value for launch in (gemv, relu)] == [
        pytest.approx(296740), pytest.approx(4020),
    ]  # fmt: skip
    assert gemv.metrics["smsp__inst_executed.sum"].value == 4582703104
    assert gemv.attributes["Process Name"] == "python3.10"


def test_a_metric_with_instances_alone_has_no_value(tmp_path: Path) -> None:
    (gemv, _) = read(tmp_path, PAGE).launches
    assert "dram__throughput.avg.pct_of_peak_sustained_elapsed" not in gemv.metrics


def test_rows_that_are_cut_longer_or_contradict_an_earlier_one_are_counted(tmp_path: Path) -> None:
    more = "sm__cycles_active.avg [cycle],7\nsmsp__warps_active.sum,1,2,3\ngpu__time_duration.sum [us],1,2\n,1,2\n\n"
    found = read(tmp_path, PAGE + more)
    assert (found.lines[kinds.BROKEN], found.lines[kinds.BLANK]) == (4, 1)
    assert found.launches[0].metrics["gpu__time_duration.sum"].value == 296740
    assert not {"sm__cycles_active.avg", "smsp__warps_active.sum"} & found.launches[0].metrics.keys()


def test_pages_below_one_another_are_all_read(tmp_path: Path) -> None:
    other = PAGE.replace("\ufeffID,0,1", "ID,2,3")
    assert [launch.launch_id for launch in read(tmp_path, PAGE + other).launches] == [0, 1, 2, 3]


@pytest.mark.parametrize("text", ["ID,0\nsm__cycles_active.avg [cycle],7\n", "ID,first\nFunction Name,gemv\n", "ID\n"])
def test_a_page_without_ids_or_names_of_kernels_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(NotAReport):
        read(tmp_path, text)


def test_the_sample_holds_the_numbers_of_the_raw_page() -> None:
    names = ["kernel_name", "grid", "block", "duration_ns", "dram_bytes", "flops_fp32"]
    turned, raw = (
        table.select(names).to_pylist()
        for name in ("d23-ui-properties.csv", "d01-wide-raw.csv")
        if (table := parse([Source(str(SAMPLES / name))]).table) is not None
    )
    assert turned == raw[:2]
