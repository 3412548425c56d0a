"""Options that several commands share, and the output of tables and notes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import fields, replace
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click
from ncu_launch.errors import WrongUsage
from ncu_launch.files.run_files import INDUCTOR
from ncu_launch.notes import shown_notes

from ncu_tools.cli.program_options import Asked, program_options
from ncu_tools.cli.terminal_notes import MoreToSee
from ncu_tools.numbers.number_format import counted, plural
from ncu_tools.report.table import Table, markdown_text, printable, to_csv, to_json, to_markdown, to_text

if TYPE_CHECKING:
    from ncu_parsers.datasets.engine import Engine
    from ncu_parsers.sources.sources import Source
    from rich.console import RenderableType

    from ncu_tools.ceilings.machine_files import Machine
    from ncu_tools.report.head import Head

Function = TypeVar("Function", bound=Callable[..., None])
Row = TypeVar("Row")

FORMATS = ("text", "json", "csv", "markdown")
ROWS_SHOWN = 20
HEADS_SHOWN = 5
"""With more runs in one table, only this many have a head line."""
MACHINE_FORMATS = ("json", "csv")
PIECES_AT_ONCE = 1000
FILE, FOLDER = (click.Path(dir_okay=is_folder, file_okay=not is_folder, path_type=Path) for is_folder in (False, True))
"""Types of options that name a file or folder to write."""
WIDTH = "COLUMNS"
"""Environment variable with the width of lines, as set by shells and terminals."""
NARROWEST_TERMINAL, WIDTH_OF_PIPES = 40, 120
BAR_WIDTH = 20
TEXT_OF_LINES = "Look for the text of source lines below this folder."
PARQUET = b"PAR1"
"""The first bytes of a Parquet file."""


def options_in(kind: type[Any], name: str, *added: Callable[..., Any]) -> Callable[..., Any]:
    """Pass the options that are fields of the frozen dataclass `kind` to a command as one argument `name`.

    The options `added` are declared here, for several commands or beside the dataclass; else the command has them.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def gathered(**values: Any) -> Any:
            options = {field.name: values.pop(field.name) for field in fields(kind)}
            return command(**values, **{name: kind(**options)})

        found: Callable[..., Any] = gathered
        for option in reversed(added):
            found = option(found)
        return found

    return decorate


format_option = click.option(
    "--format", "output_format", type=click.Choice(FORMATS), default="text", show_default=True,
    help="How the table is written to standard output. Notes go to standard error.",
)  # fmt: skip
"""--format: the format of the table on standard output."""


def _machine(context: click.Context, parameter: click.Parameter, name: str | None) -> Machine | None:
    """The machine called `name`; raises `WrongUsage` with similar names if there is none."""
    if not name:
        return None
    from ncu_tools.ceilings.machine_files import find_machine, which_board

    machine = find_machine(name)
    echo_notes(which_board(name, machine))
    return machine


machine_option = click.option(
    "--machine", callback=_machine, metavar="NAME",
    help="Take ceilings that the report lacks from this machine (see ncu-bench machines).",
)  # fmt: skip
"""--machine: ceilings of a named machine, passed to the command as a `Machine`."""
argument_option = click.option(
    "--arg", "arguments", multiple=True, metavar="NAME=VALUE",
    help="An argument of FILE.py:FUNCTION, or of make_inputs beside it, by its type: n=4096, dtype=fp16. Repeated.",
)  # fmt: skip
"""--arg: argument values of a user's function."""
vary_option = click.option(
    "--vary", "variants", multiple=True, metavar="NAME=V1,V2,...",
    help="A point for each value of an argument, or of batch_size, seq_len, dtype ...: n=64..4096*2, "
    "m,n=1024x1024,2048x512. Repeated: every combination.",
)  # fmt: skip
"""--vary: values of arguments and settings, a point for each."""


def settings_options(command: Function) -> Function:
    """--formulas and --capture: files that are read with traces, passed to the command as `Settings`."""

    @wraps(command)
    def told(**values: Any) -> None:
        from ncu_parsers.sources.settings import Settings

        settings = Settings(values.pop("formulas"), values.pop("capture"))
        if settings.formulas:
            from ncu_launch.operators import formulas_in

            formulas_in(settings.formulas)  # a wrong file is refused before a report is read
        command(**values, settings=settings)

    formulas = click.option(
        "--formulas", metavar="FILE.toml", default="",
        help="For traces: FLOPs and bytes of operators by formulas of your own (docs/shapes.md).",
    )  # fmt: skip
    capture = click.option(
        "--capture", metavar="TRACE", default="",
        help="For traces: take operators of replayed CUDA graphs from the trace of their capture (docs/shapes.md).",
    )  # fmt: skip
    return formulas(capture(told))  # type: ignore[return-value]


def inductor_option(command: Function) -> Function:
    """--inductor: torch.compile's records of its kernels; default: the file kept by the only run, "" if none."""

    @wraps(command)
    def told(**values: Any) -> None:
        path = values.pop("inductor")
        if path and values.get("dask") and values.get("group") == "location":
            raise WrongUsage(
                "--inductor is read by this process alone, and --dask has others sum locations.",
                advice="Leave one of them out.",
            )
        path = path or _kept_beside(values["runs"])
        if path:
            from ncu_parsers.derived.operators.inductor_sources import compiled_in

            compiled_in(path)  # a folder without kernels is refused before a report is read
        command(**values, inductor=path)

    return click.option(
        "--inductor", metavar="FOLDER", default="",
        help="For kernels that torch.compile generated: name their operators and lines, from what it wrote into this "
        "folder (docs/hotspots.md).",
    )(told)  # type: ignore[return-value]  # fmt: skip


def _kept_beside(runs: Sequence[str]) -> str:
    """The file of generated kernels in the folder of the only run; "" without one."""
    path = Path(runs[0]) if len(runs) == 1 else None
    kept = None if path is None else (path if path.is_dir() else path.parent) / INDUCTOR
    with suppress(OSError):  # an inaccessible folder; reading the run reports it
        return str(kept) if kept is not None and kept.is_file() else ""
    return ""


dask_option = click.option(
    "--dask", metavar="ADDRESS|local",
    help="Distribute the work on a dataset: to the dask scheduler at an address, or over the local cores; without "
    "options that choose launches.",
)  # fmt: skip
"""--dask: distribute the work on many reports."""


def source_root_option(text: str = TEXT_OF_LINES) -> Callable[[Function], Function]:
    """--source-root: the folder of source; `text` is its help."""
    folder = click.Path(exists=True, file_okay=False, path_type=Path)
    return click.option("--source-root", type=folder, metavar="DIR", help=text)


def top_option(rows: str, default: int = ROWS_SHOWN, least: int = 1) -> Callable[[Function], Function]:
    """--top: how many of the `rows`, a plural noun, are shown; None if not given."""
    return click.option(
        "--top", type=click.IntRange(min=least), help=f"How many {rows} to show.  [default: {default}; JSON, CSV: all]"
    )


def rows_shown(top: int | None, output_format: str, default: int = ROWS_SHOWN) -> int | None:
    """The most rows of a table: --top, else a default for people; None for all."""
    return default if top is None and output_format not in MACHINE_FORMATS else top


def hidden_rows(every: int, shown: int | None, row: str, does: tuple[str, str] = ("", "")) -> list[str]:
    """The note on the rows beyond `shown` of `every`, with a noun for one and what one and several do; [] if none."""
    hidden = 0 if shown is None else every - shown
    more = counted(hidden, f"more {row} {does[0]}".rstrip(), f"more {plural(row)} {does[1]}".rstrip())
    return [MoreToSee(f"{more}; --top shows more")] if hidden > 0 else []


def first_rows(
    rows: Sequence[Row], top: int | None, output_format: str, row: str, default: int = ROWS_SHOWN
) -> tuple[list[Row], list[str]]:
    """The rows to show, by --top or a default for people, and the note on the others; `row` is a noun for one."""
    shown = rows_shown(top, output_format, default)
    return list(rows[:shown]), hidden_rows(len(rows), shown, row)


@contextmanager
def engine_of(dask: str | None) -> Iterator[Engine | None]:
    """The engine for --dask, None without it. Raises `NcuBenchError` if it cannot be used."""
    if dask is None:
        yield None
        return
    from ncu_parsers.datasets.dask_engine import dask_engine

    with dask_engine(dask) as engine:
        yield engine


def show(table: Table, output_format: str, *, full_names: bool = False, head: Head | None = None) -> None:
    """Write a table to standard output, below its head; notes go to standard error, or into the JSON or Markdown."""
    table.notes = list(dict.fromkeys(table.notes))
    if head is not None:
        echo_head(head, output_format)
        table.extra = {"head": head.as_json(), **table.extra}
    if output_format in MACHINE_FORMATS:
        _write(to_json(table) if output_format == "json" else to_csv(table))
    elif output_format == "markdown":
        table.notes = shown_notes(table.notes)
        echo_markdown(table)
    else:
        echo_text(table, full_names=full_names)
    if table.notes and output_format in ("text", "csv"):
        echo_notes(table.notes)


def show_if_any(table: Table, output_format: str, head: Head) -> None:
    """As `show`, but as text only the head and the notes of a table without rows."""
    if table.rows or output_format != "text":
        show(table, output_format, head=head)
    else:
        echo_head(head, output_format)
        echo_notes(table.notes)


def echo_head(head: Head, output_format: str, *, widest: int | None = None) -> None:
    """Write the line above a table, at most `widest` columns, and an empty one; JSON has it as `head`, CSV does not."""
    echo_heads([head], output_format, widest=widest)


def echo_heads(
    heads: Sequence[Head], output_format: str, first: str | None = None, *, widest: int | None = None
) -> None:
    """Write the lines of several runs above their table (a few, if many), and the sentence on what changed `first`."""
    if output_format in MACHINE_FORMATS or not heads:
        return
    width = terminal_width()
    width = widest if width is None else width if widest is None else min(width, widest)
    shown = list(heads[:HEADS_SHOWN])
    shown[-1] = shown[-1] if first is None else replace(shown[-1], first=first)
    if output_format == "text":
        click.echo("\n".join(one.text(width) for one in shown) + "\n")
    else:
        click.echo("\n\n".join(markdown_text(one.text()) for one in shown) + "\n")


def page_width(widest: int) -> int:
    """The width of pages of text: that of standard output, but at most `widest`, which --wide gives too."""
    return min(terminal_width() or widest, widest)


def echo_page(lines: Iterable[str], notes: Sequence[str], head: Head | None = None, *, widest: int = 0) -> None:
    """Write lines of text, below a head of at most `widest` columns if there is one; notes go to standard error."""
    if head is not None:
        echo_head(head, "text", widest=widest)
    click.echo("\n".join(lines))
    echo_notes(notes)


def echo_text(table: Table, *, full_names: bool = False) -> None:
    """Write a table as text that fits the width."""
    full_names = full_names or program_options().full_names
    click.echo(to_text(table, terminal_width(), full_names=full_names, colours=has_colours(sys.stdout)))


def echo_markdown(table: Table) -> None:
    """Write a table as Markdown, with the requested names."""
    click.echo(to_markdown(table, full_names=program_options().full_names, wide=program_options().wide))


def _write(pieces: Iterable[str]) -> None:
    """Write long output to standard output, many pieces at a time."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.ensure_object(Asked).told = True
    remaining = iter(pieces)
    while some := "".join(islice(remaining, PIECES_AT_ONCE)):
        click.echo(some, nl=False)
    click.echo()


def terminal_width() -> int | None:
    """The most columns of a line on standard output; None with --wide.

    Pipes and files are read by people too: they get `WIDTH_OF_PIPES` if no width is set.
    """
    return None if program_options().wide else width_of(sys.stdout) or WIDTH_OF_PIPES


def width_of(stream: TextIO) -> int | None:
    """The width from `WIDTH`, or of a terminal stream; None for other pipes and files."""
    named = os.environ.get(WIDTH, "")
    if named.isdecimal():
        return max(int(named), NARROWEST_TERMINAL)
    if not stream.isatty():
        return None
    import shutil  # imports archive modules, which pipes do not need

    return shutil.get_terminal_size().columns


def has_colours(stream: TextIO) -> bool:
    """True if a stream is a terminal with colours, which NO_COLOR and TERM=dumb switch off (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def echo_notes(notes: Sequence[str]) -> None:
    """Print the most important notes on standard error, in a few lines; all of them with --notes."""
    from ncu_tools.cli.terminal_notes import fitted_notes

    every = program_options().notes
    for line in fitted_notes(notes, None if every else width_of(sys.stderr) or WIDTH_OF_PIPES):
        click.echo(line, err=True)


def require_other_output(output: Path, inputs: Iterable[str]) -> None:
    """Raise `WrongUsage` if a command would overwrite one of its inputs."""
    if output.is_file() and any(Path(one).is_file() and output.samefile(one) for one in inputs):
        raise WrongUsage(f"{output} is read, and would be written over.", advice="Name another file with -o.")


def require_parquet_output(output: Path) -> None:
    """Raise `WrongUsage` if a table would overwrite a file that is not Parquet: probably a report."""
    if output.suffix != ".parquet" and output.is_file() and output.stat().st_size:
        with output.open("rb") as file:
            if file.read(len(PARQUET)) == PARQUET:
                return
        raise WrongUsage(
            f"{output} is there already, and is no Parquet file.",
            "Without a name after -o, the shell may have put a report there.",
            "Name another file, or remove this one.",
        )


@contextmanager
def progress(task: str) -> Iterator[Callable[[Source], None]]:
    """Show on standard error which source is being read, with a bar if there are several; silent unless a terminal."""
    if not sys.stderr.isatty():  # rich is slow to import
        yield lambda source: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(task) as status:
        yield lambda source: status.update(_read_so_far(task, source))


def _read_so_far(task: str, source: Source) -> RenderableType:
    """The file name of a source, without its folder; with several sources, preceded by their number and a bar."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table as Grid
    from rich.text import Text

    name = Text(printable(Path(source.name).name), no_wrap=True, overflow="ellipsis")
    if source.of == 1:
        return Text.assemble(f"{task} ", name, no_wrap=True, overflow="ellipsis")
    line = Grid.grid(padding=(0, 1))
    line.add_row(
        Text(f"{task} {source.number} of {source.of}", no_wrap=True),
        ProgressBar(source.of, source.number - 1, width=BAR_WIDTH),
        name,
    )
    return line


@contextmanager
def status_and_lines(task: str = "") -> Iterator[tuple[Callable[[str], None], Callable[[str], None]]]:
    """Yield a function that replaces the status (on a terminal only), and one that prints a line above it: on
    stderr."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    with console.status(task) if console.is_terminal else nullcontext() as status:

        def replace(text: str) -> None:
            if status is not None:
                status.update(Text(printable(text)))  # as Text: brackets in a name would be markup

        yield replace, lambda line: console.print(Text(printable(line)), soft_wrap=True)
