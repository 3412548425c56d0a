"""The profiled process: build the model, warm up, then run it with ranges or under the operator collector.

    python -m ncu_launch.workload.workload WORKLOAD.json FACTS.json [OPERATORS.jsonl]
    python -m ncu_launch.workload.workload WORKLOAD.json FACTS.json --trace TRACE.json.gz [--sample MS METRIC,...]

With OPERATORS.jsonl the embedded collector writes its records there; without, NVTX ranges are emitted and the CUDA
profiler is switched on after the warm-up, so that autotuning and compilation stay outside the profile. With --trace,
PyTorch's profiler is switched on then, and the ranges are annotations in its trace.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.atomic_files import write_whole
from ncu_launch.files.run_files import CODE, MODULES
from ncu_launch.nvtx_ranges import Ranges
from ncu_launch.profilers.subprocesses import end_with_the_parent
from ncu_launch.targets.language.generation import Generation
from ncu_launch.targets.models import Built, build
from ncu_launch.targets.quick_imports import quick_imports
from ncu_launch.workload.cpu_load import CpuLoad, clock_hz, on_clock
from ncu_launch.workload.data_parallel import joined_ranks, meet, replicated
from ncu_launch.workload.kept_code import keep_code
from ncu_launch.workload.module_attribution import Attribution, forward_functions, tensors_in
from ncu_launch.workload.operator_collector import collector_class, opened_with_header
from ncu_launch.workload.quantised_weights import quantise
from ncu_launch.workload.repeated_timing import Records, repeated
from ncu_launch.workload.traced_iterations import Trace, TraceRanges
from ncu_launch.workload.warm_step import other_operators, tuned_inside
from ncu_launch.workload_spec import Facts, Workload

TORCH_DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}

CHANGES_ITS_INPUTS = "the work changes its inputs in place: each iteration starts from what the one before left"

NOT_AS_ASKED = {
    "compile": ["PyTorch does not compile under the operator collector: these are the operators of the eager model"],
    "jit": ["TorchScript runs without its optimizer under the operator collector, and knows no modules"],
}
"""Effects of a mode that the collector cannot see."""


def run(workload: Workload, facts_path: Path, operators_path: Path | None, trace: Trace | None = None) -> None:
    """Run a workload under the embedded collector if `operators_path` is given, with `trace` under PyTorch's profiler.

    Facts about it are written as soon as they are known. Raises `NcuBenchError` if the target or its options cannot run
    here.
    """
    with quick_imports():
        import torch

    load = CpuLoad()
    torch.manual_seed(workload.seed)
    device = device_here(workload.device)
    built = build(workload)
    workload = workload if built.is_model else workload.of_function()
    with joined_ranks(workload, device, facts_path.parent.parent):
        _run(workload, built, device, load, (facts_path, operators_path, trace))


def _run(
    workload: Workload, built: Built, device: str, load: CpuLoad, written: tuple[Path, Path | None, Trace | None]
) -> None:
    """Run a model on a device; `load` counts since before it was built, `written` are facts, operators and trace."""
    facts_path, operators_path, trace = written
    facts = _facts(workload, built, device)
    if (built.dtype or workload.dtype) == "tf32" and device == "cpu":
        facts.notes.append("TF32 is a type of GPUs: on the CPU this ran in fp32")
    _write(facts_path, facts)
    step = _prepared(workload, built, device)
    facts.language = asdict(built.language) if built.language is not None else None
    facts.notes += [note for note in built.notes if note not in facts.notes]
    functions = forward_functions(step.watched, step.root)
    write_whole(facts_path.with_name(MODULES), json.dumps(functions).encode())
    unchanged = step.versions()
    collects = operators_path is not None and workload.mode != "cudagraph"
    for _ in range(workload.warmup - collects):  # the collector records the last step, to compare iterations with it
        step.run(lambda phase: nullcontext())
    meet(workload)
    if collects and operators_path is not None:
        facts.unknown_operators, notes = _collect(step, operators_path, load)
        facts.notes += [*NOT_AS_ASKED.get(workload.mode, []), *notes]
    else:
        notes_on_tuning = tuned_inside()
        facts.notes += _profile_graph(step, trace) if workload.mode == "cudagraph" else _profile(step, trace)
        facts.notes += notes_on_tuning()
    if step.versions() != unchanged:
        facts.notes.append(CHANGES_ITS_INPUTS)
    _write(facts_path, facts)
    keep_code(facts_path.with_name(CODE))


def device_here(asked: str) -> str:
    """The requested device (cpu, cuda or auto), resolved to cuda or cpu.

    Raises `NcuBenchError` if it is not available.
    """
    import torch

    if asked == "cuda" and not torch.cuda.is_available():
        raise NcuBenchError(
            "There is no CUDA device here.",
            "PyTorch sees none: no GPU, no driver, or a CPU build of PyTorch.",
            "Use --on cpu.",
        )
    return asked if asked != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def _facts(workload: Workload, built: Built, device: str) -> Facts:
    import torch

    inputs = [
        f"{'x'.join(map(str, tensor.shape))} {tensor.dtype}" for tensor in tensors_in((built.args, built.kwargs or {}))
    ]
    return Facts(
        model=built.name,
        parameters=sum(parameter.numel() for parameter in built.model.parameters()),
        inputs=inputs,
        device=device,
        device_name=torch.cuda.get_device_name() if device == "cuda" else cpu_name(),
        device_id=torch.cuda.current_device() if device == "cuda" and workload.data_parallel else None,
        threads=torch.get_num_threads() if device == "cpu" else None,
        training=_trains(workload, built),
        versions=_versions(),
        true_flops=built.true_flops,
        language=asdict(built.language) if built.language is not None else None,
        notes=list(built.notes),
    )


def _versions() -> dict[str, str]:
    """Versions of the installed software that the numbers depend on."""
    import torch

    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    found |= {"cuda": torch.version.cuda} if torch.version.cuda else {}
    for package in ("torchvision", "transformers", "timm", "torchao", "nvtx"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def cpu_name() -> str:
    """The name of the processor, as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _trains(workload: Workload, built: Built) -> bool:
    return workload.wants_backward and workload.batch_size > 1 and not built.needs_targets_to_train


def placed(workload: Workload, built: Built, device: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The model and its inputs on their device, in their type and memory format, in training or evaluation mode.

    Batch norm cannot train on a batch of one, so a single sample runs in evaluation mode, still with gradients. So do
    detectors, which train on boxes that only a data set has.
    """
    import torch

    keeps_its_types = workload.autocast or bool(built.dtype)
    dtype = None if keeps_its_types else getattr(torch, TORCH_DTYPES[workload.dtype])
    allow_tf32 = (built.dtype or workload.dtype) == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allow_tf32
    model = built.model.train(_trains(workload, built)).to(device)
    if dtype is not None:  # not by model.to(), which drops the imaginary parts of complex numbers
        model = model._apply(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)
    memory_format = torch.channels_last if workload.channels_last else None
    if memory_format is not None:
        model = model.to(memory_format=memory_format)

    def place(tensor: Any) -> Any:
        needs_gradient = tensor.requires_grad
        tensor = tensor.to(device)
        if tensor.is_floating_point() and dtype is not None:
            tensor = tensor.to(dtype)
        tensor = tensor.to(memory_format=memory_format) if memory_format is not None and tensor.dim() == 4 else tensor
        return tensor.detach().requires_grad_() if needs_gradient else tensor

    return model, with_each_tensor(built.args, place), with_each_tensor(built.kwargs or {}, place)


def with_each_tensor(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same nested tuples, lists and dicts, with every tensor changed."""
    import torch

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        items = [with_each_tensor(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)  # a named tuple, or a plain one
    return {key: with_each_tensor(item, change) for key, item in value.items()} if isinstance(value, dict) else value


def prepared(workload: Workload) -> Step:
    """The step of a workload, ready to run. A function that is not a model runs forward only, unless more is requested.

    Raises `NcuBenchError` if the target or its options cannot run here.
    """
    built = build(workload)
    return _prepared(workload if built.is_model else workload.of_function(), built, device_here(workload.device))


def _prepared(workload: Workload, built: Built, device: str) -> Step:
    return assembled(workload, built, *placed(workload, built, device), device)


def assembled(
    workload: Workload, built: Built, watched: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], device: str
) -> Step:
    """The step of a model already on its device with its inputs. Raises as `prepared`."""
    import torch

    quantise(workload, built, watched, device)
    model = _compiled(workload, replicated(workload, watched), arguments, keywords, device)
    if workload.wants_step and not any(True for _ in watched.parameters()):
        raise WrongUsage(
            f"{workload.target} has no parameters, so there is nothing for an optimizer to do.",
            advice="Use --phase forward, or forward,backward where its inputs need gradients.",
        )
    optimizer = torch.optim.SGD(watched.parameters(), lr=1e-3) if workload.wants_step else None
    return Step(workload, watched, model, arguments, keywords, optimizer, device, built.root, built.generation)


def _compiled(workload: Workload, model: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], device: str) -> Any:
    import torch

    if workload.mode == "compile":
        return torch.compile(model)
    if workload.mode == "cudagraph" and device != "cuda":
        raise NcuBenchError("CUDA graphs need a CUDA device.", "The model runs on the CPU here.", "Use --mode eager.")
    if workload.mode == "jit":
        if keywords:
            raise WrongUsage(
                f"{workload.target} takes keyword arguments and cannot be traced.", advice="Use --mode eager."
            )
        return torch.jit.trace(model, arguments, check_trace=False)
    return model


@dataclass
class Step:
    """One iteration of a workload, ready to run: `watched` is the model as built, `model` the callable.

    `root` is the model's own name in module paths. With `generation`, `keywords` are inputs by phase.
    """

    workload: Workload
    watched: Any
    model: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    optimizer: Any
    device: str
    root: str
    generation: Generation | None = None

    def leaves(self) -> Iterator[Any]:
        """The leaf tensors that can receive gradients: parameters and inputs."""
        yield from self.watched.parameters()
        yield from (one for one in tensors_in((self.arguments, self.keywords)) if one.requires_grad)

    def versions(self) -> list[int]:
        """The number of in-place changes of each input tensor so far."""
        return [tensor._version for tensor in tensors_in((self.arguments, self.keywords))]

    def run(self, during: Callable[[str], AbstractContextManager[None]]) -> None:
        """Run one iteration: every phase that the workload needs, each inside `during(phase)`; waits for the GPU."""
        import torch

        workload = self.workload
        if self.generation is not None:
            self._generate(self.generation, during)
            return
        with ExitStack() as stack:
            if not workload.wants_backward:
                stack.enter_context(torch.no_grad())
            if workload.autocast:
                dtype = getattr(torch, TORCH_DTYPES[workload.dtype])
                stack.enter_context(torch.autocast(self.device, dtype=dtype))
            with during("forward"):
                output = self.model(*self.arguments, **self.keywords)
        if workload.wants_backward:
            with during("backward"):
                torch.autograd.backward(*differentiable(output))
        if self.optimizer is not None:
            with during("optimizer"):
                self.optimizer.step()
        for leaf in self.leaves():
            leaf.grad = None
        if self.device == "cuda" and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()

    def cache(self, phase: str) -> Any:
        """The KV cache at the start of a phase of generation; None without generation."""
        import torch

        if self.generation is None:
            return None
        return self.generation.prepared(phase, self.device, getattr(torch, TORCH_DTYPES[self.workload.dtype]))

    def generate(self, phase: str, cache: Any) -> None:
        """Prefill or decode with a cache."""
        if self.generation is not None:
            self.generation.run(phase, self.model, self.keywords[phase], cache)

    def _generate(self, generation: Generation, during: Callable[[str], AbstractContextManager[None]]) -> None:
        import torch

        with torch.no_grad():
            for phase in self.workload.run_phases:
                cache = self.cache(phase)
                with during(phase):
                    self.generate(phase, cache)
        if self.device == "cuda" and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()


def differentiable(output: Any) -> tuple[list[Any], list[Any]]:
    """The outputs that require gradients, and gradients of ones for them. Raises `NcuBenchError` if there are none."""
    import torch

    outputs = [tensor for tensor in tensors_in(output) if tensor.requires_grad]
    if not outputs:
        raise NcuBenchError("The model gives no output that can be differentiated.", advice="Use --phase forward.")
    return outputs, [torch.ones_like(tensor) for tensor in outputs]


def _collect(step: Step, path: Path, load: CpuLoad) -> tuple[dict[str, int], list[str]]:
    """Run under the embedded collector; returns operators of unknown FLOPs, with their number of calls, and notes.

    The last step of a warm-up runs here first, and is not stored.
    """
    import torch

    attribution = Attribution()
    collector = collector_class()(attribution, step.device, step.workload.profiled_phases)
    attribution.attach(step.watched, step.root)
    device_name = torch.cuda.get_device_name() if step.device == "cuda" else cpu_name()
    threads = torch.get_num_threads() if step.device == "cpu" else None
    notes, clock = list[str](), clock_hz()
    if step.workload.warmup:
        _recorded(step, collector, attribution)
    warm, profiled = collector.forget(), []
    with opened_with_header(path, step.device, device_name, threads=threads) as stream:
        for iteration in range(step.workload.iterations):
            attribution.iteration = iteration
            try:
                _recorded(step, collector, attribution)
                if step.device == "cpu" and not step.workload.data_parallel:
                    again = partial(_recorded_apart, step, collector, attribution)
                    notes += repeated(collector.records, load.others(), again)
            finally:
                profiled.append(collector.flush(stream))
    attribution.detach()
    if not any(profiled):
        raise NcuBenchError(
            f"{step.workload.target} ran no operator of PyTorch.",
            "It may compute with another library (NumPy, a compiled extension), which the collector does not see.",
            "Under ncu, on a machine with an NVIDIA GPU, every kernel that it launches is seen.",
        )
    notes += other_operators(warm, profiled) if step.workload.warmup else []
    return dict(sorted(collector.unknown.items())), [*dict.fromkeys(notes), *on_clock(clock, clock_hz())]


def _recorded(step: Step, collector: Any, attribution: Attribution) -> None:
    """Run once under the collector."""
    import torch

    try:
        with torch.jit.optimized_execution(False), collector:  # fused TorchScript fails under any collector
            step.run(attribution.during)
    finally:
        attribution.forget()


def _recorded_apart(step: Step, collector: Any, attribution: Attribution) -> Records:
    """Run once more; returns its records, and keeps the earlier records in the collector."""
    before, unknown = collector.records, dict(collector.unknown)
    collector.records = []
    try:
        _recorded(step, collector, attribution)
        found: Records = collector.records
        return found
    finally:
        collector.records, collector.unknown = before, unknown


def _profile(step: Step, trace: Trace | None) -> list[str]:
    """Run the iterations with ranges, and the profiler on in the profiled phases; returns notes.

    With a trace these must be all phases, so that it is written once.
    """
    ranges, profiler = _ranges_and_profiler(step, trace)
    attribution = Attribution(ranges.entered, ranges.left)
    attribution.attach(step.watched, step.root)
    wanted = step.workload.profiled_phases
    whole = wanted == step.workload.run_phases
    for phase in wanted if step.generation is not None else ():
        step.cache(phase)  # filled before the profiler is on; it is on for all phases, as nsys ends at the first stop

    @contextmanager
    def during(phase: str) -> Iterator[None]:
        with profiler() if not whole and phase in wanted else nullcontext(), ranges.during(phase):
            yield

    with profiler() if whole else nullcontext():
        for iteration in range(step.workload.iterations):
            with ranges.iteration(iteration):
                step.run(during)
            attribution.forget()
    attribution.detach()
    return [ranges.missing] if ranges.missing else []


def _ranges_and_profiler(
    step: Step, trace: Trace | None
) -> tuple[Ranges | TraceRanges, Callable[[], AbstractContextManager[None]]]:
    """The marker of ranges, and a function that returns the context in which the profiler is on."""
    return (Ranges(), partial(_cuda_profiler, step.device)) if trace is None else (TraceRanges(), trace.recording)


def _profile_graph(step: Step, trace: Trace | None = None) -> list[str]:
    """Capture one iteration as a CUDA graph and replay it, both under the profiler.

    Replays have no ranges of modules; nsys records for each node where it was captured, hence the ranges there.
    """
    import torch

    ranges, profiler = _ranges_and_profiler(step, trace)
    attribution = Attribution(ranges.entered, ranges.left)
    attribution.attach(step.watched, step.root)
    graph = torch.cuda.CUDAGraph()
    with profiler():
        with torch.cuda.graph(graph):
            step.run(ranges.during)
        attribution.detach()
        for iteration in range(step.workload.iterations):
            with ranges.iteration(iteration):
                graph.replay()
                torch.cuda.synchronize()
    notes = ["a CUDA graph was replayed: only a timeline of nsys knows to which module and phase its kernels belong"]
    return [*notes, ranges.missing] if ranges.missing else notes


@contextmanager
def _cuda_profiler(device: str) -> Iterator[None]:
    """The CUDA profiler is on within the block: between cudaProfilerStart and cudaProfilerStop."""
    if device != "cuda":
        yield
        return
    import torch

    torch.cuda.cudart().cudaProfilerStart()
    try:
        yield
    finally:
        torch.cuda.cudart().cudaProfilerStop()


def _write(path: Path, facts: Facts) -> None:
    write_whole(path, json.dumps(asdict(facts)).encode())  # under one tool, the ranks of a node share the file


def exit_code_of(work: Callable[[], None]) -> int:
    """Do `work`; returns the exit code. An `NcuBenchError` or `SystemExit` goes to stderr as one line of JSON."""
    try:
        work()
    except NcuBenchError as error:
        sys.stderr.write(error.serialized + "\n")
        return error.exit_code
    except SystemExit as exits:
        said = f"The target ended its process with exit code {exits.code or 0}."
        left = NcuBenchError(said, "It calls sys.exit.", "Let it return.")
        sys.stderr.write(left.serialized + "\n")
        return left.exit_code
    return 0


def main(arguments: list[str]) -> int:
    """Run the workload named by the arguments; returns the exit code."""
    workload = Workload.from_json(Path(arguments[0]).read_text("utf-8"))
    trace = Trace.asked(arguments[2:])
    operators = Path(arguments[2]) if len(arguments) > 2 and trace is None else None
    if operators is not None or trace is not None:  # no profiler runs between this process and its caller
        end_with_the_parent()
    code = exit_code_of(lambda: run(workload, Path(arguments[1]), operators, trace))
    if operators is not None and workload.data_parallel:
        _leave(code)
    return code


def _leave(code: int) -> None:
    """End this process at once: all files are written, and gloo's threads may abort a rank that shuts Python down."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
