"""The tables of `estimate RUN`: a measured run on other machines, and times learnt from runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ncu_launch.errors import WrongUsage
from ncu_launch.files.atomic_files import write_bytes_atomically

from ncu_tools.ceilings.launch_devices import of_a_cpu
from ncu_tools.ceilings.machine_files import Machine, find_machine, machine_of_device
from ncu_tools.cli.option_kinds.expected_options import ExpectedOptions
from ncu_tools.cli.tables.carried_picture import scene_of_carried
from ncu_tools.cli.tables.expected_operators import learnt_times
from ncu_tools.cli.tables.roofline_pictures import TEXT, Style, write_picture
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.model.expected.carried_run import (
    NO_WORK,
    CarriedKernel,
    MeasuredProduct,
    carried_run,
    products_measured,
)
from ncu_tools.model.expected.learning_from_runs import FEWEST, learnt_from_products, products_in_csv
from ncu_tools.model.expected_time.hardware import types
from ncu_tools.model.expected_time.learnt_times import written
from ncu_tools.numbers.number_format import counted, duration, percent
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.pictures import format_of
from ncu_tools.report.table import Table
from ncu_tools.runs import loading
from ncu_tools.runs.run import Run

COLUMNS = columns(
    "kernel operator~0 shapes~6 launches~4 time_ns~0 machine~0 expected_ns~0 low_ns~0 high_ns~0 carried_speedup~0 "
    "roof_ratio~4 bound~3 basis~5 failed~3"
)
LEARNT = columns("machine dtype learnt_points error_before error_after")
SLOWEST_SCALING = 0.7
"""A kernel that gains less than this share of the usual gain is named."""
MOST_NAMED = 3
NEEDS = ": a trace needs shapes (record_shapes=True), a report FLOPs and DRAM bytes"


def carried_table(
    options: ExpectedOptions, runs: Sequence[str], machines: Sequence[Machine], notes: Sequence[str]
) -> Table:
    """The kernels of a run on machines, the longest first. Raises `WrongUsage` without machines, for several runs."""
    if len(runs) > 1:
        raise WrongUsage(f"{len(runs)} runs cannot be carried at once.", advice="Give one run, or add --learn.")
    if not machines:
        raise WrongUsage("A run is carried to a machine.", advice="Add --machine, as --machine b200.")
    format_of(options.output, TEXT)
    run = loading.load(runs[0])
    measured_on = machine_of(run, options)
    rows = carried_run(run.table, measured_on, machines, learnt_times(options))
    cells = [{**asdict(row), "carried_speedup": row.speedup} for row in rows]
    drawn = []
    if options.output is not None:
        scene = scene_of_carried(rows, measured_on, machines)
        drawn = write_picture(
            scene, Style(options.output, f"{Path(run.name).name}, measured and expected", "light", "screen")
        )
    return Table("estimate", COLUMNS, cells, [*drawn, *notes, *_notes(rows), *run.notes])


def machine_of(run: Run, options: ExpectedOptions) -> Machine:
    """The machine that a run was measured on. Raises `WrongUsage` if neither the run nor the user names it."""
    if options.measured_on is not None:
        return find_machine(options.measured_on)
    table = run.table
    names = Counter(table["device_name"].to_pylist() if "device_name" in table.column_names else [])
    name = next((name for name, _ in names.most_common() if name), None)
    found = machine_of_device(name)
    if found is None and of_a_cpu(table):
        raise WrongUsage(
            f"{run.name} was measured on {name or 'a CPU'}, and a run is carried from one GPU to another.",
            advice="A model is estimated by its name, without a run: ncu-bench estimate resnet18 --machine h100",
        )
    if found is None:
        raise WrongUsage(
            f"The GPU that {run.name} was measured on is not known{f': {name}' if name else ''}.",
            advice="Add --measured-on NAME; ncu-bench machines lists the names.",
        )
    return found


def _notes(rows: Sequence[CarriedKernel]) -> list[str]:
    """Notes on the total time on a machine, kernels without a basis, and kernels that gain much less than usual."""
    notes = []
    for machine in dict.fromkeys(row.machine for row in rows):
        own = [row for row in rows if row.machine == machine]
        total = sum(row.time_ns for row in own)
        known = [row for row in own if row.expected_ns]
        if not known:
            notes.append(f"{machine}: no kernel of the run has a basis there: {own[0].failed}")
            continue
        before, after = sum(row.time_ns for row in known), sum(row.expected_ns or 0 for row in known)
        gain = f"{duration(before)} of kernels would take {duration(after)}, {before / after:.2f} times as fast"
        notes.append(f"{machine}: {gain}; gaps between kernels are the host's and stay")
        for why in dict.fromkeys(row.failed for row in own if row.failed):
            share = percent(sum(row.time_ns for row in own if row.failed == why) / total)
            notes.append(f"{machine}: {share} of the time has no basis: {why}{NEEDS if why == NO_WORK else ''}")
        slow = [row for row in known if (row.speedup or 0) < SLOWEST_SCALING * before / after]
        if slow:
            named = "; ".join(
                f"{readable_name(row.kernel)} ({row.speedup:.2f} x, {row.bound})" for row in slow[:MOST_NAMED]
            )
            share = percent(sum(row.time_ns for row in slow) / total)
            kernels = counted(len(slow), "kernel gains", "kernels gain")
            notes.append(f"{machine}: {kernels} much less than the run, {share} of the time: {named}")
    return notes


def learn_from(options: ExpectedOptions, runs: Sequence[str]) -> Table:
    """Learn from the products of runs and write the file. Raises `WrongUsage` without -o or enough products."""
    if options.output is None:
        raise WrongUsage("--learn writes a file.", advice="Add -o learnt.toml, and give it to --learnt afterwards.")
    found: list[tuple[list[MeasuredProduct], Machine]] = []
    for run in runs:
        if (products := products_in_csv(Path(run))) is not None:
            if options.measured_on is None:
                raise WrongUsage(f"{run} does not say which GPU it was measured on.", advice="Add --measured-on NAME.")
            found.append((products, find_machine(options.measured_on)))
        else:
            loaded = loading.load(run)
            found.append((products_measured(loaded.table), machine_of(loaded, options)))
    learnt, told = learnt_from_products(found, learnt_times(options), ", ".join(Path(run).name for run in runs))
    write_bytes_atomically(options.output, written(learnt, "Learnt by ncu-bench estimate --learn.").encode())
    note = f"{options.output} is written: estimate --learnt {options.output} takes it"
    return Table("estimate", LEARNT, told, [note, *_not_learnt(found, told)])


def _not_learnt(
    found: Sequence[tuple[Sequence[MeasuredProduct], Machine]], told: Sequence[dict[str, Any]]
) -> list[str]:  # fmt: skip
    """Notes on products from which nothing was learnt, by type and machine."""
    learnt = {(row["machine"], row["dtype"]) for row in told}
    names = types()
    others = Counter(
        (machine.id, names[one.dtype].like or one.dtype) for products, machine in found for one in products
        if one.dtype in names
    )  # fmt: skip
    return [
        f"{counted(times, 'product', 'products')} of {dtype} on {name} taught nothing: that takes {FEWEST} of a type, "
        "and the machine's peak for it"
        for (name, dtype), times in others.items() if (name, dtype) not in learnt
    ]  # fmt: skip
