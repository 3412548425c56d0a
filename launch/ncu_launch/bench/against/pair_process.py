"""Measure a function and a reference: the same inputs, results compared, times in turns; write the result as JSON.

    python -m ncu_launch.bench.against.pair_process WORKLOAD.json ASKED.json RESULT.json

ASKED.json has the keys `reference`, `tolerance` (null: by type) and `effort`.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from ncu_launch.bench import point_process
from ncu_launch.bench.against.agreement import ResultAgreement, compared
from ncu_launch.bench.against.paired_rounds import in_turns
from ncu_launch.bench.latency_statistics import Effort
from ncu_launch.bench.point_process import Ready, Row, collecting_between, cpu_timer, gpu_timer, say
from ncu_launch.bench.timed_iteration import wait_for
from ncu_launch.profilers.subprocesses import end_with_the_parent
from ncu_launch.targets.models import build
from ncu_launch.targets.quick_imports import quick_imports
from ncu_launch.targets.user_functions import without_those_of
from ncu_launch.workload.module_attribution import tensors_in
from ncu_launch.workload.workload import assembled, device_here, differentiable, placed, with_each_tensor
from ncu_launch.workload_spec import Workload


def measure(
    workload: Workload, reference: str, tolerance: float | None, effort: Effort, written: Callable[[Row], None]
) -> None:
    """Measure a pair; pass the result to `written`: the rows of both, the agreement, and the logarithms of times.

    Raises `NcuBenchError` if a target or its options cannot run here, or cannot be called with the same inputs.
    """
    with quick_imports():
        import torch

    device = device_here(workload.device)
    other = replace(workload, target=reference, inputs_of=workload.target)
    with torch.no_grad() if not workload.wants_backward else nullcontext():
        say(f"building {workload.target}")
        workload = without_those_of(reference, workload)
        mine = _ready(workload, device, None)
        say(f"building {reference}")
        theirs = _ready(other, device, mine)
        agreement = _agreement(mine, theirs, tolerance)
        for point in (mine, theirs):
            say(f"warming up {point.workload.target}")
            point_process.warm(point, effort)
        say("timing both in turns")
        with collecting_between() as collect:
            wait_for(device)
            timed = gpu_timer() if device == "cuda" else cpu_timer()
            rounds = in_turns(mine.iteration, theirs.iteration, timed, effort, between=collect)
        rows = [
            point_process.timed_row(point, samples)
            for point, samples in ((mine, rounds.mine), (theirs, rounds.reference))
        ]
    for row in rows:
        row["process_peak_bytes"] = point_process.process_peak_bytes()
        row["process_means_ns"] = [row["latency_mean_ns"]]
    result = {"agreement": asdict(agreement), "logs": rounds.logs}
    written({**result, "rows": rows})
    say("counting")
    counted = [{**row, **point_process.expected_work(each)} for row, each in zip(rows, (workload, other), strict=True)]
    written({**result, "rows": counted})


def _ready(workload: Workload, device: str, first: Ready | None) -> Ready:
    """A point with its own copy of the inputs of `first`; with the inputs that it builds if `first` is None."""
    import torch

    torch.manual_seed(workload.seed)
    built = build(workload)
    model, args, keywords = placed(workload, built, device)
    if first is not None:
        args, keywords = copy.deepcopy((first.step.arguments, first.step.keywords))
    return point_process.ready(workload, built, assembled(workload, built, model, args, keywords, device))


def _agreement(mine: Ready, theirs: Ready, tolerance: float | None) -> ResultAgreement:
    """Compare the results of both; if they return no numbers but change their inputs, compare the changed inputs."""
    results = [_results(point) for point in (mine, theirs)]
    found = compared(results[0][0], results[1][0], tolerance)
    left = [inputs for _, inputs in results]
    before = [mine.step.arguments, mine.step.keywords]
    changed = [not _are_same(before, inputs) for inputs in left]
    if found.agrees is None and any(changed):
        return compared(left[0], left[1], tolerance)
    for point, changes, other in ((mine, changed[0], changed[1]), (theirs, changed[1], changed[0])):
        if changes and not other:
            point.row["notes"].append("it changes its inputs, and the other function does not")
    return found


def _results(point: Ready) -> tuple[Any, list[Any]]:
    """The result of one call, with the gradients of its inputs if requested; and the inputs as the call left them."""
    import torch

    step = point.step
    args, keywords = copy.deepcopy((step.arguments, step.keywords))
    torch.manual_seed(point.workload.seed)
    say(f"running {point.workload.target}")
    output = step.model(*args, **keywords)
    wait_for(step.device)
    kept = copy.deepcopy(with_each_tensor(output, lambda tensor: tensor.detach()))
    if point.workload.wants_backward:
        torch.autograd.backward(*differentiable(output))
        kept = [kept, [tensor.grad for tensor in tensors_in((args, keywords)) if tensor.grad is not None]]
    return kept, [args, keywords]


def _are_same(before: Any, after: Any) -> bool:
    found = compared(after, before, 0.0)
    return found.agrees is not False


def main(arguments: list[str]) -> int:
    """Measure the pair described by the arguments. Errors go to stderr as in `point_process`."""
    end_with_the_parent()
    workload_path, asked_path, result = map(Path, arguments)
    workload = Workload.from_json(workload_path.read_text("utf-8"))
    asked = json.loads(asked_path.read_text("utf-8"))
    effort = Effort(**asked["effort"])

    def written(found: Row) -> None:
        point_process.write_row(result, {"outcome": "ok", **found})

    work = partial(measure, workload, asked["reference"], asked["tolerance"], effort, written)
    return point_process.exit_code_of(work, result)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
