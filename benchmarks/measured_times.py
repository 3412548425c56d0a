"""The measured times of ../shared/measured as the expected-time model learns them, with what is left out and why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.model.expected_time.gemm_time import gemm_work
from ncu_tools.model.expected_time.hardware import Hardware, hardware_of, types
from ncu_tools.model.expected_time.learning import MeasuredTimes
from ncu_tools.model.expected_time.physics import TimedOperators

FOLDER = Path(__file__).resolve().parents[1].parent / "shared" / "measured"
MACHINES = {
    "a100_sxm": "a100-sxm4-80gb", "h100_sxm": "h100-sxm", "h200_sxm": "h200", "l40s": "l40s", "b200_sxm": "b200",
    "b300_sxm": "b300", "gb200": "gb200", "gb300": "gb300", "rtx_pro_6000_server": "rtx-pro-6000-blackwell-server",
}  # fmt: skip
"""GPU of the data -> machine. The B60 of Intel has no machine file."""
TYPES = {"bfloat16": "bf16"}
"""Type of the data -> type of the model, where they differ."""
SMALLEST_BLOCK = 128
"""Below it, n or k of fp8_block run on the host's time: 175 to 700 us at any size."""


def gemm_times(folder: Path = FOLDER) -> list[MeasuredTimes]:
    """MeasuredTimes of GEMMs by machine and type: the least over frameworks."""
    table = pq.read_table(folder / "gemm.parquet")
    columns = {name: table[name].to_numpy() for name in table.column_names}
    classes = columns["n"] * 1_000_000 + columns["k"]
    block = (columns["gemm_dtype"] == "fp8_block") & (np.minimum(columns["n"], columns["k"]) < SMALLEST_BLOCK)
    found = []
    for gpu, machine in MACHINES.items():
        for dtype in dict.fromkeys(columns["gemm_dtype"].tolist()):
            rows = (columns["gpu"] == gpu) & (columns["gemm_dtype"] == dtype) & ~block
            if rows.any():
                name = TYPES.get(dtype, dtype)
                work = gemm_work(*(columns[size][rows] for size in "mnk"), types()[name])
                measured = TimedOperators(_hardware(machine, name), work, columns["latency_us"][rows].astype(float))
                found.append(MeasuredTimes("gemm", machine, name, measured, classes[rows]))
    return found


def _hardware(machine: str, dtype: str) -> Hardware:
    found = hardware_of(find_machine(machine), dtype)
    if isinstance(found, str):
        raise ValueError(found)
    return found
