"""Build models without memory: every parameter and buffer goes to the meta device as it is registered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock


@contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Modules built inside have meta tensors. Unlike `torch.device("meta")` this also works for RegNets."""
    from torch import nn

    register_parameter, register_buffer = nn.Module.register_parameter, nn.Module.register_buffer

    def parameter(self: Any, name: str, value: Any) -> None:
        if value is not None:
            value = nn.Parameter(value.detach().to("meta"), requires_grad=value.requires_grad)
        register_parameter(self, name, value)

    def buffer(self: Any, name: str, value: Any, persistent: bool = True) -> None:
        register_buffer(self, name, None if value is None else value.to("meta"), persistent)

    with (
        mock.patch.object(nn.Module, "register_parameter", parameter),
        mock.patch.object(nn.Module, "register_buffer", buffer),
    ):
        yield
