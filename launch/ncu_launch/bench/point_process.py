"""Measure one point of a sweep: build a model, warm up, time it until its mean is precise, write the result as JSON.

    python -m ncu_launch.bench.point_process WORKLOAD.json EFFORT.json RESULT.json

A sample is one iteration. On a GPU it is timed by two CUDA events, and the GPU is idle before it starts; on a CPU by a
monotonic clock. Python's garbage collector runs only between samples. The phase determines the iteration: a forward
pass without gradients; a backward pass alone, after an untimed forward pass; a step with gradients and an SGD update;
or prefill or decode.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ncu_launch.bench.flops_of_points import NO_OPERATOR, flops_columns
from ncu_launch.bench.generation_row import row_of_generation, sizes_of_generation
from ncu_launch.bench.gpu.gpu_clocks import GpuState, gpu_state
from ncu_launch.bench.gpu.iteration_energy import sampled_row, with_flops_per_joule
from ncu_launch.bench.latency_statistics import Effort, summed_up
from ncu_launch.bench.memory_and_self_times import allocated_bytes, peak_memory, self_times
from ncu_launch.bench.timed_iteration import Iteration, Timer, iteration_of, timed_once, untimed, wait_for
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.atomic_files import write_whole
from ncu_launch.files.run_files import CODE
from ncu_launch.profilers.subprocesses import end_with_the_parent
from ncu_launch.targets.models import Built, build
from ncu_launch.targets.quick_imports import quick_imports
from ncu_launch.targets.user_functions import is_function
from ncu_launch.workload.cpu_load import DISTURBS, CpuLoad, clock_hz, on_clock
from ncu_launch.workload.kept_code import keep_code
from ncu_launch.workload.meta_device_count import estimate
from ncu_launch.workload.meta_device_process import expectation_of
from ncu_launch.workload.module_attribution import tensors_in
from ncu_launch.workload.quantised_weights import stored_bytes
from ncu_launch.workload.workload import CHANGES_ITS_INPUTS, Step, assembled, cpu_name, device_here, placed
from ncu_launch.workload_spec import Workload

STAGE = "ncu-bench: "
"""Prefix of output lines that name the stage of the measurement."""
OUT_OF_MEMORY_WORDS = ("can't allocate memory", "not enough memory", "out of memory", "Cannot allocate memory")
COLLECT_EVERY = 64
AFTER_COLLECTING = 3
"""Iterations after a garbage collection that fill the caches again."""
ASKING_S = 5.0
NO_POWER_OF_CPUS = "power is sampled of GPUs, and this ran on the CPU"

CONVERTED_TO = ("fp16", "bf16")
"""The types to which autocast converts; it ignores other types."""

Row = dict[str, Any]


@dataclass
class Ready:
    """A point that was built and moved to its device, with the values of its row so far."""

    workload: Workload
    built: Built
    step: Step
    iteration: Iteration
    row: Row


def measure(workload: Workload, effort: Effort, written: Callable[[Row], None]) -> None:
    """Measure a point; pass its row to `written` as soon as there is one, and again with the expected FLOPs and bytes.

    Raises `NcuBenchError` if the target or its options cannot run here.
    """
    with quick_imports():
        import torch

    torch.manual_seed(workload.seed)
    device = device_here(workload.device)
    say("building")
    built = build(workload)
    with torch.no_grad() if not workload.wants_backward else nullcontext():
        point = ready(workload, built, assembled(workload, built, *placed(workload, built, device), device))
        say("warming up")
        warm(point, effort)
        say("timing")
        load, clock = CpuLoad(), clock_hz()
        samples = sampled(point.iteration, effort, device)
        if device == "cpu":
            point.row["notes"] += [*_on_load(load.others(), samples, effort), *on_clock(clock, clock_hz())]
        row = timed_row(point, samples)
        if effort.power:
            row = _with_power(point, row)
    row["process_peak_bytes"] = process_peak_bytes()
    written(row)
    del point, built
    gc.collect()
    say("counting")
    written(with_flops_per_joule({**row, **expected_work(workload)}))


def ready(workload: Workload, built: Built, step: Step) -> Ready:
    """A point whose step was assembled; in jit mode its model is optimised for inference."""
    row = {**_identity(workload, built, step), **_sizes(workload, built)}
    if workload.mode == "jit":
        row["notes"] += _optimise(step, built)
    return Ready(workload, built, step, iteration_of(step), row)


def warm(point: Ready, effort: Effort) -> None:
    """Run a point untimed as long as `effort` asks; its row gets the iteration count, and whether inputs changed."""
    unchanged = point.step.versions()
    point.row["warmup_iterations"] = _warm(point.iteration, effort, point.step.device)
    point.row["notes"] += [CHANGES_ITS_INPUTS] if point.step.versions() != unchanged else []
    point.row["memory_allocated_bytes"] = allocated_bytes(point.step)


def timed_row(point: Ready, samples: list[float]) -> Row:
    """The row of a timed point, from `samples` in ns, with clocks, memory and self times, queried after the timing."""
    device, row = point.step.device, point.row
    row |= {**_latency(samples, row), **_gpu(point.iteration, device)}
    say("profiling")
    memory = peak_memory(point.iteration, row["memory_allocated_bytes"], device)
    whole = {**row, **memory, **self_times(point.iteration, device)}
    generation, language = point.step.generation, point.built.language
    if generation is None or language is None:
        return whole
    return {**whole, **row_of_generation(point.workload, language, generation, whole)}


def _with_power(point: Ready, row: Row) -> Row:
    """The row with power, energy and activity of the GPU, sampled while the point's iteration repeats."""
    if point.step.device != "cuda":
        return {**row, "notes": [*row["notes"], NO_POWER_OF_CPUS]}
    say("sampling power")

    def work() -> None:
        untimed(point.iteration)
        wait_for(point.step.device)

    sampled = sampled_row(work, _gpu_uuid(), is_backward=point.workload.phases == ("backward",))
    return {**row, **sampled, "notes": [*row["notes"], *sampled["notes"]]}


def process_peak_bytes() -> int:
    """The peak resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _optimise(step: Step, built: Built) -> list[str]:
    """Replace the traced model by one optimised for inference, if possible; returns notes."""
    traced = step.model
    step.model, notes = for_inference(step)
    if step.model is not traced and step.device == "cuda":  # else the weights would be allocated twice
        step.watched, built.model = step.model, None
    return notes


def for_inference(step: Step) -> tuple[Any, list[str]]:
    """The model to call in place of a step's traced model; if that is the same model, also a note that says why.

    Uses `torch.jit.freeze` and `torch.jit.optimize_for_inference`, and runs the model once.
    """
    import torch

    workload = step.workload
    if workload.wants_backward:
        return step.model, ["traced and not frozen: gradients need parameters, which freezing makes constants"]
    if workload.autocast and workload.dtype in CONVERTED_TO:
        return step.model, ["traced and not frozen: autocast does not convert the constants of a frozen model"]
    try:
        frozen = torch.jit.optimize_for_inference(torch.jit.freeze(step.model))
        frozen(*step.arguments)
    except RuntimeError as error:
        last_line = (str(error).strip().splitlines() or [""])[-1]
        return step.model, [f"traced and not frozen: PyTorch could not optimise it for inference ({last_line})"]
    return frozen, []


# ---------------------------------------------------------------------------------------------------------- timing


def _warm(iteration: Iteration, effort: Effort, device: str) -> int:
    began, done = time.monotonic(), 0
    while not effort.warm(done, time.monotonic() - began):
        untimed(iteration)
        wait_for(device)
        done += 1
    return done


def sampled(iteration: Iteration, effort: Effort, device: str) -> list[float]:
    """Time iterations; returns the nanoseconds of each, in order."""
    timed = gpu_timer() if device == "cuda" else cpu_timer()
    samples: list[float] = []
    check_at = effort.least
    with collecting_between() as collect:
        for _ in range(AFTER_COLLECTING):
            untimed(iteration)
        wait_for(device)
        began = time.monotonic()
        while len(samples) < effort.most:
            samples.append(timed_once(iteration, timed))
            if len(samples) % COLLECT_EVERY == 0:
                collect()
            seconds = time.monotonic() - began
            if seconds >= effort.max_s:
                break
            if len(samples) >= check_at and seconds >= effort.least_s:
                if effort.tight(samples):
                    break
                check_at = len(samples) + max(1, len(samples) // 10)
    return samples


def cpu_timer() -> Timer:
    """A function that times one iteration in ns, by a monotonic clock."""
    clock = time.perf_counter_ns

    def timed(work: Callable[[Any], None], prepared: Any) -> float:
        began = clock()
        work(prepared)
        return float(clock() - began)

    return timed


def gpu_timer() -> Timer:
    """A function that times one iteration in ns between two CUDA events, on an idle GPU."""
    import torch

    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed(work: Callable[[Any], None], prepared: Any) -> float:
        torch.cuda.synchronize()
        began.record()
        work(prepared)
        ended.record()
        ended.synchronize()
        return float(began.elapsed_time(ended)) * 1e6

    return timed


@contextmanager
def collecting_between() -> Iterator[Callable[[], Any]]:
    """Disable the garbage collector and freeze existing objects within the block; yields a function that collects."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield gc.collect
    finally:
        gc.enable()
        gc.unfreeze()


def _latency(samples: list[float], row: Row) -> Row:
    found = summed_up(samples)
    items = row["items"]
    return {
        "iterations": len(samples),
        **found.columns,
        "throughput": items / found.median * 1e9 if items else None,
        "samples_ns": samples,
    }


def _in_words(time_ns: float) -> str:
    return f"{time_ns / 1e6:.4g} ms" if time_ns >= 1e6 else f"{time_ns / 1e3:.4g} µs"


def _on_load(others: float | None, samples: list[float], effort: Effort) -> list[str]:
    """A note if the mean is not as precise as requested while other programs took much of the CPU; else []."""
    if others is None or others < DISTURBS or effort.tight(samples):
        return []
    found = summed_up(samples)
    return [
        f"other programs took {100 * others:.0f} % of the CPU while it was timed: the median of its latency, "
        f"{_in_words(found.median)}, is more to be trusted than the mean, {_in_words(found.mean)}; "
        "throughput is by the median"
    ]


# -------------------------------------------------------------------------------------------------- the row of a point


def _identity(workload: Workload, built: Built, step: Step) -> Row:
    import torch

    on_gpu = step.device == "cuda"
    notes = list(built.notes)
    if workload.wants_backward and not step.watched.training:
        notes.append("gradients in evaluation mode: this model or batch cannot train")
    if (built.dtype or workload.dtype) == "tf32" and not on_gpu:
        notes.append("TF32 is a type of GPUs: on the CPU this ran in fp32")
    parameters = list(step.watched.parameters())
    return {
        "device": step.device,
        "device_name": torch.cuda.get_device_name() if on_gpu else cpu_name(),
        "threads": None if on_gpu else torch.get_num_threads(),
        "torch": str(torch.__version__),
        "parameters": sum(int(parameter.numel()) for parameter in parameters),
        "parameter_bytes": sum(map(stored_bytes, parameters)),
        "notes": notes,
    }


def _sizes(workload: Workload, built: Built) -> Row:
    """Batch, input and sequence size: as passed to a user's function, else from the shapes of a model's inputs.

    The inputs of a function that is not a model can have any meaning.
    """
    keywords = built.kwargs or {}
    if built.generation is not None and built.language is not None:
        return sizes_of_generation(workload, built.language)
    tensors = list(tensors_in((built.args, keywords)))
    images = [tensor for tensor in tensors if tensor.is_floating_point() and tensor.dim() == 4]
    row: Row = dict.fromkeys(("batch_size", "input_size", "sequence_length", "items", "throughput_unit"))
    if "input_ids" in keywords:
        tokens = keywords["input_ids"]
        row |= {"batch_size": len(tokens), "sequence_length": tokens.shape[1], "items": tokens.numel()}
        row["throughput_unit"] = "token/s"
    elif built.needs_targets_to_train:  # detectors take a list of images
        row |= {"batch_size": len(tensors), "input_size": tensors[0].shape[-1], "items": len(tensors)}
        row["throughput_unit"] = "image/s"
    elif built.is_model and tensors and tensors[0].dim():
        row |= {"batch_size": len(tensors[0]), "items": len(tensors[0])}
        row["throughput_unit"] = "image/s" if images else "sample/s"
        row["input_size"] = tensors[0].shape[-1] if tensors[0].dim() >= 4 else None
    if "batch_size" in built.sizes and row["throughput_unit"] != "token/s":
        row |= {"items": built.sizes["batch_size"], "throughput_unit": row["throughput_unit"] or "sample/s"}
    return row | built.sizes


def expected_work(workload: Workload) -> Row:
    """FLOPs and bytes per iteration, by formulas from the operators' shapes, as `flops_columns` selects them.

    With a GPU, a user's function is counted in a process that cannot see it; other targets are counted in this one.
    """
    import torch

    if is_function(workload.target) and torch.cuda.is_available():
        expectation = expectation_of(replace(workload, device=device_here(workload.device)))
        if expectation.why_not:
            return {"expected_why_not": expectation.why_not}
        return _work_columns(expectation.summary)
    with tempfile.TemporaryDirectory(prefix="ncu-bench-expected-") as folder:
        operators, summary = Path(folder) / "operators", Path(folder) / "summary"
        try:
            estimate(workload, operators, summary)
        except NcuBenchError as error:
            return {"expected_why_not": error.what}
        return _work_columns(json.loads(summary.read_text("utf-8")))


def _work_columns(summary: dict[str, Any]) -> Row:
    if not summary["operators"]:
        return {"expected_why_not": NO_OPERATOR}
    return {**flops_columns(summary), "expected_bytes": float(summary["bytes"])}


def _gpu(iteration: Iteration, device: str) -> Row:
    """The GPU's state while it repeats the same work after timing, so that the query disturbs no sample."""
    if device != "cuda":
        return {}
    found: list[GpuState | None] = []
    asking = threading.Thread(target=lambda: found.append(gpu_state(_gpu_uuid())), daemon=True)
    asking.start()
    until = time.monotonic() + ASKING_S
    while asking.is_alive() and time.monotonic() < until:
        untimed(iteration)
        wait_for(device)
    state = (found[0] if found else None) or GpuState(None, None, None, None)
    return {
        "gpu_clock_hz": state.sm_clock_hz,
        "gpu_memory_clock_hz": state.memory_clock_hz,
        "gpu_temperature_c": state.temperature_c,
        "throttling": state.throttling,
    }


def _gpu_uuid() -> str:
    """The current GPU's UUID for nvidia-smi and NVML; "0", the first GPU, if this PyTorch has no UUID."""
    import torch

    uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
    return f"GPU-{uuid}" if uuid else "0"


# --------------------------------------------------------------------------------------------------------- process


def say(stage: str) -> None:
    """Print the stage that begins, for the parent process."""
    sys.stdout.write(f"{STAGE}{stage}\n")
    sys.stdout.flush()


def is_out_of_memory(error: BaseException) -> bool:
    """True for out-of-memory errors of a GPU, of Python, or of PyTorch's CPU allocator, recognised by its text."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError | OSError) and any(words in str(error) for words in OUT_OF_MEMORY_WORDS)


def write_row(path: Path, row: Row) -> None:
    """Write a row as JSON, atomically."""
    write_whole(path, json.dumps(row).encode())


def exit_code_of(work: Callable[[], None], result: Path) -> int:
    """Do `work`, which writes `result`; if memory runs out, write that outcome there. Returns the exit code.

    An `NcuBenchError` goes to stderr as one line of JSON, other errors as a traceback.
    """
    try:
        work()
    except NcuBenchError as error:
        sys.stderr.write(error.serialized + "\n")
        return error.exit_code
    except Exception as error:
        if result.is_file() or not is_out_of_memory(error):
            raise
        first_line = (str(error).splitlines() or [""])[0]
        write_row(result, {"outcome": "out of memory", "reason": f"{type(error).__name__}: {first_line}"[:300]})
        return 1
    return 0


def main(arguments: list[str]) -> int:
    """Measure the point described by the arguments; writes its row to RESULT.json, as `exit_code_of` says."""
    end_with_the_parent()
    workload_path, effort_path, result = map(Path, arguments)
    workload = Workload.from_json(workload_path.read_text("utf-8"))
    effort = Effort(**json.loads(effort_path.read_text("utf-8")))

    def written(row: Row) -> None:
        write_row(result, {"outcome": "ok", **row})
        keep_code(result.with_name(CODE))

    return exit_code_of(lambda: measure(workload, effort, written), result)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
