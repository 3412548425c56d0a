"""The expected operators of one iteration: of a run folder, a model counted on the meta device, or a joined trace."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.manifest import folder_of
from ncu_launch.files.run_files import EXPECTED
from ncu_launch.operators.table import is_contraction
from ncu_launch.workload.meta_device_process import Expectation, expectation_of
from ncu_launch.workload_spec import Workload
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.operator_columns import CONTRACTION_FLOPS
from ncu_parsers.schema.tables import drop_failed

from ncu_tools.kernels.operator_work import BYTES_BY_SHAPES, FLOPS_BY_SHAPES, OPERATION, OPERATOR
from ncu_tools.numbers.number_format import counted


def expected_of(path: str) -> pa.Table:
    """The expected operators of a run folder's iteration, as a table of launches.

    Raises `NcuBenchError` if the run has no such file, or it cannot be read.
    """
    file = folder_of(path) / EXPECTED
    if not file.is_file():
        raise NcuBenchError(
            f"{path} has no {EXPECTED}, so nothing is known to compare its numbers with.",
            "Only runs of a model target under ncu have one; reports and programs do not.",
            f"Say what ran: ncu-bench compare {path} --with formulas --target resnet18 --batch-size 8 --phase forward",
        )
    return _operators_in(file)


def expected_of_workload(workload: Workload) -> pa.Table:
    """The operators of one iteration of a workload, counted on the meta device.

    Raises `NcuBenchError` if that is not possible.
    """
    return operators_of(expectation_or_error(workload))


def expectation_or_error(workload: Workload) -> Expectation:
    """A workload counted on the meta device. Raises `NcuBenchError` if that is not possible."""
    expectation = expectation_of(workload)
    if expectation.why_not:
        advice = expectation.advice or "Check its name and sizes."
        raise NcuBenchError(f"{workload.target} cannot be counted.", expectation.why_not, advice)
    return expectation


def operators_of(expectation: Expectation) -> pa.Table:
    """The operators of an expectation as a table of launches, through the reader of the collector's files."""
    with tempfile.TemporaryDirectory(prefix="ncu-bench-expected-") as folder:
        file = Path(folder) / EXPECTED
        file.write_bytes(expectation.records)
        return _operators_in(file)


def _operators_in(file: Path) -> pa.Table:
    from ncu_parsers.parse.parse import parse  # slow to import, as the readers are
    from ncu_parsers.parse.report_files import find_sources

    parsed = parse(find_sources([str(file)]))
    if parsed.table is None:
        raise next(iter(parsed.refused.values()))
    return parsed.table


def has_work_by_shapes(table: pa.Table) -> bool:
    """True if launches are of a trace joined with counts, and know the work of their operators."""
    return FLOPS_BY_SHAPES in table.column_names


def operators_by_shapes(joined: pa.Table) -> tuple[pa.Table, pa.Table, list[str]]:
    """The kernels of a joined trace whose operators have known FLOPs, those operators row by row, and a note.

    Copies and memsets have no counts. A call's work is stored on its first kernel, and is 0 on its others. FLOPs of
    contractions cover products, convolutions and attention, without elements skipped by a causal mask.
    """
    joined = drop_failed(joined)
    joined = arrays.kept(joined, [word in (None, "kernel") for word in tables.words(joined, OPERATION)])
    flops = tables.floats(joined, FLOPS_BY_SHAPES)
    known = ~np.isnan(flops)
    launches = arrays.kept(joined, known.tolist())
    names = [name or "" for name in tables.words(launches, OPERATOR)]
    contractions = np.array([is_contraction(name) for name in names], dtype=bool)
    columns = {
        "flops": arrays.floats(flops[known]),
        CONTRACTION_FLOPS: arrays.floats(np.where(contractions, flops[known], 0.0)),
        "dram_bytes": arrays.floats(tables.floats(launches, BYTES_BY_SHAPES)),
        "kernel_short": arrays.dictionary([name.partition("::")[2] or name for name in names]),
    }
    operators = launches.select([name for name in ("phase", "module") if name in launches.column_names])
    for name, values in columns.items():
        operators = operators.append_column(name, values)
    left_out = int((~known).sum())
    notes = [f"{left_out:,} of {counted(len(joined), 'kernel', 'kernels')} have no FLOPs by shapes and are left out"]
    return launches, operators, notes if left_out else []
