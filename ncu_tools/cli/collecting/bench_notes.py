"""Notes below the table of `bench`: noisy points, throttled clocks, and where all samples are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ncu_launch.bench.latency_statistics import Effort
from ncu_launch.bench.point_outcomes import OK
from ncu_launch.bench.sweep import Sweep, process_means, sizes_of
from ncu_launch.files.run_files import BENCH_FILE

from ncu_tools.cli.collecting.profiled_points import counting_notes
from ncu_tools.cli.collecting.sampled_power import power_notes
from ncu_tools.numbers.number_format import counted

Row = dict[str, Any]


def plus_minus(row: Row) -> float | None:
    """Half the width of the interval of a row's latency, as a fraction of it; None without an interval."""
    if row["latency_high_ns"] is None:
        return None
    return float(row["latency_high_ns"] / row["latency_mean_ns"] - 1)


def _notes_of_points(rows: list[Row]) -> list[str]:
    """The notes of the points; a note on several points, whatever their arguments, appears once."""
    having: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        for note in row["notes"] or []:
            having.setdefault(re.sub(r"^(\w+)\([^)]*\)", r"\1(...)", note), []).append((row["point"], note))
    return [
        f"{len(found)} points: {alike}" if len(found) > 1 else f"{found[0][0]}: {found[0][1]}"
        for alike, found in having.items()
    ]


def notes_on_cpu(rows: list[Row]) -> list[str]:
    """The CPUs of measured points, with PyTorch's threads; [] without any."""
    machines = sorted({row["device_name"] for row in rows if row.get("device") == "cpu" and row.get("device_name")})
    threads = sorted({row["threads"] for row in rows if row.get("threads")})
    on_cpu = f"on the CPU: {', '.join(machines)}, PyTorch's threads: {', '.join(map(str, threads))}"
    return [on_cpu] if machines else []


def notes_of_sweep(rows: list[Row], sweep: Sweep, effort: Effort, folder: Path) -> list[str]:
    """The notes on the points of a sweep, whose rows are in `folder`."""
    notes = _notes_of_points(rows)
    wide = [row for row in rows if row["outcome"] == OK and (plus_minus(row) or 1.0) > effort.precision]
    between = [row for row in wide if len(process_means(row)) > 1]
    wide = [row for row in wide if len(process_means(row)) == 1]
    if between:
        notes.append(
            f"from one process to the next, {counted(len(between), 'point scatters', 'points scatter')} more than "
            f"± {100 * effort.precision:g} %: more --processes narrow that"
        )
    if wide:
        notes.append(
            f"{counted(len(wide), 'point was', 'points were')} timed for --max-time, with an interval wider than "
            f"± {100 * effort.precision:g} %"
        )
    throttled = [row["point"] for row in rows if row["throttling"] not in (None, "none")]
    if throttled:
        notes.append(f"clocks were held down in {counted(len(throttled), 'point', 'points')}: {', '.join(throttled)}")
    notes += [*notes_on_cpu(rows), *counting_notes(rows), *power_notes(rows)]
    own = [target for target in sweep.targets if not sizes_of(target)]
    if own and (len(sweep.batch_sizes) > 1 or sweep.input_sizes != (None,)):
        notes.append(f"sizes were not varied for targets that make their own inputs: {', '.join(own)}")
    return [*notes, f"every column and sample is in {folder / BENCH_FILE}"]
