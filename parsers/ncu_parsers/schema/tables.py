"""The table of launches: every column with its type, its unit, and the meaning of null. Other stages rely on it.

Missing is null, never 0. Values are in base units (ns, byte, hz, FLOP). Every other metric of a report is a column with
its original name, in base units; the field's metadata holds unit, label and section.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.counters.metrics import TENSOR_FLOAT_PRECISIONS, TENSOR_INTEGER_PRECISIONS
from ncu_launch.notes import kinds_in, with_kinds

from ncu_parsers.schema import arrays

SCHEMA_VERSION = 1
"""History: 1 (2026-11). A column may be added within a version, as `rule_metrics` was: readers go by names, and treat
missing columns as null."""

Floats = npt.NDArray[np.float64]

METADATA_KEY = b"ncu_bench"
FIELD_KEY = b"ncu_bench"
ASKED_METRICS = "asked_metrics"
"""Key of the file's metadata: the metrics that ncu was asked for; absent for a report that was only read."""
NOTE_KINDS = "note_kinds"
"""Key of the file's metadata: kind and subject of its notes, by their texts."""


LEAST_BYTES = "least_bytes"
"""The column of the least bytes that an operator moves, by its shapes: never counted, and not DRAM bytes."""
OF_SEVERAL_KERNELS = frozenset({"range", "graph"})
"""ncu's names for a range or a CUDA graph profiled as one."""
HOST = "host"
"""The column, beyond the contract, of the host name of a launch of a distributed run."""
SHAPES_BASIS = "shapes"
"""Value of `flops_basis` for FLOPs from operator shapes in a trace."""


class Field(NamedTuple):
    """One column of the contract; `null` is the meaning of null."""

    name: str
    type: pa.DataType
    unit: str
    meaning: str
    null: str = "not in the report"


_NAME = pa.dictionary(pa.int32(), pa.string())
_SHAPE = pa.list_(pa.int32())  # fixed-size lists with nulls break Parquet readers up to pyarrow 25
_RULES = pa.list_(
    pa.struct([(name, pa.string()) for name in ("section", "name", "kind", "description", "speedup_type", "speedup")])
)

IDENTITY_COLUMNS: tuple[Field, ...] = (
    Field(
        "source",
        _NAME,
        "",
        "how the numbers were got: ncu, nsys, kineto, pftrace, rocprofv3, xplane, ncu+nsys, operators or estimate",
        "never",
    ),
    Field("report", _NAME, "", "the file a row came from", "never"),
    Field(
        "launch_id", pa.int64(), "", "the tool's own id, unique only together with process_id", "text pages print none"
    ),
    Field("process_id", pa.int64(), "", "the profiled process"),
    Field("rank", pa.int32(), "", "rank of the process in a distributed run", "not a distributed run"),
    Field("device_id", pa.int32(), "", "CUDA device number"),
    Field("device_name", _NAME, "", "the device as the driver calls it"),
    Field("chip", _NAME, "", "the chip, as GH100"),
    Field("compute_capability", _NAME, "", 'as "9.0"'),
    Field("context", pa.int64(), "", "CUDA context"),
    Field("stream", _NAME, "", "CUDA stream", "not in the report, or a range"),
    Field("kernel_name", _NAME, "", "full demangled name", "never"),
    Field("kernel_short", _NAME, "", "function name without namespaces, template arguments and parameters", "never"),
    Field("grid", _SHAPE, "block", "blocks in x, y, z"),
    Field("block", _SHAPE, "thread", "threads of a block in x, y, z"),
    Field(
        "nvtx_path", pa.list_(pa.string()), "", "NVTX ranges around the launch, outermost first", "no NVTX collected"
    ),
    Field("phase", _NAME, "", "forward, backward or optimizer", "not known"),
    Field("module", _NAME, "", "dotted path of the layer", "not known"),
    Field("iteration", pa.int32(), "", "iteration of the training or inference loop", "not known"),
    Field("invocations", pa.int64(), "", "launches this row is the average of", "the row is one launch"),
    Field("failed", pa.bool_(), "", "the launch ended in an error, and its metrics mean nothing", "never"),
)

MEASURE_COLUMNS: tuple[Field, ...] = (
    Field("duration_ns", pa.float64(), "ns", "GPU time of the launch"),
    Field("flops_fp64", pa.float64(), "FLOP", "CUDA cores, FMA as 2", "a counter of add, mul and fma is missing"),
    Field("flops_fp32", pa.float64(), "FLOP", "CUDA cores, FMA as 2, packed FP32 included", "a counter is missing"),
    Field(
        "flops_fp16",
        pa.float64(),
        "FLOP",
        "CUDA cores, packed: FMA as 4; may be constant moves",
        "a counter is missing",
    ),
    *(
        Field(f"tensor_flops_{precision}", pa.float64(), "FLOP", f"tensor cores, {precision} inputs", "not collected")
        for precision in TENSOR_FLOAT_PRECISIONS
    ),
    *(
        Field(f"tensor_ops_{precision}", pa.float64(), "OP", f"tensor cores, {precision} inputs", "not collected")
        for precision in TENSOR_INTEGER_PRECISIONS
    ),
    Field("tensor_flops", pa.float64(), "FLOP", "sum of the floating-point tensor columns", "none was collected"),
    Field("flops", pa.float64(), "FLOP", "total floating-point operations", "what is needed for it was not collected"),
    Field(
        "flops_basis",
        _NAME,
        "",
        'which counters and rule gave flops, and what was not collected; "shapes" where they are an estimate',
        "no FLOP counters",
    ),
    Field("dram_bytes", pa.float64(), "byte", "read and written between L2 and device memory"),
    Field("dram_read_bytes", pa.float64(), "byte", "read from device memory"),
    Field("dram_write_bytes", pa.float64(), "byte", "written to device memory"),
    Field(
        LEAST_BYTES,
        pa.float64(),
        "byte",
        "least traffic by shapes: each input and output of the operator once; an estimate, no DRAM bytes",
        "no operator with shapes and a formula, or several kernels did its work",
    ),
    Field("l2_bytes", pa.float64(), "byte", "requested at L2 by all clients"),
    Field("l1_bytes", pa.float64(), "byte", "requested at L1, without shared memory"),
    Field("sm_clock_hz", pa.float64(), "hz", "SM clock while profiled"),
    Field("dram_clock_hz", pa.float64(), "hz", "memory clock while profiled"),
    Field("peak_flops_fp64", pa.float64(), "FLOP/s", "FP64 ceiling at the profiled clock"),
    Field("peak_flops_fp32", pa.float64(), "FLOP/s", "FP32 ceiling at the profiled clock"),
    Field("peak_flops_fp16", pa.float64(), "FLOP/s", "FP16 ceiling of the CUDA cores at the profiled clock"),
    *(
        Field(
            f"peak_tensor_flops_{precision}",
            pa.float64(),
            "FLOP/s",
            f"dense {precision} tensor ceiling, profiled clock",
        )
        for precision in TENSOR_FLOAT_PRECISIONS
    ),
    *(
        Field(f"peak_tensor_ops_{precision}", pa.float64(), "OP/s", f"dense {precision} tensor ceiling, profiled clock")
        for precision in TENSOR_INTEGER_PRECISIONS
    ),
    Field(
        "peak_dram_bytes",
        pa.float64(),
        "byte/s",
        "DRAM peak by the counter, at the clock of this launch, which reads low in short ones",
    ),
    Field("peak_l2_bytes", pa.float64(), "byte/s", "L2 ceiling at the profiled clock"),
    Field("peak_l1_bytes", pa.float64(), "byte/s", "L1 ceiling at the profiled clock"),
)

LONG_ENOUGH_NS = 100e3
"""Launches of at least this time show their clocks within 1 %; no ceiling is derived from shorter ones."""

RULES_COLUMN = Field("rules", _RULES, "", "results of NVIDIA's rules on the details page", "the report has none")
RULE_METRICS_COLUMN = Field(
    "rule_metrics",
    pa.list_(pa.string()),
    "",
    'the metrics that each of the rules stands on, as "a; b", by name or by label; "" for none',
    "only binary reports say",
)
"""A column beside `rules`, not a field of it, so that older releases can read new files and vice versa."""

COLUMNS: tuple[Field, ...] = (*IDENTITY_COLUMNS, *MEASURE_COLUMNS, RULES_COLUMN, RULE_METRICS_COLUMN)
COLUMN_NAMES = frozenset(column.name for column in COLUMNS)


class Rule(NamedTuple):
    """A result of one of NVIDIA's rules, as printed on the details page.

    `metrics` are the names of the metrics it rests on, as "a; b"; "" if a report has none, as on the page.
    """

    section: str
    name: str
    kind: str
    description: str
    speedup_type: str
    speedup: str
    metrics: str = ""


ABSENT = frozenset({
    "", "n/a", "N/A", "(!) n/a", "nan", "(!) nan", "-nan", "NaN", "-nan(ind)", "nan(ind)", "(null)", "<no value>",
    "no data",
})  # fmt: skip
"""Texts that stand for a missing value: null, never 0."""


@cache
def field_of(column: Field) -> pa.Field:
    """The Arrow field of a column, with unit and meaning in its metadata."""
    return pa.field(column.name, column.type, metadata=field_metadata(unit=column.unit, meaning=column.meaning))


@lru_cache(maxsize=1)
def contract_fields() -> tuple[pa.Field, ...]:
    """The fields of all contract columns, in order."""
    return tuple(map(field_of, COLUMNS))


def field_metadata(**entries: str) -> dict[bytes, bytes]:
    """Encode a field's metadata: unit, label, section, meaning; empty entries are left out."""
    return {FIELD_KEY: json.dumps({key: value for key, value in entries.items() if value}).encode()}


def field_entries(field: pa.Field) -> dict[str, str]:
    """Decode the metadata that `field_metadata` encoded; {} if there is none."""
    raw = (field.metadata or {}).get(FIELD_KEY)
    return json.loads(raw) if raw else {}


def table_metadata(table: pa.Table) -> dict[str, Any]:
    """Decode the file-level metadata: schema version, notes, and per report dialect, lines and skipped lines."""
    raw = (table.schema.metadata or {}).get(METADATA_KEY)
    if not raw:
        return {}
    metadata: dict[str, Any] = json.loads(raw)
    kinds = metadata.pop(NOTE_KINDS, None)
    return with_kinds(metadata, kinds) if isinstance(kinds, dict) else metadata


def metadata_problem(schema: pa.Schema) -> str:
    """Why the metadata of an untrusted file is invalid; "" if it is valid."""
    try:
        metadata = json.loads((schema.metadata or {}).get(METADATA_KEY, b"{}"))
        entries = [field_entries(field) for field in schema]
    except (ValueError, RecursionError) as error:
        return f"its metadata is no JSON ({error})"
    if not all(isinstance(one, dict) and all(isinstance(text, str) for text in one.values()) for one in entries):
        return "the metadata of a column holds no texts"
    for key, kind in {"notes": str, "reports": dict, ASKED_METRICS: str}.items():
        found = metadata.get(key, []) if isinstance(metadata, dict) else None
        if not isinstance(found, list) or not all(isinstance(one, kind) for one in found):
            return f"its metadata holds no list of {key.replace('_', ' ')}"
    if not isinstance(metadata.get("schema_version", 0), int):
        return "its metadata holds no schema version"
    return ""


def column_problem(schema: pa.Schema, columns: Sequence[Field]) -> str:
    """Why an untrusted file is not a table of `columns`; "" if it is.

    Types may differ if values can be read alike: text with or without dictionary, narrower integers, integers for
    floats.
    """
    count_of = Counter(schema.names)
    twice = sorted(name for name, count in count_of.items() if count > 1)
    if twice:
        return f"it has the column {twice[0]} twice"
    for column in columns:
        if column.name in count_of and not _holds(schema.field(column.name).type, column.type):
            return f"its column {column.name} holds {schema.field(column.name).type}, not {column.type}"
    return ""


def _holds(found: pa.DataType, wanted: pa.DataType) -> bool:
    """True if values of type `found` can be read as type `wanted`."""
    if pa.types.is_null(found):
        return True
    if pa.types.is_dictionary(found) or pa.types.is_dictionary(wanted):
        values = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (found, wanted)]
        return _holds(*values)
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_signed_integer(found) and found.bit_width <= wanted.bit_width)
    if pa.types.is_floating(wanted):
        return bool(pa.types.is_floating(found) or pa.types.is_integer(found))
    if pa.types.is_string(wanted):
        return bool(pa.types.is_string(found) or pa.types.is_large_string(found))
    if pa.types.is_list(wanted):
        listed = pa.types.is_list(found) or pa.types.is_large_list(found)
        return listed and _holds(found.value_type, wanted.value_type)
    return bool(found == wanted)


def with_metadata(table: pa.Table, metadata: dict[str, Any]) -> pa.Table:
    """Replace the file-level metadata."""
    return table.replace_schema_metadata({METADATA_KEY: encoded(metadata)})


def encoded(metadata: dict[str, Any]) -> bytes:
    """Encode file-level metadata as stored in the file, with the kinds of its notes beside their texts."""
    kinds = kinds_in(metadata)
    return json.dumps({**metadata, NOTE_KINDS: kinds} if kinds else metadata).encode()


def with_nulls(table: pa.Table, columns: Sequence[Field]) -> pa.Table:
    """Append a column of nulls for each of `columns` that is missing."""
    known = set(table.column_names)
    missing = [column for column in columns if column.name not in known]
    arrays = [*table.columns, *(pa.nulls(len(table), column.type) for column in missing)]
    return pa.Table.from_arrays(
        arrays, schema=pa.schema([*table.schema, *map(field_of, missing)], table.schema.metadata)
    )


def has_column(table: pa.Table, name: str) -> bool:
    """True if a table has a column; does not build the list of all, which takes half a millisecond for 1500 columns."""
    return bool(table.schema.get_all_field_indices(name))


def floats(table: pa.Table, name: str) -> Floats:
    """A numeric column as float64, one per row; NaN if null, no number, or if the column is missing. Read-only."""
    if not has_column(table, name):
        return unknown(len(table))
    parts = [_chunk_floats(chunk) for chunk in table.column(name).chunks]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0), *parts])


@lru_cache(maxsize=1)
def unknown(rows: int) -> Floats:
    """NaN as float64, one per row. A shared read-only array, since most tables lack most columns."""
    result = np.full(rows, np.nan)
    result.flags.writeable = False
    return result


def launch_numbers(table: pa.Table) -> Floats:
    """The number of each launch: its id, or its index from 0 if no launch has an id, as in ncu's text pages."""
    ids = floats(table, "launch_id")
    return np.arange(len(table), dtype=np.float64) if np.isnan(ids).all() else ids


def or_zero(values: Floats) -> Floats:
    """Replace NaN by 0 (float64, any shape)."""
    return np.where(np.isnan(values), 0.0, values)


def drop_failed(table: pa.Table) -> pa.Table:
    """The launches that did not fail."""
    failed = table.column("failed").to_pylist() if "failed" in table.column_names else []
    return arrays.kept(table, [not value for value in failed]) if any(failed) else table


def launch_counts(table: pa.Table) -> Floats:
    """Launches per row: `invocations` for averages, else 1 (float64, one per row)."""
    invocations = floats(table, "invocations")
    return np.where(np.isnan(invocations), 1.0, invocations)


def _chunk_floats(chunk: pa.Array) -> Floats:
    """One chunk as float64; NaN for null and for texts that are no number."""
    if pa.types.is_dictionary(chunk.type) or pa.types.is_string(chunk.type):
        return np.array([_number(text) for text in chunk.to_pylist()], np.float64)
    numbers = chunk if pa.types.is_float64(chunk.type) else arrays.cast(chunk, pa.float64(), safe=False)
    values = arrays.values_of(numbers, np.float64)
    return np.where(arrays.present(chunk), values, np.nan) if chunk.null_count else values


def _number(text: str | None) -> float:
    try:
        return float(text) if text is not None else np.nan
    except ValueError:
        return np.nan


def codes(table: pa.Table, name: str) -> tuple[npt.NDArray[np.int32], list[str | None]]:
    """A text column as int32 codes, one per row, and the texts that they index; the last text is None, for null."""
    if not has_column(table, name) or pa.types.is_null(table.schema.field(name).type):
        return np.zeros(len(table), np.int32), [None]
    column = table.column(name)
    if not pa.types.is_dictionary(column.type):
        column = arrays.encoded(column)
    combined = column.unify_dictionaries().combine_chunks()
    chunks = combined.chunks if isinstance(combined, pa.ChunkedArray) else [combined]
    if not chunks:
        return np.empty(0, np.int32), [None]
    values: list[str | None] = [*chunks[0].dictionary.to_pylist(), None]
    missing = len(values) - 1
    parts = []
    for chunk in chunks:
        places = chunk.indices if pa.types.is_int32(chunk.indices.type) else arrays.cast(chunk.indices, pa.int32())
        indices = arrays.values_of(places, np.int32)
        if places.null_count:
            indices = np.where(arrays.present(places), indices, np.int32(missing))
        parts.append(indices)
    return parts[0] if len(parts) == 1 else np.concatenate(parts), values


def list_codes(table: pa.Table, name: str) -> tuple[npt.NDArray[np.int64], list[tuple[Any, ...] | None]]:
    """A column of lists as int64 codes, one per row, and the tuples that they index; None for null."""
    if not has_column(table, name) or pa.types.is_null(table.schema.field(name).type):
        return np.zeros(len(table), np.int64), [None]
    known: dict[tuple[Any, ...] | None, int] = {}
    parts = [np.empty(0, np.int64)]
    for chunk in table.column(name).chunks:
        places, lists = arrays.distinct_lists(chunk)
        parts.append(np.array([known.setdefault(one, len(known)) for one in lists], np.int64)[places])
    return np.concatenate(parts), list(known)


def words(table: pa.Table, name: str) -> list[str | None]:
    """A text column as Python strings, one per row; None if null or if the column is missing."""
    if not has_column(table, name):
        return [None] * len(table)
    if not pa.types.is_dictionary(table.schema.field(name).type):
        result: list[str | None] = table.column(name).to_pylist()
        return result
    places, texts = codes(table, name)  # to_pylist() would create a string per row
    return [texts[place] for place in places.tolist()]


# --------------------------------------------------------------------------------------------------- kernel names


def are_of_several_kernels(table: pa.Table) -> npt.NDArray[np.bool_]:
    """Mask of ranges and graphs that ncu profiled as one: they have such a name, and no grid.

    False everywhere in a table without a column of grids.
    """
    if not has_column(table, "grid"):
        return np.zeros(len(table), bool)
    codes_of_names, names = codes(table, "kernel_name")
    named = np.array([name in OF_SEVERAL_KERNELS for name in names], bool)[codes_of_names]
    return named & ~arrays.present(arrays.one(table.column("grid")))


_OPERATOR = r"operator\s*(?:\(\)|[^\w\s(]+)"
_ANGLE = r"([<>])"


COPIES = ("[CUDA mem", "Memcpy ", "Memset ")
"""Beginnings of the names of copies and fills of memory, in timelines of nsys and of PyTorch's profiler."""


@lru_cache(maxsize=65536)
def short_name(name: str) -> str:
    """The function name in a demangled kernel name: without return type, namespaces, template arguments and parameters.

    `void at::native::vectorized_elementwise_kernel<4, at::F<float>>(int, T2)` gives `vectorized_elementwise_kernel`. Of
    a name that is not C++ (Julia, Fortran, numba), only parameters are dropped. Names of copies stay whole.
    """
    if name.startswith(COPIES):
        return name
    text = _drop_template_arguments(name.strip())
    head = text.split("(")[0].strip() if not text.startswith("(") else text
    head = head.rsplit("::", 1)[-1]
    head = head.split()[-1] if head.split() else ""
    return head.lstrip("*&") or name.strip()


def _drop_template_arguments(name: str) -> str:
    """Drop everything inside <...>; "(anonymous namespace)" and "<unnamed>" count as scopes."""
    name = re.sub(_OPERATOR, "operator", name.replace("(anonymous namespace)", "anonymous").replace("->", ""))
    depth, kept = 0, []
    for piece in re.split(_ANGLE, name):
        if piece == "<":
            depth += 1
        elif piece == ">":
            depth = max(depth - 1, 0)
        elif depth == 0:
            kept.append(piece)
    return "".join(kept)


# ------------------------------------------------------------------------------------------------- building tables


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables of launches; columns are matched by name, and missing ones are null."""
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(_reconciled(tables), promote_options="default").unify_dictionaries()


def _reconciled(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Unify types per column: numbers of different types become float64, a mix of numbers and text becomes text.

    Lists of equal item types get the same item name.
    """
    types: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for field in table.schema:
            types.setdefault(field.name, set()).add(field.type)
    common = {name: _common_type(found) for name, found in types.items() if len(found) > 1}
    result = []
    for table in tables:
        for name in common.keys() & set(table.column_names):
            index = table.schema.get_field_index(name)
            column, field = table.column(index), table.schema.field(index).with_type(common[name])
            table = table.set_column(
                index, field, column if column.type == field.type else arrays.cast(column, field.type)
            )
        result.append(table.replace_schema_metadata(None))
    return result


def _common_type(types: Iterable[pa.DataType]) -> pa.DataType:
    items = {kind.value_type if pa.types.is_list(kind) else None for kind in types}
    if len(items) == 1 and None not in items:  # Parquet calls the items of a list "element", Arrow "item"
        return pa.list_(items.pop())
    numeric = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in types)
    return pa.float64() if numeric else pa.string()


def contract_first(names: Iterable[str]) -> list[str]:
    """Column names in contract order, followed by all others, sorted."""
    names = set(names)
    return [column.name for column in COLUMNS if column.name in names] + sorted(names - COLUMN_NAMES)
