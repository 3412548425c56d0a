"""The command line: one file per command, imported only when used, and one place that turns errors into exit codes.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a gate tripped, 4 a gate cannot tell, 130 stopped by Ctrl-C, 143 by
SIGTERM.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import click

from ncu_tools.cli.old_names import OLD_NAMES, in_new_words, tell_new_words
from ncu_tools.cli.program_options import PROGRAM_OPTIONS, Asked
from ncu_tools.cli.shell import COMPLETE
from ncu_tools.cli.views import load

COMMANDS = {
    "profile": "Run a model or a program under a profiler, and show its kernels.",
    "bench": "Latency, throughput and memory of models, and fits of sweeps.",
    "parse": "Any report as a Parquet file, a row per launch.",
    "hotspots": "Which kernels or layers take the time, and what bounds each.",
    "kernel": "One kernel seen whole: its limits, occupancy, stalls, verdict.",
    "advise": "What can be done about kernels, and what it will bring.",
    "source": "Inside a kernel: its hottest lines, and what they wait for.",
    "timeline": "Where a step's time goes, gaps by cause, and the slowest rank.",
    "roofline": "Kernels on a roofline: points, ceilings, a picture.",
    "compare": "What changed between runs, gates for CI, runs against formulas.",
    "history": "What changed over many runs, when, by which commit, and why.",
    "estimate": "FLOPs, bytes and least time on a machine, with nothing run.",
    "report": "Runs as a page, a digest in few words, or for other programs.",
    "query": "SQL over the launches and kernels of a run.",
    "machines": "Peaks of machines with their sources, and the metrics of chips.",
    "doctor": "What on this machine prevents profiling.",
    "mcp": "A server for chat assistants, and JSON Schemas of all answers.",
}
"""Every command with its line in the help. Each is the function `command` of the module of the same name."""
COLLECTING = ("profile", "bench", "estimate", "machines", "doctor")
INSIDE = ("kernel", "source")
FOLDERS = {
    **dict.fromkeys(COLLECTING, "collecting"), **dict.fromkeys(INSIDE, "reading.inside"), "compare": "comparing",
    "history": "comparing", "mcp": "programs", "completion": "shell",
}  # fmt: skip
"""Command -> its folder; all others are in `reading`."""
OLD = ("completion",)
"""Unlisted commands that work for one more release."""


STOPPED, TERMINATED = 130, 143

OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""Imports and tables have almost no reference cycles. With Python's own threshold, garbage collection takes 7 % of the
time in which the plain reader reads a report of 10 MB (0.4 s), and less than 15 ms with the compiled reader."""

MEMORY_RAN_OUT = (
    "Memory ran out. The system gives this program less than it needs, or less than --memory-limit lets it take. Read "
    "fewer reports at once, set a lower --memory-limit so that what is too big is named, or use a machine with more."
)


class ReaderLeft(Exception):
    """The reader of our output has closed the pipe, as `head` does. click would exit with code 1."""


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Raise `ReaderLeft` if nobody reads our output any more, and `NcuBenchError` for a pipe to another process."""
    try:
        yield
    except BrokenPipeError as error:
        if _is_unread(sys.stdout) or _is_unread(sys.stderr):
            raise ReaderLeft from error
        from ncu_launch.errors import NcuBenchError

        raise NcuBenchError(
            "A process that this one works with ended early.",
            "It may have been stopped, or have run out of memory.",
            "Look for it in the system's log; --debug shows what was written to it.",
        ) from error


def _is_unread(stream: TextIO) -> bool:
    """True if a stream is a pipe without a reader, or if the system cannot tell."""
    import select

    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    try:
        poll.register(stream, 0)
    except (OSError, ValueError):  # it has no descriptor, or is closed
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command runs, so that --help is fast."""

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        """As in click, but a reader that left is not a failure."""
        with reader_may_leave():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: click.Context) -> Any:
        """As in click, but a reader that left is not a failure."""
        with reader_may_leave():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command named `cmd_name`, or None."""
        if cmd_name not in (*COMMANDS, *OLD):
            return None
        command = load(f"{FOLDERS.get(cmd_name, 'reading')}.{cmd_name}")
        command.name = cmd_name
        if not ctx.resilient_parsing:
            return command
        from ncu_tools.cli.shell.completed_values import with_completed_values

        return with_completed_values(command, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As in click, but an old name runs the new command, and the error for an unknown one names the most
        similar."""
        if args[0] in OLD_NAMES:
            words = in_new_words(args[0], args[1:], self.get_command(ctx, OLD_NAMES[args[0]].command))
            if not ctx.resilient_parsing:
                tell_new_words(args[0], words)
            args = words
        if args[0] not in (*COMMANDS, *OLD) and not ctx.resilient_parsing:
            import shlex

            from ncu_launch.errors import near_names

            from ncu_tools.cli.guessed_words import COMMANDS as GUESSED

            near = [f"Did you mean {one}?" for one in near_names(args[0], COMMANDS, most=1)]
            meant = GUESSED.get(args[0]) or (f"hotspots {shlex.quote(args[0])}" if Path(args[0]).exists() else "")
            guessed = [f"Type: ncu-bench {meant}."] if meant else near
            ctx.fail(" ".join([f"No such command '{args[0]}'.", *guessed]))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup, invoke_without_command=True, params=[*PROGRAM_OPTIONS],
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
@click.version_option(package_name="ncu-bench", prog_name="ncu-bench")
@click.pass_context
def cli(context: click.Context) -> None:
    """Which kernels take the time, what bounds each, what to change: from reports of ncu, nsys, PyTorch's profiler.

    Without a command: what of that is in this folder, and what to type next.

    \b
    Example:
      ncu-bench hotspots report.csv
      ncu-bench advise report.ncu-rep
      ncu-bench timeline trace.json.gz
      ncu-bench roofline report.csv -o roofline.svg
      ncu-bench compare before.csv after.csv --fail-on "any:time>5%"
      ncu-bench profile resnet18 -o run
    """
    if context.invoked_subcommand is None:
        from ncu_tools.cli.shell.folder_overview import overview

        for line in overview(Path()):
            click.echo(_printable(line))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    _open_standard_streams()
    terminated = _end_as_by_interrupt()
    try:
        code = run(arguments)
    except KeyboardInterrupt:  # before or after the command itself
        code = STOPPED
    sys.exit(TERMINATED if code == STOPPED and terminated else code)


def program() -> None:
    """The installed command: `main` in a process of its own, which exits without tearing down imported modules.

    Tearing down takes 50 to 70 ms of a small command. Other exit handlers run first.
    """
    codes: list[int] = []
    atexit.register(_end_at_once, codes)  # registered first, so called last
    try:
        main()
    except SystemExit as ended:
        codes.append(int(ended.code or 0))
        raise


def _end_at_once(codes: list[int]) -> None:
    """Exit the process with its exit code, unless an error escaped."""
    with suppress(OSError, ValueError):  # Python reports itself if output cannot be written
        for stream in (sys.stdout, sys.stderr):
            with suppress(BrokenPipeError):  # its reader is gone
                if not stream.closed:
                    stream.flush()
        if codes:
            os._exit(codes[0])


def _end_as_by_interrupt() -> list[int]:
    """Make SIGTERM, as schedulers send it, end every command like Ctrl-C: partial work is kept or cleaned up.

    The returned list is filled when the signal arrives. If the parent process ignores SIGTERM, so does this one.
    """
    came: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, interrupt)
    return came


def _open_standard_streams() -> None:
    """Open /dev/null for streams that a shell closed (>&-): else the next opened file would get their number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest free number
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code. Errors are one paragraph on stderr."""
    from ncu_launch.errors import NcuBenchError

    if COMPLETE in os.environ:
        from ncu_tools.cli.shell.bash_words import use_bash_words

        use_bash_words()
    asked = Asked()
    # Counters near the end of doubles may overflow; the result is not finite and is shown as unknown.
    warnings.filterwarnings("ignore", "(overflow|invalid value) encountered", RuntimeWarning)
    warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # a name in a script that no installed font has
    try:
        code = cli.main(args=arguments, prog_name="ncu-bench", standalone_mode=False, obj=asked)
    except click.exceptions.Abort:
        click.echo("Stopped.", err=True)
        return STOPPED
    except click.ClickException as error:
        return _tell(arguments, asked, error.exit_code, _paragraph(error))
    except NcuBenchError as error:
        if asked.debug:
            raise
        return _tell(arguments, asked, error.exit_code, error.paragraph, error.what, error.cause, error.advice)
    except ReaderLeft:
        sys.stderr.close()  # there is nobody to report to
        return 0
    except OSError as error:
        if asked.debug:
            raise
        return _tell(arguments, asked, 1, _trouble(error))
    except MemoryError:
        if asked.debug:
            raise
        return _tell(arguments, asked, 1, MEMORY_RAN_OUT)
    return code if isinstance(code, int) else 0


def _tell(arguments: list[str], asked: Asked, code: int, paragraph: str, *parts: str) -> int:
    """Report an error as one paragraph on stderr, and as JSON on stdout if JSON was requested; returns its exit code.

    `parts` are what happened, the cause and what to type, if the error has them.
    """
    click.echo(f"Error: {_printable(paragraph)}", err=True)
    from ncu_tools.cli.shell.error_json import asks_for_json, error_json

    if asks_for_json(arguments) and not asked.told:
        command = next((word for word in arguments if word in COMMANDS or word in OLD_NAMES), "")
        click.echo(error_json(command, code, *(parts or (paragraph,))))
    return code


TOO_MANY = "Got unexpected extra argument"
"""The beginning of click's message on more arguments than a command takes."""


def _paragraph(error: click.ClickException) -> str:
    """click's message, which repeats arguments unescaped, as one paragraph with advice."""
    text = " ".join(error.format_message().split()) + _near_choice(error)
    if isinstance(error, click.NoSuchOption):
        from ncu_tools.cli.guessed_words import instead_of_option

        if guessed := instead_of_option(error):
            text = f"No such option '{error.option_name}'. Type: {guessed}."
    if isinstance(error, click.MissingParameter) and error.param is not None:
        shown = error.param.make_metavar(error.ctx) if error.ctx else ""
        text += " Name a report or run, or - for standard input." if shown in ("RUN", "RUN...", "REPORT...") else ""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        stop = "" if text[-1:] in ".?!" else "."
        if error.message.startswith(TOO_MANY):
            pieces = error.ctx.command.collect_usage_pieces(error.ctx)
            text, stop = f"{text}{stop} The usage is: {' '.join([error.ctx.command_path, *pieces])}", "."
        text += f"{stop} For what can be typed: {error.ctx.command_path} --help"
    return text


def _near_choice(error: click.ClickException) -> str:
    """The valid choice most similar to an option's invalid value, as a question; "" for every other error."""
    given = re.match("'(.*?)' is not one of", error.message)
    if not isinstance(error, click.BadParameter) or error.param is None or given is None:
        return ""
    kind = error.param.type
    if not isinstance(kind, click.Choice):
        return ""
    from ncu_launch.errors import near_names

    from ncu_tools.cli.guessed_words import instead_of_value

    guessed = instead_of_value(error, given[1])
    near = [guessed] if guessed else near_names(given[1], map(str, kind.choices), most=1)
    return f" Did you mean {near[0]}?" if near else ""


def _trouble(error: OSError) -> str:
    """The message for an unhandled operating system error."""
    if isinstance(error, PermissionError) and error.filename:
        import shlex

        return (
            f"{error.filename} could not be opened: {error.strerror}. It, or a folder above it, is closed to you. "
            f"Look at its owner and mode: ls -ld {shlex.quote(str(Path(error.filename).parent))}"
        )
    what = f"{error.filename}: " if error.filename else ""
    advice = "Check the path, its permissions and the disk's free space; --debug shows what was tried."
    return f"{what}{error.strerror or error}. {advice}"


def _printable(text: str) -> str:
    from ncu_tools.report.table import printable

    return printable(text)
