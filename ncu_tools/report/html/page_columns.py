"""The columns of the tables of an HTML page, titled, and dropped in narrow windows, like those of the commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, metadata
from typing import Any

from ncu_tools.kernels.kernel_row import GROUPS, KERNEL
from ncu_tools.numbers.number_format import plural
from ncu_tools.report.columns.registry import column, columns, entry, table_columns
from ncu_tools.report.table import Column

SHOWN = "_shown"
"""Suffix of columns with the display text of another column; null: shown as it is."""
UNTITLED = (SHOWN, "_lower_bound")
"""Suffixes of columns that only mark others."""
WIDEST_NAME = 64
"""The most characters of a name on the page, which shows the full one on hover."""

KERNEL_COLUMNS = columns(
    "kernel kernel_shown run device~2 launches~3 time_total_ns time_share time_mean_ns~8 flops_per_s~4 "
    "arithmetic_intensity~5 dram_bytes_per_s~6 least_bytes_per_s~6 bound bound_fraction first_lever "
    "nvidia_rules~5 headroom_ns~7 headroom_share~8"
)
NOT_ON_PAGES = frozenset({"time_cumulative", "sm_busy", "memory_busy"})
"""Columns of `hotspots` that a page shows elsewhere."""
DETAILS = columns(
    "time_min_ns time_max_ns time_std_ns flops dram_bytes least_bytes intensity_l2 intensity_l1 intensity_shared unit "
    "work grid block registers shared_memory waves flops_basis diagnosis report flag flops_lower_bound"
)
KERNEL_DETAILS = (
    *DETAILS,
    *(
        one
        for one in table_columns("hotspots")
        if one.name not in {*NOT_ON_PAGES, *(shown.name for shown in (*KERNEL_COLUMNS, *DETAILS))}
    ),
)
"""Columns shown only for a selected kernel."""

SUMMARY_COLUMNS = columns(
    "run run.source~8 device~1 launches~2 kernels~5 time_total_ns flops~7 flops_per_s~2 dram_bytes~7 "
    "dram_bytes_per_s~4 arithmetic_intensity~3 flops_lower_bound"
)
LAYER_COLUMNS = (
    *columns(
        "layer.name time_ns time_share forward_ns backward_ns optimizer_ns prefill_ns decode_ns flops "
        "dram_bytes arithmetic_intensity"
    ),
    column("launches", kind="number"),
    *columns("depth flops_lower_bound"),
)
CEILING_COLUMNS = columns("device roof.title roof.rate ridge roof.kind source")


def timed(columns: Sequence[Column], title: str) -> list[Column]:
    """The columns, with the time column titled `title`."""
    return [column._replace(title=title) if column.title == "time" else column for column in columns]


def summary_columns(group: str, time_title: str) -> list[Column]:
    """The columns of the table of runs."""
    columns = timed(SUMMARY_COLUMNS, time_title)
    return [one._replace(title=plural(GROUPS[group])) if one.name == "kernels" else one for one in columns]


def kernel_columns(group: str, time_title: str) -> list[Column]:
    """The columns of the table of kernels, and of the details beside the plot; titled as in `ncu-bench hotspots`."""
    noun = GROUPS[group]
    columns = timed((*KERNEL_COLUMNS, *KERNEL_DETAILS), time_title)
    return [one._replace(title=noun) if one.name == KERNEL else one for one in columns]


def described(column: Column) -> dict[str, Any]:
    """A column's description for the page."""
    known = {name: getattr(column, name) for name in ("name", "title", "kind", "lower_bound_if", "key")}
    return {**known, "kind": "text" if column.kind == KERNEL else column.kind, "spare": column.spare or 0}


def meanings_in(content: Any) -> dict[str, tuple[str, str, str, str]]:
    """Key of each column in a page's content -> title, meaning, unit and meaning of null, from the registry."""
    found: dict[str, tuple[str, str, str, str]] = {}
    if isinstance(content, dict):
        for column in content.get("columns", ()):
            if column["key"] and not column["name"].endswith(UNTITLED):
                known = entry(column["key"])
                found[column["key"]] = (column["title"], known.meaning, known.unit, known.null)
        content = list(content.values())
    for one in content if isinstance(content, (list, tuple)) else ():
        if isinstance(one, (dict, list, tuple)):
            found |= meanings_in(one)
    return found


def meanings_of_rows(parts: Mapping[str, Any] | None) -> dict[str, tuple[str, str, str, str]]:
    """As `meanings_in`, for titles of rows in the parts of kernels; keys are "row-" and the index of the title."""
    if parts is None:
        return {}
    return {f"row-{index}": (parts["texts"][int(index)], means, "", "") for index, means in parts["means"].items()}


def docs_of_columns() -> str | None:
    """The address of the documentation's page of columns, by the package's metadata; None if that has no address."""
    try:
        named = metadata("ncu-bench").get_all("Project-URL") or []
    except PackageNotFoundError:
        return None
    found = dict(one.replace(" ", "").split(",", 1) for one in named if "," in one).get("Documentation")
    return f"{found.rstrip('/')}/reference/columns.html" if found else None


def table_of(columns: Sequence[Column], rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Columns with their kinds, and every row as a list of plain values in the order of the columns."""
    return {
        "columns": [described(one) for one in columns],
        "rows": [[row.get(column.name) for column in columns] for row in rows],
    }
