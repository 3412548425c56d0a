"""Traces with the work of their operators: hotspots, roofline and layers from shapes, said for what it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from ncu_launch.errors import WrongUsage
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.parse.parse import parse
from ncu_parsers.schema import tables
from ncu_parsers.sources.sources import Source

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.cli import cli
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.matching.join import join
from ncu_tools.kernels.names.categories import COMMUNICATION, category_of
from ncu_tools.kernels.operator_work import calls_of_operators, has_operators, with_work_of_operators
from ncu_tools.model.expected.both_sides import MeasuredLaunches
from ncu_tools.model.expected.measured_vs_expected import compare_by_shapes
from ncu_tools.report.html.html_content import ReportedRun, content
from ncu_tools.roofline.roofline import Look, roofline
from ncu_tools.roofline.scene import MODULES, OPERATORS, PHASES, RUNS
from ncu_tools.roofline.scene_builder import scene_of
from ncu_tools.roofline.views import seen_as
from tests.conftest import SAMPLES, SHARED
from tests.parsers.timelines.test_kineto import A100, call, gpu, host
from tests.parsers.timelines.test_work_of_traces import COMPILED, QWEN, SGLANG, VLLM, operator
from tests.support.launches import launch, sass, table, tensor
from tests.support.reports import needs_shared_reports

BF16 = "c10::BFloat16"
M, K, N = 4096, 1024, 2048


def product(start: float) -> dict[str, Any]:
    return operator("aten::mm", start, 40, [[M, K], [K, N]], [BF16, BF16], ["", ""])


def addition(start: float) -> dict[str, Any]:
    return operator("aten::add", start, 40, [[M, N], [M, N], []], [BF16, BF16, "Scalar"], ["", "", "1"])


def events(microseconds: float = 100) -> list[dict[str, Any]]:
    """A product by two kernels of which one prepares, an addition, and a kernel of an operator that nobody knows."""
    return [
        host("python_function", "nn.Module: Linear_0", 0, 90),
        product(0), call(1, 10), call(2, 20), addition(50), call(3, 60),
        host("cpu_op", "custom::secret", 100, 40), call(4, 110),
        gpu("gpu_memset", "Memset (Device)", 200, 1, 1), gpu("kernel", "nvjet_tst_128x256", 210, microseconds, 2),
        gpu("kernel", "add_kernel", 400, 60, 3), gpu("kernel", "secret_kernel", 500, 40, 4),
    ]  # fmt: skip


def written(folder: Path, listed: Sequence[dict[str, Any]], name: str = "trace.json") -> str:
    path = folder / name
    path.write_text(json.dumps({"deviceProperties": [A100], "traceEvents": list(listed)}))
    return str(path)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return written(tmp_path, events())


def answer(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, [*arguments, "--format", "json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def table_of(path: str) -> pa.Table:
    found = parse([Source(path)]).table
    assert found is not None
    return found


class TestHotspotsOfATrace:
    def test_hold_each_kernel_against_the_ceiling_of_its_type(self, trace: str) -> None:
        rows = {row["kernel"]: row for row in answer("hotspots", trace)["rows"]}
        gemm = rows["nvjet_tst_128x256"]
        assert gemm["flops"] == 2 * M * K * N
        assert (gemm["bound"], gemm["unit"], gemm["flops_basis"]) == ("tensor BF16", "tensor_bf16", "shapes")
        assert gemm["bound_fraction"] == pytest.approx(2 * M * K * N / 100e-6 / 312e12)
        addition = rows["add_kernel"]
        assert (addition["bound"], addition["least_bytes"], addition["dram_bytes"]) == ("DRAM", 3 * 2 * M * N, None)
        assert addition["least_bytes_per_s"] == pytest.approx(3 * 2 * M * N / 60e-6)

    def test_say_how_much_of_the_time_has_flops_and_what_has_none(self, trace: str) -> None:
        notes = answer("hotspots", trace)["notes"]
        assert any("80.0 % of kernel time has FLOPs; not known: custom::secret 20.0 %" in note for note in notes)
        assert any("estimates, not counted" in note for note in notes)

    def test_name_communication_apart_from_operators_whose_flops_are_not_known(self, tmp_path: Path) -> None:
        reduced = [host("cpu_op", "record_param_comms", 150, 10), call(5, 151)]
        collective = gpu("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)", 600, 50, 5)
        trace = written(tmp_path, [*events(), *reduced, collective])
        parquet = str(tmp_path / "launches.parquet")
        assert CliRunner().invoke(cli, ["parse", trace, "-o", parquet]).exit_code == 0
        said = "64.0 % of kernel time has FLOPs, 20.0 % is communication; not known: custom::secret 16.0 %"
        for path in (trace, parquet):
            assert any(said in note for note in answer("hotspots", path)["notes"])

    def test_by_operator_count_each_call_once_with_all_that_it_launched(self, trace: str) -> None:
        rows = {row["kernel"]: row for row in answer("hotspots", trace, "--by", "operator")["rows"]}
        assert rows.keys() == {"aten::mm", "aten::add", "custom::secret"}
        assert (rows["aten::mm"]["flops"], rows["aten::mm"]["launches"]) == (2 * M * K * N, 2)
        assert rows["aten::mm"]["time_total_ns"] == pytest.approx(101_000)

    def test_by_operator_call_the_rows_that_are_not_shown_operators(self, trace: str) -> None:
        result = CliRunner().invoke(cli, ["hotspots", trace, "--by", "operator", "--top", "1"])
        assert "more operator" in result.output
        assert "more kernel" not in result.output

    def test_show_least_bytes_and_no_column_of_dram_bytes(self, trace: str) -> None:
        shown = CliRunner().invoke(cli, ["hotspots", trace, "--format", "markdown"]).stdout
        (shown,) = [line for line in shown.splitlines() if line.startswith("| kernel")]
        assert "B/s by shapes" in shown
        assert "DRAM" not in shown

    def test_are_the_same_from_parquet(self, trace: str, tmp_path: Path) -> None:
        parquet = str(tmp_path / "launches.parquet")
        assert CliRunner().invoke(cli, ["parse", trace, "-o", parquet]).exit_code == 0
        for group in ("name", "operator"):
            whole, in_parts = (answer("hotspots", path, "--by", group) for path in (trace, parquet))
            assert whole["rows"] == in_parts["rows"]
            assert any("80.0 % of kernel time" in note for note in in_parts["notes"])

    def test_flag_what_is_above_the_peak_of_its_type(self, tmp_path: Path) -> None:
        found = answer("hotspots", written(tmp_path, events(microseconds=20)))["rows"]
        (gemm,) = [row for row in found if row["kernel"] == "nvjet_tst_128x256"]
        assert gemm["bound_fraction"] > 2
        assert "of the tensor BF16 ceiling" in gemm["flag"]
        assert "more than twice a data sheet's value; probably the wrong machine" in gemm["flag"]

    @pytest.mark.slow
    @pytest.mark.parametrize("command", ["hotspots", "roofline"])
    def test_and_roofline_flag_it_with_the_likely_cause_in_json_and_below_the_table(
        self, command: str, tmp_path: Path
    ) -> None:
        path = written(tmp_path, events(microseconds=40))
        output = ["-o", str(tmp_path / "a.svg")] if command == "roofline" else []
        (gemm,) = [row for row in answer(command, path, *output)["rows"] if row["kernel"] == "nvjet_tst_128x256"]
        for cause in ("137.7 % of the tensor BF16 ceiling", "perhaps the sparse path"):
            assert cause in gemm["flag"]
            assert cause in " ".join(CliRunner().invoke(cli, [command, path, *output]).output.split())

    def test_of_a_trace_without_shapes_say_how_to_record_them(self, tmp_path: Path) -> None:
        bare = [host("cpu_op", "aten::mm", 0, 40), call(1, 10), gpu("kernel", "gemm", 100, 5, 1)]
        found = answer("hotspots", written(tmp_path, bare))
        assert found["rows"][0]["flops"] is None
        assert any("record_shapes=True" in note for note in found["notes"])
        assert any("no kernel time has FLOPs; not known: aten::mm 100.0 %" in note for note in found["notes"])


def test_a_kernel_of_several_that_may_have_done_the_work_sends_to_the_operators(tmp_path: Path) -> None:
    two = [product(0), call(1, 10), call(2, 20), gpu("kernel", "a_gemm", 100, 5, 1), gpu("kernel", "b_gemm", 110, 5, 2)]
    path = written(tmp_path, two)
    found = answer("hotspots", path)
    assert [row["flops"] for row in found["rows"]] == [None, None]
    assert any("1 call of an operator ran several kernels" in note for note in found["notes"])
    (row,) = answer("hotspots", path, "--by", "operator")["rows"]
    assert row["flops"] == 2 * M * K * N


def test_counted_and_estimated_flops_are_not_summed_in_silence(trace: str) -> None:
    launches = table_of(trace)
    bases = ["shapes" if basis else None for basis in tables.words(launches, "flops_basis")]
    bases[bases.index("shapes")] = "counted"
    place = launches.schema.get_field_index("flops_basis")
    mixed = launches.set_column(place, "flops_basis", pa.array(bases).dictionary_encode())
    assert any("a sum of both is neither" in note for note in hotspots(mixed, ceilings_of(mixed)).notes)


def test_the_axis_of_a_traces_roofline_says_that_its_bytes_are_the_least_by_shapes(trace: str) -> None:
    result = roofline({"trace": table_of(trace)}, look=Look(OPERATORS))
    assert scene_of(result).x_title == "arithmetic intensity (FLOP per byte of least traffic by shapes)"
    assert {"dram", "fp32", "tensor_bf16"} == {ceiling.unit for ceiling in result.ceilings}
    assert {point.hotspot.kernel for point in result.drawable} == {"aten::mm", "aten::add"}


def test_the_page_of_a_trace_has_least_bytes_in_the_place_of_dram_bytes(trace: str) -> None:
    page = content([ReportedRun("trace", table_of(trace))], group="operator")
    assert "least_bytes_per_s" in page["in_table"]
    assert "dram_bytes_per_s" not in page["in_table"]
    names = [column["name"] for column in page["kernels"]["columns"]]
    by_operator = {row[names.index("kernel")]: dict(zip(names, row, strict=True)) for row in page["kernels"]["rows"]}
    assert by_operator["aten::add"]["least_bytes"] == pytest.approx(3 * 2 * M * N, rel=1e-5)
    assert by_operator["aten::mm"]["bound"] == "tensor BF16"


def test_the_page_of_a_trace_does_not_ask_for_counters_of_caches(trace: str) -> None:
    notes = content([ReportedRun("trace", table_of(trace))])["notes"]
    assert any("estimates, not counted" in note for note in notes)
    assert not any("ask ncu for" in note for note in notes)


def test_two_traces_are_compared_by_the_calls_of_their_operators(trace: str, tmp_path: Path) -> None:
    slower = written(tmp_path, events(microseconds=150), "slower.json")
    found = answer("compare", trace, slower, "--operators")
    rows = {row["kernel"]: row for row in found["rows"]}
    product = rows["aten::mm"]
    assert (product["base_launches"], product["new_launches"]) == (1, 1)
    assert (product["base_time_mean_ns"], product["new_time_mean_ns"]) == (101_000, 151_000)
    assert product["base_flops_mean"] == product["new_flops_mean"] == 2 * M * K * N
    assert rows["custom::secret"]["base_flops_mean"] is None
    assert any("estimates, not counted" in note for note in found["notes"])


def test_two_traces_are_shown_with_the_work_of_a_call_of_each_operator(
    trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    slower = written(tmp_path, events(microseconds=150), "slower.json")
    shown = CliRunner().invoke(cli, ["compare", trace, slower, "--operators", "--format", "markdown"]).stdout
    titles, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.splitlines() if "|" in line]
    (mm,) = [dict(zip(titles, row, strict=True)) for row in rows if row[0] == "aten::mm"]
    assert (mm["base calls"], mm["new calls"], mm["base FLOPs/call"]) == ("1", "1", "17.18 GFLOP")
    assert mm["new least B/call"] == "29.36 MB"
    assert titles[0] == "operator"


def test_calls_of_two_traces_with_the_same_numbers_stay_apart(trace: str, tmp_path: Path) -> None:
    both = pa.concat_tables([table_of(trace), table_of(written(tmp_path, events(), "other.json"))])
    assert len(calls_of_operators(both)) == 2 * len(calls_of_operators(table_of(trace))) == 6


def test_calls_of_operators_are_compared_in_the_place_of_layers_and_not_beside_them(trace: str) -> None:
    result = CliRunner().invoke(cli, ["compare", trace, trace, "--operators", "--layers"])
    assert isinstance(result.exception, WrongUsage)


def test_layers_of_a_trace_have_the_flops_of_their_operators(trace: str) -> None:
    found = answer("hotspots", "--by", "layer", trace)
    (linear,) = [row for row in found["rows"] if row["module"] == "Linear_0"]
    assert linear["flops"] == 2 * M * K * N + M * N
    assert any("estimates, not counted" in note for note in found["notes"])


def test_estimates_are_not_taken_for_measured_flops(trace: str) -> None:
    launches = table_of(trace)
    assert tables.floats(launches, "flops")[1] > 0
    assert not (MeasuredLaunches(launches).flops > 0).any()


def test_points_of_estimates_are_open_and_the_listing_says_why(trace: str, tmp_path: Path) -> None:
    picture = tmp_path / "trace.svg"
    marks = answer("roofline", trace, "-o", str(picture))["scene"]["marks"]
    assert [mark["estimated"] for mark in marks] == [True] * len(marks)
    assert marks
    assert "FLOPs are an estimate from shapes" in picture.read_text("utf-8")
    operators = answer("roofline", trace, "--points", "operators")["scene"]["marks"]
    assert {mark["estimated"] for mark in operators} == {True}


def test_points_of_counts_are_filled(tmp_path: Path) -> None:
    sample, picture = str(SAMPLES / "d01-wide-raw.csv"), tmp_path / "counted.svg"
    assert {mark["estimated"] for mark in answer("roofline", sample, "-o", str(picture))["scene"]["marks"]} == {False}
    assert "estimate" not in picture.read_text("utf-8")


def test_counts_that_are_joined_with_a_trace_take_the_place_of_its_estimates(trace: str) -> None:
    counted = launch("nvjet_tst_128x256", sass(ffma=100.0), ns=99_999, dram=1000)
    joined = join(table(counted), table_of(trace), other_gpus=True).table
    flops = dict(zip(tables.words(joined, "kernel_name"), tables.floats(joined, "flops").tolist(), strict=True))
    assert flops["nvjet_tst_128x256"] == 200
    assert flops["add_kernel"] != flops["add_kernel"]  # nothing was counted
    assert not has_operators(joined)
    assert not any("estimates" in note for note in hotspots(joined, ceilings_of(joined), group="operator").notes)


class TestExpectedOfAJoinedTrace:
    """Counters of ncu beside the work by shapes of the trace that they were joined with."""

    COUNTED = 1.02 * 2 * M * K * N
    LEAST = 2 * (M * K + K * N + M * N)

    @pytest.fixture
    def joined(self, trace: str) -> pa.Table:
        product = launch(
            "nvjet_tst_128x256", {**sass(), **tensor(bf16_dst_fp32=self.COUNTED)}, ns=9, dram=2 * self.LEAST
        )
        secret = launch("secret_kernel", sass(ffma=5.0), ns=9, dram=8)
        return join(table(product, secret), table_of(trace), other_gpus=True).table

    def test_sets_counted_flops_and_bytes_beside_those_of_each_operators_shapes(self, joined: pa.Table) -> None:
        comparison = compare_by_shapes(joined)
        found = {row.operator: row for row in comparison.rows if row.operator}
        product = found["aten::mm"]
        assert (product.measured_flops, product.expected_flops) == (pytest.approx(self.COUNTED), 2 * M * K * N)
        assert product.flops_ratio == pytest.approx(1.02)
        assert (product.measured_bytes, product.expected_bytes) == (2 * self.LEAST, self.LEAST)
        assert set(found) == {"aten::mm", "aten::add"}
        assert (found["aten::add"].all_flops, found["aten::add"].measured_flops) == (M * N, None)

    def test_has_rows_of_layers_and_leaves_out_operators_whose_work_is_unknown(self, joined: pa.Table) -> None:
        comparison = compare_by_shapes(joined)
        assert [row.module for row in comparison.rows if row.scope == "layer"] == ["Linear_0"]
        assert "1 of 3 kernels have no FLOPs by shapes and are left out" in comparison.notes

    def test_is_what_the_command_shows_without_a_target(self, joined: pa.Table, tmp_path: Path) -> None:
        path = tmp_path / "joined.parquet"
        write_table(joined, path)
        rows = answer("compare", "--with", "formulas", str(path))["rows"]
        assert [row["operator"] for row in rows if row["scope"] == "operator"] == ["aten::mm", "aten::add"]


def test_a_table_without_operators_stays_as_it_is() -> None:
    bare = pa.table({"flops": [1.0]})
    assert not has_operators(bare)
    assert with_work_of_operators(bare) is bare


COVERAGE = {
    QWEN: (69.9, 100.0, 0.0),
    COMPILED: (93.3, 93.3, 0.0),
    VLLM: (2.7, 100.0, 0.0),
    SGLANG: (0.9, 100.0, 0.0),
    "AMD-AGI__TraceLens__b200__eager_trace.json.gz": (19.8, 24.7, 19.7),
    "facebookresearch__HTA__trace_filter__sampled_rank-0.json.gz": (15.3, 44.2, 65.3),
    "facebookresearch__HTA__trace_filter__sampled_rank-1.json.gz": (14.2, 34.1, 58.2),
}
"""Shared trace -> per cent of kernel time with FLOPs, of that whose operator is known and no collective, and per cent
that is communication, as in docs/shapes.md."""


@needs_shared_reports
def test_the_coverage_of_every_shared_trace_stands_here() -> None:
    assert COVERAGE.keys() == {path.name for path in (SHARED / "reports" / "kineto").iterdir()}


@needs_shared_reports
@pytest.mark.parametrize("name", COVERAGE)
def test_as_much_time_of_a_real_trace_has_flops_as_the_documentation_says(name: str) -> None:
    launches = table_of(str(SHARED / "reports" / "kineto" / name))
    note = next(one for one in hotspots(launches, ceilings_of(launches)).notes if "kernel time" in one)
    with_flops, of_operators, communication = COVERAGE[name]
    assert f"{with_flops} % of kernel time has FLOPs" in note
    assert (f"{communication} % is communication" in note) == bool(communication)
    time, flops, calls = (tables.floats(launches, one) for one in ("duration_ns", "operator_flops", "operator_call"))
    is_kernel = np.array([one == "kernel" for one in tables.words(launches, "operation")])
    computes = is_kernel & np.array(
        [category_of(one or "") != COMMUNICATION for one in tables.words(launches, "kernel_name")]
    )
    launched = time[computes & ~np.isnan(calls)].sum()
    assert 100 * time[computes & ~np.isnan(flops)].sum() / launched == pytest.approx(of_operators, abs=0.05)


@needs_shared_reports
@pytest.mark.parametrize("name", COVERAGE)
def test_sums_by_operator_module_and_phase_of_a_real_trace_are_its_total(name: str) -> None:
    launches = table_of(str(SHARED / "reports" / "kineto" / name))
    total = tables.or_zero(tables.floats(launches, "operator_flops")).sum()
    assert total > 0
    for view in (OPERATORS, MODULES, PHASES, RUNS):
        seen = seen_as(launches, Look(view), name)
        by_point: dict[str | None, float] = {}
        for point, flops in zip(
            tables.words(seen, "kernel_name"), tables.or_zero(tables.floats(seen, "flops")).tolist(), strict=True
        ):
            by_point[point] = by_point.get(point, 0.0) + flops
        assert sum(by_point.values()) == pytest.approx(total, rel=1e-12)


@needs_shared_reports
def test_a_real_trace_of_an_h100_has_places_under_its_bf16_ceiling() -> None:
    result = roofline({"qwen": table_of(str(SHARED / "reports" / "kineto" / QWEN))})
    assert len(result.drawable) > len(result.points) / 2
    (ceiling,) = [one for one in result.ceilings if one.unit == "tensor_bf16"]
    assert ceiling.value == 989.4e12
    above = [point for point in result.drawable if (point.hotspot.bound_fraction or 0) > 1.01]
    assert above == []
