"""ncu's default set: how busy SMs and memory were, the bound that follows from it, and orders that nothing is known for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ncu_launch.notes import NoteKind, kind_of
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.cli.reading.hotspots import COLUMNS
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.kernel_row import Hotspots
from ncu_tools.report.first_sentences import first_kernel
from ncu_tools.runs.partition_sums import BUSY
from tests.support.launches import launch, metric, table
from tests.support.ran import below_head, ran
from tests.support.reports import needs_shared_reports, shared_reports


def of(name: str, ns: float | None, sm: float | None = None, memory: float | None = None) -> Launch:
    shares = {BUSY[part]: metric(value, "%") for part, value in (("sm", sm), ("memory", memory)) if value is not None}
    return launch(name, shares, ns=ns)


def found(*launches: Launch, by: str = "time", group: str = "name") -> Hotspots:
    rows = table(*launches)
    return hotspots(rows, ceilings_of(rows), by=by, group=group)


@pytest.mark.parametrize(
    ("sm", "memory", "bound"),
    [
        (70.0, 65.0, "SM"), (61.0, 95.0, "memory"), (59.9, 12.0, "latency"), (60.0, 12.0, "SM"),
        (85.0, None, "SM"), (79.0, None, None), (80.0, None, "SM"), (None, 99.0, "memory"), (None, None, None),
    ],
)  # fmt: skip
def test_the_busier_of_sms_and_memory_is_the_bound_and_latency_if_neither_is_busy(
    sm: float | None, memory: float | None, bound: str | None
) -> None:
    (row,) = found(of("k", 10.0, sm, memory)).rows
    assert (row.bound, row.bound_fraction, row.headroom_ns) == (bound, None, None)


def test_shares_are_means_over_time_and_over_launches_where_no_time_is_known() -> None:
    (row,) = found(of("k", 30.0, 80.0, 20.0), of("k", 10.0, 40.0, 60.0)).rows
    assert (row.sm_busy, row.memory_busy) == (pytest.approx(0.7), pytest.approx(0.3))
    (row,) = found(of("k", None, 80.0, 20.0), of("k", None, 40.0, 60.0)).rows
    assert (row.sm_busy, row.memory_busy) == (pytest.approx(0.6), pytest.approx(0.4))


def test_a_share_that_a_launch_lacks_is_not_known() -> None:
    (row,) = found(of("k", 30.0, 80.0, 20.0), of("k", 10.0, 40.0)).rows
    assert (row.sm_busy, row.memory_busy, row.bound) == (pytest.approx(0.7), None, None)


def test_a_roof_is_a_better_bound() -> None:
    dram = {"dram__bytes.sum.peak_sustained": metric(10.0, "byte"), "dram__cycles_elapsed.avg.per_second": metric(1e9)}
    one = of("k", 1e6, 90.0, 20.0)
    one.metrics |= dram | {"dram__bytes.sum": metric(9.5e6, "byte")}
    (row,) = found(one).rows
    assert (row.bound, row.bound_fraction) == ("DRAM", pytest.approx(0.95))


def test_a_row_of_several_kernels_has_shares_and_no_bound_from_them() -> None:
    (row,) = found(of("void k<1>(int)", 30.0, 80.0, 20.0), of("void k<2>(int)", 10.0, 40.0, 60.0), group="short").rows
    assert (row.sm_busy, row.bound) == (pytest.approx(0.7), None)


def test_the_first_sentence_has_both_shares() -> None:
    rows = found(of("k", 30.0, 80.0, 0.0)).rows
    assert first_kernel(rows) == "k takes all of the time, bound by SM: SM 80.0 % and memory 0.0 % of their peaks"


@pytest.mark.parametrize("by", ["headroom", "flops", "dram"])
def test_an_order_that_nothing_is_known_for_falls_back_to_time_and_says_so(by: str) -> None:
    result = found(of("a", 10.0), of("b", 30.0), of("c", 20.0), by=by)
    assert [row.kernel for row in result.rows] == ["b", "c", "a"]
    (said,) = [note for note in result.notes if f"--sort {by}" in note]
    assert kind_of(said) == NoteKind.ASKED
    assert not any("--sort" in note for note in found(of("a", 10.0)).notes)


def test_shares_stay_where_sums_and_means_have_no_room() -> None:
    spare = {column.name: column.spare or 0 for column in COLUMNS}
    dropped_first = ("time_cumulative", "time_mean_ns", "time_min_ns", "time_max_ns", "time_std_ns")
    assert all(spare[name] > spare["sm_busy"] == spare["memory_busy"] for name in dropped_first)


def test_times_of_one_launch_and_the_sum_of_one_row_are_not_repeated(tmp_path: Path) -> None:
    from ncu_parsers.parquet.writer import write_table

    path = tmp_path / "launches.parquet"
    write_table(with_metadata(table(of("k", 10.0, 70.0, 20.0)), {"schema_version": SCHEMA_VERSION}), path)
    title = below_head(ran("hotspots", str(path)).stdout).splitlines()[0]
    assert title.split() == ["kernel", "launches", "time", "share", "SM", "memory", "bound"]
    row = json.loads(ran("hotspots", str(path), "--format", "json").stdout)["rows"][0]
    assert (row["sm_busy"], row["memory_busy"], row["time_mean_ns"]) == (0.7, 0.2, 10.0)


@needs_shared_reports
@pytest.mark.slow
def test_the_default_set_of_a_real_report_shows_both_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    (report,) = [path for path in shared_reports("ncu_csv") if path.name.endswith("317662.ncu2022.3.details.csv")]
    monkeypatch.setenv("COLUMNS", "100")
    lines = below_head(ran("hotspots", str(report)).stdout).splitlines()
    assert lines[0].split()[-3:] == ["SM", "memory", "bound"]
    assert lines[2].split()[-5:] == ["66.3", "%", "44.2", "%", "SM"]
