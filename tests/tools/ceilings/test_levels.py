"""Bytes of the memory levels by each definition, and the ceiling of shared memory, from counters written by hand."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from ncu_tools.ceilings.levels import (
    byte_metrics,
    bytes_of,
    ceiling_metrics,
    definition_titles,
    needed_metrics,
    shared_memory_ceiling,
    transactions_of,
)
from ncu_tools.ceilings.machine_files import NVIDIA, TRAFFIC

SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared"
HOPPER_ALL, HOPPER_WGMMA = "smsp__sass_inst_executed_op_shared", "smsp__sass_inst_executed_op_shared_gmma"
FROM_L2 = "lts__lts2xbar_cycles_active"


def one_launch(capability: str | None = "8.0", **columns: float | None) -> pa.Table:
    """A table of a launch of 2 us with these columns; `__sum` at the end of a name stands for `.sum`."""
    values = {name.replace("__sum", ".sum"): pa.array([value], pa.float64()) for name, value in columns.items()}
    return pa.table({
        "duration_ns": [2000.0], "compute_capability": pa.array([capability], pa.string()).dictionary_encode(), **values
    })  # fmt: skip


def amount(table: pa.Table, level: str, definition: str) -> float | None:
    found = float(bytes_of(table, [level], definition)[level][0])
    return None if math.isnan(found) else found


def counted(counter: str, capability: str | None, value: float = 10.0) -> pa.Table:
    return one_launch(capability).append_column(f"{counter}.sum", pa.array([value]))


class TestTrafficBytes:
    @pytest.mark.parametrize(("level", "column"), [("dram", "dram_bytes"), ("l2", "l2_bytes"), ("l1", "l1_bytes")])
    def test_are_a_column_of_the_table(self, level: str, column: str) -> None:
        table = one_launch().append_column(column, pa.array([640.0]))
        assert amount(table, level, TRAFFIC) == 640
        assert bytes_of(table, [level])[level].tolist() == [640]

    def test_of_shared_memory_are_128_per_wavefront(self) -> None:
        assert amount(counted(SHARED, "8.0"), "shared", TRAFFIC) == 1280

    @pytest.mark.parametrize(
        ("capability", "counts", "found"),
        [
            ("9.0", {HOPPER_ALL: 0.0, HOPPER_WGMMA: 0.0}, 0),
            ("9.0", {HOPPER_ALL: 0.0, HOPPER_WGMMA: 5.0}, 1280),
            ("9.0", {HOPPER_ALL: 0.0}, 1280),
            ("8.6", {f"{SHARED}_op_{one}": 0.0 for one in ("ld", "st", "atom")}, 0),
            ("8.6", {f"{SHARED}_op_{one}": value for one, value in (("ld", 1.0), ("st", 0.0), ("atom", 0.0))}, 1280),
            ("8.6", {f"{SHARED}_op_{one}": 0.0 for one in ("ld", "st")}, 1280),
            ("9.0", {f"{SHARED}_op_{one}": 0.0 for one in ("ld", "st", "atom")}, 1280),
        ],
    )
    def test_of_shared_memory_are_0_in_a_launch_without_an_instruction_on_it(
        self, capability: str, counts: dict[str, float], found: float
    ) -> None:
        """The counter has wavefronts all the same: 524,288 of a kernel on an H100 that never touches shared memory."""
        table = counted(SHARED, capability)
        for name, value in counts.items():
            table = table.append_column(f"{name}.sum", pa.array([value]))
        assert amount(table, "shared", TRAFFIC) == found
        assert transactions_of(table, ["shared"])["shared"].tolist() == [found / 128]
        assert {f"{name}.sum" for name in counts} <= needed_metrics()

    def test_of_dram_are_the_least_by_the_shapes_of_operators_only_where_none_were_counted(self) -> None:
        assert amount(one_launch(dram_bytes=None, least_bytes=64.0), "dram", TRAFFIC) == 64
        assert amount(one_launch(dram_bytes=640.0, least_bytes=64.0), "dram", NVIDIA) == 640

    def test_include_each_requested_level(self) -> None:
        assert [*bytes_of(one_launch(l2_bytes=1.0), ["l2", "dram"])] == ["l2", "dram"]


class TestByNvidia:
    def test_of_dram_are_the_same_as_traffic(self) -> None:
        assert amount(one_launch(dram_bytes=640.0), "dram", NVIDIA) == 640

    def test_of_l2_are_32_per_cycle_on_every_chip(self) -> None:
        for capability in ("7.0", "8.0", "12.0", None):
            assert amount(counted(FROM_L2, capability), "l2", NVIDIA) == 320

    def test_of_l2_differ_from_the_requested_traffic(self) -> None:
        assert amount(one_launch(l2_bytes=5.0), "l2", NVIDIA) is None

    def test_of_a_rate_are_the_rate_times_the_time(self) -> None:
        table = one_launch().append_column(f"{FROM_L2}.sum.per_second", pa.array([1e9]))
        assert amount(table, "l2", NVIDIA) == pytest.approx(1e9 * 2e-6 * 32)

    def test_of_a_sum_take_precedence_over_a_rate(self) -> None:
        table = counted(FROM_L2, "8.0").append_column(f"{FROM_L2}.sum.per_second", pa.array([7e9]))
        assert amount(table, "l2", NVIDIA) == 320

    def test_of_the_first_counter_take_precedence_over_the_next(self) -> None:
        both = counted(FROM_L2, "8.0").append_column("derived__lts__lts2xbar_bytes.sum", pa.array([7.0]))
        assert amount(both, "l2", NVIDIA) == 320
        assert amount(counted("derived__lts__lts2xbar_bytes", "8.0"), "l2", NVIDIA) == 10

    @pytest.mark.parametrize(
        ("counter", "chips"),
        [
            ("l1tex__lsu_writeback_active_mem_lgds", {"9.0", "10.0", "12.1"}),
            ("l1tex__lsu_writeback_active_mem_lg", {"7.5", "8.0", "8.9"}),
            ("l1tex__lsu_writeback_active", {"7.0", "7.2"}),
        ],
    )
    def test_of_l1_use_the_counter_of_the_chip_only(self, counter: str, chips: set[str]) -> None:
        for capability in ("7.0", "7.2", "7.5", "8.0", "8.9", "9.0", "10.0", "12.1"):
            expected = 1280 if capability in chips else None
            assert amount(counted(counter, capability), "l1", NVIDIA) == expected, capability
        for unknown in (None, "", "new", "8.65"):
            assert amount(counted(counter, unknown), "l1", NVIDIA) == 1280


class TestMetricsToAskFor:
    def test_are_those_of_the_definition(self) -> None:
        assert byte_metrics("l2", NVIDIA) == [f"{FROM_L2}.sum"]
        assert byte_metrics("l2", TRAFFIC) == ["lts__t_bytes.sum"]
        assert byte_metrics("l1", NVIDIA) == [
            "l1tex__lsu_writeback_active_mem_lgds.sum",
            "l1tex__lsu_writeback_active_mem_lg.sum",
            "l1tex__lsu_writeback_active.sum",
        ]

    @pytest.mark.parametrize("definition", [TRAFFIC, NVIDIA])
    def test_of_dram_are_one_counter_by_either_definition(self, definition: str) -> None:
        assert byte_metrics("dram", definition) == ["dram__bytes.sum"]

    def test_of_dram_follow_from_the_chips_of_the_runs(self) -> None:
        of_jetson = byte_metrics("dram", TRAFFIC, [one_launch("8.7")])
        assert of_jetson
        assert not any(metric.startswith("dram__") for metric in of_jetson)
        both = byte_metrics("dram", TRAFFIC, [one_launch("8.7"), one_launch("8.0")])
        assert sorted(both) == sorted([*of_jetson, *byte_metrics("dram", TRAFFIC)])
        assert byte_metrics("dram", TRAFFIC, [one_launch(None)]) == byte_metrics("dram", TRAFFIC)

    def test_of_the_ceiling_of_memory_shared_with_the_cpu_are_those_of_the_board(self) -> None:
        board = ["device__attribute_max_mem_frequency_khz", "device__attribute_global_memory_bus_width"]
        assert ceiling_metrics("dram", "8.7") == board
        assert board[0] not in [*ceiling_metrics("dram", "8.0"), *ceiling_metrics("l2", "8.7")]

    @pytest.mark.parametrize("definition", [TRAFFIC, NVIDIA])
    def test_of_shared_memory_are_one_counter(self, definition: str) -> None:
        assert byte_metrics("shared", definition) == [f"{SHARED}.sum"]

    @pytest.mark.parametrize("level", ["dram", "l2", "l1", "shared"])
    def test_of_a_ceiling_are_a_peak_and_its_clock(self, level: str) -> None:
        peak, clock = ceiling_metrics(level, "8.0")
        assert ".peak" in peak or "peak" in peak
        assert clock.endswith(".per_second")

    @pytest.mark.parametrize(
        ("capability", "counter"),
        [
            ("9.0", "l1tex__lsu_writeback_active_mem_lgds"), ("8.0", "l1tex__lsu_writeback_active_mem_lg"),
            ("7.0", "l1tex__lsu_writeback_active"),
        ],
    )  # fmt: skip
    def test_of_the_l1_ceiling_are_those_of_the_chip(self, capability: str, counter: str) -> None:
        assert ceiling_metrics("l1", capability)[0].partition(".")[0] == counter

    def test_for_collection_are_among_those_a_level_depends_on(self) -> None:
        needed = needed_metrics()
        for level in ("l1", "l2", "shared"):
            assert {*byte_metrics(level, NVIDIA)} <= needed
        assert f"{SHARED}.sum.per_second" in needed
        assert ceiling_metrics("shared", None)[0] in needed
        assert {ceiling_metrics(level, "8.0")[1] for level in ("dram", "l2", "l1")} <= needed


class TestSharedCeiling:
    def test_is_peak_wavefronts_times_128_bytes_at_the_clock(self) -> None:
        peak, clock = ceiling_metrics("shared", None)
        table = one_launch().append_column(peak, pa.array([3.0])).append_column(clock, pa.array([1e9]))
        assert shared_memory_ceiling(table).tolist() == [3 * 128 * 1e9]

    def test_is_unknown_without_a_clock(self) -> None:
        peak, _ = ceiling_metrics("shared", None)
        assert math.isnan(shared_memory_ceiling(one_launch().append_column(peak, pa.array([3.0])))[0])


def test_each_definition_describes_its_bytes_in_words() -> None:
    traffic, nvidia = (
        definition_titles(["dram", "l2", "shared"], which, "read and written") for which in (TRAFFIC, NVIDIA)
    )
    assert traffic["dram"] == nvidia["dram"] == "read and written"
    assert traffic["shared"] == nvidia["shared"]
    assert traffic["l2"] != nvidia["l2"]
    assert [*traffic] == ["dram", "l2", "shared"]
