"""Read the file of the operator collector: a header, then one JSON object per line.

Its numbers are not hardware counters: times are of operators as PyTorch dispatches them; FLOPs and bytes follow from
shapes. `source` is "operators", `flops_basis` names the method, and the column `contraction_flops` holds the part that
PyTorch's counter counts. A header with "estimate" describes a model that was not run: its operators have no times, and
`source` is "estimate".
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_launch.workload.record_format import FORMAT, FORMAT_VERSION

from ncu_parsers.report_data import report
from ncu_parsers.report_data.report import Launch, Page
from ncu_parsers.schema.operator_columns import (
    BASIS,
    BYTES_BASIS,
    CONTRACTION_FLOPS,
    CONTRACTIONS_BASIS,
    DIALECT,
    ESTIMATE_DIALECT,
    EXPECTED,
    INTEGER_OPERATIONS,
    OPERATOR_DEVICE,
    THREADS,
    UNIT_COLUMN,
)  # fmt: skip

CONTRACTIONS_ONLY_VERSION = 1
"""The format version that counts only the FLOPs of contractions."""

_UNIT_OF_TYPE_BEFORE = {"float64": "fp64", "float32": "fp32"}
"""Version 1 does not store the unit. On a CPU it follows from the type; a GPU may compute fp32 as TF32."""

may_open_operator_file = re.compile(re.escape(f'{{"{FORMAT}": ')).match
"""Match a line that begins like the header of a collector's file; None for any other line."""


def open_operator_file(line: str, current: Page | None) -> Page | None:
    """A reader of the file whose header is `line`; None for any other line, and for a line inside a report."""
    if current is not None:
        return None
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return None
    return OperatorFile(line)


class OperatorFile:
    """A page of the records of one collector. Raises `NcuBenchError` if their format version is unknown."""

    def __init__(self, header: str) -> None:
        self.header: dict[str, Any] = json.loads(header)
        version = self.header.get(FORMAT)
        if version not in (CONTRACTIONS_ONLY_VERSION, FORMAT_VERSION):
            raise NcuBenchError(
                f"The operators were written in version {version!r:.20} of their format; this ncu-bench knows version "
                f"{FORMAT_VERSION}.",
                "A newer ncu-bench collected them.",
                "Update ncu-bench.",
            )
        is_estimate = bool(self.header.get("estimate"))
        self.dialect = ESTIMATE_DIALECT if is_estimate else DIALECT
        self._has_contractions_only = version == CONTRACTIONS_ONLY_VERSION
        basis = CONTRACTIONS_BASIS if self._has_contractions_only else BASIS
        self._basis = EXPECTED + basis if is_estimate else basis
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
        launch.measures = {
            "dram_read_bytes": _amount(record["read"]),
            "dram_write_bytes": _amount(record["written"]),
            "dram_bytes": _amount(record["read"]) + _amount(record["written"]),
        }
        if record.get(BYTES_BASIS) is not None:
            launch.attributes[BYTES_BASIS] = str(record[BYTES_BASIS])
        if record["ns"] is not None:
            launch.measures["duration_ns"] = _amount(record["ns"])
        self._add_flops(launch, record)
        threads = self.header.get("threads")
        if isinstance(threads, int) and 0 < threads < 2**31:
            launch.metrics[THREADS] = report.Metric(float(threads), 0.0, "")
        if isinstance(self.header.get("device"), str):
            launch.attributes[OPERATOR_DEVICE] = self.header["device"]
        if self.header.get("device_name"):
            launch.attributes["Device Name"] = str(self.header["device_name"])
        return launch

    def _add_flops(self, launch: Launch, record: dict[str, Any]) -> None:
        """Set all FLOPs and their unit's column, the FLOPs of contractions, and the operations of integer products."""
        contractions = record["flops" if self._has_contractions_only else CONTRACTION_FLOPS]
        if contractions is not None:
            launch.metrics[CONTRACTION_FLOPS] = report.Metric(_amount(contractions), 0.0, "FLOP")
        integers = record.get(INTEGER_OPERATIONS)
        if integers is not None:
            launch.metrics[INTEGER_OPERATIONS] = report.Metric(_amount(integers), 0.0, "OP")
        if record["flops"] is None or (integers is not None and not self.header.get("estimate")):
            return  # with 0 FLOPs an integer product would always look memory-bound
        launch.measures["flops"] = _amount(record["flops"])
        launch.flops_basis = self._basis
        column = UNIT_COLUMN.get(self._unit(record) or "")
        if column is not None:
            launch.measures[column] = launch.measures["flops"]

    def _unit(self, record: dict[str, Any]) -> str | None:
        if not self._has_contractions_only:
            return _word(record["unit"])
        return _UNIT_OF_TYPE_BEFORE.get(record["dtype"]) if self.header.get("device") == "cpu" else None


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
