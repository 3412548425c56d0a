"""Layers as nested spans of time: one iteration, its phases in sequence, in each the modules that ran in it.

A span is a mean over the iterations, not a moment of any of them: it starts where the previous one ends, without the
gaps between launches. Modules are in the order in which they first ran in that phase.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from ncu_launch.nvtx_ranges import RUN_PHASES
from ncu_parsers.schema import arrays, tables

from ncu_tools.model.layers.layers import Layer, layers

NO_PHASE = "no phase"


@dataclass(frozen=True)
class Span:
    """A phase (`layer` is None) or a module in it, from `start` to `end`, in whole ns since the iteration began."""

    name: str
    depth: int
    start: int
    end: int
    phase: str
    layer: Layer | None = None


@dataclass
class Spans:
    """Spans, each before its nested ones."""

    rows: list[Span]
    iterations: int
    notes: list[str] = field(default_factory=list)


def spans(table: pa.Table, *, depth: int | None = None) -> Spans:
    """The phases of `table` and the modules in them, at most `depth` levels below the model.

    Launches without a time are left out, with a note. Without modules there are no spans.
    """
    timeless = np.isnan(tables.floats(table, "duration_ns"))
    known = arrays.kept(table, ~timeless) if timeless.any() else table
    whole = layers(known)
    result = Spans([], whole.iterations, list(whole.notes))
    if not whole.rows:
        return result
    if timeless.any():
        result.notes.append(f"{int(timeless.sum())} launches without a time are left out")
    start = 0.0
    for phase in (*RUN_PHASES, ""):
        rows = layers(known, depth=depth, phase=phase).rows
        end = start + sum(row.time_ns or 0.0 for row in rows if row.depth == 0)
        if rows:
            name = phase or NO_PHASE
            result.rows.append(Span(name, 0, round(start), round(end), name))
            result.rows += _inside(rows, start, end, name)
        start = end
    return result


def _inside(rows: Sequence[Layer], start: float, end: float, phase: str) -> Iterator[Span]:
    """The layers of one phase, parents first; each starts at the end of its sibling and ends within its parent."""
    at = [start]
    limits = [end]
    for row in rows:
        del at[row.depth + 1 :], limits[row.depth + 1 :]
        begin = at[row.depth]
        finish = min(begin + (row.time_ns or 0.0), limits[row.depth])
        yield Span(row.name, row.depth + 1, round(begin), round(finish), phase, row)
        at[row.depth] = finish
        at.append(begin)
        limits.append(finish)
