"""The file of the embedded operator collector: a JSON object per line, a header first.

Its numbers are not hardware counters: times are those of operators as PyTorch dispatches them, FLOPs follow from
shapes (contractions only), and bytes are inputs, weights and outputs of each operator. `source` says "operators" and
`flops_basis` says how. A header that says "estimate" is of a model that was not run: its operators have no times, and
`source` says "estimate".
"""

from __future__ import annotations

import json
import math
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_launch.workload.operator_collector import FORMAT, FORMAT_VERSION

from ncu_parsers.report_data import report
from ncu_parsers.report_data.report import Launch

DIALECT, ESTIMATE_DIALECT = "operators", "estimate"
"""Both are what `source` says of their rows, too."""

SWEEP = "bench"
"""What `source` says of the points of a sweep, which are never written as launches."""

BY_OPERATOR = frozenset({DIALECT, ESTIMATE_DIALECT, SWEEP})
"""Values of `source` whose FLOPs and bytes are those of operators, by formulas."""

TRACE = "kineto"
"""What `source` says of traces, whose FLOPs and bytes are estimates from the shapes of operators."""

BASIS = "operator formulas, contractions only"
CUDA_CORE_COLUMNS = {"float64": "flops_fp64", "float32": "flops_fp32"}
"""On a CPU the type says which unit worked. On a GPU half types, and fp32 as TF32, may use the tensor cores."""

INTEGER_OPERATIONS = "integer_operations"
"""The column of what products of integers do, which are no FLOPs."""

THREADS = "threads"
"""The column of how many threads an operator on a CPU may use, which its ceilings depend on."""


OPERATOR_DEVICE = "operator_device"
"""The column of where an operator ran, cpu or cuda, which says what clock its time is of."""


def opens_operator_file(line: str) -> bool:
    """Whether `line` is the header of a collector's file."""
    if not line.startswith(f'{{"{FORMAT}": '):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


class OperatorFile:
    """The records of one collector. Raises `NcuBenchError` for those of a version that this release does not know."""

    def __init__(self, header: str) -> None:
        self.header: dict[str, Any] = json.loads(header)
        version = self.header.get(FORMAT)
        if version != FORMAT_VERSION:
            raise NcuBenchError(
                f"The operators were written in version {version!r:.20} of their format; this ncu-bench knows version "
                f"{FORMAT_VERSION}.",
                "A newer ncu-bench collected them.",
                "Update ncu-bench.",
            )
        is_estimate = bool(self.header.get("estimate"))
        self.dialect = ESTIMATE_DIALECT if is_estimate else DIALECT
        self._basis = f"expected: {BASIS}" if is_estimate else BASIS
        self._launches: list[Launch] = []

    def launches(self) -> list[Launch]:
        """The operator calls read so far."""
        return self._launches

    def feed(self, line: str) -> str:
        """Take in one line: an operator call, or something broken."""
        if not line.strip():
            return report.BLANK
        try:
            record = json.loads(line)
            launch = self._launch(record)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return report.BROKEN
        self._launches.append(launch)
        return report.METRICS

    def _launch(self, record: dict[str, Any]) -> Launch:
        name = str(record["operator"]).replace(".", "::", 1)
        phase, module = _word(record["phase"]), _word(record["module"])
        iteration = int(_amount(record["iteration"], 2**31))
        path = [f"iteration {iteration}", phase, module]
        launch = Launch(
            kernel_name=name,
            kernel_short=name.partition("::")[2] or name,
            launch_id=len(self._launches),
            nvtx_path=tuple(part for part in path if part),
            phase=phase,
            module=module,
            iteration=iteration,
            attributes={"shapes": str(record["shapes"]), "dtype": str(record["dtype"])},
        )
        flops = record["flops"]
        launch.measures = {
            "dram_read_bytes": _amount(record["read"]),
            "dram_write_bytes": _amount(record["written"]),
            "dram_bytes": _amount(record["read"]) + _amount(record["written"]),
        }
        if record["ns"] is not None:
            launch.measures["duration_ns"] = _amount(record["ns"])
        if flops is not None:
            launch.measures["flops"] = _amount(flops)
            launch.flops_basis = self._basis
            column = CUDA_CORE_COLUMNS.get(record["dtype"]) if self.header.get("device") == "cpu" else None
            if column is not None:
                launch.measures[column] = _amount(flops)
        if record.get("integer_operations") is not None:
            launch.metrics[INTEGER_OPERATIONS] = report.Metric(_amount(record["integer_operations"]), 0.0, "OP")
            if not self.header.get("estimate"):  # zero FLOPs would make memory its bound, whatever its integers took
                launch.measures.pop("flops", None)
                launch.flops_basis = None
        threads = self.header.get("threads")
        if isinstance(threads, int) and 0 < threads < 2**31:
            launch.metrics[THREADS] = report.Metric(float(threads), 0.0, "")
        if isinstance(self.header.get("device"), str):
            launch.attributes[OPERATOR_DEVICE] = self.header["device"]
        if self.header.get("device_name"):
            launch.attributes["Device Name"] = str(self.header["device_name"])
        return launch


def _amount(value: object, below: float = math.inf) -> float:
    """A number from 0 up. Raises `ValueError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < below:
        raise ValueError(f"{value!r:.40} is no amount")
    return float(value)


def _word(value: object) -> str | None:
    """A text or null. Raises `ValueError` for anything else."""
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is no text")
    return value
