"""A synthetic report of every chip that ncu supports: the table returns the chosen operations and bytes.

The test chooses a launch's counts and writes its report in ncu's format; the table must contain these numbers, in total
and in parts, and count none twice.
"""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ncu_launch.counters.chips import Chip, chips, exists
from ncu_parsers.derived.measures import Counters
from ncu_parsers.derived.table_builder import measures
from ncu_parsers.parse.parse import parse
from ncu_parsers.sources.sources import Source

from tests.support.nightly import by_day

Counts = dict[str, int]
"""Metric -> its value in the report, in base units."""

each_chip = pytest.mark.parametrize("chip", chips(), ids=lambda chip: chip.name)
each_chip_with_tensor_cores = pytest.mark.parametrize(
    "chip", [chip for chip in chips() if chip.tensor_totals], ids=lambda chip: chip.name
)

FAMILIES = [chip for chip in chips() if chip.tensor_totals and chip.name == chip.family]
BY_DAY = [chip for chip in FAMILIES if chip.name in ("GV100", "TU102", "GA100", "GH100", "GB100")]
each_family_with_tensor_cores = pytest.mark.parametrize("chip", by_day(BY_DAY, FAMILIES), ids=lambda chip: chip.name)

# ----------------------------------------------------------------------------------------------- what a launch did

SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
OPCODES = {
    "dadd": 3, "dmul": 5, "dfma": 7_000, "fadd": 11, "fmul": 13, "ffma": 64**3, "hadd": 17, "hmul": 19, "hfma": 23_000,
}  # fmt: skip
PACKED = {"fadd2": 29, "fmul2": 31, "ffma2": 37_000}

FP64 = 3 + 5 + 2 * 7_000
FP32 = 11 + 13 + 2 * 64**3
FP32_PACKED = 2 * 29 + 2 * 31 + 4 * 37_000
FP16 = 2 * 17 + 2 * 19 + 4 * 23_000

READ, WRITTEN = 32 * 1000, 32 * 300
"""DRAM bytes of the launch."""

COLUMNS = {
    "bf16": "tensor_flops_bf16", "fp16": "tensor_flops_fp16", "fp16_bf16_tf32": "tensor_flops_fp16",
    "tf32": "tensor_flops_tf32", "fp64": "tensor_flops_fp64", "fp8": "tensor_flops_fp8",
    "fp4_fp6_fp8": "tensor_flops_fp8", "fp4_fp6": "tensor_flops_fp6", "fp4": "tensor_flops_fp4",
    "int8": "tensor_ops_int8", "int4": "tensor_ops_int4", "int1": "tensor_ops_int1",
}  # fmt: skip
"""Total counters of operations, by input type."""

FREE_OF_CONSTANT_MOVES = ("7.5", "8.6")

WITHOUT_TENSOR_CORES = {"TU116": "NVIDIA GeForce GTX 1660 Ti", "TU117": "NVIDIA GeForce GTX 1650"}
"""Chips that share a compute capability with chips that have tensor cores; only the device name distinguishes them."""


class Part(NamedTuple):
    """The restriction of a tensor counter: input type with or without result type, instruction and sparsity."""

    source: str
    result: str
    instruction: str
    sparsity: str


@cache
def part(metric: str) -> Part:
    match = re.fullmatch(
        r"sm__ops_path_tensor_(?:op_(?P<op>[a-z]+)_)?src_(?P<source>\w+?)(?:_dst_(?P<result>[a-z0-9]+))?"
        r"(?:_sparsity_(?P<sparsity>on|off))?\.sum",
        metric,
    )
    assert match, metric
    return Part(match["source"], match["result"] or "", match["op"] or "", match["sparsity"] or "")


def column(metric: str) -> str:
    return COLUMNS[part(metric).source]


def by_column(counts: Counts) -> Counts:
    """The sum of tensor counts in each column."""
    return {name: sum(n for metric, n in counts.items() if column(metric) == name) for name in map(column, counts)}


def floating(counts: Counts) -> int:
    """The sum of tensor counts of all floating-point types."""
    return sum(number for metric, number in counts.items() if "_src_int" not in metric)


def gemms(metrics: tuple[str, ...]) -> Counts:
    """A different GEMM size for each counter: 2mnk operations."""
    return {metric: 2 * 16 * 8 * 16 * (index + 1) for index, metric in enumerate(metrics)}


def counts_packed_fp32(chip: Chip) -> bool:
    """True if the chip counts packed FP32 instructions separately."""
    return exists(SASS.format("ffma2"), chip, None)


def instructions(chip: Chip) -> Counts:
    """Every CUDA-core counter of the chip."""
    counted = OPCODES | (PACKED if counts_packed_fp32(chip) else {})
    return {SASS.format(opcode): number for opcode, number in counted.items()}


def memory(chip: Chip) -> Counts:
    """The DRAM counters of the chip in bytes, or in sectors of L2 if it has no DRAM."""
    if exists("dram__bytes.sum", chip, None):
        return {"dram__bytes.sum": READ + WRITTEN}
    return {
        "lts__d_sectors_fill_sysmem.sum": READ // 32,
        "lts__t_sectors_aperture_sysmem_op_write.sum": WRITTEN // 32,
    }


def cuda_core_flops(chip: Chip) -> int:
    return FP64 + FP32 + (FP32_PACKED if counts_packed_fp32(chip) else 0) + FP16


# ------------------------------------------------------------------------------------------------- and its report

UNITS = {"gpu__time_duration": "ns", "dram__bytes": "byte", "lts__t_bytes": "byte", "l1tex__t_bytes": "byte"}


def row(folder: Path, chip: Chip, counts: Counts) -> dict[str, Any]:
    """The parsed table of a wide page, in base units, with one launch that has these counts."""
    texts = {
        "ID": "0", "Process ID": "4711", "Process Name": "gemm", "Host Name": "127.0.0.1",
        "Kernel Name": "gemm(float *, float *, float *)", "Context": "1", "Stream": "7",
        "Block Size": "(256, 1, 1)", "Grid Size": "(64, 1, 1)", "Device": "0", "CC": chip.compute_capability or "n/a",
    }  # fmt: skip
    if chip.name in WITHOUT_TENSOR_CORES:
        texts["device__attribute_display_name"] = WITHOUT_TENSOR_CORES[chip.name]
    units = [UNITS.get(name.partition(".")[0], "") for name in [*texts, *counts]]
    path = folder / "report.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = [[*texts, *counts], units, [*texts.values(), *(f"{number:,}" for number in counts.values())]]
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    table = parse([Source(str(path))]).table
    assert table is not None
    (only,) = table.to_pylist()
    return dict(only)


def tensor_columns(found: dict[str, Any]) -> dict[str, float]:
    """The tensor columns with a value."""
    return {name: found[name] for name in COLUMNS.values() if found[name] is not None}


@each_chip
def test_a_launch_comes_out_with_the_operations_time_and_bytes_it_was_given(chip: Chip, tmp_path: Path) -> None:
    tensor = gemms(chip.tensor_totals)
    others = {"gpu__time_duration.sum": 12_345, "lts__t_bytes.sum": 777, "l1tex__t_bytes.sum": 888}
    found = row(tmp_path, chip, instructions(chip) | memory(chip) | tensor | others)
    assert (found["duration_ns"], found["l2_bytes"], found["l1_bytes"]) == (12_345, 777, 888)
    assert found["dram_bytes"] == READ + WRITTEN
    assert (found["flops_fp64"], found["flops_fp16"]) == (FP64, FP16)
    assert found["flops_fp32"] == FP32 + (FP32_PACKED if counts_packed_fp32(chip) else 0)
    assert tensor_columns(found) == by_column(tensor)
    assert found["tensor_flops"] == (floating(tensor) if tensor else None)
    assert found["flops"] == cuda_core_flops(chip) + floating(tensor)


@each_chip
def test_the_counts_of_every_total_are_known_to_be_complete(chip: Chip, tmp_path: Path) -> None:
    basis = row(tmp_path, chip, instructions(chip) | gemms(chip.tensor_totals))["flops_basis"]
    if chip.name in WITHOUT_TENSOR_CORES:
        assert basis == "sass fp64+fp32+fp16"
    else:
        assert basis == "sass fp64+fp32+fp16; tensor ops"


@each_chip
def test_integer_operations_are_no_part_of_the_flops(chip: Chip, tmp_path: Path) -> None:
    integers = {metric: 10**12 for metric in chip.tensor_totals if "_src_int" in metric}
    zeros = {metric: 0 for metric in chip.tensor_totals if metric not in integers}
    found = row(tmp_path, chip, instructions(chip) | zeros | integers)
    assert found["flops"] == cuda_core_flops(chip)
    assert [found[column(metric)] for metric in integers] == [10**12] * len(integers)


@each_chip
def test_hfma_alone_is_excluded_on_chips_that_move_constants_with_it(chip: Chip, tmp_path: Path) -> None:
    counted = instructions(chip) | {SASS.format("hadd"): 0, SASS.format("hmul"): 0, SASS.format("hfma"): 1000}
    found = row(tmp_path, chip, counted | gemms(chip.tensor_totals))
    phantom = 0 if chip.compute_capability in FREE_OF_CONSTANT_MOVES else 4 * 1000
    assert found["flops_fp16"] == 4 * 1000
    assert found["flops"] == cuda_core_flops(chip) - FP16 + 4000 - phantom + floating(gemms(chip.tensor_totals))
    assert ("fp16 left out: constant moves" in found["flops_basis"]) == bool(phantom)


@pytest.mark.parametrize("chip", [chip for chip in chips() if counts_packed_fp32(chip)], ids=lambda chip: chip.name)
def test_packed_fp32_that_was_not_collected_makes_a_lower_bound(chip: Chip, tmp_path: Path) -> None:
    counted = {SASS.format(opcode): number for opcode, number in OPCODES.items()}
    found = row(tmp_path, chip, counted | gemms(chip.tensor_totals))
    assert found["flops_fp32"] == FP32
    assert "not collected: packed fp32" in found["flops_basis"]


@each_chip_with_tensor_cores
def test_dense_and_sparse_parts_replace_missing_totals(chip: Chip, tmp_path: Path) -> None:
    parts = gemms(chip.tensor_dense + chip.tensor_sparse)
    found = row(tmp_path, chip, instructions(chip) | parts)
    assert tensor_columns(found) == by_column(parts)
    assert found["tensor_flops"] == floating(parts)


@each_chip_with_tensor_cores
def test_dense_parts_alone_are_a_lower_bound_where_there_could_be_sparse_work(chip: Chip, tmp_path: Path) -> None:
    parts = gemms(chip.tensor_dense)
    found = row(tmp_path, chip, instructions(chip) | parts)
    assert tensor_columns(found) == by_column(parts)
    assert ("not every type" in found["flops_basis"]) == bool(chip.tensor_sparse)


@each_chip_with_tensor_cores
def test_totals_beside_all_of_their_parts_are_counted_once(chip: Chip, tmp_path: Path) -> None:
    counts = consistent(chip, gemms(leaves(chip)))
    found = row(tmp_path, chip, instructions(chip) | counts)
    totals = {metric: counts[metric] for metric in chip.tensor_totals}
    assert tensor_columns(found) == by_column(totals)
    assert found["tensor_flops"] == floating(totals)


# ------------------------------------------------------------------------------------- totals, parts, and any mixture


PARTS_WITHOUT_RESULT = {"GH100": ("sm__ops_path_tensor_op_hmma_src_fp16.sum",)}
"""Hopper counts fp16 for any result type, in total and per instruction, and also by result type."""


def leaves(chip: Chip) -> tuple[str, ...]:
    """The chip's counters that are no sums of others: the parts of each total, or the total itself."""
    return tuple(dict.fromkeys(chip.tensor_dense + chip.tensor_sparse))


def is_in(leaf: Part, whole: Part) -> bool:
    """True if the operations counted by `leaf` are a part of those counted by `whole`."""
    return leaf.source == whole.source and all(
        wanted in ("", got) for got, wanted in zip(leaf[1:], whole[1:], strict=True)
    )


def consistent(chip: Chip, counts: Counts) -> Counts:
    """The counts of the leaves, and the counts that follow for instructions of any sparsity and for totals."""
    instructions = [re.sub(r"_sparsity_(on|off)", "", metric) for metric in counts]
    wholes = dict.fromkeys([*counts, *instructions, *PARTS_WITHOUT_RESULT.get(chip.name, ()), *chip.tensor_totals])
    return {whole: sum(number for leaf, number in counts.items() if is_in(part(leaf), part(whole))) for whole in wholes}


class Launch(NamedTuple):
    """The true tensor totals of a launch, and a random subset of its tensor counters as collected."""

    totals: Counts
    collected: Counts


@st.composite
def launches(draw: st.DrawFn, chip: Chip) -> Launch:
    true = consistent(chip, {leaf: draw(st.integers(0, 2**40)) for leaf in leaves(chip)})
    wanted = draw(st.lists(st.booleans(), min_size=len(true), max_size=len(true)))
    collected = {metric: number for (metric, number), taken in zip(true.items(), wanted, strict=True) if taken}
    return Launch({metric: true[metric] for metric in chip.tensor_totals}, collected)


def measured(chip: Chip, counts: Counts) -> dict[str, Any]:
    values = {metric: np.array([float(number)]) for metric, number in counts.items()}
    found = measures(Counters(values, [chip.compute_capability], [None]))
    basis: Any = found.pop("flops_basis")
    return {"flops_basis": basis[0].as_py(), **{name: values[0] for name, values in found.items()}}


@each_family_with_tensor_cores
@settings(max_examples=25)
@given(data=st.data())
def test_tensor_operations_never_exceed_the_totals_whatever_was_collected(chip: Chip, data: st.DataObject) -> None:
    totals, collected = data.draw(launches(chip))
    found = measured(chip, collected)
    for name, true in by_column(totals).items():
        counted = any(column(metric) == name for metric in collected)
        assert 0 <= found[name] <= true if counted else np.isnan(found[name]), name
    assert not found["tensor_flops"] > floating(totals)


@each_family_with_tensor_cores
@settings(max_examples=25)
@given(data=st.data())
def test_tensor_operations_are_the_totals_where_these_were_collected(chip: Chip, data: st.DataObject) -> None:
    totals, collected = data.draw(launches(chip))
    found = measured(chip, collected | totals)
    assert {name: found[name] for name in by_column(totals)} == by_column(totals)


@each_family_with_tensor_cores
@settings(max_examples=25)
@given(data=st.data())
def test_a_count_marked_complete_equals_the_total(chip: Chip, data: st.DataObject) -> None:
    totals, collected = data.draw(launches(chip))
    for most in (collected, collected | totals):
        found = measured(chip, most)
        if "tensor ops" in (found["flops_basis"] or "") and "not every type" not in found["flops_basis"]:
            assert found["tensor_flops"] == floating(totals)
