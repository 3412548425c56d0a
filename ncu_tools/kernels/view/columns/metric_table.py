"""Known metrics: names, titles, meanings, units, groups, and which are in a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
from ncu_launch.counters.metric_groups import group_names, select
from ncu_launch.files.toml_tables import table_beside
from ncu_parsers.report_data.report import labels_of_metrics
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import COLUMNS, field_entries

from ncu_tools.kernels.source.stalls import stalls
from ncu_tools.kernels.view.columns.column_names import COMBINED, METRIC_NAME, combined_by, short_names

OF_GROUPS = "NVIDIA's section files, as ncu-bench machines --metrics has them"
OF_CONTRACT = "ncu-bench (docs/dev/architecture.md)"
OF_STALLS = "NVIDIA, Nsight Compute, Kernel Profiling Guide, Warp Scheduler States"
STALLED = (
    "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio",
    "smsp__pcsamp_warps_issue_stalled_{}",
    "smsp__pcsamp_warps_issue_stalled_{}_not_issued",
)
"""Metrics for each stall reason."""
ALWAYS = "time"
"""The group of metrics that every selection has."""


@dataclass(frozen=True)
class KnownMetric:
    """Facts on one metric or column of launches; None if unknown.

    `title` is NVIDIA's label on the details page in `section`, `metric_group` the group that `profile --metrics` takes,
    `counted_on` and `calculation` follow from its name, `combined` is how `hotspots --columns` combines launches.
    """

    metric: str
    short_name: str | None = None
    title: str | None = None
    section: str | None = None
    description: str | None = None
    description_source: str | None = None
    unit: str | None = None
    metric_group: str | None = None
    counted_on: str | None = None
    calculation: str | None = None
    combined: str | None = None
    in_run: bool = False


def metrics_table(schema: pa.Schema, filled: Collection[str]) -> pa.Table:
    """The table `metrics` of `ncu-bench query`: the metrics in the launches of `schema`, and other known ones.

    `filled` are the columns that some launch has a value in.
    """
    known = _described_metrics()
    in_run = set(filled)
    rows = []
    for name in dict.fromkeys([*schema.names, *known]):
        row = known.get(name, KnownMetric(name))
        entries = field_entries(schema.field(name)) if name in schema.names else {}
        counted_on, calculation = _as_named(name)
        rows.append(
            replace(
                row,
                title=entries.get("label") or row.title,
                section=entries.get("section") or row.section,
                unit=entries.get("unit") or row.unit,
                counted_on=counted_on,
                calculation=calculation,
                combined=COMBINED[combined_by(name)],
                in_run=name in in_run,
            )
        )
    return _table(rows)


def _table(rows: list[KnownMetric]) -> pa.Table:
    values = [asdict(row) for row in rows]
    columns = {one.name: [value[one.name] for value in values] for one in fields(KnownMetric)}
    flags = arrays.booleans(columns.pop("in_run"))
    return pa.table({**{name: arrays.texts(texts) for name, texts in columns.items()}, "in_run": flags})


@lru_cache(maxsize=1)
def _described_metrics() -> dict[str, KnownMetric]:
    """The metrics described in tables of this project, by name."""
    found: dict[str, dict[str, Any]] = {}
    for column in COLUMNS:
        found[column.name] = {
            "description": column.meaning, "description_source": OF_CONTRACT, "unit": column.unit or None,
        }  # fmt: skip
    for group in group_names():
        for counter in select([] if group == ALWAYS else [group], None, None).counters:
            if group in (ALWAYS, counter.group):
                found.setdefault(counter.name, {}).update(_of_group(counter.meaning), metric_group=group)
                found[counter.name].setdefault("unit", counter.unit or None)
    for metric, (section, label) in labels_of_metrics().items():
        found.setdefault(metric, {}).update(title=label, section=section)
    for reason, stall in stalls().items():
        about = {"description": f"state of a warp: {stall.meaning}", "description_source": OF_STALLS}
        for metric in STALLED:
            found.setdefault(metric.format(reason), {}).update(about)
    for metric, about in _of_short_names():
        found.setdefault(metric, {}).update(about)
    return {name: KnownMetric(name, **about) for name, about in found.items()}


def _of_group(meaning: str) -> dict[str, str]:
    return {"description": meaning, "description_source": OF_GROUPS} if meaning else {}


def _of_short_names() -> Iterator[tuple[str, dict[str, str]]]:
    """The facts on a metric from short names that mean it alone."""
    for column in short_names().values():
        if not column.over:
            for metric in column.metrics:
                about = {"short_name": column.name, "description": column.means, "description_source": column.source}
                yield metric, about | ({"unit": column.unit} if column.unit else {})


def _as_named(metric: str) -> tuple[str | None, str | None]:
    """The unit that a metric is counted on and its calculation, from its name."""
    if not METRIC_NAME.fullmatch(metric):
        return None, None
    words = table_beside(__file__, "metric_names")
    name, *suffixes = metric.split(".")
    said = [words["rollup"].get(one) or words["per"].get(one) for one in suffixes]
    calculation = ", ".join(filter(None, said)) if said and all(said) else None
    return words["unit"].get(name.partition("__")[0]), calculation
