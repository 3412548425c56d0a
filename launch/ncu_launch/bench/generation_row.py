"""The columns of a measured point of prefill or decode: times of tokens, tokens per second, memory by kind."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from ncu_launch.targets.language.facts import LanguageFacts
from ncu_launch.targets.language.generation import Generation
from ncu_launch.workload_spec import Workload

Row = dict[str, Any]


def sizes_of_generation(workload: Workload, language: LanguageFacts) -> Row:
    """The columns for batch size and items, the number of tokens per iteration: of all prompts, or all new tokens."""
    return {
        "batch_size": workload.batch_size,
        "input_size": None,
        "sequence_length": None,
        "items": workload.batch_size * language.tokens(workload.phases[0]),
        "throughput_unit": "token/s",
    }


def row_of_generation(workload: Workload, language: LanguageFacts, generation: Generation, row: Row) -> Row:
    """Columns that only prefill and decode have, from the row of a timed point.

    The time to the first token is the time of prefill, which includes choosing the token but no queueing. Activations
    are the peak allocation of an iteration beyond weights, cache and inputs.
    """
    phase, median = workload.phases[0], row["latency_median_ns"]
    peak, tokens = row["memory_peak_bytes"], language.tokens(phase)
    return {
        "first_token_ns": median if phase == "prefill" else None,
        "output_token_ns": median / tokens if phase == "decode" else None,
        "sequence_throughput": tokens / median * 1e9,
        "kv_cache_bytes": sum(int(tensor.nbytes) for tensor in generation.tensors()),
        "activation_bytes": None if peak is None else max(peak - row["memory_allocated_bytes"], 0),
        "language_facts": json.dumps(asdict(language)),
    }
