"""Compare our reading of binary reports with NVIDIA's Python package, value by value.

    python -m benchmarks.package_check REPORT.ncu-rep...

The package is an optional extra (`pip install '.[ncu-rep]'`). It returns launches in file order; if it is older than
the report, it returns none, without an error. Exit code 1 if a value differs for an unknown reason.
"""

from __future__ import annotations

import argparse
import importlib
import math
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from ncu_launch.errors import NcuBenchError
from ncu_parsers.derived.opcode_lists import BY_INSTRUCTION
from ncu_parsers.ncu_rep.blocks import blocks_of, opened
from ncu_parsers.ncu_rep.launch_values import CODES_OF_INSTRUCTIONS, LISTS_OF_NAMES
from ncu_parsers.ncu_rep.result_details import replace_links
from ncu_parsers.ncu_rep.results import Lost, results_of
from ncu_parsers.report_data.cell_text import NumberFormat, unit
from ncu_parsers.report_data.nvtx_path import place
from ncu_parsers.report_data.report import Launch, Metric
from ncu_parsers.schema.tables import ABSENT, Rule
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming.binary_launches import read_report

PACKAGE = "ncu_report"
INSTALL = "pip install '.[ncu-rep]'"
RULE_KINDS = {0: "", 1: "INF", 2: "OPT", 3: "WRN", 4: "ERR"}
SPEEDUP_TYPES = {1: "local", 2: "global"}
CLOSE = 1e-9

NO_VALUE = "the file holds no value for it, and the package answers 0"
NO_MESSAGE = "the rule shows a table there and says nothing"
UNIT_VARIES = "the package gives this metric another unit from report to report"
UNITS_THAT_VARY = (
    "derived__sm__sass_thread_inst_executed_op_",
    "derived__smsp__sass_thread_inst_executed_op_",
    "derived__memory_l2_theoretical_sectors_global_excessive",
)
"""Prefixes of metrics whose unit in the package depends on the reports read before."""

_PRINTED = NumberFormat(".")


class DifferentValue(NamedTuple):
    """A value of a launch that differs between us and the package; `why` is "" if the reason is unknown."""

    launch_id: int | None
    what: str
    here: Any
    there: Any
    why: str = ""


@dataclass
class Checked:
    """Numbers of equal values and of launches, the differences, and the version of the package."""

    version: str
    launches: int = 0
    agreeing: int = 0
    differences: list[DifferentValue] = field(default_factory=list)

    def compare(self, launch: Launch, what: str, here: Any, there: Any, why: str = "") -> None:
        """Compare one value: count it, or record the difference."""
        if _same(here, there):
            self.agreeing += 1
        else:
            self.differences.append(DifferentValue(launch.launch_id, what, here, there, why))


def check(source: Source) -> Checked:
    """Read a report both ways and compare every value.

    Raises `NcuBenchError` if the report cannot be read here, if the package is missing, or if it returns too few
    launches.
    """
    ours, without_value = _in_file_order(source)
    package = _package()
    with source.on_disk(".ncu-rep") as path:
        version, theirs = _launches(package, path)
    if len(theirs) < len(ours):
        raise NcuBenchError(
            f"{PACKAGE} {version} returned {len(theirs)} of the {len(ours)} launches in {source.name}, and no error.",
            "It is probably older than the report, or the report is damaged.",
            f"Update it: {INSTALL.replace('install', 'install --upgrade')}",
        )
    checked = Checked(version, len(ours))
    for here, there, names in zip(ours, theirs, without_value, strict=True):
        _compare(checked, here, there, names)
    return checked


def _in_file_order(source: Source) -> tuple[list[Launch], list[set[str]]]:
    """Our launches in file order, and for each the metrics without a value in the file."""
    by_id = {launch.launch_id: launch for launch in read_report(source).launches}
    with opened(source) as stream:
        blocks = blocks_of(stream, source.name)
        names, codes = blocks.names.texts, blocks.names.codes
        found = sorted(
            (result.block.begin, result.number, {metric.name for metric in result.message.metrics if not metric.value})
            for result in results_of(stream, blocks, Lost())
        )
    without = [{names[codes[number]] for number in empty if number < len(codes)} for _, _, empty in found]
    return [by_id[number] for _, number, _ in found], without


def _package() -> Any:
    try:
        package = importlib.import_module(PACKAGE)
    except (ImportError, OSError) as error:
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == PACKAGE
        raise NcuBenchError(
            f"NVIDIA's package {PACKAGE} {'is not installed' if is_missing else f'cannot be loaded ({error})'}.",
            "Reports are read without it; only this comparison needs it.",
            f"Install it ({INSTALL}); there are wheels for Linux, macOS on arm64 and Windows.",
        ) from error
    if not hasattr(getattr(package, "IMetric", None), "unit"):
        raise NcuBenchError(
            f"NVIDIA's package {PACKAGE} is too old: it names no units.",
            advice=f"Update it: {INSTALL.replace('install', 'install --upgrade')}",
        )
    return package


# ------------------------------------------------------------------------------------------- what the package reads


def _launches(package: Any, path: Path) -> tuple[str, list[Launch]]:
    """Version of the package, and its launches in file order."""
    try:
        context = package.load_report(str(path))
        ranges = [context.range_by_idx(index) for index in range(context.num_ranges())]
        launches = [_launch(part.action_by_idx(index)) for part in ranges for index in range(part.num_actions())]
        return str(context.get_version()), launches
    except Exception as error:  # no documented type: SWIG passes on the library's exceptions
        raise NcuBenchError(
            f"{PACKAGE} failed to read {path.name}: {error}.", advice="Update the package, or look at the report."
        ) from error


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
    ranges = _nvtx_ranges(action.nvtx_state())
    if ranges is not None:
        place(launch, ranges)
    return launch


def _value(metric: Any) -> Metric | None:
    """A metric in base units; None without a value. Texts that are numbers are converted."""
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
    """Counts by opcode, as "HMMA.16816.F32: 128; FADD: 5"; "" for other instances (addresses, units) or none."""
    count = metric.num_instances()
    names = metric.correlation_ids() if count else None
    if names is None or names.kind(0) != metric.ValueKind_STRING:
        return ""
    return "; ".join(f"{names.as_string(at)}: {metric.value(at)}" for at in range(count))


def _rule(result: Any) -> Rule:
    kind = text = speedup_type = speedup = ""
    if result.has_rule_message():
        message = result.rule_message()
        kind, text = RULE_KINDS.get(int(message["type"]), ""), replace_links(message["message"])
    if result.has_speedup_estimation():
        estimate = result.speedup_estimation()
        speedup_type, speedup = SPEEDUP_TYPES.get(int(estimate["type"]), ""), f"{estimate['speedup']:.2f}"
    return Rule(result.section_identifier(), result.rule_identifier(), kind, text, speedup_type, speedup)


def _nvtx_ranges(state: Any) -> list[tuple[str, str]] | None:
    """NVTX ranges around a launch as (domain, name), outermost first; None without NVTX."""
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


# ------------------------------------------------------------------------------------------------------- comparing


def _compare(checked: Checked, here: Launch, there: Launch, without_value: set[str]) -> None:
    checked.compare(here, "kernel name", here.kernel_name, there.kernel_name)
    checked.compare(here, "NVTX ranges", here.nvtx_path, there.nvtx_path)
    for name in dict.fromkeys([*here.metrics, *there.metrics]):
        ours, theirs = here.metrics.get(name), there.metrics.get(name)
        why = NO_VALUE if ours is None and name in without_value else ""
        checked.compare(here, name, ours and ours.value, theirs and theirs.value, why)
        if ours is not None and theirs is not None and ours.unit != theirs.unit:
            varies = UNIT_VARIES if name.startswith(UNITS_THAT_VARY) else ""
            checked.differences.append(
                DifferentValue(here.launch_id, f"unit of {name}", ours.unit, theirs.unit, varies)
            )
    for name in dict.fromkeys([*here.instances, *there.instances]):
        if name in BY_INSTRUCTION:
            continue  # we sum this by opcodes, which the file does not contain
        checked.compare(here, f"{name} by opcode", here.instances.get(name), there.instances.get(name))
    saying = [rule for rule in there.rules if rule.description or rule.speedup]
    for our_rule, their_rule in zip_longest(here.rules, saying):
        said = our_rule and our_rule._replace(metrics="")  # the package does not list the metrics of a message
        checked.compare(here, f"rule {(our_rule or their_rule).name}", said, their_rule)
    for rule in there.rules:
        if rule not in saying:
            checked.differences.append(DifferentValue(here.launch_id, f"rule {rule.name}", None, rule, NO_MESSAGE))


def _same(here: Any, there: Any) -> bool:
    if isinstance(here, float) and isinstance(there, float):
        return math.isclose(here, there, rel_tol=CLOSE)
    return bool(here == there)


def main() -> int:
    """Compare each report of the command line, print the differences, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("reports", nargs="+", metavar="REPORT")
    unexplained = 0
    for path in parser.parse_args().reports:
        found = check(Source(path))
        for one in sorted(found.differences, key=lambda one: bool(one.why)):
            print(f"{path}: launch {one.launch_id}: {one.what}: {one.here} here, {one.there} there", one.why, sep="; ")
        unknown = sum(not one.why for one in found.differences)
        unexplained += unknown
        print(f"{path}: {found.agreeing:,} values of {found.launches} launches agree with {PACKAGE} {found.version}; "
              f"{len(found.differences) - unknown} differ for a known reason, {unknown} for none")  # fmt: skip
    return int(unexplained > 0)


if __name__ == "__main__":
    raise SystemExit(main())
