"""Estimate the work of a workload before it runs: every operator with its FLOPs and bytes, from shapes alone.

    python -m ncu_launch.workload.meta_device_count WORKLOAD.json EXPECTED.jsonl SUMMARY.json [WORKLOAD.json ...]

The model is built and run once on the meta device, under the operator collector, with PyTorch's fake tensors, which
have a shape and a type but no memory, and claim to be on a CPU. So it takes seconds and neither a GPU nor much memory,
whatever the size of the model. Operators are the ones that PyTorch calls on a CPU. Nothing is measured, there are no
times, and every row says so (source: estimate). If a model requests a GPU by name (device="cuda"), it gets the CPU
instead, and asking for the address of a tensor, as a Triton kernel does, is an error: nothing runs on a GPU.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from traceback import walk_tb
from typing import Any, TextIO

from ncu_launch.errors import NcuBenchError
from ncu_launch.files.atomic_files import replacing, write_whole
from ncu_launch.targets.models import Built, build, device_of
from ncu_launch.targets.quick_imports import quick_imports
from ncu_launch.workload.module_attribution import Attribution, tensors_in
from ncu_launch.workload.operator_collector import JAGGED, collector_class, opened_with_header
from ncu_launch.workload.quantised_weights import stored_bytes, stored_in, with_each_part
from ncu_launch.workload.workload import Step, assembled, exit_code_of, placed, with_each_tensor
from ncu_launch.workload_spec import Workload

STARTED = time.perf_counter()
KERNEL_LIBRARIES = {"triton": "Triton", "cupy": "CuPy", "numba": "Numba"}
"""Packages that start their own kernels -> display name."""
NO_ADDRESS = "Cannot access data pointer"
"""Beginning of PyTorch's error when code asks for the address of a fake tensor."""
OF_GPUS = ("CUDA", "NVIDIA")
"""Words in PyTorch's errors when it finds no GPU."""


@dataclass
class EstimateSummary:
    """Summary of an estimate, for one iteration and its profiled phases.

    `flops` are the FLOPs of contractions, as in PyTorch's counter, None if some operators may contain contractions and
    have no formula; `unknown_operators` lists these, with their calls. `flops_operators` are the FLOPs of all
    operators, None if some have no formula; `uncounted_operators` lists these. `integer_contractions` counts products
    of integers, which have no FLOPs. `bytes` are the least bytes of each operator by its formula, or without one its
    inputs, weights and outputs. `layer_output_bytes` are the outputs, in the forward pass, of modules with parameters
    and without submodules, as torchinfo sums them up, plus other new tensors that the target returns. `alive_bytes` are
    parameters, buffers, inputs, KV caches, and with a backward pass everything saved for it, gradients and the
    optimizer's state: without temporary tensors, workspaces and an allocator's reserve. `least_memory_bytes` is a lower
    bound of peak memory: parameters, buffers, inputs, the optimizer's state, and the largest of KV caches, tensors
    saved for the backward pass, the gradients of parameters, and the memory that one operator reads and writes beyond
    these. `language` are the fields of a causal model's `LanguageFacts`. `input_size` is the width of images,
    `sequence_length` the number of tokens. `seconds` is the time from the start of this program until the model was
    built: starting to profile it takes at least about as long.
    """

    flops: float | None
    flops_operators: float | None
    integer_contractions: int
    bytes: int
    parameters: int
    parameter_bytes: int
    input_bytes: int
    layer_output_bytes: int
    alive_bytes: int
    least_memory_bytes: int
    operators: int
    unknown_operators: dict[str, int]
    uncounted_operators: dict[str, int]
    seconds: float
    language: dict[str, Any] | None = None
    input_size: int | None = None
    sequence_length: int | None = None
    notes: list[str] = field(default_factory=list)


def estimate(workload: Workload, operators_path: Path, summary_path: Path) -> None:
    """Write the estimate of one iteration of a workload.

    Raises `NcuBenchError` if the target cannot be built, or depends on the values of its inputs and so cannot be run
    without them.
    """
    with quick_imports():  # creating a fake tensor mode imports PyTorch's compiler
        from torch._subclasses.fake_tensor import FakeTensorMode

        fake = FakeTensorMode(allow_non_fake_inputs=True)
    workload, notes = _runnable_without_data(workload)
    with _explained(workload):
        built = _built(workload)
        workload = workload if built.is_model else workload.of_function()
        seconds = time.perf_counter() - STARTED
        on_meta = placed(workload, built, "meta")
        fake._allow_unsafe_data_ptr_access = False  # else the address is 0, and a user's kernel starts with it
        with fake, _elsewhere("cpu"), _without_fast_paths():
            step = assembled(workload, built, *_pretending(*on_meta), "cpu")
            with replacing(operators_path) as path:
                watch: AbstractContextManager[dict[int, Any]] = nullcontext({})
                if not built.is_model:
                    watch = _captured_tensors()
                with watch as captured:
                    summary = _run(step, path, seconds)
                summary.input_bytes += sum(map(stored_bytes, captured.values()))
    summary.notes = [*notes, *built.notes]
    summary.input_size, summary.sequence_length = built.input_sizes()
    summary.language = asdict(built.language) if built.language is not None else None
    write_whole(summary_path, (json.dumps(asdict(summary)) + "\n").encode())


def _runnable_without_data(workload: Workload) -> tuple[Workload, list[str]]:
    """The workload adapted to the meta device (eager, without autocast), and notes on the changes."""
    notes = []
    if workload.autocast:
        notes.append("autocast does not run on the meta device: bytes are those of the unconverted types")
    if workload.mode != "eager":
        notes.append(f"these are the operators of the eager model, before {workload.mode}")
    if device_of(workload) == "cuda":
        notes.append("these are the operators that PyTorch takes on a CPU; on a GPU it may fuse more of them")
    dtype = "fp32" if workload.autocast else workload.dtype
    return replace(workload, mode="eager", dtype=dtype, autocast=False), notes


@contextmanager
def _explained(workload: Workload) -> Iterator[None]:
    try:
        yield
    except NcuBenchError:
        raise
    except SystemExit as error:
        raise NcuBenchError(
            f"{workload.target} ends the process that builds or runs it.",
            "Its code calls sys.exit().",
            "Put that call under: if __name__ == '__main__'.",
        ) from error
    except Exception as error:
        raise NcuBenchError(
            *_reason(workload.target, error), "It can still be profiled; only its expected work is not known."
        ) from error


def _reason(target: str, error: Exception) -> tuple[str, str]:
    """Why a target could not be counted, and the likely cause."""
    first_line = (str(error).splitlines() or [""])[0][:150]
    packages = {frame.f_globals.get("__name__", "").partition(".")[0] for frame, _ in walk_tb(error.__traceback__)}
    libraries = [title for package, title in KERNEL_LIBRARIES.items() if package in packages]
    if libraries or NO_ADDRESS in first_line:
        by = f" with {libraries[0]}" if libraries else ""
        return (
            f"{target} starts kernels of its own{by}, and only operators of PyTorch are counted",
            "Shapes do not say what such a kernel does.",
        )
    if isinstance(error, ImportError):
        return f"{target} cannot be run here: {first_line}", "A package that it imports is missing, or does not load."
    if any(word in first_line for word in OF_GPUS):
        return (
            f"{target} cannot be run without a GPU: {type(error).__name__}: {first_line}",
            "Its work is counted in a process that sees no GPU.",
        )
    return (
        f"{target} cannot be run without data: {type(error).__name__}: {first_line}",
        "What it computes may depend on the values of its inputs, which shapes alone do not say.",
    )


def _built(workload: Workload) -> Built:
    """The model on the meta device.

    If building it reads values, as for RegNets, only parameters and buffers are on meta; if it reads those too, it is
    built on the CPU.
    """
    import torch

    for place, name in ((torch.device("meta"), "meta"), (_parameters_on_meta(), "cpu")):
        with suppress(Exception), place, _elsewhere(name):
            return build(workload)
    with _elsewhere("cpu"):
        return build(workload)


def _elsewhere(place: str) -> AbstractContextManager[Any]:
    """Within the block, code that requests a tensor on a GPU gets it on `place`."""
    import torch
    from torch.overrides import TorchFunctionMode

    def changed(value: Any, *, is_device: bool) -> Any:
        if isinstance(value, torch.device):
            return place if value.type == "cuda" else value
        if is_device and (type(value) is int or (isinstance(value, str) and value.partition(":")[0] == "cuda")):
            return place  # a number means a GPU
        return value

    class Elsewhere(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped without its extra
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.Tensor.cuda:
                return args[0].to(place)
            moves = func is torch.Tensor.to
            return func(
                *(changed(value, is_device=moves) for value in args),
                **{name: changed(value, is_device=name == "device") for name, value in (kwargs or {}).items()},
            )

    found: AbstractContextManager[Any] = Elsewhere()
    return found


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Within the block, every parameter and buffer moves to the meta device when its module registers it."""
    from torch import nn
    from torch.nn.modules import module

    def parameter(owner: Any, name: str, value: Any) -> Any:
        return None if value is None else nn.Parameter(value.detach().to("meta"), value.requires_grad)

    def buffer(owner: Any, name: str, value: Any) -> Any:
        return None if value is None else value.to("meta")

    handles = (
        module.register_module_parameter_registration_hook(parameter),
        module.register_module_buffer_registration_hook(buffer),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _pretending(model: Any, arguments: Any, keywords: Any) -> tuple[Any, Any, Any]:
    """A model and its inputs, all on meta, as fake CPU tensors; call it in fake tensor mode.

    On meta itself PyTorch calls operators that neither a CPU nor a GPU would, such as decomposed attention.
    """
    import torch

    originals = [*model.parameters(), *model.buffers()]  # kept until all have fake twins, because ids are reused
    twins: dict[int, Any] = {}

    def empty(tensor: Any) -> Any:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")

    def twin(tensor: Any) -> Any:
        if id(tensor) not in twins:
            made = with_each_part(tensor, empty)
            is_parameter = isinstance(tensor, torch.nn.Parameter)
            twins[id(tensor)] = (
                torch.nn.Parameter(made, tensor.requires_grad)
                if is_parameter
                else made.requires_grad_(tensor.requires_grad)
            )
        return twins[id(tensor)]

    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            tensors.update({name: twin(tensor) for name, tensor in tensors.items() if tensor is not None})
    del originals
    return model, *with_each_tensor((arguments, keywords), twin)


@contextmanager
def _without_fast_paths() -> Iterator[None]:
    """Make nn.MultiheadAttention call operators of known work, not one operator for a whole layer."""
    import torch

    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _run(step: Step, path: Path, seconds: float) -> EstimateSummary:
    attribution = Attribution()
    collector = collector_class()(attribution, "meta", step.workload.profiled_phases)
    attribution.attach(step.watched, step.root)
    alive, outputs = _Alive(step), _LayerOutputs(step)

    @contextmanager
    def during(phase: str) -> Iterator[None]:
        with alive.saving() if phase == "forward" else nullcontext(), attribution.during(phase):
            yield

    with opened_with_header(path, "meta", "", estimate=True) as stream:
        with collector, alive.watching():
            step.run(during)
        attribution.detach()
        return _summary(step, collector, stream, alive, outputs, seconds)


def _summary(
    step: Step, collector: Any, stream: TextIO, alive: _Alive, outputs: _LayerOutputs, seconds: float
) -> EstimateSummary:
    records = list(collector.records)
    uncounted = Counter(record["operator"] for record in records if record["flops"] is None)
    collector.flush(stream)
    return EstimateSummary(
        flops=None if collector.unknown else float(sum(record["contraction_flops"] for record in records)),
        flops_operators=None if uncounted else float(sum(record["flops"] for record in records)),
        integer_contractions=sum("integer_operations" in record for record in records),
        bytes=sum(record["read"] + record["written"] for record in records),
        parameters=sum(int(parameter.numel()) for parameter in step.watched.parameters()),
        parameter_bytes=sum(map(stored_bytes, step.watched.parameters())),
        input_bytes=sum(map(stored_bytes, tensors_in((step.arguments, step.keywords)))),
        layer_output_bytes=outputs.bytes,
        alive_bytes=alive.bytes(),
        least_memory_bytes=alive.least_bytes(),
        operators=len(records),
        unknown_operators=dict(sorted(collector.unknown.items())),
        uncounted_operators=dict(sorted(uncounted.items())),
        seconds=round(seconds, 3),
    )


@contextmanager
def _captured_tensors() -> Iterator[dict[int, Any]]:
    """Within the block, collects by id the real tensors that operators take.

    A function has them from outside, such as from a closure: they are neither its inputs nor created by it.
    """
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._python_dispatch import TorchDispatchMode

    found: dict[int, Any] = {}

    class CapturedTensors(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped without its extra
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found.update((id(one), one) for one in tensors_in((args, kwargs or {})) if not isinstance(one, FakeTensor))
            return func(*args, **(kwargs or {}))

    with CapturedTensors():
        yield found


class _LayerOutputs:
    """Bytes of the outputs of layers, and of the result of the whole target, in the forward pass.

    Layers are modules with parameters and without submodules, and count each time they are called. From the target's
    result, tensors made by a layer were already counted, and inputs and parameters are counted elsewhere.
    """

    def __init__(self, step: Step) -> None:
        self.bytes = 0
        self._storages: dict[int, Any] = {}  # kept, because an address may be reused
        for tensor in (*step.watched.parameters(), *tensors_in((step.arguments, step.keywords))):
            self._first_met(tensor)
        for module in step.watched.modules():
            if not any(True for _ in module.children()) and any(True for _ in module.parameters()):
                module.register_forward_hook(self._layer_called)
        step.watched.register_forward_hook(self._target_called)  # after the hook of a target that is itself a layer

    def _layer_called(self, module: Any, inputs: Any, output: Any) -> None:
        for tensor in tensors_in(output):
            self._first_met(tensor)
            self.bytes += stored_bytes(tensor)

    def _target_called(self, module: Any, inputs: Any, output: Any) -> None:
        self.bytes += sum(stored_bytes(tensor) for tensor in tensors_in(output) if self._first_met(tensor))

    def _first_met(self, tensor: Any) -> bool:
        """True if no part of a tensor lies in a storage seen before."""
        storages = {storage._cdata: storage for storage in (part.untyped_storage() for part in stored_in(tensor))}
        is_first = not storages.keys() & self._storages.keys()
        self._storages |= storages
        return is_first


class _Alive:
    """The memory that one step needs at the same time, by storage: views and tensors saved twice count once."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._storages: dict[int, Any] = {}
        self._of_one_operator = 0
        for tensor in (*step.watched.parameters(), *step.watched.buffers()):
            self._keep(tensor)
        for tensor in tensors_in((step.arguments, step.keywords)):
            self._keep(tensor)
        self._there_before = frozenset(self._storages)

    def saving(self) -> Any:
        """Within the block, counts tensors that autograd saves for the backward pass."""
        import torch

        return torch.autograd.graph.saved_tensors_hooks(self._keep, lambda tensor: tensor)

    def _keep(self, tensor: Any) -> Any:
        for part in stored_in(tensor):
            storage = part.untyped_storage()
            self._storages[storage._cdata] = storage  # kept, because an address may be reused
        return tensor

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within the block, records the most bytes that one operator reads and writes beyond existing storages."""
        from torch.utils._python_dispatch import TorchDispatchMode

        alive = self

        class Watching(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped without its extra
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if any(one.__module__.startswith(JAGGED) for one in types):
                    return NotImplemented  # operators on the wrapped values come here next
                result = func(*args, **(kwargs or {}))
                alive._of_one_operator = max(alive._of_one_operator, alive._of_call((args, kwargs, result)))
                return result

        with Watching():
            yield

    def _of_call(self, values: Any) -> int:
        """Bytes of a call's tensors in storages not seen before, each storage once."""
        parts = [part for tensor in tensors_in(values) for part in stored_in(tensor) if _is_plain(part)]
        storages = {storage._cdata: int(storage.nbytes()) for storage in (part.untyped_storage() for part in parts)}
        return sum(size for key, size in storages.items() if key not in self._there_before)

    def bytes(self) -> int:
        """Bytes of parameters, buffers, inputs, saved tensors, gradients, KV caches and the optimizer's state."""
        kept = sum(int(storage.nbytes()) for storage in self._storages.values())
        return kept + self._gradients() + self._state() + self._cached()

    def least_bytes(self) -> int:
        """A lower bound of peak memory in bytes: gradients are created while saved tensors are freed."""
        sizes = {key: int(storage.nbytes()) for key, storage in self._storages.items()}
        before = sum(sizes[key] for key in self._there_before)
        saved = sum(sizes.values()) - before
        return before + self._state() + max(saved, self._cached(), self._gradients(), self._of_one_operator)

    def _gradients(self) -> int:
        parameters = self._step.watched.parameters() if self._step.workload.wants_backward else ()
        return sum(stored_bytes(parameter) for parameter in parameters if parameter.requires_grad)

    def _state(self) -> int:
        optimizer = self._step.optimizer
        return 0 if optimizer is None else sum(map(stored_bytes, tensors_in(list(optimizer.state.values()))))

    def _cached(self) -> int:
        generation = self._step.generation
        return 0 if generation is None else sum(map(stored_bytes, generation.tensors()))


def _is_plain(tensor: Any) -> bool:
    """True for a tensor with one storage; sparse and nested ones have several, or none."""
    import torch

    return bool(tensor.layout == torch.strided) and not tensor.is_nested


def main(arguments: list[str]) -> int:
    """Estimate the workloads named by the arguments, three arguments each; returns the last non-zero exit code.

    A workload that cannot be estimated leaves its error in place of its summary, and the others are estimated.
    """
    code = 0
    for workload_path, operators_path, summary_path in zip(*[map(Path, arguments)] * 3, strict=True):
        workload = Workload.from_json(workload_path.read_text("utf-8"))
        code = exit_code_of(partial(estimate, workload, operators_path, summary_path)) or code
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
