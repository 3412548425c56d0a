"""Error of expected times on data left out of the fit: `python -m benchmarks.expected [gemm carried ...]`.

Cases: classes of operators left out in ten folds, with the GPU known; a GPU left out, with a sibling known; its whole
family left out; a run of one GPU carried to another; a GPU left out, except for twenty learnt times; a framework left
out. Prints the tables of docs/estimate.md and draws its picture.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ncu_launch.files.atomic_files import write_bytes_atomically
from numpy.typing import NDArray

from benchmarks.expected_carried import carried
from benchmarks.expected_picture import Pair, draw
from benchmarks.fit_expected import READERS, family_in, fitted_without, machines_left_out, type_and_rest
from benchmarks.measured_operators import MACHINE, traced_operators
from benchmarks.measured_times import framework_times, gemm_times, least_of
from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.model.expected_time.expected_times import expected_times
from ncu_tools.model.expected_time.hardware import family_of
from ncu_tools.model.expected_time.kinds import KINDS
from ncu_tools.model.expected_time.learning import (
    MeasuredTimes,
    bounds,
    by_kind_and_type,
    expected_us,
    learnt_from_few,
    spread_of,
    unseen,
)
from ncu_tools.model.expected_time.learnt_times import FAMILIES, KIN, Learnt, shipped
from ncu_tools.model.expected_time.physics import Floats

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "expected-measured.svg"
PANELS = {
    "gemm": "products", "attention_context": "attention, context", "attention_generation": "attention, generation",
    "model": "whole models",
}  # fmt: skip

LONG_US = 20.0
SIZES = ((0, 5), (5, 20), (20, 50), (50, 200), (200, 1000), (1000, np.inf))
HEAD = "\n**{}**\n\n| | times | median | p90 | bias | within | width |\n|---|---:|---:|---:|---:|---:|---:|"
TITLES = {KIN: "GPU left out, siblings at hand", FAMILIES: "its whole family left out"}


class Judged(NamedTuple):
    """Expected and measured times (us) of one machine and type, with the interval."""

    machine: str
    dtype: str
    expected: NDArray[np.floating]
    measured: NDArray[np.floating]
    low: NDArray[np.floating]
    high: NDArray[np.floating]


def line(title: str, found: Sequence[Judged], least: float = 0.0, most: float = np.inf) -> str:
    """A table row: median and 90th percentile of the error, bias, coverage and median interval width, in per cent."""
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
    """The table of one cross-validation: all times, by GPU, by type, by measured time."""
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
    """Expected and measured times, with the interval that `spread` gives."""
    return Judged(one.machine, one.dtype, expected, one.measured.time_us, *bounds(expected, spread))  # type: ignore[arg-type]


Unseen = list[tuple[MeasuredTimes, Floats]]
"""Measured times, and their expected times from a fit without their class."""


def unseen_times(learnt: Learnt, everything: Sequence[MeasuredTimes]) -> Unseen:
    """Measured times of every machine and type, with expected times from ten-fold cross-validation over classes."""
    found: Unseen = []
    for (kind, dtype), times in by_kind_and_type(everything).items():
        numbers = [learnt.basis(kind, find_machine(one.machine), *type_and_rest(dtype)).logs for one in times]
        found += zip(times, unseen(times, numbers, seed=1), strict=True)
    return found


def known(found: Unseen) -> list[Judged]:
    """Unseen times with intervals."""
    return [half for one, expected in found for half in in_halves(one, expected, one)]


def in_halves(known_times: MeasuredTimes, expected: Floats, own: MeasuredTimes) -> list[Judged]:
    """`own` times with intervals; the errors on known times of half of the classes give those of the other half."""
    half = np.random.default_rng(2).permutation(np.unique(own.groups))
    first = np.isin(own.groups, half[: len(half) // 2])
    return [
        judged(own.where(mine), expected[mine], spread_of(expected[~mine], known_times.measured.time_us[~mine]))
        for mine in (first, ~first)
    ]


def order_of_machines(name: str, found: Unseen) -> str:
    """Share of GPU pairs with the right order by expected time, among pairs whose measured times differ by 20 %."""
    same: dict[tuple[object, ...], list[tuple[float, float]]] = {}
    for one, expected in found:
        work = one.measured.work
        of_model = [one.groups.tolist(), *(work[size].tolist() for size in ("batch", "pixels") if size in work)]
        columns = of_model if name == "model" else [column.tolist() for column in work.values()]
        for at, key in enumerate(zip(*columns, strict=True)):
            same.setdefault((one.dtype, *key), []).append((float(one.measured.time_us[at]), float(expected[at])))
    pairs = [
        (a, b) for times in same.values() for a, b in combinations(times, 2) if max(a[0], b[0]) > 1.2 * min(a[0], b[0])
    ]
    right = [(a[0] < b[0]) == (a[1] < b[1]) for a, b in pairs]
    return (
        f"\n{name}: the order of GPUs is right in {100 * np.mean(right):.1f} % of {len(right):,} pairs" if right else ""
    )


def of_known_gpus(name: str) -> Iterator[str]:
    """The tables of a kind of operators on GPUs whose other classes are known."""
    found = unseen_times(shipped(), READERS[name]())
    yield from tables(f"{name}: GPU known, classes left out", known(found))
    yield order_of_machines(name, found)


def of_gpus_left_out() -> Iterator[str]:
    """The tables of GPUs left out, and of families; the picture has the GPUs left out with siblings at hand."""
    learnt, pictures = shipped(), dict[str, Pair]()
    for name, title in PANELS.items():
        found = list(machines_left_out(learnt, READERS[name]()))
        for basis, words in TITLES.items():
            rows = [
                judged(one, expected, learnt.unknown.get((name, basis, one.dtype), ()))
                for use, one, expected in found if use == basis
            ]  # fmt: skip
            yield from tables(f"{name}: {words}", rows)
            if basis == KIN:
                measured, expected = (np.concatenate([one[place] for one in rows]) for place in (3, 2))
                pictures[title] = (measured, expected)
    write_bytes_atomically(PICTURE, draw(pictures))


LEARNT_FROM, DRAWS = 20, 3


def after_learning() -> Iterator[str]:
    """BF16 products on a GPU of an unknown family, before and after `estimate --learn` with twenty measured times.

    The twenty are drawn three times; the draw with the largest 90th percentile is shown.
    """
    yield (
        f"\n**Products: family left out, {LEARNT_FROM} BF16 times learnt, worst of {DRAWS} draws**\n\n"
        "| | times | median | p90 | median before | p90 before |\n|---|---:|---:|---:|---:|---:|"
    )
    learnt, kind = shipped(), KINDS["gemm"]
    times = [one for one in gemm_times() if one.dtype == "bf16"]
    for one in times:
        machine, rest = find_machine(one.machine), fitted_without(learnt, times, family_in(times, one))
        basis = rest.basis("gemm", machine, "bf16")
        before = np.abs(expected_us(kind, basis.logs, basis.corrections, one.measured) / one.measured.time_us - 1)
        draws = []
        for seed in range(DRAWS):
            chosen = np.zeros(len(before), bool)
            chosen[np.random.default_rng(seed).permutation(len(before))[:LEARNT_FROM]] = True
            entry = learnt_from_few("gemm", machine, "bf16", one.where(chosen).measured, rest)[0]
            after = np.abs(expected_us(kind, entry.logs, entry.corrections, one.measured) / one.measured.time_us - 1)
            draws.append(np.percentile(after[~chosen], [50, 90]))
        worst = max(draws, key=lambda errors: float(errors[1]))
        numbers = " | ".join(f"{100 * error:.1f}" for error in (*worst, *np.percentile(before, [50, 90])))
        yield f"| {one.machine} | {len(before) - LEARNT_FROM:,} | {numbers} |"


def of_traces() -> Iterator[str]:
    """Operators of PyTorch traces on H100, by name and shapes; no fit used these products and attention operators."""
    rows, measured = traced_operators()
    times = expected_times(rows, find_machine(MACHINE), shipped())
    yield HEAD.format("Operators of PyTorch traces by name and shapes, H100")
    for kind in dict.fromkeys(rows.kinds[times.failed == None].tolist()):  # noqa: E711  of each row
        here = (rows.kinds == kind) & (times.failed == None)  # noqa: E711  of each row
        columns = (times.expected_us[here], measured[here], times.low_us[here], times.high_us[here])
        yield line(kind, [Judged(MACHINE, "", *columns)])
        yield line(f"{kind}, over {LONG_US:g} us", [Judged(MACHINE, "", *columns)], LONG_US)
    yield f"\n{(times.failed != None).sum()} of {len(measured)} rows have no times"  # noqa: E711  of each row


HEAD_OF_FRAMEWORKS = (
    "\n**Products: a framework left out, on one H100**\n\n"
    "| | times | median | p90 | bias | within | width | with its times: median | p90 | bias | within | width |\n"
    f"|---{'|---:' * 11}|"
)


def of_frameworks_left_out() -> Iterator[str]:
    """The table of frameworks: times of each, expected from those of the others, and from its own too.

    Rows of the H100 in `gemm_times` are left out: they are the least over frameworks, with the one that is judged.
    """
    family, by_name = family_of(find_machine(MACHINE)), framework_times()
    everything = [one for one in gemm_times() if one.machine != MACHINE]
    siblings = [one for one in everything if family_of(find_machine(one.machine)) == family]
    found: dict[str, list[tuple[Judged, Judged]]] = {"all": []}
    for name, times in by_name.items():
        for place, own in enumerate(times):
            others = [its[place] for other, its in by_name.items() if other != name]
            without, together = (from_siblings_and(siblings, least_of(some), own) for some in (others, [*others, own]))
            found.setdefault(name, []).extend(zip(without, together, strict=True))
        found["all"] += found[name]
    yield HEAD_OF_FRAMEWORKS
    for name, halves in found.items():
        for dtype in dict.fromkeys(half.dtype for half, _ in halves):
            without, together = zip(*(pair for pair in halves if pair[0].dtype == dtype), strict=True)
            for title, least in ((f"{name}, {dtype}", 0.0), (f"{name}, {dtype} over {LONG_US:g} us", LONG_US)):
                yield line(title, without, least) + line(title, together, least).split("|", 3)[3]


def from_siblings_and(
    siblings: Sequence[MeasuredTimes], known_times: MeasuredTimes, own: MeasuredTimes
) -> list[Judged]:
    """`own` times of a framework, expected from the GPU's siblings and known times on it without their classes."""
    rest = shipped().without([own.machine])
    times = [*(one for one in siblings if one.dtype == own.dtype), known_times]
    numbers = [rest.basis(one.kind, find_machine(one.machine), one.dtype).logs for one in times]
    return in_halves(known_times, unseen(times, numbers, seed=1)[-1], own)


OTHERS: dict[str, Callable[[], Iterable[str]]] = {
    "left-out": of_gpus_left_out, "carried": lambda: carried(gemm_times()), "learn": after_learning,
    "traces": of_traces, "frameworks": of_frameworks_left_out,
}  # fmt: skip


def main() -> None:
    """Print the tables named, or all."""
    for name in sys.argv[1:] or (*PANELS, *OTHERS):
        for text in filter(None, of_known_gpus(name) if name in PANELS else OTHERS[name]()):
            print(text, flush=True)


if __name__ == "__main__":
    main()
