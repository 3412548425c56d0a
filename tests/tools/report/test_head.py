"""The line above a table names the run, its device, launches and time, and fits the width; and what costs most."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest
from ncu_launch.files.manifest import Manifest, write_manifest
from ncu_launch.notes import Note, NoteKind
from ncu_launch.workload_spec import Workload

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.kernel_row import Hotspot
from ncu_tools.report.first_sentences import first_kernel
from ncu_tools.report.head import Head, cut_in_the_middle, head_of, short_run, told_apart
from ncu_tools.runs.selection import Selection
from tests.conftest import SAMPLES
from tests.support.launches import launch, metric, sass, table, tensor
from tests.support.ran import ran

A40 = {"device__attribute_display_name": metric("A40")}
FORWARD = Selection(phases=("forward",))
LONG = "a" * 60 + "kernel_0001" + "b" * 60 + ".ncu-rep"
WHOLE = Head((f"reports/{LONG}",), ("NVIDIA A40",), 2, 9.434e6, settings=("batch 8",), more=("GPU busy 91.9 %",))


def test_the_line_names_run_device_launches_time_and_how_it_was_run() -> None:
    line = Head(("runs/one",), ("NVIDIA A40",), 1200, 9.434e6, settings=("batch 8",), more=("GPU busy 91.9 %",)).line()
    assert line == "one: NVIDIA A40, 1,200 launches, 9.434 ms, batch 8, GPU busy 91.9 %"


def test_what_is_not_known_is_left_out() -> None:
    assert Head(("report.csv",)).line() == "report.csv"
    assert Head(("report.csv",), launches=1).line() == "report.csv: 1 launch"


def test_a_time_that_is_no_gpu_time_says_so() -> None:
    assert Head(("run",), time_ns=2e9, time_title="self CPU").line() == "run: 2 s self CPU"


@pytest.mark.parametrize("width", [40, 80, 100, 160])
def test_the_line_fits_the_width_with_start_and_end_of_the_name(width: int) -> None:
    line = WHOLE.line(width)
    assert len(line) <= width
    assert line.startswith("aaa")
    assert ".ncu-rep: NVIDIA A40" in line


def test_what_stands_last_is_left_out_first() -> None:
    assert "GPU busy" in WHOLE.line(100)
    assert "batch 8" in WHOLE.line(75)
    assert "GPU busy" not in WHOLE.line(75)


def test_many_runs_and_devices_are_counted() -> None:
    assert Head(("a", "b"), ("A40", "L4")).line() == "a, b: A40, L4"
    assert Head(("a", "b", "c"), ("A40", "L4", "T4")).line() == "3 runs: 3 devices"


def test_names_have_no_folders_and_cannot_act_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert short_run("s3://bucket/fleet/") == "fleet"
    assert short_run(".") == tmp_path.name
    assert short_run("-") == "standard input"
    assert "\x1b" not in Head(("\x1b[2J",), ("\x1b[2J",), first="\x1b[2J").text()


def test_a_run_folder_says_how_its_model_was_run(tmp_path: Path) -> None:
    workload = Workload("resnet18", batch_size=8, input_size=64, dtype="bf16", autocast=True, phases=("forward",))
    write_manifest(Manifest([], "ncu", "", workload=asdict(workload)), tmp_path)
    (tmp_path / "of_a_file").mkdir()
    settings = ("resnet18", "batch 8", "size 64", "bf16 autocast", "eager", "forward")
    assert head_of([str(tmp_path)]).settings == settings
    assert head_of([str(tmp_path / "report.csv")]).settings == ()
    write_manifest(Manifest([], "ncu", "", workload=asdict(Workload("/home/me/model.py:make"))), tmp_path / "of_a_file")
    assert head_of([str(tmp_path / "of_a_file")]).settings[:2] == ("model.py:make", "batch 1")
    assert head_of([str(tmp_path), "other"]).settings == ()
    assert head_of([str(tmp_path)], only=FORWARD).settings == ("phase forward", *settings)


def test_launches_tell_device_count_and_time_without_those_that_failed() -> None:
    launches = table(launch(metrics=A40, ns=10), launch(metrics=A40, ns=20), launch(metrics=A40, failed=True))
    found = head_of(["r"], launches)
    assert (found.devices, found.launches, found.time_ns) == (("A40",), 2, 30)
    assert head_of(["r"], table(launch(ns=10), launch())).time_ns is None
    assert head_of(["r"], table(launch(capability="9.0"))).devices == ("compute capability 9.0",)


def test_notes_put_what_they_say_in_short_there_but_not_on_a_part_of_the_launches() -> None:
    notes = ["plain", Note("the GPU was busy", NoteKind.IN_HEAD, "GPU busy 12.0 %")]
    assert head_of(["r"], None, notes).more == ("GPU busy 12.0 %",)
    assert head_of(["r"], None, notes, only=FORWARD).more == ()


def test_runs_of_the_same_name_are_told_apart_by_their_folders() -> None:
    heads = [Head(("before/report.csv",), launches=1), Head(("after/report.csv",), launches=2)]
    assert [one.line() for one in told_apart(heads)] == ["before/report.csv: 1 launch", "after/report.csv: 2 launches"]
    assert [one.line() for one in told_apart([heads[0], Head(("x/b.csv",))])] == ["report.csv: 1 launch", "b.csv"]


def test_a_run_beside_itself_keeps_its_name() -> None:
    twice = [Head(("reports/kernels_of_a_long_day.ncu-rep",))] * 2
    assert [one.line() for one in told_apart(twice)] == ["kernels_of_a_long_day.ncu-rep"] * 2


def test_a_text_is_cut_in_its_middle() -> None:
    assert cut_in_the_middle("abcdefghij", 10) == "abcdefghij"
    assert cut_in_the_middle("abcdefghij", 5) == "ab…ij"


def kernels(*launches: tuple[str, float, float]) -> list[Hotspot]:
    """Rows of launches, each a name, a time in ns and FMAs, with a FP32 peak of 100 FLOP/ns and no DRAM traffic."""
    peak = {
        "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": metric(50.0, "inst"),
        "sm__cycles_elapsed.avg.per_second": metric(1e9, "hz"),
    }
    rows = table(*(launch(name, sass(ffma=fmas) | tensor() | peak, ns=ns, dram=0.0) for name, ns, fmas in launches))
    return hotspots(rows, ceilings_of(rows)).rows


def test_the_first_kernel_is_said_with_its_share_and_bound() -> None:
    assert first_kernel(kernels(("a", 75.0, 3000.0), ("b", 25.0, 0.0))) == (
        "a takes 75.0 % of the time, bound by FP32 at 80.0 % of its roof"
    )


def test_a_kernel_far_below_its_roof_is_not_called_bound_by_it_and_what_is_busier_is_named() -> None:
    far = kernels(("a", 75.0, 1500.0), ("b", 25.0, 0.0))
    assert first_kernel(far) == "a takes 75.0 % of the time, reaches 40.0 % of its nearest roof, FP32"
    busy = [replace(far[0], sm_busy=0.35, memory_busy=0.648), far[1]]
    assert (first_kernel(busy) or "").endswith("reaches 40.0 % of its nearest roof, FP32; memory 64.8 % busy")


def test_nothing_is_said_of_a_kernel_alone_without_a_bound_or_of_unknown_times() -> None:
    rows = table(launch("a", ns=10))
    assert first_kernel(hotspots(rows, ceilings_of(rows)).rows) is None
    rows = table(launch("a"), launch("b", ns=10))
    assert first_kernel(hotspots(rows, ceilings_of(rows)).rows) is None


@pytest.mark.parametrize("title", ["(no operator)", "(range not known)"])
def test_rows_of_which_nothing_is_known_are_not_said_first(title: str) -> None:
    a, b = kernels(("a", 75.0, 0.0), ("b", 25.0, 0.0))
    assert (first_kernel([replace(a, kernel=title), b], by_name=False) or "").startswith("b takes 25.0 %")


def test_a_row_is_named_in_the_first_sentence_as_in_its_table() -> None:
    by_grid = ran("hotspots", str(SAMPLES / "d01-wide-raw.csv"), "--by", "grid").stdout
    assert "first: gemm bf16 128x256x32 tn (32, 16, 1) x (256, 1, 1) takes" in by_grid
    by_range = ran("hotspots", str(SAMPLES / "d12-range-nvtx.csv"), "--by", "nvtx").stdout
    assert [line.split()[0] for line in by_range.splitlines()[3:4]] == ["range"]
