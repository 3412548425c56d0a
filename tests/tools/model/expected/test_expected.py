"""Measured against expected work: the rows, every known cause with and without its evidence, and the command."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.manifest import Manifest, ToolRun, write_manifest
from ncu_launch.files.run_files import EXPECTED
from ncu_launch.workload.record_format import FORMAT, FORMAT_VERSION
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.cli import run
from ncu_tools.model.expected.both_sides import Collection, collection_of, filters_in
from ncu_tools.model.expected.measured_vs_expected import ExpectedComparison, Row, compare, summary
from ncu_tools.model.expected.operators_of_layers import expected_of
from ncu_tools.model.expected.tile_padding import padded_flops
from ncu_tools.runs.loading import LAUNCHES
from tests.support.launches import launch, metric, sass, table, tensor
from tests.support.models.models_here import models_run_here

pytestmark = pytest.mark.slow

EVERYTHING = Collection(filters=())
CONV = "model.conv"
SHAPES = "8x64x32x32 64x64x3x3"
FLOPS = 2.0 * 8 * 32 * 32 * 64 * 64 * 9


def kernel(
    name: str = "implicit_gemm",
    flops: float | None = FLOPS,
    *,
    phase: str | None = "forward",
    module: str | None = CONV,
    basis: str = "sass fp64+fp32+fp16; tensor ops",
    dram: float = 1000.0,
    **attributes: Any,
) -> Launch:
    """A measured launch with FLOPs as in the table."""
    one = launch(name, dram=dram, phase=phase, module=module, flops_basis=basis, **attributes)
    one.measures = {} if flops is None else {"flops": flops}
    return one


def operator(
    name: str = "convolution",
    flops: float | None = FLOPS,
    *,
    shapes: str = SHAPES,
    phase: str = "forward",
    module: str | None = CONV,
    contraction: float | None = None,
) -> dict[str, Any]:
    """A line of expected.jsonl. Its FLOPs are those of a contraction unless `contraction` says how many are."""
    return {
        "operator": f"aten.{name}", "phase": phase, "module": module, "iteration": 0, "ns": None, "flops": flops,
        "contraction_flops": flops if contraction is None else contraction, "unit": None, "read": 1500, "written": 500,
        "shapes": shapes, "dtype": "float32",
    }  # fmt: skip


def write_expected(folder: Path, *operators: dict[str, Any]) -> None:
    header = {FORMAT: FORMAT_VERSION, "device": "meta", "device_name": "", "estimate": True}
    (folder / EXPECTED).write_text("".join(json.dumps(line) + "\n" for line in (header, *operators)))


@pytest.fixture
def against(tmp_path: Path) -> Any:
    """Compare launches with operators, written to and read from their file."""

    def compared(
        launches: list[Launch],
        operators: list[dict[str, Any]],
        collection: Collection = EVERYTHING,
        depth: int | None = None,
    ) -> ExpectedComparison:
        write_expected(tmp_path, *operators)
        return compare(table(*launches), expected_of(str(tmp_path)), collection=collection, depth=depth)

    return compared


def layer(comparison: ExpectedComparison, module: str, phase: str = "forward") -> Row:
    (row,) = [row for row in comparison.rows if (row.scope, row.phase, row.module) == ("layer", phase, module)]
    return row


class TestRows:
    def test_are_the_model_then_its_phases_then_its_layers_with_the_most_work_first(self, against: Any) -> None:
        places = [("backward", CONV), ("forward", "model.fc"), ("forward", CONV)]
        work = [2 * FLOPS, 8.0, FLOPS]
        launches = [kernel(flops=flops, phase=p, module=m) for (p, m), flops in zip(places, work, strict=True)]
        operators = [operator(flops=flops, phase=p, module=m) for (p, m), flops in zip(places, work, strict=True)]
        rows = against(launches, operators).rows
        assert [(row.scope, row.phase, row.module) for row in rows] == [
            ("model", None, None), ("phase", "forward", None), ("phase", "backward", None),
            ("layer", "backward", CONV), ("layer", "forward", CONV), ("layer", "forward", "model.fc"),
        ]  # fmt: skip
        assert [row.flops_ratio for row in rows] == [1.0] * 6
        assert rows[0].measured_flops == rows[0].expected_flops == 3 * FLOPS + 8
        assert all(not row.causes for row in rows)

    def test_flops_of_contractions_and_of_all_operators_stand_side_by_side(self, against: Any) -> None:
        operators = [operator(), operator("relu", 0.1 * FLOPS, contraction=0.0)]
        row = against([kernel(flops=1.1 * FLOPS)], operators).rows[0]
        assert (row.expected_flops, row.flops_ratio) == (FLOPS, pytest.approx(1.1))
        assert (row.all_flops, row.all_ratio) == (pytest.approx(1.1 * FLOPS), pytest.approx(1.0))
        assert "element-wise" in row.fitting
        assert "with element-wise operators by their shapes the ratio is 1.000" in row.causes[0]

    def test_all_operators_have_a_lower_bound_where_one_has_no_formula(self, against: Any) -> None:
        row = against([kernel()], [operator(), operator("grid_sampler_2d", None, contraction=0.0)]).rows[0]
        assert (row.expected_flops, row.flops_ratio) == (FLOPS, 1.0)
        assert (row.all_flops, row.all_flops_lower_bound, row.all_ratio) == (FLOPS, True, None)

    def test_a_run_of_an_older_release_has_the_flops_of_contractions_alone(self, tmp_path: Path) -> None:
        header = {FORMAT: 1, "device": "meta", "device_name": "", "estimate": True}
        old = {name: value for name, value in operator().items() if name not in ("contraction_flops", "unit")}
        (tmp_path / EXPECTED).write_text(f"{json.dumps(header)}\n{json.dumps(old)}\n")
        row = compare(table(kernel()), expected_of(str(tmp_path))).rows[0]
        assert (row.expected_flops, row.flops_ratio, row.all_flops) == (FLOPS, 1.0, None)

    def test_flops_counted_by_opcodes_are_measured(self, against: Any) -> None:
        counted = kernel(basis="tensor ops from the shapes of opcodes")
        assert against([counted], [operator()]).rows[0].measured_flops == FLOPS

    def test_bytes_are_shown_together_without_a_verdict(self, against: Any) -> None:
        row = against([kernel(dram=500.0)], [operator()]).rows[0]
        assert (row.measured_bytes, row.expected_bytes, row.bytes_ratio) == (500.0, 2000.0, 0.25)
        assert row.causes == ()

    def test_measured_values_are_means_over_the_measured_iterations(self, against: Any) -> None:
        comparison = against([kernel(iteration=0), kernel(iteration=1)], [operator()])
        assert (comparison.rows[0].measured_flops, comparison.rows[0].launches) == (FLOPS, 2)
        assert "means over 2 iterations" in " ".join(comparison.notes)

    def test_work_before_the_iterations_is_in_no_mean_and_a_note_names_it(self, against: Any) -> None:
        comparison = against([kernel(), kernel(iteration=0), kernel(iteration=1)], [operator()])
        assert (comparison.rows[0].measured_flops, comparison.rows[0].launches) == (FLOPS, 2)
        assert any(note.startswith("1 launch") and "outside any iteration" in note for note in comparison.notes)

    def test_launches_without_iteration_numbers_use_the_requested_number(self, against: Any) -> None:
        assert against([kernel(), kernel()], [operator()], Collection((), iterations=2)).rows[0].flops_ratio == 1.0

    def test_launches_without_module_have_a_separate_row(self, against: Any) -> None:
        comparison = against([kernel(), kernel("add", 7.0, module=None)], [operator()])
        row = layer(comparison, "(no module)")
        assert (row.measured_flops, row.expected_flops, row.flops_ratio) == (7.0, None, None)
        assert "1 of 2 launches are listed under (no module)" in comparison.notes

    def test_a_layer_has_its_own_launches_and_with_depth_those_inside_it(self, against: Any) -> None:
        modules = ["model.block.0.conv", "model.block.1.conv", "model.block"]
        launches, operators = [kernel(module=name) for name in modules], [operator(module=name) for name in modules]
        assert layer(against(launches, operators), "model.block").launches == 1
        comparison = against(launches, operators, depth=2)
        assert layer(comparison, "model.block").launches == 3
        assert len(comparison.rows) == 3

    def test_one_launch_with_unknown_flops_makes_the_sum_unknown(self, against: Any) -> None:
        lost = kernel("gemm", None, basis="sass fp32; not collected: tensor, which was busy")
        row = against([kernel(), lost], [operator()]).rows[0]
        assert (row.measured_flops, row.flops_ratio) == (None, None)
        assert row.causes == ("The FLOPs of 1 of 2 launches are not known: their tensor metrics were not collected.",)

    def test_a_launch_with_at_least_zero_flops_makes_the_sum_a_lower_bound(self, against: Any) -> None:
        copy = launch("copy", sass(), phase="forward", module=CONV)
        row = against([kernel(), copy], [operator()]).rows[0]
        assert (row.measured_flops, row.flops_lower_bound) == (FLOPS, True)

    def test_at_least_zero_alone_bounds_nothing(self, against: Any) -> None:
        row = against([launch("gemm", sass(), phase="forward", module=CONV)], [operator()]).rows[0]
        assert (row.measured_flops, row.flops_lower_bound) == (None, False)
        assert row.causes == ("None of the FLOPs were collected.",)

    def test_an_operator_without_formula_makes_the_expected_sum_unknown_and_is_named(self, against: Any) -> None:
        row = against([kernel()], [operator(), operator("mystery", None)]).rows[0]
        assert (row.expected_flops, row.flops_ratio) == (None, None)
        assert row.causes == ("No formula is known for the FLOPs of mystery.",)

    def test_expected_work_without_a_launch_is_unknown_and_not_zero(self, against: Any) -> None:
        row = layer(against([kernel()], [operator(), operator(module="model.fc")]), "model.fc")
        assert (row.measured_flops, row.measured_bytes, row.launches) == (None, None, 0)
        assert row.causes == ("No launch of this was measured (no filter was asked for).",)

    def test_failed_launches_are_not_counted(self, against: Any) -> None:
        assert against([kernel(), kernel("bad", None, failed=True)], [operator()]).rows[0].flops_ratio == 1.0

    def test_the_flops_of_real_counters_are_compared(self, against: Any) -> None:
        counted = launch("gemm", sass() | tensor("8.0", bf16_dst_fp32=FLOPS), phase="forward", module=CONV)
        assert against([counted], [operator()]).rows[0].flops_ratio == 1.0


def fitting(comparison: ExpectedComparison) -> tuple[str, ...]:
    return comparison.rows[0].fitting


def against_it(comparison: ExpectedComparison, title: str) -> str:
    """The reason in the second sentence why a cause does not fit."""
    text: str = comparison.rows[0].causes[1]
    assert title in text, text
    return text.partition(title)[2]


class TestCausesOfARatioTooLow:
    def test_winograd_fits_by_the_names_of_its_kernels(self, against: Any) -> None:
        comparison = against([kernel("ampere_scudnn_winograd_128x128_ldg1", 0.45 * FLOPS)], [operator()])
        assert fitting(comparison) == ("Winograd",)
        assert "Fits: Winograd convolution (1 of 1 launch are Winograd kernels" in comparison.rows[0].causes[0]

    def test_winograd_does_not_fit_more_than_it_can_save(self, against: Any) -> None:
        operators = [operator(), operator("mm", FLOPS, shapes="64x64 64x64", module="model.fc")]
        launches = [kernel("winograd", 0.2 * FLOPS), kernel("gemm", 0.2 * FLOPS, module="model.fc")]
        comparison = against(launches, operators)
        assert fitting(comparison) == ()
        assert "cannot bring the ratio below 0.5649" in against_it(comparison, "Winograd convolution")

    @pytest.mark.parametrize("name", ["void fft2d_r2c_32x32<float>(float2*)", "volta_gcgemm_32x32_nt"])
    def test_fft_fits_by_the_names_of_its_kernels(self, name: str, against: Any) -> None:
        assert fitting(against([kernel(name, 0.5 * FLOPS)], [operator()])) == ("FFT",)

    def test_uncollected_tensor_metrics_fit_and_are_named(self, against: Any) -> None:
        lost = kernel("gemm", 0.1 * FLOPS, basis="sass fp64+fp32+fp16; not collected: tensor")
        comparison = against([lost], [operator()])
        assert fitting(comparison) == ("not collected",)
        assert "(tensor in 1 of 1 launch: the measured FLOPs are a lower bound)" in comparison.rows[0].causes[0]

    def test_filters_fit_with_the_options_and_the_work_that_has_no_launch(self, against: Any) -> None:
        collection = Collection(("--launch-count 5",))
        comparison = against([kernel()], [operator(), operator(module="model.fc")], collection)
        assert fitting(comparison) == ("filtered out",)
        assert "--launch-count 5; modules without any launch hold 604 MFLOP, 0.5 of" in comparison.rows[0].causes[0]

    def test_a_run_that_ended_early_lacks_launches(self, against: Any) -> None:
        comparison = against([kernel(flops=1.0)], [operator()], Collection((), partial=True))
        assert "launches filtered out (the run ended early)" in comparison.rows[0].causes[0]

    @pytest.mark.parametrize(
        ("collection", "reason"),
        [(EVERYTHING, "(no filter was asked for)"), (Collection(), "(no manifest says whether any were)")],
    )
    def test_filters_do_not_fit_if_none_is_known(self, collection: Collection, reason: str, against: Any) -> None:
        comparison = against([kernel(flops=0.5 * FLOPS)], [operator()], collection)
        assert against_it(comparison, "launches filtered out ").startswith(reason)

    def test_sparse_kernels_fit_by_name(self, against: Any) -> None:
        name = "sm80_xmma_sparse_gemm_f16f16_f16f32_f32_nt_n_tilesize128x128x64"
        assert fitting(against([kernel(name, 0.5 * FLOPS)], [operator()])) == ("sparse",)

    def test_sparse_kernels_fit_by_their_counter(self, against: Any) -> None:
        one = kernel("gemm", 0.5 * FLOPS)
        one.metrics["sm__ops_path_tensor_src_fp16_dst_fp32_sparsity_on.sum"] = metric(9.0)
        assert fitting(against([one], [operator()])) == ("sparse",)

    def test_without_evidence_no_cause_fits_and_each_has_a_reason(self, against: Any) -> None:
        row = against([kernel("gemm", 0.5 * FLOPS)], [operator()]).rows[0]
        assert row.causes[0] == "No known cause fits."
        for words in (
            "Winograd convolution (no kernel",
            "FFT convolution (no FFT",
            "(every launch has them)",
            "sparse k",
        ):
            assert words in row.causes[1]
        assert "padding to tile size, recomputation, split-K" in row.causes[1]
        assert "would raise the ratio" in row.causes[1]


class TestCausesOfARatioTooHigh:
    def test_padding_fits_between_one_and_the_factor_of_the_larger_tile(self, against: Any) -> None:
        product = operator("mm", 2.0 * 100 * 100 * 96, shapes="100x96 96x100")
        comparison = against([kernel(flops=1.5 * 2.0 * 100 * 100 * 96)], [product])
        assert fitting(comparison) == ("padding",)
        assert "tiles of 64 would give 1.638 and tiles of 128 would give 1.638" in comparison.rows[0].causes[0]

    def test_padding_does_not_fit_shapes_that_fill_their_tiles(self, against: Any) -> None:
        comparison = against(
            [kernel(flops=1.5 * 2.0 * 128**3)], [operator("mm", 2.0 * 128**3, shapes="128x128 128x128")]
        )
        assert fitting(comparison) == ()
        assert "tiles of 128 would give 1.000" in against_it(comparison, "padding to tile size")

    def test_padding_does_not_fit_if_contractions_alone_equal_the_expected_flops(self, against: Any) -> None:
        comparison = against([kernel(), kernel("elementwise_kernel", 0.2 * FLOPS)], [operator()])
        assert fitting(comparison) == ("element-wise",)
        assert "the contractions alone are at 1.000" in against_it(comparison, "padding to tile size")

    def test_recomputation_fits_fused_attention_if_plain_attention_was_expected(self, against: Any) -> None:
        expected = operator("bmm", 2.0 * 64**3, shapes="1x64x64 1x64x64", phase="backward")
        name = "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<T>(P)"
        comparison = against([kernel(name, 1.25 * 2.0 * 64**3, phase="backward")], [expected])
        assert "recomputation" in fitting(comparison)
        assert "five products for four, 131.1 KFLOP, 0.25 of the expected" in comparison.rows[0].causes[0]

    def test_recomputation_does_not_fit_if_the_expected_flops_include_it(self, against: Any) -> None:
        name = "_scaled_dot_product_flash_attention_backward"
        expected = operator(name, 1e6, shapes="1x1x64x64 1x1x64x64 1x1x64x64 1x1x64x64", phase="backward")
        comparison = against([kernel("fmha_cutlassB_f16_aligned_64x64_k64_sm80", 1.3e6, phase="backward")], [expected])
        assert "recomputation" not in fitting(comparison)
        assert "(the expected FLOPs already count it)" in against_it(comparison, "recomputation")

    def test_split_k_fits_with_the_additions_of_its_reductions(self, against: Any) -> None:
        launches = [kernel(), kernel("void cublasLt::splitKreduce_kernel<32, 16, int>(P)", 0.1 * FLOPS)]
        comparison = against(launches, [operator()])
        assert fitting(comparison) == ("split-K",)
        assert "adding up their parts took 60.4 MFLOP, 0.1 of the expected" in comparison.rows[0].causes[0]

    def test_split_k_does_not_fit_a_difference_far_above_its_additions(self, against: Any) -> None:
        comparison = against([kernel("sm80_xmma_gemm_execute_split_k_kernel", 3 * FLOPS)], [operator()])
        assert fitting(comparison) == ()
        assert "takes at most" in against_it(comparison, "split-K")

    def test_splitting_the_keys_of_attention_is_not_split_k(self, against: Any) -> None:
        comparison = against([kernel("flash_fwd_splitkv_kernel", 3 * FLOPS)], [operator()])
        assert "(no split-K kernel)" in against_it(comparison, "split-K")

    def test_work_in_modules_without_contractions_fits_with_its_amount(self, against: Any) -> None:
        operators = [operator(), operator("gelu", 0.0, shapes="8x64", module="model.act")]
        comparison = against([kernel(), kernel("k", 0.2 * FLOPS, module="model.act")], operators)
        assert fitting(comparison) == ("element-wise",)
        assert "(120.8 MFLOP, 0.2 of the expected)" in comparison.rows[0].causes[0]
        assert layer(comparison, "model.act").flops_ratio is None

    def test_elementwise_work_within_a_layer_is_detected_by_kernel_name(self, against: Any) -> None:
        softmax = kernel("void softmax_warp_forward<float, 8>(float*)", 0.2 * FLOPS)
        assert fitting(against([kernel(), softmax], [operator()])) == ("element-wise",)

    def test_elementwise_work_that_explains_almost_nothing_does_not_fit(self, against: Any) -> None:
        launches = [kernel(flops=3 * FLOPS), kernel("elementwise_kernel", 0.001 * FLOPS)]
        comparison = against(launches, [operator()])
        assert fitting(comparison) == ()
        assert "0.001 of the expected" in against_it(comparison, "element-wise work beside contractions")

    def test_constant_moves_counted_as_half_precision_fit(self, against: Any) -> None:
        one = kernel(flops=1.5 * FLOPS, basis="sass fp64+fp32+fp16; fp16 is hfma alone and may be constant moves")
        one.measures["flops_fp16"] = FLOPS
        assert fitting(against([one], [operator()])) == ("constant moves",)

    def test_causes_that_lower_the_ratio_are_listed_as_such(self, against: Any) -> None:
        comparison = against([kernel(flops=2 * FLOPS)], [operator()])
        assert (
            "sparse kernels, attention under a causal mask (each would lower the ratio)."
            in comparison.rows[0].causes[1]
        )


@pytest.mark.parametrize(("ratio", "explained"), [(0.96, True), (0.97, False), (1.03, False), (1.04, True)])
def test_only_ratios_outside_the_limits_are_explained(ratio: float, explained: bool, against: Any) -> None:
    flops = 1e6
    row = against([kernel(flops=ratio * flops)], [operator("mm", flops, shapes="128x128 128x128")]).rows[0]
    assert bool(row.causes) == explained


class TestPadding:
    @pytest.mark.parametrize(
        ("operator_name", "shapes", "flops", "padded"),
        [
            ("mm", "100x32 32x64", 2.0 * 100 * 32 * 64, 2.0 * 128 * 32 * 64),
            ("addmm", "64 100x40 40x64", 2.0 * 100 * 40 * 64, 2.0 * 128 * 64 * 64),
            ("bmm", "12x197x64 12x64x197", 2.0 * 12 * 197 * 64 * 197, 2.0 * 12 * 256 * 64 * 256),
            ("convolution", "1x3x224x224 64x3x7x7", 2.0 * 112 * 112 * 147 * 64, 2.0 * 12544 * 160 * 64),
            ("convolution", "1x32x8x8 32x1x3x3 32", 2.0 * 64 * 9 * 32, 2.0 * 64 * 9 * 32),
            ("mm", "1x512 512x1000", 2.0 * 512 * 1000, 2.0 * 512 * 1000),
            ("convolution_backward", "1x64x8x8 1x32x8x8 64x32x1x1", 4.0 * 64 * 64 * 32, 2.0 * 64 * 64 * (64 + 64)),
            ("_scaled_dot_product_flash_attention", "1x1x100x64 1x1x64x64", 4.0 * 6400 * 64, 4.0 * 128 * 64 * 64),
            ("gelu", "64x64", 0.0, 0.0),
            ("mm", "not what an mm has", 7.0, 7.0),
        ],
    )
    def test_pads_rows_columns_and_depth(self, operator_name: str, shapes: str, flops: float, padded: float) -> None:
        assert padded_flops(operator_name, shapes, flops, 64) == pytest.approx(padded)


class TestCollection:
    def test_filters_are_read_from_the_command_that_ran(self) -> None:
        command = (
            "ncu --csv --kernel-name regex:gemm --launch-count=5 --nvtx --nvtx-include ncu_bench@forward python -m x"
        )
        assert filters_in(command.split()) == (
            "--kernel-name regex:gemm", "--launch-count=5", "--nvtx-include ncu_bench@forward",
        )  # fmt: skip

    def test_the_command_that_ran_takes_precedence_over_the_typed_one(self) -> None:
        ran = ToolRun(["ncu", "--launch-skip", "3", "python"], 0, 1.0)
        manifest = Manifest(["ncu-bench"], "ncu", "now", {"iterations": 4}, tool_runs=[ran], partial=True)
        assert collection_of(manifest) == Collection(("--launch-skip 3",), 4, True)
        assert collection_of(Manifest(["ncu-bench", "--kernel", "x"], "ncu", "now")).filters == ("--kernel x",)


def test_the_summary_has_a_sentence_for_the_model_and_each_phase(against: Any) -> None:
    launches = [kernel(), kernel("winograd", 0.5 * FLOPS, phase="backward")]
    model, forward, backward = summary(against(launches, [operator(), operator(phase="backward")]))
    assert forward == "forward: 604 MFLOP measured, 604 MFLOP expected, ratio 1.000"
    assert model.startswith("model: 906 MFLOP measured, 1.208 GFLOP expected, ratio 0.750. Fits: Winograd")
    assert backward.startswith("backward: 302 MFLOP measured, 604 MFLOP expected, ratio 0.500. Fits: Winograd")


# --------------------------------------------------------------------------------------------------- the command


def run_folder(folder: Path, launches: list[Launch], operators: list[dict[str, Any]], **manifest: Any) -> str:
    write_table(with_metadata(table(*launches), {"schema_version": SCHEMA_VERSION}), folder / LAUNCHES)
    write_manifest(Manifest(["ncu-bench", "profile"], "ncu", "now", **manifest), folder)
    if operators:
        write_expected(folder, *operators)
    return str(folder)


class TestAReportWithoutManifest:
    """The report does not say which model ran: the user does."""

    @pytest.fixture(autouse=True)
    def _models_run_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        models_run_here(monkeypatch)

    @pytest.fixture
    def report(self, tmp_path: Path) -> str:
        products = [kernel("gemm", 2.0 * 64**3, phase=None, module=None) for _ in range(2)]
        write_table(with_metadata(table(*products), {"schema_version": SCHEMA_VERSION}), tmp_path / "own.parquet")
        return str(tmp_path / "own.parquet")

    def rows(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
        assert run(["compare", "--with", "formulas", *arguments, "--format", "json"]) == 0
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
        return found

    def test_has_one_row_compared_with_the_expected_target(
        self, report: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (row,) = self.rows(capsys, report, "--target", "gemm:64,64,64,fp32")
        assert (row["scope"], row["measured_flops"], row["expected_flops"]) == ("model", 4.0 * 64**3, 2.0 * 64**3)
        assert row["flops_ratio"] == 2.0

    def test_is_divided_by_its_iterations(self, report: str, capsys: pytest.CaptureFixture[str]) -> None:
        (row,) = self.rows(capsys, report, "--target", "gemm:64,64,64,fp32", "--iterations", "2")
        assert row["flops_ratio"] == 1.0

    def test_of_a_model_uses_the_given_sizes_and_phases(self, report: str, capsys: pytest.CaptureFixture[str]) -> None:
        sizes = ("--target", "squeezenet1_1", "--input-size", "64", "--batch-size")
        (one,) = self.rows(capsys, report, *sizes, "1", "--phase", "forward")
        (four,) = self.rows(capsys, report, *sizes, "4", "--phase", "forward")
        (both,) = self.rows(capsys, report, *sizes, "1")
        assert four["expected_flops"] == 4 * one["expected_flops"]
        assert 2.8 < both["expected_flops"] / one["expected_flops"] < 3  # no gradient of the images

    def test_without_a_target_is_an_error_with_advice(self, report: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["compare", "--with", "formulas", report]) == 1
        assert f"ncu-bench compare {report} --with formulas --target resnet18" in capsys.readouterr().err
        assert run(["compare", "--with", "formulas", report, "--batch-size", "8"]) == 2
        assert "without --target" in capsys.readouterr().err
        assert run(["compare", "--with", "formulas", report, "--target", "resnet81"]) == 2
        assert "Near names: resnet18" in capsys.readouterr().err

    def test_with_known_phases_is_limited_to_the_expected_ones(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        products = [kernel("gemm", 2.0 * 64**3, phase=phase, module=None) for phase in ("forward", "backward")]
        write_table(with_metadata(table(*products), {"schema_version": SCHEMA_VERSION}), tmp_path / "own.parquet")
        asked = (str(tmp_path / "own.parquet"), "--target", "gemm:64,64,64,fp32", "--phase", "forward")
        assert self.rows(capsys, *asked)[0]["flops_ratio"] == 1.0


class TestCommand:
    LAUNCHES = (kernel("winograd", 0.5 * FLOPS), kernel("gemm", FLOPS, module="model.fc"))
    OPERATORS = (operator(), operator(module="model.fc"), operator(module="model.fc", phase="backward"))

    @pytest.fixture
    def folder(self, tmp_path: Path) -> str:
        return run_folder(tmp_path, list(self.LAUNCHES), list(self.OPERATORS))

    def test_shows_the_model_first_and_notes_the_causes(self, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["compare", "--with", "formulas", folder, "--notes"]) == 0
        shown = capsys.readouterr()
        assert [line.split()[0] for line in shown.out.splitlines() if line.split()[:1] in (["model"], ["phase"])] == [
            "model", "phase", "phase",
        ]  # fmt: skip
        assert "note: forward model.conv: Fits: Winograd convolution (1 of 1 launch" in shown.err
        assert "not judged" in shown.err

    def test_rows_with_the_same_causes_share_a_note(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        names = ("model.a", "model.b")
        launches = [kernel("winograd", 0.5 * FLOPS, module=name) for name in names]
        assert (
            run(
                [
                    "compare",
                    "--with",
                    "formulas",
                    run_folder(tmp_path, launches, [operator(module=name) for name in names]),
                    "--notes",
                ]
            )
            == 0
        )
        (note,) = [line for line in capsys.readouterr().err.splitlines() if "forward model.a" in line]
        assert "forward model.a, forward model.b: Fits: Winograd" in note
        assert "Does not fit" not in note

    def test_json_and_csv_have_every_row_with_its_causes(self, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["compare", "--with", "formulas", folder, "--format", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["columns"]["measured_flops"] == "FLOP"
        assert [row["scope"] for row in document["rows"]] == ["model", "phase", "phase", "layer", "layer", "layer"]
        assert run(["compare", "--with", "formulas", folder, "--format", "csv"]) == 0
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert [row["causes"] for row in rows] == [row["causes"] or "" for row in document["rows"]]

    def test_phase_top_and_depth_select_the_rows(self, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert (
            run(["compare", "--with", "formulas", folder, "--phase", "forward", "--depth", "1", "--format", "json"])
            == 0
        )
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert [(row["scope"], row["module"]) for row in rows] == [
            ("model", None), ("phase", None), ("layer", "model"),
        ]  # fmt: skip
        assert run(["compare", "--with", "formulas", folder, "--top", "1", "--notes"]) == 0
        assert "2 more layers have less work" in capsys.readouterr().err

    def test_filters_come_from_the_manifest(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        ran = ToolRun(["ncu", "--launch-count", "2", "python"], 0, 1.0)
        folder = run_folder(tmp_path, list(self.LAUNCHES), list(self.OPERATORS), tool_runs=[ran])
        assert run(["compare", "--with", "formulas", folder, "--notes"]) == 0
        assert "launches filtered out (--launch-count 2" in capsys.readouterr().err

    def test_a_run_of_the_operator_collector_is_refused(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        measured = tmp_path / "operators.jsonl"
        header = {FORMAT: FORMAT_VERSION, "device": "cpu", "device_name": "x"}
        measured.write_text(f"{json.dumps(header)}\n{json.dumps(operator() | {'ns': 5.0})}\n")
        assert run(["compare", "--with", "formulas", str(measured)]) == 1
        assert "come from the same operator formulas" in capsys.readouterr().err

    def test_a_run_without_expected_operators_is_refused_with_advice(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["compare", "--with", "formulas", run_folder(tmp_path, list(self.LAUNCHES), [])]) == 1
        assert "Only runs of a model target under ncu have one" in capsys.readouterr().err


def test_the_parquet_file_of_a_run_is_accepted_for_its_folder(tmp_path: Path) -> None:
    write_expected(tmp_path, operator())
    found: pa.Table = expected_of(str(tmp_path / LAUNCHES))
    assert found.column("flops").to_pylist() == [FLOPS]
    with pytest.raises(NcuBenchError):
        expected_of(str(tmp_path / "elsewhere" / LAUNCHES))


class TestIntegerOperations:
    """Products of int8 do no FLOPs; their operations are compared separately."""

    def expected(self, tmp_path: Path) -> pa.Table:
        record = {
            "operator": "aten._int_mm", "phase": "forward", "module": "gemm", "iteration": 0, "ns": None, "flops": 0.0,
            "read": 100, "written": 100, "dtype": None, "shapes": "8x8 8x8", "integer_operations": 1024,
        }  # fmt: skip
        header = {"ncu_bench_operators": 1, "device": "meta", "device_name": "", "estimate": True}
        (tmp_path / "expected.jsonl").write_text(f"{json.dumps(header)}\n{json.dumps(record)}\n", "utf-8")
        return expected_of(str(tmp_path))

    def measured(self, **counters: float) -> pa.Table:
        found = {name: metric(value) for name, value in counters.items()}
        return table(launch("igemm", {**sass(), **found}, ns=5, phase="forward", module="gemm", iteration=0))

    def test_are_shown_beside_the_counted_ones(self, tmp_path: Path) -> None:
        measured = self.measured(**{"sm__ops_path_tensor_src_int8.sum": 1025.0})
        row = compare(measured, self.expected(tmp_path)).rows[0]
        assert (row.measured_integers, row.expected_integers) == (1025, 1024)
        assert row.integers_ratio == pytest.approx(1.001, abs=1e-3)
        assert row.expected_flops == 0

    def test_are_unknown_if_they_were_not_counted(self, tmp_path: Path) -> None:
        comparison = compare(self.measured(), self.expected(tmp_path))
        assert (comparison.rows[0].measured_integers, comparison.rows[0].integers_ratio) == (None, None)
        assert "unknown measured, 1.024 KOP expected" in summary(comparison)[0]
