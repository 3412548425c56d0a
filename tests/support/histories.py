"""Histories for tests: runs of a few kernels, in memory and as run folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from ncu_launch.files.manifest import Manifest, write_manifest
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import SCHEMA_VERSION, Floats, with_metadata

from ncu_tools.history.causes import HistoryChange, changes_of
from ncu_tools.history.run_summary import HistorySums, RunFacts, RunSummary, with_facts_of
from ncu_tools.history.series import KERNEL, History, Renamed, history_of
from tests.support.launches import launch, metric, table, taken

INSTRUCTIONS, REGISTERS, CYCLES = "smsp__inst_executed.sum", "launch__registers_per_thread", "sm__cycles_elapsed.max"
SHAPE = {"grid": (8, 1, 1), "block": (128, 1, 1)}
GHZ = 1.5


def counted(
    name: str = "gemm", *us: float, instructions: float = 1e6, registers: int = 32, ghz: float = GHZ, **more: object
) -> list[Launch]:
    """Launches of a kernel with counters: their times in us, and cycles at a clock."""
    found = []
    for one in us or (100.0,):
        counters = {INSTRUCTIONS: instructions, REGISTERS: registers, CYCLES: one * 1e3 * ghz}
        metrics = {key: metric(float(value)) for key, value in counters.items()}
        found.append(launch(name, metrics, ns=one * 1e3, **{**SHAPE, **more}))  # type: ignore[arg-type]
    return found


def summary(name: str, launches: Sequence[Launch], **facts: object) -> RunSummary:
    """The summary of a run; `facts` replace what its launches say."""
    sums = taken(HistorySums, table(*launches))
    rows = sums.table()
    identity = str(rows.select(["kernel", "shape", "range"]).to_pydict())
    known = replace(with_facts_of(sums, RunFacts()), identity=identity)
    return RunSummary.of_table(name, replace(known, **facts), rows)  # type: ignore[arg-type]


def history(*runs: Sequence[Launch], by: str = "kernel") -> History:
    """The history of runs in order, called r0, r1 and so on."""
    return history_of([summary(f"r{number}", launches) for number, launches in enumerate(runs)], by)


def history_of_values(
    facts: Sequence[RunFacts] | None = None, renamed: Sequence[Renamed] = (), noun: str = KERNEL, **values: Floats
) -> History:
    """The history of kernels k0, k1 and so on with these values of quantities, shape (runs, series) or (runs,)."""
    columns = [np.reshape(one, (len(one), -1)).astype(float) for one in values.values()]
    runs, series = columns[0].shape
    blocks = [(np.arange(series), [column[run] for column in columns]) for run in range(runs)]
    known = list(facts or [RunFacts()] * runs)
    names = [f"k{number}" for number in range(series)]
    return History(noun, [f"r{run}" for run in range(runs)], known, names, tuple(values), blocks, list(renamed))


def changes(*runs: Sequence[Launch], quantity: str = "time") -> list[HistoryChange]:
    """The changes of a quantity over runs in order."""
    return [one for one in changes_of(history(*runs)) if one.quantity == quantity]


def times(count: int, level: float = 100.0, spread: float = 1.0, seed: int = 0) -> list[float]:
    """Times of so many runs that scatter around a level."""
    found: list[float] = (level + spread * np.random.default_rng(seed).standard_normal(count)).tolist()
    return found


def run_folder(folder: Path, launches: Sequence[Launch], started: str = "", commit: tuple[str, str] = ("", "")) -> Path:
    """A run folder with these launches, and with a manifest if it is known when it was started."""
    folder.mkdir(parents=True)
    write_table(with_metadata(table(*launches), {"schema_version": SCHEMA_VERSION}), folder / "launches.parquet")
    if started:
        write_manifest(Manifest([], "ncu", started, commit=commit[0], committed=commit[1]), folder)
    return folder
