"""What the files and folders of a run folder are called.

A run folder holds manifest.json, reports/ (the tool's own files, untouched), logs/ (what the program printed), and
launches.parquet and kernels.parquet, once the reports have been parsed.
"""

MANIFEST = "manifest.json"
REPORTS = "reports"
LOGS = "logs"
LAUNCHES = "launches.parquet"
BENCH_FILE = "bench.parquet"
"""The measured points, in the run folder of a sweep."""
RANKS, NODES = "ranks", "nodes"
"""The folders of a run folder that hold a run folder for each rank, or for each node."""
STATE = "state.json"
"""How a rank or node is doing, in its own run folder, until there is a manifest."""
EXPECTED = "expected.jsonl"
"""The operators that the model is expected to execute in one iteration, where the target is a model."""
