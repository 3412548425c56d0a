"""CSV reports of any size in the layouts of Nsight Compute, with made-up numbers.

    python -m benchmarks.generate long report.csv --mb 200

Everything that decides the reading speed is as in real reports: all cells quoted, thousands separators, units scaled
per row, few and unevenly used kernel names that make up most of the bytes, rule rows longer than metric rows, program
output between rows.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import TextIO

SHAPES = ("long", "short", "ragged", "messy", "wide30", "wide120")
KERNELS = 300
NAME_LENGTHS = {"short": (20, 60)}
LONG_NAMES = (200, 900)

IDENTITY = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
    "Device", "CC",
)  # fmt: skip
LONG = ("Section Name", "Metric Name", "Metric Unit", "Metric Value")
RULES = ("Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup")

SCALES = {
    "byte": (("Gbyte", 1e9), ("Mbyte", 1e6), ("Kbyte", 1e3)),
    "ns": (("s", 1e9), ("ms", 1e6), ("us", 1e3)),
    "hz": (("Ghz", 1e9), ("Mhz", 1e6)),
}
METRICS: tuple[tuple[str, str], ...] = (
    ("dram__bytes.sum", "byte"), ("dram__bytes_read.sum", "byte"), ("dram__bytes_write.sum", "byte"),
    ("lts__t_bytes.sum", "byte"), ("l1tex__t_bytes.sum", "byte"), ("gpu__time_duration.sum", "ns"),
    ("sm__cycles_elapsed.avg", "cycle"), ("sm__cycles_elapsed.avg.per_second", "hz"),
    *((f"smsp__sass_thread_inst_executed_op_{kind}{op}_pred_on.sum", "inst")
      for kind in "dfh" for op in ("add", "mul", "fma")),
    ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%"),
    ("sm__warps_active.avg.pct_of_peak_sustained_active", "%"),
    ("launch__registers_per_thread", "register/thread"),
)  # fmt: skip
WORDS = (
    "float", "double", "__half", "unsigned int", "at::native::", "cutlass::gemm::", "cub::", "thrust::detail::",
    "(int)128", "(bool)1", "RowMajor", "TileShape<", "Functor", "elementwise_kernel", "reduce_kernel",
)  # fmt: skip
OUTPUT = (
    "step 10, loss = 2.3456", '[rank0]: "hello, world" a=1,b=2', "==WARNING== Profiling overhead is high", "",
    '"a quote that does not close, x', "Epoch 3/10: 100%|####| 10/10", 'nan,inf,"",,,',
)  # fmt: skip
ADVICE = (
    'Memory is more heavily used than compute: look at the ""Memory Workload Analysis"" section to find the '
    "bottleneck, and check how many bytes are moved per request, e.g. 1,024, against what the kernel needs."
)


def kernel_names(generator: random.Random, lengths: tuple[int, int]) -> list[str]:
    """Distinct names of C++ kernels, each with a length in this range."""
    names = []
    for number in range(KERNELS):
        name = f"void k{number:03d}::kernel<"
        length = generator.randint(*lengths)
        while len(name) < length - 2:
            name += generator.choice(WORDS) + generator.choice((", ", "<", "> ", " const &, "))
        names.append(name[: length - 1] + ")")
    return names


def launches(generator: random.Random, names: list[str]) -> Iterator[tuple[str, float]]:
    """An endless series of launches: the identity cells that begin its rows, and its size (a factor on its values)."""
    sizes = [10 ** generator.uniform(2.2, 9.5) for _ in names]
    threads = [generator.choice((64, 128, 256, 512)) for _ in names]
    weights = [1 / (1 + place) for place in range(len(names))]
    for number in count():
        (kernel,) = generator.choices(range(len(names)), weights)
        grid, stream = generator.randint(1, 65535), generator.choice((7, 13, 19))
        yield (
            (
                f'"{number}","4711","train","node017","{names[kernel]}","1","{stream}","({threads[kernel]}, 1, 1)",'
                f'"({grid}, 1, 1)","0","8.0"'
            ),
            sizes[kernel],
        )


def printed(generator: random.Random, unit: str, size: float, *, scaled: bool) -> tuple[str, str]:
    """The unit and the text of a random value, in a larger unit when `scaled`."""
    value = size * (0.5 + generator.random())
    if unit == "%":
        return unit, f"{generator.random() * 100:.2f}"
    if unit == "hz":
        value = 1.2e9 + generator.random() * 5e8
    if unit == "register/thread":
        value = generator.choice((16, 32, 64, 128, 255))
    if unit == "inst" and generator.random() < 0.4:
        value = 0
    for larger, factor in SCALES.get(unit, ()) if scaled else ():
        if value >= factor:
            return larger, f"{value / factor:,.2f}"
    return unit, f"{value:,.2f}" if unit in ("cycle", "hz") else f"{int(value):,}"


def long_rows(generator: random.Random, identity: str, size: float, shape: str) -> list[str]:
    """The rows of one launch."""
    end = "," if shape == "ragged" else ""
    rows = []
    for name, unit in METRICS:
        printed_unit, text = printed(generator, unit, size, scaled=True)
        rows.append(f'{identity},"Command line profiler metrics","{name}","{printed_unit}","{text}"{end}')
    if shape == "ragged":
        for _ in range(3):
            rule = f'"SOLBottleneck","OPT","{ADVICE}","global","{generator.random() * 50:.2f}"'
            rows.insert(generator.randrange(len(rows)), f'{identity},"Speed Of Light","","","",{rule}')
    return rows


def add_noise(generator: random.Random, rows: list[str], header: str) -> None:
    """Insert program output, a header, n/a or a carriage return into eight launches of a hundred."""
    chance = generator.random()
    if chance < 0.05:
        rows.insert(generator.randrange(len(rows) + 1), generator.choice(OUTPUT))
    elif chance < 0.06:
        rows.insert(0, header)
    elif chance < 0.07:
        cells = rows[-1].rsplit(",", 2)
        rows[-1] = f'{cells[0]},"","n/a"'
    elif chance < 0.08:
        rows[0] += "\r"


def wide_metrics(number: int) -> list[tuple[str, str]]:
    """The names and base units of `number` metrics."""
    units = ("inst", "cycle", "%", "byte")
    more = [(f"smsp__inst_executed_pipe_p{place}.sum", units[place % 4]) for place in range(number - len(METRICS))]
    return [*METRICS, *more]


def quoted(cells: tuple[str, ...] | list[str]) -> str:
    """A CSV row of quoted cells; the cells must not contain quotes."""
    return ",".join(f'"{cell}"' for cell in cells)


def write(shape: str, path: Path, megabytes: float, most: int | None = None) -> None:
    """Write a report of about this size, with at most `most` launches; the same arguments give the same bytes."""
    generator = random.Random(1)  # noqa: S311 - not for secrets
    names = kernel_names(generator, NAME_LENGTHS.get(shape, LONG_NAMES))
    with path.open("w", newline="", buffering=1 << 20) as file:
        written = file.write("==PROF== Connected to process 4711\nstep 0, loss = 9.1\n")
        rows_of = _wide(file, shape) if shape.startswith("wide") else _long(file, shape)
        for identity, size in islice(launches(generator, names), most):
            written += file.write(rows_of(generator, identity, size))
            if written >= megabytes * 1e6:
                break


def _long(file: TextIO, shape: str) -> Callable[[random.Random, str, float], str]:
    header = quoted([*IDENTITY, *LONG, *(RULES if shape == "ragged" else ())])
    file.write(header + "\n")

    def rows(generator: random.Random, identity: str, size: float) -> str:
        lines = long_rows(generator, identity, size, shape)
        if shape == "messy":
            add_noise(generator, lines, header)
        return "\n".join(lines) + "\n"

    return rows


def _wide(file: TextIO, shape: str) -> Callable[[random.Random, str, float], str]:
    metrics = wide_metrics(int(shape.removeprefix("wide")))
    file.write(quoted([*IDENTITY, *(name for name, _ in metrics)]) + "\n")
    file.write(quoted([*("" for _ in IDENTITY), *(unit for _, unit in metrics)]) + "\n")

    def row(generator: random.Random, identity: str, size: float) -> str:
        texts = [printed(generator, unit, size, scaled=False)[1] for _, unit in metrics]
        return f"{identity},{quoted(texts)}\n"

    return row


def main() -> None:
    """Write one report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("output", type=Path)
    parser.add_argument("--mb", type=float, default=10)
    asked = parser.parse_args()
    write(asked.shape, asked.output, asked.mb)


if __name__ == "__main__":
    main()
