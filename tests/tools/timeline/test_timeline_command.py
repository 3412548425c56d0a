"""ncu-bench timeline, and the lanes of export, as typed."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.notes import Note, NoteKind
from ncu_parsers.timelines.activity.activity import Window

import ncu_tools
from ncu_tools.cli.tables.timeline_output import ROWS, head_of_timeline
from ncu_tools.report.export import timeline_lanes
from ncu_tools.report.export.timeline_lanes import to_lanes
from ncu_tools.report.notebook.views import TimelineView
from ncu_tools.report.timeline_parts import PARTS_OF_TIMELINE
from ncu_tools.timeline.levers.step_advice import advice_on_timeline
from ncu_tools.timeline.load_activity import load_activity
from ncu_tools.timeline.timeline import timeline
from tests.support.activities import Call, Operation, Range, recording
from tests.support.ran import ran
from tests.support.timelines import CALLS, KERNELS, RANGES, call, database, kernel, pushed
from tests.tools.cli.test_cli import PROGRAM

MS = 1_000_000
NAMES = ("void gemm<1>(int)", "cudaLaunchKernel_v7000", "ncclDevKernel_AllReduce_Sum", "cudaStreamSynchronize_v3020")
HOSTILE = "<script>alert(1)</script>\x1b[31m"


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two steps: a kernel, copies, a collective, a wait; the second begins after 4 ms of the host."""
    kernels, calls, copies, ranges = [], [], [], []
    for step, begin in enumerate((0, 10 * MS)):
        number = 10 * step
        kernels += [
            kernel(begin + MS, number + 1, end=begin + 3 * MS),
            kernel(begin + 5 * MS, number + 2, end=begin + 6 * MS, name=3),
        ]
        copies.append({
            **kernel(begin + 3 * MS, number + 3, end=begin + 5 * MS), "bytes": 50_000_000, "copyKind": 1, "srcKind": 0,
            "dstKind": 2,
        })  # fmt: skip
        calls += [
            {**call(begin + MS - 5_000, number + 1), "nameId": 2}, {**call(begin + MS, number + 2), "nameId": 2},
            {**call(begin + MS + 10, number + 3), "nameId": 2},
            {**call(begin + 2 * MS, number + 9), "end": begin + 6 * MS + 10, "nameId": 4},
        ]  # fmt: skip
        ranges += [
            pushed(f"train_step {step}", begin, begin + 7 * MS),
            pushed("load_batch", begin + 100, begin + 990_000),
        ]
    tables = {
        KERNELS: kernels, CALLS: calls, RANGES: ranges, "CUPTI_ACTIVITY_KIND_MEMCPY": copies,
        "TARGET_INFO_GPU": [{"id": 0, "name": "NVIDIA H100 PCIe", "cuDevice": 0}],
    }  # fmt: skip
    return str(database(tmp_path_factory.mktemp("timeline") / "t.sqlite", tables, NAMES))


def test_text_has_the_verdict_and_every_part_in_80_columns(sqlite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = ran("timeline", sqlite, "--step", "^train_step")
    assert result.exit_code == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    for heading in ("Where the time goes", "Gaps by", "The longest gaps", "Copies", "Communication", "Streams"):
        assert heading in result.stdout
    assert "train_step 1" in result.stdout
    assert "pageable to device" in result.stdout
    assert "NVIDIA H100 PCIe" in result.stdout


def test_json_has_every_part_under_stable_names(sqlite: str) -> None:
    found = json.loads(ran("timeline", sqlite, "--step", "^train_step", "--format", "json").stdout)
    assert set(PARTS_OF_TIMELINE) - {"steps"} <= set(found)
    whole, first, second = found["rows"]
    assert whole["is_whole"]
    assert (first["name"], first["span_ns"]) == ("train_step 0", 7 * MS)
    assert (second["kernels"], second["copies"], second["collectives"]) == (2, 1, 1)
    for row in found["rows"]:
        causes = [value for name, value in row.items() if name in CAUSE_COLUMNS]
        assert row["busy_ns"] + row["idle_ns"] == row["span_ns"]
        assert sum(causes) == row["idle_ns"]
    assert second["data_loading_ns"] == 990_000 - 100
    assert (first["exposed_copies_ns"], first["exposed_communication_ns"]) == (2 * MS, MS)
    (copies,) = found["copies"]
    assert (copies["source_memory"], copies["bytes"]) == ("pageable", 100_000_000)
    assert copies["bytes_per_s"] == pytest.approx(25e9)
    assert copies["link_share"] == pytest.approx(25 / 64)
    assert found["verdicts"][0]["parts"][0]["share"] > 0
    assert found["waits"][0]["behind_ns"] > 0


CAUSE_COLUMNS = {
    "launch_ns", "synchronisation_ns", "allocator_ns", "module_loading_ns", "data_loading_ns", "python_ns",
    "host_code_ns", "queued_ns", "dependency_ns", "profiler_ns", "unknown_ns",
}  # fmt: skip


def test_json_has_the_verdict_on_every_step_with_evidence_metrics_and_alternatives(sqlite: str) -> None:
    found = json.loads(ran("timeline", sqlite, "--step", "^train_step", "--format", "json").stdout)
    whole, *steps = found["verdicts"]
    assert (whole["is_whole"], whole["name"]) == (True, "whole recording")
    assert {one["name"] for one in steps} == {"train_step 0", "train_step 1"}
    for verdict in found["verdicts"]:
        (row,) = [one for one in found["rows"] if one["name"] == verdict["name"]]
        assert {name: row[name] for name in verdict["metrics"]} == verdict["metrics"]
        assert sum(part["time_ns"] for part in verdict["parts"]) == row["span_ns"]
    assert all(verdict["evidence"] for verdict in found["verdicts"] if verdict["bound"])


def test_verdicts_are_a_part_whose_steps_come_by_what_they_could_save(sqlite: str) -> None:
    told = ran("timeline", sqlite, "--step", "^train_step", "--part", "verdicts")
    assert told.exit_code == 0
    assert "train_step 1" in told.stdout
    assert "What bounds each step" in told.stdout
    table = ran("timeline", sqlite, "--step", "^train_step", "--part", "verdicts", "--format", "csv").stdout
    assert next(row["name"] for row in csv.DictReader(io.StringIO(table))) == "whole recording"
    assert "What bounds each step" not in ran("timeline", sqlite).stdout  # no steps: the verdict above says it


def test_a_collective_of_a_trace_has_its_bytes_and_bus_bandwidth_in_json(tmp_path: Path) -> None:
    called = {
        "Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "Group size": 4,
        "dtype": "Float", "device": 0, "stream": 7,
    }  # fmt: skip
    events = [{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL()", "pid": 0, "tid": 7,
               "ts": 100, "dur": 2, "args": called}]  # fmt: skip
    trace = tmp_path / "trace.json.gz"
    trace.write_bytes(gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()))
    (one,) = json.loads(ran("timeline", str(trace), "--format", "json").stdout)["collectives"]
    assert (one["bytes"], one["ranks"], one["outliers"]) == (4000, 4, 0)
    assert one["bus_bytes_per_s"] == pytest.approx(4000 * 2 * 3 / 4 / 2e-6)


def test_csv_is_one_part(sqlite: str) -> None:
    rows = list(csv.DictReader(io.StringIO(ran("timeline", sqlite, "--format", "csv").stdout)))
    assert rows[0]["name"] == "whole recording"
    rows = list(csv.DictReader(io.StringIO(ran("timeline", sqlite, "--part", "gaps", "--format", "csv").stdout)))
    assert {row["cause"] for row in rows} >= {"host code", "data loading"}
    refused = ran("timeline", sqlite, "--part", "gaps,copies", "--format", "csv")
    assert refused.exit_code == 2
    assert "CSV is one table" in refused.stderr


def test_markdown_has_a_heading_for_each_part(sqlite: str) -> None:
    text = ran("timeline", sqlite, "--part", "copies,waits", "--format", "markdown").stdout
    assert "## Copies" in text
    assert "| GPU |" in text
    assert "cudaStreamSynchronize" in text


def test_a_trimmed_time_is_the_span(sqlite: str) -> None:
    found = json.loads(ran("timeline", sqlite, "--trim", "2ms,4.5ms", "--format", "json").stdout)
    assert [row["span_ns"] for row in found["rows"]] == [2_500_000]
    assert ran("timeline", sqlite, "--trim", "0.002,0.0045").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--trim", "4ms"), "no start and end"), (("--trim", "a,b"), "no start and end"),
        (("--trim", "5s,6s"), "leaves nothing"), (("--step", ""), "--step was given no pattern"),
        (("--trim", ""), "no start and end"), (("--step", "no such"), "names no range"),
        (("--step", "("), "regular expression"), (("--part", "gasp"), "gaps"), (("--machine", "abacus"), "no machine"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_wrong_usage(sqlite: str, arguments: tuple[str, ...], said: str) -> None:
    result = ran("timeline", sqlite, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_recording_without_gpu_work_says_what_it_has(tmp_path: Path) -> None:
    made = database(tmp_path / "cpu.sqlite", {RANGES: [pushed("work", 0, 5)], "ANALYSIS_DETAILS": []})
    result = ran("timeline", str(made))
    assert result.exit_code == 1
    assert "holds no GPU work" in result.stderr
    assert "1 ranges of the host" in result.stderr


def test_a_recording_without_gpu_work_says_what_was_lost_of_it_and_no_other_note() -> None:
    notes = [Note("the file was cut", NoteKind.LOST), "a kernel called left out was seen"]
    empty = recording([], [Call(0, 1)], notes=notes)
    with pytest.raises(NcuBenchError, match="no GPU work that could be read") as refused:
        timeline(empty)
    assert refused.value.cause == "It has 1 API calls. Besides, the file was cut."


def test_a_trace_of_a_cpu_says_so_too(tmp_path: Path) -> None:
    events = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]
    trace = tmp_path / "trace.json.gz"
    trace.write_bytes(gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()))
    result = ran("timeline", str(trace))
    assert result.exit_code == 1
    assert "holds no GPU work" in result.stderr


def test_parsed_launches_give_what_they_have_and_say_what_is_missing(sqlite: str, tmp_path: Path) -> None:
    assert ran("parse", sqlite, "-o", str(tmp_path / "launches.parquet")).exit_code == 0
    result = ran("timeline", str(tmp_path / "launches.parquet"))
    assert "from a table of launches" in result.stdout
    assert "recorded by" not in result.stdout
    result = ran("timeline", str(tmp_path / "launches.parquet"), "--format", "json")
    found, whole = json.loads(result.stdout), json.loads(ran("timeline", sqlite, "--format", "json").stdout)
    assert any("operations alone" in note for note in found["notes"])
    for name in ("busy_ns", "compute_ns", "exposed_copies_ns", "exposed_communication_ns"):
        assert found["rows"][0][name] == whole["rows"][0][name]
    before = whole["rows"][0]["span_ns"] - found["rows"][0]["span_ns"]
    assert before == found["origin_ns"] - (whole["origin_ns"] + whole["rows"][0]["start_ns"]) > 0
    assert found["rows"][0]["unknown_ns"] == found["rows"][0]["idle_ns"]
    assert found["rows"][0]["bound"] is None


def test_a_run_folder_is_read_from_its_recording(sqlite: str, tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "t.sqlite").write_bytes(Path(sqlite).read_bytes())
    assert load_activity(str(tmp_path)).tool == "nsys"
    (tmp_path / "reports" / "u.sqlite").write_bytes(Path(sqlite).read_bytes())
    result = ran("timeline", str(tmp_path))
    assert result.exit_code == 2
    assert "2 recordings: t.sqlite, u.sqlite" in result.stderr


def test_a_table_of_two_recordings_of_one_gpu_is_no_timeline(sqlite: str, tmp_path: Path) -> None:
    """Each counts its time from its own zero; of different processes they stay apart."""
    other, apart = (database(tmp_path / f"{name}.sqlite", {
        KERNELS: [{**kernel(MS, 1, end=2 * MS), **more}], CALLS: [{**call(10, 1), "nameId": 2}],
    }, NAMES) for name, more in (("other", {}), ("apart", {"globalPid": 9 << 24})))  # fmt: skip
    for second, code in ((other, 2), (apart, 0)):
        both = tmp_path / f"{second.stem}.parquet"
        assert ran("parse", sqlite, str(second), "-o", str(both)).exit_code == 0
        result = ran("timeline", str(both))
        assert (result.exit_code, "holds 2 recordings" in result.stderr) == (code, code == 2), result.stderr


def test_the_timeline_of_a_run_of_ncu_is_found_beside_the_json_of_the_run(sqlite: str, tmp_path: Path) -> None:
    for name in ("manifest.json", "modules.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "timeline" / "reports").mkdir(parents=True)
    (tmp_path / "timeline" / "reports" / "t.sqlite").write_bytes(Path(sqlite).read_bytes())
    assert load_activity(str(tmp_path)).tool == "nsys"


def test_the_json_of_a_run_is_no_recording(tmp_path: Path) -> None:
    for name in ("manifest.json", "modules.json"):
        (tmp_path / name).write_text("{}")
    result = ran("timeline", str(tmp_path))
    assert result.exit_code == 1
    assert "holds no timeline" in result.stderr


def test_a_folder_without_a_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("nothing")
    result = ran("timeline", str(tmp_path))
    assert result.exit_code == 1
    assert "holds no timeline" in result.stderr


def test_counts_of_ncu_have_no_timeline() -> None:
    result = ran("timeline", "sample_reports/d01-wide-raw.csv")
    assert result.exit_code == 1
    assert "no times of a timeline" in result.stderr


def test_rows_beyond_those_shown_are_counted(sqlite: str) -> None:
    result = ran("timeline", sqlite, "--part", "steps", "--step", "^train", "--top", "1")
    assert "2 more rows; --top shows more" in result.stderr
    assert set(ROWS) == set(PARTS_OF_TIMELINE)
    assert (min(ROWS.values()), max(ROWS.values())) == (6, 16)  # as the help says
    found = json.loads(ran("timeline", sqlite, "--top", "1", "--format", "json").stdout)
    assert len(found["rows"]) == len(found["gaps"]) == 1


def test_gpus_of_one_number_are_told_apart_by_their_processes() -> None:
    found = timeline(recording([Operation(0, 9), Operation(20, 30, process=8)]))
    table = PARTS_OF_TIMELINE["steps"].table(found, whole=False)
    assert table.columns[0].name == "process"
    assert [row["process"] for row in table.rows] == [7, 8]
    alone = timeline(recording([Operation(0, 9), Operation(20, 30, device=1)]))
    assert PARTS_OF_TIMELINE["steps"].table(alone, whole=False).columns[0].name == "gpu"


def test_the_head_of_a_trimmed_recording_counts_the_operations_in_its_time() -> None:
    """Whatever the format: of nsys only a part was read, of a trace all of it."""
    operations = [Operation(0, 9), Operation(20, 30), Operation(40, 50)]
    whole = timeline(recording(operations))
    assert "3 GPU operations," in head_of_timeline(whole).line()
    cut = timeline(recording(operations), trim=Window(15, 35))
    assert "1 GPU operation in the time of --trim," in head_of_timeline(cut).line()
    assert advice_on_timeline(cut) is None


def test_names_cannot_act_on_a_terminal_or_a_page() -> None:
    found = timeline(recording([Operation(0, 9, HOSTILE), Operation(20, 30, HOSTILE)]))
    assert "GPUs" not in head_of_timeline(found).line()
    page = TimelineView(found)._repr_html_()
    assert "<script>" not in page
    assert json.loads(to_lanes(found))["traceEvents"]


def test_waits_of_several_processes_are_told_apart_by_them_and_those_of_one_are_not() -> None:
    waits = PARTS_OF_TIMELINE["waits"]
    found = timeline(recording([Operation(0, 9), Operation(20, 30, process=8, device=1)]))
    assert waits.table(found, whole=False).columns[0].name == "process"
    one = timeline(recording([Operation(0, 9), Operation(20, 30, device=1)]))
    assert waits.table(one, whole=False).columns[0].name == "call"


@pytest.mark.slow
def test_a_real_process_runs_it(sqlite: str) -> None:
    done = subprocess.run(
        [*PROGRAM, "timeline", sqlite, "--part", "steps"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "whole recording" in done.stdout


# --------------------------------------------------------------------------------------------- lanes, and the notebook


def lanes(path: str, folder: Path) -> dict[str, Any]:
    written = folder / "trace.json"
    result = ran("report", path, "-o", str(written), "--as", "perfetto", "--lanes")
    assert result.exit_code == 0, result.stderr
    assert "ui.perfetto.dev" in result.stderr
    found: dict[str, Any] = json.loads(written.read_text("utf-8"))
    return found


def test_lanes_hold_streams_gaps_calls_and_ranges_as_they_were(sqlite: str, tmp_path: Path) -> None:
    events = lanes(sqlite, tmp_path)["traceEvents"]
    slices = [one for one in events if one["ph"] == "X"]
    assert {one["cat"] for one in slices} == {"kernel", "memcpy", "gap", "range", "launch", "synchronisation"}
    origin = MS - 5_000  # the first API call
    kernels = sorted(one["ts"] for one in slices if one["cat"] == "kernel")
    assert kernels[0] == (MS - origin) / 1000
    gaps = sum(round(one["dur"] * 1000) for one in slices if one["cat"] == "gap")
    (gpu,) = timeline(load_activity(sqlite)).gpus
    assert gaps == gpu.whole.idle_ns
    names = {one["args"]["name"] for one in events if one["name"] == "thread_name"}
    assert {"stream 7", "gaps by cause", "steps", "thread 7: ranges", "thread 7: API calls"} <= names
    ids = {one["tid"] for one in slices} | {one["pid"] for one in slices}
    assert all(0 <= number < 2**31 for number in ids)


def test_operations_of_a_stream_that_overlap_are_on_lanes_of_their_own() -> None:
    """Slices of a lane have to nest."""
    found = timeline(recording([Operation(0, 100), Operation(60, 160), Operation(90, 120), Operation(160, 200)]))
    events = json.loads(to_lanes(found))["traceEvents"]
    titles = {one["tid"]: one["args"]["name"] for one in events if one["name"] == "thread_name"}
    lane_of = {round(1000 * one["ts"]): titles[one["tid"]] for one in events if one.get("cat") == "kernel"}
    assert lane_of == {0: "stream 7", 60: "stream 7 (2)", 90: "stream 7 (3)", 160: "stream 7"}


def test_lanes_name_kernels_shortly_and_give_the_full_names_as_arguments() -> None:
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
    found = timeline(recording([Operation(0, 100, name=name), Operation(100, 200, name="plain")]))
    events = json.loads(to_lanes(found))["traceEvents"]
    named = {one["name"]: one["args"].get("full_name") for one in events if one.get("cat") == "kernel"}
    assert named == {"elementwise add fp32": name, "plain": None}


def test_steps_of_several_threads_that_overlap_are_on_lanes_of_their_own() -> None:
    ranges = [Range(0, 100, "step 1"), Range(50, 150, "step 2", thread=71), Range(100, 200, "step 3")]
    calls = [Call(10, 12, correlation=1), Call(60, 62, correlation=2, thread=71), Call(110, 112, correlation=3)]
    operations = [Operation(15, 40, calls=1), Operation(65, 95, calls=2), Operation(120, 130, calls=3)]
    found = timeline(recording(operations, calls, ranges), step=re.compile("^step"))
    events = json.loads(to_lanes(found))["traceEvents"]
    titles = {one["tid"]: one["args"]["name"] for one in events if one["name"] == "thread_name" and one["pid"] >= 10**7}
    lane_of = {one["name"]: titles[one["tid"]] for one in events if one.get("cat") == "step"}
    assert lane_of == {"step 1": "steps", "step 2": "steps (2)", "step 3": "steps"}
    assert list(titles.values()).count("steps (2)") == 1


@pytest.mark.parametrize("arguments", [("--as", "csv"), ("--as", "perfetto", "--depth", "2")])
def test_lanes_go_with_perfetto_alone(sqlite: str, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = ran("report", sqlite, "-o", str(tmp_path / "t.json"), "--lanes", *arguments)
    assert result.exit_code == 2
    assert "--lanes" in result.stderr


def test_a_run_in_a_notebook_has_its_timeline(sqlite: str) -> None:
    view = ncu_tools.load(sqlite).timeline(step="^train_step", trim=(0.0, 0.02))
    assert list(view.table["name"]) == ["trimmed recording", "train_step 0", "train_step 1"]
    assert view.table["busy_ns"].dtype == "Int64"
    assert set(view.part("gaps")["cause"]) >= {"data loading"}
    assert "GPU 0" in repr(view)
    assert "Gaps by" in view._repr_html_()
    with pytest.raises(WrongUsage):
        view.part("gasp")


def test_a_joined_run_gives_the_operations_of_its_timeline(sqlite: str, tmp_path: Path) -> None:
    counts = Path("sample_reports/d01-wide-raw.csv").resolve()
    joined = tmp_path / "joined.parquet"
    done = ran("parse", str(counts), "--times", sqlite, "-o", str(joined), "--anyway")
    assert done.exit_code == 0, done.stderr
    found = json.loads(ran("timeline", str(joined), "--format", "json").stdout)
    whole = json.loads(ran("timeline", sqlite, "--format", "json").stdout)
    assert found["rows"][0]["busy_ns"] == whole["rows"][0]["busy_ns"]


def test_lanes_drop_no_range_that_overlaps_another_one_of_its_thread_without_nesting() -> None:
    made = recording(
        [Operation(0, 10, "k")],
        ranges=[Range(0, 100, "outer"), Range(10, 50, "within"), Range(40, 90, "across"), Range(95, 100, "behind")],
    )
    events = json.loads(to_lanes(timeline(made)))["traceEvents"]
    lanes = {event["name"]: event["tid"] for event in events if event.get("cat") == "range"}
    assert lanes["outer"] == lanes["within"] == lanes["behind"] != lanes["across"]
    titles = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert {"thread 70: ranges", "thread 70: ranges (2)"} <= set(titles)


def test_lanes_say_what_ran_alone_and_which_lever_changes_an_operation() -> None:
    made = recording(
        [Operation(0, 100 * MS, "ampere_sgemm_128x64_nn", 1), Operation(90 * MS, 95 * MS, "other", 2, stream=8)],
        [Call(0, 1, correlation=1), Call(90 * MS - 5_000, 90 * MS - 4_000, correlation=2)],
    )
    events = json.loads(to_lanes(timeline(made)))["traceEvents"]
    first, second = (event["args"] for event in events if event.get("cat") == "kernel")
    assert (first["exclusive_ns"], second["exclusive_ns"]) == (95 * MS, 0)
    assert first["levers"] == ["use tensor cores for FP32 GEMMs"]


def test_lanes_say_the_share_of_the_roof_that_kernels_reach() -> None:
    made = recording([Operation(0, 10, "void known<1, 2, 3>(float*)"), Operation(20, 30, "unknown")])
    events = json.loads(to_lanes(timeline(made), {"void known<1, 2, 3>(float*)": 0.25}))["traceEvents"]
    known, unknown = (event["args"] for event in events if event.get("cat") == "kernel")
    assert known["% of roof"] == 25
    assert "% of roof" not in unknown


def test_a_recording_without_modules_is_exported_as_it_was(sqlite: str, tmp_path: Path) -> None:
    traces = [tmp_path / "own.perfetto.json", tmp_path / "lanes.perfetto.json"]
    for out, more in zip(traces, ([], ["--lanes"]), strict=True):
        done = ran("report", sqlite, "-o", str(out), *more)
        assert done.exit_code == 0, done.stderr
    assert traces[0].read_text() == traces[1].read_text()


def test_operations_that_all_overlap_have_lanes_in_time_in_proportion() -> None:
    count = 20_000
    tracks = timeline_lanes._tracks([7] * count, list(range(count)), [2 * count] * count)
    assert tracks == [(7, depth) for depth in range(count)]
    assert timeline_lanes._tracks([7] * 4, [0, 1, 5, 6], [5, 10, 6, 8]) == [(7, 0), (7, 1), (7, 0), (7, 0)]
