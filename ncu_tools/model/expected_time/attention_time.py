"""Physical formulas of attention's time: of new tokens (context, prefill), and of one token per sequence (generation).

Context: a thread block computes a tile of queries of one head against all keys that they see, so the work is
triangular. The two products run on tensor cores, the exponentials of the softmax on the CUDA cores. Generation: keys
and values are read once per KV head, by blocks that divide the keys of a sequence among them ("split-KV") if there are
too few sequences and heads for all SMs; the query heads of a KV head share a tile.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ncu_tools.model.expected_time.hardware import Hardware, Stored
from ncu_tools.model.expected_time.physics import Floats, PhysicalNumber, Physics, Work

QUERY_TILES = (16, 64, 128, 256)
KEYS = 128
"""Keys that a block processes in one step."""
SPLITS = (1, 2, 4, 8, 16, 32, 64, 128)
GROUP_TILES = (16, 64)
"""Query heads of a KV head that fit into a tile of generation."""

LARGEST_GROUP = 8
"""Query heads per KV head above which generation is learnt separately."""

CONTEXT_NUMBERS = {
    "peak": PhysicalNumber(0.6, 0.05, 1.1, "share of the peak that the products reach"),
    "dram": PhysicalNumber(0.7, 0.1, 1.2, "share of the DRAM bandwidth that is reached"),
    "launch_us": PhysicalNumber(5, 0.5, 60, "us of an operator that does nothing"),
    "softmax": PhysicalNumber(100, 1, 5000, "FLOPs at the peak in the time of one exponential"),
    "step": PhysicalNumber(0.3, 0.003, 10, "time of a step of keys that is not hidden, by that of a tile at the peak"),
    "fill_us": PhysicalNumber(1, 0.01, 20, "us to begin and end a tile of queries"),
    "write": PhysicalNumber(1, 0.05, 20, "passes over the new keys and values to put them into the cache"),
    "whole_waves": PhysicalNumber(0.3, 0.01, 1, "share of the last wave that counts as a whole one"),
    "masked": PhysicalNumber(0.5, 0.01, 2, "keys that a tile computes and then masks, as a share of the tile"),
    "overlap": PhysicalNumber(2, 0.8, 12, "exponent of the soft maximum of computing and moving"),
    "head_us": PhysicalNumber(0.001, 0.00001, 1, "us for each sequence and KV head beside its tiles"),
}
GENERATION_NUMBERS = {
    "peak": PhysicalNumber(0.3, 0.01, 1.1, "share of the peak that the products reach"),
    "dram": PhysicalNumber(0.75, 0.1, 1.3, "share of the DRAM bandwidth that is reached"),
    "launch_us": PhysicalNumber(6, 0.5, 60, "us of an operator that does nothing"),
    "sm_dram": PhysicalNumber(2.5, 0.2, 40, "how many times its share of the DRAM bandwidth one SM can read"),
    "step_us": PhysicalNumber(0.3, 0.005, 5, "us of a step of keys that is not hidden"),
    "fill_us": PhysicalNumber(1, 0.01, 20, "us to begin and end a block"),
    "split_us": PhysicalNumber(1, 0.01, 20, "us to join the parts of a split of keys"),
    "whole_waves": PhysicalNumber(0.3, 0.01, 1, "share of the last wave that counts as a whole one"),
    "l2_gain": PhysicalNumber(0.3, 0.01, 6, "how much faster bytes come that fit into L2, less 1"),
    "l2_share": PhysicalNumber(0.7, 0.1, 2, "share of L2 from which bytes no longer fit"),
    "overlap": PhysicalNumber(2, 0.8, 12, "exponent of the soft maximum of computing and moving"),
    "head_us": PhysicalNumber(0.001, 0.00001, 0.5, "us for each sequence and KV head beside its blocks"),
    "sequence_us": PhysicalNumber(0.001, 0.00001, 0.5, "us for each sequence and query head beside its blocks"),
}


def attention_work(sizes: dict[str, Floats], stored: Stored, cached: Stored) -> Work:
    """The columns of attention in one type, with keys and values in another; `keys` are all that a query could see.

    If `sizes` lack `causal` (1 or 0), every row is causal; if they lack `writes` (1 or 0), it stores its keys and
    values in a cache, as serving engines do.
    """
    names = ("batch", "heads", "kv_heads", "head_dim", "query", "context", "window", "causal", "writes")
    usual = {name: np.ones_like(sizes["query"]) for name in ("causal", "writes")}
    columns = {name: np.asarray((usual | sizes)[name], np.float32) for name in names}
    keys = columns["query"] + columns["context"]
    window = np.where(columns["window"] > 0, columns["window"], np.inf)
    widths = {"element": min(stored.a, 2.0), "cached": min(cached.a, 2.0), "out": stored.out}
    found = columns | {"keys": keys, "window": np.minimum(window, keys)}
    return found | {name: np.full(len(keys), width, np.float32) for name, width in widths.items()}


def seen_pairs(work: Work) -> Floats:
    """Pairs of query and key per sequence and head: those that the causal mask and the window leave, else all."""
    query, context, window = work["query"], work["context"], work["window"]
    full = np.clip(context + query - window, 0, query)
    first, rest = context + 1, query - full
    causal = full * window + rest * (first + (rest - 1) / 2)
    return np.asarray(np.where(work["causal"] > 0, causal, query * work["keys"]))


def seen_keys(work: Work) -> Floats:
    """Keys that at least one query of a sequence sees."""
    return np.asarray(np.minimum(work["keys"], work["window"] + work["query"] - 1))


def least_work(work: Work) -> tuple[Floats, Floats]:
    """FLOPs of both products without masked elements, and bytes of queries, keys, values and the result, once each."""
    rows = work["batch"] * work["head_dim"]
    flops = 4 * rows * work["heads"] * seen_pairs(work)
    cache = 2 * rows * work["kv_heads"] * seen_keys(work) * work["cached"]
    return flops, cache + rows * work["heads"] * work["query"] * (work["element"] + work["out"])


def _soft_maximum(first: Floats, second: Floats, exponent: float) -> Floats:
    more, less = np.maximum(first, second), np.minimum(first, second)
    return np.asarray(more * (1 + (less / more) ** exponent) ** (1 / exponent))


def _context(
    hardware: Hardware, work: Work, numbers: Sequence[float], choice: Sequence[Floats]
) -> tuple[Floats, dict[str, Floats]]:
    peak, dram, launch, softmax, step, fill, write, whole_waves, masked, overlap, head = numbers
    (rows,) = choice
    query, width = work["query"], work["head_dim"]
    rate = hardware.flops / hardware.sms
    blocks = np.ceil(query / rows) * work["batch"] * work["heads"]
    seen = seen_pairs(work) / query + masked * np.minimum(rows, KEYS) * work["causal"]
    steps = np.ceil(np.minimum(seen, work["keys"]) / KEYS)
    products = 4 * rows * KEYS * width / (rate * peak)
    exponentials = rows * KEYS * softmax / rate
    tiles = blocks / hardware.sms
    waves = np.maximum(tiles, 1)
    waves = waves + whole_waves * (np.ceil(waves) - waves)
    waiting = step * 4 * KEYS * KEYS * KEYS / rate
    in_sms = waves * (products + exponentials) * steps
    in_sms = (in_sms**4 + (np.ceil(tiles / 2) * waiting * steps) ** 4) ** 0.25 + fill * np.maximum(tiles / 2, 1)
    moved = least_work(work)[1]
    new = 2 * work["batch"] * work["kv_heads"] * query * width * (2 + work["cached"])
    bandwidth = hardware.dram * dram
    moving = moved / bandwidth
    writing = write * work["writes"] * new / bandwidth + head * work["batch"] * work["kv_heads"] / hardware.sms
    both = _soft_maximum(in_sms, moving, overlap)
    parts = {
        "computing": waves * products * steps, "softmax": waves * exponentials * steps, "moving": moving,
        "waiting": np.ceil(tiles / 2) * waiting * steps, "launching": launch + fill * np.maximum(tiles / 2, 1),
        "writing": writing,
    }  # fmt: skip
    return launch + both + writing, parts


def _generation(
    hardware: Hardware, work: Work, numbers: Sequence[float], choice: Sequence[Floats]
) -> tuple[Floats, dict[str, Floats]]:
    (peak, dram, launch, sm_dram, step, fill, split_us, whole_waves, l2_gain, l2_share, overlap, head,
     sequence) = numbers  # fmt: skip
    tile, splits = choice
    width, keys = work["head_dim"], seen_keys(work)
    group = work["heads"] / work["kv_heads"] * work["query"]
    tiled = np.ceil(group / tile)
    blocks = work["batch"] * work["kv_heads"] * tiled * splits / hardware.sms
    waves = np.maximum(blocks, 1)
    waves = waves + whole_waves * (np.ceil(waves) - waves)
    steps = np.ceil(keys / (splits * KEYS))
    part = np.maximum(keys / splits, 1)
    bandwidth = hardware.dram * dram
    reading = 2 * part * width * work["cached"] * hardware.sms / (bandwidth * sm_dram)
    products = 4 * tile * part * width * hardware.sms / (hardware.flops * peak)
    rounds = np.ceil(np.maximum(blocks / 2, 1e-6))
    in_sms = waves * np.maximum(reading, products) + rounds * (fill + step * steps)
    moved = least_work(work)[1]
    moving = moved / bandwidth
    if hardware.l2:
        moving = moving / (1 + l2_gain / (1 + (moved / (l2_share * hardware.l2)) ** 4))
    joining = np.where(splits > 1, split_us + work["batch"] * work["heads"] * width * splits * 8 / bandwidth, 0)
    beside = (head * work["kv_heads"] + sequence * work["heads"]) * work["batch"] * work["query"]
    both = _soft_maximum(in_sms, moving, overlap)
    parts = {
        "computing": waves * products, "reading": waves * reading, "waiting": rounds * step * steps, "moving": moving,
        "launching": launch + joining + rounds * fill + beside,
    }  # fmt: skip
    return launch + joining + both + beside, parts


_TILES = np.array([[rows] for rows in QUERY_TILES], np.float32)
CONTEXT = Physics("attention_context", CONTEXT_NUMBERS, _TILES, _context)
GENERATION = Physics(
    "attention_generation",
    GENERATION_NUMBERS,
    np.array([(tile, split) for tile in GROUP_TILES for split in SPLITS], np.float32),
    _generation,
)


def _padded(group: Floats) -> Floats:
    """Log2 of the ratio between a tile, a power of two of query heads, and the query heads of a KV head (as log2)."""
    return np.asarray(np.ceil(group - 1e-4) - group)


def context_coordinates(work: Work) -> dict[str, Floats]:
    """Coordinates of corrections for context, all as log2; heads are those of all sequences."""
    group = np.log2(work["heads"] / work["kv_heads"])
    return {
        "query": np.log2(work["query"]), "heads": np.log2(work["batch"] * work["heads"]),
        "kv_heads": np.log2(work["batch"] * work["kv_heads"]), "head_dim": np.log2(work["head_dim"]),
        "beyond_window": np.log2(work["keys"] / work["window"]), "group": group, "padded": _padded(group),
    }  # fmt: skip


def generation_coordinates(work: Work) -> dict[str, Floats]:
    """Coordinates of corrections for generation, all as log2; `blocks` are KV heads of all sequences.

    For groups of more than 8 heads, which often run in a fallback, `padded` is 0.
    """
    group = np.log2(work["heads"] / work["kv_heads"])
    return {
        "seen": np.log2(work["window"]), "batch": np.log2(work["batch"]), "kv_heads": np.log2(work["kv_heads"]),
        "blocks": np.log2(work["batch"] * work["kv_heads"]), "head_dim": np.log2(work["head_dim"]),
        "beyond_window": np.log2(work["keys"] / work["window"]), "group": group,
        "padded": np.where(group <= np.log2(LARGEST_GROUP) + 1e-4, _padded(group), 0),
    }  # fmt: skip
