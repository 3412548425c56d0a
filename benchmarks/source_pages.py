"""Time `ncu-bench source` on a page of 100,000 instructions against a process that only reads its bytes as CSV.

    python -m benchmarks.source_pages [--instructions N] [--turns N]

The page repeats the rows of `sample_reports/source_page.py` with growing addresses and lines. Both processes run in
turns, `source` as the installed command. What counts is the median of the ratios of pairs, by wall time and by
processor time, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import csv
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from sample_reports import source_page

READ = "import csv, sys; print(sum(1 for row in csv.reader(open(sys.argv[1], newline=''))))"
SOURCE = "import sys; from ncu_tools.cli import program; sys.argv[:1] = ['ncu-bench', 'source']; program()"


def write_page(path: Path, instructions: int) -> None:
    """Write a source page of SASS and lines with so many instructions, of one kernel."""
    head, body = list(source_page.source_rows())[:3], list(source_page.source_rows())[3:]
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
        writer.writerows(head)
        written = copy = 0
        while written < instructions:
            for line, source, address, *rest in body:
                is_instruction = address != "-"
                if is_instruction:
                    address = f"{source_page.ADDRESS + 16 * written:#x}"
                writer.writerow([str(int(line) + 30 * copy) if line else "", source, address, *rest])
                written += is_instruction
            copy += 1


def seconds_of(program: str, path: Path) -> tuple[float, float]:
    """Wall time and processor time of a separate process."""
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", program, str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begun, used


def main() -> None:
    """Write the page, run both programs in turns, and print medians of times and of paired ratios, with ranges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instructions", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=11)
    asked = parser.parse_args()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "source.csv"
        write_page(path, asked.instructions)
        pairs = [(seconds_of(READ, path), seconds_of(SOURCE, path)) for _ in range(asked.turns)]
        size = path.stat().st_size / 1e6
    print(f"{asked.instructions:,} instructions, {size:.0f} MB, {asked.turns} pairs")
    for place, clock in enumerate(("wall", "processor")):
        read, shown = ([pair[side][place] for pair in pairs] for side in (0, 1))
        ratios = [over / under for under, over in zip(read, shown, strict=True)]
        print(
            f"{clock}: read as CSV {median(read):.2f} s, source {median(shown):.2f} s, "
            f"ratio {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
