"""Tensor operations of old reports: from opcode shapes, on Volta from instructions, else unknown."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.derived.opcode_lists import WARPS_BY_FULL_NAME as OPCODES
from ncu_parsers.derived.tensor_opcodes import operations, tensor_operations
from ncu_parsers.parse.parse import parse
from ncu_parsers.parse.report_files import find_sources

from tests.conftest import SHARED

SASS = [f"smsp__sass_thread_inst_executed_op_{x}{y}_pred_on.sum" for x in "dfh" for y in ("add", "mul", "fma")]
REPORT = SHARED / "reports" / "ncu_rep" / "eschnett__IndexSpaces.jl__317662_profile.ncu-rep"


@pytest.mark.parametrize(
    ("opcode", "found"),
    [
        ("HMMA.16816.F32", ("fp16", 4096)), ("HMMA.1688.F16", ("fp16", 2048)), ("HMMA.16816.F32.BF16", ("bf16", 4096)),
        ("HMMA.1688.F32.TF32", ("tf32", 2048)), ("HMMA.884.F32.F32.STEP0", ("fp16", 512)), ("DMMA.884", ("fp64", 512)),
        ("DMMA.16x8x8", ("fp64", 2048)), ("DMMA.16x8x16", ("fp64", 4096)),
        ("IMMA.8816.S8.S8.SAT", ("int8", 2048)), ("IMMA.16832.S8.S8", ("int8", 8192)),
        ("IMMA.16864.S4.S4", ("int4", 16384)), ("BMMA.168256.XOR.POPC", ("int1", 65536)),
        ("QMMA.16832.F32.E4M3.E4M3", ("fp8", 8192)), ("QMMA.SF.16832.F32.E4M3.E2M1.E8", ("fp8", 8192)),
        ("QMMA.16832.F32.E3M2.E2M1", ("fp6", 8192)), ("QMMA.16832.F32.E2M1.E2M1", ("fp6", 8192)),
        ("OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X", ("fp4", 16384)),
        ("UTCHMMA", None), ("HMMA.SP.16832.F32", None), ("QMMA.16832.F32", None), ("IMMA.16832.SAT", None),
        ("HFMA2.MMA", None), ("FFMA", None),
    ],
)  # fmt: skip
def test_an_opcode_gives_its_type_and_2mnk(opcode: str, found: tuple[str, int] | None) -> None:
    counted = operations(opcode)
    assert (None if counted is None else (counted.precision, counted.amount)) == found


@pytest.mark.parametrize(
    ("opcode", "precision", "whole"),
    [
        ("HGMMA.64x128x16.F32", "fp16", 2 * 64 * 128 * 16), ("HGMMA.64x256x16.F32.BF16", "bf16", 2 * 64 * 256 * 16),
        ("HGMMA.64x8x8.F32.TF32", "tf32", 2 * 64 * 8 * 8), ("IGMMA.64x64x32.S8.S8.SAT", "int8", 2 * 64 * 64 * 32),
        ("QGMMA.64x128x32.F32.E4M3.E5M2", "fp8", 2 * 64 * 128 * 32), ("BGMMA.64x8x256.AND.POPC", "int1", 2 * 64 * 8 * 256),
    ],
)  # fmt: skip
def test_an_opcode_of_wgmma_is_the_product_of_four_warps(opcode: str, precision: str, whole: int) -> None:
    assert operations(opcode) == (precision, whole // 4, precision not in ("int8", "int1"))


@pytest.mark.parametrize(
    ("opcode", "warps", "operations"),
    [
        ("DMMA.16x8x8", 268435456 / 32, 2 * 2048**3), ("HGMMA.64x256x8.F32.TF32", 8388608 / 32, 2 * 2048**3),
        ("HGMMA.64x128x16.F32", 8388608 / 32, 2 * 2048**3), ("HGMMA.64x128x16.F32.BF16", 8388608 / 32, 2 * 2048**3),
        ("IMMA.16832.S8.S8.SAT", 67108864 / 32, 2 * 2048**3), ("QGMMA.64x128x32.F32.E4M3.E4M3", 4194304 / 32, 2 * 2048**3),
        ("HGMMA.64x64x16.F32", 7225344 / 32, 2 * 32 * 64 * 64 * 56**2 * 9),
    ],
)  # fmt: skip
def test_the_opcodes_of_products_and_a_convolution_give_what_an_h100_counted(
    opcode: str, warps: float, operations: float
) -> None:
    """Warp instructions and sm__ops_path_tensor_* of an H100: 2048 x 2048 matrices, 64 channels on 32 x 56 x 56."""
    found = tensor_operations({opcode: warps})
    assert found is not None
    assert (sum(found.amounts.values()), found.unchecked) == (operations, False)


@pytest.mark.parametrize("opcode", ["HGMMA.SP.64x128x32.F32", "QGMMA.64x128x32.F16", "HGMMA"])
def test_an_opcode_of_wgmma_that_is_sparse_or_lacks_its_type_or_shape_stays_unknown(opcode: str) -> None:
    assert operations(opcode) is None


def test_opcodes_are_summed_by_type_with_zero_for_unused_types() -> None:
    found = tensor_operations({"HMMA.16816.F32": 10, "HMMA.1688.F16": 1, "IMMA.8816.S8.S8": 2, "FFMA": 1000})
    assert found is not None
    assert not found.unchecked
    counted = found.amounts
    assert (counted["fp16"], counted["int8"], counted["bf16"]) == (43008, 4096, 0)


def test_an_unchecked_opcode_that_did_not_run_makes_no_estimate() -> None:
    for count, unchecked in ((0, False), (1, True)):
        found = tensor_operations({"HMMA.16816.F32": 10, "IGMMA.64x64x32.S8.S8": count})
        assert found is not None
        assert found.unchecked is unchecked


def test_an_opcode_without_shape_makes_the_sum_unknown() -> None:
    assert tensor_operations({"HMMA.16816.F32": 10, "UTCHMMA.2CTA": 1}) is None


def launch(folder: Path, capability: str, **metrics: float | str) -> dict[str, Any]:
    """The parsed launch of a wide report that has only this launch with these metrics."""
    values = {"gpu__time_duration.sum": 1000, **dict.fromkeys(SASS, 0), **metrics}
    written = io.StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_ALL)
    writer.writerow(["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
                     "Grid Size", "Device", "CC", *values])  # fmt: skip
    writer.writerow([*[""] * 11, "ns", *["inst"] * (len(values) - 1)])
    writer.writerow(
        ["0", "1", "app", "host", "k", "1", "7", "(32, 1, 1)", "(1, 1, 1)", "0", capability, *values.values()]
    )
    file = folder / "report.csv"
    file.write_text(written.getvalue(), "utf-8")
    table = parse(find_sources([str(file)])).table
    assert table is not None
    (row,) = table.to_pylist()
    found: dict[str, Any] = row
    return found


class TestALaunchWithoutOperationCounters:
    def test_gets_them_from_its_opcodes_and_the_basis_names_that(self, tmp_path: Path) -> None:
        row = launch(tmp_path, "8.6", **{OPCODES: "15 (HMMA.16816.F32.BF16: 10; IMMA.8816.S8.S8: 5)"})
        assert (row["tensor_flops_bf16"], row["tensor_ops_int8"], row["flops"]) == (40960, 10240, 40960)
        assert "tensor ops from the shapes of opcodes" in row["flops_basis"]
        assert "not collected" not in row["flops_basis"]

    def test_is_estimated_from_instructions_on_volta(self, tmp_path: Path) -> None:
        row = launch(tmp_path, "7.0", **{"sm__inst_executed_pipe_tensor.sum": 100})
        assert (row["tensor_flops_fp16"], row["flops"]) == (51200, 51200)
        assert "estimated: 512 per instruction" in row["flops_basis"]

    def test_without_any_instruction_did_none_of_them_on_volta(self, tmp_path: Path) -> None:
        row = launch(tmp_path, "7.0", **{"sm__inst_executed_pipe_tensor.sum": 0})
        assert (row["tensor_flops"], row["flops"]) == (0, 0)

    @pytest.mark.parametrize("capability", ["7.2", "7.5", "8.0", "8.6", "9.0"])
    def test_stays_unknown_on_every_other_chip(self, capability: str, tmp_path: Path) -> None:
        row = launch(tmp_path, capability, **{"sm__inst_executed_pipe_tensor.sum": 100})
        assert (row["tensor_flops"], row["flops"]) == (None, None)
        assert "tensor, which was busy" in row["flops_basis"]

    def test_prefers_operation_counters(self, tmp_path: Path) -> None:
        counter = "sm__ops_path_tensor_src_fp16_dst_fp32.sum"
        row = launch(tmp_path, "7.0", **{counter: 7, "sm__inst_executed_pipe_tensor.sum": 100})
        assert row["tensor_flops_fp16"] == 7
        assert "estimated" not in row["flops_basis"]


@pytest.mark.skipif(not REPORT.is_file(), reason="the folder ../shared/reports is missing")
def test_opcodes_of_a_real_report_agree_with_the_activity_of_its_tensor_pipe() -> None:
    """An int8 kernel on an A40: the pipe's active cycles match its IMMA at 2048 dense operations per cycle."""
    ncu_report = pytest.importorskip("ncu_report", reason="NVIDIA's reader is missing: pip install '.[ncu-rep]'")
    action = ncu_report.load_report(str(REPORT)).range_by_idx(0).action_by_idx(1)
    opcodes = action.metric_by_name(OPCODES)
    names = opcodes.correlation_ids()
    executed = {names.as_string(at): float(opcodes.as_uint64(at)) for at in range(opcodes.num_instances())}
    found = tensor_operations(executed)
    assert found is not None
    counted = found.amounts
    assert sum(counted.values()) == counted["int8"] == 528_482_304 * 2 * 8 * 8 * 16
    sms = action.metric_by_name("device__attribute_multiprocessor_count").as_uint64()
    cycles_of_all = action.metric_by_name("smsp__cycles_elapsed.sum").as_double() / 4  # four partitions per SM
    active = action.metric_by_name("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed").as_double() / 100
    assert sms == 84
    assert counted["int8"] / cycles_of_all / active == pytest.approx(2048, rel=1e-3)
