"""The command line: one file per command, loaded only when it is used, and one border where errors become exit codes.

Exit codes: 0 done, 1 the thing asked for failed, 2 wrong usage, 3 a gate tripped.
"""

from __future__ import annotations

import importlib
import sys

import click

COMMANDS = {
    "profile": "Run a model or a program under a profiler, and show its kernels.",
    "parse": "Any Nsight Compute report -> launches.parquet.",
    "hotspots": "Which kernels take the time, and what bounds each.",
    "roofline": "Kernels on a roofline: points, ceilings, a picture.",
    "layers": "The layers of a model as a tree, with time, FLOPs and bytes.",
    "skew": "Kernels and layers across ranks, the slowest rank, and where it loses its time.",
    "query": "SQL over the launches and kernels of a run.",
    "export": "A run for speedscope, Perfetto, spreadsheets, or as ncu's details page.",
    "report": "Runs as one HTML page: roofline, hotspots, layers, linked and self-contained.",
    "join": "Counts of ncu with the times of a timeline -> one Parquet file.",
    "bench": "Latency, throughput and memory of models over sizes, types and modes.",
    "scaling": "How latency and throughput of a sweep follow its sizes.",
    "compare": "What changed between runs, and gates for CI.",
    "expected": "Measured FLOPs and bytes beside those of operator formulas.",
    "estimate": "FLOPs, bytes and the time a machine needs at best, with nothing run.",
    "metrics": "What each group of metrics collects on a chip, and in how many passes.",
    "machines": "Peaks and bandwidths of machines, with their sources.",
    "doctor": "What of this machine stands in the way of profiling.",
}
"""Every command with its line in the help. The command itself is the function `command` of the module of its name."""


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command runs, so that --help answers at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command called `cmd_name`, or None."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"ncu_tools.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ncu-bench", prog_name="ncu-bench")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """What bounds each kernel? Rooflines and hotspots from any Nsight Compute report.

    \b
    Example:
      ncu-bench hotspots report.csv
      ncu-bench roofline report.csv -o roofline.svg
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    sys.exit(run(arguments))


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code. Errors are one paragraph on stderr."""
    from ncu_launch.errors import NcuBenchError

    debug = "--debug" in arguments
    try:
        code = cli.main(args=arguments, prog_name="ncu-bench", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("Stopped.", err=True)
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except NcuBenchError as error:
        if debug:
            raise
        click.echo(f"Error: {_printable(error.paragraph)}", err=True)
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; nothing is left to say
        return 0
    return code if isinstance(code, int) else 0


def _printable(text: str) -> str:
    from ncu_tools.report.table import printable

    return printable(text)
