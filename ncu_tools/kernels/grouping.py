"""Groupings of launches: the group of each launch and the titles of the groups.

A grouping is a line in `KEYS`, its row's name in `kernel_row.GROUPS`, its columns in `runs.partition_sums.OF_GROUPS`,
and a word of --by in `cli.option_kinds.rows_and_order`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_parsers.derived.operators.python_locations import location_titles
from ncu_parsers.schema import arrays, tables

from ncu_tools.ceilings.launch_devices import device_titles
from ncu_tools.kernels.kernel_row import Hotspot, row_key
from ncu_tools.kernels.names.categories import categories_in
from ncu_tools.kernels.names.kernel_titles import names_nothing, short_title
from ncu_tools.kernels.operator_work import operator_titles

Keys = npt.NDArray[np.int64]
NO_MODULE, NO_PHASE = "(no module)", "(no phase)"
NO_RANGE, UNKNOWN_RANGE = "(no range)", "(range not known)"
UNKNOWN_REPORT, UNKNOWN_DEVICE = "(report not known)", "(device not known)"


def grouping(table: pa.Table, group: str) -> tuple[Keys, list[str]]:
    """The group index of each launch (int64, one per launch), and the titles of the groups; some may have no launch.

    `group` is one of `kernel_row.GROUPS`.
    """
    return KEYS[group](table)


def rows_of(table: pa.Table, group: str) -> tuple[Keys, list[str]]:
    """As `grouping`, with a row per device of a group: titles are keys from `row_key`."""
    keys, titles = grouping(table, group)
    codes, devices = device_titles(table)
    each = keys * len(devices) + codes
    found = np.flatnonzero(np.bincount(each))  # numpy.unique would sort the launches
    number_of = np.zeros(int(found[-1]) + 1 if found.size else 0, np.int64)
    number_of[found] = np.arange(found.size)
    pairs = zip((found // len(devices)).tolist(), (found % len(devices)).tolist(), strict=True)
    return number_of[each], [row_key(titles[title], devices[device]) for title, device in pairs]


def module_at_depth(module: str, depth: int | None) -> str:
    """The module itself, or its ancestor `depth` levels below the model if it lies deeper."""
    return module if depth is None else ".".join(module.split(".")[: depth + 1])


def launches_of(row: Hotspot, table: pa.Table) -> npt.NDArray[np.bool_]:
    """Mask of the launches of a row whose title is a kernel's name."""
    keys, titles = rows_of(table, "name")
    return np.array([title == row.key for title in titles], bool)[keys]


def with_keys_for_names(table: pa.Table) -> pa.Table:
    """The launches with `Hotspot.key` in place of kernel names."""
    keys, titles = rows_of(table, "name")
    names = pa.DictionaryArray.from_arrays(arrays.indices(keys.astype(np.int32)), arrays.texts(titles))
    return table.set_column(table.schema.get_field_index("kernel_name"), "kernel_name", names)


def _by_name(table: pa.Table) -> tuple[Keys, list[str]]:
    keys, names = tables.codes(table, "kernel_name")
    return keys.astype(np.int64), [name or "?" for name in names]


def _by_short_name(table: pa.Table) -> tuple[Keys, list[str]]:
    """By short name; launches whose short name is only "kernel" are split by grid and block too."""
    codes, names = tables.codes(table, "kernel_name")
    shorts = [short_title(name) if name else "?" for name in names]
    if any(map(names_nothing, shorts)):
        shapes = [
            f" {shape}" if names_nothing(shorts[code]) else ""
            for code, shape in zip(codes, _shapes(table), strict=True)
        ]
        shorts = [shorts[code] + shape for code, shape in zip(codes, shapes, strict=True)]
        codes = np.arange(len(table), dtype=np.int32)
    numbers, titles = _numbered(shorts)
    return numbers[codes], titles


def _by_name_and_shape(table: pa.Table) -> tuple[Keys, list[str]]:
    names = tables.words(table, "kernel_name")
    return _numbered([f"{name} {shape}" for name, shape in zip(names, _shapes(table), strict=True)])


def _by_range(table: pa.Table) -> tuple[Keys, list[str]]:
    return _numbered([_path(path) for path in table.column("nvtx_path").to_pylist()])


def _by_report(table: pa.Table) -> tuple[Keys, list[str]]:
    keys, names = tables.codes(table, "report")
    return keys.astype(np.int64), [name or UNKNOWN_REPORT for name in names]


def _by_device(table: pa.Table) -> tuple[Keys, list[str]]:
    keys, titles = device_titles(table)
    return keys, [title or UNKNOWN_DEVICE for title in titles]


def _numbered(titles: Sequence[str]) -> tuple[Keys, list[str]]:
    known: dict[str, int] = {}
    return np.array([known.setdefault(title, len(known)) for title in titles], np.int64), list(known)


def _shapes(table: pa.Table) -> list[str]:
    """Grid and block of each launch, as `(128, 1, 1) x (256, 1, 1)`."""
    pairs = zip(table.column("grid").to_pylist(), table.column("block").to_pylist(), strict=True)
    return [f"{_shape(grid)} x {_shape(block)}" for grid, block in pairs]


def _shape(shape: list[int] | None) -> str:
    return "(" + ", ".join(map(str, shape)) + ")" if shape else "(?)"


def _path(path: list[str] | None) -> str:
    if path is None:
        return UNKNOWN_RANGE
    return "/".join(map(_range, path)) if path else NO_RANGE


def _range(name: str) -> str:
    """A range's name, quoted if it would read as several ranges, as a quoted one, or as none."""
    is_plain = name and "/" not in name and not name.startswith('"') and name not in (NO_RANGE, UNKNOWN_RANGE)
    return name if is_plain else '"' + name.replace('"', '""') + '"'


KEYS: dict[str, Callable[[pa.Table], tuple[Keys, list[str]]]] = {
    "name": _by_name,
    "short": _by_short_name,
    "grid": _by_name_and_shape,
    "nvtx": _by_range,
    "operator": operator_titles,
    "category": categories_in,
    "location": location_titles,
    "report": _by_report,
    "device": _by_device,
}
"""Grouping -> the function that finds the group of each launch."""
