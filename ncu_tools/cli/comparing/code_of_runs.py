"""Changes in the compiled code that two runs kept: shown before times, since they are exact, and often the cause."""

from __future__ import annotations

from pathlib import Path

from ncu_launch.errors import NcuBenchError
from ncu_launch.files.run_files import CODE

CHANGES_SHOWN = 3


def code_of_runs(base: str, new: str) -> str | None:
    """The changes of resources in code that both runs kept, the worst first; None if one kept no code."""
    folders = [_code_beside(Path(run)) for run in (base, new)]
    if None in folders:
        return None
    from ncu_parsers.binaries.code_files import CodeReading, kernels_in

    from ncu_tools.binaries.compare_code import CodeChange, compared_code, summary_of
    from ncu_tools.numbers.number_format import counted

    try:
        sides = [list(kernels_in(folder, CodeReading())) for folder in folders if folder is not None]
        summary = summary_of(compared_code(*sides))
    except NcuBenchError:
        return None
    if not summary.counts:
        return None
    if set(summary.counts) == {CodeChange.SAME}:
        return f"code: {counted(summary.counts[CodeChange.SAME], 'kernel', 'kernels')}, same code"
    counts = ", ".join(change.of(count) for change, count in summary.counts.items())
    more = f"; and {len(summary.changes) - CHANGES_SHOWN} more" if len(summary.changes) > CHANGES_SHOWN else ""
    return "code: " + "; ".join([*summary.changes[:CHANGES_SHOWN], counts]) + more


def _code_beside(run: Path) -> Path | None:
    """The folder of kept code of a run, named by its folder or a file in it."""
    folder = (run if run.is_dir() else run.parent) / CODE
    return folder if folder.is_dir() and run.exists() else None
