"""Results of a report -> launches and the values of their metrics, many at a time, without an object for each value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from ncu_parsers.ncu_rep.blocks import Blocks, Content, MetricNames, Process, blocks_of, opened
from ncu_parsers.ncu_rep.encoded_values import values_of
from ncu_parsers.ncu_rep.fields import text_of
from ncu_parsers.ncu_rep.metric_units import unit_of
from ncu_parsers.ncu_rep.result_details import NvtxRanges, nvtx_ranges, rules_of
from ncu_parsers.ncu_rep.results import Lost, Result, results_of
from ncu_parsers.ncu_rep.sass.sass_text import full_opcode
from ncu_parsers.ncu_rep.source_code import InstructionTexts, first_address
from ncu_parsers.schema.tables import ABSENT, Floats, Rule
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import Source

Codes = npt.NDArray[np.int32]
MISSING = -1

VALUES_OF_A_BATCH = 100_000
BYTES_OF_A_BATCH = 16_000_000
"""A batch becomes columns once it has this many values, or took this many bytes of the file."""

LISTS_OF_NAMES = ("breakdown:", "group:")
CODES_OF_INSTRUCTIONS = frozenset({"memory_type", "memory_access_type", "memory_access_size_type"})
"""Prefixes and names in the list of metrics that are not metrics: ncu prints no value for them."""

OPCODE_METRICS = "sass__"
"""Prefix of metrics that are counted by opcode."""

NAMES = {Content.RANGE: "range", Content.GRAPH: "graph"}
"""ncu's names for results without a single kernel."""

WIDEST = 1 << 31
"""Exclusive limit on each dimension of a grid or block."""

Shape = tuple[int, int, int]
NO_SHAPE: Shape = (MISSING, MISSING, MISSING)


class ReportedLaunch(NamedTuple):
    """A launch without its metrics; `created` in seconds since 1970. Unknown shapes are `NO_SHAPE`.

    A range or a graph is not a kernel: it has no shape, and its metrics named `launch__` are the maximum over its
    kernels.
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


@dataclass
class MetricValues:
    """One metric of some launches in base units: `numbers` (float64, one per launch, NaN for none).

    By the launch's index, `texts` are values that are not numbers, `by_opcode` counts: "HMMA.16816.F32: 128; FADD: 5".
    """

    numbers: Floats
    unit: str
    texts: dict[int, str] = field(default_factory=dict)
    by_opcode: dict[int, str] = field(default_factory=dict)


@dataclass
class LaunchBatch:
    """Some consecutive launches, and by name the metrics that some of them have."""

    launches: list[ReportedLaunch]
    metrics: dict[str, MetricValues]


class SummedByOpcode(NamedTuple):
    """Metrics whose counts per instruction are summed by opcode, for launches whose FLOPs have no other source.

    A launch needs no such sums if it has, for each tuple of `unless`, a metric whose name begins with one of its texts.
    """

    metrics: frozenset[str]
    unless: tuple[tuple[str, ...], ...]


NOTHING_SUMMED = SummedByOpcode(frozenset(), ())


def launch_batches(
    stream: BinaryIO, blocks: Blocks, lost: Lost, name: str, summed: SummedByOpcode = NOTHING_SUMMED
) -> Iterator[LaunchBatch]:
    """The launches of a file in batches. Raises `memory.TooBig` naming the report `name`."""
    codes = _Codes.of(blocks.names, summed)
    instructions = _InstructionCounts(stream, blocks, lost)
    batch = _Batch(codes)
    for result in results_of(stream, blocks, lost):
        if not batch.takes(result):
            yield batch.decoded(lost)
            memory.require_memory(name, streaming=True)
            batch = _Batch(codes)
        batch.add(result, instructions)
    if batch.launches:
        yield batch.decoded(lost)


def launches_in(source: Source) -> Iterator[tuple[ReportedLaunch, dict[str, float | str]]]:
    """Every launch of a binary report with its metrics by name, in base units (see `unit_of`), without missing metrics.

    Damaged values are left out. Raises `NcuBenchError` if the file cannot be opened, `memory.TooBig` if it is too big.
    """
    with opened(source) as stream:
        for batch in launch_batches(stream, blocks_of(stream, source.name), Lost(), source.name):
            for row, launch in enumerate(batch.launches):
                numbers = {name: found.numbers[row] for name, found in batch.metrics.items()}
                texts = {name: found.texts[row] for name, found in batch.metrics.items() if row in found.texts}
                yield launch, {**{name: float(one) for name, one in numbers.items() if not np.isnan(one)}, **texts}


def _launch_of(result: Result) -> ReportedLaunch:
    message, is_kernel = result.message, result.content is Content.KERNEL
    return ReportedLaunch(
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
    """Metric names, the index of each id's name (int32), and the ids of metrics counted by opcode and by instruction. A
    launch with an id of each set in `flops` needs no instructions for its FLOPs."""

    names: list[str]
    of_ids: Codes
    by_opcode: frozenset[int]
    by_instruction: frozenset[int]
    flops: tuple[frozenset[int], ...]

    @classmethod
    def of(cls, names: MetricNames, summed: SummedByOpcode) -> _Codes:
        """The codes of a file. There may be millions, so they are not copied."""
        of_ids = np.frombuffer(names.codes, np.int32) if names.codes else np.empty(0, np.int32)

        def ids(chosen: Iterable[bool]) -> frozenset[int]:
            return frozenset(np.flatnonzero(np.array(list(chosen), bool)[of_ids]).tolist())

        by_opcode = ids(text.startswith(OPCODE_METRICS) for text in names.texts)
        by_instruction = ids(text in summed.metrics for text in names.texts)
        flops = tuple(ids(text.startswith(beginnings) for text in names.texts) for beginnings in summed.unless)
        return cls(names.texts, of_ids, by_opcode, by_instruction, flops)


class _Batch:
    """Consecutive results with values still encoded: `_ids` and `_encoded` cover all launches."""

    def __init__(self, codes: _Codes) -> None:
        self.launches: list[ReportedLaunch] = []
        self._names, self._codes, self._by_opcode, self._by_instruction, self._flops = codes
        self._opcodes, self._told = _OpcodeCounts(), list[tuple[int, int, str]]()
        self._ids: list[int] = []
        self._encoded: list[bytes] = []
        self._counts: list[int] = []
        self._bytes = 0

    def takes(self, result: Result) -> bool:
        """True if a result fits into this batch: there is room, and like the others it has a process or has none."""
        if not self.launches:
            return True
        if len(self._ids) >= VALUES_OF_A_BATCH or self._bytes >= BYTES_OF_A_BATCH:
            return False
        return (self.launches[0].process.number is None) == (result.block.process.number is None)

    def add(self, result: Result, instructions: _InstructionCounts) -> None:
        """Add one result; `instructions` give its counts by opcode if it lists none."""
        metrics = result.message.metrics
        ids = [metric.name for metric in metrics]
        lacks_flops = any(one.isdisjoint(ids) for one in self._flops)
        if result.content is Content.KERNEL and lacks_flops and not self._by_instruction.isdisjoint(ids):
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

    def decoded(self, lost: Lost) -> LaunchBatch:
        """The launches; values without a name, or that cannot be decoded, are counted in `lost`."""
        return LaunchBatch(self.launches, self._metrics(lost))

    def _metrics(self, lost: Lost) -> dict[str, MetricValues]:
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
            code: MetricValues(numbers[place], unit_of(self._names[code]))
            for place, code in enumerate(codes.tolist())
            if code != MISSING and _is_metric(self._names[code])
        }
        for at, text in values.texts.items():
            if (column := columns.get(int(codes[places[at]]))) is not None and text.strip() not in ABSENT:
                column.texts[int(rows[at])] = text.strip()
        for metric, row, text in (*self._opcodes.texts(), *self._told):
            columns[int(self._codes[metric])].by_opcode[row] = text
        filled = {code: column for code, column in columns.items() if _has_any(column)}
        return {self._names[code]: column for code, column in filled.items()}


class _OpcodeCounts:
    """Instances of metrics that are counted by opcode, still encoded."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._ends: list[tuple[int, int, int]] = []

    def add(self, metric: Any, row: int) -> None:
        """Add the instances of one metric of one launch."""
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
    """Counts of launches by opcode, from counts per instruction and the disassembly."""

    def __init__(self, stream: BinaryIO, blocks: Blocks, lost: Lost) -> None:
        self._blocks, self._lost = blocks, lost
        self._texts = InstructionTexts(stream, blocks)

    def by_opcode(self, result: Result, metrics: Sequence[Any]) -> dict[int, str]:
        """The counts of each metric by opcode, as "HMMA.16816.F32: 128; FADD: 5", by the metric's id.

        {} if an executed instruction has no known text; the launch is counted as `lost.untold`.
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


def _has_any(column: MetricValues) -> bool:
    return bool(column.texts or column.by_opcode) or not np.isnan(column.numbers).all()
