"""ncu-bench bench: latency, throughput and memory of models over batch sizes, input sizes, types, modes and phases."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from ncu_launch.bench.latency_statistics import Effort
from ncu_launch.bench.point_outcomes import OK
from ncu_launch.bench.sweep import BenchPoint, Sweep, argument_names, has_all, points, process_means, rows_of
from ncu_launch.counters.metric_groups import refuse_unknown
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.run_files import BENCH_FILE, LOGS, MANIFEST
from ncu_launch.files.run_folder import begin_sweep, end_sweep, writing
from ncu_launch.profilers.commits import commit_here
from ncu_launch.targets.function_arguments import split
from ncu_launch.targets.model_name_check import misspelt
from ncu_launch.targets.user_functions import refuse_unknown_arguments
from ncu_launch.targets.varied_arguments import variants_of
from ncu_launch.workload_spec import DEVICES, DTYPES, MODES, PHASES
from ncu_parsers.parquet.writer import write_table

from ncu_tools.bench.dask_sweep import rows_by_dask
from ncu_tools.cli.collecting.bench_against import AgainstOptions, against_options, measure_against
from ncu_tools.cli.collecting.bench_notes import notes_of_sweep, plus_minus
from ncu_tools.cli.collecting.profiled_points import COUNTERS
from ncu_tools.cli.collecting.sampled_power import EVERY, SHOWN
from ncu_tools.cli.option_kinds.language_options import LanguageOptions, language_options, require_sizes_of
from ncu_tools.cli.option_kinds.list_option import list_option
from ncu_tools.cli.options import (
    FOLDER,
    MACHINE_FORMATS,
    argument_option,
    echo_notes,
    format_option,
    options_in,
    show,
    status_and_lines,
    vary_option,
)
from ncu_tools.cli.views import Verb
from ncu_tools.numbers.number_format import counted, digits, duration
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table, columns_of_arguments, raw_column

COLUMNS = (
    *columns(
        "target device dtype mode phase batch_size~0 input_size sequence_length latency_mean_ns~0 plus_minus "
        "latency_median_ns latency_p95_ns latency_p99_ns iterations processes rate~0 first_token_ns "
        "output_token_ns sequence_throughput memory_peak_bytes weight_bytes kv_cache_bytes activation_bytes "
        "mfu mbu of_the_roof"
    ),
    *COUNTERS,
    *columns("self_cpu_time_ns self_gpu_time_ns throttling outcome~0 reason"),
)
SIZE = click.IntRange(min=1)
NOT_SHOWN = ("samples_ns", "process_means_ns", "notes", "language_facts")
UTILISATION = tuple(column for column in COLUMNS if column.name in ("mfu", "mbu", "of_the_roof"))
AT = [column.name for column in COLUMNS].index("latency_mean_ns")
"""Position of argument columns: after the sizes."""
POWER_AT = [column.name for column in COLUMNS].index("self_cpu_time_ns")
"""Position of columns with sampled values: after the counters."""
Row = dict[str, Any]


@dataclass(frozen=True)
class SweepOptions:
    """The options that define the points of a sweep."""

    batch_sizes: tuple[int, ...]
    input_sizes: tuple[int, ...]
    sequence_lengths: tuple[int, ...]
    dtypes: tuple[str, ...]
    modes: tuple[str, ...]
    devices: tuple[str, ...]
    phases: tuple[str, ...]
    autocast: bool
    channels_last: bool
    arguments: tuple[str, ...]
    variants: tuple[str, ...]
    language: LanguageOptions

    def of(self, targets: tuple[str, ...]) -> Sweep:
        """The sweep of these models. Raises `WrongUsage` for a malformed argument or variation."""
        self.language.require_causal(targets)
        require_sizes_of(targets, image=bool(self.input_sizes), sequence=bool(self.sequence_lengths))
        options = asdict(self) | {"arguments": (split(self.arguments),), "variants": variants_of(self.variants)}
        del options["language"]
        options["languages"] = self.language.combinations()
        for name in ("input_sizes", "sequence_lengths"):
            options[name] = options[name] or (None,)
        return Sweep(targets, **options)


@dataclass(frozen=True)
class EffortOptions:
    """The options on the time per point: `precision` in percent, `max_time` in s, `warmup` iterations."""

    precision: float
    max_time: float
    warmup: int
    power: bool

    @property
    def effort(self) -> Effort:
        """The options as the timing processes expect them."""
        return Effort(precision=self.precision / 100, max_s=self.max_time, warmup=self.warmup, power=self.power)


@click.command(cls=Verb)
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@click.option("-o", "--output", type=FOLDER, help="The run folder to write.")
@click.option("--resume", is_flag=True, help="Go on with the sweep in this run folder: measure what has no row yet.")
@click.option("--retry-failed", is_flag=True, help="With --resume, measure points again that are not ok.")
@list_option("--batch-size", "batch_sizes", type=SIZE, default=(1,), metavar="N,...", help="Samples.  [default: 1]")
@argument_option
@vary_option
@list_option("--input-size", "input_sizes", type=SIZE, metavar="N,...", help="Image heights and widths.")
@list_option(
    "--seq-len", "sequence_lengths", type=SIZE, metavar="N,...", help="Sequence lengths of hf: models and of functions."
)
@list_option("--dtype", "dtypes", type=click.Choice(DTYPES), default=("fp32",), help="Types.  [default: fp32]")
@click.option("--autocast", is_flag=True, help="Keep fp32 weights and let PyTorch choose the type per operator.")
@list_option("--mode", "modes", type=click.Choice(MODES), default=("eager",), help="Modes.  [default: eager]")
@click.option("--channels-last", is_flag=True, help="Keep images as NHWC.")
@list_option("--on", "devices", type=click.Choice(DEVICES), default=("auto",), help="Where to run.  [default: auto]")
@list_option(
    "--phase", "phases", type=click.Choice(PHASES), default=("forward",),
    help="Phases; backward is timed alone, a step is both and the optimizer; prefill and decode are of causal language "
    "models.  [default: forward]",
)  # fmt: skip
@click.option("--precision", type=click.FloatRange(0.01, 50), default=1.0, show_default=True, metavar="PERCENT",
    help="Time until the 95 % interval of the mean is within this on either side.",
)  # fmt: skip
@click.option("--max-time", type=click.FloatRange(0.01), default=10.0, show_default=True, metavar="SECONDS",
    help="How long to time a point at most, however wide its interval is.",
)  # fmt: skip
@click.option("--warmup", type=click.IntRange(min=0), default=10, show_default=True, help="Iterations before timing.")
@click.option("--power", is_flag=True,
    help="Sample each GPU's power, energy, clocks and activity too, for 3 s after timing a point (NVML).",
)  # fmt: skip
@click.option("--processes", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
    help="Measure each point in this many processes, in rounds over all points. The interval then covers the "
    "scatter between processes, which compare needs to tell a change from noise.",
)  # fmt: skip
@click.option("--timeout", type=click.FloatRange(min=1), default=600.0, show_default=True, metavar="SECONDS",
    help="End a process after this long: its point's row says so.",
)  # fmt: skip
@click.option(
    "--dask",
    metavar="ADDRESS|local",
    help="Have the workers of a dask scheduler measure, one point at a time on each of their GPUs.",
)
@list_option(
    "--metrics", metavar="GROUP,...",
    help="Count too, in a profiled run of each point: groups, names and patterns as for profile. Times stay those of "
    "runs without a profiler.",
)  # fmt: skip
@language_options
@against_options
@format_option
@options_in(SweepOptions, "points_asked")
@options_in(EffortOptions, "timing")
def command(
    targets: tuple[str, ...],
    output: Path | None,
    resume: bool,
    retry_failed: bool,
    points_asked: SweepOptions,
    timing: EffortOptions,
    pairing: AgainstOptions,
    processes: int,
    timeout: float,
    dask: str | None,
    metrics: tuple[str, ...],
    output_format: str,
) -> None:
    """Measure latency, throughput and memory of models, every combination of the sizes, types, modes and phases given.

    TARGET is a model as for profile; one written as FILE.py:FUNCTION or package.module:FUNCTION imports your code, and
    the function is given the sizes that it has arguments for. Every point
    runs in processes of its own: one that runs out of memory, crashes or hangs is a row that says so. Rows land in
    bench.parquet of the run folder as they finish; --resume goes on where a sweep stopped. Times are of iterations one
    by one, between CUDA events on a GPU and by the clock on a CPU.

    \b
    Example:
      ncu-bench bench resnet50 vit_b_16 --batch-size 1,8,16,32 --dtype fp32,fp16 -o sweep
      ncu-bench bench kernels.py:softmax --vary n=1024..16384*2 --metrics flops,dram -o sizes
      ncu-bench bench hf:bert-base --seq-len 64,128,256,512 -o lengths && ncu-bench bench lengths
      ncu-bench bench hf:llama-3.2-1b --phase decode --context-length 256,1024,4096 --batch-size 1,8 --dtype bf16
      ncu-bench bench kernels.py:softmax --arg n=4096 --against torch.nn.functional:softmax --arg dim=-1
    """
    refuse_unknown(metrics)
    pairing.check(resume=resume, dask=dask, metrics=metrics, power=timing.power)
    if metrics and dask:
        raise WrongUsage("--metrics counts on this machine, and --dask measures on others.", advice="Leave one out.")
    if timing.power and not dask:
        from ncu_launch.profilers.sampling.nvml import require_nvml

        require_nvml()
    elsewhere = dask not in (None, "local")  # the workers may have another torchvision
    wrong = [error for error in map(misspelt, targets) if error is not None and not elsewhere]
    if len(wrong) == len(targets):
        raise wrong[0]
    echo_notes([f"{error.paragraph} The others are measured." for error in wrong])
    sweep, effort = points_asked.of(targets), timing.effort
    for target in targets:
        refuse_unknown_arguments(target, argument_names(sweep), pairing.against)
    requested = points(sweep)
    folder = output or Path("runs") / f"bench-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}"
    _check_folder(folder, resume, retry_failed)
    if pairing.against is not None:
        with writing(folder):
            measure_against(
                pairing,
                requested,
                folder,
                effort=effort,
                timeout=timeout,
                processes=processes,
                output_format=output_format,
            )
        return
    with writing(folder):
        kept = _kept(folder, retry_failed) if resume else None
        missing, begun = _left_of(requested, kept, processes)
        if resume:
            done = f"{_of(len(requested) - len(missing), len(requested))} measured"
            click.echo(done + (f", {len(begun)} by fewer than {processes} processes." if begun else "."), err=True)
        stopped = _measured(folder, kept, missing, begun, effort, timeout, processes, dask)
        if metrics and not stopped:
            from ncu_launch.profile.plan import Request

            from ncu_tools.cli.collecting.terminal_listener import Terminal
            from ncu_tools.profiling.varied_profile import count_measured

            count_measured(folder, requested, metrics, Request(tuple(sys.argv), metrics), Terminal())
    if stopped:
        number = len(requested) - sum(has_all(row, processes) for row in _rows_of(folder, requested))
        click.echo(f"{_of(number, len(requested))} left; the same command with -o {folder} --resume goes on.", err=True)
        raise click.Abort
    rows = _rows_of(folder, requested)
    if any(row["language_facts"] for row in rows):
        from ncu_tools.model.language.measured_points import with_utilisation

        rows, on_utilisation = with_utilisation(rows)
    else:
        on_utilisation = []
    show(_table(rows, [*notes_of_sweep(rows, sweep, effort, folder), *on_utilisation], output_format), output_format)
    if not any(row["outcome"] == OK for row in rows):
        raise NcuBenchError(
            "No point could be measured.", f"The first: {rows[0]['reason'].rstrip('.')}.", "See its row and log."
        )


# ----------------------------------------------------------------------------------------------------- the run folder


def _of(number: int, points: int) -> str:
    """The start of a sentence, such as "1 of 3 points is"."""
    return f"{number} of {counted(points, 'point', 'points')} {'is' if number == 1 else 'are'}"


def _check_folder(folder: Path, resume: bool, retry_failed: bool) -> None:
    """Raise `WrongUsage` if a folder has files and the sweep is not resumed, or the reverse."""
    if retry_failed and not resume:
        raise WrongUsage("--retry-failed goes with --resume.", advice="Name the run folder with -o, and --resume.")
    if not resume and folder.is_dir() and any(folder.iterdir()):
        raise WrongUsage(
            f"{folder} already holds files.", advice="Go on with its sweep by --resume, or name another folder with -o."
        )
    if resume and not folder.is_dir():
        raise WrongUsage(f"There is no sweep in {folder}.", advice="Name its run folder with -o.")


def _kept(folder: Path, retry_failed: bool) -> pa.Table | None:
    """The rows already in a run folder; None if there are none."""
    file = folder / BENCH_FILE
    if not file.is_file():
        return None
    from ncu_parsers.parquet.reader import read_bench

    table = read_bench(file)
    return table.filter([outcome == OK for outcome in table.column("outcome").to_pylist()]) if retry_failed else table


def _left_of(requested: list[BenchPoint], kept: pa.Table | None, processes: int) -> tuple[list[BenchPoint], list[Row]]:
    """The points that still need a process, and the rows of those that were partly measured."""
    if kept is None:
        return requested, []
    from ncu_parsers.schema.bench_table import rows_of as rows_of_table

    rows = {row["point"]: row for row in kept.drop_columns(["samples_ns"]).to_pylist()}
    missing = [point for point in requested if point.name not in rows or not has_all(rows[point.name], processes)]
    begun = {point.name for point in missing} & rows.keys()
    return missing, rows_of_table(kept.filter([name in begun for name in kept.column("point").to_pylist()]))


def _rows_of(folder: Path, requested: list[BenchPoint]) -> list[Row]:
    """The rows of these points, in the requested order."""
    from ncu_parsers.parquet.reader import read_bench

    file = folder / BENCH_FILE
    if not file.is_file():
        return []
    rows = {row["point"]: row for row in read_bench(file).drop_columns(["samples_ns"]).to_pylist()}
    return [rows[point.name] for point in requested if point.name in rows]


def _measured(
    folder: Path,
    kept: pa.Table | None,
    missing: list[BenchPoint],
    begun: list[Row],
    effort: Effort,
    timeout: float,
    processes: int,
    dask: str | None,
) -> bool:
    """Measure points, rewriting the file after each process; True if stopped before the end.

    With dask the file is written after each point, and partly measured points are measured completely again, on one
    machine.
    """
    from ncu_parsers.schema.bench_table import with_row

    logs, manifest = folder / LOGS, begin_sweep(folder, sys.argv, commit_here())
    table, versions = kept, set[str]()
    try:
        total = processes * len(missing) - sum(len(process_means(row)) for row in begun)
        with _progress(len(missing) if dask else total) as (heard, finished):
            if dask:
                rows = rows_by_dask(dask, missing, effort, timeout, processes, logs)
            else:
                rows = rows_of(missing, effort, timeout, logs, on_stage=heard, processes=processes, begun=begun)
            for row in rows:
                table = with_row(table, row, asked=sys.argv)
                write_table(table, folder / BENCH_FILE)
                versions |= {row["torch"]} if "torch" in row else set()
                finished(row)
    except KeyboardInterrupt:
        return True
    except NcuBenchError:
        if table is None:  # nothing was begun, so the same command can be repeated
            (folder / MANIFEST).unlink(missing_ok=True)
            with suppress(OSError):  # a log may be there
                logs.rmdir()
        raise
    end_sweep(manifest, folder, versions)
    return False


# ----------------------------------------------------------------------------------------------------------- progress


@contextmanager
def _progress(total: int) -> Iterator[tuple[Callable[[BenchPoint, str], None], Callable[[Row], None]]]:
    """Yield callbacks for the stage of a point and for a finished row: they print lines, and on a terminal a status."""
    began, done = time.monotonic(), 0
    with status_and_lines() as (status, line):

        def heard(point: BenchPoint, stage: str) -> None:
            left = _time_left(time.monotonic() - began, done, total)
            status(f"{done + 1}/{total} {point.name}: {stage}{left}")

        def finished(row: Row) -> None:
            nonlocal done
            done += 1
            line(f"{done}/{total} {row['point']}: {_in_words(row)}")

        yield heard, finished


def _time_left(seconds: float, done: int, total: int) -> str:
    if not done:
        return ""
    left = seconds / done * (total - done)
    return f", {left / 60:.0f} min left" if left >= 90 else f", {left:.0f} s left"


def _in_words(row: Row) -> str:
    if row["outcome"] != OK:
        return f"{row['outcome']} ({row['reason']})"
    spread = plus_minus(row)
    if spread is None:
        return duration(row["latency_mean_ns"])
    return f"{duration(row['latency_mean_ns'])} ± {100 * spread:.{2 if spread < 0.1 else 3}g} %"


# ---------------------------------------------------------------------------------------------------------- the table


def _table(rows: list[Row], notes: list[str], output_format: str) -> Table:
    from ncu_parsers.schema.bench_table import COLUMN_NAMES
    from ncu_parsers.schema.bench_table import COLUMNS as ALL

    sampled = [one for one in EVERY if one.name in rows[0]]
    shares = {column.name for column in UTILISATION}
    known = COLUMN_NAMES.union(shares, (one.name for one in sampled))
    names = dict.fromkeys(name for row in rows for name in row if name not in known)
    own = columns_of_arguments(list(names), rows, (*COLUMNS, *SHOWN), spare=0)
    if output_format in MACHINE_FORMATS:
        columns = [raw_column(one.name, str(one.type), one.unit) for one in ALL if one.name not in NOT_SHOWN]
        further = UTILISATION if any(row.get("mfu") is not None or row.get("mbu") is not None for row in rows) else ()
        return Table("bench", [*columns, *sampled, *further, *own], rows, notes)
    columns = [*COLUMNS[:AT], *own, *COLUMNS[AT:POWER_AT], *SHOWN, *COLUMNS[POWER_AT:]]
    return Table("bench", columns, [_for_people(row) for row in rows], notes)


def _for_people(row: Row) -> Row:
    """A row with its throughput as text and the width of its interval; the outcome only if it is not ok."""
    if row["outcome"] != OK:
        return row
    rate = f"{digits(row['throughput'])} {row['throughput_unit']}" if row["throughput"] else None
    number = len(process_means(row))
    several = number if number > 1 else None
    weights = row["parameter_bytes"] if row["kv_cache_bytes"] is not None else None
    return {
        **row, "rate": rate, "plus_minus": plus_minus(row), "processes": several, "outcome": None,
        "weight_bytes": weights,
    }  # fmt: skip
