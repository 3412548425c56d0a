"""Low-bit weights: a causal model quantised by torchao, and the stored bytes of quantised weights.

Schemes have the names that serving engines use (SGLang's --torchao-config). They are weight-only: products are computed
in the type of the run. Linear modules are quantised, except the LM head, which transformers does not quantise either,
since it may be the embedding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.targets.language.settings import NOT_QUANTISED, settings_of
from ncu_launch.targets.models import Built
from ncu_launch.workload_spec import Workload

GROUP = 128
"""Weights of a row that share a scale and a zero point in int4wo: torchao's default."""

QUANTISATION = "torchao.quantization"
_INT4: dict[str, tuple[str, str, dict[str, Any]]] = {
    "cpu": ("torchao.prototype.quantization.int4", "PrototypeInt4WeightOnlyConfig", {"group_size": GROUP}),
    "cuda": (
        QUANTISATION, "Int4WeightOnlyConfig", {"group_size": GROUP, "int4_packing_format": "tile_packed_to_4d"},
    ),
}  # fmt: skip
"""Device -> torchao's module and class of the configuration, and its settings: each device has its own packing."""


def quantise(workload: Workload, built: Built, model: Any, device: str) -> None:
    """Quantise a causal model in place if its workload requests it, and add a note to `built`.

    Raises `NcuBenchError` if torchao is missing or fails, `WrongUsage` for a model with nothing to quantise.
    """
    if built.language is None:
        return
    scheme = settings_of(workload).quantisation
    if scheme == NOT_QUANTISED:
        return
    from torch import nn

    head = model.get_output_embeddings()
    convert, configuration = _of_torchao(scheme, device)
    try:
        convert(
            model, configuration, filter_fn=lambda module, _: isinstance(module, nn.Linear) and module is not head
        )  # fmt: skip
    except Exception as error:  # torchao asserts the requirements of each packing
        raise NcuBenchError(
            f"torchao cannot quantise {workload.target} by {scheme} on {device}: {type(error).__name__}: {error}.",
            "Each packing takes certain sizes and types only.",
            "Use another --quantize or --dtype, or sizes that are multiples of 128.",
        ) from error
    packed = [one for one in model.parameters() if is_quantised(one)]
    if not packed:
        raise WrongUsage(
            f"{workload.target} has no weights that {scheme} quantises.",
            f"Linear modules are, which GPT-2 does not have, and of int4wo rows of a multiple of {GROUP} weights.",
            "Name a model such as hf:llama-3.2-1b, or leave --quantize out.",
        )
    elements, kept = sum(int(one.numel()) for one in packed), sum(map(stored_bytes, packed))
    built.language = replace(
        built.language, quantisation=scheme, quantised_parameters=elements, quantised_bytes=kept
    )  # fmt: skip
    built.notes.append(
        f"{elements:,} of {built.language.parameters:,} parameters are quantised ({scheme}, torchao): {kept:,} bytes "
        f"with scales and zero points; the others, as LM head and embeddings, are {workload.dtype}"
    )


def _of_torchao(scheme: str, device: str) -> tuple[Callable[..., Any], Any]:
    """torchao's quantising function, and the configuration of a scheme. Raises `NcuBenchError` without torchao."""
    simple = {"int8wo": "Int8WeightOnlyConfig", "fp8wo": "Float8WeightOnlyConfig"}
    module, name, settings = _INT4[device] if scheme == "int4wo" else (QUANTISATION, simple[scheme], {})
    try:
        with _without_warnings():
            configuration = getattr(import_module(module), name)
            # Inductor's settings stay unchanged, so that --mode compile is not affected.
            return import_module(QUANTISATION).quantize_, configuration(**settings, set_inductor_config=False)
    except (ImportError, AttributeError, TypeError) as error:
        raise NcuBenchError(
            f"--quantize {scheme} needs torchao: {error}.",
            "It is not installed, or a version with other names than 0.18.",
            "Install it with: pip install '.[quantize]'",
        ) from error


def is_quantised(tensor: Any) -> bool:
    """True if a tensor wraps plain tensors, as torchao's quantised tensors do."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    return bool(is_traceable_wrapper_subclass(tensor))


def stored_in(tensor: Any) -> Iterator[Any]:
    """The plain tensors in a tensor: itself, or the packed numbers and scales of a quantised one.

    A quantised tensor reports the type and size of the original, and a storage of that size that does not exist.
    """
    if is_quantised(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            yield from stored_in(getattr(tensor, name))
    else:
        yield tensor


def stored_bytes(tensor: Any) -> int:
    """Bytes in which a tensor is stored: of a quantised one, its packed numbers and scales."""
    return sum(int(one.numel() * one.element_size()) for one in stored_in(tensor))


def with_each_part(tensor: Any, change: Callable[[Any], Any]) -> Any:
    """The tensor with `change` applied to every plain tensor in it: a quantised tensor stays quantised."""
    from torch.utils._python_dispatch import transform_subclass

    if is_quantised(tensor):
        return transform_subclass(tensor, lambda _, part: with_each_part(part, change))
    return change(tensor)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Within the block, torchao does not warn that its GPU kernels, which other schemes need, cannot be loaded."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
