"""CSV tables of nsys stats and of the user interface, 2020 to 2026: kernels, copies, traces, and what to leave out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.parse import parse
from ncu_parsers.read import NotAReport
from ncu_parsers.report import Report
from ncu_parsers.sources import Source

from ncu_tools.ceilings import ceilings_of
from ncu_tools.hotspots import hotspots
from tests.conftest import SHARED
from tests.reports import needs_shared_reports
from tests.timelines import read

NAME = "void f<1, 2>(int)"
MINIMUM, MAXIMUM = "gpu__time_duration.sum (minimum)", "gpu__time_duration.sum (maximum)"

API = "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"
SUMMARY = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"
TRACE = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name"
)
KERNEL_ROW = f'100,1000,124,16,2,1,128,1,1,32,0.000,0.000,,,,,NVIDIA A100 (3),1,,7,"{NAME}"'
COPY_ROW = "50,25,123,,,,,,,,,,4.194,6337.5,Pinned,Device,NVIDIA A100 (3),1,,7,[CUDA memcpy Host-to-Device]"


def written(tmp_path: Path, *lines: str, encoding: str = "utf-8") -> Path:
    path = tmp_path / "stats.csv"
    path.write_text("\n".join(lines) + "\n", encoding=encoding)
    return path


def parsed(path: Path) -> tuple[Report, list[dict[str, Any]]]:
    result = parse([Source(str(path))])
    assert result.table is not None, result.refused
    return result.reports[0], result.table.to_pylist()


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name", f'62.5,4000,4,1000.0,900,1100,"{NAME}"'),
        ("Time (%),Total Time (ns),Instances,Average (ns),Minimum (ns),Maximum (ns),Name", f'62.5,4000,4,1000,900,1100,"{NAME}"'),
        (SUMMARY, f'62.5,4000,4,1000.0,990.0,900,1100,None,"{NAME}"'),
        (SUMMARY.replace("(ns)", "(us)"), f'62.5,4.000,4,1.0,0.99,0.9,1.1,0.1,"{NAME}"'),
        ("Time,Total Time,Instances,Avg,Med,Min,Max,StdDev,Name", f'62.5%,4.000 μs,4,1.000 μs,990.000 ns,900.000 ns,1.100 μs,1 ns,"{NAME}"'),
        (SUMMARY.replace(",", ";"), f'62.5;4000;4;1000.0;990.0;900;1100;100.0;{NAME}'),
    ],
    ids=["2020", "2021", "2022 with None", "in microseconds", "user interface", "semicolons"],
)  # fmt: skip
def test_a_kernel_summary_of_any_year_is_the_average_of_its_launches(tmp_path: Path, header: str, row: str) -> None:
    report, (launch,) = parsed(written(tmp_path, header, row, encoding="utf-8-sig"))
    assert (launch["source"], report.dialects) == ("nsys", ["nsys kernel summary"])
    assert (launch["kernel_name"], launch["kernel_short"], launch["invocations"]) == (NAME, "f", 4)
    assert [launch[name] for name in ("duration_ns", MINIMUM, MAXIMUM)] == pytest.approx([1000.0, 900.0, 1100.0])


@pytest.mark.parametrize(
    ("share", "time", "count"), [("48.3%", "383.682 μs", "1,000"), ("48,3%", "383,682 μs", "1.000")]
)
def test_three_decimals_are_decimals_in_any_locale(tmp_path: Path, share: str, time: str, count: str) -> None:
    header = "Time;Total Time;Instances;Avg;Med;Min;Max;StdDev;Name"
    _, (launch,) = parsed(written(tmp_path, header, ";".join([share, time, count, *[time] * 5, "k"])))
    assert launch["invocations"] == 1000
    assert launch["duration_ns"] == pytest.approx(383.682)


def test_three_decimals_are_decimals_where_nothing_else_speaks(tmp_path: Path) -> None:
    header = "Start,Duration,CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Name"
    _, (launch,) = parsed(written(tmp_path, header, "1.234 ms,383.682 μs,1,1,1,1,32,1,1,k"))
    assert (launch["start_ns"], launch["duration_ns"]) == pytest.approx((1.234e6, 383682.0))


def test_shapes_of_2022_stand_in_one_cell_each(tmp_path: Path) -> None:
    header = SUMMARY.replace(",Name", ",GridXYZ,BlockXYZ,Name")
    _, (launch,) = parsed(
        written(tmp_path, header, f'100.0,10,1,10,10,10,10,None,  16    2    1, 128    1    1,"{NAME}"')
    )
    assert (launch["grid"], launch["block"]) == ([16, 2, 1], [128, 1, 1])


def test_a_trace_has_a_row_per_launch_and_copy(tmp_path: Path) -> None:
    _, (copy, kernel) = parsed(written(tmp_path, TRACE, COPY_ROW, KERNEL_ROW))
    assert (copy["kernel_name"], copy["operation"]) == ("[CUDA memcpy Host-to-Device]", "memcpy")
    assert (copy["bytes"], copy["grid"]) == (pytest.approx(4.194e6), None)
    assert (kernel["kernel_name"], kernel["operation"], kernel["launch_id"]) == (NAME, "kernel", 124)
    assert (kernel["duration_ns"], kernel["start_ns"], kernel["bytes"]) == (1000.0, 100.0, None)
    assert (kernel["grid"], kernel["block"], kernel["stream"]) == ([16, 2, 1], [128, 1, 1], "7")
    assert (kernel["device_name"], kernel["device_id"]) == ("NVIDIA A100", 3)


def test_a_trace_of_2021_has_a_unit_per_column(tmp_path: Path) -> None:
    header = "Start(sec),Duration(nsec),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem,DymSMem,Bytes,Thru,SrcMemKd,DstMemKd,Device,Ctx,Strm,Name"
    _, (launch,) = parsed(written(tmp_path, header, "1.5,1000,1,1,1,1,32,1,1,16,0,0,,,,,V100 (0),1,7,k"))
    assert (launch["start_ns"], launch["duration_ns"]) == (1.5e9, 1000.0)


def test_a_trace_of_kernel_executions_names_the_process(tmp_path: Path) -> None:
    header = (
        "API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),Kernel Dur (ns),Total Dur (ns),"
        "PID,TID,DevId,API Function,GridXYZ,BlockXYZ,Kernel Name"
    )
    _, (launch,) = parsed(written(tmp_path, header, f'1,2,,,10,30,39,77,78,1,cudaLaunchKernel,1 1 1,64 1 1,"{NAME}"'))
    assert (launch["process_id"], launch["device_id"], launch["duration_ns"]) == (77, 1, 30.0)
    assert (launch["kernel_name"], launch["block"]) == (NAME, [64, 1, 1])


def test_times_of_copies_and_of_everything_are_summaries_too(tmp_path: Path) -> None:
    memory = SUMMARY.replace("Instances", "Count").replace("Name", "Operation")
    _, (copy,) = parsed(written(tmp_path, memory, "90.0,40,2,20,20,10,30,1,[CUDA memcpy DtoH]"))
    assert (copy["operation"], copy["invocations"], copy["duration_ns"]) == ("memcpy", 2, 20.0)
    both = SUMMARY.replace("Name", "Category,Operation")
    rows = ["90.0,40,2,20,20,10,30,1,CUDA_KERNEL,k", "10.0,4,2,2,2,1,3,1,MEMORY_OPER,[CUDA memset]"]
    _, found = parsed(written(tmp_path, both, *rows))
    assert [(row["kernel_name"], row["operation"]) for row in found] == [("k", "kernel"), ("[CUDA memset]", "memset")]


def test_of_several_tables_in_one_file_the_time_is_counted_once(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "Processing [x.sqlite] with [reports/cuda_api_sum.py]...", API, "90.0,1000,2,500.0,500.0,400,600,1.0,cudaLaunchKernel",
        "", "Processing [x.sqlite] with [reports/cuda_gpu_trace.py]... ", TRACE, KERNEL_ROW,
        "", "Processing [x.sqlite] with [reports/cuda_gpu_kern_sum.py]... ", SUMMARY, f'100.0,1000,1,1,1,1,1,None,"{NAME}"',
    )  # fmt: skip
    report, rows = parsed(path)
    assert [(row["launch_id"], row["duration_ns"]) for row in rows] == [(124, 1000.0)]
    assert any("nsys kernel summary" in note for note in report.notes)


def test_tables_of_nsys_without_kernels_are_refused_with_what_to_make(tmp_path: Path) -> None:
    with pytest.raises(NotAReport, match="nsys stats --report cuda_gpu_trace"):
        read(written(tmp_path, SUMMARY.replace("Name", "Style,Range"), "90.0,10,1,10,10,10,10,0,PushPop,forward"))


def test_traces_of_two_processes_with_equal_ids_stay_two_launches(tmp_path: Path) -> None:
    one, other = tmp_path / "0_gputrace.csv", tmp_path / "1_gputrace.csv"
    one.write_text(f"{TRACE}\n{KERNEL_ROW}\n")
    other.write_text(f"{TRACE}\n{KERNEL_ROW.replace('100,1000', '117,1000')}\n")
    result = parse([Source(str(one)), Source(str(other))])
    assert result.table is not None
    assert result.table.column("start_ns").to_pylist() == [100.0, 117.0]


def test_lines_that_are_no_rows_are_counted_and_passed_over(tmp_path: Path) -> None:
    report, rows = parsed(
        written(tmp_path, SUMMARY, f'100.0,10,1,10,10,10,10,None,"{NAME}"', "the program says hello", '1,"2')
    )
    assert len(rows) == 1
    assert report.skipped == {"program output": 1, "broken row": 1}


@needs_shared_reports
def test_a_real_summary_gives_the_times_it_prints() -> None:
    (path,) = (SHARED / "reports" / "nsys").glob("*.csv")
    result = parse([Source(str(path))])
    assert result.table is not None
    rows = hotspots(result.table, ceilings_of(result.table)).rows
    assert [(row.launches, round(row.time_total_ns or 0)) for row in rows] == [
        (1000, 10447701271), (1000, 696137765), (1000, 56684827), (1, 12671), (1, 2976), (1, 2560),
    ]  # fmt: skip
    assert [row.time_max_ns for row in rows][:2] == [14126110.0, 931614.0]
