"""The rows of hotspots against the same sums in plain Python, over launches that lack what launches lack."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.operator_columns import DIALECT, TRACE
from ncu_parsers.schema.tables import LEAST_BYTES

from ncu_tools.ceilings.above_ceiling import TOLERANCE
from ncu_tools.ceilings.ceilings import PEAK_COLUMNS, Ceilings, unit_title
from ncu_tools.kernels.hotspots import CERTAIN_FRACTION, LATENCY_BELOW, RunSums, hotspots
from ncu_tools.kernels.kernel_row import NEAR_ITS_LIMIT, Hotspots, ranked
from ncu_tools.numbers.number_format import percent
from ncu_tools.runs.partition_sums import BUSY
from tests.support.launches import launch, metric, table

randoms = st.randoms(use_true_random=True)

UNITS = {"fp64": "flops_fp64", "fp32": "flops_fp32"}
PEAKS = {"fp64": "peak_flops_fp64", "fp32": "peak_flops_fp32", "dram": "peak_dram_bytes"}
SHORTEST, LONGEST = "gpu__time_duration.sum (minimum)", "gpu__time_duration.sum (maximum)"
FULL, PARTIAL = "sass fp64+fp32", "sass fp32; not collected: fp64"


def drawn(random: Random, many: bool, scale: float) -> Launch:
    """A launch that lacks a little, and averages of several where there are `many`.

    With a `scale` of 1 it is below its ceilings of 1 or 2 GFLOP/s and GB/s.
    """

    def perhaps(chance: float) -> bool:
        return random.random() < chance

    ns = random.uniform(100, 1000)
    measures = {} if perhaps(0.04) else {"duration_ns": 0.0 if perhaps(0.04) else ns}
    if not perhaps(0.1):
        done = {column: 0.0 if perhaps(0.3) else random.uniform(0.1, 0.8) * scale * ns for column in UNITS.values()}
        measures["flops"] = sum(done.values()) * (1.1 if perhaps(0.05) else 1)
        measures |= {} if perhaps(0.05) else done
    moved = {
        name: 0.0 if perhaps(0.1) else random.uniform(0.1, 1.1) * scale * ns for name in ("dram_bytes", LEAST_BYTES)
    }
    measures |= {} if perhaps(0.3) else {"dram_bytes": moved["dram_bytes"]}
    least = {} if perhaps(0.4) else {LEAST_BYTES: metric(moved[LEAST_BYTES], "byte")}
    measures |= {column: random.choice((1e9, 2e9)) for column in PEAKS.values() if not perhaps(0.05)}
    shares = {name: metric(random.uniform(0, 100), "%") for name in BUSY.values() if not perhaps(0.1)}
    averaged = many and perhaps(0.3)
    extremes = {SHORTEST: metric(0.5 * ns, "ns"), LONGEST: metric(2 * ns, "ns")} if averaged else {}
    return launch(
        random.choice("aabc"), shares | extremes | least, measures=measures, invocations=random.randint(2, 5) if averaged else None,
        failed=perhaps(0.12), flops_basis=PARTIAL if perhaps(0.2) else FULL, capability=None,
    )  # fmt: skip


def run_of(random: Random) -> list[Launch]:
    many, scale = random.random() < 0.4, random.choice((1.0, 1.0, 3.0))
    return [drawn(random, many, scale) for _ in range(random.choice((1, 2, 6, 12, 12)))]


def table_of(launches: list[Launch]) -> pa.Table:
    """The launches, with the least bytes that only traces have."""
    made = table(*launches)
    least = arrays.floats(np.array([np.nan if (one := least_bytes(each)) is None else one for each in launches]))
    place = made.schema.get_field_index(LEAST_BYTES)
    return made.append_column(LEAST_BYTES, least) if place < 0 else made.set_column(place, LEAST_BYTES, least)


def ceilings(made: pa.Table) -> Ceilings:
    """What the launches say, without a doubt about the memory clock of short ones."""
    return Ceilings({unit: tables.floats(made, column) for unit, column in PEAK_COLUMNS.items()})


class Plain:
    """The sums of one kernel's launches."""

    def __init__(self, launches: Iterable[Launch]) -> None:
        self.launches = [one for one in launches if not one.failed]

    def total(self, amount: Callable[[Launch], float | None], where: Iterable[Launch]) -> float:
        return sum((amount(one) or 0.0) * (one.invocations or 1) for one in where)

    def with_(self, *amounts: Callable[[Launch], float | None]) -> list[Launch]:
        return [one for one in self.launches if all(amount(one) is not None for amount in amounts)]

    def all_of(self, amount: Callable[[Launch], float | None]) -> float | None:
        known = self.with_(amount)
        return self.total(amount, known) if known and len(known) == len(self.launches) else None

    def per(self, amount: Callable[[Launch], float | None], other: Callable[[Launch], float | None]) -> float | None:
        both = self.with_(amount, other)
        return self.total(amount, both) / self.total(other, both) if self.total(other, both) else None

    def busy(self, part: str) -> float | None:
        shares = {id(one): one.metrics[BUSY[part]].value for one in self.launches if BUSY[part] in one.metrics}
        if not shares or len(shares) < len(self.launches):
            return None
        times = [seconds(one) for one in self.launches]
        over_time = None not in times and self.total(seconds, self.launches) > 0
        weight = seconds if over_time else lambda _: 1.0
        whole = self.total(weight, self.launches)
        return self.total(lambda one: float(shares[id(one)]) / 100 * (weight(one) or 0.0), self.launches) / whole


def of(name: str) -> Callable[[Launch], float | None]:
    return lambda one: one.measures.get(name)


def least_bytes(one: Launch) -> float | None:
    return float(one.metrics[LEAST_BYTES].value) if LEAST_BYTES in one.metrics else None


def seconds(one: Launch) -> float | None:
    return None if (ns := one.measures.get("duration_ns")) is None else ns / 1e9


def traffic(one: Launch) -> float | None:
    return one.measures.get("dram_bytes", least_bytes(one))


def work(one: Launch, unit: str) -> float | None:
    """What a unit did; nothing where it was not counted, and the launch did nothing."""
    is_idle = one.measures.get("flops") == 0 and one.flops_basis == FULL
    return one.measures.get(UNITS[unit], 0.0 if is_idle else None)


def needed(one: Launch, resource: str) -> float | None:
    """The least time that a resource needs; None if it is not known."""
    amount = traffic(one) if resource == "dram" else work(one, resource) or 0.0
    if not amount:
        return amount
    peak = one.measures.get(PEAKS[resource])
    return None if peak is None else amount / peak


def is_judged(one: Launch) -> bool:
    flops = one.measures.get("flops")
    if flops is None or not seconds(one) or any(needed(one, resource) is None for resource in PEAKS):
        return False
    return flops - sum(work(one, unit) or 0.0 for unit in UNITS) <= 1e-6 * flops


def expected(launches: list[Launch], used: list[str]) -> dict[str, Any]:
    """What a row says of launches of one kernel; `used` are the units that any kernel used."""
    plain = Plain(launches)
    ran, times = plain.launches, [one for one in (seconds(one) for one in plain.launches) if one is not None]
    lows = [one.metrics[SHORTEST].value / 1e9 for one in plain.with_(seconds) if SHORTEST in one.metrics]  # type: ignore[operator]
    highs = [one.metrics[LONGEST].value / 1e9 for one in plain.with_(seconds) if LONGEST in one.metrics]  # type: ignore[operator]
    averaged = any((one.invocations or 1) > 1 for one in plain.with_(seconds))
    judged, running = [one for one in ran if is_judged(one)], [one for one in ran if seconds(one)]
    least = {one: plain.total(lambda each, r=one: needed(each, r), judged) for one in PEAKS}  # type: ignore[misc]
    measured = plain.total(seconds, judged)
    nearest = max(PEAKS, key=lambda one: least[one])
    bound, fraction = (unit_title(nearest), least[nearest] / measured) if least[nearest] > 0 else (None, None)
    partial = any(one.flops_basis == PARTIAL for one in judged)
    if bound == "DRAM" and partial and fraction is not None and fraction < CERTAIN_FRACTION:
        bound = fraction = None
    fractions = {}
    for resource in PEAKS:
        held = [one for one in running if needed(one, resource) is not None]
        if any(needed(one, resource) for one in held):
            fractions[resource] = plain.total(lambda one, r=resource: needed(one, r), held) / plain.total(seconds, held)  # type: ignore[misc]
    if not plain.with_(of("flops")) and fractions.get("dram", 0.0) >= NEAR_ITS_LIMIT:
        bound, fraction = "DRAM", fractions["dram"]
    whole = plain.all_of(seconds)
    roof = plain.total(lambda one: min(max(needed(one, r) or 0.0 for r in PEAKS), seconds(one) or 0.0), judged)
    near = roof / measured if measured else fraction
    headroom = None if whole is None or fraction is None or near is None else 1e9 * whole * max(0.0, 1 - near)
    sm, memory = plain.busy("sm"), plain.busy("memory")
    shares = {title: share for title, share in (("SM", sm), ("memory", memory)) if share is not None}
    if bound is None and shares:
        busiest = max(shares, key=lambda title: shares[title])
        if len(shares) == 1:
            bound = busiest if shares[busiest] >= NEAR_ITS_LIMIT else None
        else:
            bound = busiest if shares[busiest] >= LATENCY_BELOW else "latency"
    above = max(fractions, key=lambda one: fractions[one], default=None)
    did = {unit: plain.total(lambda one, u=unit: work(one, u), plain.with_(of("flops"))) for unit in UNITS}  # type: ignore[misc]
    rate = plain.per(of("flops"), seconds)
    return {
        "launches": sum(one.invocations or 1 for one in ran),
        "time_total_ns": None if whole is None else whole * 1e9,
        "time_mean_ns": None if (mean := plain.per(seconds, lambda one: None if seconds(one) is None else 1.0)) is None else mean * 1e9,
        "time_min_ns": min([*times, *lows]) * 1e9 if times else None,
        "time_max_ns": max([*times, *highs]) * 1e9 if times else None,
        "time_std_ns": statistics.stdev(times) * 1e9 if len(times) > 1 and not averaged else None,
        "flops": plain.all_of(of("flops")), "flops_per_s": rate,
        "dram_bytes": plain.all_of(of("dram_bytes")), "dram_bytes_per_s": plain.per(of("dram_bytes"), seconds),
        "least_bytes": plain.all_of(least_bytes), "least_bytes_per_s": plain.per(least_bytes, seconds),
        "arithmetic_intensity": plain.per(of("flops"), lambda one: None if of("flops")(one) is None else traffic(one)),
        "sm_busy": sm, "memory_busy": memory,
        "bound": bound, "bound_fraction": fraction, "headroom_ns": headroom,
        "unit": max(did, key=lambda unit: did[unit]) if any(did.values()) else None,
        "flops_basis": " / ".join(sorted({one.flops_basis or "" for one in ran})) or None,
        "flops_lower_bound": any(one.flops_basis == PARTIAL for one in ran) and rate is not None,
        "flag": None if above is None or fractions[above] <= 1 + TOLERANCE
        else f"{percent(fractions[above])} of the {unit_title(above)} ceiling",
        "work": {unit: plain.all_of(lambda one, u=unit: work(one, u)) for unit in used},  # type: ignore[misc]
    }  # fmt: skip


def close(value: Any) -> Any:
    """A value up to rounding: of spreads, squares of digits are lost."""
    if isinstance(value, dict):
        return {key: close(one) for key, one in value.items()}
    return pytest.approx(value, rel=1e-6, abs=1e-5) if isinstance(value, float) else value


@given(randoms)
def test_rows_are_those_of_plain_python(random: Random) -> None:
    launches = run_of(random)
    found = hotspots(made := table_of(launches), ceilings(made)).rows
    used = [unit for unit in UNITS if any(work(one, unit) for one in launches if not one.failed)]
    assert {row.kernel for row in found} == {one.kernel_name for one in launches}
    for row in found:
        said = asdict(row)
        said["flag"] = None if row.flag is None else row.flag.partition(" (")[0]
        for name, value in expected([one for one in launches if one.kernel_name == row.kernel], used).items():
            assert said[name] == close(value), name


def summed(parts: list[pa.Table]) -> RunSums:
    sums = RunSums("name")
    for part in parts:
        sums.add(part, ceilings(part))
    return sums


def shown(sums: RunSums) -> Hotspots:
    return ranked(sums.kernels(), sums.notes())


@given(randoms)
def test_rows_and_notes_are_the_same_from_parts_of_a_file_and_from_sums_of_several(random: Random) -> None:
    whole = table_of(run_of(random))
    edges = sorted({0, len(whole), *(random.randint(0, len(whole)) for _ in range(4))})
    parts = [whole.slice(begin, end - begin) for begin, end in pairwise(edges)]
    at_once, merged = shown(summed([whole])), summed(parts[:1])
    assert shown(summed(parts)) == at_once
    for part in parts[1:]:
        merged.merge(summed([part]))
    assert shown(merged).notes == at_once.notes
    assert [asdict(row) for row in shown(merged).rows] == [close(asdict(row)) for row in at_once.rows]


@pytest.mark.parametrize(
    ("measures", "basis", "bound"),
    [
        ({"dram_bytes": 800.0}, FULL, ("DRAM", 0.8)), ({"dram_bytes": 799.0}, FULL, (None, None)),
        ({"dram_bytes": 500.0, "flops": 1.0, "flops_fp32": 1.0}, PARTIAL, ("DRAM", 0.5)),
        ({"dram_bytes": 499.0, "flops": 1.0, "flops_fp32": 1.0}, PARTIAL, (None, None)),
        ({"dram_bytes": 499.0, "flops": 1.0, "flops_fp32": 1.0}, FULL, ("DRAM", 0.499)),
        ({"dram_bytes": 0.0, "flops": 0.0, "flops_fp32": 0.0}, FULL, (None, None)),
        ({"dram_bytes": 1.0, "flops": 300.0, "flops_fp32": 300.0}, PARTIAL, ("FP32", 0.3)),
    ],
)  # fmt: skip
def test_dram_bounds_a_kernel_of_few_or_no_known_flops_only_near_its_limit(
    measures: dict[str, float], basis: str, bound: tuple[str | None, float | None]
) -> None:
    peaks = {"duration_ns": 1000.0, "peak_dram_bytes": 1e9, "peak_flops_fp32": 1e9}
    made = table(launch("k", measures=measures | peaks, flops_basis=basis))
    (row,) = hotspots(made, ceilings(made)).rows
    assert (row.bound, row.bound_fraction) == (bound[0], close(bound[1]))
    assert row.headroom_ns == (None if bound[1] is None else close(1000.0 * (1 - bound[1])))


@pytest.mark.parametrize(("more", "bound"), [(1e5, "FP32"), (1e7, None)])
def test_flops_of_no_known_unit_leave_no_bound_beyond_a_millionth(more: float, bound: str | None) -> None:
    measures = {"duration_ns": 1e3, "flops": 1e12 + more, "flops_fp32": 1e12, "dram_bytes": 1.0}
    made = table(launch("k", measures=measures | {"peak_flops_fp32": 2e18, "peak_dram_bytes": 1e9}))
    assert hotspots(made, ceilings(made)).rows[0].bound == bound


def test_a_resource_that_a_later_part_of_a_file_does_not_use_is_measured_over_all_of_its_time() -> None:
    """The averages of the second part stand for five launches."""
    peaks = {"duration_ns": 100.0, "peak_dram_bytes": 1e9, "peak_flops_fp32": 1e9, "dram_bytes": 1.0}
    above = launch("k", measures={**peaks, "flops": 300.0, "flops_fp32": 300.0})
    idle = launch("k", measures={**peaks, "flops": 0.0, "flops_fp32": 0.0}, invocations=5)
    assert [row.flag for row in shown(summed([table(above), table(idle)])).rows] == [None]
    assert [row.flag is None for row in shown(summed([table(above)])).rows] == [False]


def test_a_title_without_a_launch_is_no_row() -> None:
    made = table(launch("k", ns=1.0))
    found = hotspots(made, ceilings(made), rows=(np.array([1]), ["unused", "used"]))
    assert [row.kernel for row in found.rows] == ["used"]


@pytest.mark.parametrize(
    ("source", "measures", "reason"),
    [
        ("ncu", {"dram_bytes": 300.0}, "bytes and time come from different passes"),
        (DIALECT, {"dram_bytes": 300.0}, "the bytes are inputs, weights and outputs of operators"),
        (TRACE, {"dram_bytes": 300.0}, "the bytes are inputs, weights and outputs of operators"),
        (DIALECT, {"flops": 300.0, "flops_fp32": 300.0, "dram_bytes": 1.0}, "operations and time come from"),
        (TRACE, {"flops": 300.0, "flops_fp32": 300.0, "dram_bytes": 1.0}, "its FLOPs follow from shapes"),
    ],
)
def test_a_flag_gives_the_reason_that_fits_what_the_launches_come_from(
    source: str, measures: dict[str, float], reason: str
) -> None:
    peaks = {"duration_ns": 100.0, "peak_dram_bytes": 1e9, "peak_flops_fp32": 1e9}
    made = table(launch("k", measures=measures | peaks))
    made = made.set_column(made.schema.get_field_index("source"), "source", arrays.dictionary([source]))
    assert reason in (hotspots(made, ceilings(made)).rows[0].flag or "")


def test_a_flag_tells_of_the_first_launch_that_used_the_resource() -> None:
    l2 = {"device__attribute_l2_cache_size": metric(4e7)}
    measures = {"duration_ns": 100.0, "peak_dram_bytes": 1e9}
    made = table(*(launch("k", l2, measures={**measures, "dram_bytes": moved}) for moved in (0.0, 900.0, 700.0)))
    assert "its 900 B fit in the 40 MB of L2" in (hotspots(made, ceilings(made)).rows[0].flag or "")


def test_a_failed_launch_with_a_lower_bound_leaves_no_doubt_about_the_others() -> None:
    measures = {"duration_ns": 1000.0, "peak_dram_bytes": 1e9, "peak_flops_fp32": 1e9, "dram_bytes": 400.0}
    measures |= {"flops": 1.0, "flops_fp32": 1.0}
    failed = launch("k", measures=measures, flops_basis=PARTIAL, failed=True)
    made = table(failed, launch("k", measures=measures, flops_basis=FULL))
    assert hotspots(made, ceilings(made)).rows[0].bound == "DRAM"
