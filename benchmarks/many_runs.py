"""How long `ncu-bench history` takes over many runs, and how much memory: made runs of many kernels.

    python -m benchmarks.many_runs --runs 10000 --kernels 500

Each run is a folder with a manifest and launches.parquet, a launch per kernel with counters. Times scatter by 1 %, one
kernel has other registers from the middle on. The first call sums every run and keeps the sums beside it, the second
reads what is kept; each is a process of its own. The runs stay in --folder, if it is given, for another look.
"""

from __future__ import annotations

import argparse
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from ncu_launch.files.manifest import Manifest, write_manifest
from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch, Metric, Report
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from benchmarks.processes import measured

OURS = str(Path(sys.executable).with_name("ncu-bench"))
COUNTERS = ("smsp__inst_executed.sum", "launch__registers_per_thread", "sm__cycles_elapsed.max", "dram__bytes.sum")


def template(kernels: int) -> pa.Table:
    """The launches of one run."""
    launches = [
        Launch(
            f"void library::kernel_{number}<float, {number % 7}>(float const*, float*, int)",
            launch_id=number, grid=(number + 1, 1, 1), block=(128, 1, 1), compute_capability="9.0",
            metrics={
                "gpu__time_duration.sum": Metric(1e4 + 100.0 * number, 0.0, "ns"),
                **{name: Metric(1000.0 + number, 0.0, "") for name in COUNTERS},
            },
        )
        for number in range(kernels)
    ]  # fmt: skip
    return with_metadata(launches_table(Report("report.csv", launches=launches)), {"schema_version": SCHEMA_VERSION})


def write_runs(folder: Path, runs: int, kernels: int) -> None:
    """Write the runs, those that are there already left out."""
    table, random = template(kernels), np.random.default_rng(68)
    times = np.array(table.column("duration_ns").to_pylist())
    registers = table.schema.get_field_index(COUNTERS[1])
    place = table.schema.get_field_index("duration_ns")
    begin = datetime(2020, 1, 1, tzinfo=timezone.utc)
    for number in range(runs):
        noise = np.exp(0.01 * random.standard_normal(kernels))
        run = folder / f"run-{number:05}"
        if (run / "manifest.json").is_file():
            continue
        one = table.set_column(place, table.schema.field(place), arrays.floats(times * noise))
        if number >= runs // 2:
            counts = np.array(one.column(registers).to_pylist(), np.float64)
            counts[0] += 8
            one = one.set_column(registers, one.schema.field(registers), arrays.floats(counts))
        run.mkdir(parents=True)
        write_table(one, run / "launches.parquet")
        date = (begin + timedelta(hours=number)).isoformat(timespec="seconds")
        write_manifest(Manifest([], "ncu", date, commit=f"{number:040x}", committed=date), run)


def main() -> None:
    """Write the runs and print how long the history of them takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--kernels", type=int, default=500)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        write_runs(folder, asked.runs, asked.kernels)
        for title in ("first call, every run summed", "sums that were kept"):
            run = measured([OURS, "history", str(folder), "--format", "json"])
            print(f"{title:<30} {run.seconds:8.1f} s {run.processor:8.1f} s of a processor {run.megabytes:8.0f} MB")


if __name__ == "__main__":
    main()
