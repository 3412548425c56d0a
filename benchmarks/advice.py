"""Accuracy of `advise`: predicted savings against the savings that real changes achieved, in public histories.

    python -m benchmarks.advice ../shared/histories              the figures of docs/advice.md
    python -m benchmarks.advice ../shared/histories --rows       also every change, the worst prediction first
    python -m benchmarks.advice --coverage sample_reports ../shared/reports ../shared/histories

Each change is judged on the launch before it. The class of the change determines the lever that the author pulled
(`advice.toml`). If `advise` does not name this lever, the predicted saving is 0 and the interval counts as missed. A
loss counts as a saving of 0. Every author has the same weight. Changes without a lever or with several steps are left
out.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.toml_tables import table_beside
from ncu_parsers.schema.tables import Floats

from ncu_tools.advice.advise import KernelAdvice, LeverAdvice, advise
from ncu_tools.advice.code_of_run import instructions_for_levers
from ncu_tools.advice.intervals import KINDS, calibration
from ncu_tools.advice.situation.model import SavedShare, saving
from ncu_tools.runs.loading import load

ROUNDING = 0.005
GAIN, ANNOUNCED = 0.02, 0.05
WIDE = 0.55
SUMS = re.compile(r" \((sum|median) of (\d+)\)$")


@dataclass(frozen=True)
class Judged:
    """A change, its real saving, and the pulled lever with its rank among the advised ones; None if not advised."""

    pair: Mapping[str, str]
    kernel: KernelAdvice
    real: float
    lever: LeverAdvice | None
    place: int | None

    @property
    def author(self) -> str:
        """Author of the change."""
        return self.pair["author"]

    @property
    def middle(self) -> float:
        """Predicted saving, as a share of the time."""
        return self.lever.saves.middle if self.lever else 0.0

    @property
    def error(self) -> float:
        """Absolute error of the predicted saving, in percentage points."""
        return 100 * abs(self.middle - max(0.0, self.real))

    @property
    def is_inside(self) -> bool:
        """True if the real saving lies in the interval."""
        real = max(0.0, self.real)
        return self.lever is not None and self.lever.saves.low - ROUNDING <= real <= self.lever.saves.high + ROUNDING

    @property
    def place_of_kind(self) -> int | None:
        """Place of the pulled lever among those that keep the kernel, or among those apart; None if it is not named."""
        if self.lever is None:
            return None
        of_kind = [one for one in self.kernel.levers if one.is_apart == self.lever.is_apart]
        return of_kind.index(self.lever)

    @cached_property
    def model(self) -> SavedShare:
        """The model's saving, before its interval is widened."""
        return saving(self.kernel.kernel, self.lever.pulled.effect) if self.lever else SavedShare(0.0, 0.0, 0.0)

    @property
    def known(self) -> str:
        """Kind of report that the kernel comes from."""
        return next((one.known for one in self.kernel.levers), KINDS[-1])


def pairs_in(folder: Path) -> Iterator[dict[str, str]]:
    """The changes that pull a lever."""
    with (folder / "pairs.tsv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row["change_class"] in levers_of_change():
                yield row


@cache
def levers_of_change() -> dict[str, list[str]]:
    """Class of a change -> the levers that match it."""
    found: dict[str, list[str]] = table_beside(__file__, "advice")["levers_of"]
    return found


@cache
def advice_of(path: Path) -> Sequence[KernelAdvice]:
    """The advice on each kernel of a report, or of a table of counters printed in a paper."""
    if path.name.endswith(".tex.gz"):
        return advise(printed_table(path)).kernels
    try:
        launches = load(str(path)).table
    except NcuBenchError:
        return []
    return advise(launches, instructions_for_levers(str(path), launches.column_names)[0]).kernels


def printed_table(path: Path) -> pa.Table:
    """Launches from a TeX table with the columns kernel & metric & value."""
    found: dict[str, dict[str, object]] = defaultdict(dict)
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        cells = [cell.strip() for cell in line.replace("\\_", "_").replace("\\\\", "").split("&")]
        if len(cells) == 3 and "__" in cells[1]:
            found[cells[0]][cells[1]] = float(cells[2])
    for name, row in found.items():
        read, written = (float(row[f"dram__bytes_op_{one}.sum"]) for one in ("read", "write"))  # type: ignore[arg-type]
        row |= {
            "kernel_name": name,
            "source": "ncu",
            "duration_ns": row["gpu__time_duration.sum"],
            "compute_capability": "12.0",
        }
        row |= {"dram_bytes": read + written, "dram_read_bytes": read, "device_name": "NVIDIA GeForce RTX 5070"}
    return pa.Table.from_pylist(list(found.values()))


def judged(pair: Mapping[str, str], folder: Path) -> Judged | None:
    """Judge one change; None if its kernel is not in the report."""
    path = folder / pair["source_before"]
    of_table = sorted(path.parent.glob("*.tex.gz"))
    kernels = advice_of(of_table[0] if of_table and not pair["source_before"].endswith(".tex.gz") else path)
    kernel = kernel_of(pair, kernels)
    if kernel is None:
        return None
    wanted = levers_of_change()[pair["change_class"]]
    place = next((place for place, one in enumerate(kernel.levers) if one.lever in wanted), None)
    real = 1 - 1 / float(pair["real_ratio"])
    return Judged(pair, kernel, real, None if place is None else kernel.levers[place], place)


def kernel_of(pair: Mapping[str, str], kernels: Sequence[KernelAdvice]) -> KernelAdvice | None:
    """The kernel that was changed: found by name, and among several of that name by time."""
    told = SUMS.search(pair["launch_before"])
    name = SUMS.sub("", pair["launch_before"])
    time = 1e3 * float(pair["time_before_us"]) / (int(told[2]) if told and told[1] == "sum" else 1)
    prefix = pair["workload"].split(" ")[0]
    for wanted in (name, f"{prefix}_{name}"):
        whole = re.compile(rf"(?<!\w){re.escape(wanted)}(?!\w)")
        found = [one for one in kernels if whole.search(one.kernel.name)]
        if found:
            return min(found, key=lambda one: abs(math.log(one.kernel.time_ns / time)))
    return kernels[0] if len(kernels) == 1 else None


# ----------------------------------------------------------------------------------------------------------- figures


def by_author(rows: Iterable[Judged], figure: Callable[[Judged], float]) -> float:
    """The mean over authors of the mean over their changes; NaN without any."""
    found: dict[str, list[float]] = defaultdict(list)
    for one in rows:
        found[one.author].append(figure(one))
    return statistics.fmean(map(statistics.fmean, found.values())) if found else math.nan


def rank_correlation(rows: Sequence[Judged]) -> float:
    """Spearman's rank correlation of predicted and real savings; ties get mean ranks, every author the same weight."""
    counts: dict[str, int] = defaultdict(int)
    for one in rows:
        counts[one.author] += 1
    weights = np.array([1 / counts[one.author] for one in rows])
    weights /= weights.sum()
    first, second = (
        mean_ranks(np.array(values)) for values in ([one.middle for one in rows], [one.real for one in rows])
    )
    first, second = first - (weights * first).sum(), second - (weights * second).sum()
    return float((weights * first * second).sum() / math.sqrt((weights * first**2).sum() * (weights * second**2).sum()))


def mean_ranks(values: Floats) -> Floats:
    """Ranks of the values; equal values share their mean rank."""
    order = values.argsort(kind="stable")
    ranks = np.empty(len(values))
    ranks[order] = np.arange(len(values))
    for one in np.unique(values):
        ranks[values == one] = ranks[values == one].mean()
    return ranks


def figures(rows: Sequence[Judged]) -> list[tuple[str, str, str]]:
    """Title, value and goal of each figure, as texts."""
    gained = [one for one in rows if one.real > GAIN]
    clear = [one for one in rows if one.real > ANNOUNCED]
    idle = [one for one in rows if one.real <= GAIN and one.lever is not None]
    widths = [one.lever.saves.high - one.lever.saves.low for one in rows if one.lever is not None]
    found = [
        ("changes, authors", f"{len(rows)}, {len({one.author for one in rows})}", ""),
        (
            "pulled lever among the first three, of those that gained > 2 %",
            percent(by_author(gained, lambda one: one.place is not None and one.place < 3)),
            "80 %",
        ),
        (
            "the same, levers apart ranked among themselves",
            percent(by_author(gained, lambda one: one.place_of_kind is not None and one.place_of_kind < 3)),
            "",
        ),
        ("pulled lever named at all", percent(by_author(gained, lambda one: one.place is not None)), ""),
        ("real saving inside the interval", percent(by_author(rows, lambda one: one.is_inside)), "80 %"),
        ("width of the interval, median", points(100 * statistics.median(widths)), "30"),
        ("widths under 55 points", percent(statistics.fmean(one < WIDE for one in widths)), "90 %"),
        ("error of the middle", points(by_author(rows, lambda one: one.error)), "10"),
    ]
    for kind in KINDS:
        of_kind = [one for one in rows if one.known == kind]
        if of_kind:
            many = f"{len(of_kind)} changes, {len({one.author for one in of_kind})} authors"
            error, inside = by_author(of_kind, lambda one: one.error), by_author(of_kind, lambda one: one.is_inside)
            found.append((f"error of the middle with {kind} ({many})", points(error), "8" if kind == KINDS[0] else ""))
            found.append((f"inside the interval with {kind}", percent(inside), ""))
    found += [
        ("rank correlation of middle and real saving", f"{rank_correlation(rows):.2f}", "0.65"),
        ("gains > 5 % announced (middle > 5 %)", percent(by_author(clear, lambda one: one.middle > ANNOUNCED)), "90 %"),
        (
            f"null changes and losses ({len(idle)}) of which the middle is at most 5 %",
            percent(by_author(idle, lambda one: one.middle <= ANNOUNCED)),
            "75 %",
        ),
    ]
    return found


def percent(share: float) -> str:
    """A share as text in per cent."""
    return f"{100 * share:.0f} %"


def points(value: float) -> str:
    """Percentage points with one decimal."""
    return f"{value:.1f}"


# -------------------------------------------------------------------------------------------------- one author left out

SPREADS, BELOW, ABOVE = (0.5, 0.7, 0.9, 1.0), (0.0, 0.03, 0.05, 0.08, 0.12), (0.05, 0.08, 0.1, 0.13, 0.15, 0.2)
HELD = 0.82
"""Share of real savings that an interval must contain when its widths are chosen."""


def left_out(rows: Sequence[Judged]) -> tuple[float, float]:
    """Share of intervals that contain the real saving, and their median width, in leave-one-author-out validation.

    For each kind of report, the widths are the narrowest of a grid that contain enough of the other authors' savings.
    """
    held, widths = dict[int, bool](), list[float]()
    for author in dict.fromkeys(one.author for one in rows):
        others = [one for one in rows if one.author != author]
        for kind in KINDS:
            chosen = _narrowest([one for one in others if one.known == kind])
            for one in rows:
                if one.author == author and one.known == kind:
                    found = _interval(one, *chosen)
                    held[id(one)] = found[0] - ROUNDING <= max(0.0, one.real) <= found[1] + ROUNDING
                    widths.append(found[1] - found[0])
    return by_author(rows, lambda one: held[id(one)]), statistics.median(widths)


def _narrowest(rows: Sequence[Judged]) -> tuple[float, float, float]:
    """The spread, and the additions below and above: the narrowest that reach `HELD`, else the widest of the grid."""

    def judged_as(widths: tuple[float, float, float]) -> tuple[float, float]:
        found = {id(one): _interval(one, *widths) for one in rows}
        inside = by_author(
            rows, lambda one: found[id(one)][0] - ROUNDING <= max(0.0, one.real) <= found[id(one)][1] + ROUNDING
        )
        return inside, statistics.fmean(high - low for low, high in found.values()) if found else math.nan

    grid = [(spread, below, above) for spread in SPREADS for below in BELOW for above in ABOVE]
    figures_of = {one: judged_as(one) for one in grid}
    enough = [one for one in grid if figures_of[one][0] >= HELD]
    return min(enough, key=lambda one: figures_of[one][1]) if enough else grid[-1]


def _interval(one: Judged, spread: float, below: float, above: float) -> tuple[float, float]:
    if one.lever is None:
        return 0.0, 0.0
    model = one.model
    middle = max(0.0, model.middle)
    if one.lever.pulled.nothing:
        return 0.0, middle + calibration()[one.known]["nothing"][1]
    room = min(1.0, (1.0 - middle) / calibration()["room"])
    return max(0.0, middle - spread * (middle - model.low) - below), middle + spread * (
        model.high - middle
    ) + above * room


# ---------------------------------------------------------------------------------------------------------- coverage


def coverage(folders: Sequence[Path]) -> tuple[float, list[tuple[float, str, str]]]:
    """Share of kernel time in binary reports with a lever above 2 % or a roof, and the kernels without either.

    Identical reports count once.
    """
    seen, whole, covered, missing = set[bytes](), 0.0, 0.0, list[tuple[float, str, str]]()
    for path in sorted({path for folder in folders for path in folder.rglob("*.ncu-rep*")}):
        content = path.read_bytes()
        if content in seen:
            continue
        seen.add(content)
        kernels = [one for one in advice_of(path) if one.reason != "prepares inputs"]
        total = sum(one.kernel.total_ns for one in kernels)
        if not total:
            continue
        whole += 1.0
        for one in kernels:
            if one.roof or any(lever.saves.low > GAIN for lever in one.levers):
                covered += one.kernel.total_ns / total
            else:
                missing.append((one.kernel.total_ns / total, one.kernel.name[:50], path.name))
    return covered / whole if whole else math.nan, sorted(missing, reverse=True)


def main() -> None:
    """Print the figures, or the coverage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--coverage", action="store_true")
    asked = parser.parse_args()
    if asked.coverage:
        share, missing = coverage(asked.folders)
        sys.stdout.write(f"covered: {points(100 * share)} %\n")
        sys.stdout.writelines(f"  {percent(part)} of {report}: {name}\n" for part, name, report in missing[:20])
        return
    rows = [one for folder in asked.folders for pair in pairs_in(folder) if (one := judged(pair, folder)) is not None]
    print_figures(rows, every=asked.rows)


def print_figures(rows: Sequence[Judged], *, every: bool) -> None:
    """Print the figures of docs/advice.md, the figures by author, and with `every` each change."""
    sys.stdout.write("| figure | reached | goal |\n|---|--:|--:|\n")
    sys.stdout.writelines(f"| {title} | {value} | {goal} |\n" for title, value, goal in figures(rows))
    held, width = left_out(rows)
    sys.stdout.write(f"| inside, widths from the other authors alone | {percent(held)} | |\n")
    sys.stdout.write(f"| their median width | {points(100 * width)} | |\n")
    sys.stdout.write("\n| author | changes | first three | inside | error |\n|---|--:|--:|--:|--:|\n")
    for author in dict.fromkeys(one.author for one in rows):
        own = [one for one in rows if one.author == author]
        gained = [one for one in own if one.real > GAIN]
        first = percent(by_author(gained, lambda one: one.place is not None and one.place < 3)) if gained else ""
        inside, error = (
            percent(by_author(own, lambda one: one.is_inside)),
            points(by_author(own, lambda one: one.error)),
        )
        sys.stdout.write(f"| {author} | {len(own)} | {first} | {inside} | {error} |\n")
    for one in sorted(rows, key=lambda one: -one.error) if every else ():
        saves = one.lever.saves if one.lever else None
        interval = f"{100 * saves.low:.0f} to {100 * saves.high:.0f}" if saves else "not named"
        top = ", ".join(f"{lever.lever} {100 * lever.saves.middle:.0f}" for lever in one.kernel.levers[:4])
        shares = sorted(one.kernel.kernel.busy.items(), key=lambda item: -item[1])[:3]
        busy = ", ".join(f"{name} {100 * share:.0f}" for name, share in shares)
        sys.stdout.write(
            f"{one.pair['id']} {one.pair['change_class'][:20]}: real {100 * one.real:.0f}, said {100 * one.middle:.0f} "
            f"({interval}), place {one.place}; {top}; {busy}; {one.kernel.kernel.name[:30]}\n"
        )


if __name__ == "__main__":
    main()
