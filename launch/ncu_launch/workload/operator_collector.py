"""The embedded collector: every operator a model runs, with its time, FLOPs, bytes, phase and module.

It needs neither GPU nor Nsight. The model runs for real and each operator is timed where it is dispatched; FLOPs come
from formulas on shapes (`operator_flops`), bytes are the inputs, weights and outputs of each operator, as if nothing
stayed in a cache between two of them. None of this is counted by hardware, and every row says so (source: operators).
Views move nothing and allocations compute nothing, so neither is recorded.

The file it writes has a JSON object per line: a header, then one line per operator call. Lines are written after every
iteration, so that what was collected before a crash is kept. On the meta device operators have shapes and do nothing:
their time is null.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, TextIO

from ncu_launch.operators.calls import Call, Tensor
from ncu_launch.operators.contractions import INTEGER_CONTRACTIONS
from ncu_launch.workload.module_attribution import Attribution, tensors_in
from ncu_launch.workload.operator_flops import has_formula, integer_operations, operator_flops

FORMAT = "ncu_bench_operators"
FORMAT_VERSION = 1

_NAMES_NOT_RECORDED = """
    empty empty_like empty_strided new_empty new_empty_strided empty_permuted resize_ _unsafe_view _reshape_alias
    as_strided_ squeeze_ unsqueeze_ transpose_ t_ swapaxes_ swapdims_ unsafe_split unsafe_split_with_sizes unsafe_chunk
"""
NOT_RECORDED = frozenset(f"aten.{name}" for name in _NAMES_NOT_RECORDED.split())
"""Allocations, and views that PyTorch does not declare as such."""

GATHERING = frozenset(f"aten.{name}" for name in ("embedding", "index_select", "gather", "take"))
"""Operators that pick rows or elements of their first input."""

COLLECTIVES = ("c10d.", "_c10d_functional.")
"""Collectives compute nothing here. Their time includes the waiting for other ranks, as it does for who calls them."""


def collector_class() -> type:
    """`OperatorCollector`, made when torch is needed and not before."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class OperatorCollector(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped without its extra
        """Records every operator run inside it, in the phases that are wanted."""

        def __init__(self, attribution: Attribution, device: str, phases: tuple[str, ...]) -> None:
            super().__init__()
            self.attribution = attribution
            self.phases = frozenset(phases)
            self.device = device
            self.unknown: dict[str, int] = {}
            self._kinds: dict[Any, tuple[str, bool, bool]] = {}
            self.records: list[dict[str, Any]] = []
            self._events: list[tuple[Any, Any]] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            name, recorded, elementwise = self._kind(func)
            if not recorded or self.attribution.phase not in self.phases:
                return func(*args, **kwargs)
            nanoseconds = None
            if self.device == "meta":
                result = func(*args, **kwargs)
            elif self.device == "cuda":
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                result = _over(func(*args, **kwargs), name)
                end.record()
                self._events.append((start, end))
            else:
                began = time.perf_counter_ns()
                result = _over(func(*args, **kwargs), name)
                nanoseconds = float(time.perf_counter_ns() - began)
            self._record(name, elementwise, args, kwargs, result, nanoseconds)
            return result

        def _kind(self, func: Any) -> tuple[str, bool, bool]:
            """Name, whether it is recorded, and whether it is known to hold no contraction. Looked up once."""
            kind = self._kinds.get(func)
            if kind is None:
                name = str(func.overloadpacket)
                returns = func._schema.returns
                is_view = any(one.alias_info is not None and not one.alias_info.is_write for one in returns)
                elementwise = torch.Tag.pointwise in func.tags or getattr(torch.Tag, "reduction", None) in func.tags
                elementwise = elementwise or name.startswith(COLLECTIVES)
                recorded = not is_view and name not in NOT_RECORDED and not name.startswith(("profiler.", "prim."))
                kind = self._kinds[func] = (name, recorded, elementwise)
            return kind

        def _record(
            self, name: str, elementwise: bool, args: Any, kwargs: Any, result: Any, nanoseconds: float | None
        ) -> None:
            inputs = list(tensors_in((args, kwargs)))
            outputs = list(tensors_in(result))
            call = _call(name, args)
            flops = operator_flops(call, is_elementwise=elementwise)
            if flops is None:
                self.unknown[name] = self.unknown.get(name, 0) + 1
            first = next((tensor for tensor in inputs if tensor.is_floating_point()), None)
            self.records.append(
                {
                    "operator": name,
                    "phase": self.attribution.phase,
                    "module": self.attribution.module,
                    "iteration": self.attribution.iteration,
                    "ns": nanoseconds,
                    "flops": flops,
                    "read": _read(name, inputs, outputs),
                    "written": sum(map(_bytes, outputs)),
                    "dtype": str(first.dtype).removeprefix("torch.") if first is not None else None,
                    "shapes": " ".join("x".join(map(str, tensor.shape)) or "()" for tensor in inputs[:4]),
                }
            )
            if call.name in INTEGER_CONTRACTIONS:
                self.records[-1]["integer_operations"] = integer_operations(call)

        def flush(self, stream: TextIO) -> None:
            """Write what was recorded since the last time."""
            if self._events:
                torch.cuda.synchronize()
                for record, (start, end) in zip(self.records, self._events, strict=True):
                    record["ns"] = start.elapsed_time(end) * 1e6
            stream.writelines(json.dumps(record) + "\n" for record in self.records)
            stream.flush()
            self.records.clear()
            self._events.clear()

    return OperatorCollector


def _over(result: Any, name: str) -> Any:
    """The result of an operator once it is there: a collective goes on after its call, and is waited for."""
    if name.startswith(COLLECTIVES):
        import torch

        for part in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(part, torch.ScriptObject) and part._has_method("wait"):
                part.wait()
    return result


def _call(name: str, args: Any) -> Call:
    """The call with every tensor replaced by its shape and type; without arguments where no formula needs them."""
    known = name.replace(".", "::", 1)
    needed = has_formula(known) or known in INTEGER_CONTRACTIONS
    return Call(known, tuple(map(_described, args)) if needed else ())


def _described(value: Any) -> Any:
    """A tensor -> its description; lists of tensors likewise; anything else as it is."""
    import torch

    if isinstance(value, torch.Tensor):
        return Tensor(tuple(value.shape), str(value.dtype).removeprefix("torch."))
    if isinstance(value, (list, tuple)):
        return tuple(map(_described, value))
    return value


def _read(name: str, inputs: list[Any], outputs: list[Any]) -> int:
    """Bytes that an operator reads: each input once; of what it picks rows or elements from, no more than it writes."""
    amounts = {id(tensor): _bytes(tensor) for tensor in inputs}
    if name in GATHERING and inputs:
        source = id(inputs[0])
        amounts[source] = min(amounts[source], sum(map(_bytes, outputs)))
    return sum(amounts.values())


def _bytes(tensor: Any) -> int:
    """Bytes of a tensor; what is broadcast (stride 0) is there once."""
    return int(min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()))


def opened_with_header(
    path: Path, device: str, device_name: str, *, threads: int | None = None, estimate: bool = False
) -> TextIO:
    """Open the collector's file and write its header line. An estimate was not run, and has no times.

    `threads` are those of an operator on a CPU.
    """
    stream = path.open("w", encoding="utf-8")
    header: dict[str, Any] = {FORMAT: FORMAT_VERSION, "device": device, "device_name": device_name}
    if threads is not None:
        header["threads"] = threads
    if estimate:
        header["estimate"] = True
    stream.write(json.dumps(header) + "\n")
    return stream
