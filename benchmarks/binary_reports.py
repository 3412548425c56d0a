"""Time to read ncu's binary reports, as a ratio to ncu's own import, and memory for a big report.

    python benchmarks/binary_reports.py REPORT.ncu-rep
    python benchmarks/binary_reports.py REPORT.ncu-rep --launches 1000 --rounds 5 --memory-mb 1000

The installed ncu must be able to open the report. The benchmark enlarges the report by repeating its results, or with
`--result` a single one. ncu writes the names of metrics once; a second file repeats them for each result. Every figure
is for a whole process. In each round both programs run one after the other on the same file.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.processes import Run, measured, peak, ratio
from tests.support.binary_reports import STRINGS, Block, field, fields_of, put_together, taken_apart

NCU_BENCH = str(Path(sys.executable).with_name("ncu-bench"))


def repeat(report: Path, longer: Path, *, launches: int, only: int | None, names_again: bool) -> int:
    """Write the report with its results repeated up to `launches` launches; returns the number of launches."""
    beginning, blocks = taken_apart(report.read_bytes())
    results = [block for block in blocks if block.has_result]
    chosen = results if only is None else results[only : only + 1]
    first = blocks.index(results[0])
    again = chosen if names_again else [_without_names(block) for block in chosen]
    times = max(1, launches // len(chosen))
    with longer.open("wb") as stream:
        stream.write(beginning + put_together(b"", [*blocks[:first], *chosen]))
        body = put_together(b"", again)
        for _ in range(times - 1):
            stream.write(body)
        stream.write(put_together(b"", [block for block in blocks[first:] if not block.has_result]))
    return times * len(chosen)


def _without_names(block: Block) -> Block:
    kept = ((number, content) for number, content in fields_of(block.header) if number != STRINGS)
    return Block(b"".join(field(number, content) for number, content in kept), block.payload)


def ncu_import(report: Path) -> Run:
    """Run ncu to print the raw page of a report."""
    return measured(["ncu", "--import", str(report), "--csv", "--page", "raw"])


def parse(report: Path) -> Run:
    """Run `ncu-bench parse` to write the launches of a report."""
    return measured([NCU_BENCH, "parse", str(report), "-o", str(report.with_name("launches.parquet"))])


def speed(report: Path, folder: Path, arguments: argparse.Namespace) -> None:
    """Print the seconds of both programs, their ratio and our peak memory."""
    longer = folder / "long.ncu-rep"
    for names_again in (False, True):
        count = repeat(report, longer, launches=arguments.launches, only=arguments.result, names_again=names_again)
        rounds = [(parse(longer), ncu_import(longer)) for _ in range(arguments.rounds)]
        ours, theirs = [one for one, _ in rounds], [other for _, other in rounds]
        seconds = (statistics.median(run.seconds for run in runs) for runs in (ours, theirs))
        told = "{:.2f} s, ncu --import {:.2f} s".format(*seconds)
        where = "with names again" if names_again else "names once"
        print(
            f"{count} launches, {longer.stat().st_size / 1e6:.0f} MB, {where}: {told}, ratio {ratio(ours, theirs)}, "
            f"peak {peak(ours)} MB, ncu {peak(theirs)} MB",
            flush=True,
        )


def memory(report: Path, folder: Path, megabytes: float, arguments: argparse.Namespace) -> None:
    """Print time and peak memory for a report of this size and for one of a quarter of it."""
    longer = folder / "big.ncu-rep"
    repeat(report, longer, launches=1000, only=arguments.result, names_again=False)
    per_launch = longer.stat().st_size / 1000
    for size in (megabytes / 4, megabytes):
        launches = round(size * 1e6 / per_launch)
        count = repeat(report, longer, launches=launches, only=arguments.result, names_again=False)
        run = parse(longer)
        print(
            f"{count} launches, {longer.stat().st_size / 1e6:.0f} MB: {run.seconds:.1f} s, peak {run.megabytes:.0f} MB"
        )


def main() -> None:
    """Run the measurements chosen on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="a binary report of an ncu that is not newer than the installed one")
    parser.add_argument("--launches", type=int, default=1000)
    parser.add_argument("--result", type=int, help="repeat only the result of this number")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory-mb", type=float, default=1000, help="0: leave out")
    arguments = parser.parse_args()
    print(f"Python {platform.python_version()}, {arguments.report.name}")
    with tempfile.TemporaryDirectory(prefix="ncu-bench-") as name:
        folder = Path(name)
        if shutil.which("ncu") is None:
            print("there is no ncu on PATH to compare with")
        else:
            speed(arguments.report, folder, arguments)
        if arguments.memory_mb:
            memory(arguments.report, folder, arguments.memory_mb, arguments)


if __name__ == "__main__":
    main()
