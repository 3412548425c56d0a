"""Large inputs: ten thousand launches with 500 metrics, ten million launches, five thousand reports in one folder.

    python -m benchmarks.load
    python -m benchmarks.load --scale 0.01

    python -m benchmarks.load --only reports

Every figure is for a whole process of the command line: wall-clock seconds and peak memory. The figures are printed and
written to benchmarks/results/load-CASE-MACHINE.json, together with the machine and versions. `report` loads all
launches into memory: ten million exceed the default limit, so it runs with 16 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import generate
from benchmarks.processes import measured

RESULTS = Path(__file__).with_name("results")
PROGRAM = str(Path(sys.executable).with_name("ncu-bench"))
WITHOUT_END = 1e9
"""A size in megabytes that never ends a report: only its number of launches does."""
MADE = 100_000
"""Launches of the largest report that are made; the others repeat them under other ids."""

Case = Callable[[Path, float], str]


def many_metrics(folder: Path, scale: float) -> str:
    """One report of launches with 500 metrics each."""
    count = round(10_000 * scale)
    generate.write("wide500", folder / "report.csv", WITHOUT_END, count)
    return f"{count:,} launches, 500 metrics"


def many_launches(folder: Path, scale: float) -> str:
    """One report of many launches; their values repeat after `MADE`, since making them takes longer than reading."""
    count = round(10_000_000 * scale)
    first = folder / "first.csv"
    generate.write("wide30", first, WITHOUT_END, min(count, MADE))
    *above, header, units, rows = first.read_text("utf-8").split("\n", 4)
    first.unlink()
    behind_ids = [row[row.index(",") :] for row in rows.splitlines()]
    with (folder / "report.csv").open("w", encoding="utf-8") as report:
        report.write("\n".join([*above, header, units, ""]))
        for begun in range(0, count, MADE):
            report.writelines(
                f'"{number}"{row}\n' for number, row in zip(range(begun, count), behind_ids, strict=False)
            )
    return f"{count:,} launches, 30 metrics"


def many_reports(folder: Path, scale: float) -> str:
    """Many small reports in one folder, each from a different run."""
    count = round(5_000 * scale)
    generate.write("wide30", folder / "first.csv", WITHOUT_END, 40)
    text = (folder / "first.csv").read_text("utf-8")
    (folder / "first.csv").unlink()
    for number in range(count):
        (folder / f"report-{number:05}.csv").write_text(text.replace('"4711"', f'"{10_000 + number}"'), "utf-8")
    return f"{count:,} reports, 40 launches each"


CASES: dict[str, Case] = {"metrics": many_metrics, "launches": many_launches, "reports": many_reports}


def measurements(case: Case, place: Path, scale: float) -> Iterator[dict[str, Any]]:
    """Run each command on a case; yields its time and memory."""
    reports, output = place / "reports", place / "launches.parquet"
    reports.mkdir()
    title = case(reports, scale)
    size = sum(file.stat().st_size for file in reports.iterdir())
    for name, command in (
        ("parse", ["parse", str(reports), "-o", str(output)]),
        ("hotspots", ["hotspots", str(output)]),
        ("roofline", ["roofline", str(output), "-o", str(place / "roofline.svg")]),
        ("report", ["--memory-limit", "16GB", "report", str(output), "-o", str(place / "report.html")]),
    ):
        run = measured([PROGRAM, *command])
        yield {
            "load": title, "command": name, "seconds": round(run.seconds, 2), "peak_mb": round(run.megabytes),
            "report_mb": round(size / 1e6, 1), "parquet_mb": round(output.stat().st_size / 1e6, 1),
        }  # fmt: skip


def machine() -> dict[str, Any]:
    """The processor, date and versions that the figures were measured with."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    versions = {name: version(name) for name in ("ncu-bench", "pyarrow", "numpy")}
    return {
        "cpu": names[0] if names else platform.machine(), "cores": os.cpu_count(), "date": date.today().isoformat(),
        "python": platform.python_version(), **versions,
    }  # fmt: skip


def main() -> None:
    """Print the figures as Markdown; write them to benchmarks/results when measured at full scale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of launches or reports")
    parser.add_argument("--only", choices=CASES, help="run this case only")
    asked = parser.parse_args()
    print("| load | MB of CSV | command | s | peak MB |\n|---|---|---|---|---|")
    for name in [asked.only] if asked.only else CASES:
        found = []
        with tempfile.TemporaryDirectory() as place:
            for row in measurements(CASES[name], Path(place), asked.scale):
                found.append(row)
                cells = (row["load"], row["report_mb"], row["command"], row["seconds"], row["peak_mb"])
                print(f"| {' | '.join(map(str, cells))} |", flush=True)
        if asked.scale == 1:
            keep(name, found)


def keep(case: str, rows: list[dict[str, Any]]) -> None:
    """Write the figures of a case to a file, with the machine and versions."""
    facts = machine()
    name = re.sub(r"[^a-z0-9]+", "-", facts["cpu"].lower()).strip("-")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"load-{case}-{name}.json").write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
