"""The kinds of times in a run: GPU time of kernels, or self times from the operator collector.

On a CPU the collector reads a monotonic clock around each operator that PyTorch dispatches, and these do not nest: self
CPU time. On a GPU it records CUDA events around it: self GPU time. Files without a device have "self time".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import pyarrow as pa
from ncu_launch.notes import Note, NoteKind
from ncu_parsers.schema import tables
from ncu_parsers.schema.operator_columns import DIALECT, OPERATOR_DEVICE, THREADS

TIME, SELF_CPU, SELF_GPU, SELF_UNKNOWN = "time", "self CPU", "self GPU", "self time"
"""Titles of columns of times."""

NEEDED = (OPERATOR_DEVICE, THREADS)
"""The columns of launches that decide the kind of time, besides `source`."""

_OF_DEVICE = {"cpu": SELF_CPU, "cuda": SELF_GPU}


def clocks_of(table: pa.Table) -> frozenset[str]:
    """The titles of the kinds of times in a table of launches."""
    codes, sources = tables.codes(table, "source")
    collected = np.array([source == DIALECT for source in sources], bool)[codes]
    found = set() if collected.all() else {TIME}
    if not collected.any():
        return frozenset(found)
    of_device, devices = tables.codes(table, OPERATOR_DEVICE)
    has_threads = ~np.isnan(tables.floats(table, THREADS))
    for code in np.unique(of_device[collected]).tolist():
        here = collected & (of_device == code)
        title = _OF_DEVICE.get(devices[code] or "")
        found |= {title} if title else {SELF_CPU if each else SELF_UNKNOWN for each in np.unique(has_threads[here])}
    return frozenset(found)


def time_title(clocks: Iterable[str]) -> str:
    """The title of the time column; "time" for several kinds."""
    kinds = set(clocks)
    return kinds.pop() if len(kinds) == 1 else TIME


def operator_notes(clocks: Collection[str]) -> list[Note]:
    """The note on times, FLOPs and bytes of the operator collector, short in the head line; [] if there are none."""
    kinds = [kind for kind in (SELF_CPU, SELF_GPU, SELF_UNKNOWN) if kind in clocks]
    if not kinds:
        return []
    whose = "times of PyTorch operators" if TIME in clocks else "times"
    times = " or ".join("self times" if kind == SELF_UNKNOWN else f"{kind} times" for kind in kinds)
    of = "" if TIME in clocks else " of PyTorch operators"
    counted = "FLOPs and bytes are counted from operators, not by hardware"
    sentence = f"{whose} are {times}{of}; {counted}; DRAM stands for inputs + weights + outputs"
    return [Note(sentence, NoteKind.IN_HEAD, "FLOPs and bytes by operator")]
