"""How often the 95 % interval of `ncu-bench bench SWEEP` contains the true exponent, on simulated sweeps.

    OMP_NUM_THREADS=1 python benchmarks/scaling_coverage.py [--fits 4000] [--seed 1] [--sizes 4,6] [--samples 5,10,30]

Each fit is a sweep of latency = size^1 over sizes 1, 2, 4, ..., whose samples are lognormal and summed up as
`ncu-bench bench` does. Noises of a sample, as a share of the latency:

    alike       5 % at every size
    falling     20 % at the smallest size, half of it at each next one, as where short iterations wait for the system
    rising      1 % at the smallest size, 1.41 times as much at each next one
    one noisy   3 %, and 20 % at one size, another one in each sweep

"shifted" adds 1 % that all samples of a size have in common, as processes differ from one to the next, which the
samples of one process cannot show. "unweighted" gives every point the same weight (ordinary least squares).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from ncu_launch.bench.latency_statistics import summed_up
from ncu_launch.bench.point_outcomes import OK
from ncu_parsers.schema.bench_table import IDENTITY
from ncu_parsers.schema.tables import Floats

from ncu_tools.bench.power_law import PowerFit, fitted
from ncu_tools.bench.scaling import Series, series

EXPONENT = 1.0
SHIFT = 0.01
NOISES = ("alike", "falling", "rising", "one noisy")
Random = np.random.Generator


def noise_of(name: str, sizes: int, random: Random) -> Floats:
    """The relative standard deviation of a sample at each size; shape (sizes,)."""
    step = np.arange(sizes, dtype=np.float64)
    if name == "falling":
        return 0.2 / 2**step
    if name == "rising":
        return 0.01 * 2 ** (step / 2)
    if name == "one noisy":
        return np.where(step == random.integers(sizes), 0.2, 0.03)
    return np.full(sizes, 0.05)


def sweep(noise: Floats, samples: int, random: Random, shift: float = 0.0) -> list[dict[str, Any]]:
    """The measured rows of a sweep with this noise at each size, `samples` iterations at each."""
    rows = []
    for size, deviation, moved in zip(
        2.0 ** np.arange(len(noise)), noise, shift * random.standard_normal(len(noise)), strict=True
    ):
        mean = 1e6 * size**EXPONENT * np.exp(moved - deviation**2 / 2)
        found = summed_up((mean * np.exp(deviation * random.standard_normal(samples))).tolist())
        rows.append({
            **dict.fromkeys(IDENTITY), "outcome": OK, "target": "simulated", "batch_size": int(size),
            "latency_mean_ns": found.mean, "latency_low_ns": found.low, "latency_high_ns": found.high,
            "iterations": samples, "process_means_ns": [found.mean], "throughput": None, "throughput_unit": None,
        })  # fmt: skip
    return rows


def _fits(name: str, sizes: int, samples: int, shift: float, number: int, seed: int) -> Iterator[Series]:
    random = np.random.default_rng([seed, sizes, samples, NOISES.index(name)])
    for _ in range(number):
        (found,) = series(sweep(noise_of(name, sizes, random), samples, random, shift))
        yield found


def coverage(fits: list[PowerFit | None]) -> float:
    """The share of fits whose interval holds the true exponent."""
    return float(np.mean([fit is not None and fit.low <= EXPONENT <= fit.high for fit in fits]))


def main(number: int, seed: int, sizes: list[int], samples: list[int]) -> None:
    """Print a table with a line for each kind of noise, number of sizes and number of samples."""
    print(
        f"{number} sweeps each, seed {seed}; about {196 * (0.05 * 0.95 / number) ** 0.5:.1f} % to either side by chance"
    )
    print("| noise | sizes | samples | covered | width | unweighted | width | shifted | unweighted |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in NOISES:
        for size in sizes:
            for count in samples:
                cells = []
                for shift in (0.0, SHIFT):
                    found = list(_fits(name, size, count, shift, number, seed))
                    for fits in (
                        [one.fit for one in found],
                        [fitted(one.sizes, one.latencies_ns) for one in found],
                    ):
                        width = np.median([fit.high - fit.low for fit in fits if fit is not None])
                        cells += [f"{100 * coverage(fits):.1f} %", *([f"{width:.3f}"] if not shift else [])]
                print(f"| {name} | {size} | {count} | {' | '.join(cells)} |", flush=True)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sizes", type=_numbers, default=[4, 5, 6, 8])
    parser.add_argument("--samples", type=_numbers, default=[5, 10, 30])
    asked = parser.parse_args()
    main(asked.fits, asked.seed, asked.sizes, asked.samples)
