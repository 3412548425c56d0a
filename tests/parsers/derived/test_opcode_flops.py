"""FLOPs from counts per opcode and idle pipes where counters lack (flops), and both compared (opcode_check)."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.counters.metrics import floating_tensor_totals
from ncu_parsers.derived.opcode_check import OpcodeDifference, notes_on
from ncu_parsers.derived.opcode_lists import (
    MOVES,
    THREADS,
    THREADS_BY_FULL_NAME,
    THREADS_BY_INSTRUCTION,
    WARPS,
    WARPS_BY_FULL_NAME,
    named_instances,
    thread_instructions,
)
from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.parse.parse import parse
from ncu_parsers.report_data.report import Launch, Metric, Report
from ncu_parsers.schema.flops_basis import basis_of
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming.streaming_reader import stream_report

from tests.conftest import SAMPLES
from tests.support.launches import SASS, launch, metric, row, sass, table, tensor
from tests.support.reports import needs_shared_reports, shared_reports, table_of

IDLE_TENSOR = {"sm__inst_executed_pipe_tensor.sum": metric(0.0)}


def listed(counts: Mapping[str, float], metric_name: str = THREADS_BY_FULL_NAME) -> dict[str, Any]:
    """The metric and the instances of a list of opcodes."""
    text = "; ".join(f"{opcode}: {count}" for opcode, count in counts.items())
    return {"metrics": {metric_name: metric(float(sum(counts.values())))}, "instances": {metric_name: text}}


def kernel(found: dict[str, Any], metrics: dict[str, Metric] | None = None, **attributes: Any) -> Launch:
    """A launch with a list of opcodes and other metrics."""
    return launch(metrics=found["metrics"] | (metrics or {}), instances=found["instances"], **attributes)


def full_set(**counts: float) -> dict[str, Metric]:
    """The counters of a full set: all but hadd and hmul."""
    names = [SASS.format(name) for name in ("hadd", "hmul")]
    return {name: value for name, value in (sass(**counts) | IDLE_TENSOR).items() if name not in names}


# ------------------------------------------------------------------------------------------- FLOPs from opcodes


def test_fp16_of_a_full_set_comes_from_opcodes_and_the_count_is_complete() -> None:
    found = row(
        kernel(listed({"FFMA": 100, "HADD2": 1, "HMUL2": 10, "HFMA2": 1000, "MOV": 5}), full_set(ffma=100, hfma=1000))
    )
    assert (found["flops_fp32"], found["flops_fp16"]) == (200, 2 * 1 + 2 * 10 + 4 * 1000)
    assert found["flops"] == 200 + 4022
    assert found["flops_basis"] == "sass fp64+fp32; opcodes fp16"


def test_without_any_counter_every_precision_comes_from_opcodes() -> None:
    found = row(
        kernel(listed({"DADD": 1, "DMUL": 2, "DFMA": 3, "FADD": 10, "FMUL": 20, "FFMA": 30, "HADD2": 100}), IDLE_TENSOR)
    )
    assert (found["flops_fp64"], found["flops_fp32"], found["flops_fp16"]) == (9, 90, 200)
    assert found["flops_basis"] == "opcodes fp64+fp32+fp16"


def test_modifiers_do_not_change_what_an_opcode_counts_as() -> None:
    assert row(kernel(listed({"FFMA.SAT": 1, "FFMA.RM": 2, "FADD.FTZ": 4, "FFMA": 8})))["flops_fp32"] == 2 * 11 + 4


def test_forms_with_an_immediate_operand_count_as_the_others() -> None:
    found = row(kernel(listed({"FADD32I": 1, "FMUL32I.FTZ": 2, "FFMA32I": 4, "HFMA2_32I": 8, "HMUL2": 1})))
    assert (found["flops_fp32"], found["flops_fp16"]) == (1 + 2 + 8, 4 * 8 + 2)


@pytest.mark.parametrize("opcode", ["FHADD", "FHFMA.RZ", "FSWZADD"])
def test_where_arithmetic_ran_that_no_counter_is_known_to_hold_fp32_stays_unknown(opcode: str) -> None:
    found = row(kernel(listed({"FFMA": 100, "FADD": 1, "DFMA": 1, opcode: 5}), IDLE_TENSOR))
    assert (found["flops_fp32"], found["flops_fp64"]) == (None, 2)
    assert found["flops_basis"] == "opcodes fp64+fp16; not collected: fp32"
    assert row(kernel(listed({"FFMA": 100, opcode: 5}), sass(ffma=100)))["flops_fp32"] == 200
    assert row(kernel(listed({"FFMA": 100, opcode: 0}), IDLE_TENSOR))["flops_fp32"] == 200


def test_arithmetic_without_a_known_counter_leaves_fp32_unknown_by_counts_per_instruction_too() -> None:
    found = row(kernel(listed({"FFMA": 100, "DFMA": 1, "FHADD": 5}, THREADS_BY_INSTRUCTION), IDLE_TENSOR))
    assert (found["flops_fp32"], found["flops_fp64"]) == (None, 2)
    assert found["flops_basis"].endswith(" fp64+fp16; not collected: fp32")


def test_packed_fp32_counts_two_lanes_on_every_chip() -> None:
    for capability in ("10.0", "12.0", None):
        found = row(kernel(listed({"FADD2": 1, "FMUL2": 10, "FFMA2.FTZ": 100}), capability=capability))
        assert found["flops_fp32"] == 2 + 20 + 400


def test_packed_fp32_that_was_not_counted_comes_from_opcodes() -> None:
    none = {name: metric(0.0) for name in floating_tensor_totals("10.0") or ()}
    found = row(kernel(listed({"FFMA": 5, "FFMA2": 7}), sass(ffma=5) | none, capability="10.0"))
    assert (found["flops_fp32"], found["flops_basis"]) == (10 + 28, "sass fp64+fp16; opcodes fp32; tensor ops")


@pytest.mark.parametrize(
    "opcode",
    ["MUFU.EX2", "FSETP.NEU.AND", "FMNMX", "FCHK", "F2F.F64.F32", "I2FP.F32.U32", "F2FP.F16", "HMNMX2", "HSETP2.GT",
     "DSETP.LT", "HADD2.F32", "UFADD", "IMAD.MOV.U32", "FSEL"],
)  # fmt: skip
def test_special_functions_comparisons_and_conversions_are_no_flops(opcode: str) -> None:
    found = row(kernel(listed({opcode: 32}), IDLE_TENSOR))
    assert (found["flops_fp64"], found["flops_fp32"], found["flops_fp16"], found["flops"]) == (0, 0, 0, 0)


def test_threads_that_were_predicated_off_are_not_counted() -> None:
    threads, warps = listed({"FFMA": 20}), listed({"FFMA": 1}, WARPS_BY_FULL_NAME)
    both = {part: threads[part] | warps[part] for part in threads}
    assert row(kernel(both))["flops_fp32"] == 2 * 20


def test_a_counter_is_preferred_to_the_opcodes() -> None:
    found = row(kernel(listed({"FFMA": 101}), sass(ffma=100) | IDLE_TENSOR))
    assert (found["flops_fp32"], found["flops_basis"]) == (200, "sass fp64+fp32+fp16")


class TestAListOfAnotherKind:
    def test_of_warp_instructions_proves_zeros_and_nothing_else(self) -> None:
        for name in WARPS:
            found = row(kernel(listed({"FFMA": 100, "MOV": 1}, name), IDLE_TENSOR))
            assert (found["flops_fp64"], found["flops_fp32"], found["flops_fp16"]) == (0, None, 0)

    def test_without_modifiers_leaves_open_whether_half_additions_are_conversions(self) -> None:
        for name in THREADS:
            found = row(kernel(listed({"FFMA": 100, "HADD2": 7}, name), IDLE_TENSOR))
            assert (found["flops_fp64"], found["flops_fp32"], found["flops_fp16"]) == (0, 200, None)

    def test_is_completed_by_what_the_others_tell(self) -> None:
        """Threads without modifiers leave additions open; the warps' modifiers say that all were conversions."""
        threads, warps = listed({"FFMA": 96, "HADD2": 32}, THREADS[0]), listed({"FFMA": 3, "HADD2.F32": 1}, WARPS[0])
        found = row(kernel({part: threads[part] | warps[part] for part in threads}, IDLE_TENSOR))
        assert (found["flops_fp32"], found["flops_fp16"]) == (192, 0)

    def test_without_modifiers_counts_half_fmas_by_the_rule_for_their_counter(self) -> None:
        found = row(kernel(listed({"FFMA": 100, "HFMA2": 7}, THREADS[0]), IDLE_TENSOR, capability="8.0"))
        assert (found["flops_fp16"], found["flops"]) == (28, 200)
        assert "left out: constant moves" in found["flops_basis"]

    def test_with_selected_modifiers_leaves_open_whether_half_fmas_are_moves(self) -> None:
        """The modifier that makes arithmetic of HFMA2.MMA, .BF16_V2, may not be among the selected ones."""
        listed_so = listed({"FFMA": 1000, "HFMA2.MMA": 10}, THREADS[1])
        found = row(kernel(listed_so, full_set(ffma=1000, hfma=10), capability="8.6"))
        assert (found["flops_fp16"], found["flops"]) == (40, 2040)


# ---------------------------------------------------------------------------------------------- constant moves


@pytest.mark.parametrize("capability", ["7.5", "8.0", "8.6", "9.0", "12.0", None])
def test_hfma2_mma_beside_larger_work_is_left_out_on_every_chip(capability: str | None) -> None:
    found = row(kernel(listed({"FFMA": 100, "HFMA2.MMA": 10}), full_set(ffma=100, hfma=10), capability=capability))
    assert (found["flops_fp16"], found["flops"]) == (40, 200)
    assert found["flops_basis"].endswith("opcodes fp16; fp16 left out: constant moves")


def test_one_fma_that_is_certain_makes_arithmetic_of_hfma2_mma_beside_it() -> None:
    found = row(kernel(listed({"FFMA": 1000, "HFMA2.MMA": 10, "HFMA2.BF16_V2": 1}), full_set(ffma=1000, hfma=11)))
    assert found["flops"] == 2000 + 44


def test_conversions_beside_hfma2_mma_do_not_make_it_arithmetic() -> None:
    found = row(kernel(listed({"FFMA": 100, "HFMA2.MMA": 10, "HADD2.F32": 50}), full_set(ffma=100, hfma=10)))
    assert found["flops"] == 200


def test_hfma2_mma_that_outweighs_the_rest_is_counted_and_said_to_be_doubtful() -> None:
    found = row(kernel(listed({"FFMA": 10, "HFMA2.MMA": 100}), full_set(ffma=10, hfma=100)))
    assert found["flops"] == 20 + 400
    assert "fp16 is hfma alone and may be constant moves" in found["flops_basis"]


def test_hfma2_mma_beside_other_half_arithmetic_is_counted_and_said_to_be_doubtful() -> None:
    found = row(kernel(listed({"HADD2": 100, "HFMA2.MMA": 100}), full_set(hfma=100)))
    assert found["flops"] == 200 + 400
    assert "some of fp16 is HFMA2.MMA, which may be constant moves" in found["flops_basis"]


def test_a_few_hfma2_mma_beside_other_half_arithmetic_are_not_worth_a_word() -> None:
    assert (
        "moves"
        not in row(kernel(listed({"HFMA2": 100, "HADD2": 9, "HFMA2.MMA": 1}), full_set(hfma=101)))["flops_basis"]
    )


@pytest.mark.parametrize(
    ("singles", "adds", "moves", "said"),
    [(0, 1000, 9, False), (0, 1000, 12, True), (1000, 10, 10, False), (0, 98, 1, False), (0, 97, 1, True)],
)
def test_moves_beside_other_half_arithmetic_are_worth_a_word_above_two_per_cent_of_the_flops(
    singles: int, adds: int, moves: int, said: bool
) -> None:
    """2,000 FLOPs by others, and 36 to 48 that may be none; 4 of 200 are two per cent, 4 of 198 are more."""
    counts = {"FFMA": singles, "HADD2": adds, "HFMA2.MMA": moves}
    found = row(kernel(listed(counts), full_set(ffma=singles, hfma=moves)))
    assert ("moves" in found["flops_basis"]) == said


def test_a_single_hfma2_mma_is_left_out_on_chips_whose_compilers_do_not_move_constants_with_hfma() -> None:
    found = row(kernel(listed({"FFMA": 1000, "HFMA2.MMA": 1}), full_set(ffma=1000, hfma=1), capability="8.6"))
    assert (found["flops_fp16"], found["flops"]) == (4, 2000)


def test_a_basis_names_by_what_tensor_operations_are_estimated() -> None:
    estimate = "tensor ops estimated: 512 per instruction"
    assert basis_of(f"sass fp64+fp32; {estimate}; not collected: fp16").estimate == estimate
    assert basis_of("sass fp64+fp32; tensor ops").estimate is None
    assert basis_of(None).estimate is None


def test_fmas_on_bf16_are_arithmetic() -> None:
    found = row(kernel(listed({"HFMA2.MMA.BF16_V2": 100, "FFMA": 1000}), full_set(ffma=1000, hfma=100)))
    assert (found["flops_fp16"], found["flops"]) == (400, 2400)
    assert "moves" not in found["flops_basis"]


def test_hfma_of_which_opcodes_list_no_move_is_arithmetic_where_compilers_do_not_move_constants_so() -> None:
    counted = sass(ffma=1000, hfma=10) | IDLE_TENSOR
    found = row(kernel(listed({"FFMA": 1000, "MOV": 5}), counted, capability="8.6"))
    assert (found["flops"], found["flops_basis"]) == (2040, "sass fp64+fp32+fp16")


def test_counts_of_moves_are_part_of_the_count_of_hfma() -> None:
    counted = thread_instructions({"HFMA2.MMA": 3, "HFMA2": 4, "HFMA2.MMA.BF16_V2": 5})
    assert (counted["hfma"], counted[MOVES]) == (12, 3)


# ------------------------------------------------------------------------------------------------- idle pipes


@pytest.mark.parametrize(
    "pipe",
    ["sm__inst_executed_pipe_fp16.sum", "sm__inst_executed_pipe_fp16.avg.pct_of_peak_sustained_active",
     "sm__inst_executed_pipe_fma_type_fp16.avg.pct_of_peak_sustained_active"],
)  # fmt: skip
def test_a_pipe_that_executed_nothing_proves_a_zero(pipe: str) -> None:
    found = row(launch(metrics=full_set(ffma=100) | {pipe: metric(0.0)}))
    assert (found["flops_fp16"], found["flops"], found["flops_basis"]) == (0, 200, "sass fp64+fp32; idle pipe fp16")
    busy = row(launch(metrics=full_set(ffma=100) | {pipe: metric(0.1)}))
    assert (busy["flops_fp16"], busy["flops_basis"]) == (None, "sass fp64+fp32; not collected: fp16")


def test_the_pipe_of_fp64_proves_its_zero() -> None:
    counted = {name: value for name, value in (sass(ffma=1) | IDLE_TENSOR).items() if "_op_d" not in name}
    found = row(launch(metrics=counted | {"sm__inst_executed_pipe_fp64.sum": metric(0.0)}))
    assert (found["flops_fp64"], found["flops_basis"]) == (0, "sass fp32+fp16; idle pipe fp64")


def test_hfma_that_ran_beside_an_idle_pipe_is_taken_for_constant_moves() -> None:
    found = row(launch(metrics=full_set(ffma=100, hfma=10) | {"sm__inst_executed_pipe_fp16.sum": metric(0.0)}))
    assert (found["flops_fp16"], found["flops"]) == (40, 200)
    assert "fp16 left out: constant moves" in found["flops_basis"]


def test_an_idle_pipe_is_not_named_where_everything_was_counted() -> None:
    idle = {"sm__inst_executed_pipe_fp16.sum": metric(0.0)}
    assert row(launch(metrics=sass(ffma=1) | IDLE_TENSOR | idle))["flops_basis"] == "sass fp64+fp32+fp16"


def test_idle_pipes_alone_give_no_flops() -> None:
    found = row(launch(metrics={"sm__inst_executed_pipe_fp16.sum": metric(0.0)}))
    assert (found["flops_fp16"], found["flops"], found["flops_basis"]) == (None, None, None)


# ---------------------------------------------------------------------------------------------- tensor opcodes


def test_opcodes_complete_tensor_counters_of_which_some_are_missing() -> None:
    some = {"sm__ops_path_tensor_src_fp16_dst_fp32.sum": metric(4096.0)}
    found = row(kernel(listed({"HMMA.16816.F32": 1, "HMMA.16816.F32.BF16": 2}, WARPS_BY_FULL_NAME), sass() | some))
    assert (found["tensor_flops_fp16"], found["tensor_flops_bf16"], found["flops"]) == (4096, 8192, 3 * 4096)
    assert found["flops_basis"] == "sass fp64+fp32+fp16; tensor ops from the shapes of opcodes"


def test_tensor_operations_from_opcodes_of_wgmma_are_complete() -> None:
    found = row(kernel(listed({"HGMMA.64x128x16.F32": 4}, WARPS_BY_FULL_NAME), sass(), capability="9.0"))
    assert found["tensor_flops_fp16"] == 2 * 64 * 128 * 16
    assert found["flops_basis"] == "sass fp64+fp32+fp16; tensor ops from the shapes of opcodes"


@pytest.mark.parametrize(
    ("opcode", "mark"),
    [
        ("HMMA.16816.F32", "from"), ("HMMA.16816.F32.BF16", "from"), ("IMMA.16832.S8.S8", "from"),
        ("DMMA.16x8x8", "from"), ("QGMMA.64x128x32.F32.E4M3.E4M3", "from"), ("HGMMA.64x256x8.F32.TF32", "from"),
        ("HMMA.1688.F32.TF32", "estimated from"), ("IGMMA.64x64x32.S8.S8", "estimated from"),
        ("IMMA.16864.S4.S4", "estimated from"), ("BMMA.168256.XOR.POPC", "estimated from"),
        ("QMMA.16832.F32.E4M3.E4M3", "estimated from"), ("OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X", "estimated from"),
    ],
)  # fmt: skip
def test_operations_on_a_type_that_no_launch_could_check_are_an_estimate(opcode: str, mark: str) -> None:
    found = kernel(listed({opcode: 4, "HMMA.16816.F32": 1}, WARPS_BY_FULL_NAME), sass())
    (one,) = table(found).to_pylist()
    assert one["flops_basis"] == f"sass fp64+fp32+fp16; tensor ops {mark} the shapes of opcodes"


def test_a_type_that_no_launch_could_check_and_that_did_not_run_makes_no_estimate() -> None:
    found = kernel(listed({"HMMA.1688.F32.TF32": 0, "FFMA": 1}, WARPS_BY_FULL_NAME), sass())
    assert row(found)["flops_basis"].endswith("tensor ops from the shapes of opcodes")


def test_opcodes_of_wgmma_complete_tensor_counters_of_which_some_are_missing() -> None:
    some = {"sm__ops_path_tensor_src_fp16.sum": metric(4096.0)}
    found = row(kernel(listed({"HGMMA.64x128x16.F32.BF16": 4}, WARPS_BY_FULL_NAME), sass() | some, capability="9.0"))
    assert (found["tensor_flops_fp16"], found["tensor_flops_bf16"]) == (4096, 2 * 64 * 128 * 16)
    assert found["flops_basis"] == "sass fp64+fp32+fp16; tensor ops from the shapes of opcodes"


@pytest.mark.parametrize(
    ("opcode", "precision", "flops"),
    [("HMMA.884.F32.F32.STEP0", "fp16", 512), ("DMMA.884", "fp64", 512), ("HGMMA.64x8x16.F32", "fp16", 4096)],
)
def test_opcodes_are_preferred_to_the_number_of_tensor_instructions_on_volta(
    opcode: str, precision: str, flops: int
) -> None:
    executed = {"sm__inst_executed_pipe_tensor.sum": metric(9.0)}
    found = row(kernel(listed({opcode: 10}, WARPS_BY_FULL_NAME), sass() | executed, capability="7.0"))
    assert (found[f"tensor_flops_{precision}"], found["tensor_flops"]) == (10 * flops, 10 * flops)
    assert "per instruction" not in found["flops_basis"]


def test_tensor_opcodes_without_their_shape_leave_the_launch_unknown() -> None:
    found = row(kernel(listed({"UTCHMMA": 4}, WARPS_BY_FULL_NAME), sass(), capability="10.0"))
    assert (found["tensor_flops"], found["flops"]) == (None, None)


# ------------------------------------------------------------------------------------- where both were counted


def notes_of(*launches: Launch) -> list[str]:
    for number, one in enumerate(launches):
        one.launch_id = number
    report = Report("report.csv", launches=list(launches))
    launches_table(report)
    return report.notes


def test_a_difference_above_two_per_cent_is_noted_with_both_numbers_and_the_launch() -> None:
    (note,) = notes_of(
        kernel(listed({"FFMA": 100}), sass(ffma=100)),
        kernel(listed({"FFMA": 130}), sass(ffma=100), kernel_short="worst"),
        kernel(listed({"FFMA": 110}), sass(ffma=100)),
        launch(metrics=sass(ffma=100)),
        kernel(listed({"FFMA": 100})),
    )
    assert note == (
        "ffma instructions: in 2 of 3 launches the counter, which is used, and the opcodes differ by more than 2%; most in "
        "launch 1 (worst), 100 by counter and 130 by opcodes"
    )


def test_a_difference_of_one_instruction_is_noted_where_that_is_all() -> None:
    (note,) = notes_of(kernel(listed({"FFMA": 0, "MOV": 5}), sass(ffma=1)))
    assert note.endswith("most in launch 0 (kernel), 1 by counter and 0 by opcodes")


def test_a_difference_of_up_to_two_per_cent_is_not_noted() -> None:
    assert notes_of(kernel(listed({"FFMA": 102, "DADD": 98}), sass(ffma=100, dadd=100))) == []


def test_a_launch_without_an_id_is_noted_by_its_kernel_alone() -> None:
    report = Report("report.csv", launches=[kernel(listed({"FFMA": 130}), sass(ffma=100), kernel_short="worst")])
    launches_table(report)
    (note,) = report.notes
    assert note.endswith("; most in worst, 100 by counter and 130 by opcodes")


@pytest.mark.filterwarnings("error")
def test_counts_that_are_zero_both_ways_agree_without_a_warning() -> None:
    assert notes_of(kernel(listed({"MOV": 5}), sass()), kernel(listed({"FFMA": 100}), sass(ffma=100))) == []


def test_differences_in_several_tables_of_a_report_are_one_note_with_the_largest() -> None:
    small = OpcodeDifference("ffma instructions", 1, 4, 0.1, "launch 1 (a)", 90.0, 100.0)
    large = OpcodeDifference("ffma instructions", 2, 5, 0.5, "launch 7 (b)", 50.0, 100.0)
    none = OpcodeDifference("dadd instructions", 0, 9, 0.01, "launch 1 (a)", 99.0, 100.0)
    assert notes_on([small, none, large]) == [
        "ffma instructions: in 3 of 9 launches the counter, which is used, and the opcodes differ by more than 2%; most "
        "in launch 7 (b), 50 by counter and 100 by opcodes"
    ]


def test_tensor_operations_that_differ_are_noted() -> None:
    more = row(kernel(listed({"HMMA.16816.F32": 2}, WARPS_BY_FULL_NAME), sass() | tensor(fp16_dst_fp32=4096)))
    assert (more["flops"], more["flops_basis"]) == (4096, "sass fp64+fp32+fp16; tensor ops")
    opcodes = listed({"HMMA.16816.F32": 1}, WARPS_BY_FULL_NAME)
    (note,) = notes_of(kernel(opcodes, sass() | tensor(fp16_dst_fp32=8192)))
    assert note.startswith("tensor operations on fp16: in 1 of 1 launches")
    assert note.endswith("8192 by counter and 4096 by opcodes")


def test_tensor_operations_are_compared_where_every_type_was_counted_and_opcodes_are_listed() -> None:
    opcodes = listed({"HMMA.16816.F32": 1}, WARPS_BY_FULL_NAME)
    some = {"sm__ops_path_tensor_src_fp16_dst_fp32.sum": metric(8192.0)}
    assert notes_of(kernel(opcodes, sass() | some)) == []
    without = launch(metrics=sass() | tensor(fp16_dst_fp32=8192))
    assert notes_of(kernel(opcodes, sass() | tensor(fp16_dst_fp32=4096)), without) == []


def test_a_list_that_does_not_add_up_is_not_used_and_noted() -> None:
    cut = kernel(listed({"FFMA": 100, "MOV": 50}), full_set(ffma=100))
    cut.instances[THREADS_BY_FULL_NAME] = "FFMA: 100"
    (found,) = table(cut).to_pylist()
    assert (found["flops_fp16"], found["flops_basis"]) == (None, "sass fp64+fp32; not collected: fp16")
    (note,) = notes_of(cut)
    assert note == "the counts per opcode of 1 launch do not add up to their total and are not used: launch 0 (kernel)"


def test_lists_that_do_not_add_up_are_counted_and_the_first_launch_is_named() -> None:
    cut = [kernel(listed({"FFMA": 100, "MOV": 50}), full_set(ffma=100), kernel_short=name) for name in ("a", "b")]
    for one in cut:
        one.instances[THREADS_BY_FULL_NAME] = "FFMA: 100"
    (note,) = notes_of(kernel(listed({"FFMA": 100}), full_set(ffma=100)), *cut)
    assert note == "the counts per opcode of 2 launches do not add up to their total and are not used: launch 1 (a)"


def test_a_cut_list_is_noted_where_it_was_needed_and_not_where_a_better_one_tells_all() -> None:
    """A list of threads without half arithmetic leaves nothing open; warp instructions prove zeros, but no moves."""
    cut, cut_metric = "MOV: 1", {WARPS[1]: metric(9.0)}
    for name, counts, noted in ((THREADS[0], {"FFMA": 96}, False), (WARPS[0], {"MOV": 3}, True)):
        whole = listed(counts, name)
        one = launch(metrics=whole["metrics"] | cut_metric, instances=whole["instances"] | {WARPS[1]: cut})
        assert [note.startswith("the counts per opcode of 1 launch do not add up") for note in notes_of(one)] == (
            [True] * noted
        )


@pytest.mark.parametrize(("total", "flops"), [(10_009.0, 20_000), (10_011.0, None)])
def test_a_list_may_lack_a_thousandth_of_its_metric(total: float, flops: float | None) -> None:
    found = kernel(listed({"FFMA": 10_000}), IDLE_TENSOR)
    found.metrics[THREADS_BY_FULL_NAME] = metric(total)
    assert row(found)["flops"] == flops


def test_a_list_of_nothing_and_one_without_its_metric_are_used() -> None:
    idle = kernel(listed({"FFMA": 0}), IDLE_TENSOR)
    assert (row(idle)["flops"], notes_of(idle)) == (0, [])
    assert row(launch(metrics=IDLE_TENSOR, instances={THREADS_BY_FULL_NAME: "FFMA: 100"}))["flops"] == 200


def test_a_launch_without_a_list_beside_another_with_one_has_none_that_is_incomplete() -> None:
    without = launch(metrics=sass(ffma=100) | {THREADS_BY_FULL_NAME: metric(150.0)})
    assert notes_of(kernel(listed({"FFMA": 100}), sass(ffma=100)), without) == []


# --------------------------------------------------------------------------------------------- the printed text

OPCODE = st.from_regex(r"\A[A-Z][A-Z0-9]{1,9}(\.[A-Za-z0-9_]{1,12}){0,4}\Z")
COUNTS = st.dictionaries(OPCODE, st.integers(0, 10**15), min_size=1, max_size=60)


@pytest.mark.slow
@given(COUNTS, st.sampled_from(["{}", "{:,}", "{}.0", "{:.6f}"]), st.sampled_from(["{}", "({})", " {{{}}} "]))
def test_named_counts_are_read_back_however_they_are_printed(counts: dict[str, int], number: str, around: str) -> None:
    text = around.format("; ".join(f"{opcode}: {number.format(count)}" for opcode, count in counts.items()))
    assert named_instances(text) == pytest.approx(counts)


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    assert all(name and isinstance(count, float) for name, count in named_instances(text).items())


def test_a_count_that_is_no_number_is_no_count() -> None:
    assert named_instances("FFMA: nan; FADD: inf; DADD: n/a; MOV: 2") == {"MOV": 2}


def test_large_counts_that_python_prints_with_an_exponent_are_read() -> None:
    assert named_instances(f"FFMA: {1e16}; MOV: 2") == {"FFMA": 1e16, "MOV": 2}


def test_counts_without_names_are_not_counts_per_opcode() -> None:
    assert named_instances("10; 20") == {}
    assert named_instances("FFMA: 1; MOV: 5; FFMA: 2") == {"FFMA": 3, "MOV": 5}, "named twice they add up"


@given(COUNTS)
def test_no_opcode_is_counted_twice(counts: dict[str, int]) -> None:
    by_counter = thread_instructions(counts)
    arithmetic = sum(count for name, count in by_counter.items() if name.isalnum())
    assert arithmetic <= sum(counts.values())


COUNTED = [SASS.format(name) for name in ("dadd", "dmul", "dfma", "fadd", "fmul", "ffma")]


def test_counts_printed_in_csv_give_the_same_flops_and_notes_as_a_stream_and_launch_by_launch(tmp_path: Path) -> None:
    written = io.StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_ALL)
    writer.writerow(["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
                     "Grid Size", "Device", "CC", THREADS_BY_FULL_NAME, *COUNTED,
                     "sm__inst_executed_pipe_tensor.sum"])  # fmt: skip
    writer.writerow([""] * 12 + ["inst"] * (len(COUNTED) + 1))
    for number, text in enumerate(["172 (FFMA: 130; HADD2: 2; HFMA2.MMA: 40)", "100 (FFMA: 100)"]):
        counts = [100 if "ffma" in name else 0 for name in COUNTED]
        writer.writerow([number, 1, "app", "host", "k", 1, 7, "(32, 1, 1)", "(1, 1, 1)", 0, "8.0", text, *counts, 0])
    source = Source(str(tmp_path / "report.csv"))
    Path(source.name).write_text(written.getvalue(), "utf-8")
    plain = parse([source])
    assert plain.table is not None
    streamed: list[pa.Table] = []
    report = stream_report(source, streamed.append)
    for found, notes in ((plain.table, plain.reports[0].notes), (pa.concat_tables(streamed), report.notes)):
        assert found.column("flops_fp16").to_pylist() == [2 * 2 + 4 * 40, 0]
        assert found.column("flops_basis").to_pylist()[1] == "sass fp64+fp32; opcodes fp16"
        assert [note for note in notes if note.startswith("ffma instructions: in 1 of 2 launches")]


def test_a_report_without_flop_counters_gives_the_flops_of_the_same_run_with_them() -> None:
    listed_run, counted_run = (table_of(SAMPLES / f"{name}.csv") for name in ("d21-instances-details", "d01-wide-raw"))
    assert listed_run is not None
    assert counted_run is not None
    assert listed_run.column("flops").to_pylist() == counted_run.column("flops").to_pylist()
    assert all(basis.startswith("opcodes fp64+fp32+fp16") for basis in listed_run.column("flops_basis").to_pylist())


# ---------------------------------------------------------------------------------------------- real reports


def listed_launches() -> list[tuple[str, dict[str, Any]]]:
    """The launches of every shared binary report that list their opcodes."""
    paths = [*shared_reports("ncu_rep"), *shared_reports("ncu_rep_full")]
    tables = [(path.name, table_of(path)) for path in paths]
    rows = [(name, one) for name, found in tables if found is not None for one in found.to_pylist()]
    return [(name, one) for name, one in rows if one.get(f"{THREADS_BY_FULL_NAME} (instances)")]


@needs_shared_reports
def test_opcodes_of_every_real_launch_agree_with_each_of_its_counters() -> None:
    """The counters are rates per cycle in these reports; the expected numbers do not use the parsers' sums."""
    compared = 0
    for name, one in listed_launches():
        text = one[f"{THREADS_BY_FULL_NAME} (instances)"]
        for counter in ("dadd", "dmul", "dfma", "fadd", "fmul", "ffma", "hfma"):
            rate = one.get(SASS.format(counter) + ".per_cycle_elapsed")
            if rate is None:
                continue
            opcode = {"h": "HFMA2"}.get(counter[0], counter.upper())
            found = sum(
                float(part.split(":")[1]) for part in text.split("; ") if part.split(":")[0].split(".")[0] == opcode
            )
            counted = rate * (one.get("sm__cycles_elapsed.avg") or one.get("smsp__cycles_elapsed.avg") or 0)
            assert found == pytest.approx(counted, rel=1e-9), (name, counter)
            compared += 1
    assert compared == 5 * 7 + 2 * 6


@needs_shared_reports
def test_every_real_launch_that_lists_its_opcodes_has_a_complete_count() -> None:
    found = listed_launches()
    assert len(found) == 7
    for name, one in found:
        assert one["flops"] is not None, name
        assert "not collected" not in one["flops_basis"], name
        assert "opcodes fp16" in one["flops_basis"], name
