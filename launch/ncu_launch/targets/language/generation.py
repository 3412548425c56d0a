"""Prefill and decode of a causal model of transformers, with a KV cache that is filled before the timing.

Prefill passes a whole prompt through the model and computes logits of its last token only, as generation does. Decode
starts from a cache of `context_length` random keys and values, and adds `new_tokens` tokens one by one; the next token
is the one with the greatest logit. After each iteration the cache is restored.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_launch.targets.language.facts import heads_and_depth
from ncu_launch.targets.language.settings import LanguageSettings

FIRST_TOKEN = 5
"""Random tokens start here: lower ids are for padding, begin and end."""

Saved = list[dict[str, Any]]


@dataclass
class Generation:
    """Prefill and decode of a causal model with a KV cache.

    The first `prepared` of a phase creates its cache, with that call's device and type; later calls restore it.
    """

    configuration: Any
    settings: LanguageSettings
    batch_size: int
    _caches: dict[str, tuple[Any, Saved]] = field(default_factory=dict)

    def inputs(self, phase: str) -> dict[str, Any]:
        """The input tokens, random: [batch, prompt length] for prefill, [batch, 1] for decode."""
        import torch

        length = self.settings.prompt_length if phase == "prefill" else 1
        return {"input_ids": torch.randint(FIRST_TOKEN, self.configuration.vocab_size, (self.batch_size, length))}

    def prepared(self, phase: str, device: str, dtype: Any) -> Any:
        """The cache at the start of a phase: empty, or with the context. Not to be timed."""
        if phase not in self._caches:
            cache = self._new_cache(phase)
            self._fill(cache, self.settings.context_length if phase == "decode" else 0, device, dtype)
            self._caches[phase] = cache, _saved(cache)
        cache, saved = self._caches[phase]
        _put_back(cache, saved)
        return cache

    def run(self, phase: str, model: Any, inputs: dict[str, Any], cache: Any) -> Any:
        """Run one phase; returns the next tokens, [batch, 1] (without LM head, the last input tokens)."""
        token = inputs["input_ids"]
        if phase == "prefill":
            return self._next(model(input_ids=token, past_key_values=cache, use_cache=True, **_last_only(model)), token)
        for _ in range(self.settings.new_tokens):
            token = self._next(model(input_ids=token, past_key_values=cache, use_cache=True), token)
        return token

    def tensors(self) -> list[Any]:
        """Keys and values of all existing caches."""
        layers = [layer for cache, _ in self._caches.values() for layer in cache.layers]
        found = [getattr(layer, name, None) for layer in layers for name in ("keys", "values")]
        return [tensor for tensor in found if tensor is not None]

    def _next(self, output: Any, token: Any) -> Any:
        return output.logits[:, -1:].argmax(-1) if self.settings.has_head else token[:, -1:]

    def _new_cache(self, phase: str) -> Any:
        import transformers

        longest = self.settings.positions(phase)
        try:
            if self.settings.cache == "static":
                return transformers.StaticCache(config=self.configuration, max_cache_len=longest)
            return transformers.DynamicCache(config=self.configuration)
        except TypeError as error:
            raise NcuBenchError(
                f"transformers {transformers.__version__} makes no KV cache from a configuration: {error}.",
                "Prefill and decode need a newer transformers, such as version 5.",
                "Install it with: pip install --upgrade transformers",
            ) from error

    def _fill(self, cache: Any, length: int, device: str, dtype: Any) -> None:
        import torch

        heads, depth = heads_and_depth(self.configuration)
        for number, layer in enumerate(cache.layers):
            keys, values = (
                torch.randn(self.batch_size, heads, length, depth, device=device, dtype=dtype) for _ in range(2)
            )
            if length:
                cache.update(keys, values, number)
            elif self.settings.cache == "static":
                layer.lazy_initialization(keys, values)


def _last_only(model: Any) -> dict[str, int]:
    """The argument that makes a model compute logits of the last token only; {} if it has none."""
    forward = getattr(model, "_orig_mod", model).forward  # a compiled model wraps the original one
    return {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(forward).parameters else {}


def _saved(cache: Any) -> Saved:
    """The state of every layer. Only counters are copied: later keys and values are appended, or overwritten."""
    import torch

    return [
        {
            name: value.clone() if isinstance(value, torch.Tensor) and not value.dim() else value
            for name, value in vars(layer).items()
        }
        for layer in cache.layers
    ]


def _put_back(cache: Any, saved: Saved) -> None:
    import torch

    for layer, state in zip(cache.layers, saved, strict=True):
        for name, value in state.items():
            now = getattr(layer, name, None)
            if isinstance(value, torch.Tensor) and not value.dim() and now is not None:
                now.copy_(value)  # in place, because a CUDA graph knows its address
            else:
                setattr(layer, name, value)
