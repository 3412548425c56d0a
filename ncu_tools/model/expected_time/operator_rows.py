"""Rows of operators as users write them, read into columns of sizes; unreadable rows keep the reason.

A row has `op` (gemm, attention_context, attention_generation, or an ATen name with `shapes`: `aten_rows`), `dtype`, and
the sizes of its kind. Missing columns and empty cells are unknown, or have a default.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ncu_launch.errors import NcuBenchError, WrongUsage
from numpy.typing import NDArray

from ncu_tools.model.expected_time.aten_rows import SETTINGS, AtenWork, aten_work
from ncu_tools.model.expected_time.hardware import types
from ncu_tools.model.expected_time.physics import Floats

Columns = Mapping[str, Sequence[Any]]

GEMM, CONTEXT, GENERATION, MOVEMENT = "gemm", "attention_context", "attention_generation", "movement"
SIZES: dict[str, dict[str, float | str | None]] = {
    GEMM: {"m": None, "n": None, "k": None, "number": 1.0, "quantised": 0.0},
    CONTEXT: {
        "batch": None, "heads": None, "kv_heads": "heads", "head_dim": None, "query": None, "context": 0.0,
        "window": 0.0, "causal": 1.0, "writes": 1.0,
    },
    GENERATION: {
        "batch": None, "heads": None, "kv_heads": "heads", "head_dim": None, "query": 1.0, "context": None,
        "window": 0.0, "causal": 1.0,
    },
}  # fmt: skip
"""Sizes of each kind of operators: None if required, else the default, or the name of the size that is the default."""
OF_ATEN: dict[str, float] = {"distinct": 1.0, "moved": 0.0, "rearranges": 0.0, "convolution": 0.0}
"""Sizes that only formulas of ATen operators give, with the values of all other rows."""
FLAGS = ("causal", "writes", "quantised")
CAN_BE_ZERO = ("context", "window", *FLAGS)
ALIASES = {
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32", "float64": "fp64",
    "double": "fp64", "fp4": "nvfp4", "float8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "e4m3": "fp8",
    "e5m2": "fp8", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "float8_e4m3fnuz": "fp8",
}  # fmt: skip
MOST = 2.0**40
"""Larger sizes are mistakes."""


@dataclass(frozen=True)
class OperatorRows:
    """Operators row by row: names of `kinds`, `dtypes` and `kv_dtypes`; `sizes` by column (NaN if unknown).

    `failed` is the reason why a row cannot be estimated, else None. `given` are the original columns.
    """

    given: dict[str, list[Any]]
    kinds: NDArray[np.object_]
    dtypes: NDArray[np.object_]
    kv_dtypes: NDArray[np.object_]
    sizes: dict[str, Floats]
    failed: NDArray[np.object_]

    def __len__(self) -> int:
        return len(self.kinds)


DELIMITERS = ",;\t"
FURTHER = "further cells"
"""The column for cells beyond the columns of the table, which come from commas in numbers, as in 4,096."""


def _canonical_name(name: str) -> str:
    """The canonical name of a known column, whatever its case; other names unchanged."""
    own = {"op", "dtype", "kv_dtype", "shapes", *SETTINGS, *(size for sizes in SIZES.values() for size in sizes)}
    return name.lower() if name.lower() in own else name


def read_csv(path: Path) -> dict[str, list[Any]]:
    """Read the columns of a file with commas, semicolons or tabs, as texts.

    Raises `NcuBenchError` if it cannot be read, `WrongUsage` if it has no column `op` or repeats one.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            lines = csv.reader(file, delimiter=next((mark for mark in DELIMITERS if mark in first), DELIMITERS[0]))
            names = [_canonical_name(name.strip()) for name in next(lines, [])]
            rows = [row for row in lines if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise NcuBenchError(f"{path} cannot be read as a CSV file of operators.", f"{error}.") from None
    if "op" not in names or len(set(names)) != len(names):
        raise WrongUsage(
            f"{path} is no table of operators.", f"Its first line has the columns {', '.join(names) or '(none)'}.",
            "Name the columns once each, op among them: op,dtype,m,n,k for GEMMs.",
        )  # fmt: skip
    if any(len(row) > len(names) for row in rows):
        names.append(FURTHER)
        rows = [[*row[:size], ", ".join(row[size:])] for row in rows for size in (len(names) - 1,)]
    size = len(names)
    whole = [row if len(row) == size else [*row, *[""] * size][:size] for row in rows]
    across = list(zip(*whole, strict=True)) if whole else [()] * size
    return {name: list(column) for name, column in zip(names, across, strict=True)}


def operator_rows(columns: Columns) -> OperatorRows:
    """Rows of operators from columns of texts or numbers.

    Raises `WrongUsage` without a column `op`, and for columns of unequal lengths.
    """
    given = {_canonical_name(str(name)): list(column) for name, column in columns.items()}
    if "op" not in given:
        raise WrongUsage("A table of operators needs the column op.", advice="Its values: gemm, attention_context, ...")
    count = len(given["op"])
    if unlike := [f"{name} {len(column):,}" for name, column in given.items() if len(column) != count]:
        raise WrongUsage(
            f"The columns of a table of operators have as many values as op, {count:,}: {', '.join(unlike)} have not.",
            advice="Give each column a value for every row, None where a size has its default.",
        )
    kinds = _texts(given["op"])
    dtypes = _types(given.get("dtype"), count)
    kv_dtypes = _types(given.get("kv_dtype"), count)
    kv_dtypes = np.where(kv_dtypes == "", dtypes, kv_dtypes)
    failed = np.full(count, None, dtype=object)
    aten = _aten_rows(given, kinds, dtypes)
    for at, kind in enumerate(kinds.tolist()):
        if kind not in SIZES and at not in aten:
            failed[at] = f"op {kind or '(empty)'} is none of {', '.join(SIZES)}, and no ATen name with shapes"
        elif dtypes[at] not in types():
            failed[at] = f"dtype {dtypes[at] or '(empty)'} is none of {', '.join(types())}"
        elif kv_dtypes[at] not in types():
            failed[at] = f"kv_dtype {kv_dtypes[at]} is none of {', '.join(types())}"
    for at, further in enumerate(given.get(FURTHER, ())):
        if further:
            failed[at] = f"the row has more cells than the table has columns ({further})"
    sizes: dict[str, Floats] = {}
    for name in dict.fromkeys(name for wanted in SIZES.values() for name in wanted):
        sizes[name], wrong = _numbers(given.get(name), count, zero=name in CAN_BE_ZERO)
        needs = np.isin(kinds.astype(str), [kind for kind, wanted in SIZES.items() if name in wanted])
        for at in np.flatnonzero(needs & (wrong != None)).tolist():  # noqa: E711  of each cell
            failed[at] = failed[at] or f"{name} is {wrong[at]}"
    sizes |= {name: np.full(count, default) for name, default in OF_ATEN.items()}
    for at, work in aten.items():
        if isinstance(work, str):
            failed[at] = failed[at] or work
            continue
        kinds[at] = work.kind
        for name, value in work.sizes.items():
            sizes[name][at] = value
    _fill(kinds, sizes, failed)
    _refuse_odd(kinds, sizes, failed)
    return OperatorRows(given, kinds, dtypes, kv_dtypes, sizes, failed)


def _aten_rows(
    given: Mapping[str, Sequence[Any]], kinds: NDArray[np.object_], dtypes: NDArray[np.object_]
) -> dict[int, AtenWork | str]:
    """The work of each row with an ATen operator and shapes, or why it is unknown. Equal rows are computed once."""
    shapes = given.get("shapes", [None] * len(kinds))
    settings = [_texts(given.get(name, [""] * len(kinds))) for name in SETTINGS]
    known: dict[tuple[Any, ...], AtenWork | str] = {}
    found: dict[int, AtenWork | str] = {}
    for at, (op, dtype, each, *values) in enumerate(zip(kinds, dtypes, shapes, *settings, strict=True)):
        if op in SIZES or not (each or "::" in op):
            continue
        key = (op, dtype, str(each), *values)
        if key not in known:
            known[key] = aten_work(op, dtype, each, dict(zip(SETTINGS, values, strict=True)))
        found[at] = known[key]
    return found


def _fill(kinds: NDArray[np.object_], sizes: dict[str, Floats], failed: NDArray[np.object_]) -> None:
    """Insert defaults for missing sizes; rows that lack a required size fail."""
    for kind, wanted in SIZES.items():
        here = kinds == kind
        for name, default in wanted.items():
            missing = here & np.isnan(sizes[name])
            if default is None:
                for at in np.flatnonzero(missing).tolist():
                    failed[at] = failed[at] or f"{name} is missing"
            else:
                sizes[name] = np.where(missing, sizes[default] if isinstance(default, str) else default, sizes[name])


def _refuse_odd(kinds: NDArray[np.object_], sizes: dict[str, Floats], failed: NDArray[np.object_]) -> None:
    """Fail rows with sizes that no operator has."""
    attention = np.isin(kinds.astype(str), (CONTEXT, GENERATION))
    with np.errstate(invalid="ignore"):
        uneven = attention & (np.mod(sizes["heads"], sizes["kv_heads"]) > 0)
        for at in np.flatnonzero(uneven).tolist():
            heads, shared = (f"{sizes[name][at]:g}" for name in ("heads", "kv_heads"))
            failed[at] = failed[at] or f"heads is {heads}, which is no multiple of kv_heads, {shared}"
        for name in FLAGS:
            for at in np.flatnonzero((kinds != MOVEMENT) & (sizes[name] > 1)).tolist():
                failed[at] = failed[at] or f"{name} is {sizes[name][at]:g}, which is neither 0 nor 1"


def _texts(values: Iterable[Any]) -> NDArray[np.object_]:
    known: dict[Any, str] = {}
    found = []
    for value in values:
        if value not in known:
            known[value] = "" if value is None or value != value else str(value).strip().lower()
        found.append(known[value])
    return np.array(found, dtype=object)


def _types(values: Sequence[Any] | None, count: int) -> NDArray[np.object_]:
    if values is None:
        return np.full(count, "", dtype=object)
    texts = (text.removeprefix("torch.") for text in _texts(values).tolist())
    return np.array([ALIASES.get(text, text) for text in texts], dtype=object)


def _numbers(values: Sequence[Any] | None, count: int, *, zero: bool) -> tuple[Floats, NDArray[np.object_]]:
    """The sizes of a column, NaN where empty, and what is wrong where a cell is no size."""
    wrong = np.full(count, None, dtype=object)
    if values is None:
        return np.full(count, np.nan), wrong
    try:
        numbers = np.array(["nan" if value is None or value == "" else value for value in values], dtype=np.float64)
    except (ValueError, TypeError):
        numbers = np.array([_number(value) for value in values], dtype=np.float64)
        for at in np.flatnonzero(np.isinf(numbers)).tolist():
            wrong[at] = f"{values[at]!r}, which is no number"
    least = 0 if zero else 1
    with np.errstate(invalid="ignore"):
        odd = ~np.isnan(numbers) & ~((numbers >= least) & (numbers <= MOST) & (numbers == np.floor(numbers)))
    for at in np.flatnonzero(odd).tolist():
        wrong[at] = wrong[at] or f"{values[at]}, which is no whole number from {least} on"
    numbers[odd] = np.nan
    return numbers, wrong


def _number(value: Any) -> float:
    """A cell as a number, NaN if it is empty, infinite if it is no number."""
    text = "" if value is None else str(value).strip()
    try:
        return float(text) if text else np.nan
    except ValueError:
        return np.inf
