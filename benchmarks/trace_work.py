"""Cost of deriving the work of operators when a PyTorch profiler trace is read: time with it and without, in turns.

    OMP_NUM_THREADS=1 python benchmarks/trace_work.py TRACE...

Prints both medians and their ratio. Target: at most 1.3.
"""

from __future__ import annotations

import statistics
import sys
import time
from unittest.mock import patch

from ncu_parsers.derived.operators.work_from_shapes import WorkOfLaunches
from ncu_parsers.launches import launch_view
from ncu_parsers.parse.file_kinds import read_artefact
from ncu_parsers.sources.sources import Source

ROUNDS = 15


def with_work(path: str) -> float:
    """Seconds to read a trace as usual."""
    began = time.perf_counter()
    read_artefact(Source(path))
    return time.perf_counter() - began


def without_work(path: str) -> float:
    """Seconds to read a trace without deriving operators' work."""
    with (
        patch.object(launch_view, "work_of_launches", lambda operations, *rest: WorkOfLaunches(len(operations))),
        patch.object(launch_view, "work_of_operators", lambda ranges, operators, *rest: WorkOfLaunches(len(operators))),
    ):
        return with_work(path)


def main(paths: list[str]) -> None:
    """Read each trace both ways in turns, and print the times."""
    for path in paths:
        pairs = [(without_work(path), with_work(path)) for _ in range(ROUNDS)]
        without, under = (statistics.median(times) for times in zip(*pairs, strict=True))
        ratio = statistics.median(second / first for first, second in pairs)
        print(f"{path}: without {without * 1e3:.0f} ms, with {under * 1e3:.0f} ms, ratio {ratio:.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
