"""NVBench and pytest-benchmark as points: times in ns with their variance, commit and machine; anything else is refused."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError
from ncu_parsers.point_files import is_point_file, read_points

PYTEST = {
    "machine_info": {"node": "ci", "python_version": "3.12.1", "cpu": {"brand_raw": "Xeon"}},
    "commit_info": {"id": "abc", "time": "2026-03-01T10:00:00+01:00", "dirty": False},
    "benchmarks": [
        {"name": "test_a", "fullname": "b.py::test_a", "stats": {"mean": 2e-3, "stddev": 1e-4, "rounds": 100}},
        {"name": "test_b", "stats": {"mean": 1e-3, "rounds": 1}},
        {"name": "test_failed", "stats": None},
    ],
    "datetime": "2026-03-02T10:00:00",
    "version": "5.1.0",
}


def state(device: int, time: str, **more: Any) -> dict[str, Any]:
    numbers = {"nv/cold/time/gpu/mean": time, "nv/cold/time/gpu/stdev/relative": "0.01", "nv/cold/sample_size": "100"}
    data = [
        {"tag": tag, "data": [{"name": "value", "type": "float64", "value": text}]} for tag, text in numbers.items()
    ]
    axes = [{"name": "T", "type": "string", "value": "F32"}, {"name": "n", "type": "int64", "value": "1024"}]
    return {"device": device, "axis_values": axes, "summaries": data, "is_skipped": False, **more}


NVBENCH = {
    "meta": {"version": {"json": {"string": "1.0.0"}, "nvbench": {"string": "0.1.0"}}},
    "devices": [{"id": 0, "name": "H100", "sm_version": 900}],
    "benchmarks": [{"name": "reduce", "states": [state(0, "1.5e-4"), state(0, "2e-4", is_skipped=True)]}],
}
OF_2021 = {
    "devices": [{"id": 0, "name": "A100", "sm_version": 800}, {"id": 1, "name": "T4", "sm_version": 750}],
    "benchmarks": [
        {
            "name": "copy",
            "states": [
                {
                    "device": 1,
                    "axis_values": None,
                    "summaries": {"Average GPU Time (Cold)": {"values": [{"name": "value", "value": 3e-5}]}},
                }
            ],
        }
    ],
}


def written(tmp_path: Path, values: Any) -> Path:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(values))
    return path


def test_pytest_benchmark_has_times_with_variances_commit_and_machine(tmp_path: Path) -> None:
    path = written(tmp_path, PYTEST)
    assert is_point_file(path)
    found = read_points(path)
    assert astuple(found.points[0]) == ("b.py::test_a", pytest.approx(2e6), pytest.approx(1e8))
    assert (found.points[1].name, math.isnan(found.points[1].variance), len(found.points)) == ("test_b", True, 2)
    assert (found.commit, found.committed, found.measured) == (
        "abc",
        "2026-03-01T10:00:00+01:00",
        "2026-03-02T10:00:00",
    )
    assert found.conditions == {"machine": "Xeon", "host": "ci", "version of Python": "3.12.1"}


def test_pytest_benchmark_outside_of_a_repository_has_no_commit(tmp_path: Path) -> None:
    found = read_points(written(tmp_path, {**PYTEST, "commit_info": {"id": "unversioned", "time": None}}))
    assert (found.commit, found.committed) == ("", "")


@pytest.mark.parametrize(("mean", "points"), [(1.0, 1), (1e300, 0)])
def test_a_number_beyond_floats_in_ns_is_not_known(tmp_path: Path, mean: float, points: int) -> None:
    stats = [{"mean": 2.0, "stddev": 1e200, "rounds": 5}, {"mean": mean, "stddev": 1.0, "rounds": 5}]
    found = read_points(written(tmp_path, {**PYTEST, "benchmarks": [{"name": "a", "stats": one} for one in stats]}))
    assert (len(found.points), math.isnan(found.points[0].variance)) == (1 + points, True)


def test_nvbench_has_a_point_per_state_by_its_axes_and_none_of_those_skipped(tmp_path: Path) -> None:
    path = written(tmp_path, NVBENCH)
    assert is_point_file(path)
    found = read_points(path)
    (only,) = found.points
    assert astuple(only) == ("reduce T=F32 n=1024", pytest.approx(1.5e5), pytest.approx(1.5e3**2 / 100))
    assert found.conditions == {"GPU": "H100", "version of NVBench": "0.1.0"}


def test_nvbench_of_earlier_releases_has_summaries_by_name_and_devices_in_the_name(tmp_path: Path) -> None:
    (only,) = read_points(written(tmp_path, OF_2021)).points
    assert (only.name, only.time_ns, math.isnan(only.variance)) == ("copy on T4", pytest.approx(3e4), True)


@pytest.mark.parametrize("text", ['{"traceEvents": []}', "[1, 2]", "", "no JSON"])
def test_other_files_are_none_of_these(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    assert not is_point_file(path)
    assert not is_point_file(tmp_path / "missing.json")
    assert not is_point_file(written(tmp_path, PYTEST).rename(tmp_path / "result.txt"))


@pytest.mark.parametrize(
    "text", ['{"machine_info": ', '{"machine_info": 3}', '{"sm_version": 3, "benchmarks": 4}', "[]"]
)
def test_a_damaged_or_empty_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cut.json"
    path.write_text(text)
    with pytest.raises(NcuBenchError, match=r"could not be read as JSON|holds no measured time"):
        read_points(path)


ANY = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted({*PYTEST, "devices", "stats"})), inner)
    ),
    max_leaves=10,
)


@given(
    ANY, st.sampled_from(["machine_info", "devices"]), st.sampled_from(["benchmarks", "commit_info", "machine_info"])
)
def test_whatever_stands_in_the_file_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, value: Any, key: str, other: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any-points.json"
    path.write_text(json.dumps({**(PYTEST if key == "machine_info" else NVBENCH), other: value}))
    with suppress(NcuBenchError):
        assert read_points(path).points


def test_a_device_whose_id_is_no_number_is_a_device_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "points.json"
    path.write_text(
        json.dumps({**NVBENCH, "devices": [{"id": {}}], "benchmarks": [{"name": "a", "states": [state(0, "1e-4")]}]})
    )
    assert [point.time_ns for point in read_points(path).points] == [pytest.approx(1e5)]
