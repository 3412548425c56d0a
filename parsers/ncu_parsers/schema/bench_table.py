"""The table of measured points: results of `ncu_launch.bench.sweep` as columns with units (docs/bench.md).

Missing is null, never 0. Two rows are the same measurement, perhaps on different days, if their `IDENTITY` columns are
equal. After these columns there is one per argument of a function, and one per counter requested by name
(`ncu_parsers.schema.own_columns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from ncu_launch.files.run_files import BENCH_FILE as BENCH_FILE

from ncu_parsers.schema.own_columns import own_fields, own_values
from ncu_parsers.schema.tables import METADATA_KEY, Field, encoded, field_of, table_metadata, with_nulls

BENCH = "bench"
"""Value of `table` in the file's metadata."""

SCHEMA_VERSION = 1
"""History: 1 (2026-11), later with process_means_ns, host, arguments, profiled_* and expected_flops_basis; a file
without them reads as null."""

IDENTITY = (
    "target", "device_name", "dtype", "autocast", "mode", "channels_last", "phase", "batch_size", "input_size",
    "sequence_length", "arguments",
)  # fmt: skip

_BASIS = "expected_flops_basis"
CONTRACTIONS_ALONE = "an earlier version counted the FLOPs of contractions alone; bench counts them again"
_MEANS = "process_means_ns"
_NAME = pa.dictionary(pa.int32(), pa.string())
_NOT_OK = "the outcome is not ok"
_NOT_SEEN = "it did not run, or saw no operator"
_LOST = "it was lost with its dask worker"
_GPU = "not a GPU, or nvidia-smi does not say"
_NO_PREFILL, _NO_DECODE, _NO_GENERATION = "not prefill, or not ok", "not decode, or not ok", "neither, or not ok"
_NOT_PROFILED = "not asked for, or not counted: profiled_why_not"
_NO_BASIS = "expected_flops is null, or the file has none"
_NOT_COUNTED = "could not be counted: expected_why_not"

COLUMNS: tuple[Field, ...] = (
    Field("point", pa.string(), "", "all that was asked, in words; --resume knows a point by it", "never"),
    Field("target", _NAME, "", "the model, as it was named", "never"),
    Field("device", _NAME, "", "cpu or cuda", "it ended before that was known"),
    Field("device_name", _NAME, "", "the device as the driver or the system calls it", _NOT_OK),
    Field("dtype", _NAME, "", "fp32, tf32, fp16 or bf16; of gemm: and conv: their own", "never"),
    Field("autocast", pa.bool_(), "", "the weights are fp32, and PyTorch chose the type per operator", "never"),
    Field("mode", _NAME, "", "eager, jit, compile or cudagraph", "never"),
    Field("channels_last", pa.bool_(), "", "memory format of 4-dimensional tensors", "never"),
    Field("phase", _NAME, "", "what is timed: forward, backward, step, prefill or decode", "never"),
    Field("batch_size", pa.int64(), "", "samples per iteration", "a target of known work, or of unknown size"),
    Field("input_size", pa.int64(), "pixel", "width of the images", "no images, or not ok and the target's own size"),
    Field("sequence_length", pa.int64(), "token", "tokens per sample", "no tokens, or not ok and not asked for"),
    Field("arguments", pa.string(), "", "what a function or language model was given", "neither, or nothing"),
    Field("outcome", _NAME, "", "ok, out of memory, failed, crashed or timed out", "never"),
    Field("reason", pa.string(), "", "why it is not ok", "it is ok"),
    Field("latency_mean_ns", pa.float64(), "ns", "mean time of an iteration", _NOT_OK),
    Field("latency_low_ns", pa.float64(), "ns", "lower end of the mean's 95 % interval", "fewer than 2 iterations"),
    Field("latency_high_ns", pa.float64(), "ns", "upper end of it", "fewer than 2 iterations"),
    Field("latency_median_ns", pa.float64(), "ns", "median", _NOT_OK),
    Field("latency_p95_ns", pa.float64(), "ns", "95th percentile", "fewer than 20 iterations"),
    Field("latency_p99_ns", pa.float64(), "ns", "99th percentile", "fewer than 100 iterations"),
    Field("latency_sd_ns", pa.float64(), "ns", "standard deviation of iterations", "fewer than 2 iterations"),
    Field("iterations", pa.int64(), "", "how many were timed, in all processes", _NOT_OK),
    Field("warmup_iterations", pa.int64(), "", "how many ran before, in all processes", _NOT_OK),
    Field("samples_ns", pa.list_(pa.float64()), "ns", "every timed iteration, in order", _NOT_OK),
    Field(_MEANS, pa.list_(pa.float64()), "ns", "mean time of each process", "not ok, or of a file that has none"),
    Field("throughput", pa.float64(), "1/s", "what an iteration works on / median time", "no inputs to count"),
    Field("throughput_unit", _NAME, "", "image/s, token/s or sample/s", "no inputs to count"),
    Field("first_token_ns", pa.float64(), "ns", "median time to the first token: that of prefill", _NO_PREFILL),
    Field("output_token_ns", pa.float64(), "ns", "median time of decode / tokens that it adds", _NO_DECODE),
    Field("sequence_throughput", pa.float64(), "1/s", "tokens of one sequence / median time", _NO_GENERATION),
    Field("kv_cache_bytes", pa.int64(), "byte", "keys and values that stay in the cache", _NO_GENERATION),
    Field("activation_bytes", pa.int64(), "byte", "memory_peak_bytes - memory_allocated_bytes", _NO_GENERATION),
    Field("language_facts", pa.string(), "", "sizes of the model and its run, as JSON, for estimates", _NO_GENERATION),
    Field("memory_peak_bytes", pa.int64(), "byte", "most allocated at a time in an iteration", "not known, or not ok"),
    Field("memory_allocated_bytes", pa.int64(), "byte", "of it, what stays between iterations", _NOT_OK),
    Field("memory_basis", _NAME, "", "who counted the peak: CUDA's allocator, or tensors on a CPU", "no peak"),
    Field("process_peak_bytes", pa.int64(), "byte", "most resident memory of the process, PyTorch included", _NOT_OK),
    Field("parameters", pa.int64(), "", "number of parameters", _NOT_OK),
    Field("parameter_bytes", pa.int64(), "byte", "their size", _NOT_OK),
    Field("self_cpu_time_ns", pa.float64(), "ns", "sum of an iteration, by PyTorch's profiler", _NOT_SEEN),
    Field("self_gpu_time_ns", pa.float64(), "ns", "the same on the GPU", "not a GPU, or the profiler did not see it"),
    Field("expected_flops", pa.float64(), "FLOP", "of an iteration by formulas, not measured", _NOT_COUNTED),
    Field("expected_flops_basis", _NAME, "", "whose: contractions, or all operators where there are none", _NO_BASIS),
    Field("expected_bytes", pa.float64(), "byte", "read and written by each operator, by formulas", _NOT_COUNTED),
    Field("expected_why_not", pa.string(), "", "why FLOPs or bytes are null", "they are not"),
    Field("threads", pa.int32(), "", "threads that PyTorch uses within an operator", "a GPU, or not ok"),
    Field("gpu_clock_hz", pa.float64(), "hz", "SM clock right after timing, under the same load", _GPU),
    Field("gpu_memory_clock_hz", pa.float64(), "hz", "memory clock then", _GPU),
    Field("gpu_temperature_c", pa.float64(), "degree Celsius", "temperature then", _GPU),
    Field("throttling", pa.string(), "", "what held clocks down then, or none", _GPU),
    Field("torch", _NAME, "", "version of PyTorch", _NOT_OK),
    Field("started", pa.string(), "", "when its first process started, UTC", _LOST),
    Field("seconds", pa.float64(), "s", "how long its processes took", _LOST),
    Field("log", pa.string(), "", "the file in logs/ with what its first process printed", "never"),
    Field("host", _NAME, "", "the machine that measured it, by its network name", f"{_LOST}, or the file has none"),
    Field("notes", pa.list_(pa.string()), "", "what is odd about it", _NOT_OK),
    Field("profiled_by", _NAME, "", "who counted, in a run of its own: ncu, or operators by formulas", _NOT_PROFILED),
    Field("profiled_launches", pa.int64(), "", "kernels, or operators, of an iteration in that run", _NOT_PROFILED),
    Field("profiled_time_ns", pa.float64(), "ns", "their time in that run, under the profiler", _NOT_PROFILED),
    Field("profiled_flops", pa.float64(), "FLOP", "their FLOPs, by profiled_flops_basis", _NOT_PROFILED),
    Field("profiled_flops_basis", pa.string(), "", "which counters, or that it is formulas", _NOT_PROFILED),
    Field("profiled_dram_bytes", pa.float64(), "byte", "counted between L2 and device memory", _NOT_PROFILED),
    Field("profiled_dram_fraction", pa.float64(), "", "of the DRAM bandwidth of the profiled clock", _NOT_PROFILED),
    Field("profiled_operator_bytes", pa.float64(), "byte", "in and out of each operator, by formulas", _NOT_PROFILED),
    Field("profiled_why_not", pa.string(), "", "why there are no counters", "there are, or none were asked for"),
    Field("profile", pa.string(), "", "the run folder of the profile, from that of this table", _NOT_PROFILED),
)  # fmt: skip


def bench_table(rows: Sequence[dict[str, Any]], **metadata: Any) -> pa.Table:
    """Rows of `ncu_launch.bench.sweep` as a table; `metadata` is added to the file's metadata.

    Keys without a column are dropped; missing columns are null.
    """
    own = own_fields(rows, COLUMN_NAMES)
    fields = [*(field_of(column) for column in COLUMNS), *(field for field, _ in own.columns)]
    arrays = [pa.array([row.get(column.name) for row in rows], type=column.type) for column in COLUMNS]
    arrays += [pa.array(values, type=field.type) for field, values in own.columns]
    whole = {**metadata, **own.names, "table": BENCH, "schema_version": SCHEMA_VERSION}
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata={METADATA_KEY: encoded(whole)}))


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table, each with its arguments and counters as dicts too; the inverse of `bench_table`."""
    return [{**row, **own} for row, own in zip(table.to_pylist(), own_values(table), strict=True)]


COLUMN_NAMES = frozenset(column.name for column in COLUMNS)


def missing_column(names: Sequence[str]) -> str:
    """The first never-null column that is missing from `names`; "" if none is."""
    return next((column.name for column in COLUMNS if column.null == "never" and column.name not in names), "")


def completed(table: pa.Table) -> pa.Table:
    """Append a column of nulls for each missing column.

    A file without `expected_flops_basis` counted contractions alone, so its 0 FLOPs may belong to a softmax: they
    become null.
    """
    if _BASIS not in table.column_names and "expected_flops" in table.column_names:
        table = _without_zeros(table)
    return with_nulls(table, COLUMNS)


def _without_zeros(table: pa.Table) -> pa.Table:
    """The table with null for 0 FLOPs, and with the reason."""
    is_zero = [flops == 0 for flops in table["expected_flops"].to_pylist()]
    for name, instead in (("expected_flops", None), ("expected_why_not", CONTRACTIONS_ALONE)):
        if name in table.column_names:
            at = table.column_names.index(name)
            values = zip(is_zero, table[name].to_pylist(), strict=True)
            kept = pa.array([instead if zero else value for zero, value in values], table.schema.field(at).type)
            table = table.set_column(at, table.schema.field(at), kept)
    return table


def appended(table: pa.Table | None, rows: Sequence[dict[str, Any]], **metadata: Any) -> pa.Table:
    """Append `rows` to a table of measured points and replace its metadata by `metadata`."""
    new = bench_table(rows, **metadata)
    if table is None:
        return new
    names = [column.name for column in COLUMNS]
    kept = table.select([name for name in names if name in table.column_names])
    kept = kept.cast(pa.schema([new.schema.field(name) for name in kept.column_names]), safe=False)
    whole = pa.concat_tables([kept.replace_schema_metadata(None), new.select(names)], promote_options="default")
    own = own_fields([*own_values(table), *rows], COLUMN_NAMES)
    for field, values in own.columns:
        whole = whole.append_column(field, pa.array(values, type=field.type))
    metadata = {**table_metadata(new), **own.names}
    order = [*names, *(field.name for field, _ in own.columns)]
    return whole.select(order).unify_dictionaries().replace_schema_metadata({METADATA_KEY: encoded(metadata)})


def with_row(table: pa.Table | None, row: dict[str, Any], **metadata: Any) -> pa.Table:
    """Replace the last row of the same point by `row`; append it if there is none."""
    names = [] if table is None else table.column("point").to_pylist()
    if table is None or row["point"] not in names:
        return appended(table, [row], **metadata)
    at = len(names) - 1 - names[::-1].index(row["point"])
    whole = appended(pa.concat_tables([table.slice(0, at), table.slice(at + 1)]), [row], **metadata)
    last = len(names) - 1
    parts = [whole.slice(0, at), whole.slice(last, 1), whole.slice(at, last - at)]
    return pa.concat_tables(parts).replace_schema_metadata(whole.schema.metadata)
