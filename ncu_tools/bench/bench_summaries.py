"""A sentence for each model of a comparison of measured points: speedup and memory, with their uncertainty.

Over several points the figures are geometric means of ratios. The interval is that of the mean: it covers the noise of
the points, while the range shows how they differ.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ncu_launch.bench.point_outcomes import OK

from ncu_tools.bench.compare_points import (
    ASKED,
    OF_SAMPLES,
    PHASE,
    SIZES,
    ComparedPoint,
    PointComparison,
    estimates_of,
    in_words,
    size_words,
    value_of,
)
from ncu_tools.numbers.change import NOT_SHOWN
from ncu_tools.numbers.number_format import counted
from ncu_tools.numbers.statistics import geometric_mean, mean_ratio_interval

SAME_MEMORY = 0.0005
"""A smaller change of memory would be printed as 0.0 %."""


@dataclass(frozen=True)
class Summary:
    """One target of a comparison: new / base of time, memory and FLOPs, over `points` points that both sides measured.

    `low` and `high` are the 95 % interval of `time_ratio`, `least` and `most` the extreme ratios of points, each with
    its sizes in words. None if unknown. `left_out` counts the other points, by reason. `one_process` is True if the
    interval covers only the scatter within one process of a side, which scatter between processes often exceeds.
    """

    target: str
    base: str
    new: str
    across: tuple[str, ...]
    points: int
    time_ratio: float | None
    low: float | None
    high: float | None
    least: tuple[float, str] | None
    most: tuple[float, str] | None
    memory_ratio: float | None
    flops_ratio: float | None
    left_out: dict[str, int]
    one_process: bool = False

    @property
    def sentence(self) -> str:
        """The summary as in "resnet50: FP16 is 2.14 x [2.10 - 2.18] faster and takes 18.5 % less memory than FP32"."""
        beside = "; ".join(_remarks(self))
        if self.time_ratio is None:
            return f"{self.target}: {self.new} cannot be compared with {self.base}: {beside or 'no common point'}"
        text = (_phases_text if self.across == (PHASE,) else _speed_text)(self, self.time_ratio)
        return f"{self.target}: {text}" + (f" ({beside})" if beside else "")


def summaries(comparison: PointComparison) -> list[Summary]:
    """A summary per target, and per data type, mode, phase and machine if these are not what is compared."""
    groups: dict[tuple[object, ...], list[ComparedPoint]] = {}
    for point in comparison.points:
        fixed = [name for name in ASKED if name not in point.across]
        groups.setdefault((point.row["target"], *(value_of(point.row, name) for name in fixed)), []).append(point)
    several = [
        name for name in ASKED
        if len({value_of(point.row, name) for point in comparison.points if name not in point.across}) > 1
    ]  # fmt: skip
    return [_summary(points, several) for points in groups.values()]


def _summary(points: Sequence[ComparedPoint], several: Iterable[str]) -> Summary:
    first, compared = points[0], [point for point in points if point.is_compared]
    words = [in_words(first.row, name) for name in several if name not in first.across]
    ratios = [(ratio, point) for point in compared if (ratio := point.changes["time"].ratio)]
    interval = mean_ratio_interval(
        [estimates_of(point.base, point.new) for point in compared if point.base and point.new]
    )
    low, high = interval or (None, None)
    varied = [size for size in SIZES if len({point.row.get(size) for point in compared}) > 1]
    ends = sorted(((ratio, size_words(point.row, varied)) for ratio, point in ratios), key=lambda end: end[0])
    return Summary(
        ", ".join((first.row["target"], *words)),
        first.base_label,
        first.new_label,
        first.across,
        len(compared),
        geometric_mean([ratio for ratio, _ in ratios]) if ratios else None,
        low,
        high,
        ends[0] if ends else None,
        ends[-1] if ends else None,
        _mean(compared, "memory"),
        _mean(compared, "flops"),
        dict(Counter(_why_left_out(point) for point in points if not point.is_compared)),
        any(point.changes["time"].basis == OF_SAMPLES for point in compared),
    )


def _mean(points: Iterable[ComparedPoint], measure: str) -> float | None:
    """The geometric mean of a measure's ratio; None if it is unknown for one of the points."""
    ratios = [point.changes[measure].ratio for point in points]
    known = [ratio for ratio in ratios if ratio]
    return geometric_mean(known) if known and len(known) == len(ratios) else None


def _why_left_out(point: ComparedPoint) -> str:
    sides = [(point.base, point.base_label), (point.new, point.new_label)]
    missing = [f"not measured with {label}" for row, label in sides if row is None]
    outcomes = [(row["outcome"], label) for row, label in sides if row is not None and row["outcome"] != OK]
    if len({outcome for outcome, _ in outcomes}) == 1 and len(outcomes) == 2:
        return f"{outcomes[0][0]} with both"
    return " and ".join([*missing, *(f"{outcome} with {label}" for outcome, label in outcomes)])


# ---------------------------------------------------------------------------------------------------------- sentences


def _speed_text(summary: Summary, ratio: float) -> str:
    new, base, memory = summary.new, summary.base, summary.memory_ratio
    slower = ratio > 1
    shown = times(ratio, summary.low, summary.high, turned=not slower)
    same = memory is not None and abs(memory - 1) < SAME_MEMORY
    if summary.low is not None and summary.high is not None and summary.low <= 1 <= summary.high:
        text = [f"{NOT_SHOWN}: {new} is {shown} {'slower' if slower else 'faster'} than {base}", "within the noise"]
        takes = [] if memory is None else [f"and takes {'the same' if same else _memory_text(memory)} memory"]
        return ", ".join([*text, *takes])
    sure = f"{new} is {shown} {'slower' if slower else 'faster'}"
    if memory is None or same:
        return f"{sure} than {base}" + (" and takes the same memory" if same else "")
    return f"{sure} and takes {_memory_text(memory)} memory than {base}"


def _phases_text(summary: Summary, ratio: float) -> str:
    """The ratio as in "backward takes 1.95 x [1.90 - 2.00] the time of forward, and 1.935 x its FLOPs"."""
    flops = "" if summary.flops_ratio is None else f", and {summary.flops_ratio:.3f} x its FLOPs"
    shown = times(ratio, summary.low, summary.high)
    return f"{summary.new} takes {shown} the time of {summary.base}{flops}"


def _memory_text(ratio: float) -> str:
    return f"{100 * abs(ratio - 1):.1f} % {'more' if ratio > 1 else 'less'}"


def _remarks(summary: Summary) -> list[str]:
    found = []
    if summary.points > 1 and summary.least and summary.most:
        as_speed = summary.across != (PHASE,) and (summary.time_ratio or 0.0) <= 1
        ends = (summary.most, summary.least) if as_speed else (summary.least, summary.most)
        shown = (f"{times(ratio, turned=as_speed)} at {sizes}" for ratio, sizes in ends)
        found.append(f"geometric mean of {summary.points} points, {' to '.join(shown)}")
    if summary.points and summary.low is None:
        found.append("noise not known")
    if summary.one_process:
        found.append("of one process each")
    found += [f"{counted(number, 'point', 'points')} {reason}" for reason, number in summary.left_out.items()]
    return found


def times(ratio: float, low: float | None = None, high: float | None = None, *, turned: bool = False) -> str:
    """A factor, with its interval in as many digits as distinguish its ends: "2.14 x [2.10 - 2.18]"."""
    if turned:
        ratio, low, high = 1 / ratio, None if high is None else 1 / high, None if low is None else 1 / low
    if low is None or high is None:
        return f"{ratio:.2f} x"
    wide = max(high - low, 1e-3)
    decimals = max(2, -math.floor(math.log10(wide)))
    return f"{ratio:.{decimals}f} x [{low:.{decimals}f} - {high:.{decimals}f}]"
