"""Reading reports: peak memory, and time as a ratio to reading the same file and discarding the rows.

    python benchmarks/parsing.py --mb 200
    python benchmarks/parsing.py --mb 1000
    python benchmarks/parsing.py --mb 1000 --growth

Every figure is for a whole process, imports included. In each round all programs run one after the other on the same
file; ratios are computed within a round, so that a busy machine slows both sides, and the median over the rounds is
shown. `--growth` measures memory only, for reports of this size and of four times this size.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.generate import SHAPES, write
from benchmarks.processes import Run, measured, peak, ratio

HEADER = (
    "import sys; stream = open(sys.argv[1], 'rb')\n"
    "skip = next(at for at, line in enumerate(stream) if line.startswith(b'\"ID\"'))\n"
    "stream.seek(0); names = [line for at, line in zip(range(skip + 1), stream)][-1].decode().strip().split(',')\n"
)
OPEN_CSV = HEADER + (
    "import pyarrow as pa, pyarrow.csv as csv\n"
    "names = [str(at) for at in range(len(names))]\n"
    "reader = csv.open_csv(sys.argv[1], csv.ReadOptions(column_names=names, skip_rows=skip + 1, block_size=1 << 20),\n"
    "    csv.ParseOptions(), csv.ConvertOptions(column_types={name: pa.string() for name in names}))\n"
    "print(sum(batch.num_rows for batch in reader))\n"
)
CSV_READER = "import csv, sys\nprint(sum(1 for row in csv.reader(open(sys.argv[1], newline=''))))\n"
PANDAS = HEADER + (
    "import pandas\n"
    "rows = pandas.read_csv(sys.argv[1], skiprows=skip)\n"
    "rows['Metric Value'] = rows['Metric Value'].astype(str).str.replace(',', '').astype(float)\n"
    "sums = rows.groupby(['Kernel Name', 'Metric Name'])['Metric Value'].sum()\n"
    "means = pandas.pivot_table(rows, index='Kernel Name', columns='Metric Name', values='Metric Value')\n"
    "launches = rows.groupby('Kernel Name')['ID'].count() / len(means.columns)\n"
    "print(len(sums), launches.sum())\n"
)
"""Typical roofline script with pandas: sums by kernel name, ignores units, and drops the launches."""
IMPORTS = "import numpy, pyarrow.csv, pyarrow.parquet, pyarrow.compute\n"
REGULAR = ("long", "short", "wide30", "wide120")
"""Shapes that pyarrow can read; in the others, rows differ in length."""
GROWTH = 4


NCU_BENCH = str(Path(sys.executable).with_name("ncu-bench"))


def run(program: str, *arguments: str) -> Run:
    """Run a Python program. Raises `SystemExit` when it fails."""
    return measured([sys.executable, "-c", program, *arguments])


def parse(path: Path) -> Run:
    """Run `ncu-bench parse`, which writes the launches and their kernels. Raises `SystemExit` when it fails."""
    return measured([NCU_BENCH, "parse", str(path), "-o", str(path.with_name("launches.parquet"))])


def shape_line(shape: str, folder: Path, megabytes: float, rounds: int) -> str:
    """The line of one shape: our time and memory, and the ratios."""
    path = folder / f"{shape}.csv"
    write(shape, path, megabytes)
    ours, scans, loops = [], [], []
    for _ in range(rounds):
        ours.append(parse(path))
        if shape in REGULAR:
            scans.append(run(OPEN_CSV, str(path)))
        loops.append(run(CSV_READER, str(path)))
    path.unlink()
    seconds = statistics.median(one.seconds for one in ours)
    scan = ratio(ours, scans) if scans else "it fails"
    return f"| {shape} | {seconds:.2f} | {scan} | {ratio(ours, loops)} | {peak(ours)} |"


def noise_line(folder: Path, megabytes: float, rounds: int) -> str:
    """The line for program output between the rows: time as a ratio to the same report without it."""
    paths = {shape: folder / f"{shape}.csv" for shape in ("messy", "long")}
    runs: dict[str, list[Run]] = {shape: [] for shape in paths}
    for shape, path in paths.items():
        write(shape, path, megabytes)
    for _ in range(rounds):
        for shape, path in paths.items():
            runs[shape].append(parse(path))
    for path in paths.values():
        path.unlink()
    return f"| a messy report / a long one | {ratio(runs['messy'], runs['long'])} |"


def utf_16_line(folder: Path, megabytes: float, rounds: int) -> str:
    """The line for a report in UTF-16: time as a ratio to the same text in UTF-8."""
    path, twin = folder / "long.csv", folder / "long-utf-16.csv"
    write("long", path, megabytes)
    with path.open(encoding="utf-8", newline="") as text, twin.open("w", encoding="utf-16", newline="") as wide:
        for line in text:
            wide.write(line)
    narrow, wide_runs = [], []
    for _ in range(rounds):
        narrow.append(parse(path))
        wide_runs.append(parse(twin))
    path.unlink()
    twin.unlink()
    return f"| a long report in UTF-16 / in UTF-8 | {ratio(wide_runs, narrow)} |"


def piped_line(folder: Path, megabytes: float, rounds: int) -> str:
    """The line for a long report read from a pipe: time and memory as ratios to reading the file."""
    path = folder / "long.csv"
    write("long", path, megabytes)
    command = [NCU_BENCH, "parse", "-", "-o", str(folder / "launches.parquet")]
    files, pipes = [], []
    for _ in range(rounds):
        files.append(parse(path))
        pipes.append(measured(command, piped=path))
    path.unlink()
    return f"| a long report through a pipe / the file | {ratio(pipes, files)}; {peak(pipes)} MB / {peak(files)} MB |"


def script_line(folder: Path, megabytes: float, rounds: int) -> str:
    """The line for a script with pandas on a long report: time and memory as ratios to ours."""
    path = folder / "long.csv"
    write("long", path, megabytes)
    ours, scripts = [], []
    for _ in range(rounds):
        ours.append(parse(path))
        scripts.append(run(PANDAS, str(path)))
    path.unlink()
    return (
        f"| a long report by a script with pandas / ours | {ratio(scripts, ours)}; "
        f"{peak(scripts)} MB / {peak(ours)} MB |"
    )


def start_lines(folder: Path, rounds: int) -> list[str]:
    """The lines for short processes: reading a file of 10 MB, and printing the help text."""
    path = folder / "small.csv"
    write("long", path, 10)
    small, imports, helps, clicks = [], [], [], []
    for _ in range(rounds * 3):
        small.append(parse(path))
        imports.append(run(IMPORTS))
        helps.append(measured([NCU_BENCH, "--help"]))
        clicks.append(run("import click"))
    return [
        f"| a long report of 10 MB / importing numpy and pyarrow | {ratio(small, imports)} |",
        f"| `ncu-bench --help` / `import click` | {ratio(helps, clicks)} |",
    ]


def growth_line(shape: str, folder: Path, megabytes: float, rounds: int) -> str:
    """The line for reports of two sizes: minimum, median and maximum of peak memory, and the growth of the median."""
    path, peaks = folder / f"{shape}.csv", []
    for size in (megabytes, GROWTH * megabytes):
        write(shape, path, size)
        peaks.append(sorted(parse(path).megabytes for _ in range(rounds)))
        path.unlink()
    texts = " | ".join(f"{one[0]:.0f}, {statistics.median(one):.0f}, {one[-1]:.0f}" for one in peaks)
    little, much = map(statistics.median, peaks)
    return f"| {shape} | {texts} | {100 * (much / little - 1):+.0f} % |"


def measure_growth(shapes: Sequence[str], megabytes: float, rounds: int) -> None:
    """Print how peak memory grows with the size of the report."""
    print(f"| shape | MB for {megabytes:.0f} MB | for {GROWTH * megabytes:.0f} MB | median |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for shape in shapes:
            print(growth_line(shape, Path(folder), megabytes, rounds), flush=True)


def measure(shapes: Sequence[str], megabytes: float, rounds: int) -> None:
    """Print time and memory as ratios to other readers."""
    print("| shape | s | x open_csv | x csv.reader | peak MB |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for shape in shapes:
            print(shape_line(shape, Path(folder), megabytes, rounds), flush=True)
        print("\n| whole processes | ratio |\n|---|---|")
        print(noise_line(Path(folder), megabytes, rounds), flush=True)
        print(utf_16_line(Path(folder), megabytes, rounds), flush=True)
        print(piped_line(Path(folder), megabytes, rounds), flush=True)
        print(script_line(Path(folder), megabytes, rounds), flush=True)
        print("\n".join(start_lines(Path(folder), rounds)))


def main() -> None:
    """Print the results as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES)
    parser.add_argument("--growth", action="store_true")
    asked = parser.parse_args()
    print(
        f"{asked.mb:.0f} MB, median of {asked.rounds} rounds, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}\n"
    )
    (measure_growth if asked.growth else measure)(asked.shapes, asked.mb, asked.rounds)


if __name__ == "__main__":
    main()
