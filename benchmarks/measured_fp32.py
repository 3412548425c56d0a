"""FP32 products of KernelBench (ScalingIntelligence, MIT) on many GPUs; they also show the peak under a power limit.

Sizes are those of the problem files; a later version of the benchmark uses larger ones. Times are host clock times
around each synchronised call.
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np

from benchmarks.measured_times import FOLDER
from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.model.expected_time.gemm_time import gemm_work
from ncu_tools.model.expected_time.hardware import hardware_of, types
from ncu_tools.model.expected_time.learning import learnt_from_few
from ncu_tools.model.expected_time.learnt_times import Learnt, LearntEntry
from ncu_tools.model.expected_time.physics import TimedOperators

PROBLEMS = {
    ("KernelBench A", "1_Square_matrix"): (2048, 2048, 2048), ("KernelBench A", "2_Standard"): (1024, 2048, 4096),
    ("KernelBench A", "6_Matmul_with_large_K"): (256, 256, 131072),
    ("KernelBench A", "7_Matmul_with_small_K"): (16384, 16384, 32),
    ("KernelBench A", "8_Matmul_with_irregular"): (8205, 5921, 2949), ("KernelBench A", "9_Tall"): (16384, 16384, 16),
    ("KernelBench B", "1_Square_matrix"): (4096, 4096, 4096), ("KernelBench B", "2_Standard"): (2048, 4096, 8192),
    ("KernelBench B", "6_Matmul_with_large_K"): (256, 256, 524288),
    ("KernelBench B", "7_Matmul_with_small_K"): (32768, 32768, 64),
    ("KernelBench B", "8_Matmul_with_irregular"): (8205, 5921, 2949), ("KernelBench B", "9_Tall"): (32768, 32768, 32),
}  # fmt: skip
"""Version and problem -> m, n, k."""
GPUS = {
    "Tesla T4": "t4", "NVIDIA L4": "l4", "NVIDIA A10": "a10", "NVIDIA A10G": "a10g", "NVIDIA L40S": "l40s",
    "NVIDIA RTX A6000": "rtx-a6000", "NVIDIA GeForce RTX 3090 Ti": "rtx-3090-ti", "NVIDIA B200": "b200",
    "NVIDIA A100-SXM4-40GB": "a100-sxm4-40gb", "NVIDIA A100-SXM4-80GB": "a100-sxm4-80gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm", "NVIDIA H100 PCIe": "h100-pcie",
}  # fmt: skip
SOURCE = (
    "derived from times of KernelBench (ScalingIntelligence, MIT): https://github.com/ScalingIntelligence/KernelBench"
)


def fp32_products(known: Learnt, folder: Path = FOLDER) -> Learnt:
    """Learnt entries of FP32 products, from the few measured on each GPU."""
    times: dict[str, list[tuple[int, int, int, float]]] = {}
    with gzip.open(folder / "points.tsv.gz", "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            problem = row["workload"].removeprefix("KernelBench level1/")
            for (version, name), sizes in PROBLEMS.items():
                if row["source"] == version and problem.startswith(name) and row["gpu"] in GPUS:
                    times.setdefault(GPUS[row["gpu"]], []).append((*sizes, float(row["time_us"])))
    entries: list[LearntEntry] = []
    for name, rows in times.items():
        machine = find_machine(name)
        hardware = hardware_of(machine, "fp32")
        if isinstance(hardware, str):
            continue
        m, n, k, us = np.array(rows).T
        measured = TimedOperators(hardware, gemm_work(m, n, k, types()["fp32"]), us)
        entry, before, after = learnt_from_few("gemm", machine, "fp32", measured, known)
        print(f"{name} fp32: {len(rows)} products, off {before:.2f} before and {after:.2f} after")
        entries.append(entry)
    return Learnt(tuple(entries), source=SOURCE)
