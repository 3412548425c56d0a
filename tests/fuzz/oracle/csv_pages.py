"""The CSV pages of ncu: raw (one row per launch) and details (one row per metric), mutated and read with the csv module."""

from __future__ import annotations

import csv
import io
import math
import random
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ncu_parsers.derived import table_builder
from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.detect.text_reader import read_report
from ncu_parsers.report_data import report
from ncu_parsers.report_data.report import Report, metric_of_label
from ncu_parsers.schema.tables import COLUMN_NAMES
from ncu_parsers.sources.reading_ahead import beside_others
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming import page_rows, streaming_reader
from ncu_parsers.streaming.cells.rows import NotStreamed

from sample_reports.generate import reports
from tests.fuzz.oracle.compared import OneOf, Reading, Row
from tests.fuzz.oracle.damage import NAMES, moved, real, seldom_damaged, some, whole

RAW = ("d01-wide-raw.csv", "d01-wide-raw-2022.csv")
DETAILS = (
    "d02-long-rules.csv", "d04-long-metrics.csv", "d05-legacy-long.csv", "d06-legacy-thousands.csv",
    "d09-units-per-row.csv", "d10-details-all.csv", "d13-decimal-comma.csv", "d17-section-speed-of-light.csv",
)  # fmt: skip
MOST_ROWS = 60
COLUMNS_AT_ONCE, ROWS_AT_ONCE = 12, 12
"""Metrics of a raw page and rows of a details page in one input, others in each: what is not changed is read alike.

Numbers whose decimal mark is clear are always among them, since the others have two meanings without."""
LOSSES = (report.BROKEN, report.CUT, report.TOO_LONG, report.UNLABELLED)

IDENTITY = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream", "Block Size",
    "Grid Size", "Device", "CC",
)  # fmt: skip

LONG_TITLES = ("Section Name", "Body Item Label", "Metric Name", "Metric Unit", "Metric Value")

BYTES = {f"{prefix}byte": 10.0**power for prefix, power in (("", 0), ("K", 3), ("M", 6), ("G", 9), ("T", 12))}
TIMES = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}
BASES: dict[str, tuple[str, float]] = {
    **{name: ("byte", factor) for name, factor in BYTES.items()},
    **{name: ("ns", factor) for name, factor in TIMES.items()},
    **{f"{name}/{second}": ("byte/s", factor) for name, factor in BYTES.items() for second in ("s", "second")},
    **{f"{name}/block": ("byte/block", factor) for name, factor in BYTES.items()},
    **{f"{prefix}{name}": ("hz", factor) for prefix, factor in (("", 1.0), ("K", 1e3), ("M", 1e6), ("G", 1e9)) for name in ("hz", "Hz")},
    "cycle/nsecond": ("hz", 1e9), "cycle/usecond": ("hz", 1e6), "cycle/second": ("hz", 1.0), "cycle/s": ("hz", 1.0),
    "Kinst": ("inst", 1e3), "Minst": ("inst", 1e6), "cycles": ("cycle", 1.0), "Kcycle": ("cycle", 1e3),
}  # fmt: skip
"""Printed unit -> base unit and factor, from NVIDIA's manual; any other unit is its own base."""
UNITS = (*BASES, "%", "inst", "cycle", "inst/cycle", "register/thread", "", "furlong", "sector/request", "KByte", "NS")


# ------------------------------------------------------------------------------------------------------------ mutations


@cache
def _grid(name: str) -> tuple[list[str], list[list[str]], str]:
    """The lines above the table of a sample, its rows as cells, and its delimiter."""
    lines = reports()[name].decode("utf-8-sig").splitlines()
    first = next(at for at, line in enumerate(lines) if '"ID"' in line or line.startswith("ID,"))
    delimiter = ";" if lines[first].count(";") > lines[first].count(",") else ","
    return lines[:first], list(csv.reader(lines[first : first + MOST_ROWS], delimiter=delimiter)), delimiter


def mutated_raw(rng: random.Random) -> bytes:
    """A raw page with some cells, columns or rows changed."""
    above, rows, delimiter = _grid(rng.choice(RAW))
    titles = rows[0]
    kept = {at for at, title in enumerate(titles) if title in IDENTITY or title == "sm__cycles_elapsed.avg"}
    kept |= {*rng.sample([at for at in range(len(titles)) if at not in kept], COLUMNS_AT_ONCE)}
    header, units, *launches = [[row[at] for at in sorted(kept)] for row in rows]
    metrics = [at for at, title in enumerate(header) if title not in IDENTITY]
    for _ in some(rng):
        change = rng.randrange(7)
        at, row = rng.choice(metrics), rng.choice(launches)
        if change <= 1:
            row[at] = number(rng)
        elif change == 2:
            units[at] = rng.choice(UNITS)
        elif change == 3:
            header[at] = rng.choice((*NAMES, header[rng.choice(metrics)], "sm__new_metric.sum"))
        elif change == 4:
            launches = moved(rng, launches)
        elif change == 5:
            _change_identity(rng, header, row)
        else:
            _move_column(rng, [header, units, *launches])
            metrics = [at for at, title in enumerate(header) if title not in IDENTITY]
    return _encoded(rng, above, [header, units, *launches], delimiter)


def mutated_details(rng: random.Random) -> bytes:
    """A details page with some cells or rows changed."""
    above, rows, delimiter = _grid(rng.choice(DETAILS))
    value = rows[0].index("Metric Value")
    deciding = [at for at, row in enumerate(rows) if re.fullmatch(r"\d+[.,]\d\d", "".join(row[value : value + 1]))][:2]
    kept = {0, *deciding, *rng.sample(range(1, len(rows)), min(ROWS_AT_ONCE, len(rows) - 1))}
    header, *body = [list(rows[at]) for at in sorted(kept)]
    named = {title: at for at, title in enumerate(header)}
    for _ in some(rng):
        change, row = rng.randrange(8), rng.choice(body)
        if len(row) <= named["Metric Value"]:
            continue
        if change <= 2:
            row[named["Metric Value"]] = number(rng)
        elif change == 3:
            row[named["Metric Unit"]] = rng.choice(UNITS)
        elif change == 4:
            row[named["Metric Name"]] = rng.choice((*NAMES, "sm__new_metric.sum", "Duration"))
        elif change == 5:
            body = moved(rng, body)
        elif change == 6:
            _change_identity(rng, header, row)
        else:
            _move_column(rng, [header, *body])
            named = {title: at for at, title in enumerate(header)}
    return _encoded(rng, above, [header, *body], delimiter)


def number(rng: random.Random) -> str:
    """A number as some ncu prints it, or what stands in place of one."""
    value: float = rng.choice((whole, real))(rng)
    style = rng.randrange(12)
    if style == 0:
        return rng.choice(("n/a", "", "nan", "inf", "-nan", "no", "0x10", "1_000", "12abc", "--", "1e999", "n/a n/a"))
    if style == 1:
        return f"{value:,.{rng.choice((0, 2, 6))}f}"
    if style == 2:
        return f"{value:.{rng.randrange(17)}e}"
    if style == 3:
        return f"{value:,.2f}".replace(",", " ").replace(".", ",").replace(" ", ".")
    if style == 4:
        return f"{int(value)} ({'; '.join(str(whole(rng)) for _ in some(rng))})"
    if style == 5:
        return f"{int(value)} {{{rng.randrange(99)}}}"
    if style == 6:
        return f" {int(value)} "
    if style == 7:
        return f"-{value:.2f}"
    if style == 8:
        return str(int(value))
    return f"{value:.{rng.choice((1, 2, 3, 6))}f}"


def _change_identity(rng: random.Random, header: list[str], row: list[str]) -> None:
    title = rng.choice([one for one in IDENTITY if one in header])
    if header.index(title) < len(row):
        values = {
            "ID": str(rng.randrange(12)), "Process ID": str(rng.choice((1, 4711, 2**31, 2**63))),
            "Kernel Name": rng.choice(NAMES), "Context": rng.choice(("1", "2", "n/a")),
            "Stream": rng.choice(("7", "n/a", "13")), "Device": str(rng.randrange(3)), "CC": rng.choice(("9.0", "8.0", "12")),
            "Grid Size": rng.choice(("(1, 1, 1)", "(4294967295, 1, 1)", "(2147483647, 2, 3)", "n/a", "(1, 2)")),
            "Block Size": rng.choice(("(32, 1, 1)", "(1024, 1, 1)", "n/a")),
        }  # fmt: skip
        row[header.index(title)] = values.get(title, rng.choice(NAMES))


def _move_column(rng: random.Random, rows: list[list[str]]) -> None:
    """Move a column to another place, among those up to the value, which all metric rows have."""
    header = rows[0]
    width = min(*map(len, rows), header.index("Metric Value") + 1 if "Metric Value" in header else len(header))
    origin, target = rng.randrange(width), rng.randrange(width)
    for row in rows:
        row.insert(target, row.pop(origin))


def _encoded(rng: random.Random, above: list[str], rows: list[list[str]], delimiter: str) -> bytes:
    out = io.StringIO()
    end = rng.choice(("\n", "\n", "\r\n"))
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator=end, delimiter=delimiter).writerows(rows)
    text = end.join([*above, ""]) + out.getvalue() if rng.randrange(3) else out.getvalue()
    encoding = rng.choice(("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16"))
    return seldom_damaged(rng, text.encode(encoding))


# ---------------------------------------------------------------------------------------------------------- slow reader


def slow_raw(data: bytes) -> list[Row] | None:
    """The launches of a raw page: identity and metrics in base units."""
    table = _table(data)
    if table is None:
        return None
    header, rows = table
    rows = [row for row in rows if len(header) <= len(row)]
    if rows and not rows[0][header.index("ID")].strip():
        units, rows = rows[0], rows[1:]
    else:
        units = [""] * len(header)
    launches = [row for row in rows if _fits(header, row)]
    metrics = [at for at, title in enumerate(header) if title and title not in IDENTITY]
    decimal = _decimal(row[at] for row in launches for at in metrics)
    if decimal is None:
        return None
    found: list[Row] = []
    for row in launches:
        printed: dict[str, list[Any]] = {}
        for at in metrics:
            printed.setdefault(header[at], []).append(_value(row[at], units[at], decimal))
        found.append(_launch(header, row, printed))
    return found


def slow_details(data: bytes) -> list[Row] | None:
    """The launches of a details page: identity and metrics in base units; None if a launch's rows begin anew."""
    table = _table(data)
    if table is None:
        return None
    header, rows = table
    if not {"Metric Name", "Metric Value"} <= set(header):
        return None
    at = {title: header.index(title) for title in reversed(header)}
    identity = [title for title in header if title in IDENTITY]
    needed = max(at[title] for title in (*identity, *LONG_TITLES) if title in at)
    rows = [row for row in rows if needed < len(row) and _fits(header, row)]
    decimal = _decimal(row[at["Metric Value"]] for row in rows if row[at["Metric Name"]])
    if decimal is None:
        return None
    launches: dict[tuple[str, ...], _Printed] = {}
    for row in rows:
        key = tuple(row[at[title]] for title in identity)
        said = tuple(row[at[title]] if title in at else "" for title in LONG_TITLES[:3])
        if not row[at["Metric Name"]]:
            if "Rule Name" in at and at["Rule Name"] < len(row) and not _has_launch(launches, row, at):
                launches.setdefault(key, _Printed(row))
            continue
        if key in launches and launches[key].first == said:
            return None  # several runs, of which some launches may be the same
        printed = launches.setdefault(key, _Printed(row))
        printed.first = printed.first or said
        unit = row[at["Metric Unit"]] if "Metric Unit" in at else ""
        value = _value(row[at["Metric Value"]], unit, decimal)
        printed.values.setdefault(metric_of_label(*said).name, []).append(value)
    return [_launch(header, one.row, one.values) for one in launches.values()]


@dataclass
class _Printed:
    """The first row of a launch, what its first metric row said, and its values by metric."""

    row: list[str]
    first: tuple[str, ...] = ()
    values: dict[str, list[Any]] = field(default_factory=dict)


def _has_launch(launches: Mapping[tuple[str, ...], _Printed], row: list[str], at: Mapping[str, int]) -> bool:
    """Whether a launch has the ids of a rule's row."""
    ids = [at[title] for title in ("Process ID", "ID") if title in at]
    return any(all(int(one.row[place]) == int(row[place]) for place in ids) for one in launches.values())


def _table(data: bytes) -> tuple[list[str], list[list[str]]] | None:
    """Header and rows of the only table in the text; None where there is none, or several."""
    text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", "replace")
    lines = text.replace("\r\n", "\n").split("\n")
    starts = [at for at, line in enumerate(lines) if '"ID"' in line and '"Kernel Name"' in line]
    if len(starts) != 1:
        return None
    header_line = lines[starts[0]]
    delimiter = ";" if '";"' in header_line else ","
    cells = [row for line in lines[starts[0] :] if (row := _cells(line, delimiter)) is not None]
    header = [title.strip() for title in cells[0]] if cells else []
    identity = [title for title in header if title in IDENTITY]
    if "ID" not in identity or len(set(identity)) < len(identity):
        return None
    return header, cells[1:]


def _cells(line: str, delimiter: str) -> list[str] | None:
    """The cells of a line; None if a quote is not closed, or the csv module refuses the line.

    Behind less than a row, such as output without a newline, a whole row counts.
    """
    inside = re.compile(r'(?<![,;\t])"\d+","\d+","').search(line, 1)
    if inside is not None and line[: inside.start()].count('"') <= 6:
        line = line[inside.start() :]
    elif line.count('"') % 2:
        return None
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return None


def _fits(header: list[str], row: list[str]) -> bool:
    """Whether a row has ids and no more cells than titles, but for an empty one."""
    if len(row) > len(header) and "".join(row[len(header) :]) + "x" * (len(row) - len(header) - 1):
        return False
    places = [header.index(title) for title in ("ID", "Process ID") if title in header]
    ids = [row[at].strip() if at < len(row) else "" for at in places]
    return all(text.isdecimal() and int(text) < 2**63 for text in ids)


def _launch(header: list[str], row: list[str], printed: dict[str, list[Any]]) -> dict[str, Any]:
    cells = {title: row[at] for at, title in reversed(list(enumerate(header))) if at < len(row)}
    whole_of = {"launch_id": cells.get("ID"), "process_id": cells.get("Process ID")}
    launch: dict[str, Any] = {name: int(text) for name, text in whole_of.items() if text}
    launch["kernel_name"] = cells.get("Kernel Name", "")
    for name, title in (("grid", "Grid Size"), ("block", "Block Size")):
        sides = re.fullmatch(r"\(?\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)?", cells.get(title, "").strip())
        shape = [int(side) for side in sides.groups()] if sides else None
        launch[name] = shape if shape and max(shape) < 2**31 else None
        if cells.get(title, "").strip().isdecimal():  # the oldest summaries print a number of blocks and threads
            printed = {f"launch__{name}_size": [float(cells[title])], **printed}
    for name, values in printed.items():
        if name in IDENTITY:  # a metric of this name, behind a damaged title, hides behind the column of the launch
            continue
        known = [value for value in values if value is not None]
        launch[name] = None if not known else known[0] if len(set(known)) == 1 else OneOf(tuple(known))
    return launch


def _decimal(cells: Iterator[str]) -> str | None:
    """The decimal mark that most numbers of the table need; None if there are only such as "1.234", of two meanings."""
    points = commas = 0
    is_unclear = False
    for text in cells:
        text, *power = re.split("[eE]", text)
        is_unclear |= not power and bool(re.search(r"\d[.,]\d{3}(?!\d)", text))
        if not re.fullmatch(r"[+-]?[\d.,]+", text.strip()) or not any(mark in text for mark in ".,"):
            continue
        last = max(text.rfind("."), text.rfind(","))
        both = "." in text and "," in text
        alone = text.count(text[last]) == 1
        is_group = alone and not both and not power and re.fullmatch(r"[+-]?[1-9]\d{0,2}[.,]\d{3}", text.strip())
        if is_group:
            continue
        mark = text[last] if both or alone else "," if text[last] == "." else "."
        points += mark == "."
        commas += mark == ","
    return None if is_unclear and not points + commas else "," if commas > points else "."


def _value(text: str, unit: str, decimal: str) -> float | str | None:
    """A cell in base units: a number, a word, or None for nothing."""
    text = text.strip()
    listed = re.fullmatch(r"(?s)(\S+) *(?:\((.*)\)|\{[\d.,]+\})", text)
    alone = listed[1] if listed and _number(text, decimal) is None else text
    if alone.lower() in ("", "n/a", "nan", "-nan"):
        return None
    value = _number(alone, decimal)
    if value is None:
        is_word = listed is not None and re.match(r"\d+: ", listed[2] or "")
        return alone if is_word else text
    unit = unit.strip()
    return value * (BASES.get(unit) or BASES.get(unit.partition("/")[0]) or ("", 1.0))[1]


APOSTROPHES = r"[+-]?\d{1,3}(?:['’]\d{2,3})*['’]\d{3}(?:[.,]\d*)?(?:[eE][+-]?\d+)?"
"""Numbers of a Swiss locale: apostrophes group thousands."""


def _number(text: str, decimal: str) -> float | None:
    if re.fullmatch(APOSTROPHES, text):
        text = re.sub("['’]", "", text)
    if not re.fullmatch(r"[+-]?[\d.,]*\d[\d.,]*([eE][+-]?\d+)?", text):
        return None
    mantissa = re.split("[eE]", text)[0].lstrip("+-")
    exponent = text[len(text.rstrip("0123456789")) :] if "e" in text.lower() else ""
    marks = [mark for mark in ".," if mark in mantissa]
    if len(marks) == 2:
        decimal = max(marks, key=mantissa.rfind)
    elif marks and mantissa.count(marks[0]) > 1:
        decimal = "," if marks[0] == "." else "."
    elif marks and (exponent or not re.fullmatch(r"[1-9]\d{0,2}[.,]\d{3}", mantissa)):
        decimal = marks[0]
    grouping = "," if decimal == "." else "."
    integral = mantissa.split(decimal)[0]
    if mantissa.count(decimal) > 1 or grouping in mantissa.split(decimal)[-1] * (decimal in mantissa):
        return None
    if grouping in integral and not re.fullmatch(rf"\d{{1,3}}([{grouping}]\d{{2,3}})*[{grouping}]\d{{3}}", integral):
        return None
    value = float(text.replace(grouping, "").replace(decimal, "."))
    return value if math.isfinite(value) and (not exponent or int(exponent) <= 300) else None


# ----------------------------------------------------------------------------------------------------- the real readers


def plain(path: Path) -> Reading:
    """The launches of a page by the plain reader."""
    found = read_report(Source(str(path)))
    with _without_measures():
        return _reading(found, [launches_table(found)])


def _without_measures() -> AbstractContextManager[object]:
    """Tables without what follows from the metrics within: it is not compared, and takes most of the time."""
    return patch.object(table_builder, "measures", lambda counters: {})


def streamed(path: Path) -> Reading:
    """The launches of a page by the fast path in small blocks; by the plain reader if it leaves the page to that."""
    tables: list[Any] = []
    with patch.object(page_rows, "BLOCK_BYTES", 1000), beside_others(), _without_measures():
        try:
            found = streaming_reader.stream_report(Source(str(path)), tables.append)
        except NotStreamed:
            return plain(path)
    return _reading(found, tables)


KEPT = ("launch_id", "process_id", "kernel_name", "grid", "block")


def _reading(found: Report, tables: list[Any]) -> Reading:
    rows = [row for table in tables for row in table.select(list(filter(_is_compared, table.column_names))).to_pylist()]
    return Reading(rows, any(found.lines[kind] for kind in LOSSES), found.notes)


def _is_compared(name: str) -> bool:
    said = name in IDENTITY or name in ("Device Name", "Result Type") or name.endswith(" (instances)")
    return name in KEPT or (name not in COLUMN_NAMES and not said)
