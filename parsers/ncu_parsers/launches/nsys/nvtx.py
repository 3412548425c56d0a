"""Read the NVTX ranges of an nsys timeline that are open at given times, out of millions.

One pass over all rows makes an index: the span of starts of each block of rows, and the ranges that outlast their
block, which are kept. A range open at a time is one of the kept ranges, or in a block whose span includes the time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ncu_parsers.derived.operators.nvtx_operators import NvtxOperator, operator_of
from ncu_parsers.schema import arrays
from ncu_parsers.timelines.activity.activity import (
    NVTX,
    OPERATOR,
    Codes,
    HostRanges,
    OperatorInputs,
    RangeLabel,
    columns_of,
)
from ncu_parsers.timelines.nsys.database import MISSING, ROWID, VALUE, Database, Integers, RowBlock
from ncu_parsers.timelines.nsys.nsys_ranges import (
    DOMAIN_CREATE,
    PUSH_POP,
    RANGES,
    START_END,
    ended,
    event_types,
    process_of,
)

FIELDS = ("start", "end", "eventType", "globalTid", "textId", "domainId")
BLOCKS_KEPT = 8
"""Blocks kept in memory; consecutive operations are enclosed by ranges of the same blocks."""

SAMPLES, ROWS_OF_A_SAMPLE = 64, 64
SIZES = ", sizes = ["
"""Part of a range's name around an operator whose sizes were recorded."""

FOREVER = int(np.iinfo(np.int64).max)

NUMBER_OF_A_CALL = ", (seq|op_id) = [0-9]+"
"""Pattern of the parts of range names that differ between calls of the same operator."""


def rows_by_key(keys: Integers, rows: npt.NDArray[np.intp]) -> dict[int, npt.NDArray[np.intp]]:
    """The `rows` of each distinct key, in order."""
    ordered = rows[np.argsort(keys[rows], kind="stable")]
    found, begins = np.unique(keys[ordered], return_index=True)
    return dict(zip(found.tolist(), np.split(ordered, begins[1:]), strict=True)) if len(rows) else {}


class _Events(NamedTuple):
    """Rows of the event table: `FIELDS`, the `row` in the file, and the event's own text as binary, null without."""

    columns: dict[str, Integers]
    texts: pa.Array

    def chosen(self, rows: npt.NDArray[np.intp]) -> _Events:
        """Selected rows."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        return _Events(columns, arrays.take(self.texts, arrays.whole(rows)))


class NvtxRanges:
    """The NVTX ranges of a timeline. Unnamed ranges are dropped; a range without an end lasts to the end."""

    def __init__(self, database: Database, strings: dict[int, str]) -> None:
        self._database, self._strings = database, strings
        self._kinds = event_types(database)
        self._read = lru_cache(BLOCKS_KEPT)(self._read_block)
        self._domains: dict[tuple[int, int], str] = {}
        self._blocks: list[RowBlock] = []
        self.has_sizes = False
        """True if any name contains operator sizes."""
        spans, lasting = [], []
        value = f"instr(text, '{SIZES}')" if "text" in database.columns(RANGES) else "NULL"
        for block, event in database.integer_blocks(RANGES, "start", "end", "eventType", value=value):
            self.has_sizes |= bool((event[VALUE] > 0).any())
            span, outlasting = self._indexed(block, event)
            self._blocks.append(block)
            spans.append(span)
            lasting.append(outlasting)
        self._spans = np.array(spans, np.int64).reshape(-1, 2)
        self._lasting = _joined(lasting)
        self._block_of = np.repeat(np.arange(len(lasting)), [len(events.texts) for events in lasting])

    def _indexed(self, block: RowBlock, event: dict[str, Integers]) -> tuple[tuple[int, int], _Events]:
        """The smallest and largest start of a block's ranges, and the ranges still open after the largest.

        Stores the domains that the block creates.
        """
        created = np.flatnonzero(event["eventType"] == self._kinds[DOMAIN_CREATE])
        if len(created):
            self._domains.update(self._domains_of(self._some(block, event[ROWID], created)))
        started = np.flatnonzero(self._is_range(event) & (event["start"] != MISSING))
        if not len(started):
            return (FOREVER, MISSING), self._some(block, event[ROWID], started)
        starts = event["start"][started]
        least, greatest = int(starts.min()), int(starts.max())
        return (least, greatest), self._some(
            block, event[ROWID], started[ended(event["end"], FOREVER)[started] > greatest]
        )

    def _is_range(self, event: dict[str, Integers]) -> npt.NDArray[np.bool_]:
        kind = event["eventType"]
        is_range: npt.NDArray[np.bool_] = (
            (kind == self._kinds[START_END]) | (kind == self._kinds[PUSH_POP]) | (kind == MISSING)
        )
        return is_range

    def _read_block(self, block: RowBlock, condition: str = "1") -> _Events:
        columns, texts = self._database.integers_and_texts(RANGES, FIELDS, "text", block, condition)
        columns["row"] = block.after + np.arange(len(texts))
        return _Events(columns, texts)

    def _some(self, block: RowBlock, rowids: Integers, places: npt.NDArray[np.intp]) -> _Events:
        """The events at selected indices of a block."""
        events = self._read_block(block, f"{ROWID} IN ({', '.join(map(str, rowids[places].tolist()))})")
        events.columns["row"] = block.after + places
        return events.chosen(np.arange(len(places)))  # the driver's buffers have room for a whole batch

    def _domains_of(self, created: _Events) -> dict[tuple[int, int], str]:
        """Domain names by process and number: each process numbers its own domains."""
        codes, names = self._names_of(created)
        process = process_of(created.columns["globalTid"]).tolist()
        pairs = zip(process, created.columns["domainId"].tolist(), strict=True)
        return {pair: names[code] if code >= 0 else "" for pair, code in zip(pairs, codes.tolist(), strict=True)}

    def count(self) -> int:
        """The number of named ranges."""
        return sum(len(self._ranges(self._read(block))) for block in self._blocks)

    def all(self) -> HostRanges:
        """All named ranges."""
        return self._ranges(_joined([self._read(block) for block in self._blocks]))

    def around(self, times: Integers, threads: Integers) -> HostRanges:
        """The ranges that are open at any of `times` (ns) on the thread given in `threads`, or for its process."""
        by_time = np.argsort(times, kind="stable")
        moments = [
            {one: times[rows] for one, rows in rows_by_key(owners, by_time).items()}
            for owners in (threads, process_of(threads))
        ]
        least, greatest = self._spans.T
        is_near = np.searchsorted(times[by_time], least) < np.searchsorted(times[by_time], greatest, "right")
        parts = [self._lasting.chosen(np.flatnonzero(~is_near[self._block_of]))]
        parts += [self._read(self._blocks[place]) for place in np.flatnonzero(is_near).tolist()]
        events = _joined([part.chosen(self._open_at(part.columns, *moments)) for part in parts])
        return self._ranges(events.chosen(np.argsort(events.columns["row"], kind="stable")))

    def _open_at(
        self, event: dict[str, Integers], of_threads: dict[int, Integers], of_processes: dict[int, Integers]
    ) -> npt.NDArray[np.intp]:
        """The rows of ranges open at any of the sorted times of their thread, or of their process."""
        of_process = event["eventType"] == self._kinds[START_END]
        end = ended(event["end"], FOREVER)
        is_open = np.zeros(len(of_process), bool)
        for which, owner, moments in (
            (~of_process, event["globalTid"], of_threads),
            (of_process, process_of(event["globalTid"]), of_processes),
        ):
            for one, rows in rows_by_key(owner, np.flatnonzero(which)).items():
                if one in moments:
                    first = np.searchsorted(moments[one], event["start"][rows])
                    is_open[rows] = first < np.searchsorted(moments[one], end[rows])
        return np.flatnonzero(is_open)

    def _ranges(self, events: _Events) -> HostRanges:
        """The named ranges among events. The thread of a range that belongs to its whole process is `MISSING`."""
        codes, names = self._names_of(events)
        chosen = np.flatnonzero(self._is_range(events.columns) & (events.columns["start"] != MISSING) & (codes >= 0))
        columns = {name: values[chosen] for name, values in events.columns.items()}
        process, of_process = process_of(columns["globalTid"]), columns["eventType"] == self._kinds[START_END]
        label, labels = self._labels_of(codes[chosen], names, process, columns["domainId"])
        thread = np.where(of_process, MISSING, columns["globalTid"])
        known = {"label": label, "labels": labels, "process": process, "thread": thread}
        return columns_of(
            HostRanges, {**known, "start": columns["start"], "end": ended(columns["end"], FOREVER)}
        ).by_start()

    def _labels_of(
        self, codes: Codes, names: list[str], process: Integers, domain: Integers
    ) -> tuple[Codes, list[RangeLabel]]:
        """Index of each range's label into the returned list; the default domain is ""."""
        labels: dict[tuple[str, str], int] = {}
        processes, of_process = np.unique(process, return_inverse=True)
        domains, of_domain = np.unique(domain, return_inverse=True)
        owner = of_process * len(domains) + of_domain
        kinds, inverse = np.unique(codes * (len(processes) * len(domains)) + owner, return_inverse=True)
        places = []
        for kind in kinds.tolist():
            code, owner_code = divmod(kind, len(processes) * len(domains))
            at = int(processes[owner_code // len(domains)]), int(domains[owner_code % len(domains)])
            label = self._domains.get(at, ""), names[code]
            places.append(labels.setdefault(label, len(labels)))
        return np.array(places, np.int64)[inverse], [_label(*one) for one in labels]

    def _names_of(self, events: _Events) -> tuple[Codes, list[str]]:
        """Index of each event's name (its own text, or a registered string) into the returned list; -1 without a name.

        Names of calls of one operator that differ only in sequence number and op_id share an index.
        """
        keys = arrays.encoded(arrays.replaced(events.texts, NUMBER_OF_A_CALL, ", \\1 = 0"))
        names = [key.decode("utf-8", "replace") for key in keys.dictionary.to_pylist()]
        codes = np.where(arrays.present(keys.indices), arrays.values_of(keys.indices, np.int32).astype(np.int64), -1)
        changed = [place for place, name in enumerate(names) if " = 0" in name and operator_of(name) is None]
        places: dict[str, int] = {}
        for row in np.flatnonzero(np.isin(codes, changed)).tolist():
            name = events.texts[row].as_py().decode("utf-8", "replace")
            codes[row] = len(names) + places.setdefault(name, len(places))
        names += places
        codes[np.isin(codes, [place for place, name in enumerate(names) if not name])] = -1
        without = np.flatnonzero(codes < 0)
        numbers, inverse = np.unique(events.columns["textId"][without], return_inverse=True)
        registered = {number: text for number in numbers.tolist() if (text := self._strings.get(number))}
        to_code = {number: len(names) + place for place, number in enumerate(registered)}
        codes[without] = np.array([to_code.get(number, -1) for number in numbers.tolist()], np.int64)[inverse]
        return codes, [*names, *registered.values()]


def _label(domain: str, name: str) -> RangeLabel:
    """The label of a range; for a range that `emit_nvtx` opened, with the name and inputs of its operator."""
    call = operator_of(name)
    if call is None or not call.is_operator:
        return RangeLabel(NVTX, call.name if call else name, None, domain)
    return RangeLabel(OPERATOR, call.name, OperatorInputs(*call.inputs), domain)


def read_ranges(database: Database, strings: dict[int, str]) -> NvtxRanges | None:
    """The ranges of a timeline; None if NVTX was not recorded."""
    return NvtxRanges(database, strings) if RANGES in database.tables else None


def sampled_operators(database: Database, strings: dict[int, str]) -> list[NvtxOperator]:
    """The operator calls in some events of every part of the file, and in its registered strings.

    A program that opens ranges around operators does so around all of them, so a sample usually finds some.
    """
    last = database.last_row(RANGES)
    names = set(strings.values())
    for place in range(SAMPLES if last else 0):
        block = RowBlock(last * place // SAMPLES, last, ROWS_OF_A_SAMPLE)
        _, texts = database.integers_and_texts(RANGES, FIELDS[:1], "text", block)
        names.update(text.decode("utf-8", "replace") for text in texts.to_pylist() if text)
        if last <= ROWS_OF_A_SAMPLE:
            break
    return [call for name in names if (call := operator_of(name)) is not None and call.is_operator]


def _joined(parts: list[_Events]) -> _Events:
    if not parts:
        return _Events(dict.fromkeys((*FIELDS, "row"), np.empty(0, np.int64)), pa.nulls(0, pa.binary()))
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in (*FIELDS, "row")}
    return _Events(columns, pa.concat_arrays([part.texts for part in parts]))
