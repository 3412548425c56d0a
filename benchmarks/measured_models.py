"""Measured times of whole models: timm's tables and NVIDIA's examples in ../shared/measured/points.tsv.gz."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ncu_launch.workload.meta_device_process import expectations_of
from ncu_launch.workload_spec import Workload

from benchmarks.measured_times import FOLDER
from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.model.expected_time.hardware import Hardware
from ncu_tools.model.expected_time.learning import MeasuredTimes
from ncu_tools.model.expected_time.learnt_times import shipped
from ncu_tools.model.expected_time.model_work import ModelOperator, model_work
from ncu_tools.model.expected_time.physics import TimedOperators

GPUS = {
    "NVIDIA GeForce RTX 3090": "rtx-3090", "NVIDIA GeForce RTX 4090": "rtx-4090", "NVIDIA GeForce RTX 5090": "rtx-5090",
    "Tesla T4": "t4", "Tesla V100-SXM2-16GB": "v100-sxm2-16gb",
}  # fmt: skip
EXAMPLES = {
    "resnet50v1.5": "resnet50",
    "resnext101-32x4d": "resnext101_32x4d",
    "se-resnext101-32x4d": "seresnext101_32x4d",
}
"""Model of NVIDIA's examples -> the same model in timm."""
AT_ONCE = 12
NOTHING = Hardware(1.0, 1.0, 1.0, 0.0)


class Point(NamedTuple):
    """A measured forward pass."""

    machine: str
    model: str
    batch: int
    size: int
    how: str
    time_us: float


def points(folder: Path = FOLDER) -> list[Point]:
    """Forward passes of models; `how` names a group that is fitted together, such as "bf16, eager"."""
    found = []
    with gzip.open(folder / "points.tsv.gz", "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            timm = re.fullmatch(r"timm (\S+) infer", row["workload"])
            example = re.fullmatch(r"DLE PyTorch/Classification/ConvNets/(\S+) inference", row["workload"])
            sizes = [int(number) for number in re.findall(r"\d+", row["problem"])]
            if row["gpu"] not in GPUS or not (timm or (example and example[1] in EXAMPLES)):
                continue
            name = timm[1] if timm else EXAMPLES[example[1]]  # type: ignore[index]
            mode = "compiled" if row["source"].endswith("compiled") else "eager"
            dtype = "bf16" if row["dtype"] == "amp" else "fp32"
            size = sizes[1] if len(sizes) > 1 else 224
            found.append(Point(GPUS[row["gpu"]], name, sizes[0], size, f"{dtype}, {mode}", float(row["time_us"])))
    return found


def operators_of_models(wanted: Sequence[Point]) -> dict[tuple[str, int, int], list[ModelOperator]]:
    """Operators of each model, counted on the meta device; models that cannot be counted are left out."""
    keys = sorted({(point.model, point.batch, point.size) for point in wanted})
    found = {}
    for begin in range(0, len(keys), AT_ONCE):
        some = keys[begin : begin + AT_ONCE]
        workloads = [Workload(f"timm:{m}", b, s, None, "fp16", phases=("forward",), device="cpu") for m, b, s in some]
        for key, one in zip(some, expectations_of(workloads), strict=True):
            if not one.why_not:
                found[key] = [_operator(json.loads(line)) for line in one.records.decode().splitlines()[1:]]
    return found


def _operator(record: dict[str, object]) -> ModelOperator:
    def number(name: str) -> float:
        return float(record.get(name) or 0)  # type: ignore[arg-type]

    shapes = record.get("shapes")
    return ModelOperator(
        str(record["operator"]), str(shapes) if shapes else None, number("contraction_flops"),
        number("read") + number("written"),
    )  # fmt: skip


def model_times(folder: Path = FOLDER) -> list[MeasuredTimes]:
    """Times of whole models, by machine, data type and mode."""
    everything = points(folder)
    operators = operators_of_models(everything)
    names = {name: number for number, name in enumerate(sorted({point.model for point in everything}))}
    learnt = shipped()
    together: dict[tuple[str, str], list[tuple[dict[str, float], Point]]] = {}
    for point in everything:
        counted = operators.get((point.model, point.batch, point.size))
        if counted is None:
            continue
        dtype = "fp16" if point.how.startswith("bf16") else "fp32"
        if dtype == "fp32":
            counted = [one._replace(moved=2 * one.moved) for one in counted]
        work = model_work(counted, find_machine(point.machine), dtype, dtype, learnt, compiled="compiled" in point.how)
        if not isinstance(work, str):
            row = {name: float(column[0]) for name, column in work.items()}
            row |= {"batch": float(point.batch), "pixels": float(point.size)}
            together.setdefault((point.machine, point.how), []).append((row, point))
    return [
        MeasuredTimes(
            "model", machine, how,
            TimedOperators(
                NOTHING, {name: np.array([row[name] for row, _ in rows], np.float32) for name in rows[0][0]},
                np.array([point.time_us for _, point in rows]),
            ),
            np.array([names[point.model] for _, point in rows]),
        )
        for (machine, how), rows in together.items()
    ]  # fmt: skip
