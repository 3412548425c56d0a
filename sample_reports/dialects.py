"""Writers of every dialect in which ncu prints a report, for the generator and the property tests.

A writer gets launches whose cells are already formatted (digits, decimals, unit), and a style: separators, line ends,
other output between the rows. It does not interpret the numbers.
"""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

COMMAND_LINE = "Command line profiler metrics"
PUSH_POP = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
START_STOP = "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
RULE_COLUMNS = ["Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup"]


@dataclass(frozen=True)
class Cell:
    """One printed metric: `digits` x 10^-`decimals` in `unit`, or a word."""

    name: str
    digits: int | str
    unit: str = ""
    decimals: int = 0
    section: str = COMMAND_LINE
    body: str = ""


@dataclass
class Printed:
    """One launch in the form in which it is printed."""

    launch_id: int
    kernel: str
    cells: list[Cell]
    process_id: int = 4711
    process: str = "app"
    host: str = "127.0.0.1"
    context: int = 1
    stream: str = "7"
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    device: int = 0
    capability: str = "8.0"
    time: str = "2022-Dec-02 15:45:59"
    ranges: tuple[str, ...] = ()


@dataclass
class Style:
    """Printing style of a machine and its user: locale, line ends, other output in the same file."""

    decimal: str = "."
    thousands: str = ""
    line_end: str = "\n"
    delimiter: str = ","
    above: Sequence[str] = ()
    below: Sequence[str] = ()
    between: Sequence[str] = field(default_factory=list)

    def number(self, cell: Cell) -> str:
        """The cell's number in this locale."""
        if isinstance(cell.digits, str):
            return cell.digits
        sign = "-" if cell.digits < 0 else ""
        digits = f"{abs(cell.digits):0{cell.decimals + 1}d}"
        whole, fraction = digits[: len(digits) - cell.decimals], digits[len(digits) - cell.decimals :]
        whole = f"{int(whole):,}".replace(",", self.thousands)
        return sign + whole + (self.decimal + fraction if fraction else "")


def shape(dimensions: tuple[int, int, int]) -> str:
    """A grid or block as ncu prints it."""
    return f"({dimensions[0]}, {dimensions[1]}, {dimensions[2]})"


def quoted(cells: Iterable[object], delimiter: str = ",") -> str:
    """One CSV line with every cell in quotes, as ncu writes it."""
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="", delimiter=delimiter).writerow(cells)
    return out.getvalue()


def _assembled(rows: list[str], style: Style) -> str:
    """Rows with the header, footer and program output: one line of `between` after every second row."""
    lines = list(style.above)
    extra = iter(style.between)
    for number, row in enumerate(rows):
        lines.append(row)
        if number % 2 == 1:
            lines += [line for line in [next(extra, None)] if line is not None]
    lines += [*extra, *style.below]
    return style.line_end.join(lines) + style.line_end


def long(
    launches: Sequence[Printed],
    style: Style,
    *,
    legacy: bool = False,
    rules: Sequence[tuple[str, str, str, str]] = (),
    body: bool = False,
    nvtx: bool = False,
    as_range: bool = False,
) -> str:
    """`--page details --csv` or `--metrics ... --csv`: one row per metric.

    `legacy` is ncu up to 2022.3. With `rules` (section, name, type, text) the header gets five more columns, metric
    rows end in a comma and rule rows leave the metric cells empty. `as_range` is range replay, without shapes.
    """
    header = ["ID", "Process ID", "Process Name", "Host Name"]
    header += [PUSH_POP, START_STOP] if nvtx else []
    header += ["Kernel Name", "Kernel Time"] if legacy else ["Kernel Name"]
    header += ["Context", "Stream"]
    header += [] if legacy else ["Device", "CC"] if as_range else ["Block Size", "Grid Size", "Device", "CC"]
    header += ["Section Name"] + (["Body Item Label"] if body else []) + ["Metric Name", "Metric Unit", "Metric Value"]
    tail = style.delimiter if rules else ""
    rows = [quoted(header + (RULE_COLUMNS if rules else []), style.delimiter)]
    for launch in launches:
        identity = _identity(launch, legacy, nvtx, as_range)
        for cell in launch.cells:
            cells = [*identity, cell.section, *([cell.body] if body else []), cell.name, cell.unit, style.number(cell)]
            rows.append(quoted(cells, style.delimiter) + tail)
        for section, name, kind, text in rules:
            empty = [""] * (4 if body else 3)
            rows.append(quoted([*identity, section, *empty, name, kind, text, "", ""], style.delimiter))
    return _assembled(rows, style)


def _identity(launch: Printed, legacy: bool, nvtx: bool, as_range: bool) -> list[object]:
    identity: list[object] = [launch.launch_id, launch.process_id, launch.process, launch.host]
    if nvtx:
        entries = " ".join(
            f'"{launch.launch_id}:<default domain>:{name}:none:none:none:none:none:none"' for name in launch.ranges
        )
        identity += ["", f" {entries} "]
    identity += ["range" if as_range else launch.kernel]
    identity += [launch.time] if legacy else []
    identity += [launch.context, "n/a" if as_range else launch.stream]
    if not legacy:
        identity += [] if as_range else [shape(launch.block), shape(launch.grid)]
        identity += [launch.device, launch.capability]
    return identity


def wide(launches: Sequence[Printed], style: Style, *, legacy: bool = False) -> str:
    """`--page raw --csv`: one row per launch; the second row has the units of the first launch."""
    names = list(dict.fromkeys(cell.name for launch in launches for cell in launch.cells))
    units = {cell.name: cell.unit for launch in reversed(launches) for cell in launch.cells}
    header = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", *(["Kernel Time"] if legacy else [])]
    header += ["Context", "Stream", *([] if legacy else ["Block Size", "Grid Size", "Device", "CC"])]
    rows = [quoted([*header, *names]), quoted([*[""] * len(header), *(units[name] for name in names)])]
    for launch in launches:
        cells = {cell.name: style.number(cell) for cell in launch.cells}
        rows.append(quoted([*_identity(launch, legacy, False, False), *(cells.get(name, "") for name in names)]))
    lines = [*style.above, *rows[:2], *rows[2:], *style.between, *style.below]
    return style.line_end.join(lines) + style.line_end


def summary(groups: Sequence[tuple[Printed, int, list[tuple[Cell, Cell, Cell]]]], style: Style) -> str:
    """`--print-summary per-kernel --csv`: per kernel, its launches and (minimum, maximum, average) of each metric."""
    rows = [
        quoted(
            ["Process ID", "Process Name", "Host Name", "Kernel Name", "Block Size", "Grid Size", "Device", "CC",
             "Invocations", "Section Name", "Metric Name", "Metric Unit", "Minimum", "Maximum", "Average"]
        )
    ]  # fmt: skip
    for launch, invocations, triples in groups:
        identity = [
            launch.process_id,
            launch.process,
            launch.host,
            launch.kernel,
            shape(launch.block),
            shape(launch.grid),
        ]
        identity += [launch.device, launch.capability, invocations]
        for triple in triples:
            numbers = [style.number(cell) for cell in triple]
            rows.append(quoted([*identity, triple[0].section, triple[0].name, triple[0].unit, *numbers]))
    return _assembled(rows, style)


def text(launches: Sequence[Printed], style: Style, rules: Sequence[tuple[str, str, str, str]] = ()) -> str:
    """The text tables that ncu prints without --csv, each with its `rules` (section, type, estimate, text) below."""
    lines = list(style.above)
    lines.append(f"[{launches[0].process_id}] {launches[0].process}@{launches[0].host}")
    for launch in launches:
        lines.append(
            f"  {launch.kernel} {shape(launch.grid)}x{shape(launch.block)}, Context {launch.context}, "
            f"Stream {launch.stream}, Device {launch.device}, CC {launch.capability}"
        )
        for section in dict.fromkeys(cell.section for cell in launch.cells):
            table = [(cell.name, cell.unit, style.number(cell)) for cell in launch.cells if cell.section == section]
            said = [_text_rule(*rule) for of_section, *rule in rules if of_section == section]
            lines += [f"    Section: {section}", *_text_table(table), "", *_between_dashes(said)]
    return style.line_end.join([*lines, *style.below]) + style.line_end


def _text_table(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    titles = ("Metric Name", "Metric Unit", "Metric Value")
    widths = [max(len(row[column]) for row in [titles, *rows]) for column in range(3)]
    fence = "    " + " ".join("-" * width for width in widths)

    def line(cells: tuple[str, str, str]) -> str:
        return "    " + f"{cells[0]:<{widths[0]}} {cells[1]:>{widths[1]}} {cells[2]:>{widths[2]}}"

    return [fence, line(titles), fence, *map(line, rows), fence]


def _text_rule(kind: str, estimate: str, message: str) -> list[str]:
    """A rule as ncu prints it since 2023.3: lines of 110 letters, padded; the estimate has its own line."""
    lines = [*([estimate] if estimate else []), *textwrap.wrap(message, 110, break_on_hyphens=False)]
    return [f"{start:<10}{line:<110}" for start, line in zip_longest([f"    {kind}"], lines, fillvalue="")]


def _between_dashes(rules: Sequence[list[str]]) -> list[str]:
    """Rules of one section, separated by lines of dashes, with an empty line below."""
    dashes = f"    ----- {'-' * 110}"
    lines = [line for rule in rules for line in (dashes, *rule)][1:]
    return [*lines, ""] if lines else []


def ui_summary(launches: Sequence[Printed], columns: Sequence[tuple[str, str]], style: Style) -> str:
    """The user interface's export of its summary page; `columns` are (title with unit, metric)."""
    lines = [
        "\ufeffID,Function Name,Demangled Name,"
        + ",".join(title for title, _ in columns)
        + ",Grid Size,Block Size [block],Result Type"
    ]
    for launch in launches:
        cells = {cell.name: style.number(cell) for cell in launch.cells}
        short = launch.kernel.split("(")[0].split("<")[0].split("::")[-1].split()[-1]
        values = ",".join(cells[metric] for _, metric in columns)
        shapes = [f'"{x:>5},{y:>5},{z:>5}"' for x, y, z in (launch.grid, launch.block)]
        demangled = f'"{launch.kernel}"' if "," in launch.kernel else launch.kernel
        lines.append(f"{launch.launch_id},{short},{demangled},{values},{shapes[0]},{shapes[1]},Kernel: SIMT")
    return style.line_end.join(lines) + style.line_end


def ui_properties(launches: Sequence[Printed], style: Style) -> str:
    """The user interface's export of its raw page: a row for each property and metric, a column for each launch."""
    rows: dict[str, list[str]] = {
        "ID": [str(launch.launch_id) for launch in launches],
        "Function Name": [launch.kernel.split("(")[0].split("<")[0].split("::")[-1].split()[-1] for launch in launches],
        "Demangled Name": [f"{launch.kernel[:12]}.." for launch in launches],
        "Original Demangled Name": [launch.kernel for launch in launches],
        "Process": [f"[{launch.process_id}] {launch.process}" for launch in launches],
        "Grid Size": [",".join(f"{side:>5}" for side in launch.grid) for launch in launches],
        "Block Size [block]": [",".join(f"{side:>5}" for side in launch.block) for launch in launches],
    }
    for cell in launches[0].cells:
        values = [next(one for one in launch.cells if one.name == cell.name) for launch in launches]
        rows[f"{cell.name} [{cell.unit}]"] = [style.number(one) for one in values]
    out = io.StringIO()
    csv.writer(out, lineterminator=style.line_end).writerows([title, *cells] for title, cells in rows.items())
    return f"\ufeff{out.getvalue()}"
