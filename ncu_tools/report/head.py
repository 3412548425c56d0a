"""The line above a table: its run, device, number of launches, their time, and how they were run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path, PurePath
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from ncu_launch.files.manifest import Manifest, folder_of, manifest_in
from ncu_launch.files.run_files import LAUNCHES
from ncu_launch.notes import in_head
from ncu_parsers.schema import tables

from ncu_tools.ceilings.launch_devices import names_of_devices
from ncu_tools.numbers.number_format import counted, duration
from ncu_tools.numbers.text_width import text_width
from ncu_tools.report.table import printable

if TYPE_CHECKING:
    from ncu_tools.runs.selection import Selection

TIME = "time"
MOST_NAMED = 2
"""If there are more runs or devices, the line only counts them."""
SHORTEST_NAME = 24
LONG_BEGINNING = 12
"""A common beginning of run names longer than this is cut in narrow columns."""
STANDARD_INPUTS = ("-", "/dev/stdin")
PIPES = ("/dev/fd/", "/proc/")
"""Prefixes of paths of open files, as a shell writes <(COMMAND)."""


@dataclass(frozen=True)
class Head:
    """The subject of a table, None and () if unknown.

    `runs` are as the user named them, and `title` distinguishes them if their last names do not. `settings` describe
    the run in words: batch, type, mode, phases. `more` are further facts, `first` the sentence on the highest cost.
    """

    runs: tuple[str, ...]
    devices: tuple[str, ...] = ()
    launches: int | None = None
    time_ns: float | None = None
    time_title: str = TIME
    settings: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    first: str | None = None
    title: str = ""

    def __post_init__(self) -> None:
        """A time beyond the range of a number, as in damaged reports, is unknown."""
        if self.time_ns is not None and not math.isfinite(self.time_ns):
            object.__setattr__(self, "time_ns", None)

    def line(self, width: int | None = None) -> str:
        """The line, cut to a width: a long name in its middle, then the last facts are dropped."""
        name, facts = printable(self.title) or _names_or_number(list(map(short_run, self.runs)), "runs"), self._facts()
        if width is not None:
            name = cut_in_the_middle(name, max(width - text_width(": " + ", ".join(facts)), SHORTEST_NAME))
            while facts and text_width(_joined(name, facts)) > width:
                facts.pop()
        return _joined(name, facts)

    def text(self, width: int | None = None) -> str:
        """The line, and the sentence on the highest cost below it."""
        if self.first is None:
            return self.line(width)
        first = printable(f"first: {self.first}")
        return f"{self.line(width)}\n{first if width is None else _filled(first, width)}"

    def as_json(self) -> dict[str, Any]:
        """The parts under their names."""
        return {
            "runs": list(self.runs),
            "devices": list(self.devices),
            "launches": self.launches,
            "time_ns": self.time_ns,
            "settings": list(self.settings),
            "first": self.first,
        }

    def _facts(self) -> list[str]:
        title = "" if self.time_title == TIME else f" {self.time_title}"
        return [
            *([_names_or_number(list(self.devices), "devices")] if self.devices else []),
            *([counted(self.launches, "launch", "launches")] if self.launches is not None else []),
            *([f"{duration(self.time_ns)}{title}"] if self.time_ns is not None else []),
            *self.settings,
            *self.more,
        ]


def head_of(
    runs: Sequence[str], table: pa.Table | None = None, notes: Iterable[str] = (), *, only: Selection | None = None,
    **known: Any,
) -> Head:  # fmt: skip
    """The head of runs: the `known` facts, else facts from their launches; `notes` add more, `only` was selected."""
    chosen = only.title if only is not None else ""
    settings = (*([chosen] if chosen else ()), *(settings_of(runs[0]) if len(runs) == 1 else ()))
    more = (*known.pop("more", ()), *(() if chosen else in_head(notes)))  # notes cover all launches
    if table is not None:
        known = {"devices": names_of_devices(table), "launches": _launches(table), "time_ns": _time(table), **known}
    return Head(tuple(runs), settings=settings, more=more, **known)


def manifest_of(run: str) -> Manifest | None:
    """The manifest of the run folder that `run` or its launches.parquet is; None for reports, and without one."""
    belongs = Path(run).is_dir() or Path(run).name == LAUNCHES
    return manifest_in(folder_of(run)) if belongs else None


def settings_of(run: str) -> tuple[str, ...]:
    """The settings of a run folder's model, in words; () for everything else, such as a program."""
    manifest = manifest_of(run)
    workload = manifest.workload if manifest is not None else {}
    numbers = {"batch": "batch_size", "size": "input_size", "length": "sequence_length"}
    phases = workload.get("phases")
    words = [
        PurePath(str(workload.get("target") or "")).name,
        *(f"{title} {workload[name]}" for title, name in numbers.items() if workload.get(name) is not None),
        workload.get("dtype") and f"{workload['dtype']}{' autocast' * bool(workload.get('autocast'))}",
        workload.get("mode"),
        " + ".join(map(str, phases)) if isinstance(phases, list | tuple) else None,
    ]
    return tuple(str(word) for word in words if word)


def short_run(run: str) -> str:
    """The name of a run without its folders."""
    if run in STANDARD_INPUTS:
        return "standard input"
    if run.startswith(PIPES):
        return "a pipe"
    path = PurePath(run)
    return printable(path.name if path.name not in ("", "..") else Path(run).resolve().name or run)


def told_apart(heads: Sequence[Head]) -> list[Head]:
    """The lines of runs, with longer names if several have the same, such as reports in two folders."""
    runs = [head.runs[0] for head in heads]
    if len(set(map(short_run, runs))) == len(runs):
        return list(heads)
    names = short_names(runs)
    return [replace(head, title=names[run]) for head, run in zip(heads, runs, strict=True)]


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """The shortest different ends of paths, without a long common beginning."""
    names = ends_apart(paths)
    if len(names) == 1:  # one report, two kernels of which are compared
        return names
    letters = zip(*names.values(), strict=False)
    alike = "".join(each[0] for each in takewhile(lambda each: len(set(each)) == 1, letters))
    whole_words = re.match(r".*[^a-zA-Z0-9.]", alike)
    cut = whole_words.end() if whole_words else 0
    return {path: f"…{name[cut:]}" for path, name in names.items()} if cut > LONG_BEGINNING else names


def ends_apart(paths: Sequence[str]) -> dict[str, str]:
    """The shortest ends of paths, as many folders of each, that all differ."""
    parts = {path: path.rstrip("/").split("/") for path in paths}
    for count in range(1, 1 + max(map(len, parts.values()), default=0)):
        ends = {path: "/".join(each[-count:]) for path, each in parts.items()}
        if len(set(ends.values())) == len(ends):
            return ends
    return {path: path for path in paths}


def _launches(table: pa.Table) -> int:
    return int(tables.launch_counts(table)[_ran(table)].sum())


def _ran(table: pa.Table) -> Any:
    failed = table.column("failed").to_numpy() if "failed" in table.column_names else np.zeros(len(table), bool)
    return ~failed.astype(bool)


def _time(table: pa.Table) -> float | None:
    """The time of all launches; None if any is unknown."""
    ran = _ran(table)
    times = (tables.floats(table, "duration_ns") * tables.launch_counts(table))[ran]
    return float(times.sum()) if times.size and not np.isnan(times).any() else None


def _names_or_number(names: Sequence[str], several: str) -> str:
    distinct = list(dict.fromkeys(names))
    return ", ".join(map(printable, distinct)) if len(distinct) <= MOST_NAMED else f"{len(distinct)} {several}"


def _joined(name: str, facts: Sequence[str]) -> str:
    return f"{name}: {', '.join(map(printable, facts))}" if facts else name


def _filled(sentence: str, width: int) -> str:
    """A sentence wrapped to a width; numbers stay with their per cent signs."""
    return fill(sentence.replace(" %", "\N{NO-BREAK SPACE}%"), width).replace("\N{NO-BREAK SPACE}", " ")


def cut_in_the_middle(text: str, width: int) -> str:
    """A text of at most `width` columns: its start and end, which distinguish names."""
    if text_width(text) <= width:
        return text
    kept = width - 1
    return f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"
