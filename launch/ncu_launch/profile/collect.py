"""Run a plan; keep its output in a run folder, with a manifest of what ran and how it ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

from ncu_launch.errors import NcuBenchError
from ncu_launch.files.atomic_files import copy_whole, write_whole
from ncu_launch.files.manifest import Manifest, ToolRun, write_manifest
from ncu_launch.files.run_files import COMPILE_LOG, EXPECTED, LOGS, REPORTS, USER_RANGES
from ncu_launch.files.run_folder import make_folder, writing
from ncu_launch.files.typed_json import object_in
from ncu_launch.profile.plan import FACTS, OPERATORS_TOOL, PYTORCH_TOOL, WORKLOAD, Command, Plan, Request
from ncu_launch.profile.run_outcome import timelines
from ncu_launch.profilers.commits import commit_here
from ncu_launch.profilers.sampling.gpu_sampler import GpuSampler, sampling_gpus
from ncu_launch.profilers.sampling.power_readings import write_readings
from ncu_launch.profilers.subprocesses import own_environment, run
from ncu_launch.profilers.traced_program import NOT_SAMPLED
from ncu_launch.workload.user_ranges import OPERATORS_VARIABLE, RANGES_VARIABLE

LineCallback = Callable[[str], None]
ShouldEnd = Callable[[], "str | None"]
INTERVAL_S = 0.3
READ_AT_ONCE = 64 * 1024


def collect(
    request: Request,
    plan: Plan,
    folder: Path,
    *,
    on_line: LineCallback = lambda line: None,
    should_end: ShouldEnd | None = None,
) -> Manifest:
    """Run the plan and write the manifest, also if the run fails: then `partial` is true.

    `on_line` is called with each line that the tool or program prints. The second command runs only if the first
    succeeded. `should_end` is called every second; a reason that it returns ends the run. Raises `WrongUsage` if the
    folder already holds a run or another process writes to it, `NcuBenchError` if the folder cannot be written, the
    tool cannot be started, or a GPU's power cannot be read.
    """
    with writing(folder):
        return _collect(request, plan, folder, on_line, should_end)


def _collect(
    request: Request, plan: Plan, folder: Path, on_line: LineCallback, should_end: ShouldEnd | None
) -> Manifest:
    aside = make_folder(folder)
    if request.workload is not None:
        # nsys stops capturing when the first profiled phase ends, so every phase must be profiled.
        # PyTorch's profiler would write one trace per start, so it too has to run over all phases.
        whole = plan.tool in ("nsys", PYTORCH_TOOL)
        workload = request.workload.with_whole_profile() if whole else request.workload
        write_whole(folder / WORKLOAD, (workload.to_json() + "\n").encode())
    if plan.expectation is not None and plan.expectation.records:
        write_whole(folder / EXPECTED, plan.expectation.records)
    manifest = _manifest(request, plan)
    if aside is not None:
        manifest.notes.append(
            f"an earlier run in this folder was killed before its launches were read; its files were moved to {aside}; "
            f"read them with: ncu-bench parse {aside} -o launches.parquet"
        )
    for command in plan.commands:
        with sampling_gpus([str(gpu.index) for gpu in plan.gpus] if request.power else []) as samplers:
            _run(command, folder, request.timeout, on_line, manifest, should_end)
        _add_samples(manifest, samplers)
        if samplers:
            write_readings(folder, samplers)
        left_none = manifest.tool_runs[-1].succeeded and not timelines(folder)
        if plan.tool == "nsys" and left_none and not request.ranks:  # a single rank cannot restart
            # An agent left over from an earlier run makes nsys fail once; the second attempt works.
            _run(command, folder, request.timeout, on_line, manifest)
        if not manifest.tool_runs[-1].succeeded:
            break
    return _finished(manifest, folder)


def _add_samples(manifest: Manifest, samplers: Mapping[str, GpuSampler]) -> None:
    """Add the samples of each GPU during a run to the manifest."""
    for device, sampler in samplers.items():
        found = sampler.summary
        if found is not None:
            manifest.sampled[device] = found.as_json()
            manifest.notes.append(
                f"GPU {device} sampled through NVML while the whole program ran, start and warm-up too, whoever used "
                f"it: {found.in_words()}"
            )


def collect_replayed(
    request: Request, plan: Plan, folder: Path, manifest: Manifest, *, on_line: LineCallback = lambda line: None
) -> Manifest:
    """Replace two runs that launched different kernels by the plan's single replayed command.

    Raises `ValueError` for a plan without one, `NcuBenchError` if the tool cannot be started.
    """
    if plan.replayed is None:
        raise ValueError("this plan has one run only")
    _run(plan.replayed, folder, request.timeout, on_line, manifest)
    return _finished(manifest, folder)


def _manifest(request: Request, plan: Plan) -> Manifest:
    """The manifest with everything known before the run."""
    under_ncu = plan.tool == "ncu"
    commit, committed = commit_here()
    return Manifest(
        asked=list(request.asked),
        source=plan.tool,
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        workload=asdict(request.workload) if request.workload else {"program": list(request.program)},
        metrics=list(plan.metrics),
        versions={plan.tool: plan.version} if plan.version else {},
        gpus=[asdict(gpu) for gpu in plan.gpus],
        chip=plan.chip,
        plan=plan.runs or None,
        expected=dict(plan.expectation.summary) if plan.expectation else {},
        place=asdict(request.place) if request.place else {},
        clock_control=request.clock_control if under_ncu else None,
        cache_control=request.cache_control if under_ncu else None,
        replay_mode="kernel" if under_ncu else None,
        notes=list(plan.notes),
        commit=commit,
        committed=committed,
    )


def _run(
    command: Command,
    folder: Path,
    timeout: float | None,
    on_line: LineCallback,
    manifest: Manifest,
    should_end: ShouldEnd | None = None,
) -> None:
    """Run one command with its own log file, and add it to the manifest."""
    environment = _environment(command, folder, manifest)
    log = "output.txt" if not manifest.tool_runs else f"output-{len(manifest.tool_runs) + 1}.txt"
    report, output = folder / REPORTS / command.report, folder / LOGS / log
    not_sampled: dict[str, None] = {}

    def hear(line: str) -> None:
        if line.startswith(NOT_SAMPLED):
            not_sampled[line] = None
        on_line(line)

    try:
        with following(report, on_line):
            finished = run(
                command.arguments,
                output,
                timeout=timeout,
                environment=environment,
                on_line=hear,
                should_end=should_end,
            )
    except OSError as error:
        if error.filename == str(output):
            raise
        _finished(manifest, folder)
        raise NcuBenchError(
            f"{command.arguments[0]} could not be started: {error.strerror}.", advice="Check its path."
        ) from error
    if command.metrics and str(report) not in command.arguments:  # ncu before 2020.2 prints the CSV to stdout
        copy_whole(output, report)
    ended = (finished.exit_code, round(finished.seconds, 3), finished.timed_out, finished.interrupted)
    wrote = (log, command.report, command.kind, command.passes)
    ran = ToolRun(list(command.arguments), *ended, *wrote, finished.ended_for or "")
    manifest.tool_runs.append(ran)
    manifest.notes += [ran.why_ended] if ran.why_ended else []
    manifest.notes += not_sampled


def _environment(command: Command, folder: Path, manifest: Manifest) -> dict[str, str]:
    """The environment of a command; it names the file for a program's ranges, which a second run overwrites."""
    found = own_environment()
    for name in (RANGES_VARIABLE, OPERATORS_VARIABLE):
        found.pop(name, None)
    if "program" in manifest.workload:
        (folder / USER_RANGES).unlink(missing_ok=True)
        found[RANGES_VARIABLE] = str((folder / USER_RANGES).absolute())
        if manifest.source == OPERATORS_TOOL:
            found[OPERATORS_VARIABLE] = str((folder / REPORTS / command.report).absolute())
    return found | compile_log_environment(folder, manifest)


def compile_log_environment(folder: Path, manifest: Manifest) -> dict[str, str]:
    """Environment variables that make PyTorch log the operators and lines of its kernels; {} without compilation."""
    if manifest.workload.get("mode") != "compile" or manifest.source == OPERATORS_TOOL:
        return {}
    return {"TORCH_TRACE": str((folder / LOGS / COMPILE_LOG).absolute()), "INDUCTOR_PROVENANCE": "1"}


def _finished(manifest: Manifest, folder: Path) -> Manifest:
    """Add the facts that the run wrote, and write the manifest."""
    manifest.partial = not manifest.tool_runs or not manifest.tool_runs[-1].succeeded
    facts = object_in(folder / FACTS)
    manifest.versions |= facts.pop("versions", {})
    manifest.notes += [note for note in facts.pop("notes", []) if note not in manifest.notes]
    manifest.facts = facts
    write_manifest(manifest, folder)
    return manifest


@contextmanager
def following(file: Path, on_line: Callable[[str], None]) -> Iterator[None]:
    """Within the block, pass the newest message of ncu (`==PROF== ...`) in a growing file to `on_line`, every 0.3 s.

    With --log-file ncu writes its messages there and not to stdout.
    """
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(file, on_line, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _follow(file: Path, on_line: Callable[[str], None], ended: threading.Event) -> None:
    place = 0
    while not ended.wait(INTERVAL_S):
        with suppress(OSError), file.open("rb") as stream:
            # Only the newest message matters, so skip to the end of the file.
            place = max(place, file.stat().st_size - READ_AT_ONCE)
            stream.seek(place)
            read = stream.read(READ_AT_ONCE)
            whole = read[: read.rfind(b"\n") + 1]
            place += len(whole)
            messages = [line for line in whole.splitlines() if line.startswith(b"==")]
            if messages:
                on_line(messages[-1].decode("utf-8", "replace"))
