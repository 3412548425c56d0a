"""Three versions of a kernel as reports: a recorded one, and two made from it as levers would leave it."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import SAMPLES

RECORDED = SAMPLES / "h100" / "conflicts-raw-instances.csv"
IDEAL = "4,194,304"
PADDED = {
    "gpu__time_duration.sum": "300.0", "memory_l1_wavefronts_shared": IDEAL,
    "derived__memory_l1_wavefronts_shared_excessive": "0", "derived__memory_l1_conflicts_shared_nway": "1",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed": "5.7",
}  # fmt: skip
"""Without bank conflicts; no GPU ran it."""
REDUCED = PADDED | {"gpu__time_duration.sum": "260.0", "smsp__inst_executed.sum": "20000000"}
"""With a third of the instructions, too; no GPU ran it."""


def write_versions(folder: Path) -> list[str]:
    """Write v1.csv, v2.csv and v3.csv; returns their names."""
    for number, changed in enumerate(({}, PADDED, REDUCED), 1):
        _write(folder / f"v{number}.csv", changed)
    return [f"v{number}.csv" for number in (1, 2, 3)]


def _write(path: Path, changed: Mapping[str, str]) -> None:
    with RECORDED.open(newline="", encoding="utf-8") as file:
        header, units, *launches = csv.reader(file)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([header, units])
        writer.writerows([changed.get(name, cell) for name, cell in zip(header, row, strict=True)] for row in launches)
