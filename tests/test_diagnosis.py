"""Headroom and diagnoses: what a kernel could gain, and the sentence that the collected numbers justify."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ncu_launch.groups import group_names
from ncu_parsers import arrays
from ncu_parsers.parse import parse
from ncu_parsers.sources import find_sources

from ncu_tools.ceilings import ceilings_of
from ncu_tools.cli import cli
from ncu_tools.diagnosis import diagnose, diagnoses, rules
from ncu_tools.hotspots import Hotspot, hotspots
from ncu_tools.machine import find_machine
from tests.conftest import SAMPLES, SHARED
from tests.launches import launch, metric, sass, table, tensor
from tests.reports import needs_shared_reports

NAN = float("nan")
EVERYTHING = {
    "bound_fraction": 0.3, "half_share": 0.0, "tensor_flops": 0.0, "waves": 4.0, "occupancy": 80.0,
    "sectors_per_load": 4.0, "sectors_per_store": 4.0, "local_instructions": 0.0, "top_stall": 0.4,
    "stall long_scoreboard": 0.4, "spill_instructions": 0.0, "half_is_nearest": 0.0, "half_inputs": 0.0,
    "matrix_product": 0.0, "vector_product": 0.0, "tensor_flops_of_inputs": 0.0,
}  # fmt: skip


class TestADiagnosis:
    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"bound_fraction": 0.92}, "DRAM bound: at 92% of its ceiling"),
            ({"local_instructions": 4096.0}, "local memory: 4,096 warp instructions load or store it"),
            ({"waves": 0.3}, "latency bound: 0.3 waves, so the grid does not fill the GPU"),
            ({"sectors_per_load": 31.6}, "uncoalesced: 31.6 sectors per load"),
            ({"sectors_per_store": 20.0}, "uncoalesced: 20.0 sectors per store"),
            ({"spill_instructions": 512.0, "local_instructions": 4096.0}, "spilling: 512 warp instructions spill"),
            (
                {"half_share": 0.9, "half_is_nearest": 1.0},
                "FP16 arithmetic without tensor cores: 90% of the FLOPs are FP16 on CUDA cores",
            ),
            ({"half_share": 0.9, "half_is_nearest": 0.0}, "below every roof"),
            (
                {"half_inputs": 1.0, "matrix_product": 1.0, "tensor_flops_of_inputs": 0.0},
                "tensor cores idle though inputs are fp16 (test): they did 0 FLOPs",
            ),
            ({"half_inputs": 1.0, "matrix_product": 1.0, "tensor_flops_of_inputs": 5.0}, "below every roof"),
            ({"occupancy": 12.4}, "few warps: 12 % of those that fit are active"),
            ({"top_stall": 9.0, "stall long_scoreboard": 9.0}, "waiting on global, local or texture memory: 9.0 warps"),
            ({"waves": 0.0}, "latency bound: less than 0.01 waves, so the grid does not fill the GPU"),
            ({"dram_busy": 92.4}, "DRAM bound: its throughput is at 92 % of its peak"),
            ({"sm_busy": 97.0, "memory_busy": 20.0}, "SM bound: the busiest part of the SMs is at 97 % of its peak"),
            (
                {"memory_busy": 88.0, "dram_busy": 12.0},
                "memory bound: the busiest part of L1, L2, shared memory or DRAM",
            ),
            (
                {"bound_fraction": NAN, "sm_busy": 1.0, "memory_busy": 42.0},
                "latency bound: the SMs are at 1 % and memory at 42 %",
            ),
            ({"bound_fraction": NAN, "sm_busy": 66.0, "memory_busy": 44.0}, "below every peak: the SMs are at 66 %"),
            ({}, "below every roof: DRAM is nearest, at 30%"),
        ],
    )
    def test_is_the_first_rule_that_fits(self, changes: dict[str, float], says: str) -> None:
        assert diagnose({**EVERYTHING, **changes}, "DRAM", "fp16 (test)").startswith(says)

    def test_near_its_roof_is_not_looked_into_further(self) -> None:
        assert (
            diagnose({**EVERYTHING, "bound_fraction": 0.85, "waves": 0.2}, "FP32")
            == "FP32 bound: at 85% of its ceiling"
        )

    def test_is_not_made_from_what_was_not_collected_and_names_it(self) -> None:
        known = {"bound_fraction": 0.3, "half_share": 0.0, "tensor_flops": 0.0, "half_inputs": 0.0}
        nothing = {**dict.fromkeys(EVERYTHING, NAN), **known}
        assert diagnose(nothing, "DRAM") == (
            "below every roof: DRAM is nearest, at 30%; coalescing, occupancy, spills, stalls would say why"
        )
        assert diagnose(dict.fromkeys(EVERYTHING, NAN), "") == ""

    def test_names_what_would_confirm_it_where_that_was_not_collected(self) -> None:
        without = {name: value for name, value in EVERYTHING.items() if "stall" not in name}
        said = diagnose({**without, "waves": 0.3}, "DRAM")
        assert said == "latency bound: 0.3 waves, so the grid does not fill the GPU; stalls would confirm it"
        assert diagnose({**EVERYTHING, "waves": 0.3}, "DRAM") == said.partition(";")[0]

    def test_with_work_on_tensor_cores_does_not_call_them_idle(self) -> None:
        half = {"half_share": 0.6, "half_is_nearest": 1.0, "tensor_flops": 1e9}
        assert "tensor cores" not in diagnose({**EVERYTHING, **half}, "DRAM")

    def test_rules_name_groups_that_exist_and_their_sources(self) -> None:
        for rule in rules():
            assert rule.source
            assert {*rule.needs, *rule.confirmed_by} <= set(group_names()), rule.id


def kernels(*launches: Any) -> tuple[Any, list[Hotspot]]:
    made = table(*launches)
    return made, hotspots(made, ceilings_of(made, find_machine("a100-sxm4-40gb"))).rows


class TestQuantities:
    def test_are_ratios_of_sums_over_the_launches_of_a_kernel(self) -> None:
        load = "l1tex__t_{}_pipe_lsu_mem_global_op_ld.sum"
        made, rows = kernels(
            *(
                launch("k", {**sass(), load.format("sectors"): metric(sectors), load.format("requests"): metric(requests)},
                       ns=1e6, dram=1e6)
                for sectors, requests in ((320.0, 10.0), (480.0, 30.0))
            )
        )  # fmt: skip
        assert diagnoses(made, rows, "name")["k"].startswith("uncoalesced: 20.0 sectors per load")

    def test_of_a_kernel_with_one_launch_that_lacks_them_are_unknown(self) -> None:
        waves = {"launch__waves_per_multiprocessor": metric(0.1)}
        made, rows = kernels(launch("k", {**sass(), **waves}, ns=1e6, dram=1e6), launch("k", sass(), ns=1e6, dram=1e6))
        assert "latency bound: 0.1 waves" in diagnoses(made, rows, "name")["k"]  # a mean over those that have it


def half_gemm(name: str, fp16: float | None, **others: float) -> Any:
    """A launch far below every roof whose tensor cores did so many FLOPs of fp16, or which were not counted."""
    counted = {} if fp16 is None else tensor(fp16_dst_fp32=fp16)
    return launch(name, {**sass(**others), **counted}, ns=1e6, dram=1e6)


class TestInputs:
    @pytest.mark.parametrize(
        ("name", "inputs"),
        [
            ("ampere_hgemm_128x64_tn", "fp16"),
            ("void gemmk1_kernel<int, float, 256, 5, __half, __half>(Params)", "fp16"),
            ("void cutlass::Kernel2<cutlass_80_simt_bf16gemm_128x64>(Params)", "bf16"),
            ("void implicit_convolve_hgemm<c10::Half>(int)", "fp16"),
        ],
    )
    def test_by_the_kernels_name_are_what_tensor_cores_should_have_worked_on(self, name: str, inputs: str) -> None:
        made, rows = kernels(half_gemm(name, 0.0, ffma=1e6))
        says = f"tensor cores idle though inputs are {inputs} (by the kernel's name): they did 0 FLOPs"
        assert diagnoses(made, rows, "name")[name] == says

    @pytest.mark.parametrize(
        ("name", "fp16"),
        [
            ("ampere_hgemm_128x64_tn", 1e6),
            ("ampere_hgemm_128x64_tn", None),
            ("ampere_sgemm_128x64_tn", 0.0),
            ("void vectorized_elementwise_kernel<4, c10::Half>(int)", 0.0),
            ("void convert_kernel<half, float>(int)", 0.0),
        ],
    )
    def test_do_not_accuse_what_used_them_was_not_counted_or_multiplies_no_matrices(
        self, name: str, fp16: float | None
    ) -> None:
        made, rows = kernels(half_gemm(name, fp16, ffma=1e6))
        assert "tensor cores idle" not in diagnoses(made, rows, "name")[name]

    def test_by_an_operators_tensors_stand_before_those_by_the_name(self) -> None:
        made, rows = kernels(half_gemm("gemm_kernel(int)", 0.0, ffma=1e6))
        typed = made.append_column("dtype", arrays.dictionary(['["c10::Half", "c10::Half"]']))
        assert "inputs are fp16 (by the operator's tensors)" in diagnoses(typed, rows, "name")["gemm_kernel(int)"]

    def test_that_may_be_constant_moves_are_no_fp16_arithmetic(self) -> None:
        made, rows = kernels(half_gemm("copy", 0.0, hfma=1e9))
        assert rows[0].flops_basis is not None
        assert "may be constant moves" in rows[0].flops_basis
        assert "FP16 arithmetic" not in diagnoses(made, rows, "name")["copy"]
        made, rows = kernels(half_gemm("half_math", 0.0, hfma=1e10, hadd=1e9))
        assert "FP16 arithmetic without tensor cores: 100%" in diagnoses(made, rows, "name")["half_math"]


class TestLocalMemory:
    PAIRS = (
        ("smsp__sass_inst_executed_op_local_ld.sum", "smsp__sass_inst_executed_op_local_st.sum"),
        ("sass__inst_executed_local_loads", "sass__inst_executed_local_stores"),
        ("l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum", "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum"),
    )

    def said(self, **metrics: float) -> str:
        found = {**sass(), **{name: metric(value) for name, value in metrics.items()}}
        made, rows = kernels(launch("k", found, ns=1e6, dram=1e6))
        return diagnoses(made, rows, "name")["k"]

    @pytest.mark.parametrize("pair", PAIRS)
    def test_is_what_any_section_counts_of_it(self, pair: tuple[str, str]) -> None:
        loads, stores = pair
        assert self.said(**{loads: 300.0, stores: 212.0}).startswith("local memory: 512 warp instructions")
        assert "spills" not in self.said(**{loads: 0.0, stores: 0.0})

    def test_of_few_of_all_instructions_is_not_what_makes_a_kernel_slow(self) -> None:
        local = dict.fromkeys(self.PAIRS[1], 50.0)
        assert "local memory" not in self.said(**local, **{"smsp__inst_executed.sum": 1e6})
        assert "local memory" in self.said(**local, **{"smsp__inst_executed.sum": 1e3})

    def test_is_called_spilling_where_spills_were_counted(self) -> None:
        local = dict.fromkeys(self.PAIRS[1], 500.0)
        assert self.said(**local, sass__inst_executed_register_spilling=900.0).startswith("spilling: 900 warp")
        assert self.said(**local, sass__inst_executed_register_spilling=0.0).startswith("local memory: 1,000 warp")


class TestAKernelThatNoRuleFits:
    def test_is_told_what_to_collect_if_ncu_saw_it(self) -> None:
        made, rows = kernels(launch("k", ns=1e6))
        assert diagnoses(made, rows, "name")["k"] == (
            "not known from what was collected; coalescing, dram, flops, occupancy, spills, stalls would say more"
        )

    def test_is_not_told_so_of_a_timeline(self) -> None:
        made, rows = kernels(launch("k", ns=1e6))
        place = made.schema.get_field_index("source")
        timeline = made.set_column(place, "source", arrays.repeated("nsys", len(made)))
        assert diagnoses(timeline, rows, "name") == {}

    def test_is_told_of_the_ceiling_where_nothing_else_is_missing(self) -> None:
        made = table(launch("k", complete(), ns=1e6, dram=1e6))
        (kernel,) = hotspots(made, ceilings_of(made)).rows
        assert (kernel.flops, kernel.bound) == (0.0, None)
        assert diagnoses(made, [kernel], "name")["k"] == (
            "a ceiling of its device is missing: --machine NAME or ncu-bench machines measure gives one; "
            "coalescing, occupancy, spills, stalls would say more"
        )

    def test_that_ncu_did_not_see_is_not_told_to_collect_metrics(self) -> None:
        made = table(launch("k", complete(), ns=1e6, dram=1e6))
        place = made.schema.get_field_index("source")
        operators = made.set_column(place, "source", arrays.repeated("operators", len(made)))
        without, on_a_gpu = (
            hotspots(operators, ceilings_of(operators, one)).rows for one in (None, find_machine("t4"))
        )
        assert diagnoses(operators, without, "name")["k"].endswith("ncu-bench machines measure gives one")
        assert diagnoses(operators, on_a_gpu, "name")["k"] == "below every roof: DRAM is nearest, at 0%"


def complete() -> dict[str, Any]:
    """Every FLOP counter at zero, and idle tensor cores."""
    return {**sass(), "sm__inst_executed_pipe_tensor.sum": metric(0.0)}


class TestHeadroom:
    def test_is_the_time_that_reaching_the_roof_would_save_and_its_share_of_the_run(self) -> None:
        _, rows = kernels(
            launch("half", complete(), ns=1e6, dram=0.5 * 1555e9 * 1e-3),
            launch("full", complete(), ns=3e6, dram=3 * 1555e9 * 1e-3),
        )
        found = {row.kernel: row for row in rows}
        assert found["half"].headroom_ns == pytest.approx(0.5e6)
        assert found["half"].headroom_share == pytest.approx(0.125)
        assert found["full"].headroom_ns == pytest.approx(0, abs=1)

    def test_above_the_roof_is_zero_and_without_a_bound_unknown(self) -> None:
        _, rows = kernels(launch("above", complete(), ns=1e6, dram=2 * 1555e9 * 1e-3), launch("k", ns=1e6))
        found = {row.kernel: row for row in rows}
        assert (found["above"].headroom_ns, found["k"].headroom_ns) == (0, None)

    def test_sorts_kernels_by_what_they_could_save(self) -> None:
        result = CliRunner().invoke(
            cli, ["hotspots", str(SAMPLES / "d01-wide-raw.csv"), "--by", "headroom", "--format", "csv"]
        )
        header, *lines = result.stdout.splitlines()
        place = header.split(",").index("headroom_ns")
        saved = [float(cells[place]) for cells in csv.reader(lines)]
        assert saved == sorted(saved, reverse=True)
        assert len(saved) == 6


class TestTheCommand:
    def test_says_a_sentence_for_each_kernel(self) -> None:
        result = CliRunner().invoke(cli, ["hotspots", str(SAMPLES / "d01-wide-raw.csv"), "--diagnose"])
        assert result.exit_code == 0, result.output
        assert "DRAM bound: at 88% of its ceiling" in result.stdout
        assert "below every roof" in result.stdout

    def test_leaves_the_table_alone_without_the_option(self) -> None:
        result = CliRunner().invoke(cli, ["hotspots", str(SAMPLES / "d01-wide-raw.csv"), "--format", "json"])
        assert '"diagnosis"' not in result.stdout


REAL = {
    "eschnett__IndexSpaces.jl__317662.ncu2022.3.raw.base.csv": {
        "julia_bb_4477": "waiting for a busy math pipe: 3.3 warps stalled there",
        "julia__5_6739": "DRAM bound: its throughput is at 96 % of its peak; dram, flops would confirm it",
    },
    "josiahls__cuda_learning_mojo.ncu2022.3.raw.csv": {"mathKernel1": "latency bound: less than 0.01 waves"},
    "Olajide-Badejo__GPU-Roofline-Profiler__results_sample_run_ncu_gemm_naive.csv": {
        "unnamed>::gemm_naive_kernel": "SM bound: the busiest part of the SMs is at 97 % of its peak"
    },
    "Olajide-Badejo__GPU-Roofline-Profiler__results_sample_run_ncu_transpose_naive.csv": {
        "unnamed>::transpose_naive_kernel": "uncoalesced: 32.0 sectors per store, where 4-byte stores need 4"
    },
    "brycelelbach__nsightful__tests_copy_blocked.csv": {"copy_blocked": "below every peak: the SMs are at 1 % and memory"},
    "CodeGandee__llm-perf-opt__dsocr-v2-kernel_0009-ncu.details.csv": {
        "fmha_cutlassF_bf16_aligned_64x": "latency bound: the SMs are at 37 % and memory at 37 % of their peaks"
    },
    "CodeGandee__llm-perf-opt__dsocr-v2-kernel_0001-ncu.details.csv": {
        "enable_if<!T7, void>::type kernel": "tensor cores idle though inputs are bf16 (by the kernel's name): they did 0"
    },
    "CodeGandee__llm-perf-opt__dsocr-v2-kernel_0016-ncu.details.csv": {
        "void Kernel2<cutlass_80_tensorop_bf16": "few warps: 17 % of those that fit are active"
    },
    "CodeGandee__llm-perf-opt__dsocr-v2-kernel_0004-ncu.details.csv": {
        "void unrolled_elementwise_kern": "few warps: 8 % of those that fit are active; stalls would confirm it"
    },
    "leonsuaudeau__HPC_Fluid_Solver__ncu-ui-summary-export_profiling.csv": {
        "..MDRangePolicy..Rank..": "memory bound: the busiest part of L1, L2, shared memory or DRAM is at 89 %"
    },
}  # fmt: skip
"""Reports of other people's GPUs -> how a kernel's name begins -> how its diagnosis does. The per cents are printed."""


@needs_shared_reports
@pytest.mark.parametrize("report", REAL)
def test_of_a_real_report_says_what_its_numbers_say(report: str) -> None:
    made = parse(find_sources([str(SHARED / "reports" / "ncu_csv" / report)])).table
    assert made is not None
    said = diagnoses(made, hotspots(made, ceilings_of(made)).rows, "name")
    for name, sentence in REAL[report].items():
        (found,) = [text for kernel, text in said.items() if kernel.startswith(name)]
        assert found.startswith(sentence)


@needs_shared_reports
def test_a_real_report_with_local_memory_at_zero_needs_no_group_of_spills() -> None:
    report = SHARED / "reports" / "ncu_csv" / "eschnett__IndexSpaces.jl__317662.ncu2022.3.raw.base.csv"
    made = parse(find_sources([str(report)])).table
    assert made is not None
    assert set(made.column("sass__inst_executed_local_loads").to_pylist()) == {0.0}
    said = diagnoses(made, hotspots(made, ceilings_of(made)).rows, "name")
    assert not any("spill" in text or "local memory" in text for text in said.values())


def test_rules_are_read_from_the_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rules.cache_clear()
    assert len(rules()) >= 8


def test_loads_of_16_bytes_that_are_coalesced_are_not_accused() -> None:
    load = "l1tex__t_{}_pipe_lsu_mem_global_op_ld.sum"
    counted = {load.format("sectors"): metric(160.0), load.format("requests"): metric(10.0)}
    made, rows = kernels(launch("k", {**sass(), **counted}, ns=1e6, dram=1e6))
    assert "uncoalesced" not in diagnoses(made, rows, "name").get("k", "")
