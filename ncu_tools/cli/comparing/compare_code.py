"""ncu-bench compare OLD.so NEW.so: what changed in the code of kernels, and gates that need no GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import WrongUsage

from ncu_tools.cli.comparing.shown_gates import Outcomes, require_gates, show_gates, table_of_gates, write_junit
from ncu_tools.cli.comparing.shown_on_github import GITHUB, gate_format_options, require_github, show_on_github
from ncu_tools.cli.options import (
    FILE,
    MACHINE_FORMATS,
    echo_markdown,
    first_rows,
    require_other_output,
    show_if_any,
    top_option,
)
from ncu_tools.cli.reading.binaries.code_arguments import Wanted, architecture_option, notes_on
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table, printable

if TYPE_CHECKING:
    from ncu_parsers.binaries.code_files import FoundKernel

    from ncu_tools.binaries.code_gates import HeldGate
    from ncu_tools.binaries.compare_code import CodePair
    from ncu_tools.cli.github.annotations import PlacedOutcome
    from ncu_tools.report.head import Head

COLUMNS = columns(
    "code.kernel architecture~4 code_change~0 registers_words~1 spills_words~1 shared_words~3 occupancy_words~2 "
    "instructions_words~2 kinds_words~5"
)
MEASURES = ("registers", "spills", "stack", "shared", "occupancy", "instructions")
MORE = columns(
    "mangled signature_changed " + " ".join(f"code.{side}_{one}" for one in MEASURES for side in ("base", "new"))
)
CHANGES_SHOWN, LINES_SHOWN = 3, 60

Row = dict[str, Any]


@click.command()
@click.argument("runs", nargs=2, metavar="OLD NEW")
@click.option("--kernel", "name", metavar="REGEX", help="Kernels with this in their name; one alone shows its diff.")
@architecture_option
@click.option("--every", is_flag=True, help="Show kernels whose code is the same too; JSON and CSV always have them.")
@click.option(
    "--fail-on", "gates", multiple=True, metavar="GATE",
    help='Exit with 3 where a kernel changed by more: "registers>0", "spills>0", "occupancy<0", "instructions>2%", '
    '"code" (any change), "kernel:REGEX:registers>8". Repeatable.',
)  # fmt: skip
@click.option("--waivers", type=FILE, metavar="FILE", help="TOML: kernels that a gate lets pass, why and until when.")
@click.option("--junit", type=FILE, metavar="FILE", help="Write the gates as JUnit XML too.")
@click.option("--sarif", type=FILE, metavar="FILE", help="Write what tripped as SARIF, which GitHub shows at the line.")
@top_option("kernels")
@gate_format_options
def command(
    runs: tuple[str, str],
    name: str | None,
    architecture: str | None,
    every: bool,
    gates: tuple[str, ...],
    waivers: Path | None,
    junit: Path | None,
    sarif: Path | None,
    top: int | None,
    output_format: str,
    comment: bool,
) -> None:
    """Show what changed in the code of kernels from one build to another, and check it against limits, with no GPU.

    OLD and NEW are binaries or folders of these. Kernels are matched by name, signature and architecture. Code is the
    same if only numbers of registers and labels differ. Instructions need nvdisasm (CUDA, or pip install triton);
    registers, spills, shared memory and occupancy do not. If one kernel is left, its instructions are shown as a diff.

    \b
    A file of waivers:
      [[waiver]]
      kernel = "softmax"
      gate = "registers>0"
      until = 2027-01-31
      reason = "needs 8 more for the second stage"

    \b
    Example:
      ncu-bench compare old/extension.so new/extension.so
      ncu-bench compare old new --fail-on "spills>0" --fail-on "occupancy<0" --sarif code.sarif
      ncu-bench compare old.cubin new.cubin --kernel gemm
    """
    from ncu_parsers.binaries.code_files import CodeReading

    from ncu_tools.binaries.code_gates import held, notes_on_waivers, parse_code_gate, read_waivers
    from ncu_tools.binaries.code_names import names_apart
    from ncu_tools.binaries.compare_code import CodeChange, compared_code, summary_of
    from ncu_tools.compare.gate import exit_code
    from ncu_tools.report.head import Head

    require_github(output_format, comment)
    limits = [parse_code_gate(one) for one in gates]
    excused = read_waivers(waivers) if waivers is not None else []
    _require_gates(limits, runs, {"--junit": junit, "--sarif": sarif, "--waivers": waivers})
    readings = CodeReading(), CodeReading()
    base, new = (list(Wanted(run, name, architecture, one)) for run, one in zip(runs, readings, strict=True))
    pairs = list(compared_code(base, new))
    today = date.today()
    found = [held(gate, pairs, excused, today) for gate in limits]
    outcomes = {runs[1]: [one.outcome for one in found]} if found else {}
    write_junit(junit, outcomes)
    _write_sarif(sarif, found)
    summary = summary_of(pairs)
    kept = (
        pairs
        if every or output_format in MACHINE_FORMATS
        else [one for one in pairs if one.change is not CodeChange.SAME]
    )
    kept, hidden = first_rows(kept, top, output_format, "kernel")
    counts = tuple(change.of(count) for change, count in summary.counts.items())
    head = Head(runs, more=(counted(len(pairs), "kernel", "kernels"), *counts), first=_first_changes(summary.changes))
    notes = [
        *notes_on_waivers(excused, found, today),
        *(note for one in readings for note in notes_on(one)),
        *_unread(pairs),
        *hidden,
    ]
    extra: Row = {"gates": table_of_gates(outcomes).rows, "changes": summary.changes, "diff": _diff(pairs)}
    names = names_apart({one.either.resources.name for one in kept})
    rows = [_row(one, names[one.either.resources.name]) for one in kept]
    table = Table("compare_code", COLUMNS, rows, notes, extra, MORE)
    if output_format == GITHUB:
        show_on_github(table, {runs[1]: [_with_lines(one) for one in found]}, [head], comment=comment)
    else:
        _show(table, outcomes, output_format, head)
    if code := exit_code(one.outcome for one in found):
        raise click.exceptions.Exit(code)


def _show(table: Table, outcomes: Outcomes, output_format: str, head: Head) -> None:
    """Write the table and the diff, with the gates: above them in Markdown, below them in text."""
    if output_format == "markdown" and outcomes:
        echo_markdown(table_of_gates(outcomes))
        click.echo()
    show_if_any(table, output_format, head)
    if output_format not in MACHINE_FORMATS:
        _show_diff(table.extra["diff"], output_format)
    if output_format != "markdown":
        show_gates(outcomes, output_format)


def _require_gates(limits: Sequence[Any], runs: Sequence[str], files: dict[str, Path | None]) -> None:
    """Raise `WrongUsage` for output files of gates without a gate, and for one that would overwrite a binary."""
    for option, path in files.items():
        if path is not None and not limits:
            raise WrongUsage(f"{option} goes with gates.", advice='Add one: --fail-on "spills>0"')
        if path is not None and option == "--sarif":
            require_other_output(path, runs)
    require_gates(files["--junit"], limits, runs)


def _first_changes(changes: Sequence[str]) -> str | None:
    more = f"; and {len(changes) - CHANGES_SHOWN} more" if len(changes) > CHANGES_SHOWN else ""
    return "; ".join(changes[:CHANGES_SHOWN]) + more if changes else None


def _row(pair: CodePair, name: str) -> Row:
    values = {one: pair.values(one) for one in MEASURES}
    row: Row = {
        "kernel": name,
        "mangled": pair.either.resources.name,
        "architecture": pair.either.resources.architecture or None,
        "code_change": pair.change.value + (", other arguments" if pair.signature_changed else ""),
        "signature_changed": pair.signature_changed,
        "kinds_words": _kinds(pair),
    }
    for one, (before, after) in values.items():
        row |= {f"base_{one}": before, f"new_{one}": after}
        row[f"{one}_words"] = _words(one, before, after)
    if pair.misfit and pair.base is not None and pair.new is not None:
        fitting = [f"{100 * one:.1f} %" for one in values["occupancy"] if one is not None]
        row["occupancy_words"] = "; ".join([*fitting, pair.misfit])
    return {name: value for name, value in row.items() if name != "stack_words"}


def _words(measure: str, before: float | None, after: float | None) -> str | None:
    def written(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.1f} %" if measure == "occupancy" else f"{value:,.0f}"

    if before is None and after is None:
        return None
    return written(before) if before == after else f"{written(before)} -> {written(after)}"


def _kinds(pair: CodePair) -> str | None:
    if pair.by_kind is None:
        return None
    before, after = pair.by_kind
    changed = {kind: after.get(kind, 0) - before.get(kind, 0) for kind in (*before, *after)}
    ordered = sorted(changed.items(), key=lambda one: -abs(one[1]))
    return ", ".join(f"{kind} {change:+,}" for kind, change in ordered if change) or None


def _unread(pairs: Sequence[CodePair]) -> Iterator[str]:
    from ncu_tools.binaries.compare_code import MOST_DISASSEMBLED, CodeChange
    from ncu_tools.binaries.kernel_listing import has_disassembler, needs_disassembler

    unread = [one for one in pairs if one.change is CodeChange.BYTES_DIFFER and not one.either.closed_library]
    if unread and not has_disassembler():
        yield needs_disassembler("Whether code whose bytes differ is the same").paragraph
    elif unread:
        count = counted(len(unread), "kernel whose bytes differ was", "kernels whose bytes differ were")
        most = f"at most {MOST_DISASSEMBLED:,} are, so choose with --arch or --kernel; or nvdisasm failed"
        yield f"{count} not disassembled: {most}"


# ------------------------------------------------------------------------------------------------ the diff of a kernel


def _diff(pairs: Sequence[CodePair]) -> list[Row]:
    """The differing instructions, if exactly one changed kernel is left."""
    from ncu_tools.binaries.compare_code import CodeChange, diff_of

    changed = [one for one in pairs if one.change is CodeChange.CHANGED]
    if len(changed) != 1:
        return []
    return [{"mark": one.mark, "offset": one.offset, "text": one.text} for one in diff_of(changed[0]) or ()]


def _show_diff(lines: Sequence[Row], output_format: str) -> None:
    if not lines:
        return
    shown = [f"{one['mark']} {one['offset']:#06x}  {printable(one['text'])}".rstrip() for one in lines[:LINES_SHOWN]]
    more = [f"... {len(lines) - LINES_SHOWN:,} more lines: --format json"] if len(lines) > LINES_SHOWN else []
    fence = ["```diff"] if output_format == "markdown" else []
    click.echo("\n".join(["", *fence, *shown, *more, *(["```"] if fence else [])]))


# --------------------------------------------------------------------------------------------------------------- SARIF


def _write_sarif(path: Path | None, gates: Sequence[HeldGate]) -> None:
    if path is None:
        return
    from importlib.metadata import version

    from ncu_launch.files.atomic_files import write_bytes_atomically

    from ncu_tools.report.export.sarif import SarifFinding, to_sarif

    findings = [
        SarifFinding(gate.outcome.gate.text, words, *_place(pair.either))
        for gate in gates
        for pair, words in gate.tripped
    ]
    names = list(dict.fromkeys(gate.outcome.gate.text for gate in gates))
    write_bytes_atomically(path, to_sarif(findings, names, version("ncu-bench")))


def _with_lines(gate: HeldGate) -> PlacedOutcome:
    """The outcome of a gate with the line of each kernel that tripped it, for annotations."""
    from ncu_tools.cli.github.annotations import PlacedOutcome
    from ncu_tools.kernels.source.kernel_lines import SourceLine

    places = {pair.either.resources.name: _place(pair.either) for pair, _ in gate.tripped}
    lines = {name: SourceLine(file, line) for name, (file, line) in places.items() if line is not None}
    return PlacedOutcome(gate.outcome, lines)


def _place(kernel: FoundKernel) -> tuple[str, int | None]:
    """The kernel's file relative to the checkout, and its line; if unknown, the binary and None."""
    from ncu_tools.binaries.kernel_listing import line_of_kernel
    from ncu_tools.cli.github.annotations import in_checkout

    place = line_of_kernel(kernel)
    checkout = Path(os.environ.get("GITHUB_WORKSPACE") or ".")
    file = in_checkout(place.file, checkout) if place is not None and place.file else None
    return (file, place.line) if place is not None and file else (Path(kernel.path).as_posix(), None)
