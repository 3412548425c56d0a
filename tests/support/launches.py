"""Small tables of launches for the tests of the analysis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.report_data.report import Launch, Metric, Report

from ncu_tools.kernels.diagnosis.sums import DiagnosisSums
from ncu_tools.kernels.kernel_row import title_and_device

Found = TypeVar("Found")


class Takes(Protocol):
    """Anything that launches are added to, one table at a time."""

    def add(self, table: pa.Table, /) -> None:
        """Add launches."""


OPCODES = ("dadd", "dmul", "dfma", "fadd", "fmul", "ffma", "hadd", "hmul", "hfma")
SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
TENSOR = {
    "8.0": ("bf16_dst_fp32", "fp16_dst_fp16", "fp16_dst_fp32", "fp64", "tf32_dst_fp32"),
    "9.0": ("bf16_dst_fp32", "fp16", "fp64", "fp8", "tf32_dst_fp32"),
}


Taking = TypeVar("Taking", bound=Takes)


def taken(kind: Callable[[], Taking], *tables: pa.Table) -> Taking:
    """Sums of a kind over the launches of several tables, added in order."""
    result = kind()
    for one in tables:
        result.add(one)
    return result


def metric(value: float | str, unit: str = "") -> Metric:
    return Metric(value, 0.0, unit)


def sass(**counts: float) -> dict[str, Metric]:
    """Every CUDA-core counter, zero except for `counts` by opcode."""
    return {SASS.format(opcode): metric(float(counts.get(opcode, 0)), "inst") for opcode in OPCODES}


def tensor(capability: str = "8.0", **counts: float) -> dict[str, Metric]:
    """Every floating-point tensor total of a chip, zero except for `counts`."""
    return {f"sm__ops_path_tensor_src_{name}.sum": metric(float(counts.get(name, 0))) for name in TENSOR[capability]}


def launch(
    name: str = "kernel",
    metrics: dict[str, Metric] | None = None,
    *,
    ns: float | None = None,
    dram: float | None = None,
    capability: str | None = "8.0",
    **attributes: Any,
) -> Launch:
    """A launch with metrics; `ns` and `dram` are shorthands for its time and DRAM bytes."""
    found = dict(metrics or {})
    if ns is not None:
        found["gpu__time_duration.sum"] = metric(ns, "ns")
    if dram is not None:
        found["dram__bytes.sum"] = metric(dram, "byte")
    return Launch(name, metrics=found, compute_capability=capability, **attributes)


def table(*launches: Launch) -> pa.Table:
    """The launches as the table of one report; missing ids are counted up."""
    for number, one in enumerate(launches):
        one.launch_id = number if one.launch_id is None else one.launch_id
    return launches_table(Report("report.csv", launches=list(launches)))


def row(*launches: Launch) -> dict[str, Any]:
    """The table's only row."""
    (only,) = table(*launches).to_pylist()
    return dict(only)


def by_title(by_key: dict[str, Found]) -> dict[str, Found]:
    """What is known of rows by their keys, by their titles: of launches of one device."""
    found = {title_and_device(key)[0]: one for key, one in by_key.items()}
    assert len(found) == len(by_key)
    return found


def number_of(sums: DiagnosisSums, title: str) -> int:
    """The number of a row by its title: of launches of one device."""
    return by_title(sums.rows.numbers)[title]
