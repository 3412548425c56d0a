"""profile --budget from end to end: a stand-in for nsys gives a timeline, a stand-in for ncu the counts."""

from __future__ import annotations

import json
import shlex

import pytest
from ncu_launch.errors import WrongUsage
from ncu_parsers.parquet.reader import read_launches

from ncu_tools.profiling.profile_request import seconds_of
from tests.support.stand_in_nsys import counted_timeline, write_nsys, write_nvidia_smi
from tests.whole.test_profile_with_a_stand_in import Bench, bench

pytestmark = pytest.mark.slow

__all__ = ["bench"]


@pytest.fixture
def traced(bench: Bench) -> Bench:
    """A machine with a stand-in for nsys too, whose timeline has what ncu counts and a launch that it does not."""
    timeline = counted_timeline(bench.folder / "timeline.sqlite")
    write_nsys(bench.folder / "empty", timeline, version="2022.4.2")
    return bench


class TestABudget:
    def test_counts_the_kernels_that_take_the_time_and_joins_the_timelines_times(self, traced: Bench) -> None:
        result = traced.profile("asked", "--budget", "60s", "--metrics", "flops,dram", "--format", "json")
        assert result.code == 0, result.err
        (ran,) = traced.manifest()["tool_runs"]
        pattern = ran["command"][ran["command"].index("--kernel-name") + 1]
        assert pattern.startswith("regex:^(")
        assert "triad" in pattern
        assert "other" not in pattern
        assert ran["command"][ran["command"].index("--launch-count") + 1] == "8"
        launches = traced.launches()
        assert len(launches) == 9
        assert {launch["source"] for launch in launches} == {"ncu+nsys", "nsys"}
        assert {launch["duration_ns"] for launch in launches} == {1e6, 1e3}
        (other,) = [launch for launch in launches if launch["kernel_short"] == "other"]
        assert other["flops"] is None
        assert sum(launch["flops"] is not None for launch in launches) >= 6

    def test_samples_gpu_metrics_in_the_timeline_and_counts_without_them(self, traced: Bench) -> None:
        write_nvidia_smi(traced.folder / "empty")
        result = traced.profile("asked", "--budget", "60s", "--metrics", "dram", "--gpu-metrics", "20000")
        assert result.code == 0, result.err
        (timeline,) = json.loads((traced.run / "timeline" / "manifest.json").read_text("utf-8"))["tool_runs"]
        assert timeline["command"][timeline["command"].index("--gpu-metrics-frequency") + 1] == "20000"
        (counts,) = traced.manifest()["tool_runs"]
        assert not any("gpu-metrics" in word for word in counts["command"])

    def test_notes_what_is_not_counted(self, traced: Bench) -> None:
        result = traced.profile("asked", "--budget", "5m", "--metrics", "flops,dram")
        assert "ncu counts 8 launches of" in result.err
        assert "is not counted" in result.err
        assert "matched" in result.err

    def test_if_small_counts_less(self, traced: Bench) -> None:
        result = traced.profile("asked", "--budget", "0.2s", "--metrics", "dram")
        assert "more do not fit the budget" in result.err

    def test_too_small_for_one_launch_is_an_error(self, traced: Bench) -> None:
        result = traced.profile("asked", "--budget", "0.001s", "--metrics", "dram")
        assert result.code == 1
        assert "No launch can be counted in 0.001 s." in result.err

    def test_keeps_the_timeline_as_a_separate_run(self, traced: Bench) -> None:
        traced.profile("asked", "--budget", "60s", "--metrics", "dram")
        kept = read_launches(traced.run / "timeline" / "launches.parquet")
        assert len(kept) == 9
        assert (traced.run / "timeline" / "manifest.json").is_file()

    def test_prints_the_first_command_in_a_dry_run(self, traced: Bench) -> None:
        result = traced.profile("asked", "--budget", "60s", "--dry-run")
        assert shlex.split(result.out)[1] == "profile"
        assert "then ncu" in result.err
        assert not traced.run.exists()

    def test_cannot_be_combined_with_filters(self, traced: Bench) -> None:
        result = traced.profile("asked", "--budget", "60s", "--kernel", "gemm")
        assert result.code == 2
        assert "--budget chooses the kernels itself" in result.err


@pytest.mark.parametrize(("text", "seconds"), [("60", 60), ("60s", 60), ("1.5 m", 90), ("2min", 120), ("1h", 3600)])
def test_times_are_read_with_their_units(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5", "0", "5 days"])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(WrongUsage, match="is no time"):
        seconds_of(text)
