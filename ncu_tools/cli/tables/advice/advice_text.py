"""Advice as text: levers by saved time, levers listed separately, and kernels without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ncu_tools.advice.lever_sentences import interval, number_of
from ncu_tools.advice.situation.model import SavedShare
from ncu_tools.cli.tables.part_text import hanging, paragraph
from ncu_tools.kernels.names.distinct_names import distinct_names, fitted_names
from ncu_tools.numbers.number_format import counted, duration, percent
from ncu_tools.report.table import printable

Row = Mapping[str, Any]
APART = "These change the numerics, replace the kernel, or join it with others:"
NO_LAUNCH = (
    "No launch ran for a time that is known, so that there is no lever. Every set of ncu collects times, and so does\n"
    "--metrics gpu__time_duration.sum."
)
LONGEST_NAME = 48
MOST_NUMBERS = 3


def advice_lines(levers: Sequence[Row], silent: Sequence[Row], together: Sequence[str], width: int) -> Iterator[str]:
    """The lines below the head: a paragraph for each lever, then the kernels without one."""
    if not levers and not silent:
        yield from ["", NO_LAUNCH]
    names = shown_names([*levers, *silent])
    kept = [row for row in levers if not row["is_apart"]]
    apart = [row for row in levers if row["is_apart"]]
    for place, row in enumerate(kept, 1):
        yield from _lever(row, names, f"{place}.", width)
    yield from _paragraphs(together, width)
    if apart:
        yield from ["", APART]
        for place, row in enumerate(apart, len(kept) + 1):
            yield from _lever(row, names, f"{place}.", width)
    if silent:
        yield from ["", "No lever counts on:"]
        for row in silent:
            share = f" ({percent(row['time_share'])} of the time)" if row["time_share"] is not None else ""
            yield from hanging(f"  {names[row['kernel']]}{share}:", row["says"], width)


def joined_silent(rows: Sequence[Row]) -> list[Row]:
    """Rows without a lever, a row for those of one name that say the same of launches of other grids or lengths."""
    joined: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        one = joined.setdefault((row["kernel"], row["says"]), {**row, "time_share": None})
        if row["time_share"] is not None:
            one["time_share"] = (one["time_share"] or 0.0) + row["time_share"]
    return sorted(joined.values(), key=lambda one: -(one["time_share"] or 0.0))


def shown_names(rows: Sequence[Row]) -> dict[str, str]:
    """Readable, unique names of kernels."""
    every = list(dict.fromkeys(row["kernel"] for row in rows))
    read = distinct_names(every)
    fitted = fitted_names([read[name] for name in every], LONGEST_NAME)
    return {name: printable(fitted[read[name]]) for name in every}


def shown_name(kernel: str) -> str:
    """The readable name of one kernel, cut in its middle if it is long."""
    return shown_names([{"kernel": kernel}])[kernel]


def _lever(row: Row, names: Mapping[str, str], number: str, width: int) -> Iterator[str]:
    """A lever: what to do to which kernel, its saving, the evidence, and the command that shows more."""
    shown = row["evidence"][:MOST_NUMBERS]
    numbers = "; ".join(number_of(each["quantity"], each["value"], each["unit"]) for each in shown)
    yield ""
    yield from hanging(f"{number:>3}", f"{row['title']}: {names[row['kernel']]}{_of_run(row)}", width)
    for text in (saves(row), numbers, row["remedy"]):
        yield from hanging("   ", text, width) if text else ()
    if row.get("command"):
        yield f"     {row['command']}"


def _of_run(row: Row) -> str:
    launches = counted(row["launches"], "launch", "launches")
    share = f", {percent(row['time_share'])} of the time" if row["time_share"] is not None else ""
    return f" ({launches} of {duration(row['kernel_time_ns'])}{share})"


def saves(row: Row) -> str:
    """The saving of a lever: "saves 18 to 31 % of the kernel, likely 24 %: 0.9 ms to 1.5 ms of the run"."""
    shares = SavedShare(row["saves_low"], row["saves_share"], row["saves_high"])
    times = f"{duration(row['saves_low_ns'])} to {duration(row['saves_high_ns'])}"
    return f"saves {interval(shares, ' of the kernel')}: {times} of the run"


def _paragraphs(sentences: Sequence[str], width: int) -> Iterator[str]:
    for sentence in sentences:
        yield ""
        yield from paragraph(sentence, width)
