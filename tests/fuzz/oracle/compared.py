"""Compare the rows of a report with those of a slow reader, over many mutated inputs."""

from __future__ import annotations

import math
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ncu_launch.errors import NcuBenchError

from tests.fuzz.expectations import hold_refusal

Row = Mapping[str, Any]
"""Values by name. A slow reader's `OneOf` stands for a metric that is printed with several values."""


@dataclass(frozen=True)
class OneOf:
    """The values that one metric of one launch is printed with, where they contradict each other."""

    values: tuple[Any, ...]


@dataclass
class Reading:
    """What a reader of `ncu_parsers` gave: rows, whether it says that lines or events were left out, and its notes."""

    rows: list[dict[str, Any]]
    has_losses: bool = False
    notes: Sequence[str] = ()

    def excuses(self, name: str) -> bool:
        """Whether a note names the value `name`."""
        return any(name in note for note in self.notes)


@dataclass(frozen=True)
class Format:
    """One format: how an input is mutated, read slowly, and read by `ncu_parsers`.

    `mutate` returns the bytes of one input. `slow` returns the rows in the order of the file, or None if the bytes have no
    one meaning (not JSON, not a database). `fast` reads the file at a path.
    """

    name: str
    ending: str
    mutate: Callable[[random.Random], bytes]
    slow: Callable[[bytes], list[Row] | None]
    fast: Callable[[Path], Reading]


@dataclass
class Tally:
    """The results of many inputs of one format; `findings` are (seed, what differs)."""

    format: str
    inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[int, str]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def read(self) -> int:
        """Number of inputs that were read and compared."""
        return self.outcomes["same"] + self.outcomes["left out"] + self.outcomes["finding"]

    def __str__(self) -> str:
        share = 100 * self.read / max(self.inputs, 1)
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        return (
            f"{self.format}: {self.inputs} inputs in {self.seconds:.0f} s, {share:.0f} % read and compared ({counts}), "
            f"{len(self.findings)} findings"
        )


def compare_many(one: Format, seeds: range, folder: Path, most_findings: int = 20) -> Tally:
    """Try the inputs of `seeds`. Stops after `most_findings`."""
    tally, began = Tally(one.name), time.perf_counter()
    for seed in seeds:
        data = one.mutate(random.Random(seed))  # noqa: S311
        outcome, difference = compared(one, data, folder)
        tally.inputs += 1
        tally.outcomes[outcome] += 1
        if difference:
            tally.findings.append((seed, difference))
            if len(tally.findings) >= most_findings:
                break
    tally.seconds = time.perf_counter() - began
    return tally


def compared(one: Format, data: bytes, folder: Path) -> tuple[str, str]:
    """Outcome of one input, and how it differs from the slow reader; "" if it does not."""
    path = folder / f"input{one.ending}"
    path.write_bytes(data)
    try:
        reading = one.fast(path)
    except NcuBenchError as error:
        hold_refusal(error)
        return "refused", ""
    except Exception as error:
        return "finding", f"{type(error).__name__}: {error}, at {_place_of(error)}"
    finally:
        path.unlink()
    slow = one.slow(data)
    if slow is None:
        return "not judged", ""
    difference = differs(reading, slow)
    if not difference:
        return ("left out" if reading.has_losses else "same"), ""
    return "finding", difference


def _place_of(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


def differs(reading: Reading, slow: Sequence[Row]) -> str:
    """How the rows of a report differ from the slow reader's; "" if they do not."""
    rows = reading.rows
    if len(rows) == len(slow):
        first = next((said for at, row in enumerate(rows) if (said := _row_differs(row, slow[at], reading, at))), "")
        if not first or not reading.has_losses:
            return first
    if not reading.has_losses:
        return f"{len(rows)} rows, the slow reader has {len(slow)}; nothing is said to be left out"
    return _not_among(reading, slow)


def _not_among(reading: Reading, slow: Sequence[Row]) -> str:
    """The first row that is not among the slow reader's, in its order; "" if all are."""
    at = 0
    for number, row in enumerate(reading.rows):
        while at < len(slow) and _row_differs(row, slow[at], reading, number):
            at += 1
        if at == len(slow):
            return f"row {number} is none of the slow reader's: {_short(row)}"
        at += 1
    return ""


def _row_differs(row: Row, slow: Row, reading: Reading, at: int) -> str:
    for name in slow.keys() | row.keys():
        own, true = row.get(name), slow.get(name)
        if not _same(own, true) and not reading.excuses(name):
            return f"row {at}, {name}: {own!r}, the slow reader has {true!r}"
    return ""


def _same(own: Any, true: Any) -> bool:
    if isinstance(true, OneOf):
        return any(_same(own, value) for value in true.values)
    if isinstance(own, float) and isinstance(true, int | float) and not isinstance(true, bool):
        return own == true or math.isclose(own, true, rel_tol=1e-12) or (own != own and true != true)
    return bool(own == true)


def _short(row: Row) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in row.items() if value is not None)[:300]
