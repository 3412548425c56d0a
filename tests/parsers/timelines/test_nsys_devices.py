"""The GPU of a timeline's device number, per process, and for exports of every year."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.nsys.database import opened
from ncu_parsers.timelines.nsys.devices import Devices, TracedGpu, read_devices

from tests.support.timelines import PROCESS, Row, database

A100 = {"id": 0, "cuDevice": 0, "name": "NVIDIA A100", "chipName": "GA100", "computeMajor": 8, "computeMinor": 0}
H100 = {"id": 1, "cuDevice": 1, "name": "NVIDIA H100", "chipName": "GH100", "computeMajor": 9, "computeMinor": 0}
META = {"ANALYSIS_DETAILS": [{"duration": 1}]}


def devices(folder: Path, **tables: list[Row]) -> Devices:
    source = Source(str(database(folder / "t.sqlite", {**META, **tables})))
    with opened(source, "t.sqlite") as found:
        return read_devices(found)


def names(found: Devices, *pairs: tuple[int, int]) -> list[str | None]:
    known = found.of(*(np.array(column, np.int64) for column in zip(*pairs, strict=True)))
    return [known.names[code] for code in known.code.tolist()]


def test_a_process_restricted_to_some_gpus_numbers_them_from_0(tmp_path: Path) -> None:
    shown = [{"pid": PROCESS, "cudaId": 0, "gpuId": 1}]
    found = devices(tmp_path, TARGET_INFO_GPU=[A100, H100], TARGET_INFO_CUDA_DEVICE=shown)
    assert names(found, (PROCESS, 0), (8, 0), (8, 1)) == ["NVIDIA H100", "NVIDIA A100", "NVIDIA H100"]


def test_a_device_number_without_a_gpu_has_no_name(tmp_path: Path) -> None:
    found = devices(tmp_path, TARGET_INFO_GPU=[A100])
    assert names(found, (PROCESS, 0), (PROCESS, 5)) == ["NVIDIA A100", None]


def test_a_gpu_has_its_chip_and_compute_capability_if_the_export_does(tmp_path: Path) -> None:
    unknown = {**H100, "computeMajor": 0, "chipName": None}
    found = devices(tmp_path, TARGET_INFO_GPU=[A100, unknown])
    assert found.gpus == {0: TracedGpu("NVIDIA A100", "GA100", "8.0"), 1: TracedGpu("NVIDIA H100", None, None)}


def test_the_table_of_2020_uses_cuda_device_numbers(tmp_path: Path) -> None:
    old = {"deviceId": 3, "name": "Tesla V100", "computeCapabilityMajor": 7, "computeCapabilityMinor": 0}
    found = devices(tmp_path, TARGET_INFO_CUDA_GPU=[old])
    assert found.table == "TARGET_INFO_CUDA_GPU"
    assert found.gpus == {3: TracedGpu("Tesla V100", None, "7.0")}
    assert names(found, (PROCESS, 3)) == ["Tesla V100"]


def test_an_export_without_gpus_names_none(tmp_path: Path) -> None:
    found = devices(tmp_path)
    assert (found.table, names(found, (PROCESS, 0))) == ("", [None])
