"""Run a Python program under PyTorch's profiler, and write its trace when the program ends, however it ends.

Started by path, as `python traced_program.py TRACE.json.gz train.py --epochs 1` or `... TRACE.json.gz -m train`, by the
program's own Python, which need not have ncu-bench: nothing of it is imported here.
"""

from __future__ import annotations

import runpy
import signal
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

MODULE = "-m"


def _look_where_python_would(first: str) -> None:
    """Put the program's own folder first on sys.path, in place of this file's."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(Path.cwd() if first == MODULE else Path(first).resolve().parent)


def _run(words: list[str]) -> None:
    """Run a script or a module (`-m`) as `python` would with these words."""
    if words[0] == MODULE:
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


def _profiler() -> Any:
    """A profiler of everything that PyTorch can record here. Exits with a message where PyTorch is missing."""
    try:
        from torch import profiler
    except ImportError as error:
        raise SystemExit(
            f"PyTorch's profiler cannot record this program: {sys.executable} has no PyTorch ({error}). "
            "Install torch there, or name the Python that has it."
        ) from None
    return profiler.profile(activities=profiler.supported_activities(), record_shapes=True)


def _refuse_a_second_one() -> None:
    """End the program when it starts PyTorch's profiler itself: only one can run at a time; a second one crashes."""
    from torch.autograd.profiler import profile

    def refuse(*_: Any) -> None:
        raise SystemExit(
            "The program starts PyTorch's profiler itself, and one can run at a time: run it as it is, and read the "
            "trace that it writes with ncu-bench hotspots TRACE; or profile it without its own profiler."
        )

    profile._prepare_trace = refuse  # type: ignore[method-assign,unused-ignore]


def _end(number: int, frame: FrameType | None) -> None:
    """End the program with an exception, so that its trace is written."""
    raise SystemExit(128 + number)


def main() -> None:
    """Run the program of the command line, and write its trace."""
    trace, *words = sys.argv[1:]
    signal.signal(signal.SIGTERM, _end)
    _look_where_python_would(words[0])
    profiler = _profiler()
    with warnings.catch_warnings():  # a profiler without a schedule warns of its first cycle
        warnings.simplefilter("ignore")
        profiler.start()
    _refuse_a_second_one()
    try:
        _run(words)
    finally:
        profiler.stop()
        profiler.export_chrome_trace(trace)


if __name__ == "__main__":
    main()
