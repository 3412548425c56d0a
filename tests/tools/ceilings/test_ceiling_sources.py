"""Where the ceilings of a launch come from, in which order, and what drawn ceilings and notes say of it."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.parse.parse import parse
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.report_data.report import Report

from ncu_tools.ceilings.ceilings import (
    BOARD_LIMIT,
    DATA_SHEET,
    MEASURED,
    OWN,
    OWN_BOARD,
    PROFILED_CLOCK,
    Ceiling,
    Ceilings,
    ceilings_of,
    rate_unit,
    unit_title,
)
from ncu_tools.ceilings.levels import ceiling_metrics
from ncu_tools.ceilings.machine_files import Machine, find_machine, machines_with, own_folder
from ncu_tools.kernels.hotspots import hotspots
from tests.conftest import SHARED
from tests.support.launches import launch, metric, sass, table, tensor
from tests.support.reports import needs_shared_reports
from tests.tools.ceilings.test_ceilings import FFMA, board, dram, tensor_peak

LONG, SHORT = 1e6, 8e3
A100 = "NVIDIA A100-SXM4-40GB"


def at_clock(hz: float) -> dict[str, Any]:
    return {"sm__cycles_elapsed.avg.per_second": metric(hz, "hz")}


def of(*launches: Any, machine: str | None = None) -> Ceilings:
    return ceilings_of(table(*launches), None if machine is None else find_machine(machine))


def on(device: str | None, metrics: dict[str, Any] | None = None, **options: Any) -> Any:
    """A launch on a named device."""
    return launch("k", metrics or {}, attributes={"Device Name": device} if device else {}, **options)


def drawn(ceilings: Ceilings, unit: str) -> Ceiling:
    (found,) = [ceiling for ceiling in ceilings.drawn if ceiling.unit == unit]
    return found


def keep(
    machine_id: str,
    *,
    device: str = "Board X",
    more: str = "",
    rates: str = "",
    measured: bool = False,
    kind: str = "gpu",
) -> None:
    """A machine file of the user's: 1 TFLOP/s of FP32, 100 GB/s of DRAM, and `rates`; it is known at once."""
    own_folder().mkdir(parents=True, exist_ok=True)
    (own_folder() / f"{machine_id}.toml").write_text(
        f'schema = 1\nname = "{machine_id}"\nkind = "{kind}"\nvendor = "V"\nsource = "sheet of {machine_id}"\n'
        f'device_names = ["{device}"]\n{"measured = true" if measured else ""}\n{more}\n'
        f'[[peak]]\nunit = "fp32"\nvalue = 1e12\n[[bandwidth]]\nlevel = "dram"\nvalue = 100e9\n{rates}\n',
        "utf-8",
    )
    machines_with.cache_clear()


@pytest.mark.parametrize(
    ("unit", "title", "rate"),
    [
        ("dram", "DRAM", "byte/s"), ("l2", "L2", "byte/s"), ("l1", "L1", "byte/s"), ("shared", "shared memory", "byte/s"),
        ("fp32", "FP32", "FLOP/s"), ("fp64", "FP64", "FLOP/s"), ("tensor_bf16", "tensor BF16", "FLOP/s"),
        ("tensor_int8", "tensor INT8", "OP/s"), ("tensor_int1", "tensor INT1", "OP/s"),
    ],
)  # fmt: skip
def test_a_unit_has_a_title_and_a_unit_of_its_rate(unit: str, title: str, rate: str) -> None:
    assert (unit_title(unit), rate_unit(unit)) == (title, rate)
    ceiling = Ceiling("X", unit, 1.0, "")
    assert (ceiling.is_bandwidth, ceiling.value_unit) == (rate == "byte/s", rate)


class TestTheDeviceOfACeiling:
    def test_is_called_by_the_reports_name_before_all_others(self) -> None:
        assert {ceiling.device for ceiling in of(on(A100), machine="t4").drawn} == {A100}

    def test_without_a_name_is_called_by_the_chosen_machine(self) -> None:
        assert {ceiling.device for ceiling in of(on(None), machine="t4").drawn} == {"NVIDIA T4"}

    def test_without_a_machine_too_is_called_by_its_compute_capability(self) -> None:
        assert of(on(None)).capability_of == {"compute capability 8.0": "8.0"}
        assert of(on(None, capability=None)).capability_of == {"unknown device": None}

    def test_says_the_number_of_threads_only_where_runs_differ_in_it(self) -> None:
        def devices(*threads: int | None) -> list[str]:
            counts = ({} if number is None else {"threads": metric(float(number))} for number in threads)
            return list(of(*(on("A CPU", metrics, capability=None) for metrics in counts)).capability_of)

        assert devices(2, 2) == ["A CPU"]
        assert devices(2, 1) == ["A CPU, 2 threads", "A CPU, 1 thread"]
        assert devices(None, 2) == ["A CPU, threads not known", "A CPU, 2 threads"]


class TestATraceOfACpu:
    """It names no device: PyTorch records none."""

    @staticmethod
    def ceilings(source: str = "kineto", machine: str | None = None, **options: Any) -> Ceilings:
        one = launch("aten::mm", sass(ffma=1e6), ns=LONG, dram=1e6, capability=None, **options)
        of_report = launches_table(Report("trace.json", launches=[one], origin=source))
        return ceilings_of(of_report, None if machine is None else find_machine(machine))

    def test_takes_the_only_cpu_measured_here_and_says_so(self) -> None:
        keep("this-cpu", measured=True, kind="cpu", more="threads = 2")
        keep("a-gpu", measured=True)
        found = self.ceilings()
        assert [(one.unit, one.value, one.kind) for one in found.drawn] == [
            ("fp32", 1e12, MEASURED),
            ("dram", 100e9, MEASURED),
        ]
        assert found.notes == [
            "the trace names no CPU: ceilings are those measured on this machine with 2 threads (this-cpu); say --machine "
            "NAME if it was recorded elsewhere"
        ]

    def test_without_flops_or_bytes_needs_no_ceiling_and_no_note(self) -> None:
        keep("this-cpu", measured=True, kind="cpu")
        one = launch("aten::view", ns=LONG, capability=None)
        assert ceilings_of(launches_table(Report("trace.json", launches=[one], origin="kineto"))).notes == []

    def test_above_these_is_flagged_as_probably_recorded_elsewhere(self) -> None:
        keep("this-cpu", measured=True, kind="cpu")
        fast = launch("aten::mm", sass(ffma=3e9), ns=LONG, dram=1e6, capability=None)
        of_report = launches_table(Report("trace.json", launches=[fast], origin="kineto"))
        (row,) = hotspots(of_report, ceilings_of(of_report)).rows
        assert row.flag == (
            "600.0 % of the FP32 ceiling (machine file this-cpu): probably the wrong machine; the report names no device"
        )

    def test_takes_the_machine_that_the_user_names(self) -> None:
        keep("this-cpu", measured=True, kind="cpu")
        keep("another", kind="cpu")
        found = self.ceilings(machine="another")
        assert {one.source for one in found.drawn} == {"--machine another; sheet of another"}
        assert found.notes == []

    def test_has_no_ceilings_where_several_or_none_were_measured(self) -> None:
        assert self.ceilings().notes == [
            "no ceilings are known for this device: choose a machine with --machine NAME, or measure the CPU where it is "
            "with ncu-bench machines measure"
        ]
        for threads in (1, 2):
            keep(f"cpu-{threads}", measured=True, kind="cpu", more=f"threads = {threads}")
        (note,) = self.ceilings().notes
        assert "(measured on this machine: cpu-1, cpu-2)" in note

    def test_is_no_report_without_a_device_of_another_tool_nor_a_launch_on_a_gpu(self) -> None:
        keep("this-cpu", measured=True, kind="cpu")
        assert self.ceilings("ncu").drawn == self.ceilings(device_id=0).drawn == []

    def test_of_a_gpu_without_a_name_is_not_told_to_collect_a_section_of_ncu(self) -> None:
        keep("this-cpu", measured=True, kind="cpu")
        assert self.ceilings(device_id=0).notes == [
            "no ceilings are known for this device: choose a machine with --machine NAME"
        ]


def test_each_source_is_listed_once_however_many_units_and_launches_it_serves() -> None:
    origins = of(on(A100), on(None, capability=None), on("Tesla T4", capability="7.5"), machine="t4").origins
    assert origins[:2] == [OWN, OWN_BOARD]
    assert sorted(origin.says for origin in origins[2:]) == [
        "--machine t4", "machine file a100-sxm4-40gb", "machine file t4",
    ]  # fmt: skip


class TestTheMemoryClock:
    @pytest.mark.parametrize(("clock", "lowered"), [(0.985, True), (0.9899, True), (0.99, False), (1.005, False)])
    def test_counts_as_lowered_if_it_is_more_than_one_per_cent_below_its_limit(
        self, clock: float, lowered: bool
    ) -> None:
        found = of(launch("k", dram(80, clock * 8e9) | board(8e6, 320), ns=LONG))
        assert found.per_launch["dram"].tolist() == pytest.approx([80 * 8e9 * (clock if lowered else 1)])
        limits = [ceiling for ceiling in found.others if (ceiling.unit, ceiling.kind) == ("dram", BOARD_LIMIT)]
        assert [ceiling.value for ceiling in limits] == ([80 * 8e9] if lowered else [])
        assert any("its limit is 8.00 GHz" in note for note in found.notes) == lowered

    def test_that_was_lowered_is_named_as_the_clock_of_the_ceiling(self) -> None:
        (note,) = [
            note for note in of(launch("k", dram(80, 7.59e9) | board(8e6, 320), ns=LONG)).notes if "DRAM" in note
        ]
        assert note == (
            "compute capability 8.0: the memory clock was 7.59 GHz and its limit is 8.00 GHz: the DRAM ceiling is that "
            "at 7.59 GHz"
        )

    @pytest.mark.parametrize(
        ("counted", "noted"), [(88.0, False), (88.8, False), (88.88, False), (89.0, True), (96.0, True), (80.0, False)]
    )
    def test_a_counter_of_more_bytes_than_the_bus_moves_is_noted(self, counted: float, noted: bool) -> None:
        found = of(launch("k", dram(counted, 7e9) | board(7e6, 352), ns=LONG))
        assert found.per_launch["dram"].tolist() == [88 * 7e9]
        assert any("the counter describes the whole chip" in note for note in found.notes) == noted

    def test_that_no_launch_shows_is_noted_only_where_the_bytes_per_cycle_are_known(self) -> None:
        def noted(metrics: dict[str, Any], ns: float) -> bool:
            return any("do not show the memory clock" in note for note in of(launch("k", metrics, ns=ns)).notes)

        assert noted(dram(96, 6.6e9), SHORT)
        assert not noted(dram(96, 6.6e9), LONG)
        assert not noted(dram(96, 6.6e9) | board(7e6, 384), SHORT)
        assert not noted({}, SHORT)

    def test_that_only_some_reports_show_leaves_the_others_at_the_boards_limit(self) -> None:
        launches = table(
            *(launch("k", dram(80, clock) | board(8e6, 320), ns=ns) for clock, ns in ((7e9, LONG), (6e9, SHORT)))
        )
        reports = pa.array(["long.csv", "short.csv"])
        found = ceilings_of(launches.set_column(launches.column_names.index("report"), "report", reports))
        assert found.per_launch["dram"].tolist() == [80 * 7e9, 80 * 8e9]
        assert [found.origins[origin] for origin in found.origin_of["dram"]] == [OWN, OWN_BOARD]
        assert drawn(found, "dram").value == 80 * 7e9

    def test_with_short_launches_beside_long_ones_is_no_reason_for_a_note(self) -> None:
        found = of(launch("k", dram(96, 6.6e9), ns=SHORT), launch("k", dram(96, 7e9), ns=LONG))
        assert found.per_launch["dram"].tolist() == [96 * 7e9] * 2
        assert not any("no launch is known" in note for note in found.notes)


class TestTheReportsOwnCeiling:
    @pytest.mark.parametrize(
        ("clocks", "middle"), [((1.0, 1.2), 1.1), ((1.3, 1.0, 1.1), 1.1), ((1.0, 1.0, 1.4, 1.2), 1.1)]
    )
    def test_is_drawn_at_the_median_of_its_launches(self, clocks: tuple[float, ...], middle: float) -> None:
        found = of(*(launch("k", FFMA | at_clock(clock * 1e9), ns=LONG) for clock in clocks))
        assert found.per_launch["fp32"].tolist() == pytest.approx([128 * 108 * clock * 1e9 for clock in clocks])
        assert drawn(found, "fp32").value == pytest.approx(128 * 108 * middle * 1e9)
        low, high = min(clocks), max(clocks)
        assert (
            drawn(found, "fp32").source
            == f"report, SM clock {middle:.2f} GHz, the median of {low:.2f} to {high:.2f} GHz"
        )

    def test_says_one_clock_where_launches_differ_by_no_more_than_two_per_cent(self) -> None:
        found = of(*(launch("k", FFMA | at_clock(clock), ns=LONG) for clock in (1e9, 1.019e9)))
        assert drawn(found, "fp32").source == "report, SM clock 1.01 GHz"

    def test_is_drawn_at_the_clock_of_launches_long_enough_to_show_it(self) -> None:
        found = of(
            *(launch("k", FFMA | at_clock(clock), ns=ns) for clock, ns in ((1e9, SHORT), (0.9e9, SHORT), (1.4e9, LONG)))
        )
        assert drawn(found, "fp32").value == pytest.approx(128 * 108 * 1.4e9)

    def test_says_that_the_clock_reads_low_where_every_launch_is_short(self) -> None:
        found = of(launch("k", FFMA | at_clock(1e9), ns=SHORT))
        assert drawn(found, "fp32").source == "report, SM clock 1.00 GHz, which reads low in launches under 0.1 ms"

    def test_of_shared_memory_is_drawn_beside_the_others(self) -> None:
        peak, clock = ceiling_metrics("shared", None)
        found = of(launch("k", {peak: metric(3.0), clock: metric(1e9, "hz")} | at_clock(1e9), ns=LONG))
        assert drawn(found, "shared") == Ceiling(
            "compute capability 8.0", "shared", 3 * 128 * 1e9, "report, SM clock 1.00 GHz", PROFILED_CLOCK
        )
        assert all(ceiling.unit != "shared" for ceiling in of(launch("k", FFMA | at_clock(1e9), ns=LONG)).drawn)

    def test_stays_beside_the_boards_limit_which_bounds_launches_without_a_clock(self) -> None:
        found = of(
            launch("k", FFMA | at_clock(1e9) | board(8e6, 320), ns=LONG), launch("k", FFMA | board(8e6, 320), ns=LONG)
        )
        assert found.per_launch["fp32"].tolist() == pytest.approx([128 * 108 * 1e9, 128 * 108 * 1.41e9])
        assert [(ceiling.kind, ceiling.value) for ceiling in found.drawn if ceiling.unit == "fp32"] == [
            (PROFILED_CLOCK, pytest.approx(128 * 108 * 1e9))
        ]

    @pytest.mark.parametrize(
        ("other", "capability"),
        [("src_bf16_dst_fp32", "8.0"), ("op_hmma_src_bf16_dst_fp32_sparsity_off", "9.0")],
    )
    def test_at_the_boards_limit_is_the_dense_one_of_the_fastest_instruction(self, other: str, capability: str) -> None:
        """Neither the sparse total nor mma.sync on Hopper bounds a launch."""
        fast = "src_bf16_dst_fp32_sparsity_off" if capability == "8.0" else "op_hgmma_src_bf16_dst_fp32_sparsity_off"
        peaks = tensor_peak(fast, 2048) | tensor_peak(other, 4096 if capability == "8.0" else 1365)
        found = of(launch("k", peaks | board(8e6, 320), ns=LONG, capability=capability))
        assert found.per_launch["tensor_bf16"].tolist() == pytest.approx([2048 * 108 * 1.41e9])

    def test_of_one_device_does_not_stand_for_that_of_another(self) -> None:
        limit = FFMA | board(8e6, 320)
        found = of(
            on("One", limit | at_clock(1e9), ns=LONG),
            on("Two", limit, ns=LONG),
            on("Three", limit | at_clock(1.2e9), ns=LONG),
        )
        kinds = {ceiling.device: ceiling.kind for ceiling in found.drawn if ceiling.unit == "fp32"}
        assert kinds == {"One": PROFILED_CLOCK, "Two": BOARD_LIMIT, "Three": PROFILED_CLOCK}
        beside = [ceiling.device for ceiling in found.others if (ceiling.unit, ceiling.kind) == ("fp32", BOARD_LIMIT)]
        assert beside == ["One", "Three"]


class TestTheInstructionOfATensorCeiling:
    FAST, SLOW = "op_hgmma_src_bf16_dst_fp32_sparsity_off", "op_hmma_src_bf16_dst_fp32_sparsity_off"

    def of(self, fast: float, slow: float) -> Ceilings:
        peaks = tensor_peak(self.FAST, fast) | tensor_peak(self.SLOW, slow) | FFMA
        return of(launch("k", peaks | at_clock(1e9), ns=LONG, capability="9.0"))

    def named(self, fast: float, slow: float) -> tuple[str, list[str]]:
        """The instruction of the drawn ceiling of BF16, and those of the others."""
        found = self.of(fast, slow)
        others = [ceiling.instruction for ceiling in found.others if ceiling.unit == "tensor_bf16"]
        return drawn(found, "tensor_bf16").instruction, others

    def test_is_named_if_another_instruction_is_slower_by_more_than_a_per_cent(self) -> None:
        assert self.named(4096, 4096 * 2 / 3) == ("wgmma", ["mma.sync"])
        assert self.named(1000, 985) == ("wgmma", ["mma.sync"])

    def test_and_of_a_slower_one_are_at_the_clock_of_the_same_launches(self) -> None:
        """Short launches print a clock that is too low, and would set mma.sync lower than it is."""
        peaks = tensor_peak(self.FAST, 4096) | tensor_peak(self.SLOW, 4096 * 2 / 3)
        clocks = ((1.4e9, LONG), (1e9, SHORT), (1e9, SHORT))
        found = of(*(launch("k", peaks | at_clock(clock), ns=ns, capability="9.0") for clock, ns in clocks))
        (slower,) = [ceiling for ceiling in found.others if ceiling.unit == "tensor_bf16"]
        assert slower.value / drawn(found, "tensor_bf16").value == pytest.approx(2 / 3)
        assert slower.source == drawn(found, "tensor_bf16").source

    def test_is_not_named_if_all_are_as_fast(self) -> None:
        for slow in (100, 99.5, 99):
            assert self.named(100, slow) == ("", [])

    def test_is_not_named_for_a_slower_instruction_of_sparse_operations_or_of_another_device(self) -> None:
        own, clock = tensor_peak(self.FAST, 4096), at_clock(1e9)
        sparse = {
            name.replace("sparsity_off", "sparsity_on"): value
            for name, value in (tensor_peak(self.FAST, 8192) | tensor_peak(self.SLOW, 4096)).items()
        }
        found = of(launch("k", own | sparse | clock, ns=LONG, capability="9.0"))
        assert drawn(found, "tensor_bf16").instruction == ""
        both = own | tensor_peak(self.SLOW, 2048) | clock
        found = of(on("One", both, ns=LONG, capability="9.0"), on("Two", own | clock, ns=LONG, capability="9.0"))
        named = {ceiling.device: ceiling.instruction for ceiling in found.drawn if ceiling.unit == "tensor_bf16"}
        assert named == {"One": "wgmma", "Two": ""}

    def test_is_that_of_its_unit_alone(self) -> None:
        assert drawn(self.of(4096, 2048), "fp32").instruction == ""


class TestMachineFiles:
    def test_of_the_device_come_before_the_chosen_machine_and_a_measured_one(self) -> None:
        keep("x-sheet", rates='[[peak]]\nunit = "fp64"\nvalue = 5e11')
        keep("x-measured", measured=True)
        found = of(on("Board X"), machine="t4")
        assert found.per_launch["fp32"].tolist() == [1e12]
        assert drawn_by(found, "Board X") == {("fp32", DATA_SHEET), ("fp64", DATA_SHEET), ("dram", DATA_SHEET)}
        assert drawn_by(found, "Board X, measured") == {("fp32", MEASURED), ("dram", MEASURED)}
        (fp64,) = [ceiling for ceiling in found.drawn if ceiling.unit == "fp64"]
        assert fp64.source == "machine file x-sheet; sheet of x-sheet"

    def test_that_were_measured_bound_launches_of_a_device_without_a_data_sheet_and_are_drawn_once(self) -> None:
        keep("x-measured", measured=True)
        found = of(on("Board X"))
        assert found.per_launch["dram"].tolist() == [100e9]
        assert drawn_by(found, "Board X") == {("fp32", MEASURED), ("dram", MEASURED)}
        assert drawn_by(found, "Board X, measured") == set()

    def test_that_were_measured_do_not_replace_the_chosen_machine(self) -> None:
        keep("x-measured", measured=True)
        found = of(on("Board X", capability=None), machine="t4")
        assert found.per_launch["dram"].tolist() == [320e9]
        assert drawn_by(found, "Board X, measured") == {("fp32", MEASURED), ("dram", MEASURED)}

    def test_that_were_measured_are_measured_also_when_chosen(self) -> None:
        keep("x-measured", measured=True)
        found = of(on(None, capability=None), machine="x-measured")
        assert {ceiling.kind for ceiling in found.drawn} == {MEASURED}
        assert {ceiling.kind for ceiling in of(on(None, capability=None), machine="t4").drawn} == {DATA_SHEET}

    def test_give_no_ceiling_of_a_unit_that_launches_have_none_of(self) -> None:
        """A BF16 rate outside tensor cores is in machine files, and no counter of a launch is compared with it."""
        keep("x-sheet", rates='[[peak]]\nunit = "bf16"\nvalue = 2e12')
        assert {unit for unit, _ in drawn_by(of(on("Board X")), "Board X")} == {"fp32", "dram"}
        keep("x-measured", rates='[[peak]]\nunit = "bf16"\nvalue = 2e12', measured=True)
        assert {unit for unit, _ in drawn_by(of(on("Board X")), "Board X, measured")} == {"fp32", "dram"}

    def test_are_drawn_for_units_that_no_launch_has_a_ceiling_of(self) -> None:
        own = FFMA | at_clock(1e9)
        found = of(on(A100, own, ns=LONG), on(A100, ns=LONG))
        assert found.per_launch["fp32"].tolist() == pytest.approx([128 * 108 * 1e9, 19.5e12])
        assert [ceiling.kind for ceiling in found.drawn if ceiling.unit == "fp32"] == [PROFILED_CLOCK]
        assert drawn(found, "fp64").kind == DATA_SHEET

    def test_of_compute_units_are_scaled_to_the_profiled_clock_and_of_memory_are_not(self) -> None:
        found = of(on(A100, at_clock(1.128e9), ns=LONG))
        assert found.per_launch["fp32"].tolist() == pytest.approx([0.8 * 19.5e12])
        assert found.per_launch["dram"].tolist() == pytest.approx([1.555e12])
        assert (drawn(found, "fp32").kind, drawn(found, "dram").kind) == (DATA_SHEET, DATA_SHEET)
        assert drawn(found, "fp32").source.startswith("machine file a100-sxm4-40gb at 1.13 GHz; ")
        sparse = next(one for one in found.others if (one.unit, one.sparse) == ("tensor_bf16", True))
        assert sparse.value == pytest.approx(0.8 * 624e12)

    @needs_shared_reports
    def test_scaled_so_give_the_share_that_the_counter_of_the_tensor_pipe_gives(self) -> None:
        """A report of an A40 without peaks of its own, whose INT8 kernel ran at 1.30 of 1.74 GHz."""
        (report,) = (SHARED / "reports" / "ncu_rep").glob("eschnett*")
        launches = parse(find_sources([str(report)])).table
        assert launches is not None
        product = hotspots(launches, ceilings_of(launches)).rows[0]
        of_products = launches.filter([name == product.kernel for name in launches.column("kernel_name").to_pylist()])
        (busy,) = of_products.column("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed").to_pylist()
        assert product.bound == "tensor INT8"
        assert product.bound_fraction == pytest.approx(busy / 100, rel=1e-3)

    def test_with_a_clock_of_their_own_are_scaled_from_it(self) -> None:
        """Tensor peaks of H100 assume 1.83 GHz, the others 1.98 GHz."""
        found = of(on("NVIDIA H100 80GB HBM3", at_clock(1.83e9), ns=LONG, capability="9.0"))
        assert found.per_launch["tensor_bf16"].tolist() == pytest.approx([989.4e12], rel=1e-3)
        assert found.per_launch["fp32"].tolist() == pytest.approx([66.9e12 * 1.83 / 1.98], rel=1e-2)

    def test_list_sparse_and_slower_rates_only_where_they_have_some(self) -> None:
        def others(device: str, capability: str) -> set[tuple[str, bool, str]]:
            found = of(on(device, capability=capability)).others
            return {(one.unit, one.sparse, one.instruction) for one in found if one.unit in ("fp32", "tensor_bf16")}

        assert others(A100, "8.0") == {("tensor_bf16", True, "")}
        assert others("NVIDIA H100 80GB HBM3", "9.0") == {("tensor_bf16", True, ""), ("tensor_bf16", False, "mma.sync")}
        assert others("Tesla T4", "7.5") == set()


def drawn_by(ceilings: Ceilings, device: str) -> set[tuple[str, str]]:
    found = [(ceiling.unit, ceiling.kind) for ceiling in ceilings.drawn if ceiling.device == device]
    assert len(found) == len(set(found))
    return set(found)


class TestAComputeCapability:
    """For a report without a device name, the values on which the machine files of a family agree."""

    @staticmethod
    def family(*fp64: float, also: str = "", stands: bool = True, boost: float = 1e9) -> None:
        for number, value in enumerate(fp64):
            more = f'compute_capability = "99.9"\nboost_clock_hz = {boost}'
            rate = f'[[peak]]\nunit = "fp64"\nvalue = {value}' if value else ""
            keep(f"y-{number}", device=f"Y {number}", rates=rate + (also if number == 0 else ""),
                 more=more + ("\nstands_for_compute_capability = true" if stands else ""))  # fmt: skip

    def test_gives_what_agrees_within_a_per_cent(self) -> None:
        self.family(5e11, 5.04e11)
        found = of(on(None, sass(ffma=1e6), ns=LONG, capability="99.9"))
        assert found.per_launch["fp64"].tolist() == [5e11]
        assert found.notes == [
            "the report names no device: ceilings are what y-0, y-1 agree on (compute capability 99.9). Say --machine NAME "
            "to choose one"
        ]
        assert drawn(found, "fp64").source == "machine files y-0, y-1 agree; sheet of y-0"

    @pytest.mark.parametrize("fp64", [(5e11, 5.08e11), (5e11, 4.92e11), (5e11, 0)])
    def test_gives_nothing_where_they_differ(self, fp64: tuple[float, float]) -> None:
        self.family(*fp64)
        found = of(on(None, capability="99.9"))
        assert math.isnan(found.per_launch["fp64"][0])
        assert found.per_launch["fp32"].tolist() == [1e12]

    def test_says_that_it_lacks_the_values_in_which_they_differ(self) -> None:
        self.family(5e11, 5e11)
        text = (own_folder() / "y-1.toml").read_text("utf-8")
        (own_folder() / "y-1.toml").write_text(text.replace("100e9", "200e9"), "utf-8")
        (note,) = of(on(None, sass(ffma=1e6), ns=LONG, capability="99.9")).notes
        assert "; they differ in DRAM, which has no ceiling. Say" in note
        (own_folder() / "y-1.toml").write_text(text.replace("100e9", "200e9").replace("1e12", "2e12"), "utf-8")
        machines_with.cache_clear()
        (note,) = of(on(None, sass(ffma=1e6), ns=LONG, capability="99.9")).notes
        assert "; they differ in FP32 and DRAM, which have no ceiling. Say" in note

    def test_is_not_used_for_a_device_with_a_name_or_with_boards_of_other_families(self) -> None:
        self.family(5e11, 5e11)
        named = of(on("A board of 2030", sass(ffma=1e6), ns=LONG, capability="99.9"))
        assert math.isnan(named.per_launch["fp32"][0])
        assert named.notes == [
            "no ceilings are known for A board of 2030 (of compute capability 99.9 there are y-0, y-1): choose a machine "
            "with --machine NAME, or collect the report's own with --section SpeedOfLight_RooflineChart"
        ]
        self.family(5e11, 5e11, stands=False)
        assert math.isnan(of(on(None, capability="99.9")).per_launch["fp32"][0])

    def test_tells_of_other_boards_that_have_it(self) -> None:
        self.family(5e11, 5e11)
        keep("z-1", device="Z 1", more='compute_capability = "99.9"')
        (note,) = of(on(None, sass(ffma=1e6), ns=LONG, capability="99.9")).notes
        assert "(compute capability 99.9, which other boards have too: z-1). Say" in note

    @pytest.mark.parametrize("metric_name", ["device__attribute_multiprocessor_count", "launch__sm_count"])
    def test_is_not_used_for_a_board_with_another_number_of_sms(self, metric_name: str) -> None:
        said = {"a100": {metric_name: metric(108.0)}, "a30": {metric_name: metric(56.0)}}
        a100 = of(on(None, sass(ffma=1e6) | said["a100"], ns=LONG, capability="8.0"))
        assert a100.per_launch["fp32"].tolist() == [19.5e12]
        assert ", which other boards have too: a800-pcie-80gb, a800-sxm4-80gb)" in a100.notes[0]
        a30 = of(on(None, sass(ffma=1e6) | said["a30"], ns=LONG, capability="8.0"))
        assert math.isnan(a30.per_launch["fp32"][0])
        assert (
            "no ceilings are known for this device (of compute capability 8.0 and 56 SMs there are a30)" in a30.notes[0]
        )

    def test_is_not_narrowed_by_launches_that_differ_in_their_sms(self) -> None:
        launches = [
            on(None, sass(ffma=1e6) | {"launch__sm_count": metric(sms)}, ns=LONG, capability="8.0")
            for sms in (108.0, 56.0)
        ]
        assert of(*launches).per_launch["fp32"].tolist() == [19.5e12] * 2

    def test_with_many_boards_names_the_first_of_them(self) -> None:
        for number in range(9):
            keep(f"y-{number}", device=f"Y {number}", more='compute_capability = "99.9"')
        (note,) = of(on("A board of 2030", sass(ffma=1e6), ns=LONG, capability="99.9")).notes
        assert "there are y-0, y-1, y-2, y-3, y-4, y-5 and 3 more): choose" in note

    def test_is_scaled_to_the_profiled_clock(self) -> None:
        self.family(5e11, 5e11, boost=2e9)
        found = of(on(None, sass(ffma=1e6) | at_clock(1e9), ns=LONG, capability="99.9"))
        assert any("profiled at 1.00 GHz: its peaks are the data sheet's, of 2.00 GHz" in note for note in found.notes)


class TestANameOfTwoBoards:
    """Boards to which the driver gives the same name, told apart by their number of SMs where that differs."""

    def on_x(self, sms: float | None, sm_counter: str = "device__attribute_multiprocessor_count") -> Ceilings:
        keep("x-1", more='sm_count = 68\nsame_name = "a 12 GB board of this name has 70 SMs"')
        counted = {} if sms is None else {sm_counter: metric(sms)}
        return of(on("Board X", sass(ffma=1e6) | counted, ns=LONG, dram=1.0, capability=None))

    @pytest.mark.parametrize("sms", [None, 68.0])
    def test_takes_its_file_and_a_note_tells_of_the_other(self, sms: float | None) -> None:
        found = self.on_x(sms)
        assert found.per_launch["fp32"].tolist() == [1e12]
        assert found.notes == ["Board X: ceilings are those of x-1; a 12 GB board of this name has 70 SMs"]

    def test_has_no_ceilings_if_the_report_has_another_number_of_sms(self) -> None:
        found = self.on_x(70.0)
        assert math.isnan(found.per_launch["fp32"][0])
        assert found.notes[0] == (
            "Board X has 70 SMs by the report, and the board of machine file x-1 68: it is another board of the same name"
        )
        assert found.notes[1].startswith("no ceilings are known for Board X")

    def test_is_not_told_apart_by_the_sms_of_a_launch_which_may_be_a_part_of_them(self) -> None:
        assert self.on_x(34.0, "launch__sm_count").per_launch["fp32"].tolist() == [1e12]


class TestNotesOnMissingCeilings:
    @pytest.mark.parametrize("column", ["flops", "dram_bytes", "least_bytes"])
    def test_stand_where_a_launch_has_flops_or_bytes(self, column: str) -> None:
        made = table(launch("k", ns=1.0, capability=None))
        assert ceilings_of(made).notes == []
        with_work = made.set_column(made.column_names.index(column), column, pa.array([1.0]))
        (note,) = ceilings_of(with_work).notes
        assert note.startswith("no ceilings are known for this device: choose a machine")

    def test_name_the_only_one_that_is_missing(self) -> None:
        (note,) = of(launch("k", FFMA | at_clock(1e9), ns=LONG, dram=1.0, capability=None)).notes
        assert note.startswith("no DRAM ceiling is known for this device: choose")
        (note,) = of(launch("k", dram(80, 1e9), ns=LONG, dram=1.0, capability=None)).notes
        assert note.startswith("no FP32 ceiling is known for this device: choose")

    def test_say_how_to_measure_a_cpu_with_the_threads_of_the_run(self) -> None:
        keep("x-1", device="A CPU", measured=True, more="threads = 1")
        one = launch(
            "k", {"threads": metric(4.0)}, ns=1.0, dram=1.0, capability=None, attributes={"Device Name": "A CPU"}
        )
        assert of(one).notes == [
            "no ceilings are known for A CPU (it was measured with 1 thread, and the run had 4): choose a machine with "
            "--machine NAME, or measure it where it is with OMP_NUM_THREADS=4 ncu-bench machines measure"
        ]

    def test_name_no_number_of_threads_that_the_run_does_not_say(self) -> None:
        for threads in (1, 2):
            keep(f"x-{threads}", device="A CPU", measured=True, more=f"threads = {threads}")
        (note,) = of(on("A CPU", ns=1.0, dram=1.0, capability=None)).notes
        assert "measured with 1 and 2 threads, and the run does not say its own" in note
        assert note.endswith("or measure it where it is with ncu-bench machines measure")

    def test_say_nothing_of_threads_for_a_cpu_that_was_never_measured(self) -> None:
        one = launch(
            "k", {"threads": metric(4.0)}, ns=1.0, dram=1.0, capability=None, attributes={"Device Name": "A CPU"}
        )
        assert of(one).notes == [
            "no ceilings are known for A CPU: choose a machine with --machine NAME, or measure it where it is with "
            "ncu-bench machines measure"
        ]


class TestNotesOnTheChosenMachine:
    def bounds_nothing(self, *launches: Any) -> list[str]:
        return [note for note in of(*launches, machine="t4").notes if "bounds no" in note]

    def test_say_that_it_bounds_no_launch_of_a_device_with_ceilings_of_its_own(self) -> None:
        assert self.bounds_nothing(on(A100)) == [
            f"--machine t4 bounds no launch of {A100}: its ceilings are the report's own, or machine file "
            "a100-sxm4-40gb's"
        ]

    @pytest.mark.parametrize(
        ("name", "whose"),
        [
            ("A board", "launch of A board: its ceilings are the report's own"),
            (None, "launch: ceilings are the report's own"),
        ],
    )
    def test_say_that_it_bounds_nothing_where_the_report_has_every_ceiling(self, name: str | None, whose: str) -> None:
        keep("mine", device="Another board")
        own = FFMA | at_clock(1e9) | dram(80, 8e9)
        assert of(on(name, own, ns=LONG), machine="mine").notes == [f"--machine mine bounds no {whose}"]

    def test_say_nothing_where_the_devices_own_file_lacks_a_ceiling(self) -> None:
        keep("x-sheet")
        path = own_folder() / "x-sheet.toml"
        path.write_text(path.read_text("utf-8").replace('level = "dram"', 'level = "l2"'), "utf-8")
        found = of(on("Board X", ns=LONG, capability=None), machine="t4")
        assert math.isnan(found.per_launch["dram"][0])
        assert found.notes == []

    def test_say_nothing_if_the_chosen_machine_is_the_devices_own(self) -> None:
        assert of(on("Tesla T4", capability="7.5"), machine="t4").notes == []

    def test_say_nothing_of_another_chip_if_either_capability_is_unknown(self) -> None:
        assert of(on(None, capability=None), machine="t4").notes == []
        assert of(on("A board"), machine="colab-cpu").notes == []
        assert of(on("A board", capability="7.5"), machine="t4").notes == []

    def test_hold_for_each_device_of_a_table(self) -> None:
        notes = of(on(A100), on("A board", capability="9.0"), machine="t4").notes
        assert [note.split(":")[0] for note in notes] == [
            f"--machine t4 bounds no launch of {A100}",
            "the report says compute capability 9.0 of A board, and --machine t4 has 7.5",
        ]


class TestNotesOnAClockBelowTheDataSheet:
    """Data-sheet peaks assume the boost clock, 1.41 GHz for an A100, and are scaled to that of the run."""

    @staticmethod
    def noted(clock: float | None, metrics: dict[str, Any] | None = None, device: str = A100) -> bool:
        clocks = {} if clock is None else at_clock(clock)
        notes = of(on(device, clocks | (metrics or {}), ns=LONG)).notes
        return any("scaled to that clock" in note for note in notes)

    def test_stand_if_the_run_was_more_than_five_per_cent_below(self) -> None:
        assert self.noted(0.94 * 1.41e9)
        assert not self.noted(0.95 * 1.41e9)
        assert not self.noted(1.5e9)

    def test_give_both_clocks(self) -> None:
        assert of(on(A100, at_clock(0.765e9), ns=LONG)).notes == [
            f"{A100} was profiled at 0.77 GHz: its peaks are the data sheet's, of 1.41 GHz, scaled to that clock"
        ]

    def test_need_a_launch_that_is_long_enough_to_show_its_clock(self) -> None:
        """A launch of 2 us on a V100 printed 0.95 GHz where the chip ran at a quarter more."""
        assert of(on(A100, at_clock(0.765e9), ns=2400.0)).notes == []

    def test_need_a_known_clock_on_both_sides(self) -> None:
        assert not self.noted(None)
        keep("x-sheet")
        assert not self.noted(1e9, device="Board X")

    def test_stand_only_if_a_launch_worked_in_a_unit_with_a_data_sheet_ceiling(self) -> None:
        own = FFMA | dram(1280, 1.215e9)
        assert not self.noted(1e9, own)
        assert not self.noted(1e9, own | sass(ffma=1e6))
        assert self.noted(1e9, own | sass(hadd=1e6, hfma=1.0))
        assert self.noted(1e9, own | sass(dadd=1.0))
        assert self.noted(1e9, own | sass() | tensor(bf16_dst_fp32=2.0))

    def test_do_not_take_constant_moves_for_work_of_fp16(self) -> None:
        own = FFMA | dram(1280, 1.215e9)
        assert not self.noted(1e9, own | sass(ffma=1e9, hfma=1.0) | tensor())

    def test_stand_for_other_units_where_a_table_has_no_column_of_fp16(self) -> None:
        launches = table(on(A100, at_clock(1e9) | sass(dadd=1.0), ns=LONG)).drop_columns(["flops_fp16"])
        assert any("scaled to that clock" in note for note in ceilings_of(launches).notes)

    def test_do_not_stand_without_a_dram_ceiling(self) -> None:
        """Nothing is said of per cent of a bound that no launch has."""
        fallback = of(on(None, at_clock(0.5e9), dram=1.0, ns=LONG))
        assert math.isnan(fallback.per_launch["dram"][0])
        assert not any("scaled" in note for note in fallback.notes)


def test_a_machine_has_every_rate_of_its_file() -> None:
    machine: Machine = find_machine("t4")
    found = of(on(None, capability=None), machine="t4")
    bounding = {unit: values[0] for unit, values in found.per_launch.items() if not math.isnan(values[0])}
    assert bounding == {unit: rate.value for unit, rate in machine.rates.items() if unit in found.per_launch}
