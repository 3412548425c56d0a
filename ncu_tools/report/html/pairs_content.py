"""Pairs of runs on a page: every pair compared kernel by kernel, as `ncu-bench compare` does.

The run named first is the base. Pairs with the first run come first, then neighbours, then the others, as many as keep
the page small; for any other pair the page shows the command to type.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from ncu_launch.files.manifest import Manifest

from ncu_tools.compare.compare_kernels import ComparedKernel, Comparison, compare
from ncu_tools.compare.comparison_sums import SignatureSums
from ncu_tools.compare.run_conditions import Conditions, conditions_of
from ncu_tools.compare.same_work import NOT_THE_SAME_WORK
from ncu_tools.kernels.matching.kernel_pairs import BY_NAME
from ncu_tools.kernels.operator_work import calls_of_operators
from ncu_tools.numbers.change import growth_text, verdict
from ncu_tools.numbers.number_format import counted, shortened
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.html.html_page import embedded
from ncu_tools.report.html.page_columns import SHOWN, described
from ncu_tools.report.table import Column, printable

PAIRS_LETTERS, MOST_PAIRS, KERNELS_OF_PAIR = 300_000, 300, 200
"""Most characters of JSON that all pairs take on a page, most pairs, and most kernels of each."""
OTHERWISE_REFUSED = (
    "these differences could cause a change by themselves, so it has no verdict; ncu-bench compare refuses it without "
    "--anyway"
)
OPERATORS = "operator"

PAIR_COLUMNS = columns(
    "kernel kernel_shown was was_shown base_launches~2 new_launches~2 base_compared_ns~1 new_compared_ns~1 "
    "time_ratio time_change verdict matched_by~4"
)
"""Titles as in the table of `ncu-bench compare`; times are means of a launch."""


def pairs_content(
    runs: Mapping[str, tuple[pa.Table, Manifest | None]],
    group: str,
    time_title: str,
    shown: Mapping[str, str],
    room: int,
) -> dict[str, Any]:
    """The pairs of runs by "base new" (their indices), in `room` characters of JSON; `runs` are launches and manifests.

    Kernels are `shown` by short names; operators are not in it, and stay unchanged.

    Names of kernels and notes are stored once in "texts", and rows hold their indices. Kernels are compared by their
    full names, calls of operators by operator names, whatever else the page groups by.
    """
    known = [_summed(table, manifest, group) for table, manifest in runs.values()]
    texts = dict[str, int]()
    pairs = dict[str, dict[str, Any]]()
    for base, new in _in_order(len(known)):
        before = len(texts)
        (ours, our_conditions), (theirs, their_conditions) = known[base], known[new]
        made = _pair(compare(ours, theirs, (our_conditions, their_conditions)), shown, texts)
        room -= len(embedded([made, list(texts)[before:]]))
        if room < 0 or len(pairs) == MOST_PAIRS:
            texts = {text: number for text, number in texts.items() if number < before}
            break
        pairs[f"{base} {new}"] = made
    return {
        "columns": [_column(column, group, time_title) for column in PAIR_COLUMNS],
        "names": [shlex.quote(printable(name)) for name in runs],
        "texts": list(texts),
        "pairs": pairs,
    }


def _summed(table: pa.Table, manifest: Manifest | None, group: str) -> tuple[SignatureSums, Conditions]:
    sums = SignatureSums()
    sums.add(calls_of_operators(table) if group == OPERATORS else table)
    return sums, conditions_of(sums.observed, manifest)


def _in_order(runs: int) -> Iterator[tuple[int, int]]:
    """Every pair of runs, base first: pairs with the first run, neighbours, the others."""
    every = [(base, new) for base in range(runs) for new in range(base + 1, runs)]
    yield from sorted(every, key=lambda pair: (pair[0] != 0, pair[1] - pair[0] != 1, pair))


def _column(column: Column, group: str, time_title: str) -> dict[str, Any]:
    """The column with the title of times, and of operators if these are compared."""
    title = column.title
    for name in ("base time", "new time", "time changed"):
        title = title.replace(name, name.replace("time", time_title))
    if group == OPERATORS:
        title = {"kernel": OPERATORS, "base launches": "base calls", "new launches": "new calls"}.get(title, title)
    return described(column._replace(title=title))


def _pair(comparison: Comparison, shown: Mapping[str, str], texts: dict[str, int]) -> dict[str, Any]:
    """The kernels of two runs by their effect on the time, the sums of all, and notes; texts as indices."""
    refused = any(difference.refused for difference in comparison.differences)
    kernels = comparison.kernels[:KERNELS_OF_PAIR]
    notes = list(comparison.notes)
    if refused:
        notes.insert(0, OTHERWISE_REFUSED)
    if rest := len(comparison.kernels) - len(kernels):
        notes.append(f"{counted(rest, 'more kernel', 'more kernels')}, whose time changed less")
    if comparison.other_work:
        notes.insert(0, f"all kernels: {comparison.other_work}")
    total = _cells(comparison.total, judged=not refused)
    if comparison.other_work:
        total["verdict"] = NOT_THE_SAME_WORK

    def row(cells: dict[str, Any]) -> list[Any]:
        for name in ("kernel", "was"):
            short = shown.get(cells[name])
            cells[name + SHOWN] = short if short != cells[name] else None
        return [_numbered(cells[column.name], texts) for column in PAIR_COLUMNS]

    return {
        "rows": [row(_cells(kernel, judged=not refused)) for kernel in kernels],
        "total": row(total),
        "notes": [texts.setdefault(printable(note), len(texts)) for note in notes],
    }


def _cells(kernel: ComparedKernel, *, judged: bool) -> dict[str, Any]:
    """The values of `PAIR_COLUMNS`; no verdict for a change without an interval, or unless `judged`."""
    time, pair = kernel.changes["time"], kernel.pair
    in_both = not kernel.is_new and not kernel.is_gone
    said = verdict(time, is_new=kernel.is_new, is_gone=kernel.is_gone)
    return {
        "kernel": pair.kernel,
        "was": pair.was if pair.was != pair.kernel else None,
        "base_launches": kernel.base.launches if kernel.base else None,
        "new_launches": kernel.new.launches if kernel.new else None,
        "base_compared_ns": time.base if kernel.base else None,
        "new_compared_ns": time.new if kernel.new else None,
        "time_ratio": time.ratio if in_both else None,
        "time_change": growth_text(time) if in_both else None,
        "verdict": said if not in_both or (judged and (time.noise_is_known or said == "same")) else None,
        "matched_by": pair.matched_by if pair.matched_by != BY_NAME else None,
    }


def _numbered(value: Any, texts: dict[str, int]) -> Any:
    """The value for JSON: a text as its index in a list, unlike other values; numbers with eight digits."""
    if isinstance(value, str):
        return [texts.setdefault(printable(value), len(texts))]
    if isinstance(value, float):
        return shortened(value)
    return value
