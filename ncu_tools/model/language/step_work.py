"""What a step of prefill or decode computes and moves at least, by arithmetic from the sizes of a model.

Bytes are those that have to be read and written: what is resident and not read does not count. A step reads

* **weights** that are active, once for the whole batch: all parameters but embedding tables, of which a token reads a
  row, and experts that no token goes to. Of E experts, T tokens that go to k of them at random hit
  E x (1 - (1 - k/E)^T) on average;
* **the KV cache** of every sequence, as far back as a layer attends; prefill reads what it writes. Keys and
  values of each token are written once;
* **activations**: inputs and outputs of products, queries and the result of attention, once. Element-wise operators are
  taken to be fused with them, so this is the least.

A stretch of several new tokens is several steps, each with a longer cache. FLOPs are 2 for each parameter of a product
and token, and 4 x heads x depth for each pair of tokens that attention looks at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ncu_launch.targets.language.facts import LanguageFacts

from ncu_tools.model.language.parameter_types import BYTES_PER_PARAMETER

DECODE, PREFILL = "decode", "prefill"


@dataclass(frozen=True)
class Precision:
    """Types by bytes of an element: weights, cached keys and values, and activations."""

    weight: float
    cached: float
    activation: float


@dataclass(frozen=True)
class StepWork:
    """The least work of a phase for a whole batch: bytes, FLOPs, and tokens of all sequences.

    `flops` counts as PyTorch's counter, `causal_flops` leaves out the half of a prompt's scores that a causal mask
    skips.
    """

    tokens: int
    flops: float
    causal_flops: float
    weight_bytes: float
    cache_read_bytes: float
    cache_written_bytes: float
    activation_bytes: float

    @property
    def bytes(self) -> float:
        """All bytes read and written."""
        return self.weight_bytes + self.cache_read_bytes + self.cache_written_bytes + self.activation_bytes

    @property
    def bytes_per_token(self) -> float:
        """Bytes per token, over all sequences."""
        return self.bytes / self.tokens


def precision_of(facts: LanguageFacts, weight: str | None = None, cached: str | None = None) -> Precision:
    """The types of a run, with others for weights (as in weight-only quantisation) or the cache."""
    own = float(facts.element_bytes)
    return Precision(
        BYTES_PER_PARAMETER[weight] if weight else own, BYTES_PER_PARAMETER[cached] if cached else own, own
    )


def step_work(facts: LanguageFacts, phase: str, precision: Precision | None = None) -> StepWork:
    """The work of a phase: a prompt of every sequence, or `new_tokens` steps of one token each."""
    types = precision or precision_of(facts)
    if phase == PREFILL:
        return _prefill(facts, types)
    steps = [_decode(facts, facts.context_length + step, types) for step in range(facts.new_tokens)]
    return StepWork(*(sum(values) for values in zip(*map(_fields, steps), strict=True)))


def mean_hit_share(experts: int, per_token: int, tokens: int) -> float:
    """The mean share of experts that `tokens` hit, if each goes to `per_token` random ones; 1 without experts."""
    return 1.0 - math.pow(1.0 - per_token / experts, tokens) if experts else 1.0


def weight_bytes(facts: LanguageFacts, tokens: int, types: Precision) -> float:
    """The weights that a step of this many tokens reads; quantised ones in packed form."""
    plain = facts.parameters - facts.lookup_parameters - facts.expert_parameters - facts.quantised_parameters
    hit = facts.expert_parameters * mean_hit_share(facts.experts, facts.experts_per_token, tokens)
    return (plain + hit + tokens * facts.lookup_row) * types.weight + facts.quantised_bytes


def resident_weight_bytes(facts: LanguageFacts, types: Precision) -> float:
    """All weights as stored in memory."""
    return (facts.parameters - facts.quantised_parameters) * types.weight + facts.quantised_bytes


def product_flops_per_token(facts: LanguageFacts) -> float:
    """2 x the parameters that a token is multiplied with, without the head's."""
    share = facts.experts_per_token / facts.experts if facts.experts else 0.0
    return 2.0 * (facts.product_parameters + facts.expert_parameters * share)


def resident_cache_bytes(facts: LanguageFacts, context: int, types: Precision) -> float:
    """Keys and values of one sequence of this many tokens, as far back as its layers attend."""
    kept = sum(context if window is None else min(context, window) for window in facts.windows)
    return kept * facts.cached_elements * types.cached


def at(facts: LanguageFacts, batch_size: int, context_length: int | None = None) -> LanguageFacts:
    """The same model with another batch, and another context if given."""
    return replace(facts, batch_size=batch_size, context_length=context_length or facts.context_length)


def _decode(facts: LanguageFacts, context: int, types: Precision) -> StepWork:
    batch, depth = facts.batch_size, facts.query_heads * facts.head_depth
    pairs = sum(context + 1 if window is None else min(context + 1, window) for window in facts.windows)
    read = (pairs - len(facts.windows)) * facts.cached_elements * types.cached
    written = len(facts.windows) * facts.cached_elements * types.cached
    moved = facts.product_elements + facts.head_elements + 2 * depth * len(facts.windows)
    flops = batch * (product_flops_per_token(facts) + 2.0 * facts.head_parameters + 4.0 * depth * pairs)
    weights = weight_bytes(facts, batch, types)
    return StepWork(batch, flops, flops, weights, batch * read, batch * written, batch * moved * types.activation)


def _prefill(facts: LanguageFacts, types: Precision) -> StepWork:
    batch, length, depth = facts.batch_size, facts.prompt_length, facts.query_heads * facts.head_depth
    tokens, layers = batch * length, len(facts.windows)
    products = tokens * product_flops_per_token(facts) + batch * 2.0 * facts.head_parameters
    seen = sum(_causal_pairs(length, window) for window in facts.windows)
    cached = tokens * layers * facts.cached_elements * types.cached
    moved = tokens * (facts.product_elements + 2 * depth * layers) + batch * facts.head_elements
    return StepWork(
        tokens,
        products + batch * 4.0 * depth * layers * length**2,
        products + batch * 4.0 * depth * seen,
        weight_bytes(facts, tokens, types),
        cached,
        cached,
        moved * types.activation,
    )


def _causal_pairs(length: int, window: int | None) -> int:
    """Pairs of a token with itself or an earlier one, of which a layer attends to the last `window`."""
    inside = min(length, window or length)
    return inside * (inside + 1) // 2 + (length - inside) * inside


def _fields(work: StepWork) -> tuple[float, ...]:
    return (
        work.tokens, work.flops, work.causal_flops, work.weight_bytes, work.cache_read_bytes, work.cache_written_bytes,
        work.activation_bytes,
    )  # fmt: skip
