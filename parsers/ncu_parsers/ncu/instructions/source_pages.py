"""Read the source pages of ncu (`--page source`), as CSV and as text, into the table of instructions.

A page has a table for each launch (SASS view), or one for each source file of each launch (CUDA-C views), below lines
that name the kernel and the file. Views without addresses have one row per line; the PTX view has only text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv

from ncu_parsers.ncu_rep.sass.sass_text import text_columns
from ncu_parsers.report_data.cell_text import NumberFormat, split_row
from ncu_parsers.schema import arrays
from ncu_parsers.schema.instructions_table import MEASURES, Columns, instructions_table, joined_instructions
from ncu_parsers.schema.tables import short_name
from ncu_parsers.sources.sources import Lines, LongLine, Source

ADDRESS, LINE, SOURCE = "Address", "Line No", "Source"
_SECOND_SOURCE = f"{SOURCE} 2"
"""Title of the instruction text in views with the source line first, as `_unique` makes it."""
KERNEL_TITLES = ("Kernel Name", "Function Name")
FILE_TITLE = "File Path"
NO_SOURCE = "<Unable to open source file>"
LAST_LINE = 1_000_000
"""Highest line number; larger ones are damage, since no handwritten file is so long."""
ABSENT = ("-", "", "...", "n/a")
BLOCK_BYTES, LARGE_PIECE = 1 << 22, 1 << 16
"""Bytes of rows that are parsed together, and size above which a piece is not joined with others."""
_ADDRESS, _LINE = r"^0x[0-9a-fA-F]{1,15}$", r"^[0-9]{1,8}$"
"""Patterns of addresses and lines that fit into the table of instructions."""

_MEASURES = {title: measure for measure in MEASURES for title in measure.titles}


_NO_ROWS = ('"Kernel Name"', '"Function Name"', '"File Path"', '"Address",', '"#",', '"Line No",')
"""Beginnings of headers and of lines that name a kernel or file; a row may begin alike."""

_NO_PLAIN_ROW = re.compile(rb'\n(?!"["0-9]).*')
"""A line, with the line end before it, that does not begin like a CSV row: with a number or an empty cell."""


class PageTable(NamedTuple):
    """One table of a page: its kernel and file, its titles, and its rows in UTF-8, each after a line end.

    `continues`: no kernel or file line came since the previous table; text pages repeat their header for each line.
    """

    kernel: str
    file: str | None
    titles: list[str]
    rows: list[bytes | memoryview]
    continues: bool


@dataclass
class _Progress:
    """State while pages are read: number of the launch, its (kernel, file) pairs so far, and number of broken rows."""

    launch: int = -1
    files: set[tuple[str, str | None]] = field(default_factory=set)
    broken: int = 0
    texts: dict[str, dict[int, str]] = field(default_factory=dict)
    """Lines of source files, by file and number."""


def read_source_pages(
    source: Source, files: dict[str, str] | None = None, wanted: Container[str] | None = None
) -> pa.Table | None:
    """The instructions on the source pages of a report; None if it has no such page with addresses or counts.

    Only the `wanted` columns of counts are read, the others are null; None reads all. `files` receives the text of
    source files by path; lines missing from the pages are empty. Launches are numbered in page order. Rows whose number
    of cells differs from their header's are dropped, and a note counts them. Raises `NcuBenchError` if the file cannot
    be opened.
    """
    progress, parts = _Progress(), list[Columns]()
    with source.open() as stream:
        for table in page_tables(rows_together(Lines(stream, source.name))):
            if ADDRESS in table.titles or (LINE in table.titles and len(table.titles) > 2):
                _begin(table, progress)
                cells = _cells(table, progress, wanted)
                parts.append(_columns(cells, table, source.name, progress.launch))
                _note_source(cells, table, progress)
    if not parts:
        return None
    if files is not None:
        for file, lines in progress.texts.items():
            files[file] = "\n".join(lines.get(number, "") for number in range(1, max(lines) + 1))
    _add_offsets(parts)
    table, repeated = _each_once(joined_instructions([instructions_table(part) for part in parts]))
    notes = [f"broken rows of source pages, skipped: {progress.broken:,}"] if progress.broken else []
    if repeated:
        notes.append(f"{repeated} instructions stand under several lines, inlined; they are kept under the first one")
    return joined_instructions([table], notes)


def _add_offsets(parts: list[Columns]) -> None:
    """Add each instruction's offset from the first instruction of its launch."""
    first: dict[int, int] = {}
    numbered = [
        (part, part["launch_id"][0].as_py(), arrays.values_of(part["address"], np.int64))
        for part in parts
        if len(part.get("address", ()))
    ]
    for _, launch, addresses in numbered:
        first[launch] = min(int(addresses.min()), first.get(launch, sys.maxsize))
    for part, launch, addresses in numbered:
        part["offset"] = arrays.whole(addresses - first[launch])


def _each_once(table: pa.Table) -> tuple[pa.Table, int]:
    """Every instruction of a launch once, in program order; and the number of duplicate rows dropped."""
    launches = arrays.values_of(arrays.one(table["launch_id"]), np.int64)
    column = arrays.one(table["offset"])
    # Rows of source lines have no offset: they come last, and are all kept.
    offsets = np.where(arrays.present(column), arrays.values_of(column, np.int64), sys.maxsize)
    order = np.lexsort((offsets, launches))
    launches, offsets = launches[order], offsets[order]
    repeated = (np.diff(launches) == 0) & (np.diff(offsets) == 0) & (offsets[1:] != sys.maxsize)
    kept = order[np.concatenate([np.ones(min(len(order), 1), bool), ~repeated])]
    if np.array_equal(kept, np.arange(len(table))):
        return table, 0
    return arrays.take(table, arrays.whole(kept)), len(table) - len(kept)


# ------------------------------------------------------------------------------------------------- tables of a page


def rows_together(lines: Lines) -> Iterator[str | memoryview]:
    """The lines of a report; consecutive CSV rows in UTF-8 come as one piece, each after a line end, unparsed."""
    for block in lines.blocks():
        if isinstance(block, LongLine):
            yield block
            continue
        valid = block if block.isascii() else block.decode("utf-8", "replace").encode()
        rows, begin = memoryview(valid), 0
        for other in _NO_PLAIN_ROW.finditer(valid):
            if other.start() > begin:
                yield rows[begin : other.start()]
            yield other[0][1:].decode().rstrip("\r")
            begin = other.end()
        if begin < len(rows):
            yield rows[begin:]


def page_tables(lines: Iterable[str | memoryview]) -> Iterator[PageTable]:
    """The tables of the source pages among these lines, as CSV rows; other lines are skipped.

    Several rows can come in one piece, as `rows_together` yields them.
    """
    kernel, file, titles, rows, continues = "", None, list[str](), list[bytes | memoryview](), False
    for line in _as_csv(lines):
        if isinstance(line, memoryview):
            rows += [line] if titles else []
            continue
        if rows and not line.startswith(_NO_ROWS):
            rows.append(f"\n{line}".encode())
            continue
        named = _named(line)
        if named is None and not _is_header(line):
            if titles and line.startswith('"'):
                rows.append(f"\n{line}".encode())
            continue
        if rows:
            yield PageTable(kernel, file, titles, rows, continues)
            continues = True
        titles, rows, continues = [], [], continues and named is None
        if named is None:
            titles = _unique(split_row(line, ",") or [])
        elif named[0] == FILE_TITLE:
            file = named[1]
        else:
            kernel, file = named[1], file if named[0] == "Function Name" else None
    if rows:
        yield PageTable(kernel, file, titles, rows, continues)


def _named(line: str) -> tuple[str, str] | None:
    """Title and name in a line that names a kernel or file; None for other lines."""
    if not line.startswith(('"Kernel Name"', '"Function Name"', '"File Path"')):
        return None
    cells = split_row(line.rstrip().rstrip(","), ",")
    return (cells[0], cells[1]) if cells is not None and len(cells) == 2 else None


def _is_header(line: str) -> bool:
    return line.startswith(('"Address",', '"#",', '"Line No",')) and SOURCE in (split_row(line, ",") or ())


def _unique(titles: list[str]) -> list[str]:
    """Titles made unique by a number after repeated ones: CUDA-C views have "Source" twice."""
    seen: dict[str, int] = {}
    result = []
    for title in titles:
        seen[title] = seen.get(title, 0) + 1
        result.append(title if seen[title] == 1 else f"{title} {seen[title]}")
    return result


def _as_csv(lines: Iterable[str | memoryview]) -> Iterator[str | memoryview]:
    """Lines of CSV pages unchanged, and rows of text pages as CSV; their columns, which wrap, are marked by dashes."""
    places, pending = list[tuple[int, int]](), list[list[str]]()
    for line in lines:
        if isinstance(line, memoryview) or line.startswith('"'):
            yield line
        elif re.match(r"-{3,}( -+)+\s*$", line):
            yield from _unwrapped(pending)
            pending, places = [], [match.span() for match in re.finditer("-+", line)]
        elif match := re.match(r"(File Path|Function Name): (.*)", line):
            yield from _unwrapped(pending)
            pending, places = [], []
            yield _csv_row(list(match.groups()))
        elif places and not line.startswith(("/*", "*/", "==")):
            cells = [line[begin:end].rstrip() for begin, end in places]
            if cells[0]:
                yield from _unwrapped(pending)
                pending = []
            pending.append(cells)
    yield from _unwrapped(pending)


def _unwrapped(pieces: list[list[str]]) -> Iterator[str]:
    """A row whose cells were wrapped over lines. All pieces of a cell except the last have the same length."""
    cells = []
    for column in zip(*pieces, strict=True):
        length = max(map(len, column))
        last = max((place for place, piece in enumerate(column) if piece), default=0)
        cells.append("".join(piece.ljust(length) for piece in column[:last]) + column[last])
    if any(cells):
        named = cells[0] in (*KERNEL_TITLES, FILE_TITLE)
        yield _csv_row(cells[:2] if named else cells)


def _csv_row(cells: list[str]) -> str:
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)


# ------------------------------------------------------------------------------------------------ rows of a table


def _begin(table: PageTable, progress: _Progress) -> None:
    """Number the launch: each table without a file is a launch; else another kernel or a repeated file begins one."""
    if table.continues:
        return
    place = (table.kernel, table.file)
    if table.file is None or place in progress.files or all(kernel != table.kernel for kernel, _ in progress.files):
        progress.launch += 1
        progress.files = set()
    progress.files.add(place)


def _cells(table: PageTable, progress: _Progress, wanted: Container[str] | None) -> pa.Table:
    """The rows of a table as text columns; a count column is numeric if all its cells are; unknown columns are dropped.

    Rows with another number of cells are dropped and counted.
    """
    measures: dict[str, str] = {}  # if several titles mean one count, the first is read
    for title in table.titles:
        if title in _MEASURES and (wanted is None or _MEASURES[title].name in wanted):
            measures.setdefault(_MEASURES[title].name, title)
    texts = [title for title in table.titles if title in (ADDRESS, LINE, SOURCE, _SECOND_SOURCE)]
    counts = [title for title in measures.values() if _MEASURES[title].words is None]
    before = progress.broken
    try:
        return _read_cells(table, progress, [*texts, *measures.values()], counts)
    except pa.ArrowInvalid:
        progress.broken = before
        return _read_cells(table, progress, [*texts, *measures.values()], [])


def _read_cells(table: PageTable, progress: _Progress, titles: Sequence[str], counts: Container[str]) -> pa.Table:
    def skip(row: Any) -> str:
        progress.broken += 1
        return "skip"

    return pa.csv.read_csv(
        _Pieces(table.rows),
        pa.csv.ReadOptions(column_names=table.titles, use_threads=False, block_size=BLOCK_BYTES),
        pa.csv.ParseOptions(invalid_row_handler=skip),
        pa.csv.ConvertOptions(
            column_types={title: pa.float64() if title in counts else pa.string() for title in titles},
            include_columns=titles,
            null_values=list(ABSENT),
            strings_can_be_null=False,
            check_utf8=False,
        ),
    )


class _Pieces:
    """Rows in memory as a file for Arrow; large pieces are not copied."""

    closed = False

    def __init__(self, pieces: Iterable[bytes | memoryview]) -> None:
        self._left = iter(pieces)

    def read(self, size: int) -> bytes | memoryview:
        """The next piece if it is large, else pieces joined until they have `size` bytes or more."""
        found, length = list[bytes | memoryview](), 0
        for piece in self._left:
            found.append(piece)
            length += len(piece)
            if length >= (size if len(found) > 1 else LARGE_PIECE):
                break
        return found[0] if len(found) == 1 else b"".join(found)


def _note_source(cells: pa.Table, table: PageTable, progress: _Progress) -> None:
    """Store the source lines in a file's table. Text pages list them between the instructions."""
    if table.file is None:
        return
    places = arrays.trimmed(arrays.one(cells[LINE if LINE in table.titles else ADDRESS]))
    texts = arrays.one(cells[SOURCE])
    are_known = arrays.matches(places, _LINE) & ~arrays.matches(texts, f"^{NO_SOURCE}$")
    lines = map(int, arrays.kept(places, are_known).to_pylist())
    known = zip(lines, arrays.kept(texts, are_known).to_pylist(), strict=True)
    found = {line: text for line, text in known if 0 < line <= LAST_LINE}
    if found:
        progress.texts.setdefault(table.file, {}).update(found)


def _columns(cells: pa.Table, table: PageTable, report: str, launch: int) -> Columns:
    """Columns of the table of instructions from a page's cells, without offsets, which need the whole launch.

    If the view has instructions, rows of source lines are dropped.
    """
    has_addresses = ADDRESS in table.titles
    places = arrays.trimmed(arrays.one(cells[ADDRESS if has_addresses else LINE]))
    mask = arrays.matches(places, _ADDRESS if has_addresses else _LINE)
    lines = arrays.kept(_lines(arrays.one(cells[LINE]) if LINE in table.titles else places), mask)
    places, cells = arrays.kept(places, mask), arrays.kept(cells, mask)
    result: Columns = {}
    if has_addresses:
        text = cells[_SECOND_SOURCE if LINE in table.titles and _SECOND_SOURCE in table.titles else SOURCE]
        result["address"] = arrays.cast(places, pa.int64())
        result |= text_columns(arrays.one(text))
    result["line"] = lines
    for title in cells.column_names:
        if title in _MEASURES:
            measure, values = _MEASURES[title], arrays.one(cells[title])
            result[measure.name] = _numbers(values) if measure.words is None else _words(values)
    names = {"report": report, "kernel_name": table.kernel, "kernel_short": short_name(table.kernel)}
    names |= {} if table.file is None else {"file": table.file}
    repeated = {name: arrays.repeated(text, len(places)) for name, text in names.items()}
    return {**repeated, "launch_id": arrays.whole(np.full(len(places), launch)), **result}


def _lines(cells: pa.Array) -> pa.Array:
    """Source line of each row; rows without a line belong to the last line named above them.

    Text pages print the line in the address column.
    """
    trimmed = arrays.trimmed(cells)
    names_one = arrays.matches(trimmed, _LINE)
    last = np.cumsum(names_one).astype(np.int32) - 1
    return arrays.take(arrays.cast(arrays.kept(trimmed, names_one), pa.int32()), arrays.indices(last))


def _words(cells: pa.Array) -> list[str | None]:
    return [None if text in ABSENT else text for text in cells.to_pylist()]


def _numbers(cells: pa.Array) -> pa.Array:
    """Printed counts as float64; null where none is printed. Texts that are not plain numbers are parsed one by one."""
    if pa.types.is_floating(cells.type):
        return cells
    texts = _words(cells)
    try:
        return arrays.cast(arrays.texts(texts), pa.float64())
    except pa.ArrowInvalid:
        form = NumberFormat.infer((text, "inst") for text in texts if text is not None)
        read = [None if text is None else form.parse(text.split("{")[0].strip()) for text in texts]
        return pa.array([None if number is None else number.value for number in read], pa.float64())
