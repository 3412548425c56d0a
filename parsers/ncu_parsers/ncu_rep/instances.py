"""Instances of metrics as a table: their values at each address, opcode, time or hardware unit, a row each.

A report stores a list of (key, value) for such a metric. A key that is a text is an opcode. Keys of sampled
metrics are times. Other numbers are addresses of instructions if they are too large to number hardware units.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ncu_parsers.ncu_rep.blocks import blocks_of, opened
from ncu_parsers.ncu_rep.encoded_values import Values, values_of
from ncu_parsers.ncu_rep.metric_units import unit_of
from ncu_parsers.ncu_rep.results import Lost, Result, results_of
from ncu_parsers.schema import arrays
from ncu_parsers.schema.instance_table import ADDRESS, KINDS, NUMBER, OPCODE, TIME, schema
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import Source

ROWS_OF_A_TABLE = 200_000
FIRST_ADDRESS = 1 << 32
"""Keys from here on are addresses: code is loaded above the first 4 GB, and no hardware unit has such a number."""
LARGEST_KEY = (1 << 63) - 1
SAMPLED = "pmsampling:"
_ZERO = b"\x28\x00"
"""The key 0, encoded."""


def instance_tables(source: Source) -> Iterator[pa.Table]:
    """The instances of a binary report, in consecutive tables.

    Raises `memory.TooBig`, and `NcuBenchError` if the report cannot be opened.
    """
    with opened(source) as stream:
        blocks = blocks_of(stream, source.name)
        batch = _Batch(source.name, blocks.names.texts, np.array(blocks.names.codes, np.int32))
        for result in results_of(stream, blocks, Lost()):
            batch.add(result)
            if batch.rows >= ROWS_OF_A_TABLE:
                memory.require_memory(source.name, streaming=True)
                yield batch.table()
                batch.clear()
        if batch.rows:
            yield batch.table()


def kinds_of(metrics: Sequence[Any], names: Sequence[str]) -> list[str]:
    """The kind of each metric's instance keys, judged by the first key."""
    first = values_of([metric.instances[0].key for metric in metrics])
    return [
        OPCODE if place in first.texts
        else TIME if metric.series or name.startswith(SAMPLED)
        else ADDRESS if first.is_whole[place] and first.whole[place] >= FIRST_ADDRESS
        else NUMBER
        for place, (metric, name) in enumerate(zip(metrics, names, strict=True))
    ]  # fmt: skip


def with_instances(result: Result, codes: npt.NDArray[np.int32]) -> list[Any]:
    """The named metrics of a result with instances, except a single instance with key 0, which repeats the value."""
    return [
        metric
        for metric in result.message.metrics
        if metric.instances
        and metric.name < len(codes)
        and (len(metric.instances) > 1 or metric.instances[0].key != _ZERO)
    ]


class _Batch:
    """Metrics with instances, still encoded, of some launches."""

    def __init__(self, report: str, names: list[str], codes: npt.NDArray[np.int32]) -> None:
        self._report, self._names, self._codes = report, names, codes
        self.clear()

    def clear(self) -> None:
        """Remove all metrics."""
        self.rows = 0
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._metrics: list[tuple[int, int, int, int, int]] = []
        """Process (-1 if unknown), launch, name, kind and number of instances of each metric."""

    def add(self, result: Result) -> None:
        """Add the instances of one launch's metrics, as `with_instances` selects them."""
        process = -1 if result.block.process.number is None else result.block.process.number
        metrics = with_instances(result, self._codes)
        codes = [int(self._codes[metric.name]) for metric in metrics]
        kinds = kinds_of(metrics, [self._names[code] for code in codes])
        for metric, code, kind in zip(metrics, codes, kinds, strict=True):
            self._keys += [instance.key for instance in metric.instances]
            self._values += [instance.value for instance in metric.instances]
            count = len(metric.instances)
            self._metrics.append((process, result.number, code, KINDS.index(kind), count))
            self.rows += count

    def table(self) -> pa.Table:
        """The instances as rows."""
        keys, values = values_of(self._keys), values_of(self._values)
        columns = np.array(self._metrics, np.int64).T
        processes, launches, names, kinds = (np.repeat(column, columns[4]) for column in columns[:4])
        found, places = np.unique(names, return_inverse=True)
        metrics = [self._names[code] for code in found.tolist()]
        units = list(dict.fromkeys(map(unit_of, metrics)))
        unit_places = np.array([units.index(unit_of(name)) for name in metrics], np.int32)
        return pa.Table.from_arrays(
            [
                arrays.repeated(self._report, self.rows),
                _whole(processes, processes >= 0),
                _whole(launches, np.ones(self.rows, bool)),
                arrays.coded(places.astype(np.int32), metrics),
                arrays.coded(kinds.astype(np.int32), KINDS),
                _texts(keys, self.rows),
                _whole(keys.whole.astype(np.int64), keys.is_whole & (keys.whole <= LARGEST_KEY)),
                arrays.floats(np.where(np.isfinite(values.numbers), values.numbers, np.nan)),
                arrays.coded(unit_places[places], units),
                _texts(values, self.rows),
            ],
            schema=schema(),
        )


def _whole(numbers: npt.NDArray[np.int64], present: npt.NDArray[np.bool_]) -> pa.Array:
    validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.int64(), len(numbers), [validity, pa.py_buffer(numbers.astype(np.int64))])


def _texts(values: Values, rows: int) -> pa.Array:
    codes = np.full(rows, -1, np.int32)
    places: dict[str, int] = {}
    for row, text in values.texts.items():
        codes[row] = places.setdefault(text, len(places))
    return arrays.coded(codes, list(places))
