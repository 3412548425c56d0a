"""FP32 products of KernelBench (ScalingIntelligence, MIT) on many GPUs; they also show the peak under a power limit.

Sizes are those of the problem files; a later version of the benchmark uses larger ones. Times are host clock times
around each synchronised call.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from dataclasses import replace
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
    "f2b2e175": (2048, 2048, 2048), "808d2e4a": (1024, 2048, 4096), "2b15a7bc": (256, 256, 131072),
    "71a6a579": (16384, 16384, 32), "3cf8eae5": (8205, 5921, 2949), "3d75965e": (16384, 16384, 16),
    "963a3f87": (4096, 4096, 4096), "e751dbff": (2048, 4096, 8192), "1e7b7266": (256, 256, 524288),
    "d24386f4": (32768, 32768, 64), "518bbfb3": (8205, 5921, 2949), "dc8f28c9": (32768, 32768, 32),
}  # fmt: skip
"""Git blob of a problem file -> m, n, k, as that file says (KernelBench/level1 in ScalingIntelligence/KernelBench)."""
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
            sizes = PROBLEMS.get(row["problem"].rpartition(" ")[2])
            if sizes is not None and row["gpu"] in GPUS and row["source"].startswith("KernelBench"):
                times.setdefault(GPUS[row["gpu"]], []).append((*sizes, float(row["time_us"])))
    known = replace(known, entries=tuple(one for one in known.entries if one.dtype != "fp32"))
    for _ in range(ROUNDS):
        known = known.and_also(Learnt(tuple(_learnt(name, rows, known) for name, rows in times.items())))
    return Learnt(tuple(one for one in known.entries if one.dtype == "fp32"), source=SOURCE)


ROUNDS = 4
"""Each round holds to the numbers of the last: FP32 differs more from BF16, where it begins, than GPUs do in BF16."""


def _learnt(name: str, rows: Sequence[tuple[int, int, int, float]], known: Learnt) -> LearntEntry:
    machine = find_machine(name)
    hardware = hardware_of(machine, "fp32")
    if isinstance(hardware, str):
        raise ValueError(hardware)
    m, n, k, us = np.array(rows).T
    measured = TimedOperators(hardware, gemm_work(m, n, k, types()["fp32"]), us)
    return learnt_from_few("gemm", machine, "fp32", measured, known)[0]
