"""`load`, `profile`, `estimate`, `expected_times` of `ncu_tools`, for notebooks and scripts: docs/python.md.

`import ncu_tools` imports this module, so everything heavy is imported where it is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.workload_spec import DEVICES, DTYPES, PHASES, Workload

if TYPE_CHECKING:
    import pandas as pd

    from ncu_tools.profiling.collected_profile import CollectedProfile
    from ncu_tools.report.notebook.profiled_run import ProfiledRun
    from ncu_tools.report.notebook.views import TableView

ARGUMENTS = {
    "--metrics": "metrics", "-o": "output", "--tool": "tool", "--batch-size": "batch_size",
    "--input-size": "input_size", "--seq-len": "sequence_length", "--dtype": "dtype", "--phase": "phases",
    "--on": "device", "--budget": "budget", "--machine": "machine",
}  # fmt: skip
"""Option of `ncu-bench profile` -> argument of `profile`."""
COMMAND = re.compile("ncu-bench |nsys profile |ncu --")


def load(
    run: str | os.PathLike[str], *, machine: str | None = None, formulas: str | os.PathLike[str] = "",
    capture: str | os.PathLike[str] = "", inductor: str | os.PathLike[str] = "", memory_limit: str = "",
) -> ProfiledRun:  # fmt: skip
    """Load the run that `run` names: a run folder, a report of any kind, a folder of reports, or Parquet from `parse`.

    `machine` gives ceilings that the report lacks; `formulas`, `capture`, `inductor` and `memory_limit` are the options
    of these names. They hold for this run alone. Raises `NcuBenchError` if nothing in the run can be read, and
    `WrongUsage` for an unknown machine, an invalid file of formulas, and an invalid limit.
    """
    from ncu_parsers.sources.memory import limited_to
    from ncu_parsers.sources.settings import Settings

    from ncu_tools.ceilings.machine_files import find_machine
    from ncu_tools.report.notebook.profiled_run import ProfiledRun
    from ncu_tools.runs import loading

    with limited_to(memory_limit) if memory_limit else nullcontext():
        found = loading.load(os.fspath(run), settings=Settings(os.fspath(formulas), os.fspath(capture)))
    if inductor:
        found = loading.with_compiled_lines(found, os.fspath(inductor))
    return ProfiledRun(found, find_machine(machine) if machine else None)


def profile(
    target: str | Sequence[str],
    *,
    metrics: Sequence[str] = ("flops", "dram"),
    output: str | os.PathLike[str] | None = None,
    tool: str = "auto",
    batch_size: int = 1,
    input_size: int | None = None,
    sequence_length: int | None = None,
    dtype: str = "fp32",
    phases: Sequence[str] = (),
    device: str = "auto",
    budget: str | None = None,
    machine: str | None = None,
) -> ProfiledRun:
    """Profile a model by its name, or a program by its command line, and load the run.

    The arguments are the options of `ncu-bench profile`, with the same defaults: without an NVIDIA GPU and ncu, a
    model's operators are timed and counted instead. `output` is the run folder to write, by default runs/TARGET-TIME;
    the returned run has it as `folder`. `machine` gives ceilings that the run lacks; without it, an unknown machine is
    measured after the run, for at most 10 s, unless NCU_BENCH_NO_MEASURE is set.

    Raises `WrongUsage` for unknown or conflicting arguments, and `NcuBenchError` if nothing was collected or the run
    ended early; its partial results stay in its folder.
    """
    from ncu_launch.counters.metric_groups import refuse_unknown
    from ncu_launch.profile.plan import TOOLS, Request

    from ncu_tools.ceilings.machine_files import find_machine
    from ncu_tools.profiling.listener import Listener
    from ncu_tools.profiling.pipeline import run_profile
    from ncu_tools.profiling.profile_request import ProfileRequest, seconds_of

    with _arguments_named():
        _require_one_process()
        _require_one_of("tool", [tool], TOOLS)
        if machine is not None:
            find_machine(machine)  # fail on a wrong name before a run that may take long
        metrics, phases = _names_in(metrics), _names_in(phases)
        refuse_unknown(metrics)
        is_model = isinstance(target, str)
        sizes = (batch_size, input_size, sequence_length)
        model = Workload(str(target), *sizes, dtype=dtype, phases=phases, device=device)
        words = (str(target),) if is_model else _words_of(target)
        workload, program = (_checked(model), ()) if is_model else (None, words)
        run = Request(("ncu_tools.profile", *words), metrics, workload, program, tool=tool)
        seconds = seconds_of(budget) if budget is not None else None
        folder = Path(output) if output is not None else None
        request = ProfileRequest(run, folder, seconds, measure=machine is None)
        collected = run_profile(request, Listener())
        return _loaded(collected, machine)


def estimate(
    target: str | Sequence[str],
    *,
    machine: str | Sequence[str] = (),
    batch_size: int | Sequence[int] = 1,
    dtype: str | Sequence[str] = "fp32",
    phases: str | Sequence[str] = (),
    input_size: int | None = None,
    sequence_length: int | None = None,
    unit: str | None = None,
) -> TableView:
    """FLOPs, bytes and the least time of models on machines, without running anything, as `ncu-bench estimate`.

    `target`, `machine`, `batch_size`, `dtype` and `phases` may have several values. `table` of the result has a row for
    each phase. Raises `WrongUsage` for unknown names, `NcuBenchError` without PyTorch.
    """
    from ncu_launch.targets.model_name_check import misspelt

    from ncu_tools.ceilings.machine_files import find_machine
    from ncu_tools.report.notebook.comparisons import estimated

    targets = (target,) if isinstance(target, str) else tuple(target)  # a name may have commas, as gemm:64,64,64,fp32
    dtypes, asked = _names_in(dtype), _names_in(phases)
    _require_one_of("dtype", dtypes, DTYPES)
    _require_one_of("phases", asked, PHASES)
    for name in targets:
        wrong = misspelt(name)
        if wrong is not None:
            raise wrong
    return estimated(
        targets,
        [find_machine(name) for name in _names_in(machine)],
        batch_sizes=(batch_size,) if isinstance(batch_size, int) else tuple(batch_size),
        dtypes=dtypes,
        phases=asked,
        input_size=input_size,
        sequence_length=sequence_length,
        unit=unit,
    )


def expected_times(
    operators: str | os.PathLike[str] | pd.DataFrame | Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
    *,
    machine: str | Sequence[str],
    learnt: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """Expected times of operators on machines, without running anything, as `ncu-bench estimate --ops`.

    `operators` is a CSV file, a DataFrame, columns by name, or a row (a mapping) for each operator; docs/estimate.md
    lists the columns. `learnt` is a file that `estimate --learn` wrote. The returned table has every row once for each
    machine, with `machine`, `at_best_us`, `expected_us`, `low_us`, `high_us` (an interval of 80 %), `bound`, `basis`,
    and `failed`, the reason if a row has no times. Raises `WrongUsage` for unknown machines and columns.
    """
    import pandas as pd

    from ncu_tools.ceilings.machine_files import find_machine
    from ncu_tools.model.expected_time.expected_times import columns_of_times, expected_times
    from ncu_tools.model.expected_time.learnt_times import read_file, shipped
    from ncu_tools.model.expected_time.operator_rows import operator_rows, read_csv

    table: Any = operators
    if isinstance(operators, (str, os.PathLike)):
        table = read_csv(Path(operators))
    elif not isinstance(operators, (pd.DataFrame, Mapping)):
        table = pd.DataFrame(list(operators))
    if isinstance(table, pd.DataFrame):
        table = {str(name): table[name].tolist() for name in table.columns}
    rows = operator_rows(table)
    known = shipped() if learnt is None else shipped().and_also(read_file(Path(learnt)))
    found = [expected_times(rows, find_machine(name), known) for name in _names_in(machine)]
    if not found:
        raise WrongUsage("Times of operators need a machine.", advice='Add machine="b200".')
    return pd.concat([pd.DataFrame({**rows.given, **columns_of_times(one)}) for one in found], ignore_index=True)


@contextmanager
def _arguments_named() -> Iterator[None]:
    """Within the block, errors name the arguments of `profile` in place of the options of the command line."""
    try:
        yield
    except NcuBenchError as error:
        error.what, error.cause, error.advice = map(_with_arguments, (error.what, error.cause, error.advice))
        error.args = (error.paragraph,)
        raise


def _with_arguments(text: str) -> str:
    """A text with option names replaced by argument names, except in sentences with a whole command to type."""
    from ncu_launch.profile.plan import TOOLS

    values = "|".join((*TOOLS, *DTYPES, *PHASES, *DEVICES, "[0-9]+[sm]?"))
    option = re.compile(rf"(?<![\w-])({'|'.join(ARGUMENTS)})(?![\w-])(?: ({values})\b)?")
    return "".join(
        sentence if COMMAND.search(sentence) else option.sub(_argument, sentence)
        for sentence in re.split(r"(?<=\. )", text)
    )


def _argument(found: re.Match[str]) -> str:
    name, value = ARGUMENTS[found[1]], found[2]
    return name if value is None else f"{name}={value if value.isdecimal() else repr(value)}"


def _names_in(names: str | Sequence[str]) -> tuple[str, ...]:
    """The names in a list, or in a text with commas between them."""
    return tuple(name.strip() for name in (names.split(",") if isinstance(names, str) else names))


def _checked(workload: Workload) -> Workload:
    """The workload with defaults filled in. Raises `WrongUsage` for values that the command line would refuse too."""
    from ncu_tools.profiling.profile_request import checked_workload

    _require_one_of("dtype", [workload.dtype], DTYPES)
    _require_one_of("phases", workload.phases, PHASES)
    _require_one_of("device", [workload.device], DEVICES)
    for name, least in (("batch_size", 1), ("input_size", 8), ("sequence_length", 1)):
        size = getattr(workload, name)
        if size is not None and size < least:
            raise WrongUsage(f"{name}={size!r} is too small.", advice=f"The least is {least}.")
    return checked_workload(workload)


def _words_of(program: Sequence[str]) -> tuple[str, ...]:
    if not program:
        raise WrongUsage("No target was named.", advice='Name a model, such as "resnet18", or the words of a program.')
    return tuple(map(str, program))


def _loaded(collected: CollectedProfile | None, machine: str | None) -> ProfiledRun:
    """The run as `load` returns it, with all notes of the collection. Raises the failure of the collection."""
    assert collected is not None  # noqa: S101  only ranks of a launcher end without a run
    failure = collected.failure
    if failure is not None:
        there = f"What it had collected until then: ncu_tools.load({str(collected.folder)!r})"
        raise NcuBenchError(failure.what, failure.cause, f"{failure.advice} {there}".strip()) from failure
    if collected.table is None:
        raise NcuBenchError("The run did no work on a GPU, so there are no launches to load.", collected.idle)
    run = load(collected.folder, machine=machine)
    run.folder = collected.folder
    run.notes = list(dict.fromkeys((*collected.announced, *collected.notes, *collected.against_expected, *run.notes)))
    return run


def _require_one_process() -> None:
    """Raise `WrongUsage` in a rank of srun, mpirun or torchrun: all ranks would profile, and only one load."""
    from ncu_launch.profilers.rank_environment import place_here

    place = place_here(os.environ)
    if place is not None:
        raise WrongUsage(
            f"ncu_tools.profile is for one process, and {place.launcher} started {place.world_size} ranks.",
            advice="Profile them with ncu-bench profile, and load the run folder with ncu_tools.load.",
        )


def _require_one_of(argument: str, values: Collection[str], known: Collection[str]) -> None:
    for value in values:
        if value not in known:
            raise WrongUsage(f"{argument}={value!r} is not known.", advice=f"Use one of: {', '.join(known)}.")
