"""A kernel's code beside a measured launch of it: registers, occupancy and opcodes by the code and as measured.

A launch belongs to a kernel if its report has the mangled name, else if the name with template arguments is the same.
Whether exactly this code ran is known where the report contains the cubin.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_parsers.binaries.code_of_report import launched_kernels
from ncu_parsers.binaries.kernel_resources import KernelResources
from ncu_parsers.parse.file_kinds import is_binary_report
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.schema import tables

from ncu_tools.advice.situation.code_facts import facts_of_opcodes
from ncu_tools.binaries.code_names import code_path, full_code_name, readable_code_name
from ncu_tools.binaries.occupancy_of_code import LEAST_REGISTERS, occupancy_for, sm_of
from ncu_tools.binaries.static_facts import StaticFacts
from ncu_tools.kernels.names.kernel_name_spelling import drop_parameters, is_bare
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.kernels.view.occupancy import WARP
from ncu_tools.numbers.number_format import FORMATS, percent
from ncu_tools.runs.loading import load_only

OPCODES_SHOWN = 10
_RESULT = re.compile(r"\bvoid (?=[\w(])")
Row = dict[str, Any]


@dataclass
class JoinedKernel:
    """Rows of the part "joined" (title, static value, measured value), and a sentence on the code that ran."""

    rows: list[Row]
    code: str


@dataclass(frozen=True)
class _Launches:
    """The launches of one kernel, and the digests of the code that the report carries for them."""

    table: pa.Table
    digests: frozenset[str]
    architectures: frozenset[str]


def joined(kernel: KernelResources, report: str, facts: StaticFacts | None) -> JoinedKernel:
    """A kernel beside its longest launch in a report. Raises `NcuBenchError` if the report has no launch of it."""
    launches = _launches_of(kernel, report)
    times = tables.floats(launches.table, "duration_ns")
    longest = int(np.argmax(np.nan_to_num(times))) if len(times) else 0
    one = launches.table.slice(longest, 1)
    rows = [*_resources(kernel, one), *_occupancy(kernel, one)]
    if facts is not None:
        rows += _opcodes(facts, launches.table)
    return JoinedKernel(rows, _about_code(kernel, launches))


def _launches_of(kernel: KernelResources, report: str) -> _Launches:
    table = load_only(report, None).table
    names = tables.words(table, "kernel_name")
    chosen = np.array([is_launch_of(kernel.name, name or "") for name in names], bool)
    digests, architectures = set[str](), set[str]()
    sources = find_sources([report])
    if len(sources) == 1 and is_binary_report(sources[0]):
        launched = launched_kernels(sources[0])
        if len(launched) == len(names):
            chosen = np.array([one.mangled == kernel.name for one in launched], bool)
        held = [one.resources for one in launched if one.mangled == kernel.name and one.resources is not None]
        digests = {one.code_digest for one in held}
        architectures = {one.architecture for one in held}
    if not chosen.any():
        others = ", ".join(list(dict.fromkeys(readable_name(name or "") for name in names))[:4])
        raise NcuBenchError(
            f"{report} has no launch of {readable_code_name(kernel.name)}.",
            f"It has launches of: {others}.",
            "Name a kernel that it has, or another report.",
        )
    return _Launches(table.filter(pa.array(chosen)), frozenset(digests), frozenset(architectures))


def is_launch_of(mangled: str, name: str) -> bool:
    """True if a report's kernel name is this kernel's, apart from parameters; a bare name may lack its scopes."""
    if is_bare(name):
        return name in (mangled, code_path(mangled), code_path(mangled).rpartition("::")[2])
    return _without_results(name) == _without_results(full_code_name(mangled))


def _without_results(name: str) -> str:
    """A name without parameters, and without the result types of functions in its template arguments."""
    return _RESULT.sub("", drop_parameters(name))


def _about_code(kernel: KernelResources, launches: _Launches) -> str:
    if not launches.digests:
        return "the report carries no code of it, so whether it ran this code is not known"
    if kernel.code_digest in launches.digests:
        return "the report ran this very code"
    if launches.architectures and kernel.architecture not in launches.architectures:
        return f"the report ran code for {', '.join(sorted(launches.architectures))}, not for {kernel.architecture}"
    return "the report ran other code than this: of another source, or compiled with other options"


def _value(one: pa.Table, *names: str) -> float | None:
    found = [float(tables.floats(one, name)[0]) for name in names if name in one.column_names]
    known = [value for value in found if not np.isnan(value)]
    return known[0] if known else None


def _row(key: str, title: str, static: float | None, text: str, measured: str, value: float | None) -> Row:
    row: Row = {"part": "joined", "key": key, "title": title, "value": static, "unit": "", "text": text}
    return {**row, "against": measured, "measured": value}


def _resources(kernel: KernelResources, one: pa.Table) -> list[Row]:
    rows = []
    registers = _value(one, "launch__registers_per_thread", "registers_per_thread")
    if registers is not None and kernel.registers is not None:
        least = f" (a launch takes {LEAST_REGISTERS} at least)" if kernel.registers < LEAST_REGISTERS else ""
        rows.append(_row("joined_registers", "registers per thread", kernel.registers, f"{kernel.registers:,}",
                         f"{registers:,.0f} launched{least}", registers))  # fmt: skip
    shared = _value(one, "launch__shared_mem_per_block_static", "static_shared_memory_bytes")
    if shared is not None and kernel.shared_bytes is not None:
        write = FORMATS["byte"]
        rows.append(_row("joined_shared", "static shared memory", kernel.shared_bytes, write(kernel.shared_bytes),
                         f"{write(shared)} launched", shared))  # fmt: skip
    return rows


def _occupancy(kernel: KernelResources, one: pa.Table) -> list[Row]:
    """Blocks per SM and theoretical occupancy for the block size launched, beside the measured active warps."""
    threads = _value(one, "launch__block_size")
    dynamic = _value(one, "launch__shared_mem_per_block_dynamic", "dynamic_shared_memory_bytes")
    found = occupancy_for(kernel, int(threads), int(dynamic or 0)) if threads else None
    sm = sm_of(kernel.architecture)
    if found is None or sm is None or not threads:
        return []
    share = _value(one, "sm__warps_active.avg.pct_of_peak_sustained_active")
    warps = _value(one, "sm__warps_active.avg.per_cycle_active")
    if warps is None and share is not None:
        warps = share / 100 * sm.warps
    shape = f"blocks per SM of {int(threads):,} threads"
    blocks = None if warps is None else warps / -(-int(threads) // WARP)
    active = "" if blocks is None else f"{blocks:.2g} measured, by active warps"
    rows = [_row("joined_blocks", shape, found.blocks, f"{found.blocks}", active, blocks)]
    reached = None if share is None else f"{share:.1f} % achieved"
    ncu = _value(one, "sm__maximum_warps_per_active_cycle_pct")
    by_ncu = "" if ncu is None else f"{ncu:.1f} % by ncu"
    said = ", ".join(filter(None, (by_ncu, reached)))
    rows.append(_row("joined_occupancy", "theoretical occupancy", found.fraction, percent(found.fraction), said, share))
    return rows


def _opcodes(facts: StaticFacts, launches: pa.Table) -> list[Row]:
    """Opcodes with most instructions executed by warps, beside how many the code contains."""
    of_kernels = list(facts_of_opcodes(launches).values())
    executed: dict[str, float] = {}
    for name, count in of_kernels[0].executed.items() if of_kernels else ():
        executed[name.split(".")[0]] = executed.get(name.split(".")[0], 0.0) + count
    static: dict[str, int] = {}
    for name, number in facts.by_opcode.items():
        static[name.split(".")[0]] = static.get(name.split(".")[0], 0) + number
    most = sorted(executed, key=lambda name: -executed[name])[:OPCODES_SHOWN]
    return [
        _row(f"joined_{name}", f"{name} in the code", static.get(name, 0), f"{static.get(name, 0):,}",
             f"{executed[name]:,.0f} executed by warps", executed[name])
        for name in most
    ]  # fmt: skip
