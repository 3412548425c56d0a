"""Count the kernels that a model launches in its last warm-up step and in each following iteration.

    python -m ncu_launch.profile.launch_count WORKLOAD.json COUNTS.json

ncu and nsys record only the profiled range, and PyTorch's profiler cannot count beside them, since both need CUPTI. So
a separate process runs the model once before they do. No GPU has run this yet.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_launch.files.atomic_files import write_whole
from ncu_launch.files.typed_json import object_in
from ncu_launch.profile.plan import Plan, Request
from ncu_launch.profilers.subprocesses import OWN_PYTHON, end_with_the_parent, own_environment, run
from ncu_launch.targets.quick_imports import quick_imports
from ncu_launch.targets.user_functions import is_function
from ncu_launch.workload.meta_device_process import errors_written, why_not
from ncu_launch.workload.workload import Step, exit_code_of, prepared
from ncu_launch.workload_spec import Workload

TIMEOUT_S = 300
KERNELS = "kernel"
"""The category of kernels in a trace of PyTorch's profiler, beside gpu_memcpy and gpu_memset."""


@dataclass(frozen=True)
class LaunchCounts:
    """Number of launches by kernel name in the profiled phases: of the last warm-up step, and of each iteration."""

    warm: dict[str, int]
    iterations: tuple[dict[str, int], ...]


def can_be_counted(request: Request, plan: Plan) -> bool:
    """True for a target that may tune, profiled whole by ncu or nsys, on a GPU, in one process, after a warm-up."""
    filters = (request.kernel, request.launch_skip, request.launch_count, request.nvtx_include)
    return (
        (request.workload is not None and may_tune(request.workload))
        and (request.workload.device != "cpu" and request.workload.warmup > 0)
        and (plan.tool in ("ncu", "nsys") and bool(plan.gpus) and not request.ranks and not any(filters))
    )


def may_tune(workload: Workload) -> bool:
    """True for targets that may choose or compile kernels at run time: functions, Hugging Face models, torch.compile.

    Eager models of torchvision and timm, gemm: and conv: do no tuning, since cuDNN's benchmark mode is off. A CUDA
    graph is captured inside the profiled range, and launches nothing there.
    """
    if workload.mode == "cudagraph":
        return False
    return workload.mode == "compile" or is_function(workload.target) or workload.target.startswith("hf:")


def launch_counts_of(
    workload: Workload, *, on_line: Callable[[str], None] = lambda line: None, timeout: float = TIMEOUT_S
) -> LaunchCounts | str:
    """Run a workload in a separate process and count its launches; if that fails, returns the reason.

    The process is ended after `timeout` seconds. Raises `KeyboardInterrupt` on Ctrl-C.
    """
    with tempfile.TemporaryDirectory(prefix="ncu-bench-launches-") as name:
        asked, counts, log = (Path(name) / part for part in ("workload.json", "counts.json", "log"))
        asked.write_text(workload.to_json(), encoding="utf-8")
        command = [*OWN_PYTHON, "-m", "ncu_launch.profile.launch_count", str(asked), str(counts)]
        finished = run(command, log, timeout=timeout, environment=own_environment(), on_line=on_line)
        if finished.interrupted:
            raise KeyboardInterrupt
        found = object_in(counts)
        if not found:
            error = next(iter(errors_written(log)), None)
            return why_not(error, log, timeout if finished.timed_out else None)
        return LaunchCounts(found["warm"], tuple(found["iterations"]))


def count(step: Step, activity: Any = None, category: str = KERNELS) -> LaunchCounts:
    """Warm a step up and count the profiler's events in its last warm-up step and in each iteration.

    `activity` is the kind of activity to record, CUDA if None; `category` the category of events to count. Raises
    `NcuBenchError` if the profiler records none at all.
    """
    for phase in step.workload.profiled_phases if step.generation is not None else ():
        step.cache(phase)  # filled before the profiled range, too
    for _ in range(step.workload.warmup - 1):
        step.run(lambda phase: nullcontext())
    warm = _counted(step, activity, category)
    iterations = [_counted(step, activity, category) for _ in range(step.workload.iterations)]
    if not any((warm, *iterations)):
        raise NcuBenchError("PyTorch's profiler saw no kernel, as where it has no access to CUPTI.")
    return LaunchCounts(dict(warm), tuple(map(dict, iterations)))


def _counted(step: Step, activity: Any, category: str) -> Counter[str]:
    """Number of events by name in one run of a step, in the phases that ncu would profile."""
    import torch

    found = Counter[str]()
    wanted = step.workload.profiled_phases
    whole = wanted == step.workload.run_phases
    recorded = torch.profiler.ProfilerActivity.CUDA if activity is None else activity

    @contextmanager
    def counting() -> Iterator[None]:
        with torch.profiler.profile(activities=[recorded]) as profiler:
            yield
            if step.device == "cuda":
                torch.cuda.synchronize()
        found.update(_names_of(profiler, category))

    with counting() if whole else nullcontext():
        step.run(lambda phase: counting() if not whole and phase in wanted else nullcontext())
    return found


def _names_of(profiler: Any, category: str) -> Iterator[str]:
    """The names of a profiler's events of one category, one for each event."""
    with tempfile.TemporaryDirectory(prefix="ncu-bench-launches-") as name:
        path = Path(name) / "trace.json"
        profiler.export_chrome_trace(str(path))
        for event in json.loads(path.read_text("utf-8", "replace"))["traceEvents"]:
            if event.get("ph") == "X" and event.get("cat") == category:
                yield event["name"]


def main(arguments: list[str]) -> int:
    """Count the launches of the workload that the arguments name; returns the exit code."""
    end_with_the_parent()
    workload = Workload.from_json(Path(arguments[0]).read_text("utf-8"))

    def work() -> None:
        with quick_imports():
            import torch

        torch.manual_seed(workload.seed)
        step = prepared(workload)
        if step.device != "cuda":
            raise NcuBenchError("The model runs on the CPU, where no kernel is launched.")
        write_whole(Path(arguments[1]), json.dumps(asdict(count(step))).encode())

    return exit_code_of(work)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
