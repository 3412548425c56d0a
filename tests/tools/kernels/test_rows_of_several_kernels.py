"""Rows that are several kernels: rates and a bound only where the work of nearly all of their time is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema import arrays
from ncu_parsers.schema.operator_columns import OPERATOR_BYTES, OPERATOR_CALL, OPERATOR_FLOPS, OPERATOR_UNIT
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.ceilings.machine_files import machines
from ncu_tools.kernels.diagnosis.diagnose import diagnoses
from ncu_tools.kernels.diagnosis.sums import DiagnosisSums
from ncu_tools.kernels.hotspots import SEVERAL_AS_ONE, hotspots
from ncu_tools.kernels.kernel_row import Hotspots
from ncu_tools.kernels.view.columns.column_names import MEAN, RATIO, ChosenColumn
from ncu_tools.kernels.view.columns.column_sums import ColumnSums
from ncu_tools.numbers.row_sums import MOSTLY_KNOWN, or_none
from ncu_tools.roofline.point_sums import points_of
from ncu_tools.roofline.roofline import Look, roofline
from ncu_tools.roofline.scene import MODULES, OPERATORS, PHASES, RUNS, scene_from_json
from ncu_tools.roofline.scene_builder import scene_of
from ncu_tools.runs.loading import on_disk
from tests.support.launches import by_title, launch, metric, number_of, sass, table, taken, tensor

COUNTED, UNCOUNTED = "ampere_sgemm_128x64_nn", "cutlass_80_tensorop_gemm_of_its_own"
"""Two kernels of the category GEMM."""
A100 = {"Device Name": "NVIDIA A100-SXM4-40GB"}


def two_gemms(share_counted: float, group: str = "category") -> Hotspots:
    """A GEMM with counts for this share of 1 ms, and one without for the rest."""
    counted = launch(COUNTED, sass(ffma=1e6), ns=share_counted * 1e6, dram=1e6, attributes=A100)
    rest = launch(UNCOUNTED, {}, ns=(1 - share_counted) * 1e6, attributes=A100)
    launches = table(counted, rest)
    return hotspots(launches, ceilings_of(launches), group=group)


def test_a_category_whose_work_is_mostly_unknown_has_no_rate_and_no_bound_and_a_note_says_so() -> None:
    found = two_gemms(MOSTLY_KNOWN - 0.2)
    (row,) = found.rows
    assert (row.kernel, row.launches) == ("GEMM", 2)
    assert (row.flops_per_s, row.dram_bytes_per_s, row.arithmetic_intensity) == (None, None, None)
    assert (row.bound, row.bound_fraction, row.headroom_ns) == (None, None, None)
    assert (row.unit, row.flops_lower_bound) == (None, False)
    assert any(note.startswith("no rate or bound of GEMM where ") and "--by name" in note for note in found.notes)


def test_a_category_whose_work_is_nearly_known_keeps_its_rate() -> None:
    found = two_gemms(MOSTLY_KNOWN + 0.05)
    (row,) = found.rows
    assert row.flops_per_s == pytest.approx(2e6 / ((MOSTLY_KNOWN + 0.05) * 1e-3))
    assert (row.unit, row.flops_lower_bound) == ("fp32", True)
    assert not any(note.startswith("no rate") for note in found.notes)


def test_a_category_known_for_just_as_much_of_its_time_as_is_asked_for_is_in_no_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ncu_tools.kernels.hotspots.MOSTLY_KNOWN", 0.75)
    made = [launch(COUNTED, sass(ffma=1e6), ns=3e9, dram=1e6, attributes=A100), launch(UNCOUNTED, {}, ns=1e9)]
    found = hotspots(launches := table(*made), ceilings_of(launches), group="category")
    assert not any(note.startswith("no rate") for note in found.notes)
    assert found.rows[0].flops_per_s == pytest.approx(2e6 / 3)


def test_a_category_with_bytes_but_flops_of_a_small_part_has_a_rate_of_bytes_alone() -> None:
    made = [launch(COUNTED, sass(ffma=1e6), ns=1e5, dram=1e6), launch(UNCOUNTED, {}, ns=9e5, dram=1e6)]
    (row,) = hotspots(launches := table(*made), ceilings_of(launches), group="category").rows
    assert row.dram_bytes_per_s == pytest.approx(2e9)
    assert (row.flops_per_s, row.arithmetic_intensity) == (None, None)


def test_a_category_of_kernels_without_one_is_in_a_note() -> None:
    found = hotspots(launches := table(launch("own_kernel", ns=9.0)), ceilings_of(launches), group="category")
    assert any("whose names say no category: own_kernel" in note for note in found.notes)


def test_a_row_of_one_kernel_keeps_the_rate_of_the_launches_that_have_counts() -> None:
    rows = {row.kernel: row for row in two_gemms(0.1, group="name").rows}
    assert rows[COUNTED].flops_per_s == pytest.approx(2e6 / 0.1e-3)
    assert rows[UNCOUNTED].flops_per_s is None


def test_a_kernel_counted_in_some_launches_counts_whole_as_in_a_row_of_its_own() -> None:
    """A recording that begins in the middle of a step knows the operators of later launches alone."""
    counted = launch(COUNTED, sass(ffma=1e6), ns=0.2e6, dram=1e6, attributes=A100)
    launches = table(counted, launch(COUNTED, {}, ns=0.8e6, attributes=A100))
    (row,) = hotspots(launches, ceilings_of(launches), group="category").rows
    assert row.flops_per_s == pytest.approx(2e6 / 0.2e-3)


def test_a_roofline_by_category_has_no_place_for_a_category_that_is_mostly_unknown() -> None:
    counted = launch(COUNTED, sass(ffma=1e6), ns=0.2e6, dram=1e6, attributes=A100)
    launches = table(counted, launch(UNCOUNTED, {}, ns=0.8e6, attributes=A100))
    found = roofline({"run": launches}, look=Look(group="category"))
    assert (found.noun, [point.hotspot.flops_per_s for point in found.points]) == ("category", [None])
    scene = scene_of(found)
    assert (scene.noun, scene.not_drawn, scene.marks) == ("category", 1, [])
    assert scene_from_json(scene.as_json()).noun == "category"


def copies(share_with_bytes: float) -> pa.Table:
    """Calls of one operator in 1 ms: a kernel whose bytes are known for this share of it, and copies from the host."""
    known = launch("elementwise_copy", {}, ns=share_with_bytes * 1e6, attributes=A100)
    launches = table(known, launch("Memcpy HtoD", {}, ns=(1 - share_with_bytes) * 1e6, attributes=A100))
    own = {
        "operator": arrays.dictionary(["aten::copy_"] * 2),
        OPERATOR_CALL: arrays.floats(np.array([0.0, 1.0])),
        OPERATOR_FLOPS: arrays.floats(np.array([0.0, 0.0])),
        OPERATOR_BYTES: arrays.floats(np.array([share_with_bytes * 1e-3 * 1e12, np.nan])),
        OPERATOR_UNIT: arrays.dictionary([None] * 2),
    }
    for column, values in own.items():
        place = launches.schema.get_field_index(column)
        launches = launches.append_column(column, values) if place < 0 else launches.set_column(place, column, values)
    return launches


def test_a_kernel_saves_no_more_than_the_time_in_which_it_ran_alone_on_its_gpu() -> None:
    gemm = launch("gemm", sass(ffma=1e6) | tensor(), ns=1e6, dram=1e6, attributes=A100)
    launches = table(gemm, launch("copy", {}, ns=1e6))
    beside = launches.append_column("exclusive_ns", pa.array([3e5, 3e5]))
    (alone,), (overlapped,) = (
        [row for row in hotspots(one, ceilings_of(one, machines()["a100-sxm4-40gb"])).rows if row.kernel == "gemm"]
        for one in (launches, beside)
    )
    assert alone.headroom_ns is not None
    assert alone.headroom_ns > 0.9e6
    assert overlapped.headroom_ns == pytest.approx(3e5)
    assert (overlapped.bound, overlapped.bound_fraction) == (alone.bound, alone.bound_fraction)


def test_an_operator_whose_bytes_are_known_for_a_small_part_of_its_time_has_no_rate_bound_or_headroom() -> None:
    little, nearly = (
        hotspots(launches, ceilings_of(launches, machines()["a100-sxm4-40gb"]), group="operator")
        for launches in (copies(0.13), copies(0.95))
    )
    (row,) = little.rows
    assert (row.kernel, row.least_bytes_per_s, row.flops) == ("aten::copy_", None, 0)
    assert (row.bound, row.bound_fraction, row.headroom_ns) == (None, None, None)
    assert any(note.startswith("no rate or bound of aten::copy_ where ") for note in little.notes)
    (row,) = nearly.rows
    assert (row.bound, row.least_bytes_per_s) == ("DRAM", pytest.approx(1e12))
    assert not any(note.startswith("no rate") for note in nearly.notes)


def test_the_bytes_of_an_operator_are_those_of_no_kernel() -> None:
    launches = copies(0.95)
    rows = hotspots(launches, ceilings_of(launches, machines()["a100-sxm4-40gb"])).rows
    assert [row.least_bytes for row in rows] == [None, None]


def test_a_function_of_several_kernels_has_no_rate_where_its_work_is_mostly_unknown() -> None:
    counted = launch("void gemm<float>(float*)", sass(ffma=1e6), ns=0.2e6, dram=1e6, attributes=A100)
    launches = table(counted, launch("void gemm<double>(double*)", {}, ns=0.8e6, attributes=A100))
    (row,) = hotspots(launches, ceilings_of(launches), group="short").rows
    assert (row.launches, row.flops_per_s, row.bound) == (2, None, None)


def in_part(share_counted: float) -> pa.Table:
    """Two GEMMs in one module of one phase, of which one with this share of 1 ms has counts."""
    counted = launch(COUNTED, sass(ffma=1e6), ns=share_counted * 1e6, dram=1e6, attributes=A100)
    launches = table(counted, launch(UNCOUNTED, {}, ns=(1 - share_counted) * 1e6, attributes=A100))
    for column, name in (("module", "Model_0.Linear_0"), ("phase", "forward")):
        launches = launches.set_column(launches.schema.get_field_index(column), column, arrays.dictionary([name] * 2))
    return launches


def test_an_operator_of_a_roofline_has_no_bound_where_its_work_is_mostly_unknown() -> None:
    machine = machines()["a100-sxm4-40gb"]
    for look in (Look(view=OPERATORS), Look(group="operator")):
        (little,) = roofline({"run": copies(0.13)}, machine, look=look).points
        (nearly,) = roofline({"run": copies(0.95)}, machine, look=look).points
        assert (little.hotspot.bound, nearly.hotspot.bound) == (None, "DRAM")


@pytest.mark.parametrize("view", [MODULES, PHASES, RUNS])
def test_a_module_phase_or_run_of_a_roofline_has_no_rate_where_its_work_is_mostly_unknown(view: str) -> None:
    (little,) = roofline({"run": in_part(0.2)}, look=Look(view=view)).points
    (nearly,) = roofline({"run": in_part(0.95)}, look=Look(view=view)).points
    assert (little.hotspot.flops_per_s, little.hotspot.arithmetic_intensity, little.places) == (None, None, ())
    assert nearly.hotspot.flops_per_s == pytest.approx(2e6 / 0.95e-3)
    assert [place.intensity for place in nearly.places] == [2.0]
    notes = roofline({"run": in_part(0.2)}, look=Look(view=view)).notes
    assert any(note.startswith(f"no rate or bound of {little.hotspot.kernel} where ") for note in notes)


@pytest.mark.parametrize("view", [MODULES, PHASES, RUNS])
def test_a_file_of_launches_has_the_same_points_as_its_table(view: str, tmp_path: Path) -> None:
    write_table(with_metadata(in_part(0.2), {"schema_version": SCHEMA_VERSION}), tmp_path / "run.parquet")
    run, look = on_disk(str(tmp_path / "run.parquet")), Look(view=view)
    assert run is not None
    of_file = points_of(run, None, look)
    (of_table,) = roofline({run.name: in_part(0.2)}, look=look).points
    assert (of_file.spots.rows, of_file.places.get(of_table.hotspot.kernel, ())) == ([of_table.hotspot], ())


def test_a_category_with_flops_but_bytes_of_a_small_part_has_a_rate_of_flops_alone_and_a_note() -> None:
    whole = launch(COUNTED, sass(ffma=1e6), ns=0.2e6, dram=1e6, attributes=A100)
    without_bytes = launch(UNCOUNTED, sass(ffma=1e6), ns=0.8e6, attributes=A100)
    launches = table(whole, without_bytes)
    found = hotspots(launches, ceilings_of(launches), group="category")
    (row,) = found.rows
    assert row.flops_per_s == pytest.approx(4e6 / 1e-3)
    assert (row.dram_bytes_per_s, row.arithmetic_intensity) == (None, None)
    assert any(note.startswith("no rate or bound of GEMM where ") for note in found.notes)


def test_rows_of_which_too_little_is_known_are_named_by_their_time() -> None:
    launches = [
        launch(name, counts, ns=ns, attributes=A100, nvtx_path=(part,))
        for part, ns in (("short", 1e3), ("long", 9e3))
        for name, counts in ((COUNTED, sass(ffma=1e6)), (UNCOUNTED, {}))
    ]
    whole = table(*launches)
    found = hotspots(whole, ceilings_of(whole), group="nvtx")
    assert any(note.startswith("no rate or bound of long, short where ") for note in found.notes)


def test_three_rows_with_too_little_known_are_named_and_the_rest_counted() -> None:
    def note(parts: str) -> str:
        launches = [
            launch(name, counts, ns=1e3, attributes=A100, nvtx_path=(part,))
            for part in parts
            for name, counts in ((COUNTED, sass(ffma=1e6)), (UNCOUNTED, {}))
        ]
        found = hotspots(made := table(*launches), ceilings_of(made), group="nvtx")
        return next(one for one in found.notes if one.startswith("no rate")).partition(" where ")[0]

    assert note("abc") == "no rate or bound of a, b, c"
    assert note("abcde") == "no rate or bound of a, b, c and 2 more"


def test_a_row_of_several_kernels_without_a_time_has_no_rate_and_is_in_no_note() -> None:
    launches = table(launch(COUNTED, sass(ffma=1e6), dram=1e6), launch(UNCOUNTED, sass(ffma=1e6), dram=1e6))
    found = hotspots(launches, ceilings_of(launches), group="category")
    assert [(row.kernel, row.flops, row.flops_per_s, row.arithmetic_intensity) for row in found.rows] == [
        ("GEMM", 4e6, None, None)
    ]
    assert not any(note.startswith("no rate") for note in found.notes)


@pytest.mark.filterwarnings("error")
def test_no_share_is_taken_of_a_time_of_zero() -> None:
    launches = table(launch(COUNTED, sass(ffma=1e6), ns=0), launch(UNCOUNTED, ns=0))
    assert hotspots(launches, ceilings_of(launches), group="category").rows[0].flops_per_s is None


OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"


@pytest.mark.parametrize(("share", "mean"), [(0.2, None), (0.95, pytest.approx(0.5))])
def test_a_diagnosis_of_a_category_takes_no_mean_of_a_small_part_of_its_time(share: float, mean: float | None) -> None:
    counted = launch(COUNTED, {OCCUPANCY: metric(50.0, "%")}, ns=share * 1e6, attributes=A100)
    rest = launch(UNCOUNTED, {}, ns=(1 - share) * 1e6, attributes=A100)
    sums = taken(lambda: DiagnosisSums("category"), table(counted, rest))
    assert or_none(float(sums.quantities()["achieved"][number_of(sums, "GEMM")])) == mean


HALF_GEMM, HALF_GEMV, HALF_COPY = "ampere_hgemm_128x64_nn", "gemv2T_kernel<__half>", "copy_kernel<__half>"


@pytest.mark.parametrize(("second", "is_product"), [(HALF_GEMM, True), (HALF_COPY, False), (HALF_GEMV, False)])
def test_a_row_of_several_kernels_is_a_matrix_product_only_if_each_of_them_is(second: str, is_product: bool) -> None:
    """Else tensor cores would be called idle for all of the time of which a small part is a matrix product."""
    both = table(launch(HALF_GEMM, ns=1e5, nvtx_path=("step",)), launch(second, ns=9e5, nvtx_path=("step",)))
    sums = taken(lambda: DiagnosisSums("nvtx"), both)
    inputs = sums.inputs(number_of(sums, "step"))
    assert inputs.type == "fp16"
    assert (inputs.is_product and not inputs.is_vector) == is_product


def test_few_blocks_of_a_row_of_several_kernels_are_those_of_its_launches_that_have_few() -> None:
    sizes = {
        "device__attribute_multiprocessor_count": metric(148.0),
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": metric(5.0),
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": metric(5.0),
    }
    small, large = ({**sizes, "launch__grid_size": metric(blocks)} for blocks in (32.0, 1480.0))
    launches = [launch(name, counts, ns=5e5, nvtx_path=("step",)) for name, counts in (("a", small), ("b", large))]
    whole = table(*launches)
    rows = hotspots(whole, ceilings_of(whole), group="nvtx").rows
    text = diagnoses(whole, rows, "nvtx")[rows[0].key].text
    assert text.startswith(
        "few blocks in 1 of 2 launches (50 % of the time): 32 for 148 SMs, so 78 % of the SMs have no"
    )


@pytest.mark.parametrize(("share", "expected"), [(0.2, None), (0.95, pytest.approx(50.0))])
def test_a_column_of_a_category_has_no_mean_of_a_small_part_of_its_time(share: float, expected: float | None) -> None:
    counts = {OCCUPANCY: metric(50.0, "%"), "part": metric(100.0), "whole": metric(2.0)}
    counted = launch(COUNTED, counts, ns=share * 1e6, attributes=A100)
    rest = launch(UNCOUNTED, {}, ns=(1 - share) * 1e6, attributes=A100)
    mean = ChosenColumn("occupancy", "occupancy", (OCCUPANCY,), MEAN)
    quotient = ChosenColumn("quotient", "quotient", ("part",), RATIO, over="whole")
    sums = taken(lambda: ColumnSums([mean, quotient], "category"), table(counted, rest))
    by_name = taken(lambda: ColumnSums([mean, quotient], "name"), table(counted, rest))
    for column in (mean, quotient):
        assert by_title(sums.values(column)) == {"GEMM": expected}
        assert by_title(by_name.values(column)) == {COUNTED: 50.0, UNCOUNTED: None}
        assert sums.leaves_out(column) == (expected is None)
        assert not by_name.leaves_out(column)


def test_a_range_or_a_graph_is_not_asked_for_counters_that_only_a_kernel_has() -> None:
    found = hotspots(launches := table(launch("range", ns=1e6), launch("k", ns=1e3)), ceilings_of(launches))
    assert any(note.startswith("1 of 2 launches has no FLOP counts") for note in found.notes)
    assert f"1 of 2 launches are ranges or graphs: {SEVERAL_AS_ONE}" in found.notes


def test_a_kernel_named_graph_is_a_kernel_where_it_has_a_grid() -> None:
    found = hotspots(launches := table(launch("graph", ns=1e6, grid=(4, 1, 1))), ceilings_of(launches))
    assert not any(SEVERAL_AS_ONE in note for note in found.notes)
