"""Sizes of a causal language model and of its cache per token, from which its bytes are estimated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ncu_launch.targets.language.settings import LanguageSettings


@dataclass(frozen=True)
class LanguageFacts:
    """Sizes of a model and its run. Parameters are numbers of elements; parameters shared by modules count once.

    `lookup_parameters` are embeddings; a token reads one row of each, `lookup_row` elements in total; a table that is
    also the LM head is excluded. `product_parameters` are the matrices that every token is multiplied with, without
    head and experts; `expert_parameters` covers all `experts`, and a token uses `experts_per_token` of these.
    `product_elements` are inputs and outputs of all these products for one token, `head_elements` of the head's
    product.

    `windows` has per layer the most tokens that it attends to, None for all. `query_heads` x `head_depth` are the
    elements of a query, `cached_elements` the keys and values that a token adds to a layer's cache. `element_bytes` is
    the size of a parameter, activation or cached element at run time. `positions` is the most positions, None if not
    given. `quantised_parameters` are stored in `quantised_bytes` instead, with their scales, by `quantisation`, such as
    int8wo.
    """

    parameters: int
    lookup_parameters: int
    lookup_row: int
    product_parameters: int
    head_parameters: int
    expert_parameters: int
    experts: int
    experts_per_token: int
    product_elements: int
    head_elements: int
    windows: tuple[int | None, ...]
    query_heads: int
    head_depth: int
    cached_elements: int
    element_bytes: int
    positions: int | None
    batch_size: int
    prompt_length: int
    context_length: int
    new_tokens: int
    cache: str
    has_head: bool
    quantisation: str | None = None
    quantised_parameters: int = 0
    quantised_bytes: int = 0

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> LanguageFacts:
        """Read the facts from JSON fields."""
        return cls(**{**fields, "windows": tuple(fields["windows"])})

    def tokens(self, phase: str) -> int:
        """The number of tokens per sequence that a phase processes."""
        return self.prompt_length if phase == "prefill" else self.new_tokens


def facts_of(
    model: Any, configuration: Any, settings: LanguageSettings, batch_size: int, element_bytes: int
) -> LanguageFacts:
    """The facts of a model of transformers, before it is quantised."""
    heads, depth = heads_and_depth(configuration)
    weights = _weights(model, configuration, has_head=settings.has_head)
    return LanguageFacts(
        **weights,
        windows=windows_of(configuration),
        query_heads=int(configuration.num_attention_heads),
        head_depth=depth,
        cached_elements=2 * heads * depth,
        element_bytes=element_bytes,
        positions=positions_of(configuration),
        batch_size=batch_size,
        prompt_length=settings.prompt_length,
        context_length=settings.context_length,
        new_tokens=settings.new_tokens,
        cache=settings.cache,
        has_head=settings.has_head,
        quantisation=None,
    )


def _weights(model: Any, configuration: Any, *, has_head: bool) -> dict[str, int]:
    """The parameter fields of `LanguageFacts`: lookups, products, and experts."""
    from torch import nn

    head = model.get_output_embeddings() if has_head else None
    head_weight = None if head is None else head.weight
    looked_up = [
        one.weight for one in model.modules() if isinstance(one, nn.Embedding) and one.weight is not head_weight
    ]
    owned = [
        one
        for module in model.modules()
        if not isinstance(module, nn.Embedding) and module is not head
        for one in module._parameters.values()
        if one is not None
    ]
    matrices, stacks = ([one for one in owned if one.dim() == dimensions] for dimensions in (2, 3))
    experts = _first(configuration, "num_local_experts", "num_experts") if stacks else 0
    per_token = _first(configuration, "num_experts_per_tok") if stacks else 0
    ends = sum(sum(one.shape) for one in matrices) + per_token * sum(sum(one.shape[1:]) for one in stacks)
    return {
        "parameters": sum(int(one.numel()) for one in model.parameters()),
        "lookup_parameters": sum(int(one.numel()) for one in looked_up),
        "lookup_row": sum(int(one.shape[-1]) for one in looked_up) or int(configuration.hidden_size),
        "product_parameters": sum(int(one.numel()) for one in matrices),
        "head_parameters": 0 if head is None else int(head.weight.numel()),
        "expert_parameters": sum(int(one.numel()) for one in stacks),
        "experts": experts,
        "experts_per_token": per_token,
        "product_elements": int(ends),
        "head_elements": 0 if head is None else sum(map(int, head.weight.shape)),
    }


def positions_of(configuration: Any) -> int | None:
    """The most positions of a configuration; None if not given."""
    found = getattr(configuration, "max_position_embeddings", None)
    return None if found is None else int(found)


def heads_and_depth(configuration: Any) -> tuple[int, int]:
    """The heads of keys and values, which grouped queries share, and the elements of each head."""
    queries = int(configuration.num_attention_heads)
    heads = getattr(configuration, "num_key_value_heads", None) or queries
    depth = getattr(configuration, "head_dim", None) or configuration.hidden_size // queries
    return int(heads), int(depth)


def windows_of(configuration: Any) -> tuple[int | None, ...]:
    """Per layer, the most tokens that it attends to; None for all."""
    layers = int(configuration.num_hidden_layers)
    window = getattr(configuration, "sliding_window", None)
    kinds = getattr(configuration, "layer_types", None)
    if window is None or getattr(configuration, "use_sliding_window", True) is False:
        return (None,) * layers
    if kinds is None:
        return (int(window),) * layers
    return tuple(int(window) if kind == "sliding_attention" else None for kind in kinds)


def _first(configuration: Any, *names: str) -> int:
    found = [value for value in (getattr(configuration, name, None) for name in names) if value]
    return int(found[0]) if found else 0
