"""Build a causal language model of transformers from its configuration, with random weights: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from ncu_launch.errors import WrongUsage, near_names
from ncu_launch.targets.function_arguments import parsed
from ncu_launch.targets.language.configurations import CausalModel, causal_models
from ncu_launch.targets.language.facts import LanguageFacts, facts_of, positions_of
from ncu_launch.targets.language.generation import FIRST_TOKEN, Generation
from ncu_launch.targets.language.settings import check_positions, settings_of
from ncu_launch.workload_spec import Workload

ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
"""Type of a workload -> bytes of a parameter."""
WITHOUT_GROUPED_PRODUCTS = (
    "experts are counted as batched products of copies of their matrices, which operators' bytes hold: without data "
    "PyTorch's grouped product takes bf16 alone"
)


class BuiltCausalModel(NamedTuple):
    """A model with the inputs of its forward pass, or with `generation` the inputs of each phase by name."""

    model: Any
    inputs: dict[str, Any]
    generation: Generation | None
    facts: LanguageFacts
    notes: list[str]


def build_causal(transformers: Any, name: str, workload: Workload, length: int) -> BuiltCausalModel:
    """A causal language model: its forward pass over `length` tokens, or prefill and decode with a cache.

    For a longer forward pass the configuration gets more positions. Raises `WrongUsage` for an impossible
    configuration, and if prefill or decode needs more positions than it has.
    """
    import torch

    published, settings = causal_models()[name], settings_of(workload)
    configuration = configuration_of(transformers, published, settings.configuration)
    phases = workload.run_phases if workload.generates else ()
    for phase in phases:
        check_positions(settings, phase, positions_of(configuration), workload.target)
    if not phases and (positions_of(configuration) or length) < length:
        configuration.max_position_embeddings = length
    model = getattr(transformers, published.model if settings.has_head else published.base)(configuration)
    facts = facts_of(model, configuration, settings, workload.batch_size, ELEMENT_BYTES[workload.dtype])
    notes = [on_head(settings.has_head, phases)]
    if facts.experts and workload.dtype != "bf16" and next(model.parameters()).is_meta:
        model.set_experts_implementation("batched_mm")
        notes.append(WITHOUT_GROUPED_PRODUCTS)
    if phases:
        generation = Generation(configuration, settings, workload.batch_size)
        inputs = {phase: generation.inputs(phase) for phase in phases}
        return BuiltCausalModel(model, inputs, generation, facts, notes)
    tokens = torch.randint(FIRST_TOKEN, configuration.vocab_size, (workload.batch_size, length))
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    return BuiltCausalModel(model, inputs, None, facts, notes)


def on_head(has_head: bool, phases: Collection[str]) -> str:
    """The note on whether a causal model has its LM head, and for how many tokens it computes logits."""
    if not has_head:
        return "the model has no LM head (--no-head): it ends with hidden states"
    if "prefill" in phases:
        return "the model has its LM head; in prefill it gives logits of the last token only, as generation needs"
    return "the model has its LM head" + ("" if phases else ", and gives logits of every token")


def configuration_of(transformers: Any, model: CausalModel, changes: dict[str, str]) -> Any:
    """The configuration of transformers, with `changes` (text by name, such as `hidden_size`) to the published values.

    Raises `WrongUsage` for a name that the configuration does not have, a text that is no value of its type, and
    inconsistent values, such as a number of heads that does not divide the width.
    """
    made = getattr(transformers, model.configuration)
    usual = made(**model.values)
    renamed = dict(getattr(made, "attribute_map", {}))  # GPT-2 calls its hidden_size n_embd
    known = [*usual.to_dict(), *renamed]
    values = dict(model.values)
    for name, text in changes.items():
        if name not in known:
            near = near_names(name, known, most=3)
            raise WrongUsage(
                f"{model.configuration} of hf:{model.name} has no field called {name}.",
                f"Near names: {', '.join(near)}." if near else "",
                "Set a field of the configuration, such as --set hidden_size=1024 or --set num_hidden_layers=8.",
            )
        values[renamed.get(name, name)] = _value(name, text, getattr(usual, name, None))
    for name, source in model.follow.items():
        values.setdefault(name, values.get(source, getattr(usual, source)))
    try:
        return made(**values)
    except Exception as error:  # each version of transformers checks its configurations differently
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise WrongUsage(
            f"hf:{model.name} cannot have this configuration: {' '.join(lines[:2]) or type(error).__name__}.",
            f"Set were {', '.join(f'{name}={text}' for name, text in changes.items()) or 'no fields'}.",
            "Give --set values that fit each other, such as a hidden_size that num_attention_heads divides.",
        ) from error


def _value(name: str, text: str, usual: Any) -> Any:
    try:
        return parsed(text, type(usual) if isinstance(usual, (bool, int, float, str)) else None)
    except ValueError as error:
        raise WrongUsage(f"--set {name}={text}: {error}.", advice=f"It is {usual} unless it is set.") from None
