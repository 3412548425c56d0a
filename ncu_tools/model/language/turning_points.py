"""Where decode changes what bounds it: the batch from which it computes longer than it reads, and the context from
which the KV cache is more than the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ncu_launch.targets.language.facts import LanguageFacts

from ncu_tools.model.language.step_work import DECODE, Precision, at, step_work, weight_bytes

LARGEST = 1 << 40
"""A batch or context beyond this counts as never."""


def compute_bound_batch(facts: LanguageFacts, precision: Precision, peak: float, bandwidth: float) -> int | None:
    """The smallest batch at which FLOPs / peak of a decode step are at least bytes / bandwidth.

    None if decode is memory bound at every batch, since each sequence brings its own cache.

    `peak` in FLOP/s, `bandwidth` in byte/s. With the batch grow FLOPs, caches and activations, and of the weights only
    experts, ever slower: so once compute bound, decode stays so.
    """
    one = replace(facts, new_tokens=1)

    def computes_longer(batch: int) -> bool:
        work = step_work(at(one, batch), DECODE, precision)
        return work.flops / peak >= work.bytes / bandwidth

    return _smallest(computes_longer)


def cache_outweighs_context(facts: LanguageFacts, precision: Precision) -> int | None:
    """The shortest context at which a step reads more cache than weights at this batch; None if windows prevent it."""
    one = replace(facts, new_tokens=1)
    weights = weight_bytes(one, one.batch_size, precision)
    return _smallest(
        lambda context: step_work(at(one, one.batch_size, context), DECODE, precision).cache_read_bytes > weights
    )


def _smallest(holds: Callable[[int], bool]) -> int | None:
    """The smallest whole number from 1 on of which something holds that then holds of all larger ones."""
    high = 1
    while not holds(high):
        high *= 2
        if high > LARGEST:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
