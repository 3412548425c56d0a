"""Numbers of `kernel` against those that a report itself prints, read here with nothing of the project's parsers."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from ncu_parsers.schema import tables

from ncu_tools.kernels.view.facts import Fact, facts_of
from ncu_tools.kernels.view.kernel_view import occupancy_view
from tests.conftest import SHARED
from tests.support.reports import needs_shared_reports, shared_reports, table_of

LABELS = {
    "blocks": "Grid Size", "threads": "Block Size", "registers": "Registers Per Thread",
    "shared_static": "Static Shared Memory Per Block", "shared_dynamic": "Dynamic Shared Memory Per Block",
    "waves": "Waves Per SM", "duration": "Duration", "sm_clock": "SM Frequency", "dram_clock": "DRAM Frequency",
    "sm": "Compute (SM) Throughput", "memory": "Memory Throughput", "dram": "DRAM Throughput",
    "l2": "L2 Cache Throughput", "l1": "L1/TEX Cache Throughput", "theoretical": "Theoretical Occupancy",
    "achieved": "Achieved Occupancy", "issued": "Issued Warp Per Scheduler", "eligible": "Eligible Warps Per Scheduler",
    "active": "Active Warps Per Scheduler", "no_eligible": "No Eligible", "l1_hit_rate": "L1/TEX Hit Rate",
    "l2_hit_rate": "L2 Hit Rate", "threads_true": "Avg. Not Predicated Off Threads Per Warp",
    "latency": "Warp Cycles Per Issued Instruction", "executed": "Executed Instructions",
}  # fmt: skip
"""Fact -> its label on NVIDIA's details page; "blocks" and "threads" are "grid" and "block" among the facts."""
FACTS = {**{key: key for key in LABELS}, "blocks": "grid", "threads": "block"}
SCALES = {
    "": 1, "%": 1, "block": 1, "thread": 1, "warp": 1, "inst": 1, "cycle": 1, "register/thread": 1,
    "ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "nsecond": 1, "usecond": 1e3, "msecond": 1e6, "second": 1e9,
    "byte/block": 1, "Kbyte/block": 1e3, "hz": 1, "Mhz": 1e6, "Ghz": 1e9, "cycle/second": 1, "cycle/usecond": 1e6,
    "cycle/nsecond": 1e9,
}  # fmt: skip
"""Unit as printed -> what turns its values into the facts' units."""
RAW = SHARED / "reports" / "ncu_csv" / "eschnett__IndexSpaces.jl__317662.ncu2022.3.raw.base.csv"
BINARY = SHARED / "reports" / "ncu_rep" / "eschnett__IndexSpaces.jl__317662_profile.ncu-rep"


def details_pages() -> list[Path]:
    """Details pages of other people's reports that have sections: those of `ncu --page details --csv`."""
    return [
        path for path in shared_reports("ncu_csv") if '"Compute (SM) Throughput"' in path.read_text("utf-8", "replace")
    ]


def printed_by(page: Path) -> dict[str, dict[str, float]]:
    """Launch -> label -> value of a details page, in the facts' units, as the csv module reads it."""
    lines = page.read_text("utf-8-sig").splitlines()
    start = next(at for at, line in enumerate(lines) if '"Metric Name"' in line)
    found: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(lines[start:]):
        unit, text = row["Metric Unit"] or "", (row["Metric Value"] or "").replace(",", "")
        known = row["Metric Name"] in LABELS.values() and unit in SCALES
        if known and text and not (row["Metric Name"] == "Memory Throughput" and unit != "%"):
            found.setdefault(row["ID"], {}).setdefault(row["Metric Name"], float(text) * SCALES[unit])
    return found


def facts_by_launch(report: Path) -> Iterator[tuple[str, dict[str, Fact]]]:
    launches = table_of(report)
    assert launches is not None
    for row in range(len(launches)):
        one = launches.slice(row, 1)
        yield str(one["launch_id"][0].as_py()), {fact.key: fact for fact in facts_of(one)[0]}


@needs_shared_reports
@pytest.mark.parametrize("page", details_pages(), ids=lambda path: path.name[:60])
def test_facts_of_a_details_page_are_the_values_that_it_prints(page: Path) -> None:
    printed, compared = printed_by(page), 0
    for launch, facts in facts_by_launch(page):
        for key, label in LABELS.items():
            if label in printed[launch]:
                assert facts[FACTS[key]].value == pytest.approx(printed[launch][label], rel=1e-9), (launch, label)
                compared += 1
    assert compared >= 2


@needs_shared_reports
def test_details_pages_of_several_tools_and_chips_are_among_them() -> None:
    assert len(details_pages()) >= 6


@needs_shared_reports
def test_facts_of_a_binary_report_are_what_nvidias_own_tool_exports_of_it() -> None:
    """The raw page was written by the real ncu 2022.3 from this binary report, with up to six digits."""
    lines = [line for line in RAW.read_text("utf-8").splitlines() if line.startswith('"')]
    header, _, *exported = csv.reader(lines)
    compared = 0
    for (_, facts), cells in zip(facts_by_launch(BINARY), exported, strict=True):
        values = dict(zip(header, cells, strict=True))
        for fact in facts.values():
            names = fact.metric.split(" / ")
            if all(values.get(name) for name in names):
                numbers = [float(values[name].replace(",", "")) for name in names]
                expected = numbers[0] if len(numbers) == 1 else numbers[0] / numbers[1] if numbers[1] else None
                assert expected == pytest.approx(fact.value, rel=1e-4, abs=0.006), fact.key
                compared += 1
    assert compared >= 80


@pytest.mark.slow
@needs_shared_reports
def test_occupancy_is_calculated_for_every_launch_of_a_binary_report_that_has_the_theoretical_one() -> None:
    """So that no launch is silently left out of the comparison with NVIDIA's values."""
    lacking = []
    for folder in ("ncu_rep", "ncu_rep_full"):
        for path in shared_reports(folder):
            launches = table_of(path)
            for row in range(0 if launches is None else len(launches)):
                assert launches is not None
                one = launches.slice(row, 1)
                found = occupancy_view(one)
                if found.theoretical is not None and found.calculated is None:
                    lacking.append((path.name, row, tables.words(one, "kernel_name")[0]))
    assert lacking == []
