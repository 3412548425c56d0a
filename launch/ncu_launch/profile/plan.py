"""Turn a request into a plan: which tool, its commands, and why. `collect` runs it.

With an NVIDIA GPU and ncu: hardware counters per kernel. With nsys, if requested: a timeline. Otherwise a model runs
under the operator collector, whose rows say that their numbers are not measured by hardware, and a Python program under
PyTorch's profiler.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ncu_launch.counters.chips import Chip, chip_of
from ncu_launch.counters.metric_groups import MetricSelection, group_names, select
from ncu_launch.counters.pass_counts import passes_of
from ncu_launch.counters.replay_plan import NcuRun, RunPlan, plan_runs
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.run_files import NCU_CSV, NCU_INSTRUCTIONS_CSV, NCU_REPLAYED_CSV, REPORTS
from ncu_launch.profilers.command_line import (
    GPU_METRICS_HZ,
    NEWEST,
    Lockstep,
    NcuOptions,
    NsysOptions,
    ncu_command,
    nsys_command,
)
from ncu_launch.profilers.installed_tools import Gpu, Tool, find_tool, gpus, listed_metrics
from ncu_launch.profilers.rank_environment import FIRST_DOCUMENTED_LOCKSTEP, Place, regex_without_collectives
from ncu_launch.profilers.sampling.nvml import require_nvml
from ncu_launch.profilers.sampling.pytorch_groups import sampled_groups, sampled_metrics
from ncu_launch.profilers.subprocesses import OWN_PYTHON
from ncu_launch.profilers.traced_program import SAMPLE
from ncu_launch.workload.meta_device_process import Expectation
from ncu_launch.workload.traced_iterations import TRACE as TRACE_OPTION
from ncu_launch.workload_spec import Workload

WITHOUT_TOOL = "none"
"""The tool of a rank that is not profiled itself, but runs beside profiled ranks."""
OPERATORS_TOOL = "operators"
PYTORCH_TOOL = "pytorch"
TOOLS = ("auto", "ncu", "nsys", OPERATORS_TOOL, PYTORCH_TOOL, "torch")
"""The tools that a request may name; torch is short for pytorch."""
ONLY_RANGES = "of a program, only operators of PyTorch inside of ncu_tools.range are collected"
NOT_BY_HARDWARE = "FLOPs and bytes are counted from operators, not by hardware"
NO_GPU_TO_SAMPLE = "no GPU metrics are sampled, since nvidia-smi lists no NVIDIA GPU"
STEERS_NCU = {
    "kernel": "--kernel", "launch_skip": "--launch-skip", "launch_count": "--launch-count",
    "nvtx_include": "--nvtx-include", "clock_control": "--clock-control", "cache_control": "--cache-control",
    "plan": "--plan", "ncu": "--ncu",
}  # fmt: skip
"""Fields of a request that only ncu uses, with their options."""
ALWAYS_GIVEN = {"operators": ("time", "flops", "dram"), "nsys": ("time",), PYTORCH_TOOL: ("time", "flops", "dram")}
"""Groups of metrics that a tool always collects."""
USUAL_METRICS = ("flops", "dram")
LAST_WITHOUT_BOOST = (2024, 1)
"""The newest ncu whose help text was read and has no --clock-control boost (only base, none, reset)."""
WORKLOAD, FACTS, OPERATORS = "workload.json", "facts.json", "operators.jsonl"
TRACE = "trace.json.gz"
TRACED_PROGRAM = Path(__file__).parent.parent / "profilers" / "traced_program.py"
"""The script that runs a program under PyTorch's profiler. The program's Python need not have ncu-bench."""
USUALLY_SAMPLED = ("sm", "dram")
"""Groups that PyTorch's profiler samples unless metrics are named."""
NO_SAMPLES_OF_THE_CPU = "GPU metrics are not sampled: the model runs on the CPU, as asked"
FOLLOWED_BY_A_VALUE = ("-W", "-X", "--check-hash-based-pycs")
"""Options of Python that take the next word as their value."""


Expect = Callable[[Workload], Expectation]


@dataclass(frozen=True)
class Request:
    """The input of `ncu-bench profile`: a model target, or a program.

    For a run of several `ranks`, `place` is the rank of this process and `meeting_host` the host to which ncu instances
    in lockstep connect. `tool_per` is one of `rank_environment.TOOL_PER`, `collectives` one of its `COLLECTIVES`.
    `gpu_metrics` is the rate in Hz at which nsys or PyTorch samples the GPUs; with None nsys does not sample, and
    PyTorch only as `samples_by_pytorch` says. With `power`, power and clocks of the GPUs are sampled through NVML while
    the program runs. `timeout` is in seconds, for each command; None: no limit.
    """

    asked: tuple[str, ...]
    metrics: tuple[str, ...]
    workload: Workload | None = None
    program: tuple[str, ...] = ()
    tool: str = "auto"
    ncu: str | None = None
    kernel: str | None = None
    launch_skip: int | None = None
    launch_count: int | None = None
    nvtx_include: tuple[str, ...] = ()
    clock_control: str = "base"
    cache_control: str = "all"
    extra: tuple[str, ...] = ()
    timeout: float | None = None
    plan: str = "auto"
    place: Place | None = None
    tool_per: str = "rank"
    collectives: str = "include"
    ranks: int = 0
    meeting_host: str = "127.0.0.1"
    gpu_metrics: int | None = None
    power: bool = False

    def __post_init__(self) -> None:
        """Replace the short tool name torch by pytorch."""
        if self.tool == "torch":
            object.__setattr__(self, "tool", PYTORCH_TOOL)

    @property
    def samples_by_pytorch(self) -> bool:
        """True if PyTorch's profiler, if chosen, samples: a rate is given, or tool pytorch and metrics are named."""
        return self.gpu_metrics is not None or (self.tool == PYTORCH_TOOL and self.metrics != USUAL_METRICS)

    def to_trace(self) -> Request:
        """The request for an nsys timeline before ncu runs: without options that only ncu uses."""
        usual: dict[str, Any] = {field.name: field.default for field in fields(self) if field.name in STEERS_NCU}
        return replace(self, tool="nsys", metrics=USUAL_METRICS, extra=(), **usual)

    def to_json(self) -> str:
        """Serialize the request as JSON, for the rank processes."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Request:
        """Read the JSON that `to_json` wrote, without its `place`: each rank has its own."""
        values: dict[str, Any] = json.loads(text)
        workload = Workload.from_json(json.dumps(values["workload"])) if values["workload"] else None
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return cls(**{**values, **lists, "workload": workload, "place": None})


@dataclass(frozen=True)
class Command:
    """One command of a plan: its arguments and what is known before it runs.

    `report` is the file that it writes to reports/, "" if the tool names it; `passes` is the number of passes per
    kernel, None if unknown.
    """

    arguments: tuple[str, ...]
    report: str = ""
    metrics: tuple[str, ...] = ()
    passes: int | None = None
    kind: str = ""


@dataclass(frozen=True)
class Plan:
    """The planned tool, its commands, and the reasons.

    `why` is the reason for the tool, `runs` for the number of ncu's runs; "" if there is none. Two ncu commands collect
    different counters for the same launches; `replayed` is then the single command that collects all counters, for
    programs that launch different kernels each time they run.
    """

    tool: str
    commands: tuple[Command, ...]
    notes: tuple[str, ...]
    version: str
    gpus: tuple[Gpu, ...]
    why: str = ""
    runs: str = ""
    chip: str | None = None
    replayed: Command | None = None
    expectation: Expectation | None = None

    @property
    def command(self) -> tuple[str, ...]:
        """Arguments of the first command."""
        return self.commands[0].arguments

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every metric that the plan collects."""
        return tuple(dict.fromkeys(metric for command in self.commands for metric in command.metrics))


def default_folder(request: Request, now: datetime) -> Path:
    """runs/<target>-<UTC time>; characters of the target that could lead to another folder are replaced."""
    name = request.workload.target if request.workload else Path(request.program[0]).name
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name).strip(".-")
    return Path("runs") / f"{safe[:80] or 'run'}-{now.astimezone(timezone.utc):%Y%m%dT%H%M%SZ}"


def make_plan(
    request: Request,
    folder: Path,
    *,
    dry: bool = False,
    expect: Expect | None = None,
    started_by: Callable[[Sequence[str]], list[str]] = list,
) -> Plan:
    """Choose the tool and build its commands. A dry plan needs neither GPU nor tool.

    `started_by` turns the program into the command that the tool starts. `expect` counts the model's expected work; it
    is called only for ncu, whose counters can be compared with it. Raises `NcuBenchError` if the requested tool cannot
    run here, saying what would make it run, and `WrongUsage` for contradictory options.
    """
    here = tuple(gpus())
    if _goes_without_tool(request):
        bare = Command(_bare_program(request, folder))
        return Plan(WITHOUT_TOOL, (bare,), (), "", here, "the tool is on rank 0 alone")
    ncu = find_tool("ncu", request.ncu)
    chosen, why = _choose(request, here, ncu, dry)
    _refuse_gpu_metrics(request, chosen)
    refuse_groups_without_counters(request, chosen)
    _refuse_power(request, chosen)
    if chosen == PYTORCH_TOOL:
        return _pytorch_plan(request, folder, here, why)
    if chosen == "operators":
        if request.tool_per == "node":
            raise WrongUsage(
                "The operator collector works inside each rank.", advice="Use --tool-per rank, or another --tool."
            )
        words = (*_workload_command(folder), str(folder / REPORTS / OPERATORS))
        command = Command(request.program if request.workload is None else words, OPERATORS)
        notes = [*([why] if why else []), NOT_BY_HARDWARE, *_unused_options_note(request, chosen)]
        notes += [ONLY_RANGES] if request.workload is None else []
        return Plan(chosen, (command,), tuple(notes), "", here, why)
    program = started_by(_bare_program(request, folder))
    if chosen == "nsys":
        return _nsys_plan(request, folder, program, here, _required(find_tool("nsys"), "nsys", dry), dry=dry)
    return _ncu_plan(request, folder, program, here, _required(ncu, "ncu", dry, request.ncu), expect)


def _pytorch_plan(request: Request, folder: Path, here: tuple[Gpu, ...], why: str) -> Plan:
    """PyTorch's profiler around a model's iterations or a Python program.

    It records a model after the warm-up, and a program from start to end. Raises `NcuBenchError` for ranks, and for
    programs that it cannot record.
    """
    if request.ranks or request.place is not None:
        raise NcuBenchError(
            "PyTorch's profiler records one process here, and no ranks.",
            f"Here {why}." if why else "",
            "Run them on a machine with an NVIDIA GPU and ncu or nsys; --tool operators counts the operators of a "
            "model, and those of a program inside ncu_tools.range.",
        )
    sampling, notes = _sampling(request)
    trace = (str(folder / REPORTS / TRACE), *sampling)
    if request.workload is not None:
        words = (*_workload_command(folder), TRACE_OPTION, *trace)
    else:
        at = _first_of_program(request.program, why)
        words = (*request.program[:at], str(TRACED_PROGRAM), *trace, *request.program[at:])
    notes += _unused_options_note(request, PYTORCH_TOOL)
    return Plan(PYTORCH_TOOL, (Command(words, TRACE),), tuple(notes), "", here, why)


def _sampling(request: Request) -> tuple[tuple[str, ...], list[str]]:
    """The arguments that request samples (--sample, interval in ms, metrics), () for none; and notes on omissions."""
    if not request.samples_by_pytorch:
        return (), []
    asked = USUALLY_SAMPLED if request.metrics == USUAL_METRICS else request.metrics
    metrics, cannot = sampled_metrics(asked)
    notes = []
    if cannot:
        can = ", ".join(sampled_groups())
        notes.append(
            f"PyTorch's profiler cannot sample {', '.join(cannot)}: it samples {can}, and metrics by full name"
        )
    if not metrics:
        return (), notes
    if request.workload is not None and request.workload.device == "cpu":
        return (), [*notes, NO_SAMPLES_OF_THE_CPU]
    return (SAMPLE, f"{1000 / (request.gpu_metrics or GPU_METRICS_HZ):g}", ",".join(metrics)), notes


def _first_of_program(words: Sequence[str], why: str) -> int:
    """Index of the argument that Python runs: its file or -m. Raises `NcuBenchError` for other programs."""
    at = _python_runs(words)
    if at is None:
        raise NcuBenchError(
            "A program is profiled under ncu or nsys, or by PyTorch's profiler if it is one of Python; this "
            "program is not.",
            f"Here {why}." if why else "",
            "Write it as: python FILE.py, or python -m MODULE. Or run it on a machine with an NVIDIA GPU and ncu, or "
            "name a model; if the program marks ranges with ncu_tools.range, --tool operators counts their operators.",
        )
    return at


def _python_runs(words: Sequence[str]) -> int | None:
    """Index of the argument that Python runs, its file or -m; None for another program, and for code outside files."""
    if not re.fullmatch(r"python[\d.]*(\.exe)?", Path(words[0]).name):
        return None
    place = 1
    while place < len(words):
        word = words[place]
        if word == "-m":
            return place if place + 1 < len(words) else None
        if not word.startswith("-"):
            return place
        if word in ("-", "-c"):
            return None
        place += 2 if word in FOLLOWED_BY_A_VALUE else 1
    return None


def _nsys_plan(
    request: Request, folder: Path, program: list[str], here: tuple[Gpu, ...], nsys: Tool, *, dry: bool
) -> Plan:
    has_gpu = bool(here) or dry
    options = NsysOptions(
        output=str(folder / REPORTS / "timeline"),
        version=nsys.version or NEWEST,
        binary=nsys.path,
        cuda=has_gpu,
        gpu_metrics_hz=request.gpu_metrics if has_gpu else None,
        # With one nsys around all ranks, the first rank that stops the profiler would stop it for all.
        from_start=request.workload is None or not has_gpu or request.tool_per == "node",
        extra=request.extra,
    )
    command = Command(tuple(nsys_command(options, program)))
    notes = [
        *_unused_options_note(request, "nsys"),
        *([] if has_gpu or not request.gpu_metrics else [NO_GPU_TO_SAMPLE]),
    ]
    return Plan("nsys", (command,), tuple(notes), nsys.version_text, here)


def _refuse_gpu_metrics(request: Request, tool: str) -> None:
    """Raise `WrongUsage` if a sampling rate is given for a tool that does not sample, or for one nsys per rank."""
    if request.gpu_metrics is None:
        return
    if tool not in ("nsys", PYTORCH_TOOL):
        raise WrongUsage(
            "GPU metrics are sampled by nsys, and by PyTorch's profiler since September 2026.", f"Here {tool} runs.",
            "Add: --tool nsys, or for a model and a program of Python --tool pytorch",
        )  # fmt: skip
    if request.ranks and request.tool_per == "rank":
        raise WrongUsage(
            "GPU metrics can be sampled by one nsys of a machine only, not by one in each rank.",
            advice="Add: --tool-per node",
        )


def refuse_groups_without_counters(request: Request, tool: str) -> None:
    """Raise `WrongUsage` for groups that only PyTorch's profiler can sample, unless it runs and samples."""
    alone = [name for name in request.metrics if name in sampled_groups() and name not in group_names()]
    if alone and not (tool == PYTORCH_TOOL and request.samples_by_pytorch):
        raise WrongUsage(
            f"{', '.join(alone)}: sampled by PyTorch's profiler, and no group of counters.", f"Here {tool} runs.",
            "Add: --tool pytorch. Or leave them out: --tool nsys --gpu-metrics samples all that a GPU has.",
        )  # fmt: skip


def _refuse_power(request: Request, tool: str) -> None:
    """Raise `WrongUsage` for power under ncu or with ranks, `NcuBenchError` if the package for NVML is missing."""
    if not request.power:
        return
    if tool == "ncu":
        raise WrongUsage(
            "Power can only be measured in a run without ncu.",
            "ncu replays kernels and sets the clock.",
            "Add: --tool nsys. The energy of a model's iteration is measured by ncu-bench bench --power.",
        )
    if request.ranks:
        raise WrongUsage("--power is for one process, not for ranks.", advice="Leave it out.")
    require_nvml()


def _unused_options_note(request: Request, tool: str) -> list[str]:
    """A note on ncu options without effect under `tool`: scripts for several machines pass them everywhere."""
    asked = [
        STEERS_NCU[field.name]
        for field in fields(request)
        if field.name in STEERS_NCU and getattr(request, field.name) != field.default
    ]
    asked += ["--ncu-args"] if request.extra and tool in (OPERATORS_TOOL, PYTORCH_TOOL) else []
    chosen = () if tool == PYTORCH_TOOL and request.samples_by_pytorch else request.metrics
    others = [name for name in chosen if name not in (*ALWAYS_GIVEN[tool], *USUAL_METRICS)]
    asked += [f"--metrics {','.join(others)}"] if others else []
    return [f"without effect, since ncu does not run: {', '.join(asked)}"] if asked else []


def _ncu_plan(
    request: Request,
    folder: Path,
    program: list[str],
    here: tuple[Gpu, ...],
    ncu: Tool,
    expect: Expect | None,
) -> Plan:
    if request.clock_control == "boost" and ncu.version and ncu.version <= LAST_WITHOUT_BOOST:
        raise WrongUsage(f"ncu {ncu.version_text} has no --clock-control boost.", advice="Use base or none.")
    chip = chip_of(here[0].compute_capability, here[0].name) if here else None
    selection = _selection(request, chip, ncu)
    expectation = expect(request.workload) if expect is not None and request.workload is not None else None
    planned = _one_run(selection, chip) if request.ranks else _planned(request, selection, chip, here, expectation)
    options = _ncu_options(request, ncu)

    def command(run: NcuRun, report: str) -> Command:
        chosen = replace(options, metrics=run.metrics, log_file=str(folder / REPORTS / report))
        return Command(tuple(ncu_command(chosen, program)), report, run.metrics, run.passes, run.kind)

    together = plan_runs(selection, passes_of(selection, chip), "one-run").runs[0]
    reports = (NCU_CSV, NCU_INSTRUCTIONS_CSV)
    return Plan(
        "ncu",
        tuple(command(run, report) for run, report in zip(planned.runs, reports, strict=False)),
        (*selection.notes, *_expectation_note(expectation), *_collectives_note(request)),
        ncu.version_text,
        here,
        runs=planned.why,
        chip=chip.name if chip else None,
        replayed=command(together, NCU_REPLAYED_CSV) if len(planned.runs) > 1 else None,
        expectation=expectation,
    )


def _expectation_note(expectation: Expectation | None) -> list[str]:
    if expectation is None or not expectation.why_not:
        return []
    return [f"the model's expected work is unknown, so nothing is compared with it: {expectation.why_not}"]


def _selection(request: Request, chip: Chip | None, ncu: Tool) -> MetricSelection:
    """The requested counters, without those that this ncu does not list for the chip."""
    listed = listed_metrics(ncu, chip.name) if chip is not None else frozenset()
    dtype = request.workload.dtype if request.workload else None
    selection = select(request.metrics, chip, ncu.version, dtype=dtype, listed=sorted(listed))
    return selection.drop_unlisted(listed) if listed else selection


def _planned(
    request: Request,
    selection: MetricSelection,
    chip: Chip | None,
    here: tuple[Gpu, ...],
    expectation: Expectation | None,
) -> RunPlan:
    program = expectation.program if expectation is not None else None
    if program is not None and request.workload is not None:
        memory = here[0].memory_bytes if here else None
        launches = program.launches * request.workload.iterations
        program = replace(program, launches=launches, gpu_bytes=memory)
    return plan_runs(selection, passes_of(selection, chip), request.plan, program)


def _ncu_options(request: Request, ncu: Tool) -> NcuOptions:
    """The options shared by all runs of ncu: all but metrics and report."""
    return NcuOptions(
        metrics=(),
        log_file="",
        version=ncu.version or NEWEST,
        binary=ncu.path,
        clock_control=request.clock_control,
        cache_control=request.cache_control,
        kernel=regex_without_collectives(request.kernel) if request.collectives == "exclude" else request.kernel,
        lockstep=_lockstep(request, ncu),
        launch_skip=request.launch_skip,
        launch_count=request.launch_count,
        nvtx=request.workload is not None,
        nvtx_include=request.nvtx_include,
        from_start=request.workload is None,
        extra=request.extra,
    )


def _goes_without_tool(request: Request) -> bool:
    return request.tool_per == "rank0" and request.place is not None and request.place.rank != 0


def _one_run(selection: MetricSelection, chip: Chip | None) -> RunPlan:
    """Plan a single run for ranks: a second run would find leftovers of the first in their rendezvous."""
    plan = plan_runs(selection, passes_of(selection, chip), "one-run")
    return replace(plan, why=f"ranks run once: {plan.why.removeprefix('as asked: ')}")


def _lockstep(request: Request, ncu: Tool) -> Lockstep | None:
    """The lockstep settings of ncu instances on the ranks; None if not requested.

    Raises `WrongUsage` if this ncu version is not known to support lockstep.
    """
    if request.collectives != "lockstep":
        return None
    if ncu.version and ncu.version < FIRST_DOCUMENTED_LOCKSTEP:
        raise WrongUsage(
            f"ncu {ncu.version_text} is not known to have --lockstep-kernel-launch.",
            "It is documented for 2026.1.",
            "Use --collectives exclude, which is the default, or name a newer ncu with --ncu.",
        )
    return Lockstep(request.ranks, request.meeting_host)


def _collectives_note(request: Request) -> list[str]:
    if request.collectives != "exclude":
        return []
    return ["kernels of collectives are left out: replayed on one rank they would wait for the others for ever"]


def _choose(request: Request, here: tuple[Gpu, ...], ncu: Tool | None, dry: bool) -> tuple[str, str]:
    """The tool, and the reason for it; "" for ncu and for a requested tool."""
    if request.tool != "auto":
        return request.tool, ""
    if dry and request.workload is None:
        return "ncu", ""
    if request.workload is not None and request.workload.device == "cpu":
        return OPERATORS_TOOL, "the model runs on the CPU, as asked"
    without_ncu = PYTORCH_TOOL if request.workload is None else OPERATORS_TOOL
    if ncu is None:
        return without_ncu, "ncu is not on PATH"
    if not here:
        return without_ncu, "nvidia-smi lists no NVIDIA GPU"
    return "ncu", ""


def _required(tool: Tool | None, name: str, dry: bool, path: str | None = None) -> Tool:
    if tool is not None:
        return tool
    if dry:
        return Tool(name, path or name, None, "")
    package = {"ncu": "Nsight Compute", "nsys": "Nsight Systems"}[name]
    raise NcuBenchError(
        f"{path or name} was not found, or does not start.",
        "" if path else f"{package} is not installed, or not on PATH.",
        f"Check the path given to --{name}." if path else "Install it, or use --tool operators.",
    )


def _bare_program(request: Request, folder: Path) -> tuple[str, ...]:
    return request.program if request.workload is None else _workload_command(folder)


def _workload_command(folder: Path) -> tuple[str, ...]:
    return (*OWN_PYTHON, "-m", "ncu_launch.workload.workload", str(folder / WORKLOAD), str(folder / FACTS))
