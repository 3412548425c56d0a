"""Ranked places inside a kernel as a table, for `ncu-bench source` and `run.source` of notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ncu_launch.errors import WrongUsage
from ncu_launch.notes import Note, NoteKind

from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.kernels.source.hot_places import MEASURE_OF, HotPlace
from ncu_tools.kernels.source.kernel_code import KernelCode
from ncu_tools.kernels.source.source_text import SourceText
from ncu_tools.kernels.source.stalls import REASONS, stall_counts, stalls
from ncu_tools.numbers.number_format import counted, percent
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.head import Head, head_of

if TYPE_CHECKING:
    from ncu_tools.runs.selection import Selection

RANKED_BY = {
    "samples": "samples of warps",
    "executed": "executed instructions",
    "sectors": "theoretical sectors at L2",
    "conflicts": "wavefronts of bank conflicts beyond the ideal",
}
WHOLE_KERNEL = 3
"""Stall reasons of the whole kernel that a note explains."""

COLUMNS = columns(
    "place share~0 samples~2 stall~0 stall_share~1 executed~3 sectors~4 sectors_over_ideal~4 "
    "conflicts_over_ideal~4 live_registers~5 source.text inline_of waits_for"
)
MACHINE_READABLE = columns(
    "file line function offset source.instructions samples_not_issued sectors_ideal shared_wavefronts "
    "shared_wavefronts_ideal"
)


def what_to_rank_by(code: KernelCode, by: str | None) -> tuple[str, list[str]]:
    """The ranking measure, and notes. Raises `WrongUsage` if the requested one was not collected."""
    there = [name for name in RANKED_BY if code.total(MEASURE_OF[name]) is not None]
    if by is None:
        chosen = there[0] if there else "samples"
        return chosen, [] if chosen == "samples" else [f"ranked by {RANKED_BY[chosen]}: no samples were collected"]
    if by not in there:
        raise WrongUsage(
            f"This kernel has no {RANKED_BY[by]}, or they were not collected.",
            f"There are: {', '.join(there)}." if there else "It has no counts, only the text of instructions.",
            "Rank by one of these, or collect more: ncu --set full",
        )
    return by, []


def view_to_show(code: KernelCode, view: str | None) -> tuple[str, list[str]]:
    """The view to show, with a note if it is not lines because no line is known."""
    known = {"lines": "line", "ptx": "ptx_line", "functions": "function", "sass": "offset"}
    there = [name for name, column in known.items() if code.table[column].null_count < len(code.table)]
    if view is None and "lines" in there:
        return "lines", []
    if view is None:
        return "sass", ["no instruction is known to come from a source line; compile with -lineinfo to see lines"]
    if view not in there:
        raise WrongUsage(
            f"The report has nothing for --view {view}.",
            "Lines and PTX need -lineinfo of the compiler, and for source pages the view: ncu --print-source cuda,sass",
            f"There are: {', '.join(there)}.",
        )
    return view, []


def row_of(row: HotPlace, text: SourceText) -> dict[str, Any]:
    """A place as a row of `COLUMNS` and `MACHINE_READABLE`."""
    return {
        **asdict(row),
        "text": row.sass if row.sass is not None else text.of(row.file, row.line),
        "sectors_over_ideal": _ratio(row.sectors, row.sectors_ideal),
        "conflicts_over_ideal": _ratio(row.shared_wavefronts, row.shared_wavefronts_ideal),
    }


def _ratio(value: float | None, ideal: float | None) -> float | None:
    return value / ideal if value and ideal else None


def text_notes(rows: Sequence[HotPlace]) -> list[str]:
    """The note on instructions without text, with how to get it; [] for other places."""
    if not any(row.offset is not None and row.sass is None for row in rows):
        return []
    return [
        "the text of instructions is not in the report: pip install '.[ncu-rep]' (NVIDIA's package), or put "
        "nvdisasm of the CUDA toolkit on PATH"
    ]


def about(code: KernelCode) -> Note:
    """A note for the head line with the kernel and its amounts."""
    return Note(f"{readable_name(code.kernel_name)}: {', '.join(amounts_of(code))}", NoteKind.IN_HEAD)


def head_of_code(run: str, code: KernelCode, only: Selection | None = None) -> Head:
    """The line above the table: the kernel and its amounts; below it, its most frequent stall."""
    what = (readable_name(code.kernel_name), *amounts_of(code))
    return head_of([run], more=what, only=only, first=next(iter(stall_notes(code)), None))


def amounts_of(code: KernelCode) -> list[str]:
    """The amounts of a kernel: launches, instructions, samples."""
    samples = code.total("samples")
    parts = [counted(code.launches, "launch", "launches"), counted(len(code.table), "instruction", "instructions")]
    if samples is not None:
        parts.append(f"{samples:,.0f} samples")
    if code.share is not None and code.of_kernels > 1:
        parts.append(f"{percent(code.share)} of those of {code.of_kernels} kernels")
    return parts


def stall_notes(code: KernelCode) -> list[str]:
    """The meaning of the kernel's most frequent stalls, and common remedies."""
    sums = stall_counts(code).sum(axis=0)
    whole = sums.sum()
    order = sorted(range(len(REASONS)), key=lambda place: -sums[place])[:WHOLE_KERNEL]
    notes = []
    for place in order:
        if sums[place] > 0:
            stall = stalls()[REASONS[place]]
            advice = f" ({stall.advice})" if stall.advice else ""
            notes.append(f"{percent(sums[place] / whole)} of stalls are {stall.title}: {stall.meaning}{advice}")
    return notes
