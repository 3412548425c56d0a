"""Read binary reports of ncu (.ncu-rep, and .nsight-cuprof-report of 2018 to 2020) with NVIDIA's reader or with ncu.

Both give no launch and no error if they are older than the report. So their result is compared with the number of
launches in the file itself, and rejected if it differs. A truncated file is passed on without its damaged end, from
which readers would invent a launch.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_launch.profilers.installed_tools import Tool, find_tool, print_raw_page

from ncu_parsers.detect import text_reader
from ncu_parsers.ncu_rep.report_file_blocks import MAGIC, Recorded, Recording, Shape, read_blocks
from ncu_parsers.report_data.nvtx_path import place
from ncu_parsers.report_data.refusals import EXPORT, NotAReport
from ncu_parsers.report_data.report import Launch, Metric, Report, Rule
from ncu_parsers.report_data.units import ABSENT, NumberFormat, unit
from ncu_parsers.sources.sources import Source, unreadable

DIALECT = "binary report"
PACKAGE = "ncu_report"
DISTRIBUTION = "ncu-report"
INSTALL = "pip install 'ncu-bench[ncu-rep]'"
KERNEL_WORKLOAD = 0
RULE_KINDS = {0: "", 1: "INF", 2: "OPT", 3: "WRN", 4: "ERR"}
SPEEDUP_TYPES = {1: "local", 2: "global"}
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

LISTS_OF_NAMES = ("breakdown:", "group:")
CODES_OF_INSTRUCTIONS = frozenset({"memory_type", "memory_access_type", "memory_access_size_type"})
"""Names among the metrics that are not metrics: ncu prints no value for them."""

_LINK_TO_PAGE = re.compile(r"@url:([^@]*?):(\w+://[^@]*)@")
_LINK_INSIDE = re.compile(r"@(?:section|sass|source|table):[^@]*:([^@:]*)@")
_PRINTED = NumberFormat(".")


@dataclass(frozen=True)
class BinaryReading:
    """The launches that one reader returned, in its order, and notes on them."""

    launches: list[Launch]
    notes: tuple[str, ...] = ()
    in_order_of_processes: bool = False


class NotRead(Exception):
    """One reader failed; the text says which and why."""


def read_report(source: Source) -> Report:
    """Read a binary report with every metric, rule results, NVTX ranges and opcode counts.

    If only ncu is installed, rule results and opcode counts are missing, and a note says so. Raises `NcuBenchError` if
    the file is damaged or contains no launch, or if no reader here can read it.
    """
    with TemporaryDirectory(prefix="ncu-bench-") as folder, _on_disk(source, Path(folder)) as (path, recording):
        if not recording.launches:
            raise _empty(source, recording)
        reading = _first_that_reads(source, path, recording, Path(folder))
    result = Report(source.name, [DIALECT], recording.tool_version, session=recording.session)
    result.launches = _identified(reading, recording, result)
    result.notes += reading.notes
    if recording.cut:
        result.notes.append(
            f"the file ends in damage: {len(recording.launches)} complete launches were read, and how many are "
            "missing is unknown"
        )
    return result


def read_with() -> str:
    """The reader of binary reports here, without loading it: NVIDIA's package if installed, else ncu."""
    with suppress(PackageNotFoundError):
        return f"{DISTRIBUTION} {version(DISTRIBUTION)}"
    ncu = find_tool("ncu")
    return "no ncu" if ncu is None else _named(ncu)


# ------------------------------------------------------------------------------------------------------- the file


@contextmanager
def _on_disk(source: Source, folder: Path) -> Iterator[tuple[Path, Recording]]:
    """The report as a plain file, as readers require: decompressed, and without a damaged end."""
    path = Path(source.path).absolute()
    try:
        with path.open("rb") as plain:
            as_it_is = plain.read(len(MAGIC)) == MAGIC
        if not as_it_is:
            path = folder / "report.ncu-rep"
            source.unpack(path)
        with path.open("rb") as stream:
            recording = read_blocks(stream)
        if recording.cut and recording.launches:
            path = _beginning(path, recording.whole_bytes, folder / "whole.ncu-rep")
    except OSError as error:
        raise unreadable(source.name, error) from error
    yield path, recording


def _beginning(path: Path, count: int, copy: Path) -> Path:
    with path.open("rb") as whole, copy.open("wb") as part:
        while count and (block := whole.read(min(count, 1 << 20))):
            part.write(block)
            count -= len(block)
    return copy


def _empty(source: Source, recording: Recording) -> NcuBenchError:
    if recording.cut:
        return NotAReport(
            f"{source.name} is a binary report of ncu that could not be read: it is damaged before its first launch.",
            "It was cut off while it was written or copied, or its layout is newer than this release knows.",
            "Copy it again, or profile again.",
        )
    return NotAReport(
        f"{source.name} is a binary report of ncu and holds no launch.",
        "The run was stopped before its first kernel, or no kernel passed its filters.",
        "Profile again.",
    )


def _first_that_reads(source: Source, path: Path, recording: Recording, folder: Path) -> BinaryReading:
    failed = []
    for way in (_by_package, _by_ncu):
        try:
            return way(path, recording, folder)
        except NotRead as error:
            failed.append(str(error))
    made_by = f" of ncu {recording.tool_version}" if recording.tool_version else " of ncu"
    newer = f"an ncu that is not older than {recording.tool_version}" if recording.tool_version else "a newer ncu"
    raise NcuBenchError(
        f"{source.name} is a binary report{made_by}, and nothing on this machine could read it: {'; '.join(failed)}.",
        advice=f"Install NVIDIA's reader ({INSTALL}; Linux on x86-64) or {newer}, or export the report where there is "
        f"one: {EXPORT}",
    )


def _require_all(launches: int, recording: Recording, who: str) -> None:
    if launches < len(recording.launches):
        raise NotRead(
            f"{who} gave {launches} of its {len(recording.launches)} launches and no error: it is probably "
            "older than the report"
        )


# ------------------------------------------------------------------------------------------ through the package


def _by_package(path: Path, recording: Recording, folder: Path) -> BinaryReading:
    """The launches returned by NVIDIA's package, in file order.

    Every action is fetched once and kept: fetching one takes milliseconds, a metric of it microseconds.
    """
    try:
        package = importlib.import_module(PACKAGE)
    except (ImportError, OSError) as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == PACKAGE
        why = "is not installed" if missing else f"cannot be loaded ({error})"
        raise NotRead(f"the package {PACKAGE} {why}") from error
    if not hasattr(getattr(package, "IMetric", None), "unit"):
        raise NotRead(f"the package {PACKAGE} is too old: it names no units")
    try:
        context = package.load_report(str(path))
        ranges = [context.range_by_idx(index) for index in range(context.num_ranges())]
        _require_all(sum(part.num_actions() for part in ranges), recording, f"{PACKAGE} {context.get_version()}")
        launches = [_launch(part.action_by_idx(index)) for part in ranges for index in range(part.num_actions())]
    except NotRead:
        raise
    except Exception as error:  # no documented type: SWIG passes on what the library throws
        raise NotRead(f"{PACKAGE} failed ({error})") from error
    return BinaryReading(launches)


def _launch(action: Any) -> Launch:
    launch = Launch(action.name(action.NameBase_DEMANGLED) or "")
    for name in action.metric_names():
        if name.startswith(LISTS_OF_NAMES) or name in CODES_OF_INSTRUCTIONS:
            continue
        metric = action.metric_by_name(name)
        value = _value(metric)
        if value is not None:
            launch.metrics[name] = value
        counts = _opcodes(metric)
        if counts:
            launch.instances[name] = counts
    launch.rules = [_rule(result) for result in action.rule_results()]
    if action.workload_type() == KERNEL_WORKLOAD:
        launch.grid = _shape(launch, "grid")
        launch.block = _shape(launch, "block")
        launch.failed = (0, 0, 0) in (launch.grid, launch.block)
    else:
        launch.kernel_name = launch.kernel_name or "range"
    ranges = _nvtx_ranges(action.nvtx_state())
    if ranges is not None:
        place(launch, ranges)
    return launch


def _value(metric: Any) -> Metric | None:
    """A metric in base units, as stored by ncu; None without a value. Texts that are numbers are converted."""
    base, factor = unit(metric.unit())
    value = metric.value()
    if isinstance(value, str):
        text = value.strip()
        number = None if text in ABSENT else _PRINTED.parse(text)
        if number is None:
            return None if text in ABSENT else Metric(text, 0.0, base)
        value = number.value
    if value is None or not math.isfinite(value):
        return None
    return Metric(float(value) * factor, 0.0, base)


def _opcodes(metric: Any) -> str:
    """Named instances, as "HMMA.16816.F32: 128; FADD: 5"; "" for other instances (addresses, units) or none."""
    count = metric.num_instances()
    names = metric.correlation_ids() if count else None
    if names is None or names.kind(0) != metric.ValueKind_STRING:
        return ""
    return "; ".join(f"{names.as_string(at)}: {metric.value(at)}" for at in range(count))


def _rule(result: Any) -> Rule:
    """A rule's result, worded as on the details page, with links as text."""
    kind = text = speedup_type = speedup = ""
    if result.has_rule_message():
        message = result.rule_message()
        kind, text = RULE_KINDS.get(int(message["type"]), ""), replace_links(message["message"])
    if result.has_speedup_estimation():
        estimate = result.speedup_estimation()
        speedup_type, speedup = SPEEDUP_TYPES.get(int(estimate["type"]), ""), f"{estimate['speedup']:.2f}"
    return Rule(result.section_identifier(), result.rule_identifier(), kind, text, speedup_type, speedup)


def replace_links(text: str) -> str:
    """A rule's message as ncu prints it: `@section:X:The X@` becomes The X, `@url:Page:http://x@` Page (http://x)."""
    return _LINK_INSIDE.sub(r"\1", _LINK_TO_PAGE.sub(r"\1 (\2)", text))


def _nvtx_ranges(state: Any) -> list[tuple[str, str]] | None:
    """The NVTX ranges around a launch as (domain, name), outermost first; None without NVTX."""
    if state is None:
        return None
    domains = [state.domain_by_id(number) for number in state.domains()]
    of_process = [(domain.name(), name) for domain in domains for name in domain.start_end_ranges()]
    of_thread = [
        (domain.name(), domain.push_pop_range(depth).name())
        for domain in domains
        for depth in range(len(domain.push_pop_ranges()))
    ]
    return of_process + [pushed for pushed in of_thread if pushed not in of_process]


def _number(launch: Launch, name: str) -> int | None:
    metric = launch.metrics.get(name)
    return None if metric is None or isinstance(metric.value, str) else int(metric.value)


def _shape(launch: Launch, name: str) -> Shape | None:
    x, y, z = (_number(launch, f"launch__{name}_dim_{axis}") for axis in "xyz")
    return None if x is None or y is None or z is None else (x, y, z)


# ------------------------------------------------------------------------------------------- through installed ncu


def _by_ncu(path: Path, recording: Recording, folder: Path) -> BinaryReading:
    """The launches on the raw page that an installed ncu prints for the report."""
    ncu = find_tool("ncu")
    if ncu is None:
        raise NotRead("there is no ncu on PATH")
    page = folder / "raw.csv"
    if not print_raw_page(ncu, path, page):
        raise NotRead(f"{_named(ncu)} did not start or hung")
    try:
        printed = text_reader.read_report(Source(str(page)))
    except NcuBenchError as error:
        raise NotRead(f"{_named(ncu)} could not load it, most likely because it is older than the report") from error
    _require_all(len(printed.launches), recording, _named(ncu))
    lost = f"read through the raw page of {_named(ncu)}, which lacks rule results and opcode counts; with {INSTALL} "
    return BinaryReading(
        printed.launches, (lost + "the report is read whole", *printed.notes), in_order_of_processes=True
    )


def _named(ncu: Tool) -> str:
    return f"ncu {ncu.version_text}".strip()


# ------------------------------------------------------------------------------------------------ who and where


def _identified(reading: BinaryReading, recording: Recording, result: Report) -> list[Launch]:
    """Add process, host and time to the launches, and number them as ncu does: process by process."""
    recorded = recording.launches
    if reading.in_order_of_processes:
        recorded = sorted(recorded, key=_process)
    pairs = list(zip(reading.launches, recorded, strict=False))
    if len(recorded) != len(reading.launches) or not all(_same(launch, entry) for launch, entry in pairs):
        result.notes.append("which launch belongs to which process could not be told from the file")
        pairs = [(launch, _of_all(recorded)) for launch in reading.launches]
    for launch, entry in pairs:
        _identify(launch, entry)
    pairs.sort(key=lambda pair: _process(pair[1]))
    for number, (launch, _) in enumerate(pairs):
        launch.launch_id = number
    return [launch for launch, _ in pairs]


def _process(entry: Recorded) -> int:
    return entry.process_id or 0


def _same(launch: Launch, entry: Recorded) -> bool:
    return entry.function is None or entry.function in launch.kernel_name


def _of_all(recorded: list[Recorded]) -> Recorded:
    """What all launches have in common: the process, if there is only one."""
    processes = {(entry.process_id, entry.process_name, entry.host_name) for entry in recorded}
    return Recorded(*processes.pop()) if len(processes) == 1 else Recorded()


def _identify(launch: Launch, entry: Recorded) -> None:
    launch.process_id = entry.process_id
    launch.device_id = _first(launch.device_id, _number(launch, "launch__device_id"))
    launch.context = _first(launch.context, _number(launch, "launch__context_id"), entry.context)
    stream = _first(_number(launch, "launch__stream_id"), entry.stream)
    launch.stream = launch.stream or (None if stream is None else str(stream))
    launch.grid = launch.grid or entry.grid
    launch.block = launch.block or entry.block
    known = {"Process Name": entry.process_name, "Host Name": entry.host_name, "Kernel Time": _printed_time(entry)}
    launch.attributes |= {title: text for title, text in known.items() if text}


def _first(*numbers: int | None) -> int | None:
    return next((number for number in numbers if number is not None), None)


def _printed_time(entry: Recorded) -> str | None:
    """The time of profiling in UTC, formatted as by ncu up to 2022.3, in any time zone and language."""
    if entry.created is None:
        return None
    try:
        moment = datetime.fromtimestamp(entry.created, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return None
    return f"{moment.year}-{MONTHS[moment.month - 1]}-{moment:%d %H:%M:%S}"
