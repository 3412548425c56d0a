"""Operators are timed again while other programs take the CPU, and the median of each call's times is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.bench.latency_statistics import Effort
from ncu_launch.workload import repeated_timing
from ncu_launch.workload.cpu_load import CpuLoad
from ncu_launch.workload.repeated_timing import MOST, Records, repeated

from tests.support.installed import WITHOUT_TORCH
from tests.support.models.models_here import profiled_here


def run_of(*times: float, operator: str = "aten.mm") -> Records:
    """A run of calls with these times in ns."""
    same = {"operator": operator, "phase": "forward", "module": "m", "dtype": "float32", "flops": 1.0}
    return [{**same, "shapes": f"{number}x2", "ns": time} for number, time in enumerate(times)]


def runs(*found: Records) -> Callable[[], Records]:
    following = iter(found)
    return lambda: next(following)


def not_wanted() -> Records:
    raise AssertionError("it was run again")


@pytest.mark.parametrize("others", [None, 0.0, 0.09])
def test_a_run_beside_little_else_is_left_as_it_is(others: float | None) -> None:
    first = run_of(5.0, 7.0)
    assert repeated(first, others, not_wanted) == []
    assert first == run_of(5.0, 7.0)


def test_times_beside_other_programs_are_medians_of_five_runs() -> None:
    first = run_of(50.0, 7.0)
    further = [run_of(10.0, 9.0), run_of(12.0, 8.0), run_of(11.0, 70.0), run_of(13.0, 6.0)]
    (note,) = repeated(first, 0.46, runs(*further))
    assert first == run_of(12.0, 8.0)
    assert note == (
        "other programs took 46 % of the CPU: each time is the median of 5 runs, whose totals differ by 310 %"
    )  # of 57, 19, 20, 81 and 19 ns: (81 - 19) / 20


def test_a_run_that_takes_long_is_not_repeated_and_the_note_says_so() -> None:
    first = run_of(6e9)
    assert repeated(first, 0.5, not_wanted) == [
        "other programs took 50 % of the CPU, and a run is too long to repeat: times are from a single disturbed run"
    ]
    assert first == run_of(6e9)


def test_no_further_run_begins_that_would_end_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def again() -> Records:
        now[0] += 2.2
        return run_of(1.0)

    (note,) = repeated(run_of(1.0), 0.5, again)
    assert "median of 3 runs" in note
    assert now[0] <= repeated_timing.MOST_S


def test_runs_of_other_operators_change_no_time() -> None:
    first = run_of(5.0)
    (note,) = repeated(first, 0.5, runs(*[run_of(1.0, operator="aten.add")] * MOST))
    assert "operators differ from run to run" in note
    assert first == run_of(5.0)


@pytest.mark.slow
class TestAProfile:
    """`ncu-bench profile` under the operator collector, beside a load that is made up."""

    @pytest.fixture(autouse=True)
    def _loaded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("torch", reason=WITHOUT_TORCH)
        monkeypatch.setattr(CpuLoad, "others", lambda self: 0.46)

    def records(self, folder: Path) -> list[dict[str, Any]]:
        lines = (folder / "run" / "reports" / "operators.jsonl").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines[1:]]

    def test_has_each_call_once_and_says_what_share_of_the_cpu_others_took(self, tmp_path: Path) -> None:
        result = profiled_here("gemm:64,64,64,fp32", "-o", "run", "--iterations", "2", cwd=tmp_path)
        assert [one["operator"] for one in self.records(tmp_path)].count("aten.mm") == 2
        assert "note: other programs took 46 % of the CPU: each time is the median of 5 runs" in result.err

    def test_counts_the_calls_of_unknown_operators_once(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(
            "import torch\n"
            "class Model(torch.nn.Module):\n"
            "    def forward(self, x):\n"
            "        return torch.linalg.inv(x)\n"
            "def make():\n"
            "    return Model(), torch.eye(8)\n"
        )
        profiled_here("mine.py:make", "-o", "run", "--phase", "forward", cwd=tmp_path)
        facts = json.loads((tmp_path / "run" / "manifest.json").read_text("utf-8"))["facts"]
        assert set(facts["unknown_operators"].values()) == {1}


def test_a_point_of_a_sweep_that_stayed_imprecise_says_what_took_the_cpu() -> None:
    from ncu_launch.bench.point_process import _on_load

    wide, tight = [1e6, 9e6, 2e6, 1e6] * 10, [1e6, 1.0001e6] * 20
    (note,) = _on_load(0.46, wide, Effort())
    assert note == (
        "other programs took 46 % of the CPU while it was timed: the median of its latency, 1.5 ms, is more to be trusted "
        "than the mean, 3.25 ms; throughput is by the median"
    )
    (short,) = _on_load(0.46, [one / 1e3 for one in wide], Effort())
    assert "its latency, 1.5 µs, is more to be trusted than the mean, 3.25 µs;" in short
    assert _on_load(0.46, tight, Effort()) == _on_load(0.05, wide, Effort()) == _on_load(None, wide, Effort()) == []
