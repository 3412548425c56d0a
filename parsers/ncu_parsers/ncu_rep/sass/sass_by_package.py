"""Disassembly of a binary report, by NVIDIA's optional package (the extra `ncu-rep`).

    python -m ncu_parsers.ncu_rep.sass.sass_by_package REPORT OUTPUT

The package runs in its own process, because a damaged report may crash it or keep it busy. It writes a line of JSON for
each launch with instructions not seen before: the kernel's mangled name, and texts by address.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ncu_launch.files.atomic_files import temporary_folder
from ncu_launch.profilers.subprocesses import OWN_PYTHON, own_environment, run

from ncu_parsers.sources import memory

PACKAGE = "ncu_report"
MODULE = "ncu_parsers.ncu_rep.sass.sass_by_package"
PATIENCE_S = 60.0
REPORTS_IN_THE_LIMIT = 16
"""The package holds a whole report in memory, and takes some 16 times its size."""
FIRST_ADDRESS = 1 << 32
"""Code is loaded above the first 4 GB; smaller keys of instances are numbers of units."""

Texts = dict[str, dict[int, str]]


def is_installed() -> bool:
    """True if the package can be imported: as a distribution, or from an ncu folder on Python's path."""
    try:
        return find_spec(PACKAGE) is not None
    except ValueError:  # a module of this name without an import spec
        return False


def texts_by_package(report: Path) -> Texts:
    """The instructions of the kernels of a report as text, by mangled name and address.

    {} if the package is missing, fails, or would take more than the memory limit or a minute.
    """
    if not is_installed() or report.stat().st_size * REPORTS_IN_THE_LIMIT > memory.limit():
        return {}
    with temporary_folder() as folder:
        output, log = folder / "texts.jsonl", folder / "log.txt"
        command = [*OWN_PYTHON, "-m", MODULE, str(report.absolute()), str(output)]
        try:
            finished = run(command, log, timeout=PATIENCE_S, environment=own_environment())
        except OSError:
            return {}
        if finished.exit_code or finished.timed_out or not output.is_file():
            return {}
        result: Texts = {}
        with output.open(encoding="utf-8", errors="replace") as lines:
            for kernel, texts in map(json.loads, lines):
                result.setdefault(kernel, {}).update({int(address): text for address, text in texts.items()})
        return result


def main(report: str, output: str) -> None:
    """Write the instructions of a report; output written before a failure of the package is kept."""
    _limit_memory()
    met: dict[str, set[int]] = {}
    with Path(output).open("w", encoding="utf-8") as lines:
        for action in _launches(report):
            kernel = action.name(action.NameBase_MANGLED)
            known = met.setdefault(kernel, set())
            addresses = _addresses(action) - known
            known |= addresses
            texts = {address: action.sass_by_pc(address) for address in sorted(addresses)}
            if any(texts.values()):
                lines.write(json.dumps([kernel, {address: text for address, text in texts.items() if text}]) + "\n")


def _limit_memory() -> None:
    """Make this process fail, where the system supports it, if the package exceeds the memory limit."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory.limit(), memory.limit()))


def _launches(report: str) -> Iterator[Any]:
    context = importlib.import_module(PACKAGE).load_report(report)
    for part in (context.range_by_idx(place) for place in range(context.num_ranges())):
        yield from (part.action_by_idx(place) for place in range(part.num_actions()))


def _addresses(action: Any) -> set[int]:
    """Every address at which a metric has a value."""
    found: set[int] = set()
    for metric in map(action.metric_by_name, action.metric_names()):
        keys = metric.correlation_ids() if metric.num_instances() > 1 else None
        if keys is not None and keys.kind(0) != metric.ValueKind_STRING and keys.as_uint64(0) >= FIRST_ADDRESS:
            found.update(keys.as_uint64(place) for place in range(metric.num_instances()))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
