"""Rooflines of a million launches: time as a ratio to five thousand launches, and the sizes of SVG files.

    python -m benchmarks.pictures
    python -m benchmarks.pictures --launches 200000 --rounds 3

Every figure is for a whole process of `ncu-bench roofline`, imports included. In each round all processes run one after
the other; ratios are computed within a round, and the median over the rounds is shown.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from ncu_parsers.schema import arrays, tables

from benchmarks.processes import Run, measured, peak, ratio

FEW = 5_000
KERNELS = 300
PROGRAM = "import sys; from ncu_tools.cli import main; main()"
FURTHER_METRICS = 30
"""The number of metrics in the file that no picture needs."""
VIEWS: dict[str, list[str]] = {
    "launches": ["--points", "launches"],
    "kernels": [],
    "kernels, DRAM, L2 and L1": ["--levels", "dram,l2,l1"],
}


def launches(rows: int) -> pa.Table:
    """A table of launches of `KERNELS` unevenly used kernels, with random FLOPs and bytes, on an A100."""
    generator = np.random.default_rng(1)
    kernel = np.minimum(generator.geometric(0.02, rows) - 1, KERNELS - 1)
    flops = (10 ** generator.uniform(4, 11, KERNELS))[kernel] * generator.lognormal(0, 0.2, rows)
    dram = flops / ((10 ** generator.uniform(-1.5, 2.5, KERNELS))[kernel] * generator.lognormal(0, 0.1, rows))
    best = np.maximum(flops / 15e12, dram / 1.5e12)
    slower = (10 ** generator.uniform(0.05, 1.5, KERNELS))[kernel] * generator.lognormal(0, 0.1, rows)
    names = [f"void layer_{number % 17}::kernel_{number}<float, {number}>(float *, int)" for number in range(KERNELS)]
    columns: dict[str, pa.Array] = {
        "source": arrays.repeated("ncu", rows),
        "device_name": arrays.repeated("NVIDIA A100-SXM4-40GB", rows),
        "compute_capability": arrays.repeated("8.0", rows),
        "kernel_name": pa.DictionaryArray.from_arrays(arrays.indices(kernel.astype(np.int32)), arrays.texts(names)),
        "failed": arrays.booleans(np.zeros(rows, bool)),
        "flops_basis": arrays.repeated("fp64 + fp32", rows),
    }
    numbers: dict[str, Any] = {
        "duration_ns": best * slower * 1e9 + 1000, "flops": flops, "flops_fp32": flops, "flops_fp64": 0 * flops,
        "dram_bytes": dram, "l2_bytes": 2 * dram, "l1_bytes": 3.5 * dram,
        "peak_flops_fp32": np.full(rows, 14.93e12), "dram_clock_hz": np.full(rows, 1.215e9),
        "dram__bytes.sum.peak_sustained": np.full(rows, 1280.0),
        **{f"sm__metric_{number}.avg": generator.random(rows) for number in range(FURTHER_METRICS)},
    }  # fmt: skip
    columns |= {name: arrays.floats(values) for name, values in numbers.items()}
    columns |= {column.name: pa.nulls(rows, column.type) for column in tables.COLUMNS if column.name not in columns}
    table = pa.table({name: columns[name] for name in tables.contract_first(columns)})
    return tables.with_metadata(table, {"schema_version": tables.SCHEMA_VERSION, "reports": [], "notes": []})


def drawn(file: Path, options: list[str], picture: Path) -> Run:
    """Run a process that draws a file of launches."""
    return measured([sys.executable, "-c", PROGRAM, "roofline", str(file), *options, "-o", str(picture)])


def line(view: str, files: tuple[Path, Path], rounds: int) -> str:
    """The line of one view, for many launches and for few."""
    picture = files[0].with_suffix(".png")
    many, few = [], []
    for _ in range(rounds):
        many.append(drawn(files[0], VIEWS[view], picture))
        few.append(drawn(files[1], VIEWS[view], picture))
    sizes = []
    for file in files:
        drawn(file, VIEWS[view], file.with_suffix(".svg"))
        sizes.append(file.with_suffix(".svg").stat().st_size / 1e3)
    seconds = statistics.median(run.seconds for run in many)
    return f"| {view} | {seconds:.2f} | {ratio(many, few)} | {peak(many)} | {sizes[0]:.0f} | {sizes[1]:.0f} |"


def write(folder: Path, rows: int) -> Path:
    """Write launches and their kernels into a folder, as `parse` does, and return the file of launches.

    A separate process writes them, since this process's memory would count in all child processes.
    """
    folder.mkdir()
    program = (
        "import sys; from pathlib import Path; from benchmarks.pictures import launches\n"
        "from ncu_parsers.parquet.writer import write_table; from ncu_tools.kernels.kernel_cache import cache_kernels\n"
        "file = Path(sys.argv[1]); write_table(launches(int(sys.argv[2])), file); cache_kernels(file)"
    )
    file = folder / "launches.parquet"
    measured([sys.executable, "-c", program, str(file), str(rows)])
    return file


def main() -> None:
    """Print the results as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    print(f"{asked.launches:,} launches against {FEW:,}, median of {asked.rounds} rounds, {os.cpu_count()} cores\n")
    print("| points | s | x few launches | peak MB | SVG kB | SVG kB of few |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = write(folder / "many", asked.launches), write(folder / "few", FEW)
        for view in VIEWS:
            print(line(view, files, asked.rounds), flush=True)


if __name__ == "__main__":
    main()
