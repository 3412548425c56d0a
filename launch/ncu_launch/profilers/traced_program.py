"""Run a Python program under PyTorch's profiler, and write its trace when the program ends, however it ends.

Started by path, as `python traced_program.py TRACE.json.gz train.py --epochs 1` or `... TRACE.json.gz -m train`, by the
program's own Python, which need not have ncu-bench: this file imports nothing of it. With `--sample MS METRIC,...`
after the trace, GPU metrics are sampled every MS milliseconds if that PyTorch (September 2026 or newer) and the driver
support it; otherwise a line on stderr says what is missing, and the program runs without samples.
"""

from __future__ import annotations

import inspect
import runpy
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

MODULE = "-m"
SAMPLE = "--sample"
NOT_SAMPLED = "GPU metrics are not sampled: "
CLASSES = ("PerformanceMetricsConfig", "ProfilerActivityConfig")
"""Classes of torch.profiler that configure the sampling of GPU metrics; older versions of PyTorch lack them."""


def _look_where_python_would(first: str) -> None:
    """Put the program's own folder first on sys.path, in place of this file's."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(Path.cwd() if first == MODULE else Path(first).resolve().parent)


def _run(words: list[str]) -> None:
    """Run a script or a module (`-m`), with its arguments, as `python` would."""
    if words[0] == MODULE:
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


def _torch_profiler() -> Any:
    """The module of PyTorch's profiler. Exits with a message where PyTorch is missing."""
    try:
        from torch import profiler
    except ImportError as error:
        raise SystemExit(
            f"PyTorch's profiler cannot record this program: {sys.executable} has no PyTorch ({error}). "
            "Install torch there, or name the Python that has it."
        ) from None
    return profiler


def _sampling(profiler: Any, interval_ms: float, metrics: list[str]) -> list[Any]:
    """The profiler activities that also sample `metrics`. Raises `LookupError`, which says what is missing for that."""
    lacking = [name for name in CLASSES if not hasattr(profiler, name)]
    if lacking:
        import torch

        raise LookupError(
            f"PyTorch {torch.__version__} has no torch.profiler.{lacking[0]}, which came in September 2026"
        )
    every, cuda = profiler.supported_activities(), profiler.ProfilerActivity.CUDA
    if cuda not in every:
        raise LookupError("PyTorch sees no CUDA GPU")
    known = inspect.signature(profiler.PerformanceMetricsConfig).parameters
    interval = {"sampling_interval_ms": interval_ms} if "sampling_interval_ms" in known else {}
    config = profiler.PerformanceMetricsConfig(metric_names=metrics, **interval)
    return [*(one for one in every if one != cuda), {cuda: profiler.ProfilerActivityConfig(profiler_configs=[config])}]


def started(sample: list[str]) -> Any:
    """Start PyTorch's profiler with every supported activity; it samples GPU metrics by `sample` (MS, "METRIC,...").

    If sampling is not possible, writes the reason to stderr and starts without. Exits with a message without PyTorch.
    """
    profiler = _torch_profiler()
    with warnings.catch_warnings():  # a profiler without a schedule warns of its first cycle
        warnings.simplefilter("ignore")
        if sample:
            try:
                activities = _sampling(profiler, float(sample[0]), sample[1].split(","))
                found = profiler.profile(activities=activities, record_shapes=True)
                found.start()
            except (LookupError, RuntimeError, TypeError, ValueError) as error:
                sys.stderr.write(f"{NOT_SAMPLED}{error}\n")
            else:
                return found
        found = profiler.profile(activities=profiler.supported_activities(), record_shapes=True)
        found.start()
    return found


class SecondProfiler(SystemExit):
    """The program started PyTorch's profiler while the one around it runs."""


@contextmanager
def no_second_profiler() -> Iterator[None]:
    """Raise `SecondProfiler` if PyTorch's profiler is started in the block: only one can run; a second one crashes."""
    from torch.autograd.profiler import profile

    def refuse(*_: Any) -> None:
        raise SecondProfiler(
            "The program starts PyTorch's profiler itself, and one can run at a time: run it as it is, and read the "
            "trace that it writes with ncu-bench hotspots TRACE; or profile it without its own profiler."
        )

    usual = profile._prepare_trace
    profile._prepare_trace = refuse  # type: ignore[method-assign,unused-ignore]
    try:
        yield
    finally:
        profile._prepare_trace = usual  # type: ignore[method-assign,unused-ignore]


def _end(number: int, frame: FrameType | None) -> None:
    """End the program with an exception, so that its trace is written."""
    raise SystemExit(128 + number)


def main() -> None:
    """Run the program named on the command line, and write its trace."""
    trace, *words = sys.argv[1:]
    sample: list[str] = []
    if words[0] == SAMPLE:
        sample, words = words[1:3], words[3:]
    signal.signal(signal.SIGTERM, _end)
    _look_where_python_would(words[0])
    profiler = started(sample)
    try:
        with no_second_profiler():
            _run(words)
    finally:
        profiler.stop()
        profiler.export_chrome_trace(trace)


if __name__ == "__main__":
    main()
