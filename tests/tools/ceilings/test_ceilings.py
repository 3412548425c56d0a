"""Ceilings of a report: dense and sparse, at the profiled clock and at the board's limit, checked with each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.parse.parse import parse
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata
from ncu_parsers.sources.sources import Source

from ncu_tools.ceilings.ceilings import BOARD_LIMIT, PROFILED_CLOCK, Ceilings, ceilings_of
from ncu_tools.ceilings.levels import bytes_of
from ncu_tools.ceilings.machine_files import NVIDIA, find_machine
from ncu_tools.ceilings.memory_clock import MemoryClocks, run_clock
from ncu_tools.cli import run
from ncu_tools.roofline.roofline import others_beside, roofline
from tests.support.launches import launch, metric, sass, table, tensor
from tests.support.reports import needs_shared_reports, shared_reports

SM_CLOCK = {"sm__cycles_elapsed.avg.per_second": metric(1.0e9, "hz")}
FFMA = {"sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": metric(64.0 * 108)}


def board(memory_khz: float, bus: float, sm_khz: float = 1.41e6, **more: float) -> dict[str, Any]:
    """The device attributes of a board."""
    found = {"max_mem_frequency_khz": memory_khz, "global_memory_bus_width": bus, "max_gpu_frequency_khz": sm_khz}
    return {f"device__attribute_{name}": metric(value) for name, value in (found | more).items()}


def dram(bytes_per_cycle: float, clock: float) -> dict[str, Any]:
    """The counters of a DRAM ceiling."""
    return {
        "dram__bytes.sum.peak_sustained": metric(bytes_per_cycle),
        "dram__cycles_elapsed.avg.per_second": metric(clock, "hz"),
    }


def tensor_peak(name: str, per_sm: float) -> dict[str, Any]:
    return {f"sm__ops_path_tensor_{name}.sum.peak_sustained": metric(per_sm * 108)}


def found(metrics: dict[str, Any], capability: str = "8.0", ns: float | None = None) -> Ceilings:
    return ceilings_of(table(launch("k", metrics, ns=ns, capability=capability)))


def values(ceilings: Ceilings, unit: str) -> dict[tuple[str, bool, str], float]:
    """Every ceiling of a unit by kind, sparsity and instruction, drawn or not."""
    every = [ceiling for ceiling in (*ceilings.drawn, *ceilings.others) if ceiling.unit == unit]
    assert len(every) == len({(ceiling.kind, ceiling.sparse, ceiling.instruction) for ceiling in every})
    return {(ceiling.kind, ceiling.sparse, ceiling.instruction): ceiling.value for ceiling in every}


class TestDram:
    def test_attributes_are_the_ceiling_and_counters_that_agree_are_not_mentioned(self) -> None:
        ceilings = found(dram(1280, 1.2149e9) | board(1.215e6, 5120), ns=1e6)
        assert ceilings.per_launch["dram"].tolist() == [1555.2e9]
        assert list(values(ceilings, "dram")) == [(PROFILED_CLOCK, False, "")]
        assert not any("DRAM" in note for note in ceilings.notes)

    def test_a_board_with_a_narrower_bus_has_the_ceiling_of_its_own_bus(self) -> None:
        ceilings = found(dram(96, 6.99e9) | board(7.0e6, 352), "7.5", ns=1e6)
        assert ceilings.per_launch["dram"].tolist() == [616e9]
        assert any("is 96 bytes per cycle, and the board's memory bus moves 88" in note for note in ceilings.notes)

    def test_a_memory_clock_below_its_limit_is_noted_and_determines_the_ceiling(self) -> None:
        ceilings = found(dram(80, 7.59e9) | board(8.001e6, 320), "8.6", ns=1e6)
        assert ceilings.per_launch["dram"].tolist() == [80 * 7.59e9]
        assert any("was 7.59 GHz and its limit is 8.00 GHz" in note for note in ceilings.notes)
        assert {kind for kind, _, _ in values(ceilings, "dram")} == {PROFILED_CLOCK, BOARD_LIMIT}

    def test_a_launch_too_short_to_show_its_clock_gives_no_ceiling(self) -> None:
        ceilings = found(dram(96, 6.6e9) | board(7.251e6, 384), "8.6", ns=8e3)
        assert ceilings.per_launch["dram"].tolist() == [96 * 7.251e9]
        assert list(values(ceilings, "dram")) == [(BOARD_LIMIT, False, "")]
        assert not any("clock" in note for note in ceilings.notes)

    def test_kernels_of_one_report_have_one_ceiling_by_the_clock_of_the_longest_launch(self) -> None:
        clocks = {8e3: 6.6e9, 50e3: 7.0e9, 9e6: 7.23e9, 400e3: 7.19e9}
        made = table(*(launch(f"k{ns}", dram(96, clock), ns=ns) for ns, clock in clocks.items()))
        assert ceilings_of(made).per_launch["dram"].tolist() == [96 * 7.23e9] * 4

    def test_without_attributes_short_launches_leave_the_ceiling_unknown_with_a_note(self) -> None:
        ceilings = found(dram(96, 6.6e9), "8.6", ns=8e3)
        assert np.isnan(ceilings.per_launch["dram"]).all()
        assert any("no launch is known to take 0.1 ms or more" in note for note in ceilings.notes)

    def test_two_reports_of_a_device_at_two_memory_clocks_have_separate_ceilings(self) -> None:
        reports = [table(launch("k", dram(80, clock), ns=1e6)) for clock in (7.6e9, 5.0e9)]
        named = [one.set_column(at, "report", pa.array([f"{n}.csv"])) for n, one in enumerate(reports)
                 for at in [one.column_names.index("report")]]  # fmt: skip
        made = pa.concat_tables(named, promote_options="permissive")
        assert ceilings_of(made).per_launch["dram"].tolist() == [80 * 7.6e9, 80 * 5.0e9]

    @given(st.lists(st.tuples(st.floats(1e3, 1e8), st.floats(1e9, 9e9)), min_size=1, max_size=6))
    def test_batches_of_a_file_have_the_memory_clock_of_the_whole_file(self, shown: list[tuple[float, float]]) -> None:
        made = table(*(launch("k", dram(96, clock), ns=ns) for ns, clock in shown))
        clocks = MemoryClocks()
        for row in range(len(made)):
            clocks.add(made.slice(row, 1))
        assert np.array_equal(clocks.of(made), run_clock(made), equal_nan=True)

    def test_attributes_give_the_ceiling_if_the_counters_were_not_collected(self) -> None:
        name = {"device__attribute_display_name": metric("Tesla T4")}
        ceilings = found(board(5.001e6, 256) | name, "7.5")
        assert ceilings.per_launch["dram"].tolist() == [pytest.approx(320.064e9)]
        (drawn,) = [ceiling for ceiling in ceilings.drawn if ceiling.unit == "dram"]
        assert (drawn.kind, drawn.source) == (BOARD_LIMIT, "report, device attributes")

    def test_an_integrated_gpu_has_no_limit_from_its_bus(self) -> None:
        assert "dram" not in {ceiling.unit for ceiling in found(board(5e6, 256, integrated=1), "8.7").drawn}


class TestComputeUnits:
    def test_the_boards_limit_is_the_same_peak_at_its_highest_clock(self) -> None:
        fp32 = values(found(FFMA | SM_CLOCK | board(1.215e6, 5120)), "fp32")
        assert fp32 == {
            (PROFILED_CLOCK, False, ""): pytest.approx(13.824e12),
            (BOARD_LIMIT, False, ""): pytest.approx(19.5e12, rel=2e-3),
        }

    def test_without_a_profiled_clock_the_boards_limit_is_the_ceiling(self) -> None:
        ceilings = found(FFMA | board(1.215e6, 5120), "8.6")
        assert ceilings.per_launch["fp32"].tolist() == [pytest.approx(19.49e12, rel=1e-3)]
        assert list(values(ceilings, "fp32")) == [(BOARD_LIMIT, False, "")]

    def test_the_peak_of_a_plain_tensor_total_is_the_sparse_ceiling(self) -> None:
        peaks = tensor_peak("src_bf16_dst_fp32_sparsity_off", 2048) | tensor_peak("src_bf16_dst_fp32", 4096)
        bf16 = values(found(peaks | SM_CLOCK | board(1.215e6, 5120)), "tensor_bf16")
        assert bf16 == {
            (PROFILED_CLOCK, False, ""): pytest.approx(221.184e12),
            (PROFILED_CLOCK, True, ""): pytest.approx(442.368e12),
            (BOARD_LIMIT, False, ""): pytest.approx(312e12, rel=2e-3),
            (BOARD_LIMIT, True, ""): pytest.approx(624e12, rel=2e-3),
        }

    def test_volta_and_fp64_have_no_sparse_ceiling(self) -> None:
        volta = found(tensor_peak("src_fp16_dst_fp32", 1024) | SM_CLOCK, "7.0")
        fp64 = found(tensor_peak("src_fp64", 128) | SM_CLOCK)
        assert list(values(volta, "tensor_fp16")) == list(values(fp64, "tensor_fp64")) == [(PROFILED_CLOCK, False, "")]

    def test_hopper_has_a_ceiling_for_mma_sync_below_that_of_wgmma(self) -> None:
        peaks = tensor_peak("op_hgmma_src_bf16_dst_fp32_sparsity_off", 4096)
        peaks |= tensor_peak("op_hmma_src_bf16_dst_fp32_sparsity_off", 4096 * 2 / 3)
        ceilings = found(peaks | SM_CLOCK, "9.0")
        bf16 = values(ceilings, "tensor_bf16")
        assert set(bf16) == {(PROFILED_CLOCK, False, "wgmma"), (PROFILED_CLOCK, False, "mma.sync")}
        ratio = bf16[PROFILED_CLOCK, False, "mma.sync"] / bf16[PROFILED_CLOCK, False, "wgmma"]
        assert ratio == pytest.approx(2 / 3)
        assert ceilings.per_launch["tensor_bf16"].tolist() == [4096 * 108 * 1e9]

    def test_a_data_sheet_gives_its_sparse_rate_with_its_dense_one(self) -> None:
        name = {"device__attribute_display_name": metric("NVIDIA A100-SXM4-40GB")}
        (sparse,) = [ceiling for ceiling in found(name).others if ceiling.unit == "tensor_bf16"]
        assert (sparse.value, sparse.sparse, sparse.kind) == (624e12, True, "data sheet")

    def test_a_sparse_ceiling_bounds_no_launch(self) -> None:
        only_sparse = found(tensor_peak("src_bf16_dst_fp32_sparsity_on", 4096) | SM_CLOCK, "8.6")
        assert only_sparse.drawn == []
        assert list(values(only_sparse, "tensor_bf16")) == [(PROFILED_CLOCK, True, "")]


def test_a_roofline_lists_undrawn_ceilings_with_their_difference() -> None:
    metrics = sass(ffma=1e6) | FFMA | SM_CLOCK | dram(1280, 1.215e9) | board(1.215e6, 5120)
    made = roofline({"run": table(launch("k", metrics, ns=1e6, dram=1e6))})
    assert [ceiling.unit for ceiling in made.ceilings] == ["fp32", "dram"]
    assert len(made.ridges) == 1
    (fp32,) = others_beside(made.ceilings[0], made.others)
    assert (fp32[0], fp32[1].value) == ("board limit", pytest.approx(19.49e12, rel=1e-3))


def test_two_runs_at_other_clocks_have_a_line_for_each_roof_and_slower_instruction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peaks = (
        tensor_peak("op_hgmma_src_bf16_dst_fp32_sparsity_off", 4096)
        | dram(2000, 1.0e9)
        | tensor("9.0", bf16_dst_fp32=1e9)
    )
    peaks |= tensor_peak("op_hmma_src_bf16_dst_fp32_sparsity_off", 4096 * 2 / 3)
    for name, clock in (("slow", 1.0e9), ("fast", 1.5e9)):
        metrics = peaks | {"sm__cycles_elapsed.avg.per_second": metric(clock, "hz")}
        made = with_metadata(
            table(launch("k", metrics, ns=1e6, dram=1e6, capability="9.0")), {"schema_version": SCHEMA_VERSION}
        )
        write_table(made, tmp_path / f"{name}.parquet")
    assert run(["roofline", *(str(tmp_path / f"{name}.parquet") for name in ("slow", "fast"))]) == 0
    shown = capsys.readouterr().out.splitlines()
    roofs = [line.split()[2:] for line in shown if line.startswith(" tensor BF16")]
    assert [roof[:3] for roof in roofs] == [
        ["wgmma", "663.6", "TFLOP/s"], ["wgmma", "442.4", "TFLOP/s"],
        ["mma.sync", "442.4", "TFLOP/s"], ["mma.sync", "294.9", "TFLOP/s"],
    ]  # fmt: skip
    assert [roof[3] for roof in roofs[:2]] == ["331.8", "221.2"]


def test_peaks_of_two_runs_have_their_ridge_with_the_bandwidth_of_their_own_run() -> None:
    """One run has the memory clock of its board's limit, the other one a lower clock; the limit is listed once."""
    clock = {"smsp__cycles_elapsed.avg.per_second": metric(0.7e9, "hz")}
    own = board(1.215e6, 5120)
    full = sass(ffma=1e6) | FFMA | SM_CLOCK | own
    low = sass(ffma=1e6) | FFMA | clock | dram(1280, 0.9e9) | own
    runs = {name: table(launch("k", of, ns=1e6, dram=1e6)) for name, of in (("full", full), ("low", low))}
    both = roofline(runs)
    each = [ridge for name, one in runs.items() for ridge in roofline({name: one}).ridges]
    assert both.ridges == each
    assert len({ridge.intensity for ridge in each}) == 2
    limits = [one for one in (*both.ceilings, *both.others) if (one.unit, one.kind) == ("dram", BOARD_LIMIT)]
    assert len(limits) == 1


def test_a_machine_chosen_for_an_unknown_device_is_distinguished_from_its_own_file() -> None:
    ceilings = ceilings_of(table(launch("k", capability=None)), find_machine("t4"))
    origin = ceilings.origins[ceilings.origin_of["fp32"][0]]
    assert (origin.chosen, origin.says) == (True, "--machine t4")


@pytest.mark.parametrize(
    ("name", "capability", "advice"),
    [
        ("Pro Cessor X", None, "or measure it where it is with ncu-bench machines measure"),
        ("A GPU of 2030", "99.0", "or collect the report's own with --section SpeedOfLight_RooflineChart"),
        (None, None, "or collect the report's own with --section SpeedOfLight_RooflineChart"),
    ],
)
def test_a_note_says_how_to_get_ceilings_if_none_is_known(
    name: str | None, capability: str | None, advice: str
) -> None:
    attributes = {"Device Name": name} if name else {}
    one = launch("k", sass(ffma=1e6), ns=1e6, dram=1e6, capability=capability, attributes=attributes)
    (note,) = ceilings_of(table(one)).notes
    device = name or "this device"
    assert note == f"no ceilings are known for {device}: choose a machine with --machine NAME, {advice}"


def test_a_timeline_has_no_note_on_missing_ceilings() -> None:
    """It counts nothing that could be bounded, and nsys has no sections to collect."""
    assert ceilings_of(table(launch("k", ns=1e6, capability=None))).notes == []


@needs_shared_reports
@pytest.mark.parametrize(
    ("fragment", "unit", "kind", "value"),
    [
        ("317662.ncu2022.3.raw.base", "dram", PROFILED_CLOCK, 696.1e9),  # the data sheet says 696
        ("317662.ncu2022.3.raw.base", "fp32", BOARD_LIMIT, 37.42e12),  # the data sheet says 37.4
        ("josiahls", "dram", BOARD_LIMIT, 288.0e9),  # the data sheet of the GTX 1660 Ti says 288.1
    ],
)
def test_ceilings_of_real_reports_equal_those_of_their_boards(
    fragment: str, unit: str, kind: str, value: float
) -> None:
    (path,) = [path for path in shared_reports("ncu_csv") if fragment in path.name]
    made = parse([Source(str(path))]).table
    assert made is not None
    assert values(ceilings_of(made), unit)[kind, False, ""] == pytest.approx(value, rel=5e-4)


@pytest.mark.parametrize(("capability", "expected"), [("9.0", 256.0), ("8.0", 128.0), ("odd", 256.0), (None, 256.0)])
def test_l1_bytes_by_nvidias_definition_use_the_counter_of_the_chip_or_the_first_one_if_unknown(
    capability: str | None, expected: float
) -> None:
    counters = {f"l1tex__lsu_writeback_active_mem_{kind}.sum": metric(n) for kind, n in (("lg", 1.0), ("lgds", 2.0))}
    made = table(launch("k", counters, ns=1.0, capability=capability))
    assert bytes_of(made, ["l1"], NVIDIA)["l1"].tolist() == [expected]


class TestAMachineThatTheUserNames:
    """Its ceilings: how they are marked, and what is said where it bounds nothing or is another chip."""

    @staticmethod
    def of_device(name: str | None, capability: str | None, machine: str, **metrics: Any) -> Ceilings:
        attributes = {"Device Name": name} if name else {}
        one = launch("k", sass(ffma=1e6) | metrics, ns=1e6, dram=1e6, capability=capability, attributes=attributes)
        return ceilings_of(table(one), find_machine(machine))

    @pytest.mark.parametrize(("name", "of"), [("A GPU of 2030", " of A GPU of 2030"), (None, "")])
    def test_of_another_chip_is_said_to_be_one(self, name: str | None, of: str) -> None:
        notes = self.of_device(name, "9.0", "t4").notes
        assert (
            f"the report says compute capability 9.0{of}, and --machine t4 has 7.5: its ceilings are those of another chip"
        ) in notes

    def test_of_hopper_has_the_slower_instruction_beside_the_faster(self) -> None:
        found = values(self.of_device(None, None, "h100-sxm"), "tensor_bf16")
        instructions = {instruction: value for (_, sparse, instruction), value in found.items() if not sparse}
        assert instructions["mma.sync"] < instructions["wgmma"]
        of_ampere = values(self.of_device(None, None, "a100-sxm4-40gb"), "tensor_bf16")
        assert {instruction for _, _, instruction in of_ampere} == {""}


def test_the_source_of_a_dram_ceiling_says_its_clock_and_whether_the_bus_width_is_a_device_attribute() -> None:
    with_board = found(dram(1280, 1.215e9) | board(1.215e6, 5120), ns=1e6)
    (drawn,) = [ceiling for ceiling in with_board.drawn if ceiling.unit == "dram"]
    assert drawn.source == "report, device attributes, memory clock 1.22 GHz"
    (alone,) = [ceiling for ceiling in found(dram(1280, 1.215e9), ns=1e6).drawn if ceiling.unit == "dram"]
    assert alone.source == "report, memory clock 1.22 GHz"
