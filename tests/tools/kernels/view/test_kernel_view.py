"""One kernel seen whole: facts, occupancy, stalls, rules; against the values in real reports."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError
from ncu_parsers.schema import tables

from ncu_tools.kernels.view.facts import facts_of, parts
from ncu_tools.kernels.view.kernel_view import kernel_view, occupancy_view, rule_results, stall_shares
from ncu_tools.kernels.view.occupancy import (
    BLOCKS,
    REGISTERS,
    SHARED_MEMORY,
    WARPS,
    BlockNeeds,
    SmLimits,
    occupancy,
    steps,
)
from tests.conftest import SAMPLES, SHARED
from tests.support.launches import launch, metric, table
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, shared_reports, table_of

SAMPLE = str(SAMPLES / "d02-long-rules.csv")
TRITON = SHARED / "reports" / "ncu_rep_full" / "AlpriElse__cs599k__silu_triton_silu-2025-04-18-v7.ncu-rep"
H100 = SmLimits(warps=64, blocks=32, registers=65536, shared_bytes=233_472, shared_unit=128)
LIMITS = {
    WARPS: "launch__occupancy_limit_warps", REGISTERS: "launch__occupancy_limit_registers",
    SHARED_MEMORY: "launch__occupancy_limit_shared_mem", BLOCKS: "launch__occupancy_limit_blocks",
}  # fmt: skip


def real_launches() -> list[pa.Table]:
    """Every launch of the real reports, each as a table of one row."""
    found = []
    for folder in ("ncu_rep", "ncu_rep_full", "ncu_csv"):
        for path in shared_reports(folder):
            table = table_of(path)
            found += [] if table is None else [table.slice(row, 1) for row in range(len(table))]
    return found


# ------------------------------------------------------------------------------------------------- occupancy


@pytest.mark.slow
@needs_shared_reports
def test_occupancy_and_its_limits_equal_those_of_nvidia_on_every_real_launch() -> None:
    compared = 0
    for single in real_launches():
        found = occupancy_view(single)
        if found.calculated is None or found.theoretical is None:
            continue
        compared += 1
        limits = {name: tables.floats(single, metric)[0] for name, metric in LIMITS.items()}
        assert {name: found.calculated.blocks_by[name] for name in limits} == limits
        assert 100 * found.calculated.fraction == pytest.approx(found.theoretical, abs=0.01)
    assert compared >= 60


@pytest.mark.parametrize(
    ("size", "shared", "is_known"), [(16384.0, 4096.0, True), (0.0, 4096.0, False), (0.0, 0.0, True)]
)
def test_occupancy_is_not_calculated_where_blocks_take_shared_memory_of_an_sm_that_has_none(
    size: float, shared: float, is_known: bool
) -> None:
    """Blocks without shared memory run on SMs that have all of it as L1: 0 of PhysiCell on a V100, by ncu of 2020."""
    attribute = "device__attribute_max_{}_per_multiprocessor"
    metrics = {
        attribute.format("warps"): 64.0, attribute.format("registers"): 65536.0, "launch__occupancy_limit_blocks": 32.0,
        "launch__block_size": 128.0, "launch__registers_per_thread": 16.0, "launch__shared_mem_config_size": size,
        "launch__shared_mem_per_block_static": shared, "launch__shared_mem_per_block_dynamic": 0.0,
    }  # fmt: skip
    found = occupancy_view(
        table(launch("k", {name: metric(value) for name, value in metrics.items()}, capability="7.0"))
    )
    assert (found.calculated is not None) == is_known


def test_registers_are_given_to_warps_in_units_of_256_within_each_partition() -> None:
    found = occupancy(H100, BlockNeeds(threads=256, registers=49, shared_bytes=0))
    assert found.blocks_by[REGISTERS] == 36 // 8  # 56 x 32 registers a warp, 9 warps in each of 4 partitions
    assert found.limiters == (REGISTERS,)
    assert found.warps == 32


def test_a_full_sm_has_no_limiter() -> None:
    assert occupancy(H100, BlockNeeds(threads=1024, registers=32, shared_bytes=0)).limiters == ()


def test_a_step_says_how_few_registers_allow_one_more_block() -> None:
    (step,) = steps(H100, BlockNeeds(threads=256, registers=49, shared_bytes=0))
    assert (step.resource, step.now, step.to) == (REGISTERS, 49, 48)
    assert step.fraction == 0.625


def test_a_step_says_how_little_shared_memory_allows_one_more_block() -> None:
    (step,) = steps(H100, BlockNeeds(threads=256, registers=32, shared_bytes=100_000))
    assert (step.resource, step.to) == (SHARED_MEMORY, 233_472 // 3 // 128 * 128)
    assert step.fraction == 3 * 8 / 64


def test_a_block_without_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="without threads"):
        occupancy(H100, BlockNeeds(0, 32, 0))


@given(st.integers(1, 1024), st.integers(1, 255), st.integers(0, 200_000))
def test_a_step_gives_what_it_promises_and_needs_less(threads: int, registers: int, shared: int) -> None:
    block = BlockNeeds(threads, registers, shared)
    before = occupancy(H100, block)
    for step in steps(H100, block):
        changed = {"registers": step.to} if step.resource == REGISTERS else {"shared_bytes": step.to}
        after = occupancy(
            H100, BlockNeeds(**{"threads": threads, "registers": registers, "shared_bytes": shared, **changed})
        )
        assert step.to < step.now
        assert after.fraction == step.fraction > before.fraction


# ----------------------------------------------------------------------------------------------------- facts


@needs_shared_reports
@pytest.mark.slow
def test_every_fact_is_the_reports_own_value() -> None:
    compared = 0
    for single in real_launches():
        for fact in facts_of(single)[0]:
            names = fact.metric.split(" / ")
            if not {*names} <= {*single.column_names}:  # computed from another form
                continue
            values = [tables.floats(single, name)[0] for name in names]
            assert fact.value == (values[0] if len(values) == 1 else values[0] / values[1])
            compared += 1
    assert compared > 1000


def test_every_part_names_its_facts_with_metrics_and_a_kind() -> None:
    for entries in parts().values():
        for entry in entries.values():
            assert entry["title"]
            assert entry["metrics"]
            assert entry["kind"] in ("percent", "count", "number", "byte", "time", "hz")


def test_several_launches_are_shown_as_their_median_with_least_and_most() -> None:
    table = pa.table({"launch__registers_per_thread": [16.0, 40.0, 32.0]})
    (fact,), missing = facts_of(table)
    assert (fact.value, fact.low, fact.high) == (32, 16, 40)
    assert "time" in missing["identity"]


def test_stalls_are_shares_of_a_warps_time_among_it_the_cycle_in_which_it_issues() -> None:
    name = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
    found = stall_shares(
        pa.table({name.format("wait"): [1.0], name.format("barrier"): [3.0], name.format("selected"): [1.0]})
    )
    assert [(one.reason, one.share) for one in found] == [("barrier", 0.6), ("wait", 0.2)]


def test_rules_are_told_once_with_their_launches_and_the_largest_speed_up_first() -> None:
    rule = {"section": "S", "kind": "OPT", "description": "Do it.", "speedup_type": "global"}
    rules = [
        [{**rule, "name": "A", "speedup": "5.0"}, {**rule, "name": "B", "speedup": "20"}],
        [{**rule, "name": "A", "speedup": "7"}],
    ]
    found = rule_results(pa.table({"rules": rules}))
    assert [(one.name, one.speedup, one.launches) for one in found] == [("B", 20, 1), ("A", 7, 2)]


# ------------------------------------------------------------------------------------------------ command line


def test_a_kernel_that_is_not_there_is_refused_with_those_that_are() -> None:
    launches = table_of(SAMPLES / "d02-long-rules.csv")
    assert launches is not None
    with pytest.raises(NcuBenchError, match="There are"):
        kernel_view(launches, (re.compile("no such kernel"),))


def test_a_launch_without_an_id_is_named_by_its_place_in_the_run() -> None:
    made = table(*(launch(name, {}, ns=1e3 * (place + 1), launch_id=None) for place, name in enumerate("aba")))
    found = kernel_view(made, launch=2)
    assert (found.kernel_name, found.launches, found.hotspot.time_total_ns) == ("a", 1, 3e3)
    assert kernel_view(made, launch=1).kernel_name == "b"
    with pytest.raises(NcuBenchError, match=r"There is no launch 3 in the run\. Launches are 0, 1, 2, the last 2"):
        kernel_view(made, launch=3)


def test_a_launch_with_an_id_is_named_by_that_alone() -> None:
    made = table(*(launch(name, {}, ns=1e3, launch_id=number) for number, name in ((7, "a"), (1, "b"))))
    assert [kernel_view(made, launch=number).kernel_name for number in (7, 1)] == ["a", "b"]
    with pytest.raises(NcuBenchError, match="Launches are 1, 7, the last 7"):
        kernel_view(made, launch=0)
    with pytest.raises(NcuBenchError, match="Launch 1 is of another kernel"):
        kernel_view(made, (re.compile("a"),), launch=1)


def test_a_run_without_counters_is_refused_since_its_bytes_are_no_dram_traffic() -> None:
    launches = table_of(SAMPLES / "d02-long-rules.csv")
    assert launches is not None
    place = launches.column_names.index("source")
    timed = launches.set_column(place, "source", pa.array(["operators"] * len(launches)))
    with pytest.raises(NcuBenchError, match=r"no counters of kernels\. It was made by: operators\."):
        kernel_view(timed)


def test_the_kernel_command_shows_what_the_report_has_and_names_what_it_lacks() -> None:
    result = ran("kernel", SAMPLE)
    assert result.exit_code == 0, result.stderr
    assert "1 identity" in result.stdout
    assert "not collected: " in result.stderr
    assert "every metric of scheduler" in result.stderr
    assert "ncu --set full" in result.stderr


@needs_shared_reports
@pytest.mark.slow
def test_the_kernel_command_has_seven_parts_of_a_full_report() -> None:
    result = ran("kernel", str(TRITON))
    assert re.findall(r"^(\d) ", result.stdout, re.MULTILINE) == list("1234567")
    found = json.loads(ran("kernel", str(TRITON), "--format", "json").stdout)
    assert found["kernel"] == "silu_kernel_non_strided"
    assert found["occupancy"]["calculated"]["fraction"] == 1
    assert found["rules"][0]["speedup"] >= found["rules"][-1]["speedup"]
    values = {row["key"]: row["value"] for row in found["rows"]}
    assert values["dram"] == pytest.approx(83.37, abs=0.1)
    assert np.isclose(sum(row["share"] for row in found["rows"] if row["key"].startswith("mix_")), 1)
