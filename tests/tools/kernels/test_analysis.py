"""Hotspots, ceilings and rooflines: pure functions on small tables with known answers."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import asdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.counters.chips import chip_of
from ncu_launch.counters.metric_groups import select
from ncu_launch.workload.record_format import FORMAT, FORMAT_VERSION
from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.report_data.operator_records import OperatorFile
from ncu_parsers.report_data.report import Report

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.kernels.hotspots import flop_metrics, hotspots
from ncu_tools.kernels.kernel_row import Hotspot, Hotspots, kernels_table, run_total, used_units
from ncu_tools.report.plot.roofline_plot import draw
from ncu_tools.roofline.roofline import roofline
from tests.support.launches import launch, metric, sass, table, tensor
from tests.support.nightly import one_in

A100 = find_machine("a100-sxm4-40gb")
NAME = {"device__attribute_display_name": metric("NVIDIA A100-SXM4-40GB")}


def spots(*launches: object, by: str = "time", group: str = "name", machine: object = A100) -> Hotspots:
    made = table(*launches)  # type: ignore[arg-type]
    return hotspots(made, ceilings_of(made, machine), by=by, group=group)  # type: ignore[arg-type]


def one(*launches: object, **options: object) -> Hotspot:
    (row,) = spots(*launches, **options).rows  # type: ignore[arg-type]
    return row


def operators() -> pa.Table:
    """A table of the embedded collector: one operator."""
    page = OperatorFile(json.dumps({FORMAT: FORMAT_VERSION, "device": "cpu", "device_name": "a CPU"}))
    record = {"operator": "aten.mm", "iteration": 0, "phase": "forward", "module": "m", "ns": 100.0, "flops": 20}
    record |= {"contraction_flops": 20, "unit": "fp32"}
    page.feed(json.dumps(record | {"read": 5, "written": 5, "dtype": "float32", "shapes": "2x2"}))
    return launches_table(Report("operators.jsonl", dialects=["operators"], launches=page.launches()))


class TestHotspots:
    def test_times_of_a_kernel_are_summed_averaged_and_spread(self) -> None:
        times = [100.0, 300.0, 200.0]
        row = one(*(launch("k", ns=time) for time in times))
        assert (row.launches, row.time_total_ns, row.time_mean_ns) == (3, 600, 200)
        assert (row.time_min_ns, row.time_max_ns) == (100, 300)
        assert row.time_std_ns == pytest.approx(statistics.stdev(times))

    def test_one_launch_has_no_deviation(self) -> None:
        assert one(launch("k", ns=5)).time_std_ns is None

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(1, 1e9)), min_size=1, max_size=30))
    def test_any_times_give_the_sums_and_deviations_of_plain_python(self, times: list[tuple[str, float]]) -> None:
        rows = spots(*(launch(name, ns=time) for name, time in times)).rows
        for row in rows:
            mine = [time for name, time in times if name == row.kernel]
            assert row.time_total_ns == pytest.approx(sum(mine), rel=1e-9)
            assert row.time_min_ns == pytest.approx(min(mine))
            assert row.time_max_ns == pytest.approx(max(mine))
            if len(mine) > 1:
                assert row.time_std_ns == pytest.approx(statistics.stdev(mine), rel=1e-6, abs=1e-3)
        assert rows[-1].time_cumulative == pytest.approx(1)
        assert sum(row.time_share or 0 for row in rows) == pytest.approx(1)

    def test_kernels_are_sorted_by_time_flops_or_bytes_with_unknown_last(self) -> None:
        launches = [
            launch("slow", ns=9), launch("busy", sass(ffma=9) | tensor(), ns=3, dram=1), launch("wide", sass(ffma=1) | tensor(), ns=1, dram=9),
        ]  # fmt: skip
        orders = {by: [row.kernel for row in spots(*launches, by=by).rows] for by in ("time", "flops", "dram")}
        assert orders == {
            "time": ["slow", "busy", "wide"],
            "flops": ["busy", "wide", "slow"],
            "dram": ["wide", "busy", "slow"],
        }

    def test_kernels_group_by_name_function_shape_or_range(self) -> None:
        launches = [
            launch("void ns::f<int>(int)", ns=1, grid=(1, 1, 1), block=(32, 1, 1), nvtx_path=("a", "b")),
            launch("void ns::f<float>(float)", ns=1, grid=(1, 1, 1), block=(32, 1, 1), nvtx_path=("a", "b")),
            launch("void ns::f<float>(float)", ns=1, grid=(2, 1, 1), block=(32, 1, 1)),
        ]
        counts = {group: len(spots(*launches, group=group).rows) for group in ("name", "short", "grid", "nvtx")}
        assert counts == {"name": 2, "short": 1, "grid": 3, "nvtx": 2}
        assert {row.kernel for row in spots(*launches, group="nvtx").rows} == {"a/b", "(range not known)"}
        outside = spots(launch("k", ns=1, nvtx_path=()), group="nvtx")
        assert [row.kernel for row in outside.rows] == ["(no range)"]

    def test_range_names_with_separators_are_quoted(self) -> None:
        paths = [("a", "b"), ("a/b",), ('"a', 'b"'), (), ("(no range)",), ("",), None]
        rows = spots(*(launch("k", ns=1, nvtx_path=path) for path in paths), group="nvtx").rows
        assert [row.kernel for row in rows] == sorted(
            ["a/b", '"a/b"', '"""a"/b"', "(no range)", '"(no range)"', '""', "(range not known)"]
        )

    def test_rates_are_ratios_of_sums(self) -> None:
        row = one(
            launch("k", sass(ffma=50) | tensor(), ns=10, dram=20),
            launch("k", sass(ffma=150) | tensor(), ns=40, dram=30),
        )
        assert row.flops == 400
        assert row.flops_per_s == pytest.approx(400 / 50e-9)
        assert row.dram_bytes_per_s == pytest.approx(50 / 50e-9)
        assert row.arithmetic_intensity == 8

    def test_a_total_is_unknown_unless_every_launch_has_it_and_rates_use_those_that_do(self) -> None:
        row = one(launch("k", sass(ffma=50) | tensor(), ns=10, dram=20), launch("k", ns=1000))
        assert row.flops is None
        assert row.dram_bytes is None
        assert row.flops_per_s == pytest.approx(100 / 10e-9)

    def test_failed_launches_are_left_out_of_every_number_and_named(self) -> None:
        result = spots(launch("k", ns=10), launch("k", grid=(0, 0, 0), failed=True), launch("broken", failed=True))
        rows = {row.kernel: row for row in result.rows}
        assert (rows["k"].launches, rows["k"].time_total_ns) == (1, 10)
        assert (rows["broken"].launches, rows["broken"].time_total_ns) == (0, None)
        assert result.notes[0].startswith("2 failed launches left out of every number: broken, k")

    def test_averages_of_a_summary_count_all_their_launches(self) -> None:
        extremes = {
            "gpu__time_duration.sum (minimum)": metric(8.0, "ns"),
            "gpu__time_duration.sum (maximum)": metric(13.0, "ns"),
        }
        row = one(launch("k", extremes, ns=10, invocations=30), launch("k", ns=20))
        assert (row.launches, row.time_total_ns) == (31, 320)
        assert (row.time_min_ns, row.time_max_ns, row.time_std_ns) == (8, 20, None)

    def test_a_launch_without_a_time_leaves_the_total_unknown(self) -> None:
        row = one(launch("k", ns=10), launch("k"))
        assert row.time_total_ns is None
        assert row.time_mean_ns == 10


class TestUnits:
    def test_each_unit_has_flops_and_share_and_integers_are_separate(self) -> None:
        int8 = {"sm__ops_path_tensor_src_int8.sum": metric(5e3)}
        rows = spots(
            launch("gemm", sass(fmul=100) | tensor(bf16_dst_fp32=300) | int8, ns=9),
            launch("copy", sass() | tensor(), ns=1),
        ).rows
        assert used_units(rows) == ["fp32", "tensor_bf16", "tensor_int8"]
        assert rows[0].work == {"fp32": 100, "tensor_bf16": 300, "tensor_int8": 5e3}
        assert [rows[0].share_of_flops(unit) for unit in used_units(rows)] == [0.25, 0.75, None]
        assert rows[0].flops == 400
        assert rows[1].work == {"fp32": 0, "tensor_bf16": 0, "tensor_int8": None}

    def test_constant_moves_are_no_work_of_the_fp16_unit(self) -> None:
        row = one(launch("k", sass(ffma=1000, hfma=10) | tensor(), ns=1))
        assert row.work == {"fp32": 2000}
        assert "constant moves" in (row.flops_basis or "")

    def test_a_unit_that_was_not_collected_is_unknown_unless_the_count_is_complete_without_it(self) -> None:
        tensor_work = launch("t", sass() | tensor(bf16_dst_fp32=7), ns=1)
        unknown = {row.kernel: row for row in spots(tensor_work, launch("k", sass(ffma=1), ns=1)).rows}["k"]
        assert unknown.work == {"fp32": 2, "tensor_bf16": None}
        idle = {"sm__inst_executed_pipe_tensor.sum": metric(0.0)}
        complete = {row.kernel: row for row in spots(tensor_work, launch("k", sass(ffma=1) | idle, ns=1)).rows}["k"]
        assert complete.work == {"fp32": 2, "tensor_bf16": 0}

    def test_the_run_is_the_sum_of_its_kernels_and_unknown_if_one_is_unknown(self) -> None:
        known = spots(
            launch("a", sass(ffma=1) | tensor(), ns=1, dram=4), launch("b", sass(ffma=3) | tensor(), ns=3, dram=4)
        )
        total = run_total(known.rows)
        assert (total.kernel, total.launches, total.time_total_ns, total.work) == ("all kernels", 2, 4, {"fp32": 8})
        assert (total.flops, total.arithmetic_intensity, total.bound) == (8, 1, None)
        half = run_total(spots(launch("a", sass(ffma=1) | tensor(), ns=1), launch("b", ns=3)).rows)
        assert (half.time_total_ns, half.flops, half.work) == (4, None, {"fp32": None})

    def test_the_units_are_columns_of_the_kernels_table(self) -> None:
        made = kernels_table(spots(launch("k", sass(ffma=1) | tensor(fp64=3), ns=1)).rows)
        assert made.select(["flops_fp32", "tensor_flops_fp64"]).to_pylist() == [
            {"flops_fp32": 2, "tensor_flops_fp64": 3}
        ]


class TestFlags:
    def test_a_kernel_below_every_ceiling_has_none(self) -> None:
        assert one(launch("copy", sass() | tensor(), ns=1e6, dram=1.555e9)).flag is None

    def test_dram_is_compared_with_its_ceiling_without_flop_counts_too(self) -> None:
        row = one(launch("copy", NAME, ns=1e6, dram=1.555e9 * 1.2))
        assert (row.bound, (row.flag or "")[:7]) == ("DRAM", "120.0 %")

    def test_the_unit_with_the_largest_excess_is_named(self) -> None:
        work = sass(ffma=19.5e9 / 2 * 1.1) | tensor(bf16_dst_fp32=312e9 * 1.5)
        flag = one(launch("k", NAME | work, ns=1e6, dram=1)).flag or ""
        assert flag.startswith("150.0 % of the tensor BF16 ceiling")
        assert "perhaps the sparse path" in flag

    def test_sparsity_clock_and_l2_of_the_report_reach_the_flag(self) -> None:
        base = "sm__ops_path_tensor_src_bf16_dst_fp32"
        ran = {f"{base}_sparsity_on.sum": metric(3 * 312e9 / 2), f"{base}_sparsity_off.sum": metric(0.0)}
        clock = {"sm__cycles_elapsed.avg.per_second": metric(1.755e9, "hz")}
        l2 = {"device__attribute_l2_cache_size": metric(40e6)}
        assert "100.0 % of its operations took the sparse path" in (one(launch("k", NAME | ran, ns=1e6)).flag or "")
        fast = launch("k", NAME | clock | sass(ffma=19.5e9 / 2 * 1.2), ns=1e6)
        assert one(fast).flag is None, "its ceiling is that of its clock"
        assert "its 20 MB fit in the 40 MB of L2" in (one(launch("k", NAME | l2, ns=1e4, dram=2e7)).flag or "")

    def test_the_evidence_is_that_of_a_launch_above_the_ceiling(self) -> None:
        l2 = {"device__attribute_l2_cache_size": metric(40e6)}
        slow, fast = launch("k", NAME | l2, ns=1e3, dram=1e3), launch("k", NAME | l2, ns=1e4, dram=2e7)
        assert "its 20 MB fit in the 40 MB of L2" in (spots(slow, fast).rows[0].flag or "")

    def test_integer_operations_are_compared_with_their_own_ceiling(self) -> None:
        int8 = {"sm__ops_path_tensor_src_int8.sum": metric(1248e9 * 1.5)}
        assert "of the tensor INT8 ceiling" in (one(launch("k", NAME | int8, ns=1e6)).flag or "")

    def test_a_few_are_in_notes_and_the_rest_is_counted(self) -> None:
        notes = spots(*(launch(f"k{n}", NAME, ns=1e3, dram=1e9) for n in range(5))).notes
        assert sum("DRAM ceiling" in note for note in notes) == 3
        assert notes[-1] == "2 more kernels are above a ceiling; --format json says why"


def test_a_kernel_with_flops_of_no_known_unit_has_no_bound() -> None:
    done = {"flops": 1e6, "dram_bytes": 1e5, "duration_ns": 1e4}
    found = one(launch("aten.mm", measures=done))
    assert (found.flops, found.bound, found.headroom_ns) == (1e6, None, None)
    assert one(launch("aten.mm", measures={**done, "flops_fp32": 1e6})).bound is not None


def test_headroom_holds_each_launch_to_its_own_roof() -> None:
    """One launch computes for 96 % of its time, the other moves for 90 %: together neither resource is at 50 %."""
    computes = launch("k", NAME | sass(ffma=19.5e9 / 2 * 0.96), ns=1e6, dram=1.0)
    moves = launch("k", NAME | sass(ffma=1.0), ns=1e6, dram=1555e6 * 0.9)
    row = one(computes, moves)
    assert row.bound_fraction == pytest.approx(0.48, abs=0.01)
    assert row.headroom_ns == pytest.approx(0.14e6, rel=0.01)
    alone = one(computes)
    assert alone.headroom_ns == pytest.approx(1e6 * (1 - (alone.bound_fraction or 0.0)))


def test_a_launch_above_its_ceiling_has_no_headroom_and_gives_none_to_others() -> None:
    above = launch("k", NAME | sass(ffma=1.0), ns=1e6, dram=1555e6 * 1.5)
    half = launch("k", NAME | sass(ffma=1.0), ns=1e6, dram=1555e6 * 0.5)
    assert one(above, half).headroom_ns == pytest.approx(0.5e6, rel=0.01)


def test_launches_with_unknown_flops_are_not_counted_as_zero() -> None:
    busy = {"sm__inst_executed_pipe_tensor.sum": metric(1e6)}
    found = spots(launch("gemm", {**sass(ffma=5), **busy}, ns=10, dram=1))
    assert found.rows[0].flops is None
    (note,) = [note for note in found.notes if "tensor, which was busy" in note]
    assert note == "FLOPs of 1 launch are not known (not collected: tensor, which was busy)"


def test_lower_bounds_and_unknown_flops_are_counted_apart_in_notes() -> None:
    """At least zero bounds nothing, so the FLOPs of a copy without tensor counts are unknown, and of a product not."""
    found = spots(launch("gemm", sass(ffma=5), ns=10, dram=1), *[launch("copy", sass(), ns=10, dram=1)] * 2)
    assert {row.kernel: row.flops for row in found.rows} == {"gemm": 10, "copy": None}
    assert [note for note in found.notes if "not collected" in note] == [
        "FLOPs of 1 launch are at least what is shown (not collected: tensor)",
        "FLOPs of 2 launches are not known (not collected: tensor)",
    ]


def test_launches_that_lack_some_tensor_types_are_told_once_with_what_counts_them() -> None:
    some = {"sm__ops_path_tensor_src_tf32_dst_fp32.sum": metric(0.0)}
    found = spots(*[launch("copy", sass() | some, ns=10, dram=1, capability="9.0")] * 2)
    assert [note for note in found.notes if "FLOP" in note] == [
        "FLOPs of 2 launches are not known (not collected: some tensor types); ncu-bench profile --metrics "
        "flops,tensor,dram counts every type, in more passes"
    ]


def test_shares_are_unknown_if_the_time_of_a_launch_is() -> None:
    found = spots(launch("a", ns=1), launch("b", ns=9), launch("b"))
    assert [(row.kernel, row.time_share, row.time_cumulative) for row in found.rows] == [
        ("a", None, None), ("b", None, None)
    ]  # fmt: skip
    failed = spots(launch("a", ns=1), launch("gone", failed=True))
    assert [row.time_share for row in failed.rows if row.launches] == [1.0]


def test_a_clock_below_the_data_sheets_is_noted_for_the_units_that_worked() -> None:
    own = {
        "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": metric(64.0 * 108),
        "sm__cycles_elapsed.avg.per_second": metric(0.9e9, "hz"),
    }
    products = launch("gemm", {**sass(), **tensor(bf16_dst_fp32=1e9), **own}, ns=1e6, dram=1e6)
    simple = launch("copy", {**sass(ffma=1e6), **tensor(), **own}, ns=1e6, dram=1e6)
    noted = [[note for note in spots(one).notes if "was profiled at 0.90 GHz" in note] for one in (products, simple)]
    assert [len(notes) for notes in noted] == [1, 0]


def test_operator_counts_are_noted_as_not_counted_by_hardware() -> None:
    made = operators()
    assert any("not by hardware" in note for note in hotspots(made, ceilings_of(made)).notes)
    assert not any("not by hardware" in note for note in spots(launch("k", ns=1)).notes)


class TestBound:
    def test_dram_bounds_a_kernel_left_of_the_ridge(self) -> None:
        row = one(launch("copy", sass(ffma=1) | tensor(), ns=1e6, dram=1.555e9 * 0.5))
        assert (row.bound, row.bound_fraction) == ("DRAM", pytest.approx(0.5))

    def test_the_busiest_unit_bounds_a_kernel_right_of_the_ridge(self) -> None:
        row = one(launch("gemm", sass(ffma=19.5e9 / 2 * 0.8) | tensor(), ns=1e6, dram=1e3))
        assert (row.bound, row.bound_fraction, row.unit) == ("FP32", pytest.approx(0.8), "fp32")

    def test_tensor_work_is_compared_with_the_tensor_ceiling_not_fp32(self) -> None:
        row = one(launch("gemm", sass(fmul=1e6) | tensor(bf16_dst_fp32=312e9 * 0.7), ns=1e6, dram=1e3))
        assert (row.bound, row.bound_fraction, row.unit) == ("tensor BF16", pytest.approx(0.7), "tensor_bf16")

    def test_a_note_counts_the_launches_that_an_average_stands_for(self) -> None:
        result = spots(launch("k", ns=1e3, invocations=30), launch("m", ns=1e3, dram=1e3, invocations=4))
        assert any(note.startswith("34 of 34 launches have no FLOP counts") for note in result.notes)
        assert any(note.startswith("30 of 34 launches have no DRAM bytes") for note in result.notes)

    def test_without_flop_counts_a_kernel_is_memory_bound_only_if_dram_is_near_its_limit(self) -> None:
        assert one(launch("copy", ns=1e6, dram=1.555e9 * 0.79)).bound is None
        result = spots(launch("copy", ns=1e6, dram=1.555e9 * 0.9))
        assert (result.rows[0].bound, result.rows[0].bound_fraction) == ("DRAM", pytest.approx(0.9))
        assert (result.rows[0].flops, result.rows[0].arithmetic_intensity) == (None, None)
        (note,) = (note for note in result.notes if "has no FLOP counts; ask ncu for --metrics smsp__sass" in note)
        assert note.endswith("and 13 more, which ncu-bench machines --metrics flops,tensor --chip ga100 lists")

    def test_of_launches_with_flops_is_not_that_of_those_without(self) -> None:
        counted, not_counted = launch("k", sass(ffma=19.5e9 / 4), ns=1e6, dram=1e3), launch("k", ns=1e6, dram=1.5e9)
        assert one(counted, not_counted).bound == "FP32"

    def test_a_lower_bound_of_flops_gives_dram_as_bound_only_if_dram_is_busy(self) -> None:
        metrics = sass(ffma=10)
        busy, idle = (one(launch("k", metrics, ns=1e6, dram=1.555e9 * share)) for share in (0.9, 0.1))
        assert (busy.bound, busy.flops_lower_bound) == ("DRAM", True)
        assert (idle.bound, idle.flops_lower_bound) == (None, True)

    def test_a_unit_with_work_and_no_known_ceiling_leaves_the_bound_unknown(self) -> None:
        metrics = sass(ffma=10) | tensor("9.0", fp8=1e9)
        assert one(launch("k", metrics, ns=1e6, dram=1e3, capability="9.0")).bound is None  # an A100 has no FP8

    def test_constant_moves_are_not_compared_with_the_fp16_ceiling(self) -> None:
        row = one(launch("k", sass(ffma=1e6, hfma=4e5) | tensor(), ns=1e3, dram=1))
        assert row.bound == "FP32"


class TestCeilings:
    def test_the_reports_own_peaks_take_precedence(self) -> None:
        own = {"dram__bytes.sum.peak_sustained": metric(1000.0), "dram__cycles_elapsed.avg.per_second": metric(1e9)}
        found = ceilings_of(table(launch("k", own | NAME, ns=1e6)), find_machine("t4"))
        assert found.per_launch["dram"].tolist() == [1e12]
        assert found.per_launch["fp32"].tolist() == [19.5e12]

    def test_a_machine_named_for_a_device_with_its_own_ceilings_is_noted_to_bound_nothing(self) -> None:
        known = table(launch("k", NAME))
        assert ceilings_of(known, find_machine("t4")).notes == [
            "--machine t4 bounds no launch of NVIDIA A100-SXM4-40GB: its ceilings are the report's own, or machine "
            "file a100-sxm4-40gb's"
        ]
        assert ceilings_of(known, find_machine("a100-sxm4-40gb")).notes == []
        assert ceilings_of(table(launch("k", capability=None)), find_machine("t4")).notes == []

    def test_a_machine_of_another_compute_capability_is_noted_as_another_chip(self) -> None:
        unnamed = table(launch("k", capability="8.0"))
        assert ceilings_of(unnamed, find_machine("t4")).notes == [
            "the report says compute capability 8.0, and --machine t4 has 7.5: its ceilings are those of another chip"
        ]
        assert ceilings_of(unnamed, find_machine("a100-sxm4-80gb")).notes == []

    def test_the_devices_own_file_takes_precedence_over_the_named_machine(self) -> None:
        found = ceilings_of(table(launch("k", NAME), launch("j", capability=None)), find_machine("t4"))
        assert found.per_launch["dram"].tolist() == [1555e9, 320e9]
        assert {ceiling.source.split(";")[0] for ceiling in found.drawn} == {
            "machine file a100-sxm4-40gb",
            "--machine t4",
        }

    def test_a_compute_capability_gives_what_its_boards_agree_on_with_a_note(self) -> None:
        found = ceilings_of(table(launch("k", dram=1)))
        assert found.per_launch["fp32"].tolist() == [19.5e12]
        assert math.isnan(found.per_launch["dram"][0])
        assert "they differ in DRAM, which has no ceiling" in found.notes[0]

    @pytest.mark.parametrize("capability", ["7.5", "8.6", "8.9", "9.0", "12.0", None])
    def test_a_compute_capability_of_different_boards_gives_nothing(self, capability: str | None) -> None:
        found = ceilings_of(table(launch("k", dram=1, capability=capability)))
        assert all(math.isnan(values[0]) for values in found.per_launch.values())
        assert "--machine NAME" in found.notes[0]
        assert "None" not in found.notes[0]

    def test_a_clock_below_the_data_sheets_is_noted(self) -> None:
        clock = {"sm__cycles_elapsed.avg.per_second": metric(0.765e9, "hz")}
        assert "profiled at 0.77 GHz" in ceilings_of(table(launch("k", clock | NAME, ns=1e6))).notes[0]


class TestRoofline:
    def made(self) -> object:
        return roofline(
            {
                "run": table(
                    launch("gemm", NAME | sass(ffma=1e9) | tensor(), ns=2e5, dram=1e7),
                    launch("tensor", NAME | sass() | tensor(bf16_dst_fp32=1e11), ns=1e6, dram=1e8),
                    launch("copy", NAME | sass() | tensor(), ns=1e5, dram=1e8),
                )
            }
        )

    def test_ridge_points_are_peak_over_bandwidth(self) -> None:
        ridges = {ridge.unit: ridge.intensity for ridge in self.made().ridges}  # type: ignore[attr-defined]
        assert ridges == {"fp32": pytest.approx(12.54, abs=0.01), "tensor_bf16": pytest.approx(200.6, abs=0.05)}

    def test_a_kernel_without_flops_stays_in_the_table_and_out_of_the_plot(self) -> None:
        made = self.made()
        assert len(made.points) == 3  # type: ignore[attr-defined]
        assert len(made.drawable) == 2  # type: ignore[attr-defined]
        assert any("1 of 3 kernels has no place on the plot" in note for note in made.notes)  # type: ignore[attr-defined]

    @pytest.mark.slow
    def test_without_a_ceiling_only_points_are_drawn_with_a_note(self) -> None:
        made = roofline({"run": table(launch("k", sass(ffma=1), ns=5, dram=1, capability="8.9"))})
        assert made.ceilings == []
        assert any("the plot shows the points alone" in note for note in made.notes)
        assert draw(made, "png").startswith(b"\x89PNG")

    def test_a_kernel_above_its_ceiling_is_flagged(self) -> None:
        made = roofline({"run": table(launch("k", NAME | sass(ffma=1) | tensor(), ns=1e3, dram=1e9))})
        assert made.points[0].hotspot.flag.startswith("64308.7 % of the DRAM ceiling (machine file a100-sxm4-40gb)")  # type: ignore[union-attr]
        assert f"k: {made.points[0].hotspot.flag}" in made.notes

    def test_the_x_axis_of_operators_is_not_labelled_dram(self) -> None:
        assert roofline({"run": operators()}).bytes_title == "byte of inputs, weights and outputs"
        both = roofline({"run": operators(), "other": table(launch("k"))})
        assert both.bytes_title == "DRAM byte; of operators, per byte of inputs, weights and outputs"

    @pytest.mark.parametrize(
        ("file_format", "magic"), one_in(3, [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
    )
    @pytest.mark.slow
    def test_it_is_drawn_the_same_twice_in_every_format(self, file_format: str, magic: bytes) -> None:
        first, second = (draw(self.made(), file_format, title="$x$ <b>") for _ in range(2))  # type: ignore[arg-type]
        assert first.startswith(magic)
        assert first == second

    @pytest.mark.slow
    def test_many_kernels_stay_a_small_picture(self) -> None:
        many = [
            launch(f"k{n}", NAME | sass(ffma=10.0 ** (n % 9)) | tensor(), ns=1e3 + n, dram=10.0 ** (n % 7))
            for n in range(3000)
        ]
        assert len(draw(roofline({"run": table(*many)}), "svg")) < 1_000_000

    def test_a_kernel_name_cannot_become_markup_or_a_formula(self) -> None:
        made = roofline(
            {
                "run": table(
                    launch(
                        "<script>alert($\\frac$)</script>\x1b[31m", NAME | sass(ffma=1e6) | tensor(), ns=1e3, dram=1e3
                    )
                )
            }
        )
        assert b"<script" not in draw(made, "svg")


def test_the_metrics_to_ask_for_name_the_tensor_totals_of_the_chip() -> None:
    asked = flop_metrics({"9.0"})
    assert "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum" in asked
    assert "sm__ops_path_tensor_src_fp8.sum" in asked
    assert not any("ffma2" in name for name in asked)
    assert any("ffma2" in name for name in flop_metrics({"10.0"}))


@pytest.mark.parametrize("capability", ["7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.1", None])
def test_the_command_in_the_note_lists_every_metric_to_collect(capability: str | None) -> None:
    listed = select(["flops", "tensor"], chip_of(capability), None).names
    assert set(flop_metrics({capability})) <= set(listed)


def test_a_hotspot_is_plain_data() -> None:
    assert json.loads(json.dumps(asdict(one(launch("k", sass(ffma=1) | tensor(), ns=5, dram=2)))))["kernel"] == "k"


def test_an_integer_kernel_is_bound_by_its_unit_not_by_the_memory_it_hardly_uses() -> None:
    counters = {**sass(), **tensor(), "sm__ops_path_tensor_src_int8.sum": metric(0.9 * 624e12 * 1e-3)}
    made = table(launch("igemm", counters, ns=1e6, dram=1e6))
    (row,) = hotspots(made, ceilings_of(made, find_machine("a100-sxm4-40gb"))).rows
    assert row.bound == "tensor INT8"
    assert row.bound_fraction == pytest.approx(0.9)
    assert row.flops == 0
