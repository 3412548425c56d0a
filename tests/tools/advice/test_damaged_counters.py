"""One counter of a full report is removed, scaled or swapped: the advice loses what needs it, or says what contradicts it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.parse.file_kinds import read_artefact
from ncu_parsers.report_data.report import Launch, Metric, Report
from ncu_parsers.sources.sources import Source

from ncu_tools.advice.advice_on_rows import advice_on_rows, lever_columns, without_advice
from ncu_tools.advice.advise import Advice, KernelAdvice, advise
from ncu_tools.advice.situation.contradictions import contradictions
from ncu_tools.advice.situation.largest_values import largest_of
from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.runs.loading import load
from tests.conftest import SAMPLES, SHARED
from tests.support.nightly import NIGHTLY
from tests.support.reports import needs_shared_reports

Metrics = dict[str, Metric]
Change = Callable[[Metrics], None]

FULL = SAMPLES / "h100" / "conflicts.ncu-rep"
REPORTS = (FULL, SAMPLES / "h100" / "starved-full.ncu-rep.gz")
HIT_RATE, TIME = "lts__t_sector_hit_rate.pct", "gpu__time_duration.sum"
NOTHING_ELSE_SAYS_IT = {("lts__cycles_active.avg", "a tenth")}
"""Changes of the first lever that no other counter of the report contradicts."""


@cache
def read(path: Path) -> Report:
    report = read_artefact(Source(str(path)))
    report.launches = report.launches[:1]
    return report


@cache
def counters(path: Path) -> list[str]:
    """The counters of the first launch that advice reads."""
    (launch,) = read(path).launches
    return [
        name for name, metric in launch.metrics.items() if name in lever_columns() and not isinstance(metric.value, str)
    ]


def advice_after(path: Path, change: Change) -> KernelAdvice | None:
    return next(iter(advice_on_table(path, change).kernels), None)


def advice_on_table(path: Path, change: Change) -> Advice:
    report, launches = copy.copy(read(path)), list[Launch]()
    for launch in report.launches:
        changed = copy.copy(launch)
        changed.metrics, changed.instances = dict(launch.metrics), dict(launch.instances)
        change(changed.metrics)
        launches.append(changed)
    report.launches, report.notes = launches, []
    return advise(launches_table(report))


def unchanged(metrics: Metrics) -> None:
    """No change."""


def removed(name: str) -> Change:
    def change(metrics: Metrics) -> None:
        metrics.pop(name, None)

    return change


def scaled(name: str, factor: float) -> Change:
    def change(metrics: Metrics) -> None:
        value = metrics[name].value
        assert isinstance(value, float | int)
        metrics[name] = metrics[name]._replace(value=value * factor)

    return change


def swapped(one: str, other: str) -> Change:
    def change(metrics: Metrics) -> None:
        metrics[one], metrics[other] = metrics[other], metrics[one]

    return change


def levers(advice: KernelAdvice) -> list[str]:
    return [one.lever for one in advice.that_keep_it]


def named(advice: KernelAdvice, lever: str) -> set[str]:
    """The metrics that the evidence of a lever names."""
    return {metric for one in advice.levers if one.lever == lever for each in one.evidence for metric in each.metrics}


SOME_AND_ALL = [(FULL, 83), *(pytest.param(path, 1, marks=NIGHTLY) for path in REPORTS)]
"""Reports, and of how many counters one is changed."""


@pytest.mark.parametrize(("path", "every"), SOME_AND_ALL)
def test_a_counter_that_is_removed_is_no_evidence_and_brings_no_other_lever(path: Path, every: int) -> None:
    before = advice_after(path, unchanged)
    assert before is not None
    wrong = {}
    for name in counters(path)[::every]:
        after = advice_after(path, removed(name))
        if after is None:  # without its time a kernel has no advice
            wrong[name] = "" if name == TIME else "no advice"
        elif any(name in named(after, one.lever) for one in after.levers):
            wrong[name] = "is still evidence"
        elif name not in named(before, levers(before)[0]) and differs(before, after):
            wrong[name] = differs(before, after)
    assert {name: why for name, why in wrong.items() if why} == {}


@pytest.mark.parametrize(("path", "every"), SOME_AND_ALL)
@pytest.mark.parametrize(("factor", "words"), [(10.0, "ten times"), (0.1, "a tenth")])
def test_a_counter_that_is_scaled_changes_no_first_lever_without_a_doubt(
    path: Path, every: int, factor: float, words: str
) -> None:
    before = advice_after(path, unchanged)
    assert before is not None
    names = [name for name in counters(path)[::every] if (name, words) not in NOTHING_ELSE_SAYS_IT]
    wrong = {name: differs(before, advice_after(path, scaled(name, factor)), name) for name in names}
    assert {name: why for name, why in wrong.items() if why} == {}


@pytest.mark.parametrize(("path", "every"), SOME_AND_ALL)
def test_counters_that_are_swapped_change_no_first_lever_without_a_doubt(path: Path, every: int) -> None:
    before = advice_after(path, unchanged)
    assert before is not None
    names = [name for name in counters(path) if name not in {one for one, _ in NOTHING_ELSE_SAYS_IT}]
    pairs = list(pairwise(names))[::every]
    wrong = {pair: differs(before, advice_after(path, swapped(*pair)), *pair) for pair in pairs}
    assert {pair: why for pair, why in wrong.items() if why} == {}


def differs(before: KernelAdvice, after: KernelAdvice | None, *names: str) -> str:
    """How advice changed though nothing is said to be doubtful; "" if it did not, or if a doubt takes its confidence."""
    if after is None:
        return "" if TIME in names else "no advice"
    if after.kernel.doubts:
        return "" if all(one.confidence is None for one in after.levers) else "confident in spite of doubts"
    for lever in set(levers(after)) - set(levers(before)):
        if not named(after, lever) & set(names):
            return f"{lever} came, and does not name the counter"
    return "" if levers(after)[:1] == levers(before)[:1] else f"{levers(before)} became {levers(after)}"


class TestWhatCannotBe:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            (HIT_RATE, 179.27), ("l1tex__t_sector_hit_rate.pct", 140.0), ("smsp__thread_inst_executed_per_inst_executed.ratio", 64.0),
            ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", 230.0),
        ],
    )  # fmt: skip
    def test_is_named_with_its_value_and_not_used(self, name: str, value: float) -> None:
        def change(metrics: Metrics) -> None:
            metrics[name] = Metric(value, 0.0, "%")

        found = advice_on_table(FULL, change)
        assert any(f"{name} is {value:g}" in note for note in found.notes)
        without = advice_after(FULL, removed(name))
        assert without is not None
        assert levers(found.kernels[0]) == levers(without)

    def test_is_not_a_share_of_a_few_per_cent_more_than_the_whole(self) -> None:
        assert largest_of(HIT_RATE) >= 104
        assert advice_on_table(FULL, scaled(HIT_RATE, 1.0)).notes == []

    def test_is_named_below_a_table_of_kernels_with_levers(self) -> None:
        def change(metrics: Metrics) -> None:
            metrics[HIT_RATE] = Metric(179.27, 0.0, "%")

        report = copy.copy(read(FULL))
        report.launches = [copy.copy(report.launches[0])]
        report.launches[0].metrics = dict(report.launches[0].metrics)
        change(report.launches[0].metrics)
        table = launches_table(report)
        kernels = hotspots(table, ceilings_of(table)).rows
        advice = advice_on_rows(table, kernels, "name")
        assert any(HIT_RATE in note for note in without_advice(kernels, advice))


@needs_shared_reports
@pytest.mark.nightly
def test_no_real_report_has_counters_that_contradict_each_other() -> None:
    found = []
    for path in sorted((SHARED / "reports").rglob("*.ncu-rep")):
        table = load(str(path)).table
        found += [(path.name, one.told(int(one.launches.argmax()))) for one in contradictions(table)]
    assert found == []
