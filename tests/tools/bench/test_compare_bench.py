"""Measured points compared: which belongs to which, what is refused, the sentences, and the gates."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from ncu_launch.bench.latency_statistics import summed_up
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.manifest import Manifest, write_manifest
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.bench_table import bench_table

from ncu_tools.bench.bench_runs import BenchRun, completed, is_bench, load_bench
from ncu_tools.bench.bench_summaries import Summary, summaries
from ncu_tools.bench.compare_points import compare_across, compare_runs, estimates_of
from ncu_tools.cli import cli, run
from ncu_tools.numbers.statistics import geometric_mean, mean_ratio_interval, ratio_interval, student_quantile
from tests.support.installed import WITHOUT_TORCH
from tests.support.launches import launch
from tests.support.launches import table as launches_table

pytestmark = pytest.mark.slow

Row = dict[str, Any]

NET = """
import torch
def net():
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)), torch.randn(1, 16)
"""


def point(target: str = "net", batch: int = 1, ms: float = 10.0, noise: float = 0.01, **changes: Any) -> Row:
    """A row as `bench` writes it, with 200 samples around `ms`, always the same ones."""
    seed = zlib.crc32(repr((target, batch, ms, noise, changes)).encode())
    samples = (1e6 * ms * (1 + noise * np.random.default_rng(seed).standard_normal(200))).tolist()
    found = summed_up(samples)
    dtype, phase, mode = (changes.get(name, usual) for name, usual in
                          (("dtype", "fp32"), ("phase", "forward"), ("mode", "eager")))  # fmt: skip
    return {
        "point": f"{target} batch={batch} {dtype} {mode} {phase} auto", "target": target, "device": "cuda",
        "device_name": "NVIDIA T4", "dtype": dtype, "autocast": False, "mode": mode, "channels_last": False,
        "phase": phase, "batch_size": batch, "input_size": 64, "sequence_length": None, "outcome": "ok",
        "latency_mean_ns": found.mean, "latency_low_ns": found.low, "latency_high_ns": found.high,
        "latency_median_ns": found.median, "samples_ns": samples, "iterations": len(samples),
        "throughput": batch / found.mean * 1e9, "throughput_unit": "image/s", "memory_peak_bytes": 1000,
        "memory_allocated_bytes": 800, "memory_basis": "CUDA's allocator", "parameters": 10, "expected_flops": 1e9,
        "expected_bytes": 1e6, "self_cpu_time_ns": 5e5, "self_gpu_time_ns": 9e5, "torch": "2.6", **changes,
    }  # fmt: skip


def of_processes(*means_ms: float, **changes: Any) -> Row:
    """A row of several processes with these means, each with 200 samples that scatter by 1 %."""
    parts = [point(ms=ms, **changes)["samples_ns"] for ms in means_ms]
    samples = [sample for part in parts for sample in part]
    means = [float(np.mean(part)) for part in parts]
    return point(**changes) | {
        "samples_ns": samples, "latency_mean_ns": float(np.mean(samples)), "process_means_ns": means
    }  # fmt: skip


def failed(outcome: str = "out of memory", **changes: Any) -> Row:
    """A row of a failed point without size and device."""
    asked = ("point", "target", "dtype", "autocast", "mode", "channels_last", "phase", "batch_size", "outcome")
    row = point(**changes)
    return {name: row[name] for name in asked} | {"outcome": outcome, "reason": "it was too much"}


def loaded(name: str, *rows: Row) -> BenchRun:
    columns = bench_table([]).column_names
    full = [{**dict.fromkeys(columns), **row} for row in rows]
    return BenchRun(name, [{**row, "run": name} for row in completed(full)])


def fp16(target: str = "net", batch: int = 1, ms: float = 5.0, **changes: Any) -> Row:
    return point(target, batch, ms, **{"dtype": "fp16", "memory_peak_bytes": 815, **changes})


def only(comparison_or_runs: Any) -> Summary:
    (summary,) = summaries(comparison_or_runs)
    return summary


Write = Callable[..., str]


def test_flops_of_contractions_are_not_compared_with_those_of_all_operators() -> None:
    sides = (("a", "contractions"), ("b", "all operators"))
    base, new = (loaded(name, point(expected_flops_basis=basis)) for name, basis in sides)
    found = compare_runs(base, new)
    assert found.points[0].changes["flops"].growth is None
    assert "not compared: FLOPs cover contractions and all operators" in found.notes


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, *rows: Row) -> str:
        (tmp_path / name).mkdir()
        write_table(bench_table(rows), tmp_path / name / "bench.parquet")
        return str(tmp_path / name)

    return written


def invoked(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["compare", *arguments])


class TestWhichPointIsWhich:
    def test_a_type_that_all_points_of_a_run_share_is_the_compared_dimension(self) -> None:
        found = compare_runs(loaded("a", point(), point(batch=8)), loaded("b", fp16(), fp16(batch=8)))
        assert [one.across for one in found.points] == [("dtype",), ("dtype",)]
        assert {(one.base_label, one.new_label) for one in found.points} == {("FP32", "FP16")}

    def test_a_type_in_both_runs_is_part_of_the_match(self) -> None:
        found = compare_runs(loaded("a", point(), fp16()), loaded("b", point(), fp16()))
        assert [(one.across, one.is_compared) for one in found.points] == [((), True), ((), True)]

    def test_points_can_be_new_or_gone(self) -> None:
        found = compare_runs(loaded("a", point(), point(batch=8)), loaded("b", point(), point(batch=32)))
        assert [(one.base is None, one.new is None) for one in found.points] == [
            (False, False), (False, True), (True, False),
        ]  # fmt: skip

    def test_a_failed_point_matches_although_its_size_and_device_are_unknown(self) -> None:
        base, new = loaded("a", point(), failed(batch=256)), loaded("b", point(), point(batch=256))
        found = compare_runs(base, new).points[1]
        assert (found.base and found.base["outcome"], found.new and found.new["outcome"]) == ("out of memory", "ok")

    def test_a_failed_point_matches_in_a_run_without_measured_points(self) -> None:
        rows = [point(), point(batch=8)], [failed(), failed(batch=8)]
        found = compare_runs(loaded("a", *rows[0]), loaded("b", *rows[1])).points
        assert [(one.base is None, one.new is None, one.row["outcome"]) for one in found] == [
            (False, False, "out of memory")
        ] * 2

    def test_runs_without_a_common_point_raise_an_error_that_describes_both(self) -> None:
        with pytest.raises(NcuBenchError, match=r'"net batch=1 .*"other batch=1'):
            compare_runs(loaded("a", point()), loaded("b", point("other")))

    def test_autocast_of_fp32_is_fp32(self) -> None:
        (found,) = compare_across([loaded("a", point(autocast=True), fp16(autocast=True))], ["dtype"])
        assert (found.points[0].base_label, found.points[0].new_label) == ("FP32", "FP16 autocast")

    def test_across_several_dimensions_every_combination_is_compared_with_the_first(self) -> None:
        rows = [point(), point(mode="jit"), fp16(), fp16(mode="jit")]
        found = compare_across([loaded("a", *rows)], ["mode", "dtype"])
        assert [one.name for one in found] == ["FP32 TorchScript", "FP16 eager", "FP16 TorchScript"]

    def test_an_argument_is_compared_with_the_other_arguments_alike(self, write: Write) -> None:
        def of(n: int, **block: str) -> Row:
            given = {"n": str(n), **block}
            text = ", ".join(f"{name}={value}" for name, value in given.items())
            return point(argument_values=given, arguments=text, point=f"net {text}")

        run = load_bench(write("a", *(of(n, **block) for n in (8, 64) for block in ({}, {"block": "16"}))))
        (found,) = compare_across([run], ["block"])
        assert (found.name, len(found.points)) == ("block=16", 2)
        assert {(one.base_label, one.new_label) for one in found.points} == {("without block", "block=16")}
        assert all(one.is_compared for one in found.points)
        assert [one.row["n"] for one in found.points] == [8, 64]

    def test_what_is_neither_a_dimension_nor_an_argument_is_refused(self) -> None:
        with pytest.raises(WrongUsage, match="colour is none of machine, dtype"):
            compare_across([loaded("a", point(), fp16())], ["colour"])

    def test_a_dimension_with_one_value_cannot_be_compared_across(self) -> None:
        with pytest.raises(NcuBenchError, match="nothing to compare across dtype"):
            compare_across([loaded("a", point())], ["dtype"])

    def test_a_point_present_in_two_runs_is_refused(self) -> None:
        with pytest.raises(NcuBenchError, match="Both a and b have the point"):
            compare_across([loaded("a", point(), fp16()), loaded("b", point())], ["dtype"])

    def test_targets_with_their_own_type_are_not_compared_across_types(self) -> None:
        rows = [point(), fp16(), point("gemm:64,64,64,fp32")]
        (found,) = compare_across([loaded("a", *rows)], ["dtype"])
        assert [one.row["target"] for one in found.points] == ["net"]


class TestIntervals:
    def test_the_interval_of_two_points_follows_from_their_samples(self) -> None:
        random = np.random.default_rng(1)
        held = 0
        for _ in range(300):
            sides = [(float(side.mean()), float(side.var(ddof=1)) / 40, 39.0)
                     for side in (100 + random.standard_normal(40), 50 + random.standard_normal(40))]  # fmt: skip
            interval = ratio_interval(sides[0], sides[1])
            assert interval is not None
            held += interval[0] <= 0.5 <= interval[1]
        assert 0.92 <= held / 300 <= 0.98

    def test_the_mean_of_one_pair_has_the_interval_of_the_pair(self) -> None:
        base, new = (10.0, 0.01, 9.0), (5.0, 0.02, 19.0)
        assert mean_ratio_interval([(base, new)]) == ratio_interval(base, new)

    def test_the_interval_of_four_equal_pairs_is_half_as_wide(self) -> None:
        pair = (10.0, 0.01, 999.0), (5.0, 0.01, 999.0)
        one, four = (mean_ratio_interval([pair] * count) for count in (1, 4))
        assert one is not None
        assert four is not None
        assert math.log(one[1] / one[0]) / math.log(four[1] / four[0]) == pytest.approx(2, rel=0.01)

    def test_one_pair_without_known_noise_leaves_the_mean_without_interval(self) -> None:
        assert mean_ratio_interval([((1.0, 0.1, 9.0), (1.0, 0.1, 9.0)), ((1.0, math.nan, 9.0),) * 2]) is None

    def test_swapping_the_sides_inverts_the_mean_of_ratios(self) -> None:
        assert geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
        assert geometric_mean([3.0]) == 3.0

    def test_a_point_of_one_sample_has_no_interval(self) -> None:
        rows = [{**row, "samples_ns": row["samples_ns"][:1]} for row in (point(), fp16())]
        found = compare_runs(loaded("a", rows[0]), loaded("b", rows[1]))
        assert found.points[0].changes["time"].low is None
        assert "noise not known" in only(found).sentence


class TestSeveralProcesses:
    """Three processes of a point at 10 ms that differ by 10 %, far more than the samples of each."""

    BASE = (9.0, 10.0, 11.0)
    GATE = ("--fail-on", "time>5%")

    def test_a_change_smaller_than_their_scatter_trips_no_gate(self, write: Write) -> None:
        base, new = write("base", of_processes(*self.BASE)), write("new", of_processes(10.0, 11.0, 12.0))
        found = invoked(base, new, *self.GATE)
        assert (found.exit_code, "within the noise" in found.stdout) == (0, True)
        assert "within a process" not in found.stderr

    def test_a_change_larger_than_their_scatter_trips_the_gate(self, write: Write) -> None:
        base, new = write("base", of_processes(*self.BASE)), write("new", of_processes(18.0, 20.0, 22.0))
        assert invoked(base, new, *self.GATE).exit_code == 3

    def test_a_point_at_a_lower_clock_is_no_regression(self, write: Write) -> None:
        base = write("base", of_processes(9.9, 10.0, 10.1, gpu_clock_hz=1.5e9))
        new = write("new", of_processes(10.9, 11.0, 11.1, gpu_clock_hz=1.35e9))
        found = invoked(base, new, *self.GATE)
        assert (found.exit_code, "the clock decides" in found.stdout) == (4, True)
        assert "the GPU's clock is apart by more than 2 % in 1 point" in found.stderr
        assert invoked(base, new, *self.GATE, "--anyway").exit_code == 3

    @pytest.mark.parametrize("alone", [{"process_means_ns": None}, {"process_means_ns": [1e7]}])
    def test_one_process_on_a_side_falls_back_to_the_scatter_of_samples_with_a_note(
        self, write: Write, alone: Row
    ) -> None:
        runs = write("base", of_processes(*self.BASE)), write("new", {**point(ms=11.0), **alone})
        found = invoked(*runs, "--format", "json")
        assert any("bench --processes 3" in note for note in json.loads(found.stdout)["notes"])
        (one,) = compare_runs(*map(load_bench, runs)).points
        assert one.changes["time"].basis == "samples of one process"

    def test_points_without_several_processes_are_counted_in_the_note(self) -> None:
        base = loaded("a", of_processes(*self.BASE), point(batch=8))
        new = loaded("b", of_processes(*self.BASE), point(batch=8, ms=11.0))
        assert any("intervals of 1 of 2 points hold" in note for note in compare_runs(base, new).notes)

    def test_the_interval_is_welchs_interval_of_the_means(self) -> None:
        base, new = np.array(self.BASE), np.array((18.0, 21.0, 24.0))
        found = compare_runs(
            loaded("a", of_processes(*base, noise=1e-9)), loaded("b", of_processes(*new, noise=1e-9))
        ).points[0].changes["time"]  # fmt: skip
        parts = [side.var(ddof=1) / 3 / side.mean() ** 2 for side in (base, new)]
        freedom = sum(parts) ** 2 / sum(part**2 / 2 for part in parts)
        assert found.basis == "means of processes"
        reach = math.exp(student_quantile(0.95, freedom) * math.sqrt(sum(parts)))
        assert (found.low, found.high) == pytest.approx((2.1 / reach, 2.1 * reach), rel=1e-4)

    def test_about_95_of_100_comparisons_of_the_same_program_include_no_change(self) -> None:
        random = np.random.default_rng(7)
        held = 0
        for _ in range(300):
            sides = [{"latency_mean_ns": float(means.mean()), "process_means_ns": list(means)}
                     for means in random.normal(10.0, 0.5, (2, 3))]  # fmt: skip
            interval = ratio_interval(*estimates_of(*sides))
            assert interval is not None
            held += interval[0] <= 1 <= interval[1]
        assert 0.92 <= held / 300 <= 0.99


class TestSentences:
    def test_they_state_speedup_and_memory_in_plain_words(self) -> None:
        base, new = loaded("a", point(ms=83.99)), loaded("b", fp16(ms=39.19))
        sentence = only(compare_runs(base, new)).sentence
        told = r"net: FP16 is 2\.1\d+ x \[2\.1\d+ - 2\.1\d+\] faster and takes 18\.5 % less memory than FP32"
        told += r" \(of one process each\)"
        assert re.fullmatch(told, sentence), sentence

    def test_over_points_the_figure_is_the_geometric_mean_with_the_range(self) -> None:
        base = loaded("a", point(noise=1e-6), point(batch=8, noise=1e-6))
        new = loaded("b", fp16(ms=5.0, noise=1e-6), fp16(batch=8, ms=1.25, noise=1e-6))
        summary = only(compare_runs(base, new))
        assert summary.time_ratio == pytest.approx(1 / 4, rel=1e-4)
        assert "geometric mean of 2 points, 2.00 x at batch 1 to 8.00 x at batch 8" in summary.sentence

    def test_they_say_slower_and_more_and_the_same(self) -> None:
        slower = only(compare_runs(loaded("a", point()), loaded("b", fp16(ms=20, memory_peak_bytes=1100)))).sentence
        assert "slower and takes 10.0 % more memory than FP32" in slower
        same = only(compare_runs(loaded("a", point()), loaded("b", point(ms=5)))).sentence
        assert same.endswith("faster than a and takes the same memory (of one process each)")
        several = [of_processes(*means) for means in ((9.9, 10.0, 10.1), (4.9, 5.0, 5.1))]
        assert "one process" not in only(compare_runs(*map(loaded, "ab", several))).sentence

    def test_a_change_within_the_noise_is_not_claimed(self) -> None:
        base = point(noise=0.2)
        new = {**base, "latency_mean_ns": 1.001 * base["latency_mean_ns"]}
        sentence = only(compare_runs(loaded("a", base), loaded("b", new))).sentence
        assert "than a, within the noise" in sentence
        assert "as fast as" not in sentence  # that it was not shown does not say that there is no difference

    def test_failed_points_are_counted_and_in_no_mean(self) -> None:
        base, new = loaded("a", point(), failed(batch=256)), loaded("b", fp16(), fp16(batch=256))
        summary = only(compare_runs(base, new))
        assert (summary.points, summary.left_out) == (1, {"out of memory with FP32": 1})
        assert "1 point out of memory with FP32" in summary.sentence

    def test_phases_are_compared_as_a_ratio_of_time_and_of_flops(self) -> None:
        rows = [point(), point(ms=19.35, phase="backward", expected_flops=1.935e9)]
        (found,) = compare_across([loaded("a", *rows)], ["phase"])
        assert ", and 1.935 x its FLOPs" in only(found).sentence
        assert "backward takes 1.9" in only(found).sentence

    def test_phases_are_not_averaged_together(self) -> None:
        rows = [point(), point(phase="backward"), fp16(), fp16(phase="backward")]
        (found,) = compare_across([loaded("a", *rows)], ["dtype"])
        assert [one.target for one in summaries(found)] == ["net, forward", "net, backward"]

    def test_memory_counted_by_different_means_is_not_compared(self) -> None:
        other = fp16(memory_basis="tensors, by PyTorch's profiler")
        found = compare_runs(loaded("a", point()), loaded("b", other))
        assert only(found).memory_ratio is None
        assert any("peak memory was counted by" in note for note in found.notes)


class TestDifferentConditions:
    @pytest.mark.parametrize(("column", "before", "after"), [("torch", "2.5", "2.6"), ("threads", 1, 4)])
    def test_are_refused_with_the_difference_and_compared_with_anyway(
        self, write: Write, column: str, before: Any, after: Any
    ) -> None:
        runs = write("a", point(**{column: before})), write("b", point(**{column: after}))
        assert run(["compare", *runs]) == 1
        assert run(["compare", *runs, "--anyway"]) == 0
        assert run(["compare", *runs, "--across", column]) == 0
        found = compare_runs(*map(load_bench, runs))
        assert [(one.base, one.new, one.refused) for one in found.differences] == [(str(before), str(after), True)]

    def test_machines_are_compared_unless_something_else_differs_too_or_a_gate_applies(self, write: Write) -> None:
        a100: Row = {"device_name": "NVIDIA A100"}
        t4, other, both = write("t4", point()), write("a100", point(**a100)), write("both", fp16(**a100))
        assert run(["compare", t4, other]) == 0
        refused = invoked(t4, both)
        assert isinstance(refused.exception, NcuBenchError)
        assert "--across machine,dtype" in refused.exception.paragraph
        assert run(["compare", t4, both, "--across", "machine,dtype"]) == 0
        assert run(["compare", t4, other, "--fail-on", "time>900%"]) == 4
        assert run(["compare", t4, other, "--across", "machine", "--fail-on", "time>900%"]) == 0

    def test_another_machine_may_have_another_number_of_threads(self) -> None:
        rows = point(threads=4), point(threads=8, device_name="another")
        (found,) = compare_runs(loaded("a", rows[0]), loaded("b", rows[1])).differences
        assert (found.condition, found.refused) == ("threads", False)

    def test_launches_and_points_are_not_compared(self, write: Write, tmp_path: Path) -> None:
        write_table(launches_table(launch("k", ns=1.0)), tmp_path / "launches.parquet")
        found = invoked(write("a", point()), str(tmp_path / "launches.parquet"))
        assert found.exit_code != 0
        assert not is_bench(str(tmp_path / "launches.parquet"))


class TestGates:
    def gated(self, write: Write, base: list[Row], new: list[Row], gate: str) -> tuple[int, str]:
        code = invoked(write("base", *base), write("new", *new), "--wide", "--fail-on", gate)
        return code.exit_code, code.stdout

    @pytest.mark.parametrize(
        ("new", "gate", "code", "words"),
        [
            ([point(ms=12)], "time>5%", 3, "tripped"),
            ([point(ms=12)], "time>50%", 0, "passed"),
            ([point(ms=11, noise=0.9)], "time>1%", 0, "within the noise"),
            ([point(memory_peak_bytes=1030)], "memory>2%", 3, "memory 1 KB -> 1.03 KB: +3.0 %"),
            ([point(memory_peak_bytes=1030)], "memory>3%", 0, "passed"),
            ([point(memory_peak_bytes=None)], "memory>2%", 4, "memory is not known in the new run"),
            ([point(memory_basis="other")], "memory>2%", 4, "peak memory was counted by"),
            ([point(parameters=11)], "parameters>0%", 3, "tripped"),
            ([point(expected_flops=2e9)], "flops>0%", 3, "tripped"),
            ([point(memory_allocated_bytes=900)], "allocated>5%", 3, "tripped"),
            ([point()], "dram_bytes>1%", 4, "no DRAM bytes"),
            ([point()], "launches>1%", 4, "no launches"),
            ([point()], "kernel:net:time>1%", 4, "points are compared here"),
            ([point()], "point:nothing:time>1%", 4, "no point that it finds"),
            ([point(), point(batch=8, ms=30)], "time>900%", 0, "not held: net batch=8"),
            ([failed()], "time>5%", 4, "ended as out of memory in the new run"),
        ],
    )  # fmt: skip
    def test_apply_to_each_point(self, write: Write, new: list[Row], gate: str, code: int, words: str) -> None:
        base = [point(noise=0.9 if "noise" in words else 0.01)]
        found = self.gated(write, base, new, gate)
        assert found[0] == code, found[1]
        assert words in found[1]

    def test_cannot_tell_of_a_gone_point_unless_it_is_not_asked_for(self, write: Write) -> None:
        base, new = write("base", point(), point(batch=8)), write("new", point())
        assert run(["compare", base, new, "--fail-on", "time>90%"]) == 4
        assert run(["compare", base, new, "--fail-on", "point:batch=1 :time>90%"]) == 0

    def test_a_point_that_failed_in_the_base_too_is_not_gated(self, write: Write) -> None:
        base, new = write("base", point(), failed(batch=8)), write("new", point(), failed(batch=8))
        assert run(["compare", base, new, "--fail-on", "time>90%"]) == 0

    def test_junit_and_markdown_show_them(self, write: Write, tmp_path: Path) -> None:
        base, new, file = write("base", point()), write("new", point(ms=20)), tmp_path / "gates.xml"
        gates = ["--fail-on", "time>5%", "--fail-on", "dram_bytes>1%"]
        found = invoked(base, new, *gates, "--junit", str(file), "--format", "markdown")
        assert found.exit_code == 3
        assert "\n\n| gate | outcome | reason |" in found.stdout
        assert "| summary |" in found.stdout
        assert "slower than" in found.stdout
        (suite,) = ET.fromstring(file.read_bytes())  # noqa: S314 - written by the test itself
        assert [case[0].tag for case in suite] == ["failure", "error"]

    def test_refused_runs_leave_every_gate_undecided(self, write: Write, tmp_path: Path) -> None:
        runs, file = (write("a", point()), write("b", point(torch="9"))), tmp_path / "gates.xml"
        assert run(["compare", *runs, "--fail-on", "time>5%", "--junit", str(file)]) == 4
        assert b"version of torch" in file.read_bytes()


class TestTheCommand:
    def test_three_machines_are_shown_in_one_table(self, write: Write) -> None:
        names = {"t4": "NVIDIA T4", "l4": "NVIDIA L4", "a100": "NVIDIA A100"}
        times = {"t4": (82.42, 310.34), "l4": (41.92, 166.64), "a100": (11.87, 71.02)}
        folders = [
            write(name, *(point(model, 32, ms, device_name=device) for model, ms in
                          zip(("resnet50", "vit_b_16"), times[name], strict=True)))
            for name, device in names.items()
        ]  # fmt: skip
        for arguments in (folders, [*folders, "--across", "machine"]):
            found = invoked(*arguments, "--format", "json")
            document = json.loads(found.stdout)
            assert [(row["target"], row["device_name"], row["is_base"]) for row in document["rows"]] == [
                (model, device, device == "NVIDIA T4") for model in ("resnet50", "vit_b_16") for device in names.values()
            ]  # fmt: skip
            last = document["rows"][2]
            assert last["speedup"] == pytest.approx(82.42 / 11.87, rel=0.01)
            assert last["speedup_low"] < last["speedup"] < last["speedup_high"]
            for column in (
                "latency_mean_ns",
                "throughput",
                "memory_peak_bytes",
                "self_cpu_time_ns",
                "self_gpu_time_ns",
            ):
                assert last[column] is not None
            assert [one["points"] for one in document["summaries"]] == [1] * 4
        text = invoked(*folders, "--wide").stdout
        assert "self GPU" in text
        assert "resnet50: NVIDIA A100 is 6.9" in text

    def test_one_run_is_compared_across_its_types_with_failures_shown(self, write: Write) -> None:
        run_folder = write("sweep", point(), point(batch=8), fp16(ms=4), failed(batch=8, dtype="fp16"))
        found = invoked(run_folder, "--across", "dtype")
        assert found.exit_code == 0
        for words in ("base", "faster", "out of memory", "it was too much", "FP16 is 2."):
            assert words in found.stdout
        assert "all points: NVIDIA T4, eager, channels first, forward" in found.stderr

    def test_new_and_gone_points_are_in_the_table(self, write: Write) -> None:
        found = invoked(write("a", point(), point(batch=8)), write("b", point(), point(batch=9)), "--format", "json")
        verdicts = [(row["batch_size"], row["verdict"]) for row in json.loads(found.stdout)["rows"]]
        assert (8, "gone") in verdicts
        assert (9, "new") in verdicts

    @pytest.mark.parametrize(
        "more", [[], ["--across", "colour"], ["--layers", "--across", "dtype"], ["--depth", "1", "--across", "dtype"]]
    )
    def test_ends_with_2_on_wrong_usage(self, write: Write, more: list[str]) -> None:
        assert run(["compare", write("a", point(), fp16()), *more]) == 2

    def test_top_and_by_choose_points(self, write: Write) -> None:
        base, new = write("a", point(), point(batch=8)), write("b", point(), point(batch=8, ms=90))
        found = json.loads(invoked(base, new, "--sort", "change", "--top", "1", "--format", "json").stdout)
        assert {row["batch_size"] for row in found["rows"]} == {8}
        assert "1 more point; --top shows more" in found["notes"]

    def test_a_stopped_sweep_is_named_in_a_note(self, write: Write) -> None:
        base, new = write("a", point()), write("b", point())
        write_manifest(Manifest([], "bench", "", partial=True), Path(new))
        assert "the sweep was stopped before its end" in invoked(base, new).stderr

    @pytest.mark.nightly
    def test_a_real_sweep_is_compared_by_real_processes(self, tmp_path: Path) -> None:
        """Two linear layers: 512 + 256 products forward; backward 512 for the weights of the first, 2 x 256."""

        def ncu_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-c", "from ncu_tools.cli import main; main()", *arguments],
                capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False,
            )  # fmt: skip

        pytest.importorskip("torch", reason=WITHOUT_TORCH)
        (tmp_path / "net.py").write_text(NET, encoding="utf-8")
        asked = ("--phase", "forward,backward", "--max-time", "0.3", "--warmup", "1", "-o", "sweep")
        assert ncu_bench("bench", "net.py:net", *asked).returncode == 0
        found = ncu_bench("compare", "sweep", "--across", "phase", "--format", "json")
        document = json.loads(found.stdout)
        (summary,) = document["summaries"]
        assert summary["flops_ratio"] == pytest.approx((512 + 2 * 256) / (512 + 256))
        assert "backward takes" in summary["sentence"]
        assert document["rows"][1]["time_ratio_low"] < document["rows"][1]["time_ratio"]
