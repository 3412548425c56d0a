"""The formats that are mutated, by name."""

from __future__ import annotations

from tests.fuzz.oracle import binary_files, csv_pages, databases, json_traces, parquet_files, pftraces, records, xplanes
from tests.fuzz.oracle.compared import Format

FORMATS = {
    one.name: one
    for one in (
        Format("csv-raw", ".csv", csv_pages.mutated_raw, csv_pages.slow_raw, csv_pages.plain),
        Format("csv-raw-fast", ".csv", csv_pages.mutated_raw, csv_pages.slow_raw, csv_pages.streamed),
        Format("csv-details", ".csv", csv_pages.mutated_details, csv_pages.slow_details, csv_pages.plain),
        Format("csv-details-fast", ".csv", csv_pages.mutated_details, csv_pages.slow_details, csv_pages.streamed),
        Format("ncu-rep", ".ncu-rep", binary_files.mutated, binary_files.slow, binary_files.fast),
        Format("nsys-sqlite", ".sqlite", databases.mutated, databases.slow, databases.fast),
        Format("kineto", ".json", json_traces.mutated_kineto, json_traces.slow_kineto, json_traces.fast("kineto")),
        Format(
            "rocprofv3",
            ".json",
            json_traces.mutated_rocprofv3,
            json_traces.slow_rocprofv3,
            json_traces.fast("rocprofv3"),
        ),
        Format("xplane", ".xplane.pb", xplanes.mutated, xplanes.slow, json_traces.fast("xplane")),
        Format("pftrace", ".pftrace", pftraces.mutated, pftraces.slow, json_traces.fast("pftrace")),
        Format("parquet", ".parquet", parquet_files.mutated, parquet_files.slow, parquet_files.fast),
        Format("operators", ".jsonl", records.mutated_operators, records.slow_operators, records.fast_operators),
        Format("points", ".json", records.mutated_points, records.slow_points, records.fast_points),
    )
}
