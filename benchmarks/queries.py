"""The hottest kernels of a million launches: time as a ratio to the same query in duckdb, and peak memory.

    pip install duckdb
    python benchmarks/queries.py
    python benchmarks/queries.py --launches launches.parquet

Every figure is for a whole process, imports included. In each round all programs run one after the other on the same
file; ratios are computed within a round, so that a busy machine slows both sides, and the median over the rounds is
shown. duckdb groups by kernel name, sums time, FLOPs and DRAM bytes, and gives the first twenty; unlike `ncu-bench
hotspots` it computes no ceilings, bounds or notes.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.generate import write
from benchmarks.processes import Run, measured, peak, ratio

OURS = str(Path(sys.executable).with_name("ncu-bench"))
DUCKDB = (
    "import sys, duckdb\n"
    'duckdb.sql(f"""select kernel_name, count(*), sum(duration_ns), sum(flops), sum(dram_bytes)\n'
    '    from \'{sys.argv[1]}\' group by kernel_name order by 3 desc limit 20""").show(max_width=200)\n'
)
BYTES_OF_A_LAUNCH = 928
"""Bytes of a launch in a CSV report of the shape wide30."""


KEEP = (
    "import sys; from pathlib import Path\n"
    "from ncu_parsers.parquet.reader import contents; from ncu_tools.kernels.kernel_cache import cache_kernels\n"
    "cache_kernels(Path(sys.argv[1])); print(contents(Path(sys.argv[1])).rows)\n"
)
"""A program that writes kernels.parquet next to a file, and prints the file's number of launches."""


def made(folder: Path, launches: int) -> Path:
    """A Parquet file of about `launches` launches, read from a generated report of 30 metrics."""
    report, output = folder / "report.csv", folder / "made.parquet"
    write("wide30", report, launches * BYTES_OF_A_LAUNCH / 1e6)
    measured([OURS, "parse", str(report), "-o", str(output)])
    report.unlink()
    return output


def lines(launches: Path, alone: Path, rounds: int) -> list[str]:
    """The lines of the table: duckdb, and `hotspots` with and without kernels.parquet."""
    commands = {
        "duckdb": [sys.executable, "-c", DUCKDB, str(launches)],
        "hotspots with kernels.parquet": [OURS, "hotspots", str(launches)],
        "hotspots of the launches alone": [OURS, "hotspots", str(alone)],
    }
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            runs[name].append(measured(command))
    return [
        f"| {name} | {statistics.median(one.seconds for one in each):.2f} | {ratio(each, runs['duckdb'])} | "
        f"{peak(each)} |"
        for name, each in runs.items()
    ]


def main() -> None:
    """Print the results as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=Path, help="a file made by ncu-bench parse (default: a generated one)")
    parser.add_argument("--count", type=int, default=1_000_000, help="number of generated launches")
    parser.add_argument("--rounds", type=int, default=11)
    asked = parser.parse_args()
    if importlib.util.find_spec("duckdb") is None:
        raise SystemExit("There is nothing to compare with: duckdb is not installed. Try: pip install duckdb")
    with tempfile.TemporaryDirectory() as name:
        source = asked.launches.resolve() if asked.launches else made(Path(name), asked.count)
        beside, alone = (Path(name) / folder / "launches.parquet" for folder in ("beside", "alone"))
        for path in (beside, alone):
            path.parent.mkdir()
            path.symlink_to(source)
        count = subprocess.check_output([sys.executable, "-c", KEEP, str(beside)], text=True)  # noqa: S603
        print(
            f"{int(count):,} launches, median of {asked.rounds} rounds, {os.cpu_count()} cores, "
            f"Python {platform.python_version()}\n"
        )
        print("| whole processes | s | x duckdb | peak MB |\n|---|---|---|---|")
        print("\n".join(lines(beside, alone, asked.rounds)))


if __name__ == "__main__":
    main()
