"""The columns of the tables of an HTML page, titled and left out in narrow windows as those of the commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ncu_tools.ceilings.ceilings import unit_title
from ncu_tools.kernels.kernel_row import GROUPS, KERNEL
from ncu_tools.numbers.number_format import plural
from ncu_tools.report.table import Column
from ncu_tools.roofline.scene import LEVELS

LOWER = "flops_lower_bound"
SHOWN = "_shown"
"""End of the names of columns that say how the text of another one is shown; null: as it is."""
WIDEST_NAME = 64
"""The most letters of a name on the page, which shows the whole one where the mouse is."""

KERNEL_COLUMNS = (
    Column("kernel", "kernel"),
    Column(f"kernel{SHOWN}", "short name"),
    Column("run", "run"),
    Column("device", "device", spare=2),
    Column("launches", "launches", "count", spare=3),
    Column("time_total_ns", "time", "time"),
    Column("time_share", "share", "fraction"),
    Column("time_mean_ns", "mean", "time", spare=8),
    Column("flops_per_s", "FLOP/s", "flop/s", lower_bound_if=LOWER, spare=4),
    Column("arithmetic_intensity", "FLOP/B", "number", lower_bound_if=LOWER, spare=5),
    Column("dram_bytes_per_s", "DRAM B/s", "byte/s", spare=6),
    Column("least_bytes_per_s", "B/s by shapes", "byte/s", spare=6),
    Column("bound", "bound"),
    Column("bound_fraction", "% of roof", "fraction"),
    Column("first_cause", "first cause"),
    Column("nvidia_rules", "NVIDIA's rules", spare=5),
    Column("headroom_ns", "headroom", "time", spare=7),
    Column("headroom_share", "could save", "fraction", spare=8),
)
KERNEL_DETAILS = (
    Column("time_min_ns", "min", "time"),
    Column("time_max_ns", "max", "time"),
    Column("time_std_ns", "std", "time"),
    Column("flops", "FLOPs", "flop", lower_bound_if=LOWER),
    Column("dram_bytes", "DRAM", "byte"),
    Column("least_bytes", "bytes by shapes", "byte"),
    *(
        Column(f"intensity_{level}", f"{unit_title(level)} FLOP/B", "number", lower_bound_if=LOWER)
        for level in LEVELS[1:]
    ),
    Column("unit", "unit"),
    Column("work", "FLOPs by unit"),
    Column("grid", "grid"),
    Column("block", "block"),
    Column("registers", "registers per thread"),
    Column("shared_memory", "shared memory per block"),
    Column("waves", "waves per SM"),
    Column("flops_basis", "basis"),
    Column("diagnosis", "diagnosis"),
    Column("report", "report"),
    Column("flag", "flag"),
    Column(LOWER, "lower bound"),
)
"""Columns shown only for a selected kernel."""

SUMMARY_COLUMNS = (
    Column("run", "run"),
    Column("source", "source", spare=8),
    Column("device", "device"),
    Column("launches", "launches", "count", spare=1),
    Column("kernels", "kernels", "count", spare=5),
    Column("time_total_ns", "time", "time"),
    Column("flops", "FLOPs", "flop", lower_bound_if=LOWER, spare=7),
    Column("flops_per_s", "FLOP/s", "flop/s", lower_bound_if=LOWER, spare=2),
    Column("dram_bytes", "DRAM", "byte", spare=7),
    Column("dram_bytes_per_s", "DRAM B/s", "byte/s", spare=4),
    Column("arithmetic_intensity", "FLOP/B", "number", lower_bound_if=LOWER, spare=3),
    Column(LOWER, "lower bound"),
)
LAYER_COLUMNS = (
    Column("name", "layer"),
    Column("time_ns", "time", "time"),
    Column("time_share", "share", "fraction"),
    Column("forward_ns", "forward", "time"),
    Column("backward_ns", "backward", "time"),
    Column("optimizer_ns", "optimizer", "time"),
    Column("prefill_ns", "prefill", "time"),
    Column("decode_ns", "decode", "time"),
    Column("flops", "FLOPs", "flop", lower_bound_if=LOWER),
    Column("dram_bytes", "DRAM", "byte"),
    Column("arithmetic_intensity", "FLOP/B", "number", lower_bound_if=LOWER),
    Column("launches", "launches", "number"),
    Column("depth", "depth", "count"),
    Column(LOWER, "lower bound"),
)
CEILING_COLUMNS = (
    Column("device", "machine"),
    Column("title", "roof"),
    Column("rate", "rate"),
    Column("ridge", "ridge at FLOP/B", "number"),
    Column("kind", "from"),
    Column("source", "source"),
)


def timed(columns: Sequence[Column], title: str) -> list[Column]:
    """The columns, with the one of times titled `title`."""
    return [column._replace(title=title) if column.title == "time" else column for column in columns]


def summary_columns(group: str, time_title: str) -> list[Column]:
    """The columns of the table of runs."""
    columns = timed(SUMMARY_COLUMNS, time_title)
    return [one._replace(title=plural(GROUPS[group])) if one.name == "kernels" else one for one in columns]


def kernel_columns(group: str, time_title: str) -> list[Column]:
    """The columns of the table of kernels, and those beside the plot; titled as in `ncu-bench hotspots`."""
    noun = GROUPS[group]
    columns = timed((*KERNEL_COLUMNS, *KERNEL_DETAILS), time_title)
    return [one._replace(title=noun) if one.name == KERNEL else one for one in columns]


def described(column: Column) -> dict[str, Any]:
    """What a page needs to know of a column."""
    known = {name: getattr(column, name) for name in ("name", "title", "kind", "lower_bound_if")}
    return {**known, "spare": column.spare or 0}


def table_of(columns: Sequence[Column], rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Columns with their kinds, and every row as a list of plain values in the order of the columns."""
    return {
        "columns": [described(one) for one in columns],
        "rows": [[row.get(column.name) for column in columns] for row in rows],
    }
