"""Pass counts of NVIDIA's scheduler, and the plan that follows from them."""

from __future__ import annotations

import csv
from collections import defaultdict

import pytest
from ncu_launch.counters.chips import chips, find_chip
from ncu_launch.counters.metric_groups import MetricSelection, select
from ncu_launch.counters.pass_counts import Passes, passes_of
from ncu_launch.counters.replay_plan import PLANS, Program, RunPlan, plan_runs

from tests.conftest import SHARED

COUNTED = SHARED / "metrics" / "passes_by_chip.csv"
NEWEST = {"GV100": "cupti13.0", "GV11B": "cupti13.0"}

# Sets of metrics in NVIDIA's count -> our groups, and the type that leads to the same tensor counters.
SAME_AS = {
    "R1 time": ([], None),
    "R2 time+dram": (["dram"], None),
    "R4 time+dram+flops": (["flops", "dram"], "fp32"),
    "R5 R4+L2+L1": (["flops", "dram", "l2", "l1"], "fp32"),
    "R7 time+dram+L2+L1": (["dram", "l2", "l1"], None),
    "R9 bundle A = R8+dense fp16/bf16->fp32 tensor ops": (["flops", "dram", "l2", "l1", "peaks"], "hardware"),
    "R12 bundle A + flops": (["flops", "dram", "l2", "l1", "peaks"], "fp16"),
    "G2 G+shared wavefronts": (["dram", "l2", "l1", "shared"], None),
    "L tensor ops: all dtypes totals": (["tensor"], None),
    "P SOL pair (sm+memory throughput)": (["speed-of-light"], None),
    "Q occupancy": (["occupancy"], None),
    "Q2 L1+L2 hit rates": (["hit-rates"], None),
    "Q3 issue+eligible+active warps": (["issue"], None),
    "R top-8 stall ratios": (["stalls"], None),
}
CLOCK_COSTS_A_PASS = ("GV100", "TU102", "TU104", "TU106", "TU116", "TU117")
"""Volta and Turing: NVIDIA's bundle A has the memory clock, which our groups omit there."""


def counted() -> dict[str, dict[str, int]]:
    """Passes per chip and set of metrics, from the newest library that knows the chip."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    with COUNTED.open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            newest = row["source_library"] == NEWEST.get(row["chip"], "cupti13.4")
            if newest and "sysmem_lookup_miss" not in row["metrics"]:  # a substitute for DRAM that we do not collect
                found[row["chip"]][row["group"]] = int(row["passes_library"])
    return found


def selected(groups: list[str], chip: str, dtype: str | None = None) -> tuple[MetricSelection, Passes]:
    selection = select(groups, find_chip(chip), dtype=dtype)
    return selection, passes_of(selection, find_chip(chip))


class TestPasses:
    @pytest.mark.skipif(not COUNTED.is_file(), reason="the folder ../shared/metrics is missing")
    def test_are_those_that_nvidias_library_schedules_on_every_chip(self) -> None:
        compared = 0
        for chip, sets in counted().items():
            for name, (groups, dtype) in SAME_AS.items():
                if name not in sets or chip == "GV11B":
                    continue
                _, passes = selected(groups, chip, None if dtype == "hardware" else dtype)
                ours = passes.of_hardware if dtype == "hardware" else passes.in_library
                theirs = sets[name] - (chip in CLOCK_COSTS_A_PASS and name.startswith(("R9 ", "R12 ")))
                assert ours == theirs, (chip, name)
                compared += 1
        assert compared > 250

    def test_of_flops_and_dram_are_one_per_kind_of_counter_and_three_in_ncu(self) -> None:
        for chip in chips():
            if chip.name == "GV11B":
                continue
            for dtype in (None, "fp16", "fp32"):
                _, passes = selected(["flops", "dram"], chip.name, dtype)
                assert (passes.of_hardware, passes.of_sass, passes.in_library, passes.in_ncu) == (1, 1, 2, 3), chip.name

    def test_grow_with_the_requested_groups(self) -> None:
        alone = selected(["stalls"], "GH100")[1].in_library
        both = selected(["stalls", "speed-of-light"], "GH100")[1].in_library
        assert alone is not None
        assert both is not None
        assert 1 < alone < both

    def test_are_unknown_for_an_unknown_chip_and_for_metrics_by_name(self) -> None:
        assert passes_of(select(["flops"], None), None).in_library is None
        assert selected(["lts__t_sectors_op_read.sum"], "GA100")[1].in_library is None
        assert selected(["dram"], "GV11B")[1].in_library is None
        assert selected(["launch__grid_size"], "GA100")[1].in_library == 1

    def test_of_the_spills_group_are_sass_passes_only(self) -> None:
        _, passes = selected(["spills"], "GA100")
        assert (passes.of_hardware, passes.of_sass) == (1, 1)
        assert selected(["flops", "spills"], "GA100")[1].in_library == 2


def planned(asked: str, program: Program | None = None, groups: tuple[str, ...] = ("flops", "dram")) -> RunPlan:
    selection, passes = selected(list(groups), "GH100", "bf16")
    return plan_runs(selection, passes, asked, program)


class TestThePlan:
    def test_with_one_run_replays_each_kernel(self) -> None:
        plan = planned("one-run")
        assert [run.passes for run in plan.runs] == [3]
        assert plan.why == "as asked: one run, each kernel in 3 passes"

    def test_with_two_runs_replays_none_and_collects_the_same_metrics(self) -> None:
        plan = planned("two-runs")
        assert [(run.kind, run.passes) for run in plan.runs] == [("hardware counters", 1), ("instruction counters", 1)]
        hardware, sass = (set(run.metrics) for run in plan.runs)
        assert not hardware & sass
        assert hardware | sass == set(planned("one-run").runs[0].metrics)
        assert all("_sass_" in name and "peak" not in name for name in sass)
        assert "gpu__time_duration.sum" in hardware

    def test_has_two_runs_if_much_memory_is_allocated(self) -> None:
        plan = planned("auto", Program(alive_bytes=40_000_000_000, launches=500, start_s=10))
        assert len(plan.runs) == 2
        assert "40 GB allocated at 500 launches" in plan.why
        assert "30 s to start again and replay nothing (estimated)" in plan.why

    def test_has_one_run_if_starting_again_costs_more(self) -> None:
        plan = planned("auto", Program(alive_bytes=100_000_000, launches=40, start_s=10))
        assert len(plan.runs) == 1
        assert "(estimated)" in plan.why

    def test_has_two_runs_for_the_training_step_whose_replay_was_measured_to_take_longer(self) -> None:
        """ResNet-18 on an H100: 59 s in one run; in two, by what 60 launches took, 40 s."""
        plan = planned("auto", Program(alive_bytes=270_000_000, launches=159, start_s=8, gpu_bytes=85_000_000_000))
        assert len(plan.runs) == 2

    def test_assumes_copies_to_the_host_if_two_copies_do_not_fit_the_gpu(self) -> None:
        program = Program(alive_bytes=4_000_000_000, launches=50, start_s=15)
        assert len(planned("auto", program).runs) == 1
        tight = Program(alive_bytes=4_000_000_000, launches=50, start_s=15, gpu_bytes=6_000_000_000)
        assert len(planned("auto", tight).runs) == 2
        assert "two copies do not fit the GPU" in planned("auto", tight).why

    def test_has_one_run_for_an_unknown_program(self) -> None:
        plan = planned("auto")
        assert len(plan.runs) == 1
        assert "--plan two-runs never replays" in plan.why

    def test_has_one_run_if_hardware_counters_alone_need_a_replay(self) -> None:
        huge = Program(alive_bytes=10**12, launches=10**6, start_s=1)
        plan = planned("auto", huge, ("flops", "stalls"))
        assert len(plan.runs) == 1
        assert "a second run would save nothing" in plan.why

    @pytest.mark.parametrize("asked", PLANS)
    def test_has_one_run_for_one_kind_of_counter(self, asked: str) -> None:
        plan = planned(asked, groups=("dram", "l2"))
        assert [run.passes for run in plan.runs] == [1]
        assert plan.why == "every counter fits one pass: nothing is replayed"
