"""The verified recipes, computed in exact arithmetic from the cells of real reports, compared with the parsers.

Expected numbers do not use the parsers: cells are read with csv, .ncu-rep files with NVIDIA's reader, and the
recipes come from NVIDIA's metric lists of each chip.
"""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from ncu_parsers.derived.measures import Counters
from ncu_parsers.derived.table_builder import CHIP_BY_NUMBER, measures
from ncu_parsers.parse.parse import parse
from ncu_parsers.sources.sources import Source

from tests.conftest import SHARED
from tests.support.installed import needs_ncu
from tests.support.reports import needs_shared_reports, shared_reports

RECIPES = SHARED / "metrics" / "metric_recipes.json"

pytestmark = [needs_shared_reports, pytest.mark.slow]

CHIP_OF_AUTHOR = {
    "AveryClapp": "GA102", "CodeGandee": "GB202", "GOATnote-Inc": "GH100", "Gardenia-Tian": "GA100",
    "Olajide-Badejo": "GB205", "brycelelbach": "TU104", "cfregly": "GB100", "eschnett": "GA102",
    "josiahls": "TU116", "leonsuaudeau": "GA100", "rashwanth": "AD107", "report-too-new-for-ncu2022.3.csv": "GH100",
}  # fmt: skip
"""The GPU of each author, from the reports' index. leonsuaudeau's is unknown; the reports contain only times."""

CHIP_OF_DEVICE = {
    "NVIDIA A10G": "GA102", "NVIDIA A40": "GA102", "NVIDIA GH200 120GB": "GH100",
    "NVIDIA GeForce GTX 1660 Ti": "TU116", "NVIDIA GeForce RTX 4060 Laptop GPU": "AD107",
    "Tesla V100-PCIE-16GB": "GV100",
}  # fmt: skip

# ------------------------------------------------------------------------------------------ the recipes, by hand


class Cell(NamedTuple):
    """A printed number in base units, exactly, and the step of its last digit."""

    value: Fraction
    step: Fraction


Cells = dict[str, Cell]

SECTOR = 32

TENSOR_COLUMNS = (
    *(f"tensor_flops_{source}" for source in ("fp64", "tf32", "bf16", "fp16", "fp8", "fp6", "fp4")),
    *(f"tensor_ops_{source}" for source in ("int8", "int4", "int1")),
)


@cache
def recipes() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECIPES.read_text("utf-8"))
    return found


def value(cells: Cells, *names: str) -> Fraction | None:
    """The first of the metrics that is present."""
    return next((cells[name].value for name in names if name in cells), None)


def product(*factors: Fraction | None) -> Fraction | None:
    """The product; None if a factor is missing."""
    result = Fraction(1)
    for factor in factors:
        if factor is None:
            return None
        result *= factor
    return result


def nanoseconds(cells: Cells) -> Fraction | None:
    """The duration of a kernel, or of a range (.avg), else elapsed cycles / rate."""
    duration = value(cells, "gpu__time_duration.sum", "gpu__time_duration.avg")
    if duration is not None:
        return duration
    for unit in ("sm", "smsp"):
        cycles = value(cells, f"{unit}__cycles_elapsed.avg")
        rate = value(cells, f"{unit}__cycles_elapsed.avg.per_second")
        if cycles is not None and rate:
            return cycles / rate * 10**9
    return None


def amount(cells: Cells, name: str) -> Fraction | None:
    """A sum as printed, else its rate x cycles or time of the launch."""
    for spelling in (name, name.replace("smsp__sass_", "sm__sass_")):
        if spelling in cells:
            return cells[spelling].value
        per_cycle = value(cells, f"{spelling}.per_cycle_elapsed")
        if per_cycle is not None:
            clock = value(cells, *(f"{unit}__cycles_elapsed.avg.per_second" for unit in ("sm", "smsp", "gpc")))
            cycles = value(cells, "sm__cycles_elapsed.avg", "smsp__cycles_elapsed.avg")
            seconds = product(nanoseconds(cells), Fraction(1, 10**9))
            return product(per_cycle, product(clock, seconds) if cycles is None else cycles)
        per_second = value(cells, f"{spelling}.per_second")
        if per_second is not None:
            return product(per_second, nanoseconds(cells), Fraction(1, 10**9))
    return None


def total(cells: Cells, weights: dict[str, int]) -> Fraction | None:
    """The sum of the parts; None if one is missing."""
    parts = [product(amount(cells, name), Fraction(weight)) for name, weight in weights.items()]
    known = [part for part in parts if part is not None]
    return sum(known, Fraction()) if len(known) == len(parts) else None


def first_total(cells: Cells, *alternatives: dict[str, int]) -> Fraction | None:
    """The first alternative with printed sums, else the first computed from rates."""
    for weights in alternatives:
        if all(name in cells for name in weights):
            return total(cells, weights)
    return next((found for weights in alternatives if (found := total(cells, weights)) is not None), None)


def expected_measures(cells: Cells, chip: str, *, names_chip: bool = True) -> dict[str, Fraction | None]:
    """Every number that the chip's recipe gives for a launch; None if the report lacks a metric for it.

    If the report does not name its chip, the parts of L1 must be valid for the newest one.
    """
    recipe = recipes()[chip]
    result = {"duration_ns": nanoseconds(cells)}
    for precision in ("fp64", "fp32", "fp16"):
        entries = recipe["flops_cuda_core"].items()
        weights = {name: entry["weight"] for name, entry in entries if entry["precision"] == precision}
        result[f"flops_{precision}"] = total(cells, weights)
    tensor = expected_tensor_operations(cells, recipe)
    if any(found is not None for name, found in (result | tensor).items() if "flops" in name):
        result |= zeros_of_idle_pipes(cells, result)
    read, write = ([{f"dram__bytes{op}_{way}.sum": 1} for op in ("", "_op")] for way in ("read", "write"))
    both = [one | other for one, other in zip(read, write, strict=True)]
    result["dram_bytes"] = first_total(cells, recipe["dram_bytes"], *both)
    result["dram_read_bytes"] = first_total(cells, *read)
    result["dram_write_bytes"] = first_total(cells, *write)
    result["l2_bytes"] = first_total(cells, recipe["l2_bytes"], {"lts__t_sectors.sum": SECTOR})
    l1 = first_total(cells, recipe["l1_bytes"], {"l1tex__t_sectors.sum": SECTOR})
    result["l1_bytes"] = l1_by_parts(cells, recipe["cc"] if names_chip else "12.1") if l1 is None else l1
    return result | tensor


def zeros_of_idle_pipes(cells: Cells, found: dict[str, Fraction | None]) -> dict[str, Fraction | None]:
    """FLOPs of precisions that were not counted and whose pipe executed nothing; of fp16, what hfma counted."""
    pipes = {
        "fp64": r"sms?p?__(inst_executed_pipe_fp64|pipe_fp64_cycles_active)\.(sum|avg)\b.*",
        "fp16": r"sms?p?__inst_executed_pipe_(fp16|fma_type_fp16)\.(sum|avg)\b.*",
    }
    hfma = amount(cells, "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum")
    counted = {"fp64": Fraction(), "fp16": 4 * (hfma or Fraction())}
    return {
        f"flops_{precision}": counted[precision]
        for precision, pipe in pipes.items()
        if found[f"flops_{precision}"] is None
        and any(cell.value == 0 for name, cell in cells.items() if re.fullmatch(pipe, name))
    }


L1_ACCESSES = (
    *(f"lsu_mem_global_op_{kind}" for kind in ("ld", "st", "red", "atom")),
    *(f"lsu_mem_local_op_{kind}" for kind in ("ld", "st")),
    *(f"tex_mem_surface_op_{kind}" for kind in ("ld", "st", "red", "atom")),
    "tex_mem_texture",
)


def l1_by_parts(cells: Cells, compute_capability: str) -> Fraction | None:
    """Sectors of every kind of access; None if the kernel may have used copies that they do not include."""
    others = ["smsp__inst_executed_op_ldgsts.sum"] if float(compute_capability) >= 8 else []
    if float(compute_capability) >= 9:
        others += [f"l1tex__t_requests_pipe_lsu_mem_dshared_op_{kind}.sum" for kind in ("ld", "st", "redas", "atom")]
    if any(amount(cells, name) != 0 for name in others):
        return None
    return total(cells, {f"l1tex__t_sectors_pipe_{access}.sum": SECTOR for access in L1_ACCESSES})


def expected_tensor_operations(cells: Cells, recipe: dict[str, Any]) -> dict[str, Fraction | None]:
    """Operations by input type, and the sum over the floating-point types."""
    result: dict[str, Fraction | None] = dict.fromkeys(TENSOR_COLUMNS)
    for name in recipe["tensor_ops_total"]:
        source = name.removeprefix("sm__ops_path_tensor_src_").removesuffix(".sum").partition("_dst_")[0]
        found = amount(cells, name)
        if found is not None:
            column = f"tensor_ops_{source}" if source.startswith("int") else f"tensor_flops_{source}"
            result[column] = (result.get(column) or Fraction()) + found
    floating = [found for column, found in result.items() if column.startswith("tensor_flops_") and found is not None]
    return result | {"tensor_flops": sum(floating, Fraction()) if floating else None}


def expected_peaks(cells: Cells, chip: str) -> dict[str, Fraction | None]:
    """Ceilings in the report: peak per cycle x factor x clock of the launch."""
    recipe = recipes()[chip]
    result = {}
    for precision, opcode in (("fp64", "dfma"), ("fp32", "ffma"), ("fp16", "hfma")):
        ((metric, factor),) = ((n, f) for n, f in recipe["flops_ceiling_per_clk"].items() if f"_{opcode}_" in n)
        result[f"peak_flops_{precision}"] = product(
            value(cells, metric), Fraction(factor), value(cells, recipe["sm_clock"])
        )
    result["peak_dram_bytes"] = product(*(value(cells, metric) for metric in recipe["dram_ceiling"]))
    return result


def disagreements(found: dict[str, Any], expected: dict[str, Fraction | None]) -> dict[str, tuple[Any, Any]]:
    """Columns in which a row of the table differs from the expected number, or has one where none is expected."""
    result = {}
    for column, fraction in expected.items():
        here = found[column]
        here = None if here is None or np.isnan(here) else float(here)
        there = None if fraction is None else float(fraction)
        if here != (None if there is None else pytest.approx(there, rel=1e-12)):
            result[column] = (here, there)
    return result


# ------------------------------------------------------------------------------------------- cells of a text report

LABELS = {
    "Duration": "gpu__time_duration.sum",
    "SM Frequency": "gpc__cycles_elapsed.avg.per_second",
    "DRAM Bandwidth": "dram__bytes.sum.per_second",
    "FMA (FP16)": "sm__inst_executed_pipe_fma_type_fp16.avg.pct_of_peak_sustained_active",
    **{
        f"Predicated-On {opcode} Thread Instructions Executed Per Cycle":
            f"smsp__sass_thread_inst_executed_op_{opcode.lower()}_pred_on.sum.per_cycle_elapsed"
        for opcode in ("DADD", "DMUL", "DFMA", "FADD", "FMUL", "FFMA")
    },
}  # fmt: skip
"""Labels on the details page of the metrics that the recipes need."""

SCALES = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
NANOSECONDS = {"n": 1, "u": 10**3, "m": 10**6, "s": 10**9}


def scale(unit: str) -> Fraction:
    """The factor from a printed unit to base units: ns, byte, hz, and anything per second."""
    above, _, below = unit.partition("/")
    result = Fraction(1)
    if above[:1] in SCALES and above[1:] in ("byte", "hz"):
        result *= SCALES[above[0]]
    if re.fullmatch(r"[num]?s(econd)?", above):
        result *= NANOSECONDS[above[0]]
    if re.fullmatch(r"[num]?s(econd)?", below):
        result *= Fraction(10**9, NANOSECONDS[below[0]])
    return result


def cell_of(text: str, unit: str) -> Cell | None:
    """The number at the beginning of a cell; None for texts and missing values."""
    digits = text.split(" ")[0].replace(",", "")
    if not re.fullmatch(r"-?\d+(\.\d+)?", digits):
        return None
    return Cell(Fraction(digits) * scale(unit), scale(unit) / 10 ** len(digits.partition(".")[2]))


@dataclass
class Printed:
    """A launch as printed."""

    kernel: str
    cells: Cells = field(default_factory=dict)

    def take(self, name: str, text: str, unit: str) -> None:
        """Store a cell under its metric name; of two prints of one metric, the one with more digits."""
        cell = cell_of(text, unit)
        if name == "Memory Throughput" and unit.split("/")[-1] in ("s", "second"):
            name = "dram__bytes.sum.per_second"
        name = LABELS.get(name, name)
        if cell is not None and (name not in self.cells or cell.step < self.cells[name].step):
            self.cells[name] = cell


def printed(text: str) -> list[Printed]:
    """The launches of a report; [] without a table."""
    header = re.search(r'^"?(ID|Process ID)"?,', text, re.MULTILINE)
    if header is None:
        return [launch_of_text(*match) for match in re.findall(r"^ +Duration +(\w+) .*?([\d.,]+)$", text, re.MULTILINE)]
    rows = list(csv.reader(io.StringIO(text[header.start() :])))
    return long_page(rows) if "Metric Name" in rows[0] else wide_page(rows)


def launch_of_text(unit: str, number: str) -> Printed:
    """The text tables of these reports contain only the time that the recipes need."""
    result = Printed("")
    result.take("Duration", number, unit)
    return result


def long_page(rows: list[list[str]]) -> list[Printed]:
    header = rows[0]
    name, unit = header.index("Metric Name"), header.index("Metric Unit")
    number = header.index("Average" if "Average" in header else "Metric Value")
    launches: dict[tuple[str, ...], Printed] = {}
    for row in rows[1:]:
        if len(row) > number and row[name]:
            identity = tuple(row[: header.index("Section Name")])
            launch = launches.setdefault(identity, Printed(row[header.index("Kernel Name")]))
            launch.take(row[name], row[number], row[unit])
    return list(launches.values())


def wide_page(rows: list[list[str]]) -> list[Printed]:
    names = [re.sub(r" \[.*\]$", "", name) for name in rows[0]]
    units = [(re.findall(r"\[(.*)\]$", name) or [""])[0] for name in rows[0]]
    if rows[1][0] == "":
        units = rows.pop(1)
    kernel = names.index("Kernel Name" if "Kernel Name" in names else "Demangled Name")
    launches = []
    for row in rows[1:]:
        launches.append(Printed(row[kernel]))
        for name, text, unit in zip(names, row, units, strict=True):
            launches[-1].take(name, text, unit)
    return launches


def printed_file(path: Path) -> list[Printed]:
    return printed(path.read_text("utf-8-sig"))


def parsed_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of our table; [] if the parsers refuse the report."""
    table = parse([Source(str(path))]).table
    return [] if table is None else [dict(row) for row in table.to_pylist()]


TEXT_REPORTS = shared_reports("ncu_csv")


@pytest.mark.parametrize("path", TEXT_REPORTS, ids=[path.name for path in TEXT_REPORTS])
def test_every_launch_of_a_text_report_has_what_the_recipe_gives_and_nothing_else(path: Path) -> None:
    chip = CHIP_OF_AUTHOR[path.name.partition("__")[0]]
    rows, launches = parsed_rows(path), printed_file(path)
    assert len(rows) == len(launches)
    for row, launch in zip(rows, launches, strict=True):
        assert launch.kernel in ("", row["kernel_name"])
        names_chip = row["compute_capability"] is not None
        assert disagreements(row, expected_measures(launch.cells, chip, names_chip=names_chip)) == {}


def test_the_reports_have_nonzero_values_in_every_checked_column() -> None:
    known = {
        column
        for path in TEXT_REPORTS
        for launch in printed_file(path)
        for column, number in expected_measures(launch.cells, CHIP_OF_AUTHOR[path.name.partition("__")[0]]).items()
        if number
    }
    assert known >= {
        "duration_ns", "flops_fp64", "flops_fp32", "flops_fp16", "tensor_flops_bf16", "tensor_flops",
        "dram_bytes", "dram_read_bytes", "dram_write_bytes", "l2_bytes", "l1_bytes",
    }  # fmt: skip


# ------------------------------------------------------------------------------------- .ncu-rep, by NVIDIA's reader

BINARY_REPORTS = shared_reports("ncu_rep")
PRINTED_BY_NCU_2022_3 = [
    path for path in BINARY_REPORTS if path.name.startswith(("AveryClapp", "eschnett", "josiahls", "strrules105"))
]
"""Reports written by an ncu not newer than Debian's."""


@dataclass
class Action:
    """A launch as read by NVIDIA's reader: its numbers with all digits, and its device."""

    cells: Cells
    device: str
    compute_capability: str
    chip_number: int
    opcodes: set[str]


@cache
def actions(path: Path) -> list[Action]:
    """The launches of a binary report as returned by NVIDIA's reader."""
    reader = pytest.importorskip("ncu_report", reason="ncu-report is not installed (pip install '.[ncu-rep]')")
    report = reader.load_report(str(path))
    ranges = [report.range_by_idx(index) for index in range(report.num_ranges())]
    # Each action is asked for once and held: a range takes milliseconds to give one.
    return [action_of(part.action_by_idx(index)) for part in ranges for index in range(part.num_actions())]


def action_of(action: Any) -> Action:
    metrics = {name: action.metric_by_name(name) for name in action.metric_names()}
    values = {name: metric.value() for name, metric in metrics.items()}
    numbers = {name: number for name, number in values.items() if isinstance(number, int | float)}
    major, minor = (values[f"device__attribute_compute_capability_{part}"] for part in ("major", "minor"))
    opcodes = metrics.get("sass__inst_executed_per_opcode")
    return Action(
        {name: Cell(Fraction(number), Fraction()) for name, number in numbers.items() if np.isfinite(number)},
        values["device__attribute_display_name"],
        f"{major}.{minor}",
        values["device__attribute_chip"],
        {opcodes.correlation_ids().value(index) for index in range(opcodes.num_instances())} if opcodes else set(),
    )


def measured(launches: list[Action]) -> list[dict[str, Any]]:
    """The measures that ncu_parsers.derived computes for the launches."""
    values = {
        name: np.array([float(launch.cells[name].value) if name in launch.cells else np.nan for launch in launches])
        for name in sorted({name for launch in launches for name in launch.cells})
    }
    counters = Counters(
        values, [launch.compute_capability for launch in launches], [launch.device for launch in launches]
    )
    columns = measures(counters)
    return [{name: column[row] for name, column in columns.items()} for row in range(len(launches))]


@pytest.mark.parametrize("path", BINARY_REPORTS, ids=[path.name for path in BINARY_REPORTS])
def test_every_launch_of_a_binary_report_has_what_the_recipe_of_its_chip_gives(path: Path) -> None:
    launches = actions(path)
    assert launches
    for launch, row in zip(launches, measured(launches), strict=True):
        chip = CHIP_OF_DEVICE[launch.device]
        assert CHIP_BY_NUMBER[launch.chip_number] == chip
        assert launch.compute_capability == recipes()[chip]["cc"]
        expected = expected_measures(launch.cells, chip) | expected_peaks(launch.cells, chip)
        assert disagreements(row, expected) == {}


def wrong_digits(row: dict[str, Any], launch: Printed, action: Action) -> dict[str, tuple[Any, float]]:
    """Metrics in a row of our table that differ from NVIDIA's value in a printed digit."""
    result = {}
    for name in launch.cells.keys() & action.cells.keys():
        true = action.cells[name].value
        rounding = launch.cells[name].step / 2 + abs(true) / 10**12
        if row[name] is None or abs(Fraction(row[name]) - true) > rounding:
            result[name] = (row[name], float(true))
    return result


@needs_ncu
@pytest.mark.parametrize("path", PRINTED_BY_NCU_2022_3, ids=[path.name for path in PRINTED_BY_NCU_2022_3])
def test_a_page_printed_by_ncu_gives_the_launches_of_nvidias_reader(path: Path, tmp_path: Path) -> None:
    command = ["ncu", "--import", str(path), "--csv", "--page", "raw", "--print-units", "base"]
    csv_path = tmp_path / "report.csv"
    csv_path.write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout, "utf-8")
    rows, launches = parsed_rows(csv_path), printed_file(csv_path)
    assert len(rows) == len(launches) == len(actions(path))
    for row, launch, action in zip(rows, launches, actions(path), strict=True):
        assert len(launch.cells.keys() & action.cells.keys()) > 200
        assert wrong_digits(row, launch, action) == {}


PAGES = [path for path in TEXT_REPORTS if ".ncu2022.3." in path.name]


@pytest.mark.parametrize("path", PAGES, ids=[path.name for path in PAGES])
def test_every_page_of_a_binary_report_gives_the_launches_of_nvidias_reader(path: Path) -> None:
    author = path.name.partition("__")[0]
    (binary,) = (binary for binary in BINARY_REPORTS if binary.name.startswith(author))
    rows, launches = parsed_rows(path), printed_file(path)
    assert len(rows) == len(launches) == len(actions(binary))
    for row, launch, action in zip(rows, launches, actions(binary), strict=True):
        assert "gpu__time_duration.sum" in launch.cells.keys() & action.cells.keys()
        assert wrong_digits(row, launch, action) == {}


# ------------------------------------------------------------------------------------------ truths from elsewhere


def binary_rows(author: str) -> list[dict[str, Any]]:
    (path,) = (path for path in BINARY_REPORTS if author in path.name)
    return measured(actions(path))


def test_rates_of_four_gemms_multiply_back_to_2mnk() -> None:
    assert [row["flops_fp32"] for row in binary_rows("AveryClapp")] == pytest.approx([2 * 1024**3] * 4, rel=1e-12)


@pytest.mark.parametrize(
    ("binary", "text"), [("scripts_output0", "output0_hist"), ("scripts_output5", "scripts_output5")]
)
def test_rates_of_one_run_multiply_back_to_the_sums_of_another_run_of_the_program(binary: str, text: str) -> None:
    (path,) = (path for path in TEXT_REPORTS if text in path.name)
    (row,) = parsed_rows(path)
    assert binary_rows(binary)[0]["flops_fp64"] == pytest.approx(row["flops_fp64"], rel=1e-12)


def test_the_dram_rate_of_a_launch_multiplies_back_to_its_bytes_read_and_written() -> None:
    (path,) = (path for path in BINARY_REPORTS if "eschnett" in path.name)
    for launch, row in zip(actions(path), measured(actions(path)), strict=True):
        rate = float(launch.cells["dram__bytes.sum.per_second"].value)
        assert rate * row["duration_ns"] / 1e9 == pytest.approx(
            row["dram_read_bytes"] + row["dram_write_bytes"], rel=1e-12
        )
        assert row["dram_bytes"] == row["dram_read_bytes"] + row["dram_write_bytes"]


FULL_REPORTS = [*shared_reports("ncu_rep_full"), *(path for path in BINARY_REPORTS if "eschnett" in path.name)]


@pytest.mark.parametrize("path", FULL_REPORTS, ids=[path.name for path in FULL_REPORTS])
def test_the_parts_of_l1_are_the_sectors_that_ncus_own_hit_rate_is_of(path: Path) -> None:
    """The hit rate is hits / sectors, counted in other passes: so no part is missing or counted twice."""
    for launch, row in zip(actions(path), measured(actions(path)), strict=True):
        hits = sum(launch.cells[f"l1tex__t_sectors_pipe_{access}_lookup_hit.sum"].value for access in L1_ACCESSES)
        assert row["l1_bytes"] > 0
        assert 100 * float(hits) / (row["l1_bytes"] / SECTOR) == pytest.approx(
            float(launch.cells["l1tex__t_sector_hit_rate.pct"].value), rel=2e-4
        )


def test_some_kernel_that_the_parts_of_l1_are_checked_on_has_hits_and_misses() -> None:
    rates = [launch.cells["l1tex__t_sector_hit_rate.pct"].value for path in FULL_REPORTS for launch in actions(path)]
    assert any(0.1 < float(rate) < 99.9 for rate in rates)


def test_kernels_without_floating_point_in_their_opcodes_have_zero_flops_and_no_floating_tensor_work() -> None:
    (path,) = (path for path in BINARY_REPORTS if "eschnett" in path.name)
    for launch, row in zip(actions(path), measured(actions(path)), strict=True):
        arithmetic = {opcode for opcode in launch.opcodes if re.match(r"[DFH](ADD|MUL|FMA|MMA)", opcode)}
        assert launch.opcodes
        assert arithmetic == set()
        assert row["flops_fp64"] == row["flops_fp32"] == 0
        assert "tensor" not in row["flops_basis"].as_py()


@pytest.mark.parametrize(
    ("rate", "cycles", "instructions"),
    [("79.734928", "213597.333", 17_031_168), ("145.032163", "477177.037", 69_206_018)],
    ids=["GH200", "A100"],
)
def test_hfma_is_counted_once_per_thread_and_packed_instruction(rate: str, cycles: str, instructions: int) -> None:
    """Two public reports: 32 x their warp-level HFMA2; on the A100 minus 62 inactive lanes."""
    name = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
    cells = {name.format("hadd"): "0", name.format("hmul"): "0", name.format("hfma"): rate}
    values = {key: np.array([float(text)]) for key, text in {**cells, "sm__cycles_elapsed.avg": cycles}.items()}
    found = measures(Counters(values, ["9.0"], [None]))["flops_fp16"][0]
    assert found == pytest.approx(4 * instructions, abs=4 * 0.5e-6 * float(cycles))
