"""How far expected times are off, judged by leaving out: `python -m benchmarks.expected [--quick]`, some minutes.

Every number is of times that the fit had not seen: (n, k) classes left out in ten folds with the GPU known; a GPU left
out with a sibling at hand; its whole family left out. Prints the tables of docs/estimate.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.fit_expected import READERS, left_out, type_and_rest
from benchmarks.measured_times import FOLDER
from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.model.expected_time.expected_times import expected_times
from ncu_tools.model.expected_time.learning import MeasuredTimes, bounds, by_kind_and_type, spread_of, unseen
from ncu_tools.model.expected_time.learnt_times import FAMILIES, KIN, Learnt, shipped
from ncu_tools.model.expected_time.operator_rows import operator_rows

LONG_US = 20.0
SIZES = ((0, 5), (5, 20), (20, 50), (50, 200), (200, 1000), (1000, np.inf))
HEAD = "\n**{}**\n\n| | times | median | p90 | bias | within | width |\n|---|---:|---:|---:|---:|---:|---:|"
TITLES = {KIN: "GPU left out, siblings at hand", FAMILIES: "its whole family left out"}


class Judged(NamedTuple):
    """Expected and measured microseconds of one machine and type, and the interval."""

    machine: str
    dtype: str
    expected: NDArray[np.floating]
    measured: NDArray[np.floating]
    low: NDArray[np.floating]
    high: NDArray[np.floating]


def line(title: str, found: Sequence[Judged], least: float = 0.0, most: float = np.inf) -> str:
    """A row of a table: median and 90th percentile of the error, bias, coverage and median width, in per cent."""
    expected, measured, low, high = (np.concatenate([one[place] for one in found]) for place in (2, 3, 4, 5))
    rows = (measured > least) & (measured <= most)
    if not rows.any():
        return ""
    off = 100 * (expected[rows] / measured[rows] - 1)
    half, tail = np.percentile(np.abs(off), [50, 90])
    inside = 100 * np.mean((low[rows] <= measured[rows]) & (measured[rows] <= high[rows]))
    width = 100 * np.median((high[rows] - low[rows]) / expected[rows])
    return (
        f"| {title} | {rows.sum():,} | {half:.1f} | {tail:.1f} | {np.median(off):+.1f} | {inside:.0f} | {width:.0f} |"
    )


def tables(name: str, found: Sequence[Judged]) -> Iterator[str]:
    """The table of one way to leave out: all, by GPU, by type, by measured time."""
    yield HEAD.format(name)
    yield line("all", found)
    yield line(f"over {LONG_US:g} us", found, LONG_US)
    for machine in dict.fromkeys(one.machine for one in found):
        yield line(f"{machine}, over {LONG_US:g} us", [one for one in found if one.machine == machine], LONG_US)
    for machine in dict.fromkeys(one.machine for one in found):
        own = [one for one in found if (one.machine, one.dtype) == (machine, "bf16")]
        yield line(f"{machine}, BF16 over {LONG_US:g} us", own, LONG_US) if own else ""
    for dtype in dict.fromkeys(one.dtype for one in found):
        yield line(dtype, [one for one in found if one.dtype == dtype])
    for least, most in SIZES:
        yield line(f"{least:g} to {most:g} us", found, least, most)


def judged(one: MeasuredTimes, expected: NDArray[np.floating], spread: object) -> Judged:
    """Expected times beside measured ones, in an interval by `spread`."""
    return Judged(one.machine, one.dtype, expected, one.measured.time_us, *bounds(expected, spread))  # type: ignore[arg-type]


def known(learnt: Learnt, everything: Sequence[MeasuredTimes]) -> list[Judged]:
    """Classes left out in folds, GPU known. The interval is that of the other half of the folds' errors."""
    found = []
    for (kind, dtype), times in by_kind_and_type(everything).items():
        numbers = [learnt.basis(kind, find_machine(one.machine), *type_and_rest(dtype)).logs for one in times]
        for one, expected in zip(times, unseen(times, numbers, seed=1), strict=True):
            half = np.random.default_rng(2).permutation(np.unique(one.groups))
            first = np.isin(one.groups, half[: len(half) // 2])
            for mine, others in ((first, ~first), (~first, first)):
                spread = spread_of(expected[others], one.measured.time_us[others])
                found.append(judged(one.where(mine), expected[mine], spread))
    return found


def by_framework() -> Iterator[str]:
    """The least time of each framework on one H100 beside the expected one: its classes were seen by the fit."""
    table = pq.read_table(FOLDER / "series_h100.parquet").to_pandas()
    table["gemm_dtype"] = table["gemm_dtype"].replace({"bfloat16": "bf16"})
    least = table.groupby(["framework", "gemm_dtype", "m", "n", "k"])["latency_us"].min().reset_index()
    rows = operator_rows({"op": ["gemm"] * len(least), "dtype": least["gemm_dtype"], **{n: least[n] for n in "mnk"}})
    times = expected_times(rows, find_machine("h100-sxm"), shipped())
    yield HEAD.format("One framework at a time, H100")
    for name in sorted(set(least["framework"])):
        here = (least["framework"] == name).to_numpy()
        columns = (
            times.expected_us[here],
            least["latency_us"].to_numpy()[here],
            times.low_us[here],
            times.high_us[here],
        )
        yield line(name, [Judged("h100-sxm", "", *columns)])


def main() -> None:
    """Print the tables of every kind of operators, or of those named."""
    learnt = shipped()
    for name in sys.argv[1:] or READERS:
        everything = READERS[name]()
        print("\n".join(filter(None, tables(f"{name}: GPU known, classes left out", known(learnt, everything)))))
        for basis, title in TITLES.items():
            found = [
                judged(one, expected[basis], learnt.unknown.get((name, basis, one.dtype), ()))
                for one in everything
                if basis in (expected := left_out(learnt, one))
            ]
            print("\n".join(filter(None, tables(f"{name}: {title}", found))), flush=True)
    print("\n".join(by_framework()))


if __name__ == "__main__":
    main()
