"""The embedded collector: every operator that a model runs, with its time, FLOPs, bytes, phase and module.

It needs neither GPU nor Nsight. The model runs for real and each operator is timed where it is dispatched. FLOPs and
least bytes come from the table of formulas (`collected_work`), as if no data stayed in a cache between two operators.
Without a formula, the bytes are all inputs and outputs. None of this is counted by hardware, and every row says so
(source: operators). Views move nothing and allocations compute nothing, so neither is recorded.

The file has a JSON object per line: a header, then one line per operator call. Lines are written after every iteration,
so that records from before a crash are kept. On the meta device operators only compute shapes: their time is null.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

from ncu_launch.operators.calls import UNRECORDED, Call, Tensor
from ncu_launch.operators.table import INTEGER_CONTRACTIONS
from ncu_launch.operators.units import cpu_unit, elementwise_unit, type_of
from ncu_launch.workload.collected_work import CollectedWork, work_of_call
from ncu_launch.workload.module_attribution import Attribution, tensors_in
from ncu_launch.workload.record_format import FORMAT, FORMAT_VERSION

LEAST, ALL_TENSORS = "least by shapes", "all inputs and outputs"
"""Meaning of a record's bytes: by its operator's formula, or without one the sum over its tensors."""

_NAMES_NOT_RECORDED = """
    empty empty_like empty_strided new_empty new_empty_strided empty_permuted resize_ _unsafe_view _reshape_alias
    as_strided_ squeeze_ unsqueeze_ transpose_ t_ swapaxes_ swapdims_ unsafe_split unsafe_split_with_sizes unsafe_chunk
"""
NOT_RECORDED = frozenset(f"aten.{name}" for name in _NAMES_NOT_RECORDED.split())
"""Allocations, and views that PyTorch does not declare as views."""

JAGGED = "torch.nested"
"""The Python module of PyTorch's nested tensors, which hold sequences of several lengths."""

COLLECTIVES = ("c10d.", "_c10d_functional.")
"""Prefixes of collectives. They contain no contractions; their time includes the wait for other ranks."""


def collector_class() -> type:
    """`OperatorCollector`, defined on first use, so that torch is imported only then."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class OperatorCollector(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped without its extra
        """Records every operator that runs inside it, in the given phases."""

        def __init__(self, attribution: Attribution, device: str, phases: tuple[str, ...]) -> None:
            super().__init__()
            self.attribution = attribution
            self.phases = frozenset(phases)
            self.device = device
            self.unknown: dict[str, int] = {}
            self._kinds: dict[Any, tuple[str, bool, bool]] = {}
            self._works: dict[Any, tuple[CollectedWork, str | None]] = {}
            self.records: list[dict[str, Any]] = []
            self._events: list[tuple[Any, Any]] = []

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """True if PyTorch should keep its compiler away from this mode; false avoids importing it: a second of CPU
            time.

            If nothing has imported the compiler yet, nothing is compiled. Older versions of PyTorch do not ask.
            """
            return "torch._dynamo" in sys.modules

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if any(one.__module__.startswith(JAGGED) for one in types):
                return NotImplemented  # operators on the wrapped values come here next
            name, recorded, _ = self._kind(func)
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
            self._record(func, args, kwargs, result, nanoseconds)
            return result

        def _kind(self, func: Any) -> tuple[str, bool, bool]:
            """Name, whether it is recorded, and whether it is a collective, pointwise or a reduction. Cached."""
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

        def _record(self, func: Any, args: Any, kwargs: Any, result: Any, nanoseconds: float | None) -> None:
            name, _, elementwise = self._kind(func)
            call = _call(name, func, args, kwargs)
            work, kind = self._work(call, is_elementwise=elementwise)
            if work.contraction_flops is None:
                self.unknown[name] = self.unknown.get(name, 0) + 1
            inputs = list(tensors_in((args, kwargs)))
            read, written = work.moved or _moved(inputs, list(tensors_in(result)))
            dtype = kind if any(tensor.is_floating_point() for tensor in inputs) else None
            self.records.append(
                {
                    "operator": name,
                    "phase": self.attribution.phase,
                    "module": self.attribution.module,
                    "iteration": self.attribution.iteration,
                    "ns": nanoseconds,
                    "flops": work.flops,
                    "contraction_flops": work.contraction_flops,
                    "unit": self._unit(dtype, is_contraction=bool(work.contraction_flops)) if work.flops else None,
                    "read": int(read),
                    "written": int(written),
                    "bytes_basis": LEAST if work.moved else ALL_TENSORS,
                    "dtype": dtype,
                    "shapes": " ".join("x".join(map(str, _sizes(tensor))) or "()" for tensor in inputs[:4]),
                }
            )
            if call.name in INTEGER_CONTRACTIONS:
                self.records[-1]["integer_operations"] = work.integer_operations

        def _work(self, call: Call, *, is_elementwise: bool) -> tuple[CollectedWork, str | None]:
            """The work of a call and its type. Layers repeat calls, so each distinct call is computed once."""
            key = call, tuple(map(type, call.arguments))  # 1 == 1.0 == True, and each gives its result another type
            try:
                found = self._works.get(key)
            except TypeError:  # an unhashable argument
                return work_of_call(call, is_elementwise=is_elementwise), type_of(call)
            if found is None:
                found = self._works[key] = work_of_call(call, is_elementwise=is_elementwise), type_of(call)
            return found

        def _unit(self, dtype: str | None, *, is_contraction: bool) -> str | None:
            """The unit of the work. For a contraction on a GPU only its kernels would show it."""
            if self.device == "cpu":
                return cpu_unit(dtype)
            return elementwise_unit(dtype) if self.device == "cuda" and not is_contraction else None

        def forget(self) -> Counter[str]:
            """Drop records since the last call; returns how often each operator ran."""
            found = Counter(record["operator"] for record in self.records)
            self.records.clear()
            self._events.clear()
            self.unknown.clear()
            return found

        def flush(self, stream: TextIO) -> Counter[str]:
            """Write records since the last call; returns how often each operator ran."""
            if self._events:
                torch.cuda.synchronize()
                for record, (start, end) in zip(self.records, self._events, strict=True):
                    record["ns"] = start.elapsed_time(end) * 1e6
            stream.writelines(json.dumps(record) + "\n" for record in self.records)
            stream.flush()
            written = Counter(record["operator"] for record in self.records)
            self.records.clear()
            self._events.clear()
            return written

    return OperatorCollector


def _over(result: Any, name: str) -> Any:
    """The result of an operator, once it is complete: a collective, which continues after its call, is waited for."""
    if name.startswith(COLLECTIVES):
        import torch

        for part in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(part, torch.ScriptObject) and part._has_method("wait"):
                part.wait()
    return result


def _call(name: str, func: Any, args: Any, kwargs: Any) -> Call:
    """The call with every tensor replaced by shape, type and strides, and its arguments in the order of its schema."""
    arguments = list(args)
    if kwargs:
        rest = func._schema.arguments[len(args) :]
        arguments += [kwargs.get(argument.name, argument.default_value) for argument in rest]
    return Call(name.replace(".", "::", 1), tuple(map(_described, arguments)))


def _described(value: Any) -> Any:
    """A tensor -> its description; lists of tensors likewise; other values unchanged.

    Sparse and nested tensors, whose sizes do not give their elements, and packed weights are `UNRECORDED`.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, (list, tuple)):
        return tuple(map(_described, value))
    import torch

    if isinstance(value, torch.Tensor):
        is_whole = value.layout == torch.strided and not value.is_nested
        return Tensor(tuple(value.shape), _type_name(value.dtype), value.stride()) if is_whole else UNRECORDED
    return UNRECORDED if isinstance(value, torch.ScriptObject) else value


_PLAIN = frozenset({int, float, bool, str, type(None)})


@lru_cache(maxsize=64)
def _type_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _moved(inputs: list[Any], outputs: list[Any]) -> tuple[int, int]:
    """Bytes read and written by an operator without a formula: each of its tensors once."""
    return sum({id(tensor): _bytes(tensor) for tensor in inputs}.values()), sum(map(_bytes, outputs))


def _sizes(tensor: Any) -> tuple[int, ...]:
    """The sizes of a tensor; for a nested tensor, the number of its tensors."""
    return (tensor.size(0),) if tensor.is_nested else tuple(tensor.shape)


def _bytes(tensor: Any) -> int:
    """Bytes of a tensor; broadcast dimensions (stride 0) count once, and sparse tensors by their stored elements."""
    if str(tensor.layout).startswith("torch.sparse"):
        return sum(map(_bytes, _parts_of_sparse(tensor)))
    return int(min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()))


def _parts_of_sparse(tensor: Any) -> tuple[Any, ...]:
    """The plain tensors of a sparse one: values and indices."""
    import torch

    if tensor.layout == torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return tensor.ccol_indices(), tensor.row_indices(), tensor.values()


def opened_with_header(
    path: Path, device: str, device_name: str, *, threads: int | None = None, estimate: bool = False
) -> TextIO:
    """Open the collector's file and write its header line. An `estimate` was not run, and has no times.

    `threads` is the thread count of operators on a CPU, None on a GPU. Raises `OSError` if it cannot be written.
    """
    stream = path.open("w", encoding="utf-8")
    header: dict[str, Any] = {FORMAT: FORMAT_VERSION, "device": device, "device_name": device_name}
    if threads is not None:
        header["threads"] = threads
    if estimate:
        header["estimate"] = True
    stream.write(json.dumps(header) + "\n")
    return stream
