"""The file of baselines, written by several at a time."""

from __future__ import annotations

import math
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError

from ncu_tools.pytest_plugin.baselines import FOLDER, Baseline, BaselineFile
from ncu_tools.pytest_plugin.measured import BY_EVENTS, KernelProfile

ONE = Baseline("ncu", 12.5, (12.0, 13.0), {"flops": 8192.0, "registers": 32.0})


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    file = BaselineFile.beside(tmp_path / "test_gemm.py", "NVIDIA L4")
    with ThreadPoolExecutor(8) as several:
        list(several.map(lambda number: file.write({f"test_{number}": ONE}), range(32)))
    assert file.read() == {f"test_{number}": ONE for number in range(32)}
    assert [one.name for one in (tmp_path / FOLDER).iterdir()] == ["NVIDIA-L4.json"]


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / FOLDER).touch()
    with pytest.raises(NcuBenchError, match="could not be written"):
        BaselineFile.beside(tmp_path / "test_gemm.py", "cpu").write({"a": ONE})


@given(st.text(min_size=1))
def test_whatever_a_device_is_called_its_file_lies_in_the_folder(device: str) -> None:
    assert BaselineFile.beside(Path("tests/test_gemm.py"), device).path.parent == Path("tests") / FOLDER


@given(st.lists(st.floats(1, 1e12), min_size=1, max_size=50))
def test_the_time_of_a_baseline_is_the_mean_of_medians_of_its_calls(samples: list[float]) -> None:
    base = KernelProfile(BY_EVENTS, "a GPU", tuple(samples)).baseline
    assert len(base.block_medians_ns) == min(20, len(samples))
    assert min(samples) - 0.1 <= min(base.block_medians_ns) <= max(base.block_medians_ns) <= max(samples) + 0.1
    assert math.isclose(base.time_ns, statistics.fmean(base.block_medians_ns), rel_tol=1e-9, abs_tol=0.2)


def test_a_moment_of_another_process_does_not_move_the_time() -> None:
    calm = [100.0] * 400
    busy = [20e6 if at % 10 == 0 else one for at, one in enumerate(calm)]
    assert KernelProfile(BY_EVENTS, "a GPU", tuple(busy)).time_ns == 100


@given(st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)), st.text())
def test_what_is_written_is_read(counts: dict[str, float], name: str) -> None:
    import json

    from ncu_tools.pytest_plugin.baselines import _baseline, _text

    one = Baseline("CUDA events", 1.5, (1.0, 2.0), counts, 3)
    assert _baseline(json.loads(_text("a device", {name: one}))["tests"][name]) == one
