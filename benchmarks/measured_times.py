"""Measured times of ../shared/measured in the form that the expected-time model learns; says which are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.model.expected_time.expected_times import learnt_alone, work_of
from ncu_tools.model.expected_time.gemm_time import gemm_work
from ncu_tools.model.expected_time.hardware import Hardware, hardware_of, types
from ncu_tools.model.expected_time.kinds import KINDS
from ncu_tools.model.expected_time.learning import MeasuredTimes
from ncu_tools.model.expected_time.physics import Floats, TimedOperators

FOLDER = Path(__file__).resolve().parents[1].parent / "shared" / "measured"
MACHINES = {
    "a100_sxm": "a100-sxm4-80gb", "h100_sxm": "h100-sxm", "h200_sxm": "h200", "l40s": "l40s", "b200_sxm": "b200",
    "b300_sxm": "b300", "gb200": "gb200", "gb300": "gb300", "rtx_pro_6000_server": "rtx-pro-6000-blackwell-server",
}  # fmt: skip
"""GPU of the data -> machine. The B60 of Intel has no machine file."""
TYPES = {"bfloat16": "bf16"}
"""Data types whose names differ between the data and the model."""
FILES = {
    "attention_context": "context_attention.parquet", "attention_generation": "generation_attention.parquet",
}  # fmt: skip
SIZES = {
    "batch": "batch_size", "heads": "num_heads", "kv_heads": "num_key_value_heads", "head_dim": "head_dim",
    "query": "isl", "context": "step", "window": "window_size",
}  # fmt: skip
"""Argument of attention -> column of the data."""
LEAST_OF_ROOF = 0.95
SMALLEST_BLOCK = 128
"""For smaller n or k, fp8_block measures the host: 175 to 700 us at any size."""


def gemm_times(folder: Path = FOLDER) -> list[MeasuredTimes]:
    """Times of GEMMs by machine and data type: the minimum over frameworks."""
    table = pq.read_table(folder / "gemm.parquet")
    columns = {name: table[name].to_numpy() for name in table.column_names}
    block = (columns["gemm_dtype"] == "fp8_block") & (np.minimum(columns["n"], columns["k"]) < SMALLEST_BLOCK)
    found = []
    for gpu, machine in MACHINES.items():
        for dtype in dict.fromkeys(columns["gemm_dtype"].tolist()):
            rows = (columns["gpu"] == gpu) & (columns["gemm_dtype"] == dtype) & ~block
            if rows.any():
                sizes = [columns[size][rows] for size in "mnk"]
                found.append(_gemms(machine, dtype, sizes, columns["latency_us"][rows]))
    return found


def framework_times(folder: Path = FOLDER) -> dict[str, list[MeasuredTimes]]:
    """Times of the same GEMMs on one H100 by framework, in two data types: the minimum over its versions."""
    table = pq.read_table(folder / "series_h100.parquet").to_pandas()
    shape = ["gemm_dtype", "m", "n", "k"]
    least = table.groupby(["framework", *shape])["latency_us"].min().unstack("framework").dropna()
    by_type = {dtype: rows.reset_index() for dtype, rows in least.groupby("gemm_dtype")}
    return {
        name: [
            _gemms("h100-sxm", dtype, [rows[size].to_numpy() for size in "mnk"], rows[name].to_numpy())
            for dtype, rows in by_type.items()
        ] for name in least
    }  # fmt: skip


def least_of(all_times: Sequence[MeasuredTimes]) -> MeasuredTimes:
    """The minimum of several times of the same operators."""
    least = np.minimum.reduce([one.measured.time_us for one in all_times])
    return replace(all_times[0], measured=all_times[0].measured._replace(time_us=least))


def _gemms(machine: str, dtype: str, sizes: Sequence[NDArray[np.int64]], time_us: Floats) -> MeasuredTimes:
    m, n, k = sizes
    name = TYPES.get(dtype, dtype)
    measured = TimedOperators(_hardware(machine, name), gemm_work(m, n, k, types()[name]), time_us.astype(float))
    return MeasuredTimes("gemm", machine, name, measured, n * 1_000_000 + k)


def _hardware(machine: str, dtype: str) -> Hardware:
    found = hardware_of(find_machine(machine), dtype)
    if isinstance(found, str):
        raise ValueError(found)
    return found


def attention_times(kind: str, folder: Path = FOLDER) -> list[MeasuredTimes]:
    """Times of attention by machine, data type, cache type and, for generation, large and small groups.

    The median over frameworks, since the minimum is often wrong; times more than 5 % below the roof are left out.
    """
    table = pq.read_table(folder / FILES[kind])
    columns = {name: table[name].to_numpy() for name in table.column_names}
    heads = ("num_heads", "num_key_value_heads", "head_dim", "window_size")
    groups = np.unique(np.stack([columns[name].astype(np.int64) for name in heads], 1), axis=0, return_inverse=True)[1]
    found = []
    for gpu, machine in MACHINES.items():
        for pair in sorted({*zip(columns["attn_dtype"].tolist(), columns["kv_cache_dtype"].tolist(), strict=True)}):
            dtype, cached = (TYPES.get(name, name) for name in pair)
            rows = (columns["gpu"] == gpu) & (columns["attn_dtype"] == pair[0]) & (columns["kv_cache_dtype"] == pair[1])
            if rows.any():
                sizes = {name: columns[column][rows].astype(float) for name, column in SIZES.items()}
                work = work_of(kind, dtype, cached, sizes)
                times = TimedOperators(_hardware(machine, dtype), work, columns["median_us"][rows].astype(float))
                enough = times.time_us >= LEAST_OF_ROOF * KINDS[kind].at_best(times.hardware, work)
                for also, part in learnt_alone(kind, dtype, cached, work):
                    name = types()[dtype].like + also
                    found.append(MeasuredTimes(kind, machine, name, times, groups[rows].ravel()).where(part & enough))
    return found
