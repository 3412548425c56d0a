"""Names of the files and folders in a run folder.

A run folder contains manifest.json, reports/ (the profiler's files, unchanged), logs/ (the program's output), and,
once the reports are parsed, launches.parquet and kernels.parquet. A profile of several points contains points.parquet
and a run folder for each.
"""

MANIFEST = "manifest.json"
REPORTS = "reports"
LOGS = "logs"
NCU_CSV = "ncu.csv"
NCU_INSTRUCTIONS_CSV = "ncu-instructions.csv"
NCU_REPLAYED_CSV = "ncu-replayed.csv"
"""Reports of ncu: the program's only or first run; the second run, with SASS counters for the launches of the first;
and the single run that replaces two runs with different kernels."""
LAUNCHES = "launches.parquet"
BENCH_FILE = "bench.parquet"
"""Measured points of a sweep."""
POINTS_FILE = "points.parquet"
"""Points of a profile with --vary, one row each; beside it a run folder for each."""
AGAINST = "against.jsonl"
"""Points of a sweep measured against a reference: one JSON object per point."""
RANKS, NODES = "ranks", "nodes"
"""Folders in a run folder that contain one run folder per rank or per node."""
STATE = "state.json"
"""State of a running rank or node, in its run folder, until it has a manifest."""
INDUCTOR = "inductor.json"
"""Operators and source lines of kernels that torch.compile generated; only if the model was compiled."""
COMPILE_LOG = "compile"
"""Folder of PyTorch's compilation logs, inside the folder of logs, until they are read."""
MODULES = "modules.json"
"""File, line and name of the forward function of every module, by the module's path; only of model targets."""
USER_RANGES = "ranges.jsonl"
"""Ranges that a program marked with `ncu_tools.range`, one line per pass, with the user's own FLOPs and bytes."""
POWER = "power.jsonl"
"""Power, energy, clocks and temperature of the GPUs, one line per reading; only of runs with --power."""
EXPECTED = "expected.jsonl"
"""Operators that the model is expected to execute in one iteration; only for model targets."""
