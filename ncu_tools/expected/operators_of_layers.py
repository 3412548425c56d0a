"""The expected operators of one iteration: of a run folder, or of a model counted on the meta device."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.run_files import EXPECTED
from ncu_launch.workload.meta_device_process import Expectation, expectation_of
from ncu_launch.workload_spec import Workload

from ncu_tools.runs.loading import load


def expected_of(path: str) -> pa.Table:
    """The expected operators of a run folder's iteration, as a table of launches.

    Raises `NcuBenchError` if the run has no such file, or it cannot be read.
    """
    file = (Path(path) if Path(path).is_dir() else Path(path).parent) / EXPECTED
    if not file.is_file():
        raise NcuBenchError(
            f"{path} has no {EXPECTED}, so nothing is known to compare its numbers with.",
            "Only runs of a model target under ncu have one; reports and programs do not.",
            f"Say what ran, as in: ncu-bench expected {path} --target resnet18 --batch-size 8 --phase forward",
        )
    return load(str(file)).table


def expected_of_workload(workload: Workload) -> pa.Table:
    """The operators of one iteration of a workload, counted on the meta device.

    Raises `NcuBenchError` if that is not possible.
    """
    expectation = expectation_of(workload)
    if expectation.why_not:
        raise NcuBenchError(f"{workload.target} cannot be counted.", expectation.why_not, "Check its name and sizes.")
    return operators_of(expectation)


def operators_of(expectation: Expectation) -> pa.Table:
    """The operators of an expectation as a table of launches, through the reader of the collector's files."""
    with tempfile.TemporaryDirectory(prefix="ncu-bench-expected-") as folder:
        file = Path(folder) / EXPECTED
        file.write_bytes(expectation.records)
        return load(str(file)).table
