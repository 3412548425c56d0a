"""The table of instructions: one row per instruction of each launch, with its counts and samples.

`INSTRUCTIONS_FILE` lies beside `launches.parquet`. Missing is null, never 0: 0 means that a metric counted nothing at
the instruction, null that the metric was not collected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ncu_parsers.schema.arrays import cast, dictionary, integers, texts
from ncu_parsers.schema.tables import METADATA_KEY, Field, encoded, field_of, with_nulls

Columns = dict[str, Any]

INSTRUCTIONS_FILE = "instructions.parquet"
_LAUNCHES = "launches.parquet"

INSTRUCTIONS = "instructions"
"""Value of `table` in the file's metadata."""

SCHEMA_VERSION = 1
"""History: 1 (2026-11)."""

_NAME = pa.dictionary(pa.int32(), pa.string())
_NO_TEXT = "the report holds no text of instructions"
CALLED_FROM = " < "
"""Separates nested calls in `inline_of`."""
_CALLS = "file:line of the call, where the function of the line was inlined, then of the call around it: a.h:8 < b.cu:3"
_NO_LINES = "compiled without -lineinfo, or not known"

IDENTITY_COLUMNS: tuple[Field, ...] = (
    Field("report", _NAME, "", "the file a row came from", "never"),
    Field("launch_id", pa.int64(), "", "the launch, as in launches.parquet; on a source page its place there", "never"),
    Field("kernel_name", _NAME, "", "full demangled name", "never"),
    Field("kernel_short", _NAME, "", "function name without namespaces, template arguments and parameters", "never"),
    Field("offset", pa.int64(), "byte", "from the first instruction of the kernel", "a row of a line"),
    Field("address", pa.int64(), "byte", "as the report has it, different in each process", "a row of a line"),
    Field("sass", pa.string(), "", "the instruction as text", _NO_TEXT),
    Field("opcode", _NAME, "", "its operation, as FFMA", _NO_TEXT),
    Field("modifiers", _NAME, "", "what follows the operation, as E.128", _NO_TEXT),
    Field("function", _NAME, "", "the kernel, mangled, or the function called by it that it belongs to", "not known"),
    Field("file", _NAME, "", "source file", _NO_LINES),
    Field("line", pa.int32(), "", "line of the source file, from 1", _NO_LINES),
    Field("inline_of", _NAME, "", _CALLS, "not inlined, or the compiler names no calls"),
    Field("ptx_line", pa.int32(), "", "line of the PTX, from 1", "not known"),
)  # fmt: skip


def instructions_beside(launches: Path) -> Path:
    """Path of a launches file's instructions: instructions.parquet, or NAME.instructions.parquet for NAME.parquet."""
    if launches.name == _LAUNCHES:
        return launches.with_name(INSTRUCTIONS_FILE)
    return launches.with_name(f"{launches.stem}.{INSTRUCTIONS_FILE}")


def launches_beside(instructions: Path) -> Path | None:
    """The file of launches beside a file of instructions; None if there is none."""
    before, named, _ = instructions.name.rpartition(INSTRUCTIONS_FILE)
    if not named:
        return None
    launches = instructions.with_name(f"{before}parquet" if before else _LAUNCHES)
    return launches if launches.is_file() else None


def ptx_file(kernel_name: str) -> str:
    """Name of a kernel's PTX among source files."""
    return f"PTX of {kernel_name}"


class Measure(NamedTuple):
    """A column of counts: its unit and meaning, the metric of binary reports and the titles on source pages.

    A column of texts has `words`: the text of each code in binary reports.
    """

    name: str
    unit: str
    meaning: str
    metric: str
    titles: tuple[str, ...]
    words: Mapping[int, str] | None = None

    @property
    def field(self) -> Field:
        """The column as part of the contract."""
        kind = pa.float64() if self.words is None else _NAME
        return Field(self.name, kind, self.unit, self.meaning, "not collected")


STALLS: dict[str, tuple[str, ...]] = {
    "barrier": ("barrier",),
    "branch_resolving": ("branch_resolving", "branch_resolve"),
    "dispatch_stall": ("dispatch",),
    "drain": ("drain",),
    "imc_miss": ("imc",),
    "lg_throttle": ("lg",),
    "long_scoreboard": ("long_sb",),
    "math_pipe_throttle": ("math",),
    "membar": ("membar",),
    "mio_throttle": ("mio",),
    "misc": ("misc",),
    "no_instructions": ("no_inst", "no_instruction"),
    "not_selected": ("not_selected",),
    "selected": ("selected",),
    "short_scoreboard": ("short_sb",),
    "sleeping": ("sleep", "sleeping"),
    "tex_throttle": ("tex",),
    "wait": ("wait",),
    "warpgroup_arrive": ("warpgroup_arrive", "gmma"),
}
"""States of a sampled warp (`selected`: it issues): name in metrics -> names on source pages after "stall_"."""

NOT_ISSUED = "_not_issued"

_SPACES = {4: "Global", 16: "Shared"}
_OPERATIONS = {2: "Load", 4: "Store"}

_COUNTS: tuple[Measure, ...] = (
    Measure("inst_executed", "inst", "times that a warp executed it", "inst_executed", ("Instructions Executed",)),
    Measure(
        "thread_inst_executed", "inst", "times that a thread executed it, switched off by a predicate or not",
        "thread_inst_executed", ("Thread Instructions Executed",),
    ),
    Measure(
        "thread_inst_executed_true", "inst", "times that a thread executed it and was not switched off by a predicate",
        "thread_inst_executed_true", ("Predicated-On Thread Instructions Executed",),
    ),
    Measure(
        "avg_threads", "thread", "threads of a warp that executed it, on average", "derived__avg_thread_executed",
        ("Avg. Threads Executed", "Avg. Thread Executed"),
    ),
    Measure(
        "avg_threads_true", "thread", "of these, threads that were not switched off by a predicate, on average",
        "derived__avg_thread_executed_true",
        ("Avg. Predicated-On Threads Executed", "Avg. Predicated-On Thread Executed"),
    ),
    Measure(
        "samples", "", "samples of warps that were at it", "smsp__pcsamp_sample_count",
        ("Warp Stall Sampling (All Samples)", "Warp Stall Sampling (All Cycles)", "Sampling Data (All)", "# Samples",
         "smsp__pcsamp_sample_count"),
    ),
    Measure(
        "samples_not_issued", "", "of these, in cycles in which the scheduler issued nothing", "",
        ("Warp Stall Sampling (Not-issued Samples)", "Warp Stall Sampling (Not-issued Cycles)",
         "Sampling Data (Not Issued)"),
    ),
    Measure(
        "divergent_branches", "", "branches whose threads went different ways",
        "smsp__branch_targets_threads_divergent", ("Divergent Branches",),
    ),
    Measure("address_space", "", "the memory it accesses", "memory_type", ("Address Space",), _SPACES),
    Measure("access", "", "whether it loads or stores", "memory_access_type", ("Access Operation",), _OPERATIONS),
    Measure("access_bits", "bit", "what a thread accesses", "memory_access_size_type", ("Access Size",)),
    Measure(
        "l1_tag_requests", "", "requests to the tags of L1, global memory", "memory_l1_tag_requests_global",
        ("L1 Tag Requests Global",),
    ),
    Measure(
        "l2_sectors", "sector", "theoretical sectors at L2, global memory: as if L1 held nothing, not counted there",
        "memory_l2_theoretical_sectors_global", ("L2 Theoretical Sectors Global",),
    ),
    Measure(
        "l2_sectors_ideal", "sector", "the least that the threads' bytes need",
        "memory_l2_theoretical_sectors_global_ideal", ("L2 Theoretical Sectors Global Ideal",),
    ),
    Measure(
        "l2_sectors_excessive", "sector", "those beyond the ideal",
        "derived__memory_l2_theoretical_sectors_global_excessive", ("L2 Theoretical Sectors Global Excessive",),
    ),
    Measure(
        "l2_sectors_local", "sector", "theoretical sectors at L2, local memory (spills, arrays)",
        "memory_l2_theoretical_sectors_local", ("L2 Theoretical Sectors Local",),
    ),
    Measure(
        "shared_wavefronts", "", "passes over shared memory", "memory_l1_wavefronts_shared", ("L1 Wavefronts Shared",),
    ),
    Measure(
        "shared_wavefronts_ideal", "", "the passes it would take without bank conflicts",
        "memory_l1_wavefronts_shared_ideal", ("L1 Wavefronts Shared Ideal",),
    ),
    Measure(
        "shared_wavefronts_excessive", "", "those beyond the ideal, from bank conflicts",
        "derived__memory_l1_wavefronts_shared_excessive", ("L1 Wavefronts Shared Excessive",),
    ),
    Measure(
        "shared_conflict_ways", "", "how many ways the banks of shared memory conflict",
        "derived__memory_l1_conflicts_shared_nway", ("L1 Conflicts Shared N-Way",),
    ),
    *(
        Measure(
            f"l2_{name}", "inst", f"L2: {meaning}", f"smsp__inst_executed_memdesc_explicit_{metric}",
            (f"L2 Explicit {title}",),
        )
        for name, metric, title, meaning in (
            ("evict_policies", "evict_type", "Evict Policies", "explicit eviction policies, as ncu codes them"),
            ("hit_evict_first", "hitprop_evict_first", "Hit Policy Evict First", "evict first after a hit"),
            ("hit_evict_last", "hitprop_evict_last", "Hit Policy Evict Last", "evict last after a hit"),
            ("hit_evict_normal", "hitprop_evict_normal", "Hit Policy Evict Normal", "evict normally after a hit"),
            ("hit_demote", "hitprop_evict_normal_demote", "Hit Policy Evict Normal Demote", "demote after a hit"),
            ("miss_evict_first", "missprop_evict_first", "Miss Policy Evict First", "evict first after a miss"),
            ("miss_evict_normal", "missprop_evict_normal", "Miss Policy Evict Normal", "evict normally after a miss"),
        )
    ),
)  # fmt: skip


def _stalls(behind: str, title: str, meaning: str) -> tuple[Measure, ...]:
    return tuple(
        Measure(
            f"stall_{reason}{behind}", "", meaning.format(reason.replace("_", " ")),
            f"smsp__pcsamp_warps_issue_stalled_{reason}{behind}",
            tuple(f"stall_{short}{title}" for short in shorts),
        )
        for reason, shorts in STALLS.items()
    )  # fmt: skip


def measure_of(metric: str) -> Measure | None:
    """The column for a metric of a binary report, or None. Newer reports write "__sass_" for "__" in some names."""
    return _BY_METRIC.get(metric) or _BY_METRIC.get(metric.replace("__sass_", "__"))


MEASURES: tuple[Measure, ...] = (
    *_COUNTS,
    *_stalls("", "", "samples of warps whose reason was {}"),
    *_stalls(NOT_ISSUED, " (Not Issued)", "of these, in cycles in which nothing was issued: {}"),
)

_BY_METRIC = {measure.metric: measure for measure in MEASURES if measure.metric}

COLUMNS: tuple[Field, ...] = (*IDENTITY_COLUMNS, *(measure.field for measure in MEASURES))


def instructions_table(columns: Mapping[str, Any], *, notes: Sequence[str] = ()) -> pa.Table:
    """The table of these columns, each an array or a list of equal length; missing ones are null.

    Columns outside the contract (unknown metrics) are kept after it. Raises `pa.ArrowInvalid` if lengths differ, and it
    or `OverflowError` if values do not fit their type.
    """
    rows = next((len(values) for values in columns.values()), 0)
    missing = {kind: pa.nulls(rows, kind) for kind in {column.type for column in COLUMNS}}  # shared, as most lack most
    arrays, fields = [], []
    for column in COLUMNS:
        values = columns.get(column.name)
        arrays.append(missing[column.type] if values is None else _array(values, column.type))
        fields.append(field_of(column))
    known = {column.name for column in COLUMNS}
    for name, values in columns.items():
        if name not in known:
            arrays.append(_array(values, pa.float64()))
            fields.append(pa.field(name, pa.float64()))
    metadata = {"table": INSTRUCTIONS, "schema_version": SCHEMA_VERSION, "notes": list(notes)}
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata={METADATA_KEY: encoded(metadata)}))


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values if values.type == kind else cast(values, kind)
    if isinstance(values, list) and pa.types.is_dictionary(kind):
        return cast(dictionary(values), kind)
    if isinstance(values, list) and pa.types.is_string(kind):
        return texts(values)
    if isinstance(values, list) and pa.types.is_integer(kind):
        return integers(values, kind)
    return pa.array(values, type=kind)


def joined_instructions(parts: Sequence[pa.Table], notes: Sequence[str] = ()) -> pa.Table:
    """Concatenate tables of instructions in order, with these notes in the metadata."""
    whole = pa.concat_tables(parts, promote_options="default").unify_dictionaries()
    metadata = {"table": INSTRUCTIONS, "schema_version": SCHEMA_VERSION, "notes": list(notes)}
    return whole.replace_schema_metadata({METADATA_KEY: encoded(metadata)})


def completed(table: pa.Table) -> pa.Table:
    """Append a column of nulls for each missing column of the contract."""
    return with_nulls(table, COLUMNS)
