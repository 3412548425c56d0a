"""The table of `estimate --ops`: rows of operators as given, with their times on each machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ncu_launch.errors import WrongUsage

from ncu_tools.ceilings.machine_files import Machine
from ncu_tools.cli.option_kinds.expected_options import ExpectedOptions
from ncu_tools.model.expected_time.expected_times import ExpectedTimes, columns_of_times, expected_times
from ncu_tools.model.expected_time.learnt_times import MEASURED, Learnt, read_file, shipped
from ncu_tools.model.expected_time.operator_rows import OperatorRows, operator_rows, read_csv
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table, raw_column

ESTIMATE = (
    "nothing was run: at best is what the roofline allows, expected is an estimate by physics corrected by measured "
    "times, and from - to holds 80 % of measured times like it (docs/estimate.md)"
)
COLUMNS = columns("machine~0 at_best_us~1 expected_us~0 low_us~0 high_us~0 bound~3 basis~6 failed~2")
OF_A_ROW, DTYPE = 4, 1
"""Ranks at which the user's columns are dropped if there is no room: times and the operator's identity stay."""
MOST_REASONS = 3


def operators_table(
    path: Path, options: ExpectedOptions, targets: Sequence[str], machines: Sequence[Machine], notes: Sequence[str]
) -> Table:
    """The rows of a table of operators on machines. Raises `WrongUsage` for other targets, or without a machine."""
    if targets:
        raise WrongUsage(f"{' '.join(targets)} and --ops cannot be estimated together.", advice="Give one of the two.")
    if options.output is not None:
        raise WrongUsage(
            "-o is the picture of a measured run, or the file of --learn; a table of operators has neither.",
            advice="Write it with --format csv > FILE.csv.",
        )
    if not machines:
        raise WrongUsage("Times of operators need a machine.", advice="Add --machine, as --machine b200,h100-sxm.")
    rows = operator_rows(read_csv(path))
    learnt = learnt_times(options)
    found = [expected_times(rows, machine, learnt) for machine in machines]
    ranks = {"op": 0, "dtype": DTYPE}
    given = [
        raw_column(name, _kind(values), "")._replace(spare=ranks.get(name, OF_A_ROW))
        for name, values in rows.given.items()
    ]
    taken = {column.name for column in COLUMNS}
    kept = [column for column in given if column.name not in taken]
    empty = [] if len(rows) else [f"{path} has no rows"]
    return Table("estimate", [*kept, *COLUMNS], _cells(rows, found), [*empty, *notes, ESTIMATE, *_notes(found)])


def learnt_times(options: ExpectedOptions) -> Learnt:
    """The shipped times, with the user's learnt ones taking precedence."""
    return shipped() if options.learnt is None else shipped().and_also(read_file(options.learnt))


def _kind(values: Sequence[Any]) -> str:
    return "int64" if all(text.isdigit() for text in values if text) else "string"


def _cells(rows: OperatorRows, found: Sequence[ExpectedTimes]) -> list[dict[str, Any]]:
    """A row for each operator and machine: the given values, as numbers if a whole column is numeric, and the times."""
    given = {
        name: [int(text) if text else None for text in values] if _kind(values) == "int64" else values
        for name, values in rows.given.items()
    }
    cells: list[dict[str, Any]] = []
    for one in found:
        together = {**given, **columns_of_times(one)}
        cells += [dict(zip(together, values, strict=True)) for values in zip(*together.values(), strict=True)]
    return cells


def _notes(found: Sequence[ExpectedTimes]) -> list[str]:
    """Notes on rows that could not be estimated and why, and on the basis of times of kinds never measured."""
    notes = []
    for one in found:
        reasons = Counter(reason for reason in one.failed if reason is not None)
        if reasons:
            most = [f"{reason} ({times:,})" for reason, times in reasons.most_common(MOST_REASONS)]
            more = f"; and {len(reasons) - MOST_REASONS} further reasons" if len(reasons) > MOST_REASONS else ""
            bad = counted(reasons.total(), "row has", "rows have")
            notes.append(f"{one.machine}: {bad} no expected times: {'; '.join(most)}{more}")
        others = Counter(words for words in one.basis if words is not None and words != MEASURED)
        by = ((counted(times, "row is", "rows are"), words) for words, times in others.items())
        notes += [f"{one.machine}: {rows} by {words}" for rows, words in by]
    return notes
