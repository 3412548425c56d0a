"""Track the current phase and module, in the forward and in the backward pass.

In the forward pass, hooks on every module keep a stack of dotted paths. In the backward pass there are no modules: the
nodes of the autograd graph run. So when a module's forward call ends, all nodes between its outputs and its inputs that
no inner module claimed are claimed for it, and each node enters and leaves its module around its own execution. This
works for modules called twice (each call has its own nodes), for residual additions (claimed by the enclosing block),
for in-place operations (full backward hooks fail on those) and in autograd's own threads. Work in unclaimed nodes
belongs to no module, and is counted as such.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

Listener = Callable[[str], None]


def tensors_in(value: Any) -> Iterator[Any]:
    """Every tensor in nested tuples, lists, dicts and dataclasses."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors_in(getattr(value, field.name))


class Attribution:
    """The current phase, iteration and module. `entered` and `left` are called on every change of module."""

    def __init__(self, entered: Listener | None = None, left: Listener | None = None) -> None:
        self.phase = ""
        self.iteration = 0
        self._stack: list[str] = []
        self._inputs: list[set[Any]] = []
        self._claimed: dict[Any, str] = {}
        self._handles: list[Any] = []
        self._entered = entered
        self._left = left

    @property
    def module(self) -> str | None:
        """The dotted path of the current module, or None."""
        return self._stack[-1] if self._stack else None

    def attach(self, model: Any, root: str) -> None:
        """Watch every module of `model`, which itself is called `root`; TorchScript modules take no hooks."""
        import torch

        for name, module in model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue
            path = f"{root}.{name}" if name else root
            self._handles.append(module.register_forward_pre_hook(self._before(path), with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._after(path), with_kwargs=True, always_call=True))

    def detach(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.forget()

    def forget(self) -> None:
        """Release the graph of the finished iteration."""
        self._claimed.clear()
        self._stack.clear()
        self._inputs.clear()

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Within the block, `phase` is the current phase, such as forward, backward or optimizer."""
        self.phase = phase
        try:
            yield
        finally:
            self.phase = ""

    def _enter(self, path: str) -> None:
        self._stack.append(path)
        if self._entered is not None:
            self._entered(path)

    def _leave(self, path: str) -> None:
        if self._stack and self._stack[-1] == path:
            self._stack.pop()
            if self._left is not None:
                self._left(path)

    def _before(self, path: str) -> Callable[..., None]:
        def hook(module: Any, args: Any, kwargs: Any) -> None:
            # Before the call, because an in-place operation gives its input a new node.
            self._inputs.append(_nodes((args, kwargs)))
            self._enter(path)

        return hook

    def _after(self, path: str) -> Callable[..., None]:
        def hook(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            self._leave(path)
            self._claim(_nodes(output), self._inputs.pop() if self._inputs else set(), path)

        return hook

    def _claim(self, nodes: set[Any], inputs: set[Any], path: str) -> None:
        """Claim for `path` every unclaimed node from `nodes` down to `inputs`."""
        seen = set(inputs)
        waiting = [node for node in nodes if node not in seen]
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            if node not in self._claimed:
                self._claimed[node] = path
                node.register_prehook(lambda gradients, path=path: self._enter(path))
                node.register_hook(lambda inputs, outputs, path=path: self._leave(path))
            waiting += [following for following, _ in node.next_functions if following is not None]


def forward_functions(model: Any, root: str) -> dict[str, tuple[str, int, str]]:
    """File, first line and name of each module's forward function, by the module's path; `model` is called `root`.

    Files below the working folder have relative paths. Modules whose forward function is not Python are left out.
    """
    here = f"{Path.cwd()}{os.sep}"
    found = {}
    for name, module in model.named_modules():
        function = inspect.unwrap(getattr(module.forward, "__func__", module.forward))
        code = getattr(function, "__code__", None)
        if code is not None:
            path = f"{root}.{name}" if name else root
            found[path] = (code.co_filename.removeprefix(here), code.co_firstlineno, code.co_name)
    return found


def _nodes(value: Any) -> set[Any]:
    """The autograd nodes that created the tensors in `value`."""
    return {tensor.grad_fn for tensor in tensors_in(value) if tensor.grad_fn is not None}
