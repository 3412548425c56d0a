"""Columns of sampled metrics in the launches of a timeline, for every tool that samples."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import field_metadata
from ncu_parsers.timelines.activity.activity import MISSING, Integers
from ncu_parsers.timelines.activity.samples import LEAST_PERIODS, SampledActivity, rate_text, sampled_columns

SAMPLES, SAMPLED_GPU = "sampled_samples", "sampled_gpu"
NAMED = 4


class SampledColumns:
    """Builds the columns of sampled metrics, in % of peak, for the operations of a timeline, one batch at a time.

    A value is the mean of the GPU's samples during the operation, weighted by overlap; null if the operation takes
    fewer than five sampling periods, if samples cover less than 90 % of it, or if its GPU is unknown. `sampled_samples`
    is the number of samples in the mean, 0 for none, null if the GPU is unknown or was not sampled.
    """

    def __init__(self, activity: SampledActivity) -> None:
        self._activity = activity
        self._operations = self._of_gpus = self._without = 0

    def beside(self, table: pa.Table, start: Integers, end: Integers, place: Integers) -> pa.Table:
        """Append the sampled columns to a batch of operations; unchanged if no GPU was sampled."""
        for field, values in self.columns(start, end, place):
            table = table.append_column(field, values)
        return table

    def columns(self, start: Integers, end: Integers, place: Integers) -> list[tuple[pa.Field, pa.Array]]:
        """The sampled columns of a batch: start and end in ns, and each operation's GPU number, `MISSING` if unknown.

        Empty if no GPU was sampled.
        """
        gpus = self._activity.gpus
        if not gpus:
            return []
        rows = len(start)
        timed = (end != MISSING) & (end >= start)
        values = {name: np.full(rows, np.nan) for name in sampled_columns()}
        samples = np.full(rows, MISSING)
        for gpu, own in gpus.items():
            mine = np.flatnonzero(timed & (place == gpu))
            found = own.only(sampled_columns()).means(start[mine], end[mine])
            samples[mine] = found.samples
            for name, means in found.values.items():
                values[name][mine] = means
        self._operations += rows
        self._of_gpus += int((samples != MISSING).sum())
        self._without += int((samples == 0).sum())
        meanings = {
            name: f"sampled on the whole GPU while it ran, not counted: {entry['means']}"
            for name, entry in sampled_columns().items()
            if any(name in own.values for own in gpus.values())
        }
        found_columns = [
            (
                pa.field(name, pa.float64(), metadata=field_metadata(unit="%", meaning=meaning)),
                arrays.floats(values[name]),
            )
            for name, meaning in meanings.items()
        ]
        sampled_gpu = np.where(samples == MISSING, MISSING, place)
        for name, numbers, meaning in (
            (SAMPLES, samples, "samples in the means of the sampled columns, 0 for none"),
            (SAMPLED_GPU, sampled_gpu, "the GPU that these are of, by its number in the timeline"),
        ):
            column = pa.field(name, pa.int64(), metadata=field_metadata(unit="", meaning=meaning))
            found_columns.append((column, arrays.wholes(np.where(numbers == MISSING, -1, numbers), pa.int64())))
        return found_columns  # fmt: skip

    def notes(self) -> list[str]:
        """Notes on samples left out, on each GPU's samples, and on operations without samples."""
        notes = [*self._activity.notes, *_notes_on_gpus(self._activity)]
        if self._without:
            notes.append(
                f"{self._without} of {self._of_gpus} operations have no sampled values: they take fewer than "
                f"{LEAST_PERIODS} samples, or samples were lost; {self._activity.finer}"
            )
        unplaced = self._operations - self._of_gpus
        if unplaced:
            notes.append(
                f"{unplaced} operations have no sampled values, because their GPU or time is not known or sampled"
            )
        return notes


def _notes_on_gpus(activity: SampledActivity) -> list[str]:
    notes = []
    for gpu, own in sorted(activity.gpus.items()):
        if len(own) < 2:
            notes.append(f"GPU {gpu} has a single sample of GPU metrics, too few for a mean")
            continue
        others = [name for name in own.values if name not in sampled_columns()]
        if others:
            more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
            notes.append(
                f"sampled on GPU {gpu}, and no column of launches: {', '.join(others[:NAMED])}{more}; "
                "timeline --part samples shows them"
            )
        lost = f"; {own.lost_ns / 1e9:.2g} s between them have none" if own.lost_ns > 0 else ""
        notes.append(
            f"activity of GPU {gpu} was sampled by {activity.sampled_by} at {rate_text(own.period_ns)}: "
            f"{len(own):,} samples over {own.covered_ns / 1e9:.3g} s{lost}; a sampled value is a mean of the whole GPU "
            "while a kernel ran, and never a count"
        )
    return notes
