"""Metrics in the forms in which reports have them: each form gives the number that the other would."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from ncu_launch.files.toml_tables import table_beside
from ncu_parsers.schema import metric_forms, tables
from ncu_parsers.schema.metric_forms import MetricsInAnyForm, source_columns, with_every_form

from tests.support.reports import needs_shared_reports, shared_reports, table_of

ISSUE = "smsp__issue_active.avg.per_cycle_active"
SHARED_PIPE = "l1tex__data_pipe_lsu_wavefronts_mem_shared"


def of(columns: dict[str, list[float | None]]) -> MetricsInAnyForm:
    return MetricsInAnyForm(pa.table(columns))


@pytest.mark.parametrize(
    ("metric", "columns", "value"),
    [
        ("a.avg.pct_of_peak_sustained_elapsed", {"a.sum.pct_of_peak_sustained_elapsed": 30.0}, 30.0),
        ("a.sum.pct_of_peak_sustained_active", {"a.avg.pct_of_peak_sustained_active": 30.0}, 30.0),
        (
            "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active",
            {"sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_elapsed": 30.0, "sm__cycles_active.avg": 50.0,
             "sm__cycles_elapsed.max": 100.0},
            60.0,
        ),
        ("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
         {"smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": 25.0}, 8.0),
        ("lts__t_sector_hit_rate.pct", {"lts__t_sector_hit_rate.ratio": 0.7}, 70.0),
        (ISSUE, {"smsp__issue_active.avg.pct_of_peak_sustained_active": 20.0}, 0.2),
        (f"{SHARED_PIPE}.sum", {f"{SHARED_PIPE}_op_ld.sum": 3.0, f"{SHARED_PIPE}_op_st.sum": 4.0}, 7.0),
        ("l1tex__t_requests.sum", {"l1tex__t_requests.sum.per_second": 5e9, "duration_ns": 100.0}, 500.0),
    ],
)  # fmt: skip
def test_a_metric_is_computed_from_the_form_that_a_report_has(
    metric: str, columns: dict[str, float], value: float
) -> None:
    found = of({name: [one] for name, one in columns.items()})
    assert found.floats(metric).tolist() == [pytest.approx(value)]
    assert set(found.behind(metric)) == set(columns)
    assert set(columns) <= with_every_form([metric])


def test_what_the_report_has_under_the_very_name_comes_first_and_other_forms_fill_the_launches_that_lack_it() -> None:
    found = of({ISSUE: [0.5, None], "smsp__issue_active.avg.pct_of_peak_sustained_active": [99.0, 20.0]})
    assert found.floats(ISSUE).tolist() == [0.5, 0.2]
    assert (found.behind(ISSUE), found.formula(ISSUE)) == ((ISSUE,), ISSUE)


def test_a_sum_is_not_known_by_one_of_its_parts() -> None:
    found = of({f"{SHARED_PIPE}_op_ld.sum": [3.0]})
    assert math.isnan(found.floats(f"{SHARED_PIPE}.sum")[0])
    assert (found.behind(f"{SHARED_PIPE}.sum"), source_columns("no such", {"other"})) == ((), ())


def test_a_throughput_is_not_converted_from_active_cycles_since_it_has_other_parts_there() -> None:
    cycles: dict[str, list[float | None]] = {"sm__cycles_active.avg": [50.0], "sm__cycles_elapsed.avg": [100.0]}
    found = of({"l1tex__throughput.avg.pct_of_peak_sustained_active": [80.0], **cycles})
    assert math.isnan(found.floats("l1tex__throughput.avg.pct_of_peak_sustained_elapsed")[0])


def test_the_formula_of_a_metric_is_written_with_the_columns_of_the_report() -> None:
    used = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld"
    assert of({f"{used}.pct": [25.0]}).formula(f"{used}.ratio") == f"0.32 x {used}.pct"
    parts = of({f"{SHARED_PIPE}_op_ld.sum": [3.0], f"{SHARED_PIPE}_op_st.sum": [4.0]})
    assert parts.formula(f"{SHARED_PIPE}.sum") == f"{SHARED_PIPE}_op_ld.sum + {SHARED_PIPE}_op_st.sum"
    hits = of({"lts__t_sectors_lookup_hit.sum": [3.0], "lts__t_sectors.sum": [4.0]})
    assert hits.formula("lts__t_sector_hit_rate.pct") == "100 x lts__t_sectors_lookup_hit.sum / lts__t_sectors.sum"


CLOSE = {"l1tex__": 0.15, "smsp__": 0.05, "sm__": 0.05}
"""How far two forms may differ at the 90th percentile, by what the metric begins with: cycles differ by unit and pass."""
OF_MORE = "mem_shared"
"""Counters whose whole holds more than all that has a counter of its own."""


def pairs(table: pa.Table) -> Iterator[tuple[str, float, float]]:
    """Each metric of launches that has another form in the same report, and both values."""
    columns = frozenset(table.column_names)
    for metric in table.column_names:
        if OF_MORE in metric or metric.startswith(("SM", "TPC", "Triage")) or metric.endswith(("_elapsed.avg", ".sum")):
            continue
        if source_columns(metric, columns - {metric}):
            without = MetricsInAnyForm(table.drop_columns([metric]))
            for one, other in zip(tables.floats(table, metric).tolist(), without.floats(metric).tolist(), strict=True):
                if abs(one) > 0.01 and not math.isnan(other):
                    yield metric, one, other


@needs_shared_reports
@pytest.mark.slow
def test_forms_agree_in_real_reports_that_have_both() -> None:
    found: dict[str, list[float]] = {}
    for path in shared_reports("ncu_rep_full") + shared_reports("ncu_rep"):
        made = table_of(path)
        for metric, one, other in pairs(made) if made is not None else ():
            found.setdefault(metric, []).append(abs(other / one - 1))
    assert len(found) > 100
    for metric, errors in found.items():
        allowed = next((one for start, one in CLOSE.items() if metric.startswith(start)), 0.02)
        assert np.median(errors) <= allowed, metric


def test_every_form_says_what_it_needs() -> None:
    for entry in table_beside(metric_forms.__file__, "metric_forms")["form"]:
        assert {"metric"} < set(entry) <= {"metric", "plus", "times", "over", "factor"}
