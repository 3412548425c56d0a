"""`ncu_tools.range`: a named part of any program, to be found in its profile. Documented in docs/python.md.

Under ncu and nsys it is an NVTX range of the domain `ncu_bench`, so that launches inside have its path as their module.
If ncu-bench runs the program with `--tool operators`, the embedded collector is on inside. Two environment variables
set by ncu-bench name the output files; without them, and without a profiler, a range costs microseconds.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from ncu_launch.errors import WrongUsage
from ncu_launch.nvtx_ranges import Ranges

RANGES_VARIABLE = "NCU_BENCH_RANGES"
"""File to which every range is appended as it ends: a JSON object with its path, nanoseconds, FLOPs and bytes, and the
source line that opened it."""
OPERATORS_VARIABLE = "NCU_BENCH_OPERATORS"
"""File that the operator collector writes inside ranges."""

_of_thread = threading.local()
_lock = threading.Lock()
_collecting: dict[int, Any] = {}
"""Process id -> the stream of its operators, opened by its first range; None if another process has the file."""
_nvtx: list[Ranges] = []


class _Place:
    """The current range, as attribution for the collector; `iteration` counts its passes. A program has no phases."""

    phase = None
    module: str | None = None
    iteration = 0


@contextmanager
def range(name: str, *, flops: float | None = None, bytes: float | None = None) -> Iterator[None]:
    """Mark the code inside by a name; also a decorator. Nested ranges have paths, such as "step.attention".

    `flops` and `bytes` are the expected amounts per pass by your own formula; `ncu-bench compare RUN --with formulas`
    shows them beside the measured ones. Raises `WrongUsage` for a name that is empty or not a text, and for amounts
    that are not numbers from 0 on.
    """
    _check(name, flops, bytes)
    paths: list[str] = _of_thread.__dict__.setdefault("paths", [])
    paths.append(f"{paths[-1]}.{name}" if paths else name)
    opened_in = _opened_in() if os.environ.get(RANGES_VARIABLE) else None
    began = time.perf_counter_ns()
    try:
        with _ranges().during(paths[-1]), _collected(paths):
            yield
    finally:
        nanoseconds = time.perf_counter_ns() - began
        path = paths.pop()
        if file := os.environ.get(RANGES_VARIABLE):
            record = {"range": path, "ns": nanoseconds, "flops": flops, "bytes": bytes, "opened_in": opened_in}
            _append(file, record)


def _opened_in() -> tuple[str, int, str] | None:
    """File, line and function that opened a range: the innermost frame outside this file and contextlib.

    Files below the working folder have relative paths.
    """
    frame = sys._getframe(1)
    while frame.f_code.co_filename in (__file__, contextlib.__file__):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return frame.f_code.co_filename.removeprefix(f"{Path.cwd()}{os.sep}"), frame.f_lineno, frame.f_code.co_name


def _check(name: str, flops: float | None, amount: float | None) -> None:
    if not isinstance(name, str) or not name.strip():
        raise WrongUsage(
            f"A range of ncu_tools takes a name, not {name!r:.40}.", advice='Write: with ncu_tools.range("softmax"):'
        )
    for what, value in (("flops", flops), ("bytes", amount)):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 <= value < math.inf):
            raise WrongUsage(
                f"{what}={value!r:.40} of the range {name} is no number from 0 on.",
                advice=f"Give what one pass takes, as {what}=2 * m * n * k, or leave it out.",
            )


def _ranges() -> Ranges:
    if not _nvtx:
        _nvtx.append(Ranges())
    return _nvtx[0]


def _append(file: str, record: dict[str, Any]) -> None:
    """Append with a single write, so that lines of several processes do not mix."""
    number = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(number, (json.dumps(record) + "\n").encode())
    finally:
        os.close(number)


# -------------------------------------------------------------------------------------------------------- operators


@contextmanager
def _collected(paths: list[str]) -> Iterator[None]:
    """Record PyTorch operators inside the block under the innermost path, if ncu-bench requested it."""
    file = os.environ.get(OPERATORS_VARIABLE)
    if not file or "torch" not in sys.modules:
        yield
        return
    place: _Place = _of_thread.__dict__.setdefault("place", _Place())
    outer = place.module
    place.module = paths[-1]
    try:
        if outer is None:
            with _outermost(file, place):
                yield
        else:
            yield
    finally:
        place.module = outer


@contextmanager
def _outermost(file: str, place: _Place) -> Iterator[None]:
    stream = _stream(file)
    if "collector" not in _of_thread.__dict__:
        _of_thread.collector = _new_collector(place)
    collector = _of_thread.collector
    passes: Counter[str] = _of_thread.__dict__.setdefault("passes", Counter())
    path = str(place.module)
    place.iteration = passes[path]
    try:
        with collector if stream is not None else nullcontext():
            yield
    finally:
        if stream is not None:
            with _lock:
                collector.flush(stream)
        passes[path] += 1


def _new_collector(place: _Place) -> Any:
    from ncu_launch.workload.operator_collector import collector_class
    from ncu_launch.workload.workload import device_here

    return collector_class()(place, device_here("auto"), (None,))


def _stream(file: str) -> Any:
    """The collector's file of this process, opened once; None if another process collects into it."""
    import torch

    from ncu_launch.workload.operator_collector import opened_with_header
    from ncu_launch.workload.workload import cpu_name, device_here

    with _lock:
        key = os.getpid()  # a forked process has its own
        if key not in _collecting:
            device = device_here("auto")
            name = torch.cuda.get_device_name() if device == "cuda" else cpu_name()
            threads = torch.get_num_threads() if device == "cpu" else None
            try:
                Path(file).touch(exist_ok=False)
                _collecting[key] = opened_with_header(Path(file), device, name, threads=threads)
            except FileExistsError:
                _collecting[key] = None
                sys.stderr.write("ncu-bench: another process is collecting, so ranges of this one are not counted\n")
        return _collecting[key]
