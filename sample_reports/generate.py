"""Write the sample reports: python -m sample_reports.generate [FOLDER]

Each file is one of the dialects listed in README.md, byte for byte in ncu's layout; its numbers follow from the
workload's arithmetic. The output is reproducible; a test compares it with the committed files.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from sample_reports import dialects
from sample_reports.dialects import Cell, Printed, Style
from sample_reports.source_page import source_rows
from sample_reports.workload import DRAM_BYTES_PER_CYCLE, DRAM_CLOCK_HZ, PEAK_PER_CYCLE, SM_CLOCK_HZ, SMS, Kernel, step

SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
OPCODES = ("dadd", "dmul", "dfma", "fadd", "fmul", "ffma", "hadd", "hmul", "hfma")
TENSOR = ("bf16_dst_fp32", "fp16_dst_fp16", "fp16_dst_fp32", "fp64", "tf32_dst_fp32")
SPEED_OF_LIGHT = "GPU Speed Of Light Throughput"
SASS_NAMES = {
    "dadd": "DADD", "dmul": "DMUL", "dfma": "DFMA", "fadd": "FADD", "fmul": "FMUL", "ffma": "FFMA", "hfma": "HFMA2.MMA",
}  # fmt: skip
OPERATIONS_OF_HMMA = 2 * 16 * 8 * 16
PROFILING = [
    "==PROF== Connected to process 4711 (/home/user/app)",
    '==PROF== Profiling "relu" - 0: 0%....50%....100% - 3 passes',
]
PROGRAM = ["step 0, loss = 2.3026", '"step", 1, "loss", 2.2871', "0.42  0.42", "", "done in 1,234 ms"]
NO_PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters "
    "on the target device 0."
)


def counters(kernel: Kernel, *, peaks: bool = False) -> list[Cell]:
    """The metrics of `--metrics` for a roofline, in base units; with `peaks` also those that ceilings derive from."""
    cycles = kernel.duration_ns * SM_CLOCK_HZ / 1e9
    cells = [
        Cell("dram__bytes.sum", kernel.dram_read + kernel.dram_write, "byte"),
        Cell("dram__bytes_read.sum", kernel.dram_read, "byte"),
        Cell("dram__bytes_write.sum", kernel.dram_write, "byte"),
        Cell("gpu__time_duration.sum", kernel.duration_ns, "ns"),
        Cell("lts__t_bytes.sum", 2 * (kernel.dram_read + kernel.dram_write), "byte"),
        Cell("l1tex__t_bytes.sum", 3 * (kernel.dram_read + kernel.dram_write), "byte"),
        Cell("sm__cycles_elapsed.avg", round(cycles * 100), "cycle", 2),
        Cell("sm__cycles_elapsed.avg.per_second", round(SM_CLOCK_HZ * 100), "hz", 2),
        *(Cell(f"sm__ops_path_tensor_src_{kind}.sum", kernel.tensor.get(kind, 0)) for kind in TENSOR),
        *(Cell(SASS.format(opcode), kernel.opcodes.get(opcode, 0), "inst") for opcode in OPCODES),
    ]
    if peaks:
        cells += [
            Cell("device__attribute_display_name", "NVIDIA A100-PCIE-40GB"),
            Cell("device__attribute_compute_capability_major", 8),
            Cell("device__attribute_compute_capability_minor", 0),
            Cell("device__attribute_chip", 368),
            Cell("device__attribute_multiprocessor_count", SMS),
            Cell("dram__bytes.sum.peak_sustained", DRAM_BYTES_PER_CYCLE, "byte/cycle"),
            Cell("dram__cycles_elapsed.avg.per_second", round(DRAM_CLOCK_HZ * 100), "hz", 2),
            Cell(
                "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained",
                PEAK_PER_CYCLE["fp32"] * SMS,
                "inst/cycle",
            ),
            Cell(
                "sm__sass_thread_inst_executed_op_dfma_pred_on.sum.peak_sustained",
                PEAK_PER_CYCLE["fp64"] * SMS,
                "inst/cycle",
            ),
            Cell(
                "sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_off.sum.peak_sustained",
                PEAK_PER_CYCLE["tensor_bf16"] * SMS,
            ),
            Cell("launch__func_cache_config", "CachePreferNone"),
        ]
    return cells


def opcodes(kernel: Kernel) -> list[Cell]:
    """Time, bytes and counts per opcode by threads and by warps (for tensor instructions), without a FLOP counter."""
    threads = {name: kernel.opcodes.get(counter, 0) for counter, name in SASS_NAMES.items()}
    threads["MOV"] = 32 * math.prod(kernel.grid)
    warps = {name: count // 32 for name, count in threads.items()}
    warps["HMMA.16816.F32.BF16"] = kernel.tensor.get("bf16_dst_fp32", 0) // OPERATIONS_OF_HMMA
    threads["HMMA.16816.F32.BF16"] = 32 * warps["HMMA.16816.F32.BF16"]
    lists = {"thread_inst_executed_true": threads, "inst_executed": warps}
    cells = [cell for cell in counters(kernel) if "sass" not in cell.name and "ops_path" not in cell.name]
    for kind, counts in lists.items():
        some = {name: count for name, count in counts.items() if count}
        text = "; ".join(f"{name}: {count}" for name, count in some.items())
        cells.append(Cell(f"sass__{kind}_per_opcode_with_modifier_all", f"{sum(some.values())} ({text})"))
    return cells


def details(kernel: Kernel, *, old: bool = False, year_2019: bool = False) -> list[Cell]:
    """The speed-of-light section of the details page, with its display labels and scaled units."""
    bandwidth = (kernel.dram_read + kernel.dram_write) / kernel.duration_ns * 1e9
    peak = DRAM_BYTES_PER_CYCLE * DRAM_CLOCK_HZ
    hertz = "cycle/nsecond" if old or year_2019 else "Ghz"
    section = "GPU Speed Of Light" if year_2019 else SPEED_OF_LIGHT
    dram_frequency, throughput = ("Memory Frequency", "SOL FB") if year_2019 else ("DRAM Frequency", "DRAM Throughput")
    return [
        Cell(dram_frequency, round(DRAM_CLOCK_HZ / 1e7), hertz, 2, section),
        Cell("SM Frequency", round(SM_CLOCK_HZ / 1e7), hertz, 2, section),
        Cell("Elapsed Cycles", round(kernel.duration_ns * SM_CLOCK_HZ / 1e9), "cycle", 0, section),
        Cell("Duration", round(kernel.duration_ns / 10), "usecond" if old or year_2019 else "us", 2, section),
        Cell(throughput, round(bandwidth / peak * 1e4), "%", 2, section),
        Cell(
            "Memory Throughput",
            round(bandwidth / 1e7),
            "Gbyte/second" if old or year_2019 else "Gbyte/s",
            2,
            "Memory Workload Analysis",
        ),
        Cell("Block Size", kernel.block[0] * kernel.block[1] * kernel.block[2], "", 0, "Launch Statistics"),
        Cell("Grid Size", kernel.grid[0] * kernel.grid[1] * kernel.grid[2], "", 0, "Launch Statistics"),
        Cell("Function Cache Configuration", "CachePreferNone", "", 0, "Launch Statistics"),
        Cell("Achieved Occupancy", 7314, "%", 2, "Occupancy"),
        Cell("Registers Whatever", 42, "register/thread", 0, "Launch Statistics"),
    ]


def scaled(cells: Iterable[Cell], *, old: bool = False) -> list[Cell]:
    """Cells as ncu scales them without --print-units base (Kbyte to Gbyte, us or ms), each by its own value."""
    steps = {
        "byte": [(10**9, "Gbyte"), (10**6, "Mbyte"), (10**3, "Kbyte")],
        "ns": [(10**6, "msecond" if old else "ms"), (10**3, "usecond" if old else "us")],
    }
    result = []
    for cell in cells:
        for factor, name in steps.get(cell.unit, []):
            if isinstance(cell.digits, int) and cell.digits >= factor:
                cell = Cell(cell.name, round(cell.digits * 100 / factor), name, 2, cell.section, cell.body)
                break
        result.append(cell)
    return result


def printed(cells_of: Iterable[list[Cell]], kernels: list[Kernel]) -> list[Printed]:
    """Kernels as launches 0, 1, ... with their cells."""
    return [
        Printed(number, kernel.name, cells, grid=kernel.grid, block=kernel.block)
        for number, (kernel, cells) in enumerate(zip(kernels, cells_of, strict=True))
    ]


def reports() -> dict[str, bytes]:
    """Every sample: file name -> bytes."""
    kernels = step()
    few = kernels[:3]
    base = printed((counters(kernel) for kernel in kernels), kernels)
    raw = printed((counters(kernel, peaks=True) for kernel in kernels), kernels)
    shown = printed((details(kernel) for kernel in few), few)
    comma = Style(thousands=",")
    rules = [
        (
            "SpeedOfLight",
            "SOLBottleneck",
            "OPT",
            'Memory is more heavily utilized than Compute: see the "Memory" section, 1,024 bytes.',
        )
    ]
    texts = {
        "d01-wide-raw.csv": dialects.wide(raw, Style(above=PROFILING)),
        "d01-wide-raw-2022.csv": dialects.wide(raw, Style(), legacy=True),
        "d02-long-rules.csv": dialects.long(shown, comma, rules=rules),
        "d03-long-log.csv": dialects.long(
            base, Style(above=[*PROFILING, *PROGRAM], below=["==PROF== Disconnected from process 4711"])
        ),
        "d04-long-metrics.csv": dialects.long(base, comma),
        "d05-legacy-long.csv": dialects.long(_old(base), Style(), legacy=True),
        "d06-legacy-thousands.csv": dialects.long(_old(base), comma, legacy=True),
        "d07-nv-nsight-cu-cli-2019.csv": dialects.long(
            printed((details(k, year_2019=True) for k in few), few), Style(), legacy=True
        ),
        "d08-print-fp.csv": dialects.long(_with(base, _two_decimals), comma),
        "d09-units-per-row.csv": dialects.long(_with(base, _scaled_with_unknown), comma),
        "d10-details-all.csv": dialects.long(_with(shown, _with_bodies), comma, rules=rules, body=True),
        "d12-range-nvtx.csv": dialects.long(_ranges(base[:2]), Style(), rules=rules, nvtx=True, as_range=True),
        "d13-decimal-comma.csv": dialects.long(_with(base, _scaled_with_unknown), Style(decimal=",", thousands=".")),
        "d14-kernel-failed.csv": dialects.long(_failed(base), comma).replace('"ID"', '==ERROR== LaunchFailed\n"ID"', 1),
        "d15-no-permission.csv": "\n".join(
            [
                PROFILING[0],
                NO_PERMISSION,
                *PROGRAM,
                "==WARNING== No kernels were profiled.",
                "",
            ]
        ),
        "d15-no-kernels.csv": "\n".join([PROFILING[0], *PROGRAM, "==WARNING== No kernels were profiled.", ""]),
        "d16-ui-summary.csv": dialects.ui_summary(*_ui(few), Style()),
        "d17-section-occupancy.csv": dialects.long(
            _with(shown, lambda cells: [c for c in cells if c.section == "Occupancy"]), comma
        ),
        "d17-section-speed-of-light.csv": dialects.long(
            _with(shown, lambda cells: [c for c in cells if c.section == SPEED_OF_LIGHT]), comma
        ),
        "d18-text.txt": dialects.text(shown, Style(thousands=",", above=[*PROFILING, *PROGRAM])),
        "d19-summary-per-kernel.csv": dialects.summary(_summaries(kernels), comma),
        "d20-source-page.csv": "".join(dialects.quoted(row) + "\n" for row in source_rows()),
        "d21-instances-details.csv": dialects.wide(printed((opcodes(kernel) for kernel in kernels), kernels), Style()),
        "d21-instances.csv": dialects.wide(_with(base, _with_instances), Style()),
        "d22-session-page.csv": _session(),
        "d23-ui-properties.csv": dialects.ui_properties(base[:2], comma),
    }
    samples = {name: text.encode() for name, text in texts.items()}
    samples["d11-powershell-utf16.csv"] = dialects.long(
        base, Style(thousands=",", line_end="\r\n", above=["app.exe C:\\Users\\user", *PROGRAM])
    ).encode("utf-16")
    samples["d11-windows-bom.csv"] = (
        b"\xef\xbb\xbf" + dialects.long(base, Style(thousands=",", line_end="\r\n", above=PROFILING)).encode()
    )
    return dict(sorted(samples.items()))


def _with(launches: list[Printed], change: Callable[[list[Cell]], list[Cell]]) -> list[Printed]:
    return [Printed(**{**launch.__dict__, "cells": change(launch.cells)}) for launch in launches]


def _old(launches: list[Printed]) -> list[Printed]:
    """Cells with the unit words of 2022 and before, without tensor operations (counted since ncu 2023.2)."""
    words = {"ns": "nsecond", "hz": "cycle/second"}
    return _with(
        launches,
        lambda cells: [
            Cell(c.name, c.digits, words.get(c.unit, c.unit), c.decimals) for c in cells if "ops_path" not in c.name
        ],
    )


def _two_decimals(cells: list[Cell]) -> list[Cell]:
    return [Cell(c.name, c.digits * 10 ** (2 - c.decimals), c.unit, 2) for c in cells if isinstance(c.digits, int)]


def _scaled_with_unknown(cells: list[Cell]) -> list[Cell]:
    return [*scaled(cells), Cell("flop_count_sp.sum", "n/a")]


def _with_bodies(cells: list[Cell]) -> list[Cell]:
    rooflines = "GPU Speed Of Light Roofline Chart"
    extra = [
        Cell("SM Frequency", round(SM_CLOCK_HZ / 1e7), "Ghz", 2, rooflines, f"{precision} Precision Roofline")
        for precision in ("Single", "Double")
    ]
    breakdown = "{UNIT}: {COMPOUND_NAME} (dram__cycles_active.avg.pct_of_peak_sustained_elapsed)"
    dram = next(cell for cell in cells if cell.name == "DRAM Throughput")  # in this breakdown, DRAM is the only part
    return [
        *cells,
        *extra,
        Cell(breakdown, dram.digits, "%", dram.decimals, SPEED_OF_LIGHT, "Memory Throughput Breakdown"),
    ]


def _with_instances(cells: list[Cell]) -> list[Cell]:
    return [
        *cells[:4],
        Cell("sass__inst_executed_per_opcode", "30 (10; 20)", "inst"),
        Cell("launch__occupancy_per_block_size", "1698 {3}"),
    ]


def _ranges(launches: list[Printed]) -> list[Printed]:
    names = (("train step", "forward"), ("train:step", "backward"))
    return [Printed(**{**launch.__dict__, "ranges": ranges}) for launch, ranges in zip(launches, names, strict=True)]


def _failed(launches: list[Printed]) -> list[Printed]:
    """The first launch succeeds, the second fails."""
    cells = [Cell(cell.name, "nan", cell.unit) for cell in launches[1].cells]
    zero = (0, 0, 0)
    return [launches[0], Printed(**{**launches[1].__dict__, "cells": cells, "grid": zero, "block": zero})]


def _ui(kernels: list[Kernel]) -> tuple[list[Printed], list[tuple[str, str]]]:
    columns = [
        ("Estimated Speedup [%]", "speedup"),
        ("Duration [us]", "duration"),
        ("Memory Throughput [%]", "memory"),
        ("# Registers [register/thread]", "registers"),
    ]
    cells = [
        [
            Cell("speedup", 3490, "", 2),
            Cell("duration", round(k.duration_ns / 10), "", 2),
            Cell("memory", 8959, "", 2),
            Cell("registers", 40),
        ]
        for k in kernels
    ]
    return printed(cells, kernels), columns


def _summaries(kernels: list[Kernel]) -> list[tuple[Printed, int, list[tuple[Cell, Cell, Cell]]]]:
    """Two launches of the first kernel and one of the second; minimum and maximum differ from the average by 2 %."""
    groups = []
    for kernel, invocations in ((kernels[0], 2), (kernels[1], 1)):
        triples = []
        for cell in counters(kernel):
            if isinstance(cell.digits, str):
                continue
            spread = cell.digits // 50 if invocations > 1 and cell.name.startswith("gpu__time") else 0
            low, high = (Cell(cell.name, cell.digits + sign * spread, cell.unit, cell.decimals) for sign in (-1, 1))
            triples.append((low, high, cell))
        groups.append((Printed(0, kernel.name, [], grid=kernel.grid, block=kernel.block), invocations, triples))
    return groups


def _session() -> str:
    command = "/opt/nvidia/nsight-compute/2024.1.1/ncu --metrics dram__bytes.sum --csv app"
    lines = ["Launch Settings", '"Launch Attribute","Value"', dialects.quoted(["Profiler Command Line", command]), ""]
    lines += ["Session Info", '"Session Attribute","Value"', '"CUDA Version","12.4"', ""]
    lines += ["Device Attributes", '"Device Attribute","Device 0"', '"display_name","NVIDIA A100-PCIE-40GB"']
    return "\n".join([*lines, '"compute_capability_major","8"', '"compute_capability_minor","0"', ""])


def main(folder: Path) -> None:
    """Write every sample into `folder`."""
    for name, content in reports().items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
