"""Results of a report -> launches as columns, many at a time, without an object for each value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from functools import cache
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from ncu_launch.counters import metrics as known

from ncu_parsers.derived.opcode_lists import BY_INSTRUCTION, THREADS_BY_FULL_NAME, WARPS_BY_FULL_NAME
from ncu_parsers.ncu.sass.sass_text import full_opcode
from ncu_parsers.ncu_rep.blocks import Blocks, Content, MetricNames, Process
from ncu_parsers.ncu_rep.encoded_values import values_of
from ncu_parsers.ncu_rep.fields import text_of
from ncu_parsers.ncu_rep.metric_units import unit_of
from ncu_parsers.ncu_rep.result_details import nvtx_ranges, rules_of
from ncu_parsers.ncu_rep.results import Lost, Result, results_of
from ncu_parsers.ncu_rep.source_code import InstructionTexts, first_address
from ncu_parsers.report_data.cell_text import ABSENT, NumberFormat
from ncu_parsers.report_data.report import Rule
from ncu_parsers.sources import memory
from ncu_parsers.streaming.cells.rows import MISSING, Codes, Texts
from ncu_parsers.streaming.launch_columns import LaunchColumns, MetricColumn, NvtxRanges, Rules

VALUES_OF_A_BATCH = 100_000
BYTES_OF_A_BATCH = 16_000_000
"""Launches become columns when they have so many values, or took so many bytes of the file."""

LISTS_OF_NAMES = ("breakdown:", "group:")
CODES_OF_INSTRUCTIONS = frozenset({"memory_type", "memory_access_type", "memory_access_size_type"})
"""Names among the metrics that are not metrics: ncu prints no value for them."""

OPCODE_METRICS = "sass__"
"""The beginning of the names of metrics that are counted by opcode."""

NAMES = {Content.RANGE: "range", Content.GRAPH: "graph"}
"""What ncu calls results that are of no single kernel."""

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
WIDEST = 1 << 31
_PRINTED = NumberFormat(".")

Shape = tuple[int, int, int]
NO_SHAPE: Shape = (MISSING, MISSING, MISSING)


def launches_of(
    stream: BinaryIO, blocks: Blocks, lost: Lost, name: str, *, sums_instructions: bool = True
) -> Iterator[LaunchColumns]:
    """The launches of a file, some at a time. Raises `memory.TooBig` naming the report `name`.

    With `sums_instructions`, counts per instruction are summed by opcode where a launch has no such list.
    """
    codes = _Codes.of(blocks.names)
    instructions = _InstructionCounts(stream, blocks, lost) if sums_instructions else None
    batch = _Batch(codes)
    for result in results_of(stream, blocks, lost):
        if not batch.takes(result):
            yield batch.columns(lost)
            memory.require_memory(name, streaming=True)
            batch = _Batch(codes)
        batch.add(result, instructions)
    if batch.launches:
        yield batch.columns(lost)


class _Launch(NamedTuple):
    """What a result says of a launch beside its metrics. Shapes that it does not have are `NO_SHAPE`.

    A range or a graph is no kernel: it has no shape, and metrics named `launch__` are the largest of its kernels.
    """

    number: int
    is_kernel: bool
    process: Process
    name: str
    grid: Shape
    block: Shape
    created: int | None
    context: int | None
    stream: int | None
    rules: list[Rule]
    ranges: NvtxRanges | None


def _launch_of(result: Result) -> _Launch:
    message, is_kernel = result.message, result.content is Content.KERNEL
    return _Launch(
        number=result.number,
        is_kernel=is_kernel,
        process=result.block.process,
        name=text_of(message.name or message.function or message.mangled) if is_kernel else NAMES[result.content],
        grid=_shape(message.grid) if is_kernel else NO_SHAPE,
        block=_shape(message.block) if is_kernel else NO_SHAPE,
        created=_whole(message, "created"),
        context=_whole(message, "context"),
        stream=None if result.content is Content.RANGE else _whole(message, "stream"),
        rules=rules_of(message),
        ranges=nvtx_ranges(message),
    )


def _whole(message: Any, name: str) -> int | None:
    return int(getattr(message, name)) if message.HasField(name) else None


def _shape(shape: Any) -> Shape:
    sides = shape.x, shape.y, shape.z
    is_whole = all(shape.HasField(side) for side in "xyz") and max(sides) < WIDEST
    return sides if is_whole else NO_SHAPE


class _Codes(NamedTuple):
    """The names of metrics, for each id the place of its name (int32), and the ids of metrics counted by opcode and by
    instruction. A launch that has an id of each set in `flops` needs no instructions for its FLOPs."""

    names: list[str]
    of_ids: Codes
    by_opcode: frozenset[int]
    by_instruction: frozenset[int]
    flops: tuple[frozenset[int], ...]

    @classmethod
    def of(cls, names: MetricNames) -> _Codes:
        """Those of a file, of which there may be millions: they are not copied."""
        of_ids = np.frombuffer(names.codes, np.int32) if names.codes else np.empty(0, np.int32)

        def ids(chosen: Iterable[bool]) -> frozenset[int]:
            return frozenset(np.flatnonzero(np.array(list(chosen), bool)[of_ids]).tolist())

        by_opcode = ids(text.startswith(OPCODE_METRICS) for text in names.texts)
        by_instruction = ids(text in BY_INSTRUCTION for text in names.texts)
        flops = tuple(ids(text.startswith(beginnings) for text in names.texts) for beginnings in _telling_flops())
        return cls(names.texts, of_ids, by_opcode, by_instruction, flops)


@cache
def _telling_flops() -> tuple[tuple[str, ...], ...]:
    """For each counter of FLOPs and for tensor operations, beginnings of the names of metrics that tell them."""
    counters = (counter for precision in known.CUDA_CORE_PRECISIONS for counter in known.flop_weights(precision))
    return (
        *((THREADS_BY_FULL_NAME, *(f"{prefix}{one}_pred_on" for prefix in known.SASS_PREFIXES)) for one in counters),
        (WARPS_BY_FULL_NAME, known.TENSOR_PREFIX),
    )


class _Batch:
    """Results that follow each other, their values still encoded: `ids` and `encoded` are those of all launches."""

    def __init__(self, codes: _Codes) -> None:
        self.launches: list[_Launch] = []
        self._names, self._codes, self._by_opcode, self._by_instruction, self._flops = codes
        self._opcodes, self._told = _OpcodeCounts(), list[tuple[int, int, str]]()
        self._ids: list[int] = []
        self._encoded: list[bytes] = []
        self._counts: list[int] = []
        self._bytes = 0

    def takes(self, result: Result) -> bool:
        """Whether a result goes with those before: there is room, and all of them have a process or none has."""
        if not self.launches:
            return True
        if len(self._ids) >= VALUES_OF_A_BATCH or self._bytes >= BYTES_OF_A_BATCH:
            return False
        return (self.launches[0].process.number is None) == (result.block.process.number is None)

    def add(self, result: Result, instructions: _InstructionCounts | None) -> None:
        """Take one result; `instructions` tell its opcodes where it lists none."""
        metrics = result.message.metrics
        ids = [metric.name for metric in metrics]
        lacks_flops = instructions is not None and any(one.isdisjoint(ids) for one in self._flops)
        if (
            instructions
            and result.content is Content.KERNEL
            and lacks_flops
            and not self._by_instruction.isdisjoint(ids)
        ):
            counted = [metric for metric in metrics if metric.name in self._by_instruction and metric.instances]
            told = instructions.by_opcode(result, counted)
            self._told += [(metric, len(self.launches), text) for metric, text in told.items()]
        if not self._by_opcode.isdisjoint(ids):
            for metric in metrics:
                if metric.name in self._by_opcode:
                    self._opcodes.add(metric, len(self.launches))
        self._ids += ids
        self._encoded += [metric.value for metric in metrics]
        self._counts.append(len(ids))
        self._bytes += result.size
        self.launches.append(_launch_of(result))

    def columns(self, lost: Lost) -> LaunchColumns:
        """The launches as columns; values that have no name or cannot be decoded are counted as `lost`."""
        launches, metrics = self.launches, self._metrics(lost)
        rows, has_process = len(launches), launches[0].process.number is not None
        return LaunchColumns(
            rows,
            np.array([launch.number for launch in launches], np.int64),
            np.array([launch.process.number for launch in launches], np.int64) if has_process else None,
            {title: _texts(cells) for title, cells in _cells(launches, metrics).items()},
            {
                "Grid Size": _shapes(launches, [launch.grid for launch in launches], metrics, "launch__grid_dim_"),
                "Block Size": _shapes(launches, [launch.block for launch in launches], metrics, "launch__block_dim_"),
            },
            metrics,
            np.ones(rows, np.int64),
            np.zeros(rows, np.int64),
            _rules([launch.rules for launch in launches]),
            [launch.ranges for launch in launches],
        )

    def _metrics(self, lost: Lost) -> dict[str, MetricColumn]:
        """The metrics that some launch has, by name."""
        values, rows = values_of(self._encoded), np.repeat(np.arange(len(self.launches)), self._counts)
        ids, all_codes = np.array(self._ids, np.int64), np.full(len(self._ids), MISSING, np.int32)
        is_named = ids < len(self._codes)
        all_codes[is_named] = self._codes[ids[is_named]]
        codes, places = np.unique(all_codes, return_inverse=True)
        numbers = np.full((len(codes), len(self.launches)), np.nan)
        present = np.isfinite(values.numbers)
        numbers[places[present], rows[present]] = values.numbers[present]
        lost.values += values.damaged
        lost.nameless += int((~is_named).sum())
        columns = {
            code: MetricColumn(numbers[place], unit_of(self._names[code]))
            for place, code in enumerate(codes.tolist())
            if code != MISSING and _is_metric(self._names[code])
        }
        for at, text in values.texts.items():
            if (column := columns.get(int(codes[places[at]]))) is not None:
                _put(column, int(rows[at]), text)
        for metric, row, text in (*self._opcodes.texts(), *self._told):
            columns[int(self._codes[metric])].instances[row] = text
        filled = {code: column for code, column in columns.items() if _has_any(column)}
        return {self._names[code]: column for code, column in filled.items()}


class _OpcodeCounts:
    """Instances of metrics that are counted by opcode, still encoded."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._ends: list[tuple[int, int, int]] = []

    def add(self, metric: Any, row: int) -> None:
        """Take the instances of one metric of one launch."""
        self._keys += [instance.key for instance in metric.instances]
        self._values += [instance.value for instance in metric.instances]
        self._ends.append((metric.name, row, len(self._keys)))

    def texts(self) -> Iterator[tuple[int, int, str]]:
        """The id of a metric, the row of its launch, and its counts, as "HMMA.16816.F32: 128; FADD: 5"."""
        opcodes, counts = values_of(self._keys).texts, values_of(self._values)
        numbers, whole, is_whole = counts.numbers.tolist(), counts.whole.tolist(), counts.is_whole.tolist()
        begin = 0
        for metric, row, end in self._ends:
            named = [
                f"{opcodes[at]}: {whole[at] if is_whole[at] else numbers[at]}"
                for at in range(begin, end)
                if at in opcodes and numbers[at] == numbers[at]
            ]
            begin = end
            if named:
                yield metric, row, "; ".join(named)


class _InstructionCounts:
    """What launches executed by opcode, from their counts per instruction and the text of these."""

    def __init__(self, stream: BinaryIO, blocks: Blocks, lost: Lost) -> None:
        self._blocks, self._lost = blocks, lost
        self._texts = InstructionTexts(stream, blocks)

    def by_opcode(self, result: Result, metrics: Sequence[Any]) -> dict[int, str]:
        """The counts of each metric by opcode, as "HMMA.16816.F32: 128; FADD: 5", by the metric's id.

        {} where the text of an instruction that was executed is not known; the launch is counted as `lost.untold`.
        """
        found: dict[int, str] = {}
        for metric in metrics:
            keys, counts = (values_of([getattr(one, part) for one in metric.instances]) for part in ("key", "value"))
            executed = np.flatnonzero(~(counts.numbers == 0))
            addresses = keys.whole[executed].tolist()
            if not keys.is_whole.all() or not np.isfinite(counts.numbers).all() or not addresses:
                continue
            texts = self._texts.of(result, addresses, first_address(result, self._blocks, min(addresses)))
            opcodes = [full_opcode(text) if text else None for text in texts]
            if None in opcodes:
                self._lost.untold += 1
                return {}
            sums: dict[str, float] = {}
            for opcode, count in zip(opcodes, counts.numbers[executed].tolist(), strict=True):
                sums[str(opcode)] = sums.get(str(opcode), 0.0) + count
            found[metric.name] = "; ".join(f"{opcode}: {count:.0f}" for opcode, count in sums.items())
        return found


def _is_metric(name: str) -> bool:
    return not name.startswith(LISTS_OF_NAMES) and name not in CODES_OF_INSTRUCTIONS


def _has_any(column: MetricColumn) -> bool:
    return bool(column.words or column.instances) or not np.isnan(column.values).all()


def _put(column: MetricColumn, row: int, text: str) -> None:
    """Store a value that the report holds as text: a number where it is one, which goes before a word."""
    text = text.strip()
    if text in ABSENT:
        return
    number = _PRINTED.parse(text)
    if number is not None:
        column.values[row] = number.value
        column.words.pop(row, None)
    elif np.isnan(column.values[row]):
        column.words[row] = text


# ------------------------------------------------------------------------------------------------------- identity


def _cells(launches: Sequence[_Launch], metrics: dict[str, MetricColumn]) -> dict[str, list[str]]:
    """The identity cells by the titles of ncu's pages, "" where unknown. Metrics go before what stands beside them."""
    return {
        "Kernel Name": [launch.name for launch in launches],
        "Device": _whole_texts(metrics, "launch__device_id", [None] * len(launches)),
        "Context": _whole_texts(metrics, "launch__context_id", [launch.context for launch in launches]),
        "Stream": _streams(launches, metrics),
        "Process Name": [launch.process.name or "" for launch in launches],
        "Host Name": [launch.process.host or "" for launch in launches],
        "Kernel Time": [_printed_time(launch.created) for launch in launches],
    }


def _whole_texts(metrics: dict[str, MetricColumn], name: str, others: Sequence[int | None]) -> list[str]:
    column = metrics.get(name)
    values = [None] * len(others) if column is None else [None if v != v else int(v) for v in column.values.tolist()]
    known = (other if value is None else value for value, other in zip(values, others, strict=True))
    return ["" if number is None else str(number) for number in known]


def _streams(launches: Sequence[_Launch], metrics: dict[str, MetricColumn]) -> list[str]:
    """The stream that each was launched on; kernels of a range may be on several."""
    texts = _whole_texts(metrics, "launch__stream_id", [launch.stream for launch in launches])
    own = ["" if launch.stream is None else str(launch.stream) for launch in launches]
    return [
        text if launch.is_kernel else own[row] for row, (launch, text) in enumerate(zip(launches, texts, strict=True))
    ]


def _printed_time(created: int | None) -> str:
    """The time of profiling in UTC, formatted as by ncu up to 2022.3, in any time zone and language."""
    try:
        moment = None if created is None else datetime.fromtimestamp(created, timezone.utc)
    except (OverflowError, OSError, ValueError):
        moment = None
    return "" if moment is None else f"{moment.year}-{MONTHS[moment.month - 1]}-{moment:%d %H:%M:%S}"


def _shapes(
    launches: Sequence[_Launch], shapes: Sequence[Shape], metrics: dict[str, MetricColumn], prefix: str
) -> Codes:
    """Shapes (int32, of three sides) by the metrics of their sides, else as the results have them."""
    result = np.array(shapes, np.int64)
    columns = [metrics.get(prefix + axis) for axis in "xyz"]
    sides = np.stack([np.full(len(shapes), np.nan) if one is None else one.values for one in columns], axis=1)
    are_kernels = np.array([launch.is_kernel for launch in launches], bool)
    is_known = are_kernels & ((sides >= 0) & (sides < WIDEST)).all(axis=1)
    result[is_known] = sides[is_known].astype(np.int64)
    return result.astype(np.int32)


def _texts(cells: Sequence[str]) -> Texts:
    places: dict[str, int] = {}
    codes = [places.setdefault(cell, len(places)) for cell in cells]
    return Texts(np.array(codes, np.int32), list(places))


def _rules(of_launches: Sequence[Sequence[Rule]]) -> Rules | None:
    rules = [rule for some in of_launches for rule in some]
    if not rules:
        return None
    fields = zip(Rule._fields, zip(*rules, strict=True), strict=True)
    return Rules(
        {name: _texts(texts) for name, texts in fields}, np.array([len(some) for some in of_launches], np.int64)
    )
