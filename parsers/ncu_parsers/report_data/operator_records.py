"""Read the file of the operator collector: a header, then one JSON object per line.

Its numbers are not hardware counters: times are those of operators as PyTorch dispatches them, FLOPs follow from shapes
(contractions only), bytes are inputs, weights and outputs of each operator. `source` is "operators", and `flops_basis`
names the method. A header with "estimate" describes a model that was not run: its operators have no times, and `source`
is "estimate".
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
"""Dialects; also the values of `source` in their rows."""

SWEEP = "bench"
"""`source` of the points of a sweep, which are never stored as launches."""

BY_OPERATOR = frozenset({DIALECT, ESTIMATE_DIALECT, SWEEP})
"""Values of `source` whose FLOPs and bytes come from formulas per operator."""

TRACE = "kineto"
"""What `source` says of traces, whose FLOPs and bytes are estimates from the shapes of operators."""

BASIS = "operator formulas, contractions only"
CUDA_CORE_COLUMNS = {"float64": "flops_fp64", "float32": "flops_fp32"}
"""On a CPU the type determines the column. On a GPU, half types, and fp32 as TF32, may run on tensor cores."""

INTEGER_OPERATIONS = "integer_operations"
"""Column of integer operations of products, which are not FLOPs."""

THREADS = "threads"
"""Column of the threads that a CPU operator may use; its ceilings depend on them."""


OPERATOR_DEVICE = "operator_device"
"""Column of the device of an operator (cpu or cuda), which determines the clock of its time."""


def opens_operator_file(line: str) -> bool:
    """True if `line` is the header of a collector's file."""
    if not line.startswith(f'{{"{FORMAT}": '):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


class OperatorFile:
    """The records of one collector. Raises `NcuBenchError` if their format version is unknown."""

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
        """Read one line and return its kind: `METRICS`, `BLANK` or `BROKEN`."""
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
            if not self.header.get("estimate"):  # with 0 FLOPs the operator would always look memory-bound
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
    """A number from 0 to `below` (excluded). Raises `ValueError` for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < below:
        raise ValueError(f"{value!r:.40} is no amount")
    return float(value)


def _word(value: object) -> str | None:
    """A text or None. Raises `ValueError` for any other value."""
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is no text")
    return value
