"""One profile: choose the tool, run the target under it, keep whatever came out in a run folder.

With an NVIDIA GPU and ncu, hardware counters per kernel; with nsys, a timeline; anywhere else a model target runs under
the embedded operator collector, which says in every row that its numbers are not the hardware's.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ncu_launch.command import NEWEST, NcuOptions, NsysOptions, ncu_command, nsys_command
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.execute import Finished, run
from ncu_launch.manifest import LOGS, REPORTS, Manifest, ToolRun, write_manifest
from ncu_launch.metrics import metrics_of
from ncu_launch.outcome import NCU_CSV, timelines
from ncu_launch.progress import following
from ncu_launch.request import Workload
from ncu_launch.tools import Gpu, Tool, find_tool, gpus

TOOLS = ("auto", "ncu", "nsys", "operators")
NOT_BY_HARDWARE = "FLOPs and bytes are counted from operators, not by hardware"
LAST_WITHOUT_BOOST = (2024, 1)
"""The newest ncu whose help was read and lists only base, none and reset."""
WORKLOAD, FACTS, OPERATORS = "workload.json", "facts.json", "operators.jsonl"


@dataclass(frozen=True)
class Request:
    """What was asked of `ncu-bench profile`: a model target, or a program of the user's."""

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


@dataclass(frozen=True)
class Plan:
    """What will run: the tool, its full command, the metrics, and why this tool where nobody asked for it."""

    tool: str
    command: tuple[str, ...]
    metrics: tuple[str, ...]
    notes: tuple[str, ...]
    version: str
    gpus: tuple[Gpu, ...]
    why: str = ""


def default_folder(request: Request, now: datetime) -> Path:
    """runs/<target>-<UTC time>, with nothing in the target's name that could lead elsewhere."""
    name = request.workload.target if request.workload else Path(request.program[0]).name
    safe = "".join(
        letter if letter.isalnum() or letter in "-_." else "-" for name_part in name for letter in name_part
    ).strip(".-")
    return Path("runs") / f"{safe[:80] or 'run'}-{now.astimezone(timezone.utc):%Y%m%dT%H%M%SZ}"


def make_plan(request: Request, folder: Path, *, dry: bool = False) -> Plan:
    """Choose the tool and write out its command. A dry plan needs neither GPU nor tool.

    Raises `NcuBenchError` when the tool that was asked for cannot run here, saying what would make it run.
    """
    here = tuple(gpus())
    ncu = find_tool("ncu", request.ncu)
    chosen, why = _choose(request, here, ncu, dry)
    if chosen == "operators":
        if request.workload is None:
            raise NcuBenchError(
                "A program can only be profiled under ncu or nsys.",
                f"Here {why}." if why else "The operator collector runs model targets only.",
                "Run it on a machine with an NVIDIA GPU and ncu, or name a model.",
            )
        command = (*_workload_command(folder), str(folder / REPORTS / OPERATORS))
        return Plan(chosen, command, (), (*([why] if why else []), NOT_BY_HARDWARE), "", here, why)
    program = list(request.program) if request.workload is None else list(_workload_command(folder))
    if chosen == "nsys":
        return _nsys_plan(request, folder, program, here, _required(find_tool("nsys"), "nsys", dry), dry=dry)
    return _ncu_plan(request, folder, program, here, _required(ncu, "ncu", dry, request.ncu))


def _nsys_plan(
    request: Request, folder: Path, program: list[str], here: tuple[Gpu, ...], nsys: Tool, *, dry: bool
) -> Plan:
    options = NsysOptions(
        output=str(folder / REPORTS / "timeline"),
        version=nsys.version or NEWEST,
        binary=nsys.path,
        cuda=bool(here) or dry,
        from_start=request.workload is None or not (here or dry),
        extra=request.extra,
    )
    return Plan("nsys", tuple(nsys_command(options, program)), (), (), nsys.version_text, here)


def _ncu_plan(request: Request, folder: Path, program: list[str], here: tuple[Gpu, ...], ncu: Tool) -> Plan:
    if request.clock_control == "boost" and ncu.version and ncu.version <= LAST_WITHOUT_BOOST:
        raise WrongUsage(f"ncu {ncu.version_text} has no --clock-control boost.", advice="Use base or none.")
    metrics, notes = metrics_of(list(request.metrics), here[0].compute_capability if here else None, ncu.version)
    options = NcuOptions(
        metrics=tuple(metrics),
        log_file=str(folder / REPORTS / NCU_CSV),
        version=ncu.version or NEWEST,
        binary=ncu.path,
        clock_control=request.clock_control,
        cache_control=request.cache_control,
        kernel=request.kernel,
        launch_skip=request.launch_skip,
        launch_count=request.launch_count,
        nvtx=request.workload is not None,
        nvtx_include=request.nvtx_include,
        from_start=request.workload is None,
        extra=request.extra,
    )
    return Plan("ncu", tuple(ncu_command(options, program)), tuple(metrics), tuple(notes), ncu.version_text, here)


def _choose(request: Request, here: tuple[Gpu, ...], ncu: Tool | None, dry: bool) -> tuple[str, str]:
    """The tool, and why it is not ncu where it is not."""
    if request.tool != "auto":
        return request.tool, ""
    if dry and request.workload is None:
        return "ncu", ""
    if request.workload is not None and request.workload.device == "cpu":
        return "operators", "the model runs on the CPU, as asked"
    if ncu is None:
        return "operators", "ncu is not on PATH"
    if not here:
        return "operators", "nvidia-smi lists no NVIDIA GPU"
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


def _workload_command(folder: Path) -> tuple[str, ...]:
    return (sys.executable, "-m", "ncu_launch.workload", str(folder / WORKLOAD), str(folder / FACTS))


def collect(
    request: Request, plan: Plan, folder: Path, *, heard: Callable[[str], None] = lambda line: None
) -> Manifest:
    """Run the plan and write the run folder's manifest, also when the run fails: it then says that it is partial.

    Raises `WrongUsage` when the folder already holds a run, and whatever `explain` finds when nothing was collected.
    """
    _make_folder(folder)
    if request.workload is not None:
        # The capture of nsys ends with the first phase that ends, so it has to see all that run.
        workload = request.workload.with_whole_profile() if plan.tool == "nsys" else request.workload
        (folder / WORKLOAD).write_text(workload.to_json() + "\n", encoding="utf-8")
    manifest = _manifest(request, plan)
    finished = _run(plan, folder, request.timeout, heard, manifest)
    if plan.tool == "nsys" and finished.exit_code == 0 and not timelines(folder):
        # An agent left over from an earlier run fails it once, then not again.
        finished = _run(plan, folder, request.timeout, heard, manifest)
    if plan.tool == "ncu" and str(folder / REPORTS / NCU_CSV) not in plan.command:  # before 2020.2 stdout has the CSV
        shutil.copyfile(folder / LOGS / "output.txt", folder / REPORTS / NCU_CSV)
    manifest.partial = finished.timed_out or finished.interrupted or finished.exit_code != 0
    manifest.facts = _facts(folder)
    manifest.versions |= manifest.facts.pop("versions", {})
    manifest.notes += manifest.facts.pop("notes", [])
    write_manifest(manifest, folder)
    return manifest


def _make_folder(folder: Path) -> None:
    if (folder / REPORTS).exists():
        raise WrongUsage(f"{folder} already holds a run.", advice="Name another folder with -o, or remove this one.")
    for part in (folder, folder / REPORTS, folder / LOGS):
        try:
            part.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NcuBenchError(f"{part} cannot be made: {error.strerror}.", advice="Use another -o.") from error


def _manifest(request: Request, plan: Plan) -> Manifest:
    """What is known before the run."""
    under_ncu = plan.tool == "ncu"
    return Manifest(
        asked=list(request.asked),
        source=plan.tool,
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        workload=asdict(request.workload) if request.workload else {"program": list(request.program)},
        metrics=list(plan.metrics),
        versions={plan.tool: plan.version} if plan.version else {},
        gpus=[asdict(gpu) for gpu in plan.gpus],
        clock_control=request.clock_control if under_ncu else None,
        cache_control=request.cache_control if under_ncu else None,
        replay_mode="kernel" if under_ncu else None,
        notes=list(plan.notes),
    )


def _run(plan: Plan, folder: Path, timeout: float | None, heard: Callable[[str], None], manifest: Manifest) -> Finished:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([path for path in sys.path if path])}
    log = folder / LOGS / "output.txt"
    try:
        with following(folder / REPORTS / NCU_CSV, heard):
            finished = run(plan.command, log, timeout=timeout, environment=environment, heard=heard)
    except OSError as error:
        raise NcuBenchError(
            f"{plan.command[0]} could not be started: {error.strerror}.", advice="Check its path."
        ) from error
    ended = (finished.exit_code, round(finished.seconds, 3), finished.timed_out, finished.interrupted)
    manifest.tool_runs.append(ToolRun(list(plan.command), *ended))
    return finished


def _facts(folder: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads((folder / FACTS).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return facts
