"""Build the table of launches, with every derived column, from a parsed report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ncu_parsers.derived.flops import flops_columns
from ncu_parsers.derived.measures import Counters, bytes_clocks_and_ceilings
from ncu_parsers.derived.opcode_check import Disagreement, disagreements, notes_on
from ncu_parsers.derived.opcode_lists import COLUMN_OF_LIST, NO_LISTS, opcode_lists
from ncu_parsers.report_data.report import Launch, Report
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.operator_columns import DIALECT, ESTIMATE_DIALECT
from ncu_parsers.schema.tables import (
    COLUMN_NAMES,
    contract_fields,
    field_metadata,
)

DEVICE_NAME = "device__attribute_display_name"
CHIP_BY_NUMBER = {
    320: "GV100", 331: "GV11B", 352: "TU102", 354: "TU104", 356: "TU106", 360: "TU116", 359: "TU117",
    368: "GA100", 370: "GA102", 371: "GA103", 372: "GA104", 374: "GA106", 375: "GA107",
    384: "GH100", 402: "AD102", 403: "AD103", 404: "AD104", 406: "AD106", 407: "AD107",
}  # fmt: skip
"""device__attribute_chip, NVIDIA's chip number in decimal (0x170 is GA100), as seen in reports or lists."""

OF_ONE_KERNEL = ("launch__", "sm__maximum_warps", "smsp__maximum_warps")
"""Metrics of a single kernel: for a range or graph, ncu reports the largest or mean value of its kernels."""

FROM_RATES = (
    "duration_ns", "flops", "dram_bytes", "dram_read_bytes", "dram_write_bytes", "l2_bytes", "l1_bytes",
)  # fmt: skip
"""Columns that can be estimated from mean rates if sums are missing."""
_RATE = r"\.per_(second|cycle_elapsed)$|^derived__"
ESTIMATED = "estimated from mean rates"


def launches_table(report: Report) -> pa.Table:
    """The table of launches of one report.

    A metric that is text in every launch becomes a text column; text among numbers is dropped. The report gets notes on
    dropped texts, values estimated from mean rates, and counters that disagree with opcode counts.
    """
    launches = report.launches
    numbers, texts = _metric_columns(launches, report)
    units = {name: metric.unit for launch in reversed(launches) for name, metric in launch.metrics.items()}
    described = {name: describe(name, report, units.get(name, "")) for name in (*numbers, *texts)}
    identity, found = _identity(launches, report), list[Disagreement]()
    table = contract_table(len(launches), identity, numbers, texts, described, launches, found)
    report.notes += notes_on(found) if found else []
    averaged = np.array([(launch.invocations or 1) > 1 for launch in launches])
    if not averaged.any():
        return table
    sums = {name: values for name, values in numbers.items() if not re.search(_RATE, name)}
    without_rates = contract_table(len(launches), identity, sums, texts, described, launches)
    return _mark_estimates(table, without_rates, averaged, report)


def _mark_estimates(
    table: pa.Table, without_rates: pa.Table, averaged: npt.NDArray[np.bool_], report: Report
) -> pa.Table:
    """Mark averages computed from mean rates as estimated, in `flops_basis` and by a note in the report.

    Mean rate x mean time is the mean of the sums only if the launches are alike. `without_rates` is the table of the
    same launches computed without rates; rows are estimated where it differs.
    """
    estimated = {}
    for name in FROM_RATES:
        values = tables.floats(table, name)
        estimated[name] = averaged & ~np.isnan(values) & (values != tables.floats(without_rates, name))
    named = [name for name, rows in estimated.items() if rows.any()]
    if not named:
        return table
    rows = np.logical_or.reduce([estimated[name] for name in named])
    report.notes.append(
        f"{', '.join(named)} of {rows.sum()} averages over launches are estimated, as mean rate x mean time: "
        "the report holds no sums of them"
    )
    at = table.schema.get_field_index("flops_basis")
    bases = zip(tables.words(table, "flops_basis"), estimated["flops"].tolist(), strict=True)
    marked = [_marked(basis) if basis and is_estimate else basis for basis, is_estimate in bases]
    return table.set_column(at, table.schema.field(at), arrays.dictionary(marked))


def _marked(basis: str) -> str:
    """Insert "estimated" into a basis, before its list of what was not collected."""
    words = basis.split("; ")
    words.insert(len(words) - words[-1].startswith("not collected"), ESTIMATED)
    return "; ".join(words)


def contract_table(
    rows: int,
    identity: Mapping[str, Any],
    numbers: Mapping[str, tables.Floats],
    texts: Mapping[str, Any],
    described: Mapping[str, dict[bytes, bytes]],
    launches: Sequence[Launch] = (),
    found: list[Disagreement] | None = None,
) -> pa.Table:
    """Build the launch table with every derived column from identity columns, numeric metrics and texts.

    Columns are lists, float64 arrays or Arrow arrays, one value per launch; None is a column of nulls. `described` maps
    each metric to its field metadata. `launches` provides measures that the report contains directly. Disagreements of
    counters and opcodes are appended to `found`. For ranges and graphs, metrics of a single kernel are null.
    """
    numbers = _without_metrics_of_kernels(numbers, identity, rows)
    counters = Counters(
        {name: values for name, values in numbers.items() if name not in COLUMN_NAMES},
        _listed(identity["compute_capability"], rows),
        _listed(identity["device_name"], rows),
        NO_LISTS if texts.keys().isdisjoint(COLUMN_OF_LIST.values()) else opcode_lists(numbers, texts, rows),
    )
    if found is not None and counters.lists is not NO_LISTS:
        found += disagreements(counters, identity)
    derived = _with_own_measures(measures(counters), launches)
    columns: list[pa.Array] = []
    fields = list(contract_fields())
    for field in fields:
        values = identity[field.name] if field.name in identity else derived.get(field.name)
        columns.append(_array(values, field.type, rows))
    for name in sorted({*numbers, *texts} - COLUMN_NAMES):
        values = numbers[name] if name in numbers else texts[name]
        columns.append(values if isinstance(values, pa.Array) else _array(values, _kind_of(values), rows))
        fields.append(pa.field(name, columns[-1].type, metadata=described[name]))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _without_metrics_of_kernels(
    numbers: Mapping[str, tables.Floats], identity: Mapping[str, Any], rows: int
) -> Mapping[str, tables.Floats]:
    names = identity["kernel_name"]
    distinct = names.dictionary.to_pylist() if isinstance(names, pa.DictionaryArray) else names
    if tables.OF_SEVERAL_KERNELS.isdisjoint(distinct):
        return numbers
    has_shape = arrays.present(_array(identity["grid"], pa.list_(pa.int32()), rows))
    has_several = np.array([name in tables.OF_SEVERAL_KERNELS for name in _listed(names, rows)]) & ~has_shape
    masked = {
        name: np.where(has_several, np.nan, values) if name.startswith(OF_ONE_KERNEL) else values
        for name, values in numbers.items()
    }
    return {name: values for name, values in masked.items() if not np.isnan(values).all()}


def _kind_of(values: Any) -> pa.DataType:
    return pa.float64() if isinstance(values, np.ndarray) else pa.string()


def _listed(values: Any, rows: int) -> list[str | None]:
    """A text column as Python strings."""
    if values is None:
        return [None] * rows
    return arrays.words_of(values) if isinstance(values, pa.DictionaryArray) else values


def _array(values: Any, kind: pa.DataType, rows: int) -> pa.Array:
    """Convert one contract column to an Arrow array of its type; None becomes a column of nulls."""
    if values is None:
        return pa.nulls(rows, kind)
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, np.ndarray) and values.dtype == np.float64:
        return arrays.floats(values)
    if pa.types.is_string(kind):
        return arrays.texts(values)
    if pa.types.is_dictionary(kind):
        return arrays.dictionary(values)
    if pa.types.is_integer(kind):
        return arrays.integers(values, kind)
    if pa.types.is_boolean(kind):
        return arrays.booleans(values)
    if pa.types.is_integer(kind.value_type):
        return arrays.integer_lists(values)
    return arrays.text_lists(values) if kind.value_type == pa.string() else arrays.struct_lists(values, kind)


def measures(counters: Counters) -> dict[str, tables.Floats | pa.Array]:
    """Every measure column, by name: float64 (ns, FLOP, byte, hz, rates per s), one per launch, NaN if missing; texts
    as Arrow arrays."""
    return {**bytes_clocks_and_ceilings(counters), **flops_columns(counters)}


def _with_own_measures(derived: dict[str, Any], launches: Sequence[Launch]) -> dict[str, Any]:
    """Replace derived measures by measures that the report contains directly."""
    if any(launch.flops_basis is not None for launch in launches):
        derived["flops_basis"] = arrays.words_of(derived["flops_basis"])
    for name in {name for launch in launches for name in launch.measures}:
        derived[name] = derived[name].copy()  # the array may be shared with a metric
    for row, launch in enumerate(launches):
        for name, value in launch.measures.items():
            derived[name][row] = value
        if launch.flops_basis is not None:
            derived["flops_basis"][row] = launch.flops_basis
    return derived


def _metric_columns(
    launches: Sequence[Launch], report: Report
) -> tuple[dict[str, tables.Floats], dict[str, list[str | None]]]:
    numbers: dict[str, tables.Floats] = {}
    texts: dict[str, list[str | None]] = {}
    words: dict[str, str] = {}
    for row, launch in enumerate(launches):
        for name, metric in launch.metrics.items():
            if isinstance(metric.value, str):
                texts.setdefault(name, [None] * len(launches))[row] = metric.value
            else:
                if name not in numbers:
                    numbers[name] = np.full(len(launches), np.nan)
                numbers[name][row] = metric.value
        for name, text in launch.attributes.items():
            texts.setdefault(name, [None] * len(launches))[row] = text
        for name, listed in launch.instances.items():
            texts.setdefault(f"{name} (instances)", [None] * len(launches))[row] = listed
    for name in numbers.keys() & texts.keys():
        words[name] = next(text for text in texts.pop(name) if text is not None)
    for name, word in sorted(words.items()):
        report.notes.append(
            f'{name} is a number in some launches and a word ("{word[:40]}") in others; the words are left out'
        )
    return numbers, texts


def _identity(launches: Sequence[Launch], report: Report) -> dict[str, Any]:
    return {
        "source": [_source(report)] * len(launches),
        "report": [report.source] * len(launches),
        "launch_id": [launch.launch_id for launch in launches],
        "process_id": [launch.process_id for launch in launches],
        "rank": None,
        "device_id": [launch.device_id for launch in launches],
        "device_name": [_device_name(launch, report) for launch in launches],
        "chip": [CHIP_BY_NUMBER.get(int(_number(launch, "device__attribute_chip") or 0)) for launch in launches],
        "compute_capability": [_compute_capability(launch, report) for launch in launches],
        "context": [launch.context for launch in launches],
        "stream": [launch.stream for launch in launches],
        "kernel_name": [launch.kernel_name for launch in launches],
        "kernel_short": [launch.kernel_short or tables.short_name(launch.kernel_name) for launch in launches],
        "grid": [launch.grid for launch in launches],
        "block": [launch.block for launch in launches],
        "nvtx_path": [launch.nvtx_path for launch in launches],
        "phase": [launch.phase for launch in launches],
        "module": [launch.module for launch in launches],
        "iteration": [launch.iteration for launch in launches],
        "invocations": [launch.invocations for launch in launches],
        "failed": [launch.failed for launch in launches],
        "rules": [_rules(launch) for launch in launches],
        "rule_metrics": [_rule_metrics(launch) for launch in launches],
    }


def _source(report: Report) -> str:
    return next((dialect for dialect in (DIALECT, ESTIMATE_DIALECT) if dialect in report.dialects), report.origin)


def _device_name(launch: Launch, report: Report) -> str | None:
    metric = launch.metrics.get(DEVICE_NAME)
    if metric is not None and isinstance(metric.value, str):
        return metric.value
    return launch.attributes.get("Device Name") or report.session.get(f"Device {launch.device_id or 0}: display_name")


def _compute_capability(launch: Launch, report: Report) -> str | None:
    if launch.compute_capability:
        return launch.compute_capability
    major, minor = (_number(launch, f"device__attribute_compute_capability_{part}") for part in ("major", "minor"))
    if major is not None and minor is not None:
        return f"{int(major)}.{int(minor)}"
    device = f"Device {launch.device_id or 0}: compute_capability_"
    parts = [report.session.get(device + part) for part in ("major", "minor")]
    return ".".join(part for part in parts if part) if all(parts) else None


def _number(launch: Launch, name: str) -> float | None:
    metric = launch.metrics.get(name)
    return None if metric is None or isinstance(metric.value, str) else metric.value


def _rules(launch: Launch) -> list[dict[str, str]] | None:
    if not launch.rules:
        return None
    return [
        {
            "section": rule.section, "name": rule.name, "kind": rule.kind, "description": rule.description,
            "speedup_type": rule.speedup_type, "speedup": rule.speedup,
        }
        for rule in launch.rules
    ]  # fmt: skip


def _rule_metrics(launch: Launch) -> list[str] | None:
    metrics = [rule.metrics for rule in launch.rules]
    return metrics if any(metrics) else None


def describe(name: str, report: Report, unit: str) -> dict[bytes, bytes]:
    """The metadata of a metric's column: base unit, and the label and section under which it was printed."""
    labelled = report.labels.get(name)
    section, label = (labelled.section, labelled.label) if labelled else ("", "")
    return field_metadata(unit=unit, label="" if label == name else label, section=section)
