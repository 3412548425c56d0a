"""Details on the kernels of an HTML report beyond their sums: launch configuration, rules, and the seven parts.

The parts are the rows of `ncu-bench kernel`, for as many kernels as keep the page small; a note lists omissions.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_parsers.schema import arrays

from ncu_tools.advice.advice_on_rows import advice_on_rows
from ncu_tools.advice.lever_sentences import advice_in_words, first_lever, saved_of_run, saves_most
from ncu_tools.advice.nvidia_levers import with_answers
from ncu_tools.kernels.diagnosis.diagnose import diagnoses
from ncu_tools.kernels.grouping import rows_of
from ncu_tools.kernels.kernel_row import Hotspot, row_key
from ncu_tools.kernels.view.kernel_view import KernelView, RuleResult, has_counters, is_viewed, rule_results, view_of
from ncu_tools.kernels.view.launch_configuration import COLUMNS, launch_configuration
from ncu_tools.kernels.view.part_rows import FULL_NAME, PARTS, launches_of_view, notes_of, rows_of_part
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.html.html_page import embedded

PARTS_LETTERS, KERNELS_WITH_PARTS = 400_000, 300
"""Most characters of JSON that the parts of all kernels take on a page, and most kernels with parts."""
ROW_FIELDS = ("value", "against", "spread", "share", "message", "metric")
"""The fields of a row after the index of its title; a metric is the index of its name."""
RULES = "rules"


class RunKernels:
    """The kernels of one run that a page shows, each with its launches, advice and diagnosis."""

    def __init__(
        self, launches: pa.Table, kernels: Sequence[Hotspot], group: str, instructions: pa.Table | None = None
    ) -> None:
        self._kernels = {one.key: one for one in kernels}
        self._advice = advice_on_rows(launches, kernels, group, instructions)
        self._diagnosed = diagnoses(launches, kernels, group)
        numbers, titles = rows_of(launches, group)
        order = np.argsort(numbers, kind="stable")
        ends = np.cumsum(np.bincount(numbers, minlength=len(titles)))
        self._places = dict[str, list[npt.NDArray[np.int64]]]()
        for title, places in zip(titles, np.split(order, ends)[:-1], strict=True):
            self._places.setdefault(title, []).append(places)
        self._viewed = launches.select([name for name in launches.column_names if is_viewed(name)])
        self._of_rows = launches.select([name for name in launches.column_names if name in {*COLUMNS, RULES}])

    def row(self, kernel: str) -> dict[str, Any]:
        """Levers, NVIDIA's rules and launch configuration of a kernel, by its key, as texts."""
        launches, advice = self._launches(self._of_rows, kernel), self._advice.get(kernel)
        return {
            "diagnosis": advice_in_words(advice) if advice is not None else None,
            "first_lever": first_lever(advice) if advice is not None else None,
            "nvidia_rules": _rules_in_short(rule_results(launches)),
            **asdict(launch_configuration(launches)),
        }

    @property
    def first(self) -> tuple[str, str, float] | None:
        """The kernel whose lever saves most of the run: its key and the saving in words; None if no kernel has a lever.

        The number is the most that any lever may save of the run's time, in ns.
        """
        saving = {key: one for key, one in self._advice.items() if one is not None}
        best = saves_most(saving.values())
        if best is None:
            return None
        key = next(key for key, one in saving.items() if one is best)
        most = max(lever.saves.high * one.kernel.total_ns for one in saving.values() for lever in one.that_keep_it)
        return key, saved_of_run(best), most

    def view(self, kernel: str) -> KernelView | None:
        """The view of a kernel; None if nothing was counted."""
        launches = self._launches(self._viewed, kernel)
        if not has_counters(launches):
            return None
        view = view_of(self._kernels[kernel], launches, self._diagnosed.get(kernel))
        view.rules = with_answers(view.rules, launches, self._advice.get(kernel))
        return view if view.facts else None

    def _launches(self, table: pa.Table, kernel: str) -> pa.Table:
        return arrays.take(table, arrays.whole(np.concatenate(self._places.get(kernel, [np.empty(0, np.int64)]))))


def _rules_in_short(rules: Sequence[RuleResult]) -> str | None:
    """The largest estimate of NVIDIA's rules and their number; the estimate first, since the column is sorted."""
    if not rules:
        return None
    many, most = counted(len(rules), "rule", "rules"), rules[0]
    if most.speedup is None:
        return many
    return f"up to {most.speedup:.1f} % ({most.speedup_type or 'estimate'}), {many}"


def parts_content(runs: Mapping[str, RunKernels], rows: Sequence[Mapping[str, Any]], room: int) -> dict[str, Any]:
    """The parts of the page's kernels (`rows` with run, kernel and device) by their row, in `room` characters of JSON.

    Titles and notes are stored once in "texts", and kernels hold their indices; "means" has the meaning of titles by
    their index. {} if no kernel has any counter.
    """
    texts, means = dict[str, int](), dict[int, str]()
    kernels = dict[str, dict[str, Any]]()
    notes = list[str]()
    for number, row in enumerate(rows):
        view = runs[row["run"]].view(row_key(row["kernel"], row["device"]))
        if view is None:
            continue
        before = len(texts)
        made = _parts_of(view, texts, means)
        new = [text for text in texts.items() if text[1] >= before]
        room -= len(embedded([made, *((text, means.get(index)) for text, index in new)]))
        if room < 0 or len(kernels) == KERNELS_WITH_PARTS:
            notes.append("more kernels have seven parts than there is room for; ncu-bench kernel shows them")
            break
        kernels[str(number)] = made
    if not kernels:
        return {}
    return {"names": PARTS, "texts": list(texts), "means": means, "fields": ROW_FIELDS, "kernels": kernels,
            "notes": notes}  # fmt: skip


def _parts_of(view: KernelView, texts: dict[str, int], means: dict[int, str]) -> dict[str, Any]:
    """A kernel's rows by part, each the index of its title and `ROW_FIELDS`, without unknown trailing fields."""
    parts = {}
    for part in PARTS:
        found = []
        for row in rows_of_part(view, part, most_rules=sys.maxsize):
            if row["title"] == FULL_NAME:  # shown above the parts
                continue
            values = [_short(one) for one in _values(row)]
            values.append(texts.setdefault(row["metric"], len(texts)) if "metric" in row else None)
            while values and values[-1] is None:
                values.pop()
            title = texts.setdefault(row["title"], len(texts))
            found.append([title, *values])
            if "means" in row:
                means[title] = row["means"]
        if found:
            parts[part] = found
    return {
        "about": launches_of_view(view),
        "notes": [texts.setdefault(note, len(texts)) for note in notes_of(view)[1:]],
        "parts": parts,
    }


def _values(row: Mapping[str, Any]) -> list[Any]:
    """The values of `ROW_FIELDS` but the metric; a rule's message is dropped if its title has all of it."""
    *values, message = (row.get(name) for name in ROW_FIELDS[:-1])
    said = None if message is None else re.sub(r"\s+", " ", message).strip().removesuffix(".")
    return [*values, None if said is None or row["title"].endswith(f": {said}") else message]


def _short(value: Any) -> Any:
    """The value, with shares rounded to the resolution of a bar."""
    return round(value, 3) if isinstance(value, float) else value
