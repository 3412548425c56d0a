"""Operators of PyTorch traces on H100 (AMD-AGI/TraceLens, MIT) as a table of operators."""

from __future__ import annotations

import ast
import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measured_times import FOLDER
from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.model.expected_time.expected_times import learnt_alone
from ncu_tools.model.expected_time.hardware import hardware_of
from ncu_tools.model.expected_time.learning import MeasuredTimes
from ncu_tools.model.expected_time.movement_time import movement_work
from ncu_tools.model.expected_time.operator_rows import MOVEMENT, OperatorRows, operator_rows
from ncu_tools.model.expected_time.physics import TimedOperators

GPU, MACHINE = "NVIDIA H100", "h100-sxm"
TYPES = {"c10::BFloat16": "bf16", "float": "fp32", "c10::Half": "fp16"}
FROM_THE_HOST = 20.0
"""A copy this many times slower than its bytes require comes from the host; its shapes do not show that."""


def traced_operators(folder: Path = FOLDER) -> tuple[OperatorRows, np.ndarray[Any, Any]]:
    """Rows of ATen operators, and their mean microseconds on H100."""
    columns: dict[str, list[str]] = {name: [] for name in ("op", "dtype", "shapes", "causal")}
    times = []
    with gzip.open(folder / "points.tsv.gz", "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row["author"] != "AMD-AGI" or row["gpu"] != GPU:
                continue
            shapes, types, *_ = _tuples(row["problem"])
            dtype = next((TYPES[each] for each in types if each in TYPES), "bf16" if "TensorList" in types else "")
            values = (row["workload"].partition(": ")[2], dtype, json.dumps(shapes), "")
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
            times.append(float(row["time_us"]))
    return operator_rows(columns), np.array(times)


def _tuples(text: str) -> list[Any]:
    """Consecutive tuples in a text: shapes, types, strides, values."""
    found, depth, begin = [], 0, 0
    for place, letter in enumerate(text):
        if letter == "(":
            begin = place if depth == 0 else begin
            depth += 1
        elif letter == ")":
            depth -= 1
            if depth == 0:
                found.append(ast.literal_eval(text[begin : place + 1]))
    return found


def movement_times(folder: Path = FOLDER) -> list[MeasuredTimes]:
    """Operators that move data; rearranging ones are a kind of their own. Their data type affects only their bytes."""
    rows, times = traced_operators(folder)
    hardware = hardware_of(find_machine(MACHINE), "fp32")
    if isinstance(hardware, str):
        raise ValueError(hardware)
    moves = (rows.kinds == MOVEMENT) & (rows.failed == None)  # noqa: E711  of each row
    host = times > 100 + FROM_THE_HOST * rows.sizes["moved"] / hardware.dram
    chosen = np.flatnonzero(moves & ~host)
    work = movement_work(rows.sizes["moved"][chosen], rows.sizes["rearranges"][chosen])
    names = np.unique(np.array(rows.given["op"])[chosen], return_inverse=True)[1]
    timed = TimedOperators(hardware, work, times[chosen])
    return [
        MeasuredTimes(MOVEMENT, MACHINE, f"bf16{also}", timed, names).where(part)
        for also, part in learnt_alone(MOVEMENT, "bf16", "bf16", work)
    ]
