"""Read the instructions of a binary report: metric values per address, with lines from the cubin.

A row is an instruction at which some metric has a value, so padding after the last executed instruction has no row. If
a metric was collected, an instruction without a value has 0, as on ncu's source page. The report holds no disassembly:
NVIDIA's package or nvdisasm provides it, if installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ncu_parsers.ncu_rep.blocks import Blocks, Content, blocks_of, opened
from ncu_parsers.ncu_rep.encoded_values import values_of
from ncu_parsers.ncu_rep.fields import text_of
from ncu_parsers.ncu_rep.instructions.debug_lines import KernelDebug, file_sizes, kernel_debug, ptx_text
from ncu_parsers.ncu_rep.instructions.line_programs import LinePlace
from ncu_parsers.ncu_rep.results import Lost, Result, results_of
from ncu_parsers.ncu_rep.sass.sass_text import text_columns
from ncu_parsers.ncu_rep.source_code import InstructionTexts, ModuleCode, codes_of, first_address, mangled_name
from ncu_parsers.schema import arrays
from ncu_parsers.schema.instructions_table import (
    CALLED_FROM,
    NOT_ISSUED,
    STALLS,
    Columns,
    Measure,
    instructions_table,
    joined_instructions,
    measure_of,
    ptx_file,
)
from ncu_parsers.schema.tables import Floats, short_name
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import Source

SAMPLES_NOT_ISSUED = "samples_not_issued"
ACCESS_BITS = "access_bits"
"""Null, not 0, for instructions without memory access."""

LAST_LINE = 2**31 - 1
"""Largest line number that the table can hold; damaged files contain larger ones."""

Addresses = npt.NDArray[np.uint64]


def read_binary_instructions(source: Source) -> pa.Table | None:
    """The instructions of a binary report; None if it has no values per address.

    Raises `NcuBenchError` if the file cannot be read, and `memory.TooBig` if it needs too much memory.
    """
    lost, parts = Lost(), list[pa.Table]()
    with opened(source) as stream:
        blocks = blocks_of(stream, source.name)
        cubins, texts = _cubins(codes_of(stream, blocks)), InstructionTexts(stream, blocks)
        for result in results_of(stream, blocks, lost):
            if result.content is Content.KERNEL:
                code = cubins.get(result.message.source.reference, b"")
                columns = _columns_of(result, blocks, code, source.name)
                if columns:
                    columns |= _text_columns(texts, result, columns)
                    parts.append(instructions_table(columns))
                memory.require_memory(source.name, streaming=True)
    notes = lost.notes()
    if blocks.is_cut:
        notes.append("the file ends in damage: instructions of later launches are missing")
    return joined_instructions(parts, notes) if parts else None


class SourceFiles(NamedTuple):
    """Source files in a report by path: texts, also of PTX (by `ptx_file`), and sizes in bytes at compilation."""

    texts: dict[str, str]
    sizes: dict[str, int]


def files_in(source: Source) -> SourceFiles:
    """The source files in a binary report. Raises as `read_binary_instructions`."""
    result = SourceFiles({}, {})
    with opened(source) as stream:
        blocks = blocks_of(stream, source.name)
        codes = list(codes_of(stream, blocks))
        cubins = _cubins(codes)
        for code in codes:
            result.texts.update(code.files)
            result.sizes.update(file_sizes(code.cubin))
        for one in results_of(stream, blocks, Lost()):
            name = text_of(one.message.name or one.message.function) if one.content is Content.KERNEL else ""
            if name and ptx_file(name) not in result.texts:
                lines = ptx_text(cubins.get(one.message.source.reference, b""))
                result.texts.update({ptx_file(name): "\n".join(lines)} if lines else {})
    return result


def _cubins(codes: Iterable[ModuleCode]) -> dict[int, bytes]:
    """Cubins by the reference that kernels use. A cubin is stored once; repeats of it are empty."""
    return {code.reference: code.cubin for code in codes if code.cubin}


# -------------------------------------------------------------------------------------------------- one launch


def _columns_of(result: Result, blocks: Blocks, cubin: bytes, report: str) -> Columns | None:
    """The columns of one launch; None if it has no values per address."""
    found = _per_address(result, blocks)
    addresses = np.unique(np.concatenate([np.empty(0, np.uint64), *(one for _, one, _ in found.values())]))
    if not len(addresses):
        return None
    message = result.message
    name = text_of(message.name or message.function or message.mangled)
    first = first_address(result, blocks, int(addresses[0])) or int(addresses[0])
    offsets = (addresses - np.uint64(first)).astype(np.int64)
    columns: Columns = {
        "report": [report] * len(addresses),
        "launch_id": [result.number] * len(addresses),
        "kernel_name": [name] * len(addresses),
        "kernel_short": [short_name(name)] * len(addresses),
        "offset": offsets,
        "address": addresses.astype(np.int64),
    }
    for measure, places, values in found.values():
        filled = np.zeros(len(addresses))
        filled[np.searchsorted(addresses, places)] = values
        columns[measure.name] = filled if measure.words is None else _words(measure, filled)
    if ACCESS_BITS in columns:
        columns[ACCESS_BITS] = [bits or None for bits in columns[ACCESS_BITS].tolist()]
    columns[SAMPLES_NOT_ISSUED] = _samples_not_issued(columns)
    debug = kernel_debug(cubin, mangled_name(result)) if cubin else None
    return {**columns, **({} if debug is None else _lines(debug, mangled_name(result), offsets.tolist()))}


def _text_columns(texts: InstructionTexts, result: Result, columns: Columns) -> Columns:
    """The disassembly columns; {} if no disassembler is available."""
    addresses = columns["address"].tolist()
    found = texts.of(result, addresses, addresses[0] - int(columns["offset"][0]))
    return dict(text_columns(arrays.texts(found))) if any(found) else {}


def _per_address(result: Result, blocks: Blocks) -> dict[str, tuple[Measure, Addresses, Floats]]:
    """Column -> measure, addresses and values of each metric of the table that has values per address."""
    names, codes, found = blocks.names.texts, blocks.names.codes, {}
    for metric in result.message.metrics:
        name = names[codes[metric.name]] if metric.name < len(codes) and codes[metric.name] >= 0 else ""
        measure = measure_of(name)
        if measure is not None and len(metric.instances):
            keys = values_of([one.key for one in metric.instances])
            values = values_of([one.value for one in metric.instances])
            known = keys.is_whole & np.isfinite(values.numbers) & (keys.whole < np.uint64(1 << 63))
            found[measure.name] = measure, keys.whole[known], values.numbers[known]
    return found


def _words(measure: Measure, codes: Floats) -> list[str | None]:
    return [(measure.words or {}).get(round(code)) for code in codes.tolist()]


def _samples_not_issued(columns: Columns) -> Floats | None:
    """The sum of samples over all reasons, in cycles without an issued instruction; None if none was collected."""
    reasons = [columns[name] for reason in STALLS if (name := f"stall_{reason}{NOT_ISSUED}") in columns]
    return np.sum(reasons, axis=0) if reasons else None


def _lines(debug: KernelDebug, kernel: str, offsets: Sequence[int]) -> Columns:
    """Source line, PTX line, function (by default the kernel) and inlining calls of each instruction; else None."""
    lines, ptx = _forward(debug.lines, offsets), _forward(debug.ptx_lines, offsets)
    functions = [
        next((name for begin, end, name in debug.functions if begin <= offset < end), kernel) for offset in offsets
    ]
    return {
        "file": [None if place is None else place.file for place in lines],
        "line": [None if place is None or not 0 < place.line <= LAST_LINE else place.line for place in lines],
        "inline_of": [None if place is None else _inline_of(place) for place in lines],
        "ptx_line": [None if place is None or not 0 < place.line <= LAST_LINE else place.line for place in ptx],
        "function": functions,
    }


def _inline_of(place: LinePlace) -> str | None:
    """The calls through which the function of a line was inlined; None if it was not."""
    return CALLED_FROM.join(f"{file or '?'}:{line}" for file, line in place.calls) or None


def _forward(places: dict[int, LinePlace], offsets: Sequence[int]) -> list[LinePlace | None]:
    """The place of each offset: the one given there, or at the nearest offset before; None before the first."""
    known = np.array(sorted(places), np.int64)
    nearest = np.searchsorted(known, np.array(offsets, np.int64), side="right") - 1
    return [places[int(known[one])] if one >= 0 else None for one in nearest.tolist()]
