"""Utilisation of measured points of prefill and decode: MFU, MBU and the share of the roof."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ncu_launch.bench.point_outcomes import OK
from ncu_launch.targets.language.facts import LanguageFacts

from ncu_tools.ceilings.launch_devices import Device, measured_of
from ncu_tools.ceilings.machine_files import Machine, machine_of_device, unit_of
from ncu_tools.model.language.step_work import step_work
from ncu_tools.model.language.utilisation import DEFINITIONS, utilisation

Row = dict[str, Any]

OF_THE_MEDIAN = "time and tokens per second are medians"


def with_utilisation(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """The rows, with `mfu`, `mbu` and `of_the_roof` for prefill and decode, and notes that define them.

    All three use the median time, as tokens per second do; `of_the_roof` is the least time that the machine allows,
    divided by it. Each is None without a peak.
    """
    found, notes = [], list[str]()
    for row in rows:
        facts = _facts(row)
        if facts is None:
            found.append(row)
            continue
        machine = _machine(row)
        if machine is None:
            notes.append(
                f"MFU and MBU need the peaks of {row['device_name']}, which nobody measured: ncu-bench machines measure"
            )
            found.append(row)
            continue
        work, unit = step_work(facts, row["phase"]), unit_of(machine, row["dtype"])
        used = utilisation(work, row["latency_median_ns"], machine, unit)
        found.append({**row, "mfu": used.mfu, "mbu": used.mbu, "of_the_roof": used.of_the_roof})
        notes += [f"{DEFINITIONS}; {OF_THE_MEDIAN}", used.said]
    return found, list(dict.fromkeys(notes))


def _facts(row: Row) -> LanguageFacts | None:
    if row["outcome"] != OK or not row.get("language_facts"):
        return None
    return LanguageFacts.from_fields(json.loads(row["language_facts"]))


def _machine(row: Row) -> Machine | None:
    """The machine of a point: for a CPU one measured with as many threads, else that of a data sheet."""
    measured = measured_of(Device(row["device_name"], None, row["threads"]))
    return measured if row["device"] == "cpu" else machine_of_device(row["device_name"]) or measured
