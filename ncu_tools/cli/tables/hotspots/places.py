"""Columns of device and report, if the rows of a table differ in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncu_tools.report.columns.registry import column
from ncu_tools.report.table import Column

DEVICE = column("device", spare=0)
REPORT = column("report", spare=1)
PLACES = (DEVICE, REPORT)
SEVERAL = "several"
WIDTHS = (20, 28, 40, 60)
"""Widths in letters to which names are cut in the middle: the first one that keeps all distinct is used."""


def differing_places(rows: Sequence[Mapping[str, Any]], group: str) -> list[Column]:
    """The device and report columns in which rows differ, without the grouping column."""
    return [one for one in PLACES if one.name != group and len({row[one.name] for row in rows}) > 1]


def for_people(rows: Sequence[Mapping[str, Any]], group: str) -> list[dict[str, Any]]:
    """The rows with short names of reports and devices; a row may cover several reports."""
    result = [{**row, REPORT.name: row.get(REPORT.name) or SEVERAL} for row in rows]
    for place in PLACES:
        name = "kernel" if group == place.name else place.name
        names = [row[name] for row in result if row.get(name)]
        short = short_reports(names) if place is REPORT else short_devices(names)
        result = [{**row, name: short.get(row.get(name) or "")} for row in result]
    return result


def short_devices(devices: Sequence[str]) -> dict[str, str]:
    """Names of devices without the vendor, cut in the middle if long."""
    names = list(dict.fromkeys(devices))
    short = [name.removeprefix("NVIDIA ").replace("compute capability", "CC") for name in names]
    return dict(zip(names, _cut_alike(short), strict=True))


def short_reports(reports: Sequence[str]) -> dict[str, str]:
    """The distinguishing end of each path, cut in the middle if long."""
    from ncu_tools.report.head import ends_apart

    ends = ends_apart(reports)
    return dict(zip(ends, _cut_alike(list(ends.values())), strict=True))


def _cut_alike(names: Sequence[str]) -> Sequence[str]:
    """The names cut to the first of `WIDTHS` that keeps them distinct."""
    every = ([_cut(name, width) for name in names] for width in WIDTHS)
    return next((cut for cut in every if len(set(cut)) == len(set(names))), names)


def _cut(text: str, width: int) -> str:
    """The text cut in its middle if longer than `width`."""
    end = width // 2
    return text if len(text) <= width else f"{text[: width - end - 1]}…{text[-end:]}"
