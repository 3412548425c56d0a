"""Launches as the long CSV of ncu's details page, one row per metric, which other tools for Nsight Compute read.

Only metrics of the report are written, under section, label and base unit, without derived columns. Values have all
digits, so that reading the file restores them exactly. NVTX ranges and results of NVIDIA's rules have their columns if
any launch has them. A range's thread, colour, payload and message are unknown, and all ranges except our own launcher's
get the default domain.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import pyarrow as pa
from ncu_launch.nvtx_ranges import DOMAIN
from ncu_parsers.datasets.dataset_layout import RUN
from ncu_parsers.report_data.report import COMMAND_LINE_SECTION, metric_of_label
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.tables import COLUMN_NAMES, HOST, IDENTITY_COLUMNS, field_entries

RANGES = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
KERNEL_TIME = "Kernel Time"
"""Date and time of a kernel's start, in reports up to ncu 2022.3 and in binary ones."""
RULE_COLUMNS = {
    "Rule Name": "name", "Rule Type": "kind", "Rule Description": "description",
    "Estimated Speedup Type": "speedup_type", "Estimated Speedup": "speedup",
}  # fmt: skip
HEADER = (
    "ID", "Process ID", "Process Name", "Host Name", RANGES, "Kernel Name", KERNEL_TIME, "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC", "Invocations", "Section Name", "Metric Name", "Metric Unit",
    "Metric Value", *RULE_COLUMNS,
)  # fmt: skip
WHERE_KNOWN = ("Process ID", "Invocations")
"""Columns written only if every launch has a value, because readers reject rows without it."""
NO_PAYLOAD = ":none" * 6
DEFAULT_DOMAIN = "<default domain>"
NCU = "ncu"
"""Prefix of `source` where ncu counted."""
INSTANCES = " (instances)"
"""Suffix of columns with a report's bracketed text after a metric's value."""
OF_THE_LAUNCH = frozenset({"Process Name", "Host Name", KERNEL_TIME, "Result Type", "Device Name", RUN, HOST})
"""Columns of reports, ranks and datasets that are not metrics."""

Heading = tuple[str, str, str]
"""Section, label and unit of a metric."""


def to_section_csv(table: pa.Table) -> str:
    """The metrics of every launch that has any; "" if none has, as in runs without ncu.

    Launches with missing or duplicate ids are numbered by their position in the table. They keep their process id if
    every launch has one.
    """
    headings = {field.name: heading for field in table.schema if (heading := _heading(field)) is not None}
    table = arrays.kept(table, [(source or "").startswith(NCU) for source in tables.words(table, "source")])
    headings = dict(sorted(headings.items(), key=lambda item: item[1]))
    launches = _launches(table)
    rows = list(_rows(table, headings, launches))
    if not rows:
        return ""
    rows += _rules(table, launches)
    left_out = [name for name in WHERE_KNOWN if not all(launch[name] for launch in launches)]
    left_out += [name for name in (RANGES, KERNEL_TIME) if not any(row.get(name) for row in rows)]
    left_out += _after_the_last_filled(rows)
    kept = [name for name in HEADER if name not in left_out]
    out = io.StringIO()
    writer = csv.DictWriter(out, kept, quoting=csv.QUOTE_ALL, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _heading(field: pa.Field) -> Heading | None:
    """Section, label and unit under which a metric is read back by its own name; None if the column is not a metric."""
    if field.name in COLUMN_NAMES or field.name in OF_THE_LAUNCH or field.name.endswith(INSTANCES):
        return None
    entries = field_entries(field)
    section, label, unit = (entries.get(key, "") for key in ("section", "label", "unit"))
    if label and metric_of_label(section, "", label).name == field.name:
        return section, label, unit
    return COMMAND_LINE_SECTION, field.name, unit


def _rows(
    table: pa.Table, headings: dict[str, Heading], launches: Sequence[dict[str, str]]
) -> Iterator[dict[str, str]]:
    columns = [
        (*heading, table.column(name).to_pylist(), tables.words(table, name + INSTANCES))
        for name, heading in headings.items()
    ]
    for index, launch in enumerate(launches):
        for section, label, unit, values, behind in columns:
            text = _printed(values[index])
            if text:
                text += f" ({behind[index]})" if behind[index] else ""
                yield {
                    **launch, "Section Name": section, "Metric Name": label, "Metric Unit": unit, "Metric Value": text,
                }  # fmt: skip


def _rules(table: pa.Table, launches: Sequence[dict[str, str]]) -> Iterator[dict[str, str]]:
    """A row for each rule result, without metric cells."""
    if "rules" not in table.column_names:
        return
    for launch, rules in zip(launches, table.column("rules").to_pylist(), strict=True):
        for rule in rules or []:
            cells = {title: " ".join((rule[name] or "").splitlines()) for title, name in RULE_COLUMNS.items()}
            yield {**launch, "Section Name": rule["section"] or "", **cells}


def _after_the_last_filled(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Rule columns after the last one with a text: earlier ones are identified by position."""
    empty = takewhile(lambda name: not any(row.get(name) for row in rows), reversed(RULE_COLUMNS))
    return list(empty)


def _ranges(launch: dict[str, Any]) -> str:
    """The NVTX ranges around a launch, outermost first, as ncu prints push/pop ranges."""
    ours = {launch["phase"], launch["module"], f"iteration {launch['iteration']}"}
    entries = []
    for name in launch["nvtx_path"] or []:
        text = " ".join(name.replace('"', "'").splitlines())
        entries.append(f'"{DOMAIN if name in ours else DEFAULT_DOMAIN}:{text}{NO_PAYLOAD}"')
    return " ".join(entries)


def _launches(table: pa.Table) -> list[dict[str, str]]:
    """The identity cells of each launch."""
    names = [*(column.name for column in IDENTITY_COLUMNS), "Process Name", "Host Name", KERNEL_TIME]
    launches = table.select([name for name in names if name in table.column_names]).to_pylist()
    if any(launch["invocations"] for launch in launches):
        launches = [{**launch, "invocations": launch["invocations"] or 1} for launch in launches]
    processes_known = all(launch["process_id"] is not None for launch in launches)
    ids = [(launch["process_id"] if processes_known else None, launch["launch_id"]) for launch in launches]
    are_unique = len(set(ids)) == len(ids) and not any(number is None for _, number in ids)
    return [_identity(launch, launch["launch_id"] if are_unique else place) for place, launch in enumerate(launches)]


def _identity(launch: dict[str, Any], number: int) -> dict[str, str]:
    return {
        "ID": str(number),
        "Process ID": _plain(launch["process_id"]),
        "Process Name": launch.get("Process Name") or "",
        "Host Name": launch.get("Host Name") or "",
        RANGES: _ranges(launch),
        "Kernel Name": " ".join(launch["kernel_name"].splitlines()),
        KERNEL_TIME: launch.get(KERNEL_TIME) or "",
        "Context": _plain(launch["context"]),
        "Stream": _plain(launch["stream"]),
        "Block Size": _shape(launch["block"]),
        "Grid Size": _shape(launch["grid"]),
        "Device": _plain(launch["device_id"]),
        "CC": _plain(launch["compute_capability"]),
        "Invocations": _plain(launch["invocations"]),
    }


def _plain(value: object) -> str:
    return "" if value is None else str(value)


def _shape(shape: list[int] | None) -> str:
    return "" if shape is None else f"({', '.join(map(str, shape))})"


def _printed(value: float | str | None) -> str:
    """A value with all digits. Never three decimals: readers would mistake them for thousands in a report of counts."""
    if value is None or isinstance(value, str):
        return value or ""
    if not math.isfinite(value):
        return ""
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    digits, exponent, power = repr(float(value)).partition("e")
    whole, _, decimals = digits.partition(".")
    return f"{whole}.{decimals.ljust(4, '0')}{exponent}{power}"
