"""The instruction roofline: values computed by hand, what is missing, the command, and real reports below the issue rate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ncu_tools.roofline.instruction_roofline import InstructionRoofline, instruction_roofline, scene_of_instructions
from ncu_tools.roofline.scene import LEVELS, scene_from_json
from tests.conftest import SAMPLES
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, shared_reports, table_of

REAL = [*shared_reports("ncu_rep"), *shared_reports("ncu_rep_full"), *shared_reports("ncu_csv")]
LAUNCH = {
    "kernel_name": ["k", "k"], "device_name": ["a GPU", "a GPU"], "compute_capability": ["8.6", "8.6"],
    "duration_ns": [1e6, 3e6], "sm_clock_hz": [1e9, 1e9], "dram_bytes": [32e6, 96e6], "l2_bytes": [64e6, 64e6],
    "smsp__inst_executed.sum": [10e6, 30e6], "device__attribute_max_ipc_per_multiprocessor": [4.0, 4.0],
    "device__attribute_multiprocessor_count": [10.0, 10.0],
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": [5e6, 5e6],
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.peak_sustained": [10.0, 10.0],
    "l1tex__cycles_elapsed.avg.per_second": [1e9, 1e9],
}  # fmt: skip


def roofline_of(**changes: Any) -> InstructionRoofline:
    columns = {name: values for name, values in {**LAUNCH, **changes}.items() if values is not None}
    return instruction_roofline({"run": pa.table(columns)}, LEVELS)


def test_instructions_transactions_and_rates_are_those_computed_by_hand() -> None:
    (point,) = roofline_of().points
    assert point.instructions == 40e6
    assert point.instructions_per_s == pytest.approx(40e6 / 4e-3)
    assert point.of_issue == pytest.approx(40e6 / (4 * 10 * 1e9 * 4e-3))
    assert point.intensities == pytest.approx({"dram": 40e6 / 4e6, "l2": 40e6 / 4e6, "shared": 40e6 / 10e6})


def test_the_issue_roof_is_schedulers_times_clock_and_that_of_shared_memory_a_wavefront_per_cycle() -> None:
    roofs = {roof.unit: roof.value for roof in roofline_of().roofs}
    assert roofs["issue"] == 4 * 10 * 1e9
    assert roofs["shared"] == 10 * 1e9


def test_a_bandwidth_is_a_roof_of_sectors_of_32_bytes() -> None:
    roofs = {roof.unit: roof for roof in roofline_of(peak_l2_bytes=[640e9, 640e9]).roofs}
    assert (roofs["l2"].value, roofs["l2"].value_unit) == (640e9 / 32, "transaction/s")


def test_without_device_attributes_the_schedulers_follow_from_the_mean_of_each() -> None:
    without = {"device__attribute_max_ipc_per_multiprocessor": None, "device__attribute_multiprocessor_count": None}
    result = roofline_of(**without, **{"smsp__inst_executed.avg": [250e3, 750e3]})
    (roof,) = [roof for roof in result.roofs if roof.unit == "issue"]
    assert roof.value == 40 * 1e9
    assert "those per scheduler" in roof.source


def test_a_mean_that_is_printed_too_short_gives_no_roof() -> None:
    without = {"device__attribute_max_ipc_per_multiprocessor": None, "device__attribute_multiprocessor_count": None}
    result = roofline_of(**without, **{"smsp__inst_executed.sum": [60.0, 24.0], "smsp__inst_executed.avg": [0.8, 0.3]})
    assert not [roof for roof in result.roofs if roof.unit == "issue"]
    assert any("the issue rate has no roof" in note for note in result.notes)


def test_instructions_that_were_not_collected_are_null_and_named() -> None:
    result = roofline_of(**{"smsp__inst_executed.sum": None})
    (point,) = result.points
    assert (point.instructions, point.instructions_per_s, point.of_issue) == (None, None, None)
    assert any("ask ncu for smsp__inst_executed.sum" in note for note in result.notes)
    assert scene_of_instructions(result).not_drawn == 1


def test_transactions_that_were_not_collected_are_left_out_and_named() -> None:
    result = roofline_of(l2_bytes=None)
    assert "l2" not in result.points[0].intensities
    assert any("transactions of L2" in note and "lts__t_bytes.sum" in note for note in result.notes)


def test_instructions_follow_from_a_share_of_the_peak_with_a_note() -> None:
    share = {"smsp__inst_executed.sum": None, "sm__inst_executed.avg.pct_of_peak_sustained_elapsed": [25.0, 25.0]}
    result = roofline_of(**share)
    assert result.points[0].instructions == pytest.approx(0.25 * 40 * 1e9 * 4e-3)
    assert any("per cent of the peak" in note for note in result.notes)


def test_the_scene_is_the_same_after_json() -> None:
    scene = scene_of_instructions(roofline_of())
    assert scene_from_json(json.loads(json.dumps(scene.as_json()))) == scene
    assert scene.rate_title == "warp instructions/s"


PAGE = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",'
    '"gpu__time_duration.sum","smsp__inst_executed.sum","smsp__inst_executed.avg","sm__cycles_elapsed.avg.per_second",'
    '"dram__bytes.sum"\n'
    '"","","","","","","","","","","","nsecond","inst","inst","cycle/second","byte"\n'
    '"0","7","app","host","k(float *)","1","7","(32, 1, 1)","(80, 1, 1)","0","8.0","1000000","10000000","23148.15",'
    '"1000000000","32000000"\n'
)


def test_the_command_writes_table_and_picture_of_kernels(tmp_path: Path) -> None:
    report, picture = tmp_path / "raw.csv", tmp_path / "i.svg"
    report.write_text(PAGE, "utf-8")
    done = ran("roofline", str(report), "--instructions", "--levels", "dram", "-o", str(picture), "--format", "json")
    document = json.loads(done.stdout)
    (row,) = document["rows"]
    assert (row["dram_intensity"], row["giga_instructions_per_s"]) == (10.0, 10.0)
    assert row["of_issue"] == pytest.approx(10e6 / (432 * 1e9 * 1e-3))
    assert "Ding" in " ".join(document["notes"])
    assert scene_from_json(document["scene"]).work == "inst"
    assert picture.read_text("utf-8").startswith("<?xml")


@pytest.mark.parametrize("other", [["--points", "modules"], ["--unit", "fp32"], ["--cache-bytes", "nvidia"]])
def test_options_without_a_meaning_for_instructions_are_refused(other: list[str]) -> None:
    done = ran("roofline", str(SAMPLES / "d01-wide-raw.csv"), "--instructions", *other)
    assert done.exit_code == 2
    assert f"nothing for {other[0]}" in done.stderr


@pytest.mark.slow
@needs_shared_reports
def test_no_kernel_of_a_real_report_lies_above_a_roof() -> None:
    compared = 0
    for path in REAL:
        table = table_of(path)
        if table is None:
            continue
        result = instruction_roofline({path.name: table}, LEVELS)
        for point in result.points:
            compared += point.of_issue is not None
            assert (point.of_issue or 0.0) <= 1.0, (path.name, point)
            for roof in result.roofs:
                if roof.unit in point.intensities and point.instructions_per_s:
                    assert point.instructions_per_s / point.intensities[roof.unit] <= 1.01 * roof.value, (path, roof)
    assert compared > 20
