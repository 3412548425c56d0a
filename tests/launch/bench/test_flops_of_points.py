"""Which FLOPs of a workload a measured point holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ncu_launch.bench.flops_of_points import NO_OPERATOR, flops_columns
from ncu_launch.workload_spec import Workload

from tests.support.installed import WITHOUT_TORCH


def columns(**changes: Any) -> tuple[Any, Any, Any]:
    summary = {
        "flops": 0.0, "flops_operators": 20_480.0, "integer_contractions": 0, "unknown_operators": {},
        "uncounted_operators": {}, **changes,
    }  # fmt: skip
    found = flops_columns(summary)
    return found["expected_flops"], found["expected_flops_basis"], found["expected_why_not"]


def test_a_workload_without_a_contraction_has_the_flops_of_all_its_operators() -> None:
    assert columns() == (20_480.0, "all operators", None)


def test_a_workload_with_a_contraction_has_those_of_contractions_alone() -> None:
    assert columns(flops=8e9, flops_operators=9e9) == (8e9, "contractions", None)


def test_products_of_integers_are_contractions_and_have_no_flops() -> None:
    assert columns(integer_contractions=1) == (0.0, "contractions", None)


def test_an_operator_without_a_formula_leaves_flops_unknown_and_is_named() -> None:
    sort = columns(flops_operators=None, uncounted_operators={"aten::sort": 1})
    assert sort == (None, None, "no formula for aten::sort")
    unknown = columns(flops=None, flops_operators=None, unknown_operators={"mine::product": 2})
    assert unknown == (None, None, "no formula for mine::product")


def test_a_workload_with_a_contraction_needs_no_formula_of_its_other_operators() -> None:
    assert columns(flops=8e9, flops_operators=None, uncounted_operators={"aten::sort": 1}) == (
        8e9, "contractions", None,
    )  # fmt: skip


@pytest.mark.slow
def test_work_that_is_not_of_pytorch_has_no_flops_bytes_and_self_time_rather_than_0(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason=WITHOUT_TORCH)
    from ncu_launch.bench.memory_and_self_times import self_times
    from ncu_launch.bench.point_process import expected_work
    from ncu_launch.bench.timed_iteration import Iteration

    source = "import numpy\nimport torch\ndef f():\n    return numpy.ones((8, 8)) @ numpy.ones((8, 8))\n"
    (tmp_path / "k.py").write_text(source + "def g():\n    return torch.ones(8).exp()\n", encoding="utf-8")
    assert expected_work(Workload(f"{tmp_path}/k.py:f", device="cpu", phases=("forward",))) == {
        "expected_why_not": NO_OPERATOR
    }
    assert expected_work(Workload(f"{tmp_path}/k.py:g", device="cpu", phases=("forward",)))["expected_bytes"] > 0
    idle = Iteration(lambda: None, lambda prepared: None, lambda: None)
    assert self_times(idle, "cpu") == {"self_cpu_time_ns": None, "self_gpu_time_ns": None}


@pytest.mark.slow
def test_where_there_is_a_gpu_a_function_is_counted_in_a_process_that_does_not_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason=WITHOUT_TORCH)
    from ncu_launch.bench import point_process

    said = "import os\ndef f():\n    raise RuntimeError(repr(os.environ.get('CUDA_VISIBLE_DEVICES')))\n"
    (tmp_path / "k.py").write_text(said, encoding="utf-8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    found = point_process.expected_work(Workload(f"{tmp_path}/k.py:f", device="cpu", phases=("forward",)))
    assert found["expected_why_not"].endswith("RuntimeError: ''")
