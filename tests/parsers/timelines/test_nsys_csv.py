"""CSV tables of nsys stats and of the user interface, 2020 to 2026: kernels, copies, traces, and dropped tables."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.parse.parse import parse
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Report
from ncu_parsers.sources.sources import Source

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.hotspots import hotspots
from tests.conftest import SHARED
from tests.support.installed import needs_nsys
from tests.support.reports import needs_shared_reports
from tests.support.timelines import CALLS, KERNELS, RANGES, call, database, kernel, pushed, read

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
def test_a_kernel_summary_of_any_year_gives_averages_over_launches(tmp_path: Path, header: str, row: str) -> None:
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


def test_three_decimals_are_decimals_even_if_all_numbers_are_ambiguous(tmp_path: Path) -> None:
    header = "Start,Duration,CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Name"
    _, (launch,) = parsed(written(tmp_path, header, "1.234 ms,383.682 μs,1,1,1,1,32,1,1,k"))
    assert (launch["start_ns"], launch["duration_ns"]) == pytest.approx((1.234e6, 383682.0))


def test_shapes_of_2022_are_read_from_one_cell_each(tmp_path: Path) -> None:
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


def test_a_trace_of_kernel_executions_has_the_process(tmp_path: Path) -> None:
    header = (
        "API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),Kernel Dur (ns),Total Dur (ns),"
        "PID,TID,DevId,API Function,GridXYZ,BlockXYZ,Kernel Name"
    )
    _, (launch,) = parsed(written(tmp_path, header, f'1,2,,,10,30,39,77,78,1,cudaLaunchKernel,1 1 1,64 1 1,"{NAME}"'))
    assert (launch["process_id"], launch["device_id"], launch["duration_ns"]) == (77, 1, 30.0)
    assert (launch["kernel_name"], launch["block"]) == (NAME, [64, 1, 1])


def test_summaries_of_copies_and_of_all_operations_are_read(tmp_path: Path) -> None:
    memory = SUMMARY.replace("Instances", "Count").replace("Name", "Operation")
    _, (copy,) = parsed(written(tmp_path, memory, "90.0,40,2,20,20,10,30,1,[CUDA memcpy DtoH]"))
    assert (copy["operation"], copy["invocations"], copy["duration_ns"]) == ("memcpy", 2, 20.0)
    both = SUMMARY.replace("Name", "Category,Operation")
    rows = ["90.0,40,2,20,20,10,30,1,CUDA_KERNEL,k", "10.0,4,2,2,2,1,3,1,MEMORY_OPER,[CUDA memset]"]
    _, found = parsed(written(tmp_path, both, *rows))
    assert [(row["kernel_name"], row["operation"]) for row in found] == [("k", "kernel"), ("[CUDA memset]", "memset")]


def test_several_tables_in_one_file_count_the_time_once(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "Processing [x.sqlite] with [reports/cuda_api_sum.py]...", API, "90.0,1000,2,500.0,500.0,400,600,1.0,cudaLaunchKernel",
        "", "Processing [x.sqlite] with [reports/cuda_gpu_trace.py]... ", TRACE, KERNEL_ROW,
        "", "Processing [x.sqlite] with [reports/cuda_gpu_kern_sum.py]... ", SUMMARY, f'100.0,1000,1,1,1,1,1,None,"{NAME}"',
    )  # fmt: skip
    report, rows = parsed(path)
    assert [(row["launch_id"], row["duration_ns"]) for row in rows] == [(124, 1000.0)]
    assert any("nsys kernel summary" in note for note in report.notes)


def test_tables_of_nsys_without_kernels_are_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(NotAReport, match="nsys stats --report cuda_gpu_trace"):
        read(written(tmp_path, SUMMARY.replace("Name", "Style,Range"), "90.0,10,1,10,10,10,10,0,PushPop,forward"))


def test_traces_of_two_processes_with_equal_ids_stay_two_launches(tmp_path: Path) -> None:
    one, other = tmp_path / "0_gputrace.csv", tmp_path / "1_gputrace.csv"
    one.write_text(f"{TRACE}\n{KERNEL_ROW}\n")
    other.write_text(f"{TRACE}\n{KERNEL_ROW.replace('100,1000', '117,1000')}\n")
    result = parse([Source(str(one)), Source(str(other))])
    assert result.table is not None
    assert result.table.column("start_ns").to_pylist() == [100.0, 117.0]


def test_lines_that_are_no_rows_are_counted_and_skipped(tmp_path: Path) -> None:
    report, rows = parsed(
        written(tmp_path, SUMMARY, f'100.0,10,1,10,10,10,10,None,"{NAME}"', "the program says hello", '1,"2')
    )
    assert len(rows) == 1
    assert report.skipped == {"program output": 1, "broken row": 1}


IN_COLUMNS = """
Processing [t.sqlite] with [/opt/nsight/reports/cuda_gpu_kern_sum.py]...

 ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

 Time (%)  Total Time (ns)  Instances   Avg (ns)     GridXYZ              Name
 --------  ---------------  ---------  ----------  --------------  --------------------
     99.7        1,229,567          2   614,783.5     4    2    1  void f<1, 2>(int)
      0.3            3,277          1     3,277.0                  void library::g<floa…

Processing [t.sqlite] with [/opt/nsight/reports/cuda_gpu_mem_time_sum.py]...

 ** CUDA GPU MemOps Summary (by Time) (cuda_gpu_mem_time_sum):

 Time (%)  Total Time (ns)  Count  Avg (ns)      Operation
 --------  ---------------  -----  --------  ------------------
    100.0               10      1      10.0  [CUDA memcpy HtoD]

Processing [t.sqlite] with [/opt/nsight/reports/openmp_sum.py]...
SKIPPED: t.sqlite does not contain OpenMP event data.
"""


def test_tables_in_columns_are_split_at_the_dashes_below_their_titles(tmp_path: Path) -> None:
    report, rows = parsed(written(tmp_path, *IN_COLUMNS.splitlines()))
    found = [(row["kernel_name"], row["invocations"], row["duration_ns"], row["grid"]) for row in rows]
    assert found == [
        (NAME, 2, 614783.5, [4, 2, 1]), ("void library::g<floa…", 1, 3277.0, None), ("[CUDA memcpy HtoD]", 1, 10.0, None),
    ]  # fmt: skip
    assert rows[1]["kernel_short"] == "g"
    assert any("cut 1 kernel name to the width" in note for note in report.notes)
    assert report.skipped.get("broken row") is None


def test_a_line_with_text_between_columns_is_no_row(tmp_path: Path) -> None:
    report, rows = parsed(written(tmp_path, *IN_COLUMNS.splitlines()[:8], "     the program says something in between"))
    assert (len(rows), report.skipped["program output"]) == (1, 1)


ELIDED = """
 Time (%)  Total Time (ns)  Instances  Avg (ns)  {dots}  Name
 --------  ---------------  ---------  --------  {dots}  ----
    100.0             4000          4    1000.0  {dots}  k<1>
"""


@pytest.mark.parametrize("dots", ["...", "…"])
def test_a_table_that_leaves_columns_out_is_read_by_those_that_stand(tmp_path: Path, dots: str) -> None:
    _, (launch,) = parsed(written(tmp_path, *ELIDED.format(dots=dots).splitlines()))
    assert (launch["kernel_name"], launch["invocations"], launch["duration_ns"]) == ("k<1>", 4, 1000.0)


def test_rows_in_columns_without_dashes_above_are_no_rows(tmp_path: Path) -> None:
    lines = [line for line in IN_COLUMNS.splitlines()[:7] if "----" not in line]
    with pytest.raises(NotAReport, match="no launch below it"):
        read(written(tmp_path, *lines, "     90.0        1,229,567          2  k"))


@pytest.mark.parametrize(("unit", "factor"), [("ns", 1.0), ("ms", 1e6), ("sec", 1e9)])
def test_times_without_a_unit_are_in_that_of_the_total(tmp_path: Path, unit: str, factor: float) -> None:
    header = f"Time(%),Total Time ({unit}),Instances,Average,Minimum,Maximum,Name"
    _, (launch,) = parsed(written(tmp_path, header, "33.0,4.352,2,2.176,2.0,2.352,k"))
    times = [launch[column] / factor for column in ("duration_ns", MINIMUM, MAXIMUM)]
    assert times == pytest.approx([2.176, 2.0, 2.352])


BY_RANGE = (
    "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),"
    "Kernel Name"
)


def by_range(name: str, count: int, total: int, thread: int = 7) -> str:
    return f'{name},PushPop,{thread},{thread},1,{count},{total},1.0,1.0,100,200,0.0,"{NAME}"'


def test_a_summary_by_range_gives_each_kernel_in_each_range(tmp_path: Path) -> None:
    report, rows = parsed(written(tmp_path, BY_RANGE, by_range("left", 2, 500), by_range("right", 4, 300, thread=8)))
    assert report.dialects == ["nsys kernel summary by NVTX range"]
    found = [
        (row["nvtx_path"], row["kernel_name"], row["process_id"], row["invocations"], row["duration_ns"])
        for row in rows
    ]
    assert found == [(["left"], NAME, 7, 2, 250.0), (["right"], NAME, 8, 4, 75.0)]
    assert [rows[0][column] for column in (MINIMUM, MAXIMUM)] == [100.0, 200.0]
    assert report.notes == []


def test_a_note_says_that_nested_ranges_count_launches_more_than_once(tmp_path: Path) -> None:
    report, rows = parsed(written(tmp_path, BY_RANGE, by_range("step", 6, 800), by_range("forward", 2, 500)))
    assert [row["nvtx_path"] for row in rows] == [["step"], ["forward"]]
    assert any("1 kernels are listed under several NVTX ranges" in note for note in report.notes)


def test_ranges_of_our_own_launcher_set_phase_and_module(tmp_path: Path) -> None:
    _, rows = parsed(
        written(tmp_path, BY_RANGE, by_range("ncu_bench:forward", 2, 5), by_range("ncu_bench:resnet18.fc", 1, 3))
    )
    assert [(row["nvtx_path"], row["phase"], row["module"]) for row in rows] == [
        (["forward"], "forward", None), (["resnet18.fc"], None, "resnet18.fc"),
    ]  # fmt: skip


def test_a_summary_by_range_is_dropped_if_there_is_a_plain_one(tmp_path: Path) -> None:
    plain = f'100.0,800,6,1,1,1,1,None,"{NAME}"'
    report, (row,) = parsed(written(tmp_path, BY_RANGE, by_range("step", 6, 800), "", SUMMARY, plain))
    assert (row["invocations"], row["nvtx_path"]) == (6, None)
    assert any("by NVTX range" in note for note in report.notes)


def test_the_kernel_summary_with_shapes_is_kept(tmp_path: Path) -> None:
    shaped = SUMMARY.replace(",Name", ",GridXYZ,BlockXYZ,Name")
    path = written(
        tmp_path, SUMMARY, f'100.0,30,3,10,10,10,10,None,"{NAME}"', "",
        shaped, f'60.0,20,2,10,10,10,10,None,1 1 1,32 1 1,"{NAME}"', f'40.0,10,1,10,10,10,10,None,2 1 1,32 1 1,"{NAME}"',
    )  # fmt: skip
    report, rows = parsed(path)
    assert [(row["grid"], row["invocations"]) for row in rows] == [([1, 1, 1], 2), ([2, 1, 1], 1)]
    assert any(note.startswith("left out, because the nsys kernel summary by grid and block") for note in report.notes)


REAL_REPORTS = ("nvtxkernsum", "gpukernsum", "gputrace")


@needs_nsys
@pytest.mark.parametrize("table", REAL_REPORTS)
@pytest.mark.parametrize("layout", ["csv", "column"])
def test_tables_printed_by_real_nsys_have_the_times_of_the_timeline(tmp_path: Path, table: str, layout: str) -> None:
    names = ("void gemm<1>(int)", "k2")
    kernels = [kernel(100, 1), kernel(2000, 2, end=3500), kernel(9000, 3, end=1234567, name=2)]
    whole = dict.fromkeys(("registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "gridId"), 0)
    event = {"endGlobalTid": None, "category": None, "color": None, "rangeId": None}
    tables = {
        KERNELS: [{**one, "shortName": one["demangledName"], **whole} for one in kernels],
        CALLS: [{**call(10 * number, number), "nameId": 1} for number in (1, 2, 3)],
        RANGES: [{**pushed("first", 5, 25), **event}, {**pushed("second", 26, 40), **event}],
        "TARGET_INFO_GPU": [{"id": 0, "name": "A100", "cuDevice": 0}],
        "EXPORT_META_DATA": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.0.0"}],
    }
    database(tmp_path / "t.sqlite", tables, names)
    command = ["nsys", "stats", "--report", table, "--format", layout, "--output", "-", "t.sqlite"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if "does not contain" in said.stdout:
        # What real nsys says it cannot read is not this test's concern; every other error is.
        version = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=True).stdout.strip()
        pytest.skip(
            f"{version} wants other tables than those of schema 3.0.0 made here. Install nsys 2022, as Debian has it, to run "
            f"this test (apt-get install nsight-systems). nsys says: {said.stdout[-200:]}"
        )
    assert "ERROR" not in said.stdout + said.stderr
    (tmp_path / "stats.txt").write_text(said.stdout, encoding="utf-8")
    _, rows = parsed(tmp_path / "stats.txt")
    times: dict[str, float] = {}
    for row in rows:
        times[row["kernel_name"]] = times.get(row["kernel_name"], 0) + row["duration_ns"] * (row["invocations"] or 1)
    assert times == {names[0]: 1510.0, names[1]: 1225567.0}
    if table == "nvtxkernsum":
        assert {row["kernel_name"]: row["nvtx_path"] for row in rows} == {names[0]: ["first"], names[1]: ["second"]}


@needs_shared_reports
def test_a_real_summary_is_read_with_its_printed_times() -> None:
    (path,) = (SHARED / "reports" / "nsys").glob("*.csv")
    result = parse([Source(str(path))])
    assert result.table is not None
    rows = hotspots(result.table, ceilings_of(result.table)).rows
    assert [(row.launches, round(row.time_total_ns or 0)) for row in rows] == [
        (1000, 10447701271), (1000, 696137765), (1000, 56684827), (1, 12671), (1, 2976), (1, 2560),
    ]  # fmt: skip
    assert [row.time_max_ns for row in rows][:2] == [14126110.0, 931614.0]


KERNELS_IN_COLUMNS = """ ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

 Time (%)  Total Time (ns)  Instances  Avg (ns)  Min (ns)  Max (ns)          Name
 --------  ---------------  ---------  --------  --------  --------  --------------------
    100.0          1250000       1000    1250.0      1184      5120  axpy(float *, float)
"""


def test_a_table_that_stands_twice_is_read_once_and_a_note_says_so(tmp_path: Path) -> None:
    report, (launch,) = parsed(written(tmp_path, KERNELS_IN_COLUMNS, "then everything:", KERNELS_IN_COLUMNS))
    assert (launch["invocations"], launch["duration_ns"]) == (1000, 1250.0)
    assert "1 table stands twice in the file, with the same numbers: each was read once" in report.notes


def test_tables_of_two_runs_are_said_to_be_so_with_the_times_of_both(tmp_path: Path) -> None:
    slower = KERNELS_IN_COLUMNS.replace("  1250000", "380000000").replace("  1250.0", "380000.0")
    report, launches = parsed(written(tmp_path, KERNELS_IN_COLUMNS, slower))
    assert [launch["duration_ns"] for launch in launches] == [1250.0, 380_000.0]
    (note,) = [note for note in report.notes if "tables of one kind" in note]
    assert "as of 2 runs; their sums are shown: a launch of axpy(float *, float) takes 1.25 µs and 380 µs;" in note
    assert "ncu-bench compare" in note


def test_tables_of_other_kernels_are_no_two_runs(tmp_path: Path) -> None:
    report, _ = parsed(
        written(tmp_path, KERNELS_IN_COLUMNS, KERNELS_IN_COLUMNS.replace("axpy", "gemm").replace("1184", "1183"))
    )
    assert not any("tables" in note for note in report.notes)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            ["Exporting [gpukernsum.py r.sqlite] to console... SKIPPED: r.sqlite does not contain CUDA kernel data"],
            'says: "SKIPPED: r.sqlite does not contain CUDA kernel data". Record the program again, with CUDA',
        ),
        (
            [" Time (%)  Total Time (ns)  Instances  Avg (ns)  ...  Name", " --------  ---------------  ---------  --------       ----",
             "     51.2       10,285,344        193  53,291.9       gemm"],
            'columns were left out ("..." among its titles)',
        ),
    ],
)  # fmt: skip
def test_output_of_nsys_without_a_launch_is_refused_for_the_reason_that_it_names(
    tmp_path: Path, lines: list[str], words: str
) -> None:
    result = parse([Source(str(written(tmp_path, *lines)))])
    assert words in next(iter(result.refused.values())).paragraph
