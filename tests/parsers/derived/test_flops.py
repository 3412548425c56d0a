"""FLOPs, bytes, time and ceilings from counters, by every rule in ncu_parsers.derived."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from ncu_launch.counters.chips import chips, exists
from ncu_launch.counters.metrics import floating_tensor_totals, tensor_counter
from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.report_data.report import Metric, Report

from tests.support.launches import SASS, launch, metric, row, sass, table, tensor


def test_cuda_core_flops_count_an_fma_twice_and_packed_half_fourfold() -> None:
    found = row(
        launch(metrics=sass(dadd=1, dmul=10, dfma=100, fadd=2, fmul=20, ffma=200, hadd=3, hmul=30, hfma=300) | tensor())
    )
    assert (found["flops_fp64"], found["flops_fp32"], found["flops_fp16"]) == (211.0, 422.0, 66 + 1200)
    assert found["flops"] == 211 + 422 + 66 + 1200
    assert found["flops_basis"] == "sass fp64+fp32+fp16; tensor ops"


def test_both_prefixes_of_the_sass_counters_count_the_same() -> None:
    renamed = {name.replace("smsp__", "sm__"): value for name, value in sass(ffma=7).items()}
    assert row(launch(metrics=renamed))["flops_fp32"] == 14


def test_rates_per_cycle_are_multiplied_with_the_average_of_elapsed_cycles_never_with_the_maximum() -> None:
    rates = {
        name.replace(".sum", ".sum.per_cycle_elapsed"): metric(value.value) for name, value in sass(ffma=2.5).items()
    }
    cycles = {"sm__cycles_elapsed.avg": metric(1000.0), "sm__cycles_elapsed.max": metric(1100.0)}
    assert row(launch(metrics=rates | cycles))["flops_fp32"] == 2 * 2.5 * 1000


def test_rates_per_cycle_need_only_the_clock_where_cycles_were_not_collected() -> None:
    rates = {
        name.replace(".sum", ".sum.per_cycle_elapsed"): metric(value.value) for name, value in sass(ffma=2).items()
    }
    clock = {"smsp__cycles_elapsed.avg.per_second": metric(1e9, "hz")}
    assert row(launch(metrics=rates | clock, ns=500))["flops_fp32"] == pytest.approx(2 * 2 * 500)


def test_rates_per_cycle_are_unknown_where_only_another_clock_than_that_of_the_sms_is() -> None:
    rates = {
        name.replace(".sum", ".sum.per_cycle_elapsed"): metric(value.value) for name, value in sass(ffma=2).items()
    }
    clock = {"gpc__cycles_elapsed.avg.per_second": metric(1e9, "hz")}
    assert row(launch(metrics=rates | clock, ns=500))["flops_fp32"] is None
    rate = {"dram__bytes.sum.per_cycle_elapsed": metric(8.0), "sm__cycles_elapsed.avg": metric(1000.0)}
    assert row(launch(metrics=rate))["dram_bytes"] is None, "it is of the memory's cycles"


def test_the_doubled_fma_rate_of_the_roofline_section_is_halved_back() -> None:
    metrics = {
        "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum.per_cycle_elapsed": metric(1.0),
        "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum.per_cycle_elapsed": metric(2.0),
        "derived__smsp__sass_thread_inst_executed_op_ffma_pred_on_x2": metric(30.0),
        "sm__cycles_elapsed.avg": metric(100.0),
    }
    assert row(launch(metrics=metrics))["flops_fp32"] == 33 * 100


def test_a_precision_with_a_missing_counter_is_unknown() -> None:
    metrics = sass(ffma=5)
    del metrics[SASS.format("fmul")]
    found = row(launch(metrics=metrics))
    assert found["flops_fp32"] is None
    assert found["flops_fp64"] == 0


def test_packed_fp32_of_blackwell_is_counted_and_requested() -> None:
    packed = {SASS.format("ffma2"): metric(10.0), SASS.format("fadd2"): metric(1.0), SASS.format("fmul2"): metric(2.0)}
    assert row(launch(metrics=sass(ffma=5) | packed, capability="10.0"))["flops_fp32"] == 10 + 40 + 2 + 4
    assert "packed fp32" in row(launch(metrics=sass(ffma=5), capability="10.0"))["flops_basis"]
    assert "packed fp32" not in row(launch(metrics=sass(ffma=5), capability="12.0"))["flops_basis"]


def test_packed_fp32_is_not_asked_for_where_all_of_fp32_is_missing() -> None:
    others = {name: value for name, value in sass(dfma=1).items() if "_op_f" not in name}
    basis = row(launch(metrics=others, capability="10.0"))["flops_basis"]
    assert basis == "sass fp64+fp16; not collected: fp32, tensor"


def test_packed_fp32_is_part_of_the_total_which_is_a_lower_bound_without_it() -> None:
    packed = {SASS.format(opcode): metric(1.0) for opcode in ("fadd2", "fmul2", "ffma2")}
    none = {name: metric(0.0) for name in floating_tensor_totals("10.0") or ()}
    whole = row(launch(metrics=sass(ffma=5) | packed | none, capability="10.0"))
    assert (whole["flops"], whole["flops_basis"]) == (10 + 8, "sass fp64+fp32+fp16; tensor ops")
    assert row(launch(metrics=sass(ffma=5) | none, capability="10.0"))["flops_basis"].endswith(
        "not collected: packed fp32"
    )


class TestTensorOperations:
    def test_totals_of_every_type_are_summed_in_their_columns(self) -> None:
        found = row(
            launch(metrics=sass() | tensor("9.0", bf16_dst_fp32=8, fp16=16, fp8=32, tf32_dst_fp32=64), capability="9.0")
        )
        assert [found[f"tensor_flops_{kind}"] for kind in ("bf16", "fp16", "fp8", "tf32")] == [8, 16, 32, 64]
        assert found["tensor_flops"] == found["flops"] == 120

    def test_a_total_is_never_added_to_its_parts(self) -> None:
        base = "sm__ops_path_tensor_src_bf16_dst_fp32"
        parts = {
            f"{base}_sparsity_off.sum": metric(100.0), f"{base}_sparsity_on.sum": metric(0.0),
            "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum": metric(100.0),
        }  # fmt: skip
        assert row(launch(metrics=tensor(bf16_dst_fp32=100) | parts))["tensor_flops"] == 100
        assert row(launch(metrics=parts))["tensor_flops"] == 100

    def test_counts_per_instruction_of_hopper_are_summed_without_a_total(self) -> None:
        parts = {
            f"sm__ops_path_tensor_op_{op}_src_bf16_dst_fp32_sparsity_{sparsity}.sum": metric(value)
            for op, sparsity, value in (("hgmma", "off", 100.0), ("hgmma", "on", 20.0), ("hmma", "off", 3.0))
        }
        assert row(launch(metrics=parts, capability="9.0"))["tensor_flops_bf16"] == 123

    def test_integer_operations_are_no_flops(self) -> None:
        found = row(launch(metrics=sass() | tensor() | {"sm__ops_path_tensor_src_int8.sum": metric(1e9)}))
        assert found["tensor_ops_int8"] == 1e9
        assert found["flops"] == found["tensor_flops"] == 0

    def test_realtime_duplicates_are_ignored(self) -> None:
        assert tensor_counter("sm__ops_path_tensor_src_bf16_dst_fp32_realtime") is None
        assert tensor_counter("sm__inst_executed_pipe_tensor") is None

    def test_dense_or_sparse_parts_alone_are_a_lower_bound(self) -> None:
        dense = {name.replace(".sum", "_sparsity_off.sum"): metric(5.0) for name in tensor()}
        sparse = {name.replace(".sum", "_sparsity_on.sum"): metric(5.0) for name in tensor()}
        for parts, basis in ((dense, "tensor ops (not every type)"), (sparse, "tensor ops (not every type)"),
                             (dense | sparse, "tensor ops")):  # fmt: skip
            assert row(launch(metrics=sass() | parts))["flops_basis"].endswith(f"; {basis}")


class TestConstantMoves:
    """HFMA2.MMA moves constants on A100 and H100; it counts as hfma and as tensor pipe activity."""

    @pytest.mark.parametrize("others", [sass(ffma=1000, hfma=10) | tensor(), sass(dfma=1000, hfma=10) | tensor(),
                                        sass(hfma=10) | tensor(bf16_dst_fp32=2000)])  # fmt: skip
    def test_hfma_alone_is_excluded_if_other_operations_outweigh_it(self, others: dict[str, Metric]) -> None:
        found = row(launch(metrics=others))
        assert found["flops_fp16"] == 40
        assert found["flops"] == 2000
        assert "fp16 left out: constant moves" in found["flops_basis"]

    def test_hfma_that_weighs_as_much_as_the_rest_does_not_outweigh_it(self) -> None:
        assert row(launch(metrics=sass(ffma=20, hfma=10) | tensor()))["flops"] == 40
        assert row(launch(metrics=sass(ffma=19, hfma=10) | tensor()))["flops"] == 38 + 40

    def test_hfma_is_arithmetic_beside_hadd_or_hmul(self) -> None:
        assert row(launch(metrics=sass(ffma=1000, hfma=10, hadd=1) | tensor()))["flops"] == 2000 + 42
        assert row(launch(metrics=sass(ffma=1000, hfma=10, hmul=1) | tensor()))["flops"] == 2000 + 42

    def test_hfma_is_arithmetic_on_chips_whose_compiler_does_not_move_constants_with_it(self) -> None:
        assert row(launch(metrics=sass(ffma=1000, hfma=10), capability="8.6"))["flops"] == 2040

    def test_hfma_that_outweighs_the_rest_is_counted_with_a_warning(self) -> None:
        found = row(launch(metrics=sass(ffma=1, hfma=1000) | tensor()))
        assert found["flops"] == 4002
        assert "may be constant moves" in found["flops_basis"]

    def test_their_tensor_pipe_activity_is_no_tensor_work(self) -> None:
        active = {
            "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": metric(2.1, "%"),
            "sm__inst_executed_pipe_tensor.sum": metric(10.0),
        }
        found = row(launch(metrics=sass(ffma=1000, hfma=320) | tensor() | active))
        assert (found["tensor_flops"], found["flops"]) == (0, 2000)
        assert found["flops_basis"] == "sass fp64+fp32+fp16; tensor ops; fp16 left out: constant moves"

    def test_an_unknown_chip_is_treated_as_one_that_moves_constants(self) -> None:
        assert row(launch(metrics=sass(ffma=1000, hfma=10), capability=None))["flops"] == 2000


class TestTensorWorkThatWasNotCounted:
    EXECUTED = "sm__inst_executed_pipe_tensor.sum"

    def test_leaves_the_total_unknown(self) -> None:
        found = row(launch(metrics=sass(fmul=100) | {self.EXECUTED: metric(5000.0)}))
        assert found["flops"] is None
        assert "tensor, which was busy" in found["flops_basis"]
        assert found["flops_fp32"] == 100

    def test_is_excluded_if_hfma_explains_the_instructions_of_the_pipe(self) -> None:
        found = row(launch(metrics=sass(ffma=10**6, hfma=3200) | {self.EXECUTED: metric(100.0)}))
        assert found["flops"] == 2 * 10**6
        assert "not collected" not in found["flops_basis"]
        assert row(launch(metrics=sass(ffma=10**6, hfma=3200) | {self.EXECUTED: metric(103.0)}))["flops"] is None

    def test_is_ruled_out_by_an_idle_pipe(self) -> None:
        idle = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": metric(0.0, "%")}
        assert "not collected" not in row(launch(metrics=sass(ffma=1) | idle, capability="8.6"))["flops_basis"]

    @pytest.mark.parametrize("counter", ["sm__pipe_tensor_cycles_active", "sm__inst_executed_pipe_tensor"])
    def test_is_not_ruled_out_by_an_idle_pipe_where_tensor_cores_have_another_one(self, counter: str) -> None:
        idle = {f"{counter}.sum": metric(0.0)}
        found = row(launch(metrics=sass(ffma=1) | idle, capability="10.0"))
        assert (found["flops"], found["flops_basis"]) == (2, "sass fp64+fp32+fp16; not collected: tensor, packed fp32")
        assert "not collected" not in row(launch(metrics=sass(ffma=1) | idle, capability="12.0"))["flops_basis"]

    def test_on_hopper_is_ruled_out_by_idle_instructions_only_where_those_of_warpgroups_are_among_them(self) -> None:
        hmma, gmma = ({f"sm__inst_executed_pipe_tensor_op_{kind}.sum": metric(0.0)} for kind in ("hmma", "gmma"))
        assert row(launch(metrics=sass(ffma=1) | hmma, capability="9.0"))["flops_basis"].endswith("collected: tensor")
        assert "not collected" not in row(launch(metrics=sass(ffma=1) | hmma | gmma, capability="9.0"))["flops_basis"]
        assert "not collected" not in row(launch(metrics=sass(ffma=1) | hmma, capability="8.6"))["flops_basis"]

    @pytest.mark.parametrize(
        ("hmma", "dmma", "known"),
        [(100.0, 0.0, True), (102.0, 0.0, True), (103.0, 0.0, False), (100.0, 1.0, False)],
    )
    def test_on_hopper_is_ruled_out_if_hfma_explains_all_hmma_and_no_dmma_ran(
        self, hmma: float, dmma: float, known: bool
    ) -> None:
        """On an H100 hmma counts wgmma and HFMA2.MMA: equal to the opcodes in 37 launches."""
        counted = {
            "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum": metric(0.0),
            "sm__inst_executed_pipe_tensor_op_hmma.sum": metric(hmma),
            "sm__inst_executed_pipe_tensor_op_dmma.sum": metric(dmma),
        }
        found = row(launch(metrics=sass(ffma=10**6, hfma=3200) | counted, capability="9.0"))
        assert found["flops"] == 2 * 10**6
        assert ("not every" not in found["flops_basis"]) == known

    def test_on_other_chips_is_not_ruled_out_by_hmma_that_hfma_explains(self) -> None:
        """Only on an H100 it is known that hmma and dmma count every floating-point tensor instruction."""
        counted = {
            "sm__inst_executed_pipe_tensor_op_hmma.sum": metric(100.0),
            "sm__inst_executed_pipe_tensor_op_dmma.sum": metric(0.0),
        }
        found = row(launch(metrics=sass(ffma=10**6, hfma=3200) | counted, capability="8.0"))
        assert found["flops_basis"] == "sass fp64+fp32+fp16; fp16 left out: constant moves; not collected: tensor"

    def test_is_integer_work_where_no_floating_instruction_ran(self) -> None:
        integer = {
            "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active": metric(0.0, "%"),
            "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": metric(53.0, "%"),
        }
        assert "tensor" not in row(launch(metrics=sass(ffma=1) | integer, capability="8.6"))["flops_basis"]

    @pytest.mark.parametrize("share", [0.3, 2.1])
    def test_is_proven_by_the_pipe_only_on_chips_without_constant_moves(self, share: float) -> None:
        busy = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": metric(share, "%")}
        assert row(launch(metrics=sass(ffma=1) | busy, capability="8.6"))["flops"] is None
        assert row(launch(metrics=sass(ffma=1) | busy, capability="8.0"))["flops"] == 2
        for unit in ("hmma", "dmma"):
            name = f"sm__inst_executed_pipe_tensor_op_{unit}.avg.pct_of_peak_sustained_active"
            assert row(launch(metrics=sass(ffma=1) | {name: metric(share, "%")}, capability="8.6"))["flops"] is None

    @pytest.mark.parametrize(("executed", "flops"), [(1.0, 2), (2.0, None)])
    def test_may_be_one_instruction_that_hfma_does_not_explain(self, executed: float, flops: float | None) -> None:
        assert row(launch(metrics=sass(ffma=1) | {self.EXECUTED: metric(executed)}))["flops"] == flops

    def test_is_impossible_on_a_gpu_without_tensor_cores(self) -> None:
        name = {"device__attribute_display_name": metric("NVIDIA GeForce GTX 1660 Ti")}
        without = launch(metrics=sass(ffma=1) | name, capability="7.5")
        assert "tensor" not in row(without)["flops_basis"]
        of_both = table(without, launch(metrics=sass(ffma=1), capability="7.5"), without).to_pylist()
        assert ["tensor" in one["flops_basis"] for one in of_both] == [False, True, False]

    def test_makes_flops_a_lower_bound_without_any_evidence(self) -> None:
        found = row(launch(metrics=sass(ffma=5)))
        assert found["flops"] == 10
        assert found["flops_basis"].endswith("not collected: tensor")

    def test_makes_a_sum_of_zero_unknown(self) -> None:
        assert row(launch(metrics=sass()))["flops"] is None
        assert row(launch(metrics=sass() | tensor()))["flops"] == 0
        some = {"sm__ops_path_tensor_src_fp16_dst_fp32.sum": metric(0.0)}
        assert row(launch(metrics=sass() | some))["flops"] is None, "of some types alone"
        single = {name: value for name, value in sass().items() if "_op_f" in name}
        assert row(launch(metrics=single | tensor()))["flops"] is None, "of one precision alone"


def test_without_any_flop_counter_there_are_no_flops_and_no_basis() -> None:
    found = row(launch(ns=100, dram=100))
    assert found["flops"] is None
    assert found["flops_basis"] is None
    assert found["tensor_flops"] is None


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"gpu__time_duration.sum": 100.0}, 100.0),
        ({"gpu__time_duration.avg": 100.0}, 100.0),
        ({"sm__cycles_elapsed.avg": 1500.0, "sm__cycles_elapsed.avg.per_second": 1.5e9}, 1000.0),
        ({"smsp__cycles_elapsed.avg": 1500.0, "smsp__cycles_elapsed.avg.per_second": 1.5e9}, 1000.0),
        (
            {"gpu__time_duration.sum": 100.0, "sm__cycles_elapsed.avg": 1.0, "sm__cycles_elapsed.avg.per_second": 1.0},
            100.0,
        ),
        ({"sm__cycles_elapsed.avg": 1500.0, "sm__cycles_elapsed.avg.per_second": 0.0}, None),
        ({}, None),
    ],
)
def test_time_comes_from_the_duration_or_from_cycles_and_their_rate(
    metrics: dict[str, float], expected: float | None
) -> None:
    found = row(launch(metrics={name: metric(value) for name, value in metrics.items()}))["duration_ns"]
    assert found is None if expected is None else math.isclose(found, expected)


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"dram__bytes.sum": 64.0}, 64.0),
        ({"dram__bytes_read.sum": 60.0, "dram__bytes_write.sum": 4.0}, 64.0),
        ({"dram__bytes_op_read.sum": 60.0, "dram__bytes_op_write.sum": 4.0}, 64.0),
        ({"dram__sectors_read.sum": 1.0, "dram__sectors_write.sum": 1.0}, 64.0),
        ({"dram__bytes_read.sum": 32.0, "dram__sectors_write.sum": 1.0}, 64.0),
        ({"dram__sectors_read.sum": 1.0, "dram__bytes_write.sum": 32.0}, 64.0),
        ({"dram__sectors_op_read.sum": 1.0, "dram__sectors_op_write.sum": 1.0}, 64.0),
        ({"dram__sectors_op_read.sum": 1.0, "dram__bytes_op_write.sum": 32.0}, 64.0),
        ({"dram__bytes_op_read.sum": 32.0, "dram__sectors_op_write.sum": 1.0}, 64.0),
        ({"dram__bytes_read.sum.per_second": 32e9, "dram__sectors_write.sum": 1.0}, 64.0),
        ({"dram__bytes_read.sum": 32.0, "dram__sectors_write.sum": 1.0, "dram__bytes.sum.per_second": 66e9}, 64.0),
        ({"dram__bytes.sum.per_second": 64e9}, 64.0),
        ({"dram__bytes.sum.per_second": 66e9, "dram__bytes_read.sum": 60.0, "dram__bytes_write.sum": 4.0}, 64.0),
        ({"dram__bytes_read.sum": 60.0}, None),
        ({}, None),
    ],
)
def test_dram_bytes_are_read_from_every_name_of_their_counter(
    metrics: dict[str, float], expected: float | None
) -> None:
    found = row(launch(metrics={name: metric(value) for name, value in metrics.items()}, ns=1.0))
    assert found["dram_bytes"] == (None if expected is None else pytest.approx(expected))


class TestAveragesOverLaunches:
    RATES = MappingProxyType({"dram__bytes.sum.per_second": metric(64e9), "sm__cycles_elapsed.avg": metric(100.0)})

    def made(self, invocations: int | None, metrics: Mapping[str, Metric]) -> tuple[dict[str, Any], list[str]]:
        report = Report("report.csv", launches=[launch(metrics=dict(metrics), ns=2.0, invocations=invocations)])
        (only,) = launches_table(report).to_pylist()
        return only, report.notes

    @pytest.mark.parametrize(("invocations", "is_estimate"), [(None, False), (1, False), (3, True)])
    def test_mark_bytes_of_mean_rates_as_estimates_unless_they_average_one_launch(
        self, invocations: int | None, is_estimate: bool
    ) -> None:
        found, notes = self.made(invocations, self.RATES)
        assert found["dram_bytes"] == pytest.approx(128.0)
        assert notes == is_estimate * [
            "dram_bytes of 1 averages over launches are estimated, as mean rate x mean time: the report holds no sums "
            "of them"
        ]

    def test_do_not_mark_averages_of_sums(self) -> None:
        found, notes = self.made(3, {**self.RATES, **sass(ffma=7), **tensor(), "dram__bytes.sum": metric(120.0)})
        assert (found["dram_bytes"], found["flops"], notes) == (120.0, 14.0, [])
        assert "estimated" not in found["flops_basis"]

    def test_mark_estimated_flops_in_the_basis(self) -> None:
        rates = {name.replace(".sum", ".sum.per_cycle_elapsed"): value for name, value in sass(ffma=7).items()}
        found, notes = self.made(3, {**self.RATES, **rates})
        assert found["flops"] == 1400
        assert found["flops_basis"] == "sass fp64+fp32+fp16; estimated from mean rates; not collected: tensor"
        assert notes[0].startswith("flops, dram_bytes of 1 averages")


SYSTEM_MEMORY = {"lts__d_sectors_fill_sysmem.sum": 1.0, "lts__t_sectors_aperture_sysmem_op_write.sum": 1.0}


@pytest.mark.parametrize("capability", [*(chip.compute_capability for chip in chips()), "10.1", None])
def test_system_memory_counts_as_dram_on_gpus_without_their_own(capability: str | None) -> None:
    alike = [chip for chip in chips() if capability is not None and chip.compute_capability == capability]
    integrated = capability == "10.1" or (bool(alike) and not exists("dram__bytes.sum", alike[0], None))
    metrics = {name: metric(value) for name, value in SYSTEM_MEMORY.items()}
    found = row(launch(metrics=metrics, ns=1.0, capability=capability))
    assert found["dram_bytes"] == (64.0 if integrated else None)


def test_a_rate_of_dram_is_preferred_to_system_memory() -> None:
    metrics = {**SYSTEM_MEMORY, "dram__bytes.sum.per_second": 1e12}
    found = row(launch(metrics={name: metric(value) for name, value in metrics.items()}, ns=1.0, capability="8.6"))
    assert found["dram_bytes"] == pytest.approx(1000.0)


@pytest.mark.parametrize(
    ("opcode", "operations", "weight"), [("hadd", 2, 2), ("hmul", 2, 2), ("hfma", 4, 4), ("ffma", 2, 2)]
)
def test_derived_rates_count_each_operation(opcode: str, operations: int, weight: int) -> None:
    known = sass()
    del known[SASS.format(opcode)]
    derived = f"derived__smsp__sass_thread_inst_executed_op_{opcode}_pred_on_x{operations}"
    cycles = {"sm__cycles_elapsed.avg": metric(1000.0)}
    found = row(launch(metrics={**known, **cycles, derived: metric(400.0)}, ns=1.0, capability="9.0"))
    assert found["flops_fp32" if opcode == "ffma" else "flops_fp16"] == 400.0 * 1000 / operations * weight


def test_a_count_of_any_result_on_one_chip_does_not_affect_counts_by_result_on_another() -> None:
    ampere = launch("a", {**sass(ffma=1), **tensor("8.0", bf16_dst_fp32=10, fp16_dst_fp32=5)}, ns=1.0, capability="8.0")
    hopper = launch("h", {**sass(ffma=1), **tensor("9.0", bf16_dst_fp32=10, fp16=5)}, ns=1.0, capability="9.0")
    rows = table(ampere, hopper).to_pylist()
    assert [one["flops_basis"] for one in rows] == [row(ampere)["flops_basis"], row(hopper)["flops_basis"]]
    assert "not every" not in rows[0]["flops_basis"]


L1_PARTS = {
    f"l1tex__t_sectors_pipe_{part}.sum": metric(sectors, "sector")
    for part, sectors in {
        "lsu_mem_global_op_ld": 7.0, "lsu_mem_global_op_st": 5.0, "lsu_mem_global_op_red": 3.0,
        "lsu_mem_global_op_atom": 2.0, "lsu_mem_local_op_ld": 10.0, "lsu_mem_local_op_st": 10.0,
        "tex_mem_texture": 10.0, "tex_mem_surface_op_ld": 10.0, "tex_mem_surface_op_st": 10.0,
        "tex_mem_surface_op_red": 10.0, "tex_mem_surface_op_atom": 10.0,
    }.items()
}  # fmt: skip
CP_ASYNC = "smsp__inst_executed_op_ldgsts.sum"
NO_CP_ASYNC = {CP_ASYNC: metric(0.0)}
NO_CLUSTER = {
    f"l1tex__t_requests_pipe_lsu_mem_dshared_op_{kind}.sum": metric(0.0) for kind in ("ld", "st", "redas", "atom")
}


class TestL1ByParts:
    """If no counter of all L1 traffic was collected, as in full sets, the parts are summed."""

    def bytes_at_l1(self, metrics: dict[str, Metric], capability: str | None = "7.5") -> float | None:
        found: float | None = row(launch(metrics=metrics, capability=capability))["l1_bytes"]
        return found

    def test_loads_stores_reductions_and_atomics_of_every_memory_are_summed(self) -> None:
        assert self.bytes_at_l1(L1_PARTS) == 32 * (7 + 5 + 3 + 2 + 7 * 10)

    @pytest.mark.parametrize("missing", sorted(L1_PARTS))
    def test_a_part_that_was_not_collected_leaves_the_bytes_unknown(self, missing: str) -> None:
        assert self.bytes_at_l1({name: value for name, value in L1_PARTS.items() if name != missing}) is None

    def test_the_total_counter_is_preferred(self) -> None:
        assert self.bytes_at_l1(L1_PARTS | {"l1tex__t_bytes.sum": metric(64.0)}) == 64

    @pytest.mark.parametrize("capability", ["8.0", "8.9", "9.0", "12.0", None])
    def test_traffic_that_the_parts_miss_leaves_the_bytes_unknown(self, capability: str | None) -> None:
        other = NO_CP_ASYNC | NO_CLUSTER
        assert self.bytes_at_l1(L1_PARTS | other, capability) == 32 * 87
        assert self.bytes_at_l1(L1_PARTS, capability) is None
        assert self.bytes_at_l1(L1_PARTS | other | {CP_ASYNC: metric(1.0)}, capability) is None

    def test_only_chips_with_clusters_need_a_zero_count_of_shared_cluster_memory(self) -> None:
        assert self.bytes_at_l1(L1_PARTS | NO_CP_ASYNC, "8.6") == 32 * 87
        assert self.bytes_at_l1(L1_PARTS | NO_CP_ASYNC, "9.0") is None


def test_l2_and_l1_bytes_follow_from_bytes_and_sectors() -> None:
    found = row(launch(metrics={"lts__t_bytes.sum": metric(10.0), "l1tex__t_sectors.sum": metric(2.0)}))
    assert (found["l2_bytes"], found["l1_bytes"]) == (10.0, 64.0)


CLOCKS = {
    "sm__cycles_elapsed.avg.per_second": metric(1.41e9, "hz"),
    "dram__cycles_elapsed.avg.per_second": metric(1.215e9, "hz"),
}


class TestCeilings:
    def test_the_peaks_of_an_a100_give_its_data_sheet(self) -> None:
        found = row(
            launch(
                metrics={
                    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": metric(64.0 * 108),
                    "sm__sass_thread_inst_executed_op_dfma_pred_on.sum.peak_sustained": metric(32.0 * 108),
                    "sm__sass_thread_inst_executed_op_hfma_pred_on.sum.peak_sustained": metric(128.0 * 108),
                    "sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_off.sum.peak_sustained": metric(2048.0 * 108),
                    "sm__ops_path_tensor_src_fp64.sum.peak_sustained": metric(128.0 * 108),
                    "dram__bytes.sum.peak_sustained": metric(1280.0),
                }
                | CLOCKS
            )
        )
        assert found["peak_flops_fp32"] == pytest.approx(19.5e12, rel=2e-3)
        assert found["peak_flops_fp64"] == pytest.approx(9.7e12, rel=5e-3)
        assert found["peak_flops_fp16"] == pytest.approx(78e12, rel=2e-3)
        assert found["peak_tensor_flops_bf16"] == pytest.approx(312e12, rel=2e-3)
        assert found["peak_tensor_flops_fp64"] == pytest.approx(19.5e12, rel=2e-3)
        assert found["peak_dram_bytes"] == pytest.approx(1555.2e9)

    def test_the_peak_of_a_plain_total_is_sparse_and_no_dense_ceiling_unless_the_chip_knows_no_sparsity(self) -> None:
        total = {"sm__ops_path_tensor_src_fp16_dst_fp32.sum.peak_sustained": metric(1000.0)} | CLOCKS
        assert row(launch(metrics=total, capability="8.0"))["peak_tensor_flops_fp16"] is None
        assert row(launch(metrics=total, capability="7.0"))["peak_tensor_flops_fp16"] == pytest.approx(1.41e12)

    def test_the_fma_peak_of_the_roofline_section_is_used_where_the_plain_one_is_missing(self) -> None:
        doubled = {"derived__sm__sass_thread_inst_executed_op_ffma_pred_on_x2": metric(128.0 * 108)} | CLOCKS
        assert row(launch(metrics=doubled))["peak_flops_fp32"] == pytest.approx(19.5e12, rel=2e-3)

    def test_a_peak_without_a_clock_is_no_ceiling(self) -> None:
        assert row(launch(metrics={"dram__bytes.sum.peak_sustained": metric(1280.0)}))["peak_dram_bytes"] is None


def test_launches_with_different_metrics_each_use_their_own() -> None:
    rows = table(
        launch("a", sass(ffma=1) | tensor(), ns=1), launch("b", ns=2), launch("c", sass(dfma=1), dram=3)
    ).to_pylist()
    assert [found["flops"] for found in rows] == [2, None, 2]
    assert [found["duration_ns"] for found in rows] == [1, 2, None]
    assert [found["dram_bytes"] for found in rows] == [None, None, 3]
