"""Reports of ncu that were judged wrongly once, each with the right verdict: the kind of fault, not the file alone.

The inputs are those of `../shared/faults`, and built here from the few counters that the verdict stands on.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.diagnosis.diagnose import AT_ITS_LIMIT, Diagnosis, diagnoses
from ncu_tools.kernels.hotspots import hotspots
from tests.support.launches import launch, metric, table
from tests.support.reports import FAULTS, needs_faults, table_of

CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared"
USED = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}"
NO_BUSY_SHARE = {f"{CONFLICTS}.sum": 1016962.0, f"{WAVEFRONTS}.sum": 1082500.0}
ONE_BLOCK = {f"{CONFLICTS}.sum": 480.0, f"{WAVEFRONTS}.sum": 545.0,
             f"{WAVEFRONTS}.sum.pct_of_peak_sustained_elapsed": 0.106}  # fmt: skip
OF_ACCESSES = {f"{CONFLICTS}_op_ld.sum": 1016842.0, f"{CONFLICTS}_op_st.sum": 120.0,
               f"{WAVEFRONTS}_op_ld.sum": 1049600.0, f"{WAVEFRONTS}_op_st.sum": 32900.0}  # fmt: skip
HOT_SLICE = {
    "lts__cycles_active.avg": 840000.0, "lts__cycles_active.max": 3146718.0, "lts__cycles_elapsed.max": 3148383.0,
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": 0.6,
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 5.61,
    "smsp__average_warps_issue_stalled_drain_per_issue_active.ratio": 1624.7,
    "smsp__average_warp_latency_per_inst_issued.ratio": 3689.0, "smsp__issue_active.avg.per_cycle_active": 0.0017,
}  # fmt: skip
READS = "dram__bytes_read.sum.pct_of_peak_sustained_elapsed"
PER_CENT = {READS: 83.6, f"{USED.format('ld')}.pct": 25.0, f"{USED.format('st')}.pct": 50.0}
RATIO = {f"{USED.format('ld')}.ratio": 8.0, f"{USED.format('st')}.ratio": 16.0}


def diagnosis_of(made: pa.Table) -> Diagnosis:
    (row,) = hotspots(made, ceilings_of(made)).rows
    return diagnoses(made, [row], "name")[row.key]


def diagnosed(metrics: dict[str, float], **attributes: Any) -> Diagnosis:
    return diagnosis_of(table(launch("k", {name: metric(value) for name, value in metrics.items()}, **attributes)))


def in_file(name: str) -> Diagnosis:
    made = table_of(FAULTS / name)
    assert made is not None
    return diagnosis_of(made)


@pytest.fixture(params=["built here", pytest.param("in the file", marks=needs_faults)])
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_conflicts_on_a_pipe_at_a_thousandth_of_its_peak_have_no_cost_beside_them(where: str) -> None:
    """One block, on nobody knows how many SMs: 88 % of hardly any wavefronts."""
    found = (
        diagnosed(ONE_BLOCK, ns=1824.0, grid=(1, 1, 1), block=(32, 16, 1), capability="8.9")
        if where == "built here"
        else in_file("01a_conflicts_one_block.csv")
    )
    (cause,) = found.causes
    assert cause.says == (
        "bank conflicts: 88 % of the shared-memory wavefronts are added by them; their pipe is at 0.11 % of its peak"
    )
    assert cause.cost is None


def test_conflicts_of_a_block_cost_the_time_of_the_sm_that_has_it_where_the_sms_are_known() -> None:
    sms = {"device__attribute_multiprocessor_count": 128.0}
    found = diagnosed({**ONE_BLOCK, **sms}, ns=1824.0, grid=(1, 1, 1), block=(32, 16, 1))
    (cost,) = [cause.cost for cause in found.causes if cause.rule == "bank conflicts"]
    assert cost == pytest.approx(480 / 545 * 0.00106 * 128)


def test_conflicts_have_no_cost_where_the_use_of_shared_memory_was_not_collected(where: str) -> None:
    found = (
        diagnosed(NO_BUSY_SHARE, ns=76500.0, grid=(1024, 1, 1), block=(32, 32, 1))
        if where == "built here"
        else in_file("01b_conflicts_no_busy.csv")
    )
    (cause,) = found.causes
    assert cause.says == "bank conflicts: 94 % of the shared-memory wavefronts are added by them"
    assert cause.cost is None


def test_conflicts_cost_what_warps_wait_for_shared_memory_where_only_that_was_collected() -> None:
    stalls = {"smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio": 4.0,
              "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": 3.0,
              "smsp__average_warp_latency_per_inst_issued.ratio": 10.0}  # fmt: skip
    found = diagnosed({**NO_BUSY_SHARE, **stalls}, ns=76500.0, grid=(1024, 1, 1))
    (cost,) = [cause.cost for cause in found.causes if cause.rule == "bank conflicts"]
    assert cost == pytest.approx(0.94 * 0.7, abs=0.01)


def test_one_hot_slice_of_l2_is_the_first_cause(where: str) -> None:
    found = diagnosed(HOT_SLICE, ns=2.17e6) if where == "built here" else in_file("08_hot_l2_slice.csv")
    assert found.causes[0].says == (
        "all traffic goes to one L2 slice (atomics, or accesses at one address or stride): it is busy for 100 % of the "
        "time, the mean slice for 27 %"
    )


def test_slices_of_l2_that_are_all_busy_or_all_idle_are_no_cause() -> None:
    for most, mean in ((0.99, 0.98), (0.12, 0.03)):
        slices = {"lts__cycles_active.max": most, "lts__cycles_active.avg": mean, "lts__cycles_elapsed.max": 1.0}
        found = diagnosed({**HOT_SLICE, **slices}, ns=2.17e6)
        assert "one L2 slice" not in {*(one.rule for one in found.causes), *(one.rule for one in found.ruled_out)}


def test_bank_conflicts_follow_from_conflicts_of_loads_and_stores(where: str) -> None:
    found = diagnosed(OF_ACCESSES, ns=76500.0) if where == "built here" else in_file("09a_conflicts_op_ld.csv")
    assert found.causes[0].says == (
        "bank conflicts: 94 % of the shared-memory wavefronts are added by them, 97 % of those of loads and < 1 % of "
        "those of stores"
    )
    (evidence,) = [one for one in found.causes[0].evidence if one.quantity == "load_conflicts"]
    assert evidence.value == pytest.approx(0.9688, abs=0.0001)


def test_conflicts_of_loads_stand_for_all_where_nothing_else_was_counted() -> None:
    found = diagnosed({name: value for name, value in OF_ACCESSES.items() if "_op_ld" in name}, ns=76500.0)
    assert found.causes[0].says.startswith("bank conflicts: 97 % of the shared-memory wavefronts are added by them")


def test_bytes_used_of_a_sector_and_reads_of_dram_are_known_as_per_cent_of_their_most(where: str) -> None:
    found = (
        diagnosed(PER_CENT, ns=65504.0)
        if where == "built here"
        else in_file("09b_bytes_per_sector_pct_and_dram_read_pct.csv")
    )
    assert [(cause.rule, cause.says) for cause in found.causes] == [
        ("uncoalesced loads", "uncoalesced: loads use 8 of the 32 bytes of a sector"),
        (AT_ITS_LIMIT, "DRAM reads bound: at 84 % of its peak"),
        ("uncoalesced stores", "uncoalesced: stores use 16 of the 32 bytes of a sector"),
    ]
    assert found.causes[0].cost == pytest.approx(0.836 * 0.75), "DRAM is busy with them"
    assert found.causes[2].cost is None, "how many of the sectors are of stores was not counted"
    (unused,) = [one for one in found.causes[0].evidence if one.quantity == "unused_load_bytes"]
    assert unused.metrics[0] == f"{USED.format('ld')}.pct", "the metric of this report"


def test_bytes_used_of_a_sector_are_known_as_a_ratio_and_have_no_cost_alone(where: str) -> None:
    found = diagnosed(RATIO, ns=65504.0) if where == "built here" else in_file("09c_bytes_per_sector_ratio.csv")
    assert [(cause.says, cause.cost) for cause in found.causes] == [
        ("uncoalesced: loads use 8 of the 32 bytes of a sector", None),
        ("uncoalesced: stores use 16 of the 32 bytes of a sector", None),
    ]


def test_bytes_that_a_few_stores_leave_unused_cost_no_more_than_their_share_of_the_sectors() -> None:
    """A reduction reads all of its input, and stores a number for each block."""
    sectors = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
    read = {sectors.format("ld"): 990.0, f"{USED.format('ld')}.pct": 100.0}
    stored = {sectors.format("st"): 10.0, f"{USED.format('st')}.pct": 12.5}
    l2 = {"lts__t_sectors.avg.pct_of_peak_sustained_elapsed": 80.0}
    assert [cause.rule for cause in diagnosed({**read, **stored, **l2}, ns=1e5).causes] == [AT_ITS_LIMIT]
    swapped = {sectors.format("ld"): 10.0, sectors.format("st"): 990.0}
    first, _ = diagnosed({**read, **stored, **l2, **swapped}, ns=1e5).causes
    assert (first.rule, first.cost) == ("uncoalesced stores", pytest.approx(0.8 * 0.875 * 0.99))


def test_bytes_left_unused_are_no_cause_beside_counted_sectors_of_which_none_is_too_many() -> None:
    ideal = {"memory_l2_theoretical_sectors_global": 100.0, "memory_l2_theoretical_sectors_global_ideal": 100.0}
    found = diagnosed({**RATIO, **ideal}, ns=1e5)
    assert (found.causes, "coalescing" in found.collect) == ([], False)


def test_stalls_are_known_as_shares_of_the_time_of_warps() -> None:
    """Names that stand for nvprof's stall_*."""
    stalls = {"smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct": 62.0,
              "smsp__warp_issue_stalled_barrier_per_warp_active.pct": 8.0,
              "smsp__issue_active.avg.pct_of_peak_sustained_active": 20.0}  # fmt: skip
    found = diagnosed(stalls, ns=1e5)
    assert found.causes[0].says == ("stalled: warps wait on global, local or texture memory for 62 % of their time")


def test_a_share_of_more_than_all_never_leads_and_is_said_to_be_out_of_range() -> None:
    busy = {"dram__throughput.avg.pct_of_peak_sustained_elapsed": 124.0,
            "sm__throughput.avg.pct_of_peak_sustained_elapsed": 40.0,
            "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 30.0}  # fmt: skip
    found = diagnosed(busy, ns=2000.0)
    assert found.busiest is not None
    assert (found.busiest.title, found.causes) == ("SM", [])
    assert "DRAM at 124 % of its peak is out of range: its counters come from different passes" in found.text
    assert found.as_json()["out_of_range"] == found.out_of_range
