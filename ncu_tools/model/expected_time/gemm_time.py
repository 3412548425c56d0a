"""A physical formula of the time of a matrix product C[m, n] = A[m, k] B[k, n].

A library cuts C into tiles, and k into splits if there are too few tiles. An SM computes a tile in steps of 64 along k.
The time of the SMs follows from their peak, from the rate of operands from L2 into an SM, and from the latency of
steps; the time of DRAM from the bytes, of which L2 may hold some. Both overlap (a soft maximum). The launch, the
conversion of activations to a narrower type, and the sum over splits come on top.

The rate of operands into an SM and the latency of a step are relative to the peak, which makes them nearly equal on
GPUs of all families (45 to 75 FLOPs per byte, a tenth of a step, in BF16): these were built to feed their tensor cores.

Only part of the last wave of tiles counts as a whole one (`whole_waves`), since libraries divide it among SMs
("stream-K"). NeuSight (Lee et al., ASPLOS 2025) learns the efficiency of tiles and waves in similar terms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ncu_tools.model.expected_time.hardware import Hardware, Stored
from ncu_tools.model.expected_time.physics import Floats, PhysicalNumber, Physics, Work

TILES = (
    (8, 64), (8, 128), (16, 32), (16, 64), (16, 128), (16, 256), (32, 64), (32, 128), (64, 32), (64, 64), (64, 128),
    (64, 256), (128, 16), (128, 32), (128, 64), (128, 128), (128, 256), (256, 64), (256, 128), (256, 256), (64, 16),
)  # fmt: skip
"""Rows and columns of tiles for which cuBLAS and CUTLASS have kernels."""
SPLITS = (1, 2, 4, 8, 16, 32)
DEPTH = 64
"""Elements along k per step."""
LARGE_TILE, MOST_AT_ONCE = 128 * 256, 4
"""Elements of a tile that fills an SM; most small tiles that an SM computes at once to hide latencies."""
SPLIT_SPEED = 2.5
"""Speed of adding the partial sums of splits, which lie in L2, relative to DRAM."""

NUMBERS = {
    "peak": PhysicalNumber(0.85, 0.2, 1.3, "share of the peak that large tiles reach"),
    "dram": PhysicalNumber(0.85, 0.3, 1.2, "share of the DRAM bandwidth that is reached"),
    "launch_us": PhysicalNumber(2, 0.3, 60, "us of an operator that does nothing: launch, prologue, end"),
    "load": PhysicalNumber(55, 0.5, 1500, "FLOPs at the peak in the time in which a byte comes from L2 into an SM"),
    "step": PhysicalNumber(
        0.12, 0.0003, 2, "time of a step along k that is not hidden, by that of a large tile at the peak"
    ),
    "quantise": PhysicalNumber(2, 0.05, 40, "passes over the activations to turn them into the type"),
    "overlap": PhysicalNumber(3, 0.8, 12, "exponent of the soft maximum of computing and moving"),
    "split_us": PhysicalNumber(1, 0.05, 15, "us that a split along k takes more"),
    "split_sum": PhysicalNumber(0.5, 0.01, 8, "passes over the partial sums of splits"),
    "output": PhysicalNumber(1.2, 0.3, 8, "how much dearer a byte is to write than to read"),
    "l2_gain": PhysicalNumber(0.1, 0.01, 6, "how much faster bytes come that fit into L2, less 1"),
    "whole_waves": PhysicalNumber(0.2, 0.01, 1, "share of the last wave that counts as a whole one"),
    "fill_us": PhysicalNumber(0.3, 0.005, 8, "us to fill the pipeline of a tile"),
    "small_tiles": PhysicalNumber(0.05, 0.003, 1, "exponent of the loss of tiles below 128 x 256"),
    "l2_share": PhysicalNumber(0.7, 0.1, 2, "share of L2 from which bytes no longer fit"),
}


def gemm_work(
    m: Floats, n: Floats, k: Floats, stored: Stored, number: Floats | float = 1.0, distinct: Floats | float = 1.0,
    quantised: Floats | float = 0.0,
) -> Work:  # fmt: skip
    """The columns of matrix products of one data type.

    `number` products are computed at once: a batch, or the groups of a convolution. `distinct` is the share of distinct
    elements in A: a convolution reads its image once, a product of m x k once per tap. If `quantised` (1), activations
    already have the type, and need not be converted.
    """
    turned = float(stored.quantises) * (1 - np.asarray(quantised))
    columns = {"m": m, "n": n, "k": k, "number": number, "distinct": distinct, "quantises": turned}
    widths = {"a": stored.a, "b": stored.b, "out": stored.out}
    size = np.shape(m)
    sizes = {name: np.broadcast_to(np.asarray(column, np.float32), size) for name, column in columns.items()}
    return sizes | {name: np.full(len(sizes["m"]), width, np.float32) for name, width in widths.items()}


def least_bytes(work: Work) -> Floats:
    """Bytes of both operands and of the result, once each."""
    m, n, k = work["m"], work["n"], work["k"]
    each = m * k * work["a"] * work["distinct"] + k * n * work["b"] + m * n * work["out"]
    return np.asarray(each * work["number"])


def _parts(
    hardware: Hardware, work: Work, numbers: Sequence[float], choice: Sequence[Floats]
) -> tuple[Floats, dict[str, Floats]]:
    (peak, dram, launch, load, step, quantise, overlap, split_us, split_sum, output, l2_gain, whole_waves, fill,
     small_tiles, l2_share) = numbers  # fmt: skip
    rows, columns, splits = choice
    m, n, k, number = work["m"], work["n"], work["k"], work["number"]
    steps = np.ceil(k / (splits * DEPTH))
    tiles = np.ceil(m / rows) * np.ceil(n / columns) * (number * splits) / hardware.sms
    waves = np.maximum(tiles, 1)
    waves = waves + whole_waves * (np.ceil(waves) - waves)
    area = rows * columns
    loss = np.float32(small_tiles) * np.log(LARGE_TILE / np.minimum(area, LARGE_TILE))
    rate = hardware.flops / hardware.sms
    computing = 2 * DEPTH / (rate * peak) * area * np.exp(loss)
    loading = (rows * work["a"] + columns * work["b"]) * (DEPTH * load / rate)
    rounds = np.maximum(tiles / np.clip(LARGE_TILE / area, 1, MOST_AT_ONCE), 1)
    waiting = np.ceil(rounds) * (step * 2 * LARGE_TILE * DEPTH / rate)
    in_sms = waves * np.maximum(computing, loading)
    in_sms = (in_sms**4 + waiting**4) ** 0.25 * steps + fill * rounds

    bandwidth = hardware.dram * dram
    read, results = m * k * work["distinct"] * number, m * n * number
    operands, results = read * work["a"] + n * k * number * work["b"], results * work["out"]
    moving = (operands + results * output) / bandwidth
    if hardware.l2:
        moving = moving / (1 + l2_gain / (1 + ((operands + results) / (l2_share * hardware.l2)) ** 4))
    more, less = np.maximum(in_sms, moving), np.minimum(in_sms, moving)
    both = more * (1 + (less / more) ** overlap) ** (1 / overlap)
    summing = np.where(splits > 1, split_us + split_sum * 8 / SPLIT_SPEED / bandwidth * m * n * number * splits, 0)
    quantising = work["quantises"] * quantise * 3 / bandwidth * read
    parts = {
        "computing": waves * computing * steps, "loading": waves * loading * steps, "waiting": waiting * steps,
        "moving": moving, "launching": launch + summing + fill * rounds, "quantising": quantising,
    }  # fmt: skip
    return launch + summing + both + quantising, parts


GEMM = Physics(
    "gemm",
    NUMBERS,
    np.array([(*tile, split) for tile in TILES for split in SPLITS], np.float32),
    _parts,
)
