"""How often `ncu-bench history` alarms without a change, and how soon it finds one: planted in resampled real launches.

    python -m benchmarks.history ../shared/reports --versions ../shared/measured/series_h100.parquet
    python -m benchmarks.history --simulated

Every kernel of the reports with 40 and more launches of one grid, block and range is a pool of times. A run is the mean
of some of its launches, drawn with replacement; a series is 300 runs without a change, or 20 or 50 and then a step of
twice the spread or a drift of 0.2 spreads a run. The spread is the standard deviation of runs, at least the floor that
`history` believes. Resampling knows how launches differ within a report, not how days differ on a machine.

`--simulated` counts false alarms of made series, from which the limits of `change_points` follow: no real launch did.

`--versions` has times of shapes over versions of frameworks, each framework a history of few runs, as no report is.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from ncu_launch.errors import NcuBenchError
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import Floats

from ncu_tools.history.causes import changes_of
from ncu_tools.history.change_points import first_alarms
from ncu_tools.history.changes import JITTER_NS, SPREAD_OF_RUNS, common_shifts
from ncu_tools.history.quantities import quantities
from ncu_tools.history.run_summary import RunFacts, RunSummary, table_of_points
from ncu_tools.history.series import EVERY, history_of
from ncu_tools.kernels.matching.launch_signatures import signatures_in
from ncu_tools.runs.loading import load

LEAST_LAUNCHES, LEAST_TIMES = 40, 8
COLUMNS = ("kernel_name", "grid", "block", "nvtx_path", "duration_ns", "invocations")
RUNS, HISTORIES, ONE_IN = 300, 12, 1000
"""Runs of a history without a change, and of how many such histories alarms are counted."""
SPREAD = 0.03
"""Of simulated runs."""
STEP, DRIFT = 2.0, 0.2
WITHIN_STEP, WITHIN_DRIFT = 5, 30
HOT = 0.1
"""The share of a run's time that a hot kernel takes."""


def pools(paths: Sequence[str]) -> list[Floats]:
    """The times of every kernel of the reports with enough single launches, in ns; what cannot be read is left out."""
    found = []
    for source in find_sources(list(paths)):
        try:
            table = load(source.path, ranges=False).read(COLUMNS)
        except NcuBenchError:
            continue
        codes, signatures = signatures_in(table)
        times = tables.floats(table, "duration_ns")
        single = (tables.launch_counts(table) == 1) & (times > 0)
        for code in range(len(signatures)):
            pool = times[(codes == code) & single]
            if len(pool) >= LEAST_LAUNCHES and len(np.unique(pool)) >= LEAST_TIMES:
                found.append(pool)
    return found


def drawn(found: Sequence[Floats], runs: int, launches: int, random: np.random.Generator) -> Floats:
    """So many runs of each pool, shape (runs, pools): the mean time of drawn launches."""
    return np.stack([random.choice(pool, (runs, launches)).mean(axis=1) for pool in found], axis=1)


def floors(found: Sequence[Floats], launches: int) -> Floats:
    """The least spread that `history` believes of each pool."""
    level = np.array([float(np.median(pool)) for pool in found])
    return np.asarray(np.maximum(quantities()["time"].floor, JITTER_NS / np.sqrt(launches) / level))


def alarms(values: Floats, floor: Floats, watched: float) -> list[tuple[int, int, int]]:
    """The alarms of `history`, as its runs come in, with the limit of so many series."""
    return first_alarms(np.log(values), np.maximum(SPREAD_OF_RUNS, floor), floor, np.full(len(floor), watched, float))


def delays(values: Floats, floor: Floats, planted: int, watched: float) -> Floats:
    """After how many runs of the new level each series was found to have changed; infinite if it was not."""
    after = np.full(values.shape[1], np.inf)
    for series, _, found in reversed(alarms(values, floor, watched)):
        if found >= planted:
            after[series] = found - planted + 1
    return after


def resampled(found: Sequence[Floats], launches: int, watched: float, seed: int) -> Iterator[str]:
    """The lines on false alarms, steps and drifts of runs of so many launches, with the limit of so many series."""
    random, floor = np.random.default_rng(seed), floors(found, launches)
    count = sum(len(alarms(drawn(found, RUNS, launches, random), floor, watched)) for _ in range(HISTORIES))
    rate = count / (HISTORIES * RUNS * len(found)) * ONE_IN
    together = rate * watched
    shown = f"{rate:.2f} of a series" + (f", {together:.2f} of all {watched:.0f}" if watched > 1 else "")
    yield f"false alarms in 1,000 runs without a change  {shown:>34}  {verdict(together, 1)}"
    if watched == len(found):
        count = sum(len(common_shifts(drawn(found, RUNS, launches, random))) for _ in range(HISTORIES))
        rate = count / (HISTORIES * RUNS) * ONE_IN
        yield f"false alarms of the median over all kernels  {rate:>34.2f}  {verdict(rate, 1)}"
    still = drawn(found, RUNS, launches, random)
    spread = np.maximum(still.std(axis=0) / still.mean(axis=0), floor)
    for before in (20, 50):
        step = drawn(found, before + WITHIN_STEP + 10, launches, random)
        step[before:] *= 1 + STEP * spread
        yield told(
            f"step of 2 spreads after {before} runs, within {WITHIN_STEP}", step, floor, before, watched, WITHIN_STEP
        )
        drift = drawn(found, before + WITHIN_DRIFT + 10, launches, random)
        drift[before:] *= 1 + DRIFT * spread * np.arange(1, WITHIN_DRIFT + 11)[:, None]
        yield told(
            f"drift of 0.2 spreads a run after {before}, within {WITHIN_DRIFT}",
            drift,
            floor,
            before,
            watched,
            WITHIN_DRIFT,
        )


def told(title: str, values: Floats, floor: Floats, planted: int, watched: float, within: int) -> str:
    """One line on how soon a planted change is found."""
    after = delays(values, floor, planted, watched)
    median, share = float(np.median(after)), float((after <= within).mean())
    shown = (
        f"median {median:.0f} runs, {100 * share:.0f} % in time"
        if np.isfinite(median)
        else f"{100 * share:.0f} % in time"
    )
    return f"{title:<48} {shown:>30}  {verdict(median, within)}"


def verdict(value: float, goal: float) -> str:
    """Whether a figure is within its goal."""
    return "met" if value <= goal else "missed"


# ------------------------------------------------------------------------------------------------------- made series


def made(shape: tuple[int, int], random: np.random.Generator) -> Iterator[tuple[str, Floats]]:
    """Deviations of runs with a spread of about one, of distributions with their names."""
    plain = random.standard_normal(shape)

    def rare(share: float) -> Floats:
        return (random.random(shape) < share).astype(float)

    kinds: dict[str, Callable[[], Floats]] = {
        "normal": lambda: plain,
        "Student's t of 5": lambda: random.standard_t(5, shape) / 1.29,
        "Student's t of 3": lambda: random.standard_t(3, shape) / 1.73,
        "exponential": lambda: random.exponential(size=shape),
        "lognormal": lambda: np.exp(plain) / 2.16,
        "2 % off by 10 spreads": lambda: (plain + 10 * rare(0.02)) / 1.72,
        "5 % off by 10 spreads": lambda: (plain + 10 * rare(0.05)) / 2.4,
        "two levels, 10 % on one": lambda: (0.1 * plain + rare(0.1)) / 0.32,
        "two levels, 30 % on one": lambda: (0.1 * plain + rare(0.3)) / 0.47,
        "rounded": lambda: np.round(1.5 * plain) / 1.5,
    }
    return ((name, values()) for name, values in kinds.items())


def simulated(series: int, watched: int, seed: int) -> Iterator[str]:
    """The lines on false alarms of so many made series of every kind, with the limit of `watched` series."""
    random = np.random.default_rng(seed)
    for kind, deviations in made((RUNS, series), random):
        values = np.exp(SPREAD * deviations)
        found = alarms(values, np.full(series, quantities()["time"].floor), watched)
        rate = len(found) / values.size * ONE_IN * watched
        yield f"{kind:<30} {len(found):>6} alarms, {rate:.2f} in 1,000 runs  {verdict(rate, 1)}"


# ------------------------------------------------------------------------------------------------- versions of others


def versions(path: Path) -> Iterator[str]:
    """The lines on histories of frameworks: what the median over shapes did, and what `history` says of it."""
    table = pq.read_table(path)
    rows = zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True)
    times: dict[str, dict[str, dict[str, float]]] = {}
    for framework, version, dtype, m, n, k, us in rows:
        times.setdefault(framework, {}).setdefault(version, {})[f"{dtype} {m}x{n}x{k}"] = us * 1e3
    for framework, by_version in sorted(times.items()):
        order = sorted(by_version, key=natural)
        history = history_of([summary(version, by_version[version]) for version in order])
        changes = changes_of(history)
        for number in range(1, len(order)):
            base, new = by_version[order[number - 1]], by_version[order[number]]
            ratios = np.log([new[shape] / base[shape] for shape in base if shape in new])
            every = [one for one in changes if one.run == number and one.series == EVERY]
            single = [one for one in changes if one.run == number and one.series != EVERY]
            wobbling = int((np.abs(ratios - np.median(ratios)) > 0.1).sum())
            said = f"{100 * every[0].change:+.1f} %" if every else "none"
            moved = f"{100 * np.expm1(np.median(ratios)):+.1f} %"
            off = f"{wobbling} of {len(ratios)}"
            yield f"{framework + ' ' + order[number]:<20} {moved:>9} {off:>19} {said:>10} {len(single):>10}"


def natural(version: str) -> list[tuple[int, str]]:
    """A key that sorts 0.5.9 before 0.5.10, and rc5 before rc10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.findall(r"\d+|[a-z]+", version)]


def summary(name: str, times: dict[str, float]) -> RunSummary:
    """A run of measured points."""
    rows = table_of_points(list(times), {"time": list(times.values())}, [float("nan")] * len(times))
    return RunSummary.of_table(name, RunFacts(points=True, identity=" ".join(times)), rows)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="*")
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--versions", type=Path)
    parser.add_argument("--seed", type=int, default=68)
    asked = parser.parse_args()
    for series, watched in ((1500, 1), (6000, 257)) if asked.simulated else ():
        print(f"made series, {watched} watched together")
        for line in simulated(series, watched, asked.seed):
            print(f"  {line}")
    found = pools(asked.reports) if asked.reports else []
    for launches in (20, 1) if found else ():
        hot = 1 / ((1 / len(found) + HOT) / 2)
        for as_one_of, together in (
            (1.0, "each alone"),
            (hot, "each as one with a tenth of the time of all"),
            (float(len(found)), "watched together"),
        ):
            print(f"{len(found)} kernels, {together}, a run is the mean of {launches} launches")
            for line in resampled(found, launches, as_one_of, asked.seed):
                print(f"  {line}")
    if asked.versions is not None:
        print(f"{'version':<20} {'median':>9} {'shapes off by 10 %':>19} {'found':>10} {'of shapes':>10}")
        for line in versions(asked.versions):
            print(line)


if __name__ == "__main__":
    main()
